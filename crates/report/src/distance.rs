//! What a matrix of firmware distances says, in fewer numbers than the matrix has.

use std::collections::{BTreeMap, BTreeSet};

use homenode_topology::{Distance, Topology};
use homenode_units::{NodeId, NodeMatrix, NodeSet};

/// The pairs of nodes that are equally far apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// How far.
    pub(crate) distance: Distance,
    /// Ordered pairs of two different nodes.
    pub(crate) pairs: usize,
    /// The least and the most nodes that any one node has at this distance.
    pub(crate) per_node: (usize, usize),
    /// The pair that comes first.
    pub(crate) example: (NodeId, NodeId),
    /// The nodes that reach each other in steps of at most this distance, in both directions.
    pub(crate) groups: Vec<NodeSet>,
}

/// How far apart different nodes are: each distance once, nearest first. Unknown ones (0) are left
/// out.
pub(crate) fn steps(matrix: &NodeMatrix<Distance>) -> BTreeSet<Distance> {
    let between = matrix.cells().filter(|(from, to, _)| from != to);
    between
        .map(|(_, _, &distance)| distance)
        .filter(|distance| distance.0 != 0)
        .collect()
}

/// The pairs of different nodes by distance, nearest first. Unknown distances (0) are left out.
pub(crate) fn classes(matrix: &NodeMatrix<Distance>) -> Vec<Class> {
    let mut pairs: BTreeMap<Distance, Vec<(NodeId, NodeId)>> = BTreeMap::new();
    for (from, to, &distance) in matrix.cells() {
        if from != to && distance.0 != 0 {
            pairs.entry(distance).or_default().push((from, to));
        }
    }
    pairs
        .into_iter()
        .filter_map(|(distance, pairs)| {
            let example = *pairs.first()?;
            // Pairs come row by row, and a node without one has no run.
            let runs = || pairs.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len);
            let least = if runs().count() < matrix.nodes().len() {
                0
            } else {
                runs().min()?
            };
            Some(Class {
                distance,
                pairs: pairs.len(),
                per_node: (least, runs().max()?),
                example,
                groups: groups_within(matrix, distance),
            })
        })
        .collect()
}

/// Nodes that reach each other in steps of at most `limit`, by their lowest node.
fn groups_within(matrix: &NodeMatrix<Distance>, limit: Distance) -> Vec<NodeSet> {
    let near = |from, to| {
        let within = |a, b| matrix.get(a, b).is_some_and(|d| d.0 != 0 && *d <= limit);
        within(from, to) && within(to, from)
    };
    let mut left: Vec<NodeId> = matrix.nodes().to_vec();
    let mut groups = Vec::new();
    while let Some(&first) = left.first() {
        let mut group = vec![first];
        let mut reached = 0;
        left.remove(0);
        while let Some(&from) = group.get(reached) {
            reached += 1;
            let (found, rest) = left.into_iter().partition(|&to| near(from, to));
            left = rest;
            group.extend::<Vec<NodeId>>(found);
        }
        groups.push(group.into_iter().collect());
    }
    groups
}

/// The other nodes nearest to this one, and how far they are.
///
/// For a node without CPUs these are the nodes whose CPUs are nearest to it, and the way is theirs.
pub(crate) fn nearest(topology: &Topology, node: NodeId) -> Option<(NodeSet, Distance)> {
    let matrix = topology.distances.known()?;
    let record = topology.node(node)?;
    if record.is_cpuless() {
        let home = record.nearest_cpu_nodes.lowest()?;
        let distance = matrix.get(home, node).filter(|distance| distance.0 != 0)?;
        return Some((record.nearest_cpu_nodes.clone(), *distance));
    }
    let others = || {
        let row = matrix
            .nodes()
            .iter()
            .copied()
            .zip(matrix.row(node).iter().copied());
        row.filter(move |&(other, _)| other != node)
    };
    let known = || others().filter(|(_, distance)| distance.0 != 0);
    let least = known().map(|(_, distance)| distance).min()?;
    let nodes = known().filter(|(_, distance)| *distance == least);
    Some((nodes.map(|(other, _)| other).collect(), least))
}

/// The first pair of nodes that is not equally far in both directions.
pub(crate) fn first_asymmetry(
    matrix: &NodeMatrix<Distance>,
) -> Option<(NodeId, NodeId, Distance, Distance)> {
    matrix.cells().find_map(|(from, to, &there)| {
        let back = *matrix.get(to, from)?;
        (from < to && there != back).then_some((from, to, there, back))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn classes_count_pairs_and_find_the_hierarchy() {
        let topology = sample::big();
        let classes = classes(topology.distances.known().unwrap());
        let seen: Vec<_> = classes
            .iter()
            .map(|class| {
                (
                    class.distance.0,
                    class.pairs,
                    class.per_node,
                    class.groups.len(),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (12, 64, (1, 1), 32),
                (14, 64 * 6, (6, 6), 8),
                (18, 64 * 24, (24, 24), 2),
                (34, 64 * 32, (32, 32), 1),
            ]
        );
    }

    #[test]
    fn unknown_distances_are_in_no_class() {
        let nodes = vec![NodeId(0), NodeId(1)];
        let rows = vec![
            vec![Distance(0), Distance(0)],
            vec![Distance(20), Distance(0)],
        ];
        let matrix = NodeMatrix::from_rows(nodes, rows).unwrap();
        let classes = classes(&matrix);
        assert_eq!(classes.len(), 1);
        assert_eq!((classes[0].pairs, classes[0].per_node), (1, (0, 1)));
        // One direction alone does not join two nodes.
        assert_eq!(classes[0].groups.len(), 2);
    }

    #[test]
    fn nearest_of_a_cpuless_node_is_where_its_memory_is_used_from() {
        let mut topology = sample::snc_cpuless();
        let (nodes, distance) = nearest(&topology, NodeId(5)).unwrap();
        assert_eq!((nodes.to_string().as_str(), distance.0), ("1", 17));
        // What the HMAT says about its CPUs counts, not the least distance.
        topology.nodes[5].nearest_cpu_nodes = [NodeId(3)].into_iter().collect();
        let (nodes, distance) = nearest(&topology, NodeId(5)).unwrap();
        assert_eq!((nodes.to_string().as_str(), distance.0), ("3", 28));
        let (nodes, distance) = nearest(&topology, NodeId(0)).unwrap();
        assert_eq!((nodes.to_string().as_str(), distance.0), ("2", 11));
        assert_eq!(nearest(&sample::single(), NodeId(0)), None);
    }

    #[test]
    fn asymmetry_is_found() {
        let matrix = |back| {
            let rows = vec![
                vec![Distance(10), Distance(20)],
                vec![Distance(back), Distance(10)],
            ];
            NodeMatrix::from_rows(vec![NodeId(0), NodeId(1)], rows).unwrap()
        };
        assert_eq!(first_asymmetry(&matrix(20)), None);
        let found = (NodeId(0), NodeId(1), Distance(20), Distance(31));
        assert_eq!(first_asymmetry(&matrix(31)), Some(found));
    }
}
