//! Control groups: which one a process is in, and where its memory lies by the kernel's own count.

use std::collections::BTreeMap;

use homenode_host::{Buffer, Files};
use homenode_units::{Bytes, NodeId, Reading};

use crate::ParseError;

/// Where a process is among the control groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Its group in the hierarchy that has names for services and containers: that of version 2,
    /// or systemd's own in version 1, or that of the memory controller.
    pub path: String,
    /// Its group in the hierarchy that counts memory, and the version of that.
    pub memory: Option<(Version, String)>,
}

/// The two kinds of control groups, which count in different units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller; pages.
    One,
    /// One hierarchy; bytes.
    Two,
}

/// Reads the text of `/proc/<pid>/cgroup`: `<hierarchy>:<controllers>:<path>`, `cgroups(7)`.
#[must_use]
pub fn parse_membership(text: &str) -> Membership {
    let mut found = Membership::default();
    let mut two = None;
    let mut named = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if controllers.is_empty() {
            two = Some(path);
        } else if controllers.split(',').any(|name| name == "memory") {
            found.memory = Some((Version::One, path.to_owned()));
        } else if controllers == "name=systemd" {
            named = Some(path);
        }
    }
    if found.memory.is_none() {
        found.memory = two.map(|path| (Version::Two, path.to_owned()));
    }
    // Where both versions are mounted, one of them has everything in its root.
    let memory = found.memory.as_ref().map(|(_, path)| path.as_str());
    found.path = [two, named, memory]
        .into_iter()
        .flatten()
        .find(|path| *path != "/")
        .unwrap_or("/")
        .to_owned();
    found
}

/// Where the memory charged to a control group lies.
///
/// Exact, in constant time, for everyone to read. A page is charged to the group that touched it
/// first, and page cache belongs to it too.
///
/// Unit: bytes. Source: `memory.numa_stat`, Documentation/admin-guide/cgroup-v2.rst; `anon` +
/// `file` (which holds shared memory), and explicit huge pages from `hugetlb.<size>.numa_stat`.
///
/// # Errors
///
/// Absent with the reason where the group has no such file: the root, or a kernel before 5.10.
pub fn read_group_memory(
    files: &(impl Files + ?Sized),
    version: Version,
    path: &str,
    page: Bytes,
) -> Reading<BTreeMap<NodeId, Bytes>> {
    let root = match version {
        Version::One => "/sys/fs/cgroup/memory",
        Version::Two => "/sys/fs/cgroup",
    };
    if path == "/" || path.is_empty() {
        return Reading::absent("the root group counts for nobody");
    }
    // A process that is outside of our view of the groups: `/../../other`.
    if path.split('/').any(|part| part == "..") {
        return Reading::absent("the group is outside of this container");
    }
    let folder = format!("{root}/{}", path.trim_matches('/'));
    let mut buffer = Buffer::new();
    let text = match files.read(&format!("{folder}/memory.numa_stat"), &mut buffer) {
        Ok(text) => String::from_utf8_lossy(text).into_owned(),
        Err(error) => return Reading::absent(error.reason()),
    };
    let mut nodes = match parse_group_memory(&text, version, page) {
        Ok(nodes) => nodes,
        Err(error) => return Reading::absent(format!("cannot parse memory.numa_stat: {error}")),
    };
    if version == Version::Two {
        add_huge(files, &folder, &mut nodes, &mut buffer);
    }
    Reading::Known(nodes)
}

fn add_huge(
    files: &(impl Files + ?Sized),
    folder: &str,
    nodes: &mut BTreeMap<NodeId, Bytes>,
    buffer: &mut Buffer,
) {
    for size in ["2MB", "1GB"] {
        let path = format!("{folder}/hugetlb.{size}.numa_stat");
        let Ok(text) = files.read(&path, buffer) else {
            continue;
        };
        let text = String::from_utf8_lossy(text);
        let line = text.lines().find_map(|line| line.strip_prefix("total="));
        // The rest after `total=<bytes>` is as in any other line.
        for (node, bytes) in line.into_iter().flat_map(by_node) {
            let sum = nodes.entry(node).or_default();
            *sum = *sum + Bytes(bytes);
        }
    }
}

