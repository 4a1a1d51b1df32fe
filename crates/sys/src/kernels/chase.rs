//! One closed walk over the lines of a piece of memory.

use std::sync::Arc;

use homenode_units::Bytes;

use super::{Random, machine};
use crate::NodeMemory;

/// Chains that one thread can follow at a time: as many as there are registers to spare.
pub const CHAINS_MAX: usize = 12;

/// Instructions without work that can stand between two loads of a [`Walk::run_filled`].
pub const FILLERS: [usize; 8] = [0, 1, 2, 4, 8, 16, 32, 64];

/// The order in which a chase visits the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaseOrder {
    /// Any line after any other.
    Whole,
    /// Groups of this many bytes in random order, and inside of one all its lines in random order
    /// before the next: with 4 KiB the walk is kind to the TLB, and to prefetchers that fetch
    /// neighbours.
    Grouped(Bytes),
    /// Ascending addresses.
    Forward,
    /// Descending addresses.
    Backward,
}

/// Why memory cannot be chased through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChaseError {
    /// The stride is no multiple of a pointer's size, or so large that fewer than two lines fit.
    #[error(
        "expected a stride that is a multiple of 8 and fits {size} at least twice, found {stride}"
    )]
    Stride {
        /// The stride.
        stride: Bytes,
        /// The memory.
        size: Bytes,
    },
    /// More than 2^32 lines.
    #[error("expected at most 2^32 lines of {stride}, found {size}")]
    TooLarge {
        /// The stride.
        stride: Bytes,
        /// The memory.
        size: Bytes,
    },
}

/// Memory through which a walk leads that visits every line once and then begins again: each line
/// holds the address of the next.
#[derive(Debug)]
pub struct Chase {
    memory: NodeMemory,
    /// Places evenly spaced on the walk. Unit: addresses.
    starts: [usize; CHAINS_MAX],
    lines: usize,
}

impl Chase {
    /// Lays a walk into the first `size` bytes of memory: every `stride` bytes a line.
    ///
    /// The same seed gives the same walk. What lies between the lines' pointers is kept.
    ///
    /// # Errors
    ///
    /// [`ChaseError`].
    pub fn new(
        mut memory: NodeMemory,
        size: Bytes,
        stride: Bytes,
        order: ChaseOrder,
        seed: u64,
    ) -> Result<Self, ChaseError> {
        let room = memory.as_slice().len();
        let length = usize::try_from(size.0).unwrap_or(usize::MAX).min(room);
        let step = usize::try_from(stride.0).unwrap_or(usize::MAX);
        let fits = step > 0 && step.is_multiple_of(size_of::<usize>()) && length / step >= 2;
        if !fits {
            return Err(ChaseError::Stride { stride, size });
        }
        let too_large = |_| ChaseError::TooLarge { stride, size };
        let lines = u32::try_from(length / step).map_err(too_large)?;
        let visits = visits(lines, step, order, &mut Random::new(seed));
        let first = memory.as_slice().as_ptr().addr();
        let address = |visit: usize| first + visits[visit % visits.len()] as usize * step;
        let bytes = memory.as_mut_slice();
        for (visit, &line) in visits.iter().enumerate() {
            let at = line as usize * step;
            bytes[at..at + size_of::<usize>()].copy_from_slice(&address(visit + 1).to_ne_bytes());
        }
        let starts = std::array::from_fn(|chain| address(visits.len() * chain / CHAINS_MAX));
        Ok(Self {
            starts,
            lines: visits.len(),
            memory,
        })
    }

    /// How many lines the walk visits.
    #[must_use]
    pub const fn lines(&self) -> usize {
        self.lines
    }

    /// The memory, to ask where it lies.
    #[must_use]
    pub const fn memory(&self) -> &NodeMemory {
        &self.memory
    }

    /// The memory, for another use.
    #[must_use]
    pub fn into_memory(self) -> NodeMemory {
        self.memory
    }
}

