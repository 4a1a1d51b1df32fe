//! What a machine is: from files, hwloc XML or a synthetic string to a [`Topology`].

pub mod acpi;
pub mod dmi;
mod model;
mod scrub;
mod stub;
mod sysfs;
mod verdict;
mod warnings;
mod words;

pub use model::*;
pub use scrub::scrub;
pub use stub::*;
pub use sysfs::{ReadError, read_topology};
pub use verdict::{Certainty, Mode, Verdict, Warning};
