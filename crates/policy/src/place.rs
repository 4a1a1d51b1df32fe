use std::cmp::Ordering;

use homenode_topology::Topology;
use homenode_units::{Bytes, CpuSet, NodeId, NodeSet};
use serde::Serialize;

use crate::Need;
use crate::offer::{Load, Offer, count, distance, offers};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How much.
    pub need: Need,
    /// Where, if it can be had.
    pub goal: Goal,
}

/// What matters besides meeting the need with few nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Short distances, then room left.
    Auto,
    /// Idle CPUs, then short distances.
    LeastLoaded,
    /// Short distance to something that hangs on these nodes.
    Near {
        /// The nodes; not empty.
        nodes: NodeSet,
        /// What it is, for the reasons: `eth0`.
        what: String,
    },
}

/// Where a workload should go, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// All nodes chosen.
    pub nodes: NodeSet,
    /// Those that give CPUs; each has some.
    pub cpu_nodes: NodeSet,
    /// The CPUs of these nodes that may be used.
    pub cpus: CpuSet,
    /// Those that give memory; each has some.
    pub memory_nodes: NodeSet,
    /// Sentences, the most important first.
    pub reasons: Vec<String>,
    /// What the machine lacks; empty when the need is met.
    pub shortfalls: Vec<String>,
}

impl Placement {
    /// Whether the need is met.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.shortfalls.is_empty()
    }
}

/// Why there is no answer at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// No node has a CPU that this process may use.
    #[error("no node has a CPU that may be used here")]
    NoCpus,
}

/// Nodes from one start that meet a need, or all that there are.
#[derive(Debug)]
struct Choice<'offers> {
    start: NodeId,
    taken: Vec<&'offers Offer>,
    /// Sum over the nodes taken, from the start.
    distance: u32,
    cpus_missing: f64,
    memory_missing: Bytes,
}

/// Which CPUs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    Idle,
    All,
}

impl Counting {
    fn cpus(self, offer: &Offer) -> f64 {
        match self {
            Self::Idle => offer.idle,
            Self::All => offer.cpu_count(),
        }
    }
}

/// Chooses the nodes for a workload; the crate's documentation says how.
///
/// # Errors
///
/// [`PlaceError::NoCpus`]. A need that cannot be met is no error, see [`Placement::shortfalls`].
pub fn place(topology: &Topology, load: &Load, request: &Request) -> Result<Placement, PlaceError> {
    let offers = offers(topology, load);
    let starts = starts(topology, &offers, &request.goal);
    if starts.is_empty() {
        return Err(PlaceError::NoCpus);
    }
    let best = |counting| {
        starts
            .iter()
            .map(|&start| grow(topology, &offers, start, request.need, counting))
            .min_by(|a, b| compare(a, b, request))
    };
    let idle = best(Counting::Idle).filter(Choice::is_met);
    let counting = if idle.is_some() {
        Counting::Idle
    } else {
        Counting::All
    };
    let choice = idle
        .or_else(|| best(Counting::All))
        .ok_or(PlaceError::NoCpus)?;
    Ok(describe(
        topology, load, &offers, request, &choice, counting,
    ))
}

/// The nodes to start from: all with usable CPUs, or the nearest of them.
fn starts(topology: &Topology, offers: &[Offer], goal: &Goal) -> Vec<NodeId> {
    let with_cpus = offers.iter().filter(|offer| !offer.cpus.is_empty());
    let with_cpus: Vec<NodeId> = with_cpus.map(|offer| offer.node).collect();
    let Goal::Near { nodes, .. } = goal else {
        return with_cpus;
    };
    let far = |&start: &NodeId| {
        let distances = nodes.iter().map(|node| distance(topology, start, node));
        distances.min()
    };
    let nearest = with_cpus.iter().map(far).min();
    with_cpus
        .iter()
        .copied()
        .filter(|start| Some(far(start)) == nearest)
        .collect()
}

/// Takes nodes from the start outwards until the need is met or there are no more.
fn grow<'offers>(
    topology: &Topology,
    offers: &'offers [Offer],
    start: NodeId,
    need: Need,
    counting: Counting,
) -> Choice<'offers> {
    let mut outwards: Vec<&Offer> = offers.iter().collect();
    outwards.sort_by_key(|offer| {
        (
            // First of all, even where a broken table calls another node nearer.
            offer.node != start,
            distance(topology, start, offer.node),
            offer.cpus.is_empty(),
            offer.node,
        )
    });
    let mut choice = Choice {
        start,
        taken: Vec::new(),
        distance: 0,
        cpus_missing: f64::from(need.cpus),
        memory_missing: need.memory,
    };
    for offer in outwards {
        let cpus = counting.cpus(offer);
        let brings_cpus = choice.cpus_missing > 0.0 && cpus > 0.0;
        let brings_memory = choice.memory_missing > Bytes(0) && offer.memory > Bytes(0);
        // The start itself always belongs, so that a choice has CPUs.
        if !brings_cpus && !brings_memory && offer.node != start {
            continue;
        }
        choice.taken.push(offer);
        choice.distance = choice
            .distance
            .saturating_add(distance(topology, start, offer.node).0);
        choice.cpus_missing = (choice.cpus_missing - cpus).max(0.0);
        choice.memory_missing = choice.memory_missing.saturating_sub(offer.memory);
    }
    choice
}

