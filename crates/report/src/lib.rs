//! report

mod distance;
mod numactl;
#[cfg(test)]
mod sample;
mod short;
mod text;

pub use numactl::numactl_hardware;
pub use text::{TextOptions, topology_text};
