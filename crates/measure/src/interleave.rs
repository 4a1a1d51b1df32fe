//! Memory spread over nodes page by page, beside the same on one node.

use homenode_sys::kernels::{ChaseOrder, Operation};
use homenode_units::{Bytes, NodeSet};

use crate::bandwidth::{Pool, TeamSubject, team_cell, usual};
use crate::latency::{PAGE, Pair, Pattern, chase_cells};
use crate::memory::Want;
use crate::session::Session;
use crate::{Cell, MeasureError, Outcome, Test};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterleaveOptions {
    /// Memory of each walk and stream; more than caches hold unless said otherwise.
    pub size: Option<Bytes>,
}

/// Measures latency and bandwidth of one thread from each row to each column and to memory spread
/// over all columns.
///
/// Base pages: the kernel spreads page by page, and a huge page would be one piece of 2 MiB.
///
/// # Errors
///
/// [`MeasureError`] when the size cannot be had.
pub fn interleave(
    session: &mut Session<'_>,
    options: &InterleaveOptions,
) -> Result<Vec<Cell>, MeasureError> {
    const BUFFERS: u64 = 4;
    let wanted = session.sites.beyond_caches();
    let size = session.buffer_size(options.size, wanted, PAGE, BUFFERS)?;
    let all = session.sites.column_nodes();
    let mut pairs: Vec<Pair> = session.sites.pairs();
    if all.len() > 1 {
        pairs.extend(
            session
                .sites
                .rows
                .iter()
                .map(|row| (row.node, row.cpus[0], all.clone())),
        );
    } else {
        session.note("there is one node with memory: nothing to spread over");
    }
    let pattern = Pattern {
        order: ChaseOrder::Whole,
        stride: session.sites.stride,
        want: Want::Base,
    };
    session.allot(0.5);
    let mut cells = chase_cells(
        session,
        Test::Interleave,
        "latency",
        &[(pattern, size)],
        &pairs,
    );
    session.allot(1.0);
    let pool = Pool::new(session, 1, size, Want::Base);
    let mut teams = Vec::new();
    let mut sampled = Vec::new();
    for operation in [Operation::Read, Operation::WriteNt] {
        let Some(kernel) = usual(operation) else {
            continue;
        };
        for (from, cpu, to) in &pairs {
            let nodes = (NodeSet::from_iter([*from]), to.clone());
            let mut cell = team_cell(Test::Interleave, kernel, nodes, 1, size);
            let seat = match (to.len(), to.lowest()) {
                (1, Some(node)) => pool.seat(*cpu, node, 0),
                _ => pool.spread_seat(*cpu, 0),
            };
            match seat {
                Ok(seat) => {
                    teams.push(TeamSubject::new(&pool, kernel, vec![seat]));
                    sampled.push(cells.len());
                }
                Err(why) => cell.outcome = Outcome::absent(why),
            }
            cells.push(cell);
        }
    }
    for (position, outcome) in sampled
        .into_iter()
        .zip(session.sample("bandwidth", &mut teams))
    {
        cells[position].outcome = outcome;
    }
    Ok(cells)
}
