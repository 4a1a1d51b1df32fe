//! Memory nodes of a tree.

use homenode_units::{Bytes, BytesPerSecond, CpuSet, Nanoseconds, NodeId, NodeSet, Reading};

use super::machine::{
    bad_info, cache_size, hidden_cpus, info_set, line_size, offline_nodes, parse_ascending,
};
use super::tree::{Object, ObjectKind, Tree};
use super::{HwlocXmlError, NOT_TOLD, info, reading};
use crate::described::{Claim, owners_of_cpus, unknown_node};
use crate::{Access, MemoryKind, Node, SideCache, Topology};

/// Fills the nodes, with everything that stands at the NUMA node objects themselves.
pub(super) fn fill(topology: &mut Topology, tree: &Tree<'_>) -> Result<(), HwlocXmlError> {
    let mut objects: Vec<(NodeId, &Object<'_>)> = tree
        .objects
        .iter()
        .filter_map(|object| match object.kind {
            ObjectKind::NumaNode(id) => Some((id, object)),
            _ => None,
        })
        .collect();
    objects.sort_by_key(|&(id, _)| id);
    if let Some(pair) = objects.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (id, object) = pair[1];
        let expected = "a number that no other NUMANode has";
        return Err(object
            .element
            .bad_value("os_index", expected, &id.to_string()));
    }
    // A node that says which CPUs it has claims none by its place.
    let claims: Vec<Claim> = objects
        .iter()
        .filter(|(_, object)| object.info(info::CPUS).is_none())
        .map(|&(node, object)| Claim {
            node,
            cpus: object.cpus.clone(),
            rank: u8::from(is_special(object)),
        })
        .collect();
    let owners = owners_of_cpus(&claims);
    // Without a size at any node the file does not tell sizes; with one, a node without is empty.
    let sizes_told = objects
        .iter()
        .any(|(_, object)| object.element.get("local_memory").is_some());
    for &(id, object) in &objects {
        let mut node = node(tree, object, id, sizes_told)?;
        place(&mut node, object, &claims, &owners)?;
        topology.nodes.push(node);
    }
    let (offline, problem) = offline_nodes(tree, &topology.node_ids())?;
    topology.nodes_offline = offline;
    topology.problems.extend(problem);
    Ok(())
}

/// Whether something speaks against ordinary memory of the CPUs.
fn is_special(object: &Object<'_>) -> bool {
    let ordinary = matches!(object.element.get("subtype"), None | Some("" | "DRAM"));
    !ordinary || object.info("DAXDevice").is_some()
}

fn node(
    tree: &Tree<'_>,
    object: &Object<'_>,
    id: NodeId,
    sizes_told: bool,
) -> Result<Node, HwlocXmlError> {
    let mut node = unknown_node(id, NOT_TOLD);
    let size: Option<u64> = object.element.number("local_memory", "a number of bytes")?;
    node.memory_total = match (size, object.info(info::MEMORY)) {
        (Some(size), _) => Reading::Known(Bytes(size)),
        (None, Some(text)) => reading(text)
            .ok_or_else(|| bad_info(object, info::MEMORY, "a number of bytes", text))?
            .map(Bytes),
        (None, None) if sizes_told => Reading::Known(Bytes(0)),
        (None, None) => Reading::absent("hwloc XML without a memory size at any node"),
    };
    if let Some(text) = object.info(info::MEMORY_FREE) {
        node.memory_free = reading(text)
            .ok_or_else(|| bad_info(object, info::MEMORY_FREE, "a number of bytes", text))?
            .map(Bytes);
    }
    if let Some(text) = object.info(info::INTERLEAVE_WEIGHT) {
        node.interleave_weight = reading(text)
            .ok_or_else(|| bad_info(object, info::INTERLEAVE_WEIGHT, "a number", text))?;
    }
    node.generic_initiator = object.info(info::GENERIC_INITIATOR) == Some("true");
    if let Some(subtype) = object.element.get("subtype") {
        node.memory_kind = memory_kind(subtype);
    }
    node.side_caches = side_caches(tree, object)?;
    for text in object.infos(info::ACCESS) {
        let access = parse_access(text).ok_or_else(|| {
            bad_info(
                object,
                info::ACCESS,
                "words such as class=1 initiators=0",
                text,
            )
        })?;
        node.access.push(access);
    }
    Ok(node)
}

