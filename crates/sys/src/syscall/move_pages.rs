//! `move_pages(2)`: here as a query, in [`moving`] as a move.

pub(crate) mod moving;

use std::ffi::{c_int, c_ulong, c_void};
use std::io;

use homenode_units::{NodeId, Pid};

use super::last_errno;

/// Statuses asked for in one call: the array lies on the stack and the cost of a call vanishes in
/// the cost of its pages (0.1 to 0.4 µs each).
const PAGES_PER_CALL: usize = 1024;

/// What no kernel writes: neither a node nor an error number.
const UNWRITTEN: c_int = c_int::MIN;

/// Where a page is, as the kernel answers a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStatus {
    /// In the memory of this node.
    OnNode(NodeId),
    /// `ENOENT`: mapped, and nothing is there: never touched, dropped, swapped out, or in device
    /// memory.
    NotResident,
    /// `EFAULT`: no mapping is there, or the page of zeros that all processes share.
    NotMapped,
    /// Another error number, or nothing written at all.
    Other(i32),
}

impl PageStatus {
    fn from_kernel(status: c_int) -> Self {
        match u32::try_from(status) {
            Ok(node) => Self::OnNode(NodeId(node)),
            Err(_) if status == -libc::ENOENT => Self::NotResident,
            Err(_) if status == -libc::EFAULT => Self::NotMapped,
            Err(_) => Self::Other(status),
        }
    }
}

/// Why a process could not be asked where its pages are.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// `EPERM` from a process that the caller may not trace.
    #[error("needs ptrace permission: the same user, or CAP_SYS_PTRACE")]
    NotPermitted,
    /// `EPERM` even for a question about nothing: a seccomp filter refuses the call itself.
    #[error("move_pages is blocked, usually by the seccomp filter of a container")]
    Filtered,
    /// `ESRCH`: the process is gone.
    #[error("the process has ended")]
    Gone,
    /// `EINVAL`: a kernel thread or a zombie, which have no memory of their own.
    #[error("the process has no memory of its own")]
    NoMemory,
    /// `ENOSYS`: no `CONFIG_MIGRATION` or `CONFIG_NUMA`, or a filter that pretends so.
    #[error("this kernel has no move_pages (built without CONFIG_NUMA, or filtered)")]
    NotSupported,
    /// Anything else, `EACCES` of a security module among it.
    #[error("move_pages failed")]
    Other(#[source] io::Error),
}

/// Asks on which node each page of a process is; moves nothing and touches no page.
///
/// The kernel takes the target's `mmap_lock` for 16 pages at a time (`do_pages_stat()`,
/// mm/migrate.c, Linux 6.12); who waits for it may wait until the end of a call. `statuses[i]` is about the page that holds
/// `addresses[i]`. Any address may be asked about. After an error the statuses mean nothing.
///
/// # Errors
///
/// A variant of [`QueryError`] for `EPERM` (two causes, told apart by a second call), `ESRCH`,
/// `EINVAL`, `ENOSYS`, and [`QueryError::Other`] for the rest.
///
/// # Panics
///
/// When there are not as many statuses as addresses.
pub fn page_nodes(
    pid: Pid,
    addresses: &[usize],
    statuses: &mut [PageStatus],
) -> Result<(), QueryError> {
    assert_eq!(addresses.len(), statuses.len(), "a status for each address");
    // Number 0 would mean the caller itself, and a number beyond `pid_t` is nobody's.
    let target = match c_int::try_from(pid.0) {
        Ok(target) if target > 0 => target,
        _ => return Err(QueryError::Gone),
    };
    let mut written = [UNWRITTEN; PAGES_PER_CALL];
    for (addresses, statuses) in addresses
        .chunks(PAGES_PER_CALL)
        .zip(statuses.chunks_mut(PAGES_PER_CALL))
    {
        let written = &mut written[..addresses.len()];
        written.fill(UNWRITTEN);
        query(target, addresses, written).map_err(explain)?;
        for (status, &kernel_status) in statuses.iter_mut().zip(written.iter()) {
            *status = PageStatus::from_kernel(kernel_status);
        }
    }
    Ok(())
}

/// One call; the error is its number.
fn query(target: c_int, addresses: &[usize], written: &mut [c_int]) -> Result<(), i32> {
    assert_eq!(addresses.len(), written.len(), "a status for each address");
    // SAFETY: the kernel reads `addresses.len()` pointers from the first array, which holds as
    // many words of pointer size and lives through the call, and only looks the pointers up in the
    // target's page tables; it writes that many `int`s to the second array, which is as long and
    // exclusively borrowed. Null nodes make it a query; the flags are then not used.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            target,
            addresses.len() as c_ulong,
            addresses.as_ptr().cast::<*const c_void>(),
            std::ptr::null::<c_int>(),
            written.as_mut_ptr(),
            0 as c_int,
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(last_errno()),
        // A query moves nothing, so no page can be left unmoved; if it ever says so, its statuses
        // are worthless all the same.
        _ => Err(libc::EIO),
    }
}

