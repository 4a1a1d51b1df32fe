use std::time::Duration;

use homenode_units::{Bytes, Pid};

use crate::{Clock as _, Live, PageStatus, QueryError};

/// Pages of one query: some 150 µs.
///
/// The kernel takes the target's `mmap_lock` for 16 pages at a time, but a writer who sleeps in
/// wait for it is overtaken again and again by the reader who just gave it back, for 4 to 8 ms
/// (reader lock stealing and `RWSEM_WAIT_TIMEOUT`, kernel/locking/rwsem.c, Linux 6.12). Only
/// between two calls with [`PAUSE`] does it surely get its turn.
const PAGES_PER_CALL: usize = 256;

/// As long as a sleeper takes to wake up on another CPU. Spent spinning: a sleep would take twice as
/// long (`PR_SET_TIMERSLACK`).
const PAUSE: Duration = Duration::from_micros(30);

/// Asks a running machine what no file tells.
pub trait Probe {
    /// The size of a base page. Unit: bytes.
    fn page_size(&self) -> Bytes;

    /// Asks on which node each page of a process is; moves nothing.
    ///
    /// `statuses[i]` is about the page that holds `addresses[i]`; after an error they mean nothing.
    ///
    /// # Errors
    ///
    /// [`QueryError`], as [`homenode_sys::page_nodes`].
    fn page_nodes(
        &self,
        pid: Pid,
        addresses: &[usize],
        statuses: &mut [PageStatus],
    ) -> Result<(), QueryError>;
}

impl Probe for Live {
    fn page_size(&self) -> Bytes {
        homenode_sys::page_size()
    }

    fn page_nodes(
        &self,
        pid: Pid,
        addresses: &[usize],
        statuses: &mut [PageStatus],
    ) -> Result<(), QueryError> {
        assert_eq!(addresses.len(), statuses.len(), "a status for each address");
        let calls = addresses
            .chunks(PAGES_PER_CALL)
            .zip(statuses.chunks_mut(PAGES_PER_CALL));
        for (call, (addresses, statuses)) in calls.enumerate() {
            if call > 0 {
                let over = self.now() + PAUSE;
                while self.now() < over {
                    std::hint::spin_loop();
                }
            }
            homenode_sys::page_nodes(pid, addresses, statuses)?;
        }
        Ok(())
    }
}
