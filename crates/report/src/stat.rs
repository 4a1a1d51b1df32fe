//! `homenode stat`: what the nodes do, and who pays for remote memory.

use std::fmt::Write;

use homenode_observe::{
    Counters, Kind, MemoryUse, Observation, Row, Sample, View, rates_between, rows,
};
use homenode_topology::Topology;
use homenode_units::{Bytes, NodeId, Reading};
use serde::{Deserialize, Serialize};

use crate::machine::format::{cut, grouped, harmless, percent, rate, timestamp, wrap};
use crate::machine::text::{Align, aligned};

/// What the firmware claims about a pair of nodes: 10 is local.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distance {
    /// The node of the CPU.
    pub from: NodeId,
    /// The node of the memory.
    pub to: NodeId,
    /// Unit: tenths of a local access.
    pub distance: u32,
}

/// All pairs; none where the firmware claims nothing.
#[must_use]
pub fn distances_of(topology: &Topology) -> Vec<Distance> {
    let cells = topology.distances.known().into_iter();
    cells
        .flat_map(|distances| distances.cells())
        .map(|(from, to, distance)| Distance {
            from,
            to,
            distance: distance.0,
        })
        .collect()
}

/// The state of a machine between two observations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatReport {
    /// `homenode.stat/1`.
    pub schema: &'static str,
    /// When the second observation was made: RFC 3339, in UTC.
    pub taken_at: String,
    /// Time between the two. Unit: seconds.
    pub interval_seconds: f64,
    /// Memory and allocations, by node id.
    pub nodes: Vec<NodeStat>,
    /// Part of the last 10 s in which some task waited for memory. Unit: none, 0 to 1.
    pub memory_pressure: Reading<f64>,
    /// What the counters mean.
    pub verdict: Vec<String>,
    /// What the rows are.
    pub view: View,
    /// Who uses memory, and how much of it is remote.
    pub rows: Vec<Row>,
    /// How many rows there were before some were left out.
    pub rows_total: usize,
    /// Processes that are there and could not be read.
    pub unreadable: u32,
}

/// Memory and allocations of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeStat {
    /// The node.
    pub node: NodeId,
    /// What its memory is used for.
    pub memory: Reading<MemoryUse>,
    /// Used memory, size less free.
    pub used: Reading<Bytes>,
    /// Allocations. Unit: base pages per second.
    pub per_second: Reading<Counters<Reading<f64>>>,
}

/// Puts two observations together.
///
/// `chosen` leaves out rows; of the rest the first `count` stay. With several nodes those with
/// most remote memory come first, else those with most memory.
#[must_use]
pub fn stat_report(
    distances: &[Distance],
    earlier: &Observation,
    later: &Observation,
    view: View,
    count: usize,
) -> StatReport {
    let sample = |observation: &Observation| Sample {
        taken_at: observation.taken_at,
        nodes: observation.nodes.clone(),
    };
    let rates = rates_between(&sample(earlier), &sample(later));
    let nodes: Vec<NodeStat> = later
        .nodes
        .iter()
        .zip(rates)
        .map(|(node, rates)| NodeStat {
            node: node.node,
            used: node.memory.clone().map(|memory| memory.used()),
            memory: node.memory.clone(),
            per_second: rates.per_second,
        })
        .collect();
    let mut rows = rows(Some(earlier), later, view);
    rows.sort_by_key(|row| std::cmp::Reverse(row.remote.known().copied()));
    let rows_total = rows.len();
    rows.truncate(count);
    StatReport {
        schema: "homenode.stat/1",
        taken_at: timestamp(later.since_epoch),
        interval_seconds: later
            .taken_at
            .saturating_sub(earlier.taken_at)
            .as_secs_f64(),
        memory_pressure: later.pressure.clone(),
        verdict: verdict(distances, &nodes),
        nodes,
        view,
        rows,
        rows_total,
        unreadable: later.unreadable,
    }
}

