//! The report on a machine: what it is, who uses its memory where, and what to do about it.

mod findings;
#[cfg(test)]
mod fixture;
pub(crate) mod format;
mod gather;
mod html;
mod html_style;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use homenode_measure::Document;
use homenode_observe::{Counters, Locality, MemoryUse, NodeCounters, Process, Row};
use homenode_topology::{Topology, Verdict};
use homenode_units::{Bytes, NodeId, NodeSet, Reading};
use serde::Serialize;

pub(crate) use format::{timestamp, wrap};
pub use gather::{GatherOptions, Progress, gather_captured, gather_live};
pub use html::report_html;
pub use text::report_text;

/// All that `homenode report` says, for people ([`report_text`], [`report_html`]) and for programs
/// ([`report_json`]).
///
/// Within a schema number, fields are only added.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineReport {
    /// `homenode.report/1`.
    pub schema: &'static str,
    /// Version of homenode that wrote it.
    pub version: &'static str,
    /// Which machine, and when.
    pub host: HostFacts,
    /// What kind of machine it is.
    pub verdict: Verdict,
    /// What was noticed while looking, most pressing first; the verdict has warnings of its own.
    pub findings: Vec<Finding>,
    /// What to do about it, most useful first; empty where nothing presses.
    pub next_steps: Vec<NextStep>,
    /// What the machine is made of.
    pub topology: Topology,
    /// Memory and allocations, one per node of the topology, by id.
    pub nodes: Vec<NodeReport>,
    /// Time over which rates were measured. Unit: seconds.
    pub interval_seconds: Reading<f64>,
    /// The processes with most memory, most first.
    pub processes: Reading<Vec<ProcessReport>>,
    /// Workloads with memory away from their home, most remote memory first.
    pub who_pays: Reading<Vec<Row>>,
    /// How many processes have memory of their own, shown or not.
    pub processes_total: usize,
    /// Memory of all processes; what several share is counted for each. Unit: bytes.
    pub processes_memory: Bytes,
    /// Processes that could not be read or located, by reason.
    pub unreadable: Vec<UnreadableGroup>,
    /// What was measured on this machine and kept, a document for each test.
    pub measured: Vec<Document>,
}

/// Which machine was looked at, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostFacts {
    /// Source: `/proc/sys/kernel/hostname`.
    pub name: Reading<String>,
    /// Release of the running kernel. Source: `/proc/sys/kernel/osrelease`.
    pub kernel: Reading<String>,
    /// When the machine was looked at: RFC 3339, in UTC.
    pub taken_at: Reading<String>,
    /// The user who looked (effective id): 0, root, sees most.
    pub asked_by_uid: Reading<u32>,
}

/// Memory and allocations of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReport {
    /// The node.
    pub node: NodeId,
    /// What its memory is used for.
    pub memory: Reading<MemoryUse>,
    /// Where allocations went since boot. Unit: base pages.
    pub counters: Reading<NodeCounters>,
    /// The same over the interval. Unit: base pages per second.
    pub per_second: Reading<Counters<Reading<f64>>>,
}

/// A process and where its memory lies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessReport {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The nodes of the CPUs it may run on.
    pub cpu_nodes: NodeSet,
    /// Where its memory lies.
    pub locality: Reading<Locality>,
}

/// Processes that could not be read, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnreadableGroup {
    /// Why, and what it would take.
    pub why: String,
    /// How many.
    pub count: usize,
}

/// Something an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about: `node 1`, `process 812 (postgres)`. May hold a name that a process chose.
    pub subject: String,
    /// What was seen, with its numbers, and what it means.
    pub message: String,
}

/// A step that can be taken today.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// What for.
    pub why: String,
    /// A command to type; capital words are to be replaced. Never holds a name that a process
    /// chose.
    pub command: Option<String>,
}

impl MachineReport {
    /// The name of the current schema.
    pub const SCHEMA: &'static str = "homenode.report/1";

    /// The only node, where there is just one.
    #[must_use]
    pub fn only_node(&self) -> Option<NodeId> {
        match self.topology.nodes.as_slice() {
            [node] => Some(node.id),
            _ => None,
        }
    }

    /// The shown processes; none where they could not be listed.
    #[must_use]
    pub fn shown_processes(&self) -> &[ProcessReport] {
        self.processes.known().map_or(&[], Vec::as_slice)
    }
}

/// The report as JSON, schema [`MachineReport::SCHEMA`], ending in a line feed.
///
/// # Errors
///
/// [`serde_json::Error`] when a value cannot be written, which no value of a report can cause.
pub fn report_json(report: &MachineReport) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(report).map(|json| json + "\n")
}
