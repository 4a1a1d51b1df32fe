//! Tables along a size or a load.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use homenode_measure::{Cell, Document, Metric, Test};
use homenode_topology::{CacheKind, Topology};
use homenode_units::{Bytes, NodeSet};

use super::sections::{Known, absence, with_bound};
use super::shown;
use crate::machine::wrap;

pub(super) fn working_set(
    out: &mut String,
    document: &Document,
    topology: Known<'_>,
    width: usize,
) {
    let cells: Vec<&Cell> = document.of(Test::WorkingSet).collect();
    let from = &cells[0].from;
    let columns: BTreeSet<&NodeSet> = cells.iter().map(|cell| &cell.to).collect();
    let sizes: BTreeSet<Bytes> = cells.iter().map(|cell| cell.size).collect();
    let find = |to: &NodeSet, size, metric| {
        let is_it = |cell: &&&Cell| cell.to == *to && cell.size == size && cell.metric == metric;
        cells.iter().find(is_it).copied()
    };
    let _ = writeln!(
        out,
        "By size, from node {from}: random walk in ns, read in GB/s, one thread"
    );
    let _ = write!(out, "{:>9}", "size");
    for to in &columns {
        let _ = write!(
            out,
            "{:>16}{:>18}",
            format!("ns, node {to}"),
            format!("GB/s, node {to}")
        );
    }
    out.push('\n');
    for &size in &sizes {
        let _ = write!(out, "{:>9}", size.to_string());
        for to in &columns {
            let text = |metric| find(to, size, metric).map_or_else(String::new, with_bound);
            let (latency, bandwidth) = (text(Metric::Latency), text(Metric::UsefulBandwidth));
            let _ = write!(out, "{latency:>16}{bandwidth:>18}");
        }
        out.push('\n');
    }
    for cell in cells
        .iter()
        .filter(|cell| cell.outcome.measured().is_none())
    {
        absence(out, cell, width);
    }
    let Some(topology) = topology else { return };
    // The own node where it has memory.
    let own = if columns.contains(from) {
        from
    } else {
        &cells[0].to
    };
    let near: Vec<(Bytes, f64)> = sizes
        .iter()
        .filter_map(|&size| {
            let found = find(own, size, Metric::Latency)?.outcome.measured()?;
            Some((size, found.median))
        })
        .collect();
    for line in cache_lines(topology, &near) {
        out.push_str(&wrap(&line, width, "", "  "));
    }
}

/// What each cache is said to hold, and what it was seen to hold.
pub(super) fn cache_lines(topology: &Topology, latencies: &[(Bytes, f64)]) -> Vec<String> {
    let levels: BTreeSet<u8> = topology.caches.iter().map(|cache| cache.level).collect();
    let mut lines = Vec::new();
    for level in levels {
        let cache = topology
            .caches
            .iter()
            .find(|cache| cache.level == level && cache.kind != CacheKind::Instruction);
        let Some(&size) = cache.and_then(|cache| cache.size.known()) else {
            continue;
        };
        // Only what was measured up to its end can be judged.
        if latencies.iter().all(|(measured, _)| *measured < size) {
            continue;
        }
        let Some(held) = held(latencies, size) else {
            continue;
        };
        let next = latencies
            .iter()
            .map(|(size, _)| *size)
            .find(|size| *size > held);
        lines.push(match next {
            Some(next) if next <= Bytes(size.0 / 2) => format!(
                "L{level}: {size} by sysfs, but {next} are slow already: others use it, or this \
                 thread may not use all of it"
            ),
            _ => format!("L{level}: {size} by sysfs, as seen"),
        });
    }
    lines
}

/// The largest size that is as fast as a quarter of the cache is, or nearly (1.5 ×).
fn held(latencies: &[(Bytes, f64)], cache: Bytes) -> Option<Bytes> {
    const NEARLY: f64 = 1.5;
    let at = |size: u64| latencies.iter().rev().find(|(bytes, _)| bytes.0 <= size);
    let (start, plateau) = *at(cache.0 / 4)?;
    latencies
        .iter()
        .filter(|(size, _)| *size >= start)
        .take_while(|(_, latency)| *latency <= NEARLY * plateau)
        .map(|(size, _)| *size)
        .last()
}

