//! What became faster or slower between two runs.

use crate::{Cell, Document, Estimate};

/// A cell of both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The cell of the later run.
    pub cell: Cell,
    /// The number of the earlier run.
    pub before: Estimate,
    /// The number of the later run.
    pub after: Estimate,
    /// What that means.
    pub judgement: Judgement,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The intervals overlap: the two cannot be told apart.
    Same,
    /// Less latency, or more bandwidth.
    Better,
    /// More latency, or less bandwidth.
    Worse,
}

/// Compares the cells that both runs measured, in the order of the later one.
#[must_use]
pub fn diff(before: &Document, after: &Document) -> Vec<Change> {
    after
        .cells
        .iter()
        .filter_map(|cell| {
            let same = before
                .cells
                .iter()
                .find(|old| old.is_about_the_same(cell))?;
            let (before, after) = (same.outcome.measured()?, cell.outcome.measured()?);
            let judgement = if before.overlaps(after) {
                Judgement::Same
            } else if (after.median < before.median) == cell.metric.is_lower_better() {
                Judgement::Better
            } else {
                Judgement::Worse
            };
            Some(Change {
                cell: cell.clone(),
                before: before.clone(),
                after: after.clone(),
                judgement,
            })
        })
        .collect()
}
