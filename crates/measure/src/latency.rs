//! Idle latency: CPU nodes × memory nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use homenode_host::{Clock, Files};
use homenode_sys::kernels::{Chase, ChaseOrder, Walk};
use homenode_units::{Bytes, CpuId, NodeId, NodeSet};

use crate::memory::{HUGE_PAGE, Placed, Want, allocate, verify};
use crate::session::{NO_TIME, Sample, Session, Subject};
use crate::statistics::{GROUPS_MIN, quantile};
use crate::threads::{pin, preemptions};
use crate::{Arrangement, Cell, MeasureError, Metric, Outcome, Pages, Test};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyOptions {
    /// Memory to chase through; more than any cache holds unless said otherwise.
    pub size: Option<Bytes>,
    /// Leave the page-local order out.
    pub quick: bool,
}

/// A way through memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) order: ChaseOrder,
    pub(crate) stride: Bytes,
    pub(crate) want: Want,
}

impl Pattern {
    /// Its name in tables: `whole`, `page-local/256`.
    pub(crate) fn name(&self) -> String {
        match self.order {
            ChaseOrder::Whole => "whole".to_owned(),
            ChaseOrder::Grouped(_) => format!("page-local/{}", self.stride.0),
            ChaseOrder::Forward => format!("forward/{}", self.stride.0),
            ChaseOrder::Backward => format!("backward/{}", self.stride.0),
        }
    }
}

/// Page-local walks ride on prefetchers that fetch neighbouring lines; this far apart they hardly
/// do.
pub(crate) const PAGE_LOCAL_STRIDE: Bytes = Bytes(256);

pub(crate) const PAGE: Bytes = Bytes(4096);

/// Measures a matrix for each of: the whole buffer in random order on huge pages, the same on base
/// pages (what most programs see), and page after page on huge pages.
///
/// # Errors
///
/// [`MeasureError`] when the size cannot be had.
pub fn latency(
    session: &mut Session<'_>,
    options: &LatencyOptions,
) -> Result<Vec<Cell>, MeasureError> {
    let stride = session.sites.stride;
    let whole = |want| Pattern {
        order: ChaseOrder::Whole,
        stride,
        want,
    };
    let mut patterns = vec![whole(Want::Base)];
    if has_huge_pages(session) {
        patterns.insert(0, whole(Want::Huge));
    } else {
        session.note("huge pages are not to be had: all walks are on base pages");
    }
    if !options.quick {
        patterns.push(Pattern {
            order: ChaseOrder::Grouped(PAGE),
            stride: PAGE_LOCAL_STRIDE.max(stride),
            want: Want::Huge,
        });
    }
    // Where every fourth line is visited, it takes four times the memory to leave the caches.
    let times = |pattern: &Pattern| pattern.stride.0 / stride.0;
    let buffers = patterns.iter().map(times).sum();
    let wanted = session.sites.beyond_caches();
    let size = session.buffer_size(options.size, wanted, Bytes(stride.0 * 2), buffers)?;
    let pairs = session.sites.pairs();
    let walks: Vec<(Pattern, Bytes)> = patterns
        .into_iter()
        .map(|pattern| {
            let size = Bytes(size.0 * times(&pattern));
            (pattern, size)
        })
        .collect();
    Ok(placed_anew(session, &walks, &pairs))
}

/// Whether the first node gives a huge page to those who ask; else the same would be measured twice.
fn has_huge_pages(session: &Session<'_>) -> bool {
    let column = session.sites.columns.first();
    let nodes: NodeSet = column.iter().map(|column| column.node).collect();
    allocate(session.files, &nodes, HUGE_PAGE, Want::Huge, SEED)
        .is_ok_and(|placed| placed.pages != Pages::Base)
}

/// A chase through a buffer of a node, or why there is none.
pub(crate) type Prepared = Result<(Arc<Chase>, Pages), String>;

/// Lays one chase into new memory on nodes.
pub(crate) fn prepare(
    session: &Session<'_>,
    nodes: &NodeSet,
    pattern: &Pattern,
    size: Bytes,
) -> Prepared {
    let Placed { memory, pages } = allocate(session.files, nodes, size, pattern.want, SEED)?;
    let chase = Chase::new(memory, size, pattern.stride, pattern.order, SEED)
        .map_err(|error| error.to_string())?;
    Ok((Arc::new(chase), pages))
}