impl Choice<'_> {
    fn is_met(&self) -> bool {
        self.cpus_missing <= 0.0 && self.memory_missing == Bytes(0)
    }

    /// Nodes whose CPUs would have no memory of their own.
    fn memoryless(&self) -> usize {
        let without = |offer: &&&Offer| !offer.cpus.is_empty() && offer.memory == Bytes(0);
        self.taken.iter().filter(without).count()
    }

    fn cpus(&self) -> f64 {
        self.taken.iter().map(|offer| offer.cpu_count()).sum()
    }

    fn idle(&self) -> f64 {
        self.taken.iter().map(|offer| offer.idle).sum()
    }

    fn memory(&self) -> Bytes {
        self.taken.iter().map(|offer| offer.memory).sum()
    }

    /// Unit: share of the CPUs, 0 to 1.
    fn idle_share(&self) -> f64 {
        self.idle() / self.cpus().max(1.0)
    }

    /// What is left of CPUs and memory: the scarcer one, then both together.
    ///
    /// Unit: share of all they have.
    fn room(&self, need: Need) -> (f64, f64) {
        let cpus = (self.idle() - f64::from(need.cpus)) / self.cpus().max(1.0);
        let memory_total = self.taken.iter().map(|offer| offer.memory_total).sum();
        let left = self.memory().saturating_sub(need.memory);
        let memory = left.share_of(memory_total);
        (
            cpus.min(memory.unwrap_or(cpus)),
            cpus + memory.unwrap_or(0.0),
        )
    }
}

/// The better choice is the lesser one.
fn compare(a: &Choice<'_>, b: &Choice<'_>, request: &Request) -> Ordering {
    let more = |a: f64, b: f64| b.total_cmp(&a);
    let room = |choice: &Choice<'_>| choice.room(request.need);
    let missing = |choice: &Choice<'_>| (choice.memory_missing, choice.memoryless());
    let idle = match request.goal {
        Goal::LeastLoaded => more(a.idle_share(), b.idle_share()),
        Goal::Auto | Goal::Near { .. } => Ordering::Equal,
    };
    a.cpus_missing
        .total_cmp(&b.cpus_missing)
        .then(missing(a).cmp(&missing(b)))
        .then(a.taken.len().cmp(&b.taken.len()))
        .then(idle)
        .then(a.distance.cmp(&b.distance))
        .then_with(|| more(room(a).0, room(b).0))
        .then_with(|| more(room(a).1, room(b).1))
        .then(a.start.cmp(&b.start))
}

/// Puts a choice into words.
fn describe(
    topology: &Topology,
    load: &Load,
    offers: &[Offer],
    request: &Request,
    choice: &Choice<'_>,
    counting: Counting,
) -> Placement {
    let taken = |wanted: fn(&Offer) -> bool| -> NodeSet {
        let wanted = choice.taken.iter().filter(|offer| wanted(offer));
        wanted.map(|offer| offer.node).collect()
    };
    let cpu_nodes = taken(|offer| !offer.cpus.is_empty());
    let own_memory = taken(|offer| offer.memory > Bytes(0));
    let memory_nodes = if own_memory.is_empty() {
        nearest_memory(topology, offers, choice.start)
    } else {
        own_memory.clone()
    };
    let nodes = cpu_nodes.union(&own_memory);
    let mut reasons = vec![goal_reason(topology, offers, request, choice, &nodes)];
    reasons.extend(choice.taken.iter().map(|offer| offer_reason(load, offer)));
    let asked = count(request.need.cpus as usize);
    if counting == Counting::All && choice.cpus_missing <= 0.0 && choice.idle() < asked {
        reasons.push(format!(
            "{} asked for, {:.1} idle: it will share them with what runs there",
            cpus(asked),
            choice.idle()
        ));
    }
    if own_memory.is_empty() && !memory_nodes.is_empty() {
        reasons.push(format!(
            "{} has no memory of its own; node {memory_nodes} is nearest",
            name(&cpu_nodes)
        ));
    }
    let choosable = offers.iter().filter(|offer| !offer.cpus.is_empty()).count();
    if let (Some(why), 2..) = (load.busy.why(), choosable) {
        reasons.push(format!("how busy the CPUs are is not known ({why})"));
    }
    Placement {
        cpus: choice
            .taken
            .iter()
            .fold(CpuSet::new(), |all, offer| all.union(&offer.cpus)),
        nodes,
        cpu_nodes,
        memory_nodes,
        reasons,
        shortfalls: shortfalls(topology, load, offers, request.need, choice),
    }
}

