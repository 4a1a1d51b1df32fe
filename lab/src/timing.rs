//! The `[timing]` part of a shape: what accesses cost. Read here, and made into a model's machine.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::str::FromStr;

use homenode_lab_model::{
    CacheShape, CpuShape, LINE_BYTES, LoadCurve, Machine, Path, Resource, Span,
};
use homenode_units::{Bytes, CpuId, CpuSet};
use serde::Deserialize;
use toml::Spanned;

use crate::{CpuTopology, NodeShape};

/// `[timing]` as it is written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimingText {
    /// What an instruction takes when all it needs is in the first cache.
    instruction_ns: Spanned<f64>,
    /// From asking to having, on an idle machine: a row for each node with CPUs, a column for each
    /// node with memory.
    read_ns: Spanned<Rows>,
    /// The same for stores, where they cost other than loads.
    write_ns: Option<Spanned<Rows>>,
    /// The most that each node's memory gives and takes: a value for each node with memory.
    controllers_gb_per_s: Spanned<Vec<Spanned<f64>>>,
    /// Lines of a stream on their way at once; without it, enough to fill the controller.
    lines_in_flight: Option<Spanned<u16>>,
    /// The nodes that firmware hides by interleaving their memory; without them, the shape's.
    #[serde(default, rename = "node")]
    nodes: Vec<Spanned<HiddenNode>>,
    /// What joins the nodes.
    #[serde(default, rename = "link")]
    links: Vec<Spanned<Link>>,
    /// The caches, nearest first.
    #[serde(default, rename = "cache")]
    caches: Vec<Spanned<CacheText>>,
    /// How latency grows with load, where other than on the machine that the default is from.
    #[serde(default)]
    load: LoadCurve,
}

