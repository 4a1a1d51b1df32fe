//! What cannot be true of any machine.

use homenode_units::{CpuSet, NodeId, NodeSet};

use crate::{Cache, CpuGroup, Node, Topology};

/// Why a [`Topology`] describes no machine.
///
/// Broken firmware is not among the reasons: nodes that share CPUs, all distances equal or a last
/// level cache across packages exist, and the verdict speaks of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// No CPU is online, so nobody could have read this.
    #[error("expected at least one online CPU, found none")]
    NoCpu,
    /// No node is online.
    #[error("expected at least one online node, found none")]
    NoNode,
    /// The nodes are not in ascending order, or one is there twice.
    #[error("expected nodes in ascending order, each once, found node {node} out of place")]
    NodeOrder {
        /// The first node that is not above the one before it.
        node: NodeId,
    },
    /// A group of CPUs comes before one with lower CPUs.
    #[error("{object}: expected groups in the order of their lowest CPU")]
    GroupOrder {
        /// The group.
        object: String,
    },
    /// Something that consists of CPUs has none.
    #[error("{object}: expected at least one CPU, found none")]
    Empty {
        /// The group or cache.
        object: String,
    },
    /// Something names CPUs that it cannot have.
    #[error("{object}: expected {expected}, found also CPUs {found}")]
    StrayCpus {
        /// The group, cache, node or set.
        object: String,
        /// Which CPUs it may have.
        expected: &'static str,
        /// Those that it has besides.
        found: CpuSet,
    },
    /// Something names nodes that it cannot have.
    #[error("{object}: expected {expected}, found also nodes {found}")]
    StrayNodes {
        /// The node, device, tier or set.
        object: String,
        /// Which nodes it may have.
        expected: &'static str,
        /// Those that it has besides.
        found: NodeSet,
    },
    /// Two groups of one kind share CPUs.
    #[error("{object}: expected CPUs of its own, found CPUs {found} in another one as well")]
    SharedCpus {
        /// The second of the two.
        object: String,
        /// What they share.
        found: CpuSet,
    },
    /// A smaller group lies partly inside and partly outside of a larger one.
    #[error("{object}: expected to be within {outer}, found CPUs {found} outside")]
    Across {
        /// The smaller group.
        object: String,
        /// The larger group.
        outer: String,
        /// What lies outside.
        found: CpuSet,
    },
    /// Two caches have the same level, kind and CPUs, or a cache has no level.
    #[error("{object}: expected one cache per level from 1 on, kind and CPUs")]
    Cache {
        /// The cache.
        object: String,
    },
    /// The distances are not between the online nodes.
    #[error("distances: expected exactly the online nodes {expected}, found {found}")]
    Distances {
        /// The online nodes.
        expected: NodeSet,
        /// The nodes of the matrix.
        found: NodeSet,
    },
    /// A CPU time limit over a period of nothing.
    #[error("CPU limit: expected a period above 0 µs")]
    CpuLimitPeriod,
}

impl Topology {
    /// Refuses what cannot be true of any machine. Readers call it last, tests after every step.
    ///
    /// # Errors
    ///
    /// [`CheckError`], the first contradiction found: sets of CPUs and nodes before what refers to
    /// them.
    pub fn check(&self) -> Result<(), CheckError> {
        self.check_sets()?;
        for (noun, groups) in [
            ("package", &self.packages),
            ("die", &self.dies),
            ("cluster", &self.clusters),
            ("book", &self.books),
            ("drawer", &self.drawers),
            ("core", &self.cores),
        ] {
            self.check_groups(noun, groups)?;
        }
        check_within("core", &self.cores, &self.packages)?;
        check_within("die", &self.dies, &self.packages)?;
        self.check_caches()?;
        self.check_core_kinds()?;
        for node in &self.nodes {
            self.check_node(node)?;
        }
        self.check_distances()?;
        self.check_references()
    }

