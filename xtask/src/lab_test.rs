//! `cargo xtask lab-test`: the guest tests on every shape and kernel.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use homenode_lab::{GuestError, KernelName, Outcome, Shape};

use crate::build::Profile;
use crate::lab::CONSOLE_LINES;
use crate::lab_machine::{GUEST_TESTS, Machinery, parse_duration};
use crate::lab_truth::{self, KnownChase};

/// Run the guest tests on emulated machines: every shape, every kernel
///
/// With --timed: what accesses cost, on the shapes that say so, and the counters of the model.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these machines (repeatable)
    #[arg(long, value_name = "NAME", value_parser = Shape::named)]
    shape: Vec<Shape>,
    /// Only these kernels (repeatable): 6.1, 6.12 or next
    #[arg(long, default_values = ["6.1", "6.12"])]
    kernel: Vec<KernelName>,
    /// Time for one guest
    #[arg(long, default_value = "300s", value_parser = parse_duration)]
    timeout: Duration,
    /// All tests on all machines, not only on those that have something to tell them
    #[arg(long)]
    all: bool,
    /// Make accesses cost what the shapes say, and test that they do
    #[arg(long, conflicts_with = "all")]
    timed: bool,
    /// What the random numbers of timed guests come from
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "timed")]
    seed: u64,
    /// Guests at a time; a guest keeps about one CPU busy
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
}

/// Where programs are placed and memory is moved: with several equal nodes, a ring, a node without
/// CPUs, one without memory, and enough room to move much. The tests of the topology run everywhere.
const PLACEMENT_SHAPES: [&str; 5] = ["2n", "2n-big", "3n-cpuless", "3n-memoryless", "4n-ring"];

/// The guest tests that need a modelled machine.
const TIMING_TESTS: &str = "timing::";

/// The timed shapes that every run of all tests boots: small caches, so that little memory is far
/// from them; one with a narrow link, one with two hops and stores of their own cost. All of the
/// shapes take ten minutes.
pub(crate) const TIMED_IN_SHORT: [&str; 2] = ["opteron", "drepper"];

/// The guest tests that every machine has to pass.
const TOPOLOGY_TESTS: [&str; 2] = ["kernel::", "topology::"];

/// What all guests together made of their tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Guests booted.
    pub(crate) guests: usize,
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Guests that gave no test result: a panic, a time-out, a test binary that crashed.
    pub(crate) broken: usize,
}

impl Totals {
    /// 0 when everything passed, 1 otherwise.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.failed == 0 && self.broken == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// One boot.
struct Job {
    shape: Shape,
    kernel: KernelName,
    tests: Tests,
}

/// Which tests a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tests {
    /// Those that every machine has to pass.
    Topology,
    /// Those that place and move things too.
    All,
    /// What accesses cost.
    Timing,
}

