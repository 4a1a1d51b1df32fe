//! The kernel shows the shape that was asked for: the ground under all other guest tests.

use std::fs;

use homenode_lab::NodeShape;
use homenode_units::{Bytes, CpuSet, NodeSet};

use crate::support::{memory_total, node_file, node_set, output_of, shape};

fn ids(nodes: &[NodeShape], wanted: impl Fn(&NodeShape) -> bool) -> NodeSet {
    nodes
        .iter()
        .filter(|node| wanted(node))
        .map(|node| node.id)
        .collect()
}

#[test]
fn nodes_are_online() {
    let shape = shape();
    assert_eq!(node_set("online"), ids(shape.expected_nodes(), |_| true));
    assert_eq!(
        node_set("has_cpu"),
        ids(shape.expected_nodes(), |node| !node.cpus.is_empty())
    );
    assert_eq!(
        node_set("has_memory"),
        ids(shape.expected_nodes(), |node| node.memory > Bytes(0))
    );
}

#[test]
fn nodes_have_their_cpus() {
    for node in shape().expected_nodes() {
        let found = CpuSet::parse_list(&node_file(&format!("node{}/cpulist", node.id))).unwrap();
        assert_eq!(found, node.cpus, "node {}", node.id);
    }
}

#[test]
fn nodes_have_their_distances() {
    for (node, row) in shape().expected_distances().rows() {
        let found: Vec<u32> = node_file(&format!("node{node}/distance"))
            .split_whitespace()
            .map(|distance| distance.parse().unwrap())
            .collect();
        assert_eq!(found, row, "node {node}");
    }
}

/// What the kernel keeps of a node for itself and does not count as `MemTotal`.
///
/// Its image, the page descriptors (1.6 %), the tables sized at boot and the bounce buffers come
/// from one node or from all, as the release and the layout of memory have it.
const KEPT_BY_KERNEL: Bytes = Bytes(64 << 20);

#[test]
fn nodes_have_their_memory() {
    for node in shape().expected_nodes() {
        let found = memory_total(node.id);
        assert!(
            found <= node.memory && found >= node.memory - KEPT_BY_KERNEL,
            "node {}: expected {} less at most {KEPT_BY_KERNEL}, found {found}",
            node.id,
            node.memory
        );
        if node.memory > Bytes(0) {
            assert!(found > Bytes(0), "node {} has memory", node.id);
        }
    }
}

#[test]
fn packages_have_their_cpus() {
    for (package, cpus) in shape().packages().iter().enumerate() {
        for cpu in cpus.iter() {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/package_cpus_list");
            let found = fs::read_to_string(&path).unwrap();
            assert_eq!(
                CpuSet::parse_list(&found).unwrap(),
                *cpus,
                "package {package}, {path}"
            );
        }
    }
}

#[test]
fn firmware_tells_latency_and_bandwidth() {
    for entry in shape().hmat {
        // The kernel keeps, for each memory, the access from its best initiator only.
        let file = |name| node_file(&format!("node{}/access0/initiators/{name}", entry.to));
        assert_eq!(file("read_latency"), entry.latency_ns.to_string());
        assert_eq!(
            file("read_bandwidth"),
            entry.bandwidth_per_second.mib().to_string()
        );
    }
}

#[test]
fn numactl_agrees() {
    let shape = shape();
    let hardware = output_of("numactl", &["--hardware"]);
    let count = shape.expected_nodes().len();
    assert!(
        hardware.starts_with(&format!("available: {count} nodes (")),
        "expected {count} nodes\n{hardware}"
    );
}
