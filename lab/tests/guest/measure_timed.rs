//! What `homenode measure` finds on machines whose numbers are known: only on guests that were booted
//! `--timed`, and beside what was asked for in the shape.
//!
//! A second of these guests takes a minute or more, so memory is small, just more than the caches
//! hold, and time is short.

use std::process::Command;

use homenode_lab::model::{LINE_BYTES, Machine, Path};
use homenode_units::NodeSet;
use serde_json::Value;

use crate::support::shape;

fn machine() -> Machine {
    shape().machine().cloned().expect("booted --timed")
}

/// The cells of a run; each was measured.
fn measured(arguments: &[&str]) -> Vec<Value> {
    let output = Command::new("homenode")
        .arg("measure")
        .args(arguments)
        .args(["--json", "--no-save"])
        .output()
        .expect("homenode starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stderr}"));
    document["cells"].as_array().expect("cells").clone()
}

fn median(cell: &Value) -> f64 {
    cell["outcome"]["median"]
        .as_f64()
        .unwrap_or_else(|| panic!("nothing measured: {cell}"))
}

fn node(cell: &Value, side: &str) -> u16 {
    let nodes = NodeSet::parse_list(cell[side].as_str().expect("a list")).expect("nodes");
    u16::try_from(nodes.lowest().expect("a node").0).expect("a small number")
}

fn path(machine: &Machine, from: u16, to: u16) -> &Path {
    machine.paths[usize::from(from) * usize::from(machine.nodes) + usize::from(to)]
        .as_ref()
        .expect("checked when the shape was parsed")
}

/// The nodes behind a guest's node: itself, or all whose memory firmware interleaves.
fn behind(machine: &Machine, node: u16) -> Vec<u16> {
    if machine.interleave.is_empty() {
        vec![node]
    } else {
        machine.interleave.clone()
    }
}

/// Unit: nanoseconds.
fn asked_latency(machine: &Machine, from: u16, to: u16) -> f64 {
    let behind = behind(machine, to);
    let sum: u32 = behind
        .iter()
        .map(|&to| path(machine, from, to).read_ps)
        .sum();
    f64::from(sum) / behind.len() as f64 / 1e3
}

/// What this many CPUs of a node get of another one's memory: the narrowest part of the way, or as
/// many lines as they can have in flight. Unit: GB/s.
fn asked_bandwidth(machine: &Machine, from: u16, to: u16, cpus: u64) -> f64 {
    let path = path(machine, from, to);
    let parts = path.fetch.iter();
    let slowest = parts.map(|&part| machine.resources[usize::from(part)].line_ps);
    let narrowest = 64_000.0 / f64::from(slowest.max().expect("a controller is on every way"));
    let cpu = machine.cpus.iter().find(|cpu| cpu.node == from);
    let in_flight = f64::from(cpu.expect("a CPU").lines_in_flight) * cpus as f64;
    narrowest.min(in_flight * 64_000.0 / f64::from(path.read_ps))
}

/// More than the caches of a CPU hold, where the least recently used line leaves. Unit: MiB.
fn beyond_caches(machine: &Machine) -> String {
    let bytes = machine
        .caches
        .iter()
        .map(|cache| u64::from(cache.sets) * u64::from(cache.ways) * LINE_BYTES);
    let largest = bytes.max().expect("there are caches").div_ceil(1 << 20);
    format!("{}MiB", (largest * 2).next_multiple_of(2))
}

fn within(value: f64, expected: f64, part: f64) -> bool {
    (value - expected).abs() <= expected * part
}

