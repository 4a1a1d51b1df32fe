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
///
/// A test that fails is run a second time, in a fresh guest: emulated CPUs share two real ones with
/// whatever else runs, and a kernel that is kept waiting for seconds breaks assumptions that no
/// change has touched. What passes then is counted as passed, and named in the last lines.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only tests whose names contain one of these, such as `run::` or `migrate::a_dry_run`
    #[arg(value_name = "TEST", conflicts_with = "timed")]
    tests: Vec<String>,
    /// Only these machines (repeatable)
    #[arg(long, value_name = "NAME", value_parser = Shape::named)]
    shape: Vec<Shape>,
    /// Only these kernels (repeatable): 6.1, 6.12 or next [default: 6.1 and 6.12, timed 6.12]
    #[arg(long)]
    kernel: Vec<KernelName>,
    /// Time for one guest
    #[arg(long, default_value = "600s", value_parser = parse_duration)]
    timeout: Duration,
    /// All tests on all machines, not only on those that have something to tell them
    #[arg(long)]
    all: bool,
    /// Make accesses cost what the shapes say, and test that they do
    #[arg(long, conflicts_with = "all")]
    timed: bool,
    /// With --timed: also the tests that take minutes
    #[arg(long, requires = "timed")]
    full: bool,
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
const TIMED_TESTS: [&str; 2] = ["timing::", "measure_timed::"];

/// The guest tests that take longest, as emulated threads work in turn.
const MEASURE_TESTS: &str = "measure::";

/// Where they run: one node, two, one without CPUs, one without memory, four.
const MEASURE_SHAPES: [&str; 5] = ["1n", "2n", "3n-cpuless", "3n-memoryless", "4n-ring"];

/// Where they run on all kernels but the last.
const MEASURE_SHAPE: &str = "2n";

/// The timed shapes that every run of all tests boots: small caches, so that little memory is far
/// from them; one with a narrow link, one with two hops and stores of their own cost. All of the
/// shapes take ten minutes.
pub(crate) const TIMED_IN_SHORT: [&str; 2] = ["opteron", "drepper"];

/// The guest tests that every machine has to pass.
const TOPOLOGY_TESTS: [&str; 2] = ["kernel::", "topology::"];

/// What guests made of their tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Guests booted.
    pub(crate) guests: usize,
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// Guests that gave no test result: a panic, a time-out, a test binary that crashed.
    pub(crate) broken: usize,
    /// What failed first and passed in a fresh guest: shape, kernel, and test where the guest gave a
    /// result.
    pub(crate) second_tries: Vec<String>,
}

impl Totals {
    pub(crate) fn good(&self) -> bool {
        self.failed == 0 && self.broken == 0
    }

    fn add(&mut self, other: Self) {
        self.guests += other.guests;
        self.passed += other.passed;
        self.failed += other.failed;
        self.broken += other.broken;
        self.second_tries.extend(other.second_tries);
    }

    /// 0 when everything passed, 1 otherwise.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.good() {
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
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tests {
    /// Those that every machine has to pass.
    Topology,
    /// Those that place and move things too.
    Placement,
    /// Those that measure too.
    All,
    /// What accesses cost.
    Timing,
    /// That, and what takes minutes.
    TimingInFull,
    /// Those whose names contain one of these.
    Containing(Vec<String>),
    /// These.
    Exactly(Vec<String>),
}

impl Tests {
    fn are_timed(&self) -> bool {
        matches!(self, Self::Timing | Self::TimingInFull)
    }

