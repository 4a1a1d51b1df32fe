//! Thin, typed wrappers of system calls, one file each.

use std::io;

use homenode_units::Bytes;

pub(crate) mod affinity;
mod bits;
#[cfg(test)]
pub(crate) mod filter;
pub(crate) mod mbind;
pub(crate) mod memory_policy;
pub(crate) mod migrate_pages;
pub(crate) mod move_pages;
pub(crate) mod policy;
pub(crate) mod shared_memory;
pub(crate) mod usage;
pub(crate) mod work_memory;

/// The error number that the last system call of this thread left.
pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .expect("last_os_error always holds an error number")
}

/// The size of a base page, in which the kernel counts and moves memory.
///
/// Unit: bytes. Source: `_SC_PAGESIZE`, sysconf(3); 4 KiB on x86-64, up to 64 KiB on aarch64.
///
/// # Panics
///
/// Never on Linux, where the kernel passes the size to every program (`AT_PAGESZ`, getauxval(3)).
#[must_use]
pub fn page_size() -> Bytes {
    // SAFETY: sysconf takes an integer by value and reads no memory of ours; any value is allowed.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Bytes(u64::try_from(size).expect("Linux always knows its page size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_power_of_two_of_at_least_4_kib() {
        let size = page_size().0;
        assert!(size.is_power_of_two() && size >= 4096, "{size}");
    }
}
