//! What only a full reading knows: devices, tiers, what the firmware claims, huge pages.

use homenode_topology::{Access, Device, MemorySlot, Node, Topology};
use homenode_units::Reading;

use super::facts::push_fact;
use super::lines::{Lines, Side, Style, Table};
use crate::short::{absent, count, device_kind, fold_list, nodes_of};

/// Devices that are listed unless everything is shown.
const DEVICES_SHOWN: usize = 12;

pub(super) fn push(lines: &mut Lines, topology: &Topology, full: bool) {
    push_devices(lines, topology, full);
    if full {
        push_packages(lines, topology);
        push_node_details(lines, topology);
        push_system(lines, topology);
    }
}

fn push_devices(lines: &mut Lines, topology: &Topology, full: bool) {
    let devices = match &topology.devices {
        Reading::Known(devices) if devices.is_empty() => return,
        Reading::Known(devices) => devices,
        Reading::Absent { why } => {
            if full {
                lines.gap();
                push_fact(lines, "devices", &absent(why));
            }
            return;
        }
    };
    let shown = if full { devices.len() } else { DEVICES_SHOWN };
    let mut sorted: Vec<&Device> = devices.iter().collect();
    // Devices of unknown place last: they are the ones to ask the maker of the machine about.
    sorted.sort_by_key(|device| (device.node.known().is_none(), device.node.known().copied()));
    sorted.truncate(shown);
    lines.gap();
    let cells = |cell: &dyn Fn(&Device) -> String| {
        sorted.iter().map(|device| cell(device)).collect::<Vec<_>>()
    };
    let mut table = Table::default();
    let node = |device: &Device| {
        device
            .node
            .known()
            .map_or_else(String::new, ToString::to_string)
    };
    table.column(
        Side::Right,
        "node",
        cells(&|device| match node(device) {
            unknown if unknown.is_empty() => "n/a".to_owned(),
            known => known,
        }),
    );
    table.column(
        Side::Left,
        "device",
        cells(&|device| device.address.clone()),
    );
    table.column(
        Side::Left,
        "kind",
        cells(&|device| device_kind(device.kind).to_owned()),
    );
    table.column(
        Side::Wrapped,
        "names",
        cells(&|device| match device.names.is_empty() {
            true => "-".to_owned(),
            false => device.names.join(" "),
        }),
    );
    table.write(lines);
    if devices.len() > shown {
        let text = format!("and {} more with --full", devices.len() - shown);
        lines.line(&[(Style::Faint, &text)]);
    }
    let mut reasons: Vec<&str> = devices
        .iter()
        .filter_map(|device| device.node.why())
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    for why in reasons {
        lines.paragraph((Style::Faint, "n/a "), Style::Faint, &format!("({why})"));
    }
}

fn push_packages(lines: &mut Lines, topology: &Topology) {
    if topology.packages.is_empty() {
        return;
    }
    lines.gap();
    let packages = &topology.packages;
    let mut table = Table::default();
    let ids = packages.iter().map(|package| match package.id {
        Some(id) => id.to_string(),
        None => "n/a".to_owned(),
    });
    table.column(Side::Right, "package", ids.collect());
    let nodes = packages
        .iter()
        .map(|package| nodes_of(topology, &package.cpus).to_string());
    table.column(Side::Left, "nodes", nodes.collect());
    let numbers = packages
        .iter()
        .map(|package| package.cpus.len().to_string());
    table.column(Side::Right, "CPUs", numbers.collect());
    let lists = packages.iter().map(|package| package.cpus.to_string());
    table.column(Side::Wrapped, "which", lists.collect());
    table.write(lines);
}

/// What the kernel and the firmware say about single nodes.
fn push_node_details(lines: &mut Lines, topology: &Topology) {
    let mut said = Vec::new();
    for node in &topology.nodes {
        for detail in node_details(node) {
            said.push((format!("node {}", node.id), detail));
        }
    }
    if !said.is_empty() {
        lines.gap();
    }
    for (label, detail) in said {
        push_fact(lines, &label, &detail);
    }
}

