use homenode_host::{FileError, HoldError, MoveError, QueryError};
use homenode_observe::ParseError;
use homenode_units::{NodeSet, Pid};

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// There is no process of that number.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The number.
        pid: Pid,
    },
    /// A kernel thread: it has no memory of its own.
    #[error("{pid} ({name}) is a kernel thread, which has no memory of its own")]
    KernelThread {
        /// The thread.
        pid: Pid,
        /// Its name.
        name: String,
    },
    /// It has ended, and its parent has not looked yet.
    #[error("process {pid} ({name}) has ended and waits for its parent")]
    Zombie {
        /// The process.
        pid: Pid,
        /// Its name.
        name: String,
    },
    /// A thread, not a process.
    #[error("{thread} is a thread of process {pid}")]
    Thread {
        /// The number asked for.
        thread: Pid,
        /// The process it belongs to.
        pid: Pid,
    },
    /// The process that makes the plan.
    #[error("{pid} is homenode itself")]
    Itself {
        /// Its number.
        pid: Pid,
    },
    /// The caller may not look into it.
    #[error("process {pid} ({name}) of user {user} may not be looked into by this user")]
    NotPermitted {
        /// The process.
        pid: Pid,
        /// Its name.
        name: String,
        /// Its user: a name, or a number.
        user: String,
    },
    /// No set of nodes to move to, or one without a node.
    #[error("expected a node to move to, found none")]
    NoTarget,
    /// Sources are targets, and there are no others.
    #[error("expected pages to come from other nodes than {to}")]
    SameNodes {
        /// The targets.
        to: NodeSet,
    },
    /// The machine has no such nodes.
    #[error("expected nodes of this machine, found {nodes}")]
    UnknownNodes {
        /// The nodes.
        nodes: NodeSet,
        /// The nodes there are.
        online: NodeSet,
    },
    /// Nothing can be put on these nodes.
    #[error("expected nodes with memory, found {nodes} without any")]
    MemorylessNodes {
        /// The nodes.
        nodes: NodeSet,
        /// The nodes that have memory.
        with_memory: NodeSet,
    },
    /// The cpuset of the process leaves these nodes out.
    #[error(
        "process {pid} ({name}) may not use memory of nodes {nodes}: its cpuset allows {allowed}"
    )]
    NodesNotAllowed {
        /// The process.
        pid: Pid,
        /// Its name.
        name: String,
        /// The nodes.
        nodes: NodeSet,
        /// The nodes that the cpuset allows.
        allowed: NodeSet,
    },
    /// A file could not be read.
    #[error("cannot read what the plan needs")]
    File(#[from] FileError),
    /// A file was not understood.
    #[error("cannot parse {path}")]
    Parse {
        /// The file.
        path: String,
        /// Where and why.
        #[source]
        source: ParseError,
    },
}

/// Why a plan could not be carried out, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The process could not be held.
    #[error(transparent)]
    Hold(HoldError),
    /// The process that the plan was made for has ended, and another one has its number.
    #[error("process {pid} is another one than the plan was made for")]
    Replaced {
        /// The number.
        pid: Pid,
    },
    /// The kernel refused to say where pages are.
    #[error("cannot ask where the memory of process {pid} is")]
    Query {
        /// The process.
        pid: Pid,
        /// Why.
        #[source]
        source: QueryError,
    },
    /// The kernel refused to move pages.
    #[error("cannot move memory of process {pid}")]
    Move {
        /// The process.
        pid: Pid,
        /// Why.
        #[source]
        source: MoveError,
    },
}
