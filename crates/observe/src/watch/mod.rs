//! Watching a machine: one [`Observation`] after another, each at a bounded cost.
//!
//! A [`Watcher`] keeps what need not be read again: who a process is, which workload it belongs
//! to, where its memory lay when it was last asked about. What an observation says is raw, counters
//! since some start, and can be stored; what happened between two of them is in [`crate::rows`].
//!
//! | each round | for | cost |
//! |---|---|---|
//! | `/proc/<pid>/stat` | every process; of idle ones every third | some 10 µs each |
//! | `task/<tid>/stat` | busy processes with several threads | bounded time |
//! | `status`, `cgroup`, `cmdline` | new ones; known ones each minute | some 50 µs each |
//! | page queries | the largest and longest not asked about | bounded time |
//! | `memory.numa_stat` | workloads with a group, every 5 s | some 20 µs each |

mod known;
mod sample;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use homenode_host::{Buffer, Clock, FileError, Files, Probe};
use homenode_units::{CpuId, CpuSet, NodeId, NodeSet, Pid, Reading};

use crate::cgroup::{Membership, read_group_memory};
use crate::process::read_users;
use crate::{
    Effort, LocateError, ObserveError, ProcessId, Random, TaskStat, locate_in_mappings,
    on_only_node, read_sample,
};

use known::Known;
pub use sample::{GroupSample, Observation, Placed, PlacedOn, ProcessSample};

/// How old names, owners and groups may become.
const FACTS_AGE: Duration = Duration::from_secs(60);
/// How old the memory of a control group may become.
const GROUP_AGE: Duration = Duration::from_secs(5);
/// Rounds after which a number that was a kernel thread's is looked at again.
const KERNEL_ROUNDS: u64 = 8;
/// A process without CPU use in so many rounds is idle, …
const IDLE_AFTER: u32 = 5;
/// … and is looked at only every so many rounds.
const IDLE_ROUNDS: u64 = 3;

/// How much a [`Watcher`] does in a round.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Only these processes; all of them where there is none.
    pub only: Option<BTreeSet<Pid>>,
    /// Time for page queries. The last one begun is finished.
    pub locate_budget: Duration,
    /// The same in the first round, when nothing is known yet.
    pub first_budget: Duration,
    /// Time for looking at threads.
    pub threads_budget: Duration,
    /// How old an answer may become before it is asked again.
    pub locate_age: Duration,
    /// Part of the time that page queries about one process may take.
    pub locate_share: f64,
    /// How well a large process is located.
    pub effort: Effort,
    /// Ask also where there is one node and the answer is known; to see what it costs.
    pub ask_always: bool,
    /// Chooses the pages.
    pub seed: u64,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            only: None,
            locate_budget: Duration::from_millis(5),
            first_budget: Duration::from_millis(400),
            threads_budget: Duration::from_millis(4),
            locate_age: Duration::from_secs(2),
            locate_share: 0.005,
            effort: Effort::default(),
            ask_always: false,
            seed: 0,
        }
    }
}

/// Observes a machine again and again.
#[derive(Debug)]
pub struct Watcher {
    options: WatchOptions,
    nodes: NodeSet,
    /// The CPUs of each node.
    cpus: Vec<(NodeId, CpuSet)>,
    known: BTreeMap<ProcessId, Known>,
    /// Numbers of kernel threads, and the round in which that was seen.
    kernel: BTreeMap<Pid, u64>,
    /// Processes that are idle.
    idle: BTreeMap<Pid, ProcessId>,
    groups: BTreeMap<String, (Duration, GroupSample)>,
    users: BTreeMap<u32, String>,
    balancing: bool,
    random: Random,
    round: u64,
    before: Option<Duration>,
    buffer: Buffer,
}

