//! PCI devices of a tree.

use homenode_units::{CpuSet, NodeId, Reading};

use super::machine::{bad_info, info_set};
use super::tree::{Object, ObjectKind, Tree};
use super::{HwlocXmlError, info, reading};
use crate::limits::DEVICE_LIMIT;
use crate::{Device, DeviceKind, Topology};

/// Fills the devices, once the nodes are known.
pub(super) fn fill(topology: &mut Topology, tree: &Tree<'_>) -> Result<(), HwlocXmlError> {
    let mut devices: Vec<(usize, Device)> = Vec::new();
    for (at, object) in tree.objects.iter().enumerate() {
        match object.kind {
            ObjectKind::PciDevice => {
                if devices.len() >= DEVICE_LIMIT {
                    return Err(HwlocXmlError::TooMuch {
                        what: "PCI devices",
                        limit: DEVICE_LIMIT,
                    });
                }
                devices.push((at, device(topology, tree, object)?));
            }
            // Children come right after their device, so it is the last one, or none.
            ObjectKind::OsDevice => {
                if let Some((device_at, device)) = devices.last_mut()
                    && object.parent == Some(*device_at)
                    && let Some(name) = object.element.get("name")
                {
                    device.names.push(name.to_owned());
                }
            }
            _ => {}
        }
    }
    // A file without devices may have been written without looking for them (`--no-io`).
    if !devices.is_empty() {
        let devices = devices.into_iter().map(|(_, device)| device).collect();
        topology.devices = Reading::Known(devices);
    }
    Ok(())
}

fn device(
    topology: &Topology,
    tree: &Tree<'_>,
    object: &Object<'_>,
) -> Result<Device, HwlocXmlError> {
    let address = object
        .element
        .required("pci_busid", "an address such as 0000:81:00.0")?;
    let class = object.element.get("pci_type").unwrap_or_default();
    let home = tree.home(object);
    let node = match object.info(info::NODE) {
        Some(text) => reading(text)
            .ok_or_else(|| bad_info(object, info::NODE, "the id of a node", text))?
            .map(NodeId),
        None => nearest_node(topology, home),
    };
    let cpus = match info_set(object, info::CPUS)? {
        Some(stated) => stated,
        // The root has all CPUs, which says nothing.
        None if home.kind == ObjectKind::Machine => CpuSet::new(),
        None => home.cpus.clone(),
    };
    Ok(Device {
        address: address.to_owned(),
        kind: device_kind(class),
        names: Vec::new(),
        node,
        cpus,
    })
}

/// The only node that has CPUs where the device hangs.
fn nearest_node(topology: &Topology, home: &Object<'_>) -> Reading<NodeId> {
    let mut nodes = topology
        .nodes
        .iter()
        .filter(|node| node.cpus.intersects(&home.cpus))
        .map(|node| node.id);
    match (nodes.next(), nodes.next()) {
        (Some(node), None) => Reading::Known(node),
        (None, _) => Reading::absent("hangs where no node has CPUs in the hwloc XML"),
        (Some(_), Some(_)) => Reading::absent("hangs above several nodes in the hwloc XML"),
    }
}

/// From the four hexadecimal digits of class and subclass that `pci_type` starts with.
fn device_kind(pci_type: &str) -> DeviceKind {
    match pci_type.get(..4) {
        Some("0c06") => DeviceKind::InfiniBand,
        Some("0b40") => DeviceKind::Accelerator,
        Some(class) => match &class[..2] {
            "01" => DeviceKind::Storage,
            "02" => DeviceKind::Network,
            "03" => DeviceKind::Display,
            "12" => DeviceKind::Accelerator,
            _ => DeviceKind::Other,
        },
        None => DeviceKind::Other,
    }
}
