//! What is worth saying about what was seen, and what to do next. Pure: a report in, words out.

use homenode_observe::MemoryUse;
use homenode_topology::Certainty;
use homenode_units::{Bytes, NodeId, NodeSet, Reading};

use super::format::{nodes_named, percent, rate, shares};
use super::{Finding, MachineReport, NextStep, NodeReport, ProcessReport};

/// A node with less free than this counts as full: at that point the kernel's watermarks send
/// allocations to other nodes (`vm.min_free_kbytes`, `vm.watermark_scale_factor`: 0.1 to 3 %).
const FULL_BELOW: f64 = 0.04;
/// And another node must have this much free for the advice to make sense.
const ROOM_ABOVE: f64 = 0.20;
/// Part of the allocations wanted on a node that may go elsewhere without a word.
const MISSES_ABOVE: f64 = 0.01;
/// Below this many pages per second (4 MiB/s of 4 KiB pages) misses cost nothing worth a word.
const MISSES_PER_SECOND_MIN: f64 = 1024.0;
/// A process with less memory than this is not worth moving.
const MEMORY_MIN: Bytes = Bytes(256 << 20);
/// Less than this on a second node does not count as spread.
const SPREAD_ABOVE: f64 = 0.10;
/// How many findings of one kind are worth reading.
const OF_A_KIND_MAX: usize = 3;

pub(super) fn findings(report: &MachineReport) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(
        full_nodes(report)
            .map(|full| full.finding())
            .take(OF_A_KIND_MAX),
    );
    findings.extend(missed_allocations(report).take(OF_A_KIND_MAX));
    findings.extend(
        remote_processes(report)
            .map(|(_, finding)| finding)
            .take(OF_A_KIND_MAX),
    );
    findings.extend(
        spread_processes(report)
            .map(spread_finding)
            .take(OF_A_KIND_MAX),
    );
    findings
}

/// A node without free memory, and the node with most.
struct FullNode<'report> {
    node: &'report NodeReport,
    memory: &'report MemoryUse,
    roomy: NodeId,
    roomy_free: Bytes,
}

fn full_nodes(report: &MachineReport) -> impl Iterator<Item = FullNode<'_>> {
    let with_memory = || {
        report
            .nodes
            .iter()
            .filter_map(|node| Some((node, node.memory.known()?)))
            .filter(|(_, memory)| memory.total > Bytes(0))
    };
    let free_share = |memory: &MemoryUse| memory.free.share_of(memory.total).unwrap_or(0.0);
    let roomiest = with_memory()
        .filter(|(_, memory)| free_share(memory) > ROOM_ABOVE)
        .max_by_key(|(_, memory)| memory.free);
    with_memory()
        .filter(move |(_, memory)| free_share(memory) < FULL_BELOW)
        .filter_map(move |(node, memory)| {
            let (roomy, use_there) = roomiest?;
            Some(FullNode {
                node,
                memory,
                roomy: roomy.node,
                roomy_free: use_there.free,
            })
        })
}

impl FullNode<'_> {
    fn finding(&self) -> Finding {
        let Self {
            node,
            memory,
            roomy,
            roomy_free,
        } = self;
        let droppable = memory.obtainable().saturating_sub(memory.free);
        let cache = match droppable.share_of(memory.total) {
            Some(share) if share > ROOM_ABOVE => format!(
                " {droppable} of what is used could be dropped (file cache and the like), but \
                 unless vm.zone_reclaim_mode is set the kernel goes to another node first."
            ),
            _ => String::new(),
        };
        Finding {
            subject: format!("node {}", node.node),
            message: format!(
                "{} of {} free, while node {roomy} has {roomy_free} free: new memory for programs \
                 on node {} comes from other nodes.{cache}",
                memory.free, memory.total, node.node
            ),
        }
    }
}

fn missed_allocations(report: &MachineReport) -> impl Iterator<Item = Finding> {
    report.nodes.iter().filter_map(|node| {
        let rates = node.per_second.known()?;
        let (hit, foreign) = (rates.numa_hit.known()?, rates.numa_foreign.known()?);
        let share = foreign / (hit + foreign);
        // A share of nothing is not a number, and then not above anything.
        (share > MISSES_ABOVE && *foreign > MISSES_PER_SECOND_MIN).then(|| Finding {
            subject: format!("node {}", node.node),
            message: format!(
                "{} pages per second that were wanted here went to other nodes ({} of all wanted \
                 here): they will be slower to reach",
                rate(*foreign),
                percent(share)
            ),
        })
    })
}

