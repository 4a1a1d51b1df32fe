//! Feels how far memory is, by the plainest means: a chase and a stream.
//!
//! The lab's tests judge emulated machines by it, so it shares no code with the model, nor with
//! `homenode measure`. It places no memory; `numactl --membind` does.
//!
//! While it makes its buffers the model stands still, if there is one: `lab-mark stop`, and `start`.
//! One that is `held` leaves that to whoever holds it, who can so measure several in one go.
//!
//! ```console
//! $ numactl --membind 1 lab-probe chase 0 32 200000
//! ns 135.2
//! $ numactl --membind 0 lab-probe stream 0,1 32 20
//! cpu 0 GB/s 3.12
//! cpu 1 GB/s 3.14
//! $ numactl --membind 0 lab-probe loaded 0,1,2,3 32 20000
//! ns 201.9
//! cpu 1 GB/s 5.20
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "it takes the time of the machine it runs on, and divides counts far below 2^53"
)]

use std::env;
use std::hint::black_box;
use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

const USAGE: &str = "expected one of
  chase CPU MIB HOPS       dependent loads, all over a buffer
  scatter CPU MIB STORES   stores, all over a buffer
  stream CPUS MIB MS       loads, line after line, a buffer for each CPU
  fill CPUS MIB MS         stores, line after line
  loaded CPUS MIB HOPS     a chase on the first CPU while the others stream half of it each
and for chase and scatter `held` behind it: says `ready` and begins when it is sent a line";

/// A line of memory: the number of the next line of a chase, and padding.
type Line = [u64; 8];