impl Watcher {
    /// Gets ready; `cpus` are the CPUs of each node of the machine.
    #[must_use]
    pub fn new(cpus: Vec<(NodeId, CpuSet)>, options: WatchOptions) -> Self {
        Self {
            nodes: cpus.iter().map(|&(node, _)| node).collect(),
            random: Random::new(options.seed),
            options,
            cpus,
            known: BTreeMap::new(),
            kernel: BTreeMap::new(),
            idle: BTreeMap::new(),
            groups: BTreeMap::new(),
            users: BTreeMap::new(),
            balancing: false,
            round: 0,
            before: None,
            buffer: Buffer::new(),
        }
    }

    /// Looks at the machine once.
    ///
    /// # Errors
    ///
    /// [`ObserveError::Processes`] when `/proc` cannot be listed. What is missing in part is
    /// absent in the result.
    pub fn observe(
        &mut self,
        host: &(impl Files + Probe + Clock),
    ) -> Result<Observation, ObserveError> {
        let now = host.now();
        let since_epoch = host.since_epoch();
        if self.round.is_multiple_of(KERNEL_ROUNDS) {
            self.users = read_users(host);
            self.balancing = self.read_flag(host, "/proc/sys/kernel/numa_balancing");
            self.nodes = self.read_online(host);
        }
        let unreadable = self.look_at_processes(host, now)?;
        let round = self.round;
        self.known.retain(|_, known| known.seen == round);
        let known = &self.known;
        self.idle.retain(|_, id| known.contains_key(id));
        self.kernel
            .retain(|_, seen| round - *seen < 2 * KERNEL_ROUNDS);
        self.locate(host, now);
        let groups = self.look_at_groups(host, now);
        let machine = read_sample(host, &self.nodes, now);
        self.round += 1;
        self.before = Some(now);
        let page = host.page_size();
        Ok(Observation {
            taken_at: now,
            since_epoch,
            nodes: machine.nodes,
            pressure: self.read_pressure(host),
            processes: self
                .known
                .iter()
                .map(|(&id, known)| known.sample(id, page))
                .collect(),
            groups,
            unreadable,
            took: host.now().saturating_sub(now),
        })
    }

    /// The nodes that are online now: one may come or go while we watch.
    fn read_online(&mut self, host: &impl Files) -> NodeSet {
        let online = host
            .read("/sys/devices/system/node/online", &mut self.buffer)
            .ok()
            .and_then(|text| NodeSet::parse_list(String::from_utf8_lossy(text).trim()).ok());
        online.unwrap_or_else(|| self.cpus.iter().map(|&(node, _)| node).collect())
    }

    fn look_at_processes(
        &mut self,
        host: &(impl Files + Clock),
        now: Duration,
    ) -> Result<u32, ObserveError> {
        let mut pids: Vec<Pid> = match &self.options.only {
            Some(only) => only.iter().copied().collect(),
            None => host
                .list("/proc")
                .map_err(ObserveError::Processes)?
                .iter()
                .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
                .filter_map(|name| name.parse().ok().map(Pid))
                .collect(),
        };
        let mut unreadable = 0;
        let mut threads_left = self.options.threads_budget;
        // Where there is not time for all, it is not always the same ones who go without.
        let first = usize::try_from(self.round * 37).unwrap_or(0) % pids.len().max(1);
        pids.rotate_left(first);
        for pid in pids {
            if let Some(seen) = self.kernel.get(&pid)
                && !(self.round + u64::from(pid.0)).is_multiple_of(KERNEL_ROUNDS)
                && self.round - seen < 2 * KERNEL_ROUNDS
            {
                continue;
            }
            if let Some(&id) = self.idle.get(&pid)
                && !(self.round + u64::from(pid.0)).is_multiple_of(IDLE_ROUNDS)
                && let Some(known) = self.known.get_mut(&id)
            {
                known.seen = self.round;
                continue;
            }
            let task = match host.read_record(&format!("/proc/{pid}/stat"), &mut self.buffer) {
                Ok(text) => TaskStat::parse(text),
                Err(error) if error.is_process_gone() => continue,
                Err(_) => {
                    unreadable += 1;
                    continue;
                }
            };
            match task {
                Ok(task) if task.of_kernel => {
                    self.kernel.insert(pid, self.round);
                }
                // A zombie has no memory any more.
                Ok(task) if matches!(task.state, 'Z' | 'X') => {}
                Ok(task) => {
                    self.kernel.remove(&pid);
                    if self.look_at(host, &task, now, &mut threads_left).is_err() {
                        unreadable += 1;
                    }
                }
                Err(_) => unreadable += 1,
            }
        }
        Ok(unreadable)
    }

