//! The command line of `measure`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use homenode_sys::kernels::{ISAS, Isa, OPERATIONS, Operation};
use homenode_units::Bytes;

use crate::args::parse_time;

#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  homenode measure latency --quick\n  homenode measure bandwidth --json > before.json\n  homenode measure --diff before.json after.json\n\nMemory is put on its node page by page and asked where it lies, before and after; what is not\nwhere it should be is refused. No root and no huge pages are needed; the output says what was\nused. At most half of what a node could give is taken.\nThe newest numbers are kept in $XDG_STATE_HOME/homenode or /var/lib/homenode and shown by `topo`\nand `report`.\n\nExit status: 0 done, 1 cut short, a number missing, or worse than before, 2 an error."
)]
pub(crate) struct MeasureArgs {
    #[command(subcommand)]
    pub(crate) what: Option<What>,
    /// Compare two runs that --json wrote; what differs for certain comes first.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    pub(crate) diff: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum What {
    /// Idle latency, CPU nodes × memory nodes: a walk from one load to the next.
    #[command(
        after_help = "Examples:\n  homenode measure latency\n  homenode measure latency --quick --from 0 --svg latency.svg\n  homenode measure latency --size 64MiB --csv\n\nThree walks: the whole buffer in random order on huge pages (what memory costs), the same on base\npages (what most programs see), and page after page (kind to the TLB and to prefetchers)."
    )]
    Latency(SizeArgs),
    Bandwidth(BandwidthArgs),
    /// Latency and bandwidth by size, near and far: where the caches end.
    #[command(
        after_help = "Examples:\n  homenode measure working-set --svg caches.svg\n  homenode measure working-set --quick --size 64MiB"
    )]
    WorkingSet(SizeArgs),
    /// Latency while other CPUs load the memory, near and far, for mixes of reads and writes.
    #[command(
        after_help = "Examples:\n  homenode measure loaded-latency --svg loaded.svg\n  homenode measure loaded-latency --quick --from 1 --to 1\n\nThe walk runs on the first CPU of the first node, the load on its other CPUs. Bandwidths are those\nof the load alone while the walk ran; points are even in bandwidth."
    )]
    LoadedLatency(SizeArgs),
    /// Memory spread over all nodes: what to expect of it, and what it does.
    #[command(
        after_help = "Examples:\n  homenode measure interleave\n  homenode measure interleave --from 0 --to 0-1"
    )]
    Interleave(SizeArgs),
    /// Memory touched first by one thread, by its user, or placed at allocation.
    #[command(
        after_help = "Examples:\n  homenode measure first-touch\n  homenode measure first-touch --size 32MiB --json"
    )]
    FirstTouch(SizeArgs),
    /// From one CPU's store to another one's load: nodes first, then every pair of cores.
    #[command(
        after_help = "Examples:\n  homenode measure core-to-core --quick\n  homenode measure core-to-core --svg cores.svg --budget 2m\n\nEach pair has a line of its own on a node that was verified; one CPU of each core takes part."
    )]
    CoreToCore(PlainArgs),
    /// The eight metrics of the Opteron study (RMMA), for every pair of nodes.
    #[command(
        after_help = "Examples:\n  homenode measure rmma\n  homenode measure rmma --from 0 --csv"
    )]
    Rmma(SizeArgs),
    /// All of these but rmma in one run; keeps the numbers for `topo` and `report`.
    #[command(
        after_help = "Examples:\n  homenode measure all --quick\n  homenode measure all --json > before.json"
    )]
    All(PlainArgs),
}

/// What most tests take.
#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Memory of each walk or stream; unless said otherwise more than caches hold.
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Bytes>,
}

/// Nothing of its own.
#[derive(Debug, Args)]
pub(crate) struct PlainArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// What all tests have in common.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Print JSON (schema homenode.measure/1) instead of text.
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print CSV instead of text: a line for each number.
    #[arg(long)]
    pub(crate) csv: bool,
    /// Also draw into an SVG file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Time for all of it; sampling ends earlier when all numbers are certain enough.
    #[arg(long, value_name = "TIME", value_parser = parse_budget)]
    budget: Option<Duration>,
    /// A shorter time and the most important numbers only.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only from the CPUs of these nodes.
    #[arg(long, value_name = "NODES")]
    pub(crate) from: Option<String>,
    /// Only to the memory of these nodes.
    #[arg(long, value_name = "NODES")]
    pub(crate) to: Option<String>,
    /// Do not keep the numbers for `topo` and `report`.
    #[arg(long)]
    pub(crate) no_save: bool,
}

