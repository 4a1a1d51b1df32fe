//! Looks at a machine and puts the report together.

use std::collections::BTreeMap;
use std::time::Duration;

use homenode_host::{Buffer, Clock, Files, Probe};
use homenode_observe::{
    Effort, LocateError, NodeRates, Observation, ObserveError, Process, ProcessList, Random, Row,
    Sample, View, WatchOptions, Watcher, locate_in_mappings, on_only_node, rates_between,
    read_processes, read_sample, rows,
};
use homenode_topology::{Topology, Verdict};
use homenode_units::{Bytes, NodeSet, Reading};

use super::format::timestamp;
use super::{HostFacts, MachineReport, NodeReport, ProcessReport, UnreadableGroup, findings};

/// How a machine is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherOptions {
    /// Time over which rates are measured; the processes are read meanwhile.
    pub interval: Duration,
    /// How many processes are located and shown, those with most memory first.
    pub process_count: usize,
    /// Chooses the random pages; the same seed on the same machine state gives the same report.
    pub seed: u64,
    /// No further process is located once this much time has passed since the start.
    pub locate_limit: Duration,
}

impl Default for GatherOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            process_count: 10,
            seed: 0,
            locate_limit: Duration::from_millis(2500),
        }
    }
}

/// What [`gather_live`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Reading the list of processes.
    ReadingProcesses,
    /// Asking where the memory of processes lies.
    Locating {
        /// Processes done.
        done: usize,
        /// Processes to do.
        total: usize,
    },
    /// Waiting for the interval to end.
    Waiting {
        /// How long.
        left: Duration,
    },
}

/// Looks at the running machine.
///
/// Takes the interval, or the time that locating takes if that is longer; see
/// [`GatherOptions::locate_limit`]. Needs no privilege; what needs one is absent with the reason.
pub fn gather_live(
    host: &(impl Files + Clock + Probe),
    topology: Topology,
    verdict: Verdict,
    options: GatherOptions,
    mut progress: impl FnMut(Progress),
) -> MachineReport {
    let nodes = topology.node_ids();
    let started = host.now();
    let earlier = read_sample(host, &nodes, started);
    progress(Progress::ReadingProcesses);
    let list = read_processes(host);
    let mut watcher = Watcher::new(
        topology
            .nodes
            .iter()
            .map(|node| (node.id, node.cpus.clone()))
            .collect(),
        WatchOptions {
            seed: options.seed,
            ..WatchOptions::default()
        },
    );
    // On one node there is nothing to find.
    let watched = (nodes.len() > 1).then(|| watcher.observe(host));

    let mut random = Random::new(options.seed);
    let total = options.process_count;
    let mut done = 0;
    let processes = choose(list, options.process_count, |process| {
        progress(Progress::Locating { done, total });
        done += 1;
        if let (Some(only), 1) = (nodes.lowest(), nodes.len()) {
            return Where::At(Reading::Known(on_only_node(only)));
        }
        if host.now().saturating_sub(started) > options.locate_limit {
            return Where::Failed("no time was left".to_owned());
        }
        match locate_in_mappings(
            host,
            host,
            process.pid,
            &nodes,
            Effort::default(),
            Some(process.memory()),
            &mut random,
        ) {
            Ok(located) => Where::At(Reading::Known(located.locality)),
            Err(LocateError::Gone) => Where::Gone,
            Err(error) => Where::Failed(chain(&error)),
        }
    });

    let left = (started + options.interval).saturating_sub(host.now());
    if !left.is_zero() {
        progress(Progress::Waiting { left });
        host.sleep(left);
    }
    let who_pays = match watched {
        None => Reading::absent("one node: no memory is remote"),
        Some(Ok(before)) => match watcher.observe(host) {
            Ok(after) => Reading::Known(payers(&before, &after)),
            Err(error) => Reading::absent(chain(&error)),
        },
        Some(Err(error)) => Reading::absent(chain(&error)),
    };
    let later = read_sample(host, &nodes, host.now());
    let elapsed = later.taken_at.saturating_sub(earlier.taken_at);
    let rates = rates_between(&earlier, &later);
    let facts = read_facts(
        host,
        Reading::Known(timestamp(host.since_epoch())),
        read_own_uid(host),
    );
    let interval = Reading::Known(elapsed.as_secs_f64());
    let mut report = assemble(facts, topology, verdict, later, &rates, interval, processes);
    report.who_pays = who_pays;
    report
}

/// The workloads with most memory away from their home.
fn payers(before: &Observation, after: &Observation) -> Vec<Row> {
    const COUNT: usize = 5;
    /// Less is noise: program text, libraries.
    const REMOTE_MIN: Bytes = Bytes(16 << 20);
    let mut payers = rows(Some(before), after, View::Workloads);
    payers.retain(|row| {
        row.remote
            .known()
            .is_some_and(|&remote| remote > REMOTE_MIN)
    });
    payers.sort_by_key(|row| std::cmp::Reverse(row.remote.known().copied()));
    payers.truncate(COUNT);
    payers
}