/// Which node misses, at what rate, and what that likely costs.
fn verdict(distances: &[Distance], nodes: &[NodeStat]) -> Vec<String> {
    /// Base pages are this large on every machine where it matters to people.
    const PAGE: u64 = 4096;
    let mut lines = Vec::new();
    let mut silent = None;
    let mut placed = 0.0;
    for node in nodes {
        let rates = match &node.per_second {
            Reading::Known(rates) => rates,
            Reading::Absent { why } => {
                silent = Some(why);
                continue;
            }
        };
        let (Some(hit), Some(foreign)) = (rates.numa_hit.known(), rates.numa_foreign.known())
        else {
            continue;
        };
        placed += hit;
        if *foreign < 0.5 {
            continue;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate, never negative"
        )]
        let bytes = Bytes((*foreign as u64).saturating_mul(PAGE));
        lines.push(format!(
            "node {} misses: {} pages/s ({bytes}/s, {} of what was wanted there) went to other \
             nodes for lack of room; {}",
            node.node,
            rate(*foreign),
            percent(foreign / (hit + foreign)),
            cost(distances, node.node),
        ));
    }
    match (lines.is_empty(), silent) {
        (true, Some(why)) => vec![format!("no verdict: {why}")],
        (true, None) if nodes.len() == 1 => {
            vec!["one node: no memory is remote".to_owned()]
        }
        (true, None) => vec![format!(
            "no node misses: all new pages ({} pages/s) were placed as wanted; that says where \
             memory went, not who uses it from afar: see N%L",
            rate(placed)
        )],
        (false, _) => lines,
    }
}

/// What it costs to reach the node that takes the overflow, as far as the firmware says.
fn cost(distances: &[Distance], from: NodeId) -> String {
    let others = || {
        let others = distances
            .iter()
            .filter(|claim| claim.from == from && claim.to != from);
        others.map(|claim| f64::from(claim.distance) / 10.0)
    };
    let nearest = others().min_by(f64::total_cmp);
    let farthest = others().max_by(f64::total_cmp);
    let (Some(nearest), Some(farthest)) = (nearest, farthest) else {
        return "what that costs is not known: no distances".to_owned();
    };
    let range = if (farthest - nearest).abs() < 0.05 {
        format!("{nearest:.1}")
    } else {
        format!("{nearest:.1} to {farthest:.1}")
    };
    format!(
        "each access to them costs some {range} times a local one, if the firmware's distances are \
         right (claimed, not measured)"
    )
}

/// Writes the report for a terminal of this many columns.
#[must_use]
pub fn stat_text(stat: &StatReport, width: usize) -> String {
    let width = width.max(60);
    let mut out = String::new();
    nodes(&mut out, stat, width);
    for line in &stat.verdict {
        out.push_str(&wrap(&harmless(line), width, "", "  "));
    }
    let _ = writeln!(out);
    for line in row_lines(&stat.rows, stat.nodes.len(), width) {
        let _ = writeln!(out, "{line}");
    }
    let mut notes = Vec::new();
    if stat.rows.len() < stat.rows_total {
        notes.push(format!(
            "{} of {} shown, most remote memory first",
            stat.rows.len(),
            stat.rows_total
        ));
    }
    if stat.unreadable > 0 {
        notes.push(format!("{} could not be read", stat.unreadable));
    }
    let mut reasons: Vec<&str> = stat
        .rows
        .iter()
        .filter_map(|row| row.locality.why())
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    notes.extend(reasons.into_iter().map(|why| format!("n/a: {why}")));
    for note in notes {
        out.push_str(&wrap(&harmless(&note), width, "", "  "));
    }
    out
}

