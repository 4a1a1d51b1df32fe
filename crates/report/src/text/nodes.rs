//! The table of nodes: one row per node, or per kind of node on big machines.

use homenode_topology::{GroupedBy, Node, Topology};
use homenode_units::{Bytes, Reading};

use super::facts::push_fact;
use super::lines::{Lines, Side, Style, Table};
use crate::distance;
use crate::short::{Kind, NO_MEMORY, fold_list, kinds, node_notes, span, used_percent};

/// More nodes than fit on the first screen are folded into kinds.
const ROWS_MAX: usize = 12;
/// Longer lists of CPUs are folded, unless everything is shown.
const LIST_COLUMNS: usize = 24;
/// Narrower screens leave out the cores: the line of the machine's size has them.
const CORES_WIDTH_MIN: usize = 100;

pub(super) fn push(lines: &mut Lines, topology: &Topology, full: bool) {
    if topology.nodes.len() > ROWS_MAX && !full {
        push_kinds(lines, topology);
    } else {
        push_each(lines, topology, full);
    }
}

fn push_each(lines: &mut Lines, topology: &Topology, full: bool) {
    let nodes = &topology.nodes;
    let cells = |cell: &dyn Fn(&Node) -> String| nodes.iter().map(cell).collect::<Vec<_>>();
    let mut absences = Absences::default();
    let mut table = Table::default();
    table.column(Side::Right, "node", cells(&|node| node.id.to_string()));
    table.column(
        Side::Right,
        "CPUs",
        cells(&|node| node.cpus.len().to_string()),
    );
    table.column(
        Side::Wrapped,
        "which",
        cells(&|node| which_cpus(node, full)),
    );
    if !topology.cores.is_empty() && lines.width() >= CORES_WIDTH_MIN {
        table.column(
            Side::Right,
            "cores",
            cells(&|node| cores_of(topology, node).to_string()),
        );
    }
    if nodes.len() > 1 && topology.packages.len() > 1 {
        table.column(
            Side::Right,
            "package",
            cells(&|node| packages_of(topology, node)),
        );
    }
    let total: Vec<_> = nodes.iter().map(|node| node.memory_total.clone()).collect();
    let free: Vec<_> = nodes.iter().map(|node| node.memory_free.clone()).collect();
    if absences.column(&mut table, "memory", &total) && absences.column(&mut table, "free", &free) {
        table.column(Side::Right, "used", cells(&used_share));
    }
    if topology.distances.known().is_some() && nodes.len() > 1 {
        table.column(
            Side::Wrapped,
            "nearest",
            cells(&|node| nearest(topology, node)),
        );
    }
    let remarks = cells(&|node| remarks(node).join(", "));
    if remarks.iter().any(|remark| !remark.is_empty()) {
        table.column(Side::Wrapped, "notes", remarks);
    }
    table.write(lines);
    absences.write(lines);
}

/// The CPUs of a node; in their place, for a node that has none, what it is.
fn which_cpus(node: &Node, full: bool) -> String {
    match node.cpus.is_empty() {
        true => node_notes(node).join(", "),
        false if full => node.cpus.to_string(),
        false => fold_list(&node.cpus, LIST_COLUMNS),
    }
}

/// What the other columns do not say.
fn remarks(node: &Node) -> Vec<String> {
    let mut notes = node_notes(node);
    // A node without CPUs has its notes in their place; no memory shows in the memory column.
    notes.retain(|note| !node.cpus.is_empty() && note != NO_MEMORY);
    notes
}

fn cores_of(topology: &Topology, node: &Node) -> usize {
    let cores = topology.cores.iter();
    cores
        .filter(|core| core.cpus.intersects(&node.cpus))
        .count()
}

/// The id of the node's package, or how many it spans.
fn packages_of(topology: &Topology, node: &Node) -> String {
    let mut packages = topology
        .packages
        .iter()
        .filter(|package| package.cpus.intersects(&node.cpus));
    match (packages.next(), packages.count()) {
        (None, _) => "-".to_owned(),
        (Some(package), 0) => match package.id.filter(|_| package.grouped_by != GroupedBy::Mask) {
            Some(id) => id.to_string(),
            None => "n/a".to_owned(),
        },
        (Some(_), more) => format!("{} ids", more + 1),
    }
}

