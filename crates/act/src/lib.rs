//! Acting on a running machine: a plan is made, shown, and then carried out; nothing is chosen here.
//!
//! * [`plan_migration`] → [`Plan`]: what of a process's memory would move, what would not, and why.
//! * [`Mover`]: a state machine that carries a plan out, one system call per step.
//! * [`migrate`]: drives a mover to its end → [`Outcome`].
//!
//! A mover sees the machine through [`Machine`], the four traits of `homenode_host`, so tests run
//! it without one.
//!
//! # How memory moves
//!
//! The ways to move a whole process, `migrate_pages(2)` and a new `cpuset.mems`, take all its
//! pages off their lists first and cannot be slowed down or looked at. A mover asks for pages of a
//! window where they are, and moves those on a source node with `move_pages(2)`:
//!
//! * in batches of at least 512 base pages, because each call costs interrupts to all CPUs, whose
//!   size follows a budget: when the pieces of a call took longer, the next one is halved, when
//!   they took less than half of it, it is doubled, up to 8 MiB;
//! * with a gap behind each call, an eighth of its time and at least 1 ms; `rate` makes it longer;
//! * each call cut into pieces of 32 pages, because the kernel keeps all pages of a piece out of
//!   reach until it has copied the last one;
//! * with one destination per call, and without pages that are there already: both would make the
//!   kernel split the call;
//! * with a look at the batch afterwards: what the call returns does not tell which pages moved;
//! * while the target has memory beyond its watermarks, so that the move does not starve the node;
//! * with two further tries for pages that were busy, after all others.
//!
//! Killed at any moment it leaves the process as it is: each page is on its old or its new node,
//! with its contents.
//!
//! # What it does not do
//!
//! Moving memory changes no policy and no affinity: where the process allocates next, and whether
//! `AutoNUMA` moves pages back, is decided by these. The plan has a note where that is likely.
//! Mappings are read once, when the plan is made, so what is mapped later stays where it is.

mod error;
mod identity;
mod mover;
mod outcome;
mod pace;
mod pages;
mod plan;
mod run;
mod smaps;
mod targets;

pub use error::{ActError, PlanError};
pub use mover::{Mover, Step};
pub use outcome::{Ended, Left, LeftReason, Outcome, Tally};
pub use pace::PaceOptions;
pub use pages::MemoryRange;
pub use plan::{Plan, Request, SkipReason, Skipped, TargetNode, plan_migration};
pub use run::{Control, Progress, migrate};
pub use targets::Spread;

use homenode_host::{Clock, Files, Hands, Probe};

/// A machine that can be read, asked, timed and changed.
pub trait Machine: Files + Probe + Clock + Hands {}

impl<T: Files + Probe + Clock + Hands + ?Sized> Machine for T {}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
