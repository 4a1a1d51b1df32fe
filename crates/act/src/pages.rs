//! The addresses of a plan, one after the other.

use homenode_units::Bytes;
use serde::Serialize;

/// Addresses of a process that may hold memory that can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryRange {
    /// First address.
    pub start: usize,
    /// First address after it.
    pub end: usize,
    /// The size of its pages: the base page, or that of explicit huge pages. Unit: bytes.
    pub page_bytes: usize,
}

impl MemoryRange {
    /// Addresses, whether there is memory or not. Unit: bytes.
    #[must_use]
    pub fn size(&self) -> Bytes {
        widen(self.end - self.start)
    }
}

/// A size in memory as an amount.
pub(crate) fn widen(bytes: usize) -> Bytes {
    Bytes(u64::try_from(bytes).expect("no supported machine has addresses above 64 bits"))
}

/// A page to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) address: usize,
    /// Its size. Unit: bytes.
    pub(crate) bytes: usize,
    /// The node it was last seen on.
    pub(crate) source: homenode_units::NodeId,
    /// How often it was tried in vain.
    pub(crate) tries: u8,
}

/// Walks ranges, window by window.
#[derive(Debug)]
pub(crate) struct Walk {
    ranges: std::vec::IntoIter<MemoryRange>,
    current: Option<MemoryRange>,
    walked: Bytes,
}

/// Pages asked about at once: 1 to 4 ms (kernel.md, 5).
const WINDOW_PAGES: usize = 4096;

impl Walk {
    pub(crate) fn new(ranges: Vec<MemoryRange>) -> Self {
        Self {
            ranges: ranges.into_iter(),
            current: None,
            walked: Bytes(0),
        }
    }

    /// Addresses walked so far. Unit: bytes.
    pub(crate) fn walked(&self) -> Bytes {
        self.walked
    }

    /// The next addresses, one for each page, and the size of these pages.
    pub(crate) fn next_window(&mut self) -> Option<(usize, Vec<usize>)> {
        let range = match self.current.take() {
            Some(range) => range,
            None => self.ranges.next()?,
        };
        let limit = WINDOW_PAGES.saturating_mul(range.page_bytes);
        let end = range.start.saturating_add(limit).min(range.end);
        if end < range.end {
            self.current = Some(MemoryRange {
                start: end,
                ..range
            });
        }
        self.walked = self.walked + widen(end - range.start);
        let addresses = (range.start..end).step_by(range.page_bytes).collect();
        Some((range.page_bytes, addresses))
    }
}

/// The size of a transparent huge page with base pages of 4 KiB. Unit: bytes.
const BLOCK_BYTES: usize = 2 << 20;

/// How many of the first pages make the next batch: of one page size and, where that matters, of
/// one source; up to `limit`, at least one.
///
/// A batch ends at the end of a block of 2 MiB where it can: were it cut in two, a transparent huge
/// page there would move with its first half, and the other half would waste the next call.
pub(crate) fn batch_length(
    pages: &std::collections::VecDeque<Page>,
    limit: Bytes,
    one_source: bool,
) -> usize {
    let Some(first) = pages.front() else {
        return 0;
    };
    let block = |page: &Page| page.address / BLOCK_BYTES;
    let mut bytes = Bytes(0);
    let mut length = 0usize;
    for page in pages {
        let fits = length == 0 || (bytes + widen(page.bytes)) <= limit;
        let alike = page.bytes == first.bytes && (!one_source || page.source == first.source);
        if !alike || !fits {
            if alike && let Some(last) = length.checked_sub(1) {
                // Back to where the block that was cut begins, unless all is one block.
                let kept = (1..=last).rfind(|&at| block(&pages[at]) != block(&pages[at - 1]));
                let cut = block(&pages[last]) == block(page);
                return kept.filter(|_| cut).unwrap_or(length);
            }
            return length;
        }
        bytes = bytes + widen(page.bytes);
        length += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use homenode_units::NodeId;

    use super::*;

    const PAGE: usize = 4096;

    fn range(start: usize, pages: usize, page_bytes: usize) -> MemoryRange {
        MemoryRange {
            start,
            end: start + pages * page_bytes,
            page_bytes,
        }
    }

    #[test]
    fn every_page_is_met_once() {
        let ranges = vec![
            range(PAGE, 3, PAGE),
            range(1 << 30, 10_000, PAGE),
            range(1 << 40, 2, 2 << 20),
        ];
        let mut walk = Walk::new(ranges.clone());
        let mut met = Vec::new();
        while let Some((page_bytes, addresses)) = walk.next_window() {
            assert!(addresses.len() <= WINDOW_PAGES);
            met.extend(addresses.into_iter().map(|address| (address, page_bytes)));
        }
        let expected: Vec<_> = ranges
            .iter()
            .flat_map(|range| {
                (range.start..range.end)
                    .step_by(range.page_bytes)
                    .map(|address| (address, range.page_bytes))
            })
            .collect();
        assert_eq!(met, expected);
        assert_eq!(walk.walked(), ranges.iter().map(MemoryRange::size).sum());
    }

    fn pages(addresses: impl Iterator<Item = usize>) -> VecDeque<Page> {
        addresses
            .map(|address| Page {
                address,
                bytes: PAGE,
                source: NodeId(0),
                tries: 0,
            })
            .collect()
    }

    const LIMIT: Bytes = Bytes(2 << 20);

    #[test]
    fn batches_end_with_a_block() {
        // The last 100 pages of a block, then full ones.
        let first = (2 << 20) - 100 * PAGE;
        let mut dense = pages((0..2000).map(|page| first + page * PAGE));
        let lengths: Vec<usize> = std::iter::from_fn(|| {
            let length = batch_length(&dense, LIMIT, false);
            dense.drain(..length);
            (length > 0).then_some(length)
        })
        .collect();
        assert_eq!(lengths, [100, 512, 512, 512, 364]);
        // One page in each block: nothing is cut.
        let sparse = pages((0..2000).map(|page| page * BLOCK_BYTES));
        assert_eq!(batch_length(&sparse, LIMIT, false), 512);
        // Within one block there is no better end.
        let block = pages((0..512).map(|page| page * PAGE));
        assert_eq!(batch_length(&block, Bytes(1 << 20), false), 256);
        assert_eq!(batch_length(&VecDeque::new(), LIMIT, false), 0);
    }

    #[test]
    fn a_batch_has_one_page_size_and_one_source() {
        let mut mixed = pages((0..10).map(|page| page * PAGE));
        mixed[4].source = NodeId(1);
        assert_eq!(batch_length(&mixed, LIMIT, false), 10);
        assert_eq!(batch_length(&mixed, LIMIT, true), 4);
        mixed[2].bytes = 1 << 30;
        assert_eq!(batch_length(&mixed, LIMIT, false), 2);
        mixed.drain(..2);
        assert_eq!(
            batch_length(&mixed, LIMIT, false),
            1,
            "larger than any batch"
        );
    }
}
