//! What would be moved, and what not.

use std::collections::{BTreeMap, BTreeSet};

use homenode_host::Sharing;
use homenode_host::{Buffer, FileError, Files, Probe};
use homenode_observe::{
    Effort, Locality, Mapping, ParseError, Process, Random, locate, parse_maps, parse_meminfo,
    parse_status,
};
use homenode_units::{Bytes, NodeId, NodeSet, Pid, Reading};
use serde::Serialize;

use crate::PlanError;
use crate::identity::{StartTime, read_start_time};
use crate::pages::{MemoryRange, widen};
use crate::smaps::parse_huge_mappings;
use crate::targets::Spread;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose memory.
    pub pid: Pid,
    /// Where it should lie.
    pub to: NodeSet,
    /// Where it comes from; `None` means from all other nodes.
    pub from: Option<NodeSet>,
    /// What to do with pages that other processes map, too.
    pub sharing: Sharing,
    /// How it is spread over several targets.
    pub spread: Spread,
}

/// What is to be done; leaves no choice to who carries it out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Whose memory.
    pub pid: Pid,
    /// The name of the process. It chose it itself, so it may hold anything.
    pub name: String,
    /// Memory in use by the process. Unit: bytes.
    pub memory: Bytes,
    /// The nodes it is taken from.
    pub from: NodeSet,
    /// The nodes it is moved to, with what they can give.
    pub targets: Vec<TargetNode>,
    /// The addresses that are walked.
    #[serde(skip)]
    pub ranges: Vec<MemoryRange>,
    /// Mappings that are not even tried, by reason.
    pub skipped: Vec<Skipped>,
    /// Where the memory lies now, by random samples.
    pub located: Reading<Locality>,
    /// What the reader should know before.
    pub notes: Vec<String>,
    /// Size of a base page.
    #[serde(skip)]
    pub page_size: Bytes,
    #[serde(skip)]
    pub(crate) start_time: Option<StartTime>,
    #[serde(skip)]
    pub(crate) sharing: Sharing,
    #[serde(skip)]
    pub(crate) spread: Spread,
    #[serde(skip)]
    pub(crate) nearest: BTreeMap<NodeId, Vec<NodeId>>,
}

/// A node that memory is moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TargetNode {
    /// The node.
    pub node: NodeId,
    /// Unit: bytes. Source: `MemFree` of the node's `meminfo`.
    pub free: Bytes,
    /// With the page cache that the kernel may drop for it. Unit: bytes.
    pub obtainable: Bytes,
    /// What must stay free: the kernel starts to reclaim below it. Unit: bytes. Source: sum of
    /// `high` of the node's zones in `/proc/zoneinfo`; 1/64 of the node where that does not say.
    pub margin: Bytes,
}

impl TargetNode {
    /// What it can give. Unit: bytes.
    #[must_use]
    pub fn room(&self) -> Bytes {
        self.obtainable.saturating_sub(self.margin)
    }
}

/// Why mappings are left out of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipReason {
    /// `[vdso]`, `[vvar]`, `[vsyscall]`: the kernel's own, the same in all processes.
    OfKernel,
    /// No right to read, write or execute: only reserved, nothing was touched there.
    Reserved,
    /// Explicit huge pages, and no target node has a free one of that size.
    NoHugePages,
}

impl SkipReason {
    /// The reason for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::OfKernel => "the kernel's own (vdso, vvar)",
            Self::Reserved => "only reserved, no access allowed",
            Self::NoHugePages => "explicit huge pages, and no target has free ones",
        }
    }
}

/// Mappings left out of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Why.
    pub why: SkipReason,
    /// How many.
    pub mappings: usize,
    /// Their addresses, whether there is memory or not. Unit: bytes.
    pub size: Bytes,
}

impl Plan {
    /// The nodes it is moved to.
    #[must_use]
    pub fn to(&self) -> NodeSet {
        self.targets.iter().map(|target| target.node).collect()
    }

    /// About how much lies on the source nodes, from the samples. Unit: bytes.
    ///
    /// It counts what will turn out to be shared or busy, too.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate; the share is between 0 and 1"
    )]
    pub fn expected(&self) -> Option<Bytes> {
        let located = self.located.known()?;
        let share: f64 = self.from.iter().map(|node| located.share(node)).sum();
        Some(Bytes((self.memory.0 as f64 * share.clamp(0.0, 1.0)) as u64))
    }

    /// Addresses to be walked. Unit: bytes.
    #[must_use]
    pub fn span(&self) -> Bytes {
        self.ranges.iter().map(MemoryRange::size).sum()
    }
}

