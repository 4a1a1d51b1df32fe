//! `get_mempolicy(2)` and `set_mempolicy(2)`: the policy of this thread.

use std::ffi::{c_int, c_ulong, c_void};
use std::io;

use homenode_units::{NodeId, NodeSet};

use super::bits::{WORD_BITS, to_set, to_words};
use super::last_errno;
use super::policy::Policy;

/// Asks for a node, not for a policy. This and the next two: include/uapi/linux/mempolicy.h; the
/// libc crate lacks them.
const MPOL_F_NODE: c_ulong = 1 << 0;

/// Asks about an address, not about the task.
const MPOL_F_ADDR: c_ulong = 1 << 1;

/// Asks for the nodes that the cpuset leaves, not for a policy.
const MPOL_F_MEMS_ALLOWED: c_ulong = 1 << 2;

/// As many nodes as a distribution kernel is built for (`CONFIG_NODES_SHIFT` 10).
const FIRST_MASK_BITS: usize = 1024;

/// The kernel writes at most a page of mask (`copy_nodes_to_user()`, mm/mempolicy.c, Linux 6.12).
const MASK_BITS_MAX: usize = 4096 * 8;

/// Why the kernel did not answer a question about policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// `EPERM`: the kernel never answers so, a seccomp filter does.
    #[error("get_mempolicy is blocked, usually by the seccomp filter of a container")]
    Filtered,
    /// `ENOSYS`: no `CONFIG_NUMA`, or a filter that pretends so.
    #[error("this kernel has no get_mempolicy (built without CONFIG_NUMA, or filtered)")]
    NotSupported,
    /// `EFAULT`: nothing is mapped at the address.
    #[error("expected an address that is mapped, found one that is not")]
    NotMapped,
    /// Anything else.
    #[error("get_mempolicy failed")]
    Other(#[source] io::Error),
}

impl PolicyError {
    fn new(errno: i32) -> Self {
        match errno {
            libc::EPERM => Self::Filtered,
            libc::ENOSYS => Self::NotSupported,
            libc::EFAULT => Self::NotMapped,
            other => Self::Other(io::Error::from_raw_os_error(other)),
        }
    }

    /// The number that the kernel returned.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Filtered => libc::EPERM,
            Self::NotSupported => libc::ENOSYS,
            Self::NotMapped => libc::EFAULT,
            Self::Other(error) => error.raw_os_error().unwrap_or_default(),
        }
    }
}

