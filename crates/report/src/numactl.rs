//! The hardware listing of `numactl --hardware`, byte for byte.

use std::fmt::Write as _;

use homenode_topology::{Distance, Topology};
use homenode_units::{Bytes, NodeMatrix, Reading};

/// The releases of numactl whose listings differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumactlRelease {
    /// Up to 2.0.18: numbers of the distance table take three columns.
    Before2_0_19,
    /// 2.0.19: they take four.
    #[default]
    Since2_0_19,
}

impl NumactlRelease {
    /// Columns of a digit string; a blank for the sign comes before it.
    fn digits(self) -> usize {
        match self {
            Self::Before2_0_19 => 2,
            Self::Since2_0_19 => 3,
        }
    }
}

/// What `numactl -H` prints for this machine.
///
/// Scripts parse this text, so every blank is copied, the one at the end of each row of distances
/// too. A number of the distance table is `% 3d` (`% 4d` since 2.0.19): a blank for the sign, then
/// at least two columns, so that 255 takes four and moves the rest of its row to the right. Nodes without
/// memory are listed with `0 MB`, nodes without CPUs with nothing after `cpus:`. Distances are
/// given up as a whole when the last node's distance to the first is 0, which is libnuma's test
/// for "no table".
///
/// Not copied, each because it misleads (seen with 2.0.16 over bind-mounted trees):
///
/// * without `/sys/devices/system/node`, `available: 0 nodes ()`: the machine still has memory,
///   and we print the one node it has;
/// * `distance` rows with more columns than online nodes are read from the left, so that node 1,
///   alone online with the row `21 10`, is at distance 21 from itself: we print 10;
/// * a node's CPUs are its `cpumap` as it stands, where old kernels and captured trees keep
///   offline CPUs: we print online CPUs only, as today's kernels write the map;
/// * a `cpumap` longer than the CPUs of the machine that looks at it becomes no CPUs, with a
///   warning on the error output: we print the CPUs;
/// * a distance row that is too short is filled with 0: where the reader found no usable table, we
///   say `No distance information available.`
#[must_use]
pub fn numactl_hardware(topology: &Topology, release: NumactlRelease) -> String {
    let mut text = String::new();
    let ids = topology.node_ids();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "available: {} nodes ({ids})", ids.len());
    for node in &topology.nodes {
        let id = node.id;
        let _ = write!(text, "node {id} cpus:");
        for cpu in node.cpus.iter() {
            let _ = write!(text, " {cpu}");
        }
        let total = mebibytes(&node.memory_total);
        let free = mebibytes(&node.memory_free);
        let _ = write!(text, "\nnode {id} size: {total}\nnode {id} free: {free}\n");
    }
    match topology
        .distances
        .known()
        .filter(|matrix| is_filled(matrix))
    {
        Some(matrix) => push_distances(&mut text, matrix, release.digits()),
        None => text.push_str("No distance information available.\n"),
    }
    text
}

/// numactl's `MB` are mebibytes, rounded down.
fn mebibytes(size: &Reading<Bytes>) -> String {
    match size.known() {
        Some(size) => format!("{} MB", size.mib()),
        None => "<not available>".to_owned(),
    }
}

/// Whether numactl takes the table for one: from the last node to the first it is not 0.
fn is_filled(matrix: &NodeMatrix<Distance>) -> bool {
    let ends = matrix.nodes().last().zip(matrix.nodes().first());
    ends.and_then(|(&last, &first)| matrix.get(last, first))
        .is_some_and(|distance| distance.0 != 0)
}

fn push_distances(text: &mut String, matrix: &NodeMatrix<Distance>, digits: usize) {
    let _ = write!(text, "node distances:\nnode{:1$}", "", digits - 1);
    for node in matrix.nodes() {
        let _ = write!(text, " {:>digits$} ", node.0);
    }
    text.push('\n');
    for (from, row) in matrix.rows() {
        let _ = write!(text, " {:>digits$}: ", from.0);
        for distance in row {
            let _ = write!(text, " {:>digits$} ", distance.0);
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_sparse_machine_is_listed_as_numactl_does() {
        // numactl 2.0.16 over the tree 48amd64-4pa2n6c-sparse of hwloc, the memory sizes ours.
        let expected = "\
available: 8 nodes (0-2,33-34,45,72-73)
node 0 cpus: 0 1 2 3 4 5
node 0 size: 8192 MB
node 0 free: 7892 MB
";
        let text = numactl_hardware(&sample::sparse(), NumactlRelease::Before2_0_19);
        assert!(text.starts_with(expected), "{text}");
        let distances = "\
node distances:
node   0   1   2  33  34  45  72  73 
  0:  10  16  16  22  16  22  16  22 
  1:  16  10  22  16  16  22  22  16 
";
        assert!(text.contains(distances), "{text}");
    }

    #[test]
    fn ids_and_distances_of_three_digits_widen_their_row() {
        // numactl 2.0.16 over a hand-made tree with nodes 0, 1 and 103.
        let text = numactl_hardware(&sample::gpus(), NumactlRelease::Before2_0_19);
        assert!(
            text.contains("\nnode   0   8  250  251  252  253  254  255 \n"),
            "{text}"
        );
        assert!(text.contains("\n 250:  120  80  10  120 "), "{text}");
        assert!(
            text.contains("\nnode 250 cpus:\nnode 250 size: 16384 MB\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_missing_is_not_available() {
        let text = numactl_hardware(&sample::nothing_but_cpus(), NumactlRelease::Before2_0_19);
        assert!(text.contains("\nnode 7 size: <not available>\nnode 7 free: <not available>\n"));
        assert!(
            text.ends_with("\nNo distance information available.\n"),
            "{text}"
        );
    }

    #[test]
    fn a_memoryless_node_has_zero_megabytes() {
        let text = numactl_hardware(&sample::memoryless(), NumactlRelease::Before2_0_19);
        assert!(
            text.contains("\nnode 1 size: 0 MB\nnode 1 free: 0 MB\n"),
            "{text}"
        );
    }

    #[test]
    fn a_table_of_zeroes_is_no_table() {
        let mut topology = sample::single();
        let rows = vec![vec![Distance(0)]];
        let nodes = topology.distances.known().unwrap().nodes().to_vec();
        topology.distances = Reading::Known(NodeMatrix::from_rows(nodes, rows).unwrap());
        assert!(
            numactl_hardware(&topology, NumactlRelease::Before2_0_19)
                .ends_with("No distance information available.\n")
        );
    }

    #[test]
    fn the_newer_release_has_wider_columns() {
        // numactl 2.0.19 in a guest with two nodes.
        let text = numactl_hardware(&sample::two_nodes(), NumactlRelease::Since2_0_19);
        let distances = "\
node distances:
node     0    1 
   0:   10   21 
   1:   21   10 
";
        assert!(text.ends_with(distances), "{text}");
    }
}
