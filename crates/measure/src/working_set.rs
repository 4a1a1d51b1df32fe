//! Latency and bandwidth by size: where the caches end.

use homenode_sys::kernels::{ChaseOrder, Operation};
use homenode_units::{Bytes, NodeId, NodeSet};

use crate::bandwidth::{Pool, TeamSubject, team_cell, usual};
use crate::latency::{Pattern, chase_cells};
use crate::memory::Want;
use crate::session::Session;
use crate::{Cell, MeasureError, Outcome, Test};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkingSetOptions {
    /// The largest size; four times the last-level cache unless said otherwise.
    pub size: Option<Bytes>,
    /// Every second size.
    pub quick: bool,
}

/// The smallest size: a page, which every first-level cache holds.
const SIZE_MIN: u64 = 4 << 10;

/// Measures from the first node's CPU to its own memory and to another node's: a random walk and a
/// read at each size, from 4 KiB on, each twice the one before.
///
/// # Errors
///
/// [`MeasureError`] when the size cannot be had.
pub fn working_set(
    session: &mut Session<'_>,
    options: &WorkingSetOptions,
) -> Result<Vec<Cell>, MeasureError> {
    // A chase for each size, together twice the largest, and one buffer to read.
    const BUFFERS: u64 = 3;
    let wanted = session.sites.beyond_caches();
    let most = session.buffer_size(options.size, wanted, Bytes(SIZE_MIN), BUFFERS)?;
    let factor = if options.quick { 4 } else { 2 };
    let sizes: Vec<Bytes> = std::iter::successors(Some(SIZE_MIN), |size| size.checked_mul(factor))
        .take_while(|&size| size <= most.0)
        .map(Bytes)
        .collect();
    let row = session.sites.rows[0].clone();
    let columns = near_and_far(session, row.node);
    let pattern = Pattern {
        order: ChaseOrder::Whole,
        stride: session.sites.stride,
        want: Want::Huge,
    };
    let walks: Vec<(Pattern, Bytes)> = sizes.iter().map(|&size| (pattern.clone(), size)).collect();
    let pairs: Vec<_> = columns
        .iter()
        .map(|&to| (row.node, row.cpus[0], NodeSet::from_iter([to])))
        .collect();
    session.allot(0.6);
    let mut cells = chase_cells(session, Test::WorkingSet, "latency by size", &walks, &pairs);
    session.allot(1.0);
    let pool = Pool::new(session, 1, most, Want::Huge);
    let mut teams = Vec::new();
    let mut sampled = Vec::new();
    for &to in &columns {
        let (Some(kernel), from) = (usual(Operation::Read), NodeSet::from_iter([row.node])) else {
            continue;
        };
        for &size in &sizes {
            let to_nodes = NodeSet::from_iter([to]);
            let mut cell = team_cell(Test::WorkingSet, kernel, (from.clone(), to_nodes), 1, size);
            match pool.seat(row.cpus[0], to, 0) {
                Ok(seat) => {
                    cell.pages = pool.pages(&[seat]);
                    let limit = usize::try_from(size.0).unwrap_or(usize::MAX);
                    teams.push(TeamSubject::new(&pool, kernel, vec![seat]).within(limit));
                    sampled.push(cells.len());
                }
                Err(why) => cell.outcome = Outcome::absent(why),
            }
            cells.push(cell);
        }
    }
    let outcomes = session.sample("bandwidth by size", &mut teams);
    for (position, outcome) in sampled.into_iter().zip(outcomes) {
        cells[position].outcome = outcome;
    }
    Ok(cells)
}

/// A row's own column and another one, where there is one.
pub(crate) fn near_and_far(session: &Session<'_>, row: NodeId) -> Vec<NodeId> {
    let mut columns = vec![
        session.sites.own_column(row),
        session.sites.other_column(row),
    ];
    columns.dedup();
    columns
}
