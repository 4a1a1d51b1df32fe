//! `mbind(2)` and `set_mempolicy_home_node(2)`: the policy of a range of our own memory.

use std::ffi::{c_uint, c_ulong, c_void};
use std::io;

use homenode_units::NodeId;

use super::bits::to_words;
use super::last_errno;
use super::memory_policy::mask_argument;
use super::policy::Policy;

/// include/uapi/linux/mempolicy.h; the libc crate lacks all three.
const MPOL_MF_STRICT: c_uint = 1 << 0;
const MPOL_MF_MOVE: c_uint = 1 << 1;
const MPOL_MF_MOVE_ALL: c_uint = 1 << 2;

/// What happens to pages that are there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindFlags {
    /// `MPOL_MF_STRICT`: fail when a page is where the policy does not want it.
    pub strict: bool,
    /// `MPOL_MF_MOVE`: move the pages that only this process maps.
    pub move_pages: bool,
    /// `MPOL_MF_MOVE_ALL`: move shared pages too; needs `CAP_SYS_NICE`.
    pub move_all: bool,
}

impl BindFlags {
    fn bits(self) -> c_uint {
        let flag = |set: bool, bit: c_uint| if set { bit } else { 0 };
        flag(self.strict, MPOL_MF_STRICT)
            | flag(self.move_pages, MPOL_MF_MOVE)
            | flag(self.move_all, MPOL_MF_MOVE_ALL)
    }
}

/// Why the policy of a range could not be set.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// `EPERM` even for a question about nothing: a seccomp filter refuses the call itself.
    #[error("mbind is blocked, usually by the seccomp filter of a container")]
    Filtered,
    /// `EPERM`: moving shared pages needs a capability.
    #[error("moving shared pages needs CAP_SYS_NICE")]
    NotPermitted,
    /// `ENOSYS`: no `CONFIG_NUMA`, or a filter that pretends so.
    #[error("this kernel has no mbind (built without CONFIG_NUMA, or filtered)")]
    NotSupported,
    /// `EINVAL`: an address inside a page, a mode, flag or nodes that the kernel refuses.
    #[error("mbind refuses the address, the mode, its flags or the nodes")]
    Refused,
    /// `EFAULT`: part of the range is not mapped.
    #[error("expected a range that is mapped, found a hole in it")]
    NotMapped,
    /// `EIO`: with [`BindFlags::strict`], a page is elsewhere and was not moved.
    #[error("a page lies outside the nodes of the policy and could not be moved")]
    Elsewhere,
    /// `ENOMEM`: no room for the policy, or for the pages to move.
    #[error("no memory for the policy or the pages to move")]
    NoMemory,
    /// Anything else.
    #[error("mbind failed")]
    Other(#[source] io::Error),
}

impl BindError {
    fn new(errno: i32) -> Self {
        match errno {
            // The kernel lets everyone bind nothing (kernel.md, 10: run as root and as nobody on
            // Linux 6.18), so a refusal of that comes from a filter.
            libc::EPERM if bind(0, 0, 0, &[], 0) == Err(libc::EPERM) => Self::Filtered,
            libc::EPERM => Self::NotPermitted,
            libc::ENOSYS => Self::NotSupported,
            libc::EINVAL => Self::Refused,
            libc::EFAULT => Self::NotMapped,
            libc::EIO => Self::Elsewhere,
            libc::ENOMEM => Self::NoMemory,
            other => Self::Other(io::Error::from_raw_os_error(other)),
        }
    }

    /// The number that the kernel returned.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Filtered | Self::NotPermitted => libc::EPERM,
            Self::NotSupported => libc::ENOSYS,
            Self::Refused => libc::EINVAL,
            Self::NotMapped => libc::EFAULT,
            Self::Elsewhere => libc::EIO,
            Self::NoMemory => libc::ENOMEM,
            Self::Other(error) => error.raw_os_error().unwrap_or_default(),
        }
    }
}

