//! `homenode report`: the whole story.

use std::io::{IsTerminal as _, Write, stderr};

use homenode_measure::{MachineId, Test};
use homenode_report::{
    GatherOptions, Progress, gather_captured, gather_live, report_html, report_json, report_text,
    topology_svg,
};
use homenode_topology::Detail;

use crate::args::{MachineArgs, ReportArgs};
use crate::error::Helped;
use crate::measure::store;
use crate::source::Machine;
use crate::terminal::Terminal;
use crate::topo::write_file;

/// Runs the command.
///
/// # Errors
///
/// When the machine cannot be read or the output cannot be written.
pub(crate) fn run(
    args: &ReportArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let machine = Machine::open(machine)?;
    let topology = machine.topology(Detail::Full)?;
    let verdict = topology.verdict();
    let drawing = args
        .html
        .is_some()
        .then(|| topology_svg(&topology, &verdict));
    let options = GatherOptions {
        interval: args.interval,
        process_count: args.top,
        ..GatherOptions::default()
    };
    let mut report = match &machine {
        Machine::Live(live) => {
            let shown = stderr().is_terminal();
            let report = gather_live(live, topology, verdict, options, |step| {
                if shown {
                    show(&step);
                }
            });
            if shown {
                clear();
            }
            report
        }
        Machine::Captured(captured, _) => gather_captured(captured, topology, verdict, options),
    };
    if matches!(machine, Machine::Live(_)) {
        let machine = MachineId::of(&report.topology);
        report.measured = Test::ALL
            .into_iter()
            .filter_map(|test| store::kept(test, &machine))
            .collect();
    }
    if args.json {
        writeln!(out, "{}", report_json(&report)?)?;
    } else {
        out.write_all(report_text(&report, Terminal::ask().width).as_bytes())?;
    }
    let Some(path) = &args.html else {
        return Ok(());
    };
    if args.json && path.as_os_str() == "-" {
        return Err(Helped::error(
            "--json and --html - both write to standard output",
            "name a file for the page: --html numa.html",
        ));
    }
    let page = report_html(&report, drawing.as_deref());
    // Beside JSON, nothing else may stand on standard output.
    let note: &mut dyn Write = if args.json { &mut std::io::sink() } else { out };
    write_file(path, &page, note)
}

/// Shows the step on one line of standard error, which the next one overwrites.
#[expect(
    clippy::print_stderr,
    reason = "progress is for the person at the terminal"
)]
fn show(step: &Progress) {
    match step {
        Progress::ReadingProcesses => eprint!("\r\x1b[Kreading processes"),
        Progress::Locating { done, total } => {
            eprint!(
                "\r\x1b[Klocating memory: process {} of up to {total}",
                done + 1
            );
        }
        Progress::Waiting { left } => {
            eprint!(
                "\r\x1b[Kwatching the counters for {:.1} s",
                left.as_secs_f64()
            );
        }
    }
}

#[expect(clippy::print_stderr, reason = "takes the progress line away again")]
fn clear() {
    eprint!("\r\x1b[K");
}
