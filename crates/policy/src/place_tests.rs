use homenode_topology::{CpuLimit, Distance, parse_synthetic};
use homenode_units::{CpuId, NodeMatrix, Reading};
use proptest::prelude::*;

use super::*;
use crate::GroupLimit;

/// As many nodes as rows of distances, with CPUs each and GiB each.
fn machine(nodes: &[(u32, u64)], distances: &[&[u32]]) -> Topology {
    let count = nodes.len();
    let most = nodes.iter().map(|node| node.0).max().unwrap();
    let mut topology =
        parse_synthetic(&format!("pack:{count} [numa(memory=1GiB)] pu:{most}")).unwrap();
    for (node, &(cpus, gib)) in topology.nodes.iter_mut().zip(nodes) {
        node.cpus = node.cpus.iter().take(cpus as usize).collect();
        node.memory_total = Reading::Known(Bytes(gib << 30));
        node.memory_free = Reading::Known(Bytes(gib << 30));
    }
    let cpus = |all: CpuSet, node: &homenode_topology::Node| all.union(&node.cpus);
    topology.cpus.online = topology.nodes.iter().fold(CpuSet::new(), cpus);
    topology.allowed.cpus = topology.cpus.online.clone();
    let rows = distances
        .iter()
        .map(|row| row.iter().copied().map(Distance).collect())
        .collect();
    let ids = topology.nodes.iter().map(|node| node.id).collect();
    topology.distances = Reading::Known(NodeMatrix::from_rows(ids, rows).unwrap());
    topology
}

fn ring() -> Topology {
    machine(
        &[(4, 8); 4],
        &[
            &[10, 16, 22, 16],
            &[16, 10, 16, 22],
            &[22, 16, 10, 16],
            &[16, 22, 16, 10],
        ],
    )
}

/// Node 2 is a memory expander behind node 0.
fn expander() -> Topology {
    machine(
        &[(4, 8), (4, 8), (0, 32)],
        &[&[10, 21, 17], &[21, 10, 28], &[17, 28, 10]],
    )
}

/// Node 2 has CPUs and no memory.
fn memoryless() -> Topology {
    machine(
        &[(4, 8), (4, 8), (4, 0)],
        &[&[10, 21, 28], &[21, 10, 17], &[28, 17, 10]],
    )
}

fn busy(cpus: &[(u32, f64)]) -> Load {
    Load {
        busy: Reading::Known(
            cpus.iter()
                .map(|&(cpu, share)| (CpuId(cpu), share))
                .collect(),
        ),
        ..Load::default()
    }
}

fn idle() -> Load {
    busy(&[])
}

fn placed(topology: &Topology, load: &Load, goal: Goal, need: &str) -> Placement {
    let need = need.parse().unwrap();
    place(topology, load, &Request { need, goal }).unwrap()
}

fn auto(topology: &Topology, load: &Load, need: &str) -> Placement {
    placed(topology, load, Goal::Auto, need)
}

fn near(node: u32) -> Goal {
    Goal::Near {
        nodes: NodeSet::from_iter([NodeId(node)]),
        what: "eth0".to_owned(),
    }
}

/// CPU nodes, memory nodes and whether it fits, in one word.
fn summary(placement: &Placement) -> String {
    format!(
        "{} {} {}",
        placement.cpu_nodes,
        placement.memory_nodes,
        if placement.fits() { "fits" } else { "short" }
    )
}

#[test]
fn limits_of_control_groups_are_lacking_beyond_them() {
    let mut topology = ring();
    topology.allowed.cpu_limit = Some(CpuLimit {
        quota_us: 150_000,
        period_us: 100_000,
    });
    let load = Load {
        group: Some(GroupLimit {
            left: Bytes(2 << 30),
            file: "/sys/fs/cgroup/a/memory.max".to_owned(),
        }),
        ..idle()
    };
    let lacking = |need: &str| auto(&topology, &load, need).shortfalls;
    assert_eq!(lacking("1cpu,2GiB"), [""; 0]);
    // Too much memory says nothing about CPUs.
    let reasons = auto(&topology, &idle(), "1cpu,999GiB").reasons;
    assert!(
        reasons.iter().all(|reason| !reason.contains("share")),
        "{reasons:?}"
    );
    assert_eq!(
        lacking("2cpu,3GiB"),
        [
            "2 CPUs asked for, the control group has 150 ms of CPU time in 100 ms (cpu.max)",
            "3 GiB asked for, 2 GiB left of the control group's limit in /sys/fs/cgroup/a/memory.max"
        ]
    );
}

