//! A machine without hardware: pages, nodes and a clock, and a kernel that moves as kernel.md, 7.1
//! says Linux does.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use homenode_host::{
    Buffer, Clock, FileError, Files, Hands, Held, HoldError, MoveError, MoveStatus, Moved,
    PageStatus, Probe, QueryError, Sharing, Snapshot,
};
use homenode_units::{Bytes, NodeId, Pid};

pub(crate) const PAGE: usize = 4096;
pub(crate) const PID: Pid = Pid(812);

/// What is special about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Never moves.
    Pinned,
    /// Does not move in the first so many tries.
    Busy(u32),
    Shared,
    Immovable,
    /// Given back by the process as soon as anything moves.
    Fleeting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FakePage {
    pub(crate) node: NodeId,
    pub(crate) kind: Kind,
    /// Must never change.
    pub(crate) content: usize,
}

/// What happens at a call of `move_pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    ProcessEnds,
    ProcessIsReplaced,
}

pub(crate) struct Fake {
    pub(crate) files: Snapshot,
    pub(crate) pages: RefCell<BTreeMap<usize, FakePage>>,
    /// Free pages of nodes 0, 1, 2, …
    pub(crate) free: RefCell<Vec<u64>>,
    /// What the node file says to be free above what is.
    pub(crate) pretended: u64,
    pub(crate) time: Cell<Duration>,
    pub(crate) page_cost: Duration,
    /// Before this call, counted from 1.
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) calls: Cell<u64>,
    pub(crate) batches: RefCell<Vec<(Duration, NodeId, usize)>>,
    /// Pages that were out of reach at once.
    pub(crate) largest_flush: Cell<usize>,
    pub(crate) alive: Cell<bool>,
    pub(crate) start_time: Cell<u64>,
}

const NODES: &str = "/sys/devices/system/node";
const TOTAL_PAGES: u64 = 1 << 20;

impl Fake {
    /// Three nodes with 1 GiB free each, and a process with so many pages on node 0.
    pub(crate) fn new(pages: usize) -> Self {
        let mut files = Snapshot::default();
        files.add_file(&format!("{NODES}/online"), "0-3\n");
        files.add_file(&format!("{NODES}/has_memory"), "0-2\n");
        files.add_file(&format!("{NODES}/node0/distance"), "10 30 20 40\n");
        let status = "Name:\tdb\nState:\tS (sleeping)\nTgid:\t812\nUid:\t5\t5\t5\t5\nThreads:\t1\n";
        let kib = pages * 4;
        files.add_file(
            "/proc/812/status",
            format!("{status}VmRSS:\t{kib} kB\nMems_allowed_list:\t0-3\nCpus_allowed_list:\t0-3\n"),
        );
        let start = 1 << 30;
        let end = start + pages.max(1) * PAGE;
        files.add_file(
            "/proc/812/maps",
            format!(
                "{start:x}-{end:x} rw-p 00000000 00:00 0 \n\
                 7f0000000000-7f0000004000 ---p 00000000 00:00 0 \n\
                 7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0          [vdso]\n"
            ),
        );
        let pages = (0..pages)
            .map(|number| {
                let page = FakePage {
                    node: NodeId(0),
                    kind: Kind::Plain,
                    content: number,
                };
                (start + number * PAGE, page)
            })
            .collect();
        Self {
            files,
            pages: RefCell::new(pages),
            free: RefCell::new(vec![1 << 18; 3]),
            pretended: 0,
            time: Cell::new(Duration::ZERO),
            page_cost: Duration::from_micros(2),
            events: BTreeMap::new(),
            calls: Cell::new(0),
            batches: RefCell::new(Vec::new()),
            largest_flush: Cell::new(0),
            alive: Cell::new(true),
            start_time: Cell::new(100),
        }
    }

    /// Makes pages special, by number.
    pub(crate) fn mark(&self, numbers: impl IntoIterator<Item = usize>, kind: Kind) {
        let mut pages = self.pages.borrow_mut();
        let addresses: Vec<usize> = pages.keys().copied().collect();
        for number in numbers {
            pages.get_mut(&addresses[number]).unwrap().kind = kind;
        }
    }

    pub(crate) fn count_on(&self, node: u32) -> usize {
        let pages = self.pages.borrow();
        pages.values().filter(|page| page.node.0 == node).count()
    }

    /// Whether each page has what was written into it.
    pub(crate) fn is_intact(&self) -> bool {
        let pages = self.pages.borrow();
        !pages.is_empty() && pages.values().map(|page| page.content).is_sorted()
    }

    fn index(node: NodeId) -> usize {
        usize::try_from(node.0).unwrap()
    }

    /// Moves the collected pages; returns how many stayed, or that the node is full.
    fn flush(&self, collected: &mut Vec<usize>, target: NodeId) -> Result<usize, ()> {
        self.largest_flush
            .set(self.largest_flush.get().max(collected.len()));
        let mut stayed = 0;
        for address in collected.drain(..) {
            let mut pages = self.pages.borrow_mut();
            let page = pages.get_mut(&address).unwrap();
            match &mut page.kind {
                Kind::Pinned => stayed += 1,
                Kind::Busy(left) if *left > 0 => {
                    *left -= 1;
                    stayed += 1;
                }
                _ => {
                    let mut free = self.free.borrow_mut();
                    if free[Self::index(target)] == 0 {
                        return Err(());
                    }
                    free[Self::index(target)] -= 1;
                    free[Self::index(page.node)] += 1;
                    page.node = target;
                }
            }
        }
        Ok(stayed)
    }
}

