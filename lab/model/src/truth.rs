//! What really happened: the counters that tools inside a guest can be compared with.

use serde::{Deserialize, Serialize};

/// The counters of a machine since they were set to zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truth {
    /// `homenode.lab-truth/1`.
    pub schema: String,
    /// Time that passed on the machine. Unit: picoseconds.
    pub elapsed_ps: u64,
    /// Time that passed on the host meanwhile. Unit: nanoseconds. 0 from the model, which knows no
    /// host; the plugin fills it in.
    pub host_ns: u64,
    /// The furthest that one running CPU was ahead of another. Unit: picoseconds.
    pub skew_ps_max: u64,
    /// `[cpu]`
    pub cpus: Vec<CpuTruth>,
    /// Controllers and links.
    pub resources: Vec<ResourceTruth>,
}

/// What one CPU did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuTruth {
    /// Its node.
    pub node: u16,
    /// Instructions, without those before the model began.
    pub instructions: u64,
    /// Accesses found in each of its caches, nearest first. An access is a load or a store of up
    /// to 8 bytes; wider ones are several.
    pub hits: Vec<u64>,
    /// What it got from and gave to each node's memory: `[node]`.
    pub memory: Vec<NodeTruth>,
}

/// Lines between one CPU and one node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTruth {
    /// Lines fetched for loads.
    pub loads: u64,
    /// Lines fetched for stores.
    pub stores: u64,
    /// Of both, those that belonged to a stream and so were fetched ahead.
    pub ahead: u64,
    /// Lines written back when they left the last cache.
    pub write_backs: u64,
    /// Time that the CPU stood still for them. Unit: picoseconds.
    pub stall_ps: u64,
}

/// What went through a controller or a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceTruth {
    /// `controller 0`, `link 0 to 1`.
    pub name: String,
    /// Lines in all.
    pub lines: u64,
    /// The highest use in a window, as a part of what it can carry.
    pub used_max: f64,
}

impl Truth {
    /// The schema's name.
    pub const SCHEMA: &str = "homenode.lab-truth/1";

    /// Lines that CPUs fetched from memory of their own node, and of other nodes.
    #[must_use]
    pub fn local_and_remote(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for cpu in &self.cpus {
            for (node, memory) in cpu.memory.iter().enumerate() {
                let lines = memory.loads + memory.stores;
                if node == usize::from(cpu.node) {
                    sums.0 += lines;
                } else {
                    sums.1 += lines;
                }
            }
        }
        sums
    }
}