/// Gives the node its CPUs, or those nearest to it.
fn place(
    node: &mut Node,
    object: &Object<'_>,
    claims: &[Claim],
    owners: &NodeSet,
) -> Result<(), HwlocXmlError> {
    if let Some(stated) = info_set(object, info::CPUS)? {
        node.cpus = stated;
    } else if owners.contains(node.id) || object.cpus.is_empty() {
        // Nothing else claims CPUs that are offline, so a node with no others has those.
        node.cpus = object.cpus.clone();
        node.cpus_offline = hidden_cpus(object)?;
    }
    if let Some(stated) = info_set(object, info::OFFLINE_CPUS)? {
        node.cpus_offline = stated;
    }
    node.nearest_cpu_nodes = match info_set(object, info::NEAREST_CPU_NODES)? {
        Some(stated) => stated,
        None if !node.cpus.is_empty() => [node.id].into_iter().collect(),
        None => owners_among(claims, owners, &object.cpus),
    };
    Ok(())
}

/// The nodes that have some of these CPUs.
fn owners_among(claims: &[Claim], owners: &NodeSet, cpus: &CpuSet) -> NodeSet {
    claims
        .iter()
        .filter(|claim| owners.contains(claim.node) && claim.cpus.intersects(cpus))
        .map(|claim| claim.node)
        .collect()
}

fn memory_kind(subtype: &str) -> Reading<MemoryKind> {
    Reading::Known(match subtype {
        "DRAM" => MemoryKind::Dram,
        // Knights Landing's on-package memory.
        "HBM" | "MCDRAM" => MemoryKind::Hbm,
        "NVM" => MemoryKind::Nvm,
        "GPUMemory" => MemoryKind::Gpu,
        "SPM" => MemoryKind::SpecialPurpose,
        _ if subtype.starts_with("CXL") => MemoryKind::Cxl,
        _ => {
            let subtype = super::document::excerpt(subtype);
            return Reading::absent(format!("unknown subtype `{subtype}` in hwloc XML"));
        }
    })
}

/// Memory-side caches enclose the node in the tree, the one nearest to the memory innermost.
fn side_caches(tree: &Tree<'_>, node: &Object<'_>) -> Result<Vec<SideCache>, HwlocXmlError> {
    let mut caches = Vec::new();
    let mut above = node.parent;
    while let Some(at) = above {
        let object = &tree.objects[at];
        if object.kind != ObjectKind::MemCache {
            break;
        }
        caches.push(SideCache {
            level: object
                .element
                .required_number("depth", "the level of the cache")?,
            size: cache_size(object)?,
            line_size: line_size(object)?,
        });
        above = object.parent;
    }
    Ok(caches)
}

/// Reads the words of [`info::ACCESS`].
fn parse_access(text: &str) -> Option<Access> {
    let mut access = Access {
        class: u8::MAX,
        initiators: NodeSet::new(),
        read_latency: None,
        write_latency: None,
        read_bandwidth: None,
        write_bandwidth: None,
    };
    let positive = |value: &str| {
        let number: f64 = value.parse().ok()?;
        (number.is_finite() && number > 0.0).then_some(number)
    };
    for word in text.split_ascii_whitespace() {
        let (name, value) = word.split_once('=')?;
        match name {
            "class" => access.class = value.parse().ok()?,
            "initiators" => access.initiators = parse_ascending(value)?,
            "read_latency_ns" => access.read_latency = Some(Nanoseconds(positive(value)?)),
            "write_latency_ns" => access.write_latency = Some(Nanoseconds(positive(value)?)),
            "read_bandwidth_bytes_per_s" => {
                access.read_bandwidth = Some(BytesPerSecond(positive(value)?));
            }
            "write_bandwidth_bytes_per_s" => {
                access.write_bandwidth = Some(BytesPerSecond(positive(value)?));
            }
            _ => return None,
        }
    }
    (access.class != u8::MAX).then_some(access)
}