#[test]
fn latencies_are_those_of_the_machine() {
    let machine = machine();
    let size = beyond_caches(&machine);
    let budget = if machine.cpus.len() > 4 {
        "1500ms"
    } else {
        "400ms"
    };
    let cells = measured(&["latency", "--quick", "--size", &size, "--budget", budget]);
    let mut pairs = Vec::new();
    for cell in &cells {
        let (from, to) = (node(cell, "from"), node(cell, "to"));
        let (asked, found) = (asked_latency(&machine, from, to), median(cell));
        let pages = &cell["pages"];
        println!(
            "measured: node {from} to node {to}, {pages}: asked for {asked:.1} ns, {found:.1}"
        );
        pairs.push((asked, found, pages.clone()));
    }
    for (asked, found, _) in &pairs {
        assert!(within(*found, *asked, 0.1), "{asked:.1} ns, {found:.1}");
    }
    for (asked, found, pages) in &pairs {
        for (more, slower, others) in &pairs {
            assert!(
                more < &(asked * 1.02) || slower > found || pages != others,
                "{slower:.1} should be above {found:.1}"
            );
        }
    }
}

/// One thread of each node fills the way to each memory.
#[test]
#[ignore = "takes a minute or more: lab-test --timed --full"]
fn bandwidths_are_those_of_the_machine() {
    let machine = machine();
    if !machine.interleave.is_empty() {
        println!("firmware interleaves: no way is that of one node");
        return;
    }
    let size = beyond_caches(&machine);
    let cells = measured(&[
        "bandwidth",
        "--quick",
        "--kernel",
        "read",
        "--isa",
        "sse2",
        "--threads",
        "1",
        "--from",
        "0",
        "--size",
        &size,
        "--budget",
        "400ms",
    ]);
    let pairs = cells.iter().filter(|cell| cell["arrangement"] == "pair");
    let mut count = 0;
    for cell in pairs {
        let (from, to) = (node(cell, "from"), node(cell, "to"));
        let asked = asked_bandwidth(&machine, from, to, 1);
        let found = median(cell) / 1e9;
        println!("measured: node {from} to node {to}: asked for {asked:.2} GB/s, {found:.2}");
        assert!(within(found, asked, 0.2), "{asked:.2} GB/s, {found:.2}");
        count += 1;
    }
    assert_eq!(count, machine.memory.len());
}

/// The latency that the machine's curve gives for what the injectors and the walk move together,
/// where that is less than nine tenths of the controller: beyond, it is the queue that counts.
#[test]
#[ignore = "takes a minute or more: lab-test --timed --full"]
fn latency_under_load_follows_the_curve() {
    let machine = machine();
    let local = machine.memory.iter().any(|span| span.node == 0);
    if !machine.interleave.is_empty() || !local {
        println!("node 0 has no memory of its own");
        return;
    }
    let size = beyond_caches(&machine);
    let cells = measured(&[
        "loaded-latency",
        "--quick",
        "--from",
        "0",
        "--to",
        "0",
        "--size",
        &size,
        "--budget",
        "600ms",
    ]);
    let idle = asked_latency(&machine, 0, 0);
    let most = asked_bandwidth(&machine, 0, 0, machine.cpus.len() as u64);
    let mut rates = Vec::new();
    for latency in cells.iter().filter(|cell| cell["metric"] == "latency") {
        let found = median(latency);
        let rate = cells
            .iter()
            .find(|cell| cell["metric"] == "useful-bandwidth" && cell["at"] == latency["at"]);
        let rate = rate.map_or(0.0, |cell| median(cell) / 1e9);
        let used = (rate + 64.0 / found) / most;
        let curve = machine.load;
        let share = used.min(1.0) / curve.headroom;
        let factor = 1.0 + curve.slope * share.powf(curve.power) / (1.0 - share);
        let asked = idle * factor.min(curve.cap);
        println!("measured: {rate:.2} GB/s beside the walk: asked for {asked:.1} ns, {found:.1}");
        if used < 0.9 {
            assert!(within(found, asked, 0.2), "{asked:.1} ns, {found:.1}");
        }
        rates.push((rate, found));
    }
    let highest = rates.iter().map(|point| point.0).fold(0.0, f64::max);
    println!("measured: at most {highest:.2} GB/s, asked for {most:.2}");
    assert!(rates.len() >= 4, "{rates:?}");
    assert!(highest < most * 1.2, "{highest:.2} of {most:.2}");
    // What the walk takes is not the injectors'; one in two lines in flight may be its own.
    assert!(highest > most * 0.6, "{highest:.2} of {most:.2}");
}

