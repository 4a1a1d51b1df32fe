//! Distances, memory attributes and core kinds, which stand beside the objects.

use std::collections::BTreeMap;

use homenode_units::{
    BytesPerSecond, CpuId, CpuSet, Nanoseconds, NodeId, NodeMatrix, NodeSet, Reading,
};

use super::document::{Document, Element};
use super::machine::bad_info;
use super::tree::{ObjectKind, Tree};
use super::{HwlocXmlError, info};
use crate::limits::NODE_LIMIT;
use crate::{Access, CoreKind, Distance, Topology};

/// Bits of `kind`: values that the operating system gave, and latencies.
const KIND_FROM_OS: u64 = 1;
const KIND_LATENCY: u64 = 4;

/// Takes the firmware's distances. Matrices of other origin, unit or objects are passed over: a
/// latency that somebody measured is no SLIT.
pub(super) fn fill_distances(
    topology: &mut Topology,
    document: &Document,
    tree: &Tree<'_>,
) -> Result<(), HwlocXmlError> {
    topology.distances = match tree.machine_info(info::DISTANCES) {
        None => Reading::absent("hwloc XML without NUMALatency"),
        Some(text) => match (
            text.strip_prefix(info::ABSENT),
            text.parse(),
            &*topology.nodes,
        ) {
            (Some(why), ..) => Reading::absent(why),
            (None, Ok(distance), [node]) => {
                NodeMatrix::from_rows(vec![node.id], vec![vec![Distance(distance)]])
                    .map_or_else(|error| Reading::absent(error.to_string()), Reading::Known)
            }
            _ => {
                let expected = "absent: and the reason, or the distance of the only node";
                return Err(bad_info(tree.machine(), info::DISTANCES, expected, text));
            }
        },
    };
    for element in document.children(document.root(), "distances2") {
        let kind: u64 = element.required_number("kind", "a number")?;
        if element.get("type") == Some("NUMANode")
            && matches!(element.get("name"), None | Some("NUMALatency"))
            && kind & (KIND_FROM_OS | KIND_LATENCY) == KIND_FROM_OS | KIND_LATENCY
        {
            topology.distances = distances(topology, document, element)?;
        }
    }
    Ok(())
}

fn distances(
    topology: &Topology,
    document: &Document,
    element: &Element,
) -> Result<Reading<NodeMatrix<Distance>>, HwlocXmlError> {
    const COUNT: &str = "a number from 2 to 1024";
    let count: usize = element.required_number("nbobjs", COUNT)?;
    if !(2..=NODE_LIMIT as usize).contains(&count) {
        return Err(element.bad_value("nbobjs", COUNT, &count.to_string()));
    }
    if element
        .get("indexing")
        .is_some_and(|indexing| indexing != "os")
    {
        let found = element.get("indexing").unwrap_or_default();
        return Err(element.bad_value("indexing", "os, for NUMANode", found));
    }
    let indexes: Vec<u32> = numbers(document, element, "indexes", count)?;
    let values: Vec<u32> = numbers(document, element, "u64values", count * count)?;
    // Rows and columns by node id: hwloc keeps them in the order of its tree.
    let mut order: Vec<(NodeId, usize)> = indexes.into_iter().map(NodeId).zip(0..).collect();
    order.sort_unstable();
    let rows = order
        .iter()
        .map(|&(_, row)| {
            let row = &values[row * count..(row + 1) * count];
            order
                .iter()
                .map(|&(_, column)| Distance(row[column]))
                .collect()
        })
        .collect();
    let nodes: Vec<NodeId> = order.iter().map(|&(node, _)| node).collect();
    let matrix = NodeMatrix::from_rows(nodes, rows)
        .map_err(|error| element.bad_value("indexes", "each node once", &error.to_string()))?;
    let found: NodeSet = matrix
        .nodes()
        .iter()
        .copied()
        .filter(|node| node.0 < NODE_LIMIT)
        .collect();
    if matrix.nodes().len() == topology.nodes.len() && found == topology.node_ids() {
        return Ok(Reading::Known(matrix));
    }
    Ok(Reading::absent(format!(
        "hwloc XML has distances of nodes {found} only"
    )))
}

