//! What accesses cost, felt with `lab-probe`: only on guests that were booted `--timed`.
//!
//! Expectations come from the shape: what was asked for. A test that the machine has nothing to tell
//! says so and passes.

use std::fs;
use std::time::{Duration, Instant};

use homenode_lab::model::{LINE_BYTES, Machine, Path};

use crate::support::{output_of, shape};

fn machine() -> Machine {
    shape().machine().cloned().expect("booted --timed")
}

/// The nodes that have CPUs, with those CPUs.
fn cpu_nodes(machine: &Machine) -> Vec<(u16, Vec<usize>)> {
    (0..machine.nodes)
        .map(|node| {
            let cpus = machine.cpus.iter().enumerate();
            let cpus = cpus.filter(|(_, cpu)| cpu.node == node);
            (node, cpus.map(|(number, _)| number).collect::<Vec<_>>())
        })
        .filter(|(_, cpus)| !cpus.is_empty())
        .collect()
}

/// The nodes that the guest can bind memory to, each with the model's nodes behind it.
fn memory_nodes(machine: &Machine) -> Vec<(u16, Vec<u16>)> {
    if machine.interleave.is_empty() {
        let nodes = machine
            .memory
            .iter()
            .map(|span| (span.node, vec![span.node]));
        nodes.collect()
    } else {
        vec![(0, machine.interleave.clone())]
    }
}

fn path(machine: &Machine, from: u16, to: u16) -> &Path {
    let position = usize::from(from) * usize::from(machine.nodes) + usize::from(to);
    machine.paths[position]
        .as_ref()
        .expect("checked when the shape was parsed")
}

/// The mean over the nodes behind a guest's node. Unit: nanoseconds.
fn asked(machine: &Machine, from: u16, behind: &[u16], latency: fn(&Path) -> u32) -> f64 {
    let all = behind
        .iter()
        .map(|&to| f64::from(latency(path(machine, from, to))));
    all.sum::<f64>() / behind.len() as f64 / 1e3
}

/// What the narrowest part of a way lets through. Unit: GB/s.
fn narrowest(machine: &Machine, from: u16, to: u16) -> f64 {
    let parts = path(machine, from, to).fetch.iter();
    let slowest = parts
        .map(|&part| machine.resources[usize::from(part)].line_ps)
        .max();
    64_000.0 / f64::from(slowest.expect("a controller is on every way"))
}

/// A buffer that no cache keeps. Unit: MiB.
fn large(machine: &Machine) -> u64 {
    let bytes = machine
        .caches
        .iter()
        .map(|cache| u64::from(cache.sets) * u64::from(cache.ways) * LINE_BYTES)
        .max();
    (bytes.expect("there are caches") * 5 / 2)
        .div_ceil(1 << 20)
        .max(4)
}

/// A buffer for each of these CPUs, so that no cache keeps what they have together. Unit: MiB.
fn large_between(machine: &Machine, cpus: &[usize]) -> u64 {
    let last_cache = |cpu: usize| machine.cpus[cpu].caches.last();
    let sharers = cpus
        .iter()
        .filter(|&&cpu| last_cache(cpu) == last_cache(cpus[0]));
    large(machine).div_ceil(sharers.count() as u64).max(4)
}

/// Runs `lab-probe` with its memory on a node; returns the numbers at the ends of its lines.
fn probe(node: u16, kind: &str, cpus: &[usize], mib: u64, count: u32) -> Vec<f64> {
    let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let text = output_of(
        "numactl",
        &[
            "--membind",
            &node.to_string(),
            "lab-probe",
            kind,
            &cpus.join(","),
            &mib.to_string(),
            &count.to_string(),
        ],
    );
    text.lines()
        .map(|line| line.split(' ').next_back().unwrap().parse().unwrap())
        .collect()
}

/// How long streams are measured. The guest's scheduler takes a CPU away for a tick of 4 ms now and
/// then, which should not decide.
const STREAM_MS: u32 = 20;

fn within(value: f64, expected: f64, part: f64) -> bool {
    (value - expected).abs() <= expected * part
}

