//! The loops for aarch64. They are compiled in every change and were not timed on such a machine.

use std::arch::asm;

use super::chase::{CHAINS_MAX, FILLERS};
use super::stream::{Arrays, Isa, Operation, StreamKernel};

/// Loads of each chain in a round of [`chase`].
pub(super) const LOADS_PER_ROUND: u64 = 16;

pub(super) const ADDITIONS_PER_ROUND: u64 = 64;

/// See [`super::add_chain`].
#[inline(never)]
pub(super) fn add_chain(rounds: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "2:",
            ".rept 64", "add x9, x9, x10", ".endr",
            "subs x8, x8, #1",
            "b.ne 2b",
            inout("x8") rounds => _, inout("x9") 0u64 => _, in("x10") 1u64,
            options(nomem, nostack),
        );
    }
}

/// See [`super::spin`]; `rounds` is not 0.
#[inline(never)]
pub(super) fn spin(rounds: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "2:", "subs x8, x8, #1", "b.ne 2b",
            inout("x8") rounds => _,
            options(nomem, nostack),
        );
    }
}

/// A loop that follows as many chains as it has registers.
macro_rules! chase {
    ($name:ident, $unroll:literal, $($cursor:ident $register:tt),+) => {
        /// # Safety
        ///
        /// As [`chase`].
        #[inline(never)]
        unsafe fn $name(at: &mut [usize; CHAINS_MAX], rounds: u64) {
            let [$($cursor,)+ ..] = at;
            // SAFETY: the caller's: every address that is loaded holds another one. Nothing is
            // stored.
            unsafe {
                asm!(
                    "2:",
                    concat!(".rept ", $unroll),
                    $(concat!("ldr ", $register, ", [", $register, "]"),)+
                    ".endr",
                    "subs x8, x8, #1",
                    "b.ne 2b",
                    inout("x8") rounds * (16 / $unroll) => _,
                    $(inout($register) *$cursor,)+
                    options(readonly, nostack),
                );
            }
        }
    };
}

chase!(chase_1, 16, a "x0");
chase!(chase_2, 8, a "x0", b "x1");
chase!(chase_4, 4, a "x0", b "x1", c "x2", d "x3");
chase!(chase_8, 2, a "x0", b "x1", c "x2", d "x3", e "x4", f "x5", g "x6", h "x7");
chase!(chase_12, 2, a "x0", b "x1", c "x2", d "x3", e "x4", f "x5", g "x6", h "x7",
    i "x9", j "x10", k "x11", l "x12");

/// Follows chains for `rounds` (not 0) times [`LOADS_PER_ROUND`] loads each.
///
/// # Safety
///
/// The first `chains` of `at` are addresses of readable memory that holds such an address, and so
/// on for ever.
pub(super) unsafe fn chase(at: &mut [usize; CHAINS_MAX], chains: usize, rounds: u64) {
    let run = match chains {
        2 => chase_2,
        4 => chase_4,
        8 => chase_8,
        CHAINS_MAX => chase_12,
        _ => chase_1,
    };
    // SAFETY: the caller's promise.
    unsafe { run(at, rounds) }
}

/// One chain with fillers, and the fillers alone, for each of [`FILLERS`].
pub(super) type Filled = (unsafe fn(usize, u64) -> usize, fn(u64));

pub(super) const FILLED: [Filled; FILLERS.len()] = [
    (filled::<{ FILLERS[0] }>, fillers::<{ FILLERS[0] }>),
    (filled::<{ FILLERS[1] }>, fillers::<{ FILLERS[1] }>),
    (filled::<{ FILLERS[2] }>, fillers::<{ FILLERS[2] }>),
    (filled::<{ FILLERS[3] }>, fillers::<{ FILLERS[3] }>),
    (filled::<{ FILLERS[4] }>, fillers::<{ FILLERS[4] }>),
    (filled::<{ FILLERS[5] }>, fillers::<{ FILLERS[5] }>),
    (filled::<{ FILLERS[6] }>, fillers::<{ FILLERS[6] }>),
    (filled::<{ FILLERS[7] }>, fillers::<{ FILLERS[7] }>),
];