    fn check_sets(&self) -> Result<(), CheckError> {
        let cpus = &self.cpus;
        if cpus.online.is_empty() {
            return Err(CheckError::NoCpu);
        }
        let both = cpus.offline.intersection(&cpus.online);
        stray_cpus("offline CPUs", "CPUs that are not online", &both)?;
        // An empty set of possible CPUs is one that the source does not tell.
        if !cpus.possible.is_empty() {
            let present = cpus.online.union(&cpus.offline);
            let stray = present.difference(&cpus.possible);
            stray_cpus("online and offline CPUs", "possible CPUs", &stray)?;
        }
        if self.nodes.is_empty() {
            return Err(CheckError::NoNode);
        }
        for pair in self.nodes.windows(2) {
            if pair[0].id >= pair[1].id {
                return Err(CheckError::NodeOrder { node: pair[1].id });
            }
        }
        let both = self.nodes_offline.intersection(&self.node_ids());
        stray_nodes("offline nodes", "nodes that are not online", &both)
    }

    fn check_groups(&self, noun: &str, groups: &[CpuGroup]) -> Result<(), CheckError> {
        let mut taken = CpuSet::new();
        let mut lowest = None;
        for (index, group) in groups.iter().enumerate() {
            let object = || group_name(noun, index, group);
            if group.cpus.is_empty() {
                return Err(CheckError::Empty { object: object() });
            }
            let stray = group.cpus.difference(&self.cpus.online);
            stray_cpus(object, "online CPUs", &stray)?;
            let found = group.cpus.intersection(&taken);
            if !found.is_empty() {
                let object = object();
                return Err(CheckError::SharedCpus { object, found });
            }
            if group.cpus.lowest() < lowest {
                return Err(CheckError::GroupOrder { object: object() });
            }
            lowest = group.cpus.lowest();
            taken = taken.union(&group.cpus);
        }
        Ok(())
    }

    fn check_caches(&self) -> Result<(), CheckError> {
        let mut seen = std::collections::BTreeSet::new();
        for cache in &self.caches {
            if cache.cpus.is_empty() {
                let object = cache_name(cache);
                return Err(CheckError::Empty { object });
            }
            let stray = cache.cpus.difference(&self.cpus.online);
            stray_cpus(|| cache_name(cache), "online CPUs", &stray)?;
            if cache.level == 0 || !seen.insert((cache.level, cache.kind, &cache.cpus)) {
                let object = cache_name(cache);
                return Err(CheckError::Cache { object });
            }
        }
        Ok(())
    }

    fn check_core_kinds(&self) -> Result<(), CheckError> {
        let mut taken = CpuSet::new();
        for kind in &self.core_kinds {
            let object = || format!("core kind `{}`", kind.name);
            if kind.cpus.is_empty() {
                return Err(CheckError::Empty { object: object() });
            }
            stray_cpus(
                object,
                "online CPUs",
                &kind.cpus.difference(&self.cpus.online),
            )?;
            let found = kind.cpus.intersection(&taken);
            if !found.is_empty() {
                let object = object();
                return Err(CheckError::SharedCpus { object, found });
            }
            taken = taken.union(&kind.cpus);
        }
        Ok(())
    }

    fn check_node(&self, node: &Node) -> Result<(), CheckError> {
        let object = || format!("node {}", node.id);
        stray_cpus(
            object,
            "online CPUs",
            &node.cpus.difference(&self.cpus.online),
        )?;
        stray_cpus(
            || format!("offline CPUs of node {}", node.id),
            "CPUs that are not online",
            &node.cpus_offline.intersection(&self.cpus.online),
        )?;
        stray_nodes(
            || format!("nearest nodes of node {}", node.id),
            "online nodes",
            &node.nearest_cpu_nodes.difference(&self.node_ids()),
        )?;
        let known = self.node_ids().union(&self.nodes_offline);
        for access in &node.access {
            stray_nodes(
                || {
                    format!(
                        "initiators of node {}, access class {}",
                        node.id, access.class
                    )
                },
                "nodes of this machine",
                &access.initiators.difference(&known),
            )?;
        }
        Ok(())
    }

    fn check_distances(&self) -> Result<(), CheckError> {
        let Some(matrix) = self.distances.known() else {
            return Ok(());
        };
        let expected = self.node_ids();
        let found: NodeSet = matrix.nodes().iter().copied().collect();
        if expected != found {
            return Err(CheckError::Distances { expected, found });
        }
        Ok(())
    }

