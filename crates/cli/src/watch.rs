//! What `stat`, `maps`, `top` and `record` share: watchers, choices, processes by number.

use std::collections::BTreeSet;

use homenode_host::{Buffer, Clock as _, Files as _, Live};
use homenode_observe::{LocateError, Observation, View, WatchOptions, Watcher};
use homenode_topology::{Detail, Topology};
use homenode_units::{CpuSet, NodeId, Pid};

use crate::args::{MachineArgs, ViewArg};
use crate::error::Helped;
use crate::source::Machine;

impl From<ViewArg> for View {
    fn from(view: ViewArg) -> Self {
        match view {
            ViewArg::Processes => Self::Processes,
            ViewArg::Workloads => Self::Workloads,
            ViewArg::Vms => Self::Vms,
            ViewArg::Containers => Self::Containers,
            ViewArg::Trees => Self::Trees,
        }
    }
}

/// This machine and its topology.
///
/// # Errors
///
/// When the command line names a captured machine, which has no processes that run, or this one
/// cannot be read.
pub(crate) fn live(args: &MachineArgs) -> anyhow::Result<(Live, Topology)> {
    let machine = Machine::open(args)?;
    let topology = machine.topology(Detail::Fast)?;
    match machine {
        Machine::Live(live) => Ok((live, topology)),
        Machine::Captured(..) => Err(Helped::error(
            "a captured machine does not run, so nothing can be watched",
            "leave out --root (and HOMENODE_ROOT), or look at a recording: homenode replay FILE",
        )),
    }
}

/// The CPUs of each node.
pub(crate) fn cpus_of_nodes(topology: &Topology) -> Vec<(NodeId, CpuSet)> {
    let nodes = topology.nodes.iter();
    nodes.map(|node| (node.id, node.cpus.clone())).collect()
}

/// Checks that these processes are there.
///
/// # Errors
///
/// Naming the first that is not.
pub(crate) fn existing(pids: &[u32]) -> anyhow::Result<Option<BTreeSet<Pid>>> {
    for &pid in pids {
        if !Live.is_folder(&format!("/proc/{pid}")) {
            return Err(gone(Pid(pid)));
        }
    }
    let pids: BTreeSet<Pid> = pids.iter().copied().map(Pid).collect();
    Ok((!pids.is_empty()).then_some(pids))
}

pub(crate) fn gone(pid: Pid) -> anyhow::Error {
    Helped::error(
        format!("no process {pid}"),
        "see which there are: homenode stat",
    )
}

/// Names the process in an error about where its memory lies.
pub(crate) fn explain(pid: Pid, error: LocateError) -> anyhow::Error {
    let help = match error {
        LocateError::Gone => return gone(pid),
        LocateError::NotPermitted => "run as its user or as root",
        LocateError::Sparse { .. } => "count every page: --exact",
        LocateError::Empty => "kernel threads and zombies have no memory",
        _ => "see whether /proc is mounted and what this user may read",
    };
    Helped::wrap(format!("cannot look into process {pid}"), error, help)
}

/// A watcher of this machine.
pub(crate) fn watcher(topology: &Topology, options: WatchOptions) -> Watcher {
    Watcher::new(cpus_of_nodes(topology), options)
}

/// Seeds differ from run to run, so that errors do not repeat.
pub(crate) fn seed() -> u64 {
    Live.since_epoch().as_secs()
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let mut buffer = Buffer::new();
    let name = Live.read("/proc/sys/kernel/hostname", &mut buffer);
    name.map_or_else(
        |_| "localhost".to_owned(),
        |name| String::from_utf8_lossy(name.trim_ascii()).into_owned(),
    )
}

/// Observes once.
///
/// # Errors
///
/// When `/proc` cannot be listed.
pub(crate) fn observe(watcher: &mut Watcher) -> anyhow::Result<Observation> {
    watcher
        .observe(&Live)
        .map_err(|error| Helped::wrap("cannot watch", error, "check that /proc is mounted"))
}
