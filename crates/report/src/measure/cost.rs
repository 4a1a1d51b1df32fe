//! What going remote costs, in few lines: for `topo` and for the report.

use std::fmt::Write as _;
use std::time::Duration;

use homenode_measure::{Arrangement, Cell, Document, Test};

use super::matrix::Matrix;
use super::sections::groups;
use super::shown;
use crate::machine::{timestamp, wrap};

/// Numbers of a kept run for the end of `topo`: its first latency matrix; a line where there is
/// one node. Empty where the run has no latency.
#[must_use]
pub fn measured_latency_text(document: &Document, width: usize) -> String {
    let mut out = String::new();
    let Some(group) = groups(document.of(Test::Latency)).into_iter().next() else {
        return out;
    };
    let when = timestamp(Duration::from_secs(document.taken_at_unix));
    let pages = group[0].pages;
    if let [only] = group.as_slice() {
        let Some(found) = only.outcome.measured() else {
            return out;
        };
        let value = shown(only.metric, found.median);
        let line = format!("{value} ns idle latency on {pages} pages, {when}");
        out.push_str(&wrap(&line, width, "measured   ", "           "));
        return out;
    }
    let line = format!("\nmeasured idle latency in ns, {pages} pages, {when}");
    out.push_str(&wrap(&line, width, "", "  "));
    Matrix::of(group).write(&mut out, width);
    out
}

/// The report's section on what was measured; what to do where nothing was.
pub(crate) fn cost_text(documents: &[Document], width: usize) -> String {
    let mut out = String::from("\nWhat it costs\n");
    let cells: Vec<&Cell> = documents
        .iter()
        .flat_map(|document| &document.cells)
        .collect();
    if cells.is_empty() {
        out.push_str(&wrap(
            "not measured yet: `homenode measure all --quick` takes less than a minute",
            width,
            "  ",
            "  ",
        ));
        return out;
    }
    for document in documents {
        let latency = groups(document.of(Test::Latency)).into_iter().next();
        let text = measured_latency_text(document, width);
        out.push_str(text.trim_start_matches('\n'));
        if let Some(matrix) = latency.map(Matrix::of)
            && let Some(line) = remote_cost(&matrix)
        {
            out.push_str(&wrap(&line, width, "", "  "));
        }
        let all: Vec<&Cell> = document
            .of(Test::Bandwidth)
            .filter(|cell| {
                matches!(
                    cell.arrangement,
                    Arrangement::Single | Arrangement::Distributed
                )
            })
            .collect();
        let Some(most) = all.iter().map(|cell| cell.threads).max() else {
            continue;
        };
        let shown_ones: Vec<String> = all
            .iter()
            .filter(|cell| cell.threads == most)
            .filter_map(|cell| {
                let found = cell.outcome.measured()?;
                Some(format!(
                    "{} {}",
                    cell.kernel,
                    shown(cell.metric, found.median)
                ))
            })
            .collect();
        let threads = if most == 1 { "thread" } else { "threads" };
        let line = format!(
            "bandwidth of {most} {threads}, GB/s: {}",
            shown_ones.join(", ")
        );
        out.push_str(&wrap(&line, width, "", "  "));
    }
    out
}

/// The least and the most that another node's memory costs beside the own.
fn remote_cost(matrix: &Matrix<'_>) -> Option<String> {
    let mut ratios = Vec::new();
    for &row in &matrix.rows {
        let own = matrix.median(row, row);
        for &column in matrix.columns.iter().filter(|&&column| column != row) {
            if let (Some(own), Some(far)) = (own, matrix.median(row, column)) {
                ratios.push(far / own);
            }
        }
    }
    let least = ratios.iter().copied().reduce(f64::min)?;
    let most = ratios.iter().copied().reduce(f64::max)?;
    let mut words = String::new();
    let _ = write!(words, "another node's memory takes {least:.2}");
    if most - least > 0.005 {
        let _ = write!(words, " to {most:.2}");
    }
    words.push_str(" times as long as the own");
    Some(words)
}
