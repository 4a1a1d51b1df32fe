//! Memory on chosen nodes, and the proof that it lies there.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use homenode_units::{Bytes, NodeId, NodeSet, Pid};

use crate::{
    BindError, BindFlags, PageStatus, Policy, PolicyMode, QueryError, mbind, page_nodes, page_size,
};

/// A transparent huge page on x86-64, and on aarch64 with base pages of 4 KiB. The kernel makes
/// one only where a whole aligned piece of this size is mapped.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Pages asked about in one go.
const PAGES_PER_QUERY: usize = 4096;

/// The size of the pages that memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Base pages, even where the machine prefers huge ones.
    Base,
    /// Transparent huge pages where the kernel finds them; base pages elsewhere.
    Thp,
    /// Pages of this size from the pool that the operator set aside (`nr_hugepages`).
    Hugetlb(Bytes),
}

/// Why there is no such memory.
#[derive(Debug, thiserror::Error)]
pub enum NodeMemoryError {
    /// No bytes, more than an address can tell, or a huge page size that is no power of two.
    #[error("expected a size from 1 byte up and a page size that is a power of two")]
    Size,
    /// `ENOMEM`: not that much memory, or too few free huge pages of that size.
    #[error("{size} cannot be mapped: no memory, or too few free huge pages")]
    NoMemory {
        /// How much was asked for.
        size: Bytes,
    },
    /// The kernel refused to map it.
    #[error("{size} cannot be mapped")]
    Map {
        /// How much was asked for.
        size: Bytes,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel refused the nodes.
    #[error("cannot bind memory to nodes {nodes}")]
    Bind {
        /// The nodes.
        nodes: NodeSet,
        /// Why.
        source: BindError,
    },
    /// This kernel has no transparent huge pages.
    #[error("this kernel has no transparent huge pages")]
    NoThp,
    /// The memory could not be filled: the nodes have none left, or no free huge pages.
    #[error("the nodes have no memory left, or no free huge pages")]
    Fill(#[source] io::Error),
}

/// Where the pages of a [`NodeMemory`] are.
///
/// Unit: base pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagePlacement {
    /// On each node that has any.
    pub pages: BTreeMap<NodeId, u64>,
    /// Pages that are on no node: nobody touched them.
    pub absent: u64,
}

impl PagePlacement {
    /// The share of the pages that are on these nodes, from 0 to 1; 0 when there are none at all.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share, not an amount")]
    pub fn share_on(&self, nodes: &NodeSet) -> f64 {
        let there: u64 = nodes.iter().filter_map(|node| self.pages.get(&node)).sum();
        let all: u64 = self.pages.values().sum::<u64>() + self.absent;
        if all == 0 {
            0.0
        } else {
            there as f64 / all as f64
        }
    }

    /// Whether every page is there and on this node.
    #[must_use]
    pub fn is_all_on(&self, node: NodeId) -> bool {
        self.absent == 0 && self.pages.len() == 1 && self.pages.contains_key(&node)
    }
}

/// Private memory with a policy; given back when dropped.
///
/// It holds zeros until written to. [`PageKind::Hugetlb`] is filled from the start, because a
/// missing huge page would otherwise end the program (`SIGBUS`) at the first touch.
#[derive(Debug)]
pub struct NodeMemory {
    mapping: Mapping,
    /// Where the part begins that is ours to show; a multiple of the page size.
    start: NonNull<u8>,
    length: usize,
}

/// What mmap(2) gave; unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and length are those that mmap returned, nothing unmapped it since, and
        // no reference into it outlives its owner, which is being dropped.
        let result = unsafe { libc::munmap(self.start.as_ptr(), self.length) };
        debug_assert_eq!(result, 0, "a whole mapping can be unmapped");
    }
}

// SAFETY: the memory is private, belongs to this value alone and has no tie to a thread; access
// goes through `&self` (read) and `&mut self` (write) as for a boxed slice.
unsafe impl Send for NodeMemory {}
// SAFETY: as above: shared access only reads.
unsafe impl Sync for NodeMemory {}

