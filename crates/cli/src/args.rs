//! The command line: plain values, nothing looked up.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use homenode_units::Bytes;

use crate::measure::args::MeasureArgs;
use crate::place::PlaceArgs;
use crate::run::RunArgs;

/// Shows how a machine's memory is laid out, what it costs to go remote and who pays for it.
#[derive(Debug, Parser)]
#[command(
    name = "homenode",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  homenode report                   what this machine is, who uses its memory, what to do\n  homenode topo                     nodes, sizes, distances, mode\n  homenode topo --json --root DIR   a captured machine, for scripts\n  homenode run --on auto -- CMD     start a program where there is room for it\n  homenode migrate 4711 --to 1      move a process's memory while it runs\n\nExit status: 0 done, 1 a finding, 2 an error."
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

/// What to do. A command's arguments are defined when it is the one asked for: defining all of them
/// took a tenth of the time of `homenode topo`.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Tell the whole story: layout, verdict, memory per node, who uses it, next steps.
    Report(ReportArgs),
    /// Show nodes, CPUs, caches, memory, distances, devices and the mode they are set up in.
    Topo(TopoArgs),
    /// Start a program on chosen nodes: its CPUs, its memory, or both.
    Run(RunArgs),
    /// Name the nodes that a new workload should get, and why; starts nothing.
    Place(PlaceArgs),
    /// Save what homenode reads, without host names, serial numbers and command lines.
    Capture(CaptureArgs),
    /// Make links by which homenode answers as numactl, memhog and the other tools it stands in for.
    Link(LinkArgs),
    /// Move the memory of a running process to other nodes, at a pace that it does not feel.
    Migrate(MigrateArgs),
    /// Measure what this machine's memory does, node by node: latency, bandwidth, and more.
    Measure(MeasureArgs),
    /// Show what each node does and who pays for remote memory.
    Stat(StatArgs),
    /// Show each mapping of a process: what it is, its policy, where it lies and whether that matters.
    Maps(MapsArgs),
    /// Watch who pays for remote memory, full-screen, with esxtop's keys and fields.
    Top(TopArgs),
    /// Record who pays for remote memory, or what a command does to it.
    Record(RecordArgs),
    /// Look at a recording as at the live machine.
    Replay(ReplayArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode top\n  homenode top --view vms --interval 5s\n  homenode top --batch --interval 5s --count 12 > numa.csv       esxtop's layout\n  homenode top --batch --format jsonl | jq '.rows[0].locality'\n\nPress h for the keys."
)]
pub(crate) struct TopArgs {
    /// What a row is.
    #[arg(long, value_enum, default_value_t = ViewArg::Workloads)]
    pub(crate) view: ViewArg,
    /// Time between two looks; 2s on the screen, 5s in a batch.
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub(crate) interval: Option<Duration>,
    /// Print lines instead of a screen.
    #[arg(long)]
    pub(crate) batch: bool,
    /// The form of the lines: csv has the columns of the first look, jsonl is homenode.stat/1.
    #[arg(long, value_enum, default_value_t = BatchFormat::Csv, requires = "batch")]
    pub(crate) format: BatchFormat,
    /// End after so many looks.
    #[arg(long, value_name = "COUNT", requires = "batch")]
    pub(crate) count: Option<u64>,
    /// Rows of a batch at most.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, requires = "batch")]
    pub(crate) rows: usize,
    /// Ask about pages also where there is one node, to see what that costs.
    #[arg(long, hide = true)]
    pub(crate) ask_always: bool,
}

/// The form of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BatchFormat {
    /// PDH-CSV, as esxtop and perfmon write it.
    Csv,
    /// A JSON object in each line.
    Jsonl,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode record load.hnr --interval 5s --size 256MiB\n  homenode replay load.hnr --at 2026-11-21T18:00:00Z\n  homenode record -- ./export.sh         run time, hit and miss rates, locality over time\n  zcat load.hnr | jq .since_epoch\n\nGiven a file that is a recording, it goes on behind it. The oldest is dropped to stay within --size\nand --keep. With a command, the exit status is the command's."
)]
pub(crate) struct RecordArgs {
    /// The file to record into.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// The file never grows beyond this.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_record_size)]
    pub(crate) size: Bytes,
    /// What is older goes.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_age)]
    pub(crate) keep: Duration,
    /// End after so many looks.
    #[arg(long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// A command to run and watch.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode replay load.hnr                        the screen of `top`; P pauses, blank steps\n  homenode replay load.hnr --text --at +10m       as `stat` shows it, 10 minutes after the start\n  homenode replay load.hnr --json --at 2026-11-21T18:00:00Z"
)]
pub(crate) struct ReplayArgs {
    /// The recording.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The moment: +10m after the start, or 2026-11-21T18:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) at: Option<Moment>,
    /// What a row is.
    #[arg(long, value_enum, default_value_t = ViewArg::Workloads)]
    pub(crate) view: ViewArg,
    /// Print one moment, the last unless said otherwise, also on a terminal.
    #[arg(long)]
    pub(crate) text: bool,
    /// Print one moment as JSON (schema homenode.stat/1).
    #[arg(long)]
    pub(crate) json: bool,
    /// Show this many rows.
    #[arg(long, value_name = "COUNT", default_value_t = 15)]
    pub(crate) top: usize,
}

