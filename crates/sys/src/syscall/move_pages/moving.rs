//! `move_pages(2)` as a move.

use std::ffi::{c_int, c_ulong, c_void};
use std::io;

use homenode_units::{NodeId, Pid};

use super::{UNWRITTEN, query};
use crate::syscall::last_errno;

/// Pages of this process only (include/uapi/linux/mempolicy.h).
const MPOL_MF_MOVE: c_int = 1 << 1;
/// Pages that other processes map, too (include/uapi/linux/mempolicy.h).
const MPOL_MF_MOVE_ALL: c_int = 1 << 2;

/// What to do with pages that other processes map, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// They stay: [`MoveStatus::Shared`].
    #[default]
    Leave,
    /// They move, for all who map them. Needs `CAP_SYS_NICE` in the initial user namespace.
    Move,
}

/// What became of a page, as far as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStatus {
    /// It is on this node: moved, or there before.
    OnNode(NodeId),
    /// Nothing was written: tried without success, never tried, or moved all the same. Only a
    /// query tells which.
    Unwritten,
    /// `ENOENT`: nothing is resident there.
    NotResident,
    /// `EFAULT`: no mapping, the page of zeros, or a mapping that cannot move.
    NotMovable,
    /// `EACCES`: other processes map it, too, and [`Sharing::Leave`] was asked for.
    Shared,
    /// `EBUSY`: it could not be taken off its list; also every address but the first of a page
    /// that has several, although that page may have moved.
    Busy,
    /// Another error number, negative.
    Other(i32),
}

impl MoveStatus {
    fn from_kernel(status: c_int) -> Self {
        if let Ok(node) = u32::try_from(status) {
            return Self::OnNode(NodeId(node));
        }
        match status {
            UNWRITTEN => Self::Unwritten,
            _ if status == -libc::ENOENT => Self::NotResident,
            _ if status == -libc::EFAULT => Self::NotMovable,
            _ if status == -libc::EACCES => Self::Shared,
            _ if status == -libc::EBUSY => Self::Busy,
            other => Self::Other(other),
        }
    }
}

/// How a call that is no error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Every page was tried, and every status is written.
    Complete,
    /// The call ended early.
    Stopped {
        /// Pages not moved, all those counted that were never tried. At least 1.
        not_moved: usize,
    },
}

/// Why a call to move pages failed. Pages before the failure may have moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// `EPERM` from a process that the caller may not trace.
    #[error("needs ptrace permission: the same user, or CAP_SYS_PTRACE")]
    NotPermitted,
    /// `EPERM` for [`Sharing::Move`].
    #[error("moving shared pages needs CAP_SYS_NICE")]
    SharedNotPermitted,
    /// `EPERM` even for a question about nothing: a seccomp filter refuses the call itself.
    #[error("move_pages is blocked, usually by the seccomp filter of a container")]
    Filtered,
    /// `ESRCH`: the process is gone.
    #[error("the process has ended")]
    Gone,
    /// `EINVAL`: a kernel thread or a zombie, which have no memory of their own.
    #[error("the process has no memory of its own")]
    NoMemory,
    /// `ENOMEM`: no free page (for a huge page: no free huge page) at the target.
    #[error("node {target} is full")]
    TargetFull {
        /// The node.
        target: NodeId,
    },
    /// `ENODEV`: the target is not online, or has no memory.
    #[error("node {target} is not online or has no memory")]
    NoSuchNode {
        /// The node.
        target: NodeId,
    },
    /// `EACCES`: the target is outside the cpuset of the process, or a security module says no.
    #[error("the process may not use node {target}, by its cpuset or a security module")]
    NodeNotAllowed {
        /// The node.
        target: NodeId,
    },
    /// `ENOSYS`: no `CONFIG_MIGRATION` or `CONFIG_NUMA`, or a filter that pretends so.
    #[error("this kernel has no move_pages (built without CONFIG_NUMA, or filtered)")]
    NotSupported,
    /// Anything else.
    #[error("move_pages failed")]
    Other(#[source] io::Error),
}

