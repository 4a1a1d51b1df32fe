//! Synthetic descriptions against hwloc's reading of the same string.
#![expect(
    clippy::print_stdout,
    reason = "a test that cannot run here says so and why"
)]

use std::process::Command;

use homenode_topology::{CpuGroup, Topology, parse_hwloc_xml, parse_synthetic};
use homenode_units::CpuSet;

/// hwloc's XML of a synthetic machine; `None`, and a line that says so, where there is no lstopo.
fn lstopo(text: &str) -> Option<Vec<u8>> {
    let output = Command::new("lstopo-no-graphics")
        .args(["--if", "synthetic", "-i", text, "--of", "xml"])
        .env("LC_ALL", "C")
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "lstopo refuses {text}: {output:?}");
            Some(output.stdout)
        }
        Err(error) => {
            println!("skipped: cannot run lstopo-no-graphics: {error}");
            None
        }
    }
}

fn groups(groups: &[CpuGroup]) -> Vec<(Option<u32>, &CpuSet)> {
    groups.iter().map(|group| (group.id, &group.cpus)).collect()
}

fn assert_same(ours: &Topology, hwloc: &Topology, text: &str) {
    assert_eq!(ours.cpus.online, hwloc.cpus.online, "{text}");
    assert_eq!(
        groups(&ours.packages),
        groups(&hwloc.packages),
        "packages of {text}"
    );
    assert_eq!(groups(&ours.dies), groups(&hwloc.dies), "dies of {text}");
    assert_eq!(groups(&ours.cores), groups(&hwloc.cores), "cores of {text}");
    assert_eq!(ours.caches, hwloc.caches, "caches of {text}");
    assert_eq!(ours.node_ids(), hwloc.node_ids(), "nodes of {text}");
    for (ours, hwloc) in ours.nodes.iter().zip(&hwloc.nodes) {
        assert_eq!(ours.cpus, hwloc.cpus, "node {} of {text}", ours.id);
        assert_eq!(
            ours.nearest_cpu_nodes, hwloc.nearest_cpu_nodes,
            "node {} of {text}",
            ours.id
        );
        assert_eq!(
            ours.memory_total, hwloc.memory_total,
            "node {} of {text}",
            ours.id
        );
    }
}

#[test]
fn hwloc_sees_the_same_machine() {
    for text in [
        "pu:1",
        "pu:2",
        "2",
        "2 3",
        "2 3 2",
        "2 2 2 2",
        "2 2 1 2 2",
        "2 2 1 1 2 2",
        "2 2 1 1 1 2 2",
        "2 2 1 1 1 1 2 2",
        "2 1 2 1 1 1 1 1 2",
        "2 2 2 1 2 1 1 1 1 1 2",
        "2 2 pu:3",
        "pack:2 2",
        " pu:2 ",
        "PACKAGE:2 Co:2 pu:2",
        "socket:2 node:2 pu:1",
        "pa:0x2 di:2 gr:010 pu:1",
        "l2:2 l3:2 pu:1",
        "numa:2 pack:2 pu:1",
        "pack:2 numa:3 pu:2",
        "numa:3(memory=5kB indexes=1,0,2) l2:1 1",
        "pack:2 [numa(memory=16GB)] l3:1 core:4 pu:2",
        "pack:2[numa(memory=1MiB)]pu:2",
        "[numa(memory=1TB)] pack:2 [numa(memory=1TiB)] pu:2",
        "pack:2 [numa(memory=2)] core:2 [numa(memory=3kiB)] pu:1",
        "core:2 [numa(memory=1GB)] pu:2 [numa(memory=2GB)]",
        "package:1 group:4 [numa(memory=4GiB)] [numa(memory=1GiB)] core:2 pu:4",
        "pack:2 [numa(memory=1GB indexes=1,0)] pu:2",
        "pack:2 group:2 group:2 [numa(memory=1GiB indexes=2*4:1*2)] pu:1",
        "l5:1 l4:1 l3:2(size=1MB) l3i:1 l2d:1 l2i:1 l1d:1(size=48kB) l1i:1 pu:2",
        "l1u:2 pu:1",
        "l2u:2 l1:1 l1i:1 pu:1",
        "l3:2(size=1MB indexes=1,0) pu:2",
        "2(indexes=1,0) 2",
        "pack:2 core:2 pu:2(indexes=core:pack)",
        "pack:2 core:2 pu:2(indexes=pack:core)",
        "pack:2 core:2 pu:2(indexes=numa:core)",
        "numa:2 core:2 pu:2(indexes=numa:core)",
        "pack:2 l2:2 core:2 pu:1(indexes=l2:pack)",
        "pack:2 core:1 pu:1(indexes=core:pack)",
        "pack:2 core:1 pu:1(indexes=pack:core)",
        "pack:2 l2:1 core:2 pu:2(indexes=core:l2:pack)",
        "pack:2 l2:1 core:2 pu:2(indexes=l2:pack)",
        "pack:2 core:2 pu:2(indexes=4*2)",
        "pack:2 core:2 pu:2(indexes=4*2:2*2)",
        "pack:2 core:2 pu:2(indexes=2*4:1*2)",
        "pack:2 pu:2(indexes=9,8,1,2)",
        "pack:2(indexes=7,3) core:2(indexes=2*2) pu:2",
    ] {
        let ours = parse_synthetic(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let Some(xml) = lstopo(text) else { return };
        let hwloc = parse_hwloc_xml(&xml, text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_same(&ours, &hwloc, text);
    }
}

/// What `synthetic`'s documentation names as different.
#[test]
fn an_attached_node_without_a_size_is_empty_in_hwloc_only() {
    let text = "pack:2 [numa] pu:1";
    let ours = parse_synthetic(text).unwrap();
    let Some(xml) = lstopo(text) else { return };
    let hwloc = parse_hwloc_xml(&xml, text).unwrap();
    assert_eq!(ours.nodes[0].memory_total.to_string(), "1 GiB");
    assert_eq!(
        hwloc.nodes[0].memory_total.why(),
        Some("hwloc XML without a memory size at any node")
    );
}
