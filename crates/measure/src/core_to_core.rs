//! From one CPU's store to another one's load.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use homenode_host::{Clock, Files};
use homenode_sys::NodeMemory;
use homenode_sys::kernels::Random;
use homenode_units::{Bytes, CpuId, NodeId, NodeSet};

use crate::latency::PAGE;
use crate::memory::{Want, allocate, verify};
use crate::session::{Sample, Session, Subject};
use crate::threads::{pin, preemptions};
use crate::{Arrangement, Cell, MeasureError, Metric, Outcome, Pages, Sites, Test};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreToCoreOptions {
    /// Node by node only, not every pair of cores.
    pub quick: bool,
}

/// How the line is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Plain loads and stores.
    LoadStore,
    /// Compare and swap by both.
    Swap,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::LoadStore => "load-store",
            Self::Swap => "cas",
        }
    }
}

/// More pairs would take longer than anyone waits; they are left out and it is said.
const PAIRS_MAX: usize = 4096;

/// A pair of CPUs and the node that the line lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    writer: (NodeId, CpuId),
    reader: (NodeId, CpuId),
    home: NodeId,
    form: Form,
}

/// Measures one-way times (half a round trip): first a pair of cores for each pair of nodes, the
/// line at the writer's, the reader's and a third node; then every pair of cores.
///
/// Each pair has a line of its own, in a page of its own, on a node that was verified. Nobody
/// pauses between looks. Cells name CPUs in `kernel`: `load-store 0 to 4`.
///
/// # Errors
///
/// None now; as the other tests.
pub fn core_to_core(
    session: &mut Session<'_>,
    options: &CoreToCoreOptions,
) -> Result<Vec<Cell>, MeasureError> {
    let mut pairs = node_pairs(&session.sites);
    if !options.quick {
        let mut more = core_pairs(&session.sites);
        more.retain(|pair| !pairs.contains(pair));
        // In random order, so that a budget that ends early leaves no corner empty.
        Random::new(1).shuffle(&mut more);
        if more.len() > PAIRS_MAX {
            session.note(format!(
                "{PAIRS_MAX} of {} pairs of cores were measured",
                more.len()
            ));
            more.truncate(PAIRS_MAX);
        }
        pairs.extend(more);
    }
    if pairs.is_empty() {
        session.note("there is one core that may be used: nothing to hand over to");
    }
    let mut cells = Vec::new();
    let mut subjects = Vec::new();
    let mut sampled = Vec::new();
    for pair in pairs {
        let home = NodeSet::from_iter([pair.home]);
        let mut cell = Cell {
            test: Test::CoreToCore,
            metric: Metric::OneWay,
            from: NodeSet::from_iter([pair.writer.0, pair.reader.0]),
            to: home.clone(),
            arrangement: Arrangement::Pair,
            threads: 2,
            kernel: format!(
                "{} {} to {}",
                pair.form.name(),
                pair.writer.1,
                pair.reader.1
            ),
            pages: Pages::Base,
            size: Bytes(64),
            at: None,
            bus_factor: None,
            outcome: Outcome::absent("it was not measured"),
        };
        match allocate(session.files, &home, PAGE, Want::Base, 0) {
            Ok(placed) => {
                subjects.push(Handover::new(pair, placed.memory));
                sampled.push(cells.len());
            }
            Err(why) => cell.outcome = Outcome::absent(why),
        }
        cells.push(cell);
    }
    let outcomes = session.sample("core to core", &mut subjects);
    for (position, outcome) in sampled.into_iter().zip(outcomes) {
        cells[position].outcome = outcome;
    }
    Ok(cells)
}

/// For each pair of nodes two cores, in both directions, with every home that differs.
fn node_pairs(sites: &Sites) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for writer in &sites.rows {
        for reader in &sites.rows {
            let second = if writer.node == reader.node { 1 } else { 0 };
            let (Some(&from), Some(&to)) = (writer.cpus.first(), reader.cpus.get(second)) else {
                continue;
            };
            let mut homes = vec![sites.own_column(writer.node), sites.own_column(reader.node)];
            let third = sites
                .columns
                .iter()
                .find(|column| !homes.contains(&column.node));
            homes.extend(third.map(|column| column.node));
            homes.dedup();
            for home in homes {
                for form in [Form::LoadStore, Form::Swap] {
                    pairs.push(Pair {
                        writer: (writer.node, from),
                        reader: (reader.node, to),
                        home,
                        form,
                    });
                }
            }
        }
    }
    pairs
}

/// Every pair of cores once, the line at the writer's.
fn core_pairs(sites: &Sites) -> Vec<Pair> {
    let cores: Vec<(NodeId, CpuId)> = sites
        .rows
        .iter()
        .flat_map(|row| row.cpus.iter().map(|&cpu| (row.node, cpu)))
        .collect();
    let mut pairs = Vec::new();
    for (number, &writer) in cores.iter().enumerate() {
        for &reader in &cores[number + 1..] {
            pairs.push(Pair {
                writer,
                reader,
                home: sites.own_column(writer.0),
                form: Form::LoadStore,
            });
        }
    }
    pairs
}