/// Samples for where the memory lies: ±1.5 percentage points.
pub(crate) const EFFORT: Effort = Effort {
    samples_wanted: 4096,
    samples_min: 64,
    draws_max: 65_536,
    all_pages_max: 4096,
};

/// Makes a plan; reads and asks, changes nothing.
///
/// # Errors
///
/// Every variant of [`PlanError`]; see there.
pub fn plan_migration<M: Files + Probe + ?Sized>(
    machine: &M,
    request: &Request,
) -> Result<Plan, PlanError> {
    let nodes = Nodes::read(machine)?;
    let from = nodes.sources(request)?;
    // Read first and compared again when the process is held: all between is of one process.
    let start_time =
        read_start_time(machine, request.pid).map_err(|error| gone_or(error, request.pid))?;
    let process = read_process(machine, request.pid)?;
    let excluded = request.to.difference(&process.nodes_allowed);
    if !process.nodes_allowed.is_empty() && !excluded.is_empty() {
        return Err(PlanError::NodesNotAllowed {
            pid: request.pid,
            name: process.name,
            nodes: excluded,
            allowed: process.nodes_allowed,
        });
    }
    let page_size = machine.page_size();
    let mappings = read_mappings(machine, &process)?;
    let huge = read_huge_mappings(machine, &process)?;
    let (ranges, skipped) = sort_mappings(machine, &mappings, &huge, &request.to, page_size);
    let margins = read_margins(machine, page_size);
    let targets = request
        .to
        .iter()
        .map(|node| read_target(machine, node, &margins))
        .collect::<Result<_, _>>()?;
    let all = from.union(&request.to);
    let located = match locate(
        machine,
        machine,
        request.pid,
        &all,
        EFFORT,
        &mut Random::new(1),
    ) {
        Ok(located) => Reading::Known(located),
        Err(error) => Reading::absent(error.to_string()),
    };
    let notes = notes(machine, &process, &request.to);
    Ok(Plan {
        pid: request.pid,
        memory: process.memory(),
        name: process.name,
        nearest: nodes.nearest(machine, &from, &request.to),
        from,
        targets,
        ranges,
        skipped,
        located,
        notes,
        page_size,
        start_time,
        sharing: request.sharing,
        spread: request.spread,
    })
}

fn gone_or(error: FileError, pid: Pid) -> PlanError {
    if error.is_process_gone() {
        PlanError::NoProcess { pid }
    } else {
        PlanError::File(error)
    }
}

/// The nodes of the machine.
struct Nodes {
    online: NodeSet,
    with_memory: NodeSet,
}

const NODES: &str = "/sys/devices/system/node";

impl Nodes {
    fn read(files: &(impl Files + ?Sized)) -> Result<Self, PlanError> {
        Ok(Self {
            online: read_nodes(files, "online")?,
            with_memory: read_nodes(files, "has_memory")?,
        })
    }

    /// Checks the nodes that were asked for; returns those to take memory from.
    fn sources(&self, request: &Request) -> Result<NodeSet, PlanError> {
        let to = &request.to;
        if to.is_empty() {
            return Err(PlanError::NoTarget);
        }
        let named = request
            .from
            .iter()
            .fold(to.clone(), |all, from| all.union(from));
        let unknown = named.difference(&self.online);
        if !unknown.is_empty() {
            return Err(PlanError::UnknownNodes {
                nodes: unknown,
                online: self.online.clone(),
            });
        }
        let empty = to.difference(&self.with_memory);
        if !empty.is_empty() {
            return Err(PlanError::MemorylessNodes {
                nodes: empty,
                with_memory: self.with_memory.clone(),
            });
        }
        match &request.from {
            None => Ok(self.with_memory.difference(to)),
            Some(from) if from.is_subset(to) => Err(PlanError::SameNodes { to: to.clone() }),
            Some(from) => Ok(from.difference(to)),
        }
    }

    /// For each source, the targets from near to far; by id where distances are not told.
    fn nearest(
        &self,
        files: &(impl Files + ?Sized),
        from: &NodeSet,
        to: &NodeSet,
    ) -> BTreeMap<NodeId, Vec<NodeId>> {
        let mut buffer = Buffer::new();
        let mut nearest = BTreeMap::new();
        for source in from.iter() {
            let row: Vec<u32> = files
                .read(&format!("{NODES}/node{source}/distance"), &mut buffer)
                .map(|text| {
                    String::from_utf8_lossy(text)
                        .split_ascii_whitespace()
                        .filter_map(|distance| distance.parse().ok())
                        .collect()
                })
                .unwrap_or_default();
            // Columns stand for the nodes that are online, in order.
            let distance = |node: NodeId| {
                let column = self.online.iter().position(|online| online == node);
                column
                    .and_then(|column| row.get(column))
                    .copied()
                    .unwrap_or(u32::MAX)
            };
            let mut order: Vec<NodeId> = to.iter().collect();
            order.sort_by_key(|&node| (distance(node), node));
            nearest.insert(source, order);
        }
        nearest
    }
}

