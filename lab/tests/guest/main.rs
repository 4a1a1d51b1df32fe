//! Tests that run inside a guest of the lab: `cargo xtask lab-test`.
//!
//! One boot runs them all, so each finds a machine that an earlier one has used. The shape that
//! the guest was booted with is `support::shape()`.

mod differences;
mod judges;
mod kernel;
mod measure;
mod measure_timed;
mod memory_tools;
mod migrate;
mod numactl;
mod numastat;
mod observe;
mod run;
mod support;
mod timing;
mod topology;
