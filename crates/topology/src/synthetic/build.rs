//! Levels to a machine.

use homenode_units::{Bytes, CpuId, NodeId, NodeMatrix, NodeSet, Reading};

use super::SyntheticError;
use super::grammar::{AttachedNode, Description, DistanceText, Level, LevelKind, Place};
use super::indexes::numbers;
use crate::described::{Claim, owners_of_cpus, unknown_machine, unknown_node};
use crate::limits::{CPU_LIMIT, NODE_LIMIT, SYNTHETIC_CPU_LIMIT};
use crate::{Cache, CacheKind, CpuGroup, Distance, GroupedBy, Node, SideCache, Source, Topology};

/// The reason of everything that a description has no word for.
const NOT_TOLD: &str = "a synthetic description does not tell";
/// hwloc gives every synthetic cache lines of this size.
const LINE_SIZE: Bytes = Bytes(64);

pub(super) fn build(text: &str, description: &Description) -> Result<Topology, SyntheticError> {
    let levels = &description.levels;
    let widths = widths(levels)?;
    let total = widths.last().copied().unwrap_or(0);
    let mut topology = unknown_machine(Source::Synthetic(text.to_owned()), NOT_TOLD);
    let Some(pu) = levels.last() else {
        return Err(SyntheticError::Empty);
    };
    let cpus: Vec<CpuId> = numbers(pu.indexes.as_ref(), total, CPU_LIMIT, levels, &pu.place)?
        .into_iter()
        .map(CpuId)
        .collect();
    topology.cpus.online = cpus.iter().copied().collect();
    topology.cpus.possible = topology.cpus.online.clone();
    for (level, &width) in levels.iter().zip(&widths) {
        add_level(&mut topology, level, width, levels, &cpus)?;
    }
    sort(&mut topology);
    topology.nodes = nodes(description, &widths, &cpus)?;
    topology.memory_total = Reading::Known(
        topology
            .nodes
            .iter()
            .filter_map(|node| node.memory_total.known().copied())
            .sum(),
    );
    topology.distances = match &description.distances {
        None => Reading::absent("a synthetic description without distances"),
        Some((distances, place)) => Reading::Known(matrix(&topology, distances, place)?),
    };
    topology.allowed.cpus = topology.cpus.online.clone();
    topology.allowed.nodes = topology.node_ids();
    "everything, since the machine is made up".clone_into(&mut topology.allowed.evidence);
    Ok(topology)
}

/// How many objects each level has in all.
fn widths(levels: &[Level]) -> Result<Vec<usize>, SyntheticError> {
    let mut width: usize = 1;
    let mut widths = Vec::new();
    for level in levels {
        width = width
            .checked_mul(level.count)
            .filter(|&width| width <= SYNTHETIC_CPU_LIMIT)
            .ok_or(SyntheticError::TooLarge {
                what: "CPUs",
                limit: SYNTHETIC_CPU_LIMIT,
            })?;
        widths.push(width);
    }
    Ok(widths)
}

fn add_level(
    topology: &mut Topology,
    level: &Level,
    width: usize,
    levels: &[Level],
    cpus: &[CpuId],
) -> Result<(), SyntheticError> {
    let groups = match level.kind {
        LevelKind::Package => &mut topology.packages,
        LevelKind::Die => &mut topology.dies,
        LevelKind::Core => &mut topology.cores,
        LevelKind::Cache(depth, kind) => {
            return add_caches(topology, level, (depth, kind), width, levels, cpus);
        }
        // A group only gives the description its shape; nodes are added later.
        LevelKind::Group | LevelKind::NumaNode | LevelKind::Pu => return Ok(()),
    };
    let ids = numbers(
        level.indexes.as_ref(),
        width,
        u32::MAX,
        levels,
        &level.place,
    )?;
    let members = cpus.chunks(cpus.len() / width);
    groups.extend(ids.into_iter().zip(members).map(|(id, members)| CpuGroup {
        id: Some(id),
        cpus: members.iter().copied().collect(),
        grouped_by: GroupedBy::Stated,
    }));
    Ok(())
}

