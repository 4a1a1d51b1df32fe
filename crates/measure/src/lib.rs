//! Measures what a machine's memory does, node by node: a topology and the loops of
//! [`homenode_sys::kernels`] in, a [`Document`] of cells out. Nothing here prints or reads the
//! command line.
//!
//! | what | by |
//! |---|---|
//! | idle latency, CPU nodes × memory nodes | [`latency()`] |
//! | bandwidth by operation, placement and number of threads | [`bandwidth()`] |
//! | latency and bandwidth by size | [`working_set()`] |
//! | latency while others load the memory | [`loaded_latency()`] |
//! | memory spread over nodes, expected and observed | [`interleave()`] |
//! | who touches memory first | [`first_touch()`] |
//! | one CPU's store to another one's load | [`core_to_core()`] |
//! | the eight metrics of the Opteron study | [`rmma()`] |
//! | all but the last, in one run | [`all()`] |
//!
//! Every measurement works alike. Memory is put on its node page by page and asked where it lies,
//! before and after: what is not where it should be is refused, not printed. Each cell is sampled
//! in blocks of fixed work, all cells in turn, so that a slow moment meets all of them; the result
//! is the median with a 95 % interval. Sampling ends when the intervals are narrow
//! enough or the time is up, and [`Estimate::converged`] says which.
//!
//! Bytes are counted as the program moves them (*useful*, as STREAM counts: a copy is two); what
//! crosses the bus besides, because a store reads its line first, is an estimate of its own.

mod all;
mod bandwidth;
mod conditions;
mod core_to_core;
mod diff;
mod document;
mod first_touch;
mod interleave;
mod latency;
mod loaded;
mod memory;
mod rmma;
mod session;
mod sites;
mod statistics;
mod threads;
mod working_set;

pub use all::all;
pub use bandwidth::{BandwidthOptions, bandwidth};
pub use conditions::Conditions;
pub use core_to_core::{CoreToCoreOptions, core_to_core};
pub use diff::{Change, Judgement, diff};
pub use document::{
    Arrangement, Cell, Document, DocumentError, MachineId, Metric, Outcome, Pages, SCHEMA, Test,
};
pub use first_touch::{FirstTouchOptions, first_touch};
pub use interleave::{InterleaveOptions, interleave};
pub use latency::{LatencyOptions, latency};
pub use loaded::{LoadedOptions, loaded_latency};
pub use memory::ROOM_SHARE;
pub use rmma::{RMMA_METRICS, RmmaOptions, rmma};
pub use session::{Control, MeasureError, Progress, Session, StopRule};
pub use sites::{Column, Row, Sites};
pub use statistics::Estimate;
pub use working_set::{WorkingSetOptions, working_set};
