//! Who touches memory first decides where it lies.

use homenode_sys::kernels::{Operation, fill};
use homenode_sys::{NodeMemory, PageKind, Policy, PolicyMode};
use homenode_units::{Bytes, CpuId, NodeId, NodeSet};

use crate::bandwidth::{Pool, Seat, TeamSubject, team_cell, usual, wanted_size};
use crate::latency::PAGE;
use crate::session::Session;
use crate::threads::pin;
use crate::{Arrangement, Cell, Estimate, MeasureError, Metric, Outcome, Row, Test};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstTouchOptions {
    /// Memory of each thread; more than caches hold unless said otherwise.
    pub size: Option<Bytes>,
}

const WAYS: [Arrangement; 3] = [
    Arrangement::TouchedByOne,
    Arrangement::TouchedByUser,
    Arrangement::PlacedAtAllocation,
];

/// A thread: its node, its CPU, and the node where its memory is near.
type Worker = (NodeId, CpuId, NodeId);

/// One thread for each core of every node reads its own part of memory that was made in three
/// ways: touched first by one thread on the first node, touched first by the thread itself, and
/// placed on the first node at allocation, as Windows does it.
///
/// Each way is three cells: the bandwidth of all, the share of pages on the first node, and (with
/// `at` 1) the share of pages on the node of the thread that uses them.
///
/// # Errors
///
/// [`MeasureError`] when the size cannot be had.
pub fn first_touch(
    session: &mut Session<'_>,
    options: &FirstTouchOptions,
) -> Result<Vec<Cell>, MeasureError> {
    let sites = session.sites.clone();
    let with_memory = |row: &&Row| sites.has_column(row.node);
    if let Some(row) = sites.rows.iter().find(|row| !with_memory(row)) {
        session.note(format!(
            "node {} has no memory of its own: its CPUs take no part",
            row.node
        ));
    }
    let workers: Vec<Worker> = sites
        .rows
        .iter()
        .filter(with_memory)
        .flat_map(|row| row.cpus.iter().map(move |&cpu| (row.node, cpu, row.node)))
        .collect();
    if workers.is_empty() {
        session.note("no node has both CPUs and memory: nobody can be near to what it touches");
        return Ok(Vec::new());
    }
    let wanted = wanted_size(session, workers.len().max(1));
    // In two of three ways all of it lies on one node.
    let buffers = workers.len() as u64;
    let size = session.buffer_size(options.size, wanted, PAGE, buffers)?;
    let mut cells = Vec::new();
    for (number, way) in WAYS.into_iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "three ways")]
        session.allot(1.0 / (WAYS.len() - number) as f64);
        session.tell("touching memory", number, WAYS.len());
        cells.extend(one_way(session, way, &workers, size));
    }
    Ok(cells)
}

fn one_way(
    session: &mut Session<'_>,
    way: Arrangement,
    workers: &[Worker],
    size: Bytes,
) -> Vec<Cell> {
    let Some(kernel) = usual(Operation::Read) else {
        return Vec::new();
    };
    let first = workers[0].2;
    let from: NodeSet = workers.iter().map(|worker| worker.0).collect();
    let expected = |worker: &Worker| match way {
        Arrangement::TouchedByUser => worker.2,
        _ => first,
    };
    let to: NodeSet = workers.iter().map(expected).collect();
    let nodes = (from, to);
    let mut cell = team_cell(Test::FirstTouch, kernel, nodes, workers.len(), size);
    cell.arrangement = way;
    let made = make(way, workers, first, size);
    let buffers = match made {
        Ok(buffers) => buffers,
        Err(why) => {
            cell.outcome = Outcome::absent(why);
            return vec![cell];
        }
    };
    let expected: Vec<NodeSet> = workers
        .iter()
        .map(|worker| NodeSet::from_iter([expected(worker)]))
        .collect();
    let pool = Pool::of(buffers.into_iter().zip(expected).collect());
    let seats: Result<Vec<Seat>, String> = workers
        .iter()
        .enumerate()
        .map(|(index, &(_, cpu, _))| pool.spread_seat(cpu, index))
        .collect();
    let seats = match seats {
        Ok(seats) => seats,
        Err(why) => {
            cell.outcome = Outcome::absent(why);
            return vec![cell];
        }
    };
    let mut shares = shares(&pool, &seats, workers, first).into_iter();
    let mut share_cell = |at| Cell {
        metric: Metric::PageShare,
        at,
        bus_factor: None,
        outcome: shares
            .next()
            .unwrap_or_else(|| Outcome::absent("it was not asked for")),
        ..cell.clone()
    };
    let shares = [share_cell(None), share_cell(Some(1.0))];
    let mut team = [TeamSubject::new(&pool, kernel, seats)];
    let outcomes = session.sample("bandwidth", &mut team);
    cell.outcome = outcomes.into_iter().next().unwrap_or(cell.outcome);
    let mut cells = vec![cell];
    cells.extend(shares);
    cells
}

/// The memory of all workers, made by threads on their CPUs.
fn make(
    way: Arrangement,
    workers: &[Worker],
    first: NodeId,
    size: Bytes,
) -> Result<Vec<NodeMemory>, String> {
    let policy = match way {
        // Local allocation, said explicitly: what the kernel does by default, and it keeps
        // automatic balancing from moving the pages meanwhile.
        Arrangement::TouchedByOne | Arrangement::TouchedByUser => {
            Policy::new(PolicyMode::Local, NodeSet::new())
        }
        _ => Policy::new(PolicyMode::Bind, NodeSet::from_iter([first])),
    };
    let make_one = |cpu, seed| -> Result<NodeMemory, String> {
        pin(cpu)?;
        let mut memory = NodeMemory::with_policy(size, &policy, PageKind::Base)
            .map_err(|error| error.to_string())?;
        fill(&mut memory, seed);
        Ok(memory)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .zip(1u64..)
            .map(|(&(_, own, _), seed)| {
                let cpu = if way == Arrangement::TouchedByOne {
                    workers[0].1
                } else {
                    own
                };
                let make_one = &make_one;
                scope.spawn(move || make_one(cpu, seed))
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a thread failed".to_owned()))
        };
        threads.into_iter().map(join).collect()
    })
}

/// The share of pages on the first node, and the share on the node of their user.
fn shares(pool: &Pool, seats: &[Seat], workers: &[Worker], first: NodeId) -> Vec<Outcome> {
    let mean = |node_of: &dyn Fn(&Worker) -> NodeId| {
        let shares: Option<Vec<f64>> = seats
            .iter()
            .zip(workers)
            .map(|(&seat, worker)| {
                let node = NodeSet::from_iter([node_of(worker)]);
                Some(pool.placement(seat)?.share_on(&node))
            })
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a number of threads")]
        let share = shares.map(|shares| shares.iter().sum::<f64>() / shares.len().max(1) as f64);
        let estimate = share.and_then(|share| Estimate::of(vec![share], 1.0, 0));
        estimate.map_or_else(
            || Outcome::absent("where pages lie cannot be asked here"),
            |estimate| {
                // Counted, not sampled.
                Outcome::Measured(Estimate {
                    converged: true,
                    ..estimate
                })
            },
        )
    };
    vec![mean(&|_| first), mean(&|worker| worker.2)]
}