    fn check_references(&self) -> Result<(), CheckError> {
        let stray = self.allowed.cpus.difference(&self.cpus.online);
        stray_cpus("allowed CPUs", "online CPUs", &stray)?;
        let nodes = self.node_ids();
        let stray = self.allowed.nodes.difference(&nodes);
        stray_nodes("allowed nodes", "online nodes", &stray)?;
        for tier in self.tiers.known().into_iter().flatten() {
            let stray = tier.nodes.difference(&nodes);
            stray_nodes(
                || format!("memory tier {}", tier.id),
                "online nodes",
                &stray,
            )?;
        }
        let nodes = nodes.union(&self.nodes_offline);
        for device in self.devices.known().into_iter().flatten() {
            let home: NodeSet = device.node.known().copied().into_iter().collect();
            stray_nodes(
                || format!("device {}", device.address),
                "nodes of this machine",
                &home.difference(&nodes),
            )?;
        }
        match self.allowed.cpu_limit {
            Some(limit) if limit.period_us == 0 => Err(CheckError::CpuLimitPeriod),
            _ => Ok(()),
        }
    }
}

/// Whether each inner group lies in one outer group, or outside of all of them.
fn check_within(noun: &str, inner: &[CpuGroup], outer: &[CpuGroup]) -> Result<(), CheckError> {
    // Both lists are disjoint by now, so that the group of a CPU is a lookup and not a search.
    let mut home = std::collections::BTreeMap::new();
    for (index, group) in outer.iter().enumerate() {
        home.extend(group.cpus.iter().map(|cpu| (cpu, index)));
    }
    for (index, group) in inner.iter().enumerate() {
        let Some(&at) = group.cpus.iter().find_map(|cpu| home.get(&cpu)) else {
            continue;
        };
        let found = group.cpus.difference(&outer[at].cpus);
        if !found.is_empty() {
            return Err(CheckError::Across {
                object: group_name(noun, index, group),
                outer: group_name("package", at, &outer[at]),
                found,
            });
        }
    }
    Ok(())
}

/// A name for messages; put together only when there is something to say.
trait Named {
    fn name(self) -> String;
}

impl Named for &str {
    fn name(self) -> String {
        self.to_owned()
    }
}

impl<F: FnOnce() -> String> Named for F {
    fn name(self) -> String {
        self()
    }
}

fn stray_cpus(
    object: impl Named,
    expected: &'static str,
    stray: &CpuSet,
) -> Result<(), CheckError> {
    if stray.is_empty() {
        return Ok(());
    }
    Err(CheckError::StrayCpus {
        object: object.name(),
        expected,
        found: stray.clone(),
    })
}

fn stray_nodes(
    object: impl Named,
    expected: &'static str,
    stray: &NodeSet,
) -> Result<(), CheckError> {
    if stray.is_empty() {
        return Ok(());
    }
    Err(CheckError::StrayNodes {
        object: object.name(),
        expected,
        found: stray.clone(),
    })
}

fn group_name(noun: &str, index: usize, group: &CpuGroup) -> String {
    match group.id {
        Some(id) => format!("{noun} {id} (position {index})"),
        None => format!("{noun} at position {index}"),
    }
}

fn cache_name(cache: &Cache) -> String {
    format!(
        "L{} {:?} cache of CPUs {}",
        cache.level, cache.kind, cache.cpus
    )
}

#[cfg(test)]
mod tests {
    use homenode_units::{NodeMatrix, Reading};

    use super::*;
    use crate::{CacheKind, CoreKind, CpuLimit, Distance, parse_synthetic};

    /// 2 packages with a node, an L3 and 2 cores each, 2 threads per core.
    fn machine() -> Topology {
        parse_synthetic("(distances=21) pack:2 [numa] l3:1 core:2 pu:2").unwrap()
    }

