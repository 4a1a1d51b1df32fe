//! Nodes whose memory is missing, uneven, or does not add up.

use homenode_units::{Bytes, NodeSet};

use super::warning;
use crate::verdict::Warning;
use crate::words::{cpus, id_set, nodes};
use crate::{Node, Topology};

/// Nodes may differ by this part of the larger one: firmware tables, the kernel and its page
/// descriptors (64 bytes for each page of 4 KiB, 1.6 %) come out of what `MemTotal` counts.
const RESERVED_PART: u64 = 16;
/// And by this much besides: the kernel's image and what it reserves early is on one node, and on
/// a guest with small nodes it is a large part.
const RESERVED_BYTES: u64 = 128 << 20;
/// The nodes' sum and `/proc/meminfo` may differ by this part.
const SUM_PART: u64 = 8;

pub(super) fn memory(topology: &Topology) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(memoryless(topology));
    warnings.extend(unequal(topology));
    warnings.extend(sum(topology));
    warnings.extend(free_above_total(topology));
    warnings
}

/// CPUs that have to use another node's memory.
fn memoryless(topology: &Topology) -> Vec<Warning> {
    topology
        .cpu_nodes()
        .filter(|node| node.is_memoryless())
        .map(|node| {
            let own = node.cpus.union(&node.cpus_offline);
            let message = format!(
                "node {} has no memory: its CPUs ({}) always pay remote cost",
                node.id,
                cpus(&own)
            );
            let with_memory = id_set(
                topology
                    .cpu_nodes()
                    .filter(|node| node.memory_total.known().is_some_and(|size| size.0 > 0))
                    .map(|node| node.id),
            );
            let advice = format!(
                "fit memory to node {} or look for a limit that hides it (mem=, a licence); until \
                 then keep programs that use much memory on {}",
                node.id,
                nodes(&with_memory)
            );
            let warning = warning(format!("node {}", node.id), message);
            if with_memory.is_empty() {
                warning
            } else {
                warning.advise(advice)
            }
        })
        .collect()
}

/// Nodes of about one size.
struct SizeGroup {
    nodes: NodeSet,
    smallest: Bytes,
    largest: Bytes,
}

/// The nodes with CPUs and memory, in groups of about one size, largest first.
fn size_groups(topology: &Topology) -> Vec<SizeGroup> {
    let mut sizes: Vec<(Bytes, &Node)> = topology
        .cpu_nodes()
        .filter_map(|node| Some((*node.memory_total.known()?, node)))
        .filter(|(size, _)| size.0 > 0)
        .collect();
    sizes.sort_by_key(|(size, node)| (std::cmp::Reverse(*size), node.id));
    let mut groups: Vec<SizeGroup> = Vec::new();
    for (size, node) in sizes {
        match groups.last_mut() {
            Some(group) if about_equal(group.largest, size) => {
                group.nodes.insert(node.id);
                group.smallest = size;
            }
            _ => groups.push(SizeGroup {
                nodes: id_set([node.id]),
                smallest: size,
                largest: size,
            }),
        }
    }
    groups
}

fn about_equal(larger: Bytes, smaller: Bytes) -> bool {
    larger.saturating_sub(smaller).0 <= larger.0 / RESERVED_PART + RESERVED_BYTES
}

fn unequal(topology: &Topology) -> Option<Warning> {
    let groups = size_groups(topology);
    let (largest, others) = groups.split_first()?;
    let smallest = others.last()?;
    let parts: Vec<String> = groups
        .iter()
        .map(|group| {
            let each = if group.nodes.len() > 1 { " each" } else { "" };
            let size = if group.smallest == group.largest {
                group.largest.to_string()
            } else {
                format!("about {}", group.largest)
            };
            let verb = if group.nodes.len() > 1 { "have" } else { "has" };
            format!("{} {verb} {size}{each}", nodes(&group.nodes))
        })
        .collect();
    let share = smallest.smallest.share_of(largest.largest)? * 100.0;
    let message = format!(
        "nodes differ in memory: {}; the smallest has {share:.0} % of the largest",
        parts.join(", ")
    );
    Some(
        warning("memory", message)
            .advise("fit every node alike; until then plan programs by the smallest node they use"),
    )
}

fn sum(topology: &Topology) -> Option<Warning> {
    if topology.nodes.is_empty() {
        return None;
    }
    let whole = *topology.memory_total.known()?;
    let sizes: Option<Vec<Bytes>> = topology
        .nodes
        .iter()
        .map(|node| node.memory_total.known().copied())
        .collect();
    let sum: Bytes = sizes?.into_iter().sum();
    let difference = sum.saturating_sub(whole).0.max(whole.saturating_sub(sum).0);
    (difference > whole.0 / SUM_PART && difference > RESERVED_BYTES).then(|| {
        let message = format!(
            "the nodes' memory adds up to {sum}, while the kernel counts {whole} in all \
             (/proc/meminfo)"
        );
        let warning = warning("memory", message);
        if topology.nodes_offline.is_empty() {
            warning.advise(
                "read again later: memory that the kernel still sets up (deferred_init) is not \
                 yet counted to its node",
            )
        } else {
            let offline = nodes(&topology.nodes_offline);
            warning.advise(format!("the rest may be memory of {offline}, not online"))
        }
    })
}

fn free_above_total(topology: &Topology) -> Vec<Warning> {
    topology
        .nodes
        .iter()
        .filter_map(|node| {
            let (total, free) = (node.memory_total.known()?, node.memory_free.known()?);
            (free > total).then(|| {
                warning(
                    format!("node {}", node.id),
                    format!("more memory is free ({free}) than there is ({total})"),
                )
            })
        })
        .collect()
}
