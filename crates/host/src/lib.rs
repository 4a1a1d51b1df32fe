//! The seam between homenode and the machine.
//!
//! Readers ask [`Files`] for text and never open a file themselves, and whoever needs the time
//! asks [`Clock`]; what no file tells is asked through [`Probe`], and what changes the machine goes
//! through [`Hands`]. So the same readers run on the live machine ([`Live`]), on a captured one
//! ([`Captured`], [`Snapshot`]) and, later, on a simulated one.
//!
//! | form | files | clock, probe, hands |
//! |---|---|---|
//! | [`Live`] | this machine | yes |
//! | [`Captured`] | a folder holding `sys/` and `proc/` | no |
//! | [`Snapshot`] | in memory, for tests and for writing a capture | no |
//! | [`Recording`] | another form's, keeping a copy of all that was read | no |
//!
//! A captured machine has no clock and no hands, so asking for a rate on one, or acting on it, does
//! not compile.
//!
//! ```
//! use homenode_host::{Buffer, Files, Snapshot};
//!
//! let mut machine = Snapshot::default();
//! machine.add_file("/sys/devices/system/node/online", "0-1\n");
//! let mut buffer = Buffer::new();
//! assert_eq!(machine.read("/sys/devices/system/node/online", &mut buffer)?, b"0-1\n");
//! # Ok::<(), homenode_host::FileError>(())
//! ```

mod clock;
mod disk;
mod files;
mod hands;
mod probe;
mod recording;
mod snapshot;

pub use clock::Clock;
pub use disk::{Captured, Live};
pub use files::{Buffer, FileError, Files, READ_LIMIT_BYTES};
pub use hands::{Hands, Held, HoldError};
pub use homenode_sys::{MoveError, MoveStatus, Moved, PageStatus, QueryError, Sharing};
pub use probe::Probe;
pub use recording::Recording;
pub use snapshot::{Snapshot, WriteError};
