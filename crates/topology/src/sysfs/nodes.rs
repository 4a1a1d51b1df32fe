//! Memory nodes: their CPUs, memory, distances and what the firmware claims about them.

use homenode_units::{
    Bytes, BytesPerSecond, CpuSet, Nanoseconds, NodeId, NodeMatrix, NodeSet, Reading,
};

use super::reader::{Reader, shorten};
use super::{MachineMemory, meminfo_line, memory_kind};
use crate::{Access, Cpus, Detail, Distance, HugePagePool, Node, SideCache, Tier};

const NODE: &str = "/sys/devices/system/node";

/// All that the node directory tells.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) list: Vec<Node>,
    /// Whether there is no node directory and the only node is implied.
    pub(super) implied: bool,
    pub(super) offline: NodeSet,
    pub(super) distances: Reading<NodeMatrix<Distance>>,
}

pub(super) fn read(
    reader: &mut Reader<'_>,
    detail: Detail,
    cpus: &Cpus,
    machine_memory: &Reading<MachineMemory>,
) -> Found {
    let online = online_nodes(reader);
    if online.is_empty() {
        return implied(cpus, machine_memory);
    }
    let possible: NodeSet = reader
        .list(format_args!("{NODE}/possible"))
        .unwrap_or_default();
    let initiators: NodeSet = match detail {
        Detail::Fast => NodeSet::new(),
        Detail::Full => reader
            .list(format_args!("{NODE}/has_generic_initiator"))
            .unwrap_or_default(),
    };
    let mut list: Vec<Node> = online
        .iter()
        .map(|id| Node {
            generic_initiator: initiators.contains(id),
            ..read_node(reader, id, cpus, detail)
        })
        .collect();
    let distances = read_distances(reader, &online, &possible);
    if detail == Detail::Full || list.iter().any(Node::is_cpuless) {
        let known = online.union(&possible);
        for node in &mut list {
            node.access = read_access(reader, node.id, &known);
        }
        memory_kind::classify(reader, &mut list);
    }
    find_nearest_cpus(&mut list, &distances);
    report_stray_cpus(reader, cpus, &list);
    Found {
        offline: possible.difference(&online),
        list,
        implied: false,
        distances,
    }
}

/// The nodes that are online and have a folder.
///
/// A node's own folder is never listed: it holds hundreds of memory blocks.
fn online_nodes(reader: &mut Reader<'_>) -> NodeSet {
    /// As many as Linux supports (`CONFIG_NODES_SHIFT` 10); beyond, the list is damaged.
    const LIKELY_MAX: usize = 1024;
    let folders = |reader: &mut Reader<'_>| -> NodeSet {
        let numbers = reader.numbered(NODE, "node").unwrap_or_default();
        numbers.into_iter().map(NodeId).collect()
    };
    let Ok(online) = reader.list::<NodeId>(format_args!("{NODE}/online")) else {
        return folders(reader);
    };
    let there = if online.len() > LIKELY_MAX {
        online.intersection(&folders(reader))
    } else {
        let has_folder = |node: &NodeId| reader.files.is_folder(&format!("{NODE}/node{node}"));
        online.iter().filter(has_folder).collect()
    };
    let missing = online.difference(&there);
    if !missing.is_empty() {
        reader.problem(
            format!("{NODE}/online"),
            format!("expected a folder for each online node, found none for nodes {missing}"),
        );
    }
    there
}

/// Without node directories the kernel has no NUMA support: everything is one node.
fn implied(cpus: &Cpus, machine_memory: &Reading<MachineMemory>) -> Found {
    let id = NodeId(0);
    let node = Node {
        cpus: cpus.online.clone(),
        cpus_offline: cpus.offline.clone(),
        memory_total: machine_memory.clone().map(|memory| memory.total),
        memory_free: match machine_memory {
            Reading::Known(MachineMemory {
                free: Some(free), ..
            }) => Reading::Known(*free),
            Reading::Known(_) => Reading::absent("no MemFree in /proc/meminfo"),
            Reading::Absent { why } => Reading::absent(why),
        },
        ..empty_node(id)
    };
    Found {
        list: vec![Node {
            nearest_cpu_nodes: [id].into_iter().collect(),
            ..node
        }],
        implied: true,
        offline: NodeSet::new(),
        distances: Reading::absent("the kernel has no NUMA support"),
    }
}