/// Processes that may run on some nodes only and have most of their memory elsewhere.
fn remote_processes(report: &MachineReport) -> impl Iterator<Item = (&ProcessReport, Finding)> {
    let all = nodes_with_cpus(report);
    located(report).filter_map(move |(process, locality)| {
        let near = &process.cpu_nodes;
        let confined = !near.is_empty() && near.len() < all.len();
        let local: f64 = near.iter().map(|node| locality.share(node)).sum();
        (confined && local + locality.bound() < 0.5).then(|| {
            let message = format!(
                "may run on {} only, where it has {} of its {} (by node {}): most accesses are \
                 remote",
                nodes_named(near),
                percent(local),
                process.process.memory(),
                shares(locality)
            );
            (
                process,
                Finding {
                    subject: subject(process),
                    message,
                },
            )
        })
    })
}

/// Processes that may run on several nodes and have memory on several.
fn spread_processes(
    report: &MachineReport,
) -> impl Iterator<Item = (&ProcessReport, &homenode_observe::Locality)> {
    located(report).filter(|(process, locality)| {
        let nodes = locality
            .nodes
            .iter()
            .filter(|share| share.low > SPREAD_ABOVE)
            .count();
        nodes > 1 && process.cpu_nodes.len() > 1
    })
}

fn spread_finding((process, locality): (&ProcessReport, &homenode_observe::Locality)) -> Finding {
    Finding {
        subject: subject(process),
        message: format!(
            "has {} on several nodes (by node {}) and may run on {}: a part of its accesses is \
             remote wherever it runs",
            process.process.memory(),
            shares(locality),
            nodes_named(&process.cpu_nodes)
        ),
    }
}

fn located(
    report: &MachineReport,
) -> impl Iterator<Item = (&ProcessReport, &homenode_observe::Locality)> {
    report
        .shown_processes()
        .iter()
        .filter(|process| process.process.memory() >= MEMORY_MIN)
        .filter_map(|process| Some((process, process.locality.known()?)))
}

fn subject(process: &ProcessReport) -> String {
    format!("process {} ({})", process.process.pid, process.process.name)
}

fn nodes_with_cpus(report: &MachineReport) -> NodeSet {
    report.topology.cpu_nodes().map(|node| node.id).collect()
}

pub(super) fn next_steps(report: &MachineReport) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let mut step = |why: String, command: Option<String>| steps.push(NextStep { why, command });
    if let Some((process, _)) = remote_processes(report).next() {
        let (why, command) = bring_together(report, process, &process.cpu_nodes);
        step(why, Some(command));
    } else if let Some((process, _)) = spread_processes(report).next() {
        let (why, command) = gather_spread(report, process);
        step(why, Some(command));
    }
    if let Some(full) = full_nodes(report).next() {
        step(
            format!(
                "start the next big program where there is room, on node {}",
                full.roomy
            ),
            Some(format!(
                "numactl --cpunodebind={0} --preferred={0} PROGRAM",
                full.roomy
            )),
        );
    }
    if let Some(node) = report
        .topology
        .nodes
        .iter()
        .find(|node| node.is_memoryless())
    {
        step(
            format!(
                "find out why node {} has no memory: empty slots, or all of it on other nodes",
                node.id
            ),
            Some("sudo dmidecode --type memory".to_owned()),
        );
    }
    if report.nodes.iter().any(|node| {
        node.counters
            .why()
            .is_some_and(|why| why.contains("vm.numa_stat"))
    }) {
        step(
            "switch the counting of allocations on".to_owned(),
            Some("sudo sysctl vm.numa_stat=1".to_owned()),
        );
    }
    let refused = report
        .unreadable
        .iter()
        .any(|group| group.why.contains("ptrace"));
    if refused && report.host.asked_by_uid != Reading::Known(0) {
        step(
            "see the processes of other users too".to_owned(),
            Some("sudo homenode report".to_owned()),
        );
    }
    if report.verdict.certainty == Certainty::CannotTell {
        step(
            "see what the verdict rests on".to_owned(),
            Some("homenode topo".to_owned()),
        );
    }
    steps
}

/// How to start a program so that it runs beside its memory.
fn bring_together(
    report: &MachineReport,
    process: &ProcessReport,
    near: &NodeSet,
) -> (String, String) {
    let room: Bytes = near.iter().map(|node| obtainable(report, node)).sum();
    let pid = process.process.pid;
    if process.process.memory() <= room {
        (
            format!(
                "start process {pid} again with its memory on {}, too",
                nodes_named(near)
            ),
            format!("numactl --cpunodebind={near} --membind={near} PROGRAM"),
        )
    } else {
        (
            format!(
                "process {pid} needs more than the {room} that {} can give: let it run where its \
                 memory is, after a look at who else is there",
                nodes_named(near)
            ),
            format!("taskset --cpu-list --pid {pid}"),
        )
    }
}

