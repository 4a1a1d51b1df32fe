//! All unsafe code of homenode: the system calls that no well-kept crate wraps, each behind a safe
//! function with typed arguments and named errors.
//!
//! * [`page_nodes`]: the node of each page of a process (`move_pages(2)` as a query).
//! * [`move_pages`]: moves pages of a process to a node (`move_pages(2)`).
//! * [`allowed_nodes`]: the nodes whose memory this task may use (`get_mempolicy(2)`).
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

mod syscall;

pub use syscall::memory_policy::{PolicyError, allowed_nodes};
pub use syscall::move_pages::moving::{MoveError, MoveStatus, Moved, Sharing, move_pages};
pub use syscall::move_pages::{PageStatus, QueryError, page_nodes};
pub use syscall::page_size;
