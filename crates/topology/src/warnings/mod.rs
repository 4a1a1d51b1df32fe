//! What an operator should look at: each warning with its numbers and, where there is one, the
//! next step. What the reader met as a problem is listed there and not here.

mod distances;
mod memory;
mod slots;

use homenode_units::NodeSet;

use crate::verdict::{Mode, Warning};
use crate::words::{count, cpus, id_set, nodes};
use crate::{Node, Topology};

/// All warnings about a machine of this kind, the gravest first.
pub(crate) fn warnings(topology: &Topology, mode: Mode) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(hidden_nodes(topology, mode));
    warnings.extend(memory::memory(topology));
    warnings.extend(allowed(topology));
    warnings.extend(offline(topology));
    // Overlapping nodes have one finding, the verdict itself; their distances follow from it.
    if mode != Mode::OverlappingNodes && mode != Mode::Emulated {
        warnings.extend(distances::distances(topology));
    }
    warnings.extend(slots::slots(topology));
    warnings
}

fn warning(subject: impl Into<String>, message: impl Into<String>) -> Warning {
    Warning {
        subject: subject.into(),
        message: message.into(),
        advice: None,
    }
}

impl Warning {
    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Memory that is unequally far and looks equally far.
fn hidden_nodes(topology: &Topology, mode: Mode) -> Option<Warning> {
    let certainly_hidden = mode == Mode::OneNodeManyPackages
        && topology.processor.hypervisor.known() != Some(&true)
        && !crate::verdict::shares_a_bus(&topology.processor);
    certainly_hidden.then(|| {
        let packages = count(topology.packages.len(), "package");
        let message = format!(
            "{packages} share one node: programs cannot be kept near their memory, and part of \
             every program's accesses crosses to another package"
        );
        warning("nodes", message).advise(
            "switch NUMA on in the firmware (node interleaving off, NPS1 or higher) and start the \
             kernel without numa=off",
        )
    })
}

/// CPUs whose memory is out of bounds.
fn allowed(topology: &Topology) -> Option<Warning> {
    let allowed = &topology.allowed;
    let with_cpus: Vec<&Node> = topology
        .nodes
        .iter()
        .filter(|node| node.cpus.intersects(&allowed.cpus) && !node.is_memoryless())
        .collect();
    let remote: NodeSet = id_set(
        with_cpus
            .iter()
            .map(|node| node.id)
            .filter(|&id| !allowed.nodes.contains(id)),
    );
    if remote.is_empty() || allowed.nodes.is_empty() {
        return None;
    }
    let message = if remote.len() == with_cpus.len() {
        format!(
            "this process may run on {} ({}) and use memory of {} only: all its memory is remote",
            cpus(&allowed.cpus),
            nodes(&remote),
            nodes(&allowed.nodes),
        )
    } else {
        format!(
            "this process may run on {} and not use memory there: its CPUs of {} reach only \
             remote memory",
            nodes(&remote),
            nodes(&remote)
        )
    };
    Some(warning("allowed", message).advise(
        "give the cpuset the CPUs and the memory of the same nodes (cpuset.cpus, cpuset.mems)",
    ))
}

/// CPUs that are switched off, and CPUs whose node is.
fn offline(topology: &Topology) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let offline = &topology.cpus.offline;
    if !offline.is_empty() {
        let present = offline.len() + topology.cpus.online.len();
        warnings.push(
            warning(
                "CPUs",
                format!("{} of {present} are offline: {}", offline.len(), offline),
            )
            .advise(
                "if that is not meant: echo 1 > /sys/devices/system/cpu/cpu<n>/online, or, where \
                 SMT is off, echo on > /sys/devices/system/cpu/smt/control",
            ),
        );
    }
    let in_nodes = topology
        .nodes
        .iter()
        .fold(homenode_units::CpuSet::new(), |all, node| {
            all.union(&node.cpus)
        });
    let homeless = topology.cpus.online.difference(&in_nodes);
    if !homeless.is_empty() && !topology.nodes.is_empty() {
        let mut message = format!("{} are online and in no online node", cpus(&homeless));
        if !topology.nodes_offline.is_empty() {
            message = format!("{message}; not online: {}", nodes(&topology.nodes_offline));
        }
        warnings.push(warning("nodes", message));
    }
    warnings
}

#[cfg(test)]
mod tests;