/// Moves pages of a process to one node, in one call.
///
/// One node per call, because the kernel moves what it has collected each time the node changes
/// (`do_pages_move()`, mm/migrate.c, Linux 6.12). It also does so at each page that is already
/// there or cannot move, so leave those out, and the target's memory is never taken from another
/// node instead (`__GFP_THISNODE`). The contents of pages never change, also when the caller is
/// killed in the middle.
///
/// `statuses[i]` is about `addresses[i]` and is filled in any case, after an error as well; after
/// anything but [`Moved::Complete`] many are [`MoveStatus::Unwritten`], and a query tells the truth.
///
/// # Errors
///
/// A variant of [`MoveError`] for `EPERM` (three causes, told apart by further calls), `ESRCH`,
/// `EINVAL`, `ENOMEM`, `ENODEV`, `EACCES`, `ENOSYS`, and [`MoveError::Other`] for the rest.
///
/// # Panics
///
/// When there are not as many statuses as addresses.
pub fn move_pages(
    pid: Pid,
    addresses: &[usize],
    target: NodeId,
    sharing: Sharing,
    statuses: &mut [MoveStatus],
) -> Result<Moved, MoveError> {
    assert_eq!(addresses.len(), statuses.len(), "a status for each address");
    statuses.fill(MoveStatus::Unwritten);
    // Number 0 would mean the caller itself, and a number beyond `pid_t` is nobody's.
    let process = match c_int::try_from(pid.0) {
        Ok(process) if process > 0 => process,
        _ => return Err(MoveError::Gone),
    };
    let Ok(node) = c_int::try_from(target.0) else {
        return Err(MoveError::NoSuchNode { target });
    };
    if addresses.is_empty() {
        return Ok(Moved::Complete);
    }
    let flags = flags(sharing);
    let mut written = vec![UNWRITTEN; addresses.len()];
    let nodes = vec![node; addresses.len()];
    let result = call(process, addresses, &nodes, &mut written, flags);
    for (status, &kernel_status) in statuses.iter_mut().zip(&written) {
        *status = MoveStatus::from_kernel(kernel_status);
    }
    match result {
        Ok(0) => Ok(Moved::Complete),
        Ok(not_moved) => Ok(Moved::Stopped { not_moved }),
        Err(errno) => Err(explain(errno, target, flags)),
    }
}

const fn flags(sharing: Sharing) -> c_int {
    match sharing {
        Sharing::Leave => MPOL_MF_MOVE,
        Sharing::Move => MPOL_MF_MOVE_ALL,
    }
}

/// One call: how many pages were not moved, or the error's number.
fn call(
    process: c_int,
    addresses: &[usize],
    nodes: &[c_int],
    written: &mut [c_int],
    flags: c_int,
) -> Result<usize, i32> {
    assert_eq!(addresses.len(), nodes.len(), "a node for each address");
    assert_eq!(addresses.len(), written.len(), "a status for each address");
    // SAFETY: the kernel reads `addresses.len()` pointers from the first array and as many `int`s
    // from the second, and writes as many `int`s to the third, which is exclusively borrowed; all
    // are that long and live through the call. The addresses are only looked up in the page tables
    // of the process. Should it be this one, moving a page changes neither its address nor its
    // contents, so no reference is invalidated.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            process,
            addresses.len() as c_ulong,
            addresses.as_ptr().cast::<*const c_void>(),
            nodes.as_ptr(),
            written.as_mut_ptr(),
            flags,
        )
    };
    // The only negative result is -1.
    usize::try_from(result).map_err(|_| last_errno())
}

