//! `migrate_pages(2)`: all memory of a process at once, without pause.

use std::io;

use homenode_units::{NodeSet, Pid};

use super::bits::to_words;
use super::last_errno;
use super::memory_policy::mask_argument;

/// Moves all pages of a process that lie on `from` to `to`, and returns how many stayed.
///
/// It holds up the process for as long as it takes; nothing says how far it is. Pages go to the
/// node at the same position of `to`.
///
/// # Errors
///
/// What the kernel says: `ESRCH` for no such process, `EPERM` without the right to trace it or for
/// nodes outside its cpuset, `EINVAL` for nodes that this process may not use, `ENOSYS`.
pub fn migrate_pages(pid: Pid, from: &NodeSet, to: &NodeSet) -> io::Result<u64> {
    let number =
        libc::pid_t::try_from(pid.0).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let (mut from, mut to) = (to_words(from), to_words(to));
    // One count stands for both masks.
    let words = from.len().max(to.len()).max(1);
    from.resize(words, 0);
    to.resize(words, 0);
    let (from_nodes, max_node) = mask_argument(&from);
    let (to_nodes, _) = mask_argument(&to);
    // SAFETY: the kernel reads at most `max_node - 1` bits rounded up to whole words from each
    // mask, which is what both hold, and both live through the call. Pages that move keep their
    // content and address, so that no reference of ours is wrong after it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_migrate_pages,
            number,
            max_node,
            from_nodes,
            to_nodes,
        )
    };
    u64::try_from(result).map_err(|_| io::Error::from_raw_os_error(last_errno()))
}

#[cfg(test)]
mod tests {
    use homenode_units::NodeId;

    use super::*;

    fn only(node: u32) -> NodeSet {
        std::iter::once(NodeId(node)).collect()
    }

    #[test]
    fn a_process_that_is_none_has_no_pages() {
        let error = migrate_pages(Pid(u32::MAX >> 1), &only(0), &only(0)).unwrap_err();
        match error.raw_os_error() {
            Some(libc::ESRCH) => {}
            Some(libc::EPERM | libc::ENOSYS) => eprintln!("skipped: {error}"),
            _ => panic!("{error:?}"),
        }
    }

    #[test]
    fn pages_go_nowhere_without_a_node() {
        let error = migrate_pages(Pid(std::process::id()), &only(0), &NodeSet::new()).unwrap_err();
        match error.raw_os_error() {
            Some(libc::EINVAL) => {}
            Some(libc::EPERM | libc::ENOSYS) => eprintln!("skipped: {error}"),
            _ => panic!("{error:?}"),
        }
    }
}
