//! Which lines between nodes are drawn, and how.

use homenode_topology::{Distance, Topology};
use homenode_units::{NodeId, NodeMatrix};

use super::layout::{Anchor, Column, Group, ROW_GAP};
use super::pen::Pen;
use crate::distance;
use crate::short::{count, fold_list};

/// Up to here every pair of groups gets its line and number.
const GROUPS_LABELLED_MAX: usize = 4;
/// Up to here every pair of nodes gets its line and number, where groups cannot.
const NODES_LABELLED_MAX: usize = 4;
/// More lines than this are a tangle.
const EDGES_MAX: usize = 32;

/// What a line ends at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A group, by its position.
    Group(usize),
    Node(NodeId),
}

impl End {
    pub(super) const fn is_group(self) -> bool {
        matches!(self, Self::Group(_))
    }
}

/// A line between nodes with CPUs.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) from: End,
    pub(super) to: End,
    /// The distance; written on the line only where lines are few.
    pub(super) distance: String,
    pub(super) labelled: bool,
    /// Names for pages.
    pub(super) names: (String, String),
}

/// All lines between nodes with CPUs, and what is said instead of lines.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) edges: Vec<Edge>,
    /// The distance between any two nodes of each group, where it is one.
    pub(super) within: Vec<Option<String>>,
    /// Whether lines with numbers run between the nodes of a group.
    pub(super) inside_groups: bool,
    pub(super) remarks: Vec<String>,
}

/// Decides on the lines, and on the order of the groups that suits them.
pub(super) fn plan<'a>(topology: &Topology, groups: Vec<Group<'a>>) -> (Vec<Group<'a>>, Links) {
    let Some(matrix) = topology.distances.known() else {
        let mut links = Links::default();
        if let Some(why) = topology
            .distances
            .why()
            .filter(|_| topology.nodes.len() > 1)
        {
            links.remarks.push(format!("distances: n/a ({why})"));
        }
        return (groups, links);
    };
    let groups = arranged(matrix, groups);
    let within: Vec<Option<String>> = groups
        .iter()
        .map(|group| between(matrix, group, group))
        .collect();
    let few = groups.len() <= GROUPS_LABELLED_MAX;
    let edges = few.then(|| group_edges(matrix, &groups)).flatten();
    let links = match edges {
        Some(mut edges) => {
            let mut inside_groups = false;
            for (group, within) in groups.iter().zip(&within) {
                if within.is_none() && (2..=4).contains(&group.nodes.len()) {
                    edges.extend(node_edges(matrix, group));
                    inside_groups = true;
                }
            }
            Links {
                edges,
                within,
                inside_groups,
                remarks: Vec::new(),
            }
        }
        None => nearest_edges(matrix, &groups, within),
    };
    (groups, links)
}

/// The one distance between the nodes of two groups, or within one.
fn between(matrix: &NodeMatrix<Distance>, a: &Group<'_>, b: &Group<'_>) -> Option<String> {
    let pairs = a
        .nodes
        .iter()
        .flat_map(|from| b.nodes.iter().map(move |to| (from.id, to.id)));
    let mut texts = pairs
        .filter(|(from, to)| from != to)
        .map(|(from, to)| pair_text(matrix, from, to));
    let first = texts.next()??;
    texts
        .all(|text| text.as_ref() == Some(&first))
        .then_some(first)
}

/// The distance of a pair: one number, or both where the directions differ.
fn pair_text(matrix: &NodeMatrix<Distance>, from: NodeId, to: NodeId) -> Option<String> {
    let there = matrix.get(from, to).filter(|distance| distance.0 != 0)?;
    let back = matrix.get(to, from).filter(|distance| distance.0 != 0)?;
    match there == back {
        true => Some(there.to_string()),
        false => Some(format!("{there} / {back}")),
    }
}