    fn cpus(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    fn nodes(list: &str) -> NodeSet {
        NodeSet::parse_list(list).unwrap()
    }

    /// Each impossible change with what is said about it.
    type Case = (fn(&mut Topology), &'static str);

    fn assert_refused(cases: &[Case]) {
        for (change, message) in cases {
            let mut topology = machine();
            assert_eq!(topology.check(), Ok(()));
            change(&mut topology);
            assert_eq!(topology.check().unwrap_err().to_string(), *message);
        }
    }

    #[test]
    fn sets_and_groups_of_no_machine_are_refused_by_name() {
        let cases: &[Case] = &[
            (
                |t| t.cpus.online = CpuSet::new(),
                "expected at least one online CPU, found none",
            ),
            (
                |t| t.nodes.clear(),
                "expected at least one online node, found none",
            ),
            (
                |t| t.nodes.swap(0, 1),
                "expected nodes in ascending order, each once, found node 0 out of place",
            ),
            (
                |t| t.cpus.offline = cpus("7-8"),
                "offline CPUs: expected CPUs that are not online, found also CPUs 7",
            ),
            (
                |t| t.cpus.possible = cpus("0-6"),
                "online and offline CPUs: expected possible CPUs, found also CPUs 7",
            ),
            (
                |t| t.nodes_offline = nodes("1-2"),
                "offline nodes: expected nodes that are not online, found also nodes 1",
            ),
            (
                |t| t.packages[1].cpus = cpus("4-8"),
                "package 1 (position 1): expected online CPUs, found also CPUs 8",
            ),
            (
                |t| t.packages[1].cpus = cpus("3-7"),
                "package 1 (position 1): expected CPUs of its own, found CPUs 3 in another one as \
                 well",
            ),
            (
                |t| {
                    t.dies = t.packages.clone();
                    t.dies[0].cpus = cpus("0-4");
                    t.dies.truncate(1);
                },
                "die 0 (position 0): expected to be within package 0 (position 0), found CPUs 4 \
                 outside",
            ),
            (
                |t| t.packages.swap(0, 1),
                "package 0 (position 1): expected groups in the order of their lowest CPU",
            ),
            (
                |t| t.cores[3].cpus = CpuSet::new(),
                "core 3 (position 3): expected at least one CPU, found none",
            ),
            (
                |t| {
                    t.cores[1].cpus = cpus("2,4");
                    t.cores[2].cpus = cpus("5");
                },
                "core 1 (position 1): expected to be within package 0 (position 0), found CPUs 4 \
                 outside",
            ),
        ];
        assert_refused(cases);
    }

    #[test]
    fn caches_nodes_and_references_of_no_machine_are_refused_by_name() {
        let cases: &[Case] = &[
            (
                |t| t.caches[0].cpus = CpuSet::new(),
                "L3 Unified cache of CPUs : expected at least one CPU, found none",
            ),
            (
                |t| t.caches[1].cpus = t.caches[0].cpus.clone(),
                "L3 Unified cache of CPUs 0-3: expected one cache per level from 1 on, kind and \
                 CPUs",
            ),
            (
                |t| t.nodes[0].cpus = cpus("0-3,9"),
                "node 0: expected online CPUs, found also CPUs 9",
            ),
            (
                |t| t.nodes[0].cpus_offline = cpus("7"),
                "offline CPUs of node 0: expected CPUs that are not online, found also CPUs 7",
            ),
            (
                |t| t.nodes[0].nearest_cpu_nodes = nodes("0,5"),
                "nearest nodes of node 0: expected online nodes, found also nodes 5",
            ),
            (
                |t| {
                    let row = vec![Distance(10)];
                    t.distances = NodeMatrix::from_rows(vec![NodeId(1)], vec![row])
                        .map(Reading::Known)
                        .unwrap();
                },
                "distances: expected exactly the online nodes 0-1, found 1",
            ),
            (
                |t| t.allowed.cpus = cpus("0,8"),
                "allowed CPUs: expected online CPUs, found also CPUs 8",
            ),
            (
                |t| t.allowed.nodes = nodes("2"),
                "allowed nodes: expected online nodes, found also nodes 2",
            ),
            (
                |t| {
                    t.allowed.cpu_limit = Some(CpuLimit {
                        quota_us: 1,
                        period_us: 0,
                    });
                },
                "CPU limit: expected a period above 0 µs",
            ),
            (
                |t| {
                    t.core_kinds = vec![
                        CoreKind {
                            cpus: cpus("0-3"),
                            name: "P".to_owned(),
                        },
                        CoreKind {
                            cpus: cpus("3-7"),
                            name: "E".to_owned(),
                        },
                    ];
                },
                "core kind `E`: expected CPUs of its own, found CPUs 3 in another one as well",
            ),
        ];
        assert_refused(cases);
    }

    #[test]
    fn what_broken_firmware_says_is_not_refused() {
        let mut topology = machine();
        topology.nodes[1].cpus = topology.nodes[0].cpus.clone();
        topology.caches[0].cpus = cpus("0-5");
        topology.caches[0].kind = CacheKind::Data;
        assert_eq!(topology.check(), Ok(()));
    }
}
