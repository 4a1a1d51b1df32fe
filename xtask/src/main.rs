//! `cargo xtask`: everything that a developer or CI runs on this repository.
//!
//! A subcommand is a module with `Args` and `run`, and a line in each of the two lists below.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool: it talks to the terminal, reads files and starts programs"
)]

mod bench;
mod build;
mod fuzz;
mod host;
mod lab;
mod lab_machine;
mod lab_test;
mod lab_truth;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks, tests, benchmarks and the lab of homenode.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Test(test::Args),
    Bench(bench::Args),
    Fuzz(fuzz::Args),
    Lab(Box<lab::Args>),
    LabTest(lab_test::Args),
    Tidy(tidy::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Tidy(args) => tidy::run(&args),
        Task::Lab(args) => lab::run(&args),
        Task::LabTest(args) => lab_test::run(&args).map(|totals| totals.exit_code()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
