//! Carries a plan out, one system call per step.

use std::collections::VecDeque;
use std::time::Duration;

use homenode_host::{Held, HoldError, MoveError, MoveStatus, Moved, PageStatus, QueryError};
use homenode_units::{Bytes, NodeId, NodeSet};

use crate::identity::read_start_time;
use crate::pace::Pace;
use crate::pages::{Page, Walk, batch_length, widen};
use crate::targets::Targets;
use crate::{ActError, Ended, LeftReason, Machine, PaceOptions, Plan, Tally};

/// Moves the memory of a process, step by step.
pub struct Mover<'a, M: ?Sized> {
    machine: &'a M,
    plan: &'a Plan,
    to: NodeSet,
    base_bytes: usize,
    held: Box<dyn Held + 'a>,
    walk: Walk,
    /// On a source node, to be tried next.
    queue: VecDeque<Page>,
    /// Tried in vain, to be tried again after all others.
    again: VecDeque<Page>,
    pace: Pace,
    targets: Targets,
    tally: Tally,
    /// No target has room: what is left is only counted.
    full: bool,
    /// Whether calls are cut into pieces.
    in_pieces: bool,
}

/// What a step did, or what should be done before the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A window of addresses was looked at.
    Walked,
    /// A call was made.
    Called {
        /// What it was to move. Unit: bytes.
        batch: Bytes,
        /// How long it took.
        took: Duration,
        /// How long to wait before the next step.
        gap: Duration,
    },
    /// Only busy pages are left: wait for so long, then they are tried again.
    Wait(Duration),
    /// There is nothing more to do.
    Ended(Ended),
}

/// A page is tried so often; each try is ten of the kernel's (`NR_MAX_MIGRATE_PAGES_RETRY`,
/// mm/migrate.c, Linux 6.12).
const TRIES_MAX: u8 = 3;

/// Time for I/O and pipes to let go of their pages.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// More busy pages than these are not tried again: 4 GiB of pinned memory will not come free, and
/// the list has an end.
const AGAIN_MAX: usize = 1 << 20;

impl<'a, M: Machine + ?Sized> Mover<'a, M> {
    /// Takes hold of the process that the plan was made for.
    ///
    /// # Errors
    ///
    /// [`ActError::Hold`] when there is none, [`ActError::Replaced`] when it is another one.
    pub fn new(machine: &'a M, plan: &'a Plan, pace: PaceOptions) -> Result<Self, ActError> {
        let held = machine.hold(plan.pid).map_err(ActError::Hold)?;
        let mover = Self {
            machine,
            plan,
            to: plan.to(),
            base_bytes: usize::try_from(plan.page_size.0).unwrap_or(4096),
            held,
            walk: Walk::new(plan.ranges.clone()),
            queue: VecDeque::new(),
            again: VecDeque::new(),
            pace: Pace::new(pace, plan.page_size),
            targets: Targets::new(plan.targets.clone(), plan.spread, plan.nearest.clone()),
            tally: Tally::default(),
            full: false,
            in_pieces: true,
        };
        match mover.is_same_process()? {
            true => Ok(mover),
            false => Err(ActError::Hold(HoldError::Gone { pid: plan.pid })),
        }
    }

    /// What happened so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Addresses looked at so far. Unit: bytes.
    pub fn walked(&self) -> Bytes {
        self.walk.walked()
    }

    /// Does the next thing.
    ///
    /// # Errors
    ///
    /// [`ActError`], when the kernel refuses, or the process is another one. The process is intact.
    pub fn step(&mut self) -> Result<Step, ActError> {
        if !self.is_same_process()? {
            return Ok(Step::Ended(Ended::ProcessEnded));
        }
        match self.next_step() {
            Err(
                ActError::Query {
                    source: QueryError::Gone | QueryError::NoMemory,
                    ..
                }
                | ActError::Move {
                    source: MoveError::Gone | MoveError::NoMemory,
                    ..
                },
            ) => Ok(Step::Ended(Ended::ProcessEnded)),
            other => other,
        }
    }

    fn next_step(&mut self) -> Result<Step, ActError> {
        let wanted = self.pace.batch();
        let queued: Bytes = self.queue.iter().map(|page| widen(page.bytes)).sum();
        if self.full {
            self.count_queue();
        }
        // More than one batch is kept, so that batches can end where blocks do.
        if (self.full || queued.0 < wanted.0.saturating_mul(2))
            && let Some((page_bytes, addresses)) = self.walk.next_window()
        {
            self.look_at(page_bytes, &addresses)?;
            return Ok(Step::Walked);
        }
        if !self.queue.is_empty() {
            return self.move_batch();
        }
        if self.again.is_empty() {
            return Ok(Step::Ended(self.ended()));
        }
        std::mem::swap(&mut self.queue, &mut self.again);
        if self.full {
            return Ok(Step::Walked);
        }
        Ok(Step::Wait(RETRY_PAUSE))
    }

