//! Where accesses come from and where memory is: rows and columns of every matrix.

use homenode_topology::{CacheKind, Topology};
use homenode_units::{Bytes, CpuId, CpuSet, NodeId, NodeSet};

use crate::MeasureError;

/// A node with CPUs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The node.
    pub node: NodeId,
    /// Its CPUs, one of each core; all where cores are not known.
    pub cpus: Vec<CpuId>,
}

/// A node with memory that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The node.
    pub node: NodeId,
}

/// Rows and columns. The matrix is rectangular: a node without CPUs is a column only, one without
/// memory a row only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    /// By node id.
    pub rows: Vec<Row>,
    /// By node id.
    pub columns: Vec<Column>,
    /// The largest last-level cache, which one thread's accesses can fill. Unit: bytes.
    pub cache_max: Bytes,
    /// All last-level caches together. Unit: bytes.
    pub cache_total: Bytes,
    /// Distance of the lines of a chase: a cache line, at least 64. Unit: bytes.
    pub stride: Bytes,
}

/// Where no cache is shown, as in many virtual machines: larger than most.
const CACHE_ASSUMED: Bytes = Bytes(32 << 20);

impl Sites {
    /// All that may be used of a machine that was read in full.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let allowed = &topology.allowed;
        let one_of_each_core: CpuSet = topology
            .cores
            .iter()
            .filter_map(|core| core.cpus.intersection(&allowed.cpus).lowest())
            .collect();
        let rows = topology.nodes.iter().filter_map(|node| {
            let usable = node.cpus.intersection(&allowed.cpus);
            let cores = usable.intersection(&one_of_each_core);
            let cpus = if cores.is_empty() { usable } else { cores };
            let cpus: Vec<CpuId> = cpus.iter().collect();
            (!cpus.is_empty()).then_some(Row {
                node: node.id,
                cpus,
            })
        });
        let columns = topology
            .nodes
            .iter()
            .filter(|node| allowed.nodes.contains(node.id) && !node.is_memoryless())
            .map(|node| Column { node: node.id });
        let level = topology.caches.iter().map(|cache| cache.level).max();
        let last = topology
            .caches
            .iter()
            .filter(|cache| Some(cache.level) == level && cache.kind != CacheKind::Instruction);
        let sizes = last.filter_map(|cache| cache.size.known().copied());
        let line = topology.caches.iter().filter_map(|cache| cache.line_size);
        Self {
            rows: rows.collect(),
            columns: columns.collect(),
            cache_max: sizes.clone().max().unwrap_or(CACHE_ASSUMED),
            cache_total: Some(sizes.sum())
                .filter(|sum: &Bytes| sum.0 > 0)
                .unwrap_or(CACHE_ASSUMED),
            stride: line.max().unwrap_or_default().max(Bytes(64)),
        }
    }

    /// The same with these nodes only; `None` leaves all.
    ///
    /// # Errors
    ///
    /// [`MeasureError::NoCpus`] and [`MeasureError::NoMemory`] for a node that is none.
    pub fn restricted(
        mut self,
        from: Option<&NodeSet>,
        to: Option<&NodeSet>,
    ) -> Result<Self, MeasureError> {
        if let Some(from) = from {
            if let Some(node) = from.difference(&self.row_nodes()).lowest() {
                return Err(MeasureError::NoCpus {
                    node,
                    usable: self.row_nodes(),
                });
            }
            self.rows.retain(|row| from.contains(row.node));
        }
        if let Some(to) = to {
            if let Some(node) = to.difference(&self.column_nodes()).lowest() {
                return Err(MeasureError::NoMemory {
                    node,
                    usable: self.column_nodes(),
                });
            }
            self.columns.retain(|column| to.contains(column.node));
        }
        Ok(self)
    }

    /// The nodes of the rows.
    #[must_use]
    pub fn row_nodes(&self) -> NodeSet {
        self.rows.iter().map(|row| row.node).collect()
    }

    /// The nodes of the columns.
    #[must_use]
    pub fn column_nodes(&self) -> NodeSet {
        self.columns.iter().map(|column| column.node).collect()
    }

    /// Each row with its first CPU, and each column: row by row.
    #[must_use]
    pub fn pairs(&self) -> Vec<(NodeId, CpuId, NodeSet)> {
        self.rows
            .iter()
            .flat_map(|row| {
                let to = self.columns.iter().map(|column| column.node);
                to.map(|to| (row.node, row.cpus[0], NodeSet::from_iter([to])))
            })
            .collect()
    }

    /// The column of a row's own node; where that has no memory, the first one.
    #[must_use]
    pub fn own_column(&self, row: NodeId) -> NodeId {
        if self.has_column(row) {
            row
        } else {
            self.columns[0].node
        }
    }

    /// A column of another node: the next one by id, in a circle, so that all are used alike.
    #[must_use]
    pub fn other_column(&self, row: NodeId) -> NodeId {
        let own = self.own_column(row);
        let after = self.columns.iter().find(|column| column.node > own);
        after.unwrap_or(&self.columns[0]).node
    }

    /// Rows whose threads use a column at the same time, at most: those that have no memory of
    /// their own join others.
    #[must_use]
    pub fn users_max(&self, column: NodeId) -> usize {
        let nodes = || self.rows.iter().map(|row| row.node);
        let own = nodes()
            .filter(|&row| self.own_column(row) == column)
            .count();
        let other = nodes()
            .filter(|&row| self.other_column(row) == column)
            .count();
        own.max(other).max(1)
    }

    /// Whether a node's memory can be used.
    #[must_use]
    pub fn has_column(&self, node: NodeId) -> bool {
        self.columns.iter().any(|column| column.node == node)
    }

    /// A size that no cache holds a useful part of: four times what one thread can reach, at least
    /// 100 MiB.
    #[must_use]
    pub fn beyond_caches(&self) -> Bytes {
        Bytes(self.cache_max.0.saturating_mul(4)).max(Bytes(100 << 20))
    }
}