/// Bandwidth by operation, placement and number of threads.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  homenode measure bandwidth --quick\n  homenode measure bandwidth --kernel read,nt-write --isa avx2 --threads 4\n  homenode measure bandwidth --base-pages --svg bandwidth.svg\n\nsingle       threads on one node, with its memory\ndistributed  threads on all nodes in turn, each with its own node's memory\nremote       the same, each with another node's memory\ninterleaved  the same, with memory spread over all nodes"
)]
pub(crate) struct BandwidthArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Memory of each thread; unless said otherwise more than caches hold.
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Bytes>,
    /// What to do: read, prefetch-read, write, nt-write, copy, nt-copy, update, triad.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_operation)]
    pub(crate) kernel: Vec<Operation>,
    /// With which instructions: scalar, sse2, avx2, avx512, neon, rep, libc; the fastest unless
    /// said otherwise.
    #[arg(long, value_name = "NAME", value_parser = parse_isa)]
    pub(crate) isa: Option<Isa>,
    /// Threads on each node at most; one for each core unless said otherwise.
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,
    /// Base pages instead of huge ones.
    #[arg(long)]
    pub(crate) base_pages: bool,
}

impl What {
    pub(crate) const fn common(&self) -> &CommonArgs {
        match self {
            Self::Latency(args)
            | Self::WorkingSet(args)
            | Self::LoadedLatency(args)
            | Self::Interleave(args)
            | Self::FirstTouch(args)
            | Self::Rmma(args) => &args.common,
            Self::CoreToCore(args) | Self::All(args) => &args.common,
            Self::Bandwidth(args) => &args.common,
        }
    }
}

impl CommonArgs {
    /// Whether the drawing goes where text would.
    pub(crate) fn draws_to_stdout(&self) -> bool {
        self.svg.as_deref() == Some(Path::new("-"))
    }

    /// The time that was asked for, or what the test needs as a rule.
    pub(crate) fn budget(&self, what: &What) -> Duration {
        let (quick, full) = match what {
            What::Latency(_) => (4, 20),
            What::Bandwidth(_) | What::Rmma(_) => (6, 30),
            What::WorkingSet(_) | What::LoadedLatency(_) => (8, 40),
            What::Interleave(_) | What::CoreToCore(_) => (5, 20),
            What::FirstTouch(_) => (4, 10),
            What::All(_) => (45, 180),
        };
        let usual = Duration::from_secs(if self.quick { quick } else { full });
        self.budget.unwrap_or(usual)
    }
}

/// `10s`, `2m`.
fn parse_budget(text: &str) -> Result<Duration, String> {
    let budget = parse_time(text).ok_or("expected a time with its unit, such as 10s or 2m")?;
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    if range.contains(&budget) {
        Ok(budget)
    } else {
        Err("expected a time from 100ms to 60m".to_owned())
    }
}

fn parse_operation(text: &str) -> Result<Operation, String> {
    let names = OPERATIONS.map(Operation::name).join(", ");
    OPERATIONS
        .into_iter()
        .find(|operation| operation.name() == text)
        .ok_or_else(|| format!("expected one of {names}"))
}

fn parse_isa(text: &str) -> Result<Isa, String> {
    let names = ISAS.map(Isa::name).join(", ");
    ISAS.into_iter()
        .find(|isa| isa.name() == text)
        .ok_or_else(|| format!("expected one of {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for operation in OPERATIONS {
            assert_eq!(parse_operation(operation.name()), Ok(operation));
        }
        for isa in ISAS {
            assert_eq!(parse_isa(isa.name()), Ok(isa));
        }
        assert!(parse_operation("reed").unwrap_err().contains("nt-copy"));
        assert!(parse_isa("sse").unwrap_err().contains("sse2"));
    }

    #[test]
    fn budgets_are_times_that_make_sense() {
        assert_eq!(parse_budget("10s"), Ok(Duration::from_secs(10)));
        for text in ["0", "0s", "50ms", "2h", "-1s"] {
            parse_budget(text).unwrap_err();
        }
    }
}
