//! Writes shapes and words as SVG.

use std::fmt::Write as _;

use crate::short::cut;

/// A box on the paper. Unit: CSS pixels, as all lengths here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) width: i32,
    pub(super) height: i32,
}

impl Rect {
    pub(super) const fn new(x: i32, y: i32, width: i32, height: i32) -> Self {
        Self {
            x,
            y,
            width,
            height,
        }
    }

    pub(super) const fn right(self) -> i32 {
        self.x + self.width
    }

    pub(super) const fn bottom(self) -> i32 {
        self.y + self.height
    }

    pub(super) const fn middle(self) -> (i32, i32) {
        (self.x + self.width / 2, self.y + self.height / 2)
    }
}

/// Sizes of letters.
///
/// All but the headline are set in the reader's monospaced font. That is what makes a promise about
/// the width of a text possible: every monospaced font in use advances 0.55 to 0.61 em a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Font {
    Small,
    Text,
    Head,
    Headline,
}

impl Font {
    /// Hundredths of a pixel that a letter takes at most; proportional bold letters are judged by
    /// the wide ones.
    const fn advance_hundredths(self) -> i32 {
        match self {
            Self::Small => 9 * 61,
            Self::Text => 11 * 61,
            Self::Head => 13 * 61,
            Self::Headline => 16 * 70,
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Text => "text",
            Self::Head => "head",
            Self::Headline => "headline",
        }
    }

    /// Pixels that a letter takes, rounded up.
    pub(super) const fn advance(self) -> i32 {
        (self.advance_hundredths() + 99) / 100
    }

    /// Pixels that a text takes at most.
    pub(super) fn width(self, text: &str) -> i32 {
        px(text.chars().count()) * self.advance_hundredths() / 100 + 1
    }

    /// Letters that fit.
    pub(super) fn columns(self, room: i32) -> usize {
        usize::try_from(room * 100 / self.advance_hundredths()).unwrap_or(0)
    }
}

/// A count as a length.
pub(super) fn px(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX / 1024)
}

/// A text cut to the room there is.
pub(super) fn fit(text: &str, room: i32, font: Font) -> String {
    cut(text, font.columns(room))
}

/// Text of a machine is foreign: what would end an element is escaped, and characters that XML 1.0
/// forbids are replaced.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&c) => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

fn join(points: &[(i32, i32)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
    points.join(" ")
}

/// Gathers the body of a drawing. Writing to a String cannot fail.
#[derive(Debug, Default)]
pub(super) struct Pen {
    body: String,
}

impl Pen {
    pub(super) fn finish(self) -> String {
        self.body
    }

    /// Starts a group; [`Self::close`] ends it.
    pub(super) fn open(&mut self, id: Option<&str>, class: &str, title: Option<&str>) {
        self.body.push_str("<g");
        if let Some(id) = id {
            let _ = write!(self.body, " id=\"{}\"", escape(id));
        }
        let _ = write!(self.body, " class=\"{class}\">");
        if let Some(title) = title {
            let _ = write!(self.body, "<title>{}</title>", escape(title));
        }
        self.body.push('\n');
    }

    /// Starts a group for a pair of things: `data-from` and `data-to` name them.
    pub(super) fn open_pair(&mut self, class: &str, from: &str, to: &str, title: &str) {
        let (from, to, title) = (escape(from), escape(to), escape(title));
        let _ = writeln!(
            self.body,
            "<g class=\"{class}\" data-from=\"{from}\" data-to=\"{to}\"><title>{title}</title>"
        );
    }

    /// Starts a group that is moved.
    pub(super) fn shift(&mut self, x: i32, y: i32) {
        let _ = writeln!(self.body, "<g transform=\"translate({x} {y})\">");
    }

    pub(super) fn close(&mut self) {
        self.body.push_str("</g>\n");
    }

    pub(super) fn rect(&mut self, rect: Rect, class: &str) {
        let Rect {
            x,
            y,
            width,
            height,
        } = rect;
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        );
    }

    /// A straight line, or a curve that bulges towards `(x, y)`.
    pub(super) fn path(&mut self, from: (i32, i32), bulge: Option<(i32, i32)>, to: (i32, i32)) {
        let ((ax, ay), (bx, by)) = (from, to);
        let way = match bulge {
            Some((x, y)) => format!("M{ax} {ay}Q{x} {y} {bx} {by}"),
            None => format!("M{ax} {ay}L{bx} {by}"),
        };
        let _ = writeln!(self.body, "<path d=\"{way}\"/>");
    }

    /// A line through points.
    pub(super) fn polyline(&mut self, points: &[(i32, i32)]) {
        let points = join(points);
        let _ = writeln!(self.body, "<polyline points=\"{points}\"/>");
    }

    /// A closed area.
    pub(super) fn polygon(&mut self, points: &[(i32, i32)]) {
        let points = join(points);
        let _ = writeln!(self.body, "<polygon points=\"{points}\"/>");
    }

    /// A small mark; six forms, so that curves differ without their colours.
    pub(super) fn marker(&mut self, (x, y): (i32, i32), form: usize) {
        let way = match form {
            0 => format!("M{} {}h6v6h-6z", x - 3, y - 3),
            1 => format!("M{x} {}l4 7h-8z", y - 4),
            2 => format!("M{x} {}l4 4l-4 4l-4 -4z", y - 4),
            3 => format!("M{x} {}l-4 -7h8z", y + 4),
            4 => format!("M{} {}h8v2h-8z", x - 4, y - 1),
            _ => format!("M{} {}h2v8h-2z", x - 1, y - 4),
        };
        let _ = writeln!(self.body, "<path d=\"{way}\"/>");
    }

    pub(super) fn text(&mut self, x: i32, y: i32, font: Font, class: &str, text: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.body,
            "<text class=\"{} {class}\" x=\"{x}\" y=\"{y}\">{text}</text>",
            font.class(),
        );
    }

    /// A number on a piece of paper of its own, so that it can be read on a line.
    pub(super) fn tag(&mut self, (x, y): (i32, i32), text: &str) {
        let width = Font::Text.width(text) + 8;
        self.rect(Rect::new(x - width / 2, y - 8, width, 16), "tag");
        self.text(x, y + 4, Font::Text, "middle", text);
    }
}