/// Compares a matrix of latencies with what was asked for: each cell, and their order.
fn check_matrix(kind: &str, latency: fn(&Path) -> u32) {
    const HOPS: u32 = 40_000;
    let machine = machine();
    let mut cells = Vec::new();
    for (from, cpus) in cpu_nodes(&machine) {
        for (node, behind) in memory_nodes(&machine) {
            let asked = asked(&machine, from, &behind, latency);
            let felt = probe(node, kind, &cpus[..1], large(&machine), HOPS)[0];
            println!("{kind}: node {from} to node {node}: asked for {asked:.1} ns, felt {felt:.1}");
            cells.push((asked, felt));
        }
    }
    for &(asked, felt) in &cells {
        assert!(
            within(felt, asked, 0.1),
            "asked for {asked:.1} ns, felt {felt:.1}"
        );
    }
    for &(asked, felt) in &cells {
        for &(other_asked, other_felt) in &cells {
            if other_asked >= asked * 1.1 {
                assert!(
                    other_felt > felt,
                    "{other_felt:.1} should be above {felt:.1}"
                );
            }
        }
    }
}

#[test]
fn idle_latencies_are_those_asked_for() {
    let start = Instant::now();
    check_matrix("chase", |path| path.read_ps);
    println!("{:.3} s of the guest's time", start.elapsed().as_secs_f64());
}

#[test]
fn stores_cost_what_was_asked_for() {
    let machine = machine();
    if machine
        .paths
        .iter()
        .flatten()
        .all(|path| path.write_ps == path.read_ps)
    {
        println!("stores cost what loads do");
        return;
    }
    check_matrix("scatter", |path| path.write_ps);
}

#[test]
fn a_nodes_cpus_fill_its_controller() {
    let machine = machine();
    for (from, cpus) in cpu_nodes(&machine) {
        if !machine.interleave.is_empty() || !memory_nodes(&machine).iter().any(|n| n.0 == from) {
            println!("node {from} has no memory of its own");
            continue;
        }
        let asked = narrowest(&machine, from, from);
        let felt: f64 = probe(
            from,
            "stream",
            &cpus,
            large_between(&machine, &cpus),
            STREAM_MS,
        )
        .iter()
        .sum();
        println!("node {from}: asked for {asked:.1} GB/s, felt {felt:.1}");
        assert!(
            within(felt, asked, 0.2),
            "asked for {asked:.1}, felt {felt:.1}"
        );
    }
}

#[test]
fn links_limit_remote_streams() {
    let machine = machine();
    let nodes = cpu_nodes(&machine);
    let Some((to, _)) = memory_nodes(&machine)
        .into_iter()
        .find(|(node, behind)| *behind == [*node])
    else {
        println!("firmware interleaves: nothing is only remote");
        return;
    };
    for (from, cpus) in nodes.iter().filter(|(from, _)| *from != to) {
        // As many lines as can be in flight may be fewer than the way could take.
        let in_flight = f64::from(machine.cpus[cpus[0]].lines_in_flight) * cpus.len() as f64;
        let by_latency = in_flight * 64_000.0 / f64::from(path(&machine, *from, to).read_ps);
        let asked = narrowest(&machine, *from, to).min(by_latency);
        let felt: f64 = probe(to, "stream", cpus, large_between(&machine, cpus), STREAM_MS)
            .iter()
            .sum();
        println!("node {from} to node {to}: asked for {asked:.1} GB/s, felt {felt:.1}");
        assert!(
            within(felt, asked, 0.2),
            "asked for {asked:.1}, felt {felt:.1}"
        );
    }
}

#[test]
fn two_nodes_share_a_controller() {
    let machine = machine();
    let nodes = cpu_nodes(&machine);
    let (Some((one, near)), Some((other, far))) = (nodes.first(), nodes.get(1)) else {
        println!("one node has all CPUs");
        return;
    };
    let controller = narrowest(&machine, *one, *one);
    let link = narrowest(&machine, *other, *one);
    if !machine.interleave.is_empty() || link * 1.9 < controller {
        println!("the link lets less than half of the controller through");
        return;
    }
    let cpus = [near.as_slice(), far].concat();
    let rates = probe(
        *one,
        "stream",
        &cpus,
        large_between(&machine, near),
        STREAM_MS,
    );
    let sum: f64 = rates.iter().sum();
    let near_part = rates[..near.len()].iter().sum::<f64>() / sum;
    println!("asked for {controller:.1} GB/s, felt {sum:.1}, of which {near_part:.2} local");
    assert!(within(sum, controller, 0.2), "{rates:?}");
    assert!(within(near_part, 0.5, 0.25), "{rates:?}");
}

