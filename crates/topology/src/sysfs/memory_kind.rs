//! What kind of memory a node is, from the devices it came from.

use homenode_units::{BytesPerSecond, NodeId, Reading};

use super::reader::Reader;
use crate::{MemoryKind, Node};

/// HMAT bandwidth this many times that of ordinary memory is taken for HBM, its inverse for memory
/// behind a link. Real machines: Xeon Max HBM against DDR5 2.3 to 3, Optane 0.2, CXL 0.1 to 0.3.
const BANDWIDTH_RATIO: f64 = 1.5;

/// Fills [`Node::memory_kind`]; the first evidence that fits wins.
pub(super) fn classify(reader: &mut Reader<'_>, nodes: &mut [Node]) {
    let from_devices = dax_nodes(reader);
    let gpus = gpu_nodes(reader);
    // Ordinary memory is where the CPUs are; the best of it is what others are compared with.
    let ordinary_bandwidth = nodes
        .iter()
        .filter(|node| !node.is_cpuless())
        .filter_map(bandwidth)
        .fold(0.0, f64::max);
    for node in nodes {
        node.memory_kind = if node.is_memoryless() {
            Reading::absent("no memory")
        } else if let Some(&(_, kind)) = from_devices.iter().find(|(id, _)| *id == node.id) {
            Reading::Known(kind)
        } else if gpus.contains(&node.id) {
            Reading::Known(MemoryKind::Gpu)
        } else if !node.is_cpuless() {
            Reading::Known(MemoryKind::Dram)
        } else {
            match bandwidth(node) {
                Some(own)
                    if ordinary_bandwidth > 0.0 && own > ordinary_bandwidth * BANDWIDTH_RATIO =>
                {
                    Reading::Known(MemoryKind::Hbm)
                }
                Some(own) if own * BANDWIDTH_RATIO < ordinary_bandwidth => {
                    Reading::absent("slower than DRAM by the HMAT: CXL or NVM")
                }
                _ => Reading::absent("no CPUs, and neither DAX device nor HMAT tell what it is"),
            }
        };
    }
}

fn bandwidth(node: &Node) -> Option<f64> {
    node.access
        .iter()
        .rev()
        .find_map(|access| access.read_bandwidth)
        .map(|BytesPerSecond(rate)| rate)
}

/// Nodes made from DAX devices: `kmem` hands the device to the kernel as memory, while
/// `device_dax` leaves it a device.
///
/// The link's target tells where the memory came from: `ndbus` a persistent memory bus, `hmem`
/// memory that the firmware set apart, a decoder or region a CXL device.
/// Source: `/sys/bus/dax/devices/dax<x>.<y>/{target_node,driver}`, drivers/dax, Linux 6.12.
fn dax_nodes(reader: &mut Reader<'_>) -> Vec<(NodeId, MemoryKind)> {
    const DAX: &str = "/sys/bus/dax/devices";
    let mut nodes = Vec::new();
    for device in reader.names(DAX).unwrap_or_default() {
        let driver = reader
            .files
            .link(&format!("{DAX}/{device}/driver"))
            .unwrap_or_default();
        if driver.rsplit('/').next() != Some("kmem") {
            continue;
        }
        let Some(node) = reader.id(format_args!("{DAX}/{device}/target_node")) else {
            continue;
        };
        let origin = reader
            .files
            .link(&format!("{DAX}/{device}"))
            .unwrap_or_default();
        let kind = if origin.contains("ndbus") {
            MemoryKind::Nvm
        } else if origin.contains("hmem") {
            MemoryKind::SpecialPurpose
        } else if ["cxl", "decoder", "region"]
            .iter()
            .any(|word| origin.contains(word))
        {
            MemoryKind::Cxl
        } else {
            continue;
        };
        nodes.push((NodeId(node), kind));
    }
    nodes
}

/// Nodes that are GPU memory (POWER9 and its `NVLink` GPUs).
/// Source: line `Node:  <n>` of `/proc/driver/nvidia/gpus/<address>/numa_status`.
fn gpu_nodes(reader: &mut Reader<'_>) -> Vec<NodeId> {
    const GPUS: &str = "/proc/driver/nvidia/gpus";
    let mut nodes = Vec::new();
    for gpu in reader.names(GPUS).unwrap_or_default() {
        let Ok(text) = reader.text(format_args!("{GPUS}/{gpu}/numa_status")) else {
            continue;
        };
        let node = text
            .lines()
            .find_map(|line| line.strip_prefix("Node:"))
            .and_then(|number| number.trim().parse().ok());
        nodes.extend(node.map(NodeId));
    }
    nodes
}
