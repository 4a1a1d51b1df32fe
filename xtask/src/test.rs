//! `cargo xtask test`: everything that decides whether a change is good.

use std::io::{BufRead as _, BufReader};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser as _;

use crate::host::{self, Needed};
use crate::{fuzz, lab_test, tidy};

/// Run all checks and tests: format, tidy, clippy, tests, the lab, a minute of fuzzing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the lab and the fuzzing out: what needs no package beyond Rust
    #[arg(long)]
    quick: bool,
}

/// What the tests compare us with, and what the lab and the fuzzer need.
const NEEDED: [Needed; 7] = [
    Needed {
        program: "lstopo-no-graphics",
        package: "hwloc-nox",
    },
    Needed {
        program: "numactl",
        package: "numactl",
    },
    Needed {
        program: "strace",
        package: "strace",
    },
    Needed {
        program: "c++",
        package: "g++",
    },
    Needed {
        program: "xmllint",
        package: "libxml2-utils",
    },
    Needed {
        program: "qemu-system-x86_64",
        package: "qemu-system-x86",
    },
    Needed {
        program: "python3",
        package: "python3",
    },
];

/// Tests fail instead of skipping themselves when a tool is missing.
const NO_SKIP: &str = "HOMENODE_TEST_NO_SKIP";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Guest tests among those that passed.
    second_tries: usize,
}

/// One step's outcome.
#[derive(Debug)]
struct Step {
    name: &'static str,
    good: bool,
    time: Duration,
}

/// Runs every step, also after one has failed, and prints what each gave.
///
/// # Errors
///
/// When a step cannot be started.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if !args.quick {
        host::ensure(&NEEDED)?;
    }
    let mut counts = Counts::default();
    let mut steps = Vec::new();
    let mut step = |name: &'static str, run: &mut dyn FnMut() -> Result<bool>| -> Result<()> {
        println!("== {name}");
        let start = Instant::now();
        let good = run()?;
        steps.push(Step {
            name,
            good,
            time: start.elapsed(),
        });
        Ok(())
    };
    step("format", &mut || cargo(&["fmt", "--all", "--check"]))?;
    step("tidy", &mut || {
        Ok(tidy::run(&tidy::Args {})? == ExitCode::SUCCESS)
    })?;
    step("clippy", &mut || {
        cargo(&[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
    })?;
    step("tests", &mut || cargo_test(!args.quick, &mut counts))?;
    if !args.quick {
        step("lab", &mut || lab(&mut counts))?;
        step("fuzz", &mut || {
            Ok(fuzz::run(&fuzz::Args::all(60))? == ExitCode::SUCCESS)
        })?;
    }
    for Step { name, good, time } in &steps {
        let verdict = if *good { "ok" } else { "FAILED" };
        println!("{name:<8} {verdict:<7} {:6.1} s", time.as_secs_f64());
    }
    let Counts {
        passed,
        failed,
        skipped,
        second_tries,
    } = counts;
    if second_tries > 0 {
        println!("{second_tries} of them only at the second try, named where the lab ends");
    }
    println!("total: {passed} passed, {failed} failed, {skipped} skipped");
    let good = steps.iter().all(|step| step.good);
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn cargo(arguments: &[&str]) -> Result<bool> {
    let status = host::cargo()
        .args(arguments)
        .status()
        .context("cannot start cargo")?;
    Ok(status.success())
}

/// Runs the tests of the workspace, passing their output on and counting.
fn cargo_test(no_skip: bool, counts: &mut Counts) -> Result<bool> {
    let mut cargo = host::cargo();
    // Passing tests print why they skipped something; without this nobody would see it.
    cargo.args([
        "test",
        "--quiet",
        "--workspace",
        "--no-fail-fast",
        "--",
        "--show-output",
    ]);
    if no_skip {
        cargo.env(NO_SKIP, "1");
    }
    let mut child = cargo
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test")?;
    let output = child
        .stdout
        .take()
        .context("expected the output of cargo test")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("cannot read the output of cargo test")?;
        counts.add(&line);
        println!("{line}");
    }
    Ok(child
        .wait()
        .context("cannot wait for cargo test")?
        .success())
}

impl Counts {
    /// Takes a line of libtest's output in.
    fn add(&mut self, line: &str) {
        if line.starts_with("skipped: ") {
            self.skipped += 1;
        }
        if let Some((passed, failed)) = lab_test::parse_result(line) {
            self.passed += passed;
            self.failed += failed;
        }
    }
}

fn lab(counts: &mut Counts) -> Result<bool> {
    /// The lab's own command line with its defaults.
    #[derive(clap::Parser)]
    struct Defaults {
        #[command(flatten)]
        args: lab_test::Args,
    }
    let shapes = lab_test::TIMED_IN_SHORT.map(|shape| ["--shape", shape]);
    let timed = [
        &["lab-test", "--timed", "--kernel", "6.12"],
        shapes.as_flattened(),
    ]
    .concat();
    let mut good = true;
    for words in [vec!["lab-test"], timed] {
        let totals = lab_test::run(&Defaults::parse_from(words).args)?;
        counts.passed += totals.passed;
        counts.failed += totals.failed + totals.broken;
        good &= totals.good();
        counts.second_tries += totals.second_tries.len();
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_skips_are_counted() {
        let mut counts = Counts::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "skipped: lstopo is not installed",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ] {
            counts.add(line);
        }
        assert_eq!(
            counts,
            Counts {
                passed: 4,
                failed: 2,
                skipped: 1,
                second_tries: 0
            }
        );
    }
}