impl NodeMemory {
    /// Memory on one node and no other.
    ///
    /// When the node is full, the kernel kills a program that touches it: check first.
    ///
    /// # Errors
    ///
    /// As [`Self::with_policy`].
    pub fn new(size: Bytes, node: NodeId, pages: PageKind) -> Result<Self, NodeMemoryError> {
        let policy = Policy::new(PolicyMode::Bind, NodeSet::from_iter([node]));
        Self::with_policy(size, &policy, pages)
    }

    /// Memory with any policy. The size is rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// [`NodeMemoryError`]: `Size` for a size that cannot be, `NoMemory` and `Map` from mmap(2),
    /// `Bind` from mbind(2), `NoThp` from madvise(2), `Fill` when huge pages of a pool are missing.
    pub fn with_policy(
        size: Bytes,
        policy: &Policy,
        pages: PageKind,
    ) -> Result<Self, NodeMemoryError> {
        let (unit, map_flags) = match pages {
            PageKind::Base => (as_usize(page_size())?, 0),
            PageKind::Thp => (HUGE_PAGE_BYTES, 0),
            PageKind::Hugetlb(page) => (as_usize(page)?, hugetlb_flags(page)?),
        };
        let length = as_usize(size)?
            .checked_next_multiple_of(unit)
            .filter(|&length| length > 0)
            .ok_or(NodeMemoryError::Size)?;
        // Room to begin at a multiple of the page size; hugetlb mappings begin at one anyway.
        let surplus = if pages == PageKind::Thp { unit } else { 0 };
        let mapping = map(length, surplus, map_flags)?;
        let skipped =
            mapping.start.addr().get().next_multiple_of(unit) - mapping.start.addr().get();
        let address = mapping.start.addr().get() + skipped;
        let start = mapping
            .start
            .cast::<u8>()
            .map_addr(|address| address.saturating_add(skipped));
        // New memory has the default policy anyway, and where a filter refuses the call it is the
        // only one to be had.
        if *policy != Policy::default() {
            mbind(address, length, policy, BindFlags::default()).map_err(|source| {
                NodeMemoryError::Bind {
                    nodes: policy.nodes.clone(),
                    source,
                }
            })?;
        }
        let mut memory = Self {
            mapping,
            start,
            length,
        };
        match pages {
            PageKind::Base => match memory.advise(libc::MADV_NOHUGEPAGE) {
                // A kernel without transparent huge pages gives base pages anyway.
                Ok(()) | Err(libc::EINVAL) => {}
                Err(errno) => return Err(memory.cannot_map(errno)),
            },
            PageKind::Thp => match memory.advise(libc::MADV_HUGEPAGE) {
                Ok(()) => {}
                Err(libc::EINVAL) => return Err(NodeMemoryError::NoThp),
                Err(errno) => return Err(memory.cannot_map(errno)),
            },
            PageKind::Hugetlb(_) => memory
                .advise(libc::MADV_POPULATE_WRITE)
                .map_err(|errno| NodeMemoryError::Fill(io::Error::from_raw_os_error(errno)))?,
        }
        Ok(memory)
    }

    /// Makes every page exist, where the policy wants it, and keeps what it holds.
    ///
    /// # Errors
    ///
    /// [`NodeMemoryError::Fill`] when there is no memory for it. A strict policy on a full node
    /// may end the program instead, as any touch of it would.
    pub fn touch(&mut self) -> Result<(), NodeMemoryError> {
        match self.advise(libc::MADV_POPULATE_WRITE) {
            Ok(()) => Ok(()),
            // Kernels before 5.14 do not know it.
            Err(libc::EINVAL) => {
                let step = as_usize(page_size())?;
                for byte in self.as_mut_slice().iter_mut().step_by(step) {
                    *byte = std::hint::black_box(*byte);
                }
                Ok(())
            }
            Err(errno) => Err(NodeMemoryError::Fill(io::Error::from_raw_os_error(errno))),
        }
    }

