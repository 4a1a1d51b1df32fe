//! What happened between two observations, a row per process, workload or tree. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use homenode_units::{Bytes, NodeId, NodeSet, Pid, Reading};
use serde::Serialize;

use crate::{Kind, Observation, ProcessId, ProcessSample};

/// The home of a process are the fewest nodes with this part of its recent CPU time.
pub const HOME_SHARE: f64 = 0.8;

/// The home of something with so much recent CPU time on each node.
///
/// The present one stays as long as it has [`HOME_SHARE`] and uses all its nodes (a tenth each at
/// least), so that a few ticks elsewhere are no migration.
#[must_use]
pub fn home_of(recent: &BTreeMap<NodeId, f64>, present: &NodeSet) -> NodeSet {
    const USED_SHARE: f64 = 0.1;
    let all: f64 = recent.values().sum();
    if all <= 0.0 {
        return present.clone();
    }
    let share = |node: NodeId| recent.get(&node).copied().unwrap_or(0.0) / all;
    let stays: f64 = present.iter().map(share).sum();
    if stays >= HOME_SHARE && present.iter().all(|node| share(node) >= USED_SHARE) {
        return present.clone();
    }
    let mut by_share: Vec<(f64, NodeId)> = recent.keys().map(|&node| (share(node), node)).collect();
    by_share.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut home = NodeSet::new();
    let mut sum = 0.0;
    for (share, node) in by_share {
        home.insert(node);
        sum += share;
        if sum >= HOME_SHARE {
            break;
        }
    }
    home
}

/// What the rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// Processes.
    Processes,
    /// Virtual machines, containers and units; processes that belong to none as themselves.
    Workloads,
    /// Virtual machines.
    Vms,
    /// Containers.
    Containers,
    /// Processes with all their children, a row for each child of process 1.
    Trees,
}

/// Memory on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeMemory {
    /// The node.
    pub node: NodeId,
    /// Memory on it.
    pub memory: Bytes,
    /// Of it, guest memory of virtual machines: `GST_ND`. The rest of a virtual machine is
    /// overhead: `OVD_ND`.
    pub guest: Option<Bytes>,
}

impl NodeMemory {
    /// What is no guest memory, of a virtual machine.
    #[must_use]
    pub fn overhead(&self) -> Option<Bytes> {
        self.guest.map(|guest| self.memory.saturating_sub(guest))
    }
}

/// A line of the screen: esxtop's fields, for anything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The same as long as it is the same thing: number and start, or the control group.
    pub key: String,
    /// Its main process: that of the virtual machine, else the one with most memory.
    pub id: ProcessId,
    /// What it is.
    pub kind: Kind,
    /// Its name. May hold anything its owner chose.
    pub name: String,
    /// Its user.
    pub user: String,
    /// The control group of its workload; empty where it has none.
    pub cgroup: String,
    /// How many processes.
    pub processes: usize,
    /// How many threads.
    pub threads: u32,
    /// CPU use between the two observations. Unit: CPUs.
    pub cpu: Reading<f64>,
    /// The part of that CPU time on each node, of what was seen; all since it is watched where it
    /// did not run in between. Unit: none, 0 to 1.
    pub cpu_on: Vec<(NodeId, f64)>,
    /// `NHN`: its home nodes.
    pub home: NodeSet,
    /// `NMIG`: changes of the home between the two observations.
    pub migrations: u64,
    /// The same since it is watched.
    pub migrations_total: u64,
    /// All its memory; what its processes share is counted for each, unless its control group
    /// counts.
    pub memory: Bytes,
    /// By node id; empty where it is not known.
    pub nodes: Vec<NodeMemory>,
    /// `NLMEM`: memory on the home of the process that has it.
    pub local: Reading<Bytes>,
    /// `NRMEM`: memory elsewhere.
    pub remote: Reading<Bytes>,
    /// `N%L`: local memory of all memory. Unit: none, 0 to 1.
    pub locality: Reading<f64>,
    /// How far `N%L` may be off, in 95 of 100 cases. Unit: none, 0 to 1.
    pub bound: f64,
    /// Age of the oldest answer in it. Unit: seconds.
    #[serde(rename = "age_seconds", serialize_with = "as_seconds")]
    pub age: Duration,
    /// The part of recent accesses that were local, by hinting faults, weighted by memory.
    pub access: Reading<f64>,
}

