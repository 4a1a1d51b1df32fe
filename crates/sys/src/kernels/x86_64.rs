//! The loops for x86-64.
//!
//! Registers are named, not left to the compiler, so that the machine code is the same in every
//! build; `snapshots` in the tests shows it.

use std::arch::asm;

use super::chase::{CHAINS_MAX, FILLERS};
use super::stream::{Arrays, Isa, Operation, StreamKernel};

/// Loads of each chain in a round of [`chase`].
pub(super) const LOADS_PER_ROUND: u64 = 16;

pub(super) const ADDITIONS_PER_ROUND: u64 = 64;

/// See [`super::add_chain`]. An addition of a register: newer cores add constants for nothing.
#[inline(never)]
pub(super) fn add_chain(rounds: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "2:",
            ".rept 64", "add rax, rdx", ".endr",
            "dec rcx",
            "jnz 2b",
            inout("rcx") rounds => _, inout("rax") 0u64 => _, in("rdx") 1u64,
            options(nomem, nostack),
        );
    }
}

/// See [`super::spin`]; `rounds` is not 0.
#[inline(never)]
pub(super) fn spin(rounds: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!("2:", "dec rcx", "jnz 2b", inout("rcx") rounds => _, options(nomem, nostack));
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
                    $(concat!("mov ", $register, ", [", $register, "]"),)+
                    ".endr",
                    "dec rcx",
                    "jnz 2b",
                    inout("rcx") rounds * (16 / $unroll) => _,
                    $(inout($register) *$cursor,)+
                    options(readonly, nostack),
                );
            }
        }
    };
}

chase!(chase_1, 16, a "rax");
chase!(chase_2, 8, a "rax", b "rdx");
chase!(chase_4, 4, a "rax", b "rdx", c "rsi", d "rdi");
chase!(chase_8, 2, a "rax", b "rdx", c "rsi", d "rdi", e "r8", f "r9", g "r10", h "r11");
chase!(chase_12, 2, a "rax", b "rdx", c "rsi", d "rdi", e "r8", f "r9", g "r10", h "r11",
    i "r12", j "r13", k "r14", l "r15");

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
            ".rept 16", "mov rax, [rax]", ".rept {count}", "nop", ".endr", ".endr",
            "dec rcx",
            "jnz 2b",
            count = const COUNT,
            inout("rcx") rounds => _, inout("rax") at,
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
            "dec rcx",
            "jnz 2b",
            count = const COUNT,
            inout("rcx") rounds => _,
            options(nomem, nostack),
        );
    }
}

/// A loop over arrays: `passes` times from their beginning to their end, in steps. `rdi`, `rsi`
/// and `rdx` point behind the arrays `to`, `from` and `second`; `rax` counts from minus their
/// length to 0; `r9` is the value; `r10` is `rdi` plus `ahead`; `r11` is the result.
macro_rules! stream {
    ($name:ident, $step:literal, [$($before:expr),*], [$($body:expr),+], [$($after:expr),*]) => {
        /// # Safety
        ///
        /// As [`StreamKernel::run`] makes sure.
        #[inline(never)]
        unsafe fn $name(arrays: &Arrays, passes: u64) -> u64 {
            let end = arrays.bytes;
            let result: u64;
            // SAFETY: by the caller's promise the arrays are valid for `bytes` bytes, a multiple
            // of the step, and aligned; prefetches reach beyond and cannot fault.
            unsafe {
                asm!(
                    $($before,)*
                    "2:",
                    "mov rax, r8",
                    "3:",
                    $($body,)+
                    concat!("add rax, ", $step),
                    "jnz 3b",
                    "dec rcx",
                    "jnz 2b",
                    $($after,)*
                    inout("rcx") passes => _,
                    in("rdi") arrays.to.wrapping_add(end),
                    in("rsi") arrays.from.wrapping_add(end),
                    in("rdx") arrays.second.wrapping_add(end),
                    in("r8") end.wrapping_neg(),
                    in("r9") arrays.value,
                    in("r10") arrays.to.wrapping_add(end).wrapping_add(arrays.ahead),
                    inout("r11") 0u64 => result,
                    out("rax") _, out("r12") _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                    out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _,
                    options(nostack),
                );
            }
            result
        }
    };
}

