//! How firmware distances lie.
//!
//! A distance is a claim, and no ratio of latencies: on two Xeon Silver 4214 the firmware says 21
//! to 10 where the latencies are 1.71 to 1. So no warning here speaks of cost; each says which
//! numbers cannot be true, or say less than they seem to, and `homenode measure` is the way out.

use std::collections::BTreeSet;

use homenode_units::{NodeId, NodeMatrix};

use super::warning;
use crate::verdict::Warning;
use crate::words::{count, id_set, nodes};
use crate::{Distance, GroupedBy, Topology};

const MEASURE: &str = "homenode measure latency shows how far the nodes are";
const UNKNOWN: Distance = Distance(0);

pub(super) fn distances(topology: &Topology) -> Vec<Warning> {
    let Some(matrix) = topology.distances.known() else {
        return Vec::new();
    };
    if matrix.nodes().len() < 2 {
        return Vec::new();
    }
    if let Some(warning) = all_equal(matrix) {
        return vec![warning];
    }
    let mut warnings: Vec<Warning> = [
        local_not_10(matrix),
        not_above_local(matrix),
        unknown(matrix),
        unreachable(matrix),
        asymmetric(matrix),
    ]
    .into_iter()
    .flatten()
    .collect();
    // A table that is wrong already does not need to be called coarse as well.
    if warnings.is_empty() {
        warnings.extend(kernel_default(topology, matrix).or_else(|| two_valued(topology, matrix)));
    }
    warnings
}

/// A pair of nodes and its distance.
type Cell = (NodeId, NodeId, Distance);

fn cells(matrix: &NodeMatrix<Distance>) -> impl Iterator<Item = Cell> + '_ {
    matrix.cells().map(|(from, to, &value)| (from, to, value))
}

/// Values that say something: neither "unknown" nor "unreachable".
fn says(value: Distance) -> bool {
    value != UNKNOWN && value != Distance::UNREACHABLE
}

fn all_equal(matrix: &NodeMatrix<Distance>) -> Option<Warning> {
    let values: BTreeSet<Distance> = cells(matrix).map(|(_, _, value)| value).collect();
    let value = values.first().filter(|_| values.len() == 1)?;
    let number = matrix.nodes().len().pow(2);
    let message = format!("all {number} distances are {value}: the firmware's table says nothing");
    Some(warning("distances", message).advise(MEASURE))
}

fn local_not_10(matrix: &NodeMatrix<Distance>) -> Option<Warning> {
    let odd: Vec<Cell> = cells(matrix)
        .filter(|&(from, to, value)| from == to && value != Distance::LOCAL && says(value))
        .collect();
    let &(first, _, value) = odd.first()?;
    let which = nodes(&id_set(odd.iter().map(|&(from, ..)| from)));
    let message = if odd.len() == 1 {
        format!("{which} is at {value} from itself; the standard (ACPI SLIT) wants 10")
    } else {
        format!(
            "{which} are not at 10 from themselves, as the standard (ACPI SLIT) wants: node \
             {first} is at {value}"
        )
    };
    Some(warning("distances", message).advise(MEASURE))
}

fn not_above_local(matrix: &NodeMatrix<Distance>) -> Option<Warning> {
    let odd: Vec<(Cell, Distance)> = cells(matrix)
        .filter(|&(from, to, value)| from != to && says(value))
        .filter_map(|cell| {
            let local = *matrix.get(cell.0, cell.0)?;
            (says(local) && cell.2 <= local).then_some((cell, local))
        })
        .collect();
    let &((from, to, value), local) = odd.first()?;
    let message = format!(
        "{} no farther than local memory: node {to} is at {value} from node {from}, which is at \
         {local} from itself",
        pairs_are(odd.len()),
    );
    Some(warning("distances", message).advise(MEASURE))
}

/// `1 pair of nodes is`, `3 pairs of nodes are`; a pair counts once for each direction.
fn pairs_are(number: usize) -> String {
    let (pairs, are) = (
        count(number, "pair"),
        if number == 1 { "is" } else { "are" },
    );
    format!("{pairs} of nodes {are}")
}

fn unknown(matrix: &NodeMatrix<Distance>) -> Option<Warning> {
    let number = cells(matrix).filter(|cell| cell.2 == UNKNOWN).count();
    (number > 0).then(|| {
        let message = format!("{} at distance 0, which means not known", pairs_are(number));
        warning("distances", message).advise(MEASURE)
    })
}

fn unreachable(matrix: &NodeMatrix<Distance>) -> Option<Warning> {
    let odd: Vec<Cell> = cells(matrix)
        .filter(|cell| cell.2 == Distance::UNREACHABLE)
        .collect();
    let &(from, to, _) = odd.first()?;
    let message = format!(
        "{} at distance 255, which means unreachable: node {to} from node {from}{}",
        pairs_are(odd.len()),
        if odd.len() > 1 { ", and others" } else { "" }
    );
    Some(warning("distances", message))
}

fn asymmetric(matrix: &NodeMatrix<Distance>) -> Option<Warning> {
    let odd: Vec<(Cell, Distance)> = cells(matrix)
        .filter(|(from, to, _)| from < to)
        .filter_map(|cell| {
            let back = *matrix.get(cell.1, cell.0)?;
            (cell.2 != back && says(cell.2) && says(back)).then_some((cell, back))
        })
        .collect();
    let &((from, to, there), back) = odd.first()?;
    let message = format!(
        "{} not equally far in both directions: node {from} to node {to} is {there}, back is {back}",
        pairs_are(odd.len())
    );
    Some(warning("distances", message).advise(MEASURE))
}

fn remote_values(matrix: &NodeMatrix<Distance>) -> BTreeSet<Distance> {
    let remote = cells(matrix).filter(|(from, to, _)| from != to);
    remote.map(|(_, _, value)| value).collect()
}

/// 10 and 20 everywhere: what Linux and QEMU say when nobody told them.
fn kernel_default(topology: &Topology, matrix: &NodeMatrix<Distance>) -> Option<Warning> {
    let remote = remote_values(matrix);
    let only_default = remote.len() == 1 && remote.contains(&Distance::KERNEL_DEFAULT_REMOTE);
    if matrix.nodes().len() <= 2 || !only_default || topology.firmware.slit.known().is_some() {
        return None;
    }
    let message = format!(
        "every one of {} is at 20 from every other, which is what the kernel assumes when the \
         firmware has no distances: some pairs may be farther apart than others",
        count(matrix.nodes().len(), "node")
    );
    Some(warning("distances", message).advise(MEASURE))
}

/// One remote value where paths must or may differ.
fn two_valued(topology: &Topology, matrix: &NodeMatrix<Distance>) -> Option<Warning> {
    let packages = &topology.packages;
    let known = packages
        .iter()
        .all(|package| package.grouped_by != GroupedBy::Mask);
    let remote = remote_values(matrix);
    let value = remote.first().filter(|_| remote.len() == 1)?;
    let with_cpus = topology.cpu_nodes().count();
    if !known || packages.len() < 2 || with_cpus < 3 {
        return None;
    }
    let doubt = if with_cpus > packages.len() {
        "nodes of one package are hardly as far apart as nodes of two"
    } else {
        "true only where every package has a link to every other"
    };
    let message = format!(
        "all pairs of {} in {} are at {value}: {doubt}, so the firmware may have left \
         differences out",
        count(matrix.nodes().len(), "node"),
        count(packages.len(), "package"),
    );
    Some(warning("distances", message).advise(MEASURE))
}
