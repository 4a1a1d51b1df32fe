//! What a command did while it was watched: run time, allocations, locality over time.

use std::fmt::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::Duration;

use homenode_host::{Clock, Live};
use homenode_observe::{NodeCounters, Observation, View, rows};
use homenode_units::{Bytes, NodeId, Pid};

use crate::error::Helped;

/// Lines of the table at most; of more, every second or third, ….
const LINES_MAX: usize = 20;

/// A command that runs.
#[derive(Debug)]
pub(super) struct Command {
    child: Child,
    started: Duration,
    ended: Option<(ExitStatus, Duration)>,
}

impl Command {
    /// Starts it; `None` where there is none to start.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub(super) fn start(words: &[String]) -> anyhow::Result<Option<Self>> {
        let Some((program, arguments)) = words.split_first() else {
            return Ok(None);
        };
        let child = std::process::Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|error| {
                Helped::wrap(
                    format!("cannot start {program}"),
                    error,
                    "check the name, and that it may be executed",
                )
            })?;
        Ok(Some(Self {
            child,
            started: Live.now(),
            ended: None,
        }))
    }

    pub(super) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    pub(super) fn has_ended(&mut self, clock: &impl Clock) -> anyhow::Result<bool> {
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            self.ended = Some((status, clock.now().saturating_sub(self.started)));
        }
        Ok(self.ended.is_some())
    }

    /// Its status and run time, as near as it was looked at.
    pub(super) fn wait(&mut self, clock: &impl Clock) -> anyhow::Result<(ExitStatus, Duration)> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        let status = self.child.wait()?;
        Ok((status, clock.now().saturating_sub(self.started)))
    }
}

/// The command's own status; 128 + signal, as a shell says it.
pub(super) fn exit_code(status: &ExitStatus) -> ExitCode {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX).into()
}

/// A moment of the command and its children.
#[derive(Debug)]
struct Point {
    after: Duration,
    memory: Bytes,
    remote: Option<Bytes>,
    locality: Option<f64>,
    cpu: Option<f64>,
}

/// What is kept of the observations.
#[derive(Debug)]
pub(super) struct Summary {
    command: Option<Pid>,
    first: Option<Observation>,
    last: Option<Observation>,
    points: Vec<Point>,
}

impl Summary {
    pub(super) fn new(command: Option<Pid>) -> Self {
        Self {
            command,
            first: None,
            last: None,
            points: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, mut observation: Observation) {
        let Some(command) = self.command else { return };
        // Its own parent, we, must not be the root of its tree.
        observation
            .processes
            .retain(|process| process.id.pid.0 != std::process::id());
        let tree = rows(self.last.as_ref(), &observation, View::Trees)
            .into_iter()
            .find(|row| row.key == format!("tree {command}"));
        if let Some(row) = tree {
            let start = self.first.as_ref().unwrap_or(&observation).taken_at;
            self.points.push(Point {
                after: observation.taken_at.saturating_sub(start),
                memory: row.memory,
                remote: row.remote.known().copied(),
                locality: row.locality.known().copied(),
                cpu: row.cpu.known().copied(),
            });
        }
        if self.first.is_none() {
            self.first = Some(observation.clone());
        }
        self.last = Some(observation);
    }

    /// For people.
    pub(super) fn text(&self, run_time: Duration, status: &ExitStatus) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "run time {:.2} s, {status}", run_time.as_secs_f64());
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            counters(&mut out, first, last);
        }
        let _ = writeln!(
            out,
            "\n{:>8}  {:>10}  {:>10}  {:>5}  {:>5}",
            "after s", "memory", "NRMEM", "N%L", "%CPU"
        );
        let step = self.points.len().div_ceil(LINES_MAX).max(1);
        for point in self.points.iter().step_by(step) {
            let percent = |share: Option<f64>| {
                share.map_or("n/a".to_owned(), |share| format!("{:.0}", share * 100.0))
            };
            let remote = point.remote.map_or("n/a".to_owned(), |b| b.to_string());
            let _ = writeln!(
                out,
                "{:>8.1}  {:>10}  {remote:>10}  {:>5}  {:>5}",
                point.after.as_secs_f64(),
                point.memory.to_string(),
                percent(point.locality),
                percent(point.cpu)
            );
        }
        if self.points.is_empty() {
            let _ = writeln!(out, "  it ended before it was looked at: --interval 100ms");
        }
        out
    }
}

/// Where the machine's new pages went meanwhile: other programs' are among them.
fn counters(out: &mut String, first: &Observation, last: &Observation) {
    let seconds = last.taken_at.saturating_sub(first.taken_at).as_secs_f64();
    let _ = writeln!(
        out,
        "\n{:<5} {:>12} {:>12} {:>10} {:>10}  (pages of the whole machine)",
        "node", "numa_hit", "numa_miss", "hit/s", "miss/s"
    );
    let of = |observation: &Observation, node: NodeId| -> Option<NodeCounters> {
        let nodes = observation.nodes.iter();
        let found = nodes.clone().find(|sample| sample.node == node)?;
        found.counters.known().copied()
    };
    for node in last.nodes.iter().map(|sample| sample.node) {
        let (Some(before), Some(after)) = (of(first, node), of(last, node)) else {
            let _ = writeln!(out, "{:<5} n/a", node.to_string());
            continue;
        };
        let hit = after.numa_hit.saturating_sub(before.numa_hit);
        let miss = after.numa_miss.saturating_sub(before.numa_miss);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = |count: u64| count as f64 / seconds.max(f64::EPSILON);
        let _ = writeln!(
            out,
            "{:<5} {hit:>12} {miss:>12} {:>10.0} {:>10.0}",
            node.to_string(),
            rate(hit),
            rate(miss)
        );
    }
}
