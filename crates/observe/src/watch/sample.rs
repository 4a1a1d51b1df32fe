//! What is seen at one moment. It can be stored: times are not relative to anything of ours.

use std::time::Duration;

use homenode_units::{Bytes, NodeId, NodeSet, Pid, Reading};
use serde::{Deserialize, Serialize};

use crate::{Locality, Method, NodeSample, ProcessId, Vm, Workload};

/// A machine at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When, by [`homenode_host::Clock::now`]: for differences only.
    pub taken_at: Duration,
    /// When, since 1970.
    pub since_epoch: Duration,
    /// Memory and allocation counters, by node id.
    pub nodes: Vec<NodeSample>,
    /// The part of the last 10 s in which some task waited for memory.
    ///
    /// Unit: none, 0 to 1. Source: `some avg10` of `/proc/pressure/memory`.
    pub pressure: Reading<f64>,
    /// Processes with memory of their own, by number and start.
    pub processes: Vec<ProcessSample>,
    /// Control groups of workloads, by path.
    pub groups: Vec<GroupSample>,
    /// Processes that are there and could not be read.
    pub unreadable: u32,
    /// Time this observation took.
    pub took: Duration,
}

/// A process at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Who it is.
    pub id: ProcessId,
    /// Its parent.
    pub parent: Pid,
    /// The name of its first thread. It chooses it, so it may hold anything.
    pub name: String,
    /// The user it acts as: the name, else the number.
    pub user: String,
    /// The workload it belongs to.
    pub workload: Workload,
    /// The virtual machine it runs, if it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<Vm>,
    /// How many threads it has.
    pub threads: u32,
    /// When it was looked at, by [`homenode_host::Clock::now`]: an idle one not in each round.
    pub read_at: Duration,
    /// CPU time since its start. Unit: ticks of 10 ms.
    pub ticks: u64,
    /// CPU time that was seen spent on each node. Unit: ticks of 10 ms. It is less than
    /// [`Self::ticks`] where not every thread was looked at each time.
    pub ticks_on: Vec<(NodeId, u64)>,
    /// Its home: the fewest nodes that had [`crate::HOME_SHARE`] of its recent CPU time.
    pub home: NodeSet,
    /// How often its home changed since it is watched.
    pub migrations: u64,
    /// The nodes whose CPUs its first thread may use.
    pub nodes_allowed: NodeSet,
    /// Memory in use, explicit huge pages included. Unit: bytes.
    pub memory: Bytes,
    /// Where that lies.
    pub placed: Reading<Placed>,
    /// The part of its recent accesses that went to the node its threads ran on, by the kernel's
    /// hinting faults.
    pub access: Reading<f64>,
}

/// Where a process's memory was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// When it was asked, by [`homenode_host::Clock::now`].
    pub asked_at: Duration,
    /// By node id.
    pub nodes: Vec<PlacedOn>,
    /// How far a share may be off, in 95 of 100 cases; 0 where nothing was left to chance. Unit:
    /// none, 0 to 1.
    pub bound: f64,
    /// Pages that the answer rests on; `None` where there is one node.
    pub samples: Option<u32>,
}

/// The part of a process's memory on a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacedOn {
    /// The node.
    pub node: NodeId,
    /// Unit: none, 0 to 1.
    pub share: f64,
    /// Of the whole, not of the node's part: guest memory of a virtual machine. `None` where it
    /// runs none.
    pub guest: Option<f64>,
}

impl Placed {
    pub(super) fn new(
        locality: &Locality,
        asked_at: Duration,
        guest: Option<&[(NodeId, f64)]>,
    ) -> Self {
        let guest_on = |node| {
            let found = guest?.iter().find(|&&(on, _)| on == node);
            Some(found.map_or(0.0, |&(_, share)| share))
        };
        Self {
            asked_at,
            nodes: locality
                .nodes
                .iter()
                .map(|on| PlacedOn {
                    node: on.node,
                    share: on.share,
                    guest: guest_on(on.node),
                })
                .collect(),
            bound: locality.bound(),
            samples: match locality.method {
                Method::OnlyNode => None,
                Method::AllPages { pages } => Some(pages),
                Method::Sampled { samples, .. } => Some(samples),
            },
        }
    }
}

/// A control group at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSample {
    /// Its path in its hierarchy.
    pub path: String,
    /// Memory charged to it, by node id. Unit: bytes.
    pub nodes: Reading<Vec<(NodeId, Bytes)>>,
}
