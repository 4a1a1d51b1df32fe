//! Threads that work side by side, and what they moved while all of them did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use homenode_host::{Clock, Files};
use homenode_sys::NodeMemory;
use homenode_sys::kernels::StreamKernel;
use homenode_units::{Bytes, CpuId, NodeId, NodeSet};

use crate::Pages;
use crate::memory::{Placed, Want, allocate, verify};
use crate::session::{NO_TIME, Sample, Session, Subject};
use crate::threads::{pin, preemptions};

/// Bytes of each array between two looks at the clock, which takes some 25 ns.
const STEP_BYTES: usize = 1 << 20;

/// Buffers on every node and spread over all of them, one for each thread that may use them.
#[derive(Debug)]
pub(crate) struct Pool {
    buffers: Vec<Buffer>,
    /// By node: the buffers there, or why they are missing.
    local: BTreeMap<NodeId, Vec<Result<usize, String>>>,
    spread: Vec<Result<usize, String>>,
    first_cpu: Option<CpuId>,
}

#[derive(Debug)]
struct Buffer {
    memory: Mutex<NodeMemory>,
    nodes: NodeSet,
    pages: Pages,
}

/// A CPU and the buffer that the thread there works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) cpu: CpuId,
    buffer: usize,
}

impl Pool {
    /// A pool of memory that was placed elsewhere: one buffer for each thread, with the nodes
    /// where it should be, by number of the thread.
    pub(crate) fn of(buffers: Vec<(NodeMemory, NodeSet)>) -> Self {
        let buffers = buffers.into_iter().map(|(memory, nodes)| Buffer {
            memory: Mutex::new(memory),
            nodes,
            pages: Pages::Base,
        });
        let buffers: Vec<Buffer> = buffers.collect();
        Self {
            spread: (0..buffers.len()).map(Ok).collect(),
            buffers,
            local: BTreeMap::new(),
            first_cpu: None,
        }
    }

    /// Where the pages of a buffer are.
    pub(crate) fn placement(&self, seat: Seat) -> Option<homenode_sys::PagePlacement> {
        let memory = self.buffers[seat.buffer].memory.lock();
        memory
            .unwrap_or_else(PoisonError::into_inner)
            .placement()
            .ok()
    }

    /// Places `threads` buffers on each column for each row that may use it at a time, and as many
    /// spread ones as there are threads on
    /// all rows. Each is filled by a thread of its own, or a large machine would take minutes.
    pub(crate) fn new(session: &mut Session<'_>, threads: usize, size: Bytes, want: Want) -> Self {
        let sites = session.sites.clone();
        let mut wanted: Vec<NodeSet> = Vec::new();
        for column in &sites.columns {
            let buffers = threads * sites.users_max(column.node);
            wanted.extend(vec![NodeSet::from_iter([column.node]); buffers]);
        }
        let at_once: usize = sites.rows.iter().map(|row| row.cpus.len()).sum();
        if sites.columns.len() > 1 {
            let seats: usize = sites
                .rows
                .iter()
                .map(|row| row.cpus.len().min(threads))
                .sum();
            wanted.extend(vec![sites.column_nodes(); seats]);
        }
        let mut pool = Self {
            buffers: Vec::new(),
            local: BTreeMap::new(),
            spread: Vec::new(),
            first_cpu: sites.rows.first().and_then(|row| row.cpus.first().copied()),
        };
        let files = session.files;
        let total = wanted.len();
        for (round, part) in wanted.chunks(at_once.max(1)).enumerate() {
            session.tell("placing memory", round * at_once, total);
            let over = session.is_over();
            let made: Vec<Result<Placed, String>> = std::thread::scope(|scope| {
                let threads: Vec<_> = part
                    .iter()
                    .zip(0u64..)
                    .map(|(nodes, seed)| {
                        scope.spawn(move || match over {
                            true => Err(NO_TIME.to_owned()),
                            false => allocate(files, nodes, size, want, seed),
                        })
                    })
                    .collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err("its thread failed".to_owned()))
                };
                threads.into_iter().map(join).collect()
            });
            for (nodes, made) in part.iter().zip(made) {
                pool.add(nodes, made);
            }
        }
        pool
    }

    fn add(&mut self, nodes: &NodeSet, made: Result<Placed, String>) {
        let number = made.map(|Placed { memory, pages }| {
            self.buffers.push(Buffer {
                memory: Mutex::new(memory),
                nodes: nodes.clone(),
                pages,
            });
            self.buffers.len() - 1
        });
        match (nodes.len(), nodes.lowest()) {
            (1, Some(node)) => self.local.entry(node).or_default().push(number),
            _ => self.spread.push(number),
        }
    }

    /// A thread on this CPU with the `index`-th buffer of a node.
    pub(crate) fn seat(&self, cpu: CpuId, node: NodeId, index: usize) -> Result<Seat, String> {
        let there = self.local.get(&node).map_or(&[][..], Vec::as_slice);
        pick(cpu, there, index)
    }

    /// A thread on this CPU with the `index`-th spread buffer.
    pub(crate) fn spread_seat(&self, cpu: CpuId, index: usize) -> Result<Seat, String> {
        pick(cpu, &self.spread, index)
    }

    /// A thread on the first CPU with any buffer.
    pub(crate) fn first_seat(&self) -> Option<Seat> {
        (!self.buffers.is_empty()).then_some(Seat {
            cpu: self.first_cpu?,
            buffer: 0,
        })
    }

    /// The pages of all these buffers.
    pub(crate) fn pages(&self, seats: &[Seat]) -> Pages {
        let mut kinds = seats.iter().map(|seat| self.buffers[seat.buffer].pages);
        let first = kinds.next().unwrap_or(Pages::Base);
        if kinds.all(|kind| kind == first) {
            first
        } else {
            Pages::Mixed
        }
    }
}

