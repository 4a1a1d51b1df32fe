//! `homenode record` and `homenode replay`.

mod file;
mod summary;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homenode_host::{Clock as _, Live};
use homenode_observe::{
    Observation, ProcessMaps, Recording, RecordingError, RecordingHead, Row, ThreadSample,
    WatchOptions,
};
use homenode_report::{Distance, distances_of, stat_report, stat_text};
use homenode_tui::{App, Settings, Source};

use crate::args::{MachineArgs, RecordArgs, ReplayArgs};
use crate::error::Helped;
use crate::terminal::Terminal;
use crate::{top, watch};

use file::Recorder;
use summary::Summary;

/// Waiting is done in steps of this, so that an interrupt or the end of the command is seen.
const STEP: Duration = Duration::from_millis(50);

/// Runs `record`.
///
/// # Errors
///
/// When the machine cannot be watched or the file not be written.
pub(crate) fn record(
    args: &RecordArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let (live, topology) = watch::live(machine)?;
    let head = RecordingHead {
        schema: RecordingHead::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: watch::host_name(),
        cpus: watch::cpus_of_nodes(&topology),
        distances: distances_of(&topology)
            .into_iter()
            .map(|claim| (claim.from, claim.to, claim.distance))
            .collect(),
    };
    let mut recorder = args
        .file
        .as_deref()
        .map(|path| Recorder::open(path, &head, args.size, args.keep))
        .transpose()?;
    if recorder.is_none() && args.command.is_empty() {
        return Err(Helped::error(
            "expected a file to record into, or a command to watch",
            "homenode record load.hnr, or homenode record -- CMD",
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut watcher = watch::watcher(
        &topology,
        WatchOptions {
            seed: watch::seed(),
            ..WatchOptions::default()
        },
    );
    let mut command = summary::Command::start(&args.command)?;
    let mut summary = Summary::new(command.as_ref().map(summary::Command::pid));
    let mut done = 0;
    let mut next = live.now();
    loop {
        let observation = watch::observe(&mut watcher)?;
        if let Some(recorder) = &mut recorder {
            recorder.push(&observation)?;
        }
        summary.take(observation);
        done += 1;
        next = (next + args.interval).max(live.now());
        let mut ended = false;
        while live.now() < next && !ended && !stop.load(Ordering::Relaxed) {
            live.sleep(STEP.min(next.saturating_sub(live.now())));
            ended = match &mut command {
                Some(command) => command.has_ended(&live)?,
                None => false,
            };
        }
        let enough = args.count.is_some_and(|count| done >= count);
        if ended || stop.load(Ordering::Relaxed) || (enough && command.is_none()) {
            break;
        }
    }
    if let (Some(recorder), Some(path)) = (&recorder, &args.file) {
        writeln!(
            out,
            "{} observations in {}",
            recorder.written,
            path.display()
        )?;
    }
    let Some(mut command) = command else {
        return Ok(ExitCode::SUCCESS);
    };
    // What happened since the last beat.
    summary.take(watch::observe(&mut watcher)?);
    let (status, run_time) = command.wait(&live)?;
    out.write_all(summary.text(run_time, &status).as_bytes())?;
    Ok(summary::exit_code(&status))
}

/// Opens a recording.
///
/// # Errors
///
/// When it cannot be read, is something else, or holds nothing.
fn open(path: &Path) -> anyhow::Result<Recording<File>> {
    let name = path.display();
    let help = "give a file that `homenode record FILE` wrote";
    let recording = File::options()
        .read(true)
        .open(path)
        .map_err(RecordingError::Io)
        .and_then(Recording::open)
        .map_err(|error| Helped::wrap(format!("cannot replay {name}"), error, help))?;
    if recording.members.is_empty() {
        return Err(Helped::error(
            format!("{name} holds no observation"),
            "record for longer than one interval",
        ));
    }
    Ok(recording)
}

/// Runs `replay`.
///
/// # Errors
///
/// When the file is no recording, or nothing of it can be read.
pub(crate) fn replay(args: &ReplayArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    use std::io::IsTerminal as _;
    let mut recording = open(&args.file)?;
    let cut = recording.length_bytes - recording.whole_bytes;
    let on_screen = !args.text && !args.json && std::io::stdout().is_terminal();
    let position = match args.at {
        None if !on_screen => recording.members.len() - 1,
        None => 0,
        Some(at) => {
            let start = Duration::from_millis(recording.members[0].at_ms);
            recording.position_at(at.since_epoch(start))
        }
    };
    if on_screen {
        let title = format!("replay {}", recording.head.host);
        let mut source = Replay {
            recording,
            next: position.saturating_sub(1),
        };
        let app = App::new(top::kept(), args.view.into(), title);
        return top::show(app, &mut source, &Live);
    }
    let distances: Vec<Distance> = recording
        .head
        .distances
        .iter()
        .map(|&(from, to, distance)| Distance { from, to, distance })
        .collect();
    let mut read = |position| {
        let read = recording.observation(position);
        read.map_err(|error| {
            Helped::wrap(
                format!("cannot replay {}", args.file.display()),
                error,
                "name another moment: --at +1m",
            )
        })
    };
    let later = read(position)?;
    let earlier = if position == 0 {
        later.clone()
    } else {
        read(position - 1)?
    };
    let report = stat_report(&distances, &earlier, &later, args.view.into(), args.top);
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    let members = &recording.members;
    writeln!(
        out,
        "{} on {}: {} of {} observations in {}{}",
        report.taken_at,
        recording.head.host.escape_debug(),
        position + 1,
        members.len(),
        args.file.display(),
        match (cut, recording.is_ours_to_the_end) {
            (0, _) => String::new(),
            (_, true) => format!("; the last one is cut off ({cut} bytes) and left out"),
            (_, false) => format!("; the {cut} bytes behind them are damaged and left out"),
        }
    )?;
    out.write_all(stat_text(&report, Terminal::ask().width).as_bytes())?;
    Ok(())
}

/// A recording as a source of observations.
struct Replay {
    recording: Recording<File>,
    next: usize,
}

impl Source for Replay {
    fn observe(&mut self) -> Result<Option<Observation>, String> {
        while self.next < self.recording.members.len() {
            let position = self.next;
            self.next += 1;
            match self.recording.observation(position) {
                Ok(observation) => return Ok(Some(observation)),
                // The others can still be shown.
                Err(RecordingError::Damaged { .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(None)
    }

    fn detail(
        &mut self,
        _: &Row,
    ) -> (
        Result<ProcessMaps, String>,
        Result<Vec<ThreadSample>, String>,
    ) {
        let why = || "not recorded".to_owned();
        (Err(why()), Err(why()))
    }

    fn keep(&mut self, settings: &Settings) -> Result<String, String> {
        top::keep(settings)
    }
}