fn read_nodes(files: &(impl Files + ?Sized), name: &str) -> Result<NodeSet, PlanError> {
    let path = format!("{NODES}/{name}");
    let mut buffer = Buffer::new();
    let text = String::from_utf8_lossy(files.read(&path, &mut buffer)?).into_owned();
    NodeSet::parse_list(text.trim()).map_err(|_| PlanError::Parse {
        path,
        source: ParseError {
            expected: "a list of nodes, such as 0-3",
            found: text.trim().to_owned(),
        },
    })
}

fn read_process(files: &(impl Files + ?Sized), pid: Pid) -> Result<Process, PlanError> {
    let path = format!("/proc/{pid}/status");
    let mut buffer = Buffer::new();
    let text = files
        .read(&path, &mut buffer)
        .map_err(|error| gone_or(error, pid))?;
    let text = String::from_utf8_lossy(text);
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map_or("", str::trim)
    };
    if let Ok(leader) = field("Tgid").parse()
        && leader != pid.0
    {
        return Err(PlanError::Thread {
            thread: pid,
            pid: Pid(leader),
        });
    }
    let process = parse_status(pid, &text, &BTreeMap::new())
        .map_err(|source| PlanError::Parse { path, source })?;
    process.ok_or_else(|| {
        let name = field("Name").to_owned();
        if field("State").starts_with(['Z', 'X']) {
            PlanError::Zombie { pid, name }
        } else {
            PlanError::KernelThread { pid, name }
        }
    })
}

