//! Programs from start to end, side by side.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::build::{Profile, StaticBuild};

/// A command and its times.
#[derive(Debug)]
pub(super) struct Contender {
    name: &'static str,
    command: Vec<String>,
    times: Vec<Duration>,
}

impl Contender {
    pub(super) fn new(name: &'static str, command: &[&str]) -> Self {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        Self {
            name,
            command,
            times: Vec::new(),
        }
    }

    /// Opens what the command will read and write, so that this is not in its time.
    fn quiet(&self, before: &[&str]) -> Result<Command> {
        let null = || File::options().read(true).write(true).open("/dev/null");
        let mut words = before
            .iter()
            .copied()
            .chain(self.command.iter().map(String::as_str));
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            // Cargo sets it, and every directory in it costs a dynamic program some opens.
            .env_remove("LD_LIBRARY_PATH")
            .args(words)
            .stdin(null()?)
            .stdout(null()?)
            .stderr(null()?);
        Ok(command)
    }

    fn run_once(&mut self) -> Result<()> {
        let mut command = self.quiet(&[])?;
        let start = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("cannot start {}", self.name))?;
        self.times.push(start.elapsed());
        if !status.success() {
            bail!("{} ended with {status}", self.name);
        }
        Ok(())
    }

    /// The time that half of the runs stayed below.
    ///
    /// # Panics
    ///
    /// Before [`compare`] has run it.
    pub(super) fn median(&self) -> Duration {
        self.times[self.times.len() / 2]
    }

    /// System calls of the whole process tree, the one that starts it included.
    fn system_calls(&self) -> Result<usize> {
        let log = std::env::temp_dir().join(format!("homenode-bench-{}", std::process::id()));
        let log_name = log.display().to_string();
        let traced = self.quiet(&["strace", "-f", "-qq", "-e", "signal=none", "-o", &log_name])?;
        let status = { traced }.status().context("cannot start strace")?;
        let text = std::fs::read_to_string(&log).context("expected a log from strace")?;
        std::fs::remove_file(&log).context("cannot remove the log of strace")?;
        if !status.success() {
            bail!("{} failed under strace", self.name);
        }
        Ok(text
            .lines()
            .filter(|line| !line.contains("+++ exited"))
            .count())
    }
}

/// The release's program, copied as an installation copies it.
///
/// A file that was written in one go lies in the page cache in larger pieces than one that a linker
/// put together, and so costs fewer and cheaper page faults: a fifth of the time of a short command.
/// The others that are compared were installed, too.
///
/// # Errors
///
/// When it cannot be built or copied.
pub(super) fn installed_homenode() -> Result<PathBuf> {
    let built = StaticBuild::new(Profile::Release)?.binary("homenode", "homenode")?;
    let installed = built.with_file_name("homenode-installed");
    std::fs::copy(&built, &installed)
        .with_context(|| format!("cannot write {}", installed.display()))?;
    Ok(installed)
}

/// Runs all in turn and prints each beside the reference.
///
/// Each round has an order of its own: what ran before leaves the kernel's caches warm or cold, and
/// in one fixed order the same program would always profit.
///
/// # Errors
///
/// When a command cannot be started or fails.
pub(super) fn compare(contenders: &mut [Contender], reference: usize, rounds: usize) -> Result<()> {
    const WARM_UP_ROUNDS: usize = 3;
    let mut random = fastrand::Rng::with_seed(1);
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    for round in 0..rounds + WARM_UP_ROUNDS {
        random.shuffle(&mut order);
        for &next in &order {
            contenders[next].run_once()?;
        }
        if round + 1 == WARM_UP_ROUNDS {
            contenders
                .iter_mut()
                .for_each(|contender| contender.times.clear());
        }
    }
    for contender in &mut *contenders {
        contender.times.sort_unstable();
    }
    let reference_time = contenders[reference].median();
    let reference_name = contenders[reference].name;
    println!(
        "  {:<26} {:>9} {:>9} {:>12}  ÷ {reference_name}",
        "command", "min ms", "median ms", "system calls"
    );
    for contender in &*contenders {
        println!(
            "  {:<26} {:>9.3} {:>9.3} {:>12}  {:.2}",
            contender.name,
            contender.times[0].as_secs_f64() * 1e3,
            contender.median().as_secs_f64() * 1e3,
            contender.system_calls()?,
            contender.median().as_secs_f64() / reference_time.as_secs_f64(),
        );
    }
    Ok(())
}
