//! One table for each test.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use homenode_measure::{Arrangement, Cell, Document, Test};

use homenode_topology::Topology;

use super::matrix::Matrix;
use super::shown;
use crate::machine::wrap;

/// The machine, where it is at hand.
pub(super) type Known<'a> = Option<&'a Topology>;

/// Cells that differ in their nodes only, in the order in which they come.
pub(super) fn groups<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<Vec<&'a Cell>> {
    let mut groups: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells {
        let is_like = |group: &&mut Vec<&Cell>| {
            let first = group[0];
            (&first.kernel, first.size, first.arrangement, first.metric)
                == (&cell.kernel, cell.size, cell.arrangement, cell.metric)
                && first.pages.is_huge() == cell.pages.is_huge()
        };
        match groups.iter_mut().find(is_like) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

/// The kinds of pages in some cells: `2 MiB pages (thp)`.
fn pages(cells: &[&Cell]) -> String {
    let kinds: BTreeSet<_> = cells.iter().map(|cell| cell.pages).collect();
    let names: Vec<&str> = kinds.iter().map(|pages| pages.name()).collect();
    let size = match kinds.iter().filter(|pages| pages.is_huge()).count() {
        0 => "base pages",
        count if count == kinds.len() => "huge pages",
        _ => "pages",
    };
    format!("{size} ({})", names.join(", "))
}

/// The words of a pattern's name.
fn order(kernel: &str) -> String {
    match kernel.split_once('/') {
        None => "all lines in random order".to_owned(),
        Some(("page-local", stride)) => {
            format!("page after page, every {stride} bytes in random order")
        }
        Some((order, stride)) => format!("{order}, every {stride} bytes"),
    }
}

pub(super) fn latency(out: &mut String, document: &Document, _: Known<'_>, width: usize) {
    for (number, group) in groups(document.of(Test::Latency)).into_iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let title = format!(
            "Idle latency in ns: {}, {}, {}",
            order(&group[0].kernel),
            group[0].size,
            pages(&group)
        );
        out.push_str(&wrap(&title, width, "", "  "));
        let matrix = Matrix::of(group.clone());
        matrix.write(out, width);
        spread(out, &group);
    }
}

/// More than the median, for few cells.
fn spread(out: &mut String, cells: &[&Cell]) {
    const SHOWN_MAX: usize = 8;
    if cells.len() > SHOWN_MAX {
        return;
    }
    let _ = writeln!(
        out,
        "{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "", "median", "±", "min", "p99", "samples"
    );
    for cell in cells {
        let Some(found) = cell.outcome.measured() else {
            continue;
        };
        let bound = match found.has_interval() {
            true => format!("{:.1} %", found.half_width() * 100.0),
            false => "?".to_owned(),
        };
        let _ = writeln!(
            out,
            "{:>8}{:>9}{bound:>9}{:>9}{:>9}{:>9}",
            format!("{} to {}", cell.from, cell.to),
            shown(cell.metric, found.median),
            shown(cell.metric, found.min),
            found
                .p99
                .map_or_else(|| "-".to_owned(), |p99| shown(cell.metric, p99)),
            found.samples.len(),
        );
    }
}

/// A number with its `±` in percent and a mark.
pub(super) fn with_bound(cell: &Cell) -> String {
    match cell.outcome.measured() {
        None => "n/a".to_owned(),
        Some(found) if !found.has_interval() => format!("{} ±?*", shown(cell.metric, found.median)),
        Some(found) => format!(
            "{} ±{:.1} %{}",
            shown(cell.metric, found.median),
            found.half_width() * 100.0,
            if found.converged { " " } else { "*" }
        ),
    }
}

/// A line for a cell without a number.
pub(super) fn absence(out: &mut String, cell: &Cell, width: usize) {
    if let homenode_measure::Outcome::Absent { absent } = &cell.outcome {
        let line = format!(
            "{} {}, node {} to {}: n/a ({absent})",
            cell.kernel,
            cell.arrangement.name(),
            cell.from,
            cell.to
        );
        out.push_str(&wrap(&line, width, "", "  "));
    }
}

