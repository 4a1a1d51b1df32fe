//! Machines from a line of text, in hwloc's synthetic notation with two additions.
//!
//! ```
//! use homenode_topology::parse_synthetic;
//!
//! let machine = parse_synthetic("pack:2 [numa(memory=16GiB)] l3:1 core:4 pu:2")?;
//! assert_eq!(machine.packages.len(), 2);
//! assert_eq!(machine.nodes[1].cpus.to_string(), "8-15");
//! # Ok::<(), homenode_topology::SyntheticError>(())
//! ```
//!
//! A description is a list of items from the outside in. An item is `type:count` or only `count`,
//! the number of such objects in each object of the item before it; the last item is `pu`. Types
//! are `package`, `die`, `group`, `numanode`, `core`, `pu` and caches (`l3`, `l1d`, `l1i`, …), in
//! any case, and may be shortened. Without types the items are, as many as there are: groups,
//! package, numanode, L3, L2, L1, L1i, core, pu.
//!
//! `[numa]` attaches a memory node to each object of the item before it, or to the machine when it
//! comes first; several may be attached to one. Blank-separated attributes stand in parentheses
//! after a type:
//!
//! | Attribute | Of | Meaning |
//! |---|---|---|
//! | `size=` | caches | size, such as `32MiB` |
//! | `memory=` | numa | size of the node; 1 GiB unless given |
//! | `memorysidecachesize=` | numa | size of a memory-side cache in front of the node |
//! | `indexes=` | all | the numbers of the objects: a list `0,2,1,3`, loops `step*count:…`, or types `core:package` |
//! | **`cpuless`** | attached numa | ours: the node has no CPUs; those of the object are the nearest |
//! | **`distances=`** | the machine | ours: in parentheses before the first item, `10,21;21,10` by rows in the order of node numbers, or one number for every remote distance |
//!
//! ```
//! use homenode_topology::parse_synthetic;
//!
//! let text = "(distances=10,21,17;21,10,28;17,28,10) pack:2 [numa(memory=64GiB)] core:2 pu:1";
//! assert!(parse_synthetic(text).unwrap_err().to_string().contains("2 rows"));
//!
//! let slow = "(distances=21) pack:1 [numa(memory=64GiB)] [numa(memory=256GiB cpuless)] core:2 pu:1";
//! assert!(parse_synthetic(slow)?.nodes[1].is_cpuless());
//! # Ok::<(), homenode_topology::SyntheticError>(())
//! ```
//!
//! # Differences from hwloc 2.9
//!
//! * In Linux a CPU has one node. Where several nodes are attached around the same CPUs, the
//!   innermost and first one has them and the others are CPU-less.
//! * An attached node without `memory=` has 1 GiB here and none in hwloc, which gives 1 GiB only
//!   to `numanode:` items. `memory=0` is a memory-less node.
//! * Bad `indexes=` are an error here; hwloc prints a line and goes on without them.
//! * `memorysidecachesize=` is of later versions of hwloc.

mod build;
mod grammar;
mod indexes;

use crate::{CheckError, Topology};

/// Why a text describes no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// There is no item.
    #[error("expected a description such as `pack:2 [numa] core:4 pu:2`, found nothing")]
    Empty,
    /// An item is wrong.
    #[error("item `{item}` at character {position}: expected {expected}")]
    Item {
        /// The item, cut to a readable length.
        item: String,
        /// Where it starts, in characters from 1.
        position: usize,
        /// What should stand there, with an example.
        expected: String,
    },
    /// The machine would be larger than any.
    #[error("expected at most {limit} {what} in all")]
    TooLarge {
        /// What there would be too many of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The items contradict one another.
    #[error("this describes no machine that can exist")]
    Impossible(#[from] CheckError),
}

/// Makes the machine that a synthetic description asks for.
///
/// # Errors
///
/// [`SyntheticError::Empty`] without any item; [`SyntheticError::Item`] with the first item that is
/// wrong; [`SyntheticError::TooLarge`] beyond 16,384 CPUs, 1,024 nodes or 128 levels;
/// [`SyntheticError::Impossible`], see [`Topology::check`].
pub fn parse_synthetic(text: &str) -> Result<Topology, SyntheticError> {
    let description = grammar::parse_description(text)?;
    let topology = build::build(text, &description)?;
    topology.check()?;
    Ok(topology)
}

#[cfg(test)]
mod tests;
