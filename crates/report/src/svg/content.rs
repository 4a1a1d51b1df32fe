//! What stands inside a box.

use homenode_topology::{Cache, CpuGroup, Device, Node, Topology};
use homenode_units::{Bytes, Reading};

use super::pen::{Font, Pen, Rect, fit, px};
use crate::short::{
    Kind, NO_MEMORY, cache_name, count, device_kind, fold_list, node_notes, nodes_of, span,
    used_percent, wrap,
};

/// Blank between the edge of a box and what is in it.
pub(super) const PADDING: i32 = 10;
/// Distance from one line of text to the next.
const LINE: i32 = 16;
/// Height of the first line of a box, which holds its name.
const HEAD: i32 = 22;
const GAUGE: i32 = 14;
/// More cores or caches than this are a number, not shapes.
const CORES_MAX: usize = 32;
const CACHES_MAX: usize = 4;
const DEVICES_MAX: usize = 4;

/// One line of a box, top to bottom.
#[derive(Debug)]
enum Line<'a> {
    Words(String),
    /// A square per core, cut into its threads.
    Cores(Vec<&'a CpuGroup>),
    /// A strip per cache, each with its words, and whether it also serves another node.
    Caches(Vec<(String, bool)>),
    /// How much of the memory is in use, with words beside.
    Gauge {
        used_permille: i32,
        words: String,
    },
}

impl Line<'_> {
    const fn height(&self) -> i32 {
        match self {
            Self::Words(_) => LINE,
            Self::Cores(_) | Self::Caches(_) => LINE + 4,
            Self::Gauge { .. } => GAUGE + 6,
        }
    }
}

/// What a box says and shows.
#[derive(Debug)]
pub(super) struct Content<'a> {
    pub(super) id: String,
    pub(super) class: String,
    /// What hovering shows: the same in full.
    pub(super) title: String,
    head: String,
    /// Stands at the right end of the first line.
    aside: String,
    lines: Vec<Line<'a>>,
}

impl<'a> Content<'a> {
    /// A node; `width` is that of its box.
    pub(super) fn node(topology: &'a Topology, node: &'a Node, width: i32) -> Self {
        let room = Font::Text.columns(width - 2 * PADDING);
        let mut lines = Vec::new();
        let mut notes = node_notes(node);
        // The gauge says so.
        notes.retain(|note| note != NO_MEMORY);
        let notes = notes.join(", ");
        if node.cpus.is_empty() {
            lines.extend(wrap(&notes, room).into_iter().map(Line::Words));
        } else {
            let list = fold_list(&node.cpus, room.saturating_sub(5));
            lines.push(Line::Words(format!("CPUs {list}")));
            push_cores(&mut lines, topology, node);
            lines.extend(cache_strips(topology, node, width - 2 * PADDING));
            lines.extend(wrap(&notes, room).into_iter().map(Line::Words));
        }
        lines.push(gauge(node));
        let mut class = "node".to_owned();
        for (is_so, name) in [
            (node.is_cpuless(), " cpuless"),
            (node.is_memoryless(), " memoryless"),
        ] {
            class.push_str(if is_so { name } else { "" });
        }
        Self {
            id: format!("node-{}", node.id),
            class,
            title: node_title(node),
            head: format!("node {}", node.id),
            aside: amount(&node.memory_total),
            lines,
        }
    }

    /// Nodes that look the same, as one box.
    pub(super) fn kind(kind: &Kind<'_>, width: i32) -> Self {
        let room = Font::Text.columns(width - 2 * PADDING);
        let ids = fold_list(&kind.ids(), room.saturating_sub(6));
        let mut lines = vec![format!("nodes {ids}")];
        let notes = node_notes(kind.first).join(", ");
        if kind.first.cpus.is_empty() {
            lines.extend(wrap(&notes, room));
        } else {
            lines.push(format!("{} each", count(kind.first.cpus.len(), "CPU")));
            lines.extend(wrap(&notes, room));
        }
        let total = format!("{} each", span(kind, |node| &node.memory_total));
        let free = format!("{} free", span(kind, |node| &node.memory_free));
        lines.extend([total, free]);
        let class = if kind.first.is_cpuless() {
            "node cpuless"
        } else {
            "node"
        };
        Self {
            id: format!("nodes-{}", kind.first.id),
            class: class.to_owned(),
            title: format!("nodes {}", kind.ids()),
            head: count(kind.nodes.len(), "node"),
            aside: String::new(),
            lines: lines.into_iter().map(Line::Words).collect(),
        }
    }

