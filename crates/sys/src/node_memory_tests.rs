use super::*;
use crate::{allowed_nodes, policy_at};

/// A node with memory, or `None` and a word where policies are not to be had.
fn a_node() -> Option<NodeId> {
    let node = allowed_nodes().ok().and_then(|nodes| nodes.lowest());
    let mut status = [PageStatus::NotResident];
    let queries = page_nodes(Pid(std::process::id()), &[0], &mut status).is_ok();
    if node.is_none() || !queries {
        eprintln!("skipped: memory policies or move_pages are not to be had here");
        return None;
    }
    node
}

fn base_pages(memory: &NodeMemory) -> u64 {
    memory.as_slice().len() as u64 / page_size().0
}

#[test]
fn memory_lies_on_its_node_once_touched() {
    let Some(node) = a_node() else { return };
    for kind in [PageKind::Base, PageKind::Thp] {
        // More pages than one query takes, and not a whole number of huge ones.
        let size = Bytes(page_size().0 * (PAGES_PER_QUERY as u64 + 3));
        let mut memory = match NodeMemory::new(size, node, kind) {
            Err(NodeMemoryError::NoThp) => continue,
            made => made.unwrap(),
        };
        assert!(memory.as_slice().len() as u64 >= size.0);
        let pages = base_pages(&memory);
        assert_eq!(memory.placement().unwrap().absent, pages, "{kind:?}");
        memory.as_mut_slice()[17] = 42;
        memory.touch().unwrap();
        assert_eq!(memory.as_slice()[17], 42, "touching keeps what is there");
        let placement = memory.placement().unwrap();
        assert!(placement.is_all_on(node), "{kind:?}: {placement:?}");
        assert_eq!(placement.pages[&node], pages);
    }
}

#[test]
fn memory_has_the_policy_and_alignment_asked_for() {
    let Some(node) = a_node() else { return };
    let memory = match NodeMemory::new(Bytes(1), node, PageKind::Thp) {
        Err(NodeMemoryError::NoThp) => return,
        made => made.unwrap(),
    };
    let address = memory.as_slice().as_ptr().addr();
    assert!(address.is_multiple_of(HUGE_PAGE_BYTES));
    assert_eq!(memory.as_slice().len(), HUGE_PAGE_BYTES);
    let policy = policy_at(address).unwrap();
    assert_eq!(policy.mode, PolicyMode::Bind);
    assert_eq!(policy.nodes, NodeSet::from_iter([node]));
}

#[test]
fn memory_is_given_back() {
    let Some(node) = a_node() else { return };
    let memory = NodeMemory::new(Bytes(1 << 20), node, PageKind::Base).unwrap();
    let address = memory.as_slice().as_ptr().addr();
    let mapped = memory.mapping.length;
    drop(memory);
    // Another thread may map something else there; a whole mapping of that size is not it.
    if let Ok(policy) = policy_at(address) {
        assert_eq!(
            policy.mode,
            PolicyMode::Default,
            "{mapped} bytes are still ours"
        );
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for (size, kind) in [
        (Bytes(0), PageKind::Base),
        (Bytes(u64::MAX), PageKind::Base),
        (Bytes(4096), PageKind::Hugetlb(Bytes(3 << 20))),
        (Bytes(4096), PageKind::Hugetlb(Bytes(0))),
    ] {
        let error = NodeMemory::new(size, NodeId(0), kind).unwrap_err();
        assert!(
            matches!(error, NodeMemoryError::Size),
            "{size} {kind:?}: {error:?}"
        );
    }
}

#[test]
fn more_than_the_address_space_is_no_memory() {
    let error = NodeMemory::new(Bytes(1 << 60), NodeId(0), PageKind::Base).unwrap_err();
    assert!(
        matches!(error, NodeMemoryError::NoMemory { .. }),
        "{error:?}"
    );
}

#[test]
fn a_node_that_is_not_there_is_refused() {
    if a_node().is_none() {
        return;
    }
    let error = NodeMemory::new(Bytes(4096), NodeId(60_000), PageKind::Base).unwrap_err();
    let NodeMemoryError::Bind { nodes, source } = error else {
        panic!("{error:?}");
    };
    assert_eq!(nodes.to_string(), "60000");
    assert!(matches!(source, BindError::Refused), "{source:?}");
}

/// Machines without a pool answer `NoMemory`; a page size that the processor lacks is `EINVAL`.
#[test]
fn huge_pages_that_are_not_there_are_an_error_and_no_signal() {
    let Some(node) = a_node() else { return };
    match NodeMemory::new(Bytes(1 << 30), node, PageKind::Hugetlb(Bytes(2 << 20))) {
        Ok(memory) => assert!(memory.placement().unwrap().is_all_on(node)),
        Err(
            NodeMemoryError::NoMemory { .. }
            | NodeMemoryError::Map { .. }
            | NodeMemoryError::Fill(_),
        ) => {}
        Err(error) => panic!("{error:?}"),
    }
    let error = NodeMemory::new(Bytes(4096), node, PageKind::Hugetlb(Bytes(8192))).unwrap_err();
    assert!(matches!(error, NodeMemoryError::Map { .. }), "{error:?}");
}

#[test]
fn atomics_are_the_same_memory() {
    let policy = Policy::new(PolicyMode::Default, NodeSet::new());
    let mut memory = NodeMemory::with_policy(Bytes(4096), &policy, PageKind::Base).unwrap();
    memory.as_atomics()[1].store(0x2A, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(memory.as_atomics().len(), memory.as_slice().len() / 8);
    assert_eq!(memory.as_slice()[8..16], 0x2Au64.to_ne_bytes());
}

#[test]
fn shares_count_pages_that_are_nowhere() {
    let on = |nodes: &[(u32, u64)], absent| PagePlacement {
        pages: nodes
            .iter()
            .map(|&(node, pages)| (NodeId(node), pages))
            .collect(),
        absent,
    };
    let node = |id| NodeSet::from_iter([NodeId(id)]);
    let exactly = |share: f64, expected: f64| (share - expected).abs() < 1e-12;
    assert!(exactly(on(&[(0, 3), (2, 1)], 0).share_on(&node(0)), 0.75));
    assert!(exactly(on(&[(0, 3)], 1).share_on(&node(0)), 0.75));
    assert!(exactly(
        on(&[(0, 3), (2, 1)], 0).share_on(&NodeSet::first(3)),
        1.0
    ));
    assert!(exactly(on(&[], 0).share_on(&node(0)), 0.0));
}