    fn ended(&self) -> Ended {
        if self.full {
            Ended::TargetsFull {
                targets: self.to.clone(),
            }
        } else {
            Ended::Done
        }
    }

    /// Whether the process of the plan still runs.
    fn is_same_process(&self) -> Result<bool, ActError> {
        let pid = self.plan.pid;
        // In this order: while the handle says alive, the number is its own.
        let now = read_start_time(self.machine, pid);
        if !self.held.is_alive() {
            return Ok(false);
        }
        match now {
            Ok(now) if now == self.plan.start_time => Ok(true),
            Ok(_) => Err(ActError::Replaced { pid }),
            Err(error) if error.is_process_gone() => Ok(false),
            // /proc may be hidden from this user; the handle is proof enough.
            Err(_) => Ok(true),
        }
    }

    fn query(&self, addresses: &[usize]) -> Result<Vec<PageStatus>, ActError> {
        let mut statuses = vec![PageStatus::NotResident; addresses.len()];
        self.machine
            .page_nodes(self.plan.pid, addresses, &mut statuses)
            .map_err(|source| ActError::Query {
                pid: self.plan.pid,
                source,
            })?;
        Ok(statuses)
    }

    /// Queues the pages of a window that are on a source node.
    fn look_at(&mut self, page_bytes: usize, addresses: &[usize]) -> Result<(), ActError> {
        let statuses = self.query(addresses)?;
        for (&address, status) in addresses.iter().zip(statuses) {
            let PageStatus::OnNode(node) = status else {
                continue;
            };
            let size = widen(page_bytes);
            if self.plan.from.contains(node) {
                self.queue.push_back(Page {
                    address,
                    bytes: page_bytes,
                    source: node,
                    tries: 0,
                });
            } else if self.to.contains(node) {
                self.tally.already_there = self.tally.already_there + size;
            } else {
                self.tally.elsewhere = self.tally.elsewhere + size;
            }
        }
        Ok(())
    }

    /// The targets are full: what waits is counted as left.
    fn count_queue(&mut self) {
        for page in self.queue.drain(..) {
            self.tally.leave(LeftReason::NoRoom, widen(page.bytes));
        }
    }

    fn move_batch(&mut self) -> Result<Step, ActError> {
        let length = batch_length(&self.queue, self.pace.batch(), self.targets.one_source());
        let mut batch: Vec<Page> = self.queue.drain(..length).collect();
        let first = batch[0];
        let size: Bytes = batch.iter().map(|page| widen(page.bytes)).sum();
        let target = self.targets.choose(
            self.machine,
            first.source,
            size,
            first.bytes,
            self.base_bytes,
        );
        let Some(target) = target else {
            self.no_room(batch, first.bytes);
            return Ok(Step::Walked);
        };
        let call = Call::new(&batch, self.in_pieces && first.bytes == self.base_bytes);
        let mut statuses = vec![MoveStatus::Unwritten; call.addresses.len()];
        let start = self.machine.now();
        let result =
            self.held
                .move_pages(&call.addresses, target, self.plan.sharing, &mut statuses);
        let took = self.machine.now().saturating_sub(start);
        self.tally.calls += 1;
        self.tally.longest_call = self.tally.longest_call.max(took);
        let result = match result {
            Ok(moved) => Ok(moved),
            Err(MoveError::TargetFull { .. }) => {
                self.targets.is_full(target, first.bytes);
                Err(())
            }
            Err(source) => {
                return Err(ActError::Move {
                    pid: self.plan.pid,
                    source,
                });
            }
        };
        let addresses: Vec<usize> = batch.iter().map(|page| page.address).collect();
        let after = self.query(&addresses)?;
        let tried = call.tried(result, &statuses, &after, target);
        let mut moved = Bytes(0);
        let mut untried = Vec::new();
        for (index, page) in batch.drain(..).enumerate() {
            if after[index] == PageStatus::OnNode(target) {
                moved = moved + widen(page.bytes);
            } else if call.places[index] < tried {
                self.settle(page, statuses[call.places[index]], after[index]);
            } else {
                untried.push(page);
            }
        }
        for page in untried.into_iter().rev() {
            self.queue.push_front(page);
        }
        self.tally.moved = self.tally.moved + moved;
        self.targets.gave(target, moved);
        // Pinned memory would end each call at its first piece: then all is tried at once.
        self.in_pieces = moved > Bytes(0);
        let gap = self.pace.record(size, took, call.pieces());
        Ok(Step::Called {
            batch: size,
            took,
            gap,
        })
    }

