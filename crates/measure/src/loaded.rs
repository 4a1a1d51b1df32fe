//! Latency while other CPUs load the memory.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homenode_host::{Clock, Files};
use homenode_sys::NodeMemory;
use homenode_sys::kernels::{ChaseOrder, Operation, StreamKernel, Walk, spin};
use homenode_units::{Bytes, CpuId, NodeSet};

use crate::bandwidth::usual;
use crate::latency::{Pattern, chase_cell, per_load, prepare};
use crate::memory::{Want, allocate, verify};
use crate::session::{Sample, Session, Subject};
use crate::threads::{pin, preemptions};
use crate::working_set::near_and_far;
use crate::{Cell, Estimate, MeasureError, Metric, Outcome, Test};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedOptions {
    /// Memory of the walk and of each injector; more than caches hold unless said otherwise.
    pub size: Option<Bytes>,
    /// Reads only, and fewer points.
    pub quick: bool,
}

/// What injectors do in turn: reads, then writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mix {
    name: &'static str,
    reads: u32,
    writes: u32,
    store: Operation,
}

/// Useful bytes: a write that reads its line first is one write here, and a read and a write in
/// MLC's ratios.
const MIXES: [Mix; 5] = [
    Mix::new("reads", 1, 0, Operation::Write),
    Mix::new("3:1 reads-writes", 3, 1, Operation::Write),
    Mix::new("2:1 reads-writes", 2, 1, Operation::Write),
    Mix::new("1:1 reads-writes", 1, 1, Operation::Write),
    Mix::new("1:1 reads-nt-writes", 1, 1, Operation::WriteNt),
];

impl Mix {
    const fn new(name: &'static str, reads: u32, writes: u32, store: Operation) -> Self {
        Self {
            name,
            reads,
            writes,
            store,
        }
    }
}

/// What an injector does before it waits.
const BURST_BYTES: usize = 4096;

/// Bursts between two looks at the clock.
const BURSTS_PER_STEP: usize = 16;

/// Loads of the walk between two looks at the clock.
const WALK_LOADS: u64 = 256;

/// Waits that are tried first. Unit: rounds of an empty loop for each burst.
const PROBES: [u64; 9] = [0, 50, 150, 400, 1000, 2500, 7000, 20_000, 100_000];

/// A walk on the first CPU of the first node, injectors on its other CPUs; both on the node's own
/// memory, then on another node's. Points are chosen so that they are even in bandwidth.
///
/// Each point is two cells: the latency, and the bandwidth of the injectors alone while the walk
/// ran. The point without injectors has no `at`.
///
/// # Errors
///
/// [`MeasureError`] when the size cannot be had.
pub fn loaded_latency(
    session: &mut Session<'_>,
    options: &LoadedOptions,
) -> Result<Vec<Cell>, MeasureError> {
    let row = session.sites.rows[0].clone();
    let columns = near_and_far(session, row.node);
    let injectors = &row.cpus[1..];
    let wanted = session.sites.beyond_caches();
    let buffers = 1 + injectors.len() as u64;
    let least = Bytes(BURST_BYTES as u64);
    let size = session.buffer_size(options.size, wanted, least, buffers)?;
    let mixes = if options.quick {
        &MIXES[..1]
    } else {
        &MIXES[..]
    };
    let mut cells = Vec::new();
    for (number, &to) in columns.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "two columns")]
        session.allot(1.0 / (columns.len() - number) as f64);
        let to = NodeSet::from_iter([to]);
        curve(
            session,
            &to,
            (&row.cpus, row.node),
            mixes,
            size,
            options.quick,
            &mut cells,
        );
    }
    Ok(cells)
}