/// Eight times, with `\n` from 0 to 7.
macro_rules! eight {
    ($($line:expr),+) => {
        concat!(".irp n,0,1,2,3,4,5,6,7\n", $($line, "\n",)+ ".endr")
    };
}

/// Folds the exclusive or of the two words of `xmm0` into `r11`.
macro_rules! fold_words {
    () => {
        "movq r12, xmm0\nxor r11, r12\npunpckhqdq xmm0, xmm0\nmovq r12, xmm0\nxor r11, r12"
    };
}

/// The value in both halves of `xmm8`.
macro_rules! spread_sse2 {
    () => {
        "movq xmm8, r9\npunpcklqdq xmm8, xmm8"
    };
}

/// The value in all words of register 8.
macro_rules! avx_spread {
    ($register:literal) => {
        concat!("vmovq xmm8, r9\nvpbroadcastq ", $register, "8, xmm8")
    };
}

macro_rules! avx_zero {
    ($register:literal, $exclusive_or:literal) => {
        eight!(concat!(
            $exclusive_or,
            " ",
            $register,
            "\\n, ",
            $register,
            "\\n, ",
            $register,
            "\\n"
        ))
    };
}

macro_rules! avx_read {
    ($register:literal, $width:literal, $exclusive_or:literal) => {
        eight!(concat!(
            $exclusive_or,
            " ",
            $register,
            "\\n, ",
            $register,
            "\\n, [rdi + rax + ",
            $width,
            "*\\n]"
        ))
    };
}

/// Folds registers 0 to 7 into `r11`.
macro_rules! avx_fold {
    ($register:literal, $exclusive_or:literal, $fold:literal) => {
        concat!(
            ".irp n,1,2,3,4,5,6,7\n",
            $exclusive_or,
            " ",
            $register,
            "0, ",
            $register,
            "0, ",
            $register,
            "\\n\n.endr\n",
            $fold,
            "vextracti128 xmm1, ymm0, 1\nvpxor xmm0, xmm0, xmm1\n",
            fold_words!()
        )
    };
}

stream!(
    read_scalar,
    64,
    [],
    [eight!("xor r11, [rdi + rax + 8*\\n]")],
    []
);
stream!(
    write_scalar,
    64,
    [],
    [eight!("mov [rdi + rax + 8*\\n], r9")],
    []
);
stream!(
    write_nt_scalar,
    64,
    [],
    [eight!("movnti [rdi + rax + 8*\\n], r9")],
    ["sfence"]
);
stream!(
    copy_scalar,
    64,
    [],
    [eight!(
        "mov r12, [rsi + rax + 8*\\n]",
        "mov [rdi + rax + 8*\\n], r12"
    )],
    []
);
stream!(
    copy_nt_scalar,
    64,
    [],
    [eight!(
        "mov r12, [rsi + rax + 8*\\n]",
        "movnti [rdi + rax + 8*\\n], r12"
    )],
    ["sfence"]
);
stream!(
    update_scalar,
    64,
    [],
    [eight!("xor [rdi + rax + 8*\\n], r9")],
    []
);
stream!(
    triad_scalar,
    64,
    ["movq xmm8, r9"],
    [eight!(
        "movsd xmm\\n, [rdx + rax + 8*\\n]",
        "mulsd xmm\\n, xmm8",
        "addsd xmm\\n, [rsi + rax + 8*\\n]",
        "movsd [rdi + rax + 8*\\n], xmm\\n"
    )],
    []
);