fn used_share(node: &Node) -> String {
    used_percent(node).unwrap_or_else(|| "-".to_owned())
}

/// `2 (11)`: the nearest other nodes and their distance.
fn nearest(topology: &Topology, node: &Node) -> String {
    match distance::nearest(topology, node.id) {
        Some((nodes, _)) if nodes.len() > 1 && nodes.len() + 1 == topology.nodes.len() => {
            "all alike".to_owned()
        }
        Some((nodes, distance)) => format!("{} ({distance})", fold_list(&nodes, 12)),
        None => "-".to_owned(),
    }
}

/// Reasons why cells of the table are empty, each said once.
#[derive(Debug, Default)]
struct Absences {
    /// Columns that no node has.
    whole: Vec<(&'static str, String)>,
    /// Reasons of single cells; the position is the mark.
    marked: Vec<String>,
}

const MARKS: [char; 9] = ['¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

impl Absences {
    /// Adds a column of amounts; none and false when no node has one, all for the same reason.
    fn column(&mut self, table: &mut Table, head: &'static str, cells: &[Reading<Bytes>]) -> bool {
        let why = cells.first().and_then(Reading::why);
        if let Some(why) = why.filter(|why| cells.iter().all(|cell| cell.why() == Some(why))) {
            self.whole.push((head, why.to_owned()));
            return false;
        }
        let texts = cells.iter().map(|cell| match cell {
            Reading::Known(Bytes(0)) => "none".to_owned(),
            Reading::Known(size) => size.to_string(),
            Reading::Absent { why } => format!("n/a{}", self.mark(why)),
        });
        let texts = texts.collect();
        table.column(Side::Right, head, texts);
        true
    }

    /// The mark of a reason; beyond nine reasons there are no marks, only the reasons.
    fn mark(&mut self, why: &str) -> String {
        let known = self.marked.iter().position(|reason| reason == why);
        let index = known.unwrap_or_else(|| {
            self.marked.push(why.to_owned());
            self.marked.len() - 1
        });
        MARKS.get(index).map_or_else(String::new, char::to_string)
    }

    fn write(&self, lines: &mut Lines) {
        for (index, why) in self.marked.iter().enumerate() {
            let mark = MARKS.get(index).map_or_else(String::new, char::to_string);
            lines.paragraph(
                (Style::Faint, &mark),
                Style::Faint,
                &format!(" n/a ({why})"),
            );
        }
        for (head, why) in &self.whole {
            push_fact(lines, head, &format!("n/a of each node ({why})"));
        }
    }
}

fn push_kinds(lines: &mut Lines, topology: &Topology) {
    let kinds = kinds(topology);
    let cells = |cell: &dyn Fn(&Kind<'_>) -> String| kinds.iter().map(cell).collect::<Vec<_>>();
    let mut table = Table::default();
    let ids = |kind: &Kind<'_>| fold_list(&kind.ids(), LIST_COLUMNS);
    table.column(Side::Wrapped, "nodes", cells(&ids));
    table.column(
        Side::Right,
        "count",
        cells(&|kind| kind.nodes.len().to_string()),
    );
    let cpus = cells(&|kind| kind.first.cpus.len().to_string());
    table.column(Side::Right, "CPUs each", cpus);
    if !topology.cores.is_empty() {
        let cores = cells(&|kind| cores_of(topology, kind.first).to_string());
        table.column(Side::Right, "cores each", cores);
    }
    let total = cells(&|kind| span(kind, |node| &node.memory_total));
    table.column(Side::Right, "memory each", total);
    let free = cells(&|kind| span(kind, |node| &node.memory_free));
    table.column(Side::Right, "free each", free);
    let remarks = cells(&|kind| node_notes(kind.first).join(", "));
    if remarks.iter().any(|remark| !remark.is_empty()) {
        table.column(Side::Wrapped, "notes", remarks);
    }
    table.write(lines);
    lines.line(&[(Style::Faint, "--full lists each node")]);
}
