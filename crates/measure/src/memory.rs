//! Memory to measure: on the nodes asked for, with the pages asked for, and never too much.

use homenode_host::{Buffer, Files};
use homenode_observe::parse_meminfo;
use homenode_sys::kernels::fill;
use homenode_sys::{NodeMemory, NodeMemoryError, PageKind, Policy, PolicyFlags, PolicyMode};
use homenode_units::{Bytes, NodeId, NodeSet};

use crate::Pages;

/// Of what a node could give when a run began, its free memory and its page cache, a run takes at
/// most this share.
pub const ROOM_SHARE: f64 = 0.5;

/// The share of pages that has to lie on the nodes asked for.
const PLACED_SHARE_MIN: f64 = 0.99;

/// Huge pages on x86-64 and, with base pages of 4 KiB, on aarch64.
pub(crate) const HUGE_PAGE: Bytes = Bytes(2 << 20);

/// Memory that is spread over nodes is made of huge pages from this size on; less of it would be so
/// few pages that it could not be spread evenly.
const SPREAD_HUGE_MIN: Bytes = Bytes(64 << 20);

/// Which pages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Huge ones: of the pool, else transparent, else base pages.
    Huge,
    /// Base pages.
    Base,
}

/// Memory that was found to lie where it should.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) memory: NodeMemory,
    pub(crate) pages: Pages,
}

/// What a node could give now: free memory and page cache.
pub(crate) fn obtainable(files: &dyn Files, node: NodeId) -> Option<Bytes> {
    let mut buffer = Buffer::new();
    let node = format!("/sys/devices/system/node/node{node}/meminfo");
    // A kernel without NUMA support has no nodes.
    let text = [node.as_str(), "/proc/meminfo"]
        .into_iter()
        .find_map(|path| Some(String::from_utf8_lossy(files.read(path, &mut buffer).ok()?).into()))
        .unwrap_or_else(String::new);
    Some(parse_meminfo(&text).ok()?.obtainable())
}

/// Half of the free pages of a node's pool; the rest stays for whom it was set aside.
fn pool_room(files: &dyn Files, node: NodeId) -> Bytes {
    let path =
        format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/free_hugepages");
    let mut buffer = Buffer::new();
    let free = files
        .read(&path, &mut buffer)
        .ok()
        .and_then(|text| std::str::from_utf8(text).ok()?.trim().parse::<u64>().ok())
        .unwrap_or(0);
    Bytes(free / 2 * HUGE_PAGE.0)
}

/// Memory spread evenly over these nodes (all on one where there is one), filled with random
/// numbers and verified.
///
/// # Errors
///
/// Why there is no such memory, for people.
pub(crate) fn allocate(
    files: &dyn Files,
    nodes: &NodeSet,
    size: Bytes,
    want: Want,
    seed: u64,
) -> Result<Placed, String> {
    let mode = if nodes.len() == 1 {
        PolicyMode::Bind
    } else {
        PolicyMode::Interleave
    };
    let spread_small = nodes.len() > 1 && size < SPREAD_HUGE_MIN;
    let want = if spread_small { Want::Base } else { want };
    let policy = Policy {
        flags: PolicyFlags {
            static_nodes: true,
            ..PolicyFlags::default()
        },
        ..Policy::new(mode, nodes.clone())
    };
    let placed = match with_pages(files, size, &policy, want) {
        // A filter that refuses policies, as Docker's default one does, matters only where there
        // is something to choose.
        Err(NodeMemoryError::Bind { .. }) if is_only_node(files, nodes) => {
            with_pages(files, size, &Policy::default(), want)
        }
        placed => placed,
    };
    let mut placed = placed.map_err(|error| chain(&error))?;
    placed.memory.touch().map_err(|error| chain(&error))?;
    fill(&mut placed.memory, seed);
    if placed.pages == Pages::Thp {
        placed.pages = transparent(files, &placed.memory);
    }
    verify(files, &placed.memory, nodes)?;
    Ok(placed)
}

/// Whether these are all the nodes there are, and one.
fn is_only_node(files: &dyn Files, nodes: &NodeSet) -> bool {
    let mut buffer = Buffer::new();
    let online = files.read("/sys/devices/system/node/online", &mut buffer);
    let online = online
        .ok()
        .and_then(|text| NodeSet::parse_list(std::str::from_utf8(text).ok()?).ok());
    nodes.len() == 1 && online.is_none_or(|online| online == *nodes)
}

