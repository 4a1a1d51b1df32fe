//! The patterns of known machines, in order; the first that fits is the answer.

use homenode_units::NodeSet;

use super::processor::Chip;
use super::shape::{Package, Shape};
use super::split::split_packages;
use super::{Certainty, Finding, Mode, one_node};
use crate::words::{count, cpus, nodes, range};
use crate::{Node, Topology};

/// Finds the kind of machine.
pub(super) fn find(topology: &Topology, shape: &Shape<'_>) -> Finding {
    let mut finding = made_up(topology, shape)
        .or_else(|| without_nodes(topology, shape))
        .or_else(|| without_packages(topology, shape))
        .unwrap_or_else(|| {
            let packages = shape.packages.as_deref().unwrap_or_default();
            single_node(topology, shape, packages)
                .or_else(|| whole_packages(topology, shape, packages))
                .or_else(|| split_packages(topology, shape, packages))
                .unwrap_or_else(|| mixed(topology, shape, packages))
        });
    if !shape.cpus_in_no_node.is_empty() && finding.mode != Mode::NoNumaSupport {
        finding.evidence.push(format!(
            "{} are online and in no online node",
            cpus(&shape.cpus_in_no_node)
        ));
    }
    if is_guest(topology) {
        doubt_a_guest(&mut finding);
    }
    finding
}

/// Whether the CPU says that it is a virtual one.
pub(super) fn is_guest(topology: &Topology) -> bool {
    topology.processor.hypervisor.known() == Some(&true)
}

/// In a virtual machine a shape is what the hypervisor chose to show.
fn doubt_a_guest(finding: &mut Finding) {
    match finding.mode {
        // These say something about this kernel or its tables, true in a guest as anywhere.
        Mode::NoNumaSupport | Mode::OverlappingNodes | Mode::Emulated => return,
        _ => {}
    }
    if finding.certainty == Certainty::Certain {
        finding.certainty = Certainty::Likely;
    }
    finding.evidence.push(
        "the CPU reports a hypervisor: packages, nodes and caches are what it chose to show"
            .to_owned(),
    );
}

/// Nodes that share CPUs, and nodes the kernel was told to make up.
fn made_up(topology: &Topology, shape: &Shape<'_>) -> Option<Finding> {
    let option = topology
        .kernel_options
        .iter()
        .find(|word| word.starts_with("numa=fake="))
        .filter(|_| shape.nodes.len() > 1);
    let overlap = shape.overlap.map(|(one, other)| {
        let both: NodeSet = [one, other].into_iter().collect();
        format!("{} have CPUs in common", nodes(&both))
    });
    let node_count = count(shape.nodes.len(), "node");
    let mut finding = match (option, &overlap) {
        (Some(option), _) => Finding::new(
            Mode::Emulated,
            Certainty::Certain,
            format!("{node_count} made up by the kernel option {option}"),
        )
        .because(format!("the kernel command line holds {option}")),
        (None, Some(_)) => Finding::new(
            Mode::OverlappingNodes,
            Certainty::Certain,
            format!("{node_count} that share CPUs: the firmware's tables are wrong"),
        ),
        (None, None) => return None,
    };
    finding.evidence.extend(overlap);
    Some(finding)
}

/// No nodes at all, or none with CPUs.
fn without_nodes(topology: &Topology, shape: &Shape<'_>) -> Option<Finding> {
    if topology.nodes.is_empty() || topology.nodes_implied {
        let finding = Finding::new(
            Mode::NoNumaSupport,
            Certainty::Certain,
            "no memory nodes: this kernel has no NUMA support, the machine is taken as one node",
        );
        return Some(finding.because(format!(
            "no node is shown, and {}",
            count(topology.packages.len(), "package")
        )));
    }
    shape.nodes.is_empty().then(|| {
        let node_count = count(topology.nodes.len(), "node");
        unknown_packages(
            format!("{node_count}, none with CPUs that are online"),
            "how nodes relate to packages: no node has CPUs that are online",
        )
    })
}

fn unknown_packages(headline: String, question: &str) -> Finding {
    Finding::new(Mode::UnknownPackages, Certainty::CannotTell, headline).undecided(question)
}

/// Packages that cannot be told by their ids.
fn without_packages(topology: &Topology, shape: &Shape<'_>) -> Option<Finding> {
    if shape.packages.is_some() {
        return None;
    }
    let node_count = count(shape.nodes.len(), "node");
    let why = match topology.packages.len() {
        0 => "the kernel names no package".to_owned(),
        guessed => format!(
            "the kernel gives no package ids, and its masks ({}) are no substitute",
            count(guessed, "group")
        ),
    };
    if shape.nodes.len() == 1 && topology.packages.len() <= 1 && !has_cpuless(topology) {
        let headline = format!("{node_count} and no sign of a second package: memory is uniform");
        let finding = Finding::new(Mode::Uniform, Certainty::Likely, headline);
        return Some(finding.because(format!("{node_count}, and {why}")));
    }
    let finding = unknown_packages(
        format!("{node_count}; packages cannot be told, and so neither can the mode"),
        "how nodes relate to packages: the kernel does not say which CPUs form a package",
    );
    Some(finding.because(why))
}

fn has_cpuless(topology: &Topology) -> bool {
    topology.nodes.iter().any(Node::is_cpuless)
}

