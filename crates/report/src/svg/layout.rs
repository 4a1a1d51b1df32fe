//! Where everything stands.

use homenode_topology::{Device, GroupedBy, Node, Topology};
use homenode_units::{NodeId, Reading};

use super::content::Content;
use super::edges::{self, Edge, End, Links, Way};
use super::heat::Heat;
use super::pen::{Font, Pen, Rect, fit, px};
use crate::distance;
use crate::short::{kinds, wrap};

/// Blank around the drawing.
pub(super) const MARGIN: i32 = 24;
/// Room for a headline.
const WIDTH_MIN: i32 = 620;
const NODE_WIDTH: i32 = 236;
/// Boxes on the outer side: nodes without CPUs, devices.
const OUTER_WIDTH: i32 = 216;
/// Length of the lines to them.
const OUTER_GAP: i32 = 52;
const OUTER_ROW_GAP: i32 = 8;
/// Between the two columns, where lines cross; narrower where there are none.
const CHANNEL: i32 = 190;
const CHANNEL_EMPTY: i32 = 36;
/// Between boxes of a column that a line with a number connects.
pub(super) const ROW_GAP: i32 = 44;
const ROW_GAP_SMALL: i32 = 14;
const PACKAGE_PADDING: i32 = 12;
const PACKAGE_HEAD: i32 = 24;
/// More nodes with CPUs than this are drawn as kinds.
const NODES_MAX: usize = 16;

/// Nodes with CPUs that belong together: a package, or a node by itself.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// The package, where there is more in it than one node.
    pub(super) package: Option<String>,
    pub(super) nodes: Vec<&'a Node>,
}

/// A box with what is in it.
#[derive(Debug)]
pub(super) struct Placed<'a> {
    pub(super) rect: Rect,
    pub(super) content: Content<'a>,
}

/// On which side of the channel something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Left,
    Right,
}

/// What lines can end at.
#[derive(Debug)]
pub(super) struct Anchor {
    pub(super) end: End,
    pub(super) rect: Rect,
    pub(super) column: Column,
    /// Position in its column, counted over all boxes.
    pub(super) row: i32,
}

/// A line to something on the outer side.
#[derive(Debug)]
struct OuterLink {
    from: (i32, i32),
    to: (i32, i32),
    class: &'static str,
    ends: (String, String),
    label: String,
}

/// The whole drawing below its headline.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) boxes: Vec<Placed<'a>>,
    frames: Vec<(Rect, String, String)>,
    anchors: Vec<Anchor>,
    outer_links: Vec<OuterLink>,
    links: Links,
    heat: Option<Heat>,
    /// Top of the remarks below the boxes.
    remarks_top: i32,
}

impl<'a> Layout<'a> {
    pub(super) fn new(topology: &'a Topology) -> Self {
        let mut layout = Self {
            width: 0,
            height: 0,
            boxes: Vec::new(),
            frames: Vec::new(),
            anchors: Vec::new(),
            outer_links: Vec::new(),
            links: Links::default(),
            heat: None,
            remarks_top: 0,
        };
        if topology.cpu_nodes().count() > NODES_MAX {
            layout.place_kinds(topology);
        } else {
            layout.place_nodes(topology);
        }
        layout.place_rest(topology);
        layout
    }

    /// Two columns of groups, the outer boxes beside them.
    fn place_nodes(&mut self, topology: &'a Topology) {
        let groups = groups(topology);
        let (groups, links) = edges::plan(topology, groups);
        self.links = links;
        let framed = groups.iter().any(|group| group.package.is_some());
        let padding = if framed { PACKAGE_PADDING } else { 0 };
        let half = if groups.len() < 2 {
            0
        } else {
            groups.len().div_ceil(2)
        };
        let (left, right) = groups.split_at(half);
        let has_outer = |groups: &[Group<'_>]| {
            let mut nodes = groups.iter().flat_map(|group| &group.nodes);
            nodes.any(|node| !outer(topology, node).is_empty())
        };
        let outer_room = OUTER_WIDTH + OUTER_GAP;
        let mut x = MARGIN + padding;
        let mut bottom = 0;
        if !left.is_empty() {
            x += if has_outer(left) { outer_room } else { 0 };
            bottom = self.place_column(topology, left, x, Column::Left);
            x += NODE_WIDTH + 2 * padding;
            x += if self.links.edges.is_empty() {
                CHANNEL_EMPTY
            } else {
                CHANNEL
            };
        }
        bottom = bottom.max(self.place_column(topology, right, x, Column::Right));
        x += NODE_WIDTH + padding;
        x += if has_outer(right) { outer_room } else { 0 };
        (self.width, self.height) = (x + MARGIN, bottom);
    }

