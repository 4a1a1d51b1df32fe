//! A run: its time, its memory, and the sampling of cells in turn.

use std::collections::BTreeMap;
use std::time::Duration;

use homenode_host::{Clock, Files};
use homenode_topology::Topology;
use homenode_units::{Bytes, NodeId, NodeSet};

use crate::conditions::Watch;
use crate::memory::{ROOM_SHARE, obtainable};
use crate::statistics::{SAMPLES_MIN, median};
use crate::threads::Unpin;
use crate::{Cell, Document, Estimate, MachineId, Outcome, SCHEMA, Sites};

/// How the outside world takes part in a run.
pub trait Control {
    /// Whether to stop now and show what there is.
    fn is_interrupted(&self) -> bool;
    /// Told between samples, never during one.
    fn progress(&mut self, progress: &Progress<'_>);
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// What is going on: `placing memory`, `latency`.
    pub step: &'a str,
    /// The part of the time that is used up, 0 to 1.
    pub time_share: f64,
    /// Cells whose interval is narrow enough.
    pub converged: usize,
    /// All cells of this step.
    pub cells: usize,
}

/// When sampling ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopRule {
    /// The time for all of it, placing the memory included.
    pub budget: Duration,
    /// A cell is done when the half of its interval is at most this share of its median.
    pub half_width: f64,
}

impl Default for StopRule {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(20),
            half_width: 0.01,
        }
    }
}

/// Why nothing can be measured; the object and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError {
    /// A row without CPUs.
    #[error("expected nodes with CPUs that may be used here ({usable}), found node {node}")]
    NoCpus {
        /// The node.
        node: NodeId,
        /// Those that are.
        usable: NodeSet,
    },
    /// A column without memory.
    #[error("expected nodes with memory that may be used here ({usable}), found node {node}")]
    NoMemory {
        /// The node.
        node: NodeId,
        /// Those that are.
        usable: NodeSet,
    },
    /// No row or no column at all.
    #[error("there is no node with {what} that may be used here")]
    Nothing {
        /// `CPUs` or `memory`.
        what: &'static str,
    },
    /// More memory than may be taken.
    #[error(
        "expected at most {limit} on node {node}, half of what it could give, found {buffers} × {size}"
    )]
    TooLarge {
        /// The node.
        node: NodeId,
        /// What was asked for.
        size: Bytes,
        /// How often.
        buffers: u64,
        /// What it may be, all together.
        limit: Bytes,
    },
    /// No thread, or more than CPUs.
    #[error("expected 1 to {there} threads for each node, found {asked}")]
    Threads {
        /// What was asked for.
        asked: usize,
        /// Cores of the smallest node.
        there: usize,
    },
    /// A size that holds no line or no step of a loop.
    #[error("expected a size of at least {least}, found {asked}")]
    TooSmall {
        /// What was asked for.
        asked: Bytes,
        /// The least.
        least: Bytes,
    },
}

/// Something that can be sampled again and again.
pub(crate) trait Subject {
    /// Finds out how much work takes about this long, and warms up.
    fn calibrate(&mut self, clock: &(dyn Clock + Sync), block: Duration) -> Result<(), String>;
    /// Does the fixed work once.
    fn sample(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String>;
    /// Asks once more whether its memory is where it should be.
    fn verify(&self, files: &dyn Files) -> Result<(), String>;
    /// The 99th percentile of short pieces, where they were timed.
    fn p99(&self) -> Option<f64> {
        None
    }
}

/// The outcome of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    /// Another program interrupted it.
    pub(crate) disturbed: bool,
}

/// Blocks are this long: shorter ones see single interruptions, longer ones average them in.
const BLOCK_MIN: Duration = Duration::from_millis(1);
const BLOCK_MAX: Duration = Duration::from_millis(20);

/// No cell is sampled more often.
const SAMPLES_MAX: usize = 400;