const SEED: u64 = 0x000C_4A5E;

/// From which node and CPU to which nodes' memory.
pub(crate) type Pair = (NodeId, CpuId, NodeSet);

/// How often memory is placed anew, time permitting.
const PLACEMENTS: usize = 8;

/// Less time than this for each placement of the memory, and there are fewer of them.
const PLACEMENT_TIME: Duration = Duration::from_millis(400);

/// As [`chase_cells`], again and again with new memory, until the interval over placements is narrow
/// or the time is up: physical pages that happen to lie well or badly are a part of the spread.
fn placed_anew(session: &mut Session<'_>, walks: &[(Pattern, Bytes)], pairs: &[Pair]) -> Vec<Cell> {
    let mut runs: Vec<Vec<Cell>> = Vec::new();
    let fit = session.left().as_millis() / PLACEMENT_TIME.as_millis();
    let mut planned = usize::try_from(fit).unwrap_or(1).clamp(1, PLACEMENTS);
    loop {
        #[expect(clippy::cast_precision_loss, reason = "a few placements")]
        let share = 1.0 / planned.saturating_sub(runs.len()).max(1) as f64;
        let outer = session.begin_part(share);
        let begin = session.clock.now();
        runs.push(chase_cells(session, Test::Latency, "latency", walks, pairs));
        let took = session.clock.now().saturating_sub(begin);
        session.end_part(outer);
        if session.is_over() {
            break;
        }
        let cells = session.merged(&runs);
        let is = |test: fn(&Outcome) -> bool| cells.iter().any(|cell| test(&cell.outcome));
        if is(|outcome| *outcome == Outcome::absent(NO_TIME)) {
            // Once more, with all the time there is.
            planned = runs.len() + 1;
            continue;
        }
        let is_refused = is(|outcome| outcome.measured().is_none());
        let is_certain = !is(|outcome| outcome.measured().is_none_or(|found| !found.converged));
        // Better few whole runs than one more that does not reach every cell.
        let is_short = session.left() < took.mul_f64(0.7);
        if is_refused || is_short || (is_certain && runs.len() >= GROUPS_MIN) {
            break;
        }
    }
    session.merged(&runs)
}

/// A cell for each walk and pair. Memory is placed once for each walk and set of nodes.
pub(crate) fn chase_cells(
    session: &mut Session<'_>,
    test: Test,
    step: &str,
    walks: &[(Pattern, Bytes)],
    pairs: &[Pair],
) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut subjects = Vec::new();
    let mut sampled = Vec::new();
    let columns: BTreeSet<&NodeSet> = pairs.iter().map(|(_, _, to)| to).collect();
    let total = walks.len() * columns.len();
    let mut placed = 0;
    for (pattern, size) in walks {
        for &to in &columns {
            session.tell("placing memory", placed, total);
            placed += 1;
            let prepared = if session.is_over() {
                Err(NO_TIME.to_owned())
            } else {
                prepare(session, to, pattern, *size)
            };
            for (from, cpu, _) in pairs.iter().filter(|pair| pair.2 == *to) {
                let mut cell = chase_cell(test, *from, to, pattern, *size);
                match &prepared {
                    Ok((chase, pages)) => {
                        cell.pages = *pages;
                        let cache = session.sites.cache_max;
                        subjects.push(ChaseSubject::new(chase, *cpu, to.clone(), cache));
                        sampled.push(cells.len());
                    }
                    Err(why) => cell.outcome = Outcome::absent(why),
                }
                cells.push(cell);
            }
        }
    }
    for (position, outcome) in sampled.into_iter().zip(session.sample(step, &mut subjects)) {
        cells[position].outcome = outcome;
    }
    cells
}