/// Why the policy of this thread could not be set.
#[derive(Debug, thiserror::Error)]
pub enum SetPolicyError {
    /// `EPERM`: the kernel never answers so, a seccomp filter does.
    #[error("set_mempolicy is blocked, usually by the seccomp filter of a container")]
    Filtered,
    /// `ENOSYS`: no `CONFIG_NUMA`, or a filter that pretends so.
    #[error("this kernel has no set_mempolicy (built without CONFIG_NUMA, or filtered)")]
    NotSupported,
    /// `EINVAL`: a mode or flag that this kernel does not have, flags that exclude each other, nodes
    /// where none belong, or none that has memory and that the cpuset allows.
    #[error("set_mempolicy refuses the mode, its flags or the nodes")]
    Refused,
    /// `ENOMEM`: the kernel has no room for the policy itself.
    #[error("the kernel has no memory for a policy")]
    NoMemory,
    /// Anything else.
    #[error("set_mempolicy failed")]
    Other(#[source] io::Error),
}

impl SetPolicyError {
    fn new(errno: i32) -> Self {
        match errno {
            libc::EPERM => Self::Filtered,
            libc::ENOSYS => Self::NotSupported,
            libc::EINVAL => Self::Refused,
            libc::ENOMEM => Self::NoMemory,
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
            Self::NoMemory => libc::ENOMEM,
            Self::Other(error) => error.raw_os_error().unwrap_or_default(),
        }
    }
}

/// Sets the policy of this thread: where the pages go that it touches first from now on.
///
/// Threads and programs that it starts inherit the policy; other threads keep theirs, and pages
/// that are there stay where they are. Any policy but the default stops AutoNUMA for that memory,
/// unless the balancing flag is set.
///
/// # Errors
///
/// A variant of [`SetPolicyError`] for `EPERM`, `ENOSYS`, `EINVAL` and `ENOMEM`, and
/// [`SetPolicyError::Other`] for the rest.
pub fn set_mempolicy(policy: &Policy) -> Result<(), SetPolicyError> {
    let mask = to_words(&policy.nodes);
    let (nodes, max_node) = mask_argument(&mask);
    // SAFETY: the kernel reads at most `max_node - 1` bits rounded up to whole words from `nodes`,
    // which is what `mask` holds, and reads nothing when the mask is empty and the pointer null;
    // `mask` lives through the call. The mode is a number.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, policy.word(), nodes, max_node) };
    if result != 0 {
        return Err(SetPolicyError::new(last_errno()));
    }
    Ok(())
}

/// A mask as the calls that set something take it: null where it is empty, and a count from which
/// the kernel takes one off before it uses it (`get_nodes()`, mm/mempolicy.c, Linux 6.12).
pub(super) fn mask_argument(mask: &[c_ulong]) -> (*const c_ulong, usize) {
    if mask.is_empty() {
        (std::ptr::null(), 0)
    } else {
        (mask.as_ptr(), mask.len() * WORD_BITS + 1)
    }
}

/// The policy of this thread.
///
/// # Errors
///
/// [`PolicyError`] for `EPERM`, `ENOSYS` and others; `EFAULT` cannot happen.
pub fn task_policy() -> Result<Policy, PolicyError> {
    ask(0, 0).map(|(word, nodes)| Policy::from_word(word, nodes))
}

/// The policy of the mapping that holds this address of our own; [`PolicyMode::Default`] where it
/// has none and the task's counts.
///
/// [`PolicyMode::Default`]: crate::PolicyMode::Default
///
/// # Errors
///
/// As [`task_policy`], and [`PolicyError::NotMapped`] for `EFAULT`.
pub fn policy_at(address: usize) -> Result<Policy, PolicyError> {
    ask(address, MPOL_F_ADDR).map(|(word, nodes)| Policy::from_word(word, nodes))
}

/// The node of the page at this address of our own, which the kernel touches if nobody has.
///
/// # Errors
///
/// As [`policy_at`].
///
/// # Panics
///
/// When the kernel answers with a negative node, which it does not.
pub fn node_at(address: usize) -> Result<NodeId, PolicyError> {
    ask(address, MPOL_F_ADDR | MPOL_F_NODE).map(|(word, _)| node_of(word))
}

/// The node that the next page of this thread goes to; `None` when its policy is not one of the
/// interleaving ones.
///
/// # Errors
///
/// As [`task_policy`].
///
/// # Panics
///
/// When the kernel answers with a negative node, which it does not.
pub fn next_interleave_node() -> Result<Option<NodeId>, PolicyError> {
    match ask(0, MPOL_F_NODE) {
        Ok((word, _)) => Ok(Some(node_of(word))),
        Err(PolicyError::Other(error)) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

fn node_of(word: c_int) -> NodeId {
    NodeId(u32::try_from(word).expect("the kernel's node ids are not negative"))
}

/// The nodes whose memory this thread may use: its cpuset, cut to nodes that have memory.
///
/// Needs no privilege. A node without memory is never in the set.
///
/// # Errors
///
/// As [`task_policy`].
pub fn allowed_nodes() -> Result<NodeSet, PolicyError> {
    ask(0, MPOL_F_MEMS_ALLOWED).map(|(_, nodes)| nodes)
}

/// Asks with a mask that is long enough for this kernel.
fn ask(address: usize, flags: c_ulong) -> Result<(c_int, NodeSet), PolicyError> {
    let mut mask_bits = FIRST_MASK_BITS;
    loop {
        match ask_within(address, flags, mask_bits) {
            // The mask is shorter than the kernel's `nr_node_ids`; or the question makes no sense.
            Err(libc::EINVAL) if mask_bits < MASK_BITS_MAX && flags & MPOL_F_NODE == 0 => {
                mask_bits *= 2;
            }
            answer => return answer.map_err(PolicyError::new),
        }
    }
}

/// Asks with a mask of this many bits, a multiple of [`WORD_BITS`].
fn ask_within(address: usize, flags: c_ulong, mask_bits: usize) -> Result<(c_int, NodeSet), i32> {
    let mut mask: Vec<c_ulong> = vec![0; mask_bits / WORD_BITS];
    let mut word: c_int = 0;
    // The kernel takes one off what it is passed, then rounds up to whole words.
    let bits_passed = mask_bits + 1;
    // A question about a node needs no mask, and one about the cpuset no mode.
    let asks_for_node = flags & MPOL_F_NODE != 0;
    let (mask_pointer, bits_passed) = if asks_for_node {
        (std::ptr::null_mut(), 0)
    } else {
        (mask.as_mut_ptr(), bits_passed)
    };
    let mode_pointer = if flags & MPOL_F_MEMS_ALLOWED == 0 {
        &raw mut word
    } else {
        std::ptr::null_mut()
    };
    // SAFETY: the mode pointer is null, for which the kernel writes no mode, or that of a live
    // `c_int` that nobody else uses. The mask pointer is null with no bits, or that of a live,
    // exclusively borrowed array of `mask_bits` bits, of which the kernel writes at most
    // `bits_passed - 1` rounded up to whole words, which is that many. The address is looked up
    // in our page tables, at most touched as a read would, and never written to.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            mode_pointer,
            mask_pointer,
            bits_passed,
            std::ptr::without_provenance_mut::<c_void>(address),
            flags,
        )
    };
    if result != 0 {
        return Err(last_errno());
    }
    Ok((word, to_set(&mask)))
}

#[cfg(test)]
#[path = "memory_policy_tests.rs"]
mod tests;