fn empty_node(id: NodeId) -> Node {
    Node {
        id,
        cpus: CpuSet::new(),
        cpus_offline: CpuSet::new(),
        memory_total: Reading::absent("not read"),
        memory_free: Reading::absent("not read"),
        huge_pages: Vec::new(),
        side_caches: Vec::new(),
        access: Vec::new(),
        nearest_cpu_nodes: NodeSet::new(),
        memory_kind: Reading::absent("no evidence"),
        interleave_weight: Reading::absent("not read; use --full"),
        generic_initiator: false,
    }
}

fn read_node(reader: &mut Reader<'_>, id: NodeId, cpus: &Cpus, detail: Detail) -> Node {
    let folder = format!("{NODE}/node{id}");
    let all = read_cpus(reader, &folder, detail);
    let (memory_total, memory_free) = read_memory(reader, &folder);
    let mut node = Node {
        cpus: all.intersection(&cpus.online),
        // Some kernels list CPUs that could come online; those that are not there do not count.
        cpus_offline: all.intersection(&cpus.offline),
        memory_total,
        memory_free,
        ..empty_node(id)
    };
    if detail == Detail::Full {
        node.huge_pages = read_huge_pages(reader, &folder);
        node.side_caches = read_side_caches(reader, &folder);
        let weight = reader.feature("weighted_interleave", |reader| {
            reader.number(format_args!(
                "/sys/kernel/mm/mempolicy/weighted_interleave/node{id}"
            ))
        });
        node.interleave_weight = reader.reading(weight);
    }
    node
}

fn read_cpus(reader: &mut Reader<'_>, folder: &str, detail: Detail) -> CpuSet {
    let map = reader.mask(format_args!("{folder}/cpumap"));
    if map.is_ok() && detail == Detail::Fast {
        return map.unwrap_or_default();
    }
    let list = reader.feature("cpulist", |reader| {
        reader.list(format_args!("{folder}/cpulist"))
    });
    match (map, list) {
        (Ok(map), Ok(list)) => {
            if map != list {
                reader.problem(
                    format!("{folder}/cpulist"),
                    format!("expected the CPUs of cpumap, {map}, found {list}; using cpumap"),
                );
            }
            map
        }
        (Ok(cpus), Err(_)) | (Err(_), Ok(cpus)) => cpus,
        (Err(_), Err(_)) => {
            reader.problem(
                folder,
                "expected cpumap or cpulist, found neither; taking no CPUs",
            );
            CpuSet::new()
        }
    }
}

/// Source: `node<n>/meminfo`, lines `Node <n> <Key>: <value> kB`.
fn read_memory(reader: &mut Reader<'_>, folder: &str) -> (Reading<Bytes>, Reading<Bytes>) {
    let path = format!("{folder}/meminfo");
    let found = reader.text(format_args!("{path}")).map(|text| {
        (
            meminfo_line(text, "MemTotal"),
            meminfo_line(text, "MemFree"),
        )
    });
    let (total, free) = match found {
        Ok(found) => found,
        Err(gap) => return (reader.reading(Err(gap)), reader.reading(Err(gap))),
    };
    if total.is_none() {
        reader.problem(&path, "expected a line `Node <n> MemTotal: <n> kB`");
    }
    let reading = |value: Option<Bytes>, key: &str| match value {
        Some(value) => Reading::Known(value),
        None => Reading::absent(format!("no {key} in {path}")),
    };
    let free = match (total, free) {
        (Some(total), Some(free)) if free > total => {
            reader.problem(
                &path,
                format!("expected MemFree below MemTotal {total}, found {free}"),
            );
            Reading::absent(format!("more than the total in {path}"))
        }
        (_, free) => reading(free, "MemFree"),
    };
    (reading(total, "MemTotal"), free)
}