/// Down the ladder: the pool, transparent huge pages, base pages.
fn with_pages(
    files: &dyn Files,
    size: Bytes,
    policy: &Policy,
    want: Want,
) -> Result<Placed, NodeMemoryError> {
    let make = |kind, pages| {
        NodeMemory::with_policy(size, policy, kind).map(|memory| Placed { memory, pages })
    };
    if want == Want::Base {
        return make(PageKind::Base, Pages::Base);
    }
    let share = Bytes(size.0 / policy.nodes.len().max(1) as u64);
    if policy
        .nodes
        .iter()
        .all(|node| pool_room(files, node) >= share)
        && let Ok(placed) = make(PageKind::Hugetlb(HUGE_PAGE), Pages::Hugetlb)
    {
        return Ok(placed);
    }
    make(PageKind::Thp, Pages::Thp).or_else(|error| match error {
        NodeMemoryError::NoThp => make(PageKind::Base, Pages::Base),
        error => Err(error),
    })
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What became of memory for which transparent huge pages were asked.
fn transparent(files: &dyn Files, memory: &NodeMemory) -> Pages {
    let mut buffer = Buffer::new();
    let Ok(text) = files.read("/proc/self/smaps", &mut buffer) else {
        return Pages::Mixed;
    };
    let huge = huge_bytes(&String::from_utf8_lossy(text), memory.as_slice());
    match huge.share_of(Bytes(memory.as_slice().len() as u64)) {
        Some(share) if share >= PLACED_SHARE_MIN => Pages::Thp,
        Some(share) if share > 0.0 => Pages::Mixed,
        _ => Pages::Base,
    }
}

/// Huge pages of the mapping that holds this memory. Source: `AnonHugePages` of
/// `/proc/self/smaps`, `proc_pid_smaps(5)`.
fn huge_bytes(smaps: &str, memory: &[u8]) -> Bytes {
    let start = memory.as_ptr().addr();
    let mut is_ours = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let (Some(from), Some(to)) = (number(from), number(to)) {
                is_ours = (from..to).contains(&start);
                continue;
            }
        }
        if is_ours && let Some(amount) = line.strip_prefix("AnonHugePages:") {
            let kib = amount.trim().trim_end_matches(" kB").parse();
            return Bytes::from_kib(kib.unwrap_or(0));
        }
    }
    Bytes(0)
}

/// Asks the kernel where the memory lies; spread memory has to be spread evenly.
///
/// # Errors
///
/// Where it lies instead, for people.
pub(crate) fn verify(
    files: &dyn Files,
    memory: &NodeMemory,
    nodes: &NodeSet,
) -> Result<(), String> {
    let placement = match memory.placement() {
        Ok(placement) => placement,
        Err(error) => numa_maps_placement(files, memory)
            .ok_or_else(|| format!("where its pages lie cannot be told: {}", chain(&error)))?,
    };
    // Pages go round: one node may have one less than another.
    let size = Bytes(memory.as_slice().len() as u64);
    let page = if size < SPREAD_HUGE_MIN {
        homenode_sys::page_size()
    } else {
        HUGE_PAGE
    };
    let one_less = page.share_of(size).unwrap_or(1.0);
    let count = u32::try_from(nodes.len().max(1)).unwrap_or(u32::MAX);
    let fair = match count {
        1 => PLACED_SHARE_MIN,
        count => PLACED_SHARE_MIN / f64::from(count) - one_less,
    };
    let is_fair = |node| placement.share_on(&NodeSet::from_iter([node])) >= fair;
    if placement.share_on(nodes) >= PLACED_SHARE_MIN && nodes.iter().all(is_fair) {
        return Ok(());
    }
    let found: Vec<String> = placement
        .pages
        .keys()
        .map(|&node| {
            let share = placement.share_on(&NodeSet::from_iter([node]));
            format!("{:.1} % on node {node}", share * 100.0)
        })
        .collect();
    let found = if found.is_empty() {
        "none anywhere".to_owned()
    } else {
        found.join(", ")
    };
    Err(format!("expected its pages on node {nodes}, found {found}"))
}

/// The same from `/proc/self/numa_maps`, where a filter refuses `move_pages(2)`, as Docker's does.
fn numa_maps_placement(
    files: &dyn Files,
    memory: &NodeMemory,
) -> Option<homenode_sys::PagePlacement> {
    let mut buffer = Buffer::new();
    let text = files.read("/proc/self/numa_maps", &mut buffer).ok()?;
    parse_numa_maps(
        &String::from_utf8_lossy(text),
        memory.as_slice().as_ptr().addr(),
    )
}

