//! All unsafe code of homenode: the system calls that no well-kept crate wraps, each behind a safe
//! function with typed arguments and named errors.
//!
//! * [`page_nodes`]: the node of each page of a process (`move_pages(2)` as a query).
//! * [`set_mempolicy`], [`task_policy`]: where the pages of this thread go; [`mbind`],
//!   [`set_mempolicy_home_node`], [`policy_at`], [`node_at`]: those of a range of memory.
//! * [`move_pages`]: moves pages of a process to a node (`move_pages(2)`).
//! * [`allowed_nodes`]: the nodes whose memory this task may use (`get_mempolicy(2)`).
//! * [`set_affinity`], [`affinity`]: the CPUs of a thread, any number of them.
//! * [`current_cpu`], [`thread_usage`]: where this thread runs, and how often it was interrupted.
//! * [`NodeMemory`]: memory on chosen nodes, with the proof that it lies there.
//! * [`SharedMemory`], [`SegmentId`]: files and System V segments, to set their policy.
//! * [`WorkMemory`]: memory to fill. [`migrate_pages`]: all memory of a process, at once.
//! * [`kernels`]: the loops that are timed to measure memory.
//! * [`page_size`]: the size of a base page.
//!
//! ```
//! let nodes = homenode_sys::allowed_nodes();
//! // A container may forbid the call; a machine without any node does not exist.
//! assert!(nodes.is_err() || !nodes?.is_empty());
//! # Ok::<(), homenode_sys::PolicyError>(())
//! ```
//!
//! Nothing here reads files, keeps state or decides. Numbers of system calls come from the `libc`
//! crate; flags that it lacks are written out beside their use, with the header that defines them.
#![expect(
    unsafe_code,
    reason = "this is the one crate that may talk to the kernel without a safe wrapper"
)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod kernels;
mod node_memory;
mod syscall;

pub use node_memory::{NodeMemory, NodeMemoryError, PageKind, PagePlacement};
pub use syscall::affinity::{AffinityError, affinity, set_affinity};
pub use syscall::mbind::{BindError, BindFlags, HomeNodeError, mbind, set_mempolicy_home_node};
pub use syscall::memory_policy::{
    PolicyError, SetPolicyError, allowed_nodes, next_interleave_node, node_at, policy_at,
    set_mempolicy, task_policy,
};
pub use syscall::migrate_pages::migrate_pages;
pub use syscall::move_pages::moving::{MoveError, MoveStatus, Moved, Sharing, move_pages};
pub use syscall::move_pages::{PageStatus, QueryError, page_nodes};
pub use syscall::page_size;
pub use syscall::policy::{Policy, PolicyFlags, PolicyMode};
pub use syscall::shared_memory::{NewSegment, SegmentId, SharedMemory};
pub use syscall::usage::{ThreadUsage, current_cpu, thread_usage};
pub use syscall::work_memory::WorkMemory;