type Rows = Vec<Spanned<Vec<Spanned<f64>>>>;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct HiddenNode {
    cpus: CpuSet,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    between: Spanned<[u16; 2]>,
    /// In each direction.
    gb_per_s: Spanned<f64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheText {
    level: Spanned<usize>,
    size: Spanned<String>,
    ways: Spanned<u16>,
    shared_by: SharedBy,
    /// From asking to having. Not for level 1, where a hit costs its instruction.
    latency_ns: Option<Spanned<f64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SharedBy {
    Core,
    Die,
    Node,
    Package,
}

/// What is wrong, and where in the text: the offset of a byte.
pub(crate) type Fault = (usize, String);

fn fault<T>(offset: usize, problem: impl Into<String>) -> Result<T, Fault> {
    Err((offset, problem.into()))
}

/// One host thread emulates all CPUs, access by access.
const CPUS_MAX: usize = 32;
/// How far CPUs may run apart. Longer slices cost less of the host and more of the truth.
const SLICE_PS: u64 = 2_000_000;
const LATENCIES_NS: RangeInclusive<f64> = 1.0..=100_000.0;
const BANDWIDTHS_GB_PER_S: RangeInclusive<f64> = 0.001..=10_000.0;
const INSTRUCTIONS_NS: RangeInclusive<f64> = 0.05..=10.0;
/// Beyond this, a controller's latency at full load would be this multiple of the idle one.
const IN_FLIGHT_TO_FILL: f64 = 2.5;

/// The nodes as the model sees them.
struct Nodes {
    cpus: Vec<CpuSet>,
    /// Which of them have CPUs, in order: the rows of tables.
    with_cpus: Vec<u16>,
    /// Which of them have memory: the columns.
    with_memory: Vec<u16>,
}

/// Builds the model's machine.
///
/// # Errors
///
/// The first thing that no machine can have, with its place.
pub(crate) fn machine(
    timing: &Spanned<TimingText>,
    cpu: CpuTopology,
    shape_nodes: &[NodeShape],
) -> Result<Machine, Fault> {
    let start = timing.span().start;
    let timing = timing.get_ref();
    let count: usize = shape_nodes
        .iter()
        .map(|node| node.cpus.iter().count())
        .sum();
    if count > CPUS_MAX {
        let problem = format!("timing: expected at most {CPUS_MAX} CPUs, found {count}");
        return fault(start, problem);
    }
    let nodes = Nodes::new(timing, shape_nodes, count)?;
    let instruction_ps = picoseconds(&timing.instruction_ns, "instruction_ns", INSTRUCTIONS_NS)?;
    let (caches, of_cpu) = caches(timing, cpu, &nodes, count, start)?;
    let slowest_cache = caches.iter().map(|cache| cache.latency_ps).max();
    let read = table(&timing.read_ns, "read_ns", &nodes, slowest_cache)?;
    let write = match &timing.write_ns {
        Some(rows) => table(rows, "write_ns", &nodes, slowest_cache)?,
        None => read.clone(),
    };
    let (resources, links) = resources(timing, &nodes)?;
    let paths = paths(timing, &nodes, &links, &read, &write)?;
    let in_flight = lines_in_flight(timing, &nodes, &resources, &paths)?;
    let cpus = of_cpu
        .into_iter()
        .zip(0..)
        .map(|(caches, cpu)| CpuShape {
            node: nodes.of_cpu(cpu),
            caches,
            lines_in_flight: in_flight,
        })
        .collect();
    Ok(Machine {
        instruction_ps,
        slice_ps: SLICE_PS,
        nodes: u16::try_from(nodes.cpus.len()).unwrap_or(u16::MAX),
        cpus,
        caches,
        memory: spans(shape_nodes),
        interleave: (0..).take(timing.nodes.len()).collect(),
        paths,
        resources,
        load: timing.load,
    })
}

impl Nodes {
    fn new(timing: &TimingText, shape_nodes: &[NodeShape], count: usize) -> Result<Self, Fault> {
        let numbers = |has: Vec<bool>| -> Vec<u16> {
            let numbered = (0..).zip(has);
            numbered
                .filter(|&(_, has)| has)
                .map(|(node, _)| node)
                .collect()
        };
        if timing.nodes.is_empty() {
            let cpus: Vec<CpuSet> = shape_nodes.iter().map(|node| node.cpus.clone()).collect();
            return Ok(Self {
                with_cpus: numbers(cpus.iter().map(|cpus| !cpus.is_empty()).collect()),
                with_memory: numbers(shape_nodes.iter().map(|n| n.memory > Bytes(0)).collect()),
                cpus,
            });
        }
        let first = timing.nodes[0].span().start;
        if shape_nodes.len() != 1 {
            let found = shape_nodes.len();
            let problem = format!(
                "timing: node: expected the machine to have one node, of which firmware interleaves these, found {found}"
            );
            return fault(first, problem);
        }
        let cpus: Vec<CpuSet> = timing
            .nodes
            .iter()
            .map(|n| n.get_ref().cpus.clone())
            .collect();
        let owners = |cpu: u32| cpus.iter().filter(|set| set.contains(CpuId(cpu))).count();
        let in_all: usize = cpus.iter().map(|set| set.iter().count()).sum();
        let each_once = (0..).take(count).all(|cpu| owners(cpu) == 1);
        if in_all != count || !each_once {
            let last = count.saturating_sub(1);
            let problem = format!("timing: node: expected each of CPUs 0-{last} in one node");
            return fault(first, problem);
        }
        Ok(Self {
            with_cpus: numbers(cpus.iter().map(|cpus| !cpus.is_empty()).collect()),
            with_memory: numbers(vec![true; cpus.len()]),
            cpus,
        })
    }

    fn of_cpu(&self, cpu: u32) -> u16 {
        (0..)
            .zip(&self.cpus)
            .find(|(_, set)| set.contains(CpuId(cpu)))
            .map_or(0, |(node, _)| node)
    }
}

/// A time between limits, in whole picoseconds.
fn picoseconds(
    value: &Spanned<f64>,
    name: &str,
    limits: RangeInclusive<f64>,
) -> Result<u32, Fault> {
    let ns = *value.get_ref();
    if !limits.contains(&ns) {
        let (low, high) = limits.into_inner();
        let problem = format!("timing: {name}: expected {low} to {high} ns, found {ns}");
        return fault(value.span().start, problem);
    }
    Ok(rounded(ns * 1_000.0))
}

/// How long a line takes at a bandwidth.
fn line_ps(value: &Spanned<f64>, name: &str) -> Result<u32, Fault> {
    let rate = *value.get_ref();
    if !BANDWIDTHS_GB_PER_S.contains(&rate) {
        let (low, high) = BANDWIDTHS_GB_PER_S.into_inner();
        let problem = format!("timing: {name}: expected {low} to {high} GB/s, found {rate}");
        return fault(value.span().start, problem);
    }
    Ok(rounded(64_000.0 / rate))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive and below 2^32 by the limits that were checked; the cast saturates"
)]
fn rounded(value: f64) -> u32 {
    value.round() as u32
}

/// Reads a table of latencies: `[row][column]`.
fn table(
    rows: &Spanned<Rows>,
    name: &str,
    nodes: &Nodes,
    slowest_cache: Option<u32>,
) -> Result<Vec<Vec<u32>>, Fault> {
    let (expected, found) = (nodes.with_cpus.len(), rows.get_ref().len());
    if found != expected {
        let problem = format!(
            "timing: {name}: expected a row for each of {expected} nodes with CPUs, found {found}"
        );
        return fault(rows.span().start, problem);
    }
    let mut table = Vec::new();
    for (row, from) in rows.get_ref().iter().zip(&nodes.with_cpus) {
        let (expected, found) = (nodes.with_memory.len(), row.get_ref().len());
        if found != expected {
            let problem = format!(
                "timing: {name}: expected a value for each of {expected} nodes with memory in the row of node {from}, found {found}"
            );
            return fault(row.span().start, problem);
        }
        let mut values = Vec::new();
        for cell in row.get_ref() {
            let value = picoseconds(cell, name, LATENCIES_NS)?;
            if slowest_cache.is_some_and(|cache| value <= cache) {
                let problem =
                    format!("timing: {name}: expected memory to be slower than every cache");
                return fault(cell.span().start, problem);
            }
            values.push(value);
        }
        table.push(values);
    }
    Ok(table)
}

/// All single caches, and for each CPU which are its own.
fn caches(
    timing: &TimingText,
    cpu: CpuTopology,
    nodes: &Nodes,
    count: usize,
    start: usize,
) -> Result<(Vec<CacheShape>, Vec<Vec<u16>>), Fault> {
    if timing.caches.is_empty() {
        return fault(start, "timing: cache: expected at least one level");
    }
    let mut caches: Vec<CacheShape> = Vec::new();
    let mut of_cpu = vec![Vec::new(); count];
    let mut slowest = 0;
    for (level, text) in (1..).zip(&timing.caches) {
        let shape = cache(text, level, level == timing.caches.len())?;
        if level > 1 && shape.latency_ps <= slowest {
            let problem = "timing: cache: expected a higher latency than that of the level before";
            return fault(text.span().start, problem);
        }
        slowest = shape.latency_ps;
        let mut shared = BTreeMap::new();
        for (number, own) in (0u32..).zip(&mut of_cpu) {
            let group = match text.get_ref().shared_by {
                SharedBy::Core => number / cpu.threads,
                SharedBy::Die => number / (cpu.threads * cpu.cores),
                SharedBy::Package => number / (cpu.threads * cpu.cores * cpu.dies),
                SharedBy::Node => u32::from(nodes.of_cpu(number)),
            };
            let position = *shared.entry(group).or_insert_with(|| {
                caches.push(shape);
                u16::try_from(caches.len() - 1).unwrap_or(u16::MAX)
            });
            own.push(position);
        }
    }
    Ok((caches, of_cpu))
}

fn cache(text: &Spanned<CacheText>, level: usize, is_last: bool) -> Result<CacheShape, Fault> {
    let place = text.span().start;
    let text = text.get_ref();
    let name = format!("timing: cache: level {level}");
    if *text.level.get_ref() != level {
        let found = text.level.get_ref();
        let problem = format!("timing: cache: expected level {level}, found {found}");
        return fault(text.level.span().start, problem);
    }
    let latency_ps = match (&text.latency_ns, level) {
        (None, 1) => 0,
        (Some(latency), 1) => {
            let problem = format!("{name}: expected no latency, as a hit costs its instruction");
            return fault(latency.span().start, problem);
        }
        (Some(latency), _) => picoseconds(latency, "latency_ns", LATENCIES_NS)?,
        (None, _) => return fault(place, format!("{name}: expected latency_ns")),
    };
    let size = match Bytes::from_str(text.size.get_ref()) {
        Ok(size) => size.0,
        Err(error) => return fault(text.size.span().start, format!("{name}: {error}")),
    };
    let ways = *text.ways.get_ref();
    if ways == 0 {
        return fault(
            text.ways.span().start,
            format!("{name}: expected ways above 0"),
        );
    }
    let way = u64::from(ways) * LINE_BYTES;
    let sets = match u32::try_from(size / way) {
        Ok(sets @ 1..) if size % way == 0 && sets <= 1 << 24 => sets,
        _ => {
            let problem = format!(
                "{name}: expected a size of up to 1 GiB that is a multiple of {way} bytes, a line in each way"
            );
            return fault(text.size.span().start, problem);
        }
    };
    // Large shared caches are built of slices and may have any size; small ones are indexed by
    // some bits of the address.
    if !sets.is_power_of_two() && !is_last {
        let problem = format!("{name}: expected a power of two of sets, found {sets}");
        return fault(text.size.span().start, problem);
    }
    Ok(CacheShape {
        sets,
        ways,
        latency_ps,
    })
}

/// Links by the nodes they lead from and to, as positions among the resources.
type Links = BTreeMap<(u16, u16), u16>;

/// Controllers first, by the order of nodes with memory; then links, each once per direction.
fn resources(timing: &TimingText, nodes: &Nodes) -> Result<(Vec<Resource>, Links), Fault> {
    let controllers = &timing.controllers_gb_per_s;
    let (expected, found) = (nodes.with_memory.len(), controllers.get_ref().len());
    if found != expected {
        let problem = format!(
            "timing: controllers_gb_per_s: expected a value for each of {expected} nodes with memory, found {found}"
        );
        return fault(controllers.span().start, problem);
    }
    let mut resources = Vec::new();
    for (rate, node) in controllers.get_ref().iter().zip(&nodes.with_memory) {
        resources.push(Resource {
            name: format!("controller {node}"),
            line_ps: line_ps(rate, "controllers_gb_per_s")?,
        });
    }
    let mut links = Links::new();
    for link in &timing.links {
        let link = link.get_ref();
        let [one, other] = *link.between.get_ref();
        let is_node = |node: u16| usize::from(node) < nodes.cpus.len();
        if one == other || !is_node(one) || !is_node(other) {
            let problem = format!(
                "timing: link: expected two of nodes 0-{}, found {one} and {other}",
                nodes.cpus.len() - 1
            );
            return fault(link.between.span().start, problem);
        }
        let line_ps = line_ps(&link.gb_per_s, "link: gb_per_s")?;
        for (from, to) in [(one, other), (other, one)] {
            let position = u16::try_from(resources.len()).unwrap_or(u16::MAX);
            if links.insert((from, to), position).is_some() {
                let problem = format!("timing: link: expected nodes {one} and {other} once");
                return fault(link.between.span().start, problem);
            }
            resources.push(Resource {
                name: format!("link {from} to {to}"),
                line_ps,
            });
        }
    }
    Ok((resources, links))
}

/// A path for each pair of nodes, `[from * nodes + to]`, along the fewest links.
fn paths(
    timing: &TimingText,
    nodes: &Nodes,
    links: &Links,
    read: &[Vec<u32>],
    write: &[Vec<u32>],
) -> Result<Vec<Option<Path>>, Fault> {
    let count = nodes.cpus.len();
    let mut paths = vec![None; count * count];
    for (row, &from) in nodes.with_cpus.iter().enumerate() {
        for ((column, &to), controller) in nodes.with_memory.iter().enumerate().zip(0..) {
            let Some(way) = shortest(links, from, to) else {
                let problem =
                    format!("timing: link: expected links that lead from node {from} to node {to}");
                let place = timing.links.first().map(Spanned::span);
                return fault(place.unwrap_or(timing.read_ns.span()).start, problem);
            };
            let steps = || way.windows(2);
            let there = steps().map(|step| links[&(step[0], step[1])]);
            let back = steps().map(|step| links[&(step[1], step[0])]);
            paths[usize::from(from) * count + usize::from(to)] = Some(Path {
                read_ps: read[row][column],
                write_ps: write[row][column],
                fetch: [controller].into_iter().chain(back).collect(),
                write_back: [controller].into_iter().chain(there).collect(),
            });
        }
    }
    Ok(paths)
}

/// The nodes on the way with the fewest links, both ends included; of several, the one through the
/// lowest numbers.
fn shortest(links: &Links, from: u16, to: u16) -> Option<Vec<u16>> {
    let mut before = BTreeMap::from([(from, from)]);
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        if node == to {
            let mut way = vec![to];
            while way[way.len() - 1] != from {
                way.push(before[&way[way.len() - 1]]);
            }
            way.reverse();
            return Some(way);
        }
        for &(_, next) in links.keys().filter(|&&(start, _)| start == node) {
            before.entry(next).or_insert_with(|| {
                queue.push_back(next);
                node
            });
        }
    }
    None
}

