//! Processes whose memory was put where the test wants it, looked at with each of our ways.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use homenode_host::Live;
use homenode_observe::{
    Effort, Located, MappingPages, Method, NodeCounters, NodeSample, Random, home_by_memory,
    locate_in_mappings, parse_numa_maps, read_sample,
};
use homenode_sys::{BindFlags, Policy, PolicyMode, WorkMemory, mbind};
use homenode_units::{Bytes, NodeId, NodeSet, Pid};
use serde_json::Value;

use crate::support::{memory_total, node_set, output_of, shape};

const MIB: usize = 1 << 20;
/// The environment variable that makes [`a_process_to_look_at`] one.
const CASE: &str = "HOMENODE_TEST_CASE";

/// Nodes with room, in order.
fn roomy() -> Vec<NodeId> {
    let nodes = node_set("has_memory");
    nodes
        .iter()
        .filter(|&node| memory_total(node) > Bytes(120 << 20))
        .collect()
}

fn policy(mode: PolicyMode, nodes: &[NodeId]) -> Policy {
    Policy::new(mode, nodes.iter().copied().collect())
}

/// Memory of which each part is bound and filled.
fn placed(mut memory: WorkMemory, parts: &[(NodeId, usize)]) -> WorkMemory {
    let mut offset = 0;
    for &(node, mib) in parts {
        let range = offset..offset + mib * MIB;
        let bound = policy(PolicyMode::Bind, &[node]);
        mbind(
            memory.address() + range.start,
            range.len(),
            &bound,
            BindFlags::default(),
        )
        .unwrap();
        memory.fill(range.clone(), 7);
        offset = range.end;
    }
    memory
}

fn plain(parts: &[(NodeId, usize)]) -> WorkMemory {
    let mib: usize = parts.iter().map(|(_, mib)| mib).sum();
    placed(WorkMemory::map(mib * MIB, None).unwrap(), parts)
}

fn of_file(path: &str, parts: &[(NodeId, usize)]) -> WorkMemory {
    let mib: usize = parts.iter().map(|(_, mib)| mib).sum();
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    file.set_len((mib * MIB) as u64).unwrap();
    placed(
        WorkMemory::map(mib * MIB, Some(file.as_fd())).unwrap(),
        parts,
    )
}

/// No test of its own: the process that the others look at, when they start it.
#[test]
fn a_process_to_look_at() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let nodes = roomy();
    let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
    let split = [(first, 28), (last, 12)];
    let _memory: Vec<WorkMemory> = match case.as_str() {
        "one node" => vec![plain(&[(last, 40)])],
        "70 to 30" | "huge pages" => vec![plain(&split)],
        "interleaved" => {
            let mut memory = WorkMemory::map(24 * MIB, None).unwrap();
            let spread = policy(PolicyMode::Interleave, &nodes);
            mbind(memory.address(), 24 * MIB, &spread, BindFlags::default()).unwrap();
            memory.fill(0..24 * MIB, 7);
            vec![memory]
        }
        "three nodes" => vec![plain(&[(nodes[0], 20), (nodes[1], 12), (nodes[2], 8)])],
        "shared" => vec![of_file("/tmp/shared", &split)],
        "file" => vec![of_file("/root/file", &split)],
        "explicit huge pages" => {
            vec![
                of_file("/tmp/huge/file", &[(first, 8), (last, 4)]),
                plain(&[(last, 20)]),
            ]
        }
        "half untouched" => {
            // Every other mebibyte, the first half on one node and the second on another.
            let mut memory = WorkMemory::map(80 * MIB, None).unwrap();
            for (node, half) in [(first, 0), (last, 40)] {
                let bound = policy(PolicyMode::Bind, &[node]);
                let start = memory.address() + half * MIB;
                mbind(start, 40 * MIB, &bound, BindFlags::default()).unwrap();
                for mib in (half..half + 40).step_by(2) {
                    memory.fill(mib * MIB..(mib + 1) * MIB, 7);
                }
            }
            // And a reserve that was never touched at all.
            vec![memory, WorkMemory::map(512 * MIB, None).unwrap()]
        }
        other => panic!("no case `{other}`"),
    };
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// A process that stays as it is until it is dropped.
struct Process(Child);

