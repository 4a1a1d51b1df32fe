//! The tables of interleaving, first touch, hand-over between cores, and the Opteron study.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use homenode_measure::{Arrangement, Cell, Document, Metric, RMMA_METRICS, Test};
use homenode_units::{CpuId, NodeSet};

use super::sections::{Known, absence, with_bound};
use super::shown;
use crate::machine::wrap;

fn median(cell: &Cell) -> Option<f64> {
    Some(cell.outcome.measured()?.median)
}

pub(super) fn interleave(out: &mut String, document: &Document, _: Known<'_>, width: usize) {
    let cells: Vec<&Cell> = document.of(Test::Interleave).collect();
    let kernels: BTreeSet<(Metric, &String)> = cells
        .iter()
        .map(|cell| (cell.metric, &cell.kernel))
        .collect();
    let _ = writeln!(
        out,
        "Interleaving: memory on one node and spread page by page, one thread, base pages"
    );
    for (metric, kernel) in kernels {
        let of: Vec<&Cell> = cells
            .iter()
            .copied()
            .filter(|cell| cell.metric == metric && &cell.kernel == kernel)
            .collect();
        let what = if metric == Metric::Latency {
            "latency in ns"
        } else {
            kernel
        };
        let unit = if metric == Metric::Latency {
            ""
        } else {
            " in GB/s"
        };
        let _ = writeln!(out, "\n{what}{unit}");
        let rows: BTreeSet<&NodeSet> = of.iter().map(|cell| &cell.from).collect();
        for from in rows {
            let here = of.iter().copied().filter(|cell| &cell.from == from);
            for cell in here.clone() {
                let place = match cell.arrangement {
                    Arrangement::Interleaved => format!("spread over nodes {}", cell.to),
                    _ => format!("on node {}", cell.to),
                };
                let _ = writeln!(
                    out,
                    "  from node {from}, {place:<24}{:>18}",
                    with_bound(cell)
                );
                absence(out, cell, width);
            }
            let single: Option<Vec<f64>> = here
                .clone()
                .filter(|cell| cell.arrangement == Arrangement::Pair)
                .map(median)
                .collect();
            let spread = here
                .clone()
                .find(|cell| cell.arrangement == Arrangement::Interleaved);
            if let (Some(single), Some(spread)) = (single, spread.and_then(median)) {
                for line in expectation(metric, &single, spread) {
                    out.push_str(&wrap(&line, width, "    ", "    "));
                }
            }
        }
    }
}

/// What the parts make one expect (T1 to T3), and what the gap says.
pub(super) fn expectation(metric: Metric, single: &[f64], spread: f64) -> Vec<String> {
    #[expect(clippy::cast_precision_loss, reason = "a number of nodes")]
    let count = single.len() as f64;
    let mean = single.iter().sum::<f64>() / count;
    let harmonic = count / single.iter().map(|value| 1.0 / value).sum::<f64>();
    let off = |expected: f64| (spread / expected - 1.0) * 100.0;
    if metric == Metric::Latency {
        let reason = if off(mean).abs() < 5.0 {
            "as expected: each load goes to one node or the other"
        } else if off(mean) > 0.0 {
            "slower than its parts: pages change nodes, so fewer neighbours are in reach of TLB \
             and open rows"
        } else {
            "faster than its parts: two controllers have shorter queues than one"
        };
        return vec![format!(
            "expected {} ns, the mean of the nodes; observed {} ({:+.1} %): {reason}",
            shown(metric, mean),
            shown(metric, spread),
            off(mean)
        )];
    }
    let reason = if off(harmonic).abs() < 5.0 {
        "pages take turns, so times add up and the slow node sets the pace"
    } else if spread >= 0.95 * mean {
        "both controllers work at a time: enough requests are on the way to keep both busy"
    } else if off(harmonic) > 0.0 {
        "the controllers overlap in part"
    } else {
        "less than taking turns would give: every page is a new stream for the prefetchers"
    };
    vec![format!(
        "expected {} GB/s if pages take turns (2LR/(L+R)), {} if nodes add up (their mean); \
         observed {} ({:+.1} % of the first): {reason}",
        shown(metric, harmonic),
        shown(metric, mean),
        shown(metric, spread),
        off(harmonic)
    )]
}

pub(super) fn first_touch(out: &mut String, document: &Document, _: Known<'_>, width: usize) {
    let cells: Vec<&Cell> = document.of(Test::FirstTouch).collect();
    let _ = writeln!(
        out,
        "First touch: {} thread{} read their own parts, {} each",
        cells[0].threads,
        if cells[0].threads == 1 { "" } else { "s" },
        cells[0].size
    );
    let _ = writeln!(
        out,
        "{:<24}{:>16}{:>16}{:>18}",
        "memory", "on first node", "on user's node", "GB/s"
    );
    let mut ways: Vec<Arrangement> = Vec::new();
    for cell in &cells {
        if !ways.contains(&cell.arrangement) {
            ways.push(cell.arrangement);
        }
    }
    for way in ways {
        let find = |metric, at: Option<f64>| {
            cells.iter().find(|cell| {
                cell.arrangement == way
                    && cell.metric == metric
                    && cell.at.is_some() == at.is_some()
            })
        };
        let share = |at| {
            find(Metric::PageShare, at)
                .and_then(|cell| median(cell))
                .map_or_else(
                    || "n/a".to_owned(),
                    |share| format!("{} %", shown(Metric::PageShare, share)),
                )
        };
        let bandwidth = find(Metric::UsefulBandwidth, None);
        let name = match way {
            Arrangement::TouchedByOne => "touched by one thread",
            Arrangement::TouchedByUser => "touched by its user",
            _ => "placed at allocation",
        };
        let _ = writeln!(
            out,
            "{name:<24}{:>16}{:>16}{:>18}",
            share(None),
            share(Some(1.0)),
            bandwidth.map_or_else(String::new, |cell| with_bound(cell))
        );
        if let Some(cell) = bandwidth {
            absence(out, cell, width);
        }
    }
}

