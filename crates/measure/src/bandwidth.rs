//! Bandwidth by operation, by placement, by number of threads, and node × node.

mod team;

use homenode_sys::kernels::{ISAS, Isa, OPERATIONS, Operation, PIECE_BYTES, StreamKernel};
use homenode_units::{Bytes, CpuId, NodeId, NodeSet};

use crate::memory::Want;
use crate::session::{Session, Subject as _};
use crate::statistics::median;
use crate::{Arrangement, Cell, MeasureError, Metric, Outcome, Pages, Sites, Test};

pub(crate) use team::{Pool, Seat, TeamSubject};

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BandwidthOptions {
    /// Memory of each thread; more than any cache holds unless said otherwise.
    pub size: Option<Bytes>,
    /// The operations; all but `prefetch-read` unless said otherwise.
    pub operations: Vec<Operation>,
    /// The instructions; for each operation those that are fastest here unless said otherwise.
    pub isa: Option<Isa>,
    /// Threads on a node at most; one for each core unless said otherwise.
    pub threads: Option<usize>,
    /// Base pages instead of huge ones.
    pub base_pages: bool,
    /// Fewer operations and numbers of threads.
    pub quick: bool,
}

/// Measures; see the module.
///
/// # Errors
///
/// [`MeasureError`] when size or threads cannot be had.
pub fn bandwidth(
    session: &mut Session<'_>,
    options: &BandwidthOptions,
) -> Result<Vec<Cell>, MeasureError> {
    let smallest = session.sites.rows.iter().map(|row| row.cpus.len()).min();
    let largest = session.sites.rows.iter().map(|row| row.cpus.len()).max();
    let threads = match options.threads {
        Some(asked) if asked == 0 || asked > smallest.unwrap_or(0) => {
            return Err(MeasureError::Threads {
                asked,
                there: smallest.unwrap_or(0),
            });
        }
        Some(asked) => asked,
        None => largest.unwrap_or(1),
    };
    let wanted = wanted_size(session, threads);
    let spread = session.sites.columns.len() > 1;
    // Every node holds the buffers of its users' threads, and its part of the spread ones.
    let users = session
        .sites
        .columns
        .iter()
        .map(|column| session.sites.users_max(column.node));
    let users = users.max().unwrap_or(1);
    let buffers = (threads * (users + usize::from(spread))) as u64;
    let least = Bytes(3 * PIECE_BYTES as u64);
    let size = session.buffer_size(options.size, wanted, least, buffers)?;
    let want = if options.base_pages {
        Want::Base
    } else {
        Want::Huge
    };
    let pool = Pool::new(session, threads, size, want);
    session.allot(0.2);
    let kernels = choose(session, &pool, options);
    session.allot(1.0);
    let mut plan = Plan {
        sites: session.sites.clone(),
        pool: &pool,
        cells: Vec::new(),
        teams: Vec::new(),
        sampled: Vec::new(),
        size,
    };
    let rows = &session.sites.rows;
    let all = rows.iter().map(|row| row.cpus.len().min(threads)).sum();
    for &kernel in &kernels {
        plan.arranged(kernel, all_local(&plan.sites), all);
    }
    let first = kernels
        .iter()
        .find(|kernel| kernel.operation == Operation::Read);
    if let Some(&kernel) = first.or(kernels.first()) {
        if plan.sites.rows.len() * plan.sites.columns.len() > 1 {
            plan.matrix(kernel, threads);
        }
        plan.sweep(kernel, threads, options.quick);
    }
    let Plan {
        mut cells,
        mut teams,
        sampled,
        ..
    } = plan;
    for (position, outcome) in sampled
        .into_iter()
        .zip(session.sample("bandwidth", &mut teams))
    {
        cells[position].outcome = outcome;
    }
    Ok(cells)
}

/// All threads together use more than the caches hold, and each one more than its part of them.
pub(crate) fn wanted_size(session: &Session<'_>, threads: usize) -> Bytes {
    let all = session.sites.beyond_caches().0;
    Bytes(
        (all / threads as u64)
            .max(64 << 20)
            .next_multiple_of(2 << 20),
    )
}

/// One node is all there is, or threads on all of them.
fn all_local(sites: &Sites) -> Arrangement {
    if sites.rows.len() == 1 {
        Arrangement::Single
    } else {
        Arrangement::Distributed
    }
}