    /// Places groups under each other; returns where the column ends.
    fn place_column(
        &mut self,
        topology: &'a Topology,
        groups: &[Group<'a>],
        x: i32,
        column: Column,
    ) -> i32 {
        let (mut y, mut row) = (0, 0);
        let gap = if self.links.edges.is_empty() {
            ROW_GAP_SMALL
        } else {
            ROW_GAP
        };
        for group in groups {
            let top = y;
            let number = self
                .anchors
                .iter()
                .filter(|anchor| anchor.end.is_group())
                .count();
            if group.package.is_some() {
                y += PACKAGE_HEAD;
            }
            for (node, index) in group.nodes.iter().zip(0..) {
                if index > 0 {
                    y += if self.links.inside_groups {
                        ROW_GAP
                    } else {
                        ROW_GAP_SMALL
                    };
                }
                y += self.place_row(topology, node, (x, y), column, row);
                row += 1;
            }
            let mut frame = Rect::new(x, top, NODE_WIDTH, y - top);
            if let Some(package) = &group.package {
                y += PACKAGE_PADDING;
                frame.x -= PACKAGE_PADDING;
                frame.width += 2 * PACKAGE_PADDING;
                frame.height += PACKAGE_PADDING;
                let id = package.replace(' ', "-");
                let within = self.links.within.get(number).cloned().flatten();
                let head = match within {
                    Some(distance) => format!("{package} · {distance} between its nodes"),
                    None => package.clone(),
                };
                self.frames.push((frame, id, head));
            }
            self.anchors.push(Anchor {
                end: End::Group(number),
                rect: frame,
                column,
                row: row - 1,
            });
            y += gap;
        }
        y - if groups.is_empty() { 0 } else { gap }
    }

    /// A node with what hangs on it; returns the height.
    fn place_row(
        &mut self,
        topology: &'a Topology,
        node: &'a Node,
        (x, y): (i32, i32),
        column: Column,
        row: i32,
    ) -> i32 {
        let content = Content::node(topology, node, NODE_WIDTH);
        let outer = outer(topology, node);
        let gaps = OUTER_ROW_GAP * px(outer.len().saturating_sub(1));
        let stack: i32 = outer
            .iter()
            .map(|(content, ..)| content.height())
            .sum::<i32>()
            + gaps;
        let height = content.height().max(stack);
        let rect = Rect::new(
            x,
            y + (height - content.height()) / 2,
            NODE_WIDTH,
            content.height(),
        );
        let (outer_x, from_x, to_x) = match column {
            Column::Left => (x - OUTER_GAP - OUTER_WIDTH, x, x - OUTER_GAP),
            Column::Right => (
                rect.right() + OUTER_GAP,
                rect.right(),
                rect.right() + OUTER_GAP,
            ),
        };
        let mut outer_y = y + (height - stack) / 2;
        for (content, class, label) in outer {
            let place = Rect::new(outer_x, outer_y, OUTER_WIDTH, content.height());
            outer_y += content.height() + OUTER_ROW_GAP;
            self.outer_links.push(OuterLink {
                from: (from_x, rect.middle().1),
                to: (to_x, place.middle().1),
                class,
                ends: (node.id.to_string(), content.id.clone()),
                label,
            });
            self.boxes.push(Placed {
                rect: place,
                content,
            });
        }
        self.anchors.push(Anchor {
            end: End::Node(node.id),
            rect,
            column,
            row,
        });
        self.boxes.push(Placed { rect, content });
        height
    }

    fn place_kinds(&mut self, topology: &'a Topology) {
        let mut y = 0;
        for kind in kinds(topology) {
            let content = Content::kind(&kind, NODE_WIDTH);
            let rect = Rect::new(MARGIN, y, NODE_WIDTH, content.height());
            y = rect.bottom() + ROW_GAP_SMALL;
            self.boxes.push(Placed { rect, content });
        }
        (self.width, self.height) = (2 * MARGIN + NODE_WIDTH, y);
        if let Reading::Known(matrix) = &topology.distances {
            self.links.remarks = edges::hierarchy(matrix);
        }
    }

    /// The matrix at the right; below the boxes what hangs on no node that is drawn, and remarks.
    fn place_rest(&mut self, topology: &'a Topology) {
        let mut y = self.height + 18;
        for content in unplaced(topology, topology.cpu_nodes().count() > NODES_MAX) {
            let rect = Rect::new(MARGIN, y, OUTER_WIDTH, content.height());
            y = rect.bottom() + OUTER_ROW_GAP;
            self.boxes.push(Placed { rect, content });
        }
        self.width = self.width.max(WIDTH_MIN);
        self.remarks_top = y;
        let room = self.width - 2 * MARGIN;
        let remarks = self.links.remarks.iter();
        let remarks = remarks.flat_map(|remark| wrap(remark, Font::Text.columns(room)));
        self.links.remarks = remarks.collect();
        self.height = y + 16 * px(self.links.remarks.len()) + 6;
        if let Some(matrix) = topology
            .distances
            .known()
            .filter(|matrix| matrix.nodes().len() > 2)
        {
            let heat = Heat::new(matrix, self.width + 8, 0);
            self.width = heat.right() + MARGIN;
            self.height = self.height.max(heat.bottom() + 8);
            self.heat = Some(heat);
        }
    }

    pub(super) fn draw(&self, pen: &mut Pen, topology: &Topology) {
        for (rect, id, head) in &self.frames {
            pen.open(Some(id), "package", Some(head));
            pen.rect(*rect, "");
            let head = fit(head, rect.width - 2 * PACKAGE_PADDING, Font::Text);
            pen.text(
                rect.x + PACKAGE_PADDING,
                rect.y + 16,
                Font::Text,
                "faint",
                &head,
            );
            pen.close();
        }
        for edge in &self.links.edges {
            self.draw_edge(pen, edge);
        }
        for link in &self.outer_links {
            let title = format!("{} to {}: {}", link.ends.0, link.ends.1, link.label);
            pen.open_pair(link.class, &link.ends.0, &link.ends.1, &title);
            pen.path(link.from, None, link.to);
            if !link.label.is_empty() {
                let (from, to) = (link.from, link.to);
                // Nearer to the outer box, where lines to several boxes have spread.
                let at = (
                    from.0 + (to.0 - from.0) * 3 / 5,
                    from.1 + (to.1 - from.1) * 3 / 5,
                );
                pen.tag(at, &link.label);
            }
            pen.close();
        }
        for placed in &self.boxes {
            placed.content.draw(pen, placed.rect);
        }
        for (remark, index) in self.links.remarks.iter().zip(0..) {
            let y = self.remarks_top + 12 + 16 * index;
            pen.text(MARGIN, y, Font::Text, "faint", remark);
        }
        if let (Some(heat), Some(matrix)) = (&self.heat, topology.distances.known()) {
            heat.draw(pen, matrix);
        }
    }

    fn draw_edge(&self, pen: &mut Pen, edge: &Edge) {
        if let Some(way) = self.way(edge) {
            edge.draw(pen, &way);
        }
    }

    fn way(&self, edge: &Edge) -> Option<Way> {
        let find = |end: End| self.anchors.iter().find(|anchor| anchor.end == end);
        Some(edges::route(find(edge.from)?, find(edge.to)?))
    }

    /// The ways of all lines between nodes with CPUs.
    #[cfg(test)]
    pub(super) fn ways(&self) -> Vec<Way> {
        self.links
            .edges
            .iter()
            .filter_map(|edge| self.way(edge))
            .collect()
    }
}

/// Nodes with CPUs, by package where the packages divide them.
fn groups(topology: &Topology) -> Vec<Group<'_>> {
    let alone = || {
        let nodes = topology.cpu_nodes();
        nodes.map(|node| Group {
            package: None,
            nodes: vec![node],
        })
    };
    let packages = &topology.packages;
    let by_ids = packages
        .iter()
        .all(|package| package.grouped_by != GroupedBy::Mask);
    let one_package = |node: &Node| {
        let around = packages
            .iter()
            .filter(|package| package.cpus.intersects(&node.cpus));
        around.count() == 1
    };
    if !by_ids || !topology.cpu_nodes().all(one_package) {
        return alone().collect();
    }
    let groups = packages.iter().map(|package| {
        let nodes = topology.cpu_nodes();
        let nodes = nodes.filter(|node| package.cpus.intersects(&node.cpus));
        let id = package.id.map_or_else(String::new, |id| format!(" {id}"));
        Group {
            package: Some(format!("package{id}")),
            nodes: nodes.collect(),
        }
    });
    let groups: Vec<Group<'_>> = groups.filter(|group| !group.nodes.is_empty()).collect();
    // A frame around each single node would say nothing.
    match groups.iter().all(|group| group.nodes.len() == 1) {
        true => alone().collect(),
        false => groups,
    }
}

