//! The labelled lines above the table of nodes: processor, size, memory, distance, caches.

use std::collections::BTreeMap;

use homenode_topology::{Cache, CacheKind, Distance, GroupedBy, Topology};
use homenode_units::{Bytes, Reading};

use super::lines::{Lines, Style};
use crate::distance;
use crate::short::{absent, cache_name, count, fold_list};

/// Columns of the labels, the blank after them included.
const LABEL_COLUMNS: usize = 11;
/// Longer lists are folded.
const LIST_COLUMNS: usize = 36;
/// Node and machine sizes that differ by less are the same: old kernels count what they keep for
/// themselves to the nodes and not to the machine (2.3 % in hwloc's tree 32em64t-2n8c).
const SAME_MEMORY_SHARE: f64 = 0.05;

/// A labelled line; nothing at all when there is nothing to say.
pub(super) fn push_fact(lines: &mut Lines, label: &str, text: &str) {
    if !text.is_empty() {
        let label = format!("{label:<LABEL_COLUMNS$}");
        lines.paragraph((Style::Faint, &label), Style::Plain, text);
    }
}

pub(super) fn push(lines: &mut Lines, topology: &Topology, full: bool) {
    push_fact(lines, "processor", &processor(topology));
    push_fact(lines, "size", &size(topology));
    push_fact(lines, "memory", &memory(topology));
    push_fact(lines, "distance", &distances(topology));
    for (label, text) in caches(topology, full) {
        push_fact(lines, &label, &text);
    }
    push_fact(lines, "core kinds", &core_kinds(topology));
    push_fact(lines, "allowed", &allowed(topology));
    push_fact(lines, "offline", &offline(topology));
    if !topology.cpus.isolated.is_empty() {
        let list = fold_list(&topology.cpus.isolated, LIST_COLUMNS);
        push_fact(lines, "isolated", &format!("CPUs {list}"));
    }
    push_fact(lines, "kernel", &topology.kernel_options.join(" "));
}

fn processor(topology: &Topology) -> String {
    let processor = &topology.processor;
    let mut text = match (&processor.model_name, &processor.architecture) {
        (Reading::Known(name), _) => name.clone(),
        (Reading::Absent { why }, Reading::Known(architecture)) => {
            format!("{architecture}, name n/a ({why})")
        }
        (absent, _) => absent.to_string(),
    };
    if processor.hypervisor.known() == Some(&true) {
        text.push_str(", in a virtual machine");
    }
    text
}

fn size(topology: &Topology) -> String {
    let nodes = topology.nodes.len();
    let with_cpus = topology.cpu_nodes().count();
    let mut parts = vec![count(nodes, "node")];
    if with_cpus < nodes {
        parts[0].push_str(&format!(" ({with_cpus} with CPUs)"));
    }
    parts.push(count(topology.cpus.online.len(), "CPU"));
    if !topology.cores.is_empty() {
        parts.push(cores(topology));
    }
    if !topology.packages.is_empty() {
        let by_mask = topology
            .packages
            .iter()
            .any(|package| package.grouped_by == GroupedBy::Mask);
        let doubt = if by_mask { " (by mask, no ids)" } else { "" };
        parts.push(format!(
            "{}{doubt}",
            count(topology.packages.len(), "package")
        ));
    }
    for (groups, noun) in [
        (&topology.dies, "die"),
        (&topology.clusters, "cluster"),
        (&topology.books, "book"),
        (&topology.drawers, "drawer"),
    ] {
        if groups.len() > topology.packages.len() {
            parts.push(count(groups.len(), noun));
        }
    }
    parts.join(", ")
}

/// `24 cores of 2 threads`, or `14 cores, 6 of 2 threads` where they differ.
fn cores(topology: &Topology) -> String {
    let cores = count(topology.cores.len(), "core");
    let threads = topology.threads_per_core_max().unwrap_or(1);
    let widest = topology.cores.iter();
    let widest = widest.filter(|core| core.cpus.len() == threads).count();
    match threads {
        0 | 1 => cores,
        _ if widest == topology.cores.len() => format!("{cores} of {threads} threads"),
        _ => format!("{cores}, {widest} of them of {threads} threads"),
    }
}

/// The sum over the nodes, and the kernel's own figure where the two differ.
fn memory(topology: &Topology) -> String {
    let known: Vec<Bytes> = topology
        .nodes
        .iter()
        .filter_map(|node| node.memory_total.known().copied())
        .collect();
    let all = known.len() == topology.nodes.len() && !known.is_empty();
    let sum: Bytes = known.into_iter().sum();
    match (all, &topology.memory_total) {
        (true, Reading::Known(total)) if !differ(sum, *total) => sum.to_string(),
        (true, Reading::Known(total)) if sum < *total => {
            format!("{sum} in the nodes, {total} by /proc/meminfo: nodes may still be growing")
        }
        (true, Reading::Known(total)) => format!("{sum} in the nodes, {total} by /proc/meminfo"),
        (true, Reading::Absent { .. }) => format!("{sum} in the nodes"),
        (false, Reading::Known(total)) => format!("{total} by /proc/meminfo"),
        (false, absent) => absent.to_string(),
    }
}