/// For each operation the loop to use: the one asked for, or the fastest of a short try with one
/// thread.
pub(crate) fn choose(
    session: &mut Session<'_>,
    pool: &Pool,
    options: &BandwidthOptions,
) -> Vec<StreamKernel> {
    const TRIES: usize = 3;
    const TRY: std::time::Duration = std::time::Duration::from_millis(3);
    const QUICK: [Operation; 4] = [
        Operation::Read,
        Operation::Write,
        Operation::WriteNt,
        Operation::CopyNt,
    ];
    let operations: Vec<Operation> = if !options.operations.is_empty() {
        options.operations.clone()
    } else if options.quick {
        QUICK.to_vec()
    } else {
        OPERATIONS
            .into_iter()
            .filter(|&operation| operation != Operation::PrefetchRead)
            .collect()
    };
    let mut chosen = Vec::new();
    for operation in operations {
        let isas = options.isa.map_or_else(|| ISAS.to_vec(), |isa| vec![isa]);
        let candidates = isas
            .into_iter()
            .filter_map(|isa| StreamKernel::find(operation, isa));
        let mut candidates: Vec<(StreamKernel, Vec<f64>)> =
            candidates.map(|kernel| (kernel, Vec::new())).collect();
        let Some(seat) = pool.first_seat() else {
            chosen.extend(candidates.first().map(|first| first.0));
            continue;
        };
        for _try in 0..TRIES {
            if candidates.len() < 2 || session.is_over() {
                break;
            }
            for (kernel, speeds) in &mut candidates {
                let mut team = TeamSubject::new(pool, *kernel, vec![seat]);
                let _ = team.calibrate(session.clock, TRY);
                speeds.extend(team.sample(session.clock).ok().map(|sample| sample.value));
            }
        }
        let tried = candidates
            .iter()
            .filter_map(|(kernel, speeds)| Some((kernel, median(speeds)?)));
        let best = tried
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(kernel, _)| *kernel);
        // Where no time was left to try: the usual one, if the user asked for none.
        let usual = usual(operation).filter(|_| options.isa.is_none());
        chosen.extend(best.or(usual).or(candidates.first().map(|first| first.0)));
    }
    chosen
}

/// Cells, and the teams of threads that will fill them.
struct Plan<'a> {
    sites: Sites,
    pool: &'a Pool,
    cells: Vec<Cell>,
    teams: Vec<TeamSubject<'a>>,
    /// For each team the position of its cell.
    sampled: Vec<usize>,
    size: Bytes,
}

impl Plan<'_> {
    /// All threads on a row's node, all memory on a column's.
    fn matrix(&mut self, kernel: StreamKernel, threads: usize) {
        let sites = self.sites.clone();
        for row in &sites.rows {
            for column in &sites.columns {
                let seats = row.cpus.iter().take(threads).enumerate();
                let seats = seats.map(|(index, &cpu)| self.pool.seat(cpu, column.node, index));
                let seats: Result<Vec<Seat>, String> = seats.collect();
                let (from, to) = (row.node, column.node);
                self.add(
                    kernel,
                    Arrangement::Pair,
                    (NodeSet::from_iter([from]), NodeSet::from_iter([to])),
                    row.cpus.len().min(threads),
                    seats,
                );
            }
        }
    }

    /// Single, Distributed, Remote and Interleaved for 1, 2, 4, … threads.
    fn sweep(&mut self, kernel: StreamKernel, threads: usize, quick: bool) {
        let sites = &self.sites;
        let all: usize = sites
            .rows
            .iter()
            .map(|row| row.cpus.len().min(threads))
            .sum();
        let single = sites.rows[0].cpus.len().min(threads);
        let spread = sites.columns.len() > 1;
        let mut counts = thread_counts(all, quick);
        // All of the first node's threads too: with fewer, its memory may not be busy.
        counts.push(single);
        counts.sort_unstable();
        counts.dedup();
        for count in counts {
            if count <= single {
                self.arranged(kernel, Arrangement::Single, count);
            }
            if spread {
                self.arranged(kernel, Arrangement::Distributed, count);
                self.arranged(kernel, Arrangement::Remote, count);
                self.arranged(kernel, Arrangement::Interleaved, count);
            }
        }
    }

    /// One arrangement of this many threads: on the first node (single) or on all in turn.
    fn arranged(&mut self, kernel: StreamKernel, arrangement: Arrangement, threads: usize) {
        let sites = &self.sites;
        let seats = seating(sites, arrangement, threads);
        let from = seats.iter().map(|seat| seat.0).collect();
        let to = if arrangement == Arrangement::Interleaved {
            sites.column_nodes()
        } else {
            seats.iter().map(|seat| seat.2).collect()
        };
        let count = seats.len();
        let seats = seats.into_iter().map(|(_, cpu, memory, index)| {
            if arrangement == Arrangement::Interleaved {
                self.pool.spread_seat(cpu, index)
            } else {
                self.pool.seat(cpu, memory, index)
            }
        });
        let seats = seats.collect();
        self.add(kernel, arrangement, (from, to), count, seats);
    }

    fn add(
        &mut self,
        kernel: StreamKernel,
        arrangement: Arrangement,
        (from, to): (NodeSet, NodeSet),
        threads: usize,
        seats: Result<Vec<Seat>, String>,
    ) {
        let mut cell = Cell {
            test: Test::Bandwidth,
            metric: Metric::UsefulBandwidth,
            from,
            to,
            arrangement,
            threads,
            kernel: kernel.name(),
            pages: Pages::Base,
            size: self.size,
            at: None,
            bus_factor: Some(bus_factor(kernel.operation)),
            outcome: Outcome::absent("it was not measured"),
        };
        match seats {
            Ok(seats) => {
                cell.pages = self.pool.pages(&seats);
                // The same seats and loop, planned for another table: one measurement is enough.
                if self
                    .cells
                    .iter()
                    .any(|other| other.is_about_the_same(&cell))
                {
                    return;
                }
                self.teams.push(TeamSubject::new(self.pool, kernel, seats));
                self.sampled.push(self.cells.len());
            }
            Err(why) => cell.outcome = Outcome::absent(why),
        }
        self.cells.push(cell);
    }
}