pub(crate) fn chase_cell(
    test: Test,
    from: NodeId,
    to: &NodeSet,
    pattern: &Pattern,
    size: Bytes,
) -> Cell {
    Cell {
        test,
        metric: Metric::Latency,
        from: NodeSet::from_iter([from]),
        to: to.clone(),
        arrangement: if to.len() == 1 {
            Arrangement::Pair
        } else {
            Arrangement::Interleaved
        },
        threads: 1,
        kernel: pattern.name(),
        pages: Pages::Base,
        size,
        at: None,
        bus_factor: None,
        outcome: Outcome::absent("it was not measured"),
    }
}

/// Loads that are timed together at least.
const PIECE_LOADS: u64 = 256;

/// A piece takes at least this long: the clock, some 25 ns a call, must not be seen in it.
const PIECE_TIME: Duration = Duration::from_micros(25);

/// A walk from a CPU through memory.
pub(crate) struct ChaseSubject {
    cpu: CpuId,
    walk: Walk,
    nodes: NodeSet,
    /// Loads before the time is taken: a lap where a cache can hold the memory, else a few.
    warm_loads: u64,
    piece_loads: u64,
    pieces: u64,
    /// Nanoseconds of a load, by piece.
    times: Vec<f64>,
}

impl ChaseSubject {
    pub(crate) fn new(chase: &Arc<Chase>, cpu: CpuId, nodes: NodeSet, cache: Bytes) -> Self {
        let lines = chase.lines() as u64;
        Self {
            cpu,
            walk: Walk::new(Arc::clone(chase), 1),
            nodes,
            warm_loads: if lines * 64 <= 2 * cache.0 {
                lines
            } else {
                1024.min(lines)
            },
            piece_loads: PIECE_LOADS,
            pieces: 1,
            times: Vec::new(),
        }
    }

    /// Nanoseconds of a load over the pieces in which no other program took the CPU: on a busy machine
    /// that is a part of a sample, and waiting for a CPU is no latency of memory.
    fn run(&mut self, clock: &dyn Clock) -> Sample {
        let kept = self.times.len();
        let (mut loads, mut sum) = (0, Duration::ZERO);
        let (mut all_loads, mut all) = (0, Duration::ZERO);
        let mut switches = preemptions();
        for _piece in 0..self.pieces {
            let before = clock.now();
            let ran = self.walk.run(self.piece_loads);
            let time = clock.now().saturating_sub(before);
            (all_loads, all) = (all_loads + ran, all + time);
            let now = preemptions();
            if now == switches {
                self.times.push(per_load(time, ran));
                (loads, sum) = (loads + ran, sum + time);
            }
            switches = now;
        }
        let disturbed = loads * 2 < all_loads;
        if disturbed {
            self.times.truncate(kept);
            (loads, sum) = (all_loads, all);
        }
        Sample {
            value: per_load(sum, loads),
            disturbed,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "loads of one sample")]
pub(crate) fn per_load(time: Duration, loads: u64) -> f64 {
    time.as_secs_f64() * 1e9 / loads as f64
}

impl Subject for ChaseSubject {
    fn calibrate(&mut self, clock: &(dyn Clock + Sync), block: Duration) -> Result<(), String> {
        pin(self.cpu)?;
        self.walk.run(self.warm_loads);
        let start = clock.now();
        let mut loads = 0;
        let mut time = Duration::ZERO;
        while loads < 1 << 20 && time < block / 4 {
            loads += self.walk.run(PIECE_LOADS);
            time = clock.now().saturating_sub(start);
        }
        let time = time.as_nanos().max(1);
        let within = |wanted: Duration| {
            let loads = u128::from(loads) * wanted.as_nanos() / time;
            u64::try_from(loads)
                .unwrap_or(u64::MAX)
                .clamp(PIECE_LOADS, 1 << 28)
        };
        self.piece_loads = within(PIECE_TIME);
        self.pieces = (within(block) / self.piece_loads).max(1);
        Ok(())
    }

    fn sample(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String> {
        pin(self.cpu)?;
        self.walk.run(self.warm_loads);
        Ok(self.run(clock))
    }

    fn verify(&self, files: &dyn Files) -> Result<(), String> {
        verify(files, self.walk.chase().memory(), &self.nodes)
    }

    fn p99(&self) -> Option<f64> {
        quantile(&self.times, 0.99)
    }
}