/// Looks at a captured machine: what needs the running one is absent.
pub fn gather_captured(
    files: &(impl Files + ?Sized),
    topology: Topology,
    verdict: Verdict,
    options: GatherOptions,
) -> MachineReport {
    const WHY: &str = "a captured machine does not run";
    let nodes = topology.node_ids();
    let sample = read_sample(files, &nodes, Duration::ZERO);
    let rates: Vec<NodeRates> = nodes
        .iter()
        .map(|node| NodeRates {
            node,
            per_second: Reading::absent(WHY),
        })
        .collect();
    let processes = choose(read_processes(files), options.process_count, |_| {
        Where::At(match (nodes.lowest(), nodes.len()) {
            (Some(only), 1) => Reading::Known(on_only_node(only)),
            _ => Reading::absent(WHY),
        })
    });
    let facts = read_facts(
        files,
        Reading::absent("not captured"),
        Reading::absent("not captured"),
    );
    assemble(
        facts,
        topology,
        verdict,
        sample,
        &rates,
        Reading::absent(WHY),
        processes,
    )
}

/// What became of looking for a process's memory.
enum Where {
    At(Reading<homenode_observe::Locality>),
    Failed(String),
    Gone,
}

/// The shown processes, and what is said about all.
struct Chosen {
    shown: Reading<Vec<ProcessReport>>,
    list: ProcessList,
    /// How many failed for each reason.
    failures: BTreeMap<String, usize>,
}

/// Locates processes in order until enough were found that still run.
fn choose(
    list: Result<ProcessList, ObserveError>,
    count: usize,
    mut find: impl FnMut(&Process) -> Where,
) -> Chosen {
    let list = match list {
        Ok(list) => list,
        Err(error) => {
            let shown = Reading::absent(chain(&error));
            return Chosen {
                shown,
                list: ProcessList::default(),
                failures: BTreeMap::new(),
            };
        }
    };
    let mut failures: BTreeMap<String, usize> = BTreeMap::new();
    for process in &list.unreadable {
        *failures.entry(process.why.clone()).or_default() += 1;
    }
    let mut shown = Vec::new();
    for process in &list.processes {
        if shown.len() == count {
            break;
        }
        let locality = match find(process) {
            Where::At(locality) => locality,
            Where::Failed(why) => {
                *failures.entry(why.clone()).or_default() += 1;
                Reading::absent(why)
            }
            Where::Gone => continue,
        };
        // The nodes of its CPUs are filled in when the topology is at hand.
        let cpu_nodes = NodeSet::new();
        shown.push(ProcessReport {
            process: process.clone(),
            cpu_nodes,
            locality,
        });
    }
    Chosen {
        shown: Reading::Known(shown),
        list,
        failures,
    }
}

fn assemble(
    host: HostFacts,
    topology: Topology,
    verdict: Verdict,
    sample: Sample,
    rates: &[NodeRates],
    interval_seconds: Reading<f64>,
    mut chosen: Chosen,
) -> MachineReport {
    if let Reading::Known(shown) = &mut chosen.shown {
        for process in shown {
            process.cpu_nodes = topology
                .nodes
                .iter()
                .filter(|node| node.cpus.intersects(&process.process.cpus_allowed))
                .map(|node| node.id)
                .collect();
        }
    }
    let nodes = sample
        .nodes
        .into_iter()
        .map(|node| NodeReport {
            node: node.node,
            memory: node.memory,
            counters: node.counters,
            per_second: rates
                .iter()
                .find(|rates| rates.node == node.node)
                .map_or_else(
                    || Reading::absent("not sampled"),
                    |rates| rates.per_second.clone(),
                ),
        })
        .collect();
    let mut report = MachineReport {
        schema: MachineReport::SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        host,
        verdict,
        findings: Vec::new(),
        next_steps: Vec::new(),
        topology,
        nodes,
        interval_seconds,
        processes: chosen.shown,
        who_pays: Reading::absent("a captured machine does not run"),
        processes_total: chosen.list.processes.len(),
        processes_memory: chosen.list.processes.iter().map(Process::memory).sum(),
        unreadable: chosen
            .failures
            .into_iter()
            .map(|(why, count)| UnreadableGroup { why, count })
            .collect(),
        measured: Vec::new(),
    };
    report.findings = findings::findings(&report);
    report.next_steps = findings::next_steps(&report);
    report
}

fn read_facts(
    files: &(impl Files + ?Sized),
    taken_at: Reading<String>,
    asked_by_uid: Reading<u32>,
) -> HostFacts {
    HostFacts {
        name: read_line(files, "/proc/sys/kernel/hostname"),
        kernel: read_line(files, "/proc/sys/kernel/osrelease"),
        taken_at,
        asked_by_uid,
    }
}

fn read_line(files: &(impl Files + ?Sized), path: &str) -> Reading<String> {
    let mut buffer = Buffer::new();
    match files.read(path, &mut buffer) {
        Ok(text) => Reading::Known(String::from_utf8_lossy(text.trim_ascii()).into_owned()),
        Err(error) => Reading::absent(error.reason()),
    }
}

/// The effective user of this process: the second number behind `Uid:`.
fn read_own_uid(files: &(impl Files + ?Sized)) -> Reading<u32> {
    let status = match read_line(files, "/proc/self/status") {
        Reading::Known(status) => status,
        Reading::Absent { why } => return Reading::absent(why),
    };
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = ids.and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
    uid.map_or_else(
        || Reading::absent("/proc/self/status names no user"),
        Reading::Known,
    )
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
