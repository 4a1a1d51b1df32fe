//! What upstream's own test scripts judge, asked of homenode under the name `numactl`.

use std::path::Path;

use homenode_units::{CpuSet, NodeId, NodeSet};

use crate::numactl::{link, run};
use crate::support::{node_file, node_set, output_of};

/// The list after a word at the start of a line.
fn listed(text: &str, key: &str) -> String {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap_or_else(|| panic!("no {key} in {text}"))
        .trim()
        .to_owned()
}

fn ours(args: &[&str]) -> String {
    output_of(link("numactl").to_str().unwrap(), args)
}

/// What upstream's test/checkaffinity judges.
#[test]
fn every_cpu_and_every_node_can_be_bound_to() {
    let all = CpuSet::parse_list(&listed(
        &ours(&["grep", "Cpus_allowed_list", "/proc/self/status"]),
        "Cpus_allowed_list:",
    ))
    .unwrap();
    let ours_path = link("numactl");
    let ours_path = ours_path.to_str().unwrap();
    for cpu in all.iter() {
        let bind = format!("--physcpubind={cpu}");
        let show = ours(&[&bind, ours_path, "--show"]);
        assert_eq!(listed(&show, "physcpubind:"), cpu.to_string());
        let stat = ours(&[&bind, "cat", "/proc/self/stat"]);
        // Field 39 is the CPU last run on (proc_pid_stat(5)).
        assert_eq!(stat.split_whitespace().nth(38), Some(&*cpu.to_string()));
    }
    for node in node_set("has_cpu")
        .intersection(&node_set("has_memory"))
        .iter()
    {
        let cpus = CpuSet::parse_list(&node_file(&format!("node{node}/cpulist"))).unwrap();
        let show = ours(&[&format!("--cpunodebind={node}"), ours_path, "--show"]);
        let shown: CpuSet = listed(&show, "physcpubind:")
            .split(' ')
            .map(|cpu| homenode_units::CpuId(cpu.parse().unwrap()))
            .collect();
        assert_eq!(shown, cpus, "node {node}");
        assert_eq!(listed(&show, "cpubind:"), node.to_string());
        assert_eq!(listed(&show, "nodebind:"), node.to_string());
    }
}

/// What upstream's test/checktopology judges.
#[test]
fn the_listing_has_the_nodes_and_cpus_of_the_kernel() {
    let listing = ours(&["--hardware"]);
    let nodes = node_set("online");
    assert!(listing.starts_with(&format!("available: {} nodes ({nodes})\n", nodes.len())));
    let mut listed_cpus = 0;
    for node in nodes.iter() {
        let found: CpuSet = listed(&listing, &format!("node {node} cpus:"))
            .split_whitespace()
            .map(|cpu| homenode_units::CpuId(cpu.parse().unwrap()))
            .collect();
        listed_cpus += found.len();
        for cpu in found.iter() {
            assert!(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/node{node}")).exists());
        }
    }
    assert_eq!(listed_cpus.to_string(), output_of("nproc", &[]).trim());
}

/// What upstream's test/bind_range judges.
#[test]
fn the_inherited_affinity_bounds_cpus_but_for_all_and_nodes() {
    if output_of("nproc", &[]).trim() == "1" {
        return;
    }
    let ours = link("numactl");
    let status = |args: &[&str]| run(&ours, &["taskset", "2"], args).status;
    assert_ne!(status(&["--physcpubind=0", "--all", "true"]), 0);
    assert_ne!(status(&["--physcpubind=0", "true"]), 0);
    assert_eq!(status(&["--all", "--physcpubind=0", "true"]), 0);
    assert_eq!(status(&["--physcpubind=1", "true"]), 0);
    assert_eq!(status(&["--cpunodebind=0", "true"]), 0);
}

/// A counter of a node, in pages.
fn counter(node: NodeId, name: &str) -> u64 {
    listed(
        &node_file(&format!("node{node}/numastat")),
        &format!("{name} "),
    )
    .parse()
    .unwrap()
}

/// What upstream's test/regress judges: memory goes where the policy says.
#[test]
fn memory_goes_where_the_policy_says() {
    const PAGES: u64 = (8 << 20) / 4096;
    let nodes: NodeSet = node_set("has_memory");
    let hog = |policy: &[&str], node: NodeId, name: &str| {
        let before = counter(node, name);
        ours(&[policy, &["memhog", "-H", "8m"]].concat());
        counter(node, name) - before
    };
    for node in nodes.iter() {
        let id = node.to_string();
        for policy in [
            &["--membind", &id][..],
            &["--preferred", &id],
            &["--preferred-many", &id],
        ] {
            let moved = hog(policy, node, "numa_hit");
            assert!(moved >= PAGES, "{policy:?}: {moved} pages on node {node}");
        }
        let moved = hog(&["--interleave=all"], node, "interleave_hit");
        let share = PAGES / nodes.len() as u64;
        assert!(moved >= share - share / 20, "{moved} pages on node {node}");
    }
    for node in nodes.intersection(&node_set("has_cpu")).iter() {
        let bind = format!("--cpunodebind={node}");
        let moved = hog(&[&bind, "--localalloc"], node, "local_node");
        assert!(moved >= PAGES, "{moved} pages on node {node}");
    }
}
