//! The `homenode` program: arguments, exit status and the printing of errors.
//!
//! Exit status: 0 done, 1 a finding, 2 an error. A broken pipe is no error.

mod args;
mod capture;
mod error;
mod migrate;
mod report;
mod source;
mod terminal;
mod topo;
mod translate;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

const EXIT_FINDING: u8 = 1;
const EXIT_ERROR: u8 = 2;

/// What a command that worked has to say through its exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// All is as it should be.
    Nothing,
    /// The reader should look at the output.
    Something,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = io::stdout().lock();
    let machine = &arguments.machine;
    let done = match &arguments.command {
        Command::Report(args) => report::run(args, machine, &mut out).map(|()| Found::Nothing),
        Command::Topo(args) => topo::run(args, machine, &mut out).map(|()| Found::Nothing),
        Command::Capture(args) => capture::run(args, machine, &mut out).map(|()| Found::Nothing),
        Command::Migrate(args) => migrate::run(args, machine, &mut out),
    };
    match done.and_then(|found| Ok((found, out.flush()?))) {
        Ok((Found::Nothing, ())) => ExitCode::SUCCESS,
        Ok((Found::Something, ())) => ExitCode::from(EXIT_FINDING),
        Err(error) if error::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            error::print(&error);
            ExitCode::from(EXIT_ERROR)
        }
    }
}
