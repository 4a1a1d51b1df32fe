//! What is kept of a process from one round to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use homenode_host::{Buffer, FileError, Files};
use homenode_units::{Bytes, CpuSet, NodeId, NodeSet, Pid, Reading};

use super::node_of;
use super::sample::{Placed, ProcessSample};
use crate::cgroup::{Membership, parse_membership};
use crate::{
    Faults, Mapping, Process, ProcessId, TaskStat, Vm, Workload, home_of, parse_command_line,
    parse_status,
};

/// Recent CPU time loses half of its weight in this time.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Threads of one process that are looked at in a round; of more, every other or every third, ….
const THREADS_MAX: usize = 128;
/// Threads whose faults are added up.
const FAULT_THREADS_MAX: usize = 16;

/// What changes seldom.
#[derive(Debug)]
pub(super) struct Facts {
    process: Process,
    pub(super) workload: Workload,
    pub(super) membership: Membership,
    vm: Option<Vm>,
}

/// A process and what was found out about it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) facts: Facts,
    facts_at: Duration,
    pub(super) seen: u64,
    task: Option<TaskStat>,
    idle_rounds: u32,
    pub(super) read_at: Duration,
    /// Ticks of each thread, of those that are looked at.
    threads: BTreeMap<Pid, u64>,
    ticks_on: BTreeMap<NodeId, u64>,
    recent: BTreeMap<NodeId, f64>,
    home: NodeSet,
    migrations: u64,
    nodes_allowed: NodeSet,
    pub(super) memory: Reading<Placed>,
    pub(super) access: Reading<f64>,
    pub(super) ask_next: Duration,
}

/// Reads what changes seldom; `None` for what has no memory of its own.
pub(super) fn read_facts(
    files: &impl Files,
    task: &TaskStat,
    users: &BTreeMap<u32, String>,
    buffer: &mut Buffer,
) -> Result<Option<Facts>, FileError> {
    let pid = task.id.pid;
    let text = files.read_record(&format!("/proc/{pid}/status"), buffer)?;
    let Ok(Some(process)) = parse_status(pid, &String::from_utf8_lossy(text), users) else {
        return Ok(None);
    };
    // Older kernels without control groups have no such file.
    let membership = match files.read(&format!("/proc/{pid}/cgroup"), buffer) {
        Ok(text) => parse_membership(&String::from_utf8_lossy(text)),
        Err(_) => Membership::default(),
    };
    const COMMAND_BYTES: usize = 64 << 10;
    let path = format!("/proc/{pid}/cmdline");
    let words = match files.read_head(&path, COMMAND_BYTES, buffer) {
        Ok(text) => parse_command_line(text),
        Err(_) => Vec::new(),
    };
    let vm = Vm::of_command(&words);
    let workload = Workload::find(&membership.path, vm.as_ref(), &process.name);
    Ok(Some(Facts {
        process,
        workload,
        membership,
        vm,
    }))
}

impl Known {
    pub(super) fn new(facts: Facts, now: Duration) -> Self {
        Self {
            facts,
            facts_at: now,
            seen: 0,
            task: None,
            idle_rounds: 0,
            read_at: now,
            threads: BTreeMap::new(),
            ticks_on: BTreeMap::new(),
            recent: BTreeMap::new(),
            home: NodeSet::new(),
            migrations: 0,
            nodes_allowed: NodeSet::new(),
            memory: Reading::absent("not asked yet"),
            access: Reading::absent("not asked yet"),
            ask_next: Duration::ZERO,
        }
    }

    pub(super) fn set_facts(&mut self, facts: Facts, now: Duration) {
        self.facts = facts;
        self.facts_at = now;
    }

    /// Whether the facts still hold: another name means another program, in the same process.
    pub(super) fn is_current(&self, task: &TaskStat, now: Duration, age: Duration) -> bool {
        let same = self.task.as_ref().is_some_and(|old| old.name == task.name);
        // Not all in the same round.
        let age = age + Duration::from_secs(u64::from(task.id.pid.0 % 32));
        same && now.saturating_sub(self.facts_at) < age
    }

    /// Rounds in a row in which it used no CPU time, this one among them.
    pub(super) fn idle_rounds(&mut self, task: &TaskStat) -> u32 {
        let same = self.task.as_ref().is_some_and(|old| {
            old.ticks == task.ticks && old.resident_pages == task.resident_pages
        });
        self.idle_rounds = if same { self.idle_rounds + 1 } else { 0 };
        self.idle_rounds
    }

