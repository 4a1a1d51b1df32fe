//! PCI devices that move data, and the node each hangs on.

use std::collections::{BTreeMap, BTreeSet};

use homenode_units::{CpuSet, NodeId, Reading};

use super::reader::Reader;
use crate::{Device, DeviceKind, Node};

const PCI: &str = "/sys/bus/pci/devices";

/// Where the system's names for devices stand; each entry links to the device behind it.
const CLASSES: [&str; 4] = [
    "/sys/class/net",
    "/sys/class/block",
    "/sys/class/infiniband",
    "/sys/class/drm",
];

pub(super) fn read(
    reader: &mut Reader<'_>,
    online: &CpuSet,
    nodes: &[Node],
) -> Reading<Vec<Device>> {
    let addresses = match reader.names(PCI) {
        Ok(addresses) => addresses,
        Err(gap) => return reader.reading(Err(gap)),
    };
    let mut names = device_names(reader);
    let mut devices = Vec::new();
    for address in addresses {
        let class = reader.value(format_args!("{PCI}/{address}/class"), |text| {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            u32::from_str_radix(digits, 16)
                .map_err(|_| format!("expected a PCI class such as 0x020000, found `{text}`"))
        });
        let Some(kind) = class.ok().and_then(kind) else {
            continue;
        };
        let cpus = reader
            .list(format_args!("{PCI}/{address}/local_cpulist"))
            .unwrap_or_default();
        let cpus: CpuSet = if online.is_subset(&cpus) {
            CpuSet::new()
        } else {
            cpus.intersection(online)
        };
        let node = node(reader, &address, &cpus, nodes);
        let names = names
            .remove(&address)
            .unwrap_or_default()
            .into_iter()
            .collect();
        devices.push(Device {
            address,
            kind,
            names,
            node,
            cpus,
        });
    }
    Reading::Known(devices)
}

/// PCI Code and ID Assignment Specification, base class and sub-class.
fn kind(class: u32) -> Option<DeviceKind> {
    match (class >> 16 & 0xff, class >> 8 & 0xff) {
        (0x01, _) => Some(DeviceKind::Storage),
        (0x02, 0x07) | (0x0c, 0x06) => Some(DeviceKind::InfiniBand),
        (0x02, _) => Some(DeviceKind::Network),
        (0x03, _) => Some(DeviceKind::Display),
        (0x0b, 0x40) | (0x12, _) => Some(DeviceKind::Accelerator),
        _ => None,
    }
}

/// The system's names, by the PCI address nearest to each.
fn device_names(reader: &mut Reader<'_>) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for class in CLASSES {
        for name in reader.names(class).unwrap_or_default() {
            let entry = format!("{class}/{name}");
            // Before Linux 2.6.26 entries were folders with a link `device`; captures keep them so.
            let target = reader
                .files
                .link(&entry)
                .or_else(|_| reader.files.link(&format!("{entry}/device")))
                .unwrap_or_default();
            let is_partition = reader.files.list(&format!("{entry}/queue")).is_err();
            if class == "/sys/class/block" && is_partition {
                continue;
            }
            // DRM lists each connector beside its card: `card0-DP-1`.
            if class == "/sys/class/drm" && name.contains('-') {
                continue;
            }
            if let Some(address) = target.split('/').rfind(|part| is_pci_address(part)) {
                names.entry(address.to_owned()).or_default().insert(name);
            }
        }
    }
    names
}

/// `0000:81:00.0`; domains of a few machines have 5 digits.
fn is_pci_address(text: &str) -> bool {
    let mut parts = text.split([':', '.']);
    let digits = |part: Option<&str>, lengths: std::ops::RangeInclusive<usize>| {
        part.is_some_and(|part| {
            lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    digits(parts.next(), 4..=8)
        && digits(parts.next(), 2..=2)
        && digits(parts.next(), 2..=2)
        && digits(parts.next(), 1..=1)
        && parts.next().is_none()
}

/// The device's own node, else that of a bridge above it, else that of its CPUs. Never node 0 for
/// a -1.
fn node(reader: &mut Reader<'_>, address: &str, cpus: &CpuSet, nodes: &[Node]) -> Reading<NodeId> {
    let path = reader
        .files
        .link(&format!("{PCI}/{address}"))
        .unwrap_or_default();
    let bridges: Vec<&str> = path
        .split('/')
        .rev()
        .skip(1)
        .filter(|part| is_pci_address(part))
        .collect();
    for place in std::iter::once(address).chain(bridges) {
        let Some(node) = reader.id(format_args!("{PCI}/{place}/numa_node")) else {
            continue;
        };
        if nodes.iter().any(|known| known.id.0 == node) {
            return Reading::Known(NodeId(node));
        }
        return Reading::absent(format!("on node {node}, which is not online"));
    }
    let by_cpus = nodes
        .iter()
        .find(|node| !cpus.is_empty() && cpus.is_subset(&node.cpus));
    match by_cpus {
        Some(node) => Reading::Known(node.id),
        None => Reading::absent("the firmware does not say"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_told_from_other_path_parts() {
        for text in ["0000:81:00.0", "10000:e1:00.0"] {
            assert!(is_pci_address(text), "{text}");
        }
        for text in [
            "pci0000:80",
            "0000:81",
            "virtio0",
            "nvme0n1",
            "0000:81:00.0.1",
            "",
            "::.",
        ] {
            assert!(!is_pci_address(text), "{text}");
        }
    }
}
