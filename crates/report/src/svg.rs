//! A machine as a drawing.
//!
//! Nodes with CPUs are boxes in two columns with a channel between them, grouped by package. So
//! every line between two of them crosses the channel or runs along a column, and none is hidden
//! behind a box. Lines carry the firmware's distances where that stays readable: all of them
//! between up to four packages whose nodes are equally far, else only those to the nearest nodes.
//! The complete matrix stands beside. Nodes without CPUs and devices hang on the outer side of
//! the node they are nearest to.
//!
//! More than 16 nodes with CPUs become one box for each kind of node, and the matrix shows the
//! rest.

mod content;
mod edges;
mod figures;
mod heat;
mod layout;
mod pen;
mod style;

use homenode_topology::{Topology, Verdict};

use crate::short;
pub(crate) use figures::{Axis, Curve, Figures};
use layout::Layout;
use pen::{Font, Pen, Rect, fit};

/// Draws a machine as one SVG element that needs nothing else: no scripts, no fonts, no files.
///
/// It can stand alone or inside an HTML page. All styles are bound to the class
/// `homenode-topology` of the root, follow the reader's light or dark theme, and tell things apart
/// by shape and words as well as by colour. For pages that style or script it:
///
/// | element | id | class |
/// |---|---|---|
/// | node | `node-3` (a kind of nodes: `nodes-0`) | `node`, with `cpuless`, `memoryless` |
/// | devices of a node, of no known node | `devices-3`, `devices-unknown` | `devices` |
/// | package | `package-0` | `package` |
/// | line | | `link`, with `data-from` and `data-to` |
/// | cell of the matrix | | `cell`, with `data-from` and `data-to` (a list, above 20 nodes) |
///
/// Each has a `<title>`, which browsers show on hover.
#[must_use]
pub fn topology_svg(topology: &Topology, verdict: &Verdict) -> String {
    let layout = Layout::new(topology);
    let mut pen = Pen::default();
    let heading = heading(&mut pen, topology, verdict, layout.width);
    pen.shift(0, heading);
    layout.draw(&mut pen, topology);
    pen.close();
    let height = heading + layout.height;
    let legend = legend(&mut pen, topology, layout.width, height);
    document(
        &verdict.headline,
        layout.width,
        height + legend,
        &pen.finish(),
    )
}

fn document(title: &str, width: i32, height: i32, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"homenode-topology\" role=\"img\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <title>{title}</title>\n<style>{css}</style>\n\
         <defs><pattern id=\"homenode-hatch\" width=\"6\" height=\"6\" \
         patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern></defs>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n",
        title = pen::escape(title),
        css = style::CSS,
    )
}

/// The headline, with what the machine is; returns its height.
fn heading(pen: &mut Pen, topology: &Topology, verdict: &Verdict, width: i32) -> i32 {
    let room = width - 2 * layout::MARGIN;
    let columns = usize::try_from(room / Font::Headline.advance()).unwrap_or(1);
    let mut y = layout::MARGIN;
    for line in short::wrap(&verdict.headline, columns) {
        y += 20;
        pen.text(layout::MARGIN, y, Font::Headline, "", &line);
    }
    let name = topology.processor.model_name.known();
    let certainty = match short::certainty(verdict.certainty) {
        "cannot tell" => "other readings fit as well".to_owned(),
        word => format!("this is {word}"),
    };
    let facts = match name {
        Some(name) => format!("{certainty} · {name}"),
        None => certainty,
    };
    y += 18;
    pen.text(
        layout::MARGIN,
        y,
        Font::Text,
        "faint",
        &fit(&facts, room, Font::Text),
    );
    y + 14
}

/// What the colours mean, only those that occur; returns its height.
fn legend(pen: &mut Pen, topology: &Topology, width: i32, top: i32) -> i32 {
    let has_cpuless = topology
        .nodes
        .iter()
        .any(homenode_topology::Node::is_cpuless);
    let has_memoryless = topology
        .nodes
        .iter()
        .any(homenode_topology::Node::is_memoryless);
    let has_devices = topology
        .devices
        .known()
        .is_some_and(|devices| !devices.is_empty());
    let entries = [
        (true, "node", "node with CPUs and memory"),
        (has_cpuless, "node cpuless", "no CPUs"),
        (has_memoryless, "node memoryless", "no memory"),
        (has_devices, "devices", "devices"),
    ];
    let (mut x, mut y) = (layout::MARGIN, top + 8);
    for (_, class, words) in entries.into_iter().filter(|entry| entry.0) {
        let taken = 22 + Font::Text.width(words) + 18;
        if x > layout::MARGIN && x + taken > width - layout::MARGIN {
            (x, y) = (layout::MARGIN, y + 18);
        }
        pen.open(None, class, None);
        let shape = if class.contains("memoryless") {
            "gauge"
        } else {
            "body"
        };
        pen.rect(Rect::new(x, y, 16, 12), shape);
        pen.close();
        pen.text(x + 22, y + 10, Font::Text, "faint", words);
        x += taken;
    }
    y += 18;
    if topology.nodes.len() > 1 && topology.distances.known().is_some() {
        let room = width - 2 * layout::MARGIN;
        let words = "numbers on lines and in the matrix: distances that the firmware claims; 10 is \
                     local; nothing here was measured";
        for line in short::wrap(words, Font::Text.columns(room)) {
            pen.text(layout::MARGIN, y + 10, Font::Text, "faint", &line);
            y += 16;
        }
    }
    y - top + layout::MARGIN
}

#[cfg(test)]
mod tests;
