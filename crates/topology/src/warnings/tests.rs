use homenode_units::{Bytes, Reading};

use super::slots::{Place, parse_place};
use crate::verdict::Warning;
use crate::verdict::sample::{GIB, cpus, machine, nodes, slot};
use crate::{MemorySlot, Slit, Topology, Vendor};

/// This many packages with a node and four CPUs each.
fn packages(number: u32) -> Topology {
    let lists: Vec<String> = (0..number)
        .map(|n| format!("{}-{}", n * 4, n * 4 + 3))
        .collect();
    let lists: Vec<(u32, &str)> = (0..).zip(lists.iter().map(String::as_str)).collect();
    machine(&lists, &lists, &[])
}

fn local_else(remote: u32) -> impl Fn(u32, u32) -> u32 {
    move |from, to| if from == to { 10 } else { remote }
}

/// A ring: each neighbour at 16, others at 22.
fn ring(from: u32, to: u32) -> u32 {
    match from.abs_diff(to) {
        0 => 10,
        1 | 3 => 16,
        _ => 22,
    }
}

fn warnings(topology: &Topology) -> Vec<Warning> {
    topology.verdict().warnings
}

/// The only warning.
#[track_caller]
fn only(topology: &Topology) -> Warning {
    let mut warnings = warnings(topology);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    warnings.remove(0)
}

#[track_caller]
fn none(topology: &Topology) {
    assert_eq!(warnings(topology), []);
}

#[test]
fn an_ordinary_machine_has_no_warnings() {
    none(&packages(2));
    none(&packages(4).with_distances(ring));
}

#[test]
fn t14_unequal_nodes_are_named_with_their_numbers() {
    // hwloc's 48amd64-4pa2n6c-sparse alternates between 8 and 16 GiB.
    let sizes = [8190, 16384, 8192, 16384];
    let machine = packages(4).with_distances(ring).with_memory_mib(&sizes);
    assert_eq!(
        only(&machine).message,
        "nodes differ in memory: nodes 1,3 have 16 GiB each, nodes 0,2 have about 8 GiB each; the \
         smallest has 50 % of the largest"
    );
    // 64amd64-4s2n4ca2co: one node of half the size.
    let sizes = [32768, 32768, 32768, 16384];
    let machine = packages(4).with_distances(ring).with_memory_mib(&sizes);
    assert_eq!(
        only(&machine).message,
        "nodes differ in memory: nodes 0-2 have 32 GiB each, node 3 has 16 GiB; the smallest has \
         50 % of the largest"
    );
}

#[test]
fn what_firmware_and_kernel_reserve_is_no_difference() {
    // The numactl example of a Xeon Silver 4214, a Kunpeng 920, and a small guest.
    none(&packages(2).with_memory_mib(&[130_669, 131_072]));
    none(&packages(2).with_memory_mib(&[128_645, 127_990]));
    none(&packages(2).with_memory_mib(&[420, 512]));
    only(&packages(2).with_memory_mib(&[256, 512]));
    only(&packages(2).with_memory_mib(&[120_000, 131_072]));
}

#[test]
fn t19_a_node_without_memory_keeps_its_cpus() {
    let machine = packages(2).with_memory_mib(&[32768, 0]);
    let warning = only(&machine);
    assert_eq!(warning.subject, "node 1");
    assert_eq!(
        warning.message,
        "node 1 has no memory: its CPUs (CPUs 4-7) always pay remote cost"
    );
    assert!(warning.advice.unwrap().contains("node 0"));
    assert!(
        machine
            .verdict()
            .evidence
            .contains(&"node 1 has CPUs 4-7 and no memory".to_owned())
    );
}

#[test]
fn t19_nodes_without_cpus_are_no_warning() {
    let mut machine = packages(2);
    machine.nodes.push(crate::verdict::sample::node(2, ""));
    machine.memory_total = Reading::Known(Bytes(96 * GIB));
    machine.allowed.nodes = nodes("0-2");
    none(&machine.with_distances(ring));
}

#[test]
fn t32_the_example_of_numactl_adds_up() {
    let mut machine = packages(2).with_memory_mib(&[130_669, 131_072]);
    for (node, free) in machine.nodes.iter_mut().zip([112_885, 102_788]) {
        node.memory_free = Reading::Known(Bytes(free << 20));
    }
    none(&machine);
    // As a host line of esxtop shows it now and then.
    machine.nodes[0].memory_free = Reading::Known(Bytes(130_670 << 20));
    let warning = only(&machine);
    assert_eq!(warning.subject, "node 0");
    assert!(warning.message.starts_with("more memory is free"));
}