    /// Devices that hang on one node, or on none that is known.
    pub(super) fn devices(place: Option<u32>, devices: &[&Device]) -> Self {
        let all = devices.iter().map(|device| {
            let names = device.names.join(" ");
            format!("{} {} {names}", device.address, device_kind(device.kind))
        });
        let all: Vec<String> = all.collect();
        let shown = devices.iter().take(DEVICES_MAX).map(|device| {
            let name = device.names.first().unwrap_or(&device.address);
            format!("{name} {}", device_kind(device.kind))
        });
        let mut lines: Vec<Line<'_>> = shown.map(Line::Words).collect();
        if devices.len() > DEVICES_MAX {
            let more = devices.len() - DEVICES_MAX;
            lines.push(Line::Words(format!("and {more} more")));
        }
        let number = count(devices.len(), "device");
        let (id, head) = match place {
            Some(node) => (
                format!("devices-{node}"),
                format!("{number} of node {node}"),
            ),
            None => (
                "devices-unknown".to_owned(),
                format!("{number}, node unknown"),
            ),
        };
        Self {
            id,
            class: "devices".to_owned(),
            title: all.join("\n"),
            head,
            aside: String::new(),
            lines,
        }
    }

    pub(super) fn height(&self) -> i32 {
        let lines: i32 = self.lines.iter().map(Line::height).sum();
        HEAD + lines + PADDING / 2 + 2
    }

    pub(super) fn draw(&self, pen: &mut Pen, rect: Rect) {
        pen.open(Some(&self.id), &self.class, Some(&self.title));
        pen.rect(rect, "body");
        let left = rect.x + PADDING;
        let room = rect.width - 2 * PADDING;
        let head = fit(
            &self.head,
            room - Font::Text.width(&self.aside) - 8,
            Font::Head,
        );
        pen.text(left, rect.y + 17, Font::Head, "", &head);
        pen.text(
            rect.right() - PADDING,
            rect.y + 17,
            Font::Text,
            "end",
            &self.aside,
        );
        let mut y = rect.y + HEAD;
        for line in &self.lines {
            line.draw(pen, Rect::new(left, y, room, line.height()));
            y += line.height();
        }
        pen.close();
    }
}

impl Line<'_> {
    fn draw(&self, pen: &mut Pen, rect: Rect) {
        match self {
            Self::Words(words) => {
                let words = fit(words, rect.width, Font::Text);
                pen.text(rect.x, rect.y + 12, Font::Text, "", &words);
            }
            Self::Cores(cores) => draw_cores(pen, rect, cores),
            Self::Caches(caches) => {
                let step = rect.width / px(caches.len()).max(1);
                for ((words, shared), index) in caches.iter().zip(0..) {
                    let strip = Rect::new(rect.x + index * step, rect.y + 1, step - 2, LINE);
                    pen.rect(strip, if *shared { "cache shared" } else { "cache" });
                    let words = fit(words, strip.width - 6, Font::Text);
                    pen.text(strip.middle().0, strip.y + 12, Font::Text, "middle", &words);
                }
            }
            Self::Gauge {
                used_permille,
                words,
            } => {
                let taken = Font::Text.width(words) + 8;
                let bar = Rect::new(rect.x, rect.y + 4, rect.width - taken, GAUGE - 4);
                pen.rect(bar, "gauge");
                let used = Rect {
                    width: bar.width * used_permille / 1000,
                    ..bar
                };
                if used.width > 0 {
                    pen.rect(used, "used");
                }
                pen.text(rect.x + rect.width, rect.y + 13, Font::Text, "end", words);
            }
        }
    }
}

/// Squares of at most 14 pixels, with a line between the threads of a core.
fn draw_cores(pen: &mut Pen, rect: Rect, cores: &[&CpuGroup]) {
    let step = (rect.width / px(cores.len()).max(1)).min(14);
    for (core, index) in cores.iter().zip(0..) {
        let threads = px(core.cpus.len()).max(1);
        let square = Rect::new(rect.x + index * step, rect.y + 3, step - 2, 12);
        pen.open(
            None,
            "core-of-node",
            Some(&format!("core: CPUs {}", core.cpus)),
        );
        for thread in 0..threads {
            // Threads lie on top of each other: half a narrow square could not be seen.
            let (top, bottom) = (12 * thread / threads, 12 * (thread + 1) / threads);
            let part = Rect::new(square.x, square.y + top, square.width, bottom - top);
            pen.rect(part, "core");
        }
        pen.close();
    }
}

