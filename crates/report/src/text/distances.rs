//! The distances: a matrix, or what it says when it does not fit on a screen.

use std::fmt::{self, Write as _};

use homenode_topology::{Distance, Topology};
use homenode_units::{NodeMatrix, NodeSet};

use super::lines::{Lines, Side, Style, Table};
use crate::distance;
use crate::short::{count, fold_list};

/// More nodes than this are folded into classes of distances.
const NODES_MAX: usize = 16;
/// Groups of nodes that are listed by name.
const GROUPS_SHOWN: usize = 4;

pub(super) fn push(lines: &mut Lines, topology: &Topology, full: bool) {
    let Some(matrix) = topology.distances.known() else {
        // The line above the table has said why.
        return;
    };
    if matrix.nodes().len() < 2 {
        return;
    }
    lines.gap();
    if matrix.nodes().len() > NODES_MAX && !full {
        push_classes(lines, matrix);
    } else {
        push_matrix(lines, matrix);
    }
    push_remarks(lines, matrix);
}

/// The matrix, in blocks of columns where it is wider than the screen.
fn push_matrix(lines: &mut Lines, matrix: &NodeMatrix<Distance>) {
    let title = "distances, from the CPUs of a row's node to the memory of a column's";
    lines.line(&[(Style::Strong, title)]);
    let ids = matrix.nodes().iter().map(|node| node.0);
    let values = || matrix.cells().map(|(_, _, distance)| distance.0);
    let zeros = values().any(|value| value == 0);
    let largest = ids.chain(values()).max().unwrap_or(0);
    // As wide as the largest number, and as `n/a` where there is one.
    let widest = largest.to_string().len().max(if zeros { 3 } else { 1 });
    let column = widest + 2;
    let per_block = (lines.width().saturating_sub(widest) / column).max(1);
    for (index, block) in matrix.nodes().chunks(per_block).enumerate() {
        if index > 0 {
            lines.gap();
        }
        let heads: String = block
            .iter()
            .map(|to| format!("{:>column$}", to.0))
            .collect();
        lines.line(&[(Style::Plain, &" ".repeat(widest)), (Style::Strong, &heads)]);
        let mut cells = String::new();
        for (from, _) in matrix.rows() {
            let label = format!("{:>widest$}", from.0);
            cells.clear();
            for &distance in block.iter().filter_map(|&to| matrix.get(from, to)) {
                write!(cells, "{:>column$}", Cell(distance)).expect("a String takes all text");
            }
            lines.line(&[(Style::Strong, &label), (Style::Plain, &cells)]);
        }
    }
}

/// Zero is no distance: the firmware left it out.
struct Cell(Distance);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0 {
            0 => f.pad("n/a"),
            value => value.fmt(f),
        }
    }
}

fn push_classes(lines: &mut Lines, matrix: &NodeMatrix<Distance>) {
    let classes = distance::classes(matrix);
    let mut table = Table::default();
    let cells = |cell: &dyn Fn(&distance::Class) -> String| {
        classes.iter().map(cell).collect::<Vec<String>>()
    };
    table.column(
        Side::Right,
        "distance",
        cells(&|class| class.distance.to_string()),
    );
    table.column(
        Side::Right,
        "pairs",
        cells(&|class| class.pairs.to_string()),
    );
    let per_node = |class: &distance::Class| match class.per_node {
        (least, most) if least == most => most.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    table.column(Side::Right, "per node", cells(&per_node));
    let example = |class: &distance::Class| {
        let (from, to) = class.example;
        format!("{from} to {to}")
    };
    table.column(Side::Left, "such as", cells(&example));
    table.column(
        Side::Wrapped,
        "within it",
        cells(&|class| groups(&class.groups)),
    );
    table.write(lines);
    let note = "a pair is one direction; --full prints the matrix";
    lines.line(&[(Style::Faint, note)]);
}

/// `32 groups: 0-1, 2-3, 4-5, 6-7, …`.
fn groups(groups: &[NodeSet]) -> String {
    if groups.len() == 1 {
        return "all nodes".to_owned();
    }
    let names = groups
        .iter()
        .take(GROUPS_SHOWN)
        .map(|group| fold_list(group, 12));
    let mut names: Vec<String> = names.collect();
    if groups.len() > GROUPS_SHOWN {
        names.push("…".to_owned());
    }
    format!("{}: {}", count(groups.len(), "group"), names.join(", "))
}

fn push_remarks(lines: &mut Lines, matrix: &NodeMatrix<Distance>) {
    if let Some((from, to, there, back)) = distance::first_asymmetry(matrix) {
        let text = format!(
            "not the same in both directions: {from} to {to} is {there}, {to} to {from} is {back}"
        );
        lines.paragraph((Style::Plain, ""), Style::Caution, &text);
    }
    let any = |value: u32| matrix.cells().any(|(_, _, distance)| distance.0 == value);
    if any(Distance::UNREACHABLE.0) {
        lines.line(&[(Style::Faint, "255: the firmware says there is no path")]);
    }
    if any(0) {
        lines.line(&[(
            Style::Faint,
            "n/a: the firmware's table holds 0, which is no distance",
        )]);
    }
    let mut own = matrix.cells().filter(|(from, to, _)| from == to);
    let is_odd = |distance: Distance| distance != Distance::LOCAL && distance.0 != 0;
    if let Some((node, _, distance)) = own.find(|own| is_odd(*own.2)) {
        let text = format!("node {node} is at {distance} from itself; local should be 10");
        lines.paragraph((Style::Plain, ""), Style::Caution, &text);
    }
}