impl Process {
    fn start(case: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "observe::a_process_to_look_at", "--nocapture"])
            .env(CASE, case)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap().ends_with("ready")),
            "{case}: it did not get ready"
        );
        // Its output stays open, or it would stumble over it.
        std::mem::forget(lines);
        Self(child)
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }

    fn exact(&self) -> Vec<MappingPages> {
        let text = fs::read_to_string(format!("/proc/{}/numa_maps", self.pid())).unwrap();
        parse_numa_maps(&text, homenode_sys::page_size()).unwrap()
    }

    fn sampled(&self, seed: u64) -> Located {
        let effort = Effort {
            all_pages_max: 0,
            ..Effort::default()
        };
        let nodes = NodeSet::default();
        let mut random = Random::new(seed);
        let resident = Some(self.resident());
        locate_in_mappings(
            &Live,
            &Live,
            self.pid(),
            &nodes,
            effort,
            resident,
            &mut random,
        )
        .unwrap()
    }

    /// As the kernel counts it.
    fn resident(&self) -> Bytes {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let kib = |name: &str| -> u64 {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            let value = value.and_then(|value| value.trim().strip_suffix(" kB"));
            value.map_or(0, |kib| kib.parse().unwrap())
        };
        Bytes::from_kib(kib("VmRSS:") + kib("HugetlbPages:"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = writeln!(self.0.stdin.as_mut().unwrap());
        let _ = self.0.wait();
    }
}

fn set(path: &str, value: &str) -> bool {
    fs::write(path, value).is_ok()
}

/// The cases that this machine has room for.
fn cases() -> Vec<&'static str> {
    let count = roomy().len();
    let mut cases = vec![
        "one node",
        "70 to 30",
        "interleaved",
        "shared",
        "file",
        "half untouched",
    ];
    if count < 2 {
        eprintln!("skipped: no two nodes with 120 MiB");
        return Vec::new();
    }
    if count >= 3 {
        cases.push("three nodes");
    }
    cases.push("huge pages");
    cases.push("explicit huge pages");
    cases
}

const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Starts the process of a case; `None`, with the reason, where the kernel cannot.
fn start(case: &str) -> Option<Process> {
    let prepared = match case {
        "huge pages" => set(HUGE, "always"),
        "explicit huge pages" => {
            let nodes = roomy();
            let pool = |node: NodeId| {
                let folder = format!("/sys/devices/system/node/node{node}/hugepages");
                set(&format!("{folder}/hugepages-2048kB/nr_hugepages"), "4")
            };
            let _ = fs::create_dir("/tmp/huge");
            pool(nodes[0])
                && pool(nodes[nodes.len() - 1])
                && Command::new("mount")
                    .args(["-t", "hugetlbfs", "none", "/tmp/huge"])
                    .status()
                    .is_ok_and(|status| status.success())
        }
        _ => true,
    };
    if !prepared {
        eprintln!("skipped: no {case} here");
        return None;
    }
    let process = Process::start(case);
    set(HUGE, "never");
    Some(process)
}

fn exact_share(maps: &[MappingPages], node: NodeId) -> f64 {
    let on: Bytes = maps.iter().map(|mapping| mapping.on(node)).sum();
    let all: Bytes = maps.iter().map(MappingPages::resident).sum();
    on.share_of(all).unwrap()
}

/// The bound holds what it says: the truth lies in it in 95 of 100 runs, nothing untouched counts,
/// and no node leans.
#[test]
fn the_bound_covers_the_truth() {
    // A hundred runs of nine cases: on two nodes, and where three are to be told apart. Further
    // shapes would show nothing new.
    if !["2n", "4n-ring"].contains(&shape().name.as_str()) {
        eprintln!("skipped: tested on 2n and 4n-ring");
        return;
    }
    set(HUGE, "never");
    for case in cases() {
        let Some(process) = start(case) else { continue };
        let maps = process.exact();
        let node = roomy()[0];
        let truth = exact_share(&maps, node);
        let mut covered = 0;
        let mut sum = 0.0;
        for seed in 0..100 {
            let located = process.sampled(seed).locality;
            assert!(matches!(located.method, Method::Sampled { .. }));
            assert!(located.unseen < 1e-9, "{case}: {located:?}");
            let found = located.nodes.iter().find(|share| share.node == node);
            let (low, high) = found.map_or((0.0, 0.01), |share| (share.low, share.high));
            covered += u32::from((low..=high).contains(&truth));
            sum += found.map_or(0.0, |share| share.share);
        }
        let mean = sum / 100.0;
        println!("{case}: {truth:.3} on node {node}, mean {mean:.3}, covered {covered} of 100");
        assert!(covered >= 93, "{case}: {covered} of 100");
        // Five standard errors of the mean of 100 runs: 5 · 0.0156 / √100.
        assert!((mean - truth).abs() < 0.008, "{case}: {mean} for {truth}");
        // Exactly the memory that was touched, in either way of counting.
        let exact: Bytes = maps.iter().map(MappingPages::resident).sum();
        let off = exact.0.abs_diff(process.resident().0);
        assert!(off < 1 << 20, "{case}: {exact}, {}", process.resident());
        assert!(
            process.resident() < Bytes(52 << 20),
            "{case}: untouched memory counts"
        );
    }
}

