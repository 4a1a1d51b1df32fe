//! What the model of a timed guest counted, in words.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use homenode_lab::model::{NodeTruth, Truth};
use homenode_lab::{KernelName, Shape};

use crate::lab_machine::Machinery;

/// Refuses a shape that does not say what its accesses cost, before anything is built for it.
///
/// # Errors
///
/// When it does not.
pub(crate) fn require_machine(shape: &Shape) -> Result<()> {
    if shape.machine().is_none() {
        bail!(
            "--timed: expected a shape with a part [timing], and {} has none\nhelp: `cargo xtask lab --list` marks those that have one",
            shape.name
        );
    }
    Ok(())
}

/// Each set of counters as a line of JSON.
///
/// # Errors
///
/// Never, as counters are numbers and names.
pub(crate) fn json_lines(truth: &[Truth]) -> Result<String> {
    let mut lines = String::new();
    for truth in truth {
        lines.push_str(&serde_json::to_string(truth)?);
        lines.push('\n');
    }
    Ok(lines)
}

/// Runs two chases of known length from one CPU in one node's memory, and compares what the model
/// counted with what the program did: the difference is the extra hops, each a line from that node.
///
/// # Errors
///
/// When the guest fails, or the counters are off by 2 % or more of the hops.
pub(crate) fn check(
    machinery: &Machinery,
    shape: &Shape,
    kernel: KernelName,
    timeout: Duration,
) -> Result<String> {
    // Making the cycle takes some lines more or less, as pages happen to lie in the caches: many hops
    // make that little.
    const HOPS: [u64; 2] = [50_000, 550_000];
    let Some(machine) = shape.machine() else {
        bail!("expected a shape with a part [timing]");
    };
    // The last CPU and the first node: far on every machine that has a far.
    let cpu = machine.cpus.len() - 1;
    let caches = machine.caches.iter();
    let largest = caches
        .map(|cache| u64::from(cache.sets) * u64::from(cache.ways))
        .max();
    // Lines of 64 bytes, and two and a half times as many as a cache holds.
    let mib = (largest.unwrap_or(0) * 160).div_ceil(1 << 20).max(4);
    let chase = |hops| {
        format!(
            "lab-mark reset; numactl --membind 0 lab-probe chase {cpu} {mib} {hops}; lab-mark report"
        )
    };
    let script = format!("{}; {}", chase(HOPS[0]), chase(HOPS[1]));
    let command = ["sh".to_owned(), "-c".to_owned(), script];
    let mut output = Vec::new();
    let outcome = machinery.boot(shape, kernel, timeout, &command, |guest| {
        guest.run(&mut |_stream, bytes| {
            output.extend_from_slice(bytes);
            Ok(())
        })
    })?;
    ensure!(
        outcome.status == 0 && outcome.truth.len() == 3,
        "expected status 0 and three sets of counters, found {} and {}\n{}",
        outcome.status,
        outcome.truth.len(),
        String::from_utf8_lossy(&output)
    );
    let lines = |truth: &Truth, is_there: fn(usize) -> bool| -> u64 {
        let memory = truth.cpus[cpu].memory.iter().enumerate();
        let there = memory.filter(|&(node, _)| is_there(node));
        there.map(|(_, memory)| memory.loads).sum()
    };
    // With interleaving, node 0 of the guest is every node of the machine.
    let is_there: fn(usize) -> bool = if machine.interleave.is_empty() {
        |node| node == 0
    } else {
        |_| true
    };
    let [few, many] = [0, 1].map(|position| lines(&outcome.truth[position], is_there));
    let counted = many.saturating_sub(few);
    let hops = HOPS[1] - HOPS[0];
    ensure!(
        counted.abs_diff(hops) * 50 <= hops,
        "expected {hops} more lines from node 0 to CPU {cpu}, counted {counted}"
    );
    Ok(format!(
        "{hops} hops of CPU {cpu} in node 0's memory, {counted} lines counted"
    ))
}

/// The counters as a table, with what the emulation cost and how exact it is.
pub(crate) fn summary(truth: &Truth) -> String {
    let mut text = String::new();
    let guest_ns = float(truth.elapsed_ps) / 1e3;
    let slower = float(truth.host_ns) / guest_ns.max(1.0);
    let _ = writeln!(
        text,
        "timed: {:.3} ms in the guest took {:.1} s here, {slower:.0} times as long; the guest's clock does not show it",
        guest_ns / 1e6,
        float(truth.host_ns) / 1e9,
    );
    let _ = writeln!(
        text,
        "timed: running CPUs were at most {:.1} us apart; loads show in latencies after 2 us or more",
        float(truth.skew_ps_max) / 1e6
    );
    let _ = writeln!(
        text,
        " cpu node  instructions  memory lines      local     remote  stalled"
    );
    for (number, cpu) in truth.cpus.iter().enumerate() {
        let lines = |memory: &NodeTruth| memory.loads + memory.stores;
        let all: u64 = cpu.memory.iter().map(lines).sum();
        let local = cpu.memory.get(usize::from(cpu.node)).map_or(0, lines);
        let stalled: u64 = cpu.memory.iter().map(|memory| memory.stall_ps).sum();
        let _ = writeln!(
            text,
            "{number:>4} {:>4} {:>13} {all:>13} {local:>10} {:>10} {:>7.0}%",
            cpu.node,
            cpu.instructions,
            all - local,
            100.0 * float(stalled) / float(truth.elapsed_ps).max(1.0),
        );
    }
    for resource in &truth.resources {
        let bytes = float(resource.lines) * 64.0;
        let _ = writeln!(
            text,
            "{:<14} {:>9.3} GB, {:>6.2} GB/s, at most {:.0} % used",
            resource.name,
            bytes / 1e9,
            bytes / guest_ns.max(1.0),
            100.0 * resource.used_max
        );
    }
    text
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for people to read: three digits matter"
)]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use homenode_lab::model::{CpuTruth, ResourceTruth};

    use super::*;

    #[test]
    fn the_summary_has_what_was_counted() {
        let memory = |loads| NodeTruth {
            loads,
            stall_ps: loads * 1_000,
            ..NodeTruth::default()
        };
        let truth = Truth {
            elapsed_ps: 2_000_000_000,
            host_ns: 100_000_000,
            skew_ps_max: 2_100_000,
            cpus: vec![CpuTruth {
                node: 1,
                instructions: 42,
                hits: vec![7],
                memory: vec![memory(300_000), memory(100_000)],
            }],
            resources: vec![ResourceTruth {
                name: "controller 0".to_owned(),
                lines: 1_000_000,
                used_max: 0.5,
            }],
            ..Truth::default()
        };
        let text = summary(&truth);
        assert!(
            text.contains("2.000 ms in the guest took 0.1 s here, 50 times"),
            "{text}"
        );
        assert!(text.contains("at most 2.1 us apart"), "{text}");
        let row: Vec<&str> = text.lines().nth(3).unwrap().split_whitespace().collect();
        assert_eq!(row, ["0", "1", "42", "400000", "100000", "300000", "20%"]);
        // 64 MB in 2 ms.
        assert!(
            text.contains("0.064 GB,  32.00 GB/s, at most 50 % used"),
            "{text}"
        );
        assert_eq!(
            json_lines(&[truth.clone(), truth]).unwrap().lines().count(),
            2
        );
    }

    #[test]
    fn only_timed_shapes_are_taken() {
        require_machine(&Shape::named("opteron").unwrap()).unwrap();
        let problem = require_machine(&Shape::named("2n").unwrap()).unwrap_err();
        assert!(problem.to_string().contains("and 2n has none"));
    }
}
