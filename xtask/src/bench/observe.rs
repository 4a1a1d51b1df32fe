//! `cargo xtask bench observe`: what it costs to look, for us and for who is looked at.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::build::{Profile, StaticBuild};
use crate::host::{self, Needed};
use crate::lab_machine::parse_duration;

/// The sampler against numastat -p on a large process, and `homenode top` on many small ones
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this part (repeatable)
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Memory of the large process, in base pages. Unit: MiB
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(64..))]
    mib: u32,
    /// Runs of each way to look
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Seconds for which each way to look is watched by the process it looks at
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    stall_rounds: u32,
    /// Processes that `top` watches
    #[arg(long, default_value_t = 1000)]
    processes: usize,
    /// Time for which `top` is watched
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    watch: Duration,
    /// Time with processes born and dying at 200/s
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    churn: Duration,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// How long it takes to look at a large process.
    Times,
    /// How long the large process is held up.
    Stalls,
    /// What `top` uses.
    Top,
}

/// Time of numastat -p over that of a 4,096-page estimate: at least.
const TIME_GOAL: f64 = 25.0;
/// Worst stall while `numa_maps` is read over that while we sample: at least.
const STALL_GOAL: f64 = 100.0;
/// Time of an estimate of the whole over that of an eighth: at most.
const GROWTH_GOAL: f64 = 2.0;
/// Part of one CPU that `top` uses: at most.
const CPU_GOAL: f64 = 0.02;
/// Memory that `top` uses. Unit: MiB.
const MEMORY_GOAL_MIB: f64 = 64.0;
/// What its largest memory may grow from the first half of the churn to the second: a tenth of what
/// would be kept at a hundred bytes for each process born in five minutes. Unit: MiB.
const GROWTH_GOAL_MIB: f64 = 0.5;