/// What the shape says, or else enough for a node's CPUs together to fill its controller.
fn lines_in_flight(
    timing: &TimingText,
    nodes: &Nodes,
    resources: &[Resource],
    paths: &[Option<Path>],
) -> Result<u16, Fault> {
    const LINES: RangeInclusive<u16> = 1..=1_024;
    if let Some(lines) = &timing.lines_in_flight {
        if !LINES.contains(lines.get_ref()) {
            let problem = "timing: lines_in_flight: expected 1 to 1024";
            return fault(lines.span().start, problem);
        }
        return Ok(*lines.get_ref());
    }
    let count = nodes.cpus.len();
    let needed = nodes.cpus.iter().enumerate().filter_map(|(node, cpus)| {
        let path = paths[node * count + node].as_ref()?;
        let controller = &resources[usize::from(path.fetch[0])];
        let cpus = u32::try_from(cpus.iter().count())
            .ok()
            .filter(|&cpus| cpus > 0)?;
        let lines = f64::from(path.read_ps) / f64::from(controller.line_ps) / f64::from(cpus);
        Some(rounded(lines * IN_FLIGHT_TO_FILL))
    });
    let needed = needed.max().unwrap_or(1);
    Ok(u16::try_from(needed)
        .unwrap_or(u16::MAX)
        .clamp(4, *LINES.end()))
}

/// Where QEMU 7.2 tells plugins that a node's memory lies.
///
/// It adds up where a node's block of memory lies among all blocks, and where it lies in the
/// machine (`qemu_plugin_hwaddr_phys_addr`, plugins/api.c). Nodes are blocks of their own, made in
/// order before any other, so that both are the sum of the nodes before; addresses are unique all
/// the same. The tests compare the outcome with the kernel's own word on where pages are.
fn spans(nodes: &[NodeShape]) -> Vec<Span> {
    let mut before = 0;
    let mut spans = Vec::new();
    for (node, shape) in (0..).zip(nodes) {
        if shape.memory > Bytes(0) {
            let start = 2 * before;
            spans.push(Span {
                start,
                end: start + shape.memory.0,
                node,
            });
            before += shape.memory.0;
        }
    }
    spans
}