stream!(
    read_sse2,
    128,
    [eight!("pxor xmm\\n, xmm\\n")],
    [eight!("pxor xmm\\n, [rdi + rax + 16*\\n]")],
    [
        ".irp n,1,2,3,4,5,6,7\npxor xmm0, xmm\\n\n.endr",
        fold_words!()
    ]
);
stream!(
    prefetch_read_sse2,
    128,
    [eight!("pxor xmm\\n, xmm\\n")],
    [
        ".irp n,0,1\nprefetchnta [r10 + rax + 64*\\n]\n.endr",
        eight!("pxor xmm\\n, [rdi + rax + 16*\\n]")
    ],
    [
        ".irp n,1,2,3,4,5,6,7\npxor xmm0, xmm\\n\n.endr",
        fold_words!()
    ]
);
stream!(
    write_sse2,
    128,
    [spread_sse2!()],
    [eight!("movdqa [rdi + rax + 16*\\n], xmm8")],
    []
);
stream!(
    write_nt_sse2,
    128,
    [spread_sse2!()],
    [eight!("movntdq [rdi + rax + 16*\\n], xmm8")],
    ["sfence"]
);
stream!(
    copy_sse2,
    128,
    [],
    [
        eight!("movdqa xmm\\n, [rsi + rax + 16*\\n]"),
        eight!("movdqa [rdi + rax + 16*\\n], xmm\\n")
    ],
    []
);
stream!(
    copy_nt_sse2,
    128,
    [],
    [
        eight!("movdqa xmm\\n, [rsi + rax + 16*\\n]"),
        eight!("movntdq [rdi + rax + 16*\\n], xmm\\n")
    ],
    ["sfence"]
);
stream!(
    update_sse2,
    128,
    [spread_sse2!()],
    [eight!(
        "movdqa xmm\\n, [rdi + rax + 16*\\n]",
        "pxor xmm\\n, xmm8",
        "movdqa [rdi + rax + 16*\\n], xmm\\n"
    )],
    []
);
stream!(
    triad_sse2,
    128,
    [spread_sse2!()],
    [eight!(
        "movapd xmm\\n, [rdx + rax + 16*\\n]",
        "mulpd xmm\\n, xmm8",
        "addpd xmm\\n, [rsi + rax + 16*\\n]",
        "movapd [rdi + rax + 16*\\n], xmm\\n"
    )],
    []
);