/// T1, T4 and T5: the study's table, in its layout.
#[test]
#[ignore = "takes a minute or more: lab-test --timed --full"]
fn the_studys_table_comes_out() {
    let machine = machine();
    if !shape().name.starts_with("opteron") {
        println!("the study is about the shapes named opteron");
        return;
    }
    let output = Command::new("homenode")
        .args([
            "measure",
            "rmma",
            "--size",
            "2MiB",
            "--budget",
            "1500ms",
            "--no-save",
        ])
        .output()
        .expect("homenode starts");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{table}");
    // Four columns stand in two blocks.
    let row = |name: &str| -> Vec<f64> {
        let lines = table.lines().filter_map(|line| line.strip_prefix(name));
        let words = lines.flat_map(str::split_whitespace);
        let numbers = words.filter(|word| !word.starts_with('('));
        numbers
            .map(|word| word.parse().unwrap_or_else(|_| panic!("{name}: {table}")))
            .collect()
    };
    let metrics = [
        "average read",
        "average write",
        "maximum read",
        "maximum write",
        "pseudo-random latency, min",
        "pseudo-random latency, max",
        "random latency, min",
        "random latency, max",
    ];
    // Where firmware interleaves, the guest sees one node.
    let columns = if machine.interleave.is_empty() { 4 } else { 1 };
    for name in metrics {
        assert_eq!(row(name).len(), columns, "{name}");
    }
    for name in &metrics[4..] {
        // Neighbouring lines are fetched ahead, here as on most processors: only the random walk's
        // numbers are the machine's own, all of them its ratio.
        let is_random = name.starts_with("random");
        match row(name)[..] {
            [local, far, other_far, other_local] => {
                assert!(within(other_local, local, 0.05), "{name}");
                assert!(!is_random || within(local, 45.6, 0.1), "{name}");
                for far in [far, other_far] {
                    assert!((1.44..1.6).contains(&(far / local)), "{name}");
                }
            }
            [spread] => {
                let expected = (45.6 + 70.9) / 2.0;
                assert!(!is_random || within(spread, expected, 0.1), "{name}");
            }
            ref other => panic!("{name}: {other:?}"),
        }
    }
    let ratio = |name: &str| row(name)[1] / row(name)[0];
    if columns == 4 {
        assert!((0.47..0.55).contains(&ratio("maximum read")), "{table}");
        assert!(ratio("average write") > ratio("maximum read"), "{table}");
    }
}

/// T21: threads of one cluster have half of a processor's controllers, those of all clusters have all.
#[test]
#[ignore = "takes a minute or more: lab-test --timed --full"]
fn one_cluster_has_a_part_of_the_bandwidth() {
    let machine = machine();
    if shape().name != "cod-2x2" {
        println!("the shape cod-2x2 has clusters");
        return;
    }
    let size = beyond_caches(&machine);
    let cells = measured(&[
        "bandwidth",
        "--quick",
        "--kernel",
        "read",
        "--isa",
        "sse2",
        "--size",
        &size,
        "--budget",
        "900ms",
    ]);
    let best = |arrangement: &str| {
        let found = cells
            .iter()
            .filter(|cell| cell["arrangement"] == arrangement);
        found.map(|cell| median(cell) / 1e9).fold(0.0, f64::max)
    };
    let (single, distributed, remote) = (best("single"), best("distributed"), best("remote"));
    println!("measured: single {single:.1}, distributed {distributed:.1}, remote {remote:.1} GB/s");
    let asked = asked_bandwidth(&machine, 0, 0, 2);
    assert!(within(single, asked, 0.2), "{single:.1} of {asked:.1}");
    assert!(
        within(distributed, 4.0 * asked, 0.2),
        "{distributed:.1} of 4 × {asked:.1}"
    );
    assert!(remote < distributed, "{remote:.1} and {distributed:.1}");
}