/// Prints the table; status 1 when a goal is missed.
///
/// # Errors
///
/// When something cannot be built or started.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    host::ensure(&[
        Needed {
            program: "numastat",
            package: "numactl",
        },
        Needed {
            program: "script",
            package: "bsdutils",
        },
    ])?;
    let build = StaticBuild::new(Profile::Release)?;
    let cost = build.example("homenode-observe", "observe-cost")?;
    let mut goals = Goals(true);
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    if wanted(Part::Times) {
        times(&cost, args, &mut goals)?;
    }
    if wanted(Part::Stalls) {
        stalls(&cost, args, &mut goals)?;
    }
    if wanted(Part::Top) {
        many(&build.binary("homenode", "homenode")?, args, &mut goals)?;
    }
    Ok(if goals.0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether all goals were met so far.
struct Goals(bool);

impl Goals {
    fn at_least(&mut self, what: &str, value: f64, goal: f64) {
        println!("{what}: {value:.1} (goal: at least {goal})");
        self.0 &= value >= goal;
    }

    fn at_most(&mut self, what: &str, value: f64, goal: f64) {
        println!("{what}: {value:.3} (goal: at most {goal})");
        self.0 &= value <= goal;
    }
}

/// A process that is looked at.
struct Victim {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Victim {
    fn start(mut cost: Command, mib: u32) -> Result<Self> {
        let mut child = cost
            .args(["victim", &mib.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the victim")?;
        let input = child.stdin.take().context("a pipe was asked for")?;
        let output = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
        let mut victim = Self {
            child,
            input,
            output,
        };
        match victim.line()?.as_str() {
            "ready" => Ok(victim),
            other => bail!("the victim did not get ready (memory?): `{other}`"),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// The worst mmap and munmap since the last such question. Unit: ms.
    fn worst(&mut self) -> Result<f64> {
        writeln!(self.input)?;
        let nanoseconds: f64 = self.line()?.parse().context("expected nanoseconds")?;
        Ok(nanoseconds / 1e6)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn times(cost: &Path, args: &Args, goals: &mut Goals) -> Result<()> {
    println!(
        "a process of {} MiB in base pages, {} rounds in turn:",
        args.mib, args.rounds
    );
    let whole = Victim::start(Command::new(cost), args.mib)?;
    let eighth = Victim::start(Command::new(cost), args.mib / 8)?;
    let times = Times::look(cost, args.rounds, [whole.child.id(), eighth.child.id()])?;
    for name in Times::NAMES {
        println!(
            "  {name:<10} median {:>9.2} ms, of an eighth {:>9.2} ms",
            times.median("whole", name),
            times.median("eighth", name)
        );
    }
    let sample = times.median("whole", "sample");
    goals.at_least(
        "time, numastat -p / 4,096 samples",
        times.median("whole", "numastat") / sample,
        TIME_GOAL,
    );
    goals.at_most(
        "time of samples, whole / an eighth",
        sample / times.median("eighth", "sample"),
        GROWTH_GOAL,
    );
    Ok(())
}

/// A program that stays on one CPU.
fn on_cpu(cpu: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", cpu]).arg(program);
    command
}

/// Looks for a second by one of the ways; the longest time for which others had its CPU within a
/// look. Unit: ms.
///
/// At a real-time priority, or whoever preempts it while it holds the lock would be measured.
fn look_for_a_second(cost: &Path, way: &str, pid: u32) -> Result<f64> {
    let output = Command::new("chrt")
        .args(["--fifo", "1", "taskset", "--cpu-list", "1"])
        .arg(cost)
        .args([way, &pid.to_string(), "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start chrt")?;
    if !output.status.success() {
        bail!("cannot look by {way}: expected two CPUs, and to be root");
    }
    let waited: f64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok(waited / 1e3)
}

fn stalls(cost: &Path, args: &Args, goals: &mut Goals) -> Result<()> {
    /// Rounds in which a look lost its CPU for longer are left out. Unit: ms.
    const WAITED_MAX: f64 = 0.1;
    println!(
        "the worst mmap+munmap of a process of {} MiB in 1 s, {} rounds in turn, it on CPU 0, who \
         looks on CPU 1 at real-time priority:",
        args.mib, args.stall_rounds
    );
    let mut victim = Victim::start(on_cpu("0", cost), args.mib)?;
    let ways = ["idle", "sample", "numa-maps"];
    let mut stalls = ways.map(|_| Vec::new());
    let mut left_out = 0;
    for _round in 0..args.stall_rounds {
        for (way, worst) in ways.iter().zip(&mut stalls) {
            victim.worst()?;
            let waited = look_for_a_second(cost, way, victim.child.id())?;
            let stall = victim.worst()?;
            if waited > WAITED_MAX {
                left_out += 1;
            } else {
                worst.push(stall);
            }
        }
    }
    let mut medians = [f64::NAN; 3];
    for ((way, worst), median) in ways.iter().zip(&mut stalls).zip(&mut medians) {
        worst.sort_by(f64::total_cmp);
        println!("  {way:<9} {worst:.3?} ms");
        *median = worst.get(worst.len() / 2).copied().unwrap_or(f64::NAN);
    }
    println!("  {left_out} left out: another program took the CPU of who looks away");
    // The machine below this one takes its CPUs away too, now and then: the median of the worst.
    goals.at_least(
        "median of the worst stalls, numa_maps / samples",
        medians[2] / medians[1],
        STALL_GOAL,
    );
    Ok(())
}

/// Times by way. Unit: ms.
#[derive(Default)]
struct Times(Vec<(String, f64)>);

impl Times {
    const NAMES: [&str; 3] = ["sample", "numastat", "numa_maps"];

    /// Each way in turn, in a process that has been looking for a while, as `top` has.
    fn look(cost: &Path, rounds: u32, pids: [u32; 2]) -> Result<Self> {
        let output = Command::new(cost)
            .args(["look", &rounds.to_string()])
            .args(pids.map(|pid| pid.to_string()))
            .output()
            .context("cannot look")?;
        if !output.status.success() {
            bail!("cannot look: {}", String::from_utf8_lossy(&output.stderr));
        }
        let mut times = Self::default();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let (name, microseconds) = line
                .rsplit_once(' ')
                .context("expected a name and a time")?;
            let microseconds: f64 = microseconds.parse()?;
            times.0.push((name.to_owned(), microseconds / 1e3));
        }
        Ok(times)
    }

    fn median(&self, which: &str, name: &str) -> f64 {
        let name = format!("{which} {name}");
        let of_name = self.0.iter().filter(|(way, _)| *way == name);
        let mut times: Vec<f64> = of_name.map(|&(_, time)| time).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Processes that do nothing, until it is dropped.
struct Crowd(Vec<Child>);

impl Crowd {
    fn start(count: usize) -> Result<Self> {
        let mut crowd = Self(Vec::new());
        for _process in 0..count {
            let child = Command::new("sleep").arg("1000").spawn();
            crowd.0.push(child.context("cannot start sleep")?);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `homenode top` on a terminal of its own.
struct Top {
    script: Child,
    pid: u32,
}

impl Top {
    fn start(homenode: &Path) -> Result<Self> {
        let command = format!(
            "stty cols 160 rows 50; exec {} top --interval 2s --ask-always",
            homenode.display()
        );
        let script = Command::new("script")
            .args(["--quiet", "--command", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env_remove("HOMENODE_ROOT")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start script")?;
        // The child of `script` becomes homenode.
        for _attempt in 0..100 {
            thread::sleep(Duration::from_millis(50));
            let children = format!("/proc/{0}/task/{0}/children", script.id());
            let children = fs::read_to_string(children).unwrap_or_default();
            for pid in children.split_ascii_whitespace() {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if name.trim() == "homenode" {
                    let pid = pid.parse()?;
                    return Ok(Self { script, pid });
                }
            }
        }
        bail!("homenode top did not start")
    }

    /// CPU time so far. Unit: seconds.
    fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let (_, fields) = stat.rsplit_once(')').context("expected a name")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / 100.0)
    }

    /// A memory field of its status. Unit: MiB.
    fn memory(&self, field: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.trim_start_matches(':').trim().strip_suffix(" kB"));
        Ok(kib.context("expected an amount")?.parse::<f64>()? / 1024.0)
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn many(homenode: &Path, args: &Args, goals: &mut Goals) -> Result<()> {
    let _crowd = Crowd::start(args.processes)?;
    println!(
        "homenode top on a screen of 160 by 50, every 2 s, {} processes more, pages asked about:",
        args.processes
    );
    let top = Top::start(homenode)?;
    // The first pass, in which everything is new.
    thread::sleep(Duration::from_secs(8));
    let (before, began) = (top.cpu()?, Instant::now());
    println!("  first pass: {before:.2} s of CPU time in 8 s");
    thread::sleep(args.watch);
    let share = (top.cpu()? - before) / began.elapsed().as_secs_f64();
    goals.at_most("part of one CPU that top uses", share, CPU_GOAL);
    let cpu = top.cpu()?;
    let (born, memory) = thread::scope(|scope| {
        let birth = scope.spawn(|| churn(args.churn));
        let mut memory = Vec::new();
        while !birth.is_finished() {
            memory.push(top.memory("VmRSS")?);
            thread::sleep(Duration::from_millis(500));
        }
        let born = birth.join().expect("it does not panic")?;
        Ok::<_, anyhow::Error>((born, memory))
    })?;
    let seconds = args.churn.as_secs_f64();
    println!(
        "  {:.0} processes born per second for {seconds:.0} s: {:.3} of one CPU, memory at its tenths: {:.1?} MiB",
        f64::from(born) / seconds,
        (top.cpu()? - cpu) / seconds,
        (0..=10)
            .map(|tenth| memory[(memory.len() - 1) * tenth / 10])
            .collect::<Vec<f64>>()
    );
    let (first, second) = memory.split_at(memory.len() / 2);
    let most = |half: &[f64]| half.iter().copied().fold(0.0, f64::max);
    goals.at_most(
        "growth of the largest memory from half to half, MiB",
        most(second) - most(first),
        GROWTH_GOAL_MIB,
    );
    goals.at_most("memory of top, MiB", top.memory("VmHWM")?, MEMORY_GOAL_MIB);
    Ok(())
}

/// Lets processes come and go at 200/s; how many there were.
fn churn(time: Duration) -> Result<u32> {
    const EACH: Duration = Duration::from_millis(5);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(time);
            over.store(true, Ordering::Relaxed);
        });
        let mut born = 0;
        let mut living = std::collections::VecDeque::new();
        let mut next = Instant::now();
        while !over.load(Ordering::Relaxed) {
            living.push_back(Command::new("sleep").arg("3").spawn()?);
            born += 1;
            if living.len() > 400
                && let Some(mut oldest) = living.pop_front()
            {
                oldest.kill()?;
                oldest.wait()?;
            }
            next += EACH;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        for mut child in living {
            let _ = child.kill();
            child.wait()?;
        }
        Ok(born)
    })
}