#[cfg(test)]
mod tests {
    use homenode_topology::parse_synthetic;

    use super::*;

    fn sites() -> Sites {
        let machine =
            parse_synthetic("pack:2 [numa(memory=16GB)] l3:1(size=8MB) core:4 pu:2").unwrap();
        Sites::of(&machine)
    }

    #[test]
    fn a_row_has_one_cpu_of_each_core() {
        let sites = sites();
        assert_eq!(sites.rows.len(), 2);
        assert_eq!(sites.rows[0].cpus.len(), 4);
        assert_eq!(sites.columns.len(), 2);
        assert_eq!(sites.cache_total.0, 2 * sites.cache_max.0);
        assert!(sites.beyond_caches() >= Bytes(4 * sites.cache_max.0));
    }

    /// A node without memory shares the first one's: there are buffers for both.
    #[test]
    fn rows_without_memory_join_others() {
        let mut sites = sites();
        assert_eq!(sites.users_max(NodeId(0)), 1);
        sites.columns.remove(1);
        assert_eq!(sites.own_column(NodeId(1)), NodeId(0));
        assert_eq!(sites.users_max(NodeId(0)), 2);
    }

    #[test]
    fn nodes_that_cannot_be_rows_or_columns_are_named() {
        let node = |id| NodeSet::from_iter([NodeId(id)]);
        let only = sites().restricted(Some(&node(1)), Some(&node(0))).unwrap();
        assert_eq!(only.row_nodes(), node(1));
        assert_eq!(only.column_nodes(), node(0));
        assert!(matches!(
            sites().restricted(Some(&node(7)), None),
            Err(MeasureError::NoCpus {
                node: NodeId(7),
                ..
            })
        ));
        assert!(matches!(
            sites().restricted(None, Some(&node(7))),
            Err(MeasureError::NoMemory {
                node: NodeId(7),
                ..
            })
        ));
    }
}
