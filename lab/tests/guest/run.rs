//! `homenode run` and `place` on real kernels with several nodes: the pages of a started program
//! lie where its policy says, each asked of the kernel (`move_pages`).
//!
//! The program is this test binary itself, which [`toucher`] makes touch memory. It touches 64 MiB
//! and not more, because the smallest nodes have 192 MiB.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

use homenode_lab::NodeShape;
use homenode_sys::{NodeMemory, PageKind, PagePlacement, Policy};
use homenode_units::{Bytes, CpuSet, NodeId, NodeSet};
use serde_json::Value;

use crate::support::{node_file, output_of, shape};

const TOUCHED: Bytes = Bytes(64 << 20);
const PAGES: u64 = TOUCHED.0 / 4096;
/// What a node must have free, so that nothing but the policy decides.
const FREE_MIN: Bytes = Bytes(80 << 20);

/// Makes [`toucher`] do its work.
const TOUCH: &str = "HOMENODE_TEST_TOUCH";

/// The started program: touches memory of the default policy, so that the task's counts, and
/// prints where each page is and which CPUs it may use.
#[test]
fn toucher() {
    if std::env::var_os(TOUCH).is_none() {
        return;
    }
    let mut memory = NodeMemory::with_policy(TOUCHED, &Policy::default(), PageKind::Base).unwrap();
    memory.touch().unwrap();
    let placement = placement_of(&mut memory);
    for (node, pages) in placement.pages {
        println!("\nplaced {node} {pages}");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let cpus = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    println!("\ncpus {}", cpus.trim());
}

/// Linux 6.1 answers "not resident" for pages that AutoNUMA has marked to see who uses them
/// (run: 4n-ring, 6.1.176, 2026-11-21; all 8192 pages at once). A touch takes the mark away.
fn placement_of(memory: &mut NodeMemory) -> PagePlacement {
    const TRIES: usize = 5;
    for _ in 0..TRIES {
        for byte in memory.as_mut_slice().iter_mut().step_by(4096) {
            *byte = std::hint::black_box(1);
        }
        let placement = memory.placement().unwrap();
        if placement.absent == 0 {
            return placement;
        }
    }
    panic!("pages are not resident, touched {TRIES} times");
}

struct Started {
    pages: BTreeMap<NodeId, u64>,
    cpus: CpuSet,
}

impl Started {
    fn nodes(&self) -> NodeSet {
        self.pages.keys().copied().collect()
    }
}

fn homenode(options: &[String], program: &[&str]) -> Output {
    Command::new("homenode")
        .arg("run")
        .args(options)
        .args(program)
        .env(TOUCH, "1")
        .output()
        .unwrap()
}

/// Starts the toucher with these options of `homenode run`.
fn started(options: &str) -> Started {
    let options: Vec<String> = options.split(' ').map(str::to_owned).collect();
    let myself = std::env::current_exe().unwrap();
    let program = [
        myself.to_str().unwrap(),
        "--exact",
        "run::toucher",
        "--nocapture",
    ];
    let output = homenode(&options, &program);
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{options:?}: {stdout}{stderr}");
    let mut found = Started {
        pages: BTreeMap::new(),
        cpus: CpuSet::new(),
    };
    for line in stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["placed", node, pages] => {
                let node = NodeId(node.parse().unwrap());
                found.pages.insert(node, pages.parse().unwrap());
            }
            ["cpus", list] => found.cpus = CpuSet::parse_list(list).unwrap(),
            _ => {}
        }
    }
    assert_eq!(found.pages.values().sum::<u64>(), PAGES, "{stdout}");
    found
}