/// A run on a machine.
pub struct Session<'a> {
    pub(crate) files: &'a (dyn Files + Sync),
    pub(crate) clock: &'a (dyn Clock + Sync),
    pub(crate) sites: Sites,
    topology: &'a Topology,
    control: &'a mut dyn Control,
    rule: StopRule,
    begin: Duration,
    /// When the test that runs has to end.
    end: Duration,
    /// When its current step has to end.
    deadline: Duration,
    /// What stays free on each node. Unit: bytes.
    reserve: BTreeMap<NodeId, Bytes>,
    watch: Watch,
    notes: Vec<String>,
    _unpin: Unpin,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("sites", &self.sites)
            .finish_non_exhaustive()
    }
}

impl<'a> Session<'a> {
    /// Begins a run; its time runs from now on.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Nothing`] where there is no row or no column.
    pub fn new(
        topology: &'a Topology,
        sites: Sites,
        files: &'a (dyn Files + Sync),
        clock: &'a (dyn Clock + Sync),
        rule: StopRule,
        control: &'a mut dyn Control,
    ) -> Result<Self, MeasureError> {
        let nothing = |what| Err(MeasureError::Nothing { what });
        if sites.rows.is_empty() {
            return nothing("CPUs");
        }
        if sites.columns.is_empty() {
            return nothing("memory");
        }
        let begin = clock.now();
        let limit = topology.allowed.memory_limit;
        let reserve = sites
            .columns
            .iter()
            .map(|column| {
                let there = obtainable(files, column.node).unwrap_or_default();
                // A limit of the control group is shared by all nodes.
                let usable = limit.map_or(there, |limit| {
                    there.min(Bytes(limit.0 / sites.columns.len() as u64))
                });
                (column.node, there.saturating_sub(part(usable, ROOM_SHARE)))
            })
            .collect();
        Ok(Self {
            files,
            clock,
            sites,
            topology,
            control,
            rule,
            begin,
            end: begin + rule.budget,
            deadline: begin + rule.budget,
            reserve,
            watch: Watch::start(files, clock, topology),
            notes: Vec::new(),
            _unpin: Unpin::later(),
        })
    }

    /// What may still be taken of a node.
    pub(crate) fn room(&self, node: NodeId) -> Bytes {
        let reserve = self.reserve.get(&node).copied().unwrap_or(Bytes(u64::MAX));
        obtainable(self.files, node)
            .unwrap_or_default()
            .saturating_sub(reserve)
    }

    /// The size of each of `buffers` on every node: what the user asked for, or `wanted` and less
    /// where a node has less room.
    ///
    /// # Errors
    ///
    /// [`MeasureError::TooLarge`] when the user asked for more than there is room for,
    /// [`MeasureError::TooSmall`] for less than `least`.
    pub(crate) fn buffer_size(
        &mut self,
        asked: Option<Bytes>,
        wanted: Bytes,
        least: Bytes,
        buffers: u64,
    ) -> Result<Bytes, MeasureError> {
        const STEP: u64 = crate::memory::HUGE_PAGE.0;
        let buffers = buffers.max(1);
        let rooms: Vec<(NodeId, Bytes)> = self
            .sites
            .columns
            .iter()
            .map(|column| (column.node, self.room(column.node)))
            .collect();
        let smallest = rooms.iter().min_by_key(|(_, room)| *room).copied();
        let (node, limit) = smallest.unwrap_or((NodeId(0), Bytes(0)));
        if let Some(size) = asked {
            if size < least {
                return Err(MeasureError::TooSmall { asked: size, least });
            }
            if size.0.saturating_mul(buffers) > limit.0 {
                return Err(MeasureError::TooLarge {
                    node,
                    size,
                    buffers,
                    limit,
                });
            }
            return Ok(size);
        }
        let fits = limit.0 / buffers;
        // Whole huge pages where there is room for one.
        let fits = if fits >= STEP {
            fits / STEP * STEP
        } else {
            fits / 4096 * 4096
        };
        if fits < least.0 {
            return Err(MeasureError::TooLarge {
                node,
                size: least,
                buffers,
                limit,
            });
        }
        let size = wanted.min(Bytes(fits));
        if size < wanted {
            self.note(format!(
                "buffers are {size} instead of {wanted}: node {node} has room for {limit}"
            ));
        }
        if Bytes(size.0 * buffers) < Bytes(2 * self.sites.cache_max.0) && size < wanted {
            self.note(format!(
                "a cache of {} holds a part of them: numbers may be better than memory is",
                self.sites.cache_max
            ));
        }
        Ok(size)
    }

