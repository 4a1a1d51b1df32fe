//! A table with a column per node, and how it becomes lines.

use std::io::{self, Write};

use homenode_units::NodeId;

use super::amount::{ByteCount, megabytes_with_decimals, whole_megabytes};
use super::args::{Look, SortKey};

/// A line of a table. Cells stand in the order of the nodes; an empty one has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// As it is printed; bytes, as a process may have any name.
    pub(super) label: Vec<u8>,
    pub(super) cells: Vec<Option<ByteCount>>,
}

/// What kind of table it is: this decides widths, lines of dashes, and the form of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Page counts, no totals.
    Bare,
    /// Megabytes of the whole system.
    System,
    /// Megabytes of processes, with a row of totals; the heading of the labels, if any.
    Processes { heading: &'static str },
}

/// A table, as it was read.
#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    pub(super) kind: Kind,
    pub(super) nodes: &'a [NodeId],
    pub(super) rows: Vec<Row>,
}

/// The widest a column of numbers gets; a longer number loses its end.
const NUMBER_WIDTH: usize = 16;
const LABEL_WIDTH: usize = 16;
/// Process tables: between these, as the longest label needs.
const PROCESS_LABEL_WIDTHS: (usize, usize) = (17, 24);

/// Texts of a table, ready to be laid out.
struct Sheet {
    heading: &'static [u8],
    labels: Vec<Vec<u8>>,
    label_width: usize,
    columns: Vec<Column>,
    /// Whether the last row is a total, under a line of dashes.
    has_total_row: bool,
    has_dashes: bool,
}

struct Column {
    heading: String,
    /// By row.
    cells: Vec<String>,
    width: usize,
}

impl Table<'_> {
    /// Prints the table in blocks no wider than `line_width`, without a title.
    pub(super) fn print(
        mut self,
        look: Look,
        line_width: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if self.rows.is_empty() {
            return writeln!(out, "Table has no data.");
        }
        let label_width = self.label_width(look.compact);
        self.sort(look.sort);
        if look.skip_zeros {
            self.rows.retain(|row| row.cells.iter().any(is_some_memory));
            if self.rows.is_empty() {
                return writeln!(out, "Table has no non-zero data.");
            }
        }
        self.into_sheet(look, label_width).print(line_width, out)
    }

    /// Rows of zeros count, whether they are shown or not.
    fn label_width(&self, compact: bool) -> usize {
        let labels = self.rows.iter().map(|row| row.label.len());
        let longest = labels.max().unwrap_or_default().max("Total".len()) + 1;
        let (smallest, largest) = PROCESS_LABEL_WIDTHS;
        match self.kind {
            Kind::Bare => LABEL_WIDTH,
            _ if compact => longest.min(LABEL_WIDTH),
            Kind::System => LABEL_WIDTH,
            Kind::Processes { .. } => longest.clamp(smallest, largest),
        }
    }

    /// By a node that is not here: by the total, as upstream does.
    fn sort(&mut self, key: Option<SortKey>) {
        let Some(key) = key else { return };
        let column = match key {
            SortKey::Total => None,
            SortKey::Node(node) => self.nodes.iter().position(|&here| here == node),
        };
        let amount = |row: &Row| match column {
            Some(column) => row.cells.get(column).copied().flatten().unwrap_or(0),
            None => sum(&row.cells),
        };
        let mut keyed: Vec<(ByteCount, Row)> =
            self.rows.drain(..).map(|row| (amount(&row), row)).collect();
        select_largest_first(&mut keyed);
        self.rows.extend(keyed.into_iter().map(|(_, row)| row));
    }

    fn into_sheet(self, look: Look, label_width: usize) -> Sheet {
        let (heading, has_total_row) = match self.kind {
            Kind::Bare | Kind::System => ("", false),
            Kind::Processes { heading } => (heading, true),
        };
        let has_totals = self.kind != Kind::Bare;
        let mut columns: Vec<(String, Vec<Option<ByteCount>>)> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let cells: Vec<_> = self
                .rows
                .iter()
                .map(|row| row.cells.get(at).copied().flatten())
                .collect();
            if look.skip_zeros && !cells.iter().any(is_some_memory) {
                continue;
            }
            let word = if has_totals { "Node " } else { "node" };
            columns.push((format!("{word}{node}"), cells));
        }
        if has_totals {
            let totals = self.rows.iter().map(|row| Some(sum(&row.cells)));
            columns.push(("Total".to_owned(), totals.collect()));
        }
        let mut labels: Vec<Vec<u8>> = self.rows.into_iter().map(|row| row.label).collect();
        if has_total_row {
            labels.push(b"Total".to_vec());
            for (_, cells) in &mut columns {
                cells.push(Some(sum(cells)));
            }
        }
        Sheet {
            heading: heading.as_bytes(),
            label_width,
            labels,
            columns: columns
                .into_iter()
                .map(|(heading, cells)| Column::new(heading, &cells, self.kind, look.compact))
                .collect(),
            has_total_row,
            has_dashes: has_totals,
        }
    }
}