    /// Takes in where its threads ran since the last round.
    pub(super) fn count_cpu(
        &mut self,
        files: &impl Files,
        task: &TaskStat,
        cpus: &[(NodeId, CpuSet)],
        elapsed: Option<Duration>,
        read_threads: bool,
        buffer: &mut Buffer,
    ) {
        let allowed = &self.facts.process.cpus_allowed;
        self.nodes_allowed = cpus
            .iter()
            .filter(|(_, cpus)| cpus.intersects(allowed))
            .map(|&(node, _)| node)
            .collect();
        let before = self.task.as_ref().map_or(0, |old| old.ticks);
        let spent = task.ticks.saturating_sub(before);
        if let Some(elapsed) = elapsed {
            let fade = 0.5f64.powf(elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64());
            for weight in self.recent.values_mut() {
                *weight *= fade;
            }
        }
        if task.threads == 1 {
            self.add(node_of(cpus, task.cpu), spent);
        } else if spent > 0 && read_threads {
            self.count_threads(files, task.id.pid, cpus, buffer);
        }
        // Who has not run yet is where its first thread was put.
        if self.recent.is_empty()
            && let Some(node) = node_of(cpus, task.cpu)
        {
            self.recent.insert(node, f64::MIN_POSITIVE);
        }
        let home = home_of(&self.recent, &self.home);
        if home != self.home && !self.home.is_empty() {
            self.migrations += 1;
        }
        self.home = home;
        self.task = Some(task.clone());
    }

    fn count_threads(
        &mut self,
        files: &impl Files,
        pid: Pid,
        cpus: &[(NodeId, CpuSet)],
        buffer: &mut Buffer,
    ) {
        let Ok(names) = files.list(&format!("/proc/{pid}/task")) else {
            return;
        };
        let step = names.len().div_ceil(THREADS_MAX).max(1);
        let mut threads = BTreeMap::new();
        for name in names.iter().step_by(step) {
            let Ok(text) = files.read_record(&format!("/proc/{pid}/task/{name}/stat"), buffer)
            else {
                continue;
            };
            let Ok(thread) = TaskStat::parse(text) else {
                continue;
            };
            // Of a thread seen for the first time, all it ever did: its best guess.
            let before = self.threads.get(&thread.id.pid).copied().unwrap_or(0);
            let spent = thread.ticks.saturating_sub(before);
            self.add(node_of(cpus, thread.cpu), spent);
            threads.insert(thread.id.pid, thread.ticks);
        }
        self.threads = threads;
    }

    fn add(&mut self, node: Option<NodeId>, ticks: u64) {
        let Some(node) = node.filter(|_| ticks > 0) else {
            return;
        };
        *self.ticks_on.entry(node).or_default() += ticks;
        #[expect(clippy::cast_precision_loss, reason = "a weight")]
        let weight = ticks as f64;
        *self.recent.entry(node).or_default() += weight;
    }

    /// Resident base pages.
    pub(super) fn pages(&self) -> u64 {
        self.task.as_ref().map_or(0, |task| task.resident_pages)
    }

    /// Memory in use, explicit huge pages included.
    pub(super) fn resident(&self, page: Bytes) -> Bytes {
        Bytes(self.pages().saturating_mul(page.0)) + self.facts.process.huge
    }

    /// How much it matters to ask where its memory lies: what was never asked about first, then
    /// size × age.
    pub(super) fn urgency(&self, now: Duration, page: Bytes) -> u128 {
        let size = u128::from(self.resident(page).0);
        match self.memory.known() {
            Some(placed) => size * now.saturating_sub(placed.asked_at).as_millis(),
            None if self.ask_next == Duration::ZERO => u128::MAX / 2 + size,
            // Asked in vain: as if a minute ago.
            None => size * 60_000,
        }
    }

    /// Whether it runs a virtual machine.
    pub(super) fn is_vm(&self) -> bool {
        self.facts.vm.is_some()
    }

    /// Which of its mappings hold the memory of its guest.
    pub(super) fn guest_mappings(&self, mappings: &[Mapping]) -> Option<Vec<bool>> {
        let vm = self.facts.vm.as_ref()?;
        Some(vm.guest_mappings(mappings))
    }

    /// Adds up what automatic balancing saw.
    pub(super) fn read_faults(&mut self, files: &impl Files, pid: Pid, buffer: &mut Buffer) {
        let names = files.list(&format!("/proc/{pid}/task")).unwrap_or_default();
        let (mut local, mut all) = (0u64, 0u64);
        for name in names.iter().take(FAULT_THREADS_MAX) {
            let path = format!("/proc/{pid}/task/{name}/sched");
            if let Ok(text) = files.read(&path, buffer) {
                let (here, total) = Faults::parse(&String::from_utf8_lossy(text)).local_and_all();
                local += here;
                all += total;
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = (all > 0).then(|| local as f64 / all as f64);
        self.access = share.map_or_else(
            || Reading::absent("no hinting faults: idle, young, bound, or nothing to scan"),
            Reading::Known,
        );
    }

    pub(super) fn sample(&self, id: ProcessId, page: Bytes) -> ProcessSample {
        let process = &self.facts.process;
        let task = self.task.as_ref();
        ProcessSample {
            id,
            parent: task.map_or(Pid(0), |task| task.parent),
            name: process.name.clone(),
            user: process.user_shown(),
            workload: self.facts.workload.clone(),
            vm: self.facts.vm.clone(),
            threads: task.map_or(1, |task| task.threads),
            read_at: self.read_at,
            ticks: task.map_or(0, |task| task.ticks),
            ticks_on: self
                .ticks_on
                .iter()
                .map(|(&node, &ticks)| (node, ticks))
                .collect(),
            home: self.home.clone(),
            migrations: self.migrations,
            nodes_allowed: self.nodes_allowed.clone(),
            memory: self.resident(page),
            placed: self.memory.clone(),
            access: self.access.clone(),
        }
    }
}