/// 1, 2, 4, … and all.
fn thread_counts(all: usize, quick: bool) -> Vec<usize> {
    let factor = if quick { 4 } else { 2 };
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |&count| Some(count * factor))
        .take_while(|&count| count < all)
        .collect();
    counts.push(all);
    counts
}

/// Who sits where: node and CPU of each thread, the node of its memory, and the number of the
/// buffer there (of the spread ones, for [`Arrangement::Interleaved`]).
fn seating(
    sites: &Sites,
    arrangement: Arrangement,
    threads: usize,
) -> Vec<(NodeId, CpuId, NodeId, usize)> {
    let rows = match arrangement {
        Arrangement::Single => &sites.rows[..1],
        _ => &sites.rows[..],
    };
    let most = rows.iter().map(|row| row.cpus.len()).max().unwrap_or(0);
    // The first CPU of each node, then the second of each.
    let in_turn = (0..most).flat_map(|at| {
        rows.iter()
            .filter_map(move |row| Some((row.node, *row.cpus.get(at)?)))
    });
    let mut used = std::collections::BTreeMap::<NodeId, usize>::new();
    let mut seats = Vec::new();
    for (number, (node, cpu)) in in_turn.take(threads).enumerate() {
        let memory = match arrangement {
            Arrangement::Remote => sites.other_column(node),
            _ => sites.own_column(node),
        };
        let next = used.entry(memory).or_default();
        let index = if arrangement == Arrangement::Interleaved {
            number
        } else {
            *next
        };
        *next += 1;
        seats.push((node, cpu, memory, index));
    }
    seats
}

/// The loop for an operation that is good nearly everywhere, where there is no time to try all.
pub(crate) fn usual(operation: Operation) -> Option<StreamKernel> {
    [Isa::Avx2, Isa::Sse2, Isa::Neon, Isa::Scalar]
        .into_iter()
        .find_map(|isa| StreamKernel::find(operation, isa))
}

/// A cell of a team on a pair of nodes.
pub(crate) fn team_cell(
    test: Test,
    kernel: StreamKernel,
    (from, to): (NodeSet, NodeSet),
    threads: usize,
    size: Bytes,
) -> Cell {
    Cell {
        test,
        metric: Metric::UsefulBandwidth,
        arrangement: if to.len() == 1 {
            Arrangement::Pair
        } else {
            Arrangement::Interleaved
        },
        from,
        to,
        threads,
        kernel: kernel.name(),
        pages: Pages::Base,
        size,
        at: None,
        bus_factor: Some(bus_factor(kernel.operation)),
        outcome: Outcome::absent("it was not measured"),
    }
}

/// Bus bytes for each useful byte.
pub(crate) fn bus_factor(operation: Operation) -> (f64, f64) {
    let (loads, stores) = operation.useful();
    let (least, most) = operation.bus();
    let useful = f64::from(loads + stores);
    (f64::from(least) / useful, f64::from(most) / useful)
}

#[cfg(test)]
#[path = "bandwidth_tests.rs"]
mod tests;
