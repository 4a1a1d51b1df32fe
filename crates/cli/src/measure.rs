//! `homenode measure`: what this machine's memory does.

pub(crate) mod args;
mod progress;
pub(crate) mod store;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use homenode_host::Live;
use homenode_measure::{
    BandwidthOptions, Cell, CoreToCoreOptions, Document, FirstTouchOptions, InterleaveOptions,
    LatencyOptions, LoadedOptions, MeasureError, RmmaOptions, Session, Sites, StopRule,
    WorkingSetOptions, all, bandwidth, core_to_core, diff, first_touch, interleave, latency,
    loaded_latency, rmma, working_set,
};
use homenode_report::{measure_csv, measure_diff_text, measure_svg, measure_text};
use homenode_sys::kernels::{ISAS, Isa, StreamKernel};
use homenode_topology::{Detail, Topology};
use homenode_units::NodeSet;

use crate::EXIT_FINDING;
use crate::args::MachineArgs;
use crate::error::Helped;
use crate::source::Machine;
use crate::terminal::Terminal;
use crate::topo::write_file;
use args::{BandwidthArgs, CommonArgs, MeasureArgs, SizeArgs, What};
use progress::Shown;

/// Runs the command.
///
/// # Errors
///
/// When the request cannot be met on this machine, or output cannot be written.
pub(crate) fn run(
    args: &MeasureArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if let [before, after] = args.diff.as_slice() {
        return compare(before, after, out);
    }
    let Some(what) = &args.what else {
        unreachable!("the command line requires a test or --diff");
    };
    let Machine::Live(live) = Machine::open(machine)? else {
        return Err(Helped::error(
            "expected the running machine, found a captured one: nothing can be measured there",
            "leave out --root, and unset HOMENODE_ROOT",
        ));
    };
    let topology = Machine::Live(live).topology(Detail::Full)?;
    let common = what.common();
    if common.draws_to_stdout() && (common.json || common.csv) {
        return Err(Helped::error(
            "--svg - and --json or --csv all write to standard output",
            "name a file for the drawing: --svg latency.svg",
        ));
    }
    let document = measure(what, common, &live, &topology).map_err(explain)?;
    show(common, &document, &topology, out)?;
    if !common.no_save && !document.interrupted {
        store::save(&document);
    }
    let is_whole = !document.interrupted
        && document
            .cells
            .iter()
            .all(|cell| cell.outcome.measured().is_some());
    Ok(if is_whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_FINDING)
    })
}

fn measure(
    what: &What,
    common: &CommonArgs,
    live: &Live,
    topology: &Topology,
) -> anyhow::Result<Document> {
    let mut shown = Shown::new()?;
    let rule = StopRule {
        budget: common.budget(what),
        ..StopRule::default()
    };
    let sites = sites(common, topology)?;
    let mut session = Session::new(topology, sites, live, live, rule, &mut shown)?;
    let cells = cells(what, common, &mut session);
    let document = cells.map(|cells| session.finish(cells));
    shown.clear();
    document
}

fn cells(what: &What, common: &CommonArgs, session: &mut Session<'_>) -> anyhow::Result<Vec<Cell>> {
    let quick = common.quick;
    let cells = match what {
        What::Latency(SizeArgs { size, .. }) => {
            latency(session, &LatencyOptions { size: *size, quick })
        }
        What::Bandwidth(args) => bandwidth(session, &bandwidth_options(args, quick)?),
        What::WorkingSet(SizeArgs { size, .. }) => {
            working_set(session, &WorkingSetOptions { size: *size, quick })
        }
        What::LoadedLatency(SizeArgs { size, .. }) => {
            loaded_latency(session, &LoadedOptions { size: *size, quick })
        }
        What::Interleave(SizeArgs { size, .. }) => {
            interleave(session, &InterleaveOptions { size: *size })
        }
        What::FirstTouch(SizeArgs { size, .. }) => {
            first_touch(session, &FirstTouchOptions { size: *size })
        }
        What::CoreToCore(_) => core_to_core(session, &CoreToCoreOptions { quick }),
        What::Rmma(SizeArgs { size, .. }) => rmma(session, &RmmaOptions { size: *size }),
        What::All(_) => all(session, quick),
    };
    Ok(cells?)
}