/// Reads the text of `memory.numa_stat`.
///
/// # Errors
///
/// [`ParseError`] when it has no line for `anon` and `file`.
pub fn parse_group_memory(
    text: &str,
    version: Version,
    page: Bytes,
) -> Result<BTreeMap<NodeId, Bytes>, ParseError> {
    let unit = match version {
        Version::One => page.0,
        Version::Two => 1,
    };
    let mut nodes: BTreeMap<NodeId, Bytes> = BTreeMap::new();
    for name in ["anon", "file"] {
        let line = text
            .lines()
            // Version 1 has the whole subtree beside the group itself, from Linux 3.1 on.
            .find_map(|line| line.strip_prefix("hierarchical_")?.strip_prefix(name))
            .or_else(|| text.lines().find_map(|line| line.strip_prefix(name)))
            .ok_or_else(|| ParseError::new("lines for anon and file", text))?;
        for (node, count) in by_node(line) {
            let sum = nodes.entry(node).or_default();
            *sum = *sum + Bytes(count.saturating_mul(unit));
        }
    }
    Ok(nodes)
}

/// The words `N<node>=<count>` of a line.
fn by_node(line: &str) -> impl Iterator<Item = (NodeId, u64)> + '_ {
    line.split_ascii_whitespace().filter_map(|word| {
        let (node, count) = word.strip_prefix('N')?.split_once('=')?;
        Some((NodeId(node.parse().ok()?), count.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use homenode_host::Snapshot;

    use super::*;

    #[test]
    fn the_group_is_found_in_either_version_and_in_both() {
        let two = parse_membership("0::/system.slice/db.service\n");
        assert_eq!(two.path, "/system.slice/db.service");
        assert_eq!(
            two.memory,
            Some((Version::Two, "/system.slice/db.service".to_owned()))
        );
        let both = parse_membership("9:name=systemd:/a.service\n4:cpu,memory:/m\n0::/\n");
        assert_eq!(both.path, "/a.service");
        assert_eq!(both.memory, Some((Version::One, "/m".to_owned())));
        // A name may hold colons.
        assert_eq!(parse_membership("0::/a:b\n").path, "/a:b");
        assert_eq!(parse_membership("garbage").path, "/");
    }

    #[test]
    fn version_two_counts_bytes_and_version_one_pages() {
        let two = "anon N0=4096 N1=8192\nfile N0=4096 N1=0\nkernel_stack N0=9 N1=9\n";
        let nodes = parse_group_memory(two, Version::Two, Bytes(4096)).unwrap();
        assert_eq!(nodes[&NodeId(0)], Bytes(8192));
        assert_eq!(nodes[&NodeId(1)], Bytes(8192));
        let one = "total=3 N0=3\nfile=1 N0=1\nanon=2 N0=2\nhierarchical_total=9 N0=9\n\
                   hierarchical_file=4 N0=4\nhierarchical_anon=5 N0=5\n";
        let nodes = parse_group_memory(one, Version::One, Bytes(4096)).unwrap();
        assert_eq!(nodes[&NodeId(0)], Bytes(9 * 4096));
        parse_group_memory("x", Version::Two, Bytes(4096)).unwrap_err();
    }

    #[test]
    fn explicit_huge_pages_are_added() {
        let mut machine = Snapshot::default();
        let folder = "/sys/fs/cgroup/machine.slice/vm.scope";
        machine.add_file(
            &format!("{folder}/memory.numa_stat"),
            "anon N0=1 N1=2\nfile N0=0 N1=0\n",
        );
        machine.add_file(
            &format!("{folder}/hugetlb.2MB.numa_stat"),
            "total=4194304 N0=0 N1=4194304\nhierarchical_total=4194304 N0=0 N1=4194304\n",
        );
        let read = |path| read_group_memory(&machine, Version::Two, path, Bytes(4096));
        let nodes = read("/machine.slice/vm.scope");
        assert_eq!(nodes.known().unwrap()[&NodeId(1)], Bytes(4_194_306));
        assert!(read("/").why().is_some());
        assert!(read("/../x").why().unwrap().contains("outside"));
        assert!(read("/gone").why().unwrap().starts_with("no /sys"));
    }
}
