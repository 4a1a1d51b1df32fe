//! A process to be moved: fills memory with a pattern, touches it, and tells what it felt.
//!
//! `lab-victim MIB [--touch]` prints `ready`, then answers each line of standard input:
//!
//! * `check`: `intact`, or `damaged` with the first bad place;
//! * `stalls`: the touches since the last such line: `worst_us=… over_100us=… over_1ms=… touches=…`.
//!
//! It ends with its standard input.

#![expect(
    clippy::disallowed_methods,
    reason = "a program of the lab, which measures the guest it runs on"
)]

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WORDS_PER_PAGE: usize = 4096 / 8;

/// What the touching thread felt.
#[derive(Debug, Default)]
struct Stalls {
    worst_us: AtomicU64,
    over_100us: AtomicU64,
    over_1ms: AtomicU64,
    touches: AtomicU64,
}

impl Stalls {
    /// Records a touch.
    fn record(&self, took: Duration) {
        self.touches.fetch_add(1, Ordering::Relaxed);
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.worst_us.fetch_max(microseconds, Ordering::Relaxed);
        if microseconds > 100 {
            self.over_100us.fetch_add(1, Ordering::Relaxed);
        }
        if microseconds > 1_000 {
            self.over_1ms.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self) -> String {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        format!(
            "worst_us={} over_100us={} over_1ms={} touches={}",
            take(&self.worst_us),
            take(&self.over_100us),
            take(&self.over_1ms),
            take(&self.touches)
        )
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "lab-victim: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "expected MIB [--touch]";
    let mib: usize = words
        .first()
        .and_then(|word| word.parse().ok())
        .ok_or(usage)?;
    let touch = match words.get(1).map(String::as_str) {
        None => false,
        Some("--touch") => true,
        Some(_) => return Err(usage.to_owned()),
    };
    let memory: Arc<Vec<AtomicU64>> = Arc::new(
        (0..mib << 20 >> 3)
            .map(|index| AtomicU64::new(pattern(index)))
            .collect(),
    );
    let stalls = Arc::new(Stalls::default());
    if touch {
        let (memory, stalls) = (Arc::clone(&memory), Arc::clone(&stalls));
        thread::spawn(move || touch_for_ever(&memory, &stalls));
    }
    say("ready")?;
    for line in io::stdin().lock().lines() {
        match line.map_err(|error| error.to_string())?.as_str() {
            "check" => {
                let damaged = memory
                    .iter()
                    .enumerate()
                    .find(|(index, word)| word.load(Ordering::Relaxed) != pattern(*index));
                match damaged {
                    None => say("intact")?,
                    Some((index, _)) => say(&format!("damaged at word {index}"))?,
                }
            }
            "stalls" => say(&stalls.take())?,
            other => return Err(format!("expected check or stalls, found `{other}`")),
        }
    }
    Ok(())
}

fn say(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| error.to_string())
}

/// What belongs at a place: no two pages are alike.
fn pattern(index: usize) -> u64 {
    u64::try_from(index)
        .unwrap_or_default()
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ 0x5555
}

/// Reads and writes random pages, and records how long each touch took: waiting for a page, for a
/// lock, for the CPU. Only on a modelled machine is that what the kernel did and not the host.
fn touch_for_ever(memory: &[AtomicU64], stalls: &Stalls) {
    let pages = memory.len() / WORDS_PER_PAGE;
    let mut state = 88_172_645_463_325_252u64;
    let mut before = Instant::now();
    loop {
        // Marsaglia, "Xorshift RNGs", 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let page = usize::try_from(state >> 1).unwrap_or_default() % pages.max(1);
        if let Some(word) = memory.get(page * WORDS_PER_PAGE) {
            // Writes what is there, so that the pattern stays. The compiler knows that adding a
            // plain 0 changes nothing, and leaves the access out.
            word.fetch_add(std::hint::black_box(0), Ordering::Relaxed);
        }
        let now = Instant::now();
        stalls.record(now.duration_since(before));
        before = now;
    }
}
