//! What was measured beside what the firmware claims.

use std::fmt::Write as _;

use homenode_measure::{Document, Test};
use homenode_topology::Topology;

use super::matrix::Matrix;
use super::sections::groups;
use crate::machine::wrap;

/// A claim that differs by more than this is named.
const NAMED_FROM: f64 = 0.1;

/// Writes the measured ratios beside the SLIT's and the HMAT's, and where they disagree.
///
/// A distance is no latency ratio (ACPI 6.5, 5.2.17 leaves the scale open): self 10 and other 21
/// say 2.1, where 1.7 is measured on real machines.
pub(super) fn compare(out: &mut String, document: &Document, topology: &Topology, width: usize) {
    let Some(first) = groups(document.of(Test::Latency)).into_iter().next() else {
        return;
    };
    let matrix = Matrix::of(first);
    let Some(best) = matrix.best() else { return };
    if matrix.columns.len() < 2 && matrix.rows.len() < 2 {
        return;
    }
    let distances = topology.distances.known();
    let column = 6;
    if 2 * (matrix.columns.len() + 1) * column <= width {
        let _ = writeln!(
            out,
            "\nrelative to the fastest; beside it the firmware's distance ÷ 10"
        );
        let names = |out: &mut String| {
            for node in &matrix.columns {
                let _ = write!(out, "{:>column$}", node.0);
            }
        };
        let _ = write!(out, "{:>column$}", "");
        names(out);
        let _ = write!(out, "{:>column$}", "");
        names(out);
        out.push('\n');
        for &row in &matrix.rows {
            let _ = write!(out, "{:>column$}", row.0);
            for &to in &matrix.columns {
                let ratio = matrix.median(row, to).map(|median| median / best);
                let text = ratio.map_or_else(|| "n/a".to_owned(), |ratio| format!("{ratio:.2}"));
                let _ = write!(out, "{text:>column$}");
            }
            let _ = write!(out, "{:>column$}", "");
            for &to in &matrix.columns {
                let distance = distances.and_then(|distances| distances.get(row, to));
                let text = distance.map_or_else(
                    || "n/a".to_owned(),
                    |distance| format!("{:.1}", f64::from(distance.0) / 10.0),
                );
                let _ = write!(out, "{text:>column$}");
            }
            out.push('\n');
        }
    }
    for line in disagreements(&matrix, topology) {
        out.push_str(&wrap(&line, width, "", "  "));
    }
}

/// Where firmware and measurement differ, the worst first; three of each kind at most.
fn disagreements(matrix: &Matrix<'_>, topology: &Topology) -> Vec<String> {
    const SHOWN_MAX: usize = 3;
    let mut slit: Vec<(f64, String)> = Vec::new();
    let mut hmat: Vec<(f64, String)> = Vec::new();
    for &from in &matrix.rows {
        let own = matrix.median(from, from);
        for &to in &matrix.columns {
            let Some(median) = matrix.median(from, to) else {
                continue;
            };
            let claimed = topology
                .distances
                .known()
                .and_then(|distances| distances.get(from, to));
            if let (Some(own), Some(claimed)) = (own, claimed)
                && from != to
            {
                let (claimed, found) = (f64::from(claimed.0) / 10.0, median / own);
                let off = (claimed / found).ln().abs();
                if off > NAMED_FROM {
                    let words = format!(
                        "node {from} to {to}: the firmware's distance says {claimed:.1} × local, \
                         measured {found:.2} ×"
                    );
                    slit.push((off, words));
                }
            }
            let accesses = topology.node(to).map_or(&[][..], |node| &node.access);
            let access = accesses
                .iter()
                .filter(|access| access.initiators.contains(from));
            if let Some(claimed) = access
                .max_by_key(|access| access.class)
                .and_then(|access| access.read_latency)
            {
                let off = (claimed.0 / median).ln().abs();
                if off > NAMED_FROM {
                    let words = format!(
                        "node {from} to {to}: the HMAT says {claimed}, measured {median:.1} ns"
                    );
                    hmat.push((off, words));
                }
            }
        }
    }
    let worst = |mut found: Vec<(f64, String)>| {
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.into_iter().take(SHOWN_MAX).map(|(_, words)| words)
    };
    worst(slit).chain(worst(hmat)).collect()
}