#[test]
fn latency_rises_with_load() {
    let machine = machine();
    let (node, cpus) = cpu_nodes(&machine).into_iter().next_back().unwrap();
    let local = memory_nodes(&machine)
        .iter()
        .any(|(other, _)| *other == node);
    if cpus.len() < 2 || !local {
        println!("no node with memory has two CPUs");
        return;
    }
    let mib = large(&machine).min(40);
    let mut last = 0.0;
    let mut felt = Vec::new();
    for count in 1..=cpus.len() {
        let ns = probe(node, "loaded", &cpus[..count], mib, 20_000)[0];
        println!("{} streams beside the chase: {ns:.1} ns", count - 1);
        assert!(
            ns > last * 0.98,
            "load made it faster: {ns:.1} after {last:.1}"
        );
        last = ns;
        felt.push(ns);
    }
    // With all its CPUs but one streaming, a node's controller is nearly full.
    if cpus.len() >= 4 {
        assert!(last >= felt[0] * 1.5, "{felt:?}");
    } else {
        assert!(last >= felt[0] * 1.1, "{felt:?}");
    }
}

#[test]
fn clocks_agree() {
    let uptime = || -> f64 {
        let text = fs::read_to_string("/proc/uptime").unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    let (before, start) = (uptime(), Instant::now());
    output_of("sleep", &["1"]);
    let (slept, passed) = (start.elapsed(), uptime() - before);
    println!("sleep 1 took {slept:?}, and {passed:.2} s of the kernel's uptime");
    assert!((Duration::from_secs(1)..Duration::from_millis(1_050)).contains(&slept));
    assert!((passed - slept.as_secs_f64()).abs() < 0.03);
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    assert_eq!(fs::read_to_string(source).unwrap().trim(), "tsc");
    let kernel = output_of("dmesg", &[]).to_lowercase();
    for word in [
        "unstable",
        "soft lockup",
        "rcu_sched self-detected",
        "call trace",
    ] {
        assert!(!kernel.contains(word), "the kernel says `{word}`");
    }
}

/// Debian's mbw, unmodified, with its memory on a node and its CPU fixed; returns MiB/s of memcpy.
fn mbw(cpu: usize, node: u16, mib: u32) -> f64 {
    let text = output_of(
        "numactl",
        &[
            "--physcpubind",
            &cpu.to_string(),
            "--membind",
            &node.to_string(),
            "mbw",
            "-q",
            "-n",
            "2",
            "-t",
            "0",
            &mib.to_string(),
        ],
    );
    let average = text
        .lines()
        .find(|line| line.starts_with("AVG"))
        .unwrap_or(&text);
    let rate = average.split("Copy:").nth(1).unwrap();
    rate.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_public_tool_feels_the_difference() {
    let machine = machine();
    if shape().name != "opteron" {
        println!("the expectation is worked out for the shape opteron");
        return;
    }
    let large = mbw(0, 0, 24) / mbw(0, 1, 24);
    // A copied line is read, its target is read, and a line goes back: three turns of a controller,
    // or two of a link, in which lines that go back travel the other way.
    let turn = |position: usize| f64::from(machine.resources[position].line_ps);
    let link = machine
        .resources
        .iter()
        .position(|part| part.name == "link 1 to 0");
    let asked = (turn(1) * 3.0).max(turn(link.unwrap()) * 2.0) / (turn(0) * 3.0);
    println!("memcpy of 24 MiB: local is {large:.2} times as fast as remote, asked for {asked:.2}");
    assert!(within(large, asked, 0.15), "{large:.2} for {asked:.2}");
}

#[test]
fn what_a_cache_holds_is_equally_near() {
    let machine = machine();
    let nodes = memory_nodes(&machine);
    let last = machine.cpus[0].caches.last().unwrap();
    let last = machine.caches[usize::from(*last)];
    let mib = u64::from(last.sets) * u64::from(last.ways) * LINE_BYTES / (1 << 20) / 4;
    if nodes.len() < 2 || mib < 2 {
        println!("one node, or a last cache below 8 MiB");
        return;
    }
    // Enough hops for several rounds: the first brings the lines in.
    let feel = |node| probe(node, "chase", &[0], mib, 600_000)[0];
    let (near, far) = (feel(nodes[0].0), feel(nodes[1].0));
    println!("{mib} MiB: {near:.2} ns from node 0, {far:.2} ns from node 1");
    assert!(within(far, near, 0.05), "{near:.2} and {far:.2}");
}