/// The rows of a view, most memory first.
#[must_use]
pub fn rows(earlier: Option<&Observation>, later: &Observation, view: View) -> Vec<Row> {
    let before = |id: ProcessId| {
        let processes = &earlier?.processes;
        let found = processes.binary_search_by_key(&id, |process| process.id);
        found.ok().map(|index| &processes[index])
    };
    let roots = (view == View::Trees).then(|| tree_roots(later));
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for process in &later.processes {
        let kind = process.workload.kind;
        let wanted = match view {
            View::Vms => kind == Kind::Vm,
            View::Containers => kind == Kind::Container,
            View::Processes | View::Workloads | View::Trees => true,
        };
        if !wanted {
            continue;
        }
        let own = || format!("{}.{}", process.id.pid, process.id.started);
        let key = match (view, &roots) {
            (View::Trees, Some(roots)) => roots
                .get(&process.id.pid)
                .map_or_else(own, |root| format!("tree {root}")),
            (View::Processes | View::Trees, _) => own(),
            _ if process.workload.cgroup.is_empty() => own(),
            _ => process.workload.cgroup.clone(),
        };
        let sum = sums.entry(key).or_default();
        sum.add(process, before(process.id), later.taken_at);
    }
    let mut rows: Vec<Row> = sums
        .into_iter()
        .filter_map(|(key, sum)| sum.into_row(key, later, earlier.is_some(), view))
        .collect();
    rows.sort_by(|a, b| b.memory.cmp(&a.memory).then(a.id.cmp(&b.id)));
    rows
}

/// The ancestor of each process that is a child of process 1, or of one that is not there.
fn tree_roots(observation: &Observation) -> BTreeMap<Pid, Pid> {
    let parents: BTreeMap<Pid, Pid> = observation
        .processes
        .iter()
        .map(|process| (process.id.pid, process.parent))
        .collect();
    let root = |pid: Pid| {
        let mut root = pid;
        // Numbers are given again, so what was read may even go in circles.
        for _generation in 0..parents.len() {
            match parents.get(&root) {
                Some(&parent) if parent.0 > 1 && parents.contains_key(&parent) => root = parent,
                _ => break,
            }
        }
        root
    };
    parents.keys().map(|&pid| (pid, root(pid))).collect()
}

/// Processes added up.
#[derive(Default)]
struct Sum<'a> {
    main: Option<&'a ProcessSample>,
    processes: usize,
    threads: u32,
    /// Unit: CPUs.
    cpu: f64,
    /// Whether every process was there before.
    known_before: bool,
    ticks_on: BTreeMap<NodeId, u64>,
    total_on: BTreeMap<NodeId, u64>,
    home: NodeSet,
    migrations: u64,
    migrations_total: u64,
    memory: Bytes,
    nodes: BTreeMap<NodeId, (f64, Option<f64>)>,
    placed: f64,
    local: f64,
    bound: f64,
    age: Duration,
    why: Option<&'a str>,
    access: (f64, f64),
    why_no_access: Option<&'a str>,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares of amounts of memory, for people"
)]
impl<'a> Sum<'a> {
    fn add(&mut self, process: &'a ProcessSample, before: Option<&ProcessSample>, now: Duration) {
        let leads = |main: &ProcessSample| {
            (process.vm.is_some(), process.memory) > (main.vm.is_some(), main.memory)
        };
        if self.main.is_none_or(leads) {
            self.main = Some(process);
        }
        self.processes += 1;
        self.threads += process.threads;
        self.memory = self.memory + process.memory;
        self.home = self.home.union(&process.home);
        self.migrations_total += process.migrations;
        if let Some(before) = before {
            self.known_before = true;
            let spent = process.ticks.saturating_sub(before.ticks) as f64 / TICKS_PER_SECOND;
            let elapsed = process.read_at.saturating_sub(before.read_at);
            if !elapsed.is_zero() {
                self.cpu += spent / elapsed.as_secs_f64();
            }
            self.migrations += process.migrations.saturating_sub(before.migrations);
        }
        for &(node, ticks) in &process.ticks_on {
            let earlier = before.and_then(|before| {
                let found = before.ticks_on.iter().find(|&&(on, _)| on == node);
                found.map(|&(_, ticks)| ticks)
            });
            *self.total_on.entry(node).or_default() += ticks;
            *self.ticks_on.entry(node).or_default() += ticks.saturating_sub(earlier.unwrap_or(0));
        }
        let weight = process.memory.0 as f64;
        match &process.placed {
            Reading::Known(placed) => {
                self.placed += weight;
                self.age = self.age.max(now.saturating_sub(placed.asked_at));
                self.bound += placed.bound * weight;
                for on in &placed.nodes {
                    let (all, guest) = self.nodes.entry(on.node).or_default();
                    *all += on.share * weight;
                    if let Some(share) = on.guest {
                        *guest = Some(guest.unwrap_or(0.0) + share * weight);
                    }
                    if process.home.contains(on.node) {
                        self.local += on.share * weight;
                    }
                }
            }
            Reading::Absent { why } => self.why = self.why.or(Some(why)),
        }
        match &process.access {
            Reading::Known(share) => {
                self.access.0 += share * weight;
                self.access.1 += weight;
            }
            Reading::Absent { why } => self.why_no_access = self.why_no_access.or(Some(why)),
        }
    }

