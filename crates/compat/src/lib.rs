//! Other tools' command lines, under their names.
//!
//! The `homenode` program answers as one of them when it is called by that name: through a
//! symbolic link named `numactl`, for example. Exit status, standard output and the order of
//! effects are those of the original; where they differ on purpose, `docs/drop-ins.md` says so
//! and why. Homenode's own commands live elsewhere and take the better behaviour.

pub mod numactl;
pub mod numastat;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the tool of this name, with the arguments that follow the name; `None` when no tool of
/// that name is answered for.
///
/// A tool that starts a command does so in its own place (execve), so it does not return then.
#[must_use]
pub fn run(name: &str, args: &[OsString]) -> Option<ExitCode> {
    match name {
        "numactl" => Some(numactl::main(args)),
        "numastat" => Some(numastat::main(args)),
        _ => None,
    }
}
