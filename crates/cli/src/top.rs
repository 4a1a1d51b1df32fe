//! `homenode top`: full-screen, or as lines for programs.

use std::io::{IsTerminal as _, Write, stdout};
use std::path::PathBuf;

use homenode_host::{Buffer, Clock as _, Files as _, Live};
use homenode_observe::{
    Observation, ProcessMaps, Random, Reach, Row, ThreadSample, View, WatchOptions, Watcher,
    read_process_maps, read_threads,
};
use homenode_report::{PdhCsv, distances_of, stat_report};
use homenode_topology::Topology;
use homenode_tui::{App, Screen, Settings, Source};
use homenode_units::{CpuSet, NodeId};

use crate::args::{BatchFormat, MachineArgs, TopArgs};
use crate::error::Helped;
use crate::terminal::Terminal;
use crate::watch;

/// Runs the command.
///
/// # Errors
///
/// When the machine cannot be watched, or the terminal fails.
pub(crate) fn run(
    args: &TopArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (live, topology) = watch::live(machine)?;
    let options = WatchOptions {
        seed: watch::seed(),
        ask_always: args.ask_always,
        ..WatchOptions::default()
    };
    let watcher = watch::watcher(&topology, options);
    if args.batch {
        return batch(args, &topology, watcher, out);
    }
    let mut settings = kept();
    if let Some(interval) = args.interval {
        settings.interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    }
    let mut source = LiveSource {
        watcher,
        cpus: watch::cpus_of_nodes(&topology),
    };
    let app = App::new(settings, args.view.into(), "homenode top".to_owned());
    show(app, &mut source, &live)
}

/// Takes the terminal over until the user ends it.
///
/// # Errors
///
/// When there is no terminal, or it fails.
pub(crate) fn show(mut app: App, source: &mut dyn Source, clock: &Live) -> anyhow::Result<()> {
    if !stdout().is_terminal() {
        return Err(Helped::error(
            "standard output is no terminal",
            "ask for lines: homenode top --batch, or homenode stat",
        ));
    }
    let colour = Terminal::ask().colour;
    let mut screen = Screen::open()?;
    let shown = homenode_tui::run(&mut screen, &mut app, source, clock, colour);
    drop(screen);
    Ok(shown?)
}

/// This machine.
struct LiveSource {
    watcher: Watcher,
    cpus: Vec<(NodeId, CpuSet)>,
}

impl Source for LiveSource {
    fn observe(&mut self) -> Result<Option<Observation>, String> {
        let observed = watch::observe(&mut self.watcher);
        observed.map(Some).map_err(|error| format!("{error:#}"))
    }

    fn detail(
        &mut self,
        row: &Row,
    ) -> (
        Result<ProcessMaps, String>,
        Result<Vec<ThreadSample>, String>,
    ) {
        let pid = row.id.pid;
        let mut random = Random::new(watch::seed());
        // A glance from the screen must not hold a process up, so nothing is counted page by page.
        let maps = read_process_maps(&Live, pid, &self.cpus, Reach::Sampled, &mut random);
        let maps = maps.map_err(|error| format!("{:#}", anyhow::Error::new(error)));
        let maps = maps.and_then(|maps| {
            (maps.id == row.id)
                .then_some(maps)
                .ok_or_else(|| "the process has ended".to_owned())
        });
        let threads = read_threads(&Live, pid, &self.cpus).map_err(|error| error.reason());
        (maps, threads)
    }

    fn keep(&mut self, settings: &Settings) -> Result<String, String> {
        keep(settings)
    }
}

/// Writes the settings of the screen.
///
/// # Errors
///
/// Why that failed.
pub(crate) fn keep(settings: &Settings) -> Result<String, String> {
    let path = settings_path().ok_or("neither XDG_CONFIG_HOME nor HOME is set")?;
    let show = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(show)?;
    }
    std::fs::write(&path, settings.to_text()).map_err(show)?;
    Ok(path.display().to_string())
}

/// The settings that were kept; those that cannot be read are as good as none.
pub(crate) fn kept() -> Settings {
    let text = settings_path().and_then(|path| {
        let mut buffer = Buffer::new();
        let text = Live.read(path.to_str()?, &mut buffer).ok()?;
        Some(String::from_utf8_lossy(text).into_owned())
    });
    text.and_then(|text| Settings::from_text(&text))
        .unwrap_or_default()
}

fn settings_path() -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment is resolved here"
    )]
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = folder("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| folder("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(folder.join("homenode/top.json"))
}

fn batch(
    args: &TopArgs,
    topology: &Topology,
    mut watcher: Watcher,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let distances = distances_of(topology);
    let view: View = args.view.into();
    let interval = args.interval.unwrap_or(std::time::Duration::from_secs(5));
    let mut earlier = watch::observe(&mut watcher)?;
    let csv = PdhCsv::new(&watch::host_name(), &earlier, view, args.rows);
    if args.format == BatchFormat::Csv {
        out.write_all(csv.header().as_bytes())?;
    }
    let mut done = 0;
    let mut next = Live.now();
    while args.count.is_none_or(|count| done < count) {
        // Looks stay on their beat, whatever each takes.
        next += interval;
        Live.sleep(next.saturating_sub(Live.now()));
        let later = watch::observe(&mut watcher)?;
        match args.format {
            BatchFormat::Csv => out.write_all(csv.line(Some(&earlier), &later).as_bytes())?,
            BatchFormat::Jsonl => {
                let report = stat_report(&distances, &earlier, &later, view, args.rows);
                writeln!(out, "{}", serde_json::to_string(&report)?)?;
            }
        }
        out.flush()?;
        earlier = later;
        done += 1;
    }
    Ok(())
}
