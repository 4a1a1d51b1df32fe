use homenode_units::{Bytes, Pid};

use crate::{Live, PageStatus, QueryError};

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
        homenode_sys::page_nodes(pid, addresses, statuses)
    }
}
