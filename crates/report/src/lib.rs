//! report

mod coreinfo;
mod distance;
mod json;
mod numactl;
#[cfg(test)]
mod sample;
mod short;
mod svg;
mod text;

pub use coreinfo::coreinfo;
pub use json::{TOPOLOGY_SCHEMA, topology_json};
pub use numactl::numactl_hardware;
pub use svg::topology_svg;
pub use text::{TextOptions, topology_text};