/// The pages of the mapping that begins last at or before an address. Source:
/// `/proc/<pid>/numa_maps`, numa(7).
fn parse_numa_maps(text: &str, address: usize) -> Option<homenode_sys::PagePlacement> {
    let start = |line: &str| usize::from_str_radix(line.split(' ').next()?, 16).ok();
    let line = text
        .lines()
        .filter(|line| start(line).is_some_and(|start| start <= address))
        .max_by_key(|line| start(line))?;
    let mut placement = homenode_sys::PagePlacement::default();
    for word in line.split(' ') {
        let Some((node, pages)) = word.strip_prefix('N').and_then(|word| word.split_once('='))
        else {
            continue;
        };
        placement
            .pages
            .insert(NodeId(node.parse().ok()?), pages.parse().ok()?);
    }
    Some(placement)
}

#[cfg(test)]
mod tests {
    use homenode_host::{Live, Snapshot};

    use super::*;

    fn a_node() -> Option<NodeId> {
        homenode_sys::allowed_nodes().ok()?.lowest()
    }

    #[test]
    fn memory_is_placed_filled_and_verified() {
        let Some(node) = a_node() else {
            eprintln!("skipped: memory policies are not to be had here");
            return;
        };
        for want in [Want::Base, Want::Huge] {
            let nodes = NodeSet::from_iter([node]);
            let placed = allocate(&Live, &nodes, Bytes(4 << 20), want, 5).unwrap();
            assert!(
                placed
                    .memory
                    .as_slice()
                    .chunks(8)
                    .all(|word| word != [0; 8])
            );
            assert_eq!(
                want == Want::Base,
                placed.pages == Pages::Base || want == Want::Base
            );
            verify(&Live, &placed.memory, &nodes).unwrap();
            let other = NodeSet::from_iter([NodeId(node.0 + 1)]);
            let error = verify(&Live, &placed.memory, &other).unwrap_err();
            assert!(
                error.contains(&format!("100.0 % on node {node}")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_an_error_for_people() {
        let nodes = NodeSet::from_iter([NodeId(60_000)]);
        let error = allocate(&Live, &nodes, Bytes(4096), Want::Base, 0).unwrap_err();
        assert!(error.contains("60000"), "{error}");
    }

    #[test]
    fn numa_maps_tells_where_pages_are() {
        let text = "00400000 default file=/bin/cat mapped=3 N3=3\n\
                    7f0000000000 bind:1 anon=512 dirty=512 N0=2 N1=510 kernelpagesize_kB=4\n\
                    7f0000400000 default stack anon=2 N3=2\n";
        let placement = parse_numa_maps(text, 0x7f00_0020_0000).unwrap();
        assert_eq!(placement.pages, [(NodeId(0), 2), (NodeId(1), 510)].into());
        assert_eq!(parse_numa_maps(text, 0x1000), None);
        assert_eq!(parse_numa_maps("", 0), None);
    }

    #[test]
    fn huge_pages_are_those_of_the_mapping() {
        let memory = [0u8; 16];
        let start = memory.as_ptr().addr();
        let smaps = format!(
            "10-20 rw-p 0 00:00 0\nAnonHugePages:   4096 kB\n\
             {:x}-{:x} rw-p 0 00:00 0\nSize: 5 kB\nAnonHugePages:   2048 kB\n",
            start - 4096,
            start + 4096
        );
        assert_eq!(huge_bytes(&smaps, &memory), Bytes(2 << 20));
        assert_eq!(huge_bytes("", &memory), Bytes(0));
    }

    #[test]
    fn the_only_node_needs_no_policy() {
        let mut machine = Snapshot::default();
        let node = |id| NodeSet::from_iter([NodeId(id)]);
        // A kernel without NUMA support shows no nodes.
        assert!(is_only_node(&machine, &node(0)));
        machine.add_file("/sys/devices/system/node/online", "0\n");
        assert!(is_only_node(&machine, &node(0)));
        machine.add_file("/sys/devices/system/node/online", "0-1\n");
        assert!(!is_only_node(&machine, &node(0)));
        assert!(!is_only_node(&machine, &NodeSet::first(2)));
    }

    #[test]
    fn what_a_node_could_give_is_read() {
        let mut machine = Snapshot::default();
        machine.add_file(
            "/sys/devices/system/node/node1/meminfo",
            "Node 1 MemTotal: 1000 kB\nNode 1 MemFree: 300 kB\nNode 1 Active(file): 50 kB\n\
             Node 1 Inactive(file): 20 kB\nNode 1 SReclaimable: 0 kB\n",
        );
        assert_eq!(obtainable(&machine, NodeId(1)), Some(Bytes::from_kib(370)));
        assert_eq!(obtainable(&machine, NodeId(2)), None);
        machine.add_file("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 400 kB\n");
        assert_eq!(obtainable(&machine, NodeId(2)), Some(Bytes::from_kib(400)));
    }
}
