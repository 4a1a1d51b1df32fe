//! The report as plain text: what matters most first, on one screen for a small machine.

use std::fmt::Write;

use homenode_observe::{COUNTER_NAMES, MemoryUse};
use homenode_topology::Certainty;
use homenode_units::{Bytes, Reading};

use super::format::{
    COUNTER_MEANINGS, bound, cut, grouped, harmless, nodes_named, percent, rate, shares, wrap,
};
use super::{MachineReport, NodeReport, ProcessReport};

/// Narrower than this, tables cannot be read.
const WIDTH_MIN: usize = 60;

/// Writes the report for a terminal of this many columns.
///
/// No colours and no control characters but line feeds: names that processes chose are escaped.
#[must_use]
pub fn report_text(report: &MachineReport, width: usize) -> String {
    let width = width.max(WIDTH_MIN);
    let mut out = String::new();
    head(&mut out, report, width);
    warnings(&mut out, report, width);
    memory(&mut out, report, width);
    out.push_str(&crate::measure::cost_text(&report.measured, width));
    processes(&mut out, report, width);
    who_pays(&mut out, report, width);
    allocations(&mut out, report, width);
    next_steps(&mut out, report, width);
    out
}

fn head(out: &mut String, report: &MachineReport, width: usize) {
    let facts: Vec<String> = [
        report.host.name.known().map(|name| harmless(name)),
        report
            .host
            .kernel
            .known()
            .map(|release| format!("Linux {}", harmless(release))),
        report.host.taken_at.known().cloned(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let _ = writeln!(out, "{}", cut(&facts.join(", "), width));
    let certainty = match report.verdict.certainty {
        Certainty::Certain => "",
        Certainty::Likely => " (likely)",
        Certainty::CannotTell => " (cannot tell for sure)",
    };
    let headline = format!("{}{certainty}", harmless(&report.verdict.headline));
    out.push_str(&wrap(&headline, width, "", ""));
    if let Some(undecided) = &report.verdict.undecided {
        out.push_str(&wrap(&harmless(undecided), width, "  ", "  "));
    }
}

fn warnings(out: &mut String, report: &MachineReport, width: usize) {
    let of_verdict = report.verdict.warnings.iter().map(|warning| {
        let advice = warning
            .advice
            .as_ref()
            .map_or_else(String::new, |advice| format!(": {advice}"));
        format!("{}: {}{advice}", warning.subject, warning.message)
    });
    let found = report
        .findings
        .iter()
        .map(|finding| format!("{}: {}", finding.subject, finding.message));
    let lines: Vec<String> = found.chain(of_verdict).collect();
    if lines.is_empty() {
        return;
    }
    out.push_str("\nWarnings\n");
    for line in lines {
        out.push_str(&wrap(&harmless(&line), width, "  ! ", "    "));
    }
}

fn memory(out: &mut String, report: &MachineReport, width: usize) {
    const BAR_WIDTH_MIN: usize = 6;
    out.push_str("\nMemory per node\n");
    let mut rows = vec![
        [
            "node",
            "total",
            "free",
            "programs",
            "file cache",
            "kernel",
            "used",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for node in &report.nodes {
        rows.push(match &node.memory {
            Reading::Known(memory) => memory_row(node, memory),
            Reading::Absent { why } => vec![node.node.to_string(), format!("n/a ({why})")],
        });
    }
    let table = aligned(&rows, &[Align::Left]);
    let table_width = table
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    let bar_width = width.saturating_sub(table_width + 4).min(20);
    for (row, line) in table.iter().enumerate() {
        let share = row
            .checked_sub(1)
            .and_then(|node| report.nodes[node].memory.known())
            .and_then(|memory| memory.used().share_of(memory.total));
        match share {
            Some(share) if bar_width >= BAR_WIDTH_MIN => {
                let _ = writeln!(out, "{line}  {}", bar(share, bar_width));
            }
            _ => {
                let _ = writeln!(out, "{}", cut(line.trim_end(), width));
            }
        }
    }
}

fn memory_row(node: &NodeReport, memory: &MemoryUse) -> Vec<String> {
    let reading = |reading: &Reading<Bytes>| match reading {
        Reading::Known(bytes) => bytes.to_string(),
        Reading::Absent { .. } => "n/a".to_owned(),
    };
    vec![
        node.node.to_string(),
        memory.total.to_string(),
        memory.free.to_string(),
        reading(&memory.anonymous),
        reading(&memory.page_cache),
        reading(&memory.kernel),
        memory
            .used()
            .share_of(memory.total)
            .map_or_else(|| "-".to_owned(), percent),
    ]
}

/// `[######....]`
fn bar(share: f64, width: usize) -> String {
    let cells = width.saturating_sub(2);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a bar of some 20 cells"
    )]
    let full = ((share * cells as f64).round() as usize).min(cells);
    format!("[{}{}]", "#".repeat(full), ".".repeat(cells - full))
}

fn processes(out: &mut String, report: &MachineReport, width: usize) {
    let shown = match &report.processes {
        Reading::Known(shown) => shown,
        Reading::Absent { why } => {
            let _ = writeln!(out, "\nWho uses memory, and where: n/a ({})", harmless(why));
            return;
        }
    };
    let where_all = report.only_node().map_or_else(String::new, |node| {
        format!("; all of it on node {node}, the only one")
    });
    let _ = writeln!(
        out,
        "\nWho uses memory, and where ({} of {} processes{where_all})",
        shown.len(),
        report.processes_total
    );
    let columns = match report.only_node() {
        Some(_) => &["pid", "user", "name", "memory", "threads"][..],
        None => &[
            "pid",
            "user",
            "name",
            "memory",
            "runs on",
            "memory is on node",
        ],
    };
    let mut rows = vec![columns.iter().map(|&name| name.to_owned()).collect()];
    rows.extend(shown.iter().map(|process| {
        let mut row = process_row(process);
        if report.only_node().is_some() {
            row.truncate(columns.len() - 1);
            row.push(process.process.threads.to_string());
        }
        row
    }));
    let left = Align::Left;
    let aligns = [Align::Right, left, left, Align::Right, left, left];
    // The last column of one node is a number.
    let aligns = if report.only_node().is_some() {
        &aligns[..4]
    } else {
        &aligns[..]
    };
    for line in aligned(&rows, aligns) {
        let _ = writeln!(out, "{}", cut(line.trim_end(), width));
    }
    for group in &report.unreadable {
        let processes = if group.count == 1 {
            "process"
        } else {
            "processes"
        };
        let text = format!(
            "{} {processes} could not be read: {}",
            group.count, group.why
        );
        out.push_str(&wrap(&harmless(&text), width, "  ", "  "));
    }
}

/// Who has memory away from its home; nothing where that is nobody.
fn who_pays(out: &mut String, report: &MachineReport, width: usize) {
    let Some(payers) = report.who_pays.known().filter(|payers| !payers.is_empty()) else {
        return;
    };
    out.push_str("\nWho pays for remote memory (NHN: where it runs, NRMEM: memory elsewhere)\n");
    for line in crate::stat::row_lines(payers, report.nodes.len(), width) {
        let _ = writeln!(out, "{line}");
    }
}

fn process_row(process: &ProcessReport) -> Vec<String> {
    const NAME_WIDTH: usize = 15;
    const USER_WIDTH: usize = 10;
    let lies_on = match &process.locality {
        Reading::Known(locality) => format!("{}  {}", shares(locality), bound(locality)),
        // The reason stands once, below the table.
        Reading::Absent { .. } => "n/a (see below)".to_owned(),
    };
    vec![
        process.process.pid.to_string(),
        cut(&harmless(&process.process.user_shown()), USER_WIDTH),
        cut(&harmless(&process.process.name), NAME_WIDTH),
        process.process.memory().to_string(),
        nodes_named(&process.cpu_nodes),
        lies_on,
    ]
}

fn allocations(out: &mut String, report: &MachineReport, width: usize) {
    match &report.interval_seconds {
        Reading::Known(seconds) => {
            let _ = writeln!(out, "\nNew pages per second, over {seconds:.1} s");
        }
        Reading::Absent { why } => {
            let _ = writeln!(out, "\nNew pages since boot (no rate: {})", harmless(why));
        }
    }
    // `interleave_hit` cut short: the table must fit on 80 columns.
    let mut rows = vec![
        [
            "node",
            "numa_hit",
            "numa_miss",
            "numa_foreign",
            "interleave",
            "local_node",
            "other_node",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let mut missed = false;
    for node in &report.nodes {
        let cells: Result<Vec<(String, bool)>, &str> = match (&report.interval_seconds, node) {
            (
                Reading::Known(_),
                NodeReport {
                    per_second: Reading::Known(rates),
                    ..
                },
            ) => Ok(rates.values().map(rate_cell).into()),
            (
                Reading::Absent { .. },
                NodeReport {
                    counters: Reading::Known(counters),
                    ..
                },
            ) => Ok(counters
                .values()
                .map(|&count| (grouped(count), count > 0))
                .into()),
            (Reading::Known(_), node) => Err(node.per_second.why().unwrap_or_default()),
            (Reading::Absent { .. }, node) => Err(node.counters.why().unwrap_or_default()),
        };
        let mut row = vec![node.node.to_string()];
        match cells {
            Ok(cells) => {
                missed |= cells[1].1 || cells[2].1;
                row.extend(cells.into_iter().map(|(text, _)| text));
            }
            Err(why) => row.push(format!("n/a ({})", harmless(why))),
        }
        rows.push(row);
    }
    for line in aligned(&rows, &[Align::Left]) {
        let _ = writeln!(out, "{}", cut(line.trim_end(), width));
    }
    if missed {
        for counter in [1, 2] {
            let text = format!("{}: {}", COUNTER_NAMES[counter], COUNTER_MEANINGS[counter]);
            out.push_str(&wrap(&text, width, "  ", "    "));
        }
    }
}

/// A rate for people, and whether it is above nothing.
fn rate_cell(reading: &Reading<f64>) -> (String, bool) {
    match reading {
        Reading::Known(per_second) => (rate(*per_second), *per_second > 0.0),
        Reading::Absent { .. } => ("n/a".to_owned(), false),
    }
}

fn next_steps(out: &mut String, report: &MachineReport, width: usize) {
    out.push_str("\nNext steps\n");
    for step in &report.next_steps {
        out.push_str(&wrap(&harmless(&step.why), width, "  - ", "    "));
        if let Some(command) = &step.command {
            let _ = writeln!(out, "      {}", harmless(command));
        }
    }
    out.push_str("  - keep this report as a page to read or pass on\n");
    out.push_str("      homenode report --html report.html\n");
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows as lines of a table, two blanks between columns and before the first.
///
/// Columns beyond `aligns` are right-aligned. A row with fewer cells than the first ends in a
/// remark, which widens no column.
pub(crate) fn aligned(rows: &[Vec<String>], aligns: &[Align]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter(|row| row.len() == columns || column + 1 < row.len())
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let remark = row.len() < columns && column + 1 == row.len();
            let width = if remark { 0 } else { widths[column] };
            match aligns.get(column) {
                Some(Align::Left) => {
                    let _ = write!(line, "  {cell:<width$}");
                }
                Some(Align::Right) | None => {
                    let _ = write!(line, "  {cell:>width$}");
                }
            }
        }
        line
    };
    rows.iter().map(line).collect()
}