/// A moment of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// So long after its start.
    After(Duration),
    /// Since 1970.
    At(Duration),
}

impl Moment {
    /// Since 1970, in a recording that starts then.
    pub(crate) fn since_epoch(self, start: Duration) -> Duration {
        match self {
            Self::After(time) => start + time,
            Self::At(time) => time,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode stat                     nodes, a verdict, who has most memory elsewhere\n  homenode stat 4711 4712 --watch\n  homenode stat --view vms --json | jq '.rows[] | {name, home, locality}'\n\nNHN is the home node, where it runs; NRMEM its memory on other nodes, N%L the part on its home."
)]
pub(crate) struct StatArgs {
    /// Only these processes.
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pub(crate) pids: Vec<u32>,
    /// What a row is.
    #[arg(long, value_enum, default_value_t = ViewArg::Workloads)]
    pub(crate) view: ViewArg,
    /// Time between the two looks that are compared.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Go on until interrupted.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Show this many rows.
    #[arg(long, value_name = "COUNT", default_value_t = 15)]
    pub(crate) top: usize,
    /// Print JSON (schema homenode.stat/1), a line for each look.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ViewArg {
    /// A process.
    Processes,
    /// A virtual machine, a container, a systemd unit, or a process outside of all.
    Workloads,
    /// A virtual machine.
    Vms,
    /// A container.
    Containers,
    /// A process with all its children.
    Trees,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode maps 4711\n  homenode maps 4711 --exact --json | jq .away_that_matters\n\nUp to 1 GiB every page is counted, which holds the process up for some 10 ms; beyond, a sample is\ntaken, which it does not feel, unless --exact asks for all."
)]
pub(crate) struct MapsArgs {
    /// The process.
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pub(crate) pid: u32,
    /// Count every page, however large the process is (some 10 ms per GiB).
    #[arg(long, conflicts_with = "sampled")]
    pub(crate) exact: bool,
    /// Take a sample, however small it is.
    #[arg(long)]
    pub(crate) sampled: bool,
    /// Show all mappings, not the 20 with most memory.
    #[arg(long)]
    pub(crate) all: bool,
    /// Look again each time this has passed.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", value_parser = parse_interval)]
    pub(crate) watch: Option<Duration>,
    /// Print JSON (schema homenode.maps/1).
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode report\n  homenode report --html numa.html --top 20\n  homenode report --json | jq .verdict"
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

#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// The folder for the links: one that comes early in PATH.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

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

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode capture mymachine\n  homenode topo --root mymachine\n  tar caf mymachine.tar.gz mymachine     to send with a bug report"
)]
pub(crate) struct CaptureArgs {
    /// The folder to write; must not exist or be empty.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode migrate 4711 --to 1 --dry-run      what would move, and what not\n  homenode migrate 4711 --to 1 --rate 200MiB/s\n  homenode migrate --cgroup system.slice/db.service --from 0 --to 2-3 --json\n\nIt moves what is mapped when it starts, and changes no policy and no affinity: bind the process's\nCPUs first, or its new memory and automatic balancing go on as before.\nInterrupted or killed, it leaves the process intact.\n\nExit status: 0 all moved, 1 something was left (the reasons are shown), 2 an error."
)]
#[command(group = clap::ArgGroup::new("whose").required(true).args(["pid", "cgroup"]))]
pub(crate) struct MigrateArgs {
    /// The process.
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pub(crate) pid: Option<u32>,
    /// All processes of a control group and of those below it.
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,
    /// The nodes to move to: a list (1 or 2-3).
    #[arg(long, value_name = "NODES")]
    pub(crate) to: String,
    /// Move only what lies on these nodes; all others unless said otherwise.
    #[arg(long, value_name = "NODES")]
    pub(crate) from: Option<String>,
    /// Move at most this much per second.
    #[arg(long, value_name = "SIZE/s", value_parser = parse_rate)]
    pub(crate) rate: Option<Bytes>,
    /// How long one call may hold the process up; sets how much moves at once.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_budget)]
    pub(crate) latency_budget: Duration,
    /// With several nodes: in proportion to their free memory, or the nearest first.
    #[arg(long, value_enum, default_value_t = SpreadArg::Proportional)]
    pub(crate) spread: SpreadArg,
    /// Also move pages that other processes map, too (needs `CAP_SYS_NICE`).
    #[arg(long)]
    pub(crate) shared: bool,
    /// Show the plan and move nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON lines (schema homenode.migrate/1) instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How memory is spread over several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SpreadArg {
    Proportional,
    Nearest,
}

