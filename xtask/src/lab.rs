//! `cargo xtask lab`: one command on one emulated machine.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::CommandFactory;
use homenode_lab::{Console, KernelName, Shape, Stream};

use crate::build::Profile;
use crate::lab_machine::{Machinery, parse_duration};
use crate::lab_truth;

/// Run a command on an emulated machine with several memory nodes.
///
/// The guest has homenode, numactl, busybox and guest-tests in its search path. The command's
/// output and exit status are passed on; 2 also means that the guest gave no status.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask lab --shape 4n-ring -- numactl --hardware
  cargo xtask lab --shape opteron --timed -- numactl --membind 1 lab-probe chase 0 16 100000")]
pub(crate) struct Args {
    /// List the shapes and exit
    #[arg(long)]
    list: bool,
    /// The machine: a file of lab/shapes, without .toml
    #[arg(long, value_name = "NAME", required_unless_present = "list", value_parser = Shape::named)]
    shape: Option<Shape>,
    /// The kernel to boot: 6.1, 6.12 or next
    #[arg(long, default_value = "6.12")]
    kernel: KernelName,
    /// Time for boot and command together
    #[arg(long, default_value = "120s", value_parser = parse_duration)]
    timeout: Duration,
    /// Write what the guest's kernel prints to this file
    #[arg(long, value_name = "FILE")]
    keep_console: Option<PathBuf>,
    /// Put what lies in this folder over the guest's root: FOLDER/usr/bin/x becomes /usr/bin/x
    #[arg(long, value_name = "FOLDER")]
    add: Option<PathBuf>,
    /// Make accesses cost what the shape says; counters are printed at the end
    #[arg(long)]
    timed: bool,
    /// What the guest's random numbers come from
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "timed")]
    seed: u64,
    /// Write the counters to this file, a line of JSON for each time the guest asked for them
    #[arg(long, value_name = "FILE", requires = "timed")]
    truth: Option<PathBuf>,
    /// What to run; without it, print help
    #[arg(last = true)]
    command: Vec<String>,
}

/// Lines of the guest's console that tell why it ended.
pub(crate) const CONSOLE_LINES: usize = 30;

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        return list();
    }
    let Some(shape) = args.shape.as_ref().filter(|_| !args.command.is_empty()) else {
        crate::Cli::command()
            .find_subcommand_mut("lab")
            .context("expected a subcommand `lab`")?
            .print_long_help()?;
        return Ok(ExitCode::from(2));
    };
    let mut machinery = if args.timed {
        lab_truth::require_machine(shape)?;
        // Optimised: what a program does beside its accesses should cost as on a machine.
        Machinery::prepare_modelled(&[args.kernel], Profile::Release, args.seed)?
    } else {
        Machinery::prepare(&[args.kernel])?
    };
    if let Some(folder) = &args.add {
        machinery.add(folder)?;
    }
    let mut pass_on = |stream: Stream, bytes: &[u8]| match stream {
        Stream::Stdout => write_all(io::stdout(), bytes),
        Stream::Stderr => write_all(io::stderr(), bytes),
    };
    let ended = machinery.boot(shape, args.kernel, args.timeout, &args.command, |guest| {
        guest.run(&mut pass_on)
    });
    match ended {
        Ok(outcome) => {
            keep(args.keep_console.as_deref(), &outcome.console)?;
            if let Some(truth) = outcome.truth.last() {
                eprint!("{}", lab_truth::summary(truth));
            }
            if let Some(path) = &args.truth {
                fs::write(path, lab_truth::json_lines(&outcome.truth)?)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            Ok(ExitCode::from(outcome.status))
        }
        Err(error) => {
            if let Some(console) = error.console() {
                keep(args.keep_console.as_deref(), console)?;
                eprintln!("{}", console.tail(CONSOLE_LINES));
            }
            Err(error.into())
        }
    }
}

fn list() -> Result<ExitCode> {
    for name in Shape::names() {
        let shape = Shape::named(name)?;
        let timed = if shape.machine().is_some() {
            "timed"
        } else {
            ""
        };
        println!("{name:<18} {timed:<5} {}", shape.description);
    }
    Ok(ExitCode::SUCCESS)
}

fn write_all(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

fn keep(path: Option<&Path>, console: &Console) -> Result<()> {
    match path {
        Some(path) => {
            fs::write(path, &console.0).with_context(|| format!("cannot write {}", path.display()))
        }
        None => Ok(()),
    }
}