pub(super) fn bandwidth(out: &mut String, document: &Document, _: Known<'_>, width: usize) {
    let cells: Vec<&Cell> = document.of(Test::Bandwidth).collect();
    let Some(most) = cells.iter().map(|cell| cell.threads).max() else {
        return;
    };
    let all: Vec<&Cell> = cells
        .iter()
        .copied()
        .filter(|cell| {
            cell.threads == most
                && matches!(
                    cell.arrangement,
                    Arrangement::Single | Arrangement::Distributed
                )
        })
        .collect();
    let distributed = all
        .iter()
        .any(|cell| cell.arrangement == Arrangement::Distributed);
    let title = format!(
        "Bandwidth in GB/s (10^9) of {most} thread{}{}, {} each, {}",
        if most == 1 { "" } else { "s" },
        if distributed {
            " on all nodes, each with its own node's memory"
        } else {
            ""
        },
        cells[0].size,
        pages(&cells),
    );
    out.push_str(&wrap(&title, width, "", "  "));
    let _ = writeln!(out, "{:<22}{:>18}   on the bus, estimated", "", "useful");
    let mut seen = BTreeSet::new();
    for cell in &all {
        let is_shown = distributed == (cell.arrangement == Arrangement::Distributed);
        if !is_shown || !seen.insert(&cell.kernel) {
            continue;
        }
        let _ = writeln!(
            out,
            "{:<22}{:>18}   {}",
            cell.kernel,
            with_bound(cell),
            bus(cell)
        );
        absence(out, cell, width);
    }
    out.push_str(&wrap(
        "useful: bytes that the program loads and stores, a copy counts twice, as STREAM does; on \
         the bus: a store reads its line first, unless it goes past the caches (nt) or the \
         processor knows better",
        width,
        "",
        "  ",
    ));
    let pairs: Vec<&Cell> = cells
        .iter()
        .copied()
        .filter(|cell| cell.arrangement == Arrangement::Pair)
        .collect();
    if let Some(first) = pairs.first().copied().filter(|_| pairs.len() > 1) {
        let _ = writeln!(
            out,
            "\n{} in GB/s, all threads of the CPU node on memory of one node",
            first.kernel
        );
        Matrix::of(pairs).write(out, width);
    }
    sweep(out, &cells, width);
}

fn bus(cell: &Cell) -> String {
    let (Some(found), Some((least, most))) = (cell.outcome.measured(), cell.bus_factor) else {
        return "n/a".to_owned();
    };
    let number = |factor: f64| shown(cell.metric, found.median * factor);
    if (most - least).abs() < 1e-9 {
        number(least)
    } else {
        format!("{} to {}", number(least), number(most))
    }
}

/// Single, distributed, remote and interleaved by number of threads.
fn sweep(out: &mut String, cells: &[&Cell], width: usize) {
    const ARRANGEMENTS: [Arrangement; 4] = [
        Arrangement::Single,
        Arrangement::Distributed,
        Arrangement::Remote,
        Arrangement::Interleaved,
    ];
    // The kernel that was run with one thread.
    let Some(kernel) = cells
        .iter()
        .filter(|cell| cell.arrangement != Arrangement::Pair)
        .min_by_key(|cell| cell.threads)
        .map(|cell| &cell.kernel)
    else {
        return;
    };
    let of = |arrangement, threads| {
        cells.iter().find(|cell| {
            &cell.kernel == kernel && cell.arrangement == arrangement && cell.threads == threads
        })
    };
    let counts: BTreeSet<usize> = cells
        .iter()
        .filter(|cell| &cell.kernel == kernel && cell.arrangement != Arrangement::Pair)
        .map(|cell| cell.threads)
        .collect();
    if counts.len() < 2 {
        return;
    }
    let shown_ones: Vec<Arrangement> = ARRANGEMENTS
        .into_iter()
        .filter(|&arrangement| counts.iter().any(|&count| of(arrangement, count).is_some()))
        .collect();
    let _ = writeln!(out, "\n{kernel} in GB/s by number of threads");
    let _ = write!(out, "{:>7}", "threads");
    for arrangement in &shown_ones {
        let _ = write!(out, "{:>18}", arrangement.name());
    }
    out.push('\n');
    for &count in &counts {
        let _ = write!(out, "{count:>7}");
        for &arrangement in &shown_ones {
            let text = of(arrangement, count).map_or_else(String::new, |cell| with_bound(cell));
            let _ = write!(out, "{text:>18}");
        }
        out.push('\n');
    }
    for &arrangement in &shown_ones {
        let measured = counts
            .iter()
            .filter_map(|&count| Some((count, of(arrangement, count)?.outcome.measured()?.median)));
        let best = measured.clone().map(|(_, value)| value).reduce(f64::max);
        // The first number of threads that comes within 2 % of the best.
        let knee = best.and_then(|best| measured.clone().find(|(_, value)| *value >= 0.98 * best));
        let most = measured.map(|(count, _)| count).max();
        if let Some((count, value)) = knee
            && most != Some(count)
        {
            let threads = if count == 1 {
                "thread reaches"
            } else {
                "threads reach"
            };
            let line = format!(
                "{}: {count} {threads} {:.1} GB/s, more give at most 2 % more",
                arrangement.name(),
                value / 1e9
            );
            out.push_str(&wrap(&line, width, "", "  "));
        }
    }
    let absent = cells
        .iter()
        .filter(|cell| cell.outcome.measured().is_none());
    for cell in absent.filter(|cell| &cell.kernel == kernel) {
        absence(out, cell, width);
    }
}
