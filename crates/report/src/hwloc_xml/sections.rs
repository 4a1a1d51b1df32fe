//! Distances, memory attributes and core kinds, which stand behind the objects.

use homenode_topology::{Access, Node, Topology, hwloc_info};
use homenode_units::{BytesPerSecond, Nanoseconds};

use super::element::{Element, mask};
use super::tree::Tree;

/// hwloc writes 10 numbers to an element.
const NUMBERS_PER_ELEMENT: usize = 10;

/// The firmware's distances; hwloc has no matrix of a single object.
pub(super) fn distances(topology: &Topology) -> Option<Element> {
    let matrix = topology.distances.known()?;
    let nodes = matrix.nodes();
    if nodes.len() < 2 {
        return None;
    }
    let mut element = Element::new("distances2");
    element.set("type", "NUMANode");
    element.set("nbobjs", nodes.len().to_string());
    // From the operating system (1), latencies (4).
    element.set("kind", "5");
    element.set("name", "NUMALatency");
    element.set("indexing", "os");
    element.extend(numbers("indexes", nodes.iter().map(ToString::to_string)));
    let cells = matrix.cells().map(|(_, _, distance)| distance.to_string());
    element.extend(numbers("u64values", cells));
    Some(element)
}

pub(super) fn numbers(tag: &'static str, numbers: impl Iterator<Item = String>) -> Vec<Element> {
    let numbers: Vec<String> = numbers.collect();
    numbers
        .chunks(NUMBERS_PER_ELEMENT)
        .map(|chunk| {
            // A blank follows every number, also the last; `length` counts it.
            let text: String = chunk.iter().map(|number| format!("{number} ")).collect();
            let mut element = Element::new(tag);
            element.set("length", text.len().to_string());
            element.set_text(text);
            element
        })
        .collect()
}

/// Name and flags of an attribute (1 higher first, 2 lower first, 4 needs an initiator), and how
/// to get its value.
type Attribute = (&'static str, &'static str, fn(&Access) -> Option<f64>);

fn read_bandwidth(access: &Access) -> Option<f64> {
    access.read_bandwidth.map(megabytes_per_second)
}

fn write_bandwidth(access: &Access) -> Option<f64> {
    access.write_bandwidth.map(megabytes_per_second)
}

/// hwloc documents MiB/s, but hands on the kernel's MB/s as they are; so do we, so that both give
/// the same number for the same machine.
fn megabytes_per_second(BytesPerSecond(value): BytesPerSecond) -> f64 {
    value / 1e6
}

fn read_latency(access: &Access) -> Option<f64> {
    access.read_latency.map(|Nanoseconds(value)| value)
}

fn write_latency(access: &Access) -> Option<f64> {
    access.write_latency.map(|Nanoseconds(value)| value)
}

/// In hwloc's order. `Bandwidth` and `Latency` are its means of reading and writing.
const ATTRIBUTES: [Attribute; 6] = [
    ("Bandwidth", "5", |access| {
        Some(f64::midpoint(
            read_bandwidth(access)?,
            write_bandwidth(access)?,
        ))
    }),
    ("Latency", "6", |access| {
        Some(f64::midpoint(read_latency(access)?, write_latency(access)?))
    }),
    ("ReadBandwidth", "5", read_bandwidth),
    ("WriteBandwidth", "5", write_bandwidth),
    ("ReadLatency", "6", read_latency),
    ("WriteLatency", "6", write_latency),
];

/// What the HMAT claims. hwloc has no access classes: class 1 (CPUs only) is written, else 0.
pub(super) fn memory_attributes(topology: &Topology, tree: &Tree<'_>) -> Vec<Element> {
    let mut elements = Vec::new();
    for (name, flags, value) in ATTRIBUTES {
        let mut element = Element::new("memattr");
        element.set("name", name);
        element.set("flags", flags);
        for node in &topology.nodes {
            element.extend(memory_values(topology, tree, node, value));
        }
        if !element.is_empty() {
            elements.push(element);
        }
    }
    elements
}

fn memory_values(
    topology: &Topology,
    tree: &Tree<'_>,
    node: &Node,
    value: fn(&Access) -> Option<f64>,
) -> Vec<Element> {
    let Some(access) = node.access.iter().max_by_key(|access| access.class) else {
        return Vec::new();
    };
    let Some(value) = value(access) else {
        return Vec::new();
    };
    access
        .initiators
        .iter()
        .filter_map(|id| topology.node(id))
        // hwloc names initiators by their CPUs.
        .filter(|initiator| !initiator.cpus.is_empty())
        .map(|initiator| {
            let mut element = Element::new("memattr_value");
            element.set("target_obj_type", "NUMANode");
            element.set(
                "target_obj_gp_index",
                tree.node_gp_index(node.id).to_string(),
            );
            element.set("value", format!("{value:.0}"));
            element.set("initiator_cpuset", mask(&initiator.cpus));
            element
        })
        .collect()
}

/// Kinds of cores with their evidence.
pub(super) fn core_kinds(topology: &Topology) -> Vec<Element> {
    topology
        .core_kinds
        .iter()
        .map(|kind| {
            let mut element = Element::new("cpukind");
            element.set("cpuset", mask(&kind.cpus));
            if let Some(capacity) = kind.name.strip_prefix("capacity ") {
                element.add_info("LinuxCapacity", capacity);
            }
            element.add_info(hwloc_info::CORE_KIND, &kind.name);
            element
        })
        .collect()
}