/// `200MiB/s`; the `/s` may be left out.
fn parse_rate(text: &str) -> Result<Bytes, String> {
    let rate: Bytes = text
        .trim_end_matches("/s")
        .parse()
        .map_err(|_| "expected an amount per second, such as 200MiB/s")?;
    // Less than this, and a batch of the smallest size takes minutes.
    if rate < Bytes(64 << 10) {
        return Err("expected at least 64KiB/s".to_owned());
    }
    Ok(rate)
}

/// `20ms`, `1s`.
fn parse_budget(text: &str) -> Result<Duration, String> {
    let budget = parse_time(text).ok_or("expected a time with its unit, such as 20ms")?;
    let range = Duration::from_millis(1)..=Duration::from_secs(10);
    if range.contains(&budget) {
        Ok(budget)
    } else {
        Err("expected a time from 1ms to 10s".to_owned())
    }
}

/// `16MiB`.
fn parse_record_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size < Bytes(1 << 20) {
        return Err("expected at least 1MiB".to_owned());
    }
    Ok(size)
}

/// `10m`, `24h`, `7d`.
fn parse_age(text: &str) -> Result<Duration, String> {
    parse_time(text)
        .filter(|age| !age.is_zero())
        .ok_or_else(|| "expected a time with its unit, such as 10m, 24h or 7d".to_owned())
}

/// `+10m` or `2026-11-21T18:00:00Z`.
fn parse_moment(text: &str) -> Result<Moment, String> {
    let after = text
        .strip_prefix('+')
        .map(|time| parse_time(time).map(Moment::After));
    after
        .unwrap_or_else(|| parse_timestamp(text).map(Moment::At))
        .ok_or_else(|| {
            "expected +10m after the start, or a time such as 2026-11-21T18:00:00Z".to_owned()
        })
}

/// RFC 3339 in UTC, from 1970 on.
fn parse_timestamp(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let three = |text: &str, separator| -> Option<[u64; 3]> {
        let mut parts = text.split(separator).map(|part| part.parse().ok());
        let found = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(found)
    };
    let [year, month, day] = three(date, '-')?;
    let [hour, minute, second] = three(time, ':')?;
    let sane = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    // Years begin in March, so that leap days come last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    sane.then(|| {
        Duration::from_secs((days - 719_469) * 86_400 + hour * 3600 + minute * 60 + second)
    })
}

/// Reads a process id; 0 is refused where processes are looked for.
fn parse_pid(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "expected the number of a process, as `homenode stat` shows it".to_owned())
}

/// `500ms`, `2s`, `1m`.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval =
        parse_time(text).ok_or("expected a time with its unit, such as 500ms, 2s or 1m")?;
    let range = Duration::from_millis(10)..=Duration::from_secs(3600);
    if range.contains(&interval) {
        Ok(interval)
    } else {
        Err("expected a time from 10ms to 60m".to_owned())
    }
}

/// A number with `ms`, `s` or `m`.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    number
        .parse::<u64>()
        .ok()
        .zip(milliseconds)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .map(Duration::from_millis)
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
    fn rates_are_amounts_per_second() {
        assert_eq!(parse_rate("200MiB/s"), Ok(Bytes(200 << 20)));
        assert_eq!(parse_rate("1GiB"), Ok(Bytes(1 << 30)));
        for text in ["", "/s", "fast", "0", "1KiB/s", "-5MiB/s"] {
            parse_rate(text).unwrap_err();
        }
    }

    #[test]
    fn budgets_are_times_that_make_sense() {
        assert_eq!(parse_budget("20ms"), Ok(Duration::from_millis(20)));
        for text in ["20", "0ms", "11s", "1m"] {
            parse_budget(text).unwrap_err();
        }
    }

    #[test]
    fn moments_are_after_the_start_or_in_utc() {
        let seconds = |text| match parse_moment(text) {
            Ok(Moment::At(time)) => time.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!(seconds("1970-01-01T00:00:00Z"), 0);
        assert_eq!(seconds("2000-02-29T00:00:00Z"), 951_782_400);
        assert_eq!(seconds("2026-08-01T00:00:00Z"), 1_785_542_400);
        let after = Duration::from_secs(600);
        assert_eq!(parse_moment("+10m"), Ok(Moment::After(after)));
        for text in [
            "",
            "10m",
            "+",
            "2026-13-01T00:00:00Z",
            "2026-01-01",
            "x-y-zT1:2:3Z",
        ] {
            parse_moment(text).unwrap_err();
        }
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
            "2h",
            "0s",
            "99999999999999999999s",
            "61m",
        ] {
            parse_interval(text).unwrap_err();
        }
    }
}