    fn into_row(self, key: String, later: &Observation, two: bool, view: View) -> Option<Row> {
        let main = self.main?;
        let grouped = !matches!(view, View::Processes | View::Trees);
        let group = later
            .groups
            .iter()
            .filter(|_| grouped)
            .find(|group| group.path == key)
            .and_then(|group| group.nodes.known());
        let mut nodes: Vec<NodeMemory> = self
            .nodes
            .iter()
            .map(|(&node, &(all, guest))| NodeMemory {
                node,
                memory: Bytes(all.round() as u64),
                guest: guest.map(|guest| Bytes(guest.round() as u64)),
            })
            .collect();
        let mut memory = self.memory;
        if let Some(group) = group {
            memory = group.iter().map(|&(_, bytes)| bytes).sum();
            for &(node, bytes) in group {
                match nodes.iter_mut().find(|on| on.node == node) {
                    // The group counts everything once, so it is nearer to the truth.
                    Some(on) => on.memory = bytes,
                    None => nodes.push(NodeMemory {
                        node,
                        memory: bytes,
                        guest: None,
                    }),
                }
            }
            nodes.sort_by_key(|on| on.node);
        }
        let locality = match (self.placed > 0.0, group) {
            (true, _) => Reading::Known(self.local / self.placed),
            (false, Some(group)) => share_of_home(group, &self.home),
            (false, None) => Reading::absent(self.why.unwrap_or("it has no memory")),
        };
        let local = locality
            .clone()
            .map(|share| Bytes((share * memory.0 as f64).round() as u64));
        let cpu = match (two, self.known_before) {
            (true, true) => Reading::Known(self.cpu),
            (true, false) => Reading::absent("it was not there before"),
            (false, _) => Reading::absent("needs two observations"),
        };
        let ran: u64 = self.ticks_on.values().sum();
        let on = if self.known_before && ran > 0 {
            &self.ticks_on
        } else {
            &self.total_on
        };
        let all: u64 = on.values().sum();
        let in_workload = grouped && !main.workload.cgroup.is_empty();
        Some(Row {
            id: main.id,
            kind: if view == View::Processes && main.vm.is_none() {
                Kind::Process
            } else {
                main.workload.kind
            },
            name: if in_workload || main.vm.is_some() {
                main.workload.name.clone()
            } else {
                main.name.clone()
            },
            user: main.user.clone(),
            cgroup: main.workload.cgroup.clone(),
            processes: self.processes,
            threads: self.threads,
            cpu,
            cpu_on: on
                .iter()
                .filter(|&(_, &ticks)| ticks > 0)
                .map(|(&node, &ticks)| (node, ticks as f64 / all as f64))
                .collect(),
            home: self.home,
            migrations: self.migrations,
            migrations_total: self.migrations_total,
            remote: local.clone().map(|local| memory.saturating_sub(local)),
            local,
            locality,
            bound: if self.placed > 0.0 {
                self.bound / self.placed
            } else {
                0.0
            },
            age: self.age,
            access: if self.access.1 > 0.0 {
                Reading::Known(self.access.0 / self.access.1)
            } else {
                Reading::absent(self.why_no_access.unwrap_or("not asked yet"))
            },
            memory,
            nodes,
            key,
        })
    }
}

fn as_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// `USER_HZ`, the same on every supported architecture (`proc_pid_stat(5)`).
const TICKS_PER_SECOND: f64 = 100.0;

fn share_of_home(group: &[(NodeId, Bytes)], home: &NodeSet) -> Reading<f64> {
    let on = |chosen: &dyn Fn(NodeId) -> bool| -> Bytes {
        let nodes = group.iter().filter(|&&(node, _)| chosen(node));
        nodes.map(|&(_, bytes)| bytes).sum()
    };
    match on(&|node| home.contains(node)).share_of(on(&|_| true)) {
        Some(share) => Reading::Known(share),
        None => Reading::absent("it has no memory"),
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
