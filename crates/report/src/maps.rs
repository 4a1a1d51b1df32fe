//! `homenode maps`: one process, mapping by mapping.

use std::fmt::Write;

use homenode_observe::{MappingUse, Matters, ProcessMaps};
use homenode_units::{Bytes, NodeId, Reading};
use serde::Serialize;

use crate::machine::format::{cut, harmless, nodes_named, percent, wrap};
use crate::machine::text::{Align, aligned};

/// Writes the mappings of a process as JSON, schema `homenode.maps/1`, ending in a line feed.
///
/// # Errors
///
/// [`serde_json::Error`] when a value cannot be written, which no value of it can cause.
pub fn maps_json(maps: &ProcessMaps) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Envelope<'a> {
        schema: &'static str,
        #[serde(flatten)]
        maps: &'a ProcessMaps,
        by_node: std::collections::BTreeMap<NodeId, Bytes>,
        away_that_matters: Bytes,
    }
    let envelope = Envelope {
        schema: "homenode.maps/1",
        by_node: maps.by_node(),
        away_that_matters: maps.away(Matters::Yes),
        maps,
    };
    serde_json::to_string_pretty(&envelope).map(|text| text + "\n")
}

/// Writes the mappings of a process for a terminal of this many columns; those with most memory,
/// up to `count`.
#[must_use]
pub fn maps_text(maps: &ProcessMaps, count: usize, width: usize) -> String {
    let width = width.max(60);
    let mut out = String::new();
    let by_node = maps.by_node();
    let shares: Vec<String> = by_node
        .iter()
        .filter_map(|(node, bytes)| {
            let share = bytes.share_of(maps.memory)?;
            Some(format!("{node}: {bytes} ({})", percent(share)))
        })
        .collect();
    let _ = writeln!(
        out,
        "process    {} ({}), {} in memory",
        maps.id.pid,
        harmless(&maps.name),
        maps.memory
    );
    let how = if maps.exact {
        "every page counted".to_owned()
    } else {
        format!("sampled, ±{:.1}%", maps.bound * 100.0)
    };
    out.push_str(&wrap(
        &format!("{}; {how}", shares.join(", ")),
        width,
        "by node    ",
        "           ",
    ));
    let home = match &maps.home_by_memory {
        Reading::Known(node) => format!("node {node}, where most of its own pages lie"),
        Reading::Absent { why } => format!("n/a ({})", harmless(why)),
    };
    let runs = if maps.runs_on.is_empty() {
        "n/a".to_owned()
    } else {
        nodes_named(&maps.runs_on)
    };
    let _ = writeln!(out, "home       {home}; its threads last ran on {runs}");
    out.push_str(&wrap(&away(maps), width, "away       ", "           "));
    let guest: Bytes = maps
        .mappings
        .iter()
        .filter(|mapping| mapping.guest)
        .map(MappingUse::resident)
        .sum();
    if guest > Bytes(0) {
        let _ = writeln!(
            out,
            "guest      {guest}; overhead {}",
            maps.memory.saturating_sub(guest)
        );
    }
    let _ = writeln!(
        out,
        "untouched  {} mapped and not in memory\n",
        maps.not_resident
    );
    out.push_str(&table(maps, count, width));
    out
}

/// What lies away from home, and whether that matters.
fn away(maps: &ProcessMaps) -> String {
    let said = [
        (Matters::Yes, "of its own pages: they matter"),
        (
            Matters::Shared,
            "of files: they lie where whoever read them first ran",
        ),
        (Matters::Wanted, "by policy"),
        (Matters::Little, "in small mappings"),
    ];
    let parts: Vec<String> = said
        .into_iter()
        .map(|(matters, words)| (maps.away(matters), words))
        .filter(|&(bytes, _)| bytes > Bytes(0))
        .map(|(bytes, words)| format!("{bytes} {words}"))
        .collect();
    match (&maps.home_by_memory, parts.is_empty()) {
        (Reading::Absent { .. }, _) => "n/a (no home to be away from)".to_owned(),
        (Reading::Known(_), true) => "nothing".to_owned(),
        (Reading::Known(_), false) => parts.join("; "),
    }
}

fn table(maps: &ProcessMaps, count: usize, width: usize) -> String {
    const POLICY_WIDTH: usize = 14;
    const NODES_MAX: usize = 4;
    let mut nodes: Vec<(Bytes, NodeId)> = maps
        .by_node()
        .into_iter()
        .map(|(node, bytes)| (bytes, node))
        .collect();
    nodes.sort_by(|a, b| b.cmp(a));
    nodes.truncate(NODES_MAX);
    nodes.sort_by_key(|&(_, node)| node);
    let mut head: Vec<String> = vec!["memory".to_owned()];
    head.extend(nodes.iter().map(|(_, node)| format!("on {node}")));
    head.extend(["policy", "matters", "what"].map(str::to_owned));
    let mut rows = vec![head];
    for mapping in maps.mappings.iter().take(count) {
        let mut row = vec![mapping.resident().to_string()];
        row.extend(nodes.iter().map(|(_, node)| {
            let bytes = mapping.nodes.get(node);
            bytes.map_or("-".to_owned(), Bytes::to_string)
        }));
        row.push(match &mapping.policy {
            Reading::Known(policy) => cut(&harmless(policy), POLICY_WIDTH),
            Reading::Absent { .. } => "n/a".to_owned(),
        });
        row.push(
            match maps.matters(mapping) {
                Matters::Nothing => "-",
                Matters::Little => "little",
                Matters::Wanted => "wanted",
                Matters::Shared => "shared",
                Matters::Yes => "yes",
            }
            .to_owned(),
        );
        row.push(what(mapping));
        rows.push(row);
    }
    let mut aligns = vec![Align::Right; nodes.len() + 1];
    aligns.extend([Align::Left, Align::Left, Align::Left]);
    let mut out = String::new();
    for line in aligned(&rows, &aligns) {
        let _ = writeln!(out, "{}", cut(line.trim_end(), width));
    }
    if let Some(rest) = maps.mappings.get(count..).filter(|rest| !rest.is_empty()) {
        let bytes: Bytes = rest.iter().map(MappingUse::resident).sum();
        let _ = writeln!(out, "  and {bytes} in {} more (--all)", rest.len());
    }
    out
}

fn what(mapping: &MappingUse) -> String {
    let mut words = match mapping.name.as_str() {
        "" => "plain memory".to_owned(),
        name => harmless(name),
    };
    if mapping.guest {
        words = format!("guest memory: {words}");
    }
    match mapping.page.known() {
        Some(&page) if page > Bytes(1 << 20) => {
            let _ = write!(words, ", {page} pages");
        }
        _ => {
            let thp = mapping.transparent_huge.known();
            if let Some(&thp) = thp.filter(|&&thp| thp > Bytes(0)) {
                let _ = write!(words, ", {thp} in huge pages");
            }
        }
    }
    words
}
