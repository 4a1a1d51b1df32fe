//! The matrix of distances as coloured cells.

use homenode_topology::Distance;
use homenode_units::{NodeId, NodeMatrix, NodeSet};

use super::pen::{Font, Pen, Rect, px};
use crate::distance;

/// Above and at the left of the cells: the title and the node ids.
const TITLE: i32 = 38;
/// Side of the whole matrix on large machines.
const SIDE_MAX: i32 = 512;
/// Steps of the colours between local and farthest.
const STEPS: usize = 6;

/// Where the matrix stands.
#[derive(Debug)]
pub(super) struct Heat {
    left: i32,
    top: i32,
    cell: i32,
    nodes: i32,
    /// Room for the node ids at the left.
    ids: i32,
}

impl Heat {
    pub(super) fn new(matrix: &NodeMatrix<Distance>, left: i32, top: i32) -> Self {
        let count = matrix.nodes().len();
        let cell = match count {
            ..=8 => 34,
            9..=16 => 28,
            17..=20 => 24,
            _ => (SIDE_MAX / px(count)).max(3),
        };
        let widest = matrix
            .nodes()
            .last()
            .map_or_else(String::new, ToString::to_string);
        Self {
            left,
            top,
            cell,
            nodes: px(count),
            ids: Font::Small.width(&widest) + 8,
        }
    }

    pub(super) fn right(&self) -> i32 {
        let title = Font::Text.width(Self::TITLE) + self.left;
        title.max(self.left + self.ids + self.cell * self.nodes)
    }

    pub(super) fn bottom(&self) -> i32 {
        let scale = if self.has_numbers() { 0 } else { 24 };
        self.top + TITLE + self.cell * self.nodes + scale
    }

    const TITLE: &'static str = "firmware distance, row to column";

    pub(super) fn draw(&self, pen: &mut Pen, matrix: &NodeMatrix<Distance>) {
        pen.open(Some("distances"), "matrix", None);
        pen.text(self.left, self.top + 12, Font::Text, "", Self::TITLE);
        let (left, top) = (self.left + self.ids, self.top + TITLE);
        // On small cells only every n-th node has its id, so that they do not touch.
        let every = usize::try_from((26 / self.cell).max(1)).unwrap_or(1);
        for (index, node) in matrix.nodes().iter().enumerate().step_by(every) {
            let offset = px(index) * self.cell + self.cell / 2;
            let id = node.to_string();
            pen.text(left + offset, top - 6, Font::Small, "faint middle", &id);
            pen.text(left - 6, top + offset + 3, Font::Small, "faint end", &id);
        }
        let steps: Vec<Distance> = distance::classes(matrix)
            .iter()
            .map(|class| class.distance)
            .collect();
        for (index, (from, row)) in (0..).zip(matrix.rows()) {
            let place = (left, top + index * self.cell);
            self.draw_row(pen, place, &steps, from, row, matrix.nodes());
        }
        if !self.has_numbers() {
            self.draw_scale(pen, &steps);
        }
        pen.close();
    }

    /// Whether cells are large enough for their number.
    const fn has_numbers(&self) -> bool {
        self.cell >= 18
    }

    /// What the colours mean, below a matrix without numbers.
    fn draw_scale(&self, pen: &mut Pen, steps: &[Distance]) {
        let mut x = self.left + self.ids;
        let y = self.top + TITLE + self.cell * self.nodes + 10;
        for &distance in steps {
            let words = distance.to_string();
            let taken = 16 + Font::Text.width(&words) + 12;
            let Some(step) = step(steps, distance, false).filter(|_| x + taken <= self.right())
            else {
                continue;
            };
            pen.open(None, &format!("cell step-{step}"), None);
            pen.rect(Rect::new(x, y, 12, 12), "");
            pen.close();
            pen.text(x + 16, y + 10, Font::Text, "faint", &words);
            x += taken;
        }
    }

    /// One row, a cell for each node; on large machines one for each run of equal distances, or
    /// the file would be ten times as large.
    fn draw_row(
        &self,
        pen: &mut Pen,
        (x, y): (i32, i32),
        steps: &[Distance],
        from: NodeId,
        row: &[Distance],
        nodes: &[NodeId],
    ) {
        let mut cells: Vec<(Option<usize>, Distance, Vec<NodeId>)> = Vec::new();
        for (&distance, &to) in row.iter().zip(nodes) {
            let step = step(steps, distance, from == to);
            match cells.last_mut() {
                Some(run) if !self.has_numbers() && (run.0, run.1) == (step, distance) => {
                    run.2.push(to);
                }
                _ => cells.push((step, distance, vec![to])),
            }
        }
        let mut x = x;
        for (step, distance, to) in cells {
            let rect = Rect::new(x, y, self.cell * px(to.len()), self.cell);
            x = rect.right();
            let to: NodeSet = to.into_iter().collect();
            self.draw_cell(
                pen,
                rect,
                distance,
                step,
                (&from.to_string(), &to.to_string()),
            );
        }
    }

    fn draw_cell(
        &self,
        pen: &mut Pen,
        rect: Rect,
        distance: Distance,
        step: Option<usize>,
        (from, to): (&str, &str),
    ) {
        let text = match distance {
            Distance(0) => "n/a".to_owned(),
            distance => distance.to_string(),
        };
        let size = if self.has_numbers() { "" } else { " tiny" };
        let class = match step {
            Some(step) => format!("cell step-{step}{size}"),
            // No colour: hatched.
            None => "cell".to_owned(),
        };
        pen.open_pair(&class, from, to, &format!("{from} to {to}: {text}"));
        pen.rect(rect, "");
        let font = if self.cell >= 28 {
            Font::Text
        } else {
            Font::Small
        };
        if font.width(&text) <= self.cell - 4 && self.has_numbers() && step.is_some() {
            let (x, y) = rect.middle();
            pen.text(x, y + 4, font, "middle", &text);
        }
        pen.close();
    }
}

/// The colour of a distance: local, then by its rank among the distances there are. Rank and not
/// value, because firmware's numbers are no ratios.
fn step(steps: &[Distance], distance: Distance, is_local: bool) -> Option<usize> {
    if distance.0 == 0 || distance == Distance::UNREACHABLE {
        return None;
    }
    if is_local {
        return Some(0);
    }
    let rank = steps.iter().position(|&step| step == distance)?;
    Some(match steps.len() {
        ..=1 => 2,
        // Spread over all colours; the farthest is always the darkest.
        count => 1 + rank * (STEPS - 1) / (count - 1),
    })
}
