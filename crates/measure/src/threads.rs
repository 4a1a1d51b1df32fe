//! Threads that run where they should.

use homenode_sys::{affinity, current_cpu, set_affinity, thread_usage};
use homenode_units::{CpuId, CpuSet};

/// Puts this thread on a CPU and makes sure that it is there.
///
/// # Errors
///
/// Why it is not, for people.
pub(crate) fn pin(cpu: CpuId) -> Result<(), String> {
    set_affinity(None, &CpuSet::from_iter([cpu]))
        .map_err(|error| format!("cannot run on CPU {cpu}: {error}"))?;
    match current_cpu() {
        Ok(found) if found == cpu => Ok(()),
        Ok(found) => Err(format!("expected to run on CPU {cpu}, found CPU {found}")),
        Err(error) => Err(format!("cannot tell which CPU this is: {error}")),
    }
}

/// Gives this thread the CPUs back that it had.
#[derive(Debug)]
pub(crate) struct Unpin(Option<CpuSet>);

impl Unpin {
    pub(crate) fn later() -> Self {
        Self(affinity(None).ok())
    }
}

impl Drop for Unpin {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // It had them, so it may have them; if not, nothing is lost but speed.
            let _ = set_affinity(None, before);
        }
    }
}

/// Times that this thread had to make room so far; 0 where a filter hides it.
pub(crate) fn preemptions() -> u64 {
    thread_usage().map_or(0, |usage| usage.preemptions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_pinned_and_unpinned() {
        let before = affinity(None).unwrap();
        {
            let _unpin = Unpin::later();
            let cpu = before.highest().unwrap();
            pin(cpu).unwrap();
            assert_eq!(affinity(None).unwrap(), CpuSet::from_iter([cpu]));
            let error = pin(CpuId(100_000)).unwrap_err();
            assert!(error.contains("100000"), "{error}");
        }
        assert_eq!(affinity(None).unwrap(), before);
    }
}
