//! What should go where: values in, decisions with their reasons out.
//!
//! * [`place`]: [`Topology`](homenode_topology::Topology) + [`Request`] + [`Load`] →
//!   [`Placement`], the nodes that a new workload should get.
//! * [`Need`]: what it needs, read from `8cpu,32GiB`.
//!
//! Nothing here reads a file or a clock, and nothing acts: the same values give the same answer on
//! a live machine, a captured one and one made up in a test.
//!
//! ```
//! use homenode_policy::{Goal, Load, Need, Request, place};
//! use homenode_topology::parse_synthetic;
//!
//! let machine = parse_synthetic("pack:2 [numa(memory=16GB)] core:4 pu:1")?;
//! let need: Need = "2cpu,4GiB".parse()?;
//! let request = Request { need, goal: Goal::Auto };
//! let placement = place(&machine, &Load::default(), &request)?;
//! assert_eq!(placement.cpu_nodes.to_string(), "0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How nodes are chosen
//!
//! Each node with usable CPUs is tried as a start. From it, nodes are taken by distance, nearest
//! first, each only if it brings something that is still missing: CPUs, or memory. Memory may come
//! from a node without CPUs; CPUs never do. Among the starts whose nodes meet the need, the best
//! one has, in this order: the fewest nodes whose CPUs have no memory of their own, the fewest
//! nodes, the smallest sum of distances from the start, the most room left after the need (the
//! smaller of the share of CPUs and the share of memory, then their sum), the lowest number.
//! [`Goal::LeastLoaded`] looks at idle CPUs before distances; [`Goal::Near`] allows only the
//! starts nearest to a device.
//!
//! First only idle CPUs count; a node counts as idle up to [`NOISE`] of its CPUs, so that
//! background work does not split every large request. If that cannot be met, busy CPUs count too,
//! and the reasons say so. If that cannot be met either, the answer is the whole machine and what
//! it lacks ([`Placement::shortfalls`]).
//!
//! Affinity and cpusets bound what each node has to give. Limits of control groups on CPU time and
//! on memory hold for all nodes together, so they choose none; a need beyond them is lacking, too.

mod need;
mod offer;
mod place;

pub use need::{Need, NeedError};
pub use offer::{GroupLimit, Load, NOISE};
pub use place::{Goal, PlaceError, Placement, Request, place};