    /// Where the pages are, asked of the kernel for each base page.
    ///
    /// Cost: 0.03 to 0.4 µs for each page.
    /// Linux 6.1 counts pages as absent that AutoNUMA has marked a moment ago (seen in a guest,
    /// 6.1.176); it marks none of memory with a policy of its own, as [`Self::new`] makes it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when `move_pages(2)` cannot be used here.
    ///
    /// # Panics
    ///
    /// Never: a page size fits an address.
    pub fn placement(&self) -> Result<PagePlacement, QueryError> {
        let step = usize::try_from(page_size().0).expect("a page is smaller than memory");
        let myself = Pid(std::process::id());
        let first = self.start.addr().get();
        let addresses: Vec<usize> = (first..first + self.length).step_by(step).collect();
        let mut statuses = vec![PageStatus::NotResident; PAGES_PER_QUERY];
        let mut found = PagePlacement::default();
        for chunk in addresses.chunks(PAGES_PER_QUERY) {
            let statuses = &mut statuses[..chunk.len()];
            page_nodes(myself, chunk, statuses)?;
            for status in statuses {
                match *status {
                    PageStatus::OnNode(node) => *found.pages.entry(node).or_default() += 1,
                    _ => found.absent += 1,
                }
            }
        }
        Ok(found)
    }

    /// The memory.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` is not null and begins `length` mapped, readable bytes, which the kernel
        // filled with zeros, so that they are initialized; they stay mapped while `self` lives, and
        // `&self` keeps writers out. The length was checked to fit `isize` by mmap.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// The memory, to write to.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_slice`; the mapping is writable, and `&mut self` keeps all others out.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// The memory as words that several threads may change at a time.
    #[must_use]
    pub fn as_atomics(&mut self) -> &[AtomicU64] {
        let words = self.length / size_of::<AtomicU64>();
        // SAFETY: `start` is that of a page, so aligned; the words lie within the mapping, are
        // initialized (any bytes are a number) and stay mapped while borrowed; `&mut self` keeps
        // out all access that is not atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), words) }
    }

    /// One call of madvise(2); the error is its number.
    fn advise(&mut self, advice: c_int) -> Result<(), i32> {
        loop {
            // SAFETY: the range lies within our own mapping, and the advices used here (huge pages
            // or not, fill) do not change what the memory holds.
            let result = unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, advice) };
            match result {
                0 => return Ok(()),
                _ if crate::syscall::last_errno() == libc::EINTR => {}
                _ => return Err(crate::syscall::last_errno()),
            }
        }
    }

    fn cannot_map(&self, errno: i32) -> NodeMemoryError {
        NodeMemoryError::Map {
            size: Bytes(self.mapping.length as u64),
            source: io::Error::from_raw_os_error(errno),
        }
    }
}

fn as_usize(size: Bytes) -> Result<usize, NodeMemoryError> {
    usize::try_from(size.0)
        .ok()
        .filter(|&bytes| bytes > 0)
        .ok_or(NodeMemoryError::Size)
}

/// The size of a huge page travels as its logarithm (`MAP_HUGE_SHIFT`, mmap(2)).
fn hugetlb_flags(page: Bytes) -> Result<c_int, NodeMemoryError> {
    const SHIFT: u32 = 26;
    const LOGARITHM_MAX: u32 = 0x1F;
    if !page.0.is_power_of_two() || page.0.ilog2() > LOGARITHM_MAX {
        return Err(NodeMemoryError::Size);
    }
    // Above 2 GiB the shifted number reaches the sign bit, as it does in C.
    Ok(libc::MAP_HUGETLB | (page.0.ilog2() << SHIFT).cast_signed())
}

fn map(length: usize, surplus: usize, flags: c_int) -> Result<Mapping, NodeMemoryError> {
    let size = Bytes(length as u64);
    let length = length.checked_add(surplus).ok_or(NodeMemoryError::Size)?;
    // SAFETY: no address is asked for and no file is involved, so that the kernel picks room that
    // nothing else uses.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(match crate::syscall::last_errno() {
            libc::ENOMEM => NodeMemoryError::NoMemory { size },
            errno => NodeMemoryError::Map {
                size,
                source: io::Error::from_raw_os_error(errno),
            },
        });
    }
    let start = NonNull::new(start).expect("the kernel maps nothing at address 0 unasked");
    Ok(Mapping { start, length })
}

#[cfg(test)]
#[path = "node_memory_tests.rs"]
mod tests;
