//! The command line: plain values, nothing looked up.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::place::PlaceArgs;
use crate::run::RunArgs;

/// Shows how a machine's memory is laid out, what it costs to go remote and who pays for it.
#[derive(Debug, Parser)]
#[command(
    name = "homenode",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  homenode report                   what this machine is, who uses its memory, what to do\n  homenode topo                     nodes, sizes, distances, mode\n  homenode topo --json --root DIR   a captured machine, for scripts\n  homenode run --on auto -- CMD     start a program where there is room for it\n\nExit status: 0 done, 1 a finding, 2 an error."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which machine to look at; this one unless said otherwise.
#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// Read a captured machine: a folder that holds sys/ and proc/ [env: `HOMENODE_ROOT`].
    // Not clap's own `env`: that takes an empty variable for an empty path.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Report(ReportArgs),
    Topo(TopoArgs),
    Run(RunArgs),
    Place(PlaceArgs),
    Capture(CaptureArgs),
    Link(LinkArgs),
}

/// Tell the whole story: layout, verdict, memory per node, who uses it, next steps.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode report\n  homenode report --html numa.html --top 20\n  homenode report --json | jq .report.verdict"
)]
pub(crate) struct ReportArgs {
    /// Also write the report, with a drawing, as one web page.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print JSON (schema homenode.report/1) instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Watch the allocation counters for this long.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Show this many of the processes with the most memory.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) top: usize,
}

/// Make links by which homenode answers as numactl, memhog and the other tools it stands in for.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// The folder for the links: one that comes early in PATH.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// Show nodes, CPUs, caches, memory, distances, devices and the mode they are set up in.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode topo\n  homenode topo --full --svg machine.svg\n  homenode topo --cpus 0x10000          which CPUs and nodes a mask means\n  homenode topo --synthetic 'pack:2 [numa(memory=16GB)] l3:1 core:4 pu:2'\n  homenode topo --hwloc-xml | lstopo -i - --if xml"
)]
pub(crate) struct TopoArgs {
    /// Read everything: cores, all caches, devices, tiers, huge pages, firmware tables.
    #[arg(long)]
    pub(crate) full: bool,
    /// Read an hwloc XML file (version 2 or 3) instead; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthetic", "root"])]
    pub(crate) from_xml: Option<PathBuf>,
    /// Make up a machine from an hwloc synthetic description instead.
    #[arg(long, value_name = "DESCRIPTION", conflicts_with = "root")]
    pub(crate) synthetic: Option<String>,
    #[command(flatten)]
    pub(crate) output: TopoOutput,
    /// Translate CPUs: a list (0-3,8) or a mask of any width (0x10000).
    #[arg(long, value_name = "LIST|MASK", conflicts_with = "nodes")]
    pub(crate) cpus: Option<String>,
    /// Translate nodes: a list (0,2-3).
    #[arg(long, value_name = "LIST")]
    pub(crate) nodes: Option<String>,
}

/// The form of the output; text unless said otherwise.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct TopoOutput {
    /// Print JSON (schema homenode.topology/1).
    #[arg(long)]
    pub(crate) json: bool,
    /// Print hwloc XML, version 2.0.
    #[arg(long)]
    pub(crate) hwloc_xml: bool,
    /// Draw the machine into an SVG file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print star maps, as Coreinfo does.
    #[arg(long)]
    pub(crate) coreinfo: bool,
    /// Print what `numactl --hardware` prints, in the layout of the installed release.
    #[arg(long)]
    pub(crate) numactl: bool,
}

/// Save what homenode reads, without host names, serial numbers and command lines.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode capture mymachine\n  homenode topo --root mymachine\n  tar caf mymachine.tar.gz mymachine     to send with a bug report"
)]
pub(crate) struct CaptureArgs {
    /// The folder to write; must not exist or be empty.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// `500ms`, `2s`, `1m`.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let interval = number
        .parse::<u64>()
        .ok()
        .zip(milliseconds)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .map(Duration::from_millis)
        .ok_or("expected a time with its unit, such as 500ms, 2s or 1m")?;
    let range = Duration::from_millis(10)..=Duration::from_secs(3600);
    if range.contains(&interval) {
        Ok(interval)
    } else {
        Err("expected a time from 10ms to 60m".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }

    #[test]
    fn intervals_carry_their_unit() {
        assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("2s"), Ok(Duration::from_secs(2)));
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1h",
            "0s",
            "99999999999999999999s",
            "61m",
        ] {
            parse_interval(text).unwrap_err();
        }
    }
}
