//! What accesses cost, felt with `lab-probe`: only on guests that were booted `--timed`.
//!
//! Expectations come from the shape: what was asked for. A test that the machine has nothing to tell
//! says so and passes.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
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
    (bytes.expect("there are caches") * 2)
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
    // It goes on when the probe has made its buffers.
    output_of("lab-mark", &["stop"]);
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

/// Runs a `chase` or `scatter` from one CPU to each of some nodes, one after the other; returns the
/// time of each. Unit: nanoseconds.
///
/// The model is started once for all of them: the emulator translates everything anew each time.
fn row(kind: &str, cpu: usize, nodes: &[u16], mib: u64) -> Vec<f64> {
    const HOPS: &str = "40000";
    output_of("lab-mark", &["stop"]);
    let mut probes: Vec<_> = nodes
        .iter()
        .map(|node| {
            let (node, cpu, mib) = (node.to_string(), cpu.to_string(), mib.to_string());
            let mut probe = Command::new("numactl")
                .args([
                    "--membind",
                    &node,
                    "lab-probe",
                    kind,
                    &cpu,
                    &mib,
                    HOPS,
                    "held",
                ])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(probe.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
            (probe, lines)
        })
        .collect();
    output_of("lab-mark", &["start"]);
    let mut measure = |(probe, lines): &mut (Child, Lines<BufReader<ChildStdout>>)| {
        probe.stdin.take().unwrap().write_all(b"\n").unwrap();
        let line = lines.next().unwrap().unwrap();
        assert!(probe.wait().unwrap().success());
        line.strip_prefix("ns ").unwrap().parse().unwrap()
    };
    probes.iter_mut().map(&mut measure).collect()
}

/// How long streams are measured. Unit: milliseconds.
const STREAM_MS: u32 = 5;

fn within(value: f64, expected: f64, part: f64) -> bool {
    (value - expected).abs() <= expected * part
}

/// Compares a matrix of latencies with what was asked for: each cell, and their order.
fn check_matrix(kind: &str, latency: fn(&Path) -> u32) {
    let machine = machine();
    let (nodes, behind): (Vec<_>, Vec<_>) = memory_nodes(&machine).into_iter().unzip();
    let mut cells = Vec::new();
    for (from, cpus) in cpu_nodes(&machine) {
        let felt = row(kind, cpus[0], &nodes, large(&machine));
        for ((node, behind), felt) in nodes.iter().zip(&behind).zip(felt) {
            let asked = asked(&machine, from, behind, latency);
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
    check_matrix("chase", |path| path.read_ps);
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

/// The chase's time from a CPU to a node. Unit: nanoseconds.
fn chase(cpu: usize, node: u16, mib: u64) -> f64 {
    row("chase", cpu, &[node], mib)[0]
}

/// What the documents say of the machines that the shapes are made after; tests T5 to T36 of the
/// project's reference.
#[test]
fn ratios_of_the_sources_hold() {
    let machine = machine();
    let mib = large(&machine);
    let far_cpu = machine.cpus.len() - 1;
    match shape().name.as_str() {
        "opteron" | "opteron-4p0" => {
            let ratio = chase(far_cpu, 0, mib) / chase(0, 0, mib);
            println!("T5: remote costs {ratio:.2} of local, asked for 1.44 to 1.60");
            assert!((1.44..=1.60).contains(&ratio));
        }
        "opteron-interleave" => {
            // Enough pages that chance puts as many on either side.
            let (one, other) = (chase(0, 0, 64), chase(far_cpu, 0, 64));
            println!("T7: {one:.2} and {other:.2} ns, asked for 1.1 % apart at most");
            assert!(within(one, other, 0.011));
        }
        "xeon-4214" => {
            let felt = row("chase", 0, &[0, 1], mib);
            let (there, back) = (felt[1], chase(far_cpu, 0, mib));
            let ratio = there / felt[0];
            println!("T29: {there:.1} ns, {back:.1} ns, remote costs {ratio:.2}, asked for 1.71");
            assert!(within(ratio, 1.71, 0.02) && within(there, back, 0.005));
        }
        "xeon-4214-numa-off" => {
            let felt = chase(0, 0, mib);
            println!("T30: {felt:.1} ns, asked for 79.75 to 136.3");
            assert!((79.75..136.3).contains(&felt));
        }
        "drepper" => {
            let loads = row("chase", 0, &[0, 1, 3], mib);
            let stores = row("scatter", 0, &[0, 1, 3], mib);
            for (what, felt, asked) in [
                ("read, 1 hop", loads[1], 1.09),
                ("read, 2 hops", loads[2], 1.30),
                ("write, 0 hops", stores[0], 1.13),
                ("write, 1 hop", stores[1], 1.27),
                ("write, 2 hops", stores[2], 1.49),
            ] {
                let ratio = felt / loads[0];
                println!("T35: {what} costs {ratio:.2}, asked for {asked} of a near read");
                assert!(within(ratio, asked, 0.05), "{what}: {ratio:.2}");
            }
            for mib in [8, 16] {
                let felt = row("chase", 0, &[0, 3], mib);
                let ratio = felt[1] / felt[0];
                println!("T36: {mib} MiB: 2 hops cost {ratio:.2}, asked for 1.30");
                assert!(within(ratio, 1.30, 0.02), "{mib} MiB: {ratio:.2}");
            }
        }
        _ => println!("no source says how its latencies compare"),
    }
}

#[test]
fn interleaved_pages_cost_the_average() {
    let machine = machine();
    let nodes = memory_nodes(&machine);
    if nodes.len() < 2 {
        println!("one node has all memory");
        return;
    }
    // Each page's chance to be in each node is the same, and some thousand pages are enough.
    let mib = large(&machine).max(16);
    output_of("lab-mark", &["stop"]);
    let words = [
        "--interleave=all",
        "lab-probe",
        "chase",
        "0",
        &mib.to_string(),
        "40000",
    ];
    let text = output_of("numactl", &words);
    let felt: f64 = text.trim().split(' ').next_back().unwrap().parse().unwrap();
    let to: Vec<u16> = nodes.iter().map(|(node, _)| *node).collect();
    let asked = asked(&machine, machine.cpus[0].node, &to, |path| path.read_ps);
    println!("T1: interleaved over all nodes: asked for {asked:.1} ns, felt {felt:.1}");
    assert!(within(felt, asked, 0.1));
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
    output_of("lab-mark", &["start"]);
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
    output_of("lab-mark", &["start"]);
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
    let (one, other) = (nodes[0].0, nodes[nodes.len() - 1].0);
    // Once around brings the lines in.
    let felt = row("chase", 0, &[one, other], mib);
    let (near, far) = (felt[0], felt[1]);
    println!("{mib} MiB: {near:.2} ns from node {one}, {far:.2} ns from node {other}");
    assert!(within(far, near, 0.05), "{near:.2} and {far:.2}");
    // A public tool, with two arrays that fit together; it writes both before it copies.
    output_of("lab-mark", &["start"]);
    let ratio = mbw(0, one, 2) / mbw(0, other, 2);
    println!("memcpy of 2 MiB: near is {ratio:.3} times as fast as far, asked for 1.00");
    assert!(within(ratio, 1.0, 0.05), "{ratio:.3}");
}
