use homenode_units::{Bytes, NodeSet};

use super::*;
use crate::syscall::filter;
use crate::{NodeMemory, PageKind, PolicyError, PolicyMode, allowed_nodes, page_size, policy_at};

/// Memory with the default policy, and the nodes it may be bound to.
fn memory() -> Option<(NodeMemory, NodeSet)> {
    let allowed = match allowed_nodes() {
        Ok(allowed) => allowed,
        Err(PolicyError::Filtered | PolicyError::NotSupported) => {
            eprintln!("skipped: memory policies are not to be had here");
            return None;
        }
        Err(error) => panic!("{error:?}"),
    };
    let size = Bytes(16 * page_size().0);
    let memory = NodeMemory::with_policy(size, &Policy::default(), PageKind::Base).unwrap();
    Some((memory, allowed))
}

fn range(memory: &NodeMemory) -> (usize, usize) {
    (memory.as_slice().as_ptr().addr(), memory.as_slice().len())
}

#[test]
fn a_range_keeps_the_policy_it_gets() {
    let Some((mut memory, allowed)) = memory() else {
        return;
    };
    let (address, length) = range(&memory);
    memory.touch().unwrap();
    for flags in [
        BindFlags::default(),
        BindFlags {
            strict: true,
            move_pages: true,
            move_all: false,
        },
    ] {
        let policy = Policy::new(PolicyMode::Interleave, allowed.clone());
        mbind(address, length, &policy, flags).unwrap();
        assert_eq!(policy_at(address + length - 1).unwrap(), policy);
        mbind(address, length, &Policy::default(), BindFlags::default()).unwrap();
        assert_eq!(policy_at(address).unwrap(), Policy::default());
    }
}

#[test]
fn einval_is_an_address_inside_a_page_or_a_policy_that_makes_no_sense() {
    let Some((memory, allowed)) = memory() else {
        return;
    };
    let (address, length) = range(&memory);
    let bind = Policy::new(PolicyMode::Bind, allowed);
    let nowhere = Policy::new(PolicyMode::Bind, NodeSet::new());
    for (address, policy) in [(address + 1, &bind), (address, &nowhere)] {
        let error = mbind(address, length, policy, BindFlags::default()).unwrap_err();
        assert!(matches!(error, BindError::Refused), "{error:?}");
        assert_eq!(error.errno(), libc::EINVAL);
    }
}

#[test]
fn efault_is_a_range_with_a_hole() {
    let Some((memory, allowed)) = memory() else {
        return;
    };
    let bind = Policy::new(PolicyMode::Bind, allowed);
    let page = usize::try_from(page_size().0).unwrap();
    let error = mbind(0, page, &bind, BindFlags::default()).unwrap_err();
    assert!(matches!(error, BindError::NotMapped), "{error:?}");
    assert_eq!(error.errno(), libc::EFAULT);
    drop(memory);
}

#[test]
fn eperm_is_told_from_a_filter() {
    let Some((memory, allowed)) = memory() else {
        return;
    };
    let (address, length) = range(&memory);
    let bind = Policy::new(PolicyMode::Bind, allowed);
    filter::with(&[libc::SYS_mbind], libc::EPERM, || {
        let error = mbind(address, length, &bind, BindFlags::default()).unwrap_err();
        assert!(matches!(error, BindError::Filtered), "{error:?}");
        assert_eq!(error.errno(), libc::EPERM);
    });
    // Without the filter, the second call works and the cause is the capability.
    assert!(matches!(
        BindError::new(libc::EPERM),
        BindError::NotPermitted
    ));
}

#[test]
fn a_home_node_needs_a_policy_that_has_one() {
    let Some((memory, allowed)) = memory() else {
        return;
    };
    let (address, length) = range(&memory);
    let home = allowed.lowest().unwrap();
    let set = |mode, nodes: &NodeSet| {
        let policy = Policy::new(mode, nodes.clone());
        mbind(address, length, &policy, BindFlags::default()).unwrap();
        set_mempolicy_home_node(address, length, home)
    };
    match set(PolicyMode::Default, &NodeSet::new()) {
        Err(HomeNodeError::NotSupported) => {
            eprintln!("skipped: set_mempolicy_home_node is not to be had here");
            return;
        }
        Err(HomeNodeError::NoPolicy) => {}
        other => panic!("{other:?}"),
    }
    let error = set(PolicyMode::Interleave, &allowed).unwrap_err();
    assert!(matches!(error, HomeNodeError::OtherPolicy), "{error:?}");
    assert_eq!(error.errno(), libc::EOPNOTSUPP);
    set(PolicyMode::Bind, &allowed).unwrap();
    for (address, node) in [(address + 1, home), (address, NodeId(60_000))] {
        let error = set_mempolicy_home_node(address, length, node).unwrap_err();
        assert!(matches!(error, HomeNodeError::Refused), "{error:?}");
    }
}

#[test]
fn filters_and_other_numbers_are_named() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::ENOENT, libc::EIO] {
        filter::with(&[libc::SYS_set_mempolicy_home_node], errno, || {
            let error = set_mempolicy_home_node(0, 0, NodeId(0)).unwrap_err();
            assert_eq!(error.errno(), errno);
        });
    }
    for errno in [libc::ENOSYS, libc::EIO, libc::ENOMEM, libc::EBUSY] {
        assert_eq!(BindError::new(errno).errno(), errno);
    }
}
