use homenode_units::{Bytes, Reading};
use serde::{Deserialize, Serialize};

use crate::ParseError;

/// What the memory of a node is used for.
///
/// Unit: bytes. Shape: one per node. Source: `/sys/devices/system/node/node<n>/meminfo`, by the
/// name given with each field; see `proc_meminfo(5)`. The parts overlap and leave gaps (memory of
/// drivers, for one, is in none), so they need not add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Memory the kernel manages here: `MemTotal`.
    pub total: Bytes,
    /// Memory in nobody's use: `MemFree`.
    pub free: Bytes,
    /// Memory of programs that no file backs, huge or not: `AnonPages`.
    pub anonymous: Reading<Bytes>,
    /// Of it, in transparent huge pages: `AnonHugePages`.
    pub anonymous_huge: Reading<Bytes>,
    /// File contents kept in memory, shared memory included: `FilePages`.
    pub page_cache: Reading<Bytes>,
    /// Of it, shared memory and tmpfs, which cannot be dropped: `Shmem`.
    pub shared: Reading<Bytes>,
    /// The kernel's own data: `Slab` + `KernelStack` + `PageTables`.
    pub kernel: Reading<Bytes>,
    /// What the kernel could take back without swapping: `Active(file)` + `Inactive(file)` +
    /// `SReclaimable`. An upper bound: pages in use at that moment stay.
    pub reclaimable: Reading<Bytes>,
}

impl MemoryUse {
    /// Memory that is not free: `MemTotal` − `MemFree`.
    #[must_use]
    pub fn used(&self) -> Bytes {
        self.total.saturating_sub(self.free)
    }

    /// Memory a program could get here, the page cache given up for it.
    ///
    /// Unit: bytes; an upper bound, as [`Self::reclaimable`].
    #[must_use]
    pub fn obtainable(&self) -> Bytes {
        let reclaimable = self.reclaimable.known().copied().unwrap_or_default();
        (self.free + reclaimable).min(self.total)
    }
}

/// Reads the text of a node's `meminfo`, or of `/proc/meminfo`, which lacks the `Node <n>`.
///
/// # Errors
///
/// [`ParseError`] when `MemTotal` or `MemFree` is missing, or an amount is no number of kB.
pub fn parse_meminfo(text: &str) -> Result<MemoryUse, ParseError> {
    let sum = |names: &[&'static str]| -> Result<Reading<Bytes>, ParseError> {
        let mut sum = Bytes(0);
        for name in names {
            match amount(text, name)? {
                Some(bytes) => sum = sum + bytes,
                None => return Ok(Reading::absent(format!("this kernel shows no {name}"))),
            }
        }
        Ok(Reading::Known(sum))
    };
    let required =
        |name, expected| amount(text, name)?.ok_or_else(|| ParseError::new(expected, text));
    // `/proc/meminfo` splits what nodes call FilePages.
    let page_cache = match sum(&["FilePages"])? {
        Reading::Known(bytes) => Reading::Known(bytes),
        absent @ Reading::Absent { .. } => match sum(&["Cached", "Buffers"])? {
            Reading::Known(bytes) => Reading::Known(bytes),
            Reading::Absent { .. } => absent,
        },
    };
    Ok(MemoryUse {
        total: required("MemTotal", "an amount, such as MemTotal: 1024 kB")?,
        free: required("MemFree", "an amount, such as MemFree: 1024 kB")?,
        anonymous: sum(&["AnonPages"])?,
        anonymous_huge: sum(&["AnonHugePages"])?,
        page_cache,
        shared: sum(&["Shmem"])?,
        kernel: sum(&["Slab", "KernelStack", "PageTables"])?,
        reclaimable: sum(&["Active(file)", "Inactive(file)", "SReclaimable"])?,
    })
}

/// The amount behind `name:`, or `None` where there is no such line.
fn amount(text: &str, name: &str) -> Result<Option<Bytes>, ParseError> {
    for line in text.lines() {
        let Some((head, value)) = line.split_once(':') else {
            continue;
        };
        if head.split_ascii_whitespace().next_back() == Some(name) {
            let expected = "an amount in kB, such as MemFree: 1024 kB";
            let number = value.trim().strip_suffix(" kB").map(str::trim);
            return match number.and_then(|number| number.parse().ok()) {
                Some(kib) => Ok(Some(Bytes::from_kib(kib))),
                None => Err(ParseError::new(expected, line)),
            };
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "\
Node 1 MemTotal:        5204188 kB
Node 1 MemFree:         4518032 kB
Node 1 MemUsed:          686156 kB
Node 1 Active(file):     148404 kB
Node 1 Inactive(file):   194404 kB
Node 1 FilePages:        351444 kB
Node 1 AnonPages:         16536 kB
Node 1 Shmem:              8724 kB
Node 1 KernelStack:        1412 kB
Node 1 PageTables:         1668 kB
Node 1 Slab:             264224 kB
Node 1 SReclaimable:     234436 kB
Node 1 HugePages_Total:     0
";

    #[test]
    fn a_node_tells_what_its_memory_is_used_for() {
        let memory = parse_meminfo(NODE).unwrap();
        assert_eq!(memory.used(), Bytes::from_kib(686_156));
        assert_eq!(memory.page_cache, Reading::Known(Bytes::from_kib(351_444)));
        assert_eq!(memory.kernel, Reading::Known(Bytes::from_kib(267_304)));
        assert_eq!(memory.reclaimable, Reading::Known(Bytes::from_kib(577_244)));
        assert_eq!(
            memory.anonymous_huge.why(),
            Some("this kernel shows no AnonHugePages")
        );
        assert_eq!(memory.obtainable(), Bytes::from_kib(4_518_032 + 577_244));
    }

    #[test]
    fn the_machine_file_is_read_too() {
        let text = "MemTotal: 100 kB\nMemFree: 40 kB\nBuffers: 1 kB\nCached: 20 kB\n";
        let memory = parse_meminfo(text).unwrap();
        assert_eq!(memory.page_cache, Reading::Known(Bytes::from_kib(21)));
    }

    #[test]
    fn texts_without_a_total_or_with_odd_amounts_are_refused() {
        parse_meminfo("").unwrap_err();
        parse_meminfo("Node 0 MemTotal: 5 kB\n").unwrap_err();
        parse_meminfo("Node 0 MemTotal: -5 kB\nNode 0 MemFree: 5 kB\n").unwrap_err();
        parse_meminfo("Node 0 MemTotal: 5 MB\nNode 0 MemFree: 5 kB\n").unwrap_err();
    }
}
