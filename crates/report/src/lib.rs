//! Shows: a [`Topology`](homenode_topology::Topology) and what was observed on it, in the forms
//! that people and programs read.
//!
//! | form | of a topology | of the whole machine |
//! |---|---|---|
//! | text for a terminal | [`topology_text`] | [`report_text`] |
//! | JSON with a schema | [`topology_json`] | [`report_json`] |
//! | a drawing, a page | [`topology_svg`] | [`report_html`] |
//! | who pays | | [`stat_text`], [`maps_text`] |
//! | other tools' forms | [`to_hwloc_xml`], [`numactl_hardware`], [`coreinfo`] | |
//!
//! What was measured: [`measure_text`], [`measure_csv`], [`measure_svg`], [`measure_diff_text`].
//!
//! Functions from values to text, but for [`gather_live`] and [`gather_captured`], which put the
//! pieces of a [`MachineReport`] together. Nothing here reads a file itself.

mod coreinfo;
mod distance;
mod hwloc_xml;
mod json;
mod machine;
mod maps;
mod measure;
mod numactl;
mod pdh;
#[cfg(test)]
mod sample;
mod short;
mod stat;
mod svg;
mod text;

pub use coreinfo::coreinfo;
pub use hwloc_xml::{to_hwloc_xml, to_hwloc_xml_measured};
pub use json::{TOPOLOGY_SCHEMA, topology_json};
pub use machine::{
    Finding, GatherOptions, HostFacts, MachineReport, NextStep, NodeReport, ProcessReport,
    Progress, UnreadableGroup, gather_captured, gather_live, report_html, report_json, report_text,
};
pub use maps::{maps_json, maps_text};
pub use measure::{
    measure_csv, measure_diff_text, measure_svg, measure_text, measured_latency_text,
};
pub use numactl::{NumactlLayout, numactl_hardware};
pub use pdh::PdhCsv;
pub use stat::{Distance, NodeStat, StatReport, distances_of, stat_report, stat_text};
pub use svg::topology_svg;
pub use text::{TextOptions, topology_text};
