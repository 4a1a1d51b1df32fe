//! `cargo xtask bench`: speed, side by side in one run.
//!
//! Machines are noisy: only ratios within a run mean something. Each round runs every command
//! once, in turn, so that a slow moment meets all of them.

mod measure;
mod migrate;
mod observe;
mod place;
mod programs;
mod topo;

use std::process::ExitCode;

use anyhow::Result;

/// Compare homenode with its peers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Topo(topo::Args),
    Place(place::Args),
    Migrate(migrate::Args),
    Measure(measure::Args),
    Observe(observe::Args),
}

/// Prints the table.
///
/// # Errors
///
/// When a command cannot be built or fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.what {
        What::Topo(args) => topo::run(args),
        What::Place(args) => place::run(args),
        What::Migrate(args) => migrate::run(args),
        What::Measure(args) => measure::run(args),
        What::Observe(args) => observe::run(args),
    }
}