#[test]
fn nodes_that_do_not_add_up_to_the_machine() {
    let mut machine = packages(2);
    machine.memory_total = Reading::Known(Bytes(66 * GIB));
    none(&machine);
    machine.memory_total = Reading::Known(Bytes(96 * GIB));
    let message = only(&machine).message;
    assert!(message.contains("adds up to 64 GiB"), "{message}");
    assert!(message.contains("counts 96 GiB"), "{message}");
    machine.memory_total = Reading::Known(Bytes(32 * GIB));
    only(&machine);
    // With one node unknown there is no sum.
    machine.nodes[0].memory_total = Reading::absent("no MemTotal");
    none(&machine);
}

#[test]
fn offline_cpus_are_counted() {
    let warning = only(&packages(2).with_offline("1,3"));
    assert_eq!(warning.message, "2 of 8 are offline: 1,3");
}

#[test]
fn cpus_whose_node_is_offline() {
    let mut machine = packages(2);
    machine.nodes.remove(0);
    machine.nodes_offline = nodes("0");
    machine.memory_total = Reading::Known(Bytes(32 * GIB));
    machine.allowed.nodes = nodes("1");
    let machine = machine.with_distances(local_else(21));
    assert_eq!(
        only(&machine).message,
        "CPUs 0-3 are online and in no online node; not online: node 0"
    );
    let mut machine = machine;
    machine.memory_total = Reading::Known(Bytes(64 * GIB));
    let advice = warnings(&machine)[0].advice.clone().unwrap();
    assert_eq!(advice, "the rest may be memory of node 0, not online");
}

#[test]
fn allowed_cpus_without_their_memory() {
    // hwloc's 16amd64-4n4c-cgroup-distance-merge: CPUs 0-3, memory of nodes 2-3.
    let mut machine = packages(4).with_distances(ring);
    machine.allowed.cpus = cpus("0-3");
    none(&machine);
    machine.allowed.nodes = nodes("2-3");
    let message = only(&machine).message;
    assert!(
        message.ends_with("nodes 2-3 only: all its memory is remote"),
        "{message}"
    );
    machine.allowed.cpus = cpus("0-15");
    machine.allowed.nodes = nodes("0,2-3");
    let message = only(&machine).message;
    assert!(
        message.contains("CPUs of node 1 reach only remote"),
        "{message}"
    );
}

#[test]
fn distances_nobody_stated() {
    let machine = packages(8).with_distances(local_else(20));
    let message = only(&machine).message;
    assert!(
        message.contains("every one of 8 nodes is at 20"),
        "{message}"
    );
    // Two nodes have nothing to be told apart.
    none(&packages(2).with_distances(local_else(20)));
}

#[test]
fn distances_of_20_that_the_firmware_did_state_are_flat() {
    let mut machine = packages(4).with_distances(local_else(20));
    machine.firmware.slit = Reading::Known(Slit {
        rows: vec![vec![10, 20], vec![20, 10]],
    });
    let message = only(&machine).message;
    assert!(
        message.contains("all pairs of 4 nodes in 4 packages are at 20"),
        "{message}"
    );
}

#[test]
fn t31_distances_of_one_value_on_many_packages() {
    let machine = packages(4).with_distances(local_else(21));
    let warning = only(&machine);
    assert!(warning.message.contains("are at 21"), "{warning:?}");
    // No distance is ever turned into a ratio of latencies.
    assert!(!warning.message.contains("2.1"), "{warning:?}");
    none(&packages(2).with_distances(local_else(21)));
    let halves = machine.packages[..2].iter().zip(["0-7", "8-15"]);
    let mut split = machine.clone();
    split.packages = halves
        .map(|(package, list)| crate::CpuGroup {
            cpus: cpus(list),
            ..package.clone()
        })
        .collect();
    let message = only(&split).message;
    assert!(
        message.contains("nodes of one package are hardly"),
        "{message}"
    );
    // One package may well be the same distance all over.
    split.packages.truncate(1);
    split.packages[0].cpus = cpus("0-15");
    none(&split);
}

#[test]
fn distances_that_are_all_equal() {
    let machine = packages(8).with_distances(|_, _| 10);
    let message = only(&machine).message;
    assert!(message.starts_with("all 64 distances are 10"), "{message}");
}

