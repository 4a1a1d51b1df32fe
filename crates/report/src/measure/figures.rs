//! Heat maps and curves.

use homenode_measure::{Arrangement, Cell, Document, Metric, Test};

use super::matrix::Matrix;
use super::sections::groups;
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
    figures.finish()
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
