//! The command line of `homenode run`.

use std::ffi::OsString;

use clap::{ArgGroup, Args, ValueEnum};
use homenode_policy::Need;

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("policy").multiple(false),
    after_help = "Examples:
  homenode run --on auto --need 8cpu,32GiB -- ./server
  homenode run --on near:eth0 -- ./proxy
  homenode run --on 0 --memory bind -- ./database
  homenode run --memory interleave --memory-on all -- ./cache
  homenode run -N 0 -m 0,1 --dry-run -- ./job      as with numactl; --dry-run shows the calls

Without --memory and --memory-on, no memory policy is set: pages go to the node of the CPU that
touches them first, and AutoNUMA may move them.

Exit status: that of CMD; 126 CMD cannot be executed, 127 CMD is not found, 2 any other error."
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct RunArgs {
    /// Run on the CPUs of these nodes: a list (0,2-3), all, or a way to choose.
    #[arg(
        short = 'N',
        long,
        visible_alias = "cpunodebind",
        value_name = "NODES|auto|least-loaded|near:DEVICE"
    )]
    pub(super) on: Option<String>,
    /// Run on these CPUs only: a list (0-3,8) or a mask (0x10000).
    #[arg(
        short = 'C',
        long,
        visible_alias = "physcpubind",
        value_name = "LIST|MASK"
    )]
    pub(super) cpus: Option<String>,
    /// How memory is spread over the nodes of --memory-on, or else of --on.
    #[arg(long, value_name = "HOW", value_enum, group = "policy")]
    pub(super) memory: Option<MemoryMode>,
    /// Take memory from these nodes: a list or all; `bind` unless --memory says otherwise.
    #[arg(long, value_name = "NODES")]
    pub(super) memory_on: Option<String>,
    /// What the program needs, for choosing nodes and for warnings: 8cpu,32GiB.
    #[arg(long, value_name = "NEED")]
    pub(super) need: Option<Need>,
    /// Let AutoNUMA move memory among the nodes it is bound to (Linux 5.12).
    #[arg(short, long)]
    pub(super) balancing: bool,
    #[command(flatten)]
    pub(super) short: ShortPolicies,
    /// Show what would be done and start nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// With --dry-run, print JSON (schema homenode.run/1).
    #[arg(long, requires = "dry_run")]
    pub(super) json: bool,
    /// Leave out notes on standard error; warnings stay.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// The program and its arguments.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

/// numactl's words for memory policies.
#[derive(Debug, Args)]
#[command(next_help_heading = "As with numactl")]
pub(super) struct ShortPolicies {
    /// --memory bind --memory-on NODES
    #[arg(
        short = 'm',
        long,
        value_name = "NODES",
        group = "policy",
        conflicts_with = "memory_on"
    )]
    pub(super) membind: Option<String>,
    /// --memory interleave --memory-on NODES
    #[arg(
        short = 'i',
        long,
        value_name = "NODES",
        group = "policy",
        conflicts_with = "memory_on"
    )]
    pub(super) interleave: Option<String>,
    /// --memory weighted --memory-on NODES
    #[arg(
        short = 'w',
        long,
        value_name = "NODES",
        group = "policy",
        conflicts_with = "memory_on"
    )]
    pub(super) weighted_interleave: Option<String>,
    /// --memory prefer --memory-on NODES
    #[arg(
        short = 'p',
        long,
        short_alias = 'P',
        visible_alias = "preferred-many",
        value_name = "NODES",
        group = "policy",
        conflicts_with = "memory_on"
    )]
    pub(super) preferred: Option<String>,
    /// --memory local
    #[arg(short = 'l', long, group = "policy", conflicts_with = "memory_on")]
    pub(super) localalloc: bool,
}

/// How memory is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MemoryMode {
    /// These nodes and no other; when they are full, the kernel kills.
    Bind,
    /// These nodes first, then others.
    Prefer,
    /// Page by page in turn.
    Interleave,
    /// In turn, by the machine's weights (Linux 6.9).
    Weighted,
    /// The node of the CPU that touches a page.
    Local,
}

impl RunArgs {
    /// The memory policy asked for, and its nodes if they are named.
    pub(super) fn memory(&self) -> Option<(MemoryMode, Option<&str>)> {
        let short = &self.short;
        let named = [
            (MemoryMode::Bind, &short.membind),
            (MemoryMode::Interleave, &short.interleave),
            (MemoryMode::Weighted, &short.weighted_interleave),
            (MemoryMode::Prefer, &short.preferred),
        ];
        if let Some((mode, nodes)) = named
            .into_iter()
            .find_map(|(mode, nodes)| nodes.as_deref().map(|nodes| (mode, nodes)))
        {
            return Some((mode, Some(nodes)));
        }
        if short.localalloc {
            return Some((MemoryMode::Local, None));
        }
        match (self.memory, self.memory_on.as_deref()) {
            (None, None) => None,
            (mode, nodes) => Some((mode.unwrap_or(MemoryMode::Bind), nodes)),
        }
    }
}
