//! `cargo xtask bench measure`: our numbers beside those of other tools, in one run.
//!
//! The commands are those of the tools' own documentation; a tool that is not installed is named
//! and left out. Every round runs all tools of a metric back to back, so that a slow moment of the
//! machine meets all of them; what is judged is the ratio inside a round.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::build::{Profile, StaticBuild};
use crate::host::in_search_path;

/// `homenode measure` against likwid-bench, sysbench, mbw, multichase and others, where installed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds; medians are over them
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only these metrics (repeatable), such as read or latency-256m
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// Threads of the bandwidth metrics (repeatable)
    #[arg(long, value_name = "COUNT", default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// The size of each thread's memory for bandwidth
    #[arg(long, value_name = "MiB", default_value_t = 512)]
    size_mib: usize,
}

/// What is compared, and in which unit.
#[derive(Debug)]
struct Metric {
    name: String,
    unit: &'static str,
    lower_is_better: bool,
    contenders: Vec<Contender>,
}

/// One tool. The first of a metric is ours.
#[derive(Debug)]
struct Contender {
    name: String,
    command: Vec<String>,
    parse: Parse,
    /// What makes its number count as ours does.
    factor: f64,
}

/// How a number is found in the output.
#[derive(Debug, Clone)]
enum Parse {
    /// The median of the cell with this kernel and number of threads in our JSON.
    Ours {
        kernel: String,
        threads: usize,
        huge: Option<bool>,
    },
    /// The last number of the last line that holds a word.
    After(&'static str),
    /// The number in brackets before a word, as sysbench prints `(… MiB/sec)`.
    Bracket(&'static str),
    /// A field of the last line that begins with a word, counted from the end.
    FromEnd(&'static str, usize),
    /// The only number of the last line.
    LastLine,
}

/// Prints the tables.
///
/// # Errors
///
/// When our own command cannot be built or fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let binary = StaticBuild::new(Profile::Release)?.binary("homenode", "homenode")?;
    let ours = binary.display().to_string();
    let mut metrics = latencies(&ours);
    for &threads in &args.threads {
        metrics.extend(bandwidths(&ours, threads, args.size_mib));
    }
    metrics.push(core_to_core(&ours));
    let mut skipped = BTreeMap::new();
    let mut worst: f64 = f64::INFINITY;
    for mut metric in metrics {
        let name = metric.name.clone();
        if !args.metric.is_empty() && !args.metric.contains(&name) {
            continue;
        }
        metric.contenders.retain(|contender| {
            let there = contender.is_installed();
            if !there {
                skipped.insert(contender.command[0].clone(), ());
            }
            there
        });
        worst = worst.min(compare(&metric, args.rounds)?);
    }
    for program in skipped.keys() {
        println!("skipped: {program} is not installed");
    }
    if worst.is_finite() {
        println!("worst ratio to the best peer of a metric: {worst:.3} (more is better)");
    }
    Ok(ExitCode::SUCCESS)
}

impl Contender {
    fn new(name: &str, line: &str, parse: Parse, factor: f64) -> Self {
        Self {
            name: name.to_owned(),
            command: line.split_whitespace().map(str::to_owned).collect(),
            parse,
            factor,
        }
    }

    /// Whether the program behind `taskset -c LIST` or `env NAME=VALUE` is there.
    fn is_installed(&self) -> bool {
        let mut words = self.command.iter();
        let program = match self.command[0].as_str() {
            "taskset" => words.nth(3),
            _ => words.next(),
        };
        program.is_some_and(|program| Path::new(program).is_file() || in_search_path(program))
    }

    fn measure(&self) -> Result<f64> {
        let output = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found = self.parse.find(&text);
        let number = found.with_context(|| format!("no number from {}: {text}", self.name))?;
        Ok(number * self.factor)
    }
}

impl Parse {
    fn find(&self, text: &str) -> Option<f64> {
        let lines = || text.lines().filter(|line| !line.trim().is_empty());
        let number = |word: &str| word.trim_matches(|c| "(,".contains(c)).parse::<f64>().ok();
        match self {
            Self::Ours {
                kernel,
                threads,
                huge,
            } => ours(text, kernel, *threads, *huge),
            Self::After(word) => {
                let line = lines().rfind(|line| line.contains(word))?;
                line.split_whitespace().rev().find_map(number)
            }
            Self::Bracket(word) => {
                let line = lines().rfind(|line| line.contains(word))?;
                let (_, inside) = line.rsplit_once('(')?;
                number(inside.split_whitespace().next()?)
            }
            Self::FromEnd(word, position) => {
                let line = lines().rfind(|line| line.starts_with(word))?;
                number(line.split_whitespace().rev().nth(*position)?)
            }
            Self::LastLine => number(lines().next_back()?.trim()),
        }
    }
}

/// The median of a cell of our document.
fn ours(text: &str, kernel: &str, threads: usize, huge: Option<bool>) -> Option<f64> {
    let document: Value = serde_json::from_str(text).ok()?;
    let cells = document["cells"].as_array()?;
    let cell = cells.iter().find(|cell| {
        let is_kernel = cell["kernel"]
            .as_str()
            .is_some_and(|name| name.starts_with(kernel));
        let is_huge = cell["pages"] != "base";
        is_kernel
            && cell["threads"] == threads
            && cell["arrangement"] != "interleaved"
            && huge.is_none_or(|huge| huge == is_huge)
    })?;
    cell["outcome"]["median"].as_f64()
}

fn bandwidths(ours: &str, threads: usize, size_mib: usize) -> Vec<Metric> {
    let cpus: Vec<String> = (0..threads).map(|cpu| cpu.to_string()).collect();
    let list = cpus.join(",");
    let us = |kernel: &str, isa: &str| {
        Contender::new(
            &format!("homenode {kernel} {isa}").replace(" --isa", ""),
            &format!(
                "{ours} measure bandwidth --kernel {kernel} {isa} --threads {threads} --from 0 \
                 --size {size_mib}MiB --base-pages --budget 3s --no-save --json"
            ),
            Parse::Ours {
                kernel: format!("{kernel} "),
                threads,
                huge: None,
            },
            1e-9,
        )
    };
    let likwid = |kernel: &str| {
        Contender::new(
            &format!("likwid {kernel}"),
            &format!("likwid-bench -t {kernel} -s 1 -W S0:{size_mib}MB:{threads}"),
            Parse::After("MByte/s:"),
            1e-3,
        )
    };
    let sysbench = |what: &str| {
        Contender::new(
            "sysbench",
            &format!(
                "taskset -c {list} sysbench memory --threads={threads} \
                 --memory-block-size={size_mib}M --memory-total-size=1000G --memory-oper={what} \
                 --time=1 run"
            ),
            Parse::Bracket("MiB/sec"),
            1.048_576e-3,
        )
    };
    let mut memcpy = vec![us("copy", "--isa libc")];
    if threads == 1 {
        // mbw counts a copied byte once, and takes decimal megabytes to be 2^20.
        memcpy.push(Contender::new(
            "mbw memcpy, counted twice",
            &format!("taskset -c 0 mbw -t0 -n 5 {size_mib}"),
            Parse::FromEnd("AVG", 1),
            2.0 * 1.048_576e-3,
        ));
    }
    let all = [
        (
            "read",
            vec![
                us("read", ""),
                likwid("load_avx512"),
                likwid("load_avx"),
                likwid("load_sse"),
                sysbench("read"),
            ],
        ),
        (
            "write",
            vec![
                us("write", ""),
                likwid("store_avx512"),
                likwid("store_sse"),
                sysbench("write"),
            ],
        ),
        (
            "nt-write",
            vec![
                us("nt-write", ""),
                likwid("store_mem_avx512"),
                likwid("store_mem_sse"),
            ],
        ),
        (
            "copy",
            vec![us("copy", ""), likwid("copy_avx512"), likwid("copy_sse")],
        ),
        (
            "nt-copy",
            vec![us("nt-copy", ""), likwid("copy_mem_avx512")],
        ),
        (
            "triad",
            vec![
                us("triad", ""),
                likwid("stream_avx512"),
                likwid("stream_sse"),
            ],
        ),
        ("memcpy", memcpy),
    ];
    all.into_iter()
        .map(|(name, contenders)| Metric {
            name: format!("{name}-{threads}"),
            unit: "GB/s, useful bytes, base pages",
            lower_is_better: false,
            contenders,
        })
        .collect()
}

fn latencies(ours: &str) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for (size, kib) in [
        ("64k", 64),
        ("1m", 1 << 10),
        ("256m", 256 << 10),
        ("1g", 1 << 20),
    ] {
        for huge in [false, true] {
            let pages = if huge { "thp" } else { "4k" };
            let us = Contender::new(
                "homenode",
                &format!(
                    "{ours} measure latency --quick --from 0 --to 0 --size {kib}KiB --budget 4s \
                     --no-save --json"
                ),
                Parse::Ours {
                    kernel: "whole".to_owned(),
                    threads: 1,
                    huge: Some(huge),
                },
                1.0,
            );
            let flag = if huge { "-H" } else { "" };
            let pages_flag = if huge { "-hugepages" } else { "" };
            metrics.push(Metric {
                name: format!("latency-{size}-{pages}"),
                unit: "ns, all lines in random order",
                lower_is_better: true,
                contenders: vec![
                    us,
                    Contender::new(
                        "multichase, mean",
                        &format!(
                            "taskset -c 0 multichase {flag} -a -m {size} -s 64 -T {size} -n 3"
                        ),
                        Parse::LastLine,
                        1.0,
                    ),
                    Contender::new(
                        "clamchowder asm",
                        &format!(
                            "taskset -c 0 MemoryLatency_amd64 -test asm -sizekb {kib} \
                             -iter 30000000 {pages_flag}"
                        ),
                        Parse::LastLine,
                        1.0,
                    ),
                ],
            });
        }
    }
    metrics
}

fn core_to_core(ours: &str) -> Metric {
    Metric {
        name: "core-to-core".to_owned(),
        unit: "ns one way, CPUs 0 and 1",
        lower_is_better: true,
        contenders: vec![
            Contender::new(
                "homenode cas",
                &format!("{ours} measure core-to-core --quick --budget 2s --no-save --json"),
                Parse::Ours {
                    kernel: "cas 0 to 1".to_owned(),
                    threads: 2,
                    huge: None,
                },
                1.0,
            ),
            Contender::new(
                "core-to-core-latency",
                "core-to-core-latency -b1 --csv -c 0,1 5000 100",
                Parse::LastLine,
                1.0,
            ),
            Contender::new("c2clat", "c2clat -s 1000", Parse::LastLine, 1.0),
        ],
    }
}

/// Runs all contenders in turn and prints each beside ours; returns the ratio of ours to the best
/// peer, turned so that more is better, or infinity where there is no peer.
fn compare(metric: &Metric, rounds: usize) -> Result<f64> {
    if metric.contenders.is_empty() {
        bail!("{}: not even ours can be run", metric.name);
    }
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); metric.contenders.len()];
    let mut failed: BTreeMap<usize, String> = BTreeMap::new();
    for _round in 0..rounds {
        for (index, contender) in metric.contenders.iter().enumerate() {
            match contender.measure() {
                Ok(value) => values[index].push(value),
                Err(error) if index == 0 => return Err(error),
                Err(error) => {
                    failed.insert(index, format!("{error:#}"));
                }
            }
        }
    }
    println!("{}: {}, {rounds} rounds", metric.name, metric.unit);
    println!(
        "  {:<28} {:>9} {:>9} {:>9}  homenode ÷ it, by round",
        "", "median", "min", "max"
    );
    let mut worst = f64::INFINITY;
    for (index, contender) in metric.contenders.iter().enumerate() {
        let found = &values[index];
        if found.len() < rounds {
            let why = failed.get(&index).map_or("", String::as_str);
            let why: String = why.chars().take(60).collect();
            println!("  {:<28} failed: {why}", contender.name);
            continue;
        }
        let ratios: Vec<f64> = values[0]
            .iter()
            .zip(found)
            .map(|(ours, its)| ours / its)
            .collect();
        let ratio = median(&ratios);
        println!(
            "  {:<28} {:>9.2} {:>9.2} {:>9.2}  {ratio:.3}",
            contender.name,
            median(found),
            found.iter().copied().fold(f64::INFINITY, f64::min),
            found.iter().copied().fold(0.0, f64::max),
        );
        if index > 0 {
            worst = worst.min(if metric.lower_is_better {
                1.0 / ratio
            } else {
                ratio
            });
        }
    }
    Ok(worst)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_the_tools_print() {
        let likwid = "Cycles:\t\t1\nMByte/s:\t\t23734.10\nCycles per update: 1.0\n";
        assert_eq!(Parse::After("MByte/s:").find(likwid), Some(23734.10));
        let sysbench = "102400.00 MiB transferred (25006.40 MiB/sec)\n";
        assert_eq!(Parse::Bracket("MiB/sec").find(sysbench), Some(25006.40));
        let mbw = "AVG\tMethod: MEMCPY\tElapsed: 0.04\tMiB: 512.00\tCopy: 12210.9 MiB/s\n";
        assert_eq!(Parse::FromEnd("AVG", 1).find(mbw), Some(12210.9));
        assert_eq!(Parse::LastLine.find("a header\n174.7\n\n"), Some(174.7));
        assert_eq!(Parse::After("MByte/s:").find("nothing"), None);
    }

    #[test]
    fn our_cell_is_the_one_of_that_many_threads_and_pages() {
        let text = r#"{"cells": [
            {"kernel": "read avx2", "threads": 1, "arrangement": "single", "pages": "base",
             "outcome": {"median": 1.0}},
            {"kernel": "read avx2", "threads": 2, "arrangement": "single", "pages": "thp",
             "outcome": {"median": 2.0}}]}"#;
        assert_eq!(ours(text, "read ", 2, None), Some(2.0));
        assert_eq!(ours(text, "read ", 2, Some(false)), None);
        assert_eq!(ours(text, "read ", 1, Some(false)), Some(1.0));
        assert_eq!(ours("not json", "read ", 1, None), None);
    }
}