/// The curves of one column.
fn curve(
    session: &mut Session<'_>,
    to: &NodeSet,
    (cpus, node): (&[CpuId], homenode_units::NodeId),
    mixes: &[Mix],
    size: Bytes,
    quick: bool,
    cells: &mut Vec<Cell>,
) {
    let pattern = Pattern {
        order: ChaseOrder::Whole,
        stride: session.sites.stride,
        want: Want::Huge,
    };
    let mut cell = chase_cell(Test::LoadedLatency, node, to, &pattern, size);
    session.tell("placing memory", 0, cpus.len());
    let (chase, pages) = match prepare(session, to, &pattern, size) {
        Ok(prepared) => prepared,
        Err(why) => {
            cell.outcome = Outcome::absent(why);
            cells.push(cell);
            return;
        }
    };
    cell.pages = pages;
    let mut buffers = Vec::new();
    for (seed, _) in (1..).zip(&cpus[1..]) {
        match allocate(session.files, to, size, Want::Huge, seed) {
            Ok(placed) => buffers.push(std::sync::Mutex::new(placed.memory)),
            Err(why) => session.note(format!("an injector is missing: {why}")),
        }
    }
    if buffers.is_empty() {
        session.note("there is no other CPU on the node to load its memory");
    }
    let scene = Scene {
        walk_cpu: cpus[0],
        seats: cpus[1..].iter().copied().zip(&buffers).collect(),
        nodes: to.clone(),
    };
    let idle = Loaded::new(&scene, Walk::new(chase.clone(), 1), mixes[0], None);
    let mut subjects = vec![idle];
    for &mix in mixes {
        if buffers.is_empty() {
            break;
        }
        let found = probe(session, &scene, &chase, mix);
        for delay in even(&found, if quick { 5 } else { 8 }) {
            let walk = Walk::new(chase.clone(), 1);
            subjects.push(Loaded::new(&scene, walk, mix, Some(delay)));
        }
    }
    let outcomes = session.sample("latency under load", &mut subjects);
    for (subject, outcome) in subjects.iter().zip(outcomes) {
        let mut latency = cell.clone();
        subject.mix.name.clone_into(&mut latency.kernel);
        latency.threads = 1 + subject.injectors();
        #[expect(clippy::cast_precision_loss, reason = "rounds of a loop")]
        let at = subject.delay.map(|delay| delay as f64);
        latency.at = at;
        if at.is_some() {
            let rate = Estimate::of(subject.rates.clone(), 0.05, 0);
            cells.push(Cell {
                metric: Metric::UsefulBandwidth,
                outcome: match (rate, outcome.measured()) {
                    (Some(rate), Some(_)) => Outcome::Measured(rate),
                    _ => Outcome::absent("its latency was not measured"),
                },
                ..latency.clone()
            });
        }
        latency.outcome = outcome;
        cells.push(latency);
    }
}

/// Tries the waits once each: wait and bandwidth.
fn probe(
    session: &Session<'_>,
    scene: &Scene<'_>,
    chase: &std::sync::Arc<homenode_sys::kernels::Chase>,
    mix: Mix,
) -> Vec<(u64, f64)> {
    const TIME: Duration = Duration::from_millis(5);
    let mut found = Vec::new();
    for delay in PROBES {
        if session.is_over() {
            break;
        }
        let mut subject = Loaded::new(scene, Walk::new(chase.clone(), 1), mix, Some(delay));
        if subject.calibrate(session.clock, TIME).is_ok()
            && let Ok(_) = subject.sample(session.clock)
            && let Some(&rate) = subject.rates.last()
        {
            found.push((delay, rate));
        }
    }
    found
}

