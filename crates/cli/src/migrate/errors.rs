//! What to try next when memory cannot be moved.

use homenode_act::{ActError, PlanError};
use homenode_host::{HoldError, MoveError, QueryError};

use crate::error::Helped;

const RIGHTS: &str =
    "run it as that user or as root (CAP_SYS_PTRACE; in a container --cap-add SYS_PTRACE)";
const FILTER: &str = "Docker's and containerd's default seccomp profiles refuse move_pages always, whatever the \
                      capabilities: run it on the host, or with a profile of your own";

pub(super) fn explain_plan(error: PlanError) -> anyhow::Error {
    let help = match &error {
        PlanError::NoProcess { .. } => {
            "`homenode report` shows the processes with the most memory".to_owned()
        }
        PlanError::KernelThread { .. } => {
            "its memory is the kernel's, which stays where it is; name a program's process"
                .to_owned()
        }
        PlanError::Zombie { .. } => {
            "it has given its memory back: nothing is to be done".to_owned()
        }
        PlanError::Thread { pid, .. } => {
            format!("threads share their memory: name the process, `homenode migrate {pid} …`")
        }
        PlanError::Itself { .. } => "name another process".to_owned(),
        PlanError::NotPermitted { .. } => RIGHTS.to_owned(),
        PlanError::NoTarget => "name a node with --to".to_owned(),
        PlanError::SameNodes { to } => {
            format!("name other nodes with --from than {to}, or leave it out")
        }
        PlanError::UnknownNodes { online, .. } => format!("this machine has nodes {online}"),
        PlanError::MemorylessNodes { with_memory, .. } => {
            format!("nodes with memory: {with_memory}")
        }
        PlanError::NodesNotAllowed { nodes, .. } => {
            format!("name other nodes, or add {nodes} to cpuset.mems of its control group")
        }
        PlanError::File(_) => {
            "check that /proc and /sys are mounted, and that the kernel has CONFIG_NUMA".to_owned()
        }
        PlanError::Parse { .. } => "please report this, with the file".to_owned(),
    };
    Helped::wrap("cannot plan", error, help)
}

pub(super) fn explain_act(error: ActError) -> anyhow::Error {
    let help = match &error {
        ActError::Hold(HoldError::Thread { .. }) => "name the process, not one of its threads",
        ActError::Hold(_) => "it has ended: nothing is to be done",
        ActError::Replaced { .. } => {
            "the process has ended, and its number was given away; nothing of the new one was moved"
        }
        ActError::Query {
            source: QueryError::Filtered,
            ..
        }
        | ActError::Move {
            source: MoveError::Filtered,
            ..
        } => FILTER,
        ActError::Query {
            source: QueryError::NotSupported,
            ..
        }
        | ActError::Move {
            source: MoveError::NotSupported,
            ..
        } => "a kernel with CONFIG_NUMA and CONFIG_MIGRATION is needed",
        ActError::Query {
            source: QueryError::NotPermitted,
            ..
        }
        | ActError::Move {
            source: MoveError::NotPermitted,
            ..
        } => RIGHTS,
        ActError::Move {
            source: MoveError::SharedNotPermitted,
            ..
        } => "leave out --shared, or run it as root (CAP_SYS_NICE)",
        ActError::Move {
            source: MoveError::NodeNotAllowed { .. },
            ..
        } => "see cpuset.mems of its control group, and the audit log for a security module",
        ActError::Query { .. } | ActError::Move { .. } => {
            "what was moved so far stays there, and the process is intact"
        }
    };
    Helped::wrap("stopped", error, help)
}
