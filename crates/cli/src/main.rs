//! The `homenode` program: arguments, exit status and the printing of errors.
//!
//! Exit status: 0 done, 1 a finding, 2 an error. A broken pipe is no error. `run` becomes its
//! command and so has that command's status; 126 and 127 say that it could not be started.

mod args;
mod capture;
mod error;
mod load;
mod near;
mod place;
mod report;
mod run;
mod source;
mod terminal;
mod topo;
mod translate;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

/// What was looked for was found, such as a need that no node can meet.
const EXIT_FINDING: u8 = 1;
const EXIT_ERROR: u8 = 2;

/// The static binary's own allocator makes a system call for every few kilobytes, which cost a
/// tenth of the time of `homenode topo`.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    let machine = &arguments.machine;
    let success = |()| ExitCode::SUCCESS;
    let done = match &arguments.command {
        Command::Report(args) => report::run(args, machine, &mut out).map(success),
        Command::Topo(args) => topo::run(args, machine, &mut out).map(success),
        Command::Run(args) => run::run(args, machine, &mut out),
        Command::Place(args) => place::run(args, machine, &mut out),
        Command::Capture(args) => capture::run(args, machine, &mut out).map(success),
    };
    match done.and_then(|status| {
        out.flush()?;
        Ok(status)
    }) {
        Ok(status) => status,
        Err(error) if error::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            error::print(&error);
            ExitCode::from(EXIT_ERROR)
        }
    }
}