fn explain(errno: i32) -> QueryError {
    match errno {
        // The kernel lets everyone ask about nothing of itself (kernel.md, 10: run as root and as
        // nobody on Linux 6.18), so a refusal of that comes from a filter.
        libc::EPERM if query(0, &[], &mut []) == Err(libc::EPERM) => QueryError::Filtered,
        libc::EPERM => QueryError::NotPermitted,
        libc::ESRCH => QueryError::Gone,
        libc::EINVAL => QueryError::NoMemory,
        libc::ENOSYS => QueryError::NotSupported,
        other => QueryError::Other(io::Error::from_raw_os_error(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;
    use crate::page_size;

    const NOBODY: u32 = 65534;

    fn ask(pid: Pid, addresses: &[usize]) -> Result<Vec<PageStatus>, QueryError> {
        let mut statuses = vec![PageStatus::Other(0); addresses.len()];
        page_nodes(pid, addresses, &mut statuses).map(|()| statuses)
    }

    fn myself() -> Pid {
        Pid(std::process::id())
    }

    /// Whether the kernel offers the call here at all; says so when it does not.
    fn query_works() -> bool {
        let works = query(0, &[], &mut []).is_ok();
        if !works {
            eprintln!("skipped: move_pages is not to be had here");
        }
        works
    }

    fn page_bytes() -> usize {
        usize::try_from(page_size().0).unwrap()
    }

    #[test]
    fn statuses_are_named() {
        for (kernel, status) in [
            (3, PageStatus::OnNode(NodeId(3))),
            (-libc::ENOENT, PageStatus::NotResident),
            (-libc::EFAULT, PageStatus::NotMapped),
            (-libc::EEXIST, PageStatus::Other(-libc::EEXIST)),
            (UNWRITTEN, PageStatus::Other(UNWRITTEN)),
        ] {
            assert_eq!(PageStatus::from_kernel(kernel), status);
        }
    }

    #[test]
    fn own_pages_lie_on_a_node_once_touched() {
        if !query_works() {
            return;
        }
        // More pages than fit in one call, so that the second chunk is checked too.
        let pages = PAGES_PER_CALL + 10;
        let memory = black_box(vec![1u8; (pages + 1) * page_bytes()]);
        let first = memory.as_ptr().addr().next_multiple_of(page_bytes());
        let addresses: Vec<usize> = (0..pages).map(|page| first + page * page_bytes()).collect();
        for status in ask(myself(), &addresses).unwrap() {
            assert!(matches!(status, PageStatus::OnNode(_)), "{status:?}");
        }
        drop(memory);
    }

    #[test]
    fn untouched_and_unmapped_pages_have_no_node() {
        if !query_works() {
            return;
        }
        let bytes = 64 << 20;
        let untouched: Vec<u8> = Vec::with_capacity(bytes);
        let middle = untouched.as_ptr().addr() + bytes / 2;
        assert_eq!(
            ask(myself(), &[middle, 0]).unwrap(),
            [PageStatus::NotResident, PageStatus::NotMapped]
        );
        assert!(ask(myself(), &[]).unwrap().is_empty());
    }

    #[test]
    fn esrch_is_a_process_that_is_gone() {
        if !query_works() {
            return;
        }
        let mut child = Command::new("true").spawn().unwrap();
        let gone = Pid(child.id());
        child.wait().unwrap();
        for pid in [gone, Pid(u32::MAX), Pid(0)] {
            let error = ask(pid, &[0]).unwrap_err();
            assert!(matches!(error, QueryError::Gone), "{pid}: {error:?}");
        }
    }

    #[test]
    fn einval_is_a_zombie_or_a_kernel_thread() {
        if !query_works() {
            return;
        }
        let mut child = Command::new("true").spawn().unwrap();
        // It stays a zombie until it is waited for; give it time to become one.
        let mut answer = ask(Pid(child.id()), &[0]);
        for _ in 0..1000 {
            if answer.is_err() {
                break;
            }
            std::thread::yield_now();
            answer = ask(Pid(child.id()), &[0]);
        }
        child.wait().unwrap();
        match answer {
            Err(QueryError::NoMemory) => {}
            Ok(_) => eprintln!("skipped: the child did not end in time"),
            // Without the right to trace it, the check of rights comes first.
            Err(QueryError::NotPermitted) => eprintln!("skipped: zombies may not be asked here"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// The environment variable that makes the test below its own unprivileged child.
    const ASK_AS_NOBODY: &str = "HOMENODE_TEST_ASK_PID";

    #[test]
    fn eperm_is_a_process_of_somebody_else() {
        #[expect(
            clippy::disallowed_methods,
            reason = "how this test talks to its child"
        )]
        let pid = std::env::var(ASK_AS_NOBODY);
        if let Ok(pid) = pid {
            let error = ask(Pid(pid.parse().unwrap()), &[0]).unwrap_err();
            assert!(matches!(error, QueryError::NotPermitted), "{error:?}");
            return;
        }
        if !query_works() {
            return;
        }
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("skipped: only root can start a child of somebody else");
            return;
        }
        let this_test = "syscall::move_pages::tests::eperm_is_a_process_of_somebody_else";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this_test, "--nocapture"])
            .env(ASK_AS_NOBODY, std::process::id().to_string())
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        match child {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            // A target folder that nobody may enter.
            Err(error) => eprintln!("skipped: cannot start a child as nobody: {error}"),
        }
    }
}
