//! Where each mapping of a process lies, page by page as the kernel counts it.

use std::collections::BTreeMap;

use homenode_units::{Bytes, NodeId};
use serde::Serialize;

use crate::ParseError;

/// A mapping and the pages it holds.
///
/// Source: a line of `/proc/<pid>/numa_maps`, `proc_pid_numa_maps(5)`; `show_numa_map()`,
/// `fs/proc/task_mmu.c`, Linux 6.12. To write it the kernel walks every page table entry with the
/// process held up: some 10 ms per GiB of base pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappingPages {
    /// First address.
    pub start: usize,
    /// The memory policy, in the kernel's words: `default`, `bind:0-1`, `prefer (many):0`.
    pub policy: String,
    /// What is mapped: a path, `[heap]`, `[stack]`, or empty for plain memory. A process chooses
    /// what stands here.
    pub name: String,
    /// Whether it consists of explicit huge pages (transparent ones do not count here).
    pub huge: bool,
    /// Size of the pages that the counts below are in. Unit: bytes.
    pub page: Bytes,
    /// Pages of the process's own, which no file backs.
    pub anon: u64,
    /// Pages written to.
    pub dirty: u64,
    /// Pages mapped; the kernel leaves it out where it equals [`Self::anon`].
    pub mapped: Option<u64>,
    /// The most processes that map one of its pages.
    pub mapmax: u64,
    /// Pages on each node; none where nothing is resident.
    pub nodes: BTreeMap<NodeId, u64>,
}

impl MappingPages {
    /// Resident pages, on all nodes.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.nodes.values().sum()
    }

    /// Resident memory on a node.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Bytes {
        let pages = self.nodes.get(&node).copied().unwrap_or(0);
        Bytes(pages.saturating_mul(self.page.0))
    }

    /// Resident memory, on all nodes.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        Bytes(self.pages().saturating_mul(self.page.0))
    }

    /// Whether its pages are the process's own: written to, or not backed by a file.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.anon.max(self.dirty) > 0
    }
}

/// Reads the text of `/proc/<pid>/numa_maps`; lines without a page size are in `base_page`s.
///
/// # Errors
///
/// [`ParseError`] with the first line that is no mapping.
pub fn parse_numa_maps(text: &str, base_page: Bytes) -> Result<Vec<MappingPages>, ParseError> {
    text.lines()
        .map(|line| {
            parse_line(line, base_page).ok_or_else(|| {
                ParseError::new("pages by node, such as 7f00 default anon=2 N0=2", line)
            })
        })
        .collect()
}

fn parse_line(line: &str, base_page: Bytes) -> Option<MappingPages> {
    let mut words = line.split_ascii_whitespace();
    let start = usize::from_str_radix(words.next()?, 16).ok()?;
    let mut policy = words.next()?.to_owned();
    // Two policies are written as two words.
    if matches!(policy.as_str(), "prefer" | "weighted") {
        policy = format!("{policy} {}", words.next()?);
    }
    let mut mapping = MappingPages {
        start,
        policy,
        name: String::new(),
        huge: false,
        page: base_page,
        anon: 0,
        dirty: 0,
        mapped: None,
        mapmax: 1,
        nodes: BTreeMap::new(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("file", path)) => mapping.name = unescape(path),
            Some(("anon", count)) => mapping.anon = count.parse().ok()?,
            Some(("dirty", count)) => mapping.dirty = count.parse().ok()?,
            Some(("mapped", count)) => mapping.mapped = Some(count.parse().ok()?),
            Some(("mapmax", count)) => mapping.mapmax = count.parse().ok()?,
            Some(("kernelpagesize_kB", kib)) => {
                mapping.page = Bytes::from_kib(kib.parse().ok()?);
            }
            Some((key, pages)) => {
                if let Some(Ok(node)) = key.strip_prefix('N').map(str::parse) {
                    mapping.nodes.insert(NodeId(node), pages.parse().ok()?);
                }
            }
            None => match word {
                "heap" | "stack" => mapping.name = format!("[{word}]"),
                "huge" => mapping.huge = true,
                _ => {}
            },
        }
    }
    Some(mapping)
}

