//! The threads of one process.

use std::collections::BTreeMap;

use homenode_host::{Buffer, FileError, Files};
use homenode_units::{CpuSet, NodeId, NodeSet, Pid};
use serde::Serialize;

use crate::{ProcessId, TaskStat, parse_status, vcpu_of_thread};

/// No more threads than this are read.
const THREADS_MAX: usize = 512;

/// A thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadSample {
    /// Its number, and when it started.
    pub id: ProcessId,
    /// Its name, which it chooses.
    pub name: String,
    /// The vCPU it runs, by its name.
    pub vcpu: Option<u32>,
    /// CPU time since its start. Unit: ticks of 10 ms.
    pub ticks: u64,
    /// The node it last ran on.
    pub node: Option<NodeId>,
    /// The nodes whose CPUs it may use.
    pub nodes_allowed: NodeSet,
}

/// Reads the threads of a process, at most 512 of them: two files each, 50 µs.
///
/// # Errors
///
/// [`FileError`] when the process is gone or hidden.
pub fn read_threads(
    files: &(impl Files + ?Sized),
    pid: Pid,
    cpus: &[(NodeId, CpuSet)],
) -> Result<Vec<ThreadSample>, FileError> {
    let mut buffer = Buffer::new();
    let mut threads = Vec::new();
    let nobody = BTreeMap::new();
    for name in files
        .list(&format!("/proc/{pid}/task"))?
        .iter()
        .take(THREADS_MAX)
    {
        let folder = format!("/proc/{pid}/task/{name}");
        // A thread may end between the two lines.
        let Ok(text) = files.read(&format!("{folder}/stat"), &mut buffer) else {
            continue;
        };
        let Ok(task) = TaskStat::parse(text) else {
            continue;
        };
        let allowed = files
            .read(&format!("{folder}/status"), &mut buffer)
            .ok()
            .and_then(|text| {
                let text = String::from_utf8_lossy(text);
                parse_status(pid, &text, &nobody).ok().flatten()
            })
            .map(|status| status.cpus_allowed);
        threads.push(ThreadSample {
            id: task.id,
            vcpu: vcpu_of_thread(&task.name),
            name: task.name,
            ticks: task.ticks,
            node: cpus
                .iter()
                .find(|(_, cpus)| cpus.contains(task.cpu))
                .map(|&(node, _)| node),
            nodes_allowed: cpus
                .iter()
                .filter(|(_, cpus)| allowed.as_ref().is_some_and(|set| cpus.intersects(set)))
                .map(|&(node, _)| node)
                .collect(),
        });
    }
    Ok(threads)
}
