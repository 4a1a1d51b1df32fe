//! CPU sets to hwloc's one tree.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use homenode_topology::{Cache, CacheKind, CpuGroup, Device, Node, Topology};
use homenode_units::{CpuId, CpuSet, NodeId, NodeSet, Reading};

/// An object of the tree that has CPUs.
#[derive(Debug)]
pub(super) struct Object<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) cpus: CpuSet,
    pub(super) gp_index: u64,
    parent: Option<usize>,
    /// By their lowest CPU, as hwloc wants them.
    pub(super) children: Vec<usize>,
    /// Nodes attached here, by id.
    pub(super) nodes: Vec<&'a Node>,
    pub(super) devices: Vec<&'a Device>,
    /// Nodes attached here, above or below.
    pub(super) node_set: NodeSet,
}

#[derive(Debug)]
pub(super) enum Kind<'a> {
    Machine,
    Drawer(&'a CpuGroup),
    Book(&'a CpuGroup),
    Package(&'a CpuGroup),
    Die(&'a CpuGroup),
    /// A group that only gives a node its CPUs.
    AroundNode,
    Cache(&'a Cache),
    Cluster(&'a CpuGroup),
    Core(&'a CpuGroup),
    Pu(CpuId),
}

impl Kind<'_> {
    /// Which of two objects with the same CPUs is further out.
    fn rank(&self) -> u16 {
        match self {
            Self::Machine => 0,
            Self::Drawer(_) => 1,
            Self::Book(_) => 2,
            Self::Package(_) => 3,
            Self::Die(_) => 4,
            Self::AroundNode => 5,
            // L5 to L3, clusters, L2 to L1; instruction caches inside the data caches.
            Self::Cache(cache) => {
                let inner = u16::from(cache.kind == CacheKind::Instruction);
                let level = u16::from(cache.level.min(5));
                let cluster = if level < 3 { 1 } else { 0 };
                10 + 2 * (5 - level) + inner + cluster
            }
            Self::Cluster(_) => 16,
            Self::Core(_) => 30,
            Self::Pu(_) => 31,
        }
    }

    /// Whether hwloc has a type for it: it knows L1 to L5 and, for instructions, L1i to L3i.
    fn has_type(&self) -> bool {
        match self {
            Self::Cache(cache) if cache.kind == CacheKind::Instruction => {
                (1..=3).contains(&cache.level)
            }
            Self::Cache(cache) => (1..=5).contains(&cache.level),
            _ => true,
        }
    }

    fn name(&self) -> String {
        let group = |noun: &str, group: &CpuGroup| match group.id {
            Some(id) => format!("{noun} {id}"),
            None => noun.to_owned(),
        };
        match self {
            Self::Machine => "machine".to_owned(),
            Self::Drawer(one) => group("drawer", one),
            Self::Book(one) => group("book", one),
            Self::Package(one) => group("package", one),
            Self::Die(one) => group("die", one),
            Self::AroundNode => "node".to_owned(),
            Self::Cache(cache) => format!("L{} {:?} cache", cache.level, cache.kind),
            Self::Cluster(one) => group("cluster", one),
            Self::Core(one) => group("core", one),
            Self::Pu(cpu) => format!("CPU {cpu}"),
        }
    }
}

/// All objects; a parent comes before its children.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) objects: Vec<Object<'a>>,
    /// What has no place, in words.
    pub(super) not_expressed: Vec<String>,
    node_gp_index: BTreeMap<NodeId, u64>,
    last_gp_index: u64,
}

impl<'a> Tree<'a> {
    pub(super) fn of(topology: &'a Topology) -> Self {
        let mut tree = Self {
            objects: Vec::new(),
            not_expressed: Vec::new(),
            node_gp_index: BTreeMap::new(),
            last_gp_index: 0,
        };
        let mut innermost = tree.add_machine(topology);
        let packages = Packages::of(topology);
        for (kind, cpus) in candidates(topology) {
            match packages.crossed_by(&cpus) {
                // A package is worth more than what lies across it, even where it is smaller.
                Some(package) => {
                    let what = across(&kind, &cpus, &Kind::Package(package), &package.cpus);
                    tree.not_expressed.push(what);
                }
                None => tree.add(kind, cpus, &mut innermost),
            }
        }
        for at in 0..tree.objects.len() {
            let mut children = std::mem::take(&mut tree.objects[at].children);
            children.sort_by_key(|&child| tree.objects[child].cpus.lowest());
            tree.objects[at].children = children;
        }
        tree.attach_nodes(topology, &innermost);
        tree.attach_devices(topology, &innermost);
        tree.fill_node_sets();
        tree
    }

    /// A number that no other object of the file has.
    pub(super) fn next_gp_index(&mut self) -> u64 {
        self.last_gp_index += 1;
        self.last_gp_index
    }

    pub(super) fn node_gp_index(&self, node: NodeId) -> u64 {
        self.node_gp_index.get(&node).copied().unwrap_or(0)
    }

    fn add_machine(&mut self, topology: &Topology) -> BTreeMap<CpuId, usize> {
        self.push(Kind::Machine, topology.cpus.online.clone(), None);
        topology.cpus.online.iter().map(|cpu| (cpu, 0)).collect()
    }

    fn push(&mut self, kind: Kind<'a>, cpus: CpuSet, parent: Option<usize>) -> usize {
        let gp_index = self.next_gp_index();
        let at = self.objects.len();
        self.objects.push(Object {
            kind,
            cpus,
            gp_index,
            parent,
            children: Vec::new(),
            nodes: Vec::new(),
            devices: Vec::new(),
            node_set: NodeSet::new(),
        });
        if let Some(parent) = parent {
            self.objects[parent].children.push(at);
        }
        at
    }

    /// Adds an object below the innermost object so far that holds its CPUs.
    ///
    /// Objects come by falling size, so that every object that could hold this one is there. If
    /// its CPUs have different innermost objects, it lies across them.
    fn add(&mut self, kind: Kind<'a>, cpus: CpuSet, innermost: &mut BTreeMap<CpuId, usize>) {
        if !kind.has_type() {
            let what = format!("{}: hwloc has no such type", in_words(&kind, &cpus));
            self.not_expressed.push(what);
            return;
        }
        let home = |cpu: CpuId| innermost.get(&cpu).copied();
        let Some(parent) = cpus.lowest().and_then(home) else {
            return;
        };
        if let Some(other) = cpus.iter().map(home).find(|&home| home != Some(parent)) {
            let crossed = match other {
                Some(other) if other > 0 => other,
                _ => parent,
            };
            let crossed = &self.objects[crossed];
            let what = across(&kind, &cpus, &crossed.kind, &crossed.cpus);
            self.not_expressed.push(what);
            return;
        }
        let at = self.push(kind, cpus, Some(parent));
        for cpu in self.objects[at].cpus.iter() {
            innermost.insert(cpu, at);
        }
    }

    /// The smallest object that holds these CPUs; of several with the same CPUs the outermost
    /// below the machine, which is where hwloc hangs nodes.
    fn covering(&self, cpus: &CpuSet, innermost: &BTreeMap<CpuId, usize>) -> usize {
        let Some(&start) = cpus.lowest().and_then(|cpu| innermost.get(&cpu)) else {
            return 0;
        };
        let mut at = start;
        while let Some(parent) = self.objects[at].parent {
            let covered = cpus.is_subset(&self.objects[at].cpus);
            let same = self.objects[parent].cpus == self.objects[at].cpus && parent > 0;
            if covered && !same {
                break;
            }
            at = parent;
        }
        match self.objects[at].kind {
            // hwloc puts no memory below a PU.
            Kind::Pu(_) => self.objects[at].parent.unwrap_or(0),
            _ => at,
        }
    }

    /// Hangs each node at its CPUs, and one without CPUs at the nearest.
    fn attach_nodes(&mut self, topology: &'a Topology, innermost: &BTreeMap<CpuId, usize>) {
        for node in &topology.nodes {
            let gp_index = self.next_gp_index();
            self.node_gp_index.insert(node.id, gp_index);
            let cpus = if node.cpus.is_empty() {
                let near = node
                    .nearest_cpu_nodes
                    .iter()
                    .filter_map(|id| topology.node(id));
                near.flat_map(|near| near.cpus.iter()).collect()
            } else {
                node.cpus.clone()
            };
            let at = self.covering(&cpus, innermost);
            self.objects[at].nodes.push(node);
        }
    }

    fn attach_devices(&mut self, topology: &'a Topology, innermost: &BTreeMap<CpuId, usize>) {
        let mut home_of_node = BTreeMap::new();
        for (at, object) in self.objects.iter().enumerate() {
            home_of_node.extend(object.nodes.iter().map(|node| (node.id, at)));
        }
        for device in topology.devices.known().into_iter().flatten() {
            if !is_pci_address(&device.address) {
                let what = format!("device `{}`: no PCI address", device.address);
                self.not_expressed.push(what);
                continue;
            }
            let home = match &device.node {
                Reading::Known(node) => home_of_node.get(node).copied(),
                Reading::Absent { .. } => None,
            };
            let at = home.unwrap_or_else(|| self.covering(&device.cpus, innermost));
            self.objects[at].devices.push(device);
        }
    }

    fn fill_node_sets(&mut self) {
        // Children stand behind their parents: backwards gathers what is below …
        for at in (0..self.objects.len()).rev() {
            let own: NodeSet = self.objects[at].nodes.iter().map(|node| node.id).collect();
            let below = self.objects[at].node_set.union(&own);
            if let Some(parent) = self.objects[at].parent {
                let gathered = self.objects[parent].node_set.union(&below);
                self.objects[parent].node_set = gathered;
            }
            self.objects[at].node_set = below;
        }
        // … and forwards hands down what is attached above.
        let mut above: Vec<NodeSet> = Vec::with_capacity(self.objects.len());
        for at in 0..self.objects.len() {
            let from_above = match self.objects[at].parent {
                None => NodeSet::new(),
                Some(parent) => {
                    let own = self.objects[parent]
                        .nodes
                        .iter()
                        .map(|node| node.id)
                        .collect();
                    above[parent].union(&own)
                }
            };
            self.objects[at].node_set = self.objects[at].node_set.union(&from_above);
            above.push(from_above);
        }
    }
}

fn in_words(kind: &Kind<'_>, cpus: &CpuSet) -> String {
    format!("{} of CPUs {cpus}", kind.name())
}

fn across(kind: &Kind<'_>, cpus: &CpuSet, other: &Kind<'_>, other_cpus: &CpuSet) -> String {
    format!(
        "{} lies across {}",
        in_words(kind, cpus),
        in_words(other, other_cpus)
    )
}

/// The package of each CPU.
struct Packages<'a> {
    of_cpu: BTreeMap<CpuId, &'a CpuGroup>,
}

impl<'a> Packages<'a> {
    fn of(topology: &'a Topology) -> Self {
        let packages = topology.packages.iter();
        let of_cpu =
            packages.flat_map(|package| package.cpus.iter().map(move |cpu| (cpu, package)));
        Self {
            of_cpu: of_cpu.collect(),
        }
    }

    /// A package of which these CPUs are a part, while others of them are not in it.
    fn crossed_by(&self, cpus: &CpuSet) -> Option<&'a CpuGroup> {
        let mut last: Option<&CpuGroup> = None;
        for package in cpus.iter().filter_map(|cpu| self.of_cpu.get(&cpu).copied()) {
            if last.is_some_and(|last| std::ptr::eq(last, package)) {
                continue;
            }
            if !cpus.is_subset(&package.cpus) && !package.cpus.is_subset(cpus) {
                return Some(package);
            }
            last = Some(package);
        }
        None
    }
}

/// Every object below the machine with its CPUs, largest first.
fn candidates(topology: &Topology) -> Vec<(Kind<'_>, CpuSet)> {
    let mut candidates: Vec<(Kind<'_>, CpuSet)> = Vec::new();
    candidates.extend(
        topology
            .drawers
            .iter()
            .map(|one| (Kind::Drawer(one), one.cpus.clone())),
    );
    candidates.extend(
        topology
            .books
            .iter()
            .map(|one| (Kind::Book(one), one.cpus.clone())),
    );
    candidates.extend(
        topology
            .packages
            .iter()
            .map(|one| (Kind::Package(one), one.cpus.clone())),
    );
    candidates.extend(
        topology
            .dies
            .iter()
            .map(|one| (Kind::Die(one), one.cpus.clone())),
    );
    candidates.extend(
        topology
            .caches
            .iter()
            .map(|one| (Kind::Cache(one), one.cpus.clone())),
    );
    candidates.extend(
        topology
            .clusters
            .iter()
            .map(|one| (Kind::Cluster(one), one.cpus.clone())),
    );
    candidates.extend(
        topology
            .cores
            .iter()
            .map(|one| (Kind::Core(one), one.cpus.clone())),
    );
    let online = &topology.cpus.online;
    let known: std::collections::BTreeSet<&CpuSet> = candidates
        .iter()
        .map(|(_, cpus)| cpus)
        .chain([online])
        .collect();
    let around: std::collections::BTreeSet<CpuSet> = topology
        .nodes
        .iter()
        .filter(|node| !known.contains(&node.cpus))
        .map(|node| node.cpus.clone())
        .collect();
    candidates.extend(around.into_iter().map(|cpus| (Kind::AroundNode, cpus)));
    let pus = online
        .iter()
        .map(|cpu| (Kind::Pu(cpu), [cpu].into_iter().collect()));
    candidates.extend(pus);
    candidates.sort_by_key(|(kind, cpus)| (Reverse(cpus.len()), kind.rank(), cpus.lowest()));
    candidates
}

/// `0000:81:00.0`
fn is_pci_address(address: &str) -> bool {
    let hex = |text: &str, widths: std::ops::RangeInclusive<usize>| {
        widths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts = address.split(':');
    let (Some(domain), Some(bus), Some(rest), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    rest.split_once('.').is_some_and(|(device, function)| {
        hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && hex(function, 1..=1)
    })
}
