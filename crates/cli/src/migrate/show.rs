//! Plan, progress and outcome, for people and as JSON lines.

use std::io::{self, Write};
use std::time::Duration;

use homenode_act::{Ended, Left, Outcome, Plan, PlanError, Progress};
use homenode_observe::Locality;
use homenode_units::{Bytes, Pid, Reading};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

const SCHEMA: &str = "homenode.migrate/1";

/// JSON lines about progress are at least this far apart.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct Show<'a> {
    out: &'a mut dyn Write,
    json: bool,
    bar: Option<ProgressBar>,
    last_line: Option<Duration>,
}

impl<'a> Show<'a> {
    pub(super) fn new(out: &'a mut dyn Write, json: bool) -> Self {
        Self {
            out,
            json,
            bar: None,
            last_line: None,
        }
    }

    /// One line, at once: the reader may be a program that acts on it.
    fn line(&mut self, mut value: Value) -> io::Result<()> {
        value["schema"] = SCHEMA.into();
        writeln!(self.out, "{value}")?;
        self.out.flush()
    }

    pub(super) fn plan(&mut self, plan: &Plan) -> io::Result<()> {
        if self.json {
            let mut value = json!({"event": "plan", "plan": plan});
            value["plan"]["expected"] = json!(plan.expected());
            value["plan"]["mappings"] = json!(plan.ranges.len());
            return self.line(value);
        }
        let out = &mut self.out;
        writeln!(
            out,
            "process  {} ({}), {} in memory",
            plan.pid,
            printable(&plan.name),
            plan.memory
        )?;
        writeln!(out, "lies     {}", shares(&plan.located))?;
        let expected = plan.expected();
        if plan.from.is_empty() {
            writeln!(out, "move     nothing: no other node has memory")?;
        } else {
            let amount = expected.map_or("what lies".to_owned(), |bytes| format!("about {bytes}"));
            writeln!(
                out,
                "move     {amount} on nodes {}, in {} mappings",
                plan.from,
                plan.ranges.len()
            )?;
        }
        for target in &plan.targets {
            writeln!(
                out,
                "to       node {}: {} free, {} with its page cache; {} stay free",
                target.node, target.free, target.obtainable, target.margin
            )?;
        }
        for skipped in &plan.skipped {
            writeln!(
                out,
                "skip     {} mappings, {} of addresses: {}",
                skipped.mappings,
                skipped.size,
                skipped.why.words()
            )?;
        }
        let room: Bytes = plan
            .targets
            .iter()
            .map(homenode_act::TargetNode::room)
            .sum();
        if expected.is_some_and(|expected| expected > room) {
            writeln!(out, "note     the targets have room for {room} only")?;
        }
        for note in &plan.notes {
            writeln!(out, "note     {note}")?;
        }
        out.flush()
    }

    /// A process of the group for which there is no plan.
    pub(super) fn left_out(&mut self, pid: Pid, why: &PlanError) -> io::Result<()> {
        let why = why.to_string();
        if self.json {
            return self.line(json!({"event": "left-out", "pid": pid, "why": why}));
        }
        writeln!(self.out, "left out {}", printable(&why))
    }

    /// The run was interrupted before its turn came.
    pub(super) fn not_started(&mut self, plan: &Plan) -> io::Result<()> {
        if self.json {
            return self.line(json!({"event": "not-started", "pid": plan.pid}));
        }
        writeln!(
            self.out,
            "process {} ({}): interrupted, nothing moved",
            plan.pid,
            printable(&plan.name)
        )
    }