/// The node to take memory from when no node chosen has any.
fn nearest_memory(topology: &Topology, offers: &[Offer], start: NodeId) -> NodeSet {
    offers
        .iter()
        .filter(|offer| offer.memory > Bytes(0))
        .map(|offer| offer.node)
        .min_by_key(|&node| (distance(topology, start, node), node))
        .into_iter()
        .collect()
}

fn goal_reason(
    topology: &Topology,
    offers: &[Offer],
    request: &Request,
    choice: &Choice<'_>,
    nodes: &NodeSet,
) -> String {
    let need = request.need;
    let several = nodes.len() > 1;
    let met = choice.is_met();
    let together = |of: &str| {
        let farthest = nodes
            .iter()
            .map(|node| distance(topology, choice.start, node))
            .max()
            .map_or(0, |distance| distance.0);
        if met {
            format!(
                "no single node has {need} to give; {} are the nearest to each other{of} that do \
                 (distance up to {farthest})",
                name(nodes)
            )
        } else {
            format!("{} is all there is", name(nodes))
        }
    };
    match &request.goal {
        Goal::Near { nodes: at, what } => {
            let hangs = format!("{what} is on {}", name(at));
            let start = choice.start;
            if several {
                format!("{hangs}; {}", together(&format!(" and to node {start}")))
            } else if at.contains(start) {
                hangs
            } else {
                format!(
                    "{hangs}, which has no CPUs to give; node {start} is nearest (distance {})",
                    at.iter()
                        .map(|node| distance(topology, start, node))
                        .min()
                        .map_or(0, |distance| distance.0)
                )
            }
        }
        _ if several => together(""),
        _ if offers.iter().filter(|offer| !offer.cpus.is_empty()).count() == 1 => {
            format!("{} is the only one with CPUs to give", name(nodes))
        }
        Goal::LeastLoaded => format!("{} has the largest share of idle CPUs", name(nodes)),
        Goal::Auto => format!("{} has the most room left for {need}", name(nodes)),
    }
}

fn offer_reason(load: &Load, offer: &Offer) -> String {
    let memory = match (offer.memory_total, offer.memory) {
        (Bytes(0), _) => "no memory".to_owned(),
        (total, memory) => format!("{memory} of {total} to be had"),
    };
    let cpus = match (offer.cpus.is_empty(), load.busy.known()) {
        (true, _) => "no CPUs, memory only".to_owned(),
        (false, None) => cpus(offer.cpu_count()),
        (false, Some(_)) => format!("{:.1} of {} idle", offer.idle, cpus(offer.cpu_count())),
    };
    format!("node {}: {cpus}, {memory}", offer.node)
}

fn shortfalls(
    topology: &Topology,
    load: &Load,
    offers: &[Offer],
    need: Need,
    choice: &Choice<'_>,
) -> Vec<String> {
    let mut shortfalls = Vec::new();
    if choice.cpus_missing > 0.0 {
        let usable: usize = offers.iter().map(|offer| offer.cpus.len()).sum();
        shortfalls.push(format!(
            "{} asked for, {usable} may be used here",
            cpus(f64::from(need.cpus))
        ));
    }
    if choice.memory_missing > Bytes(0) {
        let memory: Bytes = offers.iter().map(|offer| offer.memory).sum();
        shortfalls.push(format!("{} asked for, {memory} to be had", need.memory));
    }
    // Less than one CPU's time is still one CPU to run on.
    if let Some(limit) = topology.allowed.cpu_limit
        && need.cpus > 1
        && u64::from(need.cpus).saturating_mul(limit.period_us) > limit.quota_us
    {
        shortfalls.push(format!(
            "{} asked for, the control group has {} ms of CPU time in {} ms (cpu.max)",
            cpus(f64::from(need.cpus)),
            limit.quota_us / 1000,
            limit.period_us / 1000
        ));
    }
    if let Some(group) = load.group.as_ref().filter(|group| group.left < need.memory) {
        shortfalls.push(format!(
            "{} asked for, {} left of the control group's limit in {}",
            need.memory, group.left, group.file
        ));
    }
    shortfalls
}

fn cpus(count: f64) -> String {
    let plural = if count > 1.0 { "s" } else { "" };
    format!("{count:.0} CPU{plural}")
}

fn name(nodes: &NodeSet) -> String {
    let plural = if nodes.len() > 1 { "s" } else { "" };
    format!("node{plural} {nodes}")
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
