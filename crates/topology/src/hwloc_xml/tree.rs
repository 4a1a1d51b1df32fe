//! The objects of a topology, with their place in the tree.

use std::collections::BTreeMap;

use homenode_units::{CpuId, CpuSet, NodeId};

use super::HwlocXmlError;
use super::document::{Document, Element, excerpt};
use crate::CacheKind;
use crate::limits::{CPU_LIMIT, NODE_LIMIT};

/// What an object is, as far as homenode tells objects apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Machine,
    Package,
    Die,
    Cluster,
    Book,
    Drawer,
    /// A group that only gives the tree its shape, or one that we have no word for.
    OtherGroup,
    Core,
    Pu(CpuId),
    Cache {
        level: u8,
        kind: CacheKind,
    },
    NumaNode(NodeId),
    MemCache,
    PciDevice,
    OsDevice,
    /// `Bridge`, `Misc`.
    Other,
}

impl ObjectKind {
    /// Whether the object has CPUs of its own: hwloc's "normal" objects.
    fn is_normal(self) -> bool {
        !matches!(
            self,
            Self::NumaNode(_) | Self::MemCache | Self::PciDevice | Self::OsDevice | Self::Other
        )
    }
}

#[derive(Debug)]
pub(super) struct Object<'a> {
    pub(super) kind: ObjectKind,
    pub(super) element: &'a Element,
    /// Position in [`Tree::objects`], lower than the object's own; `None` for the root.
    pub(super) parent: Option<usize>,
    /// Its online CPUs; those of the place where it hangs for a memory object, empty for a device.
    pub(super) cpus: CpuSet,
    infos: Vec<(&'a str, &'a str)>,
}

#[derive(Debug)]
pub(super) struct Tree<'a> {
    /// In document order, so that a parent comes before its children. The root is the first.
    pub(super) objects: Vec<Object<'a>>,
    /// Infos of the topology itself (version 3).
    infos: Vec<(&'a str, &'a str)>,
    by_gp_index: BTreeMap<u64, usize>,
}

impl<'a> Object<'a> {
    /// The first `info` of this name.
    pub(super) fn info(&self, name: &str) -> Option<&'a str> {
        self.infos(name).next()
    }

    pub(super) fn infos(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.infos
            .iter()
            .filter(move |(found, _)| *found == name)
            .map(|&(_, value)| value)
    }

    /// hwloc's number of the object in the operating system, such as the package id.
    pub(super) fn os_index(&self) -> Result<Option<u32>, HwlocXmlError> {
        self.element
            .number("os_index", "a number from 0 to 4294967295")
    }
}

impl<'a> Tree<'a> {
    /// Finds the objects of a document and checks what every object must have.
    pub(super) fn read(document: &'a Document) -> Result<Self, HwlocXmlError> {
        let root = document.root();
        let mut tree = Self {
            objects: Vec::new(),
            infos: infos(document, root),
            by_gp_index: BTreeMap::new(),
        };
        let machine =
            document
                .children(root, "object")
                .next()
                .ok_or_else(|| HwlocXmlError::NotTopology {
                    found: "a topology without objects".to_owned(),
                })?;
        if machine.get("type") != Some("Machine") {
            let found = machine.get("type").unwrap_or("no type");
            return Err(machine.bad_value("type", "Machine as the root object", found));
        }
        // Depth first, so that the order is that of the document; a stack of ours, since the
        // nesting is a stranger's.
        let mut pending = vec![(machine, None)];
        while let Some((element, parent)) = pending.pop() {
            let at = tree.add(document, element, parent)?;
            let children: Vec<_> = document.children(element, "object").collect();
            pending.extend(children.into_iter().rev().map(|child| (child, Some(at))));
        }
        Ok(tree)
    }

    fn add(
        &mut self,
        document: &'a Document,
        element: &'a Element,
        parent: Option<usize>,
    ) -> Result<usize, HwlocXmlError> {
        let kind = object_kind(element)?;
        if parent.is_some() && kind == ObjectKind::Machine {
            return Err(element.bad_value("type", "only one Machine, the root", "Machine"));
        }
        let cpus = match kind {
            ObjectKind::PciDevice | ObjectKind::OsDevice | ObjectKind::Other => CpuSet::new(),
            _ => element
                .cpus("cpuset")?
                .ok_or_else(|| HwlocXmlError::Missing {
                    line: element.line,
                    element: element.name(),
                    attribute: "cpuset",
                    expected: "a mask of CPUs, such as 0x0000000f",
                })?,
        };
        if let ObjectKind::Pu(cpu) = kind {
            let own: CpuSet = [cpu].into_iter().collect();
            if cpus != own {
                let expected = format!("the PU's own number {cpu} alone");
                let found = element.get("cpuset").unwrap_or_default();
                return Err(element.bad_value("cpuset", expected, found));
            }
        }
        let at = self.objects.len();
        if let Some(gp_index) = element.number("gp_index", "a number above 0")? {
            self.by_gp_index.insert(gp_index, at);
        }
        self.objects.push(Object {
            kind,
            element,
            parent,
            cpus,
            infos: infos(document, element),
        });
        Ok(at)
    }