/// What hangs on a node: the nodes without CPUs that are nearest to it, and its devices, each with
/// the class and the words of the line to it.
fn outer<'a>(topology: &'a Topology, node: &Node) -> Vec<(Content<'a>, &'static str, String)> {
    let cpuless = topology
        .nodes
        .iter()
        .filter(|other| other.is_cpuless() && home(topology, other) == Some(node.id));
    let mut outer: Vec<_> = cpuless
        .map(|other| {
            let distance = distance::nearest(topology, other.id);
            let label = distance.map_or_else(String::new, |(_, distance)| distance.to_string());
            (
                Content::node(topology, other, OUTER_WIDTH),
                "link outer",
                label,
            )
        })
        .collect();
    let devices = devices_at(topology, Some(node.id));
    if !devices.is_empty() {
        let content = Content::devices(Some(node.id.0), &devices);
        outer.push((content, "link device", String::new()));
    }
    outer
}

/// The node with CPUs at which a node without CPUs is drawn.
fn home(topology: &Topology, node: &Node) -> Option<NodeId> {
    let nearest = node.nearest_cpu_nodes.iter();
    let mut with_cpus =
        nearest.filter(|&id| topology.node(id).is_some_and(|home| !home.is_cpuless()));
    with_cpus.next()
}

fn devices_at(topology: &Topology, place: Option<NodeId>) -> Vec<&Device> {
    let devices = topology.devices.known().into_iter().flatten();
    devices
        .filter(|device| match (device.node.known(), place) {
            (Some(&node), Some(place)) => node == place,
            // A node that is not there is as good as none.
            (Some(&node), None) => topology.node(node).is_none(),
            (None, place) => place.is_none(),
        })
        .collect()
}

/// Boxes without a place in the columns: nodes whose nearest CPUs nobody knows, devices of nodes
/// without CPUs and of no known node.
fn unplaced(topology: &Topology, folded: bool) -> Vec<Content<'_>> {
    let mut contents = Vec::new();
    for node in &topology.nodes {
        let is_drawn = folded || !node.is_cpuless() || home(topology, node).is_some();
        if !is_drawn {
            contents.push(Content::node(topology, node, OUTER_WIDTH));
        }
        let devices = devices_at(topology, Some(node.id));
        if !devices.is_empty() && (folded || node.is_cpuless()) {
            contents.push(Content::devices(Some(node.id.0), &devices));
        }
    }
    let unknown = devices_at(topology, None);
    if !unknown.is_empty() {
        contents.push(Content::devices(None, &unknown));
    }
    contents
}
