//! What each node has to give.

use std::collections::BTreeMap;

use homenode_topology::{Distance, MemoryKind, Node, Topology};
use homenode_units::{Bytes, CpuId, CpuSet, NodeId, Reading};

/// The share of a node's CPUs whose work is taken for background noise, and at least half a CPU.
pub const NOISE: f64 = 0.1;

const NOISE_CPUS_MIN: f64 = 0.5;

/// How busy a machine is.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Time for which each CPU is busy. Unit: share of it, 0 to 1; a CPU that is missing is idle.
    pub busy: Reading<BTreeMap<CpuId, f64>>,
    /// Memory that a program could get on each node. Unit: bytes. Where a node is missing, what
    /// the topology says is free counts.
    pub obtainable: BTreeMap<NodeId, Bytes>,
    /// What the control groups of the one who asks leave, whatever the nodes have.
    pub group: Option<GroupLimit>,
}

/// A limit on memory that is not a node's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// What may still be used. Unit: bytes.
    pub left: Bytes,
    /// Where the limit is set, for the reasons: a file.
    pub file: String,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            busy: Reading::absent("not looked at"),
            obtainable: BTreeMap::new(),
            group: None,
        }
    }
}

/// What a node has to give to a new workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    pub(crate) node: NodeId,
    /// CPUs that are online and allowed.
    pub(crate) cpus: CpuSet,
    /// Of them, CPUs' worth of idle time, noise counted as idle.
    pub(crate) idle: f64,
    /// Memory a program could get; 0 where there is none or where it may not be used.
    pub(crate) memory: Bytes,
    /// Memory in all; 0 as above.
    pub(crate) memory_total: Bytes,
}

impl Offer {
    /// How many CPUs, for sums with shares of them.
    pub(crate) fn cpu_count(&self) -> f64 {
        count(self.cpus.len())
    }
}

/// A small number as a factor.
pub(crate) fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

/// What each node has to give, by id. Nodes with neither CPUs nor memory are there too.
pub(crate) fn offers(topology: &Topology, load: &Load) -> Vec<Offer> {
    topology
        .nodes
        .iter()
        .map(|node| offer(topology, load, node))
        .collect()
}

fn offer(topology: &Topology, load: &Load, node: &Node) -> Offer {
    let cpus = node
        .cpus
        .intersection(&topology.allowed.cpus)
        .difference(&topology.cpus.isolated);
    let all = count(cpus.len());
    let busy: f64 = load.busy.known().map_or(0.0, |busy| {
        cpus.iter().filter_map(|cpu| busy.get(&cpu)).sum()
    });
    let noise = (all * NOISE).max(NOISE_CPUS_MIN);
    // Memory of an accelerator is the accelerator's, whatever its distance.
    let usable = topology.allowed.nodes.contains(node.id)
        && node.memory_kind.known() != Some(&MemoryKind::Gpu);
    let total = node.memory_total.known().copied().unwrap_or_default();
    let free = load
        .obtainable
        .get(&node.id)
        .or(node.memory_free.known())
        .copied()
        .unwrap_or(total);
    Offer {
        node: node.id,
        cpus,
        idle: (all - (busy - noise).max(0.0)).clamp(0.0, all),
        memory: if usable { free } else { Bytes(0) },
        memory_total: if usable { total } else { Bytes(0) },
    }
}

/// How far a node's memory is from another's CPUs; what Linux assumes where nothing is said.
pub(crate) fn distance(topology: &Topology, from: NodeId, to: NodeId) -> Distance {
    let assumed = if from == to {
        Distance::LOCAL
    } else {
        Distance::KERNEL_DEFAULT_REMOTE
    };
    topology
        .distances
        .known()
        .and_then(|distances| distances.get(from, to))
        .copied()
        .unwrap_or(assumed)
}
