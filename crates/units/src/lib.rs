//! The words and numbers every other crate speaks in.
//!
//! * [`CpuId`], [`NodeId`]: the kernel's numbers. They have gaps and are never positions.
//! * [`Pid`]: a process.
//! * [`CpuSet`], [`NodeSet`]: sets of them, read and written as the kernel's lists (`0-3,8`) and
//!   masks (`ff,00000000`).
//! * [`NodeMatrix`]: a value for each pair of nodes, found by node id.
//! * [`Bytes`], [`Nanoseconds`], [`BytesPerSecond`]: quantities with their unit.
//! * [`Reading`]: a value, or the reason why there is none.
//!
//! ```
//! use homenode_units::{CpuId, CpuSet};
//!
//! let cpus = CpuSet::parse_list("0-3,8")?;
//! assert_eq!(cpus.len(), 5);
//! assert!(cpus.contains(CpuId(8)));
//! assert_eq!(cpus.to_mask(), "0000010f");
//! # Ok::<(), homenode_units::SetError>(())
//! ```
//!
//! Nothing here reads a machine.

mod matrix;
mod process;
mod quantity;
mod reading;
mod set;

pub use matrix::{MatrixError, NodeMatrix};
pub use process::Pid;
pub use quantity::{Bytes, BytesPerSecond, Nanoseconds, QuantityError};
pub use reading::Reading;
pub use set::{CpuId, CpuSet, ID_LIMIT, Id, IdSet, NodeId, NodeSet, SetError};
