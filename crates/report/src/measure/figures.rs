//! Heat maps and curves.

use homenode_measure::{Arrangement, Cell, Document, Metric, Test};

use super::curves::points;
use super::matrix::Matrix;
use super::sections::groups;
use super::tables::cpus;
use super::{shown, unit};
use crate::svg::{Axis, Curve, Figures};

/// Draws a run as one SVG element that needs nothing else: a heat map for each matrix, a chart for
/// each curve, one below the other.
#[must_use]
pub fn measure_svg(document: &Document) -> String {
    let mut figures = Figures::new(&document.machine.processor);
    for group in groups(document.of(Test::Latency)) {
        let title = format!(
            "idle latency, ns: {}, {}, {} pages",
            group[0].kernel, group[0].size, group[0].pages
        );
        heat(&mut figures, &title, group);
    }
    let bandwidth: Vec<&Cell> = document.of(Test::Bandwidth).collect();
    let pairs = bandwidth
        .iter()
        .copied()
        .filter(|cell| cell.arrangement == Arrangement::Pair);
    let pairs: Vec<&Cell> = pairs.collect();
    if let Some(first) = pairs.first() {
        heat(
            &mut figures,
            &format!("{}, GB/s", first.kernel),
            pairs.clone(),
        );
    }
    threads(&mut figures, &bandwidth);
    by_size(&mut figures, document);
    under_load(&mut figures, document);
    cores(&mut figures, document);
    figures.finish()
}

/// A chart for latency and one for bandwidth, a curve for each node.
fn by_size(figures: &mut Figures, document: &Document) {
    for (metric, title) in [
        (Metric::Latency, "latency by size"),
        (Metric::UsefulBandwidth, "read by size"),
    ] {
        let mut curves: Vec<Curve> = Vec::new();
        for cell in document
            .of(Test::WorkingSet)
            .filter(|cell| cell.metric == metric)
        {
            let Some(found) = cell.outcome.measured() else {
                continue;
            };
            let scale = if metric == Metric::UsefulBandwidth {
                1e-9
            } else {
                1.0
            };
            #[expect(clippy::cast_precision_loss, reason = "a place in a drawing")]
            let size = cell.size.0 as f64;
            let curve = named(&mut curves, &format!("node {} to {}", cell.from, cell.to));
            curve.add(
                size,
                found.median * scale,
                found.low * scale,
                found.high * scale,
            );
        }
        curves.retain_mut(Curve::sort);
        if !curves.is_empty() {
            figures.chart(
                title,
                &Axis::bytes("size"),
                &Axis::linear(unit(metric)),
                &curves,
            );
        }
    }
}

/// Latency against injected bandwidth, a curve for each mix; a chart for each node.
fn under_load(figures: &mut Figures, document: &Document) {
    let cells: Vec<&Cell> = document.of(Test::LoadedLatency).collect();
    let columns: std::collections::BTreeSet<_> = cells.iter().map(|cell| &cell.to).collect();
    for to in columns {
        let here: Vec<&Cell> = cells
            .iter()
            .copied()
            .filter(|cell| &cell.to == to)
            .collect();
        let mut curves: Vec<Curve> = Vec::new();
        for (latency, bandwidth) in points(&here) {
            let (Some(y), Some(x)) = (latency.outcome.measured(), bandwidth.outcome.measured())
            else {
                continue;
            };
            named(&mut curves, &latency.kernel).add(x.median / 1e9, y.median, y.low, y.high);
        }
        curves.retain_mut(Curve::sort);
        if !curves.is_empty() {
            let title = format!("latency under load, node {} to {to}", here[0].from);
            figures.chart(
                &title,
                &Axis::linear("GB/s injected"),
                &Axis::linear("ns"),
                &curves,
            );
        }
    }
}

/// Lower triangle of cores, the line at the writer's.
fn cores(figures: &mut Figures, document: &Document) {
    let mut values = std::collections::BTreeMap::new();
    for cell in document
        .of(Test::CoreToCore)
        .filter(|cell| cell.kernel.starts_with("load-store"))
    {
        if let (Some((from, to)), Some(found)) = (cpus(cell), cell.outcome.measured()) {
            values
                .entry((from.max(to), from.min(to)))
                .or_insert(found.median);
        }
    }
    let all: homenode_units::CpuSet = values.keys().flat_map(|&(from, to)| [from, to]).collect();
    let all: Vec<_> = all.iter().collect();
    if all.len() < 2 {
        return;
    }
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    let rows: Vec<Vec<Option<f64>>> = all
        .iter()
        .map(|&row| {
            all.iter()
                .map(|&column| values.get(&(row, column)).copied())
                .collect()
        })
        .collect();
    figures.heat(
        "core to core, one way, ns",
        (&names, &names),
        &rows,
        |value| format!("{value:.0}"),
        true,
    );
}

/// The curve of this name; a new one where there is none.
fn named<'a>(curves: &'a mut Vec<Curve>, name: &str) -> &'a mut Curve {
    let at = curves
        .iter()
        .position(|curve| curve.name == name)
        .unwrap_or_else(|| {
            curves.push(Curve::new(name));
            curves.len() - 1
        });
    &mut curves[at]
}

fn heat(figures: &mut Figures, title: &str, cells: Vec<&Cell>) {
    let Some(metric) = cells.first().map(|cell| cell.metric) else {
        return;
    };
    let matrix = Matrix::of(cells);
    let names = |nodes: &[homenode_units::NodeId]| -> Vec<String> {
        nodes.iter().map(ToString::to_string).collect()
    };
    let values: Vec<Vec<Option<f64>>> = matrix
        .rows
        .iter()
        .map(|&row| {
            matrix
                .columns
                .iter()
                .map(|&column| matrix.median(row, column))
                .collect()
        })
        .collect();
    figures.heat(
        title,
        (&names(&matrix.rows), &names(&matrix.columns)),
        &values,
        |value| shown(metric, value),
        metric.is_lower_better(),
    );
}

fn threads(figures: &mut Figures, cells: &[&Cell]) {
    let mut curves: Vec<Curve> = Vec::new();
    let single = cells
        .iter()
        .filter(|cell| cell.arrangement != Arrangement::Pair)
        .min_by_key(|cell| cell.threads);
    let Some(kernel) = single.map(|cell| &cell.kernel) else {
        return;
    };
    for cell in cells.iter().filter(|cell| &cell.kernel == kernel) {
        let (Some(found), false) = (
            cell.outcome.measured(),
            cell.arrangement == Arrangement::Pair,
        ) else {
            continue;
        };
        let name = cell.arrangement.name();
        let at = curves
            .iter()
            .position(|curve| curve.name == name)
            .unwrap_or_else(|| {
                curves.push(Curve::new(name));
                curves.len() - 1
            });
        #[expect(clippy::cast_precision_loss, reason = "a number of threads")]
        let threads = cell.threads as f64;
        curves[at].add(
            threads,
            found.median / 1e9,
            found.low / 1e9,
            found.high / 1e9,
        );
    }
    curves.retain_mut(Curve::sort);
    if !curves.is_empty() {
        let y = Axis::linear(unit(Metric::UsefulBandwidth));
        figures.chart(
            &format!("{kernel} by threads"),
            &Axis::log2("threads"),
            &y,
            &curves,
        );
    }
}
