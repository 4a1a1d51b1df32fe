//! The model: accesses in, time out.

use crate::cache::{Cache, Victim};
use crate::load::Load;
use crate::machine::{Machine, MachineError};
use crate::rounds::Rounds;
use crate::stream::Streams;
use crate::truth::{CpuTruth, NodeTruth, ResourceTruth, Truth};

/// A machine at work.
#[derive(Clone, Debug)]
pub struct Model {
    machine: Machine,
    caches: Vec<Cache>,
    streams: Vec<Streams>,
    load: Load,
    rounds: Rounds,
    truth: Vec<CpuTruth>,
    /// When the counters were set to zero.
    truth_start: u64,
}

/// A load or a store, all in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The virtual address divided by 64, by which streams are known.
    pub virtual_line: u64,
    /// The physical address divided by 64.
    pub line: u64,
    /// Whether it writes.
    pub store: bool,
}

impl Model {
    /// A machine with empty caches, at time 0.
    ///
    /// # Panics
    ///
    /// When the machine is none; see [`Self::try_new`].
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self::try_new(machine).expect("the machine was checked")
    }

    /// A machine with empty caches, at time 0.
    ///
    /// # Errors
    ///
    /// [`MachineError`] when the numbers are no machine.
    pub fn try_new(machine: Machine) -> Result<Self, MachineError> {
        machine.check()?;
        let truth = machine
            .cpus
            .iter()
            .map(|cpu| CpuTruth {
                node: cpu.node,
                instructions: 0,
                hits: vec![0; cpu.caches.len()],
                memory: vec![NodeTruth::default(); usize::from(machine.nodes)],
            })
            .collect();
        Ok(Self {
            caches: machine
                .caches
                .iter()
                .map(|cache| Cache::new(cache.sets, cache.ways))
                .collect(),
            streams: machine
                .cpus
                .iter()
                .map(|cpu| Streams::new(cpu.lines_in_flight))
                .collect(),
            load: Load::new(&machine),
            rounds: Rounds::new(machine.cpus.len(), machine.slice_ps),
            truth,
            truth_start: 0,
            machine,
        })
    }

    /// How many CPUs it has.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.machine.cpus.len()
    }

    /// Sets all clocks, to begin or to go on with nothing in the caches and nothing in flight.
    /// Counters are as they were, and the time between is not counted. Unit: picoseconds.
    pub fn start_at(&mut self, time: u64) {
        self.caches.iter_mut().for_each(Cache::clear);
        self.truth_start += time.saturating_sub(self.now());
        self.rounds.start_at(time);
        self.load.start_at(time);
    }

    /// The furthest clock: a time that no CPU has passed. Unit: picoseconds.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.rounds.latest()
    }

    /// The clock of the CPU that runs. Unit: picoseconds.
    #[must_use]
    #[inline]
    pub fn now(&self) -> u64 {
        self.rounds.now()
    }

    /// Says that `cpu` is about to run.
    #[inline]
    pub fn begin(&mut self, cpu: usize) {
        if self.rounds.begin(cpu) {
            self.load.pass(self.rounds.round_start());
        }
    }

    /// Counts instructions of the CPU that runs. True where its slice is over, said once.
    #[inline]
    pub fn execute(&mut self, cpu: usize, instructions: u32) -> bool {
        self.truth[cpu].instructions += u64::from(instructions);
        self.rounds
            .advance(u64::from(instructions) * u64::from(self.machine.instruction_ps))
    }

    /// Says that the CPU that runs halts or pauses.
    pub fn yields(&mut self) {
        self.rounds.yields();
    }

    /// Does an access of the CPU that runs. True where its slice is over, said once.
    #[inline]
    pub fn access(&mut self, cpu: usize, access: Access) -> bool {
        let nearest = usize::from(self.machine.cpus[cpu].caches[0]);
        if self.caches[nearest].touch(access.line, access.store) {
            self.truth[cpu].hits[0] += 1;
            return false;
        }
        self.miss(cpu, access)
    }

    /// An access that missed the nearest cache.
    fn miss(&mut self, cpu: usize, access: Access) -> bool {
        // Firmware and devices: neither cached nor counted.
        let Some(to) = self.machine.node_of(access.line) else {
            return false;
        };
        let now = self.rounds.now();
        let asked = self.streams[cpu].asked_for(access.virtual_line, now);
        let levels = self.machine.cpus[cpu].caches.len();
        let found = (1..levels).find(|&level| self.touch(cpu, level, access.line));
        let latency = match found {
            Some(level) => {
                self.truth[cpu].hits[level] += 1;
                let cache = self.machine.cpus[cpu].caches[level];
                u64::from(self.machine.caches[usize::from(cache)].latency_ps)
            }
            None => {
                let pair = self.machine.pair(self.machine.cpus[cpu].node, to);
                let latency = self.load.latency(pair, access.store);
                self.load.fetched(pair, latency);
                latency
            }
        };
        self.fill(cpu, found.unwrap_or(levels), access);
        // The instruction itself was counted by `execute`.
        let counted = now + u64::from(self.machine.instruction_ps);
        let stall = (asked.unwrap_or(now) + latency).saturating_sub(counted);
        if found.is_none() {
            let truth = &mut self.truth[cpu].memory[usize::from(to)];
            truth.loads += u64::from(!access.store);
            truth.stores += u64::from(access.store);
            truth.ahead += u64::from(asked.is_some());
            truth.stall_ps += stall;
        }
        self.rounds.advance(stall)
    }

    fn touch(&mut self, cpu: usize, level: usize, line: u64) -> bool {
        let cache = self.machine.cpus[cpu].caches[level];
        self.caches[usize::from(cache)].touch(line, false)
    }

    /// Puts a line into the caches nearer than the level where it was found.
    fn fill(&mut self, cpu: usize, found: usize, access: Access) {
        for level in (0..found).rev() {
            // Only the nearest copy is written; farther ones learn of it when it leaves.
            let written = access.store && level == 0;
            self.put(cpu, level, access.line, written);
        }
    }

    fn put(&mut self, cpu: usize, level: usize, line: u64, written: bool) {
        let (mut level, mut line, mut written) = (level, line, written);
        loop {
            let cache = usize::from(self.machine.cpus[cpu].caches[level]);
            let Some(Victim {
                line: victim,
                written: true,
            }) = self.caches[cache].insert(line, written)
            else {
                return;
            };
            let Some(&next) = self.machine.cpus[cpu].caches.get(level + 1) else {
                return self.write_back(cpu, victim);
            };
            if self.caches[usize::from(next)].touch(victim, true) {
                return;
            }
            (level, line, written) = (level + 1, victim, true);
        }
    }

    fn write_back(&mut self, cpu: usize, line: u64) {
        if let Some(to) = self.machine.node_of(line) {
            let from = self.machine.cpus[cpu].node;
            self.load.wrote_back(self.machine.pair(from, to));
            self.truth[cpu].memory[usize::from(to)].write_backs += 1;
        }
    }

    /// The counters.
    #[must_use]
    pub fn truth(&self) -> Truth {
        let resources = self.machine.resources.iter().enumerate();
        Truth {
            schema: Truth::SCHEMA.to_owned(),
            elapsed_ps: self.now().saturating_sub(self.truth_start),
            host_ns: 0,
            skew_ps_max: self.rounds.skew_max(),
            cpus: self.truth.clone(),
            resources: resources
                .map(|(position, resource)| {
                    let (lines, used_max) = self.load.totals(position);
                    ResourceTruth {
                        name: resource.name.clone(),
                        lines,
                        used_max,
                    }
                })
                .collect(),
        }
    }

    /// Sets the counters to zero.
    pub fn reset_truth(&mut self) {
        for cpu in &mut self.truth {
            cpu.instructions = 0;
            cpu.hits.fill(0);
            cpu.memory.fill(NodeTruth::default());
        }
        self.load.reset_totals();
        self.truth_start = self.now();
    }
}

#[cfg(test)]
mod tests;
