//! The sampler; its theory stands in the documentation of the crate.

use std::collections::BTreeMap;

use homenode_host::{Buffer, FileError, Files, PageStatus, Probe, QueryError};
use homenode_units::{NodeId, NodeSet, Pid};
use serde::Serialize;

use crate::{Mapping, ParseError, Random, parse_maps};

/// Where a process's memory lies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Locality {
    /// How it was found.
    pub method: Method,
    /// One per node asked for, and per further node that was met; by id.
    pub nodes: Vec<NodeShare>,
}

/// How a [`Locality`] was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Method {
    /// There is only one node, so nothing was asked.
    OnlyNode,
    /// Every mapped page was asked for.
    AllPages {
        /// Resident pages found.
        pages: u32,
    },
    /// Random pages were asked for.
    Sampled {
        /// Draws that hit a resident page; what the bound is made of.
        samples: u32,
        /// All draws; `samples / draws` is how full the mappings are.
        draws: u32,
    },
}

/// The part of a process's resident memory that lies on a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeShare {
    /// The node.
    pub node: NodeId,
    /// Unit: none, 0 to 1.
    pub share: f64,
    /// Lower end of the 95 % interval. Unit: none, 0 to 1.
    pub low: f64,
    /// Upper end of the 95 % interval. Unit: none, 0 to 1.
    pub high: f64,
}

impl NodeShare {
    /// How far the true share may be from [`Self::share`], in 95 of 100 cases.
    #[must_use]
    pub fn bound(&self) -> f64 {
        (self.share - self.low).max(self.high - self.share)
    }
}

impl Locality {
    /// The widest bound of any node. Unit: none, 0 to 1; 0 where nothing was left to chance.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.nodes.iter().map(NodeShare::bound).fold(0.0, f64::max)
    }

    /// The share on one node; 0 where none was met.
    #[must_use]
    pub fn share(&self, node: NodeId) -> f64 {
        self.nodes
            .iter()
            .find(|share| share.node == node)
            .map_or(0.0, |share| share.share)
    }
}

/// How much work to spend on one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Draws that should hit a resident page. 1,024 give ±3.1 percentage points.
    pub samples_wanted: u32,
    /// Fewer hits than this are not worth a number: 64 give ±12 percentage points.
    pub samples_min: u32,
    /// No more draws than this, whatever they hit: about 20 ms.
    pub draws_max: u32,
    /// A process with at most this many mapped pages is asked about all of them.
    pub all_pages_max: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            samples_wanted: 1024,
            samples_min: 64,
            draws_max: 65_536,
            all_pages_max: 4096,
        }
    }
}

/// Why a process's memory could not be located.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// It ended.
    #[error("the process has ended")]
    Gone,
    /// The caller may not look into it: it is another user's, in another user namespace, made
    /// itself undumpable (as setuid programs are), or a security module says no. Yama is never the
    /// cause, it guards attaching only (`PTRACE_MODE_ATTACH`, `security/yama/yama_lsm.c`, Linux
    /// 6.12), and this is a read.
    #[error("needs ptrace permission: the same user, or CAP_SYS_PTRACE")]
    NotPermitted,
    /// Its mappings could not be read for another reason.
    #[error("cannot read its mappings")]
    Maps(#[source] FileError),
    /// Its mappings were not understood.
    #[error("cannot parse its mappings")]
    Parse(#[source] ParseError),
    /// The kernel did not answer.
    #[error(transparent)]
    Query(QueryError),
    /// Too little of what it has mapped is resident.
    #[error("too sparse to sample: {samples} of {draws} random pages are resident")]
    Sparse {
        /// Draws that hit.
        samples: u32,
        /// All draws.
        draws: u32,
    },
    /// It has nothing in memory.
    #[error("nothing of it is in memory")]
    Empty,
}

impl From<QueryError> for LocateError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Gone | QueryError::NoMemory => Self::Gone,
            QueryError::NotPermitted => Self::NotPermitted,
            other => Self::Query(other),
        }
    }
}

/// The answer on a machine with one node, where nothing needs to be asked.
#[must_use]
pub fn on_only_node(node: NodeId) -> Locality {
    let share = NodeShare {
        node,
        share: 1.0,
        low: 1.0,
        high: 1.0,
    };
    Locality {
        method: Method::OnlyNode,
        nodes: vec![share],
    }
}

/// Finds out where a process's memory lies; moves nothing and does not hold the process up.
///
/// # Errors
///
/// Every variant of [`LocateError`]; see there.
pub fn locate(
    files: &(impl Files + ?Sized),
    probe: &(impl Probe + ?Sized),
    pid: Pid,
    nodes: &NodeSet,
    effort: Effort,
    random: &mut Random,
) -> Result<Locality, LocateError> {
    let mut buffer = Buffer::new();
    let text = files
        .read(&format!("/proc/{pid}/maps"), &mut buffer)
        .map_err(|error| match error {
            error if error.is_process_gone() => LocateError::Gone,
            FileError::Denied { .. } => LocateError::NotPermitted,
            error => LocateError::Maps(error),
        })?;
    let mappings = parse_maps(&String::from_utf8_lossy(text)).map_err(LocateError::Parse)?;
    let pages = Pages::new(&mappings, probe.page_size().0);
    if pages.count == 0 {
        return Err(LocateError::Empty);
    }
    if pages.count <= u64::from(effort.all_pages_max) {
        return locate_all(probe, pid, nodes, &pages);
    }
    locate_sampled(probe, pid, nodes, &pages, effort, random)
}

/// The mapped pages of a process as one row of numbers from 0 on, so that one random number
/// chooses any of them with the same chance.
struct Pages {
    /// First address of each range, and the number of the first page behind it; ascending.
    ranges: Vec<(usize, u64)>,
    count: u64,
    page_bytes: u64,
}