fn add_caches(
    topology: &mut Topology,
    level: &Level,
    (depth, kind): (u8, CacheKind),
    width: usize,
    levels: &[Level],
    cpus: &[CpuId],
) -> Result<(), SyntheticError> {
    let size = level.cache_size.unwrap_or(match depth {
        1 => Bytes(32 << 10),
        _ => Bytes((256 << 10) << (2 * depth)),
    });
    let ids = match &level.indexes {
        None => vec![None; width],
        Some(indexes) => numbers(Some(indexes), width, u32::MAX, levels, &level.place)?
            .into_iter()
            .map(Some)
            .collect(),
    };
    let members = cpus.chunks(cpus.len() / width);
    topology
        .caches
        .extend(ids.into_iter().zip(members).map(|(id, members)| Cache {
            level: depth,
            kind,
            id,
            size: Reading::Known(size),
            line_size: Some(LINE_SIZE),
            ways: None,
            cpus: members.iter().copied().collect(),
        }));
    Ok(())
}

/// `indexes=` may number CPUs across groups, so that text order is not CPU order.
fn sort(topology: &mut Topology) {
    for groups in [
        &mut topology.packages,
        &mut topology.dies,
        &mut topology.cores,
    ] {
        groups.sort_by_key(|group| group.cpus.lowest());
    }
    topology
        .caches
        .sort_by_key(|cache| (cache.cpus.lowest(), cache.level, cache.kind));
}

/// A node with the place in `cpus` of the object that it is attached to.
struct Attachment<'a> {
    node: &'a AttachedNode,
    depth: usize,
    order: usize,
    start: usize,
    end: usize,
}

fn nodes(
    description: &Description,
    widths: &[usize],
    cpus: &[CpuId],
) -> Result<Vec<Node>, SyntheticError> {
    let implied = [AttachedNode {
        memory: Bytes(1 << 30),
        side_cache: None,
        cpuless: false,
        indexes: None,
        place: description.levels[0].place.clone(),
    }];
    let attachments = attachments(description, &implied, widths, cpus.len())?;
    // The last one wins, as in hwloc: the nodes of all items are numbered together.
    let numbering = attachments
        .iter()
        .rev()
        .find(|one| one.node.indexes.is_some());
    let (indexes, place) = match numbering {
        Some(one) => (one.node.indexes.as_ref(), &one.node.place),
        None => (None, &implied[0].place),
    };
    let ids = numbers(
        indexes,
        attachments.len(),
        NODE_LIMIT,
        &description.levels,
        place,
    )?;
    let claims: Vec<Claim> = attachments
        .iter()
        .zip(&ids)
        .map(|(one, &id)| Claim {
            node: NodeId(id),
            cpus: cpus[one.start..one.end].iter().copied().collect(),
            rank: 0,
        })
        .collect();
    let with_cpus = attachments
        .iter()
        .zip(&claims)
        .filter(|(one, _)| !one.node.cpuless);
    // In the order of the text: an earlier node has the CPUs, whatever its number.
    let owners = first_owners(with_cpus.map(|(_, claim)| claim));
    let mut nodes: Vec<Node> = attachments
        .iter()
        .zip(&claims)
        .map(|(one, claim)| node(one.node, claim, &claims, &owners))
        .collect();
    nodes.sort_by_key(|node| node.id);
    Ok(nodes)
}

/// [`owners_of_cpus`] with positions in the text instead of ids.
fn first_owners<'a>(claims: impl Iterator<Item = &'a Claim>) -> NodeSet {
    let claims: Vec<&Claim> = claims.collect();
    let by_position: Vec<Claim> = (0..)
        .zip(&claims)
        .map(|(position, claim)| Claim {
            node: NodeId(position),
            cpus: claim.cpus.clone(),
            rank: claim.rank,
        })
        .collect();
    let owners = owners_of_cpus(&by_position);
    by_position
        .iter()
        .zip(&claims)
        .filter(|(position, _)| owners.contains(position.node))
        .map(|(_, claim)| claim.node)
        .collect()
}

