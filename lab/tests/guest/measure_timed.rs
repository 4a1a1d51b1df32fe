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