fn nodes(out: &mut String, stat: &StatReport, width: usize) {
    let head = [
        "node",
        "total",
        "free",
        "used",
        "hit/s",
        "miss/s",
        "foreign/s",
        "other/s",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for node in &stat.nodes {
        let memory = match &node.memory {
            Reading::Known(memory) => [
                memory.total.to_string(),
                memory.free.to_string(),
                memory
                    .used()
                    .share_of(memory.total)
                    .map_or_else(|| "-".to_owned(), percent),
            ],
            Reading::Absent { .. } => ["n/a", "n/a", "n/a"].map(str::to_owned),
        };
        let cell = |value: &Reading<f64>| value.known().map_or("n/a".to_owned(), |&v| rate(v));
        let rates = match &node.per_second {
            Reading::Known(rates) => [
                cell(&rates.numa_hit),
                cell(&rates.numa_miss),
                cell(&rates.numa_foreign),
                cell(&rates.other_node),
            ],
            Reading::Absent { .. } => ["n/a", "n/a", "n/a", "n/a"].map(str::to_owned),
        };
        table.push(
            [node.node.to_string()]
                .into_iter()
                .chain(memory)
                .chain(rates)
                .collect(),
        );
    }
    for line in aligned(&table, &[Align::Left]) {
        let _ = writeln!(out, "{}", cut(line.trim_end(), width));
    }
    let pressure = match &stat.memory_pressure {
        Reading::Known(share) => percent(*share),
        Reading::Absent { why } => format!("n/a ({})", harmless(why)),
    };
    let _ = writeln!(
        out,
        "  over {:.1} s; tasks waited for memory {pressure} of the time",
        stat.interval_seconds
    );
}

/// Rows as a table; memory by node where there is room for it.
pub(crate) fn row_lines(rows: &[Row], node_count: usize, width: usize) -> Vec<String> {
    const FIXED_WIDTH: usize = 78;
    const NODE_WIDTH: usize = 11;
    let mut shown: Vec<NodeId> = rows
        .iter()
        .flat_map(|row| row.nodes.iter().map(|on| on.node))
        .collect();
    shown.sort_unstable();
    shown.dedup();
    let room = width.saturating_sub(FIXED_WIDTH) / NODE_WIDTH;
    shown.truncate(if node_count > 1 && room >= shown.len() {
        shown.len()
    } else {
        0
    });
    let mut head: Vec<String> = [
        "pid", "user", "name", "NHN", "NMIG", "%CPU", "memory", "NRMEM", "N%L",
    ]
    .map(str::to_owned)
    .to_vec();
    head.extend(shown.iter().map(|node| format!("on {node}")));
    let mut table = vec![head];
    for row in rows {
        let mut cells = vec![
            row.id.pid.to_string(),
            cut(&harmless(&row.user), 8),
            name(row),
            row.home.to_string(),
            row.migrations_total.to_string(),
            row.cpu
                .known()
                .map_or("n/a".to_owned(), |cpu| format!("{:.0}", cpu * 100.0)),
            row.memory.to_string(),
            row.remote
                .known()
                .map_or("n/a".to_owned(), Bytes::to_string),
            row.locality.known().map_or("n/a".to_owned(), |&share| {
                let bound = if row.bound > 0.0 {
                    format!("±{:.0}", row.bound * 100.0)
                } else {
                    String::new()
                };
                format!("{}{bound}", percent(share))
            }),
        ];
        for &node in &shown {
            let on = row.nodes.iter().find(|on| on.node == node);
            cells.push(on.map_or("-".to_owned(), |on| on.memory.to_string()));
        }
        table.push(cells);
    }
    let left = Align::Left;
    aligned(&table, &[Align::Right, left, left, left])
        .iter()
        .map(|line| cut(line.trim_end(), width))
        .collect()
}

/// `web (vm)`; of several processes how many.
pub(crate) fn name(row: &Row) -> String {
    const WIDTH: usize = 18;
    let name = harmless(&row.name);
    let count = if row.processes > 1 {
        format!(" ×{}", grouped(row.processes as u64))
    } else {
        String::new()
    };
    match row.kind {
        Kind::Vm => format!(
            "{} (vm){count}",
            cut(&name, WIDTH.saturating_sub(5 + count.chars().count()))
        ),
        Kind::Container | Kind::Unit | Kind::Process => {
            format!(
                "{}{count}",
                cut(&name, WIDTH.saturating_sub(count.chars().count()))
            )
        }
    }
}

#[cfg(test)]
#[path = "stat_tests.rs"]
mod tests;
