//! `numactl`: runs a command under a memory policy and on chosen CPUs, or shows both.

use std::ffi::OsString;
use std::process::ExitCode;

/// Answers for `numactl` with these arguments.
#[must_use]
pub fn main(_args: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}