fn main() -> ExitCode {
    match run(&env::args().skip(1).collect::<Vec<_>>()) {
        Ok(text) => {
            // A reader that has left wants no more.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            let _ = writeln!(io::stderr(), "lab-probe: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Result<String, String> {
    let (words, held) = match words {
        [words @ .., last] if last == "held" => (words, true),
        words => (words, false),
    };
    let [kind, cpus, mib, count] = words else {
        return Err(USAGE.to_owned());
    };
    let number = |text: &String| {
        text.parse::<usize>()
            .map_err(|_| format!("expected a number, found `{text}`"))
    };
    let cpus = cpus
        .split(',')
        .map(|cpu| number(&cpu.to_owned()))
        .collect::<Result<Vec<_>, _>>()?;
    let lines = number(mib)? * (1 << 20) / size_of::<Line>();
    let count = number(count)?;
    if lines < 16 {
        return Err("expected a buffer of at least 1 MiB".to_owned());
    }
    match kind.as_str() {
        "chase" => {
            pin(cpus[0])?;
            let mut buffer = with_model_stopped(held, || cycle(lines))?;
            let buffer = black_box(&mut buffer);
            let mut at = 0;
            chase(buffer, &mut at, lines);
            Ok(format!("ns {:.2}\n", chase(buffer, &mut at, count)))
        }
        "scatter" => {
            pin(cpus[0])?;
            let mut buffer = with_model_stopped(held, || plain(lines))?;
            Ok(format!("ns {:.2}\n", scatter(&mut buffer, count)))
        }
        "stream" => Ok(streams(&cpus, lines, count, false)?),
        "fill" => Ok(streams(&cpus, lines, count, true)?),
        "loaded" => loaded(&cpus, lines, count),
        _ => Err(USAGE.to_owned()),
    }
}

/// Makes the lab's model stand still or go on. Elsewhere there is no such program, and nobody to tell.
fn tell_model(mark: &str) {
    let _ = Command::new("lab-mark").arg(mark).status();
}

/// Makes something before the measurement begins.
fn with_model_stopped<T>(held: bool, make: impl FnOnce() -> T) -> Result<T, String> {
    if !held {
        tell_model("stop");
        let made = make();
        tell_model("start");
        return Ok(made);
    }
    let made = make();
    let told = io::stdout()
        .write_all(b"ready\n")
        .and_then(|()| io::stdin().read_line(&mut String::new()));
    match told {
        Ok(1..) => Ok(made),
        Ok(0) => Err("expected to be sent a line, found the end".to_owned()),
        Err(error) => Err(format!("cannot say `ready` and be told to begin: {error}")),
    }
}

fn pin(cpu: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| format!("cannot run on CPU {cpu}: {error}"))
}

/// Numbers without a pattern that a CPU could follow.
struct Scramble(u64);

impl Scramble {
    fn below(&mut self, limit: usize) -> usize {
        // Knuth's constants for a 64-bit linear congruential generator; its high bits are good.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let limit = u128::try_from(limit).unwrap_or(u128::MAX);
        usize::try_from((u128::from(self.0) * limit) >> 64).unwrap_or(0)
    }
}

/// A buffer whose lines form one cycle in random order (Sattolo's algorithm).
fn cycle(lines: usize) -> Vec<Line> {
    let mut buffer: Vec<Line> = (0..lines as u64).map(|number| [number; 8]).collect();
    let mut scramble = Scramble(1);
    for last in (1..lines).rev() {
        let other = scramble.below(last);
        let next = buffer[last][0];
        buffer[last][0] = buffer[other][0];
        buffer[other][0] = next;
    }
    buffer
}

/// A buffer whose pages are all there.
fn plain(lines: usize) -> Vec<Line> {
    vec![[1; 8]; lines]
}

/// Hops along the cycle from a line on; returns the time per hop in nanoseconds.
///
/// A first chase, once around, leaves the caches as every later one finds them.
fn chase(buffer: &[Line], at: &mut u64, hops: usize) -> f64 {
    const STEPS: usize = 16;
    let step = |at: u64| buffer[usize::try_from(at).unwrap_or(0)][0];
    in_pieces(hops / STEPS, |rounds| {
        let mut now_at = *at;
        for _round in 0..rounds {
            for _step in 0..STEPS {
                now_at = step(now_at);
            }
        }
        *at = black_box(now_at);
    }) / STEPS as f64
}

/// Does something in pieces; returns the median of their times. Unit: nanoseconds, for each time that
/// it was done.
///
/// The kernel takes the CPU away for a tick of 4 ms now and then, longer than all of it takes: of
/// pieces, one is spoilt.
fn in_pieces(times: usize, mut work: impl FnMut(usize)) -> f64 {
    const PIECES: usize = 15;
    let times = (times / PIECES).max(1);
    let mut felt = [0.0; PIECES];
    for piece in &mut felt {
        let start = Instant::now();
        work(times);
        *piece = nanoseconds(start.elapsed()) / times as f64;
    }
    felt.sort_by(f64::total_cmp);
    felt[PIECES / 2]
}

/// Stores to lines that are no neighbours, each line once before any twice; returns the time per
/// store in nanoseconds.
fn scatter(buffer: &mut [Line], stores: usize) -> f64 {
    // A prime that divides no number of lines in whole mebibytes below its own.
    const STEP: usize = 40_009;
    let buffer = black_box(buffer);
    let lines = buffer.len();
    let step = STEP % lines;
    let mut at = 0;
    let mut go = |stores: usize| {
        for _store in 0..stores {
            buffer[at][0] = 7;
            at += step;
            at -= if at >= lines { lines } else { 0 };
        }
    };
    // Once around, as before a chase.
    go(lines);
    in_pieces(stores, go)
}

/// Where a stream is in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Others are not ready: stream, and do not count.
    Before,
    /// Count.
    During,
    /// Over.
    After,
}

/// Goes over a buffer line by line; returns the bytes of the measurement, which is the same time for
/// all who stream: one that did not get to run then has few.
fn stream(buffer: &mut [Line], store: bool, phase: &dyn Fn() -> Phase) -> f64 {
    const LINES: usize = 1_024;
    let mut lines = 0;
    loop {
        for chunk in buffer.chunks_mut(LINES) {
            if store {
                for line in chunk.iter_mut() {
                    line[0] = 7;
                }
            } else {
                black_box(
                    chunk
                        .iter()
                        .fold(0, |sum: u64, line| sum.wrapping_add(line[0])),
                );
            }
            match phase() {
                Phase::Before => {}
                Phase::During => lines += chunk.len(),
                Phase::After => return (lines * size_of::<Line>()) as f64,
            }
        }
    }
}

