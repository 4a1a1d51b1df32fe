//! The `homenode` program: arguments, exit status and the printing of errors.
//!
//! Exit status: 0 done, 1 a finding, 2 an error. A broken pipe is no error. `run` becomes its
//! command and so has that command's status; 126 and 127 say that it could not be started.

mod args;
mod capture;
mod error;
mod link;
mod load;
mod measure;
mod migrate;
mod near;
mod place;
mod record;
mod report;
mod run;
mod source;
mod stat;
mod terminal;
mod top;
mod topo;
mod translate;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
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
    if let Some(code) = drop_in() {
        return code;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return error::print_refusal(&error),
    };
    let mut out = io::stdout().lock();
    let machine = &arguments.machine;
    let success = |()| ExitCode::SUCCESS;
    let done = match &arguments.command {
        Command::Report(args) => report::run(args, machine, &mut out).map(success),
        Command::Topo(args) => topo::run(args, machine, &mut out).map(success),
        Command::Run(args) => run::run(args, machine, &mut out),
        Command::Place(args) => place::run(args, machine, &mut out),
        Command::Capture(args) => capture::run(args, machine, &mut out).map(success),
        Command::Migrate(args) => migrate::run(args, machine, &mut out),
        Command::Measure(args) => measure::run(args, machine, &mut out),
        Command::Stat(args) => stat::run(args, machine, &mut out).map(success),
        Command::Maps(args) => stat::run_maps(args, machine, &mut out).map(success),
        Command::Top(args) => top::run(args, machine, &mut out).map(success),
        Command::Record(args) => record::record(args, machine, &mut out),
        Command::Replay(args) => record::replay(args, &mut out).map(success),
        Command::Link(args) => link::run(args, &mut out).map(success),
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

/// Answers as another tool when called by its name, as through a link named `numactl`.
fn drop_in() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let called = words.next()?;
    let name = Path::new(&called).file_name()?.to_str()?;
    let args: Vec<OsString> = words.collect();
    homenode_compat::run(name, &args)
}