fn read_huge_pages(reader: &mut Reader<'_>, folder: &str) -> Vec<HugePagePool> {
    let pools = format!("{folder}/hugepages");
    let mut huge_pages = Vec::new();
    for name in reader.names(&pools).unwrap_or_default() {
        let size = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"));
        let Some(kib) = size.and_then(|kib| kib.parse().ok()) else {
            continue;
        };
        let count = |reader: &mut Reader<'_>, file: &str| {
            reader.number::<u64>(format_args!("{pools}/{name}/{file}"))
        };
        if let (Ok(total_pages), Ok(free_pages)) = (
            count(reader, "nr_hugepages"),
            count(reader, "free_hugepages"),
        ) {
            huge_pages.push(HugePagePool {
                page_size: Bytes::from_kib(kib),
                total_pages,
                free_pages,
            });
        }
    }
    huge_pages.sort_by_key(|pool| pool.page_size);
    huge_pages
}

fn read_side_caches(reader: &mut Reader<'_>, folder: &str) -> Vec<SideCache> {
    let caches = format!("{folder}/memory_side_cache");
    let levels = reader.numbered(&caches, "index").unwrap_or_default();
    let mut side_caches = Vec::with_capacity(levels.len());
    for level in levels {
        let size = reader
            .number(format_args!("{caches}/index{level}/size"))
            .map(Bytes);
        let size = reader.reading(size);
        let line = reader
            .number(format_args!("{caches}/index{level}/line_size"))
            .ok()
            .map(Bytes);
        side_caches.push(SideCache {
            level,
            size,
            line_size: line,
        });
    }
    side_caches
}

/// Source: `node<n>/access{0,1}/initiators/`, Documentation/admin-guide/mm/numaperf.rst. The
/// kernel passes the HMAT's MB/s and nanoseconds on; 0 is unknown.
fn read_access(reader: &mut Reader<'_>, id: NodeId, known: &NodeSet) -> Vec<Access> {
    let mut classes = Vec::new();
    for class in [0, 1] {
        let folder = format!("{NODE}/node{id}/access{class}/initiators");
        let Ok(initiators) = reader.numbered(&folder, "node") else {
            continue;
        };
        let initiators: NodeSet = initiators.into_iter().map(NodeId).collect();
        let mut positive = |file: &str| {
            let number = reader.number::<u32>(format_args!("{folder}/{file}"));
            number.ok().filter(|&number| number > 0).map(f64::from)
        };
        classes.push(Access {
            class,
            initiators: initiators.intersection(known),
            read_latency: positive("read_latency").map(Nanoseconds),
            write_latency: positive("write_latency").map(Nanoseconds),
            read_bandwidth: positive("read_bandwidth").map(|mb| BytesPerSecond(mb * 1e6)),
            write_bandwidth: positive("write_bandwidth").map(|mb| BytesPerSecond(mb * 1e6)),
        });
    }
    classes
}

/// Columns of a distance row are positions in the list of online nodes, never node ids.
fn read_distances(
    reader: &mut Reader<'_>,
    online: &NodeSet,
    possible: &NodeSet,
) -> Reading<NodeMatrix<Distance>> {
    let mut rows = Vec::with_capacity(online.len());
    for node in online.iter() {
        let row = reader.value(format_args!("{NODE}/node{node}/distance"), parse_distances);
        let row = match row {
            Ok(row) => row,
            Err(gap) => return reader.reading(Err(gap)),
        };
        let path = format!("{NODE}/node{node}/distance");
        let expected = online.len();
        if row.len() == expected {
            rows.push(row);
            continue;
        }
        let found = row.len();
        if found == possible.len() {
            reader.problem(
                path,
                format!("expected {expected} distances, one per online node, found {found}; reading them as one per possible node"),
            );
            let by_node = possible
                .iter()
                .zip(row)
                .filter(|(node, _)| online.contains(*node));
            rows.push(by_node.map(|(_, distance)| distance).collect());
            continue;
        }
        let why = format!(
            "{found} distances for {expected} online and {} possible nodes",
            possible.len()
        );
        reader.problem(
            path,
            format!("expected {expected} distances, found {found}"),
        );
        return Reading::absent(why);
    }
    match NodeMatrix::from_rows(online.iter().collect(), rows) {
        Ok(matrix) => Reading::Known(matrix),
        Err(error) => Reading::absent(error.to_string()),
    }
}

