//! CPUs, groups, caches and the processor of a tree.

use homenode_units::{Bytes, CpuSet, Id, IdSet, NodeId, NodeSet, Reading};

use super::tree::{Object, ObjectKind, Tree};
use super::{HwlocXmlError, NOT_TOLD, info, reading};
use crate::limits::{CPU_LIMIT, NODE_LIMIT};
use crate::{Cache, CacheKind, CpuGroup, Detail, GroupedBy, Problem, Processor, Topology, Vendor};

/// Fills what the normal objects tell: CPUs, packages down to cores, caches, the processor.
pub(super) fn fill(topology: &mut Topology, tree: &Tree<'_>) -> Result<(), HwlocXmlError> {
    if tree.machine_info(info::DETAIL) == Some("fast") {
        topology.detail = Detail::Fast;
    }
    fill_cpus(topology, tree)?;
    topology.packages = groups(tree, ObjectKind::Package)?;
    topology.dies = groups(tree, ObjectKind::Die)?;
    topology.clusters = groups(tree, ObjectKind::Cluster)?;
    topology.books = groups(tree, ObjectKind::Book)?;
    topology.drawers = groups(tree, ObjectKind::Drawer)?;
    topology.cores = groups(tree, ObjectKind::Core)?;
    topology.caches = caches(tree)?;
    topology.processor = processor(tree)?;
    if let Some(text) = tree.machine_info(info::MEMORY_TOTAL) {
        topology.memory_total = reading::<u64>(text)
            .ok_or_else(|| {
                bad_info(
                    tree.machine(),
                    info::MEMORY_TOTAL,
                    "a number of bytes",
                    text,
                )
            })?
            .map(Bytes);
    }
    let machine = tree.machine();
    topology.kernel_options = machine
        .infos(info::KERNEL_OPTION)
        .map(str::to_owned)
        .collect();
    topology
        .problems
        .extend(machine.infos(info::NOT_EXPRESSED).map(|what| Problem {
            object: "hwloc XML".to_owned(),
            message: format!("what could not be expressed: {what}"),
        }));
    Ok(())
}

/// Fills what may be used, once CPUs and nodes are known.
pub(super) fn fill_allowed(topology: &mut Topology, tree: &Tree<'_>) -> Result<(), HwlocXmlError> {
    let machine = tree.machine().element;
    let online = &topology.cpus.online;
    let nodes = topology.node_ids();
    topology.allowed.cpus = match machine.cpus("allowed_cpuset")? {
        Some(allowed) => allowed.intersection(online),
        None => online.clone(),
    };
    topology.allowed.nodes = match machine.nodes("allowed_nodeset")? {
        Some(allowed) => allowed.intersection(&nodes),
        None => nodes,
    };
    topology.allowed.evidence =
        "allowed_cpuset and allowed_nodeset of the root object, of the process that wrote the file"
            .to_owned();
    Ok(())
}

fn fill_cpus(topology: &mut Topology, tree: &Tree<'_>) -> Result<(), HwlocXmlError> {
    for object in &tree.objects {
        if let ObjectKind::Pu(cpu) = object.kind {
            if topology.cpus.online.contains(cpu) {
                let found = cpu.to_string();
                let expected = "a number that no other PU has";
                return Err(object.element.bad_value("os_index", expected, &found));
            }
            topology.cpus.online.insert(cpu);
        }
    }
    let cpus = &mut topology.cpus;
    let machine = tree.machine();
    let complete = machine.element.cpus("complete_cpuset")?.unwrap_or_default();
    let hidden = complete.difference(&cpus.online);
    match info_set(machine, info::OFFLINE_CPUS)? {
        Some(offline) => cpus.offline = offline,
        None if !hidden.is_empty() => {
            topology.problems.push(Problem {
                object: "complete_cpuset".to_owned(),
                message: format!(
                    "CPUs {hidden} have no PU: offline, or not allowed to the process that wrote \
                     the file; taken as offline"
                ),
            });
            cpus.offline = hidden;
        }
        None => {}
    }
    cpus.possible = match info_set(machine, info::POSSIBLE_CPUS)? {
        Some(possible) => possible,
        None => cpus.online.union(&cpus.offline),
    };
    cpus.isolated = info_set(machine, info::ISOLATED_CPUS)?.unwrap_or_default();
    Ok(())
}

