//! Captured machines: what we read against what hwloc reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use homenode_host::Captured;
use homenode_topology::{CacheKind, Detail, Source, Topology, read_topology};
use homenode_units::{CpuSet, NodeId};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::archives::archives;

/// Where hwloc and homenode differ on purpose: machine, what differs, why.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    (
        "16ia64-8n2s",
        "packages",
        "ia64-packages: ids say 8, hwloc believes the masks, which say 16",
    ),
    (
        "64intel64-fakeKNL-SNC4-hybrid",
        "caches",
        "knl-side-cache: hwloc takes it from a file that a helper of its own left in /var/run",
    ),
];

/// What hwloc says of a machine.
#[derive(Debug, Default, PartialEq, Eq)]
struct Oracle {
    packages: Vec<CpuSet>,
    cores: Vec<CpuSet>,
    /// Level, kind, bytes, CPUs.
    caches: Vec<(u8, CacheKind, u64, CpuSet)>,
    /// CPUs and bytes of each node; CPU-less nodes have those of their parent.
    nodes: BTreeMap<NodeId, (CpuSet, u64)>,
    distances: Option<(Vec<u32>, Vec<u32>)>,
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = element
        .try_get_attribute(name)
        .expect("well-formed attributes")?;
    Some(attribute.value.into_owned())
}

impl Oracle {
    fn read(folder: &Path) -> Option<Self> {
        let output = Command::new("lstopo-no-graphics")
            .args(["--if", "fsroot", "-i"])
            .arg(folder)
            .args(["--no-io", "--disallowed", "--of", "xml"])
            .env("HWLOC_HIDE_ERRORS", "2")
            .env("HWLOC_DEBUG_ALLOW_OVERLAPPING_NODE_CPUSETS", "2")
            .env("HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES", "1")
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let why = "lstopo-no-graphics is not installed";
                assert!(std::env::var_os("HOMENODE_TEST_NO_SKIP").is_none(), "{why}");
                println!("skipped: {why}");
                return None;
            }
            Err(error) => panic!("lstopo-no-graphics: {error}"),
        };
        let text = String::from_utf8(output.stdout).expect("XML is UTF-8");
        assert!(
            text.contains("<topology"),
            "lstopo on {}: {text}",
            folder.display()
        );
        Some(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut oracle = Self::default();
        let mut reader = Reader::from_str(text);
        let mut numbers: Option<&str> = None;
        let mut latency = false;
        let (mut indexes, mut values) = (Vec::new(), Vec::new());
        loop {
            match reader.read_event().expect("well-formed XML") {
                Event::Eof => break,
                Event::Start(element) | Event::Empty(element) => match element.name().as_ref() {
                    "object" => oracle.object(&element),
                    "distances2" => {
                        latency = attribute(&element, "name").as_deref() == Some("NUMALatency");
                    }
                    "indexes" if latency => numbers = Some("indexes"),
                    "u64values" if latency => numbers = Some("values"),
                    _ => numbers = None,
                },
                Event::Text(text) => {
                    let text = text.as_ref();
                    let parsed = text
                        .split_ascii_whitespace()
                        .map(|n| n.parse::<u32>().expect("a number"));
                    match numbers {
                        Some("indexes") => indexes.extend(parsed),
                        Some("values") => values.extend(parsed),
                        _ => {}
                    }
                }
                Event::End(_) => numbers = None,
                _ => {}
            }
        }
        oracle.distances = (!indexes.is_empty()).then_some((indexes, values));
        oracle.packages.sort();
        oracle.cores.sort();
        oracle.caches.sort();
        oracle
    }

    fn object(&mut self, element: &BytesStart<'_>) {
        let kind = attribute(element, "type").expect("each object has a type");
        let Some(cpus) = attribute(element, "cpuset") else {
            return;
        };
        let cpus = CpuSet::parse_mask(&cpus).expect("a mask");
        let number = |name| attribute(element, name).and_then(|text| text.parse::<u64>().ok());
        match kind.as_str() {
            "Package" => self.packages.push(cpus),
            "Core" => self.cores.push(cpus),
            "NUMANode" => {
                let id = u32::try_from(number("os_index").expect("an index")).expect("an id");
                let memory = number("local_memory").unwrap_or(0);
                self.nodes.insert(NodeId(id), (cpus, memory));
            }
            cache if cache.ends_with("Cache") && cache.starts_with('L') => {
                let kind = match number("cache_type") {
                    Some(0) => CacheKind::Unified,
                    Some(1) => CacheKind::Data,
                    _ => CacheKind::Instruction,
                };
                let level = u8::try_from(number("depth").expect("a level")).expect("a level");
                self.caches
                    .push((level, kind, number("cache_size").unwrap_or(0), cpus));
            }
            _ => {}
        }
    }
}

fn sorted(sets: impl Iterator<Item = CpuSet>) -> Vec<CpuSet> {
    let mut sets: Vec<CpuSet> = sets.collect();
    sets.sort();
    sets
}