/// # Safety
///
/// As [`chase`], for one chain that begins at `at`.
#[inline(never)]
unsafe fn filled<const COUNT: usize>(mut at: usize, rounds: u64) -> usize {
    // SAFETY: the caller's promise; nothing is stored.
    unsafe {
        asm!(
            "2:",
            ".rept 16", "ldr x0, [x0]", ".rept {count}", "nop", ".endr", ".endr",
            "subs x8, x8, #1",
            "b.ne 2b",
            count = const COUNT,
            inout("x8") rounds => _, inout("x0") at,
            options(readonly, nostack),
        );
    }
    at
}

#[inline(never)]
fn fillers<const COUNT: usize>(rounds: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "2:",
            ".rept 16", ".rept {count}", "nop", ".endr", ".endr",
            "subs x8, x8, #1",
            "b.ne 2b",
            count = const COUNT,
            inout("x8") rounds => _,
            options(nomem, nostack),
        );
    }
}

/// A loop over arrays, 64 bytes a step, `passes` times from their beginning to their end. `x0`,
/// `x1` and `x2` walk through `to`, `from` and `second`, `x3` counts what is left; `x4` is the
/// value, also in both halves of `v16`; `x5` is `ahead`; `x6` is the result.
macro_rules! stream {
    ($name:ident, [$($body:expr),+], [$($after:expr),*]) => {
        /// # Safety
        ///
        /// As [`StreamKernel::run`] makes sure.
        #[inline(never)]
        unsafe fn $name(arrays: &Arrays, passes: u64) -> u64 {
            let result: u64;
            // SAFETY: by the caller's promise the arrays are valid for `bytes` bytes, a multiple
            // of the step; prefetches reach beyond and cannot fault.
            unsafe {
                asm!(
                    "dup v16.2d, x4",
                    "movi v17.2d, #0",
                    "2:",
                    "mov x0, x9",
                    "mov x1, x10",
                    "mov x2, x11",
                    "mov x3, x12",
                    "3:",
                    $($body,)+
                    "add x0, x0, #64",
                    "add x1, x1, #64",
                    "add x2, x2, #64",
                    "subs x3, x3, #64",
                    "b.ne 3b",
                    "subs x8, x8, #1",
                    "b.ne 2b",
                    $($after,)*
                    inout("x8") passes => _,
                    in("x9") arrays.to, in("x10") arrays.from, in("x11") arrays.second,
                    in("x12") arrays.bytes, in("x4") arrays.value, in("x5") arrays.ahead,
                    inout("x6") 0u64 => result,
                    out("x0") _, out("x1") _, out("x2") _, out("x3") _, out("x7") _,
                    out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _,
                    out("v5") _, out("v6") _, out("v7") _, out("v16") _, out("v17") _,
                    options(nostack),
                );
            }
            result
        }
    };
}

/// Folds the words of `v17` into `x6`.
macro_rules! fold_words {
    () => {
        "mov x7, v17.d[0]\neor x6, x6, x7\nmov x7, v17.d[1]\neor x6, x6, x7"
    };
}

macro_rules! read_64 {
    () => {
        "ldp q0, q1, [x0]\nldp q2, q3, [x0, #32]\n\
         eor v0.16b, v0.16b, v1.16b\neor v2.16b, v2.16b, v3.16b\n\
         eor v0.16b, v0.16b, v2.16b\neor v17.16b, v17.16b, v0.16b"
    };
}

macro_rules! eight {
    ($($line:expr),+) => {
        concat!(".irp n,0,1,2,3,4,5,6,7\n", $($line, "\n",)+ ".endr")
    };
}

