//! How nodes, packages and L3 caches contain one another.

use homenode_units::{CpuSet, NodeId, NodeSet};

use crate::{CpuGroup, GroupedBy, Node, Topology};

/// The CPU sets of a machine, cut down to what a verdict may rest on.
pub(super) struct Shape<'a> {
    /// Nodes with online CPUs.
    pub(super) nodes: Vec<&'a Node>,
    /// The packages that have CPUs in those nodes; `None` where the machine does not tell
    /// packages by id.
    pub(super) packages: Option<Vec<Package>>,
    /// Packages in all, those outside of every node too.
    pub(super) packages_total: usize,
    /// The L3 caches, cut down to CPUs in nodes.
    pub(super) l3_caches: Vec<CpuSet>,
    /// CPUs that are online and in no online node.
    pub(super) cpus_in_no_node: CpuSet,
    /// Nodes whose CPUs are all offline.
    pub(super) nodes_asleep: NodeSet,
    /// Two nodes that share CPUs.
    pub(super) overlap: Option<(NodeId, NodeId)>,
}

/// A package as far as nodes cover it.
pub(super) struct Package {
    /// The kernel's number.
    pub(super) id: Option<u32>,
    /// Its online CPUs that are in some node.
    pub(super) cpus: CpuSet,
}

/// How a node lies to the L3 caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CacheFit {
    /// None of its CPUs has an L3.
    None,
    /// It is a part of one L3, which stays within the package: the CPUs of that L3.
    Inside(CpuSet),
    /// It is one L3.
    Equal,
    /// It consists of this many L3, at least 2.
    Holds(usize),
    /// An L3 crosses the node's border or the package's, or leaves CPUs out.
    Crosses,
}

impl<'a> Shape<'a> {
    pub(super) fn of(topology: &'a Topology) -> Self {
        let nodes: Vec<&Node> = topology
            .nodes
            .iter()
            .filter(|node| !node.cpus.is_empty())
            .collect();
        let mut covered = CpuSet::new();
        let mut overlap = None;
        for node in &nodes {
            if overlap.is_none() && covered.intersects(&node.cpus) {
                let other = nodes.iter().find(|other| other.cpus.intersects(&node.cpus));
                overlap = other.map(|other| (other.id, node.id));
            }
            covered = covered.union(&node.cpus);
        }
        let mut l3_caches: Vec<CpuSet> = Vec::new();
        for cache in topology.data_caches(3) {
            let cpus = cache.cpus.intersection(&covered);
            if !cpus.is_empty() && !l3_caches.contains(&cpus) {
                l3_caches.push(cpus);
            }
        }
        Self {
            packages: packages_by_id(&topology.packages, &covered),
            packages_total: topology.packages.len(),
            l3_caches,
            cpus_in_no_node: topology.cpus.online.difference(&covered),
            nodes_asleep: topology
                .cpu_nodes()
                .filter(|node| node.cpus.is_empty())
                .map(|node| node.id)
                .collect(),
            overlap,
            nodes,
        }
    }

    /// The packages that lie in a node as a whole.
    pub(super) fn packages_in(&self, node: &Node) -> usize {
        let packages = self.packages.iter().flatten();
        packages
            .filter(|package| package.cpus.is_subset(&node.cpus))
            .count()
    }

    /// The nodes that lie in a package as a whole.
    pub(super) fn nodes_in(&self, package: &Package) -> Vec<&'a Node> {
        let nodes = self.nodes.iter().copied();
        nodes
            .filter(|node| node.cpus.is_subset(&package.cpus))
            .collect()
    }

    /// How a node of a package lies to the L3 caches.
    pub(super) fn cache_fit(&self, node: &Node, package: &Package) -> CacheFit {
        let caches: Vec<&CpuSet> = self
            .l3_caches
            .iter()
            .filter(|cache| cache.intersects(&node.cpus))
            .collect();
        match caches.as_slice() {
            [] => CacheFit::None,
            [cache] if **cache == node.cpus => CacheFit::Equal,
            [cache] if node.cpus.is_subset(cache) && cache.is_subset(&package.cpus) => {
                CacheFit::Inside((*cache).clone())
            }
            [_] => CacheFit::Crosses,
            several => {
                let together = several
                    .iter()
                    .fold(CpuSet::new(), |all, cache| all.union(cache));
                if together == node.cpus {
                    CacheFit::Holds(several.len())
                } else {
                    CacheFit::Crosses
                }
            }
        }
    }
}

/// The packages, or `None` where not every CPU is in one that is told by its id.
///
/// Masks are no substitute: on a machine in Cluster-on-Die an old kernel's `core_siblings` shows
/// twice as many packages as there are, and on POWER7 they are cores.
fn packages_by_id(groups: &[CpuGroup], covered: &CpuSet) -> Option<Vec<Package>> {
    if groups
        .iter()
        .any(|group| group.grouped_by == GroupedBy::Mask)
    {
        return None;
    }
    let together = groups
        .iter()
        .fold(CpuSet::new(), |all, group| all.union(&group.cpus));
    (!groups.is_empty() && covered.is_subset(&together)).then(|| {
        groups
            .iter()
            .map(|group| Package {
                id: group.id,
                cpus: group.cpus.intersection(covered),
            })
            .filter(|package| !package.cpus.is_empty())
            .collect()
    })
}
