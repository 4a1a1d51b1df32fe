//! `homenode place`: the nodes that a new workload should get.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use homenode_policy::{Goal, Need, Placement, Request, place};
use homenode_topology::{Detail, Topology};
use homenode_units::Bytes;
use serde::Serialize;

use crate::EXIT_FINDING;
use crate::args::MachineArgs;
use crate::error::Helped;
use crate::load::read_load;
use crate::near::near;
use crate::source::Machine;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode place --cpus 8 --memory 32GiB\n  homenode place --cpus 4 --near nvme0n1\n  homenode place --cpus 8 --memory 32GiB --json | jq -r .placement.nodes\n\nExit status: 0 it fits, 1 it does not fit, 2 an error."
)]
pub(crate) struct PlaceArgs {
    /// Logical CPUs it needs.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = parse_cpus)]
    cpus: u32,
    /// Memory it needs, such as 32GiB.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    memory: Bytes,
    /// Be near this: a network interface, block device, PCI address or `file:PATH`.
    #[arg(long, value_name = "DEVICE")]
    near: Option<String>,
    /// Print JSON (schema homenode.place/1) instead of text.
    #[arg(long)]
    json: bool,
}

/// Reads a number of CPUs.
fn parse_cpus(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(
            "expected a number of CPUs, at least 1; a node list goes to `homenode run --on`"
                .to_owned(),
        ),
    }
}

/// Runs the command.
///
/// # Errors
///
/// When the machine cannot be read, has no such device, or no CPU may be used.
pub(crate) fn run(
    args: &PlaceArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let machine = Machine::open(machine)?;
    let wish = args.near.as_deref().map_or(Wish::Auto, Wish::Near);
    let need = Need {
        cpus: args.cpus,
        memory: args.memory,
    };
    let placement = choose(&machine, &wish, need)?;
    if args.json {
        let answer = Answer {
            schema: "homenode.place/1",
            need,
            fits: placement.fits(),
            placement: &placement,
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    } else {
        out.write_all(text(&placement).as_bytes())?;
    }
    Ok(if placement.fits() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_FINDING)
    })
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    schema: &'static str,
    need: Need,
    fits: bool,
    placement: &'a Placement,
}

/// What the command line asks for, before a device is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish<'a> {
    Auto,
    LeastLoaded,
    Near(&'a str),
}

/// Looks at a machine and chooses.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn choose(machine: &Machine, wish: &Wish<'_>, need: Need) -> anyhow::Result<Placement> {
    // Only devices need all of the machine.
    let detail = match wish {
        Wish::Near(_) => Detail::Full,
        Wish::Auto | Wish::LeastLoaded => Detail::Fast,
    };
    let topology: Topology = machine.topology(detail)?;
    let goal = match wish {
        Wish::Auto => Goal::Auto,
        Wish::LeastLoaded => Goal::LeastLoaded,
        Wish::Near(device) => near(machine, &topology, device)?,
    };
    let load = read_load(machine, &topology);
    place(&topology, &load, &Request { need, goal }).map_err(|error| {
        Helped::wrap(
            "cannot choose nodes",
            error,
            "look at Cpus_allowed_list in /proc/self/status, and at isolcpus on the kernel command line",
        )
    })
}

fn text(placement: &Placement) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        let line = format!("{label:<8} {value}");
        writeln!(text, "{}", line.trim_end()).expect("a String takes all text");
    };
    line("nodes", &placement.nodes.to_string());
    line(
        "CPUs",
        &format!("{} of node {}", placement.cpus, placement.cpu_nodes),
    );
    line("memory", &format!("of node {}", placement.memory_nodes));
    for (label, sentences) in [
        ("why", &placement.reasons),
        ("lacking", &placement.shortfalls),
    ] {
        for (position, sentence) in sentences.iter().enumerate() {
            line(if position == 0 { label } else { "" }, sentence);
        }
    }
    if placement.fits() {
        line("start it", &format!("{} -- CMD", start_line(placement)));
    }
    text
}

/// The command that starts a program so.
fn start_line(placement: &Placement) -> String {
    let cpus = format!("homenode run --on {}", placement.cpu_nodes);
    let nodes = &placement.memory_nodes;
    if *nodes == placement.cpu_nodes || nodes.is_empty() {
        cpus
    } else {
        format!("{cpus} --memory prefer --memory-on {nodes}")
    }
}
