//! What a machine is: from files, hwloc XML or a synthetic string to a [`Topology`].

mod model;
mod verdict;

pub use model::*;
pub use verdict::{Certainty, Mode, Verdict, Warning};