/// The numbers in all children with this tag, of which there must be `count`.
fn numbers<T: std::str::FromStr>(
    document: &Document,
    element: &Element,
    tag: &str,
    count: usize,
) -> Result<Vec<T>, HwlocXmlError> {
    let mut numbers = Vec::new();
    for child in document.children(element, tag) {
        for word in child.text.split_ascii_whitespace() {
            if numbers.len() == count {
                let expected = format!("{count} numbers, as nbobjs says");
                return Err(element.bad_value(tag, expected, "more"));
            }
            let number = word
                .parse()
                .map_err(|_| child.bad_value("text", "numbers below 4294967296", word))?;
            numbers.push(number);
        }
    }
    if numbers.len() < count {
        let expected = format!("{count} numbers, as nbobjs says");
        return Err(element.bad_value(tag, expected, &numbers.len().to_string()));
    }
    Ok(numbers)
}

/// What a `memattr` of hwloc measures, and how a better value compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Metric {
    ReadLatency,
    WriteLatency,
    ReadBandwidth,
    WriteBandwidth,
}

impl Metric {
    /// The metrics of an attribute; `Bandwidth` and `Latency` are means of reading and writing and
    /// stand in for both, and are passed over where those are told apart.
    fn of(name: &str) -> &'static [Self] {
        match name {
            "ReadLatency" => &[Self::ReadLatency],
            "WriteLatency" => &[Self::WriteLatency],
            "ReadBandwidth" => &[Self::ReadBandwidth],
            "WriteBandwidth" => &[Self::WriteBandwidth],
            "Latency" => &[Self::ReadLatency, Self::WriteLatency],
            "Bandwidth" => &[Self::ReadBandwidth, Self::WriteBandwidth],
            _ => &[],
        }
    }

    fn is_better(self, new: u64, old: u64) -> bool {
        match self {
            Self::ReadLatency | Self::WriteLatency => new < old,
            Self::ReadBandwidth | Self::WriteBandwidth => new > old,
        }
    }
}

/// The best value of a metric so far, and from where.
#[derive(Debug)]
struct Best {
    value: u64,
    initiators: NodeSet,
}

/// Takes the memory attributes, for nodes that do not carry our own, more exact words.
///
/// A file names initiators by CPUs, which makes them access class 1; like the HMAT in sysfs, only
/// the best are kept. Attributes that homenode measured are no claims of the firmware and are passed
/// over.
pub(super) fn fill_access(
    topology: &mut Topology,
    document: &Document,
    tree: &Tree<'_>,
) -> Result<(), HwlocXmlError> {
    let mut initiators = Initiators::new(topology);
    let mut best: BTreeMap<(NodeId, Metric), Best> = BTreeMap::new();
    let measured: Vec<&str> = tree.machine().infos(info::MEASURED_ATTRIBUTE).collect();
    // The means come first, so that reads and writes told apart replace them.
    for means in [true, false] {
        let mut this_round: BTreeMap<(NodeId, Metric), Best> = BTreeMap::new();
        for attribute in document.children(document.root(), "memattr") {
            let name = attribute.required("name", "the name of the attribute")?;
            let metrics = Metric::of(name);
            if metrics.is_empty() || (metrics.len() > 1) != means || measured.contains(&name) {
                continue;
            }
            for value in document.children(attribute, "memattr_value") {
                let Some((node, number)) = memory_value(value, tree)? else {
                    continue;
                };
                let from = initiators.of(value, tree)?;
                for &metric in metrics {
                    keep_best(&mut this_round, (node, metric), number, &from);
                }
            }
        }
        best.append(&mut this_round);
    }
    for node in topology
        .nodes
        .iter_mut()
        .filter(|node| node.access.is_empty())
    {
        node.access.extend(access(node.id, &best));
    }
    Ok(())
}

/// The node and the number of a `memattr_value`; `None` when it is about something else or 0,
/// which is unknown.
fn memory_value(value: &Element, tree: &Tree<'_>) -> Result<Option<(NodeId, u64)>, HwlocXmlError> {
    if value.required("target_obj_type", "a type such as NUMANode")? != "NUMANode" {
        return Ok(None);
    }
    let expected = "the gp_index of a NUMANode";
    let gp_index: u64 = value.required_number("target_obj_gp_index", expected)?;
    let Some(ObjectKind::NumaNode(node)) = tree.by_gp_index(gp_index).map(|object| object.kind)
    else {
        return Err(value.bad_value("target_obj_gp_index", expected, &gp_index.to_string()));
    };
    let number: u64 = value.required_number("value", "a number")?;
    Ok((number > 0).then_some((node, number)))
}