fn parse_distances(text: &str) -> Result<Vec<Distance>, String> {
    if text.is_empty() {
        return Err("expected distances, such as `10 21`, found nothing".to_owned());
    }
    text.split_ascii_whitespace()
        .map(|word| {
            word.parse()
                .map(Distance)
                .map_err(|_| format!("expected a distance, such as 21, found `{}`", shorten(word)))
        })
        .collect()
}

/// A node with CPUs is its own nearest; for the others the firmware's word counts first (class 1
/// knows CPUs only), then the least distance, all at a tie.
fn find_nearest_cpus(nodes: &mut [Node], distances: &Reading<NodeMatrix<Distance>>) {
    let with_cpus: NodeSet = nodes
        .iter()
        .filter(|node| !node.is_cpuless())
        .map(|node| node.id)
        .collect();
    for node in nodes {
        if !node.is_cpuless() {
            node.nearest_cpu_nodes.insert(node.id);
            continue;
        }
        let named = node
            .access
            .iter()
            .rev()
            .map(|access| access.initiators.intersection(&with_cpus))
            .find(|initiators| !initiators.is_empty());
        node.nearest_cpu_nodes = named.unwrap_or_else(|| {
            let Some(distances) = distances.known() else {
                return NodeSet::new();
            };
            let distance = |from| distances.get(from, node.id).filter(|d| d.0 > 0);
            let least = with_cpus.iter().filter_map(distance).min();
            with_cpus
                .iter()
                .filter(|&from| least.is_some() && distance(from) == least)
                .collect()
        });
    }
}

fn report_stray_cpus(reader: &mut Reader<'_>, cpus: &Cpus, nodes: &[Node]) {
    let in_nodes = nodes
        .iter()
        .fold(CpuSet::new(), |all, node| all.union(&node.cpus));
    let strays = cpus.online.difference(&in_nodes);
    if !strays.is_empty() {
        reader.problem(
            NODE,
            format!("expected each CPU in a node, found CPUs {strays} in none"),
        );
    }
}

/// Source: `/sys/devices/virtual/memory_tiering/memory_tier<t>/nodelist`, Linux 6.1.
pub(super) fn read_tiers(reader: &mut Reader<'_>, online: &NodeSet) -> Reading<Vec<Tier>> {
    const TIERS: &str = "/sys/devices/virtual/memory_tiering";
    let ids = match reader.numbered(TIERS, "memory_tier") {
        Ok(ids) => ids,
        Err(gap) => return reader.reading(Err(gap)),
    };
    let tiers = ids.into_iter().filter_map(|id| {
        let nodes = reader.list(format_args!("{TIERS}/memory_tier{id}/nodelist"));
        let nodes = nodes.ok()?.intersection(online);
        Some(Tier { id, nodes })
    });
    Reading::Known(tiers.collect())
}

/// Source: `/sys/kernel/mm/numa/demotion_enabled`, Linux 5.15.
pub(super) fn read_demotion(reader: &mut Reader<'_>) -> Reading<bool> {
    let value = reader.value(
        format_args!("/sys/kernel/mm/numa/demotion_enabled"),
        |text| match text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            other => Err(format!(
                "expected true or false, found `{}`",
                shorten(other)
            )),
        },
    );
    reader.reading(value)
}
