//! Short words for long things, shared by the text and the drawing.

use homenode_topology::{Cache, CacheKind, Certainty, DeviceKind, MemoryKind, Node, Topology};
use homenode_units::{Bytes, CpuSet, Id, IdSet, NodeSet, Reading};

/// `1 node`, `2 nodes`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// How an absence is shown.
pub(crate) fn absent(why: &str) -> String {
    format!("n/a ({why})")
}

/// A list of ids in at most `width` columns: `0-11,24-35`; with a step, `0-108 by 4`; or cut after
/// a comma, `0,3,4,…`.
pub(crate) fn fold_list<T: Id>(set: &IdSet<T>, width: usize) -> String {
    let list = set.to_string();
    if list.len() <= width {
        return list;
    }
    let steps = stepped(set);
    if steps.len() <= width {
        return steps;
    }
    let room = width.saturating_sub(1);
    // The list is ASCII, so that bytes are columns.
    match list.get(..room).and_then(|head| head.rfind(',')) {
        Some(comma) => format!("{}…", &list[..=comma]),
        None => "…".to_owned(),
    }
}

/// The ids as runs of equal steps; firmware deals CPUs out to nodes like cards.
fn stepped<T: Id>(set: &IdSet<T>) -> String {
    let ids: Vec<u32> = set.iter().map(Id::number).collect();
    let mut runs: Vec<String> = Vec::new();
    let mut rest = ids.as_slice();
    while let [first, tail @ ..] = rest {
        let step = tail.first().map_or(1, |next| next - first);
        let more = tail
            .iter()
            .zip(1..)
            .take_while(|&(&id, count)| id == first + step * count)
            .count();
        // Two ids are a list, not yet a rule.
        let (more, run) = match (more, step) {
            (0 | 1, 2..) => (0, first.to_string()),
            (0, _) => (0, first.to_string()),
            (_, 1) => (more, format!("{first}-{}", tail[more - 1])),
            _ => (more, format!("{first}-{} by {step}", tail[more - 1])),
        };
        runs.push(run);
        rest = &tail[more..];
    }
    runs.join(",")
}

/// How sure a verdict is, in words.
pub(crate) fn certainty(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Certain => "certain",
        Certainty::Likely => "likely",
        Certainty::CannotTell => "cannot tell",
    }
}

/// What a device is for, in a word.
pub(crate) fn device_kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Storage => "storage",
        DeviceKind::Network => "network",
        DeviceKind::InfiniBand => "InfiniBand",
        DeviceKind::Display => "display or GPU",
        DeviceKind::Accelerator => "accelerator",
        DeviceKind::Other => "other",
    }
}

fn memory_kind(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Dram => "DRAM",
        MemoryKind::Hbm => "HBM",
        MemoryKind::Cxl => "CXL memory",
        MemoryKind::Nvm => "persistent memory",
        MemoryKind::Gpu => "GPU memory",
        // The kernel's word for EFI_MEMORY_SP.
        MemoryKind::SpecialPurpose => "soft-reserved memory",
    }
}

/// The note on a node with CPUs and without memory.
pub(crate) const NO_MEMORY: &str = "no memory";

/// What is unusual about a node, most important first; empty for most nodes.
pub(crate) fn node_notes(node: &Node) -> Vec<String> {
    let mut notes = Vec::new();
    let kind = node.memory_kind.known();
    if node.is_cpuless() {
        notes.push("no CPUs".to_owned());
    } else if node.cpus.is_empty() {
        notes.push("all CPUs offline".to_owned());
    } else if !node.cpus_offline.is_empty() {
        notes.push(format!(
            "CPUs {} offline",
            fold_list(&node.cpus_offline, 16)
        ));
    }
    if node.is_memoryless() {
        notes.push(NO_MEMORY.to_owned());
    } else {
        match kind {
            Some(MemoryKind::Dram) if !node.is_cpuless() => {}
            Some(&kind) => notes.push(memory_kind(kind).to_owned()),
            None if node.is_cpuless() => notes.push("kind unknown".to_owned()),
            None => {}
        }
    }
    if node.generic_initiator {
        notes.push("generic initiator".to_owned());
    }
    notes
}

/// `L3`, `L1d`, `L1i`.
pub(crate) fn cache_name(cache: &Cache) -> String {
    let kind = match cache.kind {
        CacheKind::Data => "d",
        CacheKind::Instruction => "i",
        CacheKind::Unified => "",
    };
    format!("L{}{kind}", cache.level)
}

/// The nodes that have CPUs among these.
pub(crate) fn nodes_of(topology: &Topology, cpus: &CpuSet) -> NodeSet {
    let nodes = topology.nodes.iter();
    nodes
        .filter(|node| node.cpus.intersects(cpus))
        .map(|node| node.id)
        .collect()
}

/// Columns that a text takes. Our own texts hold only characters of one column; a foreign one
/// (a model name, a device) may be misjudged and then sticks out, which harms nothing.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Shortens a text to some columns; `…` stands for what was cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