    pub(super) fn progress(&mut self, plan: &Plan, progress: &Progress<'_>) -> io::Result<()> {
        let done = progress.tally.moved + progress.tally.left_total();
        if !self.json {
            // Draws only where standard error is a terminal.
            let bar = self.bar.get_or_insert_with(|| new_bar(plan));
            bar.set_length(plan.expected().unwrap_or_default().max(done).0);
            bar.set_position(done.0);
            return Ok(());
        }
        let is_due = self
            .last_line
            .is_none_or(|last| progress.elapsed >= last + PROGRESS_INTERVAL);
        if progress.call.is_none() || !is_due {
            return Ok(());
        }
        self.last_line = Some(progress.elapsed);
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        self.line(json!({
            "event": "progress",
            "pid": plan.pid,
            "elapsed_ms": milliseconds(progress.elapsed),
            "moved": progress.tally.moved,
            "already_there": progress.tally.already_there,
            "left": progress.tally.left,
            "walked": progress.walked,
            "span": progress.span,
            "batch": progress.call.map(|(batch, _)| batch),
            "call_ms": progress.call.map(|(_, took)| milliseconds(took)),
        }))
    }

    /// Takes the bar away.
    pub(super) fn clear(&mut self) {
        self.last_line = None;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    pub(super) fn outcome(&mut self, plan: &Plan, outcome: &Outcome) -> io::Result<()> {
        if self.json {
            return self.line(json!({
                "event": "outcome",
                "pid": plan.pid,
                "complete": outcome.is_complete(),
                "outcome": outcome,
            }));
        }
        let tally = &outcome.tally;
        let seconds = outcome.elapsed.as_secs_f64();
        write!(self.out, "moved    {} in {seconds:.2} s", tally.moved)?;
        if let Some(rate) = per_second(tally.moved, outcome.elapsed) {
            write!(
                self.out,
                " ({rate}/s), {} calls, the longest {:.1} ms",
                tally.calls,
                tally.longest_call.as_secs_f64() * 1e3
            )?;
        }
        writeln!(self.out)?;
        for (word, amount) in [
            ("there", tally.already_there),
            ("other", tally.elsewhere),
            ("gone", tally.vanished),
        ] {
            let meaning = match word {
                "there" => "was at the target already",
                "other" => "lies on nodes that are neither source nor target",
                _ => "was given back or swapped out meanwhile",
            };
            if amount > Bytes(0) {
                writeln!(self.out, "{word:<8} {amount} {meaning}")?;
            }
        }
        self.left(&tally.left)?;
        match &outcome.ended {
            Ended::Done => {}
            Ended::Interrupted => {
                writeln!(self.out, "ended    interrupted; the rest was not looked at")?;
            }
            Ended::ProcessEnded => {
                let pid = plan.pid;
                writeln!(self.out, "ended    process {pid} ended meanwhile")?;
            }
            Ended::TargetsFull { targets } => {
                writeln!(
                    self.out,
                    "ended    nodes {targets} have no memory to give any more"
                )?;
            }
        }
        writeln!(self.out, "now      {}", shares(&outcome.verified))?;
        self.out.flush()
    }

    fn left(&mut self, left: &Left) -> io::Result<()> {
        for (reason, amount) in left {
            writeln!(self.out, "left     {amount}: {}", reason.words())?;
        }
        Ok(())
    }
}

fn new_bar(plan: &Plan) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{bar:30} {binary_bytes} of about {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(plan.expected().unwrap_or_default().0).with_style(style)
}

fn per_second(amount: Bytes, time: Duration) -> Option<Bytes> {
    let rate = u128::from(amount.0) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(rate).ok().filter(|&rate| rate > 0).map(Bytes)
}

/// `node 0: 97.1 %, node 1: 2.9 % (±1.5)`.
fn shares(located: &Reading<Locality>) -> String {
    match located {
        Reading::Absent { why } => format!("n/a ({why})"),
        Reading::Known(located) => {
            let shares: Vec<String> = located
                .nodes
                .iter()
                .map(|share| format!("node {}: {:.1} %", share.node, share.share * 100.0))
                .collect();
            format!("{} (±{:.1})", shares.join(", "), located.bound() * 100.0)
        }
    }
}

/// A process chooses its name, so it may hold anything.
fn printable(name: &str) -> String {
    name.chars()
        .map(|char| if char.is_control() { '?' } else { char })
        .collect()
}
