//! `cargo xtask bench migrate`: what a busy process feels while its memory moves.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use homenode_lab::{KernelName, Shape, Stream};

use crate::build::Profile;
use crate::lab::CONSOLE_LINES;
use crate::lab_machine::{Machinery, parse_duration};

/// `homenode migrate` against migratepages: worst stall of a busy process, and total time
///
/// In one boot of an emulated machine on the model's clock, in turn: times are the guest's own, in
/// which both of its CPUs work at once and accesses cost what shape 2n-move says. What the host does
/// meanwhile only makes one wait: about two minutes a round.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Memory of the process. Unit: MiB
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(16..=400))]
    mib: u32,
    /// Runs of each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The kernel to boot: 6.1, 6.12 or next
    #[arg(long, default_value = "6.12")]
    kernel: KernelName,
    /// Let the process have transparent huge pages
    #[arg(long)]
    thp: bool,
    /// What the guest's random numbers come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time for all together
    #[arg(long, default_value = "30m", value_parser = parse_duration)]
    timeout: Duration,
    /// More arguments of `homenode migrate`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Worst stall of migratepages over ours should be at least this.
const STALL_RATIO_GOAL: f64 = 3.0;
/// Our total time over that of migratepages should be at most this.
const TIME_RATIO_GOAL: f64 = 1.5;

/// One run.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    name: String,
    total_ms: f64,
    worst_ms: f64,
    over_100us: f64,
    over_1ms: f64,
    moved_mib: f64,
}

/// Prints the table; status 1 when a goal is missed.
///
/// # Errors
///
/// When the guest cannot be built, or breaks.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let machinery = Machinery::prepare_modelled(&[args.kernel], Profile::Release, args.seed)?;
    let shape = Shape::named("2n-move")?;
    let pages = if args.thp { "always" } else { "never" };
    // AutoNUMA would hold pages up, too.
    let script = format!(
        "echo {pages} > /sys/kernel/mm/transparent_hugepage/enabled &&
         echo 0 > /proc/sys/kernel/numa_balancing &&
         numactl --cpunodebind=1 lab-bench-migrate {} {} {}",
        args.mib,
        args.rounds,
        args.arguments.join(" ")
    );
    let command = ["sh", "-c", &script].map(str::to_owned);
    let mut output = String::new();
    let ended = machinery.boot(&shape, args.kernel, args.timeout, &command, |guest| {
        guest.run(&mut |stream, bytes| {
            if stream == Stream::Stdout {
                output.push_str(&String::from_utf8_lossy(bytes));
            }
            io::stderr().write_all(bytes)
        })
    });
    match ended {
        Ok(outcome) if outcome.status == 0 => {}
        Ok(outcome) => bail!("the guest ended with status {}", outcome.status),
        Err(error) => {
            if let Some(console) = error.console() {
                eprintln!("{}", console.tail(CONSOLE_LINES));
            }
            return Err(error).context("the benchmark's guest broke");
        }
    }
    report(&parse_runs(&output)?)
}

fn parse_runs(output: &str) -> Result<Vec<Run>> {
    output
        .lines()
        .map(|line| {
            let mut words = line.split_ascii_whitespace();
            let name = words.next().unwrap_or_default().to_owned();
            let field = |field: &str| {
                line.split_ascii_whitespace()
                    .find_map(|word| word.strip_prefix(field)?.strip_prefix('=')?.parse().ok())
                    .with_context(|| format!("expected {field}=NUMBER, found `{line}`"))
            };
            Ok(Run {
                name,
                total_ms: field("total_us")? / 1e3,
                worst_ms: field("worst_us")? / 1e3,
                over_100us: field("over_100us")?,
                over_1ms: field("over_1ms")?,
                moved_mib: field("moved_kib")? / 1024.0,
            })
        })
        .collect()
}

fn report(runs: &[Run]) -> Result<ExitCode> {
    println!(
        "{:<13} {:>4} {:>10} {:>14} {:>18} {:>13} {:>9} {:>10}",
        "",
        "runs",
        "total ms",
        "worst stall ms",
        "(min to max)",
        "over 0.1 ms",
        "over 1 ms",
        "moved MiB"
    );
    for name in ["idle", "migratepages", "homenode"] {
        let of = |value: fn(&Run) -> f64| sorted(runs, name, value);
        let worst = of(|run| run.worst_ms);
        let (Some(least), Some(most)) = (worst.first(), worst.last()) else {
            bail!("expected runs of {name}, found none");
        };
        println!(
            "{name:<13} {:>4} {:>10.1} {:>14.3} {:>18} {:>13.0} {:>9.0} {:>10.0}",
            worst.len(),
            median(&of(|run| run.total_ms)),
            median(&worst),
            format!("({least:.3} to {most:.3})"),
            median(&of(|run| run.over_100us)),
            median(&of(|run| run.over_1ms)),
            median(&of(|run| run.moved_mib)),
        );
    }
    let median_of = |name, value: fn(&Run) -> f64| median(&sorted(runs, name, value));
    let worst = |run: &Run| run.worst_ms;
    let total = |run: &Run| run.total_ms;
    let stall_ratio = median_of("migratepages", worst) / median_of("homenode", worst);
    let time_ratio = median_of("homenode", total) / median_of("migratepages", total);
    println!(
        "worst stall, migratepages / homenode: {stall_ratio:.2} (goal: at least {STALL_RATIO_GOAL})"
    );
    println!(
        "total time, homenode / migratepages: {time_ratio:.2} (goal: at most {TIME_RATIO_GOAL})"
    );
    let is_good = stall_ratio >= STALL_RATIO_GOAL && time_ratio <= TIME_RATIO_GOAL;
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn sorted(runs: &[Run], name: &str, value: fn(&Run) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = runs
        .iter()
        .filter(|run| run.name == name)
        .map(value)
        .collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle one; the upper of the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read() {
        let line =
            "homenode total_us=2000 worst_us=500 over_100us=3 over_1ms=1 touches=9 moved_kib=2048";
        let runs = parse_runs(line).unwrap();
        let expected = Run {
            name: "homenode".to_owned(),
            total_ms: 2.0,
            worst_ms: 0.5,
            over_100us: 3.0,
            over_1ms: 1.0,
            moved_mib: 2.0,
        };
        assert_eq!(runs, [expected]);
        parse_runs("homenode total_us=x").unwrap_err();
    }
}