#[test]
fn one_node_is_enough_when_it_is_enough() {
    let placement = auto(&ring(), &idle(), "4cpu,8GiB");
    assert_eq!(summary(&placement), "0 0 fits");
    assert_eq!(placement.cpus.to_string(), "0-3");
    assert_eq!(
        placement.reasons,
        [
            "node 0 has the most room left for 4 CPUs and 8 GiB",
            "node 0: 4.0 of 4 CPUs idle, 8 GiB of 8 GiB to be had"
        ]
    );
}

#[test]
fn larger_needs_spread_over_the_nearest_nodes() {
    let placement = auto(&ring(), &idle(), "8cpu,1GiB");
    assert_eq!(summary(&placement), "0-1 0-1 fits");
    assert_eq!(
        placement.reasons[0],
        "no single node has 8 CPUs and 1 GiB to give; nodes 0-1 are the nearest to each other \
         that do (distance up to 16)"
    );
    // The opposite corner comes last.
    assert_eq!(
        summary(&auto(&ring(), &idle(), "12cpu")),
        "0-1,3 0-1,3 fits"
    );
    assert_eq!(
        summary(&auto(&ring(), &idle(), "1cpu,9GiB")),
        "0-1 0-1 fits"
    );
    // When node 0 is busy, the pair is another one, and never one across the ring.
    let load = busy(&[(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0)]);
    assert_eq!(summary(&auto(&ring(), &load, "8cpu")), "1-2 1-2 fits");
}

#[test]
fn cpus_never_come_from_a_node_without_any() {
    let placement = auto(&expander(), &idle(), "8cpu,4GiB");
    assert_eq!(summary(&placement), "0-1 0-1 fits");
    // Memory does, where it is nearer than another node's.
    let placement = auto(&expander(), &idle(), "2cpu,30GiB");
    assert_eq!(summary(&placement), "0 0,2 fits");
    assert_eq!(placement.nodes.to_string(), "0,2");
    assert!(
        placement
            .reasons
            .contains(&"node 2: no CPUs, memory only, 32 GiB of 32 GiB to be had".to_owned()),
        "{:?}",
        placement.reasons
    );
}

#[test]
fn nodes_with_memory_come_before_those_without() {
    // Node 2 is the only idle one; but all its memory would be far.
    let load = busy(&(0..8).map(|cpu| (cpu, 0.2)).collect::<Vec<_>>());
    assert_eq!(summary(&auto(&memoryless(), &load, "1cpu")), "0 0 fits");
    let mut only = memoryless();
    only.allowed.cpus = CpuSet::parse_list("8-11").unwrap();
    let placement = auto(&only, &idle(), "1cpu");
    assert_eq!(summary(&placement), "2 1 fits");
    assert_eq!(placement.nodes.to_string(), "2");
    assert!(
        placement
            .reasons
            .contains(&"node 2 has no memory of its own; node 1 is nearest".to_owned()),
        "{:?}",
        placement.reasons
    );
}

#[test]
fn unequal_nodes_are_taken_as_they_are() {
    // The table calls node 0 nearer to every node than itself.
    let row: &[u32] = &[10, 20, 20];
    let unequal = machine(&[(2, 4), (8, 2), (4, 16)], &[row; 3]);
    assert_eq!(summary(&auto(&unequal, &idle(), "8cpu,1GiB")), "1 1 fits");
    assert_eq!(summary(&auto(&unequal, &idle(), "2cpu,12GiB")), "2 2 fits");
}

#[test]
fn free_memory_and_idle_cpus_decide_between_equal_nodes() {
    let mut load = idle();
    load.obtainable.insert(NodeId(0), Bytes(1 << 30));
    assert_eq!(summary(&auto(&ring(), &load, "1cpu,512MiB")), "1 1 fits");
    let load = busy(&[(0, 1.0), (1, 1.0), (4, 1.0), (12, 1.0)]);
    assert_eq!(summary(&auto(&ring(), &load, "1cpu")), "2 2 fits");
}