    fn command(&self, shape: &Shape) -> Vec<String> {
        // One at a time: tests share the guest, and its CPUs are emulated by one or two real ones.
        let mut words = vec![GUEST_TESTS, "--test-threads=1"];
        match self {
            Self::Topology => words.extend(TOPOLOGY_TESTS),
            Self::Placement => words.extend(["--skip", MEASURE_TESTS]),
            Self::All => {}
            Self::Timing | Self::TimingInFull => {
                words.push("--nocapture");
                if *self == Self::TimingInFull {
                    words.push("--include-ignored");
                }
                words.extend(TIMED_TESTS);
            }
            Self::Containing(names) => words.extend(names.iter().map(String::as_str)),
            Self::Exactly(names) => {
                words.push("--exact");
                words.extend(names.iter().map(String::as_str));
            }
        }
        if matches!(self, Self::Placement | Self::All | Self::Containing(_)) {
            words.extend(TIMED_TESTS.iter().flat_map(|tests| ["--skip", tests]));
        }
        if let (true, Some(machine)) = (self.are_timed(), shape.machine()) {
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
    let kernels: &[KernelName] = match args.kernel.as_slice() {
        [] if args.timed => &[KernelName::V6_12],
        [] => &[KernelName::V6_1, KernelName::V6_12],
        chosen => chosen,
    };
    let machinery = if args.timed {
        shapes.iter().try_for_each(lab_truth::require_machine)?;
        Machinery::prepare_modelled(kernels, Profile::Dev, args.seed)?
    } else {
        Machinery::prepare(kernels)?
    };
    for &kernel in kernels {
        say(&format!(
            "kernel {kernel}: {}",
            machinery.kernel(kernel).package
        ));
    }
    let mut jobs = Vec::new();
    for &kernel in kernels {
        jobs.extend(shapes.iter().cloned().map(|shape| {
            let is_chosen = args.all || !args.shape.is_empty();
            let is_last = kernels.last() == Some(&kernel);
            let name = shape.name.as_str();
            let measures = is_last && MEASURE_SHAPES.contains(&name) || name == MEASURE_SHAPE;
            let tests = if !args.tests.is_empty() {
                Tests::Containing(args.tests.clone())
            } else if args.full {
                Tests::TimingInFull
            } else if args.timed {
                Tests::Timing
            } else if is_chosen || measures {
                Tests::All
            } else if PLACEMENT_SHAPES.contains(&name) {
                Tests::Placement
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
                    lock(&totals).add(test_one(&machinery, job, args.timeout));
                }
            });
        }
    });
    let totals = std::mem::take(&mut *lock(&totals));
    say(&format!(
        "{} guests: {} passed, {} failed, {} guests without a result",
        totals.guests, totals.passed, totals.failed, totals.broken
    ));
    for what in &totals.second_tries {
        say(&format!("passed only at the second try: {what}"));
    }
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

/// Runs a job's tests, and what failed a second time; prints what came out.
fn test_one(machinery: &Machinery, job: Job, timeout: Duration) -> Totals {
    let name = format!("{} {}", job.shape.name, job.kernel);
    let (mut totals, failed) = boot_one(machinery, &job, timeout);
    // A modelled machine does not notice what its host does, but its emulator may break down.
    if totals.good() || (job.tests.are_timed() && totals.broken == 0) {
        return totals;
    }
    let again = if totals.broken > 0 {
        job.tests
    } else {
        Tests::Exactly(failed.clone())
    };
    say(&format!("{name}: a second try"));
    let (second, still_failed) = boot_one(
        machinery,
        &Job {
            tests: again,
            ..job
        },
        timeout,
    );
    totals.guests += second.guests;
    if second.broken > 0 {
        return totals;
    }
    if totals.broken > 0 {
        totals.broken = 0;
        totals.second_tries.push(name);
    } else {
        let passed = failed.iter().filter(|test| !still_failed.contains(test));
        let passed = passed.map(|test| format!("{name} {test}"));
        totals.second_tries.extend(passed);
    }
    totals.passed += second.passed;
    totals.failed = second.failed;
    totals
}

/// Boots one guest and prints what came out; returns the names of the tests that failed, too.
fn boot_one(machinery: &Machinery, job: &Job, timeout: Duration) -> (Totals, Vec<String>) {
    let command = job.tests.command(&job.shape);
    let mut output = Vec::new();
    let ended = machinery.boot(&job.shape, job.kernel, timeout, &command, |guest| {
        guest.run(&mut |_stream, bytes| {
            output.extend_from_slice(bytes);
            Ok(())
        })
    });
    let output = String::from_utf8_lossy(&output);
    let result = parse_result(&output).filter(|_| ended.is_ok());
    let head = format!("{:<18} {:<5}", job.shape.name, job.kernel);
    let mut report = describe(&head, &ended, result, &output);
    let mut totals = Totals {
        guests: 1,
        broken: usize::from(result.is_none()),
        ..Totals::default()
    };
    (totals.passed, totals.failed) = result.unwrap_or_default();
    if let (true, Some(_), Ok(outcome), Some(machine)) =
        (job.tests.are_timed(), result, &ended, job.shape.machine())
    {
        if totals.good() {
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
        match counters {
            Ok(words) => {
                totals.passed += 1;
                report.push_str(&format!("\n  counters: {words}"));
            }
            Err(problem) => {
                totals.failed += 1;
                report.push_str(&format!("\n  counters: FAILED: {problem:#}"));
            }
        }
    }
    say(&report);
    (totals, failed_tests(&output))
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

/// The tests in libtest's last list of failures.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else {
        return Vec::new();
    };
    list.lines()
        .map_while(|line| line.strip_prefix("    "))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_have_names() {
        let output = "\nfailures:\n\n---- a::b stdout ----\n    at x.rs\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED. 1 passed; 2 failed;";
        assert_eq!(failed_tests(output), ["a::b", "c"]);
        assert_eq!(
            failed_tests("test result: ok. 2 passed; 0 failed;"),
            [""; 0]
        );
    }

    #[test]
    fn libtest_results_are_read() {
        let output = "running 2 tests\n..\n\ntest result: FAILED. 7 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        assert_eq!(parse_result(output), Some((7, 2)));
        assert_eq!(parse_result("running 2 tests\n"), None);
        assert_eq!(parse_result("test result: ok. many passed"), None);
    }

    #[test]
    fn timing_tests_run_on_modelled_machines_only() {
        let opteron = Shape::named("opteron").unwrap();
        let runs = |tests: Tests| tests.command(&opteron).join(" ");
        let timed = runs(Tests::Timing);
        assert!(timed.contains("--nocapture timing:: measure_timed::; status=$?; lab-mark stop"));
        assert!(runs(Tests::TimingInFull).contains("--nocapture --include-ignored timing::"));
        let skipped = "--skip timing:: --skip measure_timed::";
        assert!(runs(Tests::All).ends_with(&format!("--test-threads=1 {skipped}")));
        assert!(runs(Tests::Placement).ends_with(&format!("--skip measure:: {skipped}")));
        assert!(!runs(Tests::Topology).contains("timing::"));
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