/// A line that goes to and fro.
#[derive(Debug)]
struct Handover {
    pair: Pair,
    memory: Mutex<NodeMemory>,
    rounds: u64,
}

/// The word of the page that is used; not the first, which other tools' lines share with headers.
const WORD: usize = 64;

impl Handover {
    fn new(pair: Pair, memory: NodeMemory) -> Self {
        Self {
            pair,
            memory: Mutex::new(memory),
            rounds: 1,
        }
    }

    /// Round trips; the time of them.
    fn run(&self, clock: &(dyn Clock + Sync), rounds: u64) -> Result<(Duration, bool), String> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let line = &memory.as_atomics()[WORD];
        line.store(0, Ordering::Release);
        let ready = Barrier::new(2);
        let form = self.pair.form;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let pinned = pin(self.pair.reader.1);
                ready.wait();
                let before = preemptions();
                if pinned.is_ok() {
                    for round in 0..rounds {
                        pass(line, form, 2 * round + 1);
                    }
                } else {
                    // The writer must not wait for ever.
                    line.store(u64::MAX, Ordering::Release);
                }
                pinned.map(|()| preemptions() != before)
            });
            // This thread is the scope's own, and goes back where it was with the session's end.
            let pinned = pin(self.pair.writer.1);
            ready.wait();
            let before = preemptions();
            let start = clock.now();
            for round in 0..rounds {
                if !pass(line, form, 2 * round) {
                    break;
                }
            }
            // The last answer, so that whole round trips are timed.
            while line.load(Ordering::Acquire) < 2 * rounds {}
            let time = clock.now().saturating_sub(start);
            let disturbed = preemptions() != before;
            let other = other.join().map_err(|_| "a thread failed".to_owned())??;
            pinned?;
            Ok((time, disturbed || other))
        })
    }
}

/// Waits for a number and makes it the next; `false` when the other side gave up.
fn pass(line: &AtomicU64, form: Form, expected: u64) -> bool {
    match form {
        Form::LoadStore => loop {
            let found = line.load(Ordering::Acquire);
            if found == expected {
                line.store(expected + 1, Ordering::Release);
                return true;
            }
            if found == u64::MAX {
                return false;
            }
        },
        Form::Swap => loop {
            let next = expected + 1;
            match line.compare_exchange_weak(expected, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(u64::MAX) => return false,
                Err(_) => {}
            }
        },
    }
}

/// Nanoseconds one way.
#[expect(clippy::cast_precision_loss, reason = "round trips of one sample")]
fn one_way(time: Duration, rounds: u64) -> f64 {
    time.as_secs_f64() * 1e9 / (2 * rounds) as f64
}

impl Subject for Handover {
    fn calibrate(&mut self, clock: &(dyn Clock + Sync), block: Duration) -> Result<(), String> {
        // From one round up: where all CPUs share one host thread, a round takes 0.1 s.
        let mut rounds = 1;
        loop {
            let (time, _) = self.run(clock, rounds)?;
            if time >= block / 4 || rounds >= 1 << 20 {
                let per_round = time.as_nanos().max(1) / u128::from(rounds);
                let wanted = block.as_nanos() / per_round.max(1);
                self.rounds = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(1, 1 << 20);
                return Ok(());
            }
            rounds *= 4;
        }
    }

    fn sample(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String> {
        let (time, disturbed) = self.run(clock, self.rounds)?;
        Ok(Sample {
            value: one_way(time, self.rounds),
            disturbed,
        })
    }

    fn verify(&self, files: &dyn Files) -> Result<(), String> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        verify(files, &memory, &NodeSet::from_iter([self.pair.home]))
    }
}

#[cfg(test)]
mod tests {
    use homenode_topology::parse_synthetic;

    use super::*;

    #[test]
    fn every_home_is_tried_for_each_pair_of_nodes() {
        let machine = parse_synthetic("pack:3 [numa(memory=16GB)] core:2 pu:1").unwrap();
        let sites = Sites::of(&machine);
        let pairs = node_pairs(&sites);
        // Three pairs inside a node with two homes (own, third), six between with three; two forms.
        assert_eq!(pairs.len(), (3 * 2 + 6 * 3) * 2);
        assert!(pairs.iter().all(|pair| pair.writer.1 != pair.reader.1));
        assert_eq!(core_pairs(&sites).len(), 6 * 5 / 2);
    }

    #[test]
    fn a_line_goes_to_and_fro_and_a_reader_that_gave_up_ends_it() {
        for form in [Form::LoadStore, Form::Swap] {
            let line = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| (0..50).for_each(|round| assert!(pass(&line, form, 2 * round + 1))));
                (0..50).for_each(|round| assert!(pass(&line, form, 2 * round)));
            });
            assert_eq!(line.load(Ordering::Acquire), 100);
            line.store(u64::MAX, Ordering::Release);
            assert!(!pass(&line, form, 100));
        }
    }
}