/// Waits that divide the range of bandwidths evenly, by interpolation between those tried.
fn even(found: &[(u64, f64)], points: u32) -> Vec<u64> {
    let Some(most) = found.iter().map(|&(_, rate)| rate).reduce(f64::max) else {
        return Vec::new();
    };
    let mut delays: Vec<u64> = vec![0];
    for point in 1..points {
        let wanted = most * f64::from(points - point) / f64::from(points);
        // Bandwidth falls as waits grow; from the far end, where noise is smallest.
        let pair = found
            .windows(2)
            .rev()
            .find(|pair| pair[1].1 <= wanted && pair[0].1 >= wanted);
        let Some(&[(short, fast), (long, slow)]) = pair else {
            continue;
        };
        let share = if fast > slow {
            (fast - wanted) / (fast - slow)
        } else {
            0.0
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "rounds of a loop"
        )]
        // The rate falls with one over the wait, so its inverse is what grows evenly.
        let delay = {
            let inverse = 1.0 / wanted;
            let (from, to) = (1.0 / fast, 1.0 / slow);
            let along = if to > from {
                (inverse - from) / (to - from)
            } else {
                share
            };
            (short as f64 + along * (long - short) as f64).round() as u64
        };
        delays.push(delay);
    }
    delays.sort_unstable();
    delays.dedup();
    delays
}

/// Who works where.
#[derive(Debug)]
struct Scene<'a> {
    walk_cpu: CpuId,
    seats: Vec<(CpuId, &'a std::sync::Mutex<NodeMemory>)>,
    nodes: NodeSet,
}

/// One point of a curve.
#[derive(Debug)]
struct Loaded<'a> {
    scene: &'a Scene<'a>,
    walk: Walk,
    mix: Mix,
    /// `None`: no injectors.
    delay: Option<u64>,
    block: Duration,
    /// Bytes per second of the injectors, one for each sample.
    rates: Vec<f64>,
}

/// What an injector moved up to a moment.
type Steps = Vec<(Duration, u64)>;

impl<'a> Loaded<'a> {
    fn new(scene: &'a Scene<'a>, walk: Walk, mix: Mix, delay: Option<u64>) -> Self {
        Self {
            scene,
            walk,
            mix,
            delay,
            block: Duration::from_millis(10),
            rates: Vec::new(),
        }
    }

    fn injectors(&self) -> usize {
        if self.delay.is_some() {
            self.scene.seats.len()
        } else {
            0
        }
    }

    /// The walk for the time of a block, with its begin and end; nanoseconds of a load.
    fn walk(&mut self, clock: &dyn Clock) -> (f64, Duration, Duration) {
        let begin = clock.now();
        let mut loads = 0;
        loop {
            loads += self.walk.run(WALK_LOADS);
            let now = clock.now();
            if now.saturating_sub(begin) >= self.block {
                return (per_load(now.saturating_sub(begin), loads), begin, now);
            }
        }
    }

    fn run(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String> {
        pin(self.scene.walk_cpu)?;
        let stop = AtomicBool::new(false);
        let ready = Barrier::new(self.injectors() + 1);
        let seats = if self.delay.is_some() {
            &self.scene.seats[..]
        } else {
            &[]
        };
        let (mix, delay) = (self.mix, self.delay.unwrap_or(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = seats
                .iter()
                .map(|(cpu, memory)| {
                    let (stop, ready) = (&stop, &ready);
                    scope.spawn(move || inject(clock, *cpu, memory, (mix, delay), stop, ready))
                })
                .collect();
            ready.wait();
            // Until every injector runs at its full rate.
            clock.sleep(Duration::from_micros(200));
            let before = preemptions();
            let (value, begin, end) = self.walk(clock);
            let disturbed = preemptions() != before;
            stop.store(true, Ordering::Relaxed);
            let mut rate = 0.0;
            for thread in threads {
                let steps = thread
                    .join()
                    .map_err(|_| "an injector failed".to_owned())??;
                rate += rate_between(&steps, begin, end);
            }
            self.rates.push(rate);
            Ok(Sample { value, disturbed })
        })
    }
}

/// Bytes per second of one injector between two moments; parts of steps count in proportion.
fn rate_between(steps: &[(Duration, u64)], begin: Duration, end: Duration) -> f64 {
    let mut bytes = 0.0;
    for pair in steps.windows(2) {
        let ((from, _), (to, moved)) = (pair[0], pair[1]);
        let inside = to.min(end).saturating_sub(from.max(begin)).as_secs_f64();
        let whole = to.saturating_sub(from).as_secs_f64();
        if whole > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "some kibibytes")]
            let moved = moved as f64;
            bytes += moved * inside / whole;
        }
    }
    bytes / end.saturating_sub(begin).as_secs_f64().max(1e-9)
}

