//! The hardware listing of `numactl --hardware`, byte for byte.

use std::fmt::Write as _;

use homenode_topology::{Distance, Topology};
use homenode_units::{Bytes, CpuSet, NodeMatrix, Reading};

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
pub fn numactl_hardware(topology: &Topology, layout: NumactlLayout) -> String {
    let mut text = String::new();
    let ids = topology.node_ids();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "available: {} nodes ({ids})", ids.len());
    for node in &topology.nodes {
        let id = node.id;
        let _ = write!(text, "node {id} cpus:");
        if layout.compress_cpus {
            push_ranges(&mut text, &node.cpus);
        } else {
            for cpu in node.cpus.iter() {
                let _ = write!(text, " {cpu}");
            }
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
        Some(matrix) => push_distances(&mut text, matrix, layout),
        None => text.push_str("No distance information available.\n"),
    }
    text
}

/// How `numactl -H` lays out its listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumactlLayout {
    /// Four columns for a number of the distance table, not a sign's and two.
    pub wide_distances: bool,
    /// CPUs as ranges with their number, ` 0-3, 8 (5)`, and not one by one (`--cpu-compress`).
    pub compress_cpus: bool,
}

impl NumactlLayout {
    /// Debian 12 and Ubuntu 24.04.
    pub const V2_0_16: Self = Self {
        wide_distances: false,
        compress_cpus: false,
    };
    /// Debian 13: a column more for each distance, and one more before the header's numbers.
    pub const V2_0_19: Self = Self {
        wide_distances: true,
        compress_cpus: false,
    };
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

/// ` 0-3, 8 (5)`: ranges, and how many CPUs they hold.
fn push_ranges(text: &mut String, cpus: &CpuSet) {
    if !cpus.is_empty() {
        let _ = write!(text, " {}", cpus.to_string().replace(',', ", "));
    }
    let _ = write!(text, " ({})", cpus.len());
}

fn push_distances(text: &mut String, matrix: &NodeMatrix<Distance>, layout: NumactlLayout) {
    let (sign, columns, gap) = if layout.wide_distances {
        ("", 4, "  ")
    } else {
        (" ", 2, " ")
    };
    let number = |number: u32| format!("{sign}{number:>columns$}");
    let _ = write!(text, "node distances:\nnode{gap}");
    for node in matrix.nodes() {
        let _ = write!(text, "{} ", number(node.0));
    }
    text.push('\n');
    for (from, row) in matrix.rows() {
        let _ = write!(text, "{}: ", number(from.0));
        for distance in row {
            let _ = write!(text, "{} ", number(distance.0));
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
        let text = numactl_hardware(&sample::sparse(), NumactlLayout::V2_0_16);
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
    fn the_layout_of_2_0_19_is_wider() {
        // numactl 2.0.19 on the lab's 3n-cpuless and 4n-ring, `-H --cpu-compress` and `-H`.
        let layout = NumactlLayout {
            compress_cpus: true,
            ..NumactlLayout::V2_0_19
        };
        let text = numactl_hardware(&sample::sparse(), layout);
        assert!(text.contains("\nnode 0 cpus: 0-5 (6)\n"), "{text}");
        assert!(
            text.contains("\nnode     0    1    2   33   34   45   72   73 \n"),
            "{text}"
        );
        assert!(
            text.contains("\n   0:   10   16   16   22   16   22   16   22 \n"),
            "{text}"
        );
        let text = numactl_hardware(&sample::gpus(), layout);
        assert!(text.contains("\nnode 250 cpus: (0)\n"), "{text}");
    }

    #[test]
    fn cpus_in_several_ranges_are_parted_by_comma_and_blank() {
        let mut text = String::new();
        push_ranges(&mut text, &CpuSet::parse_list("0-3,8").unwrap());
        assert_eq!(text, " 0-3, 8 (5)");
    }

    #[test]
    fn ids_and_distances_of_three_digits_widen_their_row() {
        // numactl 2.0.16 over a hand-made tree with nodes 0, 1 and 103.
        let text = numactl_hardware(&sample::gpus(), NumactlLayout::V2_0_16);
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
        let text = numactl_hardware(&sample::nothing_but_cpus(), NumactlLayout::V2_0_16);
        assert!(text.contains("\nnode 7 size: <not available>\nnode 7 free: <not available>\n"));
        assert!(
            text.ends_with("\nNo distance information available.\n"),
            "{text}"
        );
    }

    #[test]
    fn a_memoryless_node_has_zero_megabytes() {
        let text = numactl_hardware(&sample::memoryless(), NumactlLayout::V2_0_16);
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
            numactl_hardware(&topology, NumactlLayout::V2_0_16)
                .ends_with("No distance information available.\n")
        );
    }

    #[test]
    fn the_newer_release_has_wider_columns() {
        // numactl 2.0.19 in a guest with two nodes.
        let text = numactl_hardware(&sample::two_nodes(), NumactlLayout::V2_0_19);
        let distances = "\
node distances:
node     0    1 
   0:   10   21 
   1:   21   10 
";
        assert!(text.ends_with(distances), "{text}");
    }
}