/// One node for what fits on one; interleaving for what does not.
fn gather_spread(report: &MachineReport, process: &ProcessReport) -> (String, String) {
    let pid = process.process.pid;
    // What it has on a node already need not be found there again.
    let best = nodes_with_cpus(report)
        .iter()
        .map(|node| {
            let share = process
                .locality
                .known()
                .map_or(0.0, |locality| locality.share(node));
            (
                node,
                obtainable(report, node) + scaled(process.process.memory(), share),
            )
        })
        .max_by_key(|&(_, room)| room);
    match best {
        Some((node, room)) if room > process.process.memory() => (
            format!("start process {pid} again with all of it on node {node}, which has room"),
            format!("numactl --cpunodebind={node} --membind={node} PROGRAM"),
        ),
        _ => (
            format!("process {pid} fits on no single node: spread it evenly, so that none is hot"),
            "numactl --interleave=all PROGRAM".to_owned(),
        ),
    }
}

fn obtainable(report: &MachineReport, node: NodeId) -> Bytes {
    let memory = report.nodes.iter().find(|other| other.node == node);
    memory
        .and_then(|node| node.memory.known())
        .map_or(Bytes(0), MemoryUse::obtainable)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an estimate of a share between 0 and 1"
)]
fn scaled(bytes: Bytes, share: f64) -> Bytes {
    Bytes((bytes.0 as f64 * share) as u64)
}

#[cfg(test)]
mod tests {
    use homenode_observe::{Locality, Method, NodeShare};

    use super::*;
    use crate::machine::fixture::{one_node, report, two_nodes};

    fn commands(report: &MachineReport) -> Vec<String> {
        next_steps(report)
            .into_iter()
            .filter_map(|step| step.command)
            .collect()
    }

    /// The two-node machine with only the process that is spread over both.
    fn with_spread_process(gib: u64) -> MachineReport {
        let mut report = report(two_nodes());
        let mut shown = report.shown_processes().to_vec();
        shown.retain(|process| process.process.pid.0 == 901);
        shown[0].process.resident = Bytes(gib << 30);
        report.processes = Reading::Known(shown);
        report
    }

    #[test]
    fn a_process_on_several_nodes_is_sent_to_one_where_it_fits() {
        let report = with_spread_process(8);
        assert_eq!(
            findings(&report).last().unwrap().subject,
            "process 901 (<script>x\u{1b}[2J)"
        );
        assert_eq!(
            commands(&report)[0],
            "numactl --cpunodebind=0 --membind=0 PROGRAM"
        );
    }

    #[test]
    fn a_process_larger_than_any_node_is_interleaved() {
        assert_eq!(
            commands(&with_spread_process(100))[0],
            "numactl --interleave=all PROGRAM"
        );
    }

    #[test]
    fn a_process_away_from_its_memory_follows_it_when_its_node_has_no_room() {
        let mut report = report(two_nodes());
        for node in &mut report.nodes {
            if let Reading::Known(memory) = &mut node.memory {
                memory.free = Bytes(1 << 30);
                memory.reclaimable = Reading::Known(Bytes(0));
            }
        }
        assert_eq!(commands(&report)[0], "taskset --cpu-list --pid 812");
        let full = findings(&report)
            .into_iter()
            .any(|finding| finding.message.contains("free"));
        assert!(!full, "no node has room, so moving to another is no advice");
    }

    #[test]
    fn doubt_is_no_finding() {
        let mut report = with_spread_process(8);
        let Reading::Known(shown) = &mut report.processes else {
            unreachable!()
        };
        // 15 % were met on node 1, and 8 % are as likely.
        let share = |node, share, low, high| NodeShare {
            node: NodeId(node),
            share,
            low,
            high,
        };
        shown[0].locality = Reading::Known(Locality {
            unseen: 0.0,
            method: Method::Sampled {
                samples: 100,
                draws: 100,
            },
            nodes: vec![share(0, 0.85, 0.77, 0.92), share(1, 0.15, 0.08, 0.23)],
        });
        assert!(
            findings(&report)
                .iter()
                .all(|finding| !finding.subject.contains("901"))
        );
    }

    #[test]
    fn gaps_of_the_machine_have_their_steps() {
        let mut report = report(two_nodes());
        report.topology.nodes[1].memory_total = Reading::Known(Bytes(0));
        report.nodes[0].counters = Reading::absent("counting is off: vm.numa_stat is 0");
        report.verdict.certainty = Certainty::CannotTell;
        let commands = commands(&report);
        for command in [
            "sudo dmidecode --type memory",
            "sudo sysctl vm.numa_stat=1",
            "sudo homenode report",
            "homenode topo",
        ] {
            assert!(
                commands.iter().any(|other| other == command),
                "{command}: {commands:?}"
            );
        }
        assert!(!commands.iter().any(|command| command.contains("script")));
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        let mut report = report(two_nodes());
        report.host.asked_by_uid = Reading::Known(0);
        assert!(
            !commands(&report)
                .iter()
                .any(|command| command == "sudo homenode report")
        );
    }

    #[test]
    fn a_machine_with_one_node_has_nothing_to_place() {
        let report = report(one_node());
        assert!(findings(&report).is_empty() && next_steps(&report).is_empty());
    }
}
