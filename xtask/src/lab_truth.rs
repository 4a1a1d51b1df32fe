//! What the model of a timed guest counted, in words.

use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};
use homenode_lab::Shape;
use homenode_lab::model::{Machine, NodeTruth, Truth};

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

/// A chase of known length from one CPU in one node's memory, and what the model has to count for it.
#[derive(Clone, Debug)]
pub(crate) struct KnownChase {
    cpu: usize,
    /// The model's nodes that have the memory.
    nodes: Vec<usize>,
    mib: u64,
}

impl KnownChase {
    const HOPS: u64 = 500_000;

    /// From the last CPU to the first node: far on every machine that has a far.
    pub(crate) fn on(machine: &Machine) -> Self {
        let caches = machine.caches.iter();
        let largest = caches
            .map(|cache| u64::from(cache.sets) * u64::from(cache.ways))
            .max();
        Self {
            cpu: machine.cpus.len() - 1,
            // With interleaving, node 0 of the guest is every node of the machine.
            nodes: if machine.interleave.is_empty() {
                vec![0]
            } else {
                (0..usize::from(machine.nodes)).collect()
            },
            // Twice as many lines, of 64 bytes, as a cache holds.
            mib: (largest.unwrap_or(0) * 128).div_ceil(1 << 20).max(4),
        }
    }

    /// What a shell in the guest runs; it leaves one set of counters.
    pub(crate) fn script(&self) -> String {
        let Self { cpu, mib, .. } = self;
        let hops = Self::HOPS;
        format!(
            "lab-mark stop; lab-mark reset; numactl --membind 0 lab-probe chase {cpu} {mib} {hops}; lab-mark report"
        )
    }

    /// Compares the counters with what the program did: once around its buffer, and the hops.
    ///
    /// # Errors
    ///
    /// When they are off by more than 2 %.
    pub(crate) fn check(&self, truth: &Truth) -> Result<String> {
        let expected = self.mib * (1 << 20) / 64 + Self::HOPS;
        let memory = &truth.cpus[self.cpu].memory;
        let counted: u64 = self.nodes.iter().map(|&node| memory[node].loads).sum();
        ensure!(
            counted.abs_diff(expected) * 50 <= expected,
            "expected {expected} lines from node 0 to CPU {}, counted {counted}",
            self.cpu
        );
        Ok(format!(
            "{expected} hops of CPU {} in node 0's memory, {counted} lines counted",
            self.cpu
        ))
    }
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
    fn a_known_chase_has_to_be_counted() {
        let machine = Shape::named("opteron-interleave").unwrap();
        let chase = KnownChase::on(machine.machine().unwrap());
        assert!(chase.script().contains("lab-probe chase 3 4 500000;"));
        let counted = |loads: [u64; 2]| {
            let memory = |loads| NodeTruth {
                loads,
                ..NodeTruth::default()
            };
            let cpu = |loads: [u64; 2]| CpuTruth {
                memory: loads.map(memory).to_vec(),
                ..CpuTruth::default()
            };
            chase.check(&Truth {
                cpus: vec![cpu([0; 2]), cpu([0; 2]), cpu([0; 2]), cpu(loads)],
                ..Truth::default()
            })
        };
        // 65536 lines once around and 500000 hops.
        counted([282_000, 283_600]).unwrap();
        counted([282_000, 270_000]).unwrap_err();
        counted([300_000, 300_000]).unwrap_err();
    }

    #[test]
    fn only_timed_shapes_are_taken() {
        require_machine(&Shape::named("opteron").unwrap()).unwrap();
        let problem = require_machine(&Shape::named("2n").unwrap()).unwrap_err();
        assert!(problem.to_string().contains("and 2n has none"));
    }
}
