//! What is going on on a machine, for choosing nodes.

use std::time::Duration;

use homenode_host::{Buffer, Clock as _, Files};
use homenode_observe::{MemoryUse, parse_meminfo, read_cpu_times, read_group_room};
use homenode_policy::{GroupLimit, Load};
use homenode_topology::Topology;
use homenode_units::{NodeId, Reading};

use crate::source::Machine;

/// How long the CPUs are watched: the kernel counts in ticks of 10 ms, and the sum over a node's
/// CPUs is what counts.
const WATCHED: Duration = Duration::from_millis(20);

/// Reads how busy a machine is.
///
/// The CPUs of a live one are watched for [`WATCHED`], unless there is only one node to choose. A
/// captured one has no moment, so what its CPUs did since boot stands for it.
pub(crate) fn read_load(machine: &Machine, topology: &Topology) -> Load {
    let files = machine.files();
    let busy = match machine {
        Machine::Live(live) if topology.cpu_nodes().count() > 1 => {
            let before = read_cpu_times(files);
            live.sleep(WATCHED);
            match (before, read_cpu_times(files)) {
                (Reading::Known(before), Reading::Known(after)) => {
                    Reading::Known(after.busy_since(&before))
                }
                (_, Reading::Absent { why }) | (Reading::Absent { why }, _) => {
                    Reading::Absent { why }
                }
            }
        }
        Machine::Live(_) => Reading::absent("there is one node to choose from"),
        Machine::Captured(..) => read_cpu_times(files).map(|times| times.busy_since_boot()),
    };
    let obtainable = topology
        .nodes
        .iter()
        .filter_map(|node| Some((node.id, read_memory(files, node.id)?.obtainable())))
        .collect();
    let group = read_group_room(files).map(|room| GroupLimit {
        left: room.left,
        file: room.file,
    });
    Load {
        busy,
        obtainable,
        group,
    }
}

/// What a node's memory is used for; `None` where the machine does not tell.
pub(crate) fn read_memory(files: &dyn Files, node: NodeId) -> Option<MemoryUse> {
    let mut buffer = Buffer::new();
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = files.read(&path, &mut buffer).ok()?;
    parse_meminfo(&String::from_utf8_lossy(text)).ok()
}