    /// The root object.
    pub(super) fn machine(&self) -> &Object<'a> {
        &self.objects[0]
    }

    /// An `info` of the root or, since version 3, of the topology.
    pub(super) fn machine_info(&self, name: &str) -> Option<&'a str> {
        self.machine().info(name).or_else(|| {
            let mut infos = self.infos.iter();
            infos
                .find(|(found, _)| *found == name)
                .map(|&(_, value)| value)
        })
    }

    pub(super) fn by_gp_index(&self, gp_index: u64) -> Option<&Object<'a>> {
        let &at = self.by_gp_index.get(&gp_index)?;
        self.objects.get(at)
    }

    /// The closest object above that has CPUs.
    pub(super) fn home(&self, object: &Object<'a>) -> &Object<'a> {
        let mut above = object.parent;
        while let Some(at) = above {
            let candidate = &self.objects[at];
            if candidate.kind.is_normal() {
                return candidate;
            }
            above = candidate.parent;
        }
        self.machine()
    }
}

fn infos<'a>(document: &'a Document, of: &'a Element) -> Vec<(&'a str, &'a str)> {
    document
        .children(of, "info")
        .filter_map(|info| Some((info.get("name")?, info.get("value")?)))
        .collect()
}

fn object_kind(element: &Element) -> Result<ObjectKind, HwlocXmlError> {
    let name = element.required("type", "the type of the object, such as Package")?;
    Ok(match name {
        "Machine" => ObjectKind::Machine,
        "Package" => ObjectKind::Package,
        "Die" => ObjectKind::Die,
        "Cluster" => ObjectKind::Cluster,
        "Core" => ObjectKind::Core,
        "Group" => group_kind(element)?,
        "Tile" | "Module" => ObjectKind::OtherGroup,
        "PU" => {
            let expected = "the number of the CPU, below 65536";
            let number: u32 = element.required_number("os_index", expected)?;
            if number >= CPU_LIMIT {
                return Err(element.bad_value("os_index", expected, &number.to_string()));
            }
            ObjectKind::Pu(CpuId(number))
        }
        "NUMANode" => {
            let expected = "the number of the node, below 1024";
            let number: u32 = element.required_number("os_index", expected)?;
            if number >= NODE_LIMIT {
                return Err(element.bad_value("os_index", expected, &number.to_string()));
            }
            ObjectKind::NumaNode(NodeId(number))
        }
        "MemCache" => ObjectKind::MemCache,
        "PCIDev" => ObjectKind::PciDevice,
        "OSDev" => ObjectKind::OsDevice,
        "Bridge" | "Misc" => ObjectKind::Other,
        _ => match cache_kind(name) {
            // hwloc's Knights Landing: the part of MCDRAM that caches DRAM, drawn as an L3. It is
            // no cache of CPUs.
            Some(_) if element.get("subtype") == Some("MemorySideCache") => ObjectKind::OtherGroup,
            Some((level, kind)) => ObjectKind::Cache { level, kind },
            None => {
                return Err(HwlocXmlError::UnknownType {
                    line: element.line,
                    found: excerpt(name),
                });
            }
        },
    })
}

fn group_kind(element: &Element) -> Result<ObjectKind, HwlocXmlError> {
    // hwloc 2.x: include/private/internal-components.h numbers the kinds; 110 is S390 and 222 is
    // Linux's cluster.
    let number: Option<u32> = element.number("kind", "a number")?;
    Ok(match (number, element.get("subtype")) {
        (_, Some("Die")) => ObjectKind::Die,
        (Some(222), _) => ObjectKind::Cluster,
        (Some(110), Some("Book")) => ObjectKind::Book,
        (Some(110), Some("Drawer")) => ObjectKind::Drawer,
        _ => ObjectKind::OtherGroup,
    })
}

/// `L2Cache`, `L1iCache` and the like. `L1Cache` is a data cache when its `cache_type` says so.
fn cache_kind(name: &str) -> Option<(u8, CacheKind)> {
    let rest = name.strip_prefix('L')?.strip_suffix("Cache")?;
    let (digit, kind) = match rest.strip_suffix('i') {
        Some(digit) => (digit, CacheKind::Instruction),
        None => (rest, CacheKind::Unified),
    };
    let level = digit.parse().ok()?;
    let level_max = if kind == CacheKind::Instruction { 3 } else { 5 };
    (digit.len() == 1 && (1..=level_max).contains(&level)).then_some((level, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_types_are_l1_to_l5_and_l1i_to_l3i() {
        assert_eq!(cache_kind("L3Cache"), Some((3, CacheKind::Unified)));
        assert_eq!(cache_kind("L1iCache"), Some((1, CacheKind::Instruction)));
        for name in [
            "L0Cache", "L6Cache", "L4iCache", "L33Cache", "L+1Cache", "LCache", "Cache",
        ] {
            assert_eq!(cache_kind(name), None, "{name}");
        }
    }
}