stream!(
    read_scalar,
    [eight!("ldr x7, [x0, #8*\\n]", "eor x6, x6, x7")],
    []
);
stream!(write_scalar, [eight!("str x4, [x0, #8*\\n]")], []);
stream!(
    copy_scalar,
    [eight!("ldr x7, [x1, #8*\\n]", "str x7, [x0, #8*\\n]")],
    []
);
stream!(
    update_scalar,
    [eight!(
        "ldr x7, [x0, #8*\\n]",
        "eor x7, x7, x4",
        "str x7, [x0, #8*\\n]"
    )],
    []
);
stream!(
    triad_scalar,
    [eight!(
        "ldr d0, [x2, #8*\\n]",
        "fmul d0, d0, d16",
        "ldr d1, [x1, #8*\\n]",
        "fadd d0, d0, d1",
        "str d0, [x0, #8*\\n]"
    )],
    []
);
stream!(read_neon, [read_64!()], [fold_words!()]);
stream!(
    prefetch_read_neon,
    ["prfm pldl1strm, [x0, x5]", read_64!()],
    [fold_words!()]
);
stream!(
    write_neon,
    ["stp q16, q16, [x0]", "stp q16, q16, [x0, #32]"],
    []
);
stream!(
    write_nt_neon,
    ["stnp q16, q16, [x0]", "stnp q16, q16, [x0, #32]"],
    ["dmb ishst"]
);
stream!(
    copy_neon,
    [
        "ldp q0, q1, [x1]",
        "ldp q2, q3, [x1, #32]",
        "stp q0, q1, [x0]",
        "stp q2, q3, [x0, #32]"
    ],
    []
);
stream!(
    copy_nt_neon,
    [
        "ldnp q0, q1, [x1]",
        "ldnp q2, q3, [x1, #32]",
        "stnp q0, q1, [x0]",
        "stnp q2, q3, [x0, #32]"
    ],
    ["dmb ishst"]
);
stream!(
    update_neon,
    [
        "ldp q0, q1, [x0]",
        "ldp q2, q3, [x0, #32]",
        "eor v0.16b, v0.16b, v16.16b",
        "eor v1.16b, v1.16b, v16.16b",
        "eor v2.16b, v2.16b, v16.16b",
        "eor v3.16b, v3.16b, v16.16b",
        "stp q0, q1, [x0]",
        "stp q2, q3, [x0, #32]"
    ],
    []
);
stream!(
    triad_neon,
    [
        "ldp q0, q1, [x2]",
        "ldp q2, q3, [x2, #32]",
        "ldp q4, q5, [x1]",
        "ldp q6, q7, [x1, #32]",
        "fmul v0.2d, v0.2d, v16.2d",
        "fmul v1.2d, v1.2d, v16.2d",
        "fmul v2.2d, v2.2d, v16.2d",
        "fmul v3.2d, v3.2d, v16.2d",
        "fadd v0.2d, v0.2d, v4.2d",
        "fadd v1.2d, v1.2d, v5.2d",
        "fadd v2.2d, v2.2d, v6.2d",
        "fadd v3.2d, v3.2d, v7.2d",
        "stp q0, q1, [x0]",
        "stp q2, q3, [x0, #32]"
    ],
    []
);

pub(super) const STREAMS: [StreamKernel; 13] = [
    StreamKernel::new(Operation::Read, Isa::Scalar, read_scalar),
    StreamKernel::new(Operation::Read, Isa::Neon, read_neon),
    StreamKernel::new(Operation::PrefetchRead, Isa::Neon, prefetch_read_neon),
    StreamKernel::new(Operation::Write, Isa::Scalar, write_scalar),
    StreamKernel::new(Operation::Write, Isa::Neon, write_neon),
    StreamKernel::new(Operation::WriteNt, Isa::Neon, write_nt_neon),
    StreamKernel::new(Operation::Copy, Isa::Scalar, copy_scalar),
    StreamKernel::new(Operation::Copy, Isa::Neon, copy_neon),
    StreamKernel::new(Operation::CopyNt, Isa::Neon, copy_nt_neon),
    StreamKernel::new(Operation::Update, Isa::Scalar, update_scalar),
    StreamKernel::new(Operation::Update, Isa::Neon, update_neon),
    StreamKernel::new(Operation::Triad, Isa::Scalar, triad_scalar),
    StreamKernel::new(Operation::Triad, Isa::Neon, triad_neon),
];