/// Reads a file of the process that only its user may read.
fn read_private(
    files: &(impl Files + ?Sized),
    process: &Process,
    name: &str,
) -> Result<String, PlanError> {
    let mut buffer = Buffer::new();
    match files.read(&format!("/proc/{}/{name}", process.pid), &mut buffer) {
        Ok(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        Err(FileError::Denied { .. }) => Err(PlanError::NotPermitted {
            pid: process.pid,
            name: process.name.clone(),
            user: process.user_shown(),
        }),
        Err(error) => Err(gone_or(error, process.pid)),
    }
}

fn read_mappings(
    files: &(impl Files + ?Sized),
    process: &Process,
) -> Result<Vec<Mapping>, PlanError> {
    let text = read_private(files, process, "maps")?;
    parse_maps(&text).map_err(|source| PlanError::Parse {
        path: format!("/proc/{}/maps", process.pid),
        source,
    })
}

/// `smaps` walks all page tables while the process waits, so it is read only where there are
/// explicit huge pages; these make the walk short.
fn read_huge_mappings(
    files: &(impl Files + ?Sized),
    process: &Process,
) -> Result<BTreeMap<usize, usize>, PlanError> {
    if process.huge == Bytes(0) {
        return Ok(BTreeMap::new());
    }
    Ok(parse_huge_mappings(&read_private(files, process, "smaps")?))
}

/// Parts mappings into those that are walked and those that are not.
fn sort_mappings(
    files: &(impl Files + ?Sized),
    mappings: &[Mapping],
    huge: &BTreeMap<usize, usize>,
    to: &NodeSet,
    page_size: Bytes,
) -> (Vec<MemoryRange>, Vec<Skipped>) {
    let base = usize::try_from(page_size.0).unwrap_or(4096);
    let sizes: BTreeSet<usize> = huge.values().copied().collect();
    let sizes_with_room: BTreeSet<usize> = sizes
        .into_iter()
        .filter(|&size| to.iter().any(|node| has_free_huge_page(files, node, size)))
        .collect();
    let mut ranges = Vec::new();
    let mut skipped: BTreeMap<SkipReason, Skipped> = BTreeMap::new();
    for mapping in mappings {
        let page_bytes = huge.get(&mapping.start).copied().unwrap_or(base);
        let why = if !mapping.accessible {
            Some(SkipReason::Reserved)
        } else if !mapping.holds_memory() {
            Some(SkipReason::OfKernel)
        } else if page_bytes != base && !sizes_with_room.contains(&page_bytes) {
            Some(SkipReason::NoHugePages)
        } else {
            None
        };
        let Some(why) = why else {
            ranges.push(MemoryRange {
                start: mapping.start,
                end: mapping.end,
                page_bytes,
            });
            continue;
        };
        let entry = skipped.entry(why).or_insert(Skipped {
            why,
            mappings: 0,
            size: Bytes(0),
        });
        entry.mappings += 1;
        entry.size = entry.size + widen(mapping.end - mapping.start);
    }
    (ranges, skipped.into_values().collect())
}

fn has_free_huge_page(files: &(impl Files + ?Sized), node: NodeId, page_bytes: usize) -> bool {
    let kib = page_bytes / 1024;
    let path = format!("{NODES}/node{node}/hugepages/hugepages-{kib}kB/free_hugepages");
    read_number(files, &path).is_some_and(|free| free > 0)
}

fn read_number(files: &(impl Files + ?Sized), path: &str) -> Option<u64> {
    let mut buffer = Buffer::new();
    let text = files.read(path, &mut buffer).ok()?;
    String::from_utf8_lossy(text).trim().parse().ok()
}

fn read_target(
    files: &(impl Files + ?Sized),
    node: NodeId,
    margins: &BTreeMap<NodeId, Bytes>,
) -> Result<TargetNode, PlanError> {
    let path = format!("{NODES}/node{node}/meminfo");
    let mut buffer = Buffer::new();
    let text = String::from_utf8_lossy(files.read(&path, &mut buffer)?);
    let memory = parse_meminfo(&text).map_err(|source| PlanError::Parse { path, source })?;
    Ok(TargetNode {
        node,
        free: memory.free,
        obtainable: memory.obtainable(),
        margin: margins
            .get(&node)
            .copied()
            .unwrap_or(Bytes(memory.total.0 / 64)),
    })
}

/// The high watermarks of each node's zones, summed up.
fn read_margins(files: &(impl Files + ?Sized), page_size: Bytes) -> BTreeMap<NodeId, Bytes> {
    let mut buffer = Buffer::new();
    let text = files
        .read("/proc/zoneinfo", &mut buffer)
        .unwrap_or_default();
    parse_margins(&String::from_utf8_lossy(text), page_size)
}

fn parse_margins(text: &str, page_size: Bytes) -> BTreeMap<NodeId, Bytes> {
    let mut margins: BTreeMap<NodeId, Bytes> = BTreeMap::new();
    let mut node = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            // `Node 0, zone   Normal`
            (Some("Node"), Some(number), Some("zone")) => {
                node = number.trim_end_matches(',').parse().ok().map(NodeId);
            }
            // `high     1234` of the zone; the `high:` of its lists per CPU has a colon.
            (Some("high"), Some(pages), None) => {
                if let (Some(node), Ok(pages)) = (node, pages.parse::<u64>()) {
                    let margin = margins.entry(node).or_default();
                    *margin = *margin + Bytes(pages.saturating_mul(page_size.0));
                }
            }
            _ => {}
        }
    }
    margins
}

/// What the reader should know: who may undo the move.
fn notes(files: &(impl Files + ?Sized), process: &Process, to: &NodeSet) -> Vec<String> {
    let mut notes = Vec::new();
    let mut near = homenode_units::CpuSet::new();
    let mut buffer = Buffer::new();
    for node in to.iter() {
        if let Ok(text) = files.read(&format!("{NODES}/node{node}/cpulist"), &mut buffer)
            && let Ok(cpus) =
                homenode_units::CpuSet::parse_list(String::from_utf8_lossy(text).trim())
        {
            near = near.union(&cpus);
        }
    }
    let runs_elsewhere = !process.cpus_allowed.is_subset(&near);
    if runs_elsewhere && read_number(files, "/proc/sys/kernel/numa_balancing") == Some(1) {
        notes.push(format!(
            "automatic NUMA balancing is on and the process may run on CPUs {} away from node {to}: \
             it may move the memory back; bind the CPUs first (taskset)",
            process.cpus_allowed.difference(&near)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_the_high_watermarks_of_all_zones_of_a_node() {
        let text = "\
Node 0, zone      DMA
  pages free     3840
        min      21
        high     31
  pagesets
    cpu: 0
              high:  0
Node 0, zone   Normal
        high     100
Node 1, zone   Normal
        high     7
";
        let margins = parse_margins(text, Bytes(4096));
        let expected = [(NodeId(0), Bytes(131 * 4096)), (NodeId(1), Bytes(7 * 4096))];
        assert_eq!(margins, BTreeMap::from(expected));
        assert!(parse_margins("high 5\nNode x, zone y\nhigh 3", Bytes(1)).is_empty());
    }
}