/// The loops with registers of 32 or 64 bytes, which differ in names alone.
macro_rules! avx {
    ($read:ident, $prefetch_read:ident, $write:ident, $write_nt:ident, $copy:ident, $copy_nt:ident,
        $update:ident, $triad:ident, $register:literal, $width:literal, $step:literal,
        $lines:literal, $suffix:literal, $exclusive_or:literal, $fold:literal) => {
        stream!(
            $read,
            $step,
            [avx_zero!($register, $exclusive_or)],
            [avx_read!($register, $width, $exclusive_or)],
            [avx_fold!($register, $exclusive_or, $fold), "vzeroupper"]
        );
        stream!(
            $prefetch_read,
            $step,
            [avx_zero!($register, $exclusive_or)],
            [
                concat!(
                    ".irp n,",
                    $lines,
                    "\nprefetchnta [r10 + rax + 64*\\n]\n.endr"
                ),
                avx_read!($register, $width, $exclusive_or)
            ],
            [avx_fold!($register, $exclusive_or, $fold), "vzeroupper"]
        );
        stream!(
            $write,
            $step,
            [avx_spread!($register)],
            [eight!(concat!(
                "vmovdqa",
                $suffix,
                " [rdi + rax + ",
                $width,
                "*\\n], ",
                $register,
                "8"
            ))],
            ["vzeroupper"]
        );
        stream!(
            $write_nt,
            $step,
            [avx_spread!($register)],
            [eight!(concat!(
                "vmovntdq [rdi + rax + ",
                $width,
                "*\\n], ",
                $register,
                "8"
            ))],
            ["sfence", "vzeroupper"]
        );
        stream!(
            $copy,
            $step,
            [],
            [
                eight!(concat!(
                    "vmovdqa",
                    $suffix,
                    " ",
                    $register,
                    "\\n, [rsi + rax + ",
                    $width,
                    "*\\n]"
                )),
                eight!(concat!(
                    "vmovdqa",
                    $suffix,
                    " [rdi + rax + ",
                    $width,
                    "*\\n], ",
                    $register,
                    "\\n"
                ))
            ],
            ["vzeroupper"]
        );
        stream!(
            $copy_nt,
            $step,
            [],
            [
                eight!(concat!(
                    "vmovdqa",
                    $suffix,
                    " ",
                    $register,
                    "\\n, [rsi + rax + ",
                    $width,
                    "*\\n]"
                )),
                eight!(concat!(
                    "vmovntdq [rdi + rax + ",
                    $width,
                    "*\\n], ",
                    $register,
                    "\\n"
                ))
            ],
            ["sfence", "vzeroupper"]
        );
        stream!(
            $update,
            $step,
            [avx_spread!($register)],
            [eight!(
                concat!(
                    $exclusive_or,
                    " ",
                    $register,
                    "\\n, ",
                    $register,
                    "8, [rdi + rax + ",
                    $width,
                    "*\\n]"
                ),
                concat!(
                    "vmovdqa",
                    $suffix,
                    " [rdi + rax + ",
                    $width,
                    "*\\n], ",
                    $register,
                    "\\n"
                )
            )],
            ["vzeroupper"]
        );
        stream!(
            $triad,
            $step,
            [avx_spread!($register)],
            [eight!(
                concat!(
                    "vmulpd ",
                    $register,
                    "\\n, ",
                    $register,
                    "8, [rdx + rax + ",
                    $width,
                    "*\\n]"
                ),
                concat!(
                    "vaddpd ",
                    $register,
                    "\\n, ",
                    $register,
                    "\\n, [rsi + rax + ",
                    $width,
                    "*\\n]"
                ),
                concat!("vmovapd [rdi + rax + ", $width, "*\\n], ", $register, "\\n")
            )],
            ["vzeroupper"]
        );
    };
}

avx!(
    read_avx2,
    prefetch_read_avx2,
    write_avx2,
    write_nt_avx2,
    copy_avx2,
    copy_nt_avx2,
    update_avx2,
    triad_avx2,
    "ymm",
    "32",
    256,
    "0,1,2,3",
    "",
    "vpxor",
    ""
);
avx!(
    read_avx512,
    prefetch_read_avx512,
    write_avx512,
    write_nt_avx512,
    copy_avx512,
    copy_nt_avx512,
    update_avx512,
    triad_avx512,
    "zmm",
    "64",
    512,
    "0,1,2,3,4,5,6,7",
    "64",
    "vpxorq",
    "vextracti64x4 ymm1, zmm0, 1\nvpxor ymm0, ymm0, ymm1\n"
);

/// `rep stosb` and `rep movsb`: the whole piece is one instruction.
#[inline(never)]
unsafe fn write_rep(arrays: &Arrays, passes: u64) -> u64 {
    for _pass in 0..passes {
        // SAFETY: `to` is valid for writes of `bytes` bytes; the direction flag is clear, as the
        // calling convention promises.
        unsafe {
            asm!(
                "rep stosb",
                inout("rcx") arrays.bytes => _, inout("rdi") arrays.to => _, in("al") 0x5Au8,
                options(nostack, preserves_flags),
            );
        }
    }
    0
}

#[inline(never)]
unsafe fn copy_rep(arrays: &Arrays, passes: u64) -> u64 {
    for _pass in 0..passes {
        // SAFETY: both arrays are valid for `bytes` bytes and do not overlap; the direction flag
        // is clear, as the calling convention promises.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") arrays.bytes => _, inout("rdi") arrays.to => _,
                inout("rsi") arrays.from => _,
                options(nostack, preserves_flags),
            );
        }
    }
    0
}