/// Streams on all CPUs at once for a while.
fn streams(cpus: &[usize], lines: usize, ms: usize, store: bool) -> Result<String, String> {
    /// For threads to wake up, and queues to fill.
    const SETTLE: Duration = Duration::from_micros(500);
    let time = Duration::from_millis(ms as u64);
    let first: OnceLock<Instant> = OnceLock::new();
    let phase = || match first.get_or_init(Instant::now).elapsed() {
        since if since < SETTLE => Phase::Before,
        since if since < SETTLE + time => Phase::During,
        _ => Phase::After,
    };
    let bytes = on_each(
        cpus,
        |_| plain(lines),
        |_, buffer| stream(buffer, store, &phase),
    )?;
    Ok(table(cpus, &bytes, nanoseconds(time)))
}

/// A chase on the first CPU, while the others stream.
fn loaded(cpus: &[usize], lines: usize, hops: usize) -> Result<String, String> {
    let once_around = Barrier::new(cpus.len());
    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let phase = || match (begun.load(Ordering::Relaxed), done.load(Ordering::Relaxed)) {
        (false, _) => Phase::Before,
        (true, false) => Phase::During,
        (true, true) => Phase::After,
    };
    let make = |position| match position {
        0 => cycle(lines),
        // Enough with the chase's beside it.
        _ => plain(lines / 2),
    };
    let values = on_each(cpus, make, |position, buffer| {
        if position == 0 {
            let mut at = 0;
            chase(buffer, &mut at, lines);
            once_around.wait();
            // While the others come up to speed.
            chase(buffer, &mut at, hops / 2);
            begun.store(true, Ordering::Relaxed);
            let ns = chase(buffer, &mut at, hops);
            done.store(true, Ordering::Relaxed);
            ns
        } else {
            once_around.wait();
            stream(buffer, false, &phase)
        }
    })?;
    let rates = table(&cpus[1..], &values[1..], values[0] * hops as f64);
    Ok(format!("ns {:.2}\n{rates}", values[0]))
}

/// Makes a buffer on each CPU, given its position, then works on all of them at once; returns what
/// each gave.
fn on_each(
    cpus: &[usize],
    make: impl Fn(usize) -> Vec<Line> + Sync,
    work: impl Fn(usize, &mut [Line]) -> f64 + Sync,
) -> Result<Vec<f64>, String> {
    let ready = Barrier::new(cpus.len());
    let on_one = |position: usize, cpu: usize| {
        let pinned = pin(cpu);
        let mut buffer = make(position);
        if ready.wait().is_leader() {
            tell_model("start");
        }
        ready.wait();
        pinned.map(|()| work(position, black_box(buffer.as_mut_slice())))
    };
    tell_model("stop");
    thread::scope(|scope| {
        let started: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(position, &cpu)| {
                let on_one = &on_one;
                scope.spawn(move || on_one(position, cpu))
            })
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
            .collect()
    })
}

fn table(cpus: &[usize], bytes: &[f64], ns: f64) -> String {
    cpus.iter()
        .zip(bytes)
        .map(|(cpu, bytes)| format!("cpu {cpu} GB/s {:.3}\n", bytes / ns))
        .collect()
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_visits_every_line() {
        for lines in [16, 17, 1_000] {
            let buffer = cycle(lines);
            let mut seen = vec![false; lines];
            let mut at = 0;
            for _hop in 0..lines {
                assert!(!seen[at]);
                seen[at] = true;
                at = usize::try_from(buffer[at][0]).unwrap();
            }
            assert_eq!(at, 0);
        }
    }

    #[test]
    fn wrong_words_are_refused() {
        let run = |words: &str| {
            run(&words.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap_err()
        };
        assert!(run("chase 0 1").starts_with("expected one of"));
        assert!(run("hop 0 1 1").starts_with("expected one of"));
        assert!(run("chase x 1 1").contains("found `x`"));
        assert!(run("chase 0 0 1").contains("at least 1 MiB"));
    }
}
