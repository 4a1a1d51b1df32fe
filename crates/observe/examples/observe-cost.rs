//! What it costs to look at a large process: its victim, and who looks. For `cargo xtask bench
//! observe`, which prints what this finds.
//!
//! * `observe-cost victim MIB`: fills memory in base pages, and from the first line of standard input
//!   on times a small `mmap` + `munmap` again and again; each line asks for the worst since the last
//!   one. Unit: ns. Time on the run queue, while other programs had its CPU, does not count.
//! * `observe-cost look ROUNDS PID PID`: times ways to look at two of them, in turn. Unit: µs.
//! * `observe-cost idle PID SECONDS`, `sample PID SECONDS`, `numa-maps PID SECONDS`: looks, or does
//!   not, and rests for a tenth of the time, as who has a real-time priority must; then the longest
//!   time for which others had its CPU within a look. Unit: µs.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program that measures this machine"
)]

use std::fs::File;
use std::io::BufRead as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use homenode_host::Live;
use homenode_observe::{Effort, Random, locate};
use homenode_sys::WorkMemory;
use homenode_units::{NodeSet, Pid};

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| -> Result<u64, String> {
        let word = words.get(index).ok_or("expected another number")?;
        word.parse()
            .map_err(|_| format!("expected a number, found `{word}`"))
    };
    let pid = || Ok::<_, String>(Pid(u32::try_from(number(1)?).map_err(|e| e.to_string())?));
    match words.first().map(String::as_str) {
        Some("victim") => victim(number(1)?),
        Some("look") => look(number(1)?, [number(2)?, number(3)?]),
        Some("idle") => {
            std::thread::sleep(Duration::from_secs(number(2)?));
            println!("0");
            Ok(())
        }
        Some("sample") => repeat(number(2)?, || sample(pid()?, Random::new(1).next_u64())),
        Some("numa-maps") => repeat(number(2)?, || read_numa_maps(pid()?)),
        _ => Err("expected victim, look, sample or numa-maps".to_owned()),
    }
}

fn victim(mib: u64) -> Result<(), String> {
    static WORST_NS: AtomicU64 = AtomicU64::new(0);
    let show = |error: std::io::Error| error.to_string();
    let bytes = usize::try_from(mib << 20).map_err(|error| error.to_string())?;
    let mut memory = WorkMemory::map(bytes, None).map_err(show)?;
    memory.without_huge_pages().map_err(show)?;
    memory.fill(0..bytes, 1);
    println!("ready");
    let mut asked = std::io::stdin().lock().lines();
    // Who only looks is not disturbed by us.
    let Some(first) = asked.next() else {
        return Ok(());
    };
    first.map_err(show)?;
    std::thread::spawn(|| {
        let waits = Waits::open().expect("schedstat is there");
        loop {
            let (waited, began) = (waits.so_far(), Instant::now());
            drop(WorkMemory::map(4096, None));
            let took = began.elapsed();
            // Who waits for a lock is not on the run queue; who is on it waits for other programs.
            let stalled = took.saturating_sub(waits.so_far() - waited);
            let stalled = u64::try_from(stalled.as_nanos()).unwrap_or(u64::MAX);
            WORST_NS.fetch_max(stalled, Ordering::Relaxed);
        }
    });
    println!("0");
    for line in asked {
        line.map_err(show)?;
        println!("{}", WORST_NS.swap(0, Ordering::Relaxed));
    }
    Ok(())
}

/// The time that this thread waited for a CPU: Documentation/scheduler/sched-stats.rst, Linux 6.12.
struct Waits(File);

impl Waits {
    fn open() -> Result<Self, String> {
        let file = File::open("/proc/thread-self/schedstat").map_err(|e| e.to_string())?;
        Ok(Self(file))
    }

    fn so_far(&self) -> Duration {
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        let waited = text.split_ascii_whitespace().nth(1);
        let waited = waited.and_then(|number| number.parse().ok());
        Duration::from_nanos(waited.expect("schedstat has three numbers"))
    }
}

fn sample(pid: Pid, seed: u64) -> Result<(), String> {
    let nodes = NodeSet::first(1);
    let located = locate(
        &Live,
        &Live,
        pid,
        &nodes,
        Effort::DECISION,
        &mut Random::new(seed),
    );
    located.map(drop).map_err(|error| error.to_string())
}

fn read_numa_maps(pid: Pid) -> Result<(), String> {
    let text = std::fs::read(format!("/proc/{pid}/numa_maps"));
    text.map(drop).map_err(|error| error.to_string())
}

fn look(rounds: u64, pids: [u64; 2]) -> Result<(), String> {
    let numastat = |pid: Pid| {
        let run = std::process::Command::new("numastat")
            .args(["-p", &pid.to_string()])
            .output();
        match run {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(format!("numastat: {}", output.status)),
            Err(error) => Err(format!("numastat: {error}")),
        }
    };
    for round in 0..rounds {
        for (which, pid) in ["whole", "eighth"].into_iter().zip(pids) {
            let pid = Pid(u32::try_from(pid).map_err(|error| error.to_string())?);
            let timed = |name: &str, what: &dyn Fn() -> Result<(), String>| {
                let began = Instant::now();
                what()?;
                println!("{which} {name} {}", began.elapsed().as_micros());
                Ok::<_, String>(())
            };
            timed("sample", &|| sample(pid, round))?;
            timed("numastat", &|| numastat(pid))?;
            timed("numa_maps", &|| read_numa_maps(pid))?;
        }
    }
    Ok(())
}

fn repeat(seconds: u64, mut what: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let (began, waits, mut waited) = (Instant::now(), Waits::open()?, Duration::ZERO);
    while began.elapsed() < Duration::from_secs(seconds) {
        let (look, before) = (Instant::now(), waits.so_far());
        what()?;
        waited = waited.max(waits.so_far() - before);
        std::thread::sleep(look.elapsed() / 9);
    }
    println!("{}", waited.as_micros());
    Ok(())
}
