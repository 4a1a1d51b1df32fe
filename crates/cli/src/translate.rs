//! `homenode topo --cpus` and `--nodes`: the same CPUs in everyone's notation.

use std::io::Write;

use homenode_topology::Topology;
use homenode_units::{CpuSet, NodeId, NodeSet};
use serde::Serialize;

use crate::error::Helped;

/// A set of CPUs in all notations.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Translation {
    schema: &'static str,
    /// The kernel's list.
    cpus: CpuSet,
    /// One hexadecimal number.
    mask: String,
    /// The kernel's words of 32 bits.
    kernel_mask: String,
    /// Nodes that hold any of the CPUs.
    nodes: NodeSet,
    /// Whether the CPUs are all the online CPUs of the nodes.
    whole_nodes: bool,
    /// CPUs that the machine does not have online.
    not_online: CpuSet,
}

impl Translation {
    /// Translates a list or a mask.
    ///
    /// # Errors
    ///
    /// When the text is neither.
    pub(crate) fn of_cpus(text: &str, topology: &Topology) -> anyhow::Result<Self> {
        let is_mask = text.starts_with("0x")
            || text.starts_with("0X")
            || text.ends_with('h')
            || text.ends_with('H');
        let cpus = if is_mask {
            CpuSet::parse_mask(text)
        } else {
            CpuSet::parse_list(text)
        };
        let cpus = cpus.map_err(|error| {
            Helped::wrap(
                format!("cannot read --cpus `{text}`"),
                error,
                "write a list such as 0-3,8 or a mask such as 0x10000",
            )
        })?;
        if cpus.is_empty() {
            return Err(Helped::error(
                format!("--cpus `{text}` holds no CPU"),
                format!("this machine has CPUs {}", topology.cpus.online),
            ));
        }
        Ok(Self::new(cpus, topology))
    }

    /// Translates a list of nodes.
    ///
    /// # Errors
    ///
    /// When the text is no list, or names a node that is not there or has no CPUs.
    pub(crate) fn of_nodes(text: &str, topology: &Topology) -> anyhow::Result<Self> {
        let help = format!("this machine has nodes {}", topology.node_ids());
        let nodes = NodeSet::parse_list(text).map_err(|error| {
            Helped::wrap(format!("cannot read --nodes `{text}`"), error, help.clone())
        })?;
        let missing = nodes.difference(&topology.node_ids());
        if !missing.is_empty() {
            return Err(Helped::error(
                format!("expected nodes of this machine, found {missing}"),
                help,
            ));
        }
        let cpus = topology
            .nodes
            .iter()
            .filter(|node| nodes.contains(node.id))
            .fold(CpuSet::new(), |all, node| all.union(&node.cpus));
        if cpus.is_empty() {
            return Err(Helped::error(
                format!("nodes `{text}` have no CPUs online"),
                help,
            ));
        }
        Ok(Self::new(cpus, topology))
    }

    fn new(cpus: CpuSet, topology: &Topology) -> Self {
        let holds: Vec<_> = topology
            .nodes
            .iter()
            .filter(|node| node.cpus.intersects(&cpus))
            .collect();
        let all = holds
            .iter()
            .fold(CpuSet::new(), |all, node| all.union(&node.cpus));
        let words: Vec<u32> = cpus.words_u32().collect();
        let mut mask = String::from("0x");
        for (position, word) in words.iter().rev().enumerate() {
            let digits = if position == 0 {
                format!("{word:x}")
            } else {
                format!("{word:08x}")
            };
            mask.push_str(&digits);
        }
        Self {
            schema: "homenode.cpus/1",
            mask,
            kernel_mask: cpus.to_mask(),
            nodes: holds
                .iter()
                .map(|node| node.id)
                .collect::<Vec<NodeId>>()
                .into_iter()
                .collect(),
            whole_nodes: all == cpus,
            not_online: cpus.difference(&topology.cpus.online),
            cpus,
        }
    }

    /// Prints it for people.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    pub(crate) fn print(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(
            out,
            "CPUs         {}  ({} in all)",
            self.cpus,
            self.cpus.len()
        )?;
        writeln!(out, "mask         {}", self.mask)?;
        writeln!(out, "kernel mask  {}", self.kernel_mask)?;
        let nodes = if self.nodes.is_empty() {
            "none".to_owned()
        } else {
            self.nodes.to_string()
        };
        let whole = match (self.nodes.is_empty(), self.whole_nodes) {
            (true, _) => "",
            (false, true) => "  (all of their CPUs)",
            (false, false) => "  (some of their CPUs)",
        };
        writeln!(out, "nodes        {nodes}{whole}")?;
        write!(out, "numactl      --physcpubind={}", self.cpus)?;
        if self.whole_nodes && !self.nodes.is_empty() {
            write!(out, "  or  --cpunodebind={}", self.nodes)?;
        }
        writeln!(out, "\ntaskset      --cpu-list {}", self.cpus)?;
        if !self.not_online.is_empty() {
            writeln!(
                out,
                "not online   {}  (this machine does not have them)",
                self.not_online
            )?;
        }
        Ok(())
    }
}
