//! A machine as text for people.
//!
//! The first screen (80 × 24) answers, in this order: what kind of machine it is, how sure that
//! is and why; how big it is and how far apart its nodes are; what each node holds. Then come the
//! distances in full, what this process may not use, devices, and what deserves a look. What is
//! the same for all nodes is said once; what is not known says why.

mod distances;
mod extras;
mod facts;
mod lines;
mod nodes;

use homenode_topology::{Certainty, Topology, Verdict};

use crate::short;
use lines::{Lines, Style};

/// How [`topology_text`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Columns of the screen; fewer than 40 count as 40.
    pub width: usize,
    /// Whether words are coloured (with the 16 colours of the user's theme).
    pub colour: bool,
    /// Whether everything that was read is shown, and nothing is folded.
    pub full: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            full: false,
        }
    }
}

/// Narrower screens would leave no room for the words.
const WIDTH_MIN: usize = 40;
/// Reasons of a verdict that are shown unless everything is.
const EVIDENCE_SHOWN: usize = 2;

/// Writes a machine as text; every line ends in a line feed and fits into `options.width`.
#[must_use]
pub fn topology_text(topology: &Topology, verdict: &Verdict, options: &TextOptions) -> String {
    let mut lines = Lines::new(options.width.max(WIDTH_MIN), options.colour);
    push_verdict(&mut lines, verdict, options.full);
    facts::push(&mut lines, topology, options.full);
    push_pointer(&mut lines, topology, verdict);
    lines.gap();
    nodes::push(&mut lines, topology, options.full);
    distances::push(&mut lines, topology, options.full);
    extras::push(&mut lines, topology, options.full);
    push_findings(&mut lines, topology, verdict);
    lines.finish()
}

fn push_verdict(lines: &mut Lines, verdict: &Verdict, full: bool) {
    let style = match verdict.certainty {
        Certainty::Certain => Style::Good,
        Certainty::Likely | Certainty::CannotTell => Style::Caution,
    };
    let tag = format!("[{}]", short::certainty(verdict.certainty));
    let room = lines.width().saturating_sub(short::columns(&tag) + 1);
    if short::columns(&verdict.headline) <= room {
        lines.line(&[
            (Style::Strong, &verdict.headline),
            (Style::Plain, " "),
            (style, &tag),
        ]);
    } else {
        lines.paragraph((Style::Plain, ""), Style::Strong, &verdict.headline);
        lines.line(&[(style, &tag)]);
    }
    let shown = if full {
        verdict.evidence.len()
    } else {
        verdict.evidence.len().min(EVIDENCE_SHOWN)
    };
    let mut because = verdict.evidence[..shown].join("; ");
    if shown < verdict.evidence.len() {
        let more = verdict.evidence.len() - shown;
        because.push_str(&format!(" ({more} more with --full)"));
    }
    facts::push_fact(lines, "because", &because);
}

/// One line on the first screen that says what stands below it.
fn push_pointer(lines: &mut Lines, topology: &Topology, verdict: &Verdict) {
    let mut found = Vec::new();
    if !verdict.warnings.is_empty() {
        found.push(short::count(verdict.warnings.len(), "warning"));
    }
    if !topology.problems.is_empty() {
        found.push(
            short::count(topology.problems.len(), "contradiction or gap")
                .replace("contradiction or gaps", "contradictions or gaps"),
        );
    }
    if verdict.undecided.is_some() {
        found.push("an open question".to_owned());
    }
    if !found.is_empty() {
        let text = format!("{}, at the end", found.join(", "));
        lines.paragraph((Style::Faint, "look at    "), Style::Caution, &text);
    }
}

fn push_findings(lines: &mut Lines, topology: &Topology, verdict: &Verdict) {
    if let Some(undecided) = &verdict.undecided {
        lines.gap();
        lines.line(&[(Style::Strong, "cannot be told from these files")]);
        lines.paragraph((Style::Plain, "  "), Style::Plain, undecided);
    }
    if !verdict.warnings.is_empty() {
        lines.gap();
        lines.line(&[(Style::Strong, "warnings")]);
    }
    for warning in &verdict.warnings {
        let text = format!("{}: {}", warning.subject, warning.message);
        lines.paragraph((Style::Plain, "  "), Style::Caution, &text);
        if let Some(advice) = &warning.advice {
            lines.paragraph((Style::Faint, "    help: "), Style::Plain, advice);
        }
    }
    if !topology.problems.is_empty() {
        lines.gap();
        lines.line(&[(Style::Strong, "contradictions and gaps in what was read")]);
    }
    for problem in &topology.problems {
        let text = format!("{}: {}", problem.object, problem.message);
        lines.paragraph((Style::Plain, "  "), Style::Bad, &text);
    }
}

#[cfg(test)]
mod tests;