pub(super) const STREAMS: [StreamKernel; 33] = [
    StreamKernel::new(Operation::Read, Isa::Scalar, read_scalar),
    StreamKernel::new(Operation::Read, Isa::Sse2, read_sse2),
    StreamKernel::new(Operation::Read, Isa::Avx2, read_avx2),
    StreamKernel::new(Operation::Read, Isa::Avx512, read_avx512),
    StreamKernel::new(Operation::PrefetchRead, Isa::Sse2, prefetch_read_sse2),
    StreamKernel::new(Operation::PrefetchRead, Isa::Avx2, prefetch_read_avx2),
    StreamKernel::new(Operation::PrefetchRead, Isa::Avx512, prefetch_read_avx512),
    StreamKernel::new(Operation::Write, Isa::Scalar, write_scalar),
    StreamKernel::new(Operation::Write, Isa::Sse2, write_sse2),
    StreamKernel::new(Operation::Write, Isa::Avx2, write_avx2),
    StreamKernel::new(Operation::Write, Isa::Avx512, write_avx512),
    StreamKernel::new(Operation::Write, Isa::Rep, write_rep),
    StreamKernel::new(Operation::WriteNt, Isa::Scalar, write_nt_scalar),
    StreamKernel::new(Operation::WriteNt, Isa::Sse2, write_nt_sse2),
    StreamKernel::new(Operation::WriteNt, Isa::Avx2, write_nt_avx2),
    StreamKernel::new(Operation::WriteNt, Isa::Avx512, write_nt_avx512),
    StreamKernel::new(Operation::Copy, Isa::Scalar, copy_scalar),
    StreamKernel::new(Operation::Copy, Isa::Sse2, copy_sse2),
    StreamKernel::new(Operation::Copy, Isa::Avx2, copy_avx2),
    StreamKernel::new(Operation::Copy, Isa::Avx512, copy_avx512),
    StreamKernel::new(Operation::Copy, Isa::Rep, copy_rep),
    StreamKernel::new(Operation::CopyNt, Isa::Scalar, copy_nt_scalar),
    StreamKernel::new(Operation::CopyNt, Isa::Sse2, copy_nt_sse2),
    StreamKernel::new(Operation::CopyNt, Isa::Avx2, copy_nt_avx2),
    StreamKernel::new(Operation::CopyNt, Isa::Avx512, copy_nt_avx512),
    StreamKernel::new(Operation::Update, Isa::Scalar, update_scalar),
    StreamKernel::new(Operation::Update, Isa::Sse2, update_sse2),
    StreamKernel::new(Operation::Update, Isa::Avx2, update_avx2),
    StreamKernel::new(Operation::Update, Isa::Avx512, update_avx512),
    StreamKernel::new(Operation::Triad, Isa::Scalar, triad_scalar),
    StreamKernel::new(Operation::Triad, Isa::Sse2, triad_sse2),
    StreamKernel::new(Operation::Triad, Isa::Avx2, triad_avx2),
    StreamKernel::new(Operation::Triad, Isa::Avx512, triad_avx512),
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every loop with its address, by name.
    pub(crate) fn loops() -> Vec<(String, usize)> {
        let mut loops: Vec<(String, usize)> = vec![
            ("add_chain".to_owned(), (add_chain as fn(u64)) as usize),
            ("spin".to_owned(), (spin as fn(u64)) as usize),
        ];
        type ChaseLoop = unsafe fn(&mut [usize; CHAINS_MAX], u64);
        for (name, chase) in [
            ("chase 1", chase_1 as ChaseLoop),
            ("chase 2", chase_2),
            ("chase 4", chase_4),
            ("chase 8", chase_8),
            ("chase 12", chase_12),
        ] {
            loops.push((name.to_owned(), chase as usize));
        }
        for (count, (filled, fillers)) in FILLERS.into_iter().zip(FILLED) {
            loops.push((format!("chase with {count} fillers"), filled as usize));
            loops.push((format!("{count} fillers"), fillers as usize));
        }
        for stream in STREAMS {
            loops.push((stream.name(), stream.address()));
        }
        loops
    }
}