/// The lines in the order in which they are visited, each once.
fn visits(lines: u32, stride: usize, order: ChaseOrder, random: &mut Random) -> Vec<u32> {
    let mut visits: Vec<u32> = (0..lines).collect();
    match order {
        ChaseOrder::Forward => {}
        ChaseOrder::Backward => visits.reverse(),
        // A random order closed to a ring is a random Hamiltonian cycle; a random permutation
        // taken as a table of successors would be several cycles, some of them small.
        ChaseOrder::Whole => random.shuffle(&mut visits),
        ChaseOrder::Grouped(Bytes(bytes)) => {
            let in_group = (usize::try_from(bytes).unwrap_or(usize::MAX) / stride).max(1);
            let mut groups: Vec<&mut [u32]> = visits.chunks_mut(in_group).collect();
            for group in &mut groups {
                random.shuffle(group);
            }
            random.shuffle(&mut groups);
            return groups.concat();
        }
    }
    visits
}

/// Someone who walks, and stays where the last run ended.
#[derive(Clone, Debug)]
pub struct Walk {
    chase: Arc<Chase>,
    /// Unit: addresses of lines of the chase; of the first `chains`.
    at: [usize; CHAINS_MAX],
    chains: usize,
}

impl Walk {
    /// Numbers of chains that there is a loop for.
    pub const CHAINS: [usize; 5] = [1, 2, 4, 8, CHAINS_MAX];

    /// Starts to follow this many chains at a time, evenly spaced on the walk: the next lower one
    /// of [`Self::CHAINS`].
    #[must_use]
    pub fn new(chase: Arc<Chase>, chains: usize) -> Self {
        let chains = Self::CHAINS
            .into_iter()
            .rev()
            .find(|&count| count <= chains);
        let chains = chains.unwrap_or(1);
        let at =
            std::array::from_fn(|chain| chase.starts[chain * CHAINS_MAX / chains % CHAINS_MAX]);
        Self { chase, at, chains }
    }

    /// What it walks through.
    #[must_use]
    pub const fn chase(&self) -> &Arc<Chase> {
        &self.chase
    }

    /// Follows each chain for at least this many loads, rounded up to whole rounds of 16.
    ///
    /// Returns how many loads ran, those of all chains together.
    pub fn run(&mut self, loads_per_chain: u64) -> u64 {
        let rounds = loads_per_chain.div_ceil(machine::LOADS_PER_ROUND).max(1);
        // SAFETY: each place is the address of a line of the chase, from `starts` or from the
        // last run; every line holds the address of another, since `Chase::new` wrote them all and
        // nothing writes to the memory afterwards; it stays mapped, as the chase is kept here.
        unsafe { machine::chase(&mut self.at, self.chains, rounds) };
        rounds * machine::LOADS_PER_ROUND * self.chains as u64
    }

    /// Follows the first chain, with `FILLERS[filler]` empty instructions after each load.
    ///
    /// Returns how many loads ran.
    ///
    /// # Panics
    ///
    /// When `filler` is no position in [`FILLERS`].
    pub fn run_filled(&mut self, loads: u64, filler: usize) -> u64 {
        let rounds = loads.div_ceil(machine::LOADS_PER_ROUND).max(1);
        let filled = machine::FILLED[filler].0;
        // SAFETY: as for `run`.
        self.at[0] = unsafe { filled(self.at[0], rounds) };
        rounds * machine::LOADS_PER_ROUND
    }

    /// Runs the fillers of [`Self::run_filled`] alone, without the loads.
    ///
    /// Returns how many loads there would have been.
    ///
    /// # Panics
    ///
    /// When `filler` is no position in [`FILLERS`].
    #[must_use]
    pub fn run_fillers(loads: u64, filler: usize) -> u64 {
        let rounds = loads.div_ceil(machine::LOADS_PER_ROUND).max(1);
        machine::FILLED[filler].1(rounds);
        rounds * machine::LOADS_PER_ROUND
    }

    /// The number of the line where the first chain stands.
    #[cfg(test)]
    pub(super) fn line(&self, stride: usize) -> usize {
        (self.at[0] - self.chase.memory.as_slice().as_ptr().addr()) / stride
    }
}
