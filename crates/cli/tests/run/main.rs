//! `homenode run` and `homenode place`, as people and scripts meet them.
//!
//! The machine here may have one node; machines with more are written by hand, and real kernels
//! with more run lab/tests/guest/run.rs.

#![expect(clippy::disallowed_methods, reason = "tests look at files themselves")]

mod choices;
mod programs;
mod requests;
mod support;