/// The error of a start that must fail.
fn refused(options: &str) -> String {
    let options: Vec<String> = options.split(' ').map(str::to_owned).collect();
    let output = homenode(&options, &["true"]);
    assert_eq!(output.status.code(), Some(2), "{options:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn free(node: NodeId) -> Bytes {
    let meminfo = node_file(&format!("node{node}/meminfo"));
    let line = meminfo.lines().find_map(|line| line.split_once("MemFree:"));
    let kib = line.and_then(|(_, value)| value.trim().strip_suffix(" kB"));
    Bytes::from_kib(kib.unwrap().parse().unwrap())
}

/// Nodes with memory to spare.
fn memory_nodes() -> Vec<NodeShape> {
    let mut nodes = shape().expected_nodes().to_vec();
    nodes.retain(|node| node.memory > Bytes(0));
    nodes.retain(|node| {
        let roomy = free(node.id) >= FREE_MIN;
        if !roomy {
            println!("node {} left out: {} free", node.id, free(node.id));
        }
        roomy
    });
    assert!(!nodes.is_empty());
    nodes
}

/// The first two and the last: each start costs a third of a second in a guest.
fn few<T>(mut nodes: Vec<T>) -> Vec<T> {
    if nodes.len() > 3 {
        nodes.drain(2..nodes.len() - 1);
    }
    nodes
}

fn list(nodes: &[NodeShape]) -> NodeSet {
    nodes.iter().map(|node| node.id).collect()
}

#[test]
fn bound_memory_is_on_its_node_and_on_no_other() {
    for node in few(memory_nodes()) {
        for options in [
            format!("-m {}", node.id),
            format!("--memory-on {}", node.id),
        ] {
            let found = started(&options);
            assert_eq!(found.pages, BTreeMap::from([(node.id, PAGES)]), "{options}");
        }
    }
    let all = list(&memory_nodes());
    assert!(started(&format!("-m {all}")).nodes().is_subset(&all));
}

#[test]
fn preferred_memory_is_on_its_node_while_there_is_room() {
    for node in few(memory_nodes()) {
        let found = started(&format!("-p {}", node.id));
        assert_eq!(found.pages, BTreeMap::from([(node.id, PAGES)]));
    }
    let nodes = memory_nodes();
    if let [_, others @ ..] = &nodes[..]
        && others.len() > 1
    {
        let others = list(others);
        assert!(started(&format!("-P {others}")).nodes().is_subset(&others));
    }
}

#[test]
fn interleaved_memory_has_an_equal_share_on_each_node() {
    let nodes = list(&memory_nodes());
    let share = PAGES / nodes.len() as u64;
    for options in [
        format!("-i {nodes}"),
        format!("--memory interleave --memory-on {nodes}"),
    ] {
        let found = started(&options);
        assert_eq!(found.nodes(), nodes, "{options}");
        for (node, pages) in found.pages {
            assert!(
                pages.abs_diff(share) <= 1,
                "node {node}: {pages} of {PAGES}"
            );
        }
    }
}

/// Weights are the machine's; the test gives the first node three times the others' share.
#[test]
fn weighted_memory_has_a_share_by_weight() {
    const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
    let nodes = list(&memory_nodes());
    let first = nodes.lowest().unwrap();
    let file = |node: NodeId| format!("{WEIGHTS}/node{node}");
    if fs::metadata(file(first)).is_err() {
        let stderr = refused(&format!("-w {nodes}"));
        assert!(
            stderr.contains("it needs Linux 6.9 or later, this is 6.1."),
            "{stderr}"
        );
        return;
    }
    for node in nodes.iter() {
        fs::write(file(node), if node == first { "3" } else { "1" }).unwrap();
    }
    let found = started(&format!("-w {nodes}"));
    fs::write(file(first), "1").unwrap();
    let parts = nodes.len() as u64 + 2;
    assert_eq!(found.nodes(), nodes);
    for (node, pages) in found.pages {
        let share = PAGES * if node == first { 3 } else { 1 } / parts;
        assert!(
            pages.abs_diff(share) <= 3,
            "node {node}: {pages} of {PAGES}"
        );
    }
}

#[test]
fn local_memory_follows_the_cpus() {
    for node in few(memory_nodes()) {
        if node.cpus.is_empty() {
            continue;
        }
        for options in [
            format!("--on {} --memory local", node.id),
            format!("-N {} -l", node.id),
            format!("--on {}", node.id),
        ] {
            let found = started(&options);
            assert_eq!(found.cpus, node.cpus, "{options}");
            assert_eq!(found.pages, BTreeMap::from([(node.id, PAGES)]), "{options}");
        }
    }
}

#[test]
fn cpus_and_memory_may_be_on_different_nodes() {
    let memory_node = list(&memory_nodes()).highest().unwrap();
    for cpu_node in shape()
        .expected_nodes()
        .iter()
        .filter(|node| !node.cpus.is_empty())
    {
        let found = started(&format!("--on {} --memory-on {memory_node}", cpu_node.id));
        assert_eq!(found.cpus, cpu_node.cpus);
        assert_eq!(found.pages, BTreeMap::from([(memory_node, PAGES)]));
    }
}

#[test]
fn nodes_that_lack_what_is_asked_of_them_are_refused() {
    for node in shape().expected_nodes() {
        if node.cpus.is_empty() {
            let stderr = refused(&format!("--on {}", node.id));
            assert!(
                stderr.contains(&format!("node {} has no CPUs\n", node.id)),
                "{stderr}"
            );
            assert!(
                stderr.contains(&format!("--memory-on {}", node.id)),
                "{stderr}"
            );
        }
        if node.memory == Bytes(0) {
            let stderr = refused(&format!("-m {}", node.id));
            assert!(
                stderr.contains(&format!("node {} has no memory\n", node.id)),
                "{stderr}"
            );
        }
    }
    for options in ["-m 63", "-N 63", "-i 0,63"] {
        assert!(refused(options).contains("this machine has no node 63"));
    }
}

#[test]
fn chosen_nodes_have_cpus_and_hold_the_memory() {
    let shape = shape();
    for options in [
        "--on auto --need 1cpu,32MiB",
        "--on least-loaded --need 1cpu,32MiB",
    ] {
        let found = started(options);
        let chosen: Vec<&NodeShape> = shape
            .expected_nodes()
            .iter()
            .filter(|node| node.cpus.intersects(&found.cpus))
            .collect();
        let [node] = chosen[..] else {
            panic!("{options}: CPUs {}", found.cpus);
        };
        assert_eq!(found.pages, BTreeMap::from([(node.id, PAGES)]), "{options}");
    }
}

#[test]
fn place_knows_nodes_without_cpus_and_what_does_not_fit() {
    let nodes = shape().expected_nodes().to_vec();
    let all: usize = nodes.iter().map(|node| node.cpus.len()).sum();
    let most = nodes.iter().map(|node| node.cpus.len()).max().unwrap();
    for (cpus, single) in [(1, true), (most, true), (all, nodes.len() == 1)] {
        let json = output_of(
            "homenode",
            &["place", "--json", "--cpus", &cpus.to_string()],
        );
        let placed: Value = serde_json::from_str(&json).unwrap();
        let chosen = placed["placement"]["cpu_nodes"].as_str().unwrap();
        let chosen = NodeSet::parse_list(chosen).unwrap();
        for node in nodes.iter().filter(|node| chosen.contains(node.id)) {
            assert!(!node.cpus.is_empty(), "{json}");
        }
        if single && !json.contains("will share them") {
            assert!(!chosen.is_empty(), "{json}");
        }
    }
    let output = Command::new("homenode")
        .args(["place", "--cpus", &(all + 1).to_string()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains(&format!(
            "{} CPUs asked for, {all} may be used here",
            all + 1
        )),
        "{stdout}"
    );
}

/// glibc's `execvp` hands such a script to the shell; musl's, which we are linked with, does not.
#[test]
fn a_script_without_an_interpreter_line_is_the_shells() {
    use std::os::unix::fs::PermissionsExt as _;

    let script = "/tmp/bare-script";
    fs::write(script, "echo \"bare $1\"\n").unwrap();
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        output_of("homenode", &["run", "-N", "0", script, "x"]),
        "bare x\n"
    );
    fs::remove_file(script).unwrap();
}
