use std::hint::black_box;

use super::*;
use crate::syscall::filter;
use crate::{PolicyFlags, PolicyMode};

/// Runs in a thread of its own, so that no policy stays behind; `None` and a word about it where
/// the calls are not to be had.
fn in_thread<T: Send>(test: impl FnOnce(NodeSet) -> T + Send) -> Option<T> {
    let allowed = match allowed_nodes() {
        Ok(allowed) => allowed,
        Err(PolicyError::Filtered | PolicyError::NotSupported) => {
            eprintln!("skipped: memory policies are not to be had here");
            return None;
        }
        Err(error) => panic!("{error:?}"),
    };
    std::thread::scope(|scope| Some(scope.spawn(|| test(allowed)).join().unwrap()))
}

#[test]
fn the_live_kernel_names_the_nodes_of_the_status_file() {
    in_thread(|allowed| {
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
    });
}

#[test]
fn a_mask_of_no_bits_is_refused_where_there_is_more_than_one_node_id() {
    match ask_within(0, MPOL_F_MEMS_ALLOWED, 0) {
        // Filters answer before the kernel looks at the mask.
        Err(libc::EINVAL | libc::EPERM | libc::ENOSYS) => {}
        // `nr_node_ids` is 1, and the 0 bits asked for were written.
        Ok((_, nodes)) => assert!(nodes.is_empty(), "{nodes}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_set_is_read_back() {
    in_thread(|allowed| {
        let first = NodeSet::from_iter(allowed.lowest());
        let highest = NodeSet::from_iter(allowed.highest());
        assert_eq!(task_policy().unwrap(), Policy::default());
        for policy in [
            Policy::new(PolicyMode::Bind, allowed.clone()),
            Policy::new(PolicyMode::Bind, highest),
            Policy::new(PolicyMode::Preferred, first.clone()),
            Policy::new(PolicyMode::Interleave, allowed.clone()),
            Policy::new(PolicyMode::Local, NodeSet::new()),
            Policy {
                mode: PolicyMode::Bind,
                nodes: first,
                flags: PolicyFlags {
                    static_nodes: true,
                    numa_balancing: true,
                    ..PolicyFlags::default()
                },
            },
            Policy::default(),
        ] {
            set_mempolicy(&policy).unwrap_or_else(|error| panic!("{policy:?}: {error:?}"));
            assert_eq!(task_policy().unwrap(), policy);
        }
    });
}

#[test]
fn interleaving_tells_its_next_node() {
    in_thread(|allowed| {
        assert_eq!(next_interleave_node().unwrap(), None);
        set_mempolicy(&Policy::new(PolicyMode::Interleave, allowed.clone())).unwrap();
        let next = next_interleave_node().unwrap().expect("it interleaves");
        assert!(allowed.contains(next), "{next} is not in {allowed}");
    });
}

#[test]
fn an_address_has_a_node_and_a_policy() {
    in_thread(|allowed| {
        let memory = black_box(vec![1u8; 4096]);
        let address = memory.as_ptr().addr();
        assert_eq!(policy_at(address).unwrap(), Policy::default());
        let node = node_at(address).unwrap();
        assert!(allowed.contains(node), "{node} is not in {allowed}");
        drop(memory);
    });
}

#[test]
fn efault_is_an_address_where_nothing_is_mapped() {
    in_thread(|_| {
        assert!(matches!(policy_at(0), Err(PolicyError::NotMapped)));
        let error = node_at(0).unwrap_err();
        assert!(matches!(error, PolicyError::NotMapped), "{error:?}");
        assert_eq!(error.errno(), libc::EFAULT);
    });
}

#[test]
fn einval_is_a_policy_that_makes_no_sense_here() {
    in_thread(|allowed| {
        let both = PolicyFlags {
            static_nodes: true,
            relative_nodes: true,
            numa_balancing: false,
        };
        for policy in [
            Policy::new(PolicyMode::Bind, NodeSet::new()),
            Policy::new(PolicyMode::Default, allowed.clone()),
            Policy::new(PolicyMode::Local, allowed.clone()),
            Policy::new(PolicyMode::Other(99), allowed.clone()),
            // No kernel has as many nodes as this; the mask is longer than the kernel's.
            Policy::new(PolicyMode::Bind, NodeSet::from_iter([NodeId(1 << 19)])),
            Policy {
                flags: both,
                ..Policy::new(PolicyMode::Bind, allowed.clone())
            },
        ] {
            let error = set_mempolicy(&policy).unwrap_err();
            assert!(
                matches!(error, SetPolicyError::Refused),
                "{policy:?}: {error:?}"
            );
            assert_eq!(error.errno(), libc::EINVAL);
        }
        assert_eq!(task_policy().unwrap(), Policy::default());
    });
}

#[test]
fn eperm_and_enosys_are_a_filter() {
    for (errno, set, get) in [
        (libc::EPERM, "blocked", "blocked"),
        (libc::ENOSYS, "no set_mempolicy", "no get_mempolicy"),
    ] {
        filter::with(
            &[libc::SYS_set_mempolicy, libc::SYS_get_mempolicy],
            errno,
            || {
                let error = set_mempolicy(&Policy::default()).unwrap_err();
                assert!(error.to_string().contains(set), "{error}");
                assert_eq!(error.errno(), errno);
                let error = task_policy().unwrap_err();
                assert!(error.to_string().contains(get), "{error}");
                assert_eq!(error.errno(), errno);
            },
        );
    }
}

#[test]
fn other_numbers_are_kept() {
    assert_eq!(SetPolicyError::new(libc::EIO).errno(), libc::EIO);
    assert_eq!(SetPolicyError::new(libc::ENOMEM).errno(), libc::ENOMEM);
    assert_eq!(PolicyError::new(libc::EIO).errno(), libc::EIO);
}