/// Four groups stand at the corners of a square; the farthest pairs take the diagonals, so that
/// the sides of the square are its short ways.
fn arranged<'a>(matrix: &NodeMatrix<Distance>, groups: Vec<Group<'a>>) -> Vec<Group<'a>> {
    if groups.len() != 4 {
        return groups;
    }
    let far = |a: usize, b: usize| {
        let ids = groups[a].nodes.first().zip(groups[b].nodes.first());
        ids.and_then(|(a, b)| matrix.get(a.id, b.id))
            .map_or(0, |distance| distance.0)
    };
    // Positions are: top left, bottom left, top right, bottom right.
    let orders = [[0, 1, 2, 3], [0, 1, 3, 2], [0, 2, 3, 1]];
    let diagonals = |order: &[usize; 4]| far(order[0], order[3]) + far(order[1], order[2]);
    let mut best = orders[0];
    for order in orders {
        if diagonals(&order) > diagonals(&best) {
            best = order;
        }
    }
    let mut groups: Vec<Option<Group<'a>>> = groups.into_iter().map(Some).collect();
    best.iter()
        .filter_map(|&index| groups[index].take())
        .collect()
}

/// A line for each pair of groups; none where some pair has no single distance.
fn group_edges(matrix: &NodeMatrix<Distance>, groups: &[Group<'_>]) -> Option<Vec<Edge>> {
    let mut edges = Vec::new();
    for (a, from) in groups.iter().enumerate() {
        for (b, to) in groups.iter().enumerate().skip(a + 1) {
            let name = |group: &Group<'_>| match (&group.package, group.nodes.first()) {
                (Some(package), _) => package.clone(),
                (None, Some(node)) => node.id.to_string(),
                (None, None) => String::new(),
            };
            edges.push(Edge {
                from: End::Group(a),
                to: End::Group(b),
                distance: between(matrix, from, to)?,
                labelled: true,
                names: (name(from), name(to)),
            });
        }
    }
    Some(edges)
}

fn node_edge(from: NodeId, to: NodeId, distance: String, labelled: bool) -> Edge {
    Edge {
        from: End::Node(from),
        to: End::Node(to),
        distance,
        labelled,
        names: (from.to_string(), to.to_string()),
    }
}

fn node_edges(matrix: &NodeMatrix<Distance>, group: &Group<'_>) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (index, from) in group.nodes.iter().enumerate() {
        for to in &group.nodes[index + 1..] {
            if let Some(distance) = pair_text(matrix, from.id, to.id) {
                edges.push(node_edge(from.id, to.id, distance, true));
            }
        }
    }
    edges
}