/// Bursts and waits until told to stop.
fn inject(
    clock: &dyn Clock,
    cpu: CpuId,
    memory: &std::sync::Mutex<NodeMemory>,
    (mix, delay): (Mix, u64),
    stop: &AtomicBool,
    ready: &Barrier,
) -> Result<Steps, String> {
    let pinned = pin(cpu);
    let kernels: BTreeMap<bool, Option<StreamKernel>> =
        [(true, usual(Operation::Read)), (false, usual(mix.store))].into();
    let mut memory = memory
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    ready.wait();
    pinned?;
    let (Some(read), Some(write)) = (kernels[&true], kernels[&false]) else {
        return Err(format!("there is no loop for {}", mix.store.name()));
    };
    let array = read.array_bytes(&memory);
    let mut offset = 0;
    let mut steps = vec![(clock.now(), 0)];
    let turn = mix.reads + mix.writes;
    let mut burst = 0;
    while !stop.load(Ordering::Relaxed) {
        for _burst in 0..BURSTS_PER_STEP {
            let kernel = if burst % turn < mix.reads {
                read
            } else {
                write
            };
            kernel.run(&mut memory, offset, BURST_BYTES, 1, 0);
            spin(delay);
            burst = burst.wrapping_add(1);
            offset += BURST_BYTES;
            if offset + BURST_BYTES > array {
                offset = 0;
            }
        }
        steps.push((clock.now(), (BURSTS_PER_STEP * BURST_BYTES) as u64));
    }
    Ok(steps)
}

impl Subject for Loaded<'_> {
    fn calibrate(&mut self, clock: &(dyn Clock + Sync), block: Duration) -> Result<(), String> {
        self.block = block.max(Duration::from_millis(4));
        self.run(clock)?;
        self.rates.clear();
        Ok(())
    }

    fn sample(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String> {
        self.run(clock)
    }

    fn verify(&self, files: &dyn Files) -> Result<(), String> {
        verify(files, self.walk.chase().memory(), &self.scene.nodes)?;
        self.scene.seats.iter().try_for_each(|(_, memory)| {
            let memory = memory
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            verify(files, &memory, &self.scene.nodes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_even_in_bandwidth() {
        // A machine whose rate is 1000 / (10 + delay): 100, then falling.
        let rate = |delay: u64| {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let delay = delay as f64;
            1000.0 / (10.0 + delay)
        };
        let found: Vec<(u64, f64)> = PROBES.iter().map(|&delay| (delay, rate(delay))).collect();
        let rates: Vec<f64> = even(&found, 5).into_iter().map(rate).collect();
        for (rate, expected) in rates.iter().zip([100.0, 80.0, 60.0, 40.0, 20.0]) {
            assert!((rate - expected).abs() < 10.0, "{rates:?}");
        }
        assert_eq!(rates.len(), 5);
        assert_eq!(even(&[], 5), Vec::<u64>::new());
    }

    #[test]
    fn injected_bytes_count_while_the_walk_ran() {
        let ms = Duration::from_millis;
        let steps = [(ms(0), 0), (ms(1), 100), (ms(2), 100), (ms(3), 100)];
        assert!((rate_between(&steps, ms(0), ms(3)) - 100e3).abs() < 1e-6);
        assert!((rate_between(&steps, Duration::from_micros(500), ms(2)) - 100e3).abs() < 1e-6);
        // An injector that began late moved less.
        assert!((rate_between(&steps[2..], ms(0), ms(4)) - 25e3).abs() < 1e-6);
    }
}
