//! What a request must know about nodes, and nothing more: a launcher is called often.
//!
//! On the live machine the nodes with memory come from one system call, and the CPUs of a node
//! from one file; the topology is read only to explain what is wrong. A captured machine is read
//! as a whole.

use std::cell::OnceCell;

use homenode_host::Buffer;
use homenode_topology::{Detail, Topology};
use homenode_units::{CpuSet, NodeId, NodeSet};

use crate::error::Helped;
use crate::source::Machine;

#[derive(Debug)]
pub(super) struct Nodes<'a> {
    pub(super) machine: &'a Machine,
    topology: OnceCell<Topology>,
    usable_memory: OnceCell<NodeSet>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(machine: &'a Machine) -> Self {
        Self {
            machine,
            topology: OnceCell::new(),
            usable_memory: OnceCell::new(),
        }
    }

    fn topology(&self) -> anyhow::Result<&Topology> {
        if let Some(topology) = self.topology.get() {
            return Ok(topology);
        }
        let topology = self.machine.topology(Detail::Fast)?;
        Ok(self.topology.get_or_init(|| topology))
    }

    /// The nodes named by a list, or by `all`.
    ///
    /// # Errors
    ///
    /// When the text is no list, or names nothing.
    pub(super) fn parse(
        &self,
        flag: &str,
        text: &str,
        all: impl FnOnce() -> anyhow::Result<NodeSet>,
    ) -> anyhow::Result<NodeSet> {
        if text == "all" {
            return all();
        }
        let nodes = NodeSet::parse_list(text).map_err(|error| {
            Helped::wrap(
                format!("cannot read {flag} `{text}`"),
                error,
                self.there_are(),
            )
        })?;
        if nodes.is_empty() {
            return Err(Helped::error(
                format!("{flag} `{text}` holds no node"),
                self.there_are(),
            ));
        }
        Ok(nodes)
    }

    fn there_are(&self) -> String {
        match self.topology() {
            Ok(topology) => format!("this machine has nodes {}", topology.node_ids()),
            Err(_) => "name nodes such as 0 or 0,2-3".to_owned(),
        }
    }

    /// The nodes that have CPUs online.
    pub(super) fn with_cpus(&self) -> anyhow::Result<NodeSet> {
        let nodes = &self.topology()?.nodes;
        let with_cpus = nodes.iter().filter(|node| !node.cpus.is_empty());
        Ok(with_cpus.map(|node| node.id).collect())
    }

    /// The nodes whose memory may be used here.
    pub(super) fn with_memory(&self) -> anyhow::Result<&NodeSet> {
        if let Some(nodes) = self.usable_memory.get() {
            return Ok(nodes);
        }
        let asked = match self.machine {
            Machine::Live(_) => homenode_sys::allowed_nodes().ok(),
            Machine::Captured(..) => None,
        };
        let nodes = match asked {
            Some(nodes) => nodes,
            None => self.with_memory_by_files()?,
        };
        Ok(self.usable_memory.get_or_init(|| nodes))
    }

    /// Where the kernel cannot be asked: a captured machine, or a filter.
    fn with_memory_by_files(&self) -> anyhow::Result<NodeSet> {
        let topology = self.topology()?;
        let usable = topology
            .nodes
            .iter()
            .filter(|node| !node.is_memoryless() && topology.allowed.nodes.contains(node.id));
        Ok(usable.map(|node| node.id).collect())
    }

    /// The CPUs of nodes, each of which must have some.
    ///
    /// # Errors
    ///
    /// When a node is not there or has no CPUs.
    pub(super) fn cpus(&self, nodes: &NodeSet) -> anyhow::Result<CpuSet> {
        let mut all = CpuSet::new();
        for node in nodes.iter() {
            let cpus = match self.cpus_by_file(node) {
                Some(cpus) => cpus,
                None => self.cpus_by_topology(node)?,
            };
            if cpus.is_empty() {
                return Err(self.no_cpus(node)?);
            }
            all = all.union(&cpus);
        }
        Ok(all)
    }

    /// `None` where the file is missing, or the machine is not this one.
    fn cpus_by_file(&self, node: NodeId) -> Option<CpuSet> {
        let Machine::Live(_) = self.machine else {
            return None;
        };
        let mut buffer = Buffer::new();
        let path = format!("/sys/devices/system/node/node{node}/cpumap");
        let text = self.machine.files().read(&path, &mut buffer).ok()?;
        CpuSet::parse_mask(std::str::from_utf8(text).ok()?).ok()
    }

    fn cpus_by_topology(&self, node: NodeId) -> anyhow::Result<CpuSet> {
        match self.topology()?.node(node) {
            Some(node) => Ok(node.cpus.clone()),
            None => Err(self.no_node(node)),
        }
    }

    fn no_node(&self, node: NodeId) -> anyhow::Error {
        Helped::error(format!("this machine has no node {node}"), self.there_are())
    }

    fn no_cpus(&self, id: NodeId) -> anyhow::Result<anyhow::Error> {
        let topology = self.topology()?;
        let (message, mut help) = match topology.node(id) {
            Some(node) if !node.cpus_offline.is_empty() => (
                format!("node {id} has no CPUs online"),
                format!("bring CPUs {} online", node.cpus_offline),
            ),
            _ => (
                format!("node {id} has no CPUs"),
                format!("use --memory-on {id} to use its memory"),
            ),
        };
        let nearest = self.nearest(id, |node| !node.cpus.is_empty())?;
        if !nearest.is_empty() {
            help = format!("{help}, and --on {nearest} for the nearest CPUs");
        }
        Ok(Helped::error(message, help))
    }

    /// The nodes at the shortest distance from one that are as wanted.
    fn nearest(
        &self,
        from: NodeId,
        wanted: impl Fn(&homenode_topology::Node) -> bool,
    ) -> anyhow::Result<NodeSet> {
        let topology = self.topology()?;
        let distance = |to: NodeId| {
            let distances = topology.distances.known()?;
            distances.get(from, to).map(|distance| distance.0)
        };
        let candidates: Vec<NodeId> = topology
            .nodes
            .iter()
            .filter(|node| node.id != from && wanted(node))
            .map(|node| node.id)
            .collect();
        let shortest = candidates.iter().map(|&node| distance(node)).min();
        Ok(candidates
            .into_iter()
            .filter(|&node| Some(distance(node)) == shortest)
            .collect())
    }

    /// Checks that memory may be taken from each of these nodes.
    ///
    /// # Errors
    ///
    /// When a node is not there, has no memory, or the cpuset does not allow it.
    pub(super) fn check_memory(&self, nodes: &NodeSet) -> anyhow::Result<()> {
        let usable = self.with_memory()?;
        let Some(id) = nodes.difference(usable).lowest() else {
            return Ok(());
        };
        let Some(node) = self.topology()?.node(id) else {
            return Err(self.no_node(id));
        };
        if node.is_memoryless() {
            let nearest = self.nearest(id, |node| usable.contains(node.id))?;
            let help = if nearest.is_empty() {
                format!("nodes with memory: {usable}")
            } else {
                format!(
                    "use --memory-on {nearest}, the nearest memory, or leave memory to the kernel"
                )
            };
            return Err(Helped::error(format!("node {id} has no memory"), help));
        }
        Err(Helped::error(
            format!("the cpuset of this process does not allow memory on node {id}"),
            format!(
                "it allows nodes {usable}; widen cpuset.mems of its control group, or use those"
            ),
        ))
    }
}