/// Swaps the largest of the rest to the front, over and over: not stable, so that equal rows
/// come in the order in which upstream has them (120 random tables against 2.0.19).
fn select_largest_first<T>(rows: &mut [(ByteCount, T)]) {
    for first in 0..rows.len() {
        let mut largest = first;
        for at in first + 1..rows.len() {
            if rows[at].0 > rows[largest].0 {
                largest = at;
            }
        }
        rows.swap(first, largest);
    }
}

fn is_some_memory(cell: &Option<ByteCount>) -> bool {
    cell.is_some_and(|bytes| bytes > 0)
}

fn sum(cells: &[Option<ByteCount>]) -> ByteCount {
    cells
        .iter()
        .flatten()
        .fold(0, |sum: ByteCount, &cell| sum.saturating_add(cell))
}

impl Column {
    fn new(heading: String, cells: &[Option<ByteCount>], kind: Kind, compact: bool) -> Self {
        let form = |cell: &Option<ByteCount>| match (cell, kind) {
            (None, _) => String::new(),
            (Some(pages), Kind::Bare) => pages.to_string(),
            (Some(bytes), _) if compact => whole_megabytes(*bytes),
            (Some(bytes), _) => megabytes_with_decimals(*bytes),
        };
        let cells: Vec<String> = cells.iter().map(form).collect();
        let width = if compact {
            let longest = cells.iter().map(String::len).max().unwrap_or_default();
            (longest.max(heading.len()) + 1).min(NUMBER_WIDTH)
        } else {
            NUMBER_WIDTH
        };
        Self {
            heading,
            cells,
            width,
        }
    }

    /// A text at the right end of the column.
    fn place(&self, text: &str) -> String {
        let kept = text.get(..self.width).unwrap_or(text);
        format!("{kept:>width$}", width = self.width)
    }

    fn dashes(&self) -> String {
        self.place(&"-".repeat(self.width.saturating_sub(1)))
    }
}

impl Sheet {
    /// As many columns side by side as fit, at least one; the labels stand before each block.
    fn print(&self, line_width: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut rest = self.columns.as_slice();
        let mut is_first = true;
        while !rest.is_empty() {
            let mut width = self.label_width;
            let fitting = rest.iter().take_while(|column| {
                width += column.width;
                width <= line_width
            });
            let (block, later) = rest.split_at(fitting.count().max(1));
            if !is_first {
                writeln!(out)?;
            }
            self.print_block(block, out)?;
            rest = later;
            is_first = false;
        }
        Ok(())
    }

    fn print_block(&self, block: &[Column], out: &mut dyn Write) -> io::Result<()> {
        self.print_label(self.heading, out)?;
        self.print_cells(block, |column| column.place(&column.heading), out)?;
        if self.has_dashes {
            self.print_dashes(!self.heading.is_empty(), block, out)?;
        }
        for (at, label) in self.labels.iter().enumerate() {
            if self.has_total_row && at + 1 == self.labels.len() {
                self.print_dashes(true, block, out)?;
            }
            self.print_label(label, out)?;
            self.print_cells(block, |column| column.place(&column.cells[at]), out)?;
        }
        Ok(())
    }

    fn print_dashes(
        &self,
        below_label: bool,
        block: &[Column],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let dashes = vec![b'-'; self.label_width - 1];
        self.print_label(if below_label { &dashes } else { b"" }, out)?;
        self.print_cells(block, Column::dashes, out)
    }

    fn print_label(&self, label: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let kept = &label[..label.len().min(self.label_width)];
        out.write_all(kept)?;
        out.write_all(&vec![b' '; self.label_width - kept.len()])
    }

    fn print_cells(
        &self,
        block: &[Column],
        text: impl Fn(&Column) -> String,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for column in block {
            out.write_all(text(column).as_bytes())?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