    /// No target has room for these pages.
    fn no_room(&mut self, batch: Vec<Page>, page_bytes: usize) {
        for page in batch {
            self.tally.leave(LeftReason::NoRoom, widen(page.bytes));
        }
        // Huge pages have memory of their own: without it, others can move still.
        if page_bytes == self.base_bytes {
            self.full = true;
        }
    }

    /// What becomes of a page that was tried and is not on the target.
    fn settle(&mut self, mut page: Page, status: MoveStatus, after: PageStatus) {
        let size = widen(page.bytes);
        match (after, status) {
            (PageStatus::NotResident | PageStatus::NotMapped, _) => {
                self.tally.vanished = self.tally.vanished + size;
            }
            // Somebody else moved it meanwhile.
            (PageStatus::OnNode(node), _) if self.to.contains(node) => {
                self.tally.already_there = self.tally.already_there + size;
            }
            (PageStatus::OnNode(node), _) if !self.plan.from.contains(node) => {
                self.tally.elsewhere = self.tally.elsewhere + size;
            }
            (_, MoveStatus::Shared) => self.tally.leave(LeftReason::Shared, size),
            (PageStatus::Other(_), _) | (_, MoveStatus::NotMovable) => {
                self.tally.leave(LeftReason::NotMovable, size);
            }
            (PageStatus::OnNode(_), _) => {
                page.tries += 1;
                if page.tries < TRIES_MAX && self.again.len() < AGAIN_MAX {
                    self.again.push_back(page);
                } else {
                    self.tally.leave(LeftReason::Busy, size);
                }
            }
        }
    }
}

/// Pages that the kernel moves at once. They are out of reach together while it copies them all, so
/// this and not the length of the call is what the process waits for. On shape 2n-move a touch of
/// 300 MiB waits 0.31 to 0.37 ms at worst and under migratepages, whose pieces are 512 pages, 1.1 to
/// 1.3 ms (`cargo xtask bench migrate`, Linux 6.12). With pieces of 8 pages the worst is 0.31 ms: what
/// is left is not theirs.
const PIECE_PAGES: usize = 32;

/// An address where no process has memory (`vm.mmap_min_addr`). The kernel writes `EFAULT` as its
/// status, and moves what it has collected before it goes on (`do_pages_move()`, mm/migrate.c,
/// Linux 6.12). So it cuts a call into pieces, whose fixed cost is still paid once.
const CUT: usize = 0;

/// The addresses of one call.
#[derive(Debug)]
struct Call {
    addresses: Vec<usize>,
    /// Where in them each page of the batch is.
    places: Vec<usize>,
}

impl Call {
    fn new(batch: &[Page], in_pieces: bool) -> Self {
        let mut call = Self {
            addresses: Vec::with_capacity(batch.len() + batch.len() / PIECE_PAGES),
            places: Vec::with_capacity(batch.len()),
        };
        for (index, page) in batch.iter().enumerate() {
            if in_pieces && index > 0 && index.is_multiple_of(PIECE_PAGES) {
                call.addresses.push(CUT);
            }
            call.places.push(call.addresses.len());
            call.addresses.push(page.address);
        }
        call
    }

    fn pieces(&self) -> usize {
        self.addresses.len() - self.places.len() + 1
    }

    /// How many of the first addresses were tried.
    ///
    /// The kernel collects pages and moves them when one turns out to need nothing or to be
    /// impossible, whose status it then writes, and at the end. It gives up where a move leaves a
    /// page behind (kernel.md, 7.1). So when it stopped, the pages up to the last status were
    /// tried; those behind were too, if one of them moved, or if no status was written at all:
    /// then all were one move.
    fn tried(
        &self,
        result: Result<Moved, ()>,
        statuses: &[MoveStatus],
        after: &[PageStatus],
        target: NodeId,
    ) -> usize {
        let Ok(moved) = result else {
            // Full: nothing is known, and nothing is the fault of a page.
            return 0;
        };
        let written = statuses
            .iter()
            .rposition(|status| *status != MoveStatus::Unwritten);
        match (moved, written) {
            (Moved::Complete, _) | (Moved::Stopped { .. }, None) => statuses.len(),
            (Moved::Stopped { .. }, Some(last)) => {
                let moved_behind =
                    self.places.iter().zip(after).any(|(&place, status)| {
                        place > last && *status == PageStatus::OnNode(target)
                    });
                if moved_behind {
                    statuses.len()
                } else {
                    last + 1
                }
            }
        }
    }
}

impl<M: ?Sized> std::fmt::Debug for Mover<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover")
            .field("pid", &self.plan.pid)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}