/// Rows and columns that the command line asks for.
fn sites(common: &CommonArgs, topology: &Topology) -> anyhow::Result<Sites> {
    let nodes = |flag: &str, text: &Option<String>| -> anyhow::Result<Option<NodeSet>> {
        let Some(text) = text else { return Ok(None) };
        let parsed = NodeSet::parse_list(text).map_err(|error| {
            Helped::wrap(
                format!("cannot read {flag} `{text}`"),
                error,
                "write a list of nodes such as 1 or 2-3; `homenode topo` shows them",
            )
        })?;
        if parsed.is_empty() {
            return Err(Helped::error(
                format!("{flag} `{text}` holds no node"),
                "write a list of nodes such as 1 or 2-3; `homenode topo` shows them",
            ));
        }
        Ok(Some(parsed))
    };
    let from = nodes("--from", &common.from)?;
    let to = nodes("--to", &common.to)?;
    Ok(Sites::of(topology).restricted(from.as_ref(), to.as_ref())?)
}

fn bandwidth_options(args: &BandwidthArgs, quick: bool) -> anyhow::Result<BandwidthOptions> {
    if let Some(isa) = args.isa.filter(|isa| !isa.is_available()) {
        let there = ISAS
            .into_iter()
            .filter(|isa| isa.is_available())
            .map(Isa::name);
        return Err(Helped::error(
            format!(
                "expected instructions that this processor has ({}), found {}",
                there.collect::<Vec<_>>().join(", "),
                isa.name()
            ),
            "leave out --isa, and the fastest are chosen",
        ));
    }
    for &operation in &args.kernel {
        if let Some(isa) = args.isa
            && StreamKernel::find(operation, isa).is_none()
        {
            let there = StreamKernel::available()
                .filter(|kernel| kernel.operation == operation)
                .map(|kernel| kernel.isa.name());
            return Err(Helped::error(
                format!(
                    "there is no loop for {} with {}",
                    operation.name(),
                    isa.name()
                ),
                format!(
                    "{} is there with {}",
                    operation.name(),
                    there.collect::<Vec<_>>().join(", ")
                ),
            ));
        }
    }
    Ok(BandwidthOptions {
        size: args.size,
        operations: args.kernel.clone(),
        isa: args.isa,
        threads: args.threads,
        base_pages: args.base_pages,
        quick,
    })
}

/// Adds the next step to what cannot be measured.
fn explain(error: anyhow::Error) -> anyhow::Error {
    let Some(known) = error.downcast_ref::<MeasureError>() else {
        return error;
    };
    let help = match known {
        MeasureError::NoCpus { .. } | MeasureError::NoMemory { .. } => {
            "`homenode topo` shows which nodes have CPUs and memory"
        }
        MeasureError::Nothing { .. } => {
            "check the cpuset of this container or control group; `homenode topo --full` shows it"
        }
        MeasureError::TooLarge { .. } => {
            "give a smaller --size, or free memory; `homenode report` shows who uses it"
        }
        MeasureError::TooSmall { .. } => "give a larger --size, such as 128MiB",
        MeasureError::Threads { .. } => "give --threads within that range, or leave it out",
    };
    Helped::error(known.to_string(), help)
}

/// Prints a run in the form asked for.
fn show(
    common: &CommonArgs,
    document: &Document,
    topology: &Topology,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if common.json {
        out.write_all(document.to_json().as_bytes())?;
    } else if common.csv {
        out.write_all(measure_csv(document).as_bytes())?;
    } else if !common.draws_to_stdout() {
        let text = measure_text(document, Some(topology), Terminal::ask().width.max(60));
        out.write_all(text.as_bytes())?;
    }
    let Some(path) = &common.svg else {
        return Ok(());
    };
    let quiet = common.json || common.csv;
    let note: &mut dyn Write = if quiet { &mut std::io::sink() } else { out };
    write_file(path, &measure_svg(document), note)
}

/// `--diff A B`.
fn compare(before: &Path, after: &Path, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (before, after) = (store::read_file(before)?, store::read_file(after)?);
    let changes = diff(&before, &after);
    if changes.is_empty() {
        return Err(Helped::error(
            "the two runs have no cell in common",
            "compare runs of the same test with the same size and pages",
        ));
    }
    let text = measure_diff_text(&changes, Terminal::ask().width.max(60));
    out.write_all(text.as_bytes())?;
    let worse = changes
        .iter()
        .any(|c| c.judgement == homenode_measure::Judgement::Worse);
    Ok(if worse {
        ExitCode::from(EXIT_FINDING)
    } else {
        ExitCode::SUCCESS
    })
}
