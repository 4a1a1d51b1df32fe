//! The eight metrics of the Opteron study (`RightMark` Memory Analyzer), for every pair of nodes.

use std::time::Duration;

use homenode_host::{Clock, Files};
use homenode_sys::kernels::{ChaseOrder, FILLERS, Operation, StreamKernel, Walk};
use homenode_units::{Bytes, CpuId, NodeId, NodeSet};

use crate::bandwidth::{BandwidthOptions, Pool, TeamSubject, choose, team_cell};
use crate::latency::{PAGE, Pattern, chase_cell, per_load, prepare};
use crate::memory::{Want, verify};
use crate::session::{NO_TIME, Sample, Session, Subject};
use crate::threads::{pin, preemptions};
use crate::{Cell, Estimate, MeasureError, Outcome, Test};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RmmaOptions {
    /// Memory of each walk and stream; more than caches hold unless said otherwise.
    pub size: Option<Bytes>,
}

/// The names of the metrics, as `kernel` of their cells, in the order of the study's table.
pub const RMMA_METRICS: [&str; 8] = [
    "average read",
    "average write",
    "maximum read",
    "maximum write",
    "pseudo-random latency, min",
    "pseudo-random latency, max",
    "random latency, min",
    "random latency, max",
];

/// How far ahead a read with prefetches looks; the best is the maximum. Unit: bytes.
const AHEAD: [usize; 5] = [256, 512, 1024, 2048, 4096];

/// Measures with one thread: plain reads and writes (average), reads with prefetches and stores
/// past the caches (maximum), and page-local and random walks with 0 to 64 empty instructions
/// between loads, of which least and most are shown.
///
/// # Errors
///
/// [`MeasureError`] when the size cannot be had.
pub fn rmma(session: &mut Session<'_>, options: &RmmaOptions) -> Result<Vec<Cell>, MeasureError> {
    const BUFFERS: u64 = 4;
    let wanted = session.sites.beyond_caches();
    let size = session.buffer_size(options.size, wanted, PAGE, BUFFERS)?;
    session.allot(0.5);
    let mut cells = bandwidths(session, size);
    session.allot(1.0);
    let stride = session.sites.stride;
    let walks = [
        ("pseudo-random latency", ChaseOrder::Grouped(PAGE)),
        ("random latency", ChaseOrder::Whole),
    ];
    let mut subjects = Vec::new();
    let mut planned = Vec::new();
    for (name, order) in walks {
        let pattern = Pattern {
            order,
            stride,
            want: Want::Huge,
        };
        for (from, cpu, to) in session.sites.pairs() {
            let mut cell = chase_cell(Test::Rmma, from, &to, &pattern, size);
            name.clone_into(&mut cell.kernel);
            if session.is_over() {
                cell.outcome = Outcome::absent(NO_TIME);
                cells.push(cell);
                continue;
            }
            session.tell(
                "placing memory",
                planned.len(),
                2 * session.sites.pairs().len(),
            );
            match prepare(session, &to, &pattern, size) {
                Ok((chase, pages)) => {
                    cell.pages = pages;
                    subjects.push(FilledSubject::new(cpu, Walk::new(chase, 1), to));
                    planned.push(cell);
                }
                Err(why) => {
                    cell.outcome = Outcome::absent(why);
                    cells.push(cell);
                }
            }
        }
    }
    let outcomes = session.sample("latency", &mut subjects);
    for ((cell, subject), least) in planned.into_iter().zip(&subjects).zip(outcomes) {
        let most = match least.measured() {
            Some(_) => Estimate::of(subject.most.clone(), 0.01, 0)
                .map_or_else(|| Outcome::absent("it was not measured"), Outcome::Measured),
            None => least.clone(),
        };
        for (end, outcome) in [("min", least), ("max", most)] {
            cells.push(Cell {
                kernel: format!("{}, {end}", cell.kernel),
                outcome,
                ..cell.clone()
            });
        }
    }
    Ok(cells)
}

