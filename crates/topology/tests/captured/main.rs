//! Tests on captured machines; they run where the folder of captures is there.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests unpack archives, start other tools and say what they skip"
)]

mod against_hwloc;
mod archives;
mod damaged;
