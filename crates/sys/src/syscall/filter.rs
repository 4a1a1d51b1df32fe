//! For tests: a seccomp filter such as a container has, on one thread.

use std::ffi::{c_long, c_ulong};

/// Runs `test` in a thread in which the kernel refuses the calls with `errno`.
///
/// Does nothing but say so where filters are not to be had.
pub(crate) fn with(calls: &[c_long], errno: i32, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| {
            let installed = install(calls, errno);
            if installed {
                test();
            }
            installed
        });
        if !ran.join().unwrap() {
            eprintln!("skipped: no seccomp filters here");
        }
    });
}

/// Whether the filter is there. It ends with the thread.
fn install(calls: &[c_long], errno: i32) -> bool {
    let statement = |code: u32, jump_true, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: jump_true,
        jf: 0,
        k,
    };
    let answer = |action: u32| statement(libc::BPF_RET | libc::BPF_K, 0, action);
    // Offset 0 of `struct seccomp_data` is the number of the call (linux/seccomp.h).
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (position, &call) in calls.iter().enumerate() {
        let steps_to_refusal = u8::try_from(calls.len() - position).unwrap();
        program.push(statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            steps_to_refusal,
            u32::try_from(call).unwrap(),
        ));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(
        libc::SECCOMP_RET_ERRNO | u32::try_from(errno).unwrap(),
    ));
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    let no: c_ulong = 0;
    // SAFETY: this option takes numbers and reads no memory.
    let unprivileged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, no, no, no) };
    // SAFETY: the kernel reads `filter`, which lives through the call, and from it `len` statements
    // of `program`, which lives as long, and keeps a copy; it affects this thread alone.
    let filtered = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            c_ulong::from(libc::SECCOMP_MODE_FILTER),
            &raw const filter,
        )
    };
    unprivileged == 0 && filtered == 0
}
