//! `homenode stat` and `homenode maps`.

use std::io::Write;

use homenode_host::{Clock as _, Live};
use homenode_observe::{Random, Reach, WatchOptions, read_process_maps};
use homenode_report::{distances_of, maps_json, maps_text, stat_report, stat_text};
use homenode_units::Pid;

use crate::args::{MachineArgs, MapsArgs, StatArgs};
use crate::terminal::Terminal;
use crate::watch;

/// Runs `stat`.
///
/// # Errors
///
/// When a process is not there, or the machine cannot be watched.
pub(crate) fn run(
    args: &StatArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (live, topology) = watch::live(machine)?;
    let only = watch::existing(&args.pids)?;
    let count = if only.is_some() { usize::MAX } else { args.top };
    let mut watcher = watch::watcher(
        &topology,
        WatchOptions {
            only,
            seed: watch::seed(),
            ..WatchOptions::default()
        },
    );
    let distances = distances_of(&topology);
    let mut earlier = watch::observe(&mut watcher)?;
    loop {
        live.sleep(args.interval);
        let later = watch::observe(&mut watcher)?;
        if let (Some(&pid), true) = (args.pids.first(), later.processes.is_empty()) {
            return Err(watch::gone(Pid(pid)));
        }
        let report = stat_report(&distances, &earlier, &later, args.view.into(), count);
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&report)?)?;
        } else {
            if args.watch {
                writeln!(out, "{}", report.taken_at)?;
            }
            out.write_all(stat_text(&report, Terminal::ask().width).as_bytes())?;
            if args.watch {
                writeln!(out)?;
            }
        }
        out.flush()?;
        if !args.watch {
            return Ok(());
        }
        earlier = later;
    }
}

/// Runs `maps`.
///
/// # Errors
///
/// When the process is not there or may not be looked into.
pub(crate) fn run_maps(
    args: &MapsArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (live, topology) = watch::live(machine)?;
    watch::existing(&[args.pid])?;
    let cpus = watch::cpus_of_nodes(&topology);
    let pid = Pid(args.pid);
    let reach = match (args.exact, args.sampled) {
        (true, _) => Reach::Exact,
        (_, true) => Reach::Sampled,
        _ => Reach::Auto,
    };
    let mut random = Random::new(watch::seed());
    loop {
        let maps = read_process_maps(&Live, pid, &cpus, reach, &mut random)
            .map_err(|error| watch::explain(pid, error))?;
        if args.json {
            writeln!(out, "{}", maps_json(&maps)?.trim_end())?;
        } else {
            let count = if args.all { usize::MAX } else { 20 };
            out.write_all(maps_text(&maps, count, Terminal::ask().width).as_bytes())?;
        }
        out.flush()?;
        let Some(interval) = args.watch else {
            return Ok(());
        };
        writeln!(out)?;
        live.sleep(interval);
    }
}
