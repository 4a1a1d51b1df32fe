//! Moves the memory of a busy process with homenode and with migratepages, in turn, and prints a
//! line for each run: `NAME total_us=… worst_us=… over_100us=… over_1ms=… touches=… moved_kib=…`.
//!
//! `lab-bench-migrate MIB ROUNDS [ARGUMENT OF HOMENODE MIGRATE]…`, as root, on two nodes with a CPU
//! each: the victim runs and lies on node 0, the one who moves it runs on node 1.

#![expect(
    clippy::disallowed_methods,
    reason = "a program of the lab, which measures the guest it runs on"
)]

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a victim feels by itself. A second here is a minute or two of the host.
const IDLE: Duration = Duration::from_millis(100);
/// For fresh memory: first touches, huge pages being made.
const SETTLE: Duration = Duration::from_millis(30);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "lab-bench-migrate: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mib, rounds, extra @ ..] = words.as_slice() else {
        return Err("expected MIB ROUNDS".to_owned());
    };
    let rounds: usize = rounds.parse().map_err(|_| "expected ROUNDS")?;
    for round in 0..rounds {
        measure("idle", mib, |_| {
            thread::sleep(IDLE);
            Ok(())
        })?;
        let mut contenders = ["homenode", "migratepages"];
        // Whoever comes second finds a machine that the first one has used.
        if round % 2 == 1 {
            contenders.reverse();
        }
        for contender in contenders {
            measure(contender, mib, |pid| {
                let mut command = Command::new("numactl");
                command.arg("--cpunodebind=1");
                match contender {
                    "homenode" => command
                        .args(["homenode", "migrate", pid, "--to", "1", "--from", "0"])
                        .args(extra),
                    _ => command.args(["migratepages", pid, "0", "1"]),
                };
                let output = command.output().map_err(|error| error.to_string())?;
                // 1 means that homenode left something: libraries and the like.
                if output.status.code().is_none_or(|code| code > 1) {
                    return Err(format!("{contender}: {output:?}"));
                }
                if contender == "homenode" && round == 0 {
                    let _ = io::stderr().write_all(&output.stdout);
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Starts a victim, does something to it, and prints how long that took and what the victim felt.
fn measure(
    name: &str,
    mib: &str,
    act: impl FnOnce(&str) -> Result<(), String>,
) -> Result<(), String> {
    let mut victim = Victim::start(mib)?;
    thread::sleep(SETTLE);
    let before = victim.bytes_on(1)?;
    victim.ask("stalls")?;
    let start = Instant::now();
    act(&victim.child.id().to_string())?;
    let took = start.elapsed();
    let stalls = victim.ask("stalls")?;
    let moved = victim.bytes_on(1)?.saturating_sub(before);
    let checked = victim.ask("check")?;
    if checked != "intact" {
        return Err(format!("{name}: the victim is {checked}"));
    }
    let line = format!(
        "{name} total_us={} {stalls} moved_kib={}",
        took.as_micros(),
        moved >> 10
    );
    writeln!(io::stdout(), "{line}").map_err(|error| error.to_string())
}

struct Victim {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Victim {
    fn start(mib: &str) -> Result<Self, String> {
        let mut child = Command::new("numactl")
            .args([
                "--cpunodebind=0",
                "--membind=0",
                "lab-victim",
                mib,
                "--touch",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the victim: {error}"))?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut victim = Self {
            child,
            input,
            output,
        };
        match victim.line()?.as_str() {
            "ready" => Ok(victim),
            other => Err(format!("expected ready, found `{other}`")),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        Ok(line.trim_end().to_owned())
    }

    fn ask(&mut self, question: &str) -> Result<String, String> {
        writeln!(self.input, "{question}").map_err(|error| error.to_string())?;
        self.line()
    }

    /// What lies on a node, from `numa_maps`. Unit: bytes.
    fn bytes_on(&self, node: u32) -> Result<u64, String> {
        let path = format!("/proc/{}/numa_maps", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let prefix = format!("N{node}=");
        let pages = text
            .split_ascii_whitespace()
            .filter_map(|word| word.strip_prefix(&prefix)?.parse::<u64>().ok());
        Ok(pages.sum::<u64>() * 4096)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
