//! What became of a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use homenode_observe::Locality;
use homenode_units::{Bytes, NodeSet, Reading};
use serde::Serialize;

/// Why memory is still where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftReason {
    /// In use by the kernel or a device at each try: pinned (VFIO, RDMA, `io_uring`), locked for
    /// I/O, or in a pipe.
    Busy,
    /// Other processes map it, too.
    Shared,
    /// The target nodes have no memory for it.
    NoRoom,
    /// The kernel cannot move memory of this kind.
    NotMovable,
}

impl LeftReason {
    /// The reason for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Busy => "busy or pinned",
            Self::Shared => "shared with other processes",
            Self::NoRoom => "no memory at the target",
            Self::NotMovable => "cannot be moved",
        }
    }
}

/// Memory that is still on a source node, by reason. Unit: bytes.
pub type Left = BTreeMap<LeftReason, Bytes>;

/// What happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Moved to a target node. Unit: bytes.
    pub moved: Bytes,
    /// On a target node before anything was done. Unit: bytes.
    pub already_there: Bytes,
    /// On nodes that are neither source nor target. Unit: bytes.
    pub elsewhere: Bytes,
    /// Given back, swapped out or unmapped by the process meanwhile. Unit: bytes.
    pub vanished: Bytes,
    /// Still on a source node. Unit: bytes.
    pub left: Left,
    /// Calls of `move_pages(2)`.
    pub calls: u64,
    /// The longest of them, an upper bound of what one call held the process up.
    #[serde(serialize_with = "milliseconds", rename = "longest_call_ms")]
    pub longest_call: Duration,
}

impl Tally {
    /// All that is still on a source node. Unit: bytes.
    #[must_use]
    pub fn left_total(&self) -> Bytes {
        self.left.values().copied().sum()
    }

    pub(crate) fn leave(&mut self, reason: LeftReason, amount: Bytes) {
        let left = self.left.entry(reason).or_default();
        *left = *left + amount;
    }
}

fn milliseconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Ended {
    /// All of the plan was tried.
    Done,
    /// The user stopped it; what is not counted was not looked at.
    Interrupted,
    /// The process ended meanwhile.
    ProcessEnded,
    /// The target nodes had no memory left; the rest was counted and not tried.
    TargetsFull {
        /// The targets.
        targets: NodeSet,
    },
}

/// What became of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// What happened.
    #[serde(flatten)]
    pub tally: Tally,
    /// From the first step to the last.
    #[serde(serialize_with = "milliseconds", rename = "elapsed_ms")]
    pub elapsed: Duration,
    /// Where the memory lies now, by random samples of all the process has mapped.
    pub verified: Reading<Locality>,
}

impl Outcome {
    /// Whether all memory of the plan is where it should be.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended == Ended::Done && self.tally.left_total() == Bytes(0)
    }
}