/// Every node there will be, in the order in which hwloc numbers them: objects inside an object
/// before what is attached to it.
fn attachments<'a>(
    description: &'a Description,
    implied: &'a [AttachedNode],
    widths: &[usize],
    total: usize,
) -> Result<Vec<Attachment<'a>>, SyntheticError> {
    let levels = &description.levels;
    let attached = levels.iter().map(|level| &*level.attached);
    let mut tiers: Vec<(&[AttachedNode], usize)> = vec![(&*description.machine_nodes, 1)];
    tiers.extend(attached.zip(widths.iter().copied()));
    if tiers.iter().all(|(nodes, _)| nodes.is_empty()) {
        tiers = vec![(implied, 1)];
    }
    let count: usize = tiers
        .iter()
        .map(|(nodes, width)| nodes.len().saturating_mul(*width))
        .sum();
    if count > NODE_LIMIT as usize {
        return Err(SyntheticError::TooLarge {
            what: "nodes",
            limit: NODE_LIMIT as usize,
        });
    }
    let mut attachments = Vec::with_capacity(count);
    for (depth, &(nodes, width)) in tiers.iter().enumerate() {
        let below = total / width;
        for object in 0..width {
            attachments.extend(nodes.iter().enumerate().map(|(order, node)| Attachment {
                node,
                depth,
                order,
                start: object * below,
                end: (object + 1) * below,
            }));
        }
    }
    attachments.sort_by_key(|one| (one.end, std::cmp::Reverse(one.depth), one.order));
    Ok(attachments)
}

fn node(described: &AttachedNode, claim: &Claim, claims: &[Claim], owners: &NodeSet) -> Node {
    let mut node = unknown_node(claim.node, NOT_TOLD);
    node.memory_total = Reading::Known(described.memory);
    node.side_caches = described
        .side_cache
        .map(|size| SideCache {
            level: 1,
            size: Reading::Known(size),
            line_size: Some(LINE_SIZE),
        })
        .into_iter()
        .collect();
    if owners.contains(node.id) {
        node.cpus = claim.cpus.clone();
        node.nearest_cpu_nodes.insert(node.id);
    } else {
        node.nearest_cpu_nodes = claims
            .iter()
            .filter(|other| owners.contains(other.node) && other.cpus.intersects(&claim.cpus))
            .map(|other| other.node)
            .collect();
    }
    node
}

fn matrix(
    topology: &Topology,
    distances: &DistanceText,
    place: &Place,
) -> Result<NodeMatrix<Distance>, SyntheticError> {
    let nodes: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    let count = nodes.len();
    let rows: Vec<Vec<Distance>> = match distances {
        DistanceText::Rows(rows) => rows
            .iter()
            .map(|row| row.iter().copied().map(Distance).collect())
            .collect(),
        DistanceText::Uniform(remote) => (0..count)
            .map(|row| {
                let to = |column| {
                    if row == column {
                        Distance::LOCAL
                    } else {
                        Distance(*remote)
                    }
                };
                (0..count).map(to).collect()
            })
            .collect(),
    };
    NodeMatrix::from_rows(nodes, rows).map_err(|_| {
        place.error(format!(
            "{count} rows of {count} numbers, one per node, such as distances=10,21;21,10 for two"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse_synthetic;

    #[test]
    fn a_cpu_set_is_kept_per_object_and_so_the_number_of_cpus_has_a_limit() {
        assert_eq!(
            parse_synthetic("16384").map(|t| t.cpus.online.len()),
            Ok(16384)
        );
        for (text, message) in [
            ("pack:16384 pu:2", "expected at most 16384 CPUs in all"),
            ("18446744073709551615", "expected at most 16384 CPUs in all"),
            (
                "4294967296 4294967296",
                "expected at most 16384 CPUs in all",
            ),
            (
                "core:1025 [numa] pu:1",
                "expected at most 1024 nodes in all",
            ),
        ] {
            assert_eq!(parse_synthetic(text).unwrap_err().to_string(), message);
        }
        let levels = "group:1 ".repeat(128) + "pu:1";
        let error = parse_synthetic(&levels).unwrap_err();
        assert_eq!(error.to_string(), "expected at most 128 levels in all");
    }
}