#[test]
fn least_loaded_looks_at_cpus_before_memory_and_distance() {
    let mut load = busy(&[(0, 0.9), (1, 0.9), (4, 0.9), (5, 0.9), (8, 0.9), (9, 0.9)]);
    load.obtainable.insert(NodeId(3), Bytes(1 << 30));
    assert_eq!(summary(&auto(&ring(), &load, "1cpu,512MiB")), "0 0 fits");
    let placement = placed(&ring(), &load, Goal::LeastLoaded, "1cpu,512MiB");
    assert_eq!(summary(&placement), "3 3 fits");
    assert_eq!(
        placement.reasons[0],
        "node 3 has the largest share of idle CPUs"
    );
}

#[test]
fn one_busier_node_is_better_than_two_idle_ones() {
    let row: &[u32] = &[10, 20, 20];
    let unequal = machine(
        &[(2, 4), (2, 4), (4, 4)],
        &[row, &[20, 10, 20], &[20, 20, 10]],
    );
    let last = unequal.nodes[2].cpus.lowest().unwrap();
    let load = busy(&[(last.0, 1.0)]);
    let placement = placed(&unequal, &load, Goal::LeastLoaded, "3cpu");
    assert_eq!(summary(&placement), "2 2 fits");
}

#[test]
fn near_pairs_come_before_low_numbers() {
    let rows: [&[u32]; 3] = [&[10, 30, 30], &[30, 10, 12], &[30, 12, 10]];
    let uneven = machine(&[(4, 8); 3], &rows);
    assert_eq!(summary(&auto(&uneven, &idle(), "8cpu")), "1-2 1-2 fits");
}

#[test]
fn the_scarcer_of_cpus_and_memory_decides_first() {
    // Node 0 has little CPU left and all of its memory, nodes 1 to 3 some of both.
    let mut load = busy(&[(0, 1.0), (1, 1.0), (2, 1.0)]);
    for node in 1..4 {
        load.obtainable.insert(NodeId(node), Bytes(2 << 30));
    }
    assert_eq!(summary(&auto(&ring(), &load, "1cpu")), "1 1 fits");
}

#[test]
fn background_work_does_not_split_a_request() {
    let load = busy(&[(0, 0.2), (1, 0.1), (4, 0.3), (8, 0.3), (12, 0.3)]);
    assert_eq!(summary(&auto(&ring(), &load, "4cpu")), "0 0 fits");
}

#[test]
fn busy_cpus_are_shared_when_there_are_no_idle_ones() {
    let everything: Vec<(u32, f64)> = (0..16).map(|cpu| (cpu, 1.0)).collect();
    let placement = auto(&ring(), &busy(&everything), "4cpu");
    assert_eq!(summary(&placement), "0 0 fits");
    assert!(
        placement.reasons.contains(
            &"4 CPUs asked for, 0.5 idle: it will share them with what runs there".to_owned()
        ),
        "{:?}",
        placement.reasons
    );
}

#[test]
fn what_does_not_fit_is_said() {
    let placement = auto(&ring(), &idle(), "17cpu,40GiB");
    assert_eq!(summary(&placement), "0-3 0-3 short");
    assert_eq!(
        placement.shortfalls,
        [
            "17 CPUs asked for, 16 may be used here",
            "40 GiB asked for, 32 GiB to be had"
        ]
    );
}

#[test]
fn near_a_device_starts_at_its_node() {
    let placement = placed(&ring(), &idle(), near(2), "2cpu");
    assert_eq!(summary(&placement), "2 2 fits");
    assert_eq!(placement.reasons[0], "eth0 is on node 2");
    let placement = placed(&ring(), &idle(), near(2), "8cpu");
    assert_eq!(summary(&placement), "1-2 1-2 fits");
    // The expander is nearer than node 1 and brings nothing that is missing.
    let placement = placed(&expander(), &idle(), near(0), "8cpu");
    assert_eq!(summary(&placement), "0-1 0-1 fits");
    // A device on a node without CPUs: the nearest that has some.
    let placement = placed(&expander(), &idle(), near(2), "2cpu");
    assert_eq!(summary(&placement), "0 0 fits");
    assert_eq!(
        placement.reasons[0],
        "eth0 is on node 2, which has no CPUs to give; node 0 is nearest (distance 17)"
    );
}

