//! Lines of text that never exceed the width of the screen.

use crate::short::{columns, cut, wrap};
use std::borrow::Cow;

/// How a piece of text stands out. Colour never carries a meaning of its own: the words do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// As everything else.
    Plain,
    /// Headline and column heads.
    Strong,
    /// Labels and notes.
    Faint,
    /// All is well.
    Good,
    /// Worth a look.
    Caution,
    /// Something contradicts something.
    Bad,
}

impl Style {
    /// The SGR parameters (ECMA-48, 8.3.117); the sixteen basic colours follow the user's theme.
    fn codes(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Strong => Some("1"),
            Self::Faint => Some("2"),
            Self::Good => Some("32"),
            Self::Caution => Some("33"),
            Self::Bad => Some("31"),
        }
    }
}

/// Gathers finished lines.
#[derive(Debug)]
pub(super) struct Lines {
    text: String,
    width: usize,
    colour: bool,
}

/// Makes text from a machine safe for a terminal: a captured tree is foreign input, and a control
/// character could move the cursor or worse.
fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.replace(char::is_control, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

impl Lines {
    pub(super) fn new(width: usize, colour: bool) -> Self {
        Self {
            text: String::new(),
            width,
            colour,
        }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Ends a section: one empty line, never two.
    pub(super) fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// One line made of pieces; it is cut with `…` at the width.
    pub(super) fn line(&mut self, pieces: &[(Style, &str)]) {
        let mut left = self.width;
        let mut pending_blanks = String::new();
        for &(style, piece) in pieces {
            let piece = cut(&printable(piece), left);
            left -= columns(&piece);
            // Blanks at the end of a line are never written.
            let body = piece.trim_end_matches(' ');
            if body.is_empty() {
                pending_blanks.push_str(&piece);
                continue;
            }
            self.text.push_str(&pending_blanks);
            match style.codes().filter(|_| self.colour) {
                Some(codes) => {
                    self.text.push_str(&format!("\x1b[{codes}m{body}\x1b[0m"));
                }
                None => self.text.push_str(body),
            }
            pending_blanks = " ".repeat(columns(&piece) - columns(body));
        }
        self.text.push('\n');
    }

    /// A paragraph under a label: the first line follows it, the others are indented alike.
    pub(super) fn paragraph(&mut self, label: (Style, &str), style: Style, text: &str) {
        let indent = columns(label.1);
        let mut lines = wrap(&printable(text), self.width.saturating_sub(indent));
        if lines.is_empty() {
            lines.push(String::new());
        }
        for (index, line) in lines.iter().enumerate() {
            if index == 0 {
                self.line(&[label, (style, line)]);
            } else {
                self.line(&[(Style::Plain, &" ".repeat(indent)), (style, line)]);
            }
        }
    }
}

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
    /// Words that are wrapped when the table is too wide; what is left after the other columns is
    /// shared among these.
    Wrapped,
}

/// A table whose columns are as wide as their widest cell.
#[derive(Debug, Default)]
pub(super) struct Table {
    heads: Vec<(Side, String)>,
    rows: Vec<Vec<String>>,
}

/// Blanks between columns.
const COLUMN_GAP: usize = 2;
/// No wrapped column becomes narrower.
const WRAPPED_COLUMNS_MIN: usize = 10;

impl Table {
    /// Adds a column with all its cells, top to bottom.
    pub(super) fn column(&mut self, side: Side, head: &str, cells: Vec<String>) {
        self.heads.push((side, head.to_owned()));
        self.rows
            .resize_with(cells.len().max(self.rows.len()), Vec::new);
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            row.push(printable(&cell).into_owned());
        }
    }

    /// The widths of the columns, so that a row fits into `width` where that can be.
    fn widths(&self, width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = Vec::new();
        for (index, (_, head)) in self.heads.iter().enumerate() {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let widest = cells.map(|cell| columns(cell)).max().unwrap_or(0);
            widths.push(widest.max(columns(head)));
        }
        loop {
            let total: usize = widths.iter().sum();
            let gaps = COLUMN_GAP * widths.len().saturating_sub(1);
            if total + gaps <= width {
                return widths;
            }
            // Take from the widest column that can be wrapped, one at a time: it ends with all of
            // them equally wide, whatever their number.
            let wrapped = self.heads.iter().zip(&mut widths);
            let widest = wrapped
                .filter(|((side, _), width)| {
                    *side == Side::Wrapped && **width > WRAPPED_COLUMNS_MIN
                })
                .map(|(_, width)| width)
                .max();
            match widest {
                Some(widest) => *widest -= 1,
                None => return widths,
            }
        }
    }

    pub(super) fn write(&self, lines: &mut Lines) {
        let widths = self.widths(lines.width());
        let heads: Vec<String> = self.heads.iter().map(|(_, head)| head.clone()).collect();
        self.write_row(lines, &widths, &heads, Style::Strong);
        for row in &self.rows {
            self.write_row(lines, &widths, row, Style::Plain);
        }
    }

    fn write_row(&self, lines: &mut Lines, widths: &[usize], row: &[String], style: Style) {
        let cells: Vec<Vec<Cow<'_, str>>> = row
            .iter()
            .zip(widths)
            .map(|(cell, &width)| {
                if columns(cell) <= width {
                    vec![Cow::Borrowed(cell.as_str())]
                } else {
                    wrap(cell, width).into_iter().map(Cow::Owned).collect()
                }
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let mut line = String::new();
        for index in 0..height {
            line.clear();
            for (((side, _), cell), &width) in self.heads.iter().zip(&cells).zip(widths) {
                let cell = cell.get(index).map_or("", |text| text);
                let blanks = width.saturating_sub(columns(cell));
                let (before, after) = match side {
                    Side::Right => (blanks, COLUMN_GAP),
                    Side::Left | Side::Wrapped => (0, blanks + COLUMN_GAP),
                };
                line.extend(std::iter::repeat_n(' ', before));
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', after));
            }
            lines.line(&[(style, line.trim_end())]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_captured_machine_do_not_reach_the_terminal() {
        let mut lines = Lines::new(40, false);
        lines.line(&[(Style::Plain, "evil\x1b[2Jname\r")]);
        assert_eq!(lines.finish(), "evil\u{fffd}[2Jname\u{fffd}\n");
    }

    #[test]
    fn a_line_is_cut_at_the_width_and_has_no_blanks_at_its_end() {
        let mut lines = Lines::new(8, false);
        lines.line(&[(Style::Strong, "abcd"), (Style::Plain, "efghijk")]);
        lines.line(&[(Style::Strong, "ab  "), (Style::Plain, "   ")]);
        lines.line(&[(Style::Plain, "a  "), (Style::Plain, "b")]);
        assert_eq!(lines.finish(), "abcdefg…\nab\na  b\n");
    }

    #[test]
    fn colour_wraps_words_and_takes_no_columns() {
        let mut lines = Lines::new(8, true);
        lines.line(&[(Style::Strong, "abcd "), (Style::Plain, "efg")]);
        assert_eq!(lines.finish(), "\x1b[1mabcd\x1b[0m efg\n");
    }

    #[test]
    fn a_table_shares_what_is_left_among_wrapped_columns() {
        let mut table = Table::default();
        table.column(Side::Right, "n", vec!["1".into(), "22".into()]);
        table.column(
            Side::Wrapped,
            "list",
            vec!["0-3,8-11,16-19,24-27".into(), "-".into()],
        );
        table.column(Side::Left, "x", vec!["a".into(), "b".into()]);
        let mut lines = Lines::new(19, false);
        table.write(&mut lines);
        let expected = " n  list          x
 1  0-3,8-11,     a
    16-19,24-27
22  -             b
";
        assert_eq!(lines.finish(), expected);
    }
}
