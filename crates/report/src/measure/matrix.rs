//! A table of CPU nodes × memory nodes.

use std::fmt::Write as _;

use homenode_measure::{Cell, Outcome};
use homenode_units::{NodeId, NodeSet};

use super::shown;

/// Cells of one kind, by row and column.
#[derive(Debug)]
pub(super) struct Matrix<'a> {
    pub(super) rows: Vec<NodeId>,
    pub(super) columns: Vec<NodeId>,
    cells: Vec<&'a Cell>,
}

impl<'a> Matrix<'a> {
    /// Puts cells of one node each into a table.
    pub(super) fn of(cells: Vec<&'a Cell>) -> Self {
        let nodes = |side: fn(&Cell) -> &NodeSet| -> Vec<NodeId> {
            let all: NodeSet = cells
                .iter()
                .filter_map(|cell| side(cell).lowest())
                .collect();
            all.iter().collect()
        };
        Self {
            rows: nodes(|cell| &cell.from),
            columns: nodes(|cell| &cell.to),
            cells,
        }
    }

    pub(super) fn get(&self, row: NodeId, column: NodeId) -> Option<&'a Cell> {
        let is_there =
            |cell: &&&Cell| cell.from.lowest() == Some(row) && cell.to.lowest() == Some(column);
        self.cells.iter().find(is_there).copied()
    }

    /// The median of a cell that has one.
    pub(super) fn median(&self, row: NodeId, column: NodeId) -> Option<f64> {
        Some(self.get(row, column)?.outcome.measured()?.median)
    }

    /// The best cell, whose number the others are compared with.
    pub(super) fn best(&self) -> Option<f64> {
        let lower = self.cells.first()?.metric.is_lower_better();
        let medians = self
            .cells
            .iter()
            .filter_map(|cell| Some(cell.outcome.measured()?.median));
        if lower {
            medians.reduce(f64::min)
        } else {
            medians.reduce(f64::max)
        }
    }

    /// Writes the table: with `±` where there is room, else without, else without decimals.
    pub(super) fn write(&self, out: &mut String, width: usize) {
        const LABEL: usize = 9;
        let room = width.saturating_sub(LABEL) / self.columns.len().max(1);
        let column = match room {
            15.. => 15,
            8..=14 => 8,
            other => other.max(4),
        };
        let _ = writeln!(out, "{:LABEL$}memory node", "");
        let _ = write!(out, "{:<LABEL$}", "CPU node");
        for node in &self.columns {
            let _ = write!(out, "{:>column$}", node.0);
        }
        out.push('\n');
        for &row in &self.rows {
            let _ = write!(out, "{:>8} ", row.0);
            for &to in &self.columns {
                let text = self
                    .get(row, to)
                    .map_or_else(|| "-".to_owned(), |cell| text(cell, column));
                let _ = write!(out, "{text:>column$}");
            }
            out.push('\n');
        }
        for line in self.absences() {
            let _ = writeln!(out, "{line}");
        }
        let same = self.not_told_apart();
        if !same.is_empty() {
            let _ = writeln!(out, "cannot be told apart: {}", same.join("; "));
        }
    }

    /// Why cells are empty.
    fn absences(&self) -> Vec<String> {
        let absent = |cell: &&Cell| match &cell.outcome {
            Outcome::Measured(_) => None,
            Outcome::Absent { absent } => {
                Some(format!("node {} to {}: n/a ({absent})", cell.from, cell.to))
            }
        };
        self.cells.iter().filter_map(absent).collect()
    }

    /// In each row, columns whose intervals overlap that of the best one.
    fn not_told_apart(&self) -> Vec<String> {
        let mut found = Vec::new();
        for &row in &self.rows {
            let cells: Vec<&Cell> = self
                .columns
                .iter()
                .filter_map(|&column| self.get(row, column))
                .collect();
            let measured = cells
                .iter()
                .filter_map(|cell| Some((cell, cell.outcome.measured()?)));
            let best = measured.clone().min_by(|a, b| {
                let (a, b) = (a.1.median, b.1.median);
                if a_is_lower_better(&cells) {
                    a.total_cmp(&b)
                } else {
                    b.total_cmp(&a)
                }
            });
            let Some((_, best)) = best else { continue };
            let same: NodeSet = measured
                .filter(|(_, estimate)| estimate.overlaps(best))
                .filter_map(|(cell, _)| cell.to.lowest())
                .collect();
            if same.len() > 1 {
                found.push(format!("from node {row}, memory of nodes {same}"));
            }
        }
        // Many rows would say the same again.
        found.truncate(4);
        found
    }
}

fn a_is_lower_better(cells: &[&Cell]) -> bool {
    cells
        .first()
        .is_some_and(|cell| cell.metric.is_lower_better())
}

/// A cell's number in a column of this width.
fn text(cell: &Cell, width: usize) -> String {
    let Some(found) = cell.outcome.measured() else {
        return "n/a".to_owned();
    };
    let mark = if found.converged { " " } else { "*" };
    match width {
        15.. => format!(
            "{} ±{}{mark}",
            shown(cell.metric, found.median),
            if found.has_interval() {
                shown(cell.metric, (found.high - found.low) / 2.0)
            } else {
                "?".to_owned()
            }
        ),
        6..=14 => format!("{}{mark}", shown(cell.metric, found.median)),
        _ => format!(
            "{:.0}",
            shown(cell.metric, found.median)
                .parse::<f64>()
                .unwrap_or(0.0)
        ),
    }
}