fn explain(errno: i32, target: NodeId, flags: c_int) -> MoveError {
    // Calls about no page of ourselves, which the kernel refuses to nobody (kernel.md, 10), and
    // for these flags only to who lacks the capability.
    let nothing = |flags| call(0, &[], &[], &mut [], flags);
    match errno {
        libc::EPERM if query(0, &[], &mut []) == Err(libc::EPERM) => MoveError::Filtered,
        libc::EPERM if nothing(flags) == Err(libc::EPERM) => MoveError::SharedNotPermitted,
        libc::EPERM => MoveError::NotPermitted,
        libc::ESRCH => MoveError::Gone,
        libc::EINVAL => MoveError::NoMemory,
        libc::ENOMEM => MoveError::TargetFull { target },
        libc::ENODEV => MoveError::NoSuchNode { target },
        libc::EACCES => MoveError::NodeNotAllowed { target },
        libc::ENOSYS => MoveError::NotSupported,
        other => MoveError::Other(io::Error::from_raw_os_error(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::process::Command;

    use super::*;
    use crate::{PageStatus, page_nodes, page_size};

    fn here() -> Pid {
        Pid(std::process::id())
    }

    fn move_one(
        pid: Pid,
        address: usize,
        target: u32,
        sharing: Sharing,
    ) -> (Result<Moved, MoveError>, MoveStatus) {
        let mut statuses = [MoveStatus::Busy];
        let result = move_pages(pid, &[address], NodeId(target), sharing, &mut statuses);
        (result, statuses[0])
    }

    /// Whether this machine answers at all; says so where it does not.
    fn moves_work() -> bool {
        let result = move_one(here(), 0, 0, Sharing::Leave).0;
        let works = !matches!(result, Err(MoveError::Filtered | MoveError::NotSupported));
        if !works {
            eprintln!("skipped: move_pages is not to be had here: {result:?}");
        }
        works
    }

    #[test]
    fn pages_that_are_there_already_stay_and_keep_their_contents() {
        if !moves_work() {
            return;
        }
        let memory = black_box(vec![7u8; 1 << 16]);
        let page_bytes = usize::try_from(page_size().0).unwrap();
        let first = memory.as_ptr().addr().next_multiple_of(page_bytes);
        let addresses = [first, first + page_bytes];
        let mut nodes = [PageStatus::NotResident; 2];
        page_nodes(here(), &addresses, &mut nodes).unwrap();
        let PageStatus::OnNode(node) = nodes[0] else {
            panic!("{nodes:?}");
        };
        let mut statuses = [MoveStatus::Busy; 2];
        let moved = move_pages(here(), &addresses, node, Sharing::Leave, &mut statuses).unwrap();
        assert_eq!(moved, Moved::Complete);
        assert_eq!(statuses[0], MoveStatus::OnNode(node));
        assert!(memory.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn nothing_to_move_is_done() {
        let result = move_pages(here(), &[], NodeId(0), Sharing::Leave, &mut []);
        assert_eq!(result.unwrap(), Moved::Complete);
    }

    #[test]
    fn the_first_page_of_memory_is_not_mapped() {
        if !moves_work() {
            return;
        }
        let (result, status) = move_one(here(), 0, 0, Sharing::Leave);
        assert_eq!(result.unwrap(), Moved::Complete);
        assert_eq!(status, MoveStatus::NotMovable);
    }

    #[test]
    fn enodev_is_a_node_that_is_not_there() {
        if !moves_work() {
            return;
        }
        let byte = black_box(Box::new(1u8));
        let address = std::ptr::from_ref(&*byte).addr();
        for target in [1023, u32::MAX] {
            let (result, status) = move_one(here(), address, target, Sharing::Leave);
            assert!(
                matches!(result, Err(MoveError::NoSuchNode { .. })),
                "{target}: {result:?}"
            );
            assert_eq!(status, MoveStatus::Unwritten);
        }
    }

    #[test]
    fn esrch_is_a_process_that_ended() {
        if !moves_work() {
            return;
        }
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        for pid in [child.id(), 0, u32::MAX] {
            let (result, _) = move_one(Pid(pid), 0, 0, Sharing::Leave);
            assert!(matches!(result, Err(MoveError::Gone)), "{pid}: {result:?}");
        }
    }

    #[test]
    fn einval_is_a_zombie() {
        if !moves_work() {
            return;
        }
        let mut child = Command::new("true").spawn().unwrap();
        let mut result = Ok(Moved::Complete);
        // It stays a zombie until it is waited for; give it time to become one.
        for _ in 0..10_000 {
            result = move_one(Pid(child.id()), 0, 0, Sharing::Leave).0;
            if result.is_err() {
                break;
            }
            std::thread::yield_now();
        }
        child.wait().unwrap();
        match result {
            Err(MoveError::NoMemory) => {}
            Ok(_) => eprintln!("skipped: the child did not end in time"),
            Err(MoveError::NotPermitted) => eprintln!("skipped: zombies may not be asked here"),
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn shared_pages_need_a_capability() {
        if !moves_work() {
            return;
        }
        let byte = black_box(Box::new(1u8));
        let (result, _) = move_one(here(), std::ptr::from_ref(&*byte).addr(), 0, Sharing::Move);
        #[expect(
            clippy::disallowed_methods,
            reason = "checked against the live machine"
        )]
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let capabilities = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:\t"))
            .map(|mask| u64::from_str_radix(mask, 16).unwrap())
            .unwrap();
        // CAP_SYS_NICE is bit 23; in a user namespace the bit alone does not do.
        match result {
            Err(MoveError::SharedNotPermitted) => {}
            Ok(_) => assert_ne!(capabilities >> 23 & 1, 0),
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn what_the_kernel_writes_is_named() {
        for (written, status) in [
            (3, MoveStatus::OnNode(NodeId(3))),
            (UNWRITTEN, MoveStatus::Unwritten),
            (-libc::ENOENT, MoveStatus::NotResident),
            (-libc::EFAULT, MoveStatus::NotMovable),
            (-libc::EACCES, MoveStatus::Shared),
            (-libc::EBUSY, MoveStatus::Busy),
            (-libc::EIO, MoveStatus::Other(-libc::EIO)),
        ] {
            assert_eq!(MoveStatus::from_kernel(written), status);
        }
    }
}