/// One node with CPUs.
fn single_node(topology: &Topology, shape: &Shape<'_>, packages: &[Package]) -> Option<Finding> {
    if shape.nodes.len() != 1 {
        return None;
    }
    if packages.len() > 1 {
        return Some(one_node::find(topology, packages.len()));
    }
    let node_is_whole = shape.cpus_in_no_node.is_empty() && shape.nodes_asleep.is_empty();
    if node_is_whole && !has_cpuless(topology) {
        let headline = "1 package, 1 node: all memory is equally far";
        let finding = Finding::new(Mode::Uniform, Certainty::Certain, headline);
        return Some(finding.because(totals(topology, shape, packages)));
    }
    None
}

/// Nodes that hold whole packages: a node controller, or plain NUMA.
fn whole_packages(topology: &Topology, shape: &Shape<'_>, packages: &[Package]) -> Option<Finding> {
    let held: Vec<usize> = shape
        .nodes
        .iter()
        .map(|node| shape.packages_in(node))
        .collect();
    let within_one_node = |package: &Package| {
        shape
            .nodes
            .iter()
            .any(|node| package.cpus.is_subset(&node.cpus))
    };
    if !packages.iter().all(within_one_node) {
        return None;
    }
    let node_count = count(shape.nodes.len(), "node");
    let whole = shape.packages_total == packages.len() && shape.nodes_asleep.is_empty();
    let certainty = if whole {
        Certainty::Certain
    } else {
        Certainty::Likely
    };
    if held.iter().all(|&held| held >= 2) {
        let packages_per_node = held.iter().copied().max().unwrap_or_default();
        let headline = format!(
            "{node_count} of {} packages each: packages behind node controllers",
            range(held.iter().copied())
        );
        let mode = Mode::NodeController { packages_per_node };
        return Some(
            Finding::new(mode, certainty, headline).because(totals(topology, shape, packages)),
        );
    }
    if held.iter().any(|&held| held != 1) {
        return None;
    }
    let detail = match Chip::of(&topology.processor) {
        Chip::IntelClusterOnDie => " (Cluster-on-Die is off)",
        Chip::IntelSubNuma => " (sub-NUMA clustering is off)",
        Chip::AmdZen => " (NPS1)",
        _ => "",
    };
    let each = if packages.len() == 1 { "" } else { " each" };
    let seen = count(packages.len(), "package");
    let mut headline = if shape.packages_total > packages.len() {
        format!(
            "{seen} of {}, a node{each}, the rest in no online node: plain NUMA{detail}",
            shape.packages_total
        )
    } else {
        format!("{seen}, a node{each}: plain NUMA{detail}")
    };
    let cpuless = topology
        .nodes
        .iter()
        .filter(|node| node.is_cpuless())
        .count();
    if cpuless > 0 {
        headline = format!(
            "{headline}, and {} without CPUs",
            count(cpuless, "more node")
        );
    }
    let mut finding =
        Finding::new(Mode::Plain, certainty, headline).because(totals(topology, shape, packages));
    finding.evidence.push(match shape.nodes.as_slice() {
        [node, ..] => format!(
            "each node is one package: node {} and {} both hold {}",
            node.id,
            packages
                .iter()
                .find(|package| package.cpus == node.cpus)
                .map_or_else(|| "its package".to_owned(), name),
            cpus(&node.cpus)
        ),
        [] => "each node is one package".to_owned(),
    });
    Some(finding)
}

/// `package 36`, or `a package` where it has no number.
pub(super) fn name(package: &Package) -> String {
    package
        .id
        .map_or_else(|| "a package".to_owned(), |id| format!("package {id}"))
}

/// `2 packages, 4 nodes with CPUs, 56 CPUs online`.
pub(super) fn totals(topology: &Topology, shape: &Shape<'_>, packages: &[Package]) -> String {
    let online = topology.cpus.online.len();
    let mut text = format!(
        "{}, {} with CPUs, {} online",
        count(packages.len(), "package"),
        count(shape.nodes.len(), "node"),
        count(online, "CPU"),
    );
    let offline = topology.cpus.offline.len();
    if offline > 0 {
        text = format!("{text}, {} offline and ignored here", count(offline, "CPU"));
    }
    if let Some(threads) = topology.threads_per_core_max() {
        let cores = topology.cores.len();
        if cores * threads == online {
            text = format!("{text} ({} × {threads})", count(cores, "core"));
        }
    }
    text
}

/// Nodes without a common pattern: says the numbers.
fn mixed(topology: &Topology, shape: &Shape<'_>, packages: &[Package]) -> Finding {
    let headline = format!(
        "{} and {} that follow no common pattern",
        count(packages.len(), "package"),
        count(shape.nodes.len(), "node")
    );
    let mut finding = Finding::new(Mode::Mixed, Certainty::Certain, headline)
        .because(totals(topology, shape, packages));
    for node in &shape.nodes {
        let touched = packages
            .iter()
            .filter(|package| package.cpus.intersects(&node.cpus))
            .count();
        finding.evidence.push(format!(
            "node {} has {} in {}, of which it holds {} whole",
            node.id,
            count(node.cpus.len(), "CPU"),
            count(touched, "package"),
            shape.packages_in(node)
        ));
    }
    finding
}