impl Tests {
    fn command(self, shape: &Shape) -> Vec<String> {
        // One at a time: tests share the guest, and its CPUs are emulated by one or two real ones.
        let mut words = vec![GUEST_TESTS, "--test-threads=1"];
        match self {
            Self::Topology => words.extend(TOPOLOGY_TESTS),
            Self::All => words.extend(["--skip", TIMING_TESTS]),
            Self::Timing => words.extend(["--nocapture", TIMING_TESTS]),
        }
        if let (Self::Timing, Some(machine)) = (self, shape.machine()) {
            let tests = words.join(" ");
            let chase = KnownChase::on(machine).script();
            let script = format!("{tests}; status=$?; {chase}; exit $status");
            return ["sh", "-c", &script].map(str::to_owned).to_vec();
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

pub(crate) fn run(args: &Args) -> Result<Totals> {
    let shapes = if args.shape.is_empty() {
        let shapes: Vec<Shape> = Shape::names().map(Shape::named).collect::<Result<_, _>>()?;
        // Timed shapes have tests of their own, and would show the kernel nothing new.
        let fits = |shape: &Shape| args.all || shape.machine().is_some() == args.timed;
        shapes.into_iter().filter(fits).collect()
    } else {
        args.shape.clone()
    };
    let machinery = if args.timed {
        shapes.iter().try_for_each(lab_truth::require_machine)?;
        Machinery::prepare_modelled(&args.kernel, Profile::Dev, args.seed)?
    } else {
        Machinery::prepare(&args.kernel)?
    };
    for &kernel in &args.kernel {
        say(&format!(
            "kernel {kernel}: {}",
            machinery.kernel(kernel).package
        ));
    }
    let mut jobs = Vec::new();
    for &kernel in &args.kernel {
        jobs.extend(shapes.iter().cloned().map(|shape| {
            let is_chosen = args.all || !args.shape.is_empty();
            let tests = if args.timed {
                Tests::Timing
            } else if is_chosen || PLACEMENT_SHAPES.contains(&shape.name.as_str()) {
                Tests::All
            } else {
                Tests::Topology
            };
            Job {
                shape,
                kernel,
                tests,
            }
        }));
    }
    // Taken from the end: large machines first, so that none is left running alone.
    let jobs = Mutex::new(jobs);
    let totals = Mutex::new(Totals::default());
    thread::scope(|scope| {
        for _worker in 0..args.jobs {
            scope.spawn(|| {
                while let Some(job) = next(&jobs) {
                    let (report, result) = test_one(&machinery, &job, args.timeout);
                    say(&report);
                    let mut totals = lock(&totals);
                    totals.guests += 1;
                    match result {
                        Some((passed, failed)) => {
                            totals.passed += passed;
                            totals.failed += failed;
                        }
                        None => totals.broken += 1,
                    }
                }
            });
        }
    });
    let totals = *lock(&totals);
    say(&format!(
        "{} guests: {} passed, {} failed, {} guests without a result",
        totals.guests, totals.passed, totals.failed, totals.broken
    ));
    Ok(totals)
}

/// Prints lines. A reader that has left (`| head`) changes neither the tests nor their result.
fn say(lines: &str) {
    let _ = writeln!(io::stdout(), "{lines}");
}

/// A function of its own: as the condition of a loop, the lock would be held while the guest runs.
fn next(jobs: &Mutex<Vec<Job>>) -> Option<Job> {
    lock(jobs).pop()
}

/// A worker that panicked has lost its own job only.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Boots one guest; returns what to print, and the numbers of tests that passed and failed.
fn test_one(
    machinery: &Machinery,
    job: &Job,
    timeout: Duration,
) -> (String, Option<(usize, usize)>) {
    let command = job.tests.command(&job.shape);
    let mut output = Vec::new();
    let ended = machinery.boot(&job.shape, job.kernel, timeout, &command, |guest| {
        guest.run(&mut |_stream, bytes| {
            output.extend_from_slice(bytes);
            Ok(())
        })
    });
    let output = String::from_utf8_lossy(&output);
    let mut result = parse_result(&output);
    let head = format!("{:<18} {:<5}", job.shape.name, job.kernel);
    let mut report = describe(&head, &ended, result, &output);
    if let (Tests::Timing, Ok(outcome), Some(machine)) = (job.tests, &ended, job.shape.machine()) {
        if result.is_some_and(|(_, failed)| failed == 0) {
            report.push_str(&felt(&output));
        }
        let counters = match outcome.truth.as_slice() {
            // The chase's, and those at the end.
            [truth, _] => KnownChase::on(machine).check(truth),
            other => Err(anyhow!(
                "expected two sets of counters, found {}",
                other.len()
            )),
        };
        let (word, good) = match counters {
            Ok(words) => (words, true),
            Err(problem) => (format!("FAILED: {problem:#}"), false),
        };
        report.push_str(&format!("\n  counters: {word}"));
        result = result
            .map(|(passed, failed)| (passed + usize::from(good), failed + usize::from(!good)));
    }
    (report, result.filter(|_| ended.is_ok()))
}

/// What the timing tests felt: their own lines, without libtest's.
fn felt(output: &str) -> String {
    output
        .lines()
        .filter(|line| line.contains(" ns") || line.contains("GB/s") || line.contains("asked for"))
        // libtest begins a line, and the test goes on with it.
        .map(|line| line.split_once(" ... ").map_or(line, |(_, own)| own))
        .map(|line| format!("\n  {line}"))
        .collect()
}

fn describe(
    head: &str,
    ended: &Result<Outcome, GuestError>,
    result: Option<(usize, usize)>,
    output: &str,
) -> String {
    match (ended, result) {
        (Ok(outcome), Some((passed, failed))) => {
            let line = format!(
                "{head} {:5.1} s, boot {:4.1} s: {passed} passed, {failed} failed",
                outcome.total.as_secs_f64(),
                outcome.boot.as_secs_f64()
            );
            if failed == 0 {
                line
            } else {
                format!("{line}\n{output}")
            }
        }
        (Ok(outcome), None) => format!(
            "{head} no test result, exit status {}\n{output}{}",
            outcome.status,
            outcome.console.tail(CONSOLE_LINES)
        ),
        (Err(error), _) => {
            let console = error.console().map(|console| console.tail(CONSOLE_LINES));
            format!("{head} {error}\n{output}{}", console.unwrap_or_default())
        }
    }
}

/// Passed and failed, from libtest's line: `test result: ok. 7 passed; 0 failed; …`.
pub(crate) fn parse_result(output: &str) -> Option<(usize, usize)> {
    let counts = output
        .lines()
        .find_map(|line| line.strip_prefix("test result: "))?
        .split_once(". ")?
        .1;
    let count = |word: &str| {
        counts
            .split("; ")
            .find_map(|part| part.strip_suffix(word)?.trim().parse().ok())
    };
    Some((count("passed")?, count("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_results_are_read() {
        let output = "running 2 tests\n..\n\ntest result: FAILED. 7 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        assert_eq!(parse_result(output), Some((7, 2)));
        assert_eq!(parse_result("running 2 tests\n"), None);
        assert_eq!(parse_result("test result: ok. many passed"), None);
    }

    #[test]
    fn timing_tests_run_on_modelled_machines_only() {
        let command = |tests: Tests| tests.command(&Shape::named("opteron").unwrap()).join(" ");
        assert!(command(Tests::Timing).contains("--nocapture timing::; status=$?; lab-mark stop"));
        assert!(command(Tests::All).ends_with("--skip timing::"));
        assert!(!command(Tests::Topology).contains("timing::"));
    }

    #[test]
    fn what_was_felt_is_told_without_libtest() {
        let output = "test timing::x ... node 0: asked for 2 ns, felt 2\nok\n\ntest result: ok.";
        assert_eq!(felt(output), "\n  node 0: asked for 2 ns, felt 2");
    }

    #[test]
    fn a_broken_guest_is_a_failure() {
        let totals = Totals {
            guests: 1,
            broken: 1,
            ..Totals::default()
        };
        assert_ne!(
            format!("{:?}", totals.exit_code()),
            format!("{:?}", ExitCode::SUCCESS)
        );
    }
}
