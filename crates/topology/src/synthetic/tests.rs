use proptest::prelude::*;

use homenode_units::{Bytes, NodeId};

use super::*;
use crate::{CacheKind, CpuGroup, Distance};

fn machine(text: &str) -> Topology {
    parse_synthetic(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn lists(groups: &[CpuGroup]) -> Vec<String> {
    groups.iter().map(|group| group.cpus.to_string()).collect()
}

/// Each node as `id: cpus < nearest nodes`.
fn nodes(topology: &Topology) -> Vec<String> {
    let line =
        |node: &crate::Node| format!("{}: {} < {}", node.id, node.cpus, node.nearest_cpu_nodes);
    topology.nodes.iter().map(line).collect()
}

#[test]
fn two_packages_with_everything() {
    let topology = machine("pack:2 [numa(memory=16GB)] l3:1 core:2 pu:2");
    assert_eq!(lists(&topology.packages), ["0-3", "4-7"]);
    assert_eq!(lists(&topology.cores), ["0-1", "2-3", "4-5", "6-7"]);
    assert_eq!(topology.cores[3].id, Some(3));
    assert_eq!(nodes(&topology), ["0: 0-3 < 0", "1: 4-7 < 1"]);
    let node = topology.node(NodeId(1)).unwrap();
    assert_eq!(node.memory_total.known(), Some(&Bytes(16_000_000_000)));
    assert_eq!(topology.caches.len(), 2);
    let cache = &topology.caches[1];
    assert_eq!((cache.level, cache.kind), (3, CacheKind::Unified));
    assert_eq!(cache.size.known(), Some(&Bytes(16 << 20)));
    assert_eq!(cache.cpus.to_string(), "4-7");
    assert_eq!(topology.memory_total.known(), Some(&Bytes(32_000_000_000)));
    assert_eq!(
        topology.distances.why(),
        Some("a synthetic description without distances")
    );
}

#[test]
fn the_innermost_and_first_node_has_the_cpus() {
    let beside = machine("group:2 [numa] [numa] core:2 pu:1");
    assert_eq!(
        nodes(&beside),
        ["0: 0-1 < 0", "1:  < 0", "2: 2-3 < 2", "3:  < 2"]
    );
    let around = machine("[numa] pack:2 [numa] pu:2");
    assert_eq!(nodes(&around), ["0: 0-1 < 0", "1: 2-3 < 1", "2:  < 0-1"]);
    // The numbers of a list do not change which of the two stands first.
    let numbered = machine("pack:1 [numa(memory=1GiB)] [numa(memory=2GiB indexes=1,0)] pu:2");
    assert_eq!(nodes(&numbered), ["0:  < 1", "1: 0-1 < 1"]);
}

#[test]
fn cpuless_nodes_have_no_cpus_even_when_alone() {
    let topology = machine("pack:2 [numa(cpuless memory=4GiB)] core:1 [numa] pu:2");
    assert_eq!(
        nodes(&topology),
        ["0: 0-1 < 0", "1:  < 0", "2: 2-3 < 2", "3:  < 2"]
    );
    let homeless = machine("pack:1 [numa(cpuless)] pu:2");
    assert_eq!(nodes(&homeless), ["0:  < "]);
}

#[test]
fn distances_are_rows_or_one_number() {
    let topology = machine("(distances=10,21;31,10) numa:2 pu:1");
    let distances = topology.distances.known().unwrap();
    let cells: Vec<_> = distances.cells().map(|(_, _, value)| value.0).collect();
    assert_eq!(cells, [10, 21, 31, 10]);
    let topology = machine("(distances=20) numa:3 pu:1");
    let distances = topology.distances.known().unwrap();
    assert_eq!(distances.get(NodeId(2), NodeId(1)), Some(&Distance(20)));
    assert_eq!(distances.get(NodeId(2), NodeId(2)), Some(&Distance::LOCAL));
}

#[test]
fn side_caches_and_sizes() {
    let topology = machine("[numa(memory=0x10kiB memorysidecachesize=010)] l1i:1(size=64KB) pu:1");
    let node = &topology.nodes[0];
    assert_eq!(node.memory_total.known(), Some(&Bytes(16384)));
    assert_eq!(node.side_caches[0].size.known(), Some(&Bytes(8)));
    assert_eq!(topology.caches[0].size.known(), Some(&Bytes(64000)));
    assert_eq!(topology.caches[0].kind, CacheKind::Instruction);
}

#[test]
fn cpus_can_be_numbered_across_packages() {
    let topology = machine("pack:2 core:2 pu:2(indexes=core:pack)");
    assert_eq!(lists(&topology.cores), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(lists(&topology.packages), ["0-1,4-5", "2-3,6-7"]);
    let topology = machine("pack:2 pu:2(indexes=1*4)");
    assert_eq!(lists(&topology.packages), ["0-1", "2-3"]);
    let topology = machine("pack:2 pu:2(indexes=9,8,1,2)");
    assert_eq!(lists(&topology.packages), ["1-2", "8-9"]);
    assert_eq!(topology.packages[0].id, Some(1));
}

#[test]
fn errors_name_the_item_its_place_and_an_example() {
    let count = "expected a count of at least 1, such as core:4";
    let type_error = "expected package, die, group, numanode, core, pu or a cache such as l3, l1d \
                      or l1i, with its count, such as package:2";
    for (text, message) in [
        (
            "pack:0 pu:1",
            format!("item `pack:0` at character 1: {count}"),
        ),
        (
            "pack:2 core: pu:1",
            format!("item `core:` at character 8: {count}"),
        ),
        (
            "pack:2 core:-1 pu:1",
            format!("item `core:-1` at character 8: {count}"),
        ),
        (
            "é pack:2",
            "item `é` at character 1: expected a type and a count, such as core:4".into(),
        ),
        (
            "  pack:1 fö:2 pu:1",
            format!("item `fö:2` at character 10: {type_error}"),
        ),
        (
            "l6:1 pu:1",
            format!("item `l6:1` at character 1: {type_error}"),
        ),
        (
            "pack:2 core:2",
            "item `core:2` at character 8: expected PUs as the last item, such as pu:2".into(),
        ),
        (
            "pack:2 2 pu:2",
            "item `2` at character 8: expected a type, as the other items have, such as core:4; \
             or none at all"
                .into(),
        ),
        (
            "pack:2 [numa] numa:2 pu:1",
            "item `[numa]` at character 8: expected nodes either as an item or attached, such as \
             group:2 [numa] [numa] core:4 pu:2"
                .into(),
        ),
        (
            "core:2 core:2 pu:1",
            "item `core:2` at character 8: expected each type once, except group, such as \
             package:2 group:2 core:4 pu:2"
                .into(),
        ),
        (
            "pack:2 [core] pu:1",
            "item `[core]` at character 8: expected a node such as [numa] or \
             [numa(memory=16GiB)]"
                .into(),
        ),
        (
            "pack:2 pu:2(indexes=0,0,1,2)",
            "item `pu:2(indexes=0,0,1,2)` at character 8: expected indexes= that give each of the \
             4 objects a number of its own below 65536"
                .into(),
        ),
        (
            "pack:2 pu:2(indexes=2*3)",
            "item `pu:2(indexes=2*3)` at character 8: expected loops whose counts multiply to 4, \
             the number of objects, such as 2*2:1*2"
                .into(),
        ),
        (
            "(distances=10,20) numa:2 pu:1",
            "item `(distances=10,20)` at character 1: expected 2 rows of 2 numbers, one per node, \
             such as distances=10,21;21,10 for two"
                .into(),
        ),
        (
            "",
            "expected a description such as `pack:2 [numa] core:4 pu:2`, found nothing".into(),
        ),
    ] {
        assert_eq!(
            parse_synthetic(text).unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
}

#[test]
fn other_mistakes_are_refused_too() {
    for text in [
        "pack:2(",
        "pack:2 [numa",
        "pack:2 ] pu:1",
        "pu:2 core:2",
        "pu:2 pu:2",
        "[numa]",
        "()",
        "(memory=1GB) pu:1",
        "pack:2 (distances=20) pu:1",
        "pack:2(cpuless) pu:1",
        "numa:2(cpuless) pu:1",
        "pack:2(memory=1GB) pu:1",
        "core:1(size=1kB) pu:1",
        "[numa(memory=1.5GiB)] pu:1",
        "[numa(memory=17179869184GiB)] pu:1",
        "[numa(foo=1)] pu:1",
        "[numa:2] pu:1",
        "pu:2(indexes=)",
        "pu:2(indexes=pu)",
        "core:2 pu:1(indexes=core:core)",
        "pu:4(indexes=0*2:2*2)",
        "pu:2(indexes=0,65536)",
        "machine:1 pu:1",
        "cache:1 pu:1",
        "l:1 pu:1",
        "p:1 pu:1",
        "l4i:1 pu:1",
        "2 2 pu:2 2",
    ] {
        assert!(parse_synthetic(text).is_err(), "{text}");
    }
}

#[test]
fn packages_inside_a_core_are_impossible() {
    // hwloc takes any order of types.
    assert!(matches!(
        parse_synthetic("core:2 pack:2 pu:1"),
        Err(SyntheticError::Impossible(crate::CheckError::Across { .. }))
    ));
}

proptest! {
    #[test]
    fn any_text_gives_a_machine_or_an_error(text in r"\PC{0,40}") {
        let _ = parse_synthetic(&text);
    }

    #[test]
    fn text_that_is_nearly_right_gives_a_machine_or_an_error(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "pack:2", "numa:2", "[numa]", "[numa(", "cpuless", "memory=1", ")]", "(", ")", "[",
                "core:3", "pu:2", "pu:2(indexes=", "0,1", "2*2", ":1*2", "core:pack", "(distances=",
                "10,20;", "20", " ", "l1:1", "4", "é", "0x2", "indexes=1,0",
            ]),
            0..12,
        ),
    ) {
        let _ = parse_synthetic(&parts.concat());
        let _ = parse_synthetic(&parts.join(" "));
    }
}
