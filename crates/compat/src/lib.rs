//! Other tools' command lines, under their names.
//!
//! The `homenode` program answers as one of them when it is called by that name: through a
//! symbolic link named `numactl`, for example. Exit status, standard output and the order of
//! effects are those of the original; where they differ on purpose, `docs/drop-ins.md` says so
//! and why. Homenode's own commands live elsewhere and take the better behaviour.

mod getopt;
pub mod memhog;
pub mod migratepages;
pub mod numactl;
pub mod numad;
pub mod numastat;
mod spec;

use std::ffi::OsString;
use std::process::ExitCode;

/// The names that are answered to.
pub const NAMES: [&str; 5] = ["numactl", "numastat", "migratepages", "memhog", "numad"];

/// Runs the tool of this name, with the arguments that follow the name; `None` when no tool of
/// that name is answered for.
///
/// A tool that starts a command does so in its own place (execve), so it does not return then.
#[must_use]
pub fn run(name: &str, args: &[OsString]) -> Option<ExitCode> {
    match name {
        "numactl" => Some(numactl::main(args)),
        "migratepages" => Some(migratepages::main(args)),
        "memhog" => Some(memhog::main(args)),
        "numad" => Some(numad::main(args)),
        "numastat" => Some(numastat::main(args)),
        _ => None,
    }
}