#[test]
fn distances_that_differ_by_direction() {
    let machine = packages(2).with_distances(|from, to| match (from, to) {
        (0, 1) => 21,
        (1, 0) => 31,
        _ => 10,
    });
    assert_eq!(
        only(&machine).message,
        "1 pair of nodes is not equally far in both directions: node 0 to node 1 is 21, back is 31"
    );
}

#[test]
fn distances_that_stand_for_something_else() {
    let machine = packages(4).with_distances(|from, to| match (from, to) {
        (0, 1) | (1, 0) => 255,
        _ => ring(from, to),
    });
    let message = only(&machine).message;
    assert!(
        message.starts_with("2 pairs of nodes are at distance 255"),
        "{message}"
    );
    let machine = packages(4).with_distances(|from, to| match (from, to) {
        (3, 2) => 0,
        _ => ring(from, to),
    });
    let message = only(&machine).message;
    assert!(
        message.starts_with("1 pair of nodes is at distance 0"),
        "{message}"
    );
}

#[test]
fn local_distances_other_than_10() {
    let machine = packages(4).with_distances(|from, to| match (from, to) {
        (3, 3) => 12,
        _ => ring(from, to),
    });
    assert_eq!(
        only(&machine).message,
        "node 3 is at 12 from itself; the standard (ACPI SLIT) wants 10"
    );
    // A wrong table is not called coarse as well.
    let wrong = packages(4).with_distances(|from, to| match (from, to) {
        (3, 3) => 12,
        _ => local_else(21)(from, to),
    });
    only(&wrong);
    let machine = packages(4).with_distances(|from, to| ring(from, to) + from);
    let messages: Vec<String> = warnings(&machine)
        .into_iter()
        .map(|it| it.message)
        .collect();
    assert!(
        messages[0].starts_with("nodes 1-3 are not at 10"),
        "{messages:?}"
    );
}

#[test]
fn remote_memory_nearer_than_local_memory() {
    let machine = packages(4).with_distances(|from, to| match (from, to) {
        (1, 2) | (2, 1) => 10,
        _ => ring(from, to),
    });
    assert_eq!(
        only(&machine).message,
        "2 pairs of nodes are no farther than local memory: node 2 is at 10 from node 1, which is \
         at 10 from itself"
    );
}

/// Purley slots as AMI firmware names them, the given channels of both processors filled.
fn purley(filled: &[u32]) -> Vec<MemorySlot> {
    let mut slots = Vec::new();
    for processor in 0..2 {
        for channel in 0..6 {
            for dimm in 0..2 {
                let name = format!(
                    "P{processor}_Node{}_Channel{}_Dimm{dimm}",
                    channel / 3,
                    channel % 3
                );
                let module = dimm == 0 && filled.contains(&channel);
                slots.push(slot(
                    &format!("DIMM{dimm}"),
                    &name,
                    if module { 8 } else { 0 },
                ));
            }
        }
    }
    slots
}

#[test]
fn t40_empty_channels_by_name() {
    let machine = packages(2).with_slots(purley(&[0, 1, 3, 4]));
    let messages: Vec<String> = warnings(&machine)
        .into_iter()
        .map(|it| it.message)
        .collect();
    assert_eq!(
        messages,
        [
            "processor P0 has modules in 4 of its 6 memory channels",
            "processor P1 has modules in 4 of its 6 memory channels"
        ]
    );
    let mut full = packages(2).with_slots(purley(&[0, 1, 2, 3, 4, 5]));
    full.memory_total = Reading::Known(Bytes(96 * GIB));
    for node in &mut full.nodes {
        node.memory_total = Reading::Known(Bytes(48 * GIB));
    }
    none(&full);
}

#[test]
fn t40_eight_modules_cannot_fill_twelve_channels() {
    // Names that do not tell channels.
    let slots: Vec<MemorySlot> = (0..24)
        .map(|n| slot(&format!("DIMM_{n}"), "", if n < 8 { 8 } else { 0 }))
        .collect();
    let mut machine = packages(2).with_slots(slots);
    none(&machine);
    machine.processor.model_name =
        Reading::Known("Intel(R) Xeon(R) Silver 4214 CPU @ 2.20GHz".to_owned());
    assert_eq!(
        only(&machine).message,
        "8 modules on 2 packages fill at most 8 of 12 memory channels (4 of 6 each, when spread \
         evenly)"
    );
    // A list of fewer slots than channels is not the whole list.
    let mut listed = machine.clone();
    listed.memory_slots = Reading::Known((0..8).map(|n| slot(&n.to_string(), "", 8)).collect());
    none(&listed);
    // A Skylake-X of the same model number has four channels.
    machine.processor.model_name = Reading::Known("Intel(R) Core(TM) i9-7900X".to_owned());
    none(&machine);
    // The slots of a guest are made up.
    machine.processor.model_name = Reading::Known("Intel(R) Xeon(R) Silver 4214".to_owned());
    none(&machine.in_guest());
}