    /// Takes in one process; one that ended meanwhile is not taken in.
    fn look_at(
        &mut self,
        host: &(impl Files + Clock),
        task: &TaskStat,
        now: Duration,
        threads_left: &mut Duration,
    ) -> Result<(), FileError> {
        let mut known = match self.known.remove(&task.id) {
            Some(known) if known.is_current(task, now, FACTS_AGE) => known,
            old => {
                let facts = known::read_facts(host, task, &self.users, &mut self.buffer);
                match (facts, old) {
                    (Ok(Some(facts)), Some(mut old)) => {
                        old.set_facts(facts, now);
                        old
                    }
                    (Ok(Some(facts)), None) => Known::new(facts, now),
                    (Ok(None), _) => return Ok(()),
                    (Err(error), _) if error.is_process_gone() => return Ok(()),
                    (Err(error), _) => return Err(error),
                }
            }
        };
        known.seen = self.round;
        if known.idle_rounds(task) >= IDLE_AFTER && self.options.only.is_none() {
            self.idle.insert(task.id.pid, task.id);
        } else {
            self.idle.remove(&task.id.pid);
        }
        let elapsed = self.before.map(|_| now.saturating_sub(known.read_at));
        known.read_at = now;
        let began = host.now();
        let read_threads = task.threads > 1 && !threads_left.is_zero();
        known.count_cpu(
            host,
            task,
            &self.cpus,
            elapsed,
            read_threads,
            &mut self.buffer,
        );
        if task.threads > 1 {
            *threads_left = threads_left.saturating_sub(host.now().saturating_sub(began));
        }
        self.known.insert(task.id, known);
        Ok(())
    }

    /// Asks where memory lies: first of those never asked about, then of the largest and oldest.
    fn locate(&mut self, host: &(impl Files + Probe + Clock), now: Duration) {
        let page = host.page_size();
        let only = self
            .nodes
            .lowest()
            .filter(|_| self.nodes.len() == 1 && !self.options.ask_always);
        if let Some(only) = only {
            let everything = Placed::new(&on_only_node(only), now, None);
            for known in self.known.values_mut().filter(|known| !known.is_vm()) {
                known.memory = Reading::Known(everything.clone());
            }
        }
        let mut due: Vec<(u128, ProcessId)> = self
            .known
            .iter()
            // On one node only guest memory and overhead are to be told apart.
            .filter(|(_, known)| only.is_none() || known.is_vm())
            .filter(|(_, known)| known.ask_next <= now)
            .map(|(&id, known)| (known.urgency(now, page), id))
            .collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        let budget = if self.before.is_none() {
            self.options.first_budget
        } else {
            self.options.locate_budget
        };
        let started = host.now();
        for (_, id) in due {
            let began = host.now();
            if began.saturating_sub(started) >= budget {
                break;
            }
            self.locate_one(host, id, now);
            let took = host.now().saturating_sub(began);
            if let Some(known) = self.known.get_mut(&id) {
                let rest = took.div_f64(self.options.locate_share);
                known.ask_next = now + rest.max(self.options.locate_age);
            }
        }
    }

