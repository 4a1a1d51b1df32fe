//! The sampler; its theory stands in the documentation of the crate.

use std::collections::BTreeMap;

use homenode_host::{Buffer, FileError, Files, PageStatus, Probe, QueryError};
use homenode_units::{Bytes, NodeId, NodeSet, Pid};
use serde::Serialize;

use crate::{Mapping, ParseError, Random, parse_maps};

/// Where a process's memory lies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Locality {
    /// How it was found.
    pub method: Method,
    /// One per node asked for, and per further node that was met; by id.
    pub nodes: Vec<NodeShare>,
    /// The part of the resident memory that the kernel would not show; already in the bounds.
    ///
    /// Unit: none, 0 to 1. Linux 6.1 to 6.5 answers "nothing there" for pages that automatic
    /// balancing marked (`gup_can_follow_protnone()`, mm/gup.c; commit 474098edac26, undone by
    /// d74943a2f3cd), and nobody is asked about ranges that were filled and then closed.
    pub unseen: f64,
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

    /// Widens the bounds by what was not seen of `resident`, when at least `visible.0` and at most
    /// `visible.1` can have been.
    fn account_for_unseen(&mut self, resident: Bytes, visible: (Bytes, Bytes)) {
        /// The kernel's own count is off by what its CPUs have not folded in yet.
        const SLACK: Bytes = Bytes(8 << 20);
        const SLACK_SHARE: f64 = 0.1;
        let missing = resident.saturating_sub(visible.1);
        if missing < SLACK || missing.share_of(resident).unwrap_or(0.0) < SLACK_SHARE {
            return;
        }
        let most_missing = resident.saturating_sub(visible.0);
        let unseen = most_missing.share_of(resident).unwrap_or(0.0);
        self.unseen = unseen;
        for share in &mut self.nodes {
            share.low *= 1.0 - unseen;
            share.high = share.high * (1.0 - unseen) + unseen;
        }
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

impl Effort {
    /// For decisions and for checking what was done: ±1.5 percentage points at worst.
    pub const DECISION: Self = Self {
        samples_wanted: 4096,
        samples_min: 64,
        draws_max: 65_536,
        all_pages_max: 4096,
    };
    /// For one of many processes on a screen: ±6.1 percentage points at worst.
    pub const GLANCE: Self = Self {
        samples_wanted: 256,
        samples_min: 32,
        draws_max: 8192,
        all_pages_max: 256,
    };
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            samples_wanted: 1024,
            ..Self::DECISION
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
        unseen: 0.0,
    }
}

/// Where a process's memory lies, and in which of its mappings.
#[derive(Clone, Debug)]
pub struct Located {
    /// All of it.
    pub locality: Locality,
    /// What was asked about: its mappings, by address.
    pub mappings: Vec<Mapping>,
    /// How many answers named each node, by position in [`Self::mappings`].
    hits: BTreeMap<(usize, NodeId), u32>,
    samples: u32,
}

impl Located {
    /// The part of the whole resident memory that lies on a node, in the mappings chosen by their
    /// position.
    ///
    /// Over disjoint choices, nodes and mappings these add up to 1. The interval is that of a
    /// sample, unless every page was asked for.
    pub fn share_in(&self, node: NodeId, mut chosen: impl FnMut(usize) -> bool) -> NodeShare {
        let hits = self
            .hits
            .iter()
            .filter(|&(&(mapping, on), _)| on == node && chosen(mapping))
            .map(|(_, hits)| hits)
            .sum();
        let share = self.share(hits);
        let (low, high) = match self.locality.method {
            Method::Sampled { samples, .. } => wilson_interval(hits, samples),
            Method::OnlyNode | Method::AllPages { .. } => (share, share),
        };
        NodeShare {
            node,
            share,
            low,
            high,
        }
    }

    /// The part of the whole resident memory that lies in one mapping, by its position, on a node.
    ///
    /// Unit: none, 0 to 1. It costs the same whatever the number of mappings.
    #[must_use]
    pub fn share_of_mapping(&self, position: usize, node: NodeId) -> f64 {
        self.share(self.hits.get(&(position, node)).copied().unwrap_or(0))
    }

