//! `sched_setaffinity(2)` and `sched_getaffinity(2)`, for any number of CPUs.
//!
//! The C library's `cpu_set_t`, and with it rustix's, ends at CPU 1023.

use std::ffi::{c_int, c_ulong};
use std::io;

use homenode_units::{CpuSet, ID_LIMIT, Pid};

use super::bits::{WORD_BITS, to_set, to_words};
use super::last_errno;

/// As many CPUs as most kernels are built for at most (`CONFIG_NR_CPUS` 8192).
const FIRST_MASK_BITS: usize = 8192;

/// Why the CPUs of a thread could not be asked for or set.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// `EINVAL`: none of the CPUs is online and allowed by the cpuset.
    #[error("none of the CPUs is online and allowed by the cpuset")]
    NoUsableCpu,
    /// `EPERM`: another user's thread, or a seccomp filter.
    #[error("needs to be the same user, or CAP_SYS_NICE (or a seccomp filter blocks it)")]
    NotPermitted,
    /// `ESRCH`: the thread is gone.
    #[error("the thread has ended")]
    Gone,
    /// Anything else.
    #[error("the CPUs of a thread could not be asked for or set")]
    Other(#[source] io::Error),
}

impl AffinityError {
    fn new(errno: i32) -> Self {
        match errno {
            libc::EINVAL => Self::NoUsableCpu,
            libc::EPERM => Self::NotPermitted,
            libc::ESRCH => Self::Gone,
            other => Self::Other(io::Error::from_raw_os_error(other)),
        }
    }

    /// The number that the kernel returned.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoUsableCpu => libc::EINVAL,
            Self::NotPermitted => libc::EPERM,
            Self::Gone => libc::ESRCH,
            Self::Other(error) => error.raw_os_error().unwrap_or_default(),
        }
    }
}

/// The CPUs that a thread may run on, online or not; `None` is this thread.
///
/// # Errors
///
/// A variant of [`AffinityError`] for `EPERM` (a filter) and `ESRCH`, else
/// [`AffinityError::Other`].
pub fn affinity(thread: Option<Pid>) -> Result<CpuSet, AffinityError> {
    let thread = number(thread)?;
    let mut mask_bits = FIRST_MASK_BITS;
    loop {
        match affinity_within(thread, mask_bits) {
            // The mask is shorter than the kernel's `nr_cpu_ids`.
            Err(libc::EINVAL) if mask_bits < ID_LIMIT as usize => mask_bits *= 2,
            answer => return answer.map_err(AffinityError::new),
        }
    }
}

/// Asks with a mask of this many bits, a multiple of [`WORD_BITS`].
fn affinity_within(thread: c_int, mask_bits: usize) -> Result<CpuSet, i32> {
    let mut mask: Vec<c_ulong> = vec![0; mask_bits / WORD_BITS];
    // SAFETY: the kernel writes at most as many bytes as it is told of, which is the size of
    // `mask`, a live and exclusively borrowed array.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            thread,
            size_of_val(mask.as_slice()),
            mask.as_mut_ptr(),
        )
    };
    // The call itself, unlike the C library's, returns how many bytes it wrote.
    if result < 0 {
        return Err(last_errno());
    }
    Ok(to_set(&mask))
}

/// Sets the CPUs that a thread may run on; `None` is this thread.
///
/// What is not online or not in the cpuset is left out by the kernel. Threads and programs that
/// it starts inherit them.
///
/// # Errors
///
/// A variant of [`AffinityError`] for `EINVAL`, `EPERM` and `ESRCH`, else
/// [`AffinityError::Other`].
pub fn set_affinity(thread: Option<Pid>, cpus: &CpuSet) -> Result<(), AffinityError> {
    let thread = number(thread)?;
    let mask = to_words(cpus);
    // SAFETY: the kernel reads at most as many bytes as it is told of, which is the size of `mask`,
    // and `mask` lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            thread,
            size_of_val(mask.as_slice()),
            mask.as_ptr(),
        )
    };
    if result != 0 {
        return Err(AffinityError::new(last_errno()));
    }
    Ok(())
}

/// Number 0 would mean this thread, and a number beyond `pid_t` is nobody's.
fn number(thread: Option<Pid>) -> Result<c_int, AffinityError> {
    match thread {
        None => Ok(0),
        Some(pid) => match c_int::try_from(pid.0) {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(AffinityError::Gone),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use homenode_units::CpuId;

    use super::*;
    use crate::syscall::filter;

    fn in_thread(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn what_is_set_is_read_back() {
        in_thread(|| {
            let before = affinity(None).unwrap();
            assert!(!before.is_empty());
            let one = CpuSet::from_iter(before.highest());
            set_affinity(None, &one).unwrap();
            assert_eq!(affinity(None).unwrap(), one);
            // A CPU beyond those of the C library's set is left out, and the call works.
            let mut far = before.clone();
            far.insert(CpuId(5000));
            set_affinity(None, &far).unwrap();
            assert_eq!(affinity(None).unwrap(), before);
        });
    }

    #[test]
    fn another_process_has_cpus_too() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id());
        let one = CpuSet::from_iter(affinity(None).unwrap().lowest());
        set_affinity(Some(pid), &one).unwrap();
        let found = affinity(Some(pid)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, one);
    }

    #[test]
    fn einval_is_a_set_without_a_usable_cpu() {
        in_thread(|| {
            for cpus in [CpuSet::new(), CpuSet::from_iter([CpuId(100_000)])] {
                let error = set_affinity(None, &cpus).unwrap_err();
                assert!(matches!(error, AffinityError::NoUsableCpu), "{error:?}");
                assert_eq!(error.errno(), libc::EINVAL);
            }
        });
    }

    #[test]
    fn a_mask_shorter_than_the_kernels_is_refused() {
        assert_eq!(affinity_within(0, 0), Err(libc::EINVAL));
    }

    #[test]
    fn esrch_is_a_thread_that_is_gone() {
        let mut child = Command::new("true").spawn().unwrap();
        let gone = Pid(child.id());
        child.wait().unwrap();
        for pid in [gone, Pid(0), Pid(u32::MAX)] {
            let error = affinity(Some(pid)).unwrap_err();
            assert!(matches!(error, AffinityError::Gone), "{pid}: {error:?}");
            let error = set_affinity(Some(pid), &CpuSet::first(1)).unwrap_err();
            assert_eq!(error.errno(), libc::ESRCH);
        }
    }

    #[test]
    fn eperm_and_others_are_named() {
        for errno in [libc::EPERM, libc::EIO] {
            filter::with(&[libc::SYS_sched_setaffinity], errno, || {
                let error = set_affinity(None, &CpuSet::first(1)).unwrap_err();
                assert_eq!(error.errno(), errno);
            });
        }
    }
}