fn groups(tree: &Tree<'_>, kind: ObjectKind) -> Result<Vec<CpuGroup>, HwlocXmlError> {
    let mut groups = Vec::new();
    for object in tree.objects.iter().filter(|object| object.kind == kind) {
        // All CPUs of it may be offline, or not allowed to the writer.
        if !object.cpus.is_empty() {
            groups.push(CpuGroup {
                id: object.os_index()?,
                cpus: object.cpus.clone(),
                grouped_by: GroupedBy::Stated,
            });
        }
    }
    groups.sort_by_key(|group| group.cpus.lowest());
    Ok(groups)
}

fn caches(tree: &Tree<'_>) -> Result<Vec<Cache>, HwlocXmlError> {
    let mut caches = Vec::new();
    for object in &tree.objects {
        if let ObjectKind::Cache { level, kind } = object.kind
            && !object.cpus.is_empty()
        {
            caches.push(cache(object, level, kind)?);
        }
    }
    caches.sort_by_key(|cache| (cache.cpus.lowest(), cache.level, cache.kind));
    Ok(caches)
}

fn cache(object: &Object<'_>, level: u8, named: CacheKind) -> Result<Cache, HwlocXmlError> {
    let element = object.element;
    let depth: Option<u8> = element.number("depth", "the level of the cache")?;
    if let Some(depth) = depth.filter(|&depth| depth != level) {
        let expected = format!("{level}, the level in the type");
        return Err(element.bad_value("depth", expected, &depth.to_string()));
    }
    let kind = match (named, element.get("cache_type")) {
        (_, None) => named,
        (CacheKind::Unified, Some("0")) => CacheKind::Unified,
        (CacheKind::Unified, Some("1")) => CacheKind::Data,
        (CacheKind::Instruction, Some("2")) => CacheKind::Instruction,
        (_, Some(found)) => {
            let expected = "0 (unified) or 1 (data), for a type with an i 2 (instruction)";
            return Err(element.bad_value("cache_type", expected, found));
        }
    };
    let ways: Option<i64> = element.number("cache_associativity", "a number, -1 for full")?;
    Ok(Cache {
        level,
        kind,
        id: object.os_index()?,
        size: cache_size(object)?,
        line_size: line_size(object)?,
        // hwloc: 0 is unknown, -1 is fully associative. Ours: 0 is fully associative.
        ways: match ways {
            Some(-1) => Some(0),
            Some(ways) => u32::try_from(ways).ok().filter(|&ways| ways > 0),
            None => None,
        },
        cpus: object.cpus.clone(),
    })
}

/// The size of a cache or memory-side cache; hwloc writes 0 for unknown.
pub(super) fn cache_size(object: &Object<'_>) -> Result<Reading<Bytes>, HwlocXmlError> {
    let size: Option<u64> = object.element.number("cache_size", "a number of bytes")?;
    Ok(match size {
        Some(size) if size > 0 => Reading::Known(Bytes(size)),
        _ => Reading::absent(NOT_TOLD),
    })
}

/// The line size of a cache or memory-side cache; hwloc writes 0 for unknown.
pub(super) fn line_size(object: &Object<'_>) -> Result<Option<Bytes>, HwlocXmlError> {
    let size: Option<u64> = object
        .element
        .number("cache_linesize", "a number of bytes")?;
    Ok(size.filter(|&size| size > 0).map(Bytes))
}