#[test]
fn what_may_not_be_used_is_left_alone() {
    let mut topology = ring();
    topology.allowed.cpus = CpuSet::parse_list("5-7,12-15").unwrap();
    topology.cpus.isolated = CpuSet::parse_list("12-14").unwrap();
    topology.allowed.nodes = NodeSet::parse_list("1").unwrap();
    let placement = auto(&topology, &idle(), "4cpu");
    assert_eq!(summary(&placement), "1,3 1 fits");
    assert_eq!(placement.cpus.to_string(), "5-7,15");
    topology.allowed.cpus = CpuSet::new();
    let request = Request {
        need: Need::default(),
        goal: Goal::Auto,
    };
    assert_eq!(place(&topology, &idle(), &request), Err(PlaceError::NoCpus));
}

#[test]
fn unknown_load_and_distances_are_said_or_assumed() {
    let mut topology = ring();
    topology.distances = Reading::absent("no SLIT");
    let placement = auto(&topology, &Load::default(), "8cpu");
    assert_eq!(summary(&placement), "0-1 0-1 fits");
    assert!(
        placement
            .reasons
            .contains(&"how busy the CPUs are is not known (not looked at)".to_owned())
    );
}

/// A machine, what it is doing and what is asked of it.
fn any_case() -> impl Strategy<Value = (Topology, Load, Request)> {
    let nodes = proptest::collection::vec((0u32..5, 0u64..4), 1..6);
    (nodes, any::<u64>(), 1u32..24, 0u64..16, 0u32..8).prop_map(
        |(mut nodes, seed, cpus, gib, goal)| {
            nodes[0].0 += 1;
            let bits = |at: usize| u32::try_from(seed >> (at % 60) & 7).unwrap();
            let rows: Vec<Vec<u32>> = (0..nodes.len())
                .map(|row| {
                    (0..nodes.len())
                        .map(|column| {
                            if row == column {
                                10
                            } else {
                                11 + bits(row * 7 + column)
                            }
                        })
                        .collect()
                })
                .collect();
            let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
            let topology = machine(&nodes, &rows);
            let shares: Vec<(u32, f64)> = (0..30)
                .map(|cpu| (cpu, f64::from(bits(cpu as usize)) / 7.0))
                .collect();
            let goal = match goal {
                0..3 => Goal::Auto,
                3..5 => Goal::LeastLoaded,
                node => near((node - 5) % u32::try_from(nodes.len()).unwrap()),
            };
            let need = Need {
                cpus,
                memory: Bytes(gib << 30),
            };
            (topology, busy(&shares), Request { need, goal })
        },
    )
}

proptest! {
    #[test]
    fn every_placement_keeps_its_promises((topology, load, request) in any_case()) {
        let placement = place(&topology, &load, &request).unwrap();
        prop_assert!(!placement.cpu_nodes.is_empty());
        for node in placement.cpu_nodes.iter() {
            prop_assert!(topology.node(node).unwrap().cpus.intersects(&placement.cpus));
        }
        for node in placement.memory_nodes.iter() {
            prop_assert!(!topology.node(node).unwrap().is_memoryless());
        }
        let free = |node: NodeId| topology.node(node).unwrap().memory_free.known().copied().unwrap();
        let memory: Bytes = placement.memory_nodes.iter().map(free).sum();
        let all: Bytes = topology.nodes.iter().map(|node| free(node.id)).sum();
        let enough = request.need.cpus as usize <= topology.cpus.online.len()
            && request.need.memory <= all;
        prop_assert_eq!(placement.fits(), enough);
        if placement.fits() {
            prop_assert!(placement.cpus.len() >= request.need.cpus as usize);
            prop_assert!(memory >= request.need.memory);
        }
        prop_assert_eq!(&place(&topology, &load, &request).unwrap(), &placement);
    }
}
