//! Idle latency: CPU nodes × memory nodes.

use std::sync::Arc;
use std::time::Duration;

use homenode_host::{Clock, Files};
use homenode_sys::kernels::{Chase, ChaseOrder, Walk};
use homenode_units::{Bytes, CpuId, NodeId, NodeSet};

use crate::memory::{Placed, Want, allocate, verify};
use crate::session::{Sample, Session, Subject};
use crate::statistics::quantile;
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
    let mut patterns = vec![whole(Want::Huge), whole(Want::Base)];
    if !options.quick {
        patterns.push(Pattern {
            order: ChaseOrder::Grouped(PAGE),
            stride: PAGE_LOCAL_STRIDE.max(stride),
            want: Want::Huge,
        });
    }
    let buffers = patterns.len() as u64;
    let wanted = session.sites.beyond_caches();
    let size = session.buffer_size(options.size, wanted, Bytes(stride.0 * 2), buffers)?;
    let pairs = session.sites.pairs();
    Ok(chase_cells(
        session,
        Test::Latency,
        "latency",
        &patterns,
        &[size],
        &pairs,
    ))
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

/// A cell for each pattern, size and pair of nodes. Memory is placed once for each column.
pub(crate) fn chase_cells(
    session: &mut Session<'_>,
    test: Test,
    step: &str,
    patterns: &[Pattern],
    sizes: &[Bytes],
    pairs: &[(NodeId, CpuId, NodeId)],
) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut subjects = Vec::new();
    let mut sampled = Vec::new();
    let columns: NodeSet = pairs.iter().map(|&(_, _, to)| to).collect();
    let total = patterns.len() * sizes.len() * columns.len();
    let mut placed = 0;
    for pattern in patterns {
        for &size in sizes {
            for to in columns.iter() {
                session.tell("placing memory", placed, total);
                placed += 1;
                let prepared = if session.is_over() {
                    Err("no time was left for it".to_owned())
                } else {
                    prepare(session, &NodeSet::from_iter([to]), pattern, size)
                };
                for &(from, cpu, _) in pairs.iter().filter(|pair| pair.2 == to) {
                    let mut cell = chase_cell(test, from, to, pattern, size);
                    match &prepared {
                        Ok((chase, pages)) => {
                            cell.pages = *pages;
                            let nodes = NodeSet::from_iter([to]);
                            subjects.push(ChaseSubject::new(
                                chase,
                                cpu,
                                nodes,
                                session.sites.cache_max,
                            ));
                            sampled.push(cells.len());
                        }
                        Err(why) => cell.outcome = Outcome::absent(why),
                    }
                    cells.push(cell);
                }
            }
        }
    }
    for (position, outcome) in sampled.into_iter().zip(session.sample(step, &mut subjects)) {
        cells[position].outcome = outcome;
    }
    cells
}

fn chase_cell(test: Test, from: NodeId, to: NodeId, pattern: &Pattern, size: Bytes) -> Cell {
    Cell {
        test,
        metric: Metric::Latency,
        from: NodeSet::from_iter([from]),
        to: NodeSet::from_iter([to]),
        arrangement: Arrangement::Pair,
        threads: 1,
        kernel: pattern.name(),
        pages: Pages::Base,
        size,
        at: None,
        bus_factor: None,
        outcome: Outcome::absent("it was not measured"),
    }
}

/// Loads that are timed together: the clock, some 25 ns a call, must not be seen in them.
const PIECE_LOADS: u64 = 256;

/// A walk from a CPU through memory.
pub(crate) struct ChaseSubject {
    cpu: CpuId,
    walk: Walk,
    nodes: NodeSet,
    /// Loads before the time is taken: a lap where a cache can hold the memory, else a few.
    warm_loads: u64,
    pieces: u64,
    /// Nanoseconds of a load, by piece.
    times: Vec<f64>,
}

impl ChaseSubject {
    pub(crate) fn new(chase: &Arc<Chase>, cpu: CpuId, nodes: NodeSet, cache: Bytes) -> Self {
        let lines = chase.lines() as u64;
        let bytes = chase.memory().as_slice().len() as u64;
        Self {
            cpu,
            walk: Walk::new(Arc::clone(chase), 1),
            nodes,
            warm_loads: if bytes <= 2 * cache.0 {
                lines
            } else {
                1024.min(lines)
            },
            pieces: 1,
            times: Vec::new(),
        }
    }

    /// Nanoseconds of a load over this many pieces.
    fn run(&mut self, clock: &dyn Clock) -> f64 {
        let mut loads = 0;
        let mut sum = Duration::ZERO;
        let mut before = clock.now();
        for _piece in 0..self.pieces {
            let ran = self.walk.run(PIECE_LOADS);
            let after = clock.now();
            let time = after.saturating_sub(before);
            self.times.push(per_load(time, ran));
            loads += ran;
            sum += time;
            before = after;
        }
        per_load(sum, loads)
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
        let mut done = 0u32;
        while done < 4096 && clock.now().saturating_sub(start) < block / 4 {
            self.walk.run(PIECE_LOADS);
            done += 1;
        }
        let time = clock
            .now()
            .saturating_sub(start)
            .max(Duration::from_nanos(1));
        let wanted = u128::from(done) * block.as_nanos() / time.as_nanos();
        self.pieces = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(1, 1 << 20);
        Ok(())
    }

    fn sample(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String> {
        pin(self.cpu)?;
        self.walk.run(self.warm_loads);
        let before = preemptions();
        let kept = self.times.len();
        let value = self.run(clock);
        let disturbed = preemptions() != before;
        if disturbed {
            self.times.truncate(kept);
        }
        Ok(Sample { value, disturbed })
    }

    fn verify(&self, files: &dyn Files) -> Result<(), String> {
        verify(files, self.walk.chase().memory(), &self.nodes)
    }

    fn p99(&self) -> Option<f64> {
        quantile(&self.times, 0.99)
    }
}