fn node_details(node: &Node) -> Vec<String> {
    let mut details = Vec::new();
    for pool in node.huge_pages.iter().filter(|pool| pool.total_pages > 0) {
        let (total, free) = (pool.total_pages, pool.free_pages);
        details.push(format!(
            "huge pages of {}: {total}, {free} free",
            pool.page_size
        ));
    }
    for cache in &node.side_caches {
        details.push(format!(
            "memory-side cache of level {}: {}",
            cache.level, cache.size
        ));
    }
    details.extend(node.access.iter().map(access));
    if let Reading::Known(weight) = node.interleave_weight {
        details.push(format!("weight {weight} in weighted interleaving"));
    }
    details
}

/// One access class of the HMAT, with only what the table fills in.
fn access(access: &Access) -> String {
    let mut parts = Vec::new();
    let latencies = [
        ("read", access.read_latency),
        ("write", access.write_latency),
    ];
    for (what, latency) in latencies {
        parts.extend(latency.map(|latency| format!("{what} {latency}")));
    }
    let bandwidths = [
        ("read", access.read_bandwidth),
        ("write", access.write_bandwidth),
    ];
    for (what, bandwidth) in bandwidths {
        parts.extend(bandwidth.map(|bandwidth| format!("{what} {bandwidth}")));
    }
    let claims = match parts.is_empty() {
        true => "no figures".to_owned(),
        false => parts.join(", "),
    };
    let from = fold_list(&access.initiators, 24);
    format!(
        "HMAT class {} from nodes {from}: {claims} (claimed)",
        access.class
    )
}

fn push_system(lines: &mut Lines, topology: &Topology) {
    lines.gap();
    let tiers = match &topology.tiers {
        Reading::Known(tiers) => {
            let tiers = tiers.iter();
            let tiers = tiers.map(|tier| format!("{}: nodes {}", tier.id, tier.nodes));
            tiers.collect::<Vec<_>>().join("; ")
        }
        Reading::Absent { why } => absent(why),
    };
    push_fact(lines, "tiers", &tiers);
    let demotion = match topology.demotion_enabled {
        Reading::Known(true) => "cold pages move to slower tiers".to_owned(),
        Reading::Known(false) => "off".to_owned(),
        Reading::Absent { ref why } => absent(why),
    };
    push_fact(lines, "demotion", &demotion);
    let slots = match &topology.memory_slots {
        Reading::Known(slots) => memory_slots(slots),
        Reading::Absent { why } => absent(why),
    };
    push_fact(lines, "slots", &slots);
    let firmware = &topology.firmware;
    let srat = match &firmware.srat {
        Reading::Known(srat) => count(srat.domains.len(), "proximity domain"),
        Reading::Absent { why } => absent(why),
    };
    push_fact(lines, "SRAT", &srat);
    let slit = match &firmware.slit {
        Reading::Known(slit) => format!("{0} × {0} proximity domains", slit.rows.len()),
        Reading::Absent { why } => absent(why),
    };
    push_fact(lines, "SLIT", &slit);
    let hmat = match &firmware.hmat {
        Reading::Known(hmat) => {
            let matrices = hmat.matrices.len();
            format!(
                "{matrices} matrices, {}",
                count(hmat.side_caches.len(), "side cache")
            )
        }
        Reading::Absent { why } => absent(why),
    };
    push_fact(lines, "HMAT", &hmat);
}

/// `8 of 12 filled: 8 × 16 GiB at 2666 MT/s`.
fn memory_slots(slots: &[MemorySlot]) -> String {
    let mut modules: Vec<(String, usize)> = Vec::new();
    for slot in slots {
        let size = match &slot.size {
            Reading::Known(None) => continue,
            Reading::Known(Some(size)) => size.to_string(),
            Reading::Absent { why } => absent(why),
        };
        let speed = slot.speed_mts.map(|speed| format!(" at {speed} MT/s"));
        let module = format!("{size}{}", speed.unwrap_or_default());
        match modules.iter_mut().find(|known| known.0 == module) {
            Some(known) => known.1 += 1,
            None => modules.push((module, 1)),
        }
    }
    let filled: usize = modules.iter().map(|module| module.1).sum();
    let modules = modules
        .iter()
        .map(|(module, number)| format!("{number} × {module}"));
    let modules: Vec<String> = modules.collect();
    format!("{filled} of {} filled: {}", slots.len(), modules.join(", "))
}
