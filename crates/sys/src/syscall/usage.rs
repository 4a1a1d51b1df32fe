//! What happened to this thread: where it runs, and how often it was interrupted.

use std::io;

use homenode_units::CpuId;

use super::last_errno;

/// What the kernel counted for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Times that the thread had to make room for another one (`ru_nivcsw`, getrusage(2)).
    pub preemptions: u64,
    /// Page faults, with and without reading from a disk.
    pub faults: u64,
}

/// The CPU that this thread runs on now (`getcpu(2)`).
///
/// # Errors
///
/// What the system said; only a filter refuses this.
pub fn current_cpu() -> io::Result<CpuId> {
    // SAFETY: takes no arguments and changes nothing.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu)
        .map(CpuId)
        .map_err(|_| io::Error::from_raw_os_error(last_errno()))
}

/// What the kernel counted for this thread since it began (`RUSAGE_THREAD`, getrusage(2)).
///
/// # Errors
///
/// What the system said; only a filter refuses this.
pub fn thread_usage() -> io::Result<ThreadUsage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage`, for which there is room.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(last_errno()));
    }
    // SAFETY: an `rusage` is numbers, for which zeros are values, too.
    let usage = unsafe { usage.assume_init() };
    let count = |number: libc::c_long| u64::try_from(number).unwrap_or_default();
    Ok(ThreadUsage {
        preemptions: count(usage.ru_nivcsw),
        faults: count(usage.ru_minflt) + count(usage.ru_majflt),
    })
}

#[cfg(test)]
mod tests {
    use homenode_units::CpuSet;

    use super::*;
    use crate::{affinity, set_affinity};

    #[test]
    fn a_pinned_thread_runs_where_it_was_pinned() {
        let before = affinity(None).unwrap();
        for cpu in before.iter() {
            set_affinity(None, &CpuSet::from_iter([cpu])).unwrap();
            assert_eq!(current_cpu().unwrap(), cpu);
        }
        set_affinity(None, &before).unwrap();
    }

    #[test]
    fn touching_new_memory_is_counted() {
        let before = thread_usage().unwrap();
        let memory = vec![1u8; 16 << 20];
        std::hint::black_box(&memory);
        let after = thread_usage().unwrap();
        assert!(after.faults > before.faults);
        assert!(after.preemptions >= before.preemptions);
    }
}