/// hwloc describes the processor at every package, or at the root where there is none. All
/// packages of a machine are alike, so the first one speaks for them.
fn processor(tree: &Tree<'_>) -> Result<Processor, HwlocXmlError> {
    let package = tree
        .objects
        .iter()
        .find(|object| object.kind == ObjectKind::Package);
    let holder = package.unwrap_or_else(|| tree.machine());
    let text = |name: &str| holder.info(name).or_else(|| tree.machine_info(name));
    let number = |name: &str| match text(name) {
        None => Ok(Reading::absent(NOT_TOLD)),
        Some(found) => found
            .parse()
            .map(Reading::Known)
            .map_err(|_| bad_info(holder, name, "a number", found)),
    };
    let known = |text: Option<&str>| match text {
        Some(text) => Reading::Known(text.to_owned()),
        None => Reading::absent(NOT_TOLD),
    };
    let hypervisor = match tree.machine_info(info::HYPERVISOR) {
        None => Reading::absent(NOT_TOLD),
        Some(found) => reading(found)
            .ok_or_else(|| bad_info(tree.machine(), info::HYPERVISOR, "true or false", found))?,
    };
    Ok(Processor {
        architecture: known(tree.machine_info("Architecture")),
        vendor: known(text("CPUVendor")).map(|name| match name.as_str() {
            "GenuineIntel" => Vendor::Intel,
            "AuthenticAMD" => Vendor::Amd,
            "HygonGenuine" => Vendor::Hygon,
            _ => Vendor::Other(name),
        }),
        model_name: known(text("CPUModel")),
        family: number("CPUFamilyNumber")?,
        model: number("CPUModelNumber")?,
        hypervisor,
    })
}

/// An `info` of ours that holds a list of CPUs or nodes.
pub(super) fn info_set<T: Id>(
    object: &Object<'_>,
    name: &str,
) -> Result<Option<IdSet<T>>, HwlocXmlError> {
    let Some(text) = object.info(name) else {
        return Ok(None);
    };
    let expected = || format!("an ascending list of {} numbers, such as 0-3,8", T::NOUN);
    match parse_ascending(text) {
        Some(set) => Ok(Some(set)),
        None => Err(bad_info(object, name, expected(), text)),
    }
}

/// Reads a list as we write it. Any other is refused before it is read: 8 characters name 65,536
/// CPUs, and a stranger may repeat them.
pub(super) fn parse_ascending<T: Id>(text: &str) -> Option<IdSet<T>> {
    let limit = if T::NOUN == NodeId::NOUN {
        NODE_LIMIT
    } else {
        CPU_LIMIT
    };
    let mut lowest = 0;
    for number in text.split([',', '-']).filter(|_| !text.is_empty()) {
        let number: u32 = number.parse().ok()?;
        if number < lowest || number >= limit {
            return None;
        }
        lowest = number + 1;
    }
    IdSet::parse_list(text).ok()
}

pub(super) fn bad_info(
    object: &Object<'_>,
    name: &str,
    expected: impl Into<String>,
    found: &str,
) -> HwlocXmlError {
    object
        .element
        .bad_value(&format!("info {name}"), expected, found)
}

/// Nodes with an id that are not online.
pub(super) fn offline_nodes(
    tree: &Tree<'_>,
    online: &NodeSet,
) -> Result<(NodeSet, Option<Problem>), HwlocXmlError> {
    let machine = tree.machine();
    if let Some(offline) = info_set(machine, info::OFFLINE_NODES)? {
        return Ok((offline, None));
    }
    let complete = machine
        .element
        .nodes("complete_nodeset")?
        .unwrap_or_default();
    let hidden = complete.difference(online);
    let problem = (!hidden.is_empty()).then(|| Problem {
        object: "complete_nodeset".to_owned(),
        message: format!(
            "nodes {hidden} have no NUMANode: not allowed to the process that wrote the file, or \
             without memory; taken as offline"
        ),
    });
    Ok((hidden, problem))
}

/// The union of an object's CPUs with those that only its `complete_cpuset` has.
pub(super) fn hidden_cpus(object: &Object<'_>) -> Result<CpuSet, HwlocXmlError> {
    let complete = object.element.cpus("complete_cpuset")?.unwrap_or_default();
    Ok(complete.difference(&object.cpus))
}
