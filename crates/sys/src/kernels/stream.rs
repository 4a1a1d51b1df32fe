//! Streams: what is done to memory, with which instructions.

use super::{Random, machine};
use crate::NodeMemory;

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Loads everything.
    Read,
    /// Loads everything, and asks for the lines ahead (`prefetchnta`).
    PrefetchRead,
    /// Stores everywhere.
    Write,
    /// Stores everywhere, past the caches.
    WriteNt,
    /// Loads one array, stores to another.
    Copy,
    /// As copy, with stores past the caches.
    CopyNt,
    /// Loads, changes and stores in place.
    Update,
    /// `a[i] = b[i] + s × c[i]`, as STREAM's.
    Triad,
}

/// All operations.
pub const OPERATIONS: [Operation; 8] = [
    Operation::Read,
    Operation::PrefetchRead,
    Operation::Write,
    Operation::WriteNt,
    Operation::Copy,
    Operation::CopyNt,
    Operation::Update,
    Operation::Triad,
];

/// With which instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// 8 bytes at a time.
    Scalar,
    /// 16 bytes at a time (x86-64).
    Sse2,
    /// 32 bytes at a time (x86-64).
    Avx2,
    /// 64 bytes at a time (x86-64, AVX-512F).
    Avx512,
    /// 16 bytes at a time (aarch64).
    Neon,
    /// One instruction for all: `rep stosb`, `rep movsb` (x86-64).
    Rep,
    /// `memset` and `memcpy` of the C library in this binary.
    Libc,
}

/// All sets of instructions.
pub const ISAS: [Isa; 7] = [
    Isa::Scalar,
    Isa::Sse2,
    Isa::Avx2,
    Isa::Avx512,
    Isa::Neon,
    Isa::Rep,
    Isa::Libc,
];

/// Lengths and offsets of a [`StreamKernel::run`] are multiples of this: the largest step of a
/// loop. Unit: bytes.
pub const PIECE_BYTES: usize = 512;

impl Operation {
    /// Its name on command lines and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::PrefetchRead => "prefetch-read",
            Self::Write => "write",
            Self::WriteNt => "nt-write",
            Self::Copy => "copy",
            Self::CopyNt => "nt-copy",
            Self::Update => "update",
            Self::Triad => "triad",
        }
    }

    /// Arrays it needs.
    #[must_use]
    pub const fn arrays(self) -> usize {
        match self {
            Self::Read | Self::PrefetchRead | Self::Write | Self::WriteNt | Self::Update => 1,
            Self::Copy | Self::CopyNt => 2,
            Self::Triad => 3,
        }
    }

    /// Bytes loaded and stored by the program for each byte of an array's length.
    #[must_use]
    pub const fn useful(self) -> (u32, u32) {
        match self {
            Self::Read | Self::PrefetchRead => (1, 0),
            Self::Write | Self::WriteNt => (0, 1),
            Self::Copy | Self::CopyNt | Self::Update => (1, 1),
            Self::Triad => (2, 1),
        }
    }

    /// Bytes that cross the memory bus for each byte of an array's length, at least and at most.
    ///
    /// A store to a line that is not in a cache reads it first; stores past the caches do not, and
    /// some processors leave it out for whole lines (Intel's `SpecI2M`, `rep stosb`, Arm's write
    /// streaming), which cannot be seen from here.
    #[must_use]
    pub const fn bus(self) -> (u32, u32) {
        let (loads, stores) = self.useful();
        let reads_first = match self {
            Self::Write | Self::Copy | Self::Triad => stores,
            // What is updated was loaded anyway.
            _ => 0,
        };
        (loads + stores, loads + stores + reads_first)
    }
}

impl Isa {
    /// Its name on command lines and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Sse2 => "sse2",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
            Self::Rep => "rep",
            Self::Libc => "libc",
        }
    }

    /// Whether this processor has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar | Self::Libc => true,
            Self::Sse2 | Self::Rep => cfg!(target_arch = "x86_64"),
            Self::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => std::arch::is_x86_feature_detected!("avx512f"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }
}

/// What a loop works on; all but `value` and `ahead` are about arrays of equal length.
#[derive(Debug)]
pub(super) struct Arrays {
    /// What is stored to, loaded in place, or the only array.
    pub(super) to: *mut u8,
    /// What is loaded.
    pub(super) from: *const u8,
    /// The second array that is loaded.
    pub(super) second: *const u8,
    /// Length of each. Unit: bytes; a multiple of [`PIECE_BYTES`], not 0.
    pub(super) bytes: usize,
    /// What is stored, or the factor of the triad.
    pub(super) value: u64,
    /// How far ahead lines are asked for. Unit: bytes.
    pub(super) ahead: usize,
}

/// A loop over arrays, this many times (not 0). Reads give the exclusive or of all words.
pub(super) type Loop = unsafe fn(&Arrays, passes: u64) -> u64;

