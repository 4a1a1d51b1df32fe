//! `get_mempolicy(2)`.

use std::ffi::{c_int, c_ulong};
use std::io;

use homenode_units::{NodeId, NodeSet};

use super::last_errno;

/// Asks for the nodes that the cpuset leaves, not for a policy (include/uapi/linux/mempolicy.h).
const MPOL_F_MEMS_ALLOWED: c_ulong = 1 << 2;

const WORD_BITS: usize = c_ulong::BITS as usize;

/// As many nodes as a distribution kernel is built for (`CONFIG_NODES_SHIFT` 10).
const FIRST_MASK_BITS: usize = 1024;

/// The kernel writes at most a page of mask (`copy_nodes_to_user()`, mm/mempolicy.c, Linux 6.12).
const MASK_BITS_MAX: usize = 4096 * 8;

/// Why the allowed nodes could not be asked for.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// `EPERM`: the kernel never answers so, a seccomp filter does.
    #[error("get_mempolicy is blocked, usually by the seccomp filter of a container")]
    Filtered,
    /// `ENOSYS`: no `CONFIG_NUMA`, or a filter that pretends so.
    #[error("this kernel has no get_mempolicy (built without CONFIG_NUMA, or filtered)")]
    NotSupported,
    /// Anything else.
    #[error("get_mempolicy failed")]
    Other(#[source] io::Error),
}

/// The nodes whose memory this thread may use: its cpuset, cut to nodes that have memory.
///
/// Needs no privilege. A node without memory is never in the set.
///
/// # Errors
///
/// [`PolicyError::Filtered`] for `EPERM`, [`PolicyError::NotSupported`] for `ENOSYS`, else
/// [`PolicyError::Other`] with the number.
pub fn allowed_nodes() -> Result<NodeSet, PolicyError> {
    let mut mask_bits = FIRST_MASK_BITS;
    loop {
        match allowed_nodes_within(mask_bits) {
            // The mask is shorter than the kernel's `nr_node_ids`.
            Err(libc::EINVAL) if mask_bits < MASK_BITS_MAX => mask_bits *= 2,
            Err(libc::EPERM) => return Err(PolicyError::Filtered),
            Err(libc::ENOSYS) => return Err(PolicyError::NotSupported),
            Err(errno) => return Err(PolicyError::Other(io::Error::from_raw_os_error(errno))),
            Ok(nodes) => return Ok(nodes),
        }
    }
}

/// Asks with a mask of this many bits, a multiple of [`WORD_BITS`].
fn allowed_nodes_within(mask_bits: usize) -> Result<NodeSet, i32> {
    let mut mask: Vec<c_ulong> = vec![0; mask_bits / WORD_BITS];
    // The kernel takes one off what it is passed, then rounds up to whole words.
    let bits_passed = mask_bits + 1;
    // SAFETY: `mask` is a live, exclusively borrowed array of `mask_bits` bits, and the kernel
    // writes at most `bits_passed - 1` bits rounded up to whole words, which is that many; the
    // mode and address pointers are null, which this flag requires and the kernel then never uses.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            std::ptr::null_mut::<c_int>(),
            mask.as_mut_ptr(),
            bits_passed,
            std::ptr::null_mut::<libc::c_void>(),
            MPOL_F_MEMS_ALLOWED,
        )
    };
    if result != 0 {
        return Err(last_errno());
    }
    Ok(set_bits(&mask))
}

fn set_bits(mask: &[c_ulong]) -> NodeSet {
    (0u32..)
        .zip(
            mask.iter()
                .flat_map(|word| (0..WORD_BITS).map(move |bit| word >> bit & 1 == 1)),
        )
        .filter(|&(_, set)| set)
        .map(|(number, _)| NodeId(number))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_node_ids_across_words() {
        let nodes = set_bits(&[1 | 1 << 63, 1 << 1]);
        assert_eq!(nodes.to_string(), "0,63,65");
    }

    #[test]
    fn the_live_kernel_names_the_nodes_of_the_status_file() {
        let allowed = match allowed_nodes() {
            Ok(allowed) => allowed,
            Err(PolicyError::Filtered | PolicyError::NotSupported) => {
                eprintln!("skipped: get_mempolicy is not to be had here");
                return;
            }
            Err(error) => panic!("{error:?}"),
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "checked against the live machine"
        )]
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let listed = status
            .lines()
            .find_map(|line| line.strip_prefix("Mems_allowed_list:"))
            .expect("a kernel with get_mempolicy lists the allowed nodes");
        let listed = NodeSet::parse_list(listed).unwrap();
        assert!(!allowed.is_empty());
        assert!(
            allowed.is_subset(&listed),
            "{allowed} is not within {listed}"
        );
    }

    #[test]
    fn a_mask_of_no_bits_is_refused_where_there_is_more_than_one_node_id() {
        match allowed_nodes_within(0) {
            // Filters answer before the kernel looks at the mask.
            Err(libc::EINVAL | libc::EPERM | libc::ENOSYS) => {}
            // `nr_node_ids` is 1, and the 0 bits asked for were written.
            Ok(nodes) => assert!(nodes.is_empty(), "{nodes}"),
            other => panic!("{other:?}"),
        }
    }
}