pub(super) fn loaded_latency(out: &mut String, document: &Document, _: Known<'_>, width: usize) {
    let cells: Vec<&Cell> = document.of(Test::LoadedLatency).collect();
    let columns: BTreeSet<&NodeSet> = cells.iter().map(|cell| &cell.to).collect();
    for (number, to) in columns.into_iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let here: Vec<&Cell> = cells
            .iter()
            .copied()
            .filter(|cell| &cell.to == to)
            .collect();
        let idle = here.iter().find(|cell| cell.at.is_none());
        let threads = here.iter().map(|cell| cell.threads).max().unwrap_or(1);
        let _ = writeln!(
            out,
            "Loaded latency, node {} to {to}: a walk of one thread, {} thread{} that load",
            here[0].from,
            threads - 1,
            if threads == 2 { "" } else { "s" }
        );
        if let Some(idle) = idle {
            let _ = writeln!(out, "idle {} ns", with_bound(idle));
            absence(out, idle, width);
        }
        let mut mixes: Vec<&String> = Vec::new();
        for cell in here.iter().filter(|cell| cell.at.is_some()) {
            if !mixes.contains(&&cell.kernel) {
                mixes.push(&cell.kernel);
            }
        }
        for mix in mixes {
            let of_mix: Vec<&Cell> = here
                .iter()
                .copied()
                .filter(|c| c.at.is_some() && &c.kernel == mix)
                .collect();
            let points = points(&of_mix);
            let _ = writeln!(
                out,
                "{mix}\n{:>9}{:>18}{:>18}",
                "delay", "ns", "GB/s injected"
            );
            for (latency, bandwidth) in &points {
                let _ = writeln!(
                    out,
                    "{:>9}{:>18}{:>18}",
                    latency.at.unwrap_or(0.0),
                    with_bound(latency),
                    with_bound(bandwidth)
                );
            }
            if let Some(idle) = idle.and_then(|cell| cell.outcome.measured()) {
                out.push_str(&wrap(&summary(idle.median, &points), width, "  ", "  "));
            }
        }
    }
}

/// Latency and bandwidth of each point that has both, by bandwidth.
pub(super) fn points<'a>(cells: &[&'a Cell]) -> Vec<(&'a Cell, &'a Cell)> {
    let mut points: Vec<(&Cell, &Cell)> = Vec::new();
    for latency in cells.iter().filter(|cell| cell.metric == Metric::Latency) {
        let at = |cell: &&&Cell| {
            cell.metric == Metric::UsefulBandwidth
                && cell.kernel == latency.kernel
                && cell.at.map(f64::to_bits) == latency.at.map(f64::to_bits)
        };
        if let Some(bandwidth) = cells.iter().find(at)
            && latency.outcome.measured().is_some()
            && bandwidth.outcome.measured().is_some()
        {
            points.push((latency, bandwidth));
        }
    }
    points.sort_by(|a, b| median(a.1).total_cmp(&median(b.1)));
    points
}

fn median(cell: &Cell) -> f64 {
    cell.outcome
        .measured()
        .map_or(0.0, |estimate| estimate.median)
}

/// The knee, the most, and whether more load gave less.
fn summary(idle: f64, points: &[(&Cell, &Cell)]) -> String {
    let Some((_, most)) = points.last() else {
        return "no point was measured".to_owned();
    };
    let knee = points
        .iter()
        .find(|(latency, _)| median(latency) > 2.0 * idle);
    let knee = match knee {
        Some((_, bandwidth)) => {
            format!(
                "twice the idle latency from {} GB/s on",
                shown(most.metric, median(bandwidth))
            )
        }
        None => "never twice the idle latency".to_owned(),
    };
    // Over-saturation: a point with more latency than the fastest one, and less bandwidth.
    let fastest = points.last().map_or(0.0, |(latency, _)| median(latency));
    let over = points.iter().any(|(latency, bandwidth)| {
        median(latency) > 1.1 * fastest && median(bandwidth) < 0.95 * median(most)
    });
    format!(
        "{knee}, at most {} GB/s{}",
        shown(most.metric, median(most)),
        if over {
            "; beyond that, more load gave less (over-saturation)"
        } else {
            ""
        }
    )
}
