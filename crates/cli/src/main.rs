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

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

const EXIT_ERROR: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = drop_in() {
        return code;
    }
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

/// Answers as another tool when called by its name, as through a link named `numactl`.
fn drop_in() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let called = words.next()?;
    let name = Path::new(&called).file_name()?.to_str()?;
    let args: Vec<OsString> = words.collect();
    homenode_compat::run(name, &args)
}