fn differ(a: Bytes, b: Bytes) -> bool {
    let apart = a.max(b) - a.min(b);
    apart
        .share_of(a.max(b))
        .is_some_and(|share| share > SAME_MEMORY_SHARE)
}

/// One line that says how far, before the matrix does.
fn distances(topology: &Topology) -> String {
    if topology.nodes.len() < 2 {
        return "one node: nothing is remote".to_owned();
    }
    let matrix = match &topology.distances {
        Reading::Known(matrix) => matrix,
        Reading::Absent { why } => return absent(why),
    };
    let steps = distance::steps(matrix);
    let reached = steps.iter().filter(|&&step| step != Distance::UNREACHABLE);
    let values: Vec<String> = reached.map(ToString::to_string).collect();
    let remote = match values.as_slice() {
        [] => return "n/a (the firmware's table holds no distance to another node)".to_owned(),
        [only] => only.clone(),
        [head @ .., last] if values.len() <= 6 => format!("{} or {last}", head.join(", ")),
        [first, .., last] => format!("{first} to {last} in {} steps", values.len()),
    };
    let gap = match values.len() < steps.len() {
        true => ", no path between some",
        false => "",
    };
    format!("{remote} to other nodes{gap}, 10 is local: claimed by the firmware, not measured")
}

/// For each level and kind that is shown, what there is of it.
fn caches(topology: &Topology, full: bool) -> Vec<(String, String)> {
    let last_level = topology.caches.iter().map(|cache| cache.level).max();
    let mut kinds: BTreeMap<(u8, CacheKind), Vec<&Cache>> = BTreeMap::new();
    for cache in &topology.caches {
        if full || Some(cache.level) == last_level {
            kinds
                .entry((cache.level, cache.kind))
                .or_default()
                .push(cache);
        }
    }
    kinds
        .into_values()
        .rev()
        .filter_map(|caches| Some((cache_name(caches.first()?), cache_group(&caches))))
        .collect()
}

/// `8 × 32 MiB, each shared by 4 CPUs`; several such parts where they differ.
fn cache_group(caches: &[&Cache]) -> String {
    let mut alike: Vec<(String, usize, usize)> = Vec::new();
    for cache in caches {
        let key = (cache.size.to_string(), cache.cpus.len());
        match alike
            .iter_mut()
            .find(|group| group.0 == key.0 && group.1 == key.1)
        {
            Some(group) => group.2 += 1,
            None => alike.push((key.0, key.1, 1)),
        }
    }
    let parts = alike.into_iter().map(|(size, sharers, number)| {
        let each = if number == 1 { "" } else { "each " };
        let of = match sharers {
            1 => "of one CPU".to_owned(),
            _ => format!("shared by {sharers} CPUs"),
        };
        format!("{number} × {size}, {each}{of}")
    });
    parts.collect::<Vec<_>>().join("; ")
}

fn core_kinds(topology: &Topology) -> String {
    let kinds = topology.core_kinds.iter();
    let kinds = kinds.map(|kind| format!("CPUs {}: {}", fold_list(&kind.cpus, 24), kind.name));
    kinds.collect::<Vec<_>>().join("; ")
}

/// What this process may use, where that is less than the machine has.
fn allowed(topology: &Topology) -> String {
    let allowed = &topology.allowed;
    let mut parts = Vec::new();
    if allowed.cpus != topology.cpus.online {
        let list = fold_list(&allowed.cpus, LIST_COLUMNS);
        let (some, all) = (allowed.cpus.len(), topology.cpus.online.len());
        parts.push(format!("CPUs {list} ({some} of {all})"));
    }
    let nodes = topology.node_ids();
    if allowed.nodes != nodes {
        let list = fold_list(&allowed.nodes, LIST_COLUMNS);
        let (some, all) = (allowed.nodes.len(), nodes.len());
        parts.push(format!("memory of nodes {list} ({some} of {all})"));
    }
    if let Some(limit) = allowed.cpu_limit {
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let cpus = limit.quota_us as f64 / limit.period_us as f64;
        parts.push(format!("CPU time of {cpus:.1} CPUs"));
    }
    if let Some(limit) = allowed.memory_limit {
        parts.push(format!("{limit} of memory"));
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("{} - by {}", parts.join(", "), allowed.evidence)
}

fn offline(topology: &Topology) -> String {
    let mut parts = Vec::new();
    if !topology.cpus.offline.is_empty() {
        let list = fold_list(&topology.cpus.offline, LIST_COLUMNS);
        parts.push(format!("CPUs {list} ({})", topology.cpus.offline.len()));
    }
    if !topology.nodes_offline.is_empty() {
        let list = fold_list(&topology.nodes_offline, LIST_COLUMNS);
        parts.push(format!("nodes {list} ({})", topology.nodes_offline.len()));
    }
    parts.join(", ")
}