    fn locate_one(&mut self, host: &(impl Files + Probe), id: ProcessId, now: Duration) {
        /// Below this a glance is enough: what could be remote is little.
        const SMALL_PAGES: u64 = 16 << 10;
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        let effort = if known.pages() < SMALL_PAGES && self.options.only.is_none() {
            Effort::GLANCE
        } else {
            self.options.effort
        };
        let resident = known.resident(host.page_size());
        let located = locate_in_mappings(
            host,
            host,
            id.pid,
            &self.nodes,
            effort,
            Some(resident),
            &mut self.random,
        );
        // Another process may have got the number between reading its line and asking.
        let same = host
            .read_record(&format!("/proc/{}/stat", id.pid), &mut self.buffer)
            .is_ok_and(|text| TaskStat::parse(text).is_ok_and(|task| task.id == id));
        match located {
            Ok(located) if same => {
                let guest = known.guest_mappings(&located.mappings);
                let guest: Option<Vec<_>> = guest.map(|guest| {
                    let share = |node| located.share_in(node, |mapping| guest[mapping]).share;
                    let nodes = located.locality.nodes.iter();
                    nodes.map(|on| (on.node, share(on.node))).collect()
                });
                let placed = Placed::new(&located.locality, now, guest.as_deref());
                known.memory = Reading::Known(placed);
            }
            Ok(_) | Err(LocateError::Gone) => {}
            Err(error) => known.memory = Reading::absent(crate::chain(&error)),
        }
        if self.balancing {
            known.read_faults(host, id.pid, &mut self.buffer);
        } else {
            known.access = Reading::absent("automatic balancing is off");
        }
    }

    /// The control groups of workloads, whose memory the kernel counts.
    fn look_at_groups(&mut self, host: &(impl Files + Probe), now: Duration) -> Vec<GroupSample> {
        let page = host.page_size();
        let mut wanted: BTreeMap<&str, &Membership> = BTreeMap::new();
        for known in self.known.values() {
            if !known.facts.workload.cgroup.is_empty() {
                wanted
                    .entry(&known.facts.workload.cgroup)
                    .or_insert(&known.facts.membership);
            }
        }
        self.groups
            .retain(|path, _| wanted.contains_key(path.as_str()));
        for (path, membership) in wanted {
            let fresh = self
                .groups
                .get(path)
                .is_some_and(|(read, _)| now.saturating_sub(*read) < GROUP_AGE);
            if fresh {
                continue;
            }
            let nodes = match &membership.memory {
                // Where memory is counted in another hierarchy, the names may differ.
                Some((version, counted)) if counted.starts_with(path) => {
                    read_group_memory(host, *version, path, page)
                }
                _ => Reading::absent("no control group counts its memory"),
            };
            let group = GroupSample {
                path: path.to_owned(),
                nodes: nodes.map(|nodes| nodes.into_iter().collect()),
            };
            self.groups.insert(path.to_owned(), (now, group));
        }
        self.groups
            .values()
            .map(|(_, group)| group.clone())
            .collect()
    }

    fn read_flag(&mut self, host: &impl Files, path: &str) -> bool {
        host.read(path, &mut self.buffer)
            .is_ok_and(|text| !matches!(text.trim_ascii(), b"0" | b""))
    }

    /// The part of the last 10 s in which some task waited for memory.
    fn read_pressure(&mut self, host: &impl Files) -> Reading<f64> {
        match host.read("/proc/pressure/memory", &mut self.buffer) {
            Ok(text) => {
                let text = String::from_utf8_lossy(text);
                let share = text
                    .split_ascii_whitespace()
                    .find_map(|word| word.strip_prefix("avg10=")?.parse::<f64>().ok());
                share.map_or_else(
                    || Reading::absent("/proc/pressure/memory has no avg10"),
                    |percent| Reading::Known(percent / 100.0),
                )
            }
            Err(error) => Reading::absent(error.reason()),
        }
    }
}

/// The node of a CPU.
fn node_of(cpus: &[(NodeId, CpuSet)], cpu: CpuId) -> Option<NodeId> {
    cpus.iter()
        .find(|(_, cpus)| cpus.contains(cpu))
        .map(|&(node, _)| node)
}