impl Pages {
    fn new(mappings: &[Mapping], page_bytes: u64) -> Self {
        let mut pages = Self {
            ranges: Vec::with_capacity(mappings.len()),
            count: 0,
            page_bytes,
        };
        for mapping in mappings.iter().filter(|mapping| mapping.holds_memory()) {
            pages.count += widen(mapping.end - mapping.start) / page_bytes;
            pages.ranges.push((mapping.start, pages.count));
        }
        pages
    }

    /// The address of the page with this number, which must be below `count`.
    fn address(&self, number: u64) -> usize {
        let range = self.ranges.partition_point(|&(_, end)| end <= number);
        let first = range
            .checked_sub(1)
            .map_or(0, |before| self.ranges[before].1);
        let offset = usize::try_from((number - first) * self.page_bytes);
        self.ranges[range].0 + offset.expect("an offset within a mapping is an address")
    }
}

fn widen(number: usize) -> u64 {
    u64::try_from(number).expect("no supported machine has addresses above 64 bits")
}

/// How many answers named each node.
#[derive(Default)]
struct Tally {
    nodes: BTreeMap<NodeId, u32>,
    samples: u32,
    draws: u32,
}

impl Tally {
    fn ask(
        &mut self,
        probe: &(impl Probe + ?Sized),
        pid: Pid,
        addresses: &[usize],
    ) -> Result<(), LocateError> {
        let mut statuses = vec![PageStatus::NotResident; addresses.len()];
        probe.page_nodes(pid, addresses, &mut statuses)?;
        for status in statuses {
            self.draws += 1;
            if let PageStatus::OnNode(node) = status {
                *self.nodes.entry(node).or_default() += 1;
                self.samples += 1;
            }
        }
        Ok(())
    }

    /// The share of each node, with the interval that `interval` gives for its hits.
    fn shares(&self, nodes: &NodeSet, interval: impl Fn(u32) -> (f64, f64)) -> Vec<NodeShare> {
        let met: NodeSet = self.nodes.keys().copied().collect();
        nodes
            .union(&met)
            .iter()
            .map(|node| {
                let hits = self.nodes.get(&node).copied().unwrap_or(0);
                let (low, high) = interval(hits);
                NodeShare {
                    node,
                    share: self.share(hits),
                    low,
                    high,
                }
            })
            .collect()
    }

    fn share(&self, hits: u32) -> f64 {
        f64::from(hits) / f64::from(self.samples)
    }
}

fn locate_all(
    probe: &(impl Probe + ?Sized),
    pid: Pid,
    nodes: &NodeSet,
    pages: &Pages,
) -> Result<Locality, LocateError> {
    let addresses: Vec<usize> = (0..pages.count)
        .map(|number| pages.address(number))
        .collect();
    let mut tally = Tally::default();
    tally.ask(probe, pid, &addresses)?;
    if tally.samples == 0 {
        return Err(LocateError::Empty);
    }
    Ok(Locality {
        method: Method::AllPages {
            pages: tally.samples,
        },
        nodes: tally.shares(nodes, |hits| (tally.share(hits), tally.share(hits))),
    })
}

fn locate_sampled(
    probe: &(impl Probe + ?Sized),
    pid: Pid,
    nodes: &NodeSet,
    pages: &Pages,
    effort: Effort,
    random: &mut Random,
) -> Result<Locality, LocateError> {
    let mut tally = Tally::default();
    while tally.samples < effort.samples_wanted && tally.draws < effort.draws_max {
        let batch = next_batch(&tally, effort);
        let addresses: Vec<usize> = (0..batch)
            .map(|_| pages.address(random.below(pages.count)))
            .collect();
        tally.ask(probe, pid, &addresses)?;
    }
    let Tally { samples, draws, .. } = tally;
    if samples < effort.samples_min {
        return Err(LocateError::Sparse { samples, draws });
    }
    Ok(Locality {
        method: Method::Sampled { samples, draws },
        nodes: tally.shares(nodes, |hits| wilson_interval(hits, samples)),
    })
}

/// How many draws to make at once: as many as should fill what is missing.
///
/// It looks only at how many draws hit, never at which node, so it cannot bend the estimate.
fn next_batch(tally: &Tally, effort: Effort) -> u32 {
    const BATCH_MAX: u32 = 8192;
    let missing = u64::from(effort.samples_wanted - tally.samples);
    // One more hit than was seen, so that no hit at all does not ask for endless draws.
    let needed = missing * u64::from(tally.draws.max(1)) / u64::from(tally.samples + 1);
    let needed = u32::try_from(needed).unwrap_or(u32::MAX);
    let smallest = effort.samples_wanted.min(256);
    let batch = if tally.draws == 0 {
        effort.samples_wanted
    } else {
        needed.max(smallest)
    };
    batch.min(BATCH_MAX).min(effort.draws_max - tally.draws)
}

/// The interval that holds the true share in 95 of 100 cases, after `hits` of `samples`
/// independent draws.
fn wilson_interval(hits: u32, samples: u32) -> (f64, f64) {
    /// Two-sided 95 % of the normal distribution.
    const Z: f64 = 1.959_963_985;
    let n = f64::from(samples);
    let share = f64::from(hits) / n;
    let shrink = 1.0 + Z * Z / n;
    let centre = (share + Z * Z / (2.0 * n)) / shrink;
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / shrink;
    // The ends are exact where the formula would round: nothing met may be nothing there.
    let low = if hits == 0 { 0.0 } else { centre - half };
    let high = if hits == samples { 1.0 } else { centre + half };
    (low, high)
}

#[cfg(test)]
mod tests;
