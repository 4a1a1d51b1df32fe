//! `cargo xtask fuzz`: libFuzzer on the parsers, with the stable compiler.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::host::{self, Needed};

/// Fuzz the parsers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these targets; all that there are, unless named
    target: Vec<String>,
    /// Time for all targets together
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) seconds: u64,
}

impl Args {
    /// All targets for this long.
    pub(crate) fn all(seconds: u64) -> Self {
        Self {
            target: Vec::new(),
            seconds,
        }
    }
}

/// What cargo-fuzz passes too; these flags are stable, so neither it nor nightly is needed.
const INSTRUMENTATION: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// An input that takes longer than this has found something.
const INPUT_SECONDS: u32 = 10;

/// Runs the targets one after another; a crash leaves its input in target/fuzz/artifacts.
///
/// # Errors
///
/// When a target does not build or does not exist.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    host::ensure(&[Needed {
        program: "c++",
        package: "g++",
    }])?;
    let all = targets()?;
    for name in &args.target {
        if !all.contains(name) {
            bail!(
                "expected one of the fuzz targets {}, found `{name}`",
                all.join(", ")
            );
        }
    }
    let chosen = if args.target.is_empty() {
        &all
    } else {
        &args.target
    };
    let folder = host::root().join("target/fuzz");
    build(&folder)?;
    let seconds = (args.seconds / chosen.len() as u64).max(1);
    let mut failed = false;
    for name in chosen {
        let status = fuzz(&folder, name, seconds)?;
        println!(
            "fuzz {name}: {seconds} s, {}",
            if status { "no crash" } else { "CRASHED" }
        );
        failed |= !status;
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn targets() -> Result<Vec<String>> {
    let folder = host::root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).context("cannot list fuzz/fuzz_targets")? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn build(folder: &Path) -> Result<()> {
    let status = host::cargo()
        .current_dir(host::root().join("fuzz"))
        .args(["build", "--quiet", "--release", "--target", TARGET])
        .env("RUSTFLAGS", INSTRUMENTATION.join(" "))
        .env("CARGO_TARGET_DIR", folder)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the fuzz targets do not build");
    }
    Ok(())
}

/// Whether a target ran its time without a crash.
fn fuzz(folder: &Path, name: &str, seconds: u64) -> Result<bool> {
    let corpus = folder.join("corpus").join(name);
    let artifacts = folder.join("artifacts").join(name);
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let seeds = host::root().join("fuzz/seeds").join(name);
    let mut fuzzer = Command::new(folder.join(TARGET).join("release").join(name));
    fuzzer
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg("-rss_limit_mb=2048")
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus);
    if seeds.is_dir() {
        fuzzer.arg(seeds);
    }
    let output = fuzzer
        .output()
        .with_context(|| format!("cannot start the fuzzer {name}"))?;
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.status.success())
}