/// Sets the policy of `length_bytes` of our own memory from `address` on, which starts a page.
///
/// It goes with the mapping and is lost at exec; on a shared mapping of a regular file it has no
/// effect. What the memory holds does not change.
///
/// # Errors
///
/// A variant of [`BindError`] for `EPERM` (two causes, told apart by a second call), `ENOSYS`,
/// `EINVAL`, `EFAULT`, `EIO` and `ENOMEM`, and [`BindError::Other`] for the rest.
pub fn mbind(
    address: usize,
    length_bytes: usize,
    policy: &Policy,
    flags: BindFlags,
) -> Result<(), BindError> {
    let mask = to_words(&policy.nodes);
    bind(address, length_bytes, policy.word(), &mask, flags.bits()).map_err(BindError::new)
}

/// One call; the error is its number.
fn bind(
    address: usize,
    length_bytes: usize,
    mode_word: i32,
    mask: &[c_ulong],
    flags: c_uint,
) -> Result<(), i32> {
    let (nodes, max_node) = mask_argument(mask);
    // SAFETY: the kernel reads at most `max_node - 1` bits rounded up to whole words from `nodes`,
    // which is what `mask` holds, and reads nothing when the mask is empty and the pointer null;
    // `mask` lives through the call. The range is looked up in our mappings: any range may be
    // asked for, and its content stays as it is even where its pages move.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            std::ptr::without_provenance_mut::<c_void>(address),
            length_bytes,
            mode_word,
            nodes,
            max_node,
            flags,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Why a home node could not be set.
#[derive(Debug, thiserror::Error)]
pub enum HomeNodeError {
    /// `EPERM`: the kernel never answers so, a seccomp filter does.
    #[error("set_mempolicy_home_node is blocked, usually by the seccomp filter of a container")]
    Filtered,
    /// `ENOSYS`: a kernel before 5.17, without `CONFIG_NUMA`, or a filter that pretends so.
    #[error("this kernel has no set_mempolicy_home_node (older than 5.17, or filtered)")]
    NotSupported,
    /// `EINVAL`: an address inside a page, or a node that is not online.
    #[error("set_mempolicy_home_node refuses the address or the node")]
    Refused,
    /// `ENOENT`: nothing in the range has a policy.
    #[error("expected a range with a policy, found none in it")]
    NoPolicy,
    /// `EOPNOTSUPP`: a part of the range has a policy other than bind or preferred-many; parts
    /// before it were changed.
    #[error("a home node needs the policy bind or preferred-many")]
    OtherPolicy,
    /// Anything else.
    #[error("set_mempolicy_home_node failed")]
    Other(#[source] io::Error),
}

impl HomeNodeError {
    fn new(errno: i32) -> Self {
        match errno {
            libc::EPERM => Self::Filtered,
            libc::ENOSYS => Self::NotSupported,
            libc::EINVAL => Self::Refused,
            libc::ENOENT => Self::NoPolicy,
            libc::EOPNOTSUPP => Self::OtherPolicy,
            other => Self::Other(io::Error::from_raw_os_error(other)),
        }
    }

    /// The number that the kernel returned.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Filtered => libc::EPERM,
            Self::NotSupported => libc::ENOSYS,
            Self::Refused => libc::EINVAL,
            Self::NoPolicy => libc::ENOENT,
            Self::OtherPolicy => libc::EOPNOTSUPP,
            Self::Other(error) => error.raw_os_error().unwrap_or_default(),
        }
    }
}

/// Sets the node to try first within a range whose policy is bind or preferred-many.
///
/// # Errors
///
/// A variant of [`HomeNodeError`] for `EPERM`, `ENOSYS`, `EINVAL`, `ENOENT` and `EOPNOTSUPP`, and
/// [`HomeNodeError::Other`] for the rest.
pub fn set_mempolicy_home_node(
    address: usize,
    length_bytes: usize,
    home: NodeId,
) -> Result<(), HomeNodeError> {
    let flags: c_ulong = 0;
    // SAFETY: all arguments are numbers. The kernel looks the range up in our mappings and changes
    // no content; any range may be asked for.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy_home_node,
            address,
            length_bytes,
            c_ulong::from(home.0),
            flags,
        )
    };
    if result != 0 {
        return Err(HomeNodeError::new(last_errno()));
    }
    Ok(())
}

#[cfg(test)]
#[path = "mbind_tests.rs"]
mod tests;