    fn share(&self, hits: u32) -> f64 {
        f64::from(hits) / f64::from(self.samples)
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
    locate_in_mappings(files, probe, pid, nodes, effort, None, random)
        .map(|located| located.locality)
}

/// As [`locate`], with the answers by mapping.
///
/// `resident` is what the kernel counts for the process (`VmRSS` + `HugetlbPages`), where that is
/// known: what of it cannot have been seen widens the bounds.
///
/// # Errors
///
/// As [`locate`].
pub fn locate_in_mappings(
    files: &(impl Files + ?Sized),
    probe: &(impl Probe + ?Sized),
    pid: Pid,
    nodes: &NodeSet,
    effort: Effort,
    resident: Option<Bytes>,
    random: &mut Random,
) -> Result<Located, LocateError> {
    let mappings = read_mappings(files, pid)?;
    let page_bytes = probe.page_size().0;
    let pages = Pages::new(&mappings, page_bytes);
    if pages.count == 0 {
        return Err(LocateError::Empty);
    }
    let (tally, mut locality) = if pages.count <= u64::from(effort.all_pages_max) {
        locate_all(probe, pid, nodes, &pages)?
    } else {
        locate_sampled(probe, pid, nodes, &pages, effort, random)?
    };
    if let Some(resident) = resident {
        locality.account_for_unseen(resident, tally.visible(&pages));
    }
    Ok(Located {
        locality,
        mappings,
        hits: tally.hits,
        samples: tally.samples,
    })
}

/// Reads the mappings of a process.
///
/// # Errors
///
/// [`LocateError::Gone`], [`LocateError::NotPermitted`], [`LocateError::Maps`],
/// [`LocateError::Parse`].
pub fn read_mappings(files: &(impl Files + ?Sized), pid: Pid) -> Result<Vec<Mapping>, LocateError> {
    let mut buffer = Buffer::new();
    let text = files
        .read(&format!("/proc/{pid}/maps"), &mut buffer)
        .map_err(explain_file)?;
    parse_maps(&String::from_utf8_lossy(text)).map_err(LocateError::Parse)
}

pub(crate) fn explain_file(error: FileError) -> LocateError {
    match error {
        error if error.is_process_gone() => LocateError::Gone,
        FileError::Denied { .. } => LocateError::NotPermitted,
        error => LocateError::Maps(error),
    }
}

/// The mapped pages of a process as one row of numbers from 0 on, so that one random number
/// chooses any of them with the same chance.
struct Pages {
    /// First address of each range, the number of the first page behind it, and the position of
    /// its mapping; ascending.
    ranges: Vec<(usize, u64, usize)>,
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
        for (position, mapping) in mappings.iter().enumerate() {
            if mapping.holds_memory() {
                pages.count += widen(mapping.end - mapping.start) / page_bytes;
                pages.ranges.push((mapping.start, pages.count, position));
            }
        }
        pages
    }

    /// The address of the page with this number, which must be below `count`, and the position of
    /// its mapping.
    fn page(&self, number: u64) -> (usize, usize) {
        let range = self.ranges.partition_point(|&(_, end, _)| end <= number);
        let first = range
            .checked_sub(1)
            .map_or(0, |before| self.ranges[before].1);
        let offset = usize::try_from((number - first) * self.page_bytes);
        let (start, _, mapping) = self.ranges[range];
        let offset = offset.expect("an offset within a mapping is an address");
        (start + offset, mapping)
    }
}

fn widen(number: usize) -> u64 {
    u64::try_from(number).expect("no supported machine has addresses above 64 bits")
}

/// How many answers named each node.
#[derive(Default)]
struct Tally {
    /// By position of the mapping.
    hits: BTreeMap<(usize, NodeId), u32>,
    samples: u32,
    draws: u32,
}