/// Lines to the nearest nodes only, and a remark that says so.
fn nearest_edges(
    matrix: &NodeMatrix<Distance>,
    groups: &[Group<'_>],
    within: Vec<Option<String>>,
) -> Links {
    let ids: Vec<NodeId> = groups
        .iter()
        .flat_map(|group| group.nodes.iter().map(|node| node.id))
        .collect();
    let pairs = ids
        .iter()
        .enumerate()
        .flat_map(|(index, &from)| ids[index + 1..].iter().map(move |&to| (from, to)));
    let pairs: Vec<(NodeId, NodeId, Distance)> = pairs
        .filter_map(|(from, to)| Some((from, to, *matrix.get(from, to)?)))
        .filter(|(_, _, distance)| distance.0 != 0)
        .collect();
    let mut links = Links {
        within,
        ..Links::default()
    };
    // Where the frame of a group says how far its nodes are apart, lines would repeat it.
    let said = |from: NodeId, to: NodeId| {
        groups.iter().zip(&links.within).any(|(group, within)| {
            let has = |id| group.nodes.iter().any(|node| node.id == id);
            within.is_some() && has(from) && has(to)
        })
    };
    let unsaid = pairs.iter().filter(|pair| !said(pair.0, pair.1));
    let Some(least) = unsaid.clone().map(|pair| pair.2).min() else {
        return links;
    };
    let near = unsaid.clone().filter(|pair| pair.2 == least);
    if ids.len() <= NODES_LABELLED_MAX {
        let edges = unsaid.filter_map(|&(from, to, _)| {
            Some(node_edge(from, to, pair_text(matrix, from, to)?, true))
        });
        links.edges = edges.collect();
    } else if pairs.iter().all(|pair| pair.2 == least) {
        let nodes = count(ids.len(), "node");
        let remark = format!("any two of the {nodes} are {least} apart");
        links.remarks.push(remark);
    } else if near.clone().count() > EDGES_MAX {
        let pairs = count(near.count(), "pair");
        let remark = format!("{pairs} are {least} apart, the nearest there are");
        links.remarks.push(remark);
    } else {
        let remark = format!("lines connect nodes that are {least} apart, the nearest ones");
        links.remarks.push(remark);
        let near = near.map(|&(from, to, least)| node_edge(from, to, least.to_string(), false));
        links.edges = near.collect();
    }
    links.inside_groups = !links.edges.is_empty() && links.within.iter().any(Option::is_none);
    links
}

/// What the distances of a large machine say, a sentence for each.
pub(super) fn hierarchy(matrix: &NodeMatrix<Distance>) -> Vec<String> {
    let classes = distance::classes(matrix);
    let sentences = classes.iter().map(|class| {
        let groups = class
            .groups
            .iter()
            .take(3)
            .map(|group| fold_list(group, 12));
        let mut names: Vec<String> = groups.collect();
        if class.groups.len() > names.len() {
            names.push("…".to_owned());
        }
        let pairs = class.pairs;
        match class.groups.len() {
            1 => format!("{}: {pairs} pairs, all nodes", class.distance),
            number => {
                let groups = count(number, "group");
                format!(
                    "{}: {pairs} pairs, {groups} ({})",
                    class.distance,
                    names.join(", ")
                )
            }
        }
    });
    sentences.collect()
}

impl Edge {
    pub(super) fn draw(&self, pen: &mut Pen, way: &Way) {
        let title = format!("{} to {}: {}", self.names.0, self.names.1, self.distance);
        let class = if self.labelled { "link wide" } else { "link" };
        pen.open_pair(class, &self.names.0, &self.names.1, &title);
        pen.path(way.from, way.bulge, way.to);
        if self.labelled {
            pen.tag(way.tag, &self.distance);
        }
        pen.close();
    }
}

type Point = (i32, i32);

/// How a line runs.
#[derive(Debug)]
pub(super) struct Way {
    from: Point,
    /// The control point of a quadratic curve.
    bulge: Option<Point>,
    to: Point,
    /// Where its number stands.
    tag: Point,
}

impl Way {
    /// The point after so many hundredths of the way.
    #[cfg(test)]
    pub(super) fn at(&self, hundredths: i32) -> Point {
        let (t, rest) = (hundredths, 100 - hundredths);
        let middle = (
            i32::midpoint(self.from.0, self.to.0),
            i32::midpoint(self.from.1, self.to.1),
        );
        let bulge = self.bulge.unwrap_or(middle);
        let mix =
            |a: i32, b: i32, c: i32| (rest * rest * a + 2 * rest * t * b + t * t * c) / 10_000;
        (
            mix(self.from.0, bulge.0, self.to.0),
            mix(self.from.1, bulge.1, self.to.1),
        )
    }
}

/// Finds the way of a line: across the channel, or along a column.
pub(super) fn route(from: &Anchor, to: &Anchor) -> Way {
    let inner = |anchor: &Anchor| match anchor.column {
        Column::Left => (anchor.rect.right(), anchor.rect.middle().1),
        Column::Right => (anchor.rect.x, anchor.rect.middle().1),
    };
    if from.column != to.column {
        let (a, b) = (inner(from), inner(to));
        // Diagonals meet in the middle of the channel: their numbers stand before it.
        let third = |a: i32, b: i32| a + (b - a) * 3 / 10;
        let tag = match from.row == to.row {
            true => (i32::midpoint(a.0, b.0), i32::midpoint(a.1, b.1)),
            false => (third(a.0, b.0), third(a.1, b.1)),
        };
        return Way {
            from: a,
            bulge: None,
            to: b,
            tag,
        };
    }
    let (upper, lower) = match from.rect.y <= to.rect.y {
        true => (from, to),
        false => (to, from),
    };
    let rows = lower.row - upper.row;
    // Groups of several nodes are neighbours where nothing but the gap is between them.
    if rows == 1 || lower.rect.y - upper.rect.bottom() <= ROW_GAP {
        let a = (upper.rect.middle().0, upper.rect.bottom());
        let b = (lower.rect.middle().0, lower.rect.y);
        return Way {
            from: a,
            bulge: None,
            to: b,
            tag: (a.0, i32::midpoint(a.1, b.1)),
        };
    }
    let (a, b) = (inner(upper), inner(lower));
    let reach = 50 + 22 * rows;
    let x = match from.column {
        Column::Left => a.0 + reach,
        Column::Right => a.0 - reach,
    };
    let middle = i32::midpoint(a.1, b.1);
    Way {
        from: a,
        bulge: Some((x, middle)),
        to: b,
        // A quadratic curve passes half-way between its chord and its control point.
        tag: (i32::midpoint(a.0, x), middle),
    }
}