fn keep_best(
    best: &mut BTreeMap<(NodeId, Metric), Best>,
    key: (NodeId, Metric),
    value: u64,
    initiators: &NodeSet,
) {
    let entry = best.entry(key).or_insert_with(|| Best {
        value,
        initiators: NodeSet::new(),
    });
    if entry.value == value {
        entry.initiators = entry.initiators.union(initiators);
    } else if key.1.is_better(value, entry.value) {
        entry.value = value;
        entry.initiators = initiators.clone();
    }
}

fn access(node: NodeId, best: &BTreeMap<(NodeId, Metric), Best>) -> Option<Access> {
    let get = |metric| best.get(&(node, metric));
    let all = [
        Metric::ReadLatency,
        Metric::WriteLatency,
        Metric::ReadBandwidth,
        Metric::WriteBandwidth,
    ];
    let first = all.into_iter().find_map(get)?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "latencies and bandwidths are far below 2^53"
    )]
    let number = |metric| get(metric).map(|best| best.value as f64);
    // hwloc documents MiB/s and hands on the kernel's MB/s as they are.
    let bandwidth = |metric| number(metric).map(|value| BytesPerSecond(value * 1e6));
    Some(Access {
        class: 1,
        initiators: first.initiators.clone(),
        read_latency: number(Metric::ReadLatency).map(Nanoseconds),
        write_latency: number(Metric::WriteLatency).map(Nanoseconds),
        read_bandwidth: bandwidth(Metric::ReadBandwidth),
        write_bandwidth: bandwidth(Metric::WriteBandwidth),
    })
}

/// Finds the nodes whose CPUs an initiator has.
///
/// Cost is the size of the text: a set of CPUs is walked once where it stands in the file, and the
/// CPUs of an object once for all values that refer to it.
struct Initiators {
    node_of: BTreeMap<CpuId, NodeId>,
    of_object: BTreeMap<u64, NodeSet>,
}

impl Initiators {
    fn new(topology: &Topology) -> Self {
        let mut node_of = BTreeMap::new();
        for node in &topology.nodes {
            node_of.extend(node.cpus.iter().map(|cpu| (cpu, node.id)));
        }
        Self {
            node_of,
            of_object: BTreeMap::new(),
        }
    }

    fn of(&mut self, value: &Element, tree: &Tree<'_>) -> Result<NodeSet, HwlocXmlError> {
        if let Some(cpus) = value.cpus("initiator_cpuset")? {
            return Ok(self.nodes_of(&cpus));
        }
        let expected = "the gp_index of an object";
        let Some(gp_index) = value.number::<u64>("initiator_obj_gp_index", expected)? else {
            return Ok(NodeSet::new());
        };
        if let Some(known) = self.of_object.get(&gp_index) {
            return Ok(known.clone());
        }
        let object = tree.by_gp_index(gp_index).ok_or_else(|| {
            value.bad_value("initiator_obj_gp_index", expected, &gp_index.to_string())
        })?;
        let nodes = self.nodes_of(&object.cpus);
        self.of_object.insert(gp_index, nodes.clone());
        Ok(nodes)
    }

    fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        cpus.iter()
            .filter_map(|cpu| self.node_of.get(&cpu).copied())
            .collect()
    }
}

/// Takes the kinds of cores, where there are at least two.
pub(super) fn fill_core_kinds(
    topology: &mut Topology,
    document: &Document,
) -> Result<(), HwlocXmlError> {
    let mut kinds = Vec::new();
    for element in document.children(document.root(), "cpukind") {
        let Some(cpus) = element.cpus("cpuset")? else {
            continue;
        };
        let cpus = cpus.intersection(&topology.cpus.online);
        if !cpus.is_empty() {
            let name = core_kind_name(document, element);
            kinds.push(CoreKind { cpus, name });
        }
    }
    kinds.sort_by_key(|kind| kind.cpus.lowest());
    if kinds.len() > 1 {
        topology.core_kinds = kinds;
    }
    Ok(())
}

/// The most telling evidence that a file gives for a kind of core.
fn core_kind_name(document: &Document, element: &Element) -> String {
    let info = |wanted: &str| {
        document
            .children(element, "info")
            .find(|info| info.get("name") == Some(wanted))
            .and_then(|info| info.get("value"))
    };
    if let Some(name) = info(info::CORE_KIND).or_else(|| info("CoreType")) {
        return name.to_owned();
    }
    if let Some(capacity) = info("LinuxCapacity") {
        return format!("capacity {capacity}");
    }
    match info("FrequencyMaxMHz") {
        Some(frequency) => format!("highest frequency {frequency} MHz"),
        None => "unnamed".to_owned(),
    }
}
