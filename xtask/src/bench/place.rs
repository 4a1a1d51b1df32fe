//! `cargo xtask bench place`: what it costs to be placed.

use std::process::ExitCode;

use anyhow::Result;

use super::programs::{Contender, compare, installed_homenode};
use crate::host::{self, Needed};

/// `homenode run` against numactl, and `homenode place` against `numad -w`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs of each launcher; `numad -w` takes two seconds and runs twenty times less often
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..))]
    rounds: u32,
}

/// What a launch costs beyond the program, of what it costs with numactl: at most this.
const LAUNCH_RATIO_GOAL: f64 = 0.5;
/// Unit: milliseconds.
const PLACE_GOAL_MS: f64 = 5.0;

/// Prints the tables; status 1 when a goal is missed.
///
/// # Errors
///
/// When a command cannot be built or fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let needed = |program| Needed {
        program,
        package: program,
    };
    host::ensure(&[needed("numactl"), needed("numad"), needed("strace")])?;
    let homenode = installed_homenode()?.display().to_string();
    let rounds = args.rounds as usize;

    println!("launching, {rounds} rounds:");
    let mut launchers = [
        Contender::new(
            "homenode run -m 0 true",
            &[&homenode, "run", "-m", "0", "true"],
        ),
        Contender::new("numactl -m 0 true", &["numactl", "-m", "0", "true"]),
        Contender::new("true", &["true"]),
    ];
    compare(&mut launchers, 1, rounds)?;
    let [ours, theirs, bare] = launchers.map(|launcher| launcher.median().as_secs_f64());
    let launch = (ours - bare) / (theirs - bare);
    println!("  beyond true: {launch:.2} of numactl (goal: at most {LAUNCH_RATIO_GOAL})");

    println!("choosing nodes, {} rounds:", rounds / 20);
    let mut choosers = [
        Contender::new(
            "homenode place",
            &[&homenode, "place", "--cpus", "2", "--memory", "1GiB"],
        ),
        Contender::new("numad -w 2:1024", &["numad", "-w", "2:1024"]),
    ];
    compare(&mut choosers, 1, rounds / 20)?;
    let place_ms = choosers[0].median().as_secs_f64() * 1e3;
    println!("  homenode place: {place_ms:.2} ms (goal: under {PLACE_GOAL_MS})");

    let held = launch <= LAUNCH_RATIO_GOAL && place_ms < PLACE_GOAL_MS;
    Ok(ExitCode::from(u8::from(!held)))
}
