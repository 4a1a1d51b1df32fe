//! What an access to memory costs on a machine that the lab emulates.
//!
//! [`Model`] is told what each CPU of the guest does (instructions, loads, stores) and keeps a clock
//! for each of them. It has no clock of its own and looks at no host: the same accesses cost the
//! same time everywhere. The lab's plugin for QEMU (`lab/plugin`) is the shell around it.
//!
//! Terms:
//!
//! * A *line* is 64 bytes, the unit of every transfer. Its number is an address divided by 64.
//! * A *round* gives every running CPU the same slice of time, one after the other; see [`rounds`].
//! * A *stream* is a run of neighbouring lines, which a real CPU fetches ahead; see [`stream`].
//! * A *resource* is what lines queue for: the controller of a node, or a link in one direction;
//!   see [`load`].
//!
//! Time is counted in picoseconds, as whole numbers: sums are exact, and 64 bits last 200 days.
//!
//! ```
//! use homenode_lab_model::{Access, Machine, Model};
//!
//! let mut model = Model::new(Machine::example());
//! model.start_at(0);
//! model.begin(0);
//! model.access(0, Access { virtual_line: 7, line: 7, store: false });
//! // A cold load from the CPU's own node: 80 ns, of which the instruction itself is counted apart.
//! assert_eq!(model.now(), 80_000 - u64::from(Machine::example().instruction_ps));
//! ```
//!
//! Not modelled: coherence between the caches of different cores, instruction fetches, page walks,
//! and the order in which a real core could overlap independent loads outside of streams. The
//! lab's manual (docs/lab-timed.md) says what follows from that.

pub mod cache;
pub mod load;
pub mod mark;
pub mod rounds;
pub mod stream;

mod machine;
mod model;
mod truth;

pub use machine::{CacheShape, CpuShape, LoadCurve, Machine, MachineError, Path, Resource, Span};
pub use model::{Access, Model};
pub use truth::{CpuTruth, NodeTruth, ResourceTruth, Truth};

/// Bytes that travel together.
pub const LINE_BYTES: u64 = 64;
