//! esxtop's batch layout: a CSV file of performance counters, as `esxtop -b` and perfmon write it.
//!
//! The first line names the columns, `\\host\Group(instance)\counter`; each further line is a
//! sample. Columns cannot come later, so what is not there in the first sample has none, as in
//! esxtop; what is gone leaves its cells empty.

use std::fmt::Write;
use std::time::Duration;

use homenode_observe::{NodeCounters, Observation, Row, View, rows};
use homenode_units::{NodeId, Reading};

use crate::machine::format::timestamp;

/// Writes observations as lines of a CSV file.
#[derive(Debug)]
pub struct PdhCsv {
    host: String,
    view: View,
    nodes: Vec<NodeId>,
    /// Key and instance name of each row of the first sample.
    instances: Vec<(String, String)>,
}

/// The counters of a row that are not by node.
const COUNTERS: [&str; 9] = [
    "% Used",
    "Memory Size MBytes",
    "NUMA Home Node",
    "NUMA Migrations",
    "NUMA Remote MBytes",
    "NUMA Local MBytes",
    "NUMA % Local",
    "NUMA % Local Bound",
    "NUMA % Local Accesses",
];
const NODE_COUNTERS: [&str; 6] = [
    "Total MBytes",
    "Free MBytes",
    "Hits/sec",
    "Misses/sec",
    "Foreign/sec",
    "Other Node/sec",
];

impl PdhCsv {
    /// Chooses the columns by a first observation, those with most memory first.
    #[must_use]
    pub fn new(host: &str, first: &Observation, view: View, rows_max: usize) -> Self {
        let instances = rows(None, first, view)
            .into_iter()
            .take(rows_max)
            .map(|row| {
                let name = format!("{}:{}", row.id.pid, instance(&row.name));
                (row.key, name)
            })
            .collect();
        Self {
            host: instance(host),
            view,
            nodes: first.nodes.iter().map(|node| node.node).collect(),
            instances,
        }
    }

    /// The line of names.
    #[must_use]
    pub fn header(&self) -> String {
        let mut line = "\"(PDH-CSV 4.0) (UTC)(0)\"".to_owned();
        let mut column = |group: &str, instance: &str, counter: &str| {
            let _ = write!(
                line,
                ",\"\\\\{}\\{group}({instance})\\{counter}\"",
                self.host
            );
        };
        for node in &self.nodes {
            for counter in NODE_COUNTERS {
                column("Numa Node", &node.to_string(), counter);
            }
        }
        for (_, name) in &self.instances {
            for counter in COUNTERS {
                column("Group Memory", name, counter);
            }
            for node in &self.nodes {
                for kind in ["", "Guest ", "Overhead "] {
                    let counter = format!("NUMA Node {node} {kind}MBytes");
                    column("Group Memory", name, &counter);
                }
            }
        }
        line.push('\n');
        line
    }

    /// The line of an observation; `earlier` is the one before it.
    #[must_use]
    pub fn line(&self, earlier: Option<&Observation>, later: &Observation) -> String {
        let mut line = format!("\"{}\"", time(later.since_epoch));
        let mut cell = |value: Option<f64>| match value {
            Some(value) => {
                let _ = write!(line, ",\"{value:.2}\"");
            }
            None => line.push_str(",\"\""),
        };
        for &node in &self.nodes {
            node_cells(node, earlier, later, &mut cell);
        }
        let rows = rows(earlier, later, self.view);
        for (key, _) in &self.instances {
            let row = rows.iter().find(|row| &row.key == key);
            row_cells(row, &self.nodes, &mut cell);
        }
        line.push('\n');
        line
    }
}

fn mib(bytes: homenode_units::Bytes) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are written")]
    let bytes = bytes.0 as f64;
    bytes / f64::from(1 << 20)
}

fn node_cells(
    node: NodeId,
    earlier: Option<&Observation>,
    later: &Observation,
    cell: &mut impl FnMut(Option<f64>),
) {
    let find = |observation: &Observation| {
        let mut nodes = observation.nodes.iter();
        nodes.find(|sample| sample.node == node).cloned()
    };
    let now = find(later);
    let memory = now.as_ref().and_then(|now| now.memory.known());
    cell(memory.map(|memory| mib(memory.total)));
    cell(memory.map(|memory| mib(memory.free)));
    let before = earlier.and_then(find);
    let elapsed = earlier.map_or(0.0, |earlier| {
        later
            .taken_at
            .saturating_sub(earlier.taken_at)
            .as_secs_f64()
    });
    let counts: [fn(&NodeCounters) -> u64; 4] = [
        |c| c.numa_hit,
        |c| c.numa_miss,
        |c| c.numa_foreign,
        |c| c.other_node,
    ];
    for count in counts {
        let counters = |sample: &Option<homenode_observe::NodeSample>| {
            sample
                .as_ref()
                .and_then(|sample| sample.counters.known().map(count))
        };
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = match (counters(&before), counters(&now)) {
            (Some(before), Some(now)) if elapsed > 0.0 => {
                now.checked_sub(before).map(|more| more as f64 / elapsed)
            }
            _ => None,
        };
        cell(rate);
    }
}

fn row_cells(row: Option<&Row>, nodes: &[NodeId], cell: &mut impl FnMut(Option<f64>)) {
    let of = |value: fn(&Row) -> Option<f64>| row.and_then(value);
    let known = |reading: fn(&Row) -> &Reading<f64>| {
        row.and_then(|row| reading(row).known().map(|share| share * 100.0))
    };
    cell(known(|row| &row.cpu));
    cell(of(|row| Some(mib(row.memory))));
    cell(of(|row| row.home.lowest().map(|node| f64::from(node.0))));
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    cell(of(|row| Some(row.migrations as f64)));
    cell(of(|row| row.remote.known().copied().map(mib)));
    cell(of(|row| row.local.known().copied().map(mib)));
    cell(known(|row| &row.locality));
    cell(of(|row| row.locality.known().map(|_| row.bound * 100.0)));
    cell(known(|row| &row.access));
    for &node in nodes {
        let on = row.and_then(|row| row.nodes.iter().find(|on| on.node == node));
        cell(on.map(|on| mib(on.memory)));
        cell(on.and_then(|on| on.guest).map(mib));
        cell(on.and_then(|on| on.overhead()).map(mib));
    }
}

/// `11/21/2026 18:20:05`, as perfmon writes it.
fn time(since_epoch: Duration) -> String {
    let rfc = timestamp(since_epoch);
    let (date, time) = rfc
        .trim_end_matches('Z')
        .split_once('T')
        .unwrap_or((&rfc, ""));
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next(), parts.next(), parts.next());
    format!(
        "{}/{}/{} {time}",
        month.unwrap_or_default(),
        day.unwrap_or_default(),
        year.unwrap_or_default()
    )
}

/// A name without the characters that have a meaning in a counter's path or in CSV.
fn instance(name: &str) -> String {
    name.chars()
        .map(|char| {
            let special = matches!(char, '(' | ')' | '\\' | '/' | '"' | '#' | '*');
            if special || char.is_control() {
                '_'
            } else {
                char
            }
        })
        .collect()
}