/// Undoes what the kernel does to blanks, line feeds, `=` and backslashes in a path: `\040`
/// (`seq_file_path(m, file, "\n\t= ")`).
fn unescape(path: &str) -> String {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.as_bytes();
    while let [first, rest @ ..] = bytes {
        let code = rest
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(*first));
        bytes = if code.is_some() { &rest[3..] } else { rest };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The node that a process very likely runs on, judged by its memory alone.
///
/// It is the node with most of the process's own pages, written to or not backed by a file: those
/// were placed when the process itself touched them. Shared pages of files lie where whoever came
/// first ran. `None` where it has no pages of its own.
#[must_use]
pub fn home_by_memory(mappings: &[MappingPages]) -> Option<NodeId> {
    let mut own: BTreeMap<NodeId, u128> = BTreeMap::new();
    for mapping in mappings.iter().filter(|mapping| mapping.is_private()) {
        let private = u128::from(mapping.anon.max(mapping.dirty));
        let pages = u128::from(mapping.pages().max(1));
        for &node in mapping.nodes.keys() {
            // Which pages of a line are its own is not told: in proportion.
            let bytes = u128::from(mapping.on(node).0) * private.min(pages) / pages;
            *own.entry(node).or_default() += bytes;
        }
    }
    own.into_iter()
        // Of equals the lowest.
        .max_by_key(|&(node, bytes)| (bytes, std::cmp::Reverse(node)))
        .filter(|&(_, bytes)| bytes > 0)
        .map(|(node, _)| node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `numa_maps` of `cat` in U. Drepper, "What Every Programmer Should Know About Memory", 2007.
    const CAT: &str = "\
00400000 default file=/bin/cat mapped=3 N3=3
00504000 default file=/bin/cat anon=1 dirty=1 mapped=2 N3=2
00506000 default heap anon=3 dirty=3 active=0 N3=3
38a9000000 default file=/lib64/ld-2.4.so mapped=22 mapmax=47 N1=22
38a9119000 default file=/lib64/ld-2.4.so anon=1 dirty=1 N3=1
38a911a000 default file=/lib64/ld-2.4.so anon=1 dirty=1 N3=1
38a9200000 default file=/lib64/libc-2.4.so mapped=53 mapmax=52 N1=51 N2=2
38a933f000 default file=/lib64/libc-2.4.so
38a943f000 default file=/lib64/libc-2.4.so anon=1 dirty=1 mapped=3 mapmax=32 N1=2 N3=1
38a9443000 default file=/lib64/libc-2.4.so anon=1 dirty=1 N3=1
38a9444000 default anon=4 dirty=4 active=0 N3=4
2b2bbcdce000 default anon=1 dirty=1 N3=1
2b2bbcde4000 default anon=2 dirty=2 N3=2
2b2bbcde6000 default file=/usr/lib/locale/locale-archive mapped=11 mapmax=8 N0=11
7fffedcc7000 default stack anon=2 dirty=2 N3=2
";

    #[test]
    fn t33_pages_by_node_add_up_to_what_is_mapped_else_anonymous() {
        let maps = parse_numa_maps(CAT, Bytes(4096)).unwrap();
        assert_eq!(maps.len(), 15);
        for mapping in &maps {
            assert_eq!(
                mapping.pages(),
                mapping.mapped.unwrap_or(mapping.anon),
                "{mapping:?}"
            );
        }
        let on = |node| {
            let pages = maps.iter().filter_map(|m| m.nodes.get(&NodeId(node)));
            pages.sum::<u64>()
        };
        assert_eq!([on(0), on(1), on(2), on(3)], [11, 75, 2, 21]);
        assert_eq!(maps.iter().map(MappingPages::pages).sum::<u64>(), 109);
        assert_eq!(maps.iter().filter_map(|m| m.mapped).sum::<u64>(), 94);
        assert_eq!(maps.iter().map(|m| m.anon).sum::<u64>(), 17);
        assert_eq!(maps.iter().map(|m| m.dirty).sum::<u64>(), 17);
    }

    #[test]
    fn t34_the_home_follows_own_pages_not_the_majority() {
        let maps = parse_numa_maps(CAT, Bytes(4096)).unwrap();
        assert_eq!(home_by_memory(&maps), Some(NodeId(3)));
        let shared = parse_numa_maps("1000 default file=/x mapped=9 N1=9\n", Bytes(4096));
        assert_eq!(home_by_memory(&shared.unwrap()), None);
    }

    #[test]
    fn t27_what_was_reserved_and_not_touched_holds_no_page() {
        let maps = parse_numa_maps("7f0000000000 default\n", Bytes(4096)).unwrap();
        assert_eq!(maps[0].pages(), 0);
        assert_eq!(home_by_memory(&maps), None);
    }

    #[test]
    fn names_policies_and_page_sizes_are_read() {
        let text = "\
7f00 prefer (many):0-1 file=/tmp/a\\040b\\012[c]\\134 mapped=1 N0=1 kernelpagesize_kB=4
8f00 weighted interleave:0,2 huge dirty=3 N0=1 N2=2 kernelpagesize_kB=2048
9f00 bind=static|balancing:1 stack anon=1 N1=1 kernelpagesize_kB=4
";
        let maps = parse_numa_maps(text, Bytes(65536)).unwrap();
        assert_eq!(maps[0].policy, "prefer (many):0-1");
        assert_eq!(maps[0].name, "/tmp/a b\n[c]\\");
        assert_eq!(maps[1].policy, "weighted interleave:0,2");
        assert!(maps[1].huge);
        assert_eq!(maps[1].on(NodeId(2)), Bytes(4 << 20));
        assert_eq!(maps[2].policy, "bind=static|balancing:1");
        assert_eq!(maps[2].name, "[stack]");
        assert_eq!(home_by_memory(&maps), Some(NodeId(2)));
    }

    #[test]
    fn lines_that_are_no_mapping_are_refused() {
        for text in [
            "x",
            "7f00",
            "7f00 default N0=x",
            "\n",
            "7f00 default anon=-1",
        ] {
            parse_numa_maps(text, Bytes(4096)).unwrap_err();
        }
    }
}
