//! `homenode topo`: what the machine is.

use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use homenode_host::{Files as _, Live};
use homenode_measure::{Document, MachineId, Test};
use homenode_report::{
    NumactlLayout, TextOptions, coreinfo, measured_latency_text, numactl_hardware,
    to_hwloc_xml_measured, topology_json, topology_svg, topology_text,
};
use homenode_topology::{Detail, Source, Topology};

use crate::args::{MachineArgs, TopoArgs};
use crate::error::Helped;
use crate::measure::store;
use crate::source::{Machine, read_hwloc_xml, read_synthetic};
use crate::terminal::Terminal;
use crate::translate::Translation;

/// Runs the command.
///
/// # Errors
///
/// When the machine cannot be read or the output cannot be written.
pub(crate) fn run(
    args: &TopoArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let topology = read(args, machine)?;
    if let Some(translation) = translate(args, &topology)? {
        if args.output.json {
            return Ok(writeln!(
                out,
                "{}",
                serde_json::to_string_pretty(&translation)?
            )?);
        }
        return translation.print(out);
    }
    let text = if args.output.hwloc_xml {
        to_hwloc_xml_measured(&topology, measured(&topology).as_ref())
    } else if args.output.coreinfo {
        coreinfo(&topology)
    } else if args.output.numactl {
        numactl_hardware(&topology, installed_numactl())
    } else if let Some(path) = &args.output.svg {
        return write_file(path, &topology_svg(&topology, &topology.verdict()), out);
    } else if args.output.json {
        topology_json(&topology, &topology.verdict())
    } else {
        let Terminal { width, colour } = Terminal::ask();
        let options = TextOptions {
            width,
            colour,
            full: args.full,
        };
        let mut text = topology_text(&topology, &topology.verdict(), &options);
        if let Some(measured) = measured(&topology) {
            text.push_str(&measured_latency_text(&measured, width));
        }
        text
    };
    Ok(out.write_all(text.as_bytes())?)
}

/// The latencies that were measured on this machine and kept.
fn measured(topology: &Topology) -> Option<Document> {
    (topology.source == Source::Live)
        .then(|| store::kept(Test::Latency, &MachineId::of(topology)))
        .flatten()
}

fn read(args: &TopoArgs, machine: &MachineArgs) -> anyhow::Result<Topology> {
    if let Some(path) = &args.from_xml {
        return read_hwloc_xml(path);
    }
    if let Some(description) = &args.synthetic {
        return read_synthetic(description);
    }
    let output = &args.output;
    // What another program reads should hold everything; people ask for it.
    let full =
        args.full || output.json || output.hwloc_xml || output.svg.is_some() || output.coreinfo;
    let detail = if full { Detail::Full } else { Detail::Fast };
    Machine::open(machine)?.topology(detail)
}

/// The release whose listing people know here: the installed one's, or the newest.
///
/// Told by an option that came with the wider columns, since `numactl --version` came with them
/// too and an unknown program is not run just to lay out a table.
fn installed_numactl() -> NumactlLayout {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment is resolved here"
    )]
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let mut program = Vec::new();
    let found = std::env::split_paths(&search_path).any(|folder| {
        Live.read(&folder.join("numactl").to_string_lossy(), &mut program)
            .is_ok()
    });
    let knows = |option: &[u8]| program.windows(option.len()).any(|part| part == option);
    if found && !knows(b"cpu-compress") {
        NumactlLayout::V2_0_16
    } else {
        NumactlLayout::V2_0_19
    }
}

fn translate(args: &TopoArgs, topology: &Topology) -> anyhow::Result<Option<Translation>> {
    if let Some(text) = &args.cpus {
        return Translation::of_cpus(text, topology).map(Some);
    }
    args.nodes
        .as_ref()
        .map(|text| Translation::of_nodes(text, topology))
        .transpose()
}

/// Writes a file that the user named; `-` is standard output.
///
/// # Errors
///
/// When it cannot be written.
pub(crate) fn write_file(path: &Path, text: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return out
            .write_all(text.as_bytes())
            .context("cannot write to standard output");
    }
    std::fs::write(path, text).map_err(|error| {
        let what = format!("cannot write {}", path.display());
        Helped::wrap(
            what,
            error,
            "name a file in a folder that exists and may be written",
        )
    })?;
    Ok(writeln!(out, "wrote {}", path.display())?)
}