fn pick(cpu: CpuId, buffers: &[Result<usize, String>], index: usize) -> Result<Seat, String> {
    match buffers.get(index) {
        Some(Ok(buffer)) => Ok(Seat {
            cpu,
            buffer: *buffer,
        }),
        Some(Err(why)) => Err(why.clone()),
        None => Err("there are fewer buffers than threads".to_owned()),
    }
}

/// Threads on their seats, all running the same loop.
#[derive(Debug)]
pub(crate) struct TeamSubject<'a> {
    pool: &'a Pool,
    kernel: StreamKernel,
    seats: Vec<Seat>,
    block: Duration,
    /// Only this much of each array. Unit: bytes; a multiple of `PIECE_BYTES`.
    limit: usize,
    /// How far ahead a read with prefetches looks. Unit: bytes.
    ahead: usize,
}

/// What one thread did: when it began and after each step, and bytes of a step.
#[derive(Debug, Default)]
struct Log {
    times: Vec<Duration>,
    bytes_per_step: u64,
    disturbed: bool,
}

impl<'a> TeamSubject<'a> {
    pub(crate) fn new(pool: &'a Pool, kernel: StreamKernel, seats: Vec<Seat>) -> Self {
        Self {
            pool,
            kernel,
            seats,
            block: Duration::from_millis(10),
            limit: usize::MAX,
            ahead: 0,
        }
    }

    /// Keeps to the first bytes of each array; `limit` is a multiple of `PIECE_BYTES`.
    pub(crate) fn within(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Asks for lines this far ahead.
    pub(crate) fn ahead(self, ahead: usize) -> Self {
        Self { ahead, ..self }
    }

    /// All threads for the time of a block.
    fn run(&self, clock: &(dyn Clock + Sync), block: Duration) -> Result<Sample, String> {
        let stop = AtomicBool::new(false);
        let ready = Barrier::new(self.seats.len() + 1);
        let logs: Vec<Result<Log, String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .seats
                .iter()
                .map(|&seat| {
                    let (stop, ready) = (&stop, &ready);
                    scope.spawn(move || self.work(clock, seat, stop, ready))
                })
                .collect();
            ready.wait();
            clock.sleep(block);
            stop.store(true, Ordering::Relaxed);
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a thread failed".to_owned()))
            };
            threads.into_iter().map(join).collect()
        });
        let logs: Vec<Log> = logs.into_iter().collect::<Result<_, _>>()?;
        let value = common_rate(&logs).ok_or("the threads never worked at the same time")?;
        // On a busy machine some thread of many is always interrupted.
        let disturbed = self.seats.len() == 1 && logs.iter().any(|log| log.disturbed);
        Ok(Sample { value, disturbed })
    }

    fn work(
        &self,
        clock: &(dyn Clock + Sync),
        seat: Seat,
        stop: &AtomicBool,
        ready: &Barrier,
    ) -> Result<Log, String> {
        let pinned = pin(seat.cpu);
        let mut memory = self.pool.buffers[seat.buffer]
            .memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // All wait for all, also for one that failed.
        ready.wait();
        pinned?;
        let array = self.kernel.array_bytes(&memory).min(self.limit);
        let step = array.min(STEP_BYTES);
        let passes = (STEP_BYTES / step).max(1) as u64;
        let (loads, stores) = self.kernel.operation.useful();
        let mut log = Log {
            bytes_per_step: step as u64 * passes * u64::from(loads + stores),
            ..Log::default()
        };
        let before = preemptions();
        let mut offset = 0;
        log.times.push(clock.now());
        while !stop.load(Ordering::Relaxed) || log.times.len() < 2 {
            self.kernel
                .run(&mut memory, offset, step, passes, self.ahead);
            log.times.push(clock.now());
            offset += step;
            if offset + step > array {
                offset = 0;
            }
        }
        log.disturbed = preemptions() != before;
        Ok(log)
    }
}

