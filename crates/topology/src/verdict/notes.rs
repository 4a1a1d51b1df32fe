//! Nodes without CPUs and nodes without memory, each with what is known about it.

use homenode_units::BytesPerSecond;

use crate::words::{cpus, nodes};
use crate::{MemoryKind, Node, Topology};

/// A sentence for each node that lacks CPUs or memory.
pub(super) fn odd_nodes(topology: &Topology) -> Vec<String> {
    topology
        .nodes
        .iter()
        .filter_map(|node| match (node.is_cpuless(), node.is_memoryless()) {
            (false, false) => None,
            (true, true) => Some(empty(node)),
            (true, false) => Some(cpuless(topology, node)),
            (false, true) => Some(format!(
                "node {} has {} and no memory",
                node.id,
                cpus(&node.cpus.union(&node.cpus_offline))
            )),
        })
        .collect()
}

fn empty(node: &Node) -> String {
    let why = if node.generic_initiator {
        "the firmware names it as a generic initiator, a device that starts accesses"
    } else {
        "memory may come later, as hot-plugged, CXL or GPU memory"
    };
    format!("node {} has neither CPUs nor memory: {why}", node.id)
}

/// `node 4 has no CPUs: 126 GiB of persistent memory, nearest to node 0, at distance 17`.
fn cpuless(topology: &Topology, node: &Node) -> String {
    let kind = node.memory_kind.known().map_or_else(
        || {
            let why = node.memory_kind.why().unwrap_or("no evidence");
            format!("memory of unknown kind ({why})")
        },
        |&kind| name(kind).to_owned(),
    );
    let mut text = match node.memory_total.known() {
        Some(size) => format!("node {} has no CPUs: {size} of {kind}", node.id),
        None => format!("node {} has no CPUs: {kind}", node.id),
    };
    if let Some(near) = node.nearest_cpu_nodes.lowest() {
        text = format!("{text}, nearest to {}", nodes(&node.nearest_cpu_nodes));
        let distance = topology.distances.known();
        if let Some(distance) = distance.and_then(|matrix| matrix.get(near, node.id)) {
            text = format!("{text}, at distance {distance}");
        }
    }
    if let Some(bandwidth) = best_read_bandwidth(node) {
        text = format!("{text}, {bandwidth} by the HMAT");
    }
    text
}

fn best_read_bandwidth(node: &Node) -> Option<BytesPerSecond> {
    // Class 1 counts CPUs only and is the last to be listed; class 0 also other initiators.
    let by_class = node.access.iter().max_by_key(|access| access.class)?;
    by_class.read_bandwidth
}

fn name(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Dram => "ordinary memory",
        MemoryKind::Hbm => "high-bandwidth memory (HBM)",
        MemoryKind::Cxl => "memory behind CXL",
        MemoryKind::Nvm => "persistent memory",
        MemoryKind::Gpu => "memory of a GPU",
        MemoryKind::SpecialPurpose => "memory set apart by the firmware, usually HBM",
    }
}
