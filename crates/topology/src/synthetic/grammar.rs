//! Text to levels.

use homenode_units::Bytes;

use super::SyntheticError;
use super::indexes::{Indexes, parse_indexes};
use crate::CacheKind;
use crate::limits::SYNTHETIC_LEVEL_LIMIT;

/// What hwloc gives a node that says nothing.
const NODE_MEMORY: Bytes = Bytes(1 << 30);

/// A description, item by item.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) distances: Option<(DistanceText, Place)>,
    /// Nodes attached to the machine itself.
    pub(super) machine_nodes: Vec<AttachedNode>,
    /// From the outside in; never empty, the last is the PUs.
    pub(super) levels: Vec<Level>,
}

/// The item that something came from, for messages.
#[derive(Clone, Debug)]
pub(super) struct Place {
    item: String,
    position: usize,
}

impl Place {
    pub(super) fn error(&self, expected: impl Into<String>) -> SyntheticError {
        const SHOWN_CHARS: usize = 40;
        let mut item: String = self.item.chars().take(SHOWN_CHARS).collect();
        if self.item.chars().nth(SHOWN_CHARS).is_some() {
            item.push('…');
        }
        SyntheticError::Item {
            item,
            position: self.position,
            expected: expected.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DistanceText {
    Uniform(u32),
    Rows(Vec<Vec<u32>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LevelKind {
    Package,
    Die,
    Group,
    NumaNode,
    Core,
    Pu,
    Cache(u8, CacheKind),
}

#[derive(Debug)]
pub(super) struct Level {
    pub(super) kind: LevelKind,
    /// How many in each object of the level before.
    pub(super) count: usize,
    pub(super) cache_size: Option<Bytes>,
    pub(super) indexes: Option<Indexes>,
    pub(super) attached: Vec<AttachedNode>,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) struct AttachedNode {
    pub(super) memory: Bytes,
    pub(super) side_cache: Option<Bytes>,
    pub(super) cpuless: bool,
    pub(super) indexes: Option<Indexes>,
    pub(super) place: Place,
}

/// An item before its type is settled.
struct Item {
    kind: Option<LevelKind>,
    level: Level,
    node: Option<AttachedNode>,
}

pub(super) fn parse_description(text: &str) -> Result<Description, SyntheticError> {
    let mut distances = None;
    let mut machine_nodes = Vec::new();
    let mut items: Vec<Item> = Vec::new();
    for (number, raw) in split_items(text)?.into_iter().enumerate() {
        if raw.name.is_empty() && !raw.attached {
            if number > 0 {
                return Err(raw.place.error(
                    "attributes right after their type, such as l3:1(size=32MiB), and those of \
                     the machine before the first item",
                ));
            }
            distances = machine_attributes(&raw)?.map(|parsed| (parsed, raw.place.clone()));
        } else if raw.attached {
            let node = attached_node(&raw)?;
            match items.last_mut() {
                Some(item) => item.level.attached.push(node),
                None => machine_nodes.push(node),
            }
        } else {
            items.push(item(&raw)?);
            if items.len() > SYNTHETIC_LEVEL_LIMIT {
                return Err(SyntheticError::TooLarge {
                    what: "levels",
                    limit: SYNTHETIC_LEVEL_LIMIT,
                });
            }
        }
    }
    let levels = settle_types(items)?;
    expect_each_type_once(&levels, &machine_nodes)?;
    Ok(Description {
        distances,
        machine_nodes,
        levels,
    })
}

/// An item as it stands: `name(attributes)`, or `[name(attributes)]` when attached.
struct RawItem<'text> {
    name: &'text str,
    attributes: Vec<&'text str>,
    attached: bool,
    place: Place,
}

fn split_items(text: &str) -> Result<Vec<RawItem<'_>>, SyntheticError> {
    let mut items = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let start = text.len() - rest.len();
        let position = text[..start].chars().count() + 1;
        let place = |end: usize| Place {
            item: rest[..end].to_owned(),
            position,
        };
        let attached = rest.starts_with('[');
        let body = if attached { &rest[1..] } else { rest };
        let stop = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '[' | ']');
        let name_end = body.find(stop).unwrap_or(body.len());
        let (name, mut after) = body.split_at(name_end);
        let mut attributes = Vec::new();
        if let Some(inner) = after.strip_prefix('(') {
            let Some(end) = inner.find(')') else {
                return Err(place(rest.len()).error("a `)` after the attributes"));
            };
            attributes = inner[..end].split_whitespace().collect();
            after = &inner[end + 1..];
        }
        if attached {
            let Some(behind) = after.strip_prefix(']') else {
                return Err(place(rest.len()).error("a node such as [numa(memory=16GiB)]"));
            };
            after = behind;
        } else if after.starts_with([']', ')']) {
            return Err(place(rest.len()).error("an opening parenthesis or bracket before it"));
        }
        items.push(RawItem {
            name,
            attributes,
            attached,
            place: place(rest.len() - after.len()),
        });
        rest = after.trim_start();
    }
    Ok(items)
}

fn machine_attributes(raw: &RawItem<'_>) -> Result<Option<DistanceText>, SyntheticError> {
    let mut distances = None;
    for attribute in &raw.attributes {
        let Some(text) = attribute.strip_prefix("distances=") else {
            return Err(raw.place.error(
                "distances= as the machine's attribute, such as (distances=10,21;21,10); memory \
                 belongs to a node, [numa(memory=16GiB)]",
            ));
        };
        let bad = || {
            raw.place.error(
                "rows of numbers in the order of node numbers, such as distances=10,21;21,10, or \
                 one remote distance, such as distances=21",
            )
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| bad());
        distances = Some(if text.contains([',', ';']) {
            let rows = text
                .split(';')
                .map(|row| row.split(',').map(number).collect());
            DistanceText::Rows(rows.collect::<Result<_, _>>()?)
        } else {
            DistanceText::Uniform(number(text)?)
        });
    }
    Ok(distances)
}

fn attached_node(raw: &RawItem<'_>) -> Result<AttachedNode, SyntheticError> {
    if level_kind(raw.name) != Some(LevelKind::NumaNode) {
        return Err(raw
            .place
            .error("a node such as [numa] or [numa(memory=16GiB)]"));
    }
    let mut node = AttachedNode {
        memory: NODE_MEMORY,
        side_cache: None,
        cpuless: false,
        indexes: None,
        place: raw.place.clone(),
    };
    for attribute in &raw.attributes {
        if *attribute == "cpuless" {
            node.cpuless = true;
        } else {
            node_attribute(&mut node, attribute)?;
        }
    }
    Ok(node)
}

fn node_attribute(node: &mut AttachedNode, attribute: &str) -> Result<(), SyntheticError> {
    let place = node.place.clone();
    match attribute.split_once('=') {
        Some(("memory", size)) => node.memory = parse_size(size, &place)?,
        Some(("memorysidecachesize", size)) => node.side_cache = Some(parse_size(size, &place)?),
        Some(("indexes", text)) => node.indexes = Some(parse_indexes(text, &place)?),
        _ => {
            return Err(place.error(
                "memory=, memorysidecachesize=, indexes= or, attached, cpuless as attributes of a \
                 node, such as [numa(memory=16GiB)]",
            ));
        }
    }
    Ok(())
}

fn item(raw: &RawItem<'_>) -> Result<Item, SyntheticError> {
    let place = &raw.place;
    let (kind, count) = match raw.name.split_once(':') {
        Some((name, count)) => (Some(name), count),
        None if raw.name.starts_with(|c: char| c.is_ascii_digit()) => (None, raw.name),
        None => return Err(place.error("a type and a count, such as core:4")),
    };
    let kind = match kind {
        None => None,
        Some(name) => Some(level_kind(name).ok_or_else(|| {
            place.error(
                "package, die, group, numanode, core, pu or a cache such as l3, l1d or l1i, with \
                 its count, such as package:2",
            )
        })?),
    };
    let count = parse_number(count)
        .and_then(|count| usize::try_from(count).ok())
        .filter(|&count| count > 0)
        .ok_or_else(|| place.error("a count of at least 1, such as core:4"))?;
    let mut level = Level {
        kind: LevelKind::Pu,
        count,
        cache_size: None,
        indexes: None,
        attached: Vec::new(),
        place: place.clone(),
    };
    let mut node = AttachedNode {
        memory: NODE_MEMORY,
        side_cache: None,
        cpuless: false,
        indexes: None,
        place: place.clone(),
    };
    let mut node_attributes = false;
    for attribute in &raw.attributes {
        match (kind, attribute.split_once('=')) {
            (Some(LevelKind::NumaNode) | None, Some(("memory" | "memorysidecachesize", _))) => {
                node_attribute(&mut node, attribute)?;
                node_attributes = true;
            }
            (Some(LevelKind::Cache(..)) | None, Some(("size", size))) => {
                level.cache_size = Some(parse_size(size, place)?);
            }
            (_, Some(("indexes", text))) => level.indexes = Some(parse_indexes(text, place)?),
            _ => {
                return Err(place.error(
                    "size= of a cache, memory= of a numanode or indexes= of any type as \
                     attributes, such as l3:1(size=32MiB)",
                ));
            }
        }
    }
    let is_node = kind == Some(LevelKind::NumaNode) || (kind.is_none() && node_attributes);
    Ok(Item {
        kind,
        level,
        node: is_node.then_some(node),
    })
}

/// Gives types to items that are counts alone, and turns `numanode` items into groups with an
/// attached node, which is what they stand for.
fn settle_types(items: Vec<Item>) -> Result<Vec<Level>, SyntheticError> {
    let Some(last) = items.last() else {
        return Err(SyntheticError::Empty);
    };
    if last.kind.is_some_and(|kind| kind != LevelKind::Pu) {
        return Err(last.level.place.error("PUs as the last item, such as pu:2"));
    }
    let untyped = items[..items.len() - 1]
        .iter()
        .filter(|item| item.kind.is_none())
        .count();
    if untyped > 0 && untyped < items.len() - 1 {
        let place = items
            .iter()
            .find(|item| item.kind.is_none())
            .map(|item| &item.level.place);
        return place.map_or(Err(SyntheticError::Empty), |place| {
            Err(place.error("a type, as the other items have, such as core:4; or none at all"))
        });
    }
    let attached = items.iter().any(|item| !item.level.attached.is_empty());
    let defaults = default_types(items.len(), !attached);
    let settle = |(item, default): (Item, LevelKind)| {
        let mut level = item.level;
        level.kind = item.kind.unwrap_or(default);
        if level.cache_size.is_some() && !matches!(level.kind, LevelKind::Cache(..)) {
            return Err(level
                .place
                .error("size= at a cache only, such as l3:1(size=32MiB)"));
        }
        if item.node.is_some() && level.kind != LevelKind::NumaNode {
            return Err(level
                .place
                .error("memory= at a node only, such as numa:2(memory=1GiB)"));
        }
        if level.kind == LevelKind::NumaNode {
            let node = item.node.unwrap_or_else(|| AttachedNode {
                memory: NODE_MEMORY,
                side_cache: None,
                cpuless: false,
                indexes: None,
                place: level.place.clone(),
            });
            let indexes = level.indexes.take();
            level.attached.insert(0, AttachedNode { indexes, ..node });
        }
        Ok(level)
    };
    items.into_iter().zip(defaults).map(settle).collect()
}

/// The types of this many items that are counts alone, as hwloc chooses them.
fn default_types(count: usize, with_node: bool) -> Vec<LevelKind> {
    // Kinds are handed out in this order of importance …
    let mut types = vec![LevelKind::Pu];
    let mut rest = count.saturating_sub(1);
    let mut take = |wanted: bool| {
        let taken = wanted && rest > 0;
        rest -= usize::from(taken);
        taken
    };
    let node = take(with_node);
    let package = take(true);
    let core = take(true);
    let caches: [(u8, CacheKind); 4] = [
        (2, CacheKind::Unified),
        (1, CacheKind::Data),
        (3, CacheKind::Unified),
        (1, CacheKind::Instruction),
    ];
    let mut taken: Vec<_> = caches.into_iter().filter(|_| take(true)).collect();
    // … and stand in this one, from the inside out.
    taken.sort_by_key(|&(level, kind)| (level, kind != CacheKind::Instruction));
    if core {
        types.push(LevelKind::Core);
    }
    types.extend(
        taken
            .into_iter()
            .map(|(level, kind)| LevelKind::Cache(level, kind)),
    );
    if node {
        types.push(LevelKind::NumaNode);
    }
    if package {
        types.push(LevelKind::Package);
    }
    types.extend(std::iter::repeat_n(LevelKind::Group, rest));
    types.reverse();
    types
}

fn expect_each_type_once(
    levels: &[Level],
    machine_nodes: &[AttachedNode],
) -> Result<(), SyntheticError> {
    for (position, level) in levels.iter().enumerate() {
        if level.kind == LevelKind::Pu && position + 1 < levels.len() {
            return Err(level.place.error("PUs as the last item, such as pu:2"));
        }
        let earlier = levels[..position]
            .iter()
            .any(|other| other.kind == level.kind);
        if earlier && level.kind != LevelKind::Group {
            return Err(level
                .place
                .error("each type once, except group, such as package:2 group:2 core:4 pu:2"));
        }
    }
    let numa_level = levels
        .iter()
        .position(|level| level.kind == LevelKind::NumaNode);
    let attached = levels.iter().enumerate().find_map(|(position, level)| {
        let own = usize::from(Some(position) == numa_level);
        level.attached.get(own)
    });
    match (numa_level, machine_nodes.first().or(attached)) {
        (Some(_), Some(node)) => Err(node.place.error(
            "nodes either as an item or attached, such as group:2 [numa] [numa] core:4 pu:2",
        )),
        _ => Ok(()),
    }
}

/// The type that a name, possibly shortened, stands for.
pub(super) fn level_kind(name: &str) -> Option<LevelKind> {
    let name = name.to_ascii_lowercase();
    let full_names = [
        ("package", LevelKind::Package),
        ("socket", LevelKind::Package),
        ("die", LevelKind::Die),
        ("group", LevelKind::Group),
        ("numanode", LevelKind::NumaNode),
        ("node", LevelKind::NumaNode),
        ("core", LevelKind::Core),
        ("pu", LevelKind::Pu),
    ];
    let named = full_names
        .iter()
        .find(|(full, _)| name.len() >= 2 && full.starts_with(&name));
    if let Some(&(_, kind)) = named {
        return Some(kind);
    }
    let rest = name.strip_prefix('l')?;
    let level = u8::try_from(rest.chars().next()?.to_digit(10)?).ok()?;
    let kind = match rest[1..].strip_suffix("cache").unwrap_or(&rest[1..]) {
        "" | "u" => CacheKind::Unified,
        "d" => CacheKind::Data,
        "i" if level <= 3 => CacheKind::Instruction,
        _ => return None,
    };
    (1..=5)
        .contains(&level)
        .then_some(LevelKind::Cache(level, kind))
}

/// A number as C reads it: decimal, `0x` hexadecimal or, with a leading 0, octal.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

fn parse_size(text: &str, place: &Place) -> Result<Bytes, SyntheticError> {
    const UNITS: [(&str, u64); 9] = [
        ("", 1),
        ("kB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("kiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    let bad = || {
        place.error(
            "a size below 16 EiB in bytes, kB, MB, GB, TB (powers of 1000), kiB, MiB, GiB or TiB, \
             such as 16GiB",
        )
    };
    let digit = |c: char| c.is_ascii_hexdigit();
    let number_end = match text.strip_prefix("0x") {
        Some(hex) => 2 + hex.find(|c| !digit(c)).unwrap_or(hex.len()),
        None => text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    };
    let (number, unit) = text.split_at(number_end);
    let number = parse_number(number).ok_or_else(bad)?;
    let unit = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let &(_, factor) = unit.ok_or_else(bad)?;
    number.checked_mul(factor).map(Bytes).ok_or_else(bad)
}
