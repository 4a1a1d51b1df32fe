//! `cargo xtask bench topo`: from start to end of a program.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::build::{Profile, StaticBuild};
use crate::host::{self, Needed};

/// `homenode topo` against numactl on this machine, and against lstopo on a large one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A captured machine with many CPUs: the folder that holds sys/
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Runs of each command
    #[arg(long, default_value_t = 200)]
    rounds: usize,
}

/// A command and its times.
#[derive(Debug)]
struct Contender {
    name: &'static str,
    command: Vec<String>,
    times: Vec<Duration>,
}

/// Prints the table.
///
/// # Errors
///
/// When a command cannot be built or fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let Args { tree, rounds } = args;
    host::ensure(&[
        Needed {
            program: "numactl",
            package: "numactl",
        },
        Needed {
            program: "strace",
            package: "strace",
        },
        Needed {
            program: "lstopo-no-graphics",
            package: "hwloc-nox",
        },
    ])?;
    let binary = StaticBuild::new(Profile::Release)?.binary("homenode", "homenode")?;
    let homenode = binary.display().to_string();
    println!("this machine, {rounds} rounds:");
    compare(
        &mut [
            Contender::new("homenode topo", &[&homenode, "topo"]),
            Contender::new("homenode topo --full", &[&homenode, "topo", "--full"]),
            Contender::new("numactl -H", &["numactl", "-H"]),
            Contender::new(
                "lstopo --no-io --of xml",
                &["lstopo-no-graphics", "--no-io", "--of", "xml"],
            ),
            Contender::new("true", &["/bin/true"]),
        ],
        2,
        *rounds,
    )?;
    let Some(tree) = tree.clone().or_else(unpacked_256_cpus) else {
        println!("skipped: no captured machine with 256 CPUs; name one with --tree DIR");
        return Ok(ExitCode::SUCCESS);
    };
    let folder = tree.display().to_string();
    println!("{folder}, {} rounds:", rounds / 4);
    compare(
        &mut [
            Contender::new(
                "homenode topo --full",
                &[&homenode, "topo", "--full", "--root", &folder],
            ),
            Contender::new("homenode topo", &[&homenode, "topo", "--root", &folder]),
            Contender::new(
                "lstopo --no-io",
                &[
                    "lstopo-no-graphics",
                    "--no-io",
                    "--if",
                    "fsroot",
                    "-i",
                    &folder,
                    "--of",
                    "xml",
                ],
            ),
        ],
        2,
        rounds / 4,
    )?;
    Ok(ExitCode::SUCCESS)
}

impl Contender {
    fn new(name: &'static str, command: &[&str]) -> Self {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        Self {
            name,
            command,
            times: Vec::new(),
        }
    }

    fn quiet(&self, before: &[&str]) -> Command {
        let mut words = before
            .iter()
            .copied()
            .chain(self.command.iter().map(String::as_str));
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            // Cargo sets it, and every directory in it costs a dynamic program some opens.
            .env_remove("LD_LIBRARY_PATH")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn run_once(&mut self) -> Result<()> {
        let mut command = self.quiet(&[]);
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

    /// System calls of the whole process tree, the one that starts it included.
    fn system_calls(&self) -> Result<usize> {
        let log = std::env::temp_dir().join(format!("homenode-bench-{}", std::process::id()));
        let log_name = log.display().to_string();
        let traced = self.quiet(&["strace", "-f", "-qq", "-e", "signal=none", "-o", &log_name]);
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

/// Runs all in turn and prints each beside the reference.
fn compare(contenders: &mut [Contender], reference: usize, rounds: usize) -> Result<()> {
    const WARM_UP_ROUNDS: usize = 3;
    for round in 0..rounds + WARM_UP_ROUNDS {
        for contender in &mut *contenders {
            contender.run_once()?;
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
    let median = |contender: &Contender| contender.times[contender.times.len() / 2];
    let reference_time = median(&contenders[reference]);
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
            median(contender).as_secs_f64() * 1e3,
            contender.system_calls()?,
            median(contender).as_secs_f64() / reference_time.as_secs_f64(),
        );
    }
    Ok(())
}

/// The largest captured machine that the tests have unpacked.
fn unpacked_256_cpus() -> Option<PathBuf> {
    const NAME: &str = "256ia64-64n2s2c";
    let folder: &Path = &host::root().join("target/tmp/corpus").join(NAME).join(NAME);
    folder.join("sys").is_dir().then(|| folder.to_owned())
}