#[test]
fn processors_with_different_modules() {
    let slots = vec![
        slot("CPU1_DIMM_A1", "", 16),
        slot("CPU1_DIMM_B1", "", 16),
        slot("CPU2_DIMM_A1", "", 16),
        slot("CPU2_DIMM_B1", "", 0),
    ];
    let messages: Vec<String> = warnings(&packages(2).with_slots(slots))
        .into_iter()
        .map(|it| it.message)
        .collect();
    assert_eq!(
        messages,
        [
            "processor CPU2 has modules in 1 of its 2 memory channels",
            "processors differ in memory: CPU1 has 2 modules (32 GiB), CPU2 has 1 module (16 GiB)"
        ]
    );
}

#[test]
fn modules_of_different_sizes() {
    let slots = vec![slot("A", "", 16), slot("B", "", 32), slot("C", "", 16)];
    let machine = packages(2).with_slots(slots);
    assert_eq!(
        only(&machine).message,
        "modules differ in size: 2 of 16 GiB, 1 of 32 GiB"
    );
}

#[test]
fn t19_modules_that_the_kernel_does_not_count() {
    // M9 of the documents: 64 GB fitted, a licence for 32 GB.
    let slots = (0..4).map(|n| slot(&format!("DIMM_{n}"), "", 16)).collect();
    let machine = packages(2).with_slots(slots).with_memory_mib(&[32768, 0]);
    let messages: Vec<String> = warnings(&machine)
        .into_iter()
        .map(|it| it.message)
        .collect();
    assert_eq!(messages.len(), 2);
    assert_eq!(
        messages[1],
        "the slots hold 64 GiB, and the kernel counts 32 GiB"
    );
}

#[test]
fn modules_of_unknown_size_count_as_modules_only() {
    let mut unknown = slot("CPU1_A1", "", 1);
    unknown.size = Reading::absent("unknown");
    let mut slots = vec![unknown, slot("CPU2_A1", "", 16)];
    none(&packages(2).with_slots(slots.clone()));
    slots.push(slot("CPU2_A2", "", 16));
    assert_eq!(
        only(&packages(2).with_slots(slots)).message,
        "processors differ in memory: CPU1 has 1 module, CPU2 has 2 modules (32 GiB)"
    );
}

#[test]
fn places_of_slots_as_vendors_name_them() {
    let place = |processor: &str, channel: &str| {
        Some(Place {
            processor: processor.to_owned(),
            channel: (!channel.is_empty()).then(|| channel.to_owned()),
        })
    };
    for (locator, bank, expected) in [
        (
            "P1-DIMMA1",
            "P0_Node0_Channel0_Dimm0",
            place("P0", "NODE0 CHANNEL0"),
        ),
        ("P1-DIMMA1", "", place("P1", "A")),
        ("CPU1_DIMM_A1", "NODE 1", place("CPU1", "A")),
        ("DIMM_P0_B0", "BANK 0", place("P0", "B")),
        ("DIMM 0", "P0 CHANNEL C", place("P0", "C")),
        ("PROC 1 DIMM 3", "NODE 1", place("PROC1", "")),
        ("CPU2_C0_D1", "P0 CHANNEL C", place("P0", "C")),
        // A letter that is a processor here (Dell) and a channel there (desktops).
        ("DIMM_A1", "", None),
        ("ChannelA-DIMM0", "BANK 0", None),
        ("DIMM 0", "Not Specified", None),
        // Two processors in one name pair prove that one of them is none.
        ("P1-DIMM 3", "CPU0", None),
        ("", "", None),
    ] {
        assert_eq!(
            parse_place(&slot(locator, bank, 0)),
            expected,
            "{locator} {bank}"
        );
    }
}

#[test]
fn no_warning_about_distances_of_nodes_that_share_cpus() {
    let all = "0-3";
    let machine = machine(&[(0, all), (1, all)], &[(0, all)], &[]).with(Vendor::Intel, 6, 23);
    none(&machine.with_distances(|_, _| 10));
}