/// The four bandwidths of every pair.
fn bandwidths(session: &mut Session<'_>, size: Bytes) -> Vec<Cell> {
    let pool = Pool::new(session, 1, size, Want::Huge);
    let options = BandwidthOptions {
        operations: vec![
            Operation::Read,
            Operation::Write,
            Operation::PrefetchRead,
            Operation::WriteNt,
        ],
        ..BandwidthOptions::default()
    };
    session.allot(0.2);
    let chosen = choose(session, &pool, &options);
    session.allot(0.5);
    let mut cells = Vec::new();
    let mut teams = Vec::new();
    let mut sampled = Vec::new();
    for kernel in chosen {
        let name = match kernel.operation {
            Operation::Read => RMMA_METRICS[0],
            Operation::Write => RMMA_METRICS[1],
            Operation::PrefetchRead => RMMA_METRICS[2],
            _ => RMMA_METRICS[3],
        };
        for (from, cpu, to) in session.sites.pairs() {
            let node = to.lowest().unwrap_or(NodeId(0));
            let nodes = (NodeSet::from_iter([from]), to);
            let mut cell = team_cell(Test::Rmma, kernel, nodes, 1, size);
            name.clone_into(&mut cell.kernel);
            match pool.seat(cpu, node, 0) {
                Ok(seat) => {
                    cell.pages = pool.pages(&[seat]);
                    let team = TeamSubject::new(&pool, kernel, vec![seat]);
                    let ahead = best_ahead(session, &pool, kernel, cpu, node);
                    teams.push(team.ahead(ahead));
                    sampled.push(cells.len());
                }
                Err(why) => cell.outcome = Outcome::absent(why),
            }
            cells.push(cell);
        }
    }
    for (position, outcome) in sampled
        .into_iter()
        .zip(session.sample("bandwidth", &mut teams))
    {
        cells[position].outcome = outcome;
    }
    cells
}

/// The distance at which a read with prefetches is fastest, after a short try of each.
fn best_ahead(
    session: &Session<'_>,
    pool: &Pool,
    kernel: StreamKernel,
    cpu: CpuId,
    node: NodeId,
) -> usize {
    const TRY: Duration = Duration::from_millis(4);
    if kernel.operation != Operation::PrefetchRead {
        return 0;
    }
    let mut best = (AHEAD[1], 0.0);
    for ahead in AHEAD {
        let Ok(seat) = pool.seat(cpu, node, 0) else {
            break;
        };
        let mut team = TeamSubject::new(pool, kernel, vec![seat]).ahead(ahead);
        if session.is_over() || team.calibrate(session.clock, TRY).is_err() {
            break;
        }
        if let Ok(sample) = team.sample(session.clock)
            && sample.value > best.1
        {
            best = (ahead, sample.value);
        }
    }
    best.0
}

/// A walk with fillers between its loads: the least and the most that a load takes.
struct FilledSubject {
    cpu: CpuId,
    walk: Walk,
    nodes: NodeSet,
    loads: u64,
    /// The most of each sample; the least is its value.
    most: Vec<f64>,
}

impl FilledSubject {
    fn new(cpu: CpuId, walk: Walk, nodes: NodeSet) -> Self {
        Self {
            cpu,
            walk,
            nodes,
            loads: 1024,
            most: Vec::new(),
        }
    }

    /// Nanoseconds of a load with some fillers, without the time of the fillers themselves.
    fn run(&mut self, clock: &dyn Clock, filler: usize) -> f64 {
        let start = clock.now();
        let loads = self.walk.run_filled(self.loads, filler);
        let with = per_load(clock.now().saturating_sub(start), loads);
        let start = clock.now();
        let loads = Walk::run_fillers(self.loads, filler);
        let without = per_load(clock.now().saturating_sub(start), loads);
        (with - without).max(0.0)
    }
}

impl Subject for FilledSubject {
    fn calibrate(&mut self, clock: &(dyn Clock + Sync), block: Duration) -> Result<(), String> {
        pin(self.cpu)?;
        let start = clock.now();
        let loads = self.walk.run(4096);
        let time = clock
            .now()
            .saturating_sub(start)
            .max(Duration::from_nanos(1));
        let each = block.as_nanos() / FILLERS.len() as u128;
        let wanted = u128::from(loads) * each / time.as_nanos();
        self.loads = u64::try_from(wanted)
            .unwrap_or(u64::MAX)
            .clamp(1024, 1 << 24);
        Ok(())
    }

    fn sample(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String> {
        pin(self.cpu)?;
        self.walk.run(1024);
        let before = preemptions();
        let times: Vec<f64> = (0..FILLERS.len())
            .map(|filler| self.run(clock, filler))
            .collect();
        let disturbed = preemptions() != before;
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        self.most.push(times.iter().copied().fold(0.0, f64::max));
        Ok(Sample {
            value: least,
            disturbed,
        })
    }

    fn verify(&self, files: &dyn Files) -> Result<(), String> {
        verify(files, self.walk.chase().memory(), &self.nodes)
    }
}