/// Each difference as what differs and how.
fn differences(ours: &Topology, oracle: &Oracle) -> Vec<(&'static str, String)> {
    fn only<T: PartialEq + std::fmt::Debug>(
        what: &'static str,
        ours: &[T],
        theirs: &[T],
    ) -> Vec<(&'static str, String)> {
        let lacking = |a: &[T], b: &[T], who: &str| {
            let found: Vec<String> = a
                .iter()
                .filter(|x| !b.contains(x))
                .map(|x| format!("{x:?}"))
                .collect();
            found
                .into_iter()
                .map(|x| (what, format!("only {who} {x}")))
                .collect::<Vec<_>>()
        };
        let mut all = lacking(ours, theirs, "homenode has");
        all.extend(lacking(theirs, ours, "hwloc has"));
        if all.is_empty() && ours.len() != theirs.len() {
            all.push((
                what,
                format!("{} for homenode, {} for hwloc", ours.len(), theirs.len()),
            ));
        }
        all
    }
    let packages = sorted(ours.packages.iter().map(|package| package.cpus.clone()));
    let mut found = only("packages", &packages, &oracle.packages);
    let cores = sorted(ours.cores.iter().map(|core| core.cpus.clone()));
    found.extend(only("cores", &cores, &oracle.cores));
    let caches: Vec<_> = ours
        .caches
        .iter()
        .map(|cache| {
            let size = cache.size.known().map_or(0, |size| size.0);
            (cache.level, cache.kind, size, cache.cpus.clone())
        })
        .collect();
    found.extend(only("caches", &caches, &oracle.caches));
    for node in &ours.nodes {
        let memory = node.memory_total.known().map_or(0, |memory| memory.0);
        match oracle.nodes.get(&node.id) {
            None if node.is_memoryless() => {}
            None => found.push(("nodes", format!("hwloc does not know node {}", node.id))),
            Some((cpus, their_memory)) => {
                if !node.is_cpuless() && node.cpus != *cpus {
                    found.push((
                        "nodes",
                        format!("node {}: {:?}, {cpus:?}", node.id, node.cpus),
                    ));
                }
                if memory != *their_memory {
                    found.push((
                        "memory",
                        format!("node {}: {memory}, {their_memory}", node.id),
                    ));
                }
            }
        }
    }
    for id in oracle.nodes.keys().filter(|id| ours.node(**id).is_none()) {
        found.push(("nodes", format!("only hwloc has node {id}")));
    }
    let Some((indexes, values)) = &oracle.distances else {
        return found;
    };
    for (position, expected) in values.iter().enumerate() {
        let from = NodeId(indexes[position / indexes.len()]);
        let to = NodeId(indexes[position % indexes.len()]);
        let distance = ours
            .distances
            .known()
            .and_then(|matrix| matrix.get(from, to));
        if distance.map(|distance| distance.0) != Some(*expected) {
            found.push((
                "distances",
                format!("{from} to {to}: {distance:?}, {expected}"),
            ));
        }
    }
    found
}

#[test]
fn every_captured_machine_is_read_as_hwloc_reads_it() {
    let mut compared = 0;
    let mut unexpected = Vec::new();
    let mut unused: Vec<_> = EXCEPTIONS.to_vec();
    for archive in archives() {
        for folder in archive.unpacked() {
            let files = Captured::open(&folder).expect("an unpacked machine");
            let source = Source::Captured(archive.name.clone());
            let ours = read_topology(&files, source, Detail::Full).expect("a machine");
            let Some(oracle) = Oracle::read(&folder) else {
                return;
            };
            compared += 1;
            for (what, how) in differences(&ours, &oracle) {
                let expected =
                    |&(name, part, _): &(&str, &str, &str)| name == archive.name && part == what;
                unused.retain(|exception| !expected(exception));
                if !EXCEPTIONS.iter().any(expected) {
                    unexpected.push(format!("{}: {what}: {how}", archive.name));
                }
            }
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    assert!(
        compared == 0 || unused.is_empty(),
        "exceptions without a difference: {unused:?}"
    );
    println!("compared {compared} machines with hwloc");
}

#[test]
fn fast_and_full_agree_on_what_both_read() {
    for archive in archives() {
        for (root, machine) in archive.machines() {
            let read = |detail| {
                read_topology(&machine, Source::Captured(root.clone()), detail).expect("a machine")
            };
            let (fast, full) = (read(Detail::Fast), read(Detail::Full));
            assert_eq!(fast.packages, full.packages, "{root}");
            assert_eq!(fast.cpus.online, full.cpus.online, "{root}");
            assert_eq!(fast.cpus.offline, full.cpus.offline, "{root}");
            assert_eq!(fast.distances, full.distances, "{root}");
            assert_eq!(fast.allowed, full.allowed, "{root}");
            let cpus_and_memory = |topology: &Topology| {
                let nodes = topology.nodes.iter();
                nodes
                    .map(|node| (node.cpus.clone(), node.memory_total.clone()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(cpus_and_memory(&fast), cpus_and_memory(&full), "{root}");
            let l3 = |topology: &Topology| {
                sorted(topology.data_caches(3).map(|cache| cache.cpus.clone()))
            };
            assert_eq!(l3(&fast), l3(&full), "{root}");
        }
    }
}