pub(super) fn core_to_core(out: &mut String, document: &Document, _: Known<'_>, width: usize) {
    let cells: Vec<&Cell> = document.of(Test::CoreToCore).collect();
    const SHOWN_MAX: usize = 24;
    let _ = writeln!(
        out,
        "Core to core, one way in ns (half a round trip), no pause between looks"
    );
    let _ = writeln!(
        out,
        "{:<12}{:>12}{:>12}{:>18}{:>12}{:>10}",
        "form", "CPUs", "line on", "one way", "round trip", "min"
    );
    for cell in cells.iter().take(SHOWN_MAX) {
        let mut words = cell.kernel.split(' ');
        let form = words.next().unwrap_or_default();
        let pair = words.collect::<Vec<_>>().join(" ");
        let found = cell.outcome.measured();
        let number = |value: Option<f64>| {
            value.map_or_else(|| "n/a".to_owned(), |value| shown(cell.metric, value))
        };
        let _ = writeln!(
            out,
            "{form:<12}{pair:>12}{:>12}{:>18}{:>12}{:>10}",
            format!("node {}", cell.to),
            with_bound(cell),
            number(found.map(|found| 2.0 * found.median)),
            number(found.map(|found| found.min)),
        );
        absence(out, cell, width);
    }
    if cells.len() > SHOWN_MAX {
        let line = format!(
            "{} of {} pairs are shown; --json, --csv and --svg have all",
            SHOWN_MAX,
            cells.len()
        );
        out.push_str(&wrap(&line, width, "", "  "));
    }
    let bimodal = cells.iter().filter(|cell| {
        cell.outcome
            .measured()
            .is_some_and(homenode_measure::Estimate::is_bimodal)
    });
    let count = bimodal.count();
    if count > 0 {
        let line = format!(
            "{count} pairs fall into two groups of times: the CPUs of a virtual machine change \
             places on the host, or a core changes its clock"
        );
        out.push_str(&wrap(&line, width, "", "  "));
    }
}

/// The two CPUs that a cell of `core_to_core` names.
pub(super) fn cpus(cell: &Cell) -> Option<(CpuId, CpuId)> {
    let mut words = cell.kernel.split(' ').skip(1);
    let from = words.next()?.parse().ok()?;
    let to = words.nth(1)?.parse().ok()?;
    Some((CpuId(from), CpuId(to)))
}

pub(super) fn rmma(out: &mut String, document: &Document, _: Known<'_>, width: usize) {
    let cells: Vec<&Cell> = document.of(Test::Rmma).collect();
    let _ = writeln!(
        out,
        "The eight metrics of the Opteron study: MB/s (10^6) and ns, one thread, {}",
        cells[0].size
    );
    let mut pairs: Vec<(&NodeSet, &NodeSet)> = Vec::new();
    for cell in &cells {
        if !pairs.contains(&(&cell.from, &cell.to)) {
            pairs.push((&cell.from, &cell.to));
        }
    }
    const LABEL: usize = 28;
    const COLUMN: usize = 16;
    let at_once = (width.saturating_sub(LABEL) / COLUMN).max(1);
    for part in pairs.chunks(at_once) {
        let _ = write!(out, "{:<LABEL$}", "CPU node to memory node");
        for (from, to) in part {
            let _ = write!(out, "{:>COLUMN$}", format!("{from} to {to}"));
        }
        out.push('\n');
        for name in RMMA_METRICS {
            let _ = write!(out, "{name:<LABEL$}");
            for (from, to) in part {
                let cell = cells
                    .iter()
                    .find(|cell| cell.kernel == name && (&cell.from, &cell.to) == (*from, *to));
                let _ = write!(
                    out,
                    "{:>COLUMN$}",
                    cell.map_or_else(String::new, |cell| plus_minus(cell))
                );
            }
            out.push('\n');
        }
    }
    for cell in cells
        .iter()
        .filter(|cell| cell.outcome.measured().is_none())
    {
        absence(out, cell, width);
    }
}

/// As in the study: the average with its spread, `3618 (±3)`.
fn plus_minus(cell: &Cell) -> String {
    let Some(found) = cell.outcome.measured() else {
        return "n/a".to_owned();
    };
    let half = (found.high - found.low) / 2.0;
    if !found.has_interval() {
        let unit = if cell.metric == Metric::Latency {
            1.0
        } else {
            1e6
        };
        return format!("{:.0} (±?)", found.median / unit);
    }
    if cell.metric == Metric::Latency {
        format!("{:.1} (±{half:.1})", found.median)
    } else {
        format!("{:.0} (±{:.0})", found.median / 1e6, half / 1e6)
    }
}
