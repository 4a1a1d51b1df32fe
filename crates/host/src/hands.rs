use std::io;

use homenode_units::{NodeId, Pid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, RawPid, pidfd_open};

use crate::{Live, MoveError, MoveStatus, Moved, Sharing};

/// Changes a running machine. Only [`Live`] has hands: acting on a captured machine does not
/// compile.
pub trait Hands {
    /// Takes hold of a process, so that another one that gets its number later is not touched.
    ///
    /// # Errors
    ///
    /// [`HoldError`].
    fn hold(&self, pid: Pid) -> Result<Box<dyn Held + '_>, HoldError>;
}

/// A process that is held; the only way to act on one.
pub trait Held {
    /// Whether it still runs. A zombie does not.
    fn is_alive(&self) -> bool;

    /// Moves pages to one node in one call, unless the process has ended.
    ///
    /// Between the look whether it runs and the call, the process could end *and* its number be
    /// given away; then pages of a stranger would move. That hurts nobody's contents, and no
    /// system call closes the gap: `move_pages` knows numbers only.
    ///
    /// # Errors
    ///
    /// [`MoveError`], as [`homenode_sys::move_pages`]; [`MoveError::Gone`] when it has ended.
    fn move_pages(
        &self,
        addresses: &[usize],
        target: NodeId,
        sharing: Sharing,
        statuses: &mut [MoveStatus],
    ) -> Result<Moved, MoveError>;
}

/// Why a process could not be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// There is no process of that number.
    #[error("there is no process {pid}")]
    Gone {
        /// The number.
        pid: Pid,
    },
    /// The number is that of a thread other than its process's first.
    #[error("{pid} is a thread, not a process")]
    Thread {
        /// The number.
        pid: Pid,
    },
    /// Anything else.
    #[error("cannot hold process {pid}")]
    Other {
        /// The number.
        pid: Pid,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

#[derive(Debug)]
struct LiveProcess {
    pid: Pid,
    /// `None` where the kernel has no `pidfd_open` (before 5.3), or a filter refuses it; the start
    /// time of the process is then all that tells it from another.
    handle: Option<OwnedFd>,
}

impl Hands for Live {
    fn hold(&self, pid: Pid) -> Result<Box<dyn Held + '_>, HoldError> {
        let raw = RawPid::try_from(pid.0).ok();
        let Some(raw) = raw.and_then(rustix::process::Pid::from_raw) else {
            return Err(HoldError::Gone { pid });
        };
        let handle = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(handle) => Some(handle),
            Err(Errno::SRCH) => return Err(HoldError::Gone { pid }),
            // EINVAL up to Linux 6.14, ENOENT since (`pidfd_prepare()`, kernel/fork.c).
            Err(Errno::INVAL | Errno::NOENT) => return Err(HoldError::Thread { pid }),
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(error) => {
                return Err(HoldError::Other {
                    pid,
                    source: error.into(),
                });
            }
        };
        Ok(Box::new(LiveProcess { pid, handle }))
    }
}

impl Held for LiveProcess {
    fn is_alive(&self) -> bool {
        let Some(handle) = &self.handle else {
            return true;
        };
        let mut handles = [PollFd::new(handle, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        loop {
            match poll(&mut handles, Some(&at_once)) {
                // Readable once the process has ended, pidfd_open(2).
                Ok(ready) => return ready == 0,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn move_pages(
        &self,
        addresses: &[usize],
        target: NodeId,
        sharing: Sharing,
        statuses: &mut [MoveStatus],
    ) -> Result<Moved, MoveError> {
        if !self.is_alive() {
            return Err(MoveError::Gone);
        }
        homenode_sys::move_pages(self.pid, addresses, target, sharing, statuses)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Lives until its standard input is closed.
    fn child() -> Child {
        Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[test]
    fn a_process_is_alive_until_it_ends_and_is_not_touched_afterwards() {
        let mut child = child();
        let held = Live.hold(Pid(child.id())).unwrap();
        assert!(held.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!held.is_alive());
        let mut statuses = [MoveStatus::Unwritten];
        let moved = held.move_pages(&[0], NodeId(0), Sharing::Leave, &mut statuses);
        assert!(matches!(moved, Err(MoveError::Gone)), "{moved:?}");
        // The number may be a new process's by now; the held one stays dead.
        assert!(!held.is_alive());
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = child();
        let held = Live.hold(Pid(child.id())).unwrap();
        child.kill().unwrap();
        // It ends soon, and stays a zombie until it is waited for.
        let ended = (0..1_000_000).any(|_| !held.is_alive());
        child.wait().unwrap();
        assert!(ended);
    }

    #[test]
    fn numbers_of_nobody_cannot_be_held() {
        for number in [0, i32::MAX.unsigned_abs(), u32::MAX] {
            let held = Live.hold(Pid(number)).map(|_| ());
            assert!(
                matches!(held, Err(HoldError::Gone { .. })),
                "{number}: {held:?}"
            );
        }
    }

    #[test]
    fn a_thread_is_not_a_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_pid()).unwrap();
            let _ = wait.recv();
        });
        let number = u32::try_from(receive.recv().unwrap()).unwrap();
        let held = Live.hold(Pid(number)).map(|_| ());
        drop(end);
        thread.join().unwrap();
        assert!(matches!(held, Err(HoldError::Thread { .. })), "{held:?}");
    }
}
