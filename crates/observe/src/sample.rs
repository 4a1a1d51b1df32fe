use std::time::Duration;

use homenode_host::{Buffer, Files};
use homenode_units::{NodeId, NodeSet, Reading};
use serde::{Deserialize, Serialize};

use crate::counters::rates_between_counters;
use crate::{Counters, MemoryUse, NodeCounters, parse_meminfo};

/// The state of all nodes at one moment, as the kernel counts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// When it was taken, by [`homenode_host::Clock::now`].
    pub taken_at: Duration,
    /// One per node asked for, by id.
    pub nodes: Vec<NodeSample>,
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSample {
    /// The node.
    pub node: NodeId,
    /// What its memory is used for.
    pub memory: Reading<MemoryUse>,
    /// Where allocations went since boot.
    pub counters: Reading<NodeCounters>,
}

/// What a node's counters did between two samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRates {
    /// The node.
    pub node: NodeId,
    /// Unit: base pages per second.
    pub per_second: Reading<Counters<Reading<f64>>>,
}

/// Reads the state of these nodes: two small files each, 20 µs.
///
/// A kernel without node files has one implied node; the memory of the machine stands for it.
pub fn read_sample(files: &(impl Files + ?Sized), nodes: &NodeSet, taken_at: Duration) -> Sample {
    let counting = read_counting(files);
    let only = nodes.len() == 1;
    let nodes = nodes
        .iter()
        .map(|node| NodeSample {
            node,
            memory: read_memory(files, node, only),
            counters: match &counting {
                Ok(()) => read_counters(files, node),
                Err(why) => Reading::absent(why.clone()),
            },
        })
        .collect();
    Sample { taken_at, nodes }
}

/// Whether the kernel counts; when switched off its counters are all 0, which means nothing.
fn read_counting(files: &(impl Files + ?Sized)) -> Result<(), String> {
    let mut buffer = Buffer::new();
    match files.read("/proc/sys/vm/numa_stat", &mut buffer) {
        Ok(text) if text.trim_ascii() == b"0" => Err("counting is off: vm.numa_stat is 0".into()),
        // Kernels before 4.15 always count and have no such switch.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn read_counters(files: &(impl Files + ?Sized), node: NodeId) -> Reading<NodeCounters> {
    let path = format!("/sys/devices/system/node/node{node}/numastat");
    read_text(files, &path, NodeCounters::parse)
}

fn read_memory(files: &(impl Files + ?Sized), node: NodeId, only: bool) -> Reading<MemoryUse> {
    let of_node = read_text(
        files,
        &format!("/sys/devices/system/node/node{node}/meminfo"),
        parse_meminfo,
    );
    if only && of_node.known().is_none() {
        return read_text(files, "/proc/meminfo", parse_meminfo);
    }
    of_node
}

fn read_text<T>(
    files: &(impl Files + ?Sized),
    path: &str,
    parse: impl FnOnce(&str) -> Result<T, crate::ParseError>,
) -> Reading<T> {
    let mut buffer = Buffer::new();
    match files.read(path, &mut buffer) {
        Ok(text) => match parse(&String::from_utf8_lossy(text)) {
            Ok(value) => Reading::Known(value),
            Err(error) => Reading::absent(format!("cannot parse {path}: {error}")),
        },
        Err(error) => Reading::absent(error.reason()),
    }
}

/// What happened between two samples; nodes that are not in both are absent with the reason.
#[must_use]
pub fn rates_between(earlier: &Sample, later: &Sample) -> Vec<NodeRates> {
    let elapsed = later.taken_at.saturating_sub(earlier.taken_at);
    let rates = |after: &NodeSample| {
        let before = earlier
            .nodes
            .iter()
            .find(|before| before.node == after.node);
        match (before.map(|before| &before.counters), &after.counters) {
            (Some(Reading::Known(before)), Reading::Known(after)) => {
                Reading::Known(rates_between_counters(before, after, elapsed))
            }
            (None, _) => Reading::absent("the node was not there before"),
            (Some(Reading::Absent { why }), _) | (_, Reading::Absent { why }) => {
                Reading::absent(why.clone())
            }
        }
    };
    later
        .nodes
        .iter()
        .map(|after| NodeRates {
            node: after.node,
            per_second: rates(after),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use homenode_host::Snapshot;

    use super::*;

    fn machine(hits: u64) -> Snapshot {
        let mut machine = Snapshot::default();
        for node in [0, 2] {
            let folder = format!("/sys/devices/system/node/node{node}");
            machine.add_file(
                &format!("{folder}/numastat"),
                format!(
                    "numa_hit {hits}\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 0\n\
                     local_node 0\nother_node 0\n"
                ),
            );
            machine.add_file(
                &format!("{folder}/meminfo"),
                format!("Node {node} MemTotal: 1000 kB\nNode {node} MemFree: 400 kB\n"),
            );
        }
        machine
    }

    fn nodes(list: &str) -> NodeSet {
        NodeSet::parse_list(list).unwrap()
    }

    #[test]
    fn two_samples_give_rates_per_node() {
        let earlier = read_sample(&machine(1000), &nodes("0,2"), Duration::from_secs(5));
        let later = read_sample(&machine(1500), &nodes("0,2"), Duration::from_secs(7));
        let rates = rates_between(&earlier, &later);
        assert_eq!(rates[1].node, NodeId(2));
        let per_second = rates[1].per_second.known().unwrap();
        assert_eq!(per_second.numa_hit, Reading::Known(250.0));
    }

    #[test]
    fn a_node_that_came_or_has_no_files_is_absent_with_the_reason() {
        let earlier = read_sample(&machine(1), &nodes("0"), Duration::ZERO);
        let later = read_sample(&machine(1), &nodes("0,2,3"), Duration::from_secs(1));
        let rates = rates_between(&earlier, &later);
        assert_eq!(
            rates[1].per_second.why(),
            Some("the node was not there before")
        );
        let why = later.nodes[2].memory.why().unwrap();
        assert_eq!(why, "no /sys/devices/system/node/node3/meminfo");
    }

    #[test]
    fn counters_switched_off_are_absent_not_zero() {
        let mut machine = machine(0);
        machine.add_file("/proc/sys/vm/numa_stat", "0\n");
        let sample = read_sample(&machine, &nodes("0"), Duration::ZERO);
        assert_eq!(
            sample.nodes[0].counters.why(),
            Some("counting is off: vm.numa_stat is 0")
        );
    }

    #[test]
    fn without_node_files_the_machine_is_the_node() {
        let mut machine = Snapshot::default();
        machine.add_file("/proc/meminfo", "MemTotal: 100 kB\nMemFree: 30 kB\n");
        let sample = read_sample(&machine, &nodes("0"), Duration::ZERO);
        assert_eq!(sample.nodes[0].memory.known().unwrap().used().0, 70 << 10);
    }
}