/// A loop that is timed for bandwidth.
#[derive(Clone, Copy, Debug)]
pub struct StreamKernel {
    /// What it does.
    pub operation: Operation,
    /// With which instructions.
    pub isa: Isa,
    run: Loop,
}

impl StreamKernel {
    pub(super) const fn new(operation: Operation, isa: Isa, run: Loop) -> Self {
        Self {
            operation,
            isa,
            run,
        }
    }

    /// All loops that this processor can run.
    pub fn available() -> impl Iterator<Item = Self> {
        machine::STREAMS
            .iter()
            .chain(&LIBC)
            .copied()
            .filter(|kernel| kernel.isa.is_available())
    }

    /// The loop that does this with these instructions, if there is one and the processor can.
    #[must_use]
    pub fn find(operation: Operation, isa: Isa) -> Option<Self> {
        Self::available().find(|kernel| kernel.operation == operation && kernel.isa == isa)
    }

    /// Its name: `nt-copy avx2`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.operation.name(), self.isa.name())
    }

    /// Where its machine code begins.
    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self.run as usize
    }

    /// The length of each array when this memory is divided for the operation. Unit: bytes.
    #[must_use]
    pub fn array_bytes(&self, memory: &NodeMemory) -> usize {
        let length = memory.as_slice().len() / self.operation.arrays();
        length - length % PIECE_BYTES
    }

    /// Runs over `length` bytes of each array from `offset` on, `passes` times.
    ///
    /// `ahead` is how many bytes [`Operation::PrefetchRead`] looks ahead. Returns the exclusive or
    /// of all 8-byte words for reads, else something without meaning.
    ///
    /// # Panics
    ///
    /// When the piece is empty, not within the arrays, or offset or length are no multiple of
    /// [`PIECE_BYTES`].
    pub fn run(
        &self,
        memory: &mut NodeMemory,
        offset: usize,
        length: usize,
        passes: u64,
        ahead: usize,
    ) -> u64 {
        let array = self.array_bytes(memory);
        assert!(
            length > 0
                && passes > 0
                && offset.is_multiple_of(PIECE_BYTES)
                && length.is_multiple_of(PIECE_BYTES)
                && offset.checked_add(length).is_some_and(|end| end <= array),
            "{length} bytes from {offset} on are no piece of an array of {array}"
        );
        let to = memory.as_mut_slice()[offset..].as_mut_ptr();
        let arrays = Arrays {
            to,
            from: to.wrapping_add(array * (self.operation.arrays() - 1)),
            second: to.wrapping_add(array * (self.operation.arrays() / 2)),
            bytes: length,
            value: VALUE,
            ahead,
        };
        // SAFETY: the arrays are disjoint pieces of `memory`, which is borrowed exclusively: they
        // begin `array` bytes apart, at offsets below `arrays() * array`, and `length` bytes from
        // each were checked to lie within it. The start of the memory is that of a page and both
        // `offset` and `array` are multiples of 512, so that aligned accesses are. The processor
        // has the instructions: kernels come from `available` only.
        unsafe { (self.run)(&arrays, passes) }
    }
}

/// What writes store, and what the triad multiplies by: 3.0 as a number of 64 bits.
pub(super) const VALUE: u64 = 0x4008_0000_0000_0000;

/// Fills memory with random numbers from 1 to 2 (64-bit floating point): nothing that hardware or
/// kernel could leave out, as zeros, and nothing that slows arithmetic down.
pub fn fill(memory: &mut NodeMemory, seed: u64) {
    const ONE: u64 = 0x3FF0_0000_0000_0000;
    let mut random = Random::new(seed);
    for word in memory.as_mut_slice().chunks_exact_mut(8) {
        word.copy_from_slice(&(ONE | random.next() >> 12).to_ne_bytes());
    }
}

const LIBC: [StreamKernel; 2] = [
    StreamKernel::new(Operation::Write, Isa::Libc, libc_set),
    StreamKernel::new(Operation::Copy, Isa::Libc, libc_copy),
];

/// # Safety
///
/// As [`StreamKernel::run`] makes sure.
unsafe fn libc_set(arrays: &Arrays, passes: u64) -> u64 {
    for _pass in 0..passes {
        // SAFETY: `to` is valid for writes of `bytes` bytes. Not zero: hardware may leave those out.
        unsafe { libc::memset(arrays.to.cast(), 0x5A, arrays.bytes) };
    }
    0
}

/// # Safety
///
/// As [`StreamKernel::run`] makes sure.
unsafe fn libc_copy(arrays: &Arrays, passes: u64) -> u64 {
    for _pass in 0..passes {
        // SAFETY: both arrays are valid for `bytes` bytes and do not overlap.
        unsafe { libc::memcpy(arrays.to.cast(), arrays.from.cast(), arrays.bytes) };
    }
    0
}
