//! The `homenode` program: arguments, exit status and the printing of errors.
//!
//! Exit status: 0 done, 1 a finding, 2 an error. A broken pipe is no error.

mod args;
mod capture;
mod error;
mod report;
mod source;
mod terminal;
mod topo;
mod translate;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

const EXIT_ERROR: u8 = 2;

/// The static binary's own allocator makes a system call for every few kilobytes, which cost a
/// tenth of the time of `homenode topo`.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    let done = match &arguments.command {
        Command::Report(args) => report::run(args, &arguments.machine, &mut out),
        Command::Topo(args) => topo::run(args, &arguments.machine, &mut out),
        Command::Capture(args) => capture::run(args, &arguments.machine, &mut out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            error::print(&error);
            ExitCode::from(EXIT_ERROR)
        }
    }
}