/// Breaks a text at blanks, and after commas inside words (lists of ids) where it must.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    // Counted once: the line's columns so far.
    let mut used = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let more = columns(word);
        if !line.is_empty() && used + 1 + more <= width {
            line.push(' ');
            line.push_str(word);
            used += 1 + more;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        if more <= width {
            line.push_str(word);
        } else {
            let mut pieces = split_word(word, width);
            line = pieces.pop().unwrap_or_default();
            lines.append(&mut pieces);
        }
        used = columns(&line);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Cuts a word that is wider than a line, after its commas if it has any.
fn split_word(word: &str, width: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for part in word.split_inclusive(',') {
        let mut part: Vec<char> = part.chars().collect();
        while !part.is_empty() {
            let last = pieces.last_mut();
            let Some(last) = last else { break };
            let room = width - columns(last);
            if part.len() <= room {
                last.extend(part.drain(..));
            } else if last.is_empty() {
                last.extend(part.drain(..room));
                pieces.push(String::new());
            } else {
                pieces.push(String::new());
            }
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// How much of a node's memory is in use: `13.6 %`; none for a node without memory.
pub(crate) fn used_percent(node: &Node) -> Option<String> {
    let (&total, &free) = node.memory_total.known().zip(node.memory_free.known())?;
    let share = (total - free).share_of(total)?;
    Some(format!("{:.1} %", share * 100.0))
}

/// Nodes that look the same.
#[derive(Debug)]
pub(crate) struct Kind<'a> {
    /// The one with the lowest id.
    pub(crate) first: &'a Node,
    /// All of them.
    pub(crate) nodes: Vec<&'a Node>,
}

impl Kind<'_> {
    /// Their ids.
    pub(crate) fn ids(&self) -> NodeSet {
        self.nodes.iter().map(|node| node.id).collect()
    }
}

/// The nodes of a machine, by kind.
pub(crate) fn kinds(topology: &Topology) -> Vec<Kind<'_>> {
    let mut kinds: Vec<Kind<'_>> = Vec::new();
    for node in &topology.nodes {
        match kinds.iter_mut().find(|kind| alike(kind.first, node)) {
            Some(kind) => kind.nodes.push(node),
            None => kinds.push(Kind {
                first: node,
                nodes: vec![node],
            }),
        }
    }
    kinds
}

/// Same CPUs in number, same size within a few percent, same remarks.
fn alike(a: &Node, b: &Node) -> bool {
    const SAME_SIZE_SHARE: f64 = 0.05;
    let sizes = match (&a.memory_total, &b.memory_total) {
        (Reading::Known(a), Reading::Known(b)) => {
            let apart = *a.max(b) - *a.min(b);
            apart
                .share_of(*a.max(b))
                .is_none_or(|share| share < SAME_SIZE_SHARE)
        }
        (a, b) => a == b,
    };
    sizes && a.cpus.len() == b.cpus.len() && node_notes(a) == node_notes(b)
}

/// `7.7 GiB`, or `6.7 GiB to 6.9 GiB` where the nodes differ visibly.
pub(crate) fn span<'a>(kind: &Kind<'a>, amount: fn(&'a Node) -> &'a Reading<Bytes>) -> String {
    let known = || kind.nodes.iter().filter_map(|node| amount(node).known());
    match (known().min(), known().max()) {
        (Some(least), Some(most)) if least.to_string() == most.to_string() => least.to_string(),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => amount(kind.first).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn lists_fold_to_steps_and_then_are_cut() {
        let set = |list| sample::cpus(list);
        assert_eq!(fold_list(&set("0-11,24-35"), 12), "0-11,24-35");
        assert_eq!(fold_list(&set("0,4,8,12,16,20,24"), 12), "0-24 by 4");
        assert_eq!(
            fold_list(&set("0,2,4,6,24,26,28,30,32"), 20),
            "0-6 by 2,24-32 by 2"
        );
        assert_eq!(fold_list(&set("0-3,5,9,14-17,20,33,48"), 12), "0-3,5,9,…");
        assert_eq!(fold_list(&set("0,4,8,12,16,20,24"), 4), "0,…");
        assert_eq!(fold_list(&set(""), 4), "");
    }

    #[test]
    fn words_wrap_at_blanks_and_lists_after_commas() {
        assert_eq!(wrap("one two  three", 9), ["one two", "three"]);
        assert_eq!(wrap("abcd efgh", 8), ["abcd", "efgh"]);
        assert_eq!(wrap("0-3,8-11,16-19", 9), ["0-3,8-11,", "16-19"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(wrap("", 9), Vec::<String>::new());
    }

    #[test]
    fn a_node_without_anything_unusual_has_no_notes() {
        let notes =
            |topology: &Topology, index: usize| node_notes(&topology.nodes[index]).join(", ");
        assert_eq!(notes(&sample::two_nodes(), 0), "");
        assert_eq!(notes(&sample::memoryless(), 1), "no memory");
        assert_eq!(
            notes(&sample::memoryless(), 4),
            "no CPUs, no memory, generic initiator"
        );
        assert_eq!(notes(&sample::snc_cpuless(), 4), "no CPUs, kind unknown");
        assert_eq!(notes(&sample::gpus(), 2), "no CPUs, GPU memory");
    }
}
