//! What was measured, in hwloc's form.

use homenode_measure::{Cell, Document, Test};
use homenode_topology::Topology;
use homenode_units::NodeId;

use super::element::{Element, mask};
use super::sections::numbers;
use super::tree::Tree;

/// The headline cells: the first pattern, whole buffer on huge pages.
fn cells(document: &Document) -> Vec<&Cell> {
    let mut all = document.of(Test::Latency).peekable();
    let Some(first) = all.peek().copied() else {
        return Vec::new();
    };
    all.filter(|cell| cell.kernel == first.kernel && cell.pages == first.pages)
        .collect()
}

/// Nanoseconds from a node's CPUs to a node's memory, as a whole number.
fn nanoseconds(cells: &[&Cell], from: NodeId, to: NodeId) -> Option<String> {
    let is_it = |cell: &&&Cell| cell.from.lowest() == Some(from) && cell.to.lowest() == Some(to);
    let median = cells.iter().find(is_it)?.outcome.measured()?.median;
    Some(format!("{median:.0}"))
}

/// A matrix over all nodes; hwloc has none with gaps, so a node without CPUs or memory makes it
/// impossible, and the attributes below still tell.
pub(super) fn distances(topology: &Topology, document: &Document) -> Option<Element> {
    let cells = cells(document);
    let nodes: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    if nodes.len() < 2 {
        return None;
    }
    let mut values = Vec::new();
    for &from in &nodes {
        for &to in &nodes {
            values.push(nanoseconds(&cells, from, to)?);
        }
    }
    let mut element = Element::new("distances2");
    element.set("type", "NUMANode");
    element.set("nbobjs", nodes.len().to_string());
    // Not from the system but from a user (2), latencies (4).
    element.set("kind", "6");
    element.set("name", "MeasuredLatency");
    element.set("indexing", "os");
    element.extend(numbers("indexes", nodes.iter().map(ToString::to_string)));
    element.extend(numbers("u64values", values.into_iter()));
    Some(element)
}

/// `Latency` and `ReadLatency` for each pair that was measured: what `hwloc_memattr_get_best_target`
/// and its like ask for.
pub(super) fn memory_attributes(
    topology: &Topology,
    tree: &Tree<'_>,
    document: &Document,
) -> Vec<Element> {
    let cells = cells(document);
    let attribute = |name: &str| {
        let mut element = Element::new("memattr");
        element.set("name", name);
        // Lower is better (2), needs an initiator (4).
        element.set("flags", "6");
        for to in &topology.nodes {
            for from in topology.nodes.iter().filter(|node| !node.cpus.is_empty()) {
                let Some(value) = nanoseconds(&cells, from.id, to.id) else {
                    continue;
                };
                let mut found = Element::new("memattr_value");
                found.set("target_obj_type", "NUMANode");
                found.set("target_obj_gp_index", tree.node_gp_index(to.id).to_string());
                found.set("value", value);
                found.set("initiator_cpuset", mask(&from.cpus));
                element.add(found);
            }
        }
        element
    };
    ["Latency", "ReadLatency"]
        .into_iter()
        .map(attribute)
        .filter(|found| !found.is_empty())
        .collect()
}
