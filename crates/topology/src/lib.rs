//! What a machine is: from files, hwloc XML or a synthetic string to a [`Topology`], and from
//! there to a [`Verdict`].
//!
//! | from | by |
//! |---|---|
//! | a machine's `/sys` and `/proc`, live or captured | [`read_topology`] |
//! | hwloc XML, version 2 and 3 | [`parse_hwloc_xml`] |
//! | a description such as `pack:2 [numa(memory=16GB)] core:4` | [`parse_synthetic`] |
//!
//! Every way ends in [`Topology::check`], which refuses what no machine can be. What a machine
//! does not tell is a [`Reading::Absent`](homenode_units::Reading) with its reason; what is wrong
//! is a [`Problem`].
//!
//! ```
//! use homenode_topology::{Mode, parse_synthetic};
//!
//! let machine = parse_synthetic("pack:2 [numa(memory=16GB)] l3:1 core:4 pu:2")?;
//! assert_eq!(machine.nodes.len(), 2);
//! assert_eq!(machine.verdict().mode, Mode::Plain);
//! # Ok::<(), homenode_topology::SyntheticError>(())
//! ```

pub mod acpi;
mod check;
mod described;
pub mod dmi;
mod hwloc_xml;
mod limits;
mod model;
mod scrub;
mod synthetic;
mod sysfs;
mod verdict;
mod warnings;
mod words;

pub use check::CheckError;
pub use hwloc_xml::{HwlocXmlError, info as hwloc_info, parse_hwloc_xml};
pub use model::*;
pub use scrub::scrub;
pub use synthetic::{SyntheticError, parse_synthetic};
pub use sysfs::{ReadError, read_topology};
pub use verdict::{Certainty, Mode, Verdict, Warning};
