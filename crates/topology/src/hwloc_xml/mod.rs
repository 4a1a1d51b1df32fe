//! Machines from hwloc's XML files, `lstopo --of xml`.
//!
//! Versions 2 and 3 are read. What XML cannot tell is absent with that reason; what homenode itself
//! adds to a file it writes comes back from [`info`] elements. The input is not trusted: nesting
//! and sizes have limits, entity declarations are refused, and any bytes give a topology or an
//! error.
//!
//! # CPU-less nodes
//!
//! hwloc gives every NUMA node CPUs: a CPU-less one hangs below the object with the nearest CPUs
//! and takes that object's. When several nodes claim a CPU, one of them has it and the others are
//! CPU-less, with the owners as their nearest:
//!
//! 1. a node of ordinary memory (no `subtype`, or `DRAM`, and no `DAXDevice`) comes before one of
//!    special memory (`HBM`, `NVM`, `CXL-…`, `GPUMemory`, …);
//! 2. then the one that claims fewer CPUs: memory of a package whose halves have nodes of their
//!    own hangs above them;
//! 3. then the lower id: CPU-less memory comes up later.
//!
//! A node any of whose CPUs are taken is CPU-less. Files of our own say it outright.

mod devices;
mod document;
pub mod info;
mod machine;
mod matrices;
mod nodes;
mod tree;
mod values;

use homenode_units::Reading;

use crate::described::unknown_machine;
use crate::{CheckError, Source, Topology};
use document::{Document, excerpt, parse_document};
use tree::Tree;

/// The reason of everything that hwloc's format has no place for.
const NOT_TOLD: &str = "hwloc XML does not tell";

/// Why bytes are no machine in hwloc's XML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HwlocXmlError {
    /// The bytes are no text.
    #[error("expected UTF-8, found something else at byte {position}")]
    NotUtf8 {
        /// Position of the first bad byte, from 0.
        position: usize,
    },
    /// The text breaks the rules of XML.
    #[error("line {line}: not well-formed XML: {reason}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// What the XML reader says.
        reason: String,
    },
    /// The text ends too early.
    #[error("cut off: {open} is not closed")]
    Cut {
        /// The innermost open element.
        open: String,
    },
    /// The document type declares something, possibly entities that grow without end.
    #[error(
        "line {line}: a document type with declarations of its own is refused; hwloc writes none"
    )]
    EntityDeclarations {
        /// Line, from 1.
        line: usize,
    },
    /// Elements are nested too deeply.
    #[error(
        "line {line}: elements are nested more than {} deep",
        document::DEPTH_MAX
    )]
    TooDeep {
        /// Line, from 1.
        line: usize,
    },
    /// The file is larger than any machine.
    #[error("more than {limit} {what}: larger than any machine")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much may be.
        limit: usize,
    },
    /// XML of something else.
    #[error("expected <topology>, found {found}")]
    NotTopology {
        /// What there is instead.
        found: String,
    },
    /// A file of hwloc 1.x.
    #[error(
        "this is hwloc XML version 1, expected version 2 or 3; hwloc 2.x converts it: \
         lstopo -i OLD.xml NEW.xml"
    )]
    Version1,
    /// A version that came after this reader.
    #[error("expected hwloc XML version 2 or 3, found `{found}`")]
    Version {
        /// The attribute `version` of `topology`.
        found: String,
    },
    /// An object of a type that hwloc does not have.
    #[error("line {line}: expected a type of hwloc's, such as Package or L3Cache, found `{found}`")]
    UnknownType {
        /// Line, from 1.
        line: usize,
        /// The type.
        found: String,
    },
    /// An attribute is not there.
    #[error("line {line}: {element}: expected {attribute}=, {expected}, found none")]
    Missing {
        /// Line, from 1.
        line: usize,
        /// The element, with its type.
        element: String,
        /// The attribute.
        attribute: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// An attribute, an `info` of ours or the text of an element holds something else.
    #[error("line {line}: {element}: {attribute}: expected {expected}, found `{found}`")]
    Value {
        /// Line, from 1.
        line: usize,
        /// The element, with its type.
        element: String,
        /// The attribute or `info`.
        attribute: String,
        /// What it should hold.
        expected: String,
        /// What it holds, cut to a readable length.
        found: String,
    },
    /// The objects contradict one another.
    #[error("this describes no machine that can exist")]
    Impossible(#[from] CheckError),
}

/// Reads hwloc XML of version 2 or 3; `name` is what the topology's [`Source`] calls it.
///
/// # Errors
///
/// * [`HwlocXmlError::NotUtf8`], [`Syntax`](HwlocXmlError::Syntax), [`Cut`](HwlocXmlError::Cut):
///   the bytes are no complete XML.
/// * [`EntityDeclarations`](HwlocXmlError::EntityDeclarations),
///   [`TooDeep`](HwlocXmlError::TooDeep), [`TooMuch`](HwlocXmlError::TooMuch): made to do harm.
/// * [`NotTopology`](HwlocXmlError::NotTopology), [`Version1`](HwlocXmlError::Version1),
///   [`Version`](HwlocXmlError::Version): another kind of file.
/// * [`UnknownType`](HwlocXmlError::UnknownType), [`Missing`](HwlocXmlError::Missing),
///   [`Value`](HwlocXmlError::Value): an element does not say what it must.
/// * [`Impossible`](HwlocXmlError::Impossible): see [`Topology::check`].
pub fn parse_hwloc_xml(text: &[u8], name: &str) -> Result<Topology, HwlocXmlError> {
    let document = parse_document(text)?;
    expect_version(&document)?;
    let tree = Tree::read(&document)?;
    let mut topology = unknown_machine(Source::HwlocXml(name.to_owned()), NOT_TOLD);
    machine::fill(&mut topology, &tree)?;
    nodes::fill(&mut topology, &tree)?;
    matrices::fill_distances(&mut topology, &document, &tree)?;
    matrices::fill_access(&mut topology, &document, &tree)?;
    matrices::fill_core_kinds(&mut topology, &document)?;
    devices::fill(&mut topology, &tree)?;
    machine::fill_allowed(&mut topology, &tree)?;
    topology.check()?;
    Ok(topology)
}

fn expect_version(document: &Document) -> Result<(), HwlocXmlError> {
    let root = document.root();
    if root.tag != "topology" {
        let found = format!("<{}>", excerpt(&root.tag));
        return Err(HwlocXmlError::NotTopology { found });
    }
    // hwloc 1.x wrote no version at all.
    let Some(version) = root.get("version") else {
        return Err(HwlocXmlError::Version1);
    };
    match version.split('.').next() {
        Some("1") => Err(HwlocXmlError::Version1),
        Some("2" | "3") => Ok(()),
        _ => Err(HwlocXmlError::Version {
            found: excerpt(version),
        }),
    }
}

/// The value of an `info` of ours as a reading; `None` when it is neither.
fn reading<T: std::str::FromStr>(text: &str) -> Option<Reading<T>> {
    match text.strip_prefix(info::ABSENT) {
        Some(why) => Some(Reading::absent(why)),
        None => text.parse().ok().map(Reading::Known),
    }
}

#[cfg(test)]
mod tests;
