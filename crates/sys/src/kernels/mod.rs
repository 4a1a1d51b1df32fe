//! The loops that are timed: pointer chases and streams over memory, as inline assembly, so that
//! the loop that runs is the loop that was meant.
//!
//! * [`Chase`], [`Walk`]: dependent loads, one address leading to the next: latency.
//! * [`StreamKernel`]: reads, writes and copies at full speed: bandwidth.
//! * [`add_chain`]: additions that wait for each other, one a cycle: the clock of the core.
//! * [`spin`]: time passed without memory.
//!
//! Nothing here takes the time. Each stream has a twin in plain Rust that the tests compare it
//! with, and each loop's machine code is a snapshot.

mod chase;
mod random;
mod stream;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod machine;

pub use chase::{CHAINS_MAX, Chase, ChaseError, ChaseOrder, FILLERS, Walk};
pub use random::Random;
pub use stream::{ISAS, Isa, OPERATIONS, Operation, PIECE_BYTES, StreamKernel, fill};

/// Adds a number to itself this many times, each addition waiting for the one before, which takes
/// a core a cycle each: its clock follows from the time. Rounded up to whole rounds of 64.
///
/// Returns how many additions ran.
#[must_use]
pub fn add_chain(additions: u64) -> u64 {
    let rounds = additions.div_ceil(machine::ADDITIONS_PER_ROUND).max(1);
    machine::add_chain(rounds);
    rounds * machine::ADDITIONS_PER_ROUND
}

/// Lets this many rounds of an empty loop pass; touches no memory.
pub fn spin(rounds: u64) {
    if rounds > 0 {
        machine::spin(rounds);
    }
}