    /// Keeps a remark, once.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Whether the time is up or somebody wants to stop.
    pub(crate) fn is_over(&self) -> bool {
        self.control.is_interrupted() || self.clock.now() >= self.deadline
    }

    /// Gives the next step this share of the time that is left for this test.
    pub(crate) fn allot(&mut self, share: f64) {
        let now = self.clock.now();
        self.deadline = now + self.end.saturating_sub(now).mul_f64(share.clamp(0.0, 1.0));
    }

    /// Gives a test this share of the time that is left; what comes back ends it.
    pub(crate) fn begin_part(&mut self, share: f64) -> Duration {
        let outer = self.end;
        self.allot(share);
        self.end = self.deadline;
        outer
    }

    /// The time that is left for this test.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_sub(self.clock.now())
    }

    /// One list of cells from several runs of the same ones: samples of all together. What was
    /// refused in any run stays refused; what had no time in a later one has its earlier samples.
    pub(crate) fn merged(&self, runs: &[Vec<Cell>]) -> Vec<Cell> {
        let half_width = self.rule.half_width;
        let (mut cells, later) = match runs {
            [first, later @ ..] => (first.clone(), later),
            [] => return Vec::new(),
        };
        for (position, cell) in cells.iter_mut().enumerate() {
            let others = later.iter().filter_map(|run| run.get(position));
            let all: Vec<&Outcome> = std::iter::once(&cell.outcome)
                .chain(others.map(|other| &other.outcome))
                .collect();
            let refused = all
                .iter()
                .find(|outcome| matches!(outcome, Outcome::Absent { absent } if absent != NO_TIME));
            let estimates: Vec<&Estimate> = all
                .iter()
                .filter_map(|outcome| outcome.measured())
                .collect();
            let outcome = match (refused, estimates.as_slice()) {
                (Some(&refused), _) => refused.clone(),
                (None, []) => cell.outcome.clone(),
                (None, estimates) => together(estimates, half_width),
            };
            cell.outcome = outcome;
        }
        cells
    }

    /// Ends a test.
    pub(crate) fn end_part(&mut self, outer: Duration) {
        self.end = outer;
        self.deadline = outer;
    }

    /// Tells how far a step is.
    pub(crate) fn tell(&mut self, step: &str, converged: usize, cells: usize) {
        self.watch.look(self.files, self.clock);
        let used = self.clock.now().saturating_sub(self.begin).as_secs_f64();
        let time_share = (used / self.rule.budget.as_secs_f64()).min(1.0);
        self.control.progress(&Progress {
            step,
            time_share,
            converged,
            cells,
        });
    }

    /// Samples all subjects in turn until each is certain enough or the time is up.
    ///
    /// The outcomes are in the order of the subjects.
    pub(crate) fn sample<S: Subject>(&mut self, step: &str, subjects: &mut [S]) -> Vec<Outcome> {
        let mut series: Vec<Series> = subjects.iter().map(|_| Series::default()).collect();
        let left = self.deadline.saturating_sub(self.clock.now());
        // A round and a half more than the fewest samples need, for calibrating and verifying.
        let rounds = u32::try_from(subjects.len() * (SAMPLES_MIN + 2)).unwrap_or(u32::MAX);
        let block = (left / rounds.max(1)).clamp(BLOCK_MIN, BLOCK_MAX);
        loop {
            let mut busy = false;
            for (subject, series) in subjects.iter_mut().zip(&mut series) {
                if self.is_over() {
                    break;
                }
                if series.is_done(self.rule.half_width) {
                    continue;
                }
                busy = true;
                // Its first sample follows at once: where time is short, some cells have numbers.
                let calibrated = match series.ready {
                    true => Ok(()),
                    false => subject.calibrate(self.clock, block),
                };
                series.ready = true;
                match calibrated.and_then(|()| subject.sample(self.clock)) {
                    Ok(sample) => series.add(sample),
                    Err(why) => series.refused = Some(why),
                }
            }
            let done = series.iter().filter(|series| series.done).count();
            self.tell(step, done, subjects.len());
            if !busy || self.is_over() {
                break;
            }
        }
        let outcomes = subjects.iter().zip(series).map(|(subject, series)| {
            let refused = series
                .refused
                .clone()
                .or_else(|| subject.verify(self.files).err());
            if let Some(why) = refused {
                return Outcome::absent(why);
            }
            match Estimate::of(series.values, self.rule.half_width, series.dropped) {
                Some(estimate) => Outcome::Measured(Estimate {
                    p99: subject.p99(),
                    ..estimate
                }),
                None => Outcome::absent(NO_TIME),
            }
        });
        outcomes.collect()
    }

    /// Ends the run.
    #[must_use]
    pub fn finish(self, cells: Vec<Cell>) -> Document {
        let conditions = self.watch.end(self.files, self.clock);
        let no_time = Outcome::absent(NO_TIME);
        let interrupted =
            self.control.is_interrupted() || cells.iter().any(|cell| cell.outcome == no_time);
        Document {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at_unix: self.clock.since_epoch().as_secs(),
            machine: MachineId::of(self.topology),
            conditions,
            interrupted,
            notes: self.notes,
            cells,
        }
    }
}

