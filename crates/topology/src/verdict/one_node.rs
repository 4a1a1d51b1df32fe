//! One node over several packages: what hides the others?

use super::mode::is_guest;
use super::processor::Chip;
use super::{Certainty, Finding, Mode};
use crate::words::count;
use crate::{SratDomain, Topology, Vendor};

/// Kernel options that keep Linux on x86 from using the SRAT (Documentation/admin-guide/
/// kernel-parameters.txt, Linux 6.12).
const OPTIONS_OFF: [&str; 3] = ["numa=off", "numa=noacpi", "acpi=off"];

/// Names what may hide the nodes, narrowed down by the kernel's options, the SRAT, the hypervisor
/// flag and the age of the processors.
pub(super) fn find(topology: &Topology, packages: usize) -> Finding {
    let start = format!("{}, 1 node", count(packages, "package"));
    let finding = |certainty, what: &str| {
        Finding::new(
            Mode::OneNodeManyPackages,
            certainty,
            format!("{start}: {what}"),
        )
    };
    let option = topology
        .kernel_options
        .iter()
        .find(|word| OPTIONS_OFF.contains(&word.as_str()));
    let domains = topology.firmware.srat.known().map(|srat| {
        let real = |domain: &&SratDomain| domain.processors > 0 || domain.memory.0 > 0;
        srat.domains.iter().filter(real).count()
    });

    let mut finding = if let Some(option) = option {
        let what = format!("the kernel was told not to look for nodes ({option})");
        finding(Certainty::Certain, &what)
            .because(format!("the kernel command line holds {option}"))
    } else if domains.is_some_and(|domains| domains > 1) {
        finding(
            Certainty::Likely,
            "the firmware names several, and the kernel does not use them",
        )
        .undecided(
            "why the kernel refuses the SRAT; its messages tell (dmesg, lines with SRAT or NUMA)",
        )
    } else if is_guest(topology) {
        finding(
            Certainty::Likely,
            "the hypervisor shows several packages and no nodes",
        )
        .undecided("whether the host has nodes: a guest without virtual nodes cannot see them")
    } else if Chip::shares_a_bus(&topology.processor) {
        finding(
            Certainty::Likely,
            "processors of this age share one bus, all memory is equally far",
        )
    } else {
        finding(Certainty::CannotTell, hidden_by_firmware(topology)).undecided(question(domains))
    };

    finding.evidence.push(match domains {
        Some(domains) => format!(
            "the SRAT names {} with processors or memory",
            count(domains, "domain")
        ),
        None => format!(
            "the SRAT is not known: {}",
            topology.firmware.srat.why().unwrap_or("no reason given")
        ),
    });
    if !topology.nodes_offline.is_empty() {
        finding.evidence.push(format!(
            "node ids {} are possible and not online; no CPU is missing for them",
            topology.nodes_offline
        ));
    }
    finding
}

fn hidden_by_firmware(topology: &Topology) -> &'static str {
    match topology.processor.vendor.known() {
        Some(Vendor::Amd | Vendor::Hygon) => {
            "memory is interleaved over the packages (NPS0, node interleaving), or NUMA is off in \
             the firmware"
        }
        _ => "memory is interleaved over the packages, or NUMA is off in the firmware",
    }
}

fn question(domains: Option<usize>) -> &'static str {
    if domains.is_some() {
        "node interleaving, NUMA switched off in the firmware and a shared bus look the same; the \
         firmware's settings tell"
    } else {
        "node interleaving, NUMA switched off in the firmware, a shared bus and a kernel that \
         refused the SRAT look the same; the firmware's settings tell, and the SRAT, which root \
         may read"
    }
}
