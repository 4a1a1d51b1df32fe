//! `numactl --show` and `--hardware`.

use std::fmt::Write as _;
use std::io::{self, Write};

use homenode_report::{NumactlLayout, numactl_hardware};
use homenode_sys::{Policy, PolicyMode};
use homenode_topology::{Detail, Source, read_topology};
use homenode_units::{CpuSet, Id, IdSet, NodeId, NodeSet};

use super::system::System;
use super::text::reason;

/// Prints the policy and the CPUs of this process; the exit status.
pub(super) fn show<S: System>(system: &S, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let cpus = system.affinity().unwrap_or_default();
    if !system.has_numa() {
        let _ = writeln!(
            out,
            "physcpubind: {}\nNo NUMA support available on this system.",
            blanks(&cpus)
        );
        return 1;
    }
    let policy = system.policy();
    if let Err(error) = &policy {
        let _ = writeln!(err, "get_mempolicy: {}", reason(error));
    }
    let text = shown(system, &policy.unwrap_or_default(), &cpus);
    // A reader that has left (`| head -1`) does not change the status, as with numactl.
    let _ = out.write_all(text.as_bytes());
    0
}

fn shown<S: System>(system: &S, policy: &Policy, cpus: &CpuSet) -> String {
    let allowed = system.allowed_nodes();
    let next = system.next_interleave_node();
    let mut text = format!("policy: {}\n", policy_name(policy.mode));
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "preferred node: {}", preferred(policy, next));
    if is_interleaving(policy.mode) {
        let _ = writeln!(text, "interleavemask: {}", blanks(&policy.nodes));
        if policy.mode == PolicyMode::WeightedInterleave {
            let _ = writeln!(
                text,
                "interleaveweights: {}",
                weights(system, &policy.nodes)
            );
        }
        if let Some(next) = next {
            let _ = writeln!(text, "interleavenode: {next}");
        }
    }
    let running: NodeSet = allowed
        .iter()
        .filter(|&node| node_cpus(system, node).intersects(cpus))
        .collect();
    let bound = if policy.mode == PolicyMode::Bind {
        &policy.nodes
    } else {
        &allowed
    };
    for (name, list) in [
        ("physcpubind", blanks(cpus)),
        ("cpubind", blanks(&running)),
        ("nodebind", blanks(&running)),
        ("membind", blanks(bound)),
        ("preferred", blanks(&policy.nodes)),
    ] {
        let _ = writeln!(text, "{name}: {list}");
    }
    text
}

/// Numactl's word for a policy.
pub(super) fn policy_name(mode: PolicyMode) -> String {
    match mode {
        PolicyMode::Default => "default",
        PolicyMode::Preferred => "preferred",
        PolicyMode::Bind => "bind",
        PolicyMode::Interleave => "interleave",
        PolicyMode::Local => "local",
        PolicyMode::PreferredMany => "preferred-many",
        PolicyMode::WeightedInterleave => "weighted-interleave",
        PolicyMode::Other(number) => return format!("[{number}]"),
    }
    .to_owned()
}

fn is_interleaving(mode: PolicyMode) -> bool {
    matches!(
        mode,
        PolicyMode::Interleave | PolicyMode::WeightedInterleave
    )
}

fn preferred(policy: &Policy, next: Option<NodeId>) -> String {
    let lowest = policy.nodes.lowest().map(|node| node.to_string());
    match policy.mode {
        PolicyMode::Default => "current".to_owned(),
        PolicyMode::Interleave | PolicyMode::WeightedInterleave => match next {
            Some(next) => format!("{next} (interleave next)"),
            None => String::new(),
        },
        // Upstream says node 0 whatever the nodes are: docs/drop-ins.md, "preferred-many".
        PolicyMode::PreferredMany => {
            format!("{} (preferred-many)", lowest.unwrap_or_default())
        }
        PolicyMode::Preferred | PolicyMode::Bind => lowest.unwrap_or_default(),
        PolicyMode::Local | PolicyMode::Other(_) => String::new(),
    }
}

/// The numbers of a set, a blank behind each.
pub(super) fn blanks<T: Id>(set: &IdSet<T>) -> String {
    set.iter().map(|id| format!("{id} ")).collect()
}

/// The CPUs of a node.
pub(super) fn node_cpus<S: System + ?Sized>(system: &S, node: NodeId) -> CpuSet {
    let mut buffer = Vec::new();
    system
        .files()
        .read(
            &format!("/sys/devices/system/node/node{node}/cpumap"),
            &mut buffer,
        )
        .ok()
        .and_then(|text| std::str::from_utf8(text).ok())
        .and_then(|text| CpuSet::parse_mask(text.trim()).ok())
        .unwrap_or_default()
}

/// The weights of the nodes, which are the whole machine's; 1 where none is set.
fn weights<S: System>(system: &S, nodes: &NodeSet) -> String {
    let weight = |node: NodeId| {
        let mut buffer = Vec::new();
        let path = format!("/sys/kernel/mm/mempolicy/weighted_interleave/node{node}");
        let text = system.files().read(&path, &mut buffer).ok()?;
        Some(std::str::from_utf8(text).ok()?.trim().to_owned())
    };
    nodes
        .iter()
        .map(|node| weight(node).unwrap_or_else(|| "1".to_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Prints nodes, CPUs, memory and distances; the exit status.
pub(super) fn hardware<S: System>(
    system: &S,
    compress_cpus: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    if !system.has_numa() {
        let _ = writeln!(out, "No NUMA available on this system");
        return 1;
    }
    match read_topology(system.files(), Source::Live, Detail::Fast) {
        Ok(topology) => {
            let layout = NumactlLayout {
                compress_cpus,
                ..NumactlLayout::V2_0_19
            };
            let _ = out.write_all(numactl_hardware(&topology, layout).as_bytes());
            0
        }
        Err(error) => {
            let error = io::Error::other(error);
            let _ = writeln!(err, "numactl: {error}");
            1
        }
    }
}