/// Why a cell is empty whose turn never came.
pub(crate) const NO_TIME: &str = "no time was left for it";

/// One estimate from the samples of several.
fn together(estimates: &[&Estimate], half_width: f64) -> Outcome {
    let groups: Vec<Vec<f64>> = estimates
        .iter()
        .map(|found| found.samples.clone())
        .collect();
    let dropped = estimates.iter().map(|found| found.dropped).sum();
    let p99: Vec<f64> = estimates.iter().filter_map(|found| found.p99).collect();
    match Estimate::of_groups(&groups, half_width, dropped) {
        Some(found) => Outcome::Measured(Estimate {
            p99: median(&p99),
            ..found
        }),
        None => Outcome::absent(NO_TIME),
    }
}

impl MachineId {
    /// What tells this machine from others.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let model = topology.processor.model_name.known().cloned();
        Self {
            processor: model.unwrap_or_default(),
            nodes: topology.node_ids(),
            cpus: topology.cpus.online.clone(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of memory, rounded"
)]
fn part(whole: Bytes, share: f64) -> Bytes {
    Bytes((whole.0 as f64 * share) as u64)
}

/// The samples of one subject.
#[derive(Debug, Default)]
struct Series {
    values: Vec<f64>,
    dropped: u32,
    ready: bool,
    done: bool,
    refused: Option<String>,
}

impl Series {
    /// Takes a sample in. One that was disturbed is thrown away, unless that happens to most: then
    /// it is how this machine is.
    fn add(&mut self, Sample { value, disturbed }: Sample) {
        if disturbed && (self.dropped as usize) < self.values.len() + 3 {
            self.dropped += 1;
        } else {
            self.values.push(value);
        }
    }

    fn is_done(&mut self, half_width: f64) -> bool {
        let count = self.values.len();
        self.done = self.done
            || self.refused.is_some()
            || count >= SAMPLES_MAX
            // Every few samples is often enough.
            || (count >= SAMPLES_MIN
                && count.is_multiple_of(5)
                && Estimate::of(self.values.clone(), half_width, 0)
                    .is_some_and(|estimate| estimate.converged));
        self.done
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
