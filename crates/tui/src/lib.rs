//! The full-screen view: esxtop's NUMA screen for processes, workloads and virtual machines.
//!
//! * [`Source`]: where observations come from: this machine, or a recording.
//! * [`App`]: what is shown and how keys change it; no terminal, no clock.
//! * [`draw`]: an [`App`] on a frame of any size.
//! * [`run`]: the loop that joins them with a terminal.
//!
//! Nothing here reads a machine or decides anything; colours are only an addition to what the text
//! says.

mod app;
mod columns;
mod draw;
mod run;
#[cfg(test)]
mod tests;

pub use app::{Action, App, Settings};
pub use draw::draw;
pub use run::{Screen, Source, run};