impl Tally {
    fn ask(
        &mut self,
        probe: &(impl Probe + ?Sized),
        pid: Pid,
        pages: &Pages,
        numbers: impl Iterator<Item = u64>,
    ) -> Result<(), LocateError> {
        let (addresses, mappings): (Vec<usize>, Vec<usize>) =
            numbers.map(|number| pages.page(number)).unzip();
        let mut statuses = vec![PageStatus::NotResident; addresses.len()];
        probe.page_nodes(pid, &addresses, &mut statuses)?;
        // Draws are in order of address, so neighbours mostly have the same answer.
        let mut run: Option<((usize, NodeId), u32)> = None;
        for (status, mapping) in statuses.into_iter().zip(mappings) {
            self.draws += 1;
            let PageStatus::OnNode(node) = status else {
                continue;
            };
            match &mut run {
                Some((place, hits)) if *place == (mapping, node) => *hits += 1,
                _ => {
                    self.count(run.replace(((mapping, node), 1)));
                }
            }
        }
        self.count(run);
        Ok(())
    }

    fn count(&mut self, run: Option<((usize, NodeId), u32)>) {
        if let Some((place, hits)) = run {
            *self.hits.entry(place).or_default() += hits;
            self.samples += hits;
        }
    }

    /// The share of each node, with the interval that `interval` gives for its hits.
    fn shares(&self, nodes: &NodeSet, interval: impl Fn(u32) -> (f64, f64)) -> Vec<NodeShare> {
        let mut by_node: BTreeMap<NodeId, u32> = nodes.iter().map(|node| (node, 0)).collect();
        for (&(_, node), hits) in &self.hits {
            *by_node.entry(node).or_default() += hits;
        }
        by_node
            .into_iter()
            .map(|(node, hits)| {
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

    /// The least and the most memory that can have been visible, by how many draws hit.
    fn visible(&self, pages: &Pages) -> (Bytes, Bytes) {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate, between 0 and the size of the address space"
        )]
        let bytes = |share: f64| {
            Bytes(((share * pages.count as f64) as u64).saturating_mul(pages.page_bytes))
        };
        let (low, high) = wilson_interval(self.samples, self.draws);
        (bytes(low), bytes(high))
    }
}

fn locate_all(
    probe: &(impl Probe + ?Sized),
    pid: Pid,
    nodes: &NodeSet,
    pages: &Pages,
) -> Result<(Tally, Locality), LocateError> {
    let mut tally = Tally::default();
    tally.ask(probe, pid, pages, 0..pages.count)?;
    if tally.samples == 0 {
        return Err(LocateError::Empty);
    }
    let locality = Locality {
        method: Method::AllPages {
            pages: tally.samples,
        },
        nodes: tally.shares(nodes, |hits| (tally.share(hits), tally.share(hits))),
        unseen: 0.0,
    };
    Ok((tally, locality))
}

fn locate_sampled(
    probe: &(impl Probe + ?Sized),
    pid: Pid,
    nodes: &NodeSet,
    pages: &Pages,
    effort: Effort,
    random: &mut Random,
) -> Result<(Tally, Locality), LocateError> {
    let mut tally = Tally::default();
    while tally.samples < effort.samples_wanted && tally.draws < effort.draws_max {
        let batch = next_batch(&tally, effort);
        let numbers = (0..batch).map(|slice| draw_in_slice(slice, batch, pages.count, random));
        tally.ask(probe, pid, pages, numbers)?;
    }
    let Tally { samples, draws, .. } = tally;
    if samples < effort.samples_min {
        return Err(LocateError::Sparse { samples, draws });
    }
    let locality = Locality {
        method: Method::Sampled { samples, draws },
        nodes: tally.shares(nodes, |hits| wilson_interval(hits, samples)),
        unseen: 0.0,
    };
    Ok((tally, locality))
}

/// A page number from one of `slices` equal parts of all, so that draws spread evenly; each page
/// has the same chance. In order of address, which also spares the kernel cache misses.
fn draw_in_slice(slice: u32, slices: u32, count: u64, random: &mut Random) -> u64 {
    let start = |slice: u32| {
        let start = u128::from(count) * u128::from(slice) / u128::from(slices);
        u64::try_from(start).expect("no more than the count")
    };
    let (start, end) = (start(slice), start(slice + 1));
    if start == end {
        // More draws than pages.
        return random.below(count);
    }
    start + random.below(end - start)
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