/// Bytes per second while all threads worked: from when the last began to when the first ended.
///
/// A step that reaches across an end counts in proportion. `None` where there was no such time.
fn common_rate(logs: &[Log]) -> Option<f64> {
    let begin = logs.iter().filter_map(|log| log.times.first()).max()?;
    let end = logs.iter().filter_map(|log| log.times.last()).min()?;
    let window = end.checked_sub(*begin).filter(|window| !window.is_zero())?;
    let mut bytes = 0.0;
    for log in logs {
        for pair in log.times.windows(2) {
            let (from, to) = (pair[0].max(*begin), pair[1].min(*end));
            let whole = pair[1].saturating_sub(pair[0]).as_secs_f64();
            let inside = to.saturating_sub(from).as_secs_f64();
            if whole > 0.0 {
                #[expect(clippy::cast_precision_loss, reason = "some mebibytes")]
                let step = log.bytes_per_step as f64;
                bytes += step * inside / whole;
            }
        }
    }
    Some(bytes / window.as_secs_f64())
}

impl Subject for TeamSubject<'_> {
    fn calibrate(&mut self, clock: &(dyn Clock + Sync), block: Duration) -> Result<(), String> {
        // Blocks of less than this are mostly the start of threads.
        self.block = block.max(Duration::from_millis(4));
        self.run(clock, self.block / 2).map(|_| ())
    }

    fn sample(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String> {
        self.run(clock, self.block)
    }

    fn verify(&self, files: &dyn Files) -> Result<(), String> {
        self.seats.iter().try_for_each(|seat| {
            let buffer = &self.pool.buffers[seat.buffer];
            let memory = buffer.memory.lock().unwrap_or_else(PoisonError::into_inner);
            verify(files, &memory, &buffer.nodes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(bytes_per_step: u64, milliseconds: &[u64]) -> Log {
        Log {
            times: milliseconds
                .iter()
                .map(|&ms| Duration::from_millis(ms))
                .collect(),
            bytes_per_step,
            disturbed: false,
        }
    }

    fn rate(logs: &[Log]) -> f64 {
        common_rate(logs).unwrap()
    }

    /// Two threads of 100 bytes a millisecond; where only one runs does not count.
    #[test]
    fn only_the_time_in_which_all_ran_counts() {
        let alone = log(100, &[0, 1, 2, 3, 4]);
        assert!((rate(&[alone]) - 100e3).abs() < 1e-6);
        let late = [log(100, &[0, 1, 2, 3, 4]), log(100, &[2, 3, 4, 5, 6])];
        assert!((rate(&late) - 200e3).abs() < 1e-6);
    }

    #[test]
    fn a_step_across_an_end_counts_in_proportion() {
        // The second runs from 1 to 3; the first does 100 bytes in each 2 ms.
        let logs = [log(100, &[0, 2, 4]), log(10, &[1, 2, 3])];
        assert!((rate(&logs) - (100.0 + 20.0) / 2e-3).abs() < 1e-6);
    }

    #[test]
    fn threads_that_never_met_have_no_rate() {
        assert_eq!(common_rate(&[log(1, &[0, 1]), log(1, &[1, 2])]), None);
        assert_eq!(common_rate(&[log(1, &[0, 1]), log(1, &[5, 6])]), None);
        assert_eq!(common_rate(&[]), None);
    }
}
