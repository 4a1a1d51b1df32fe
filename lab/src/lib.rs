//! The lab: machines with several memory nodes, emulated, for tests that need more than one node.
//!
//! QEMU boots a distribution's kernel from an initramfs that holds our static binaries, numactl
//! and busybox. A [`Shape`] says what the machine looks like and what its kernel should then show;
//! a [`Guest`] runs one command on it. `cargo xtask lab` and `cargo xtask lab-test` are the
//! programs around this library; `lab/README.md` is the manual.
//!
//! ```
//! let shape = homenode_lab::Shape::named("4n-ring")?;
//! assert_eq!(shape.nodes().len(), 4);
//! # Ok::<(), homenode_lab::ShapeError>(())
//! ```
//!
//! The path of a command: [`Initramfs`] packs it, [`Guest`] boots it, `lab-init` (process 1 of the
//! guest) runs it and sends its output over the second serial port as [`frame`]s.
//!
//! Emulated memory is equally fast everywhere, so a guest shows what the kernel says and does, but
//! not what an access costs; unless its time is [`GuestTime::Modelled`] after a shape that says so
//! (`docs/lab-timed.md`).

#![expect(
    clippy::disallowed_methods,
    reason = "the lab is a test bench: it starts programs and keeps files of its own"
)]

pub mod cpio;
pub mod frame;
pub mod guest_paths;
pub mod qemu;

mod debian;
mod guest;
mod initramfs;
mod kernel;
mod shape;
mod timing;
mod userland;

pub use debian::DebianError;
pub use guest::{Console, Guest, GuestError, Outcome, Stream};
pub use homenode_lab_model as model;
pub use initramfs::{Initramfs, PackError};
pub use kernel::{Kernel, KernelName};
pub use qemu::GuestTime;
pub use shape::{CpuTopology, Expect, HmatEntry, NodeShape, Shape, ShapeError};
pub use userland::Userland;
