use serde::Serialize;

use crate::NodeId;

/// A value for each ordered pair of nodes.
///
/// Rows are where an access comes from, columns where the memory is. Both are found by node id;
/// ids have gaps, so `[node]` below always means "the position of that node in [`Self::nodes`]".
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeMatrix<T> {
    nodes: Vec<NodeId>,
    /// Row by row; `nodes.len()` squared values.
    rows: Vec<Vec<T>>,
}

/// Why values are no matrix over the nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// The number of rows is not the number of nodes.
    #[error("expected {expected} rows, one per node, found {found}")]
    Rows {
        /// Number of nodes.
        expected: usize,
        /// Number of rows.
        found: usize,
    },
    /// A row's length is not the number of nodes.
    #[error("expected {expected} values in the row of node {node}, found {found}")]
    Columns {
        /// Node of the row.
        node: NodeId,
        /// Number of nodes.
        expected: usize,
        /// Number of values.
        found: usize,
    },
    /// The nodes are not in ascending order, or one is named twice.
    #[error("expected nodes in ascending order, each once, found node {node} out of place")]
    Order {
        /// The first node that is not above the one before it.
        node: NodeId,
    },
}

impl<T> NodeMatrix<T> {
    /// Makes a matrix from its rows, in the order of the nodes.
    ///
    /// # Errors
    ///
    /// [`MatrixError`] when the shape is not square over the nodes.
    pub fn from_rows(nodes: Vec<NodeId>, rows: Vec<Vec<T>>) -> Result<Self, MatrixError> {
        let expected = nodes.len();
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(MatrixError::Order { node: pair[1] });
        }
        if rows.len() != expected {
            return Err(MatrixError::Rows {
                expected,
                found: rows.len(),
            });
        }
        for (&node, row) in nodes.iter().zip(&rows) {
            if row.len() != expected {
                return Err(MatrixError::Columns {
                    node,
                    expected,
                    found: row.len(),
                });
            }
        }
        Ok(Self { nodes, rows })
    }

    /// The nodes, ascending; the order of rows and columns.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The value from one node's CPUs to another node's memory.
    #[must_use]
    pub fn get(&self, from: NodeId, to: NodeId) -> Option<&T> {
        let row = self.nodes.binary_search(&from).ok()?;
        let column = self.nodes.binary_search(&to).ok()?;
        self.rows.get(row)?.get(column)
    }

    /// A node's row, in the order of [`Self::nodes`]; empty for a node that is not in the matrix.
    #[must_use]
    pub fn row(&self, from: NodeId) -> &[T] {
        let position = self.nodes.binary_search(&from);
        position
            .ok()
            .and_then(|row| self.rows.get(row))
            .map_or(&[], Vec::as_slice)
    }

    /// Each node with its row, in order.
    pub fn rows(&self) -> impl Iterator<Item = (NodeId, &[T])> {
        self.nodes
            .iter()
            .copied()
            .zip(self.rows.iter().map(Vec::as_slice))
    }

    /// Each pair with its value: from, to, value; row by row.
    pub fn cells(&self) -> impl Iterator<Item = (NodeId, NodeId, &T)> {
        self.rows().flat_map(|(from, row)| {
            self.nodes
                .iter()
                .zip(row)
                .map(move |(&to, value)| (from, to, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_by_node_id_not_by_position() {
        let nodes = vec![NodeId(0), NodeId(33)];
        let matrix = NodeMatrix::from_rows(nodes, vec![vec![10, 16], vec![22, 10]]).unwrap();
        assert_eq!(matrix.get(NodeId(33), NodeId(0)), Some(&22));
        assert_eq!(matrix.get(NodeId(1), NodeId(0)), None);
        let cells: Vec<_> = matrix.cells().map(|(a, b, &v)| (a.0, b.0, v)).collect();
        assert_eq!(cells, [(0, 0, 10), (0, 33, 16), (33, 0, 22), (33, 33, 10)]);
    }

    #[test]
    fn shapes_that_are_not_square_are_refused() {
        let nodes = || vec![NodeId(0), NodeId(1)];
        assert_eq!(
            NodeMatrix::from_rows(nodes(), vec![vec![10, 20]]).unwrap_err(),
            MatrixError::Rows {
                expected: 2,
                found: 1
            }
        );
        assert_eq!(
            NodeMatrix::from_rows(nodes(), vec![vec![10, 20], vec![20]]).unwrap_err(),
            MatrixError::Columns {
                node: NodeId(1),
                expected: 2,
                found: 1
            }
        );
        assert_eq!(
            NodeMatrix::from_rows(vec![NodeId(1), NodeId(1)], vec![vec![1, 2], vec![3, 4]])
                .unwrap_err(),
            MatrixError::Order { node: NodeId(1) }
        );
    }
}