impl Files for Fake {
    fn read_head<'buffer>(
        &self,
        path: &str,
        limit_bytes: usize,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        let mut now = self.files.clone();
        let zeros = "0 ".repeat(18);
        let start_time = self.start_time.get();
        if self.alive.get() {
            now.add_file(
                "/proc/812/stat",
                format!("812 (db) S {zeros}{start_time} 0"),
            );
        } else {
            now.remove("/proc/812");
        }
        for (node, free) in self.free.borrow().iter().enumerate() {
            let total = TOTAL_PAGES * 4;
            let free = (free + self.pretended) * 4;
            now.add_file(
                &format!("{NODES}/node{node}/meminfo"),
                format!("Node {node} MemTotal: {total} kB\nNode {node} MemFree: {free} kB\n"),
            );
        }
        now.read_head(path, limit_bytes, buffer)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        self.files.list(directory)
    }

    fn is_folder(&self, path: &str) -> bool {
        self.files.is_folder(path)
    }

    fn link(&self, path: &str) -> Result<String, FileError> {
        self.files.link(path)
    }
}

impl Probe for Fake {
    fn page_size(&self) -> Bytes {
        Bytes(4096)
    }

    fn page_nodes(
        &self,
        pid: Pid,
        addresses: &[usize],
        statuses: &mut [PageStatus],
    ) -> Result<(), QueryError> {
        assert_eq!(pid, PID);
        if !self.alive.get() {
            return Err(QueryError::Gone);
        }
        let pages = self.pages.borrow();
        for (address, status) in addresses.iter().zip(statuses) {
            *status = pages.get(address).map_or(PageStatus::NotResident, |page| {
                PageStatus::OnNode(page.node)
            });
        }
        Ok(())
    }
}

impl Clock for Fake {
    fn now(&self) -> Duration {
        self.time.get()
    }

    fn since_epoch(&self) -> Duration {
        self.time.get()
    }

    fn sleep(&self, time: Duration) {
        self.time.set(self.time.get() + time);
    }
}

impl Hands for Fake {
    fn hold(&self, pid: Pid) -> Result<Box<dyn Held + '_>, HoldError> {
        if pid == PID && self.alive.get() {
            Ok(Box::new(FakeHeld(self)))
        } else {
            Err(HoldError::Gone { pid })
        }
    }
}

struct FakeHeld<'a>(&'a Fake);

impl Held for FakeHeld<'_> {
    fn is_alive(&self) -> bool {
        self.0.alive.get()
    }

    fn move_pages(
        &self,
        addresses: &[usize],
        target: NodeId,
        sharing: Sharing,
        statuses: &mut [MoveStatus],
    ) -> Result<Moved, MoveError> {
        let fake = self.0;
        fake.calls.set(fake.calls.get() + 1);
        match fake.events.get(&fake.calls.get()) {
            Some(Event::ProcessEnds) => fake.alive.set(false),
            // Seen before the next call: the handle of a real machine would see it, too.
            Some(Event::ProcessIsReplaced) => fake.start_time.set(200),
            None => {}
        }
        if !fake.alive.get() {
            return Err(MoveError::Gone);
        }
        assert_eq!(statuses.len(), addresses.len());
        let now = fake.time.get();
        fake.batches
            .borrow_mut()
            .push((now, target, addresses.len()));
        let pages_cost = fake.page_cost * u32::try_from(addresses.len()).unwrap();
        fake.time.set(now + pages_cost);
        statuses.fill(MoveStatus::Unwritten);
        fake.pages
            .borrow_mut()
            .retain(|_, page| page.kind != Kind::Fleeting);

        let mut collected = Vec::new();
        let mut first = 0;
        for index in 0..=addresses.len() {
            let page = addresses
                .get(index)
                .map(|address| fake.pages.borrow().get(address).copied());
            let status = match page {
                None => None,
                Some(None) => Some(MoveStatus::NotResident),
                Some(Some(page)) => match page.kind {
                    _ if page.node == target => Some(MoveStatus::OnNode(target)),
                    Kind::Immovable => Some(MoveStatus::NotMovable),
                    Kind::Shared if sharing == Sharing::Leave => Some(MoveStatus::Shared),
                    _ => {
                        collected.push(addresses[index]);
                        continue;
                    }
                },
            };
            if let Some(status) = status {
                statuses[index] = status;
            }
            match fake.flush(&mut collected, target) {
                Err(()) => return Err(MoveError::TargetFull { target }),
                Ok(0) => {}
                Ok(stayed) => {
                    let not_moved = stayed + addresses.len() - index;
                    return Ok(Moved::Stopped { not_moved });
                }
            }
            for status in &mut statuses[first..index] {
                if *status == MoveStatus::Unwritten {
                    *status = MoveStatus::OnNode(target);
                }
            }
            first = index + 1;
        }
        Ok(Moved::Complete)
    }
}
