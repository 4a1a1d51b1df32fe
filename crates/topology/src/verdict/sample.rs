//! Machines for tests, from a few lists of CPUs.

use homenode_units::{Bytes, CpuSet, NodeId, NodeMatrix, NodeSet, Reading};

use crate::{
    Allowed, Cache, CacheKind, CpuGroup, Cpus, Detail, Distance, Firmware, GroupedBy, MemorySlot,
    Node, Processor, Source, Topology, Vendor,
};

pub(crate) const GIB: u64 = 1 << 30;

pub(crate) fn cpus(list: &str) -> CpuSet {
    CpuSet::parse_list(list).unwrap()
}

pub(crate) fn nodes(list: &str) -> NodeSet {
    NodeSet::parse_list(list).unwrap()
}

/// An Intel machine with these nodes (id, CPUs), packages (id, CPUs) and L3 caches, 32 GiB in
/// each node, distances 10 and 21, nothing offline, nothing restricted.
pub(crate) fn machine(
    node_list: &[(u32, &str)],
    packages: &[(u32, &str)],
    l3_caches: &[&str],
) -> Topology {
    let nodes: Vec<Node> = node_list.iter().map(|&(id, list)| node(id, list)).collect();
    let packages: Vec<CpuGroup> = packages.iter().map(|&(id, list)| group(id, list)).collect();
    let online = packages
        .iter()
        .map(|package| &package.cpus)
        .chain(nodes.iter().map(|node| &node.cpus))
        .fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let ids: NodeSet = nodes.iter().map(|node| node.id).collect();
    let memory: Bytes = nodes
        .iter()
        .filter_map(|node| node.memory_total.known())
        .copied()
        .sum();
    Topology {
        source: Source::Synthetic(String::new()),
        detail: Detail::Fast,
        processor: processor(Vendor::Intel, 6, 85),
        cpus: Cpus {
            possible: online.clone(),
            online: online.clone(),
            ..Cpus::default()
        },
        packages,
        dies: Vec::new(),
        clusters: Vec::new(),
        books: Vec::new(),
        drawers: Vec::new(),
        cores: Vec::new(),
        caches: l3_caches.iter().map(|list| l3(list)).collect(),
        core_kinds: Vec::new(),
        distances: Reading::Known(distances(&ids, |from, to| if from == to { 10 } else { 21 })),
        nodes,
        nodes_implied: false,
        nodes_offline: NodeSet::new(),
        memory_total: Reading::Known(memory),
        tiers: Reading::absent("not read"),
        demotion_enabled: Reading::absent("not read"),
        devices: Reading::absent("not read"),
        memory_slots: Reading::absent("not read"),
        firmware: Firmware {
            srat: Reading::absent("needs root"),
            slit: Reading::absent("needs root"),
            hmat: Reading::absent("needs root"),
        },
        allowed: Allowed {
            cpus: online,
            nodes: ids,
            evidence: String::new(),
            cpu_limit: None,
            memory_limit: None,
        },
        kernel_options: Vec::new(),
        problems: Vec::new(),
    }
}

pub(crate) fn processor(vendor: Vendor, family: u32, model: u32) -> Processor {
    Processor {
        architecture: Reading::Known("x86_64".to_owned()),
        vendor: Reading::Known(vendor),
        model_name: Reading::absent("not read"),
        family: Reading::Known(family),
        model: Reading::Known(model),
        hypervisor: Reading::Known(false),
    }
}

pub(crate) fn node(id: u32, list: &str) -> Node {
    Node {
        id: NodeId(id),
        cpus: cpus(list),
        cpus_offline: CpuSet::new(),
        memory_total: Reading::Known(Bytes(32 * GIB)),
        memory_free: Reading::Known(Bytes(16 * GIB)),
        huge_pages: Vec::new(),
        side_caches: Vec::new(),
        access: Vec::new(),
        nearest_cpu_nodes: NodeSet::new(),
        memory_kind: Reading::absent("no evidence"),
        interleave_weight: Reading::absent("not read"),
        generic_initiator: false,
    }
}

pub(crate) fn group(id: u32, list: &str) -> CpuGroup {
    CpuGroup {
        id: Some(id),
        cpus: cpus(list),
        grouped_by: GroupedBy::Id,
    }
}

fn l3(list: &str) -> Cache {
    Cache {
        level: 3,
        kind: CacheKind::Unified,
        id: None,
        size: Reading::absent("not read"),
        line_size: None,
        ways: None,
        cpus: cpus(list),
    }
}

pub(crate) fn distances(ids: &NodeSet, value: impl Fn(u32, u32) -> u32) -> NodeMatrix<Distance> {
    let row = |from: NodeId| ids.iter().map(|to| Distance(value(from.0, to.0))).collect();
    NodeMatrix::from_rows(ids.iter().collect(), ids.iter().map(row).collect()).unwrap()
}

/// A slot with this locator, bank and size in GiB; 0 is an empty one.
pub(crate) fn slot(locator: &str, bank: &str, gib: u64) -> MemorySlot {
    MemorySlot {
        locator: locator.to_owned(),
        bank: bank.to_owned(),
        size: Reading::Known((gib > 0).then_some(Bytes(gib * GIB))),
        speed_mts: None,
    }
}

impl Topology {
    /// With another processor.
    pub(crate) fn with(mut self, vendor: Vendor, family: u32, model: u32) -> Self {
        self.processor = processor(vendor, family, model);
        self
    }

    /// In a virtual machine.
    pub(crate) fn in_guest(mut self) -> Self {
        self.processor.hypervisor = Reading::Known(true);
        self
    }

    /// With these CPUs switched off, wherever they were listed.
    pub(crate) fn with_offline(mut self, list: &str) -> Self {
        let off = cpus(list);
        self.cpus.online = self.cpus.online.difference(&off);
        self.cpus.offline = off.clone();
        for node in &mut self.nodes {
            node.cpus_offline = node.cpus.intersection(&off);
            node.cpus = node.cpus.difference(&off);
        }
        for group in &mut self.packages {
            group.cpus = group.cpus.difference(&off);
        }
        self.packages.retain(|group| !group.cpus.is_empty());
        for cache in &mut self.caches {
            cache.cpus = cache.cpus.difference(&off);
        }
        self.caches.retain(|cache| !cache.cpus.is_empty());
        self.allowed.cpus = self.cpus.online.clone();
        self
    }

    /// With nodes of these sizes, in the order of the nodes; MiB.
    pub(crate) fn with_memory_mib(mut self, sizes: &[u64]) -> Self {
        assert_eq!(sizes.len(), self.nodes.len());
        for (node, &mib) in self.nodes.iter_mut().zip(sizes) {
            node.memory_total = Reading::Known(Bytes(mib << 20));
            node.memory_free = Reading::Known(Bytes(0));
        }
        self.memory_total = Reading::Known(Bytes(sizes.iter().sum::<u64>() << 20));
        self.allowed.nodes = self
            .nodes
            .iter()
            .filter(|node| !node.is_memoryless())
            .map(|node| node.id)
            .collect();
        self
    }

    /// With distances of the given kind.
    pub(crate) fn with_distances(mut self, value: impl Fn(u32, u32) -> u32) -> Self {
        self.distances = Reading::Known(distances(&self.node_ids(), value));
        self
    }

    /// With this word on the kernel command line.
    pub(crate) fn with_option(mut self, word: &str) -> Self {
        self.kernel_options.push(word.to_owned());
        self
    }

    /// With these memory slots.
    pub(crate) fn with_slots(mut self, slots: Vec<MemorySlot>) -> Self {
        self.memory_slots = Reading::Known(slots);
        self
    }
}