fn push_cores<'a>(lines: &mut Vec<Line<'a>>, topology: &'a Topology, node: &Node) {
    let cores = topology.cores.iter();
    let cores: Vec<&CpuGroup> = cores
        .filter(|core| core.cpus.intersects(&node.cpus))
        .collect();
    let threads = cores.iter().map(|core| core.cpus.len()).max().unwrap_or(0);
    let words = match (cores.len(), threads) {
        (0, _) => count(node.cpus.len(), "CPU"),
        (number, 0 | 1) => count(number, "core"),
        (number, threads) => format!("{} of {threads} threads", count(number, "core")),
    };
    lines.push(Line::Words(words));
    if (1..=CORES_MAX).contains(&cores.len()) {
        lines.push(Line::Cores(cores));
    }
}

/// The last-level caches of a node: strips, or one strip with their number.
fn cache_strips<'a>(topology: &Topology, node: &Node, room: i32) -> Option<Line<'a>> {
    let level = topology.caches.iter().map(|cache| cache.level).max()?;
    let caches: Vec<&Cache> = topology
        .data_caches(level)
        .filter(|cache| cache.cpus.intersects(&node.cpus))
        .collect();
    let first = caches.first()?;
    let name = cache_name(first);
    let size = |cache: &Cache| {
        cache
            .size
            .known()
            .map_or("n/a".to_owned(), Bytes::to_string)
    };
    let strip = |cache: &&Cache| {
        let others: Vec<String> = nodes_of(topology, &cache.cpus)
            .iter()
            .filter(|&id| id != node.id)
            .map(|id| id.to_string())
            .collect();
        let words = format!("{name} {}", size(cache));
        match others.is_empty() {
            true => (words, false),
            false if others.len() == 1 => (format!("{words}, with node {}", others[0]), true),
            false => (format!("{words}, with nodes {}", others.join(",")), true),
        }
    };
    let strips: Vec<(String, bool)> = caches.iter().map(strip).collect();
    let each = room / px(strips.len()) - 8;
    let fits = strips
        .iter()
        .all(|(words, _)| Font::Text.width(words) <= each);
    if strips.len() <= CACHES_MAX && fits || strips.len() == 1 {
        return Some(Line::Caches(strips));
    }
    let shared = strips.iter().any(|(_, shared)| *shared);
    let same = caches.iter().all(|cache| cache.size == first.size);
    let words = match same {
        true => format!("{} × {name} {}", caches.len(), size(first)),
        false => format!("{} × {name}", caches.len()),
    };
    Some(Line::Caches(vec![(words, shared)]))
}

fn gauge<'a>(node: &Node) -> Line<'a> {
    if node.is_memoryless() {
        return Line::Gauge {
            used_permille: 0,
            words: NO_MEMORY.to_owned(),
        };
    }
    let both = node.memory_total.known().zip(node.memory_free.known());
    match both.zip(used_percent(node)) {
        Some(((&total, &free), percent)) => {
            let permille = u128::from((total - free).0) * 1000 / u128::from(total.0.max(1));
            Line::Gauge {
                used_permille: i32::try_from(permille).unwrap_or(1000),
                words: format!("{percent} used"),
            }
        }
        None => Line::Words("memory in use: n/a".to_owned()),
    }
}

fn amount(size: &Reading<Bytes>) -> String {
    match size {
        Reading::Known(Bytes(0)) => String::new(),
        Reading::Known(size) => size.to_string(),
        Reading::Absent { .. } => "size n/a".to_owned(),
    }
}

fn node_title(node: &Node) -> String {
    let cpus = match node.cpus.is_empty() {
        true => "none".to_owned(),
        false => node.cpus.to_string(),
    };
    let (total, free) = (&node.memory_total, &node.memory_free);
    let mut title = format!(
        "node {}\nCPUs: {cpus}\nmemory: {total}\nfree: {free}",
        node.id
    );
    for note in node_notes(node) {
        title.push('\n');
        title.push_str(&note);
    }
    title
}