fn nodes_now() -> Vec<NodeSample> {
    let nodes = node_set("has_memory");
    read_sample(&Live, &nodes, Duration::ZERO).nodes
}

/// A node is filled up but for some 30 MiB, and a process that wants 32 MiB more there gets the rest
/// elsewhere: a hit for each page that fits, a miss for each other one, counted where it landed.
#[test]
fn t28_what_does_not_fit_is_a_miss_where_it_landed() {
    const SPILLED: usize = 32 * MIB;
    let nodes = roomy();
    let [wanted, .., other] = nodes[..] else {
        eprintln!("skipped: no two nodes with 120 MiB");
        return;
    };
    let folder = format!("/sys/devices/system/node/node{wanted}/hugepages/hugepages-2048kB");
    let pool = |count: u64| set(&format!("{folder}/nr_hugepages"), &count.to_string());
    let free = |nodes: &[NodeSample]| {
        let on = nodes.iter().find(|on| on.node == wanted).unwrap();
        on.memory.known().unwrap().free
    };
    // Explicit huge pages are taken without being filled, so that this is quick.
    let spare = free(&nodes_now()).saturating_sub(Bytes(30 << 20));
    if !pool(spare.0 >> 21) {
        eprintln!("skipped: no explicit huge pages here");
        return;
    }
    let before = nodes_now();
    // Of what is in pieces no huge page can be made, so that more than that may be free.
    let size = usize::try_from(free(&before).mib()).unwrap() * MIB + SPILLED;
    let mut memory = WorkMemory::map(size, None).unwrap();
    memory.without_huge_pages().unwrap();
    let prefer = policy(PolicyMode::Preferred, &[wanted]);
    mbind(memory.address(), size, &prefer, BindFlags::default()).unwrap();
    memory.fill(0..size, 7);
    let after = nodes_now();
    let text = fs::read_to_string("/proc/self/numa_maps").unwrap();
    let maps = parse_numa_maps(&text, homenode_sys::page_size()).unwrap();
    let found = maps
        .iter()
        .find(|mapping| mapping.start == memory.address());
    let found = found.unwrap().clone();
    drop(memory);
    pool(0);
    let rise = |node: NodeId, count: fn(&NodeCounters) -> u64| {
        let at = |nodes: &[NodeSample]| {
            let on = nodes.iter().find(|on| on.node == node).unwrap();
            count(on.counters.known().unwrap())
        };
        at(&after) - at(&before)
    };
    let pages = |node: NodeId| found.nodes.get(&node).copied().unwrap_or(0);
    let spilled = found.pages() - pages(wanted);
    assert!(spilled > 1000 && pages(wanted) > 1000, "{found:?}");
    assert!(rise(wanted, |c| c.numa_hit) >= pages(wanted), "{found:?}");
    let missed = after.iter().map(|on| rise(on.node, |c| c.numa_miss));
    let missed: u64 = missed.sum();
    assert!(missed >= spilled, "{missed} of {spilled}");
    assert!(rise(wanted, |c| c.numa_foreign) >= spilled, "{found:?}");
    // Nothing was missed where it was wanted, and what came to lie elsewhere was.
    assert!(rise(wanted, |c| c.numa_miss) < spilled / 10);
    assert!(rise(other, |c| c.numa_miss) >= pages(other));
}

#[test]
fn the_home_is_where_the_own_pages_lie() {
    if cases().is_empty() {
        return;
    }
    let process = start("one node").unwrap();
    let nodes = roomy();
    assert_eq!(home_by_memory(&process.exact()), nodes.last().copied());
    let text = output_of(
        "homenode",
        &["maps", &process.pid().to_string(), "--exact", "--json"],
    );
    let maps: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(maps["home_by_memory"], nodes.last().unwrap().0, "{text}");
}

#[test]
fn stat_says_who_pays() {
    if cases().is_empty() {
        return;
    }
    let process = start("70 to 30").unwrap();
    let pid = process.pid().to_string();
    let text = output_of("homenode", &["stat", &pid, "--interval", "200ms", "--json"]);
    let stat: Value = serde_json::from_str(&text).unwrap();
    let row = &stat["rows"][0];
    let memory = row["memory"].as_f64().unwrap();
    let of = |name: &str| row[name].as_f64().unwrap();
    assert!((of("local") + of("remote") - memory).abs() < 2.0, "{text}");
    for (node, mib) in [(roomy()[0], 28.0), (*roomy().last().unwrap(), 12.0)] {
        let nodes = row["nodes"].as_array().unwrap();
        let on = nodes.iter().find(|on| on["node"] == node.0).unwrap();
        let found = on["memory"].as_f64().unwrap() / MIB as f64;
        // Its own few mebibytes of program lie anywhere.
        assert!(
            (mib - 3.0..mib + 8.0).contains(&found),
            "{node}: {found} in {text}"
        );
    }
}
