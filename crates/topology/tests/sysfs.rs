//! Machines written by hand: what no captured machine shows.

use std::fmt::Write as _;

use homenode_host::Snapshot;
use homenode_topology::{
    Detail, DeviceKind, GroupedBy, MemoryKind, ReadError, Source, Topology, read_topology,
};
use homenode_units::{Bytes, CpuSet, NodeId, Reading};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

fn read(machine: &Snapshot) -> Topology {
    let source = Source::Captured("by hand".to_owned());
    read_topology(machine, source, Detail::Full).expect("a machine")
}

fn cpus(list: &str) -> CpuSet {
    CpuSet::parse_list(list).expect("a list")
}

/// A machine with CPUs, each in a package; no nodes yet.
fn machine(packages: &[&str]) -> Snapshot {
    let mut machine = Snapshot::default();
    let mut all = CpuSet::new();
    for (id, list) in packages.iter().enumerate() {
        let members = cpus(list);
        for cpu in members.iter() {
            let topology = format!("{CPU}/cpu{cpu}/topology");
            machine.add_file(
                &format!("{topology}/physical_package_id"),
                format!("{id}\n"),
            );
            machine.add_file(&format!("{topology}/core_siblings"), members.to_mask());
            let alone: CpuSet = [cpu].into_iter().collect();
            machine.add_file(&format!("{topology}/thread_siblings"), alone.to_mask());
            machine.add_file(&format!("{topology}/core_id"), "0\n");
        }
        all = all.union(&members);
    }
    machine.add_file(&format!("{CPU}/online"), format!("{all}\n"));
    machine
}

/// Adds a node; memory in MiB.
fn add_node(machine: &mut Snapshot, id: u32, list: &str, mib: u64, distances: &str) {
    let folder = format!("{NODE}/node{id}");
    machine.add_file(&format!("{folder}/cpumap"), cpus(list).to_mask());
    machine.add_file(&format!("{folder}/distance"), format!("{distances}\n"));
    let mut meminfo = String::new();
    for (key, mib) in [("MemTotal", mib), ("MemFree", mib / 2)] {
        writeln!(meminfo, "Node {id} {key}:  {} kB", mib * 1024).expect("a String takes all");
    }
    machine.add_file(&format!("{folder}/meminfo"), meminfo);
}

#[test]
fn node_ids_up_to_255_with_gaps_keep_their_distances() {
    let mut machine = machine(&["0-1", "2-3"]);
    add_node(&mut machine, 0, "0-1", 1024, "10 40 80");
    add_node(&mut machine, 8, "2-3", 1024, "40 10 80");
    add_node(&mut machine, 255, "", 512, "80 80 10");
    machine.add_file(&format!("{NODE}/online"), "0,8,255\n");
    let topology = read(&machine);
    let distances = topology.distances.known().expect("distances");
    assert_eq!(distances.get(NodeId(8), NodeId(0)).map(|d| d.0), Some(40));
    assert_eq!(
        distances.get(NodeId(255), NodeId(255)).map(|d| d.0),
        Some(10)
    );
    let last = topology.node(NodeId(255)).expect("node 255");
    assert!(last.is_cpuless());
    assert_eq!(
        last.nearest_cpu_nodes.to_string(),
        "0,8",
        "both are equally far"
    );
    assert_eq!(topology.problems, []);
}

#[test]
fn files_padded_with_nul_bytes_are_read() {
    let mut machine = machine(&["0-1"]);
    add_node(&mut machine, 0, "0-1", 1024, "10");
    machine.add_file(&format!("{NODE}/online"), "0\n\0\0\0\0");
    machine.add_file(&format!("{CPU}/online"), "0-1\n\0\0");
    machine.add_file(&format!("{NODE}/node0/distance"), "10\0\0\n\0");
    let topology = read(&machine);
    assert_eq!(topology.cpus.online, cpus("0-1"));
    assert!(topology.distances.known().is_some());
    assert_eq!(topology.problems, []);
}

#[test]
fn where_list_and_mask_differ_the_mask_wins_and_it_is_said() {
    let mut machine = machine(&["0-3"]);
    add_node(&mut machine, 0, "0-1", 1024, "10 20");
    add_node(&mut machine, 1, "2-3", 1024, "20 10");
    machine.add_file(&format!("{NODE}/online"), "0-1\n");
    machine.add_file(&format!("{NODE}/node0/cpulist"), "0-3\n");
    let topology = read(&machine);
    assert_eq!(topology.node(NodeId(0)).expect("node 0").cpus, cpus("0-1"));
    assert_eq!(topology.problems.len(), 1);
    assert_eq!(topology.problems[0].object, format!("{NODE}/node0/cpulist"));
    assert_eq!(
        topology.problems[0].message,
        "expected the CPUs of cpumap, 0-1, found 0-3; using cpumap"
    );
}

#[test]
fn a_list_serves_where_there_is_no_mask() {
    let mut machine = machine(&["0-3"]);
    add_node(&mut machine, 0, "", 1024, "10");
    machine.remove(&format!("{NODE}/node0/cpumap"));
    machine.add_file(&format!("{NODE}/node0/cpulist"), "0-3\n");
    assert_eq!(
        read(&machine).node(NodeId(0)).expect("node 0").cpus,
        cpus("0-3")
    );
}

#[test]
fn packages_without_ids_come_from_masks_and_say_so() {
    let mut machine = machine(&["0-1", "2-3"]);
    for cpu in 0..4 {
        let path = format!("{CPU}/cpu{cpu}/topology/physical_package_id");
        machine.add_file(&path, "-1\n");
    }
    add_node(&mut machine, 0, "0-3", 1024, "10");
    let topology = read(&machine);
    let found: Vec<_> = topology
        .packages
        .iter()
        .map(|p| (p.id, p.grouped_by))
        .collect();
    assert_eq!(found, [(None, GroupedBy::Mask); 2]);
    assert_eq!(topology.packages[1].cpus, cpus("2-3"));
}

#[test]
fn ids_win_over_masks_that_split_a_package() {
    let mut machine = machine(&["0-3", "4-7"]);
    for (cpu, mask) in [(0, "3"), (1, "3"), (2, "c"), (3, "c")] {
        machine.add_file(&format!("{CPU}/cpu{cpu}/topology/core_siblings"), mask);
    }
    add_node(&mut machine, 0, "0-7", 1024, "10");
    let topology = read(&machine);
    let found: Vec<_> = topology
        .packages
        .iter()
        .map(|p| p.cpus.to_string())
        .collect();
    assert_eq!(found, ["0-3", "4-7"]);
}

#[test]
fn ids_win_over_a_mask_that_joins_two_packages_and_it_is_said() {
    let mut machine = machine(&["0-1", "2-3"]);
    for cpu in 0..4 {
        machine.add_file(&format!("{CPU}/cpu{cpu}/topology/core_siblings"), "f");
    }
    add_node(&mut machine, 0, "0-3", 1024, "10");
    let topology = read(&machine);
    let found: Vec<_> = topology
        .packages
        .iter()
        .map(|p| p.cpus.to_string())
        .collect();
    assert_eq!(found, ["0-1", "2-3"]);
    assert_eq!(topology.problems.len(), 1);
}

#[test]
fn without_a_node_directory_there_is_one_implied_node() {
    let mut machine = machine(&["0-3"]);
    machine.add_file("/proc/meminfo", "MemTotal:  2048 kB\nMemFree:  1024 kB\n");
    let topology = read(&machine);
    assert!(topology.nodes_implied);
    assert_eq!(topology.nodes.len(), 1);
    assert_eq!(topology.nodes[0].cpus, cpus("0-3"));
    assert_eq!(
        topology.nodes[0].memory_total,
        Reading::Known(Bytes(2 << 20))
    );
    assert_eq!(
        topology.distances.why(),
        Some("the kernel has no NUMA support")
    );
}

#[test]
fn offline_cpus_are_kept_apart_and_belong_to_their_node() {
    let mut machine = machine(&["0-3"]);
    add_node(&mut machine, 0, "0-3", 1024, "10");
    machine.add_file(&format!("{CPU}/online"), "0,2-3\n");
    machine.add_file(&format!("{CPU}/present"), "0-3\n");
    let topology = read(&machine);
    assert_eq!(topology.cpus.offline, cpus("1"));
    assert_eq!(topology.nodes[0].cpus, cpus("0,2-3"));
    assert_eq!(topology.nodes[0].cpus_offline, cpus("1"));
}

#[test]
fn a_memory_less_node_is_kept() {
    let mut machine = machine(&["0-1", "2-3"]);
    add_node(&mut machine, 0, "0-1", 1024, "10 21");
    add_node(&mut machine, 1, "2-3", 0, "21 10");
    let topology = read(&machine);
    let node = topology.node(NodeId(1)).expect("node 1");
    assert!(node.is_memoryless());
    assert_eq!(node.cpus, cpus("2-3"));
}

#[test]
fn an_unknown_memory_size_is_not_zero() {
    let mut machine = machine(&["0-1"]);
    add_node(&mut machine, 0, "0-1", 1024, "10");
    machine.remove(&format!("{NODE}/node0/meminfo"));
    let topology = read(&machine);
    assert!(!topology.nodes[0].is_memoryless());
    assert_eq!(
        topology.nodes[0].memory_total.why(),
        Some("no /sys/devices/system/node/node0/meminfo")
    );
}

#[test]
fn a_distance_row_of_another_length_makes_distances_absent() {
    let mut machine = machine(&["0-1", "2-3"]);
    add_node(&mut machine, 0, "0-1", 1024, "10 20 30");
    add_node(&mut machine, 1, "2-3", 1024, "20 10");
    let topology = read(&machine);
    assert_eq!(
        topology.distances.why(),
        Some("3 distances for 2 online and 0 possible nodes")
    );
    assert_eq!(
        topology.problems[0].object,
        format!("{NODE}/node0/distance")
    );
}

#[test]
fn the_kernels_hmat_values_are_read_and_zero_is_unknown() {
    let mut machine = machine(&["0-1"]);
    add_node(&mut machine, 0, "0-1", 1024, "10 17");
    add_node(&mut machine, 1, "", 1024, "17 10");
    for (id, class, latency, bandwidth) in [(0, 1, 80, 100_000), (1, 1, 0, 300_000)] {
        let folder = format!("{NODE}/node{id}/access{class}/initiators");
        machine.add_link(&format!("{folder}/node0"), "../../../node0");
        machine.add_file(&format!("{folder}/read_latency"), format!("{latency}\n"));
        machine.add_file(
            &format!("{folder}/read_bandwidth"),
            format!("{bandwidth}\n"),
        );
    }
    let topology = read(&machine);
    let access = &topology.nodes[1].access[0];
    assert_eq!(access.initiators.to_string(), "0");
    assert_eq!(access.read_latency, None);
    assert_eq!(access.read_bandwidth.map(|b| b.0), Some(300e9));
    assert_eq!(
        topology.nodes[1].memory_kind,
        Reading::Known(MemoryKind::Hbm)
    );
    assert_eq!(
        topology.nodes[0].memory_kind,
        Reading::Known(MemoryKind::Dram)
    );
}

#[test]
fn the_origin_of_a_cpu_less_node_is_told_by_its_dax_device() {
    let mut machine = machine(&["0-1"]);
    add_node(&mut machine, 0, "0-1", 1024, "10 17 17");
    add_node(&mut machine, 1, "", 1024, "17 10 17");
    add_node(&mut machine, 2, "", 1024, "17 17 10");
    for (device, node, driver, origin) in [
        (
            "dax0.0",
            1,
            "kmem",
            "../../../devices/platform/ACPI0017:00/root0/decoder0.0/region0",
        ),
        (
            "dax1.0",
            2,
            "device_dax",
            "../../../devices/LNXSYSTM:00/ndbus0/region1",
        ),
    ] {
        let link = format!("{origin}/{device}");
        machine.add_link(&format!("/sys/bus/dax/devices/{device}"), &link);
        let real = link.replace("../../..", "/sys");
        machine.add_file(&format!("{real}/target_node"), format!("{node}\n"));
        machine.add_link(
            &format!("{real}/driver"),
            &format!("/sys/bus/dax/drivers/{driver}"),
        );
    }
    let topology = read(&machine);
    assert_eq!(
        topology.nodes[1].memory_kind,
        Reading::Known(MemoryKind::Cxl)
    );
    assert!(
        topology.nodes[2].memory_kind.known().is_none(),
        "a device, not a node"
    );
}

#[test]
fn devices_take_the_node_of_a_bridge_and_never_node_0_for_minus_1() {
    let mut machine = machine(&["0-1", "2-3"]);
    add_node(&mut machine, 0, "0-1", 1024, "10 21");
    add_node(&mut machine, 1, "2-3", 1024, "21 10");
    let real = "/sys/devices/pci0000:80/0000:80:01.0";
    for (path, class, node) in [
        (real.to_owned(), "0x060400", 1),
        (format!("{real}/0000:81:00.0"), "0x020000", -1),
        (
            "/sys/devices/pci0000:00/0000:00:02.0".to_owned(),
            "0x010802",
            -1,
        ),
    ] {
        machine.add_file(&format!("{path}/class"), format!("{class}\n"));
        machine.add_file(&format!("{path}/numa_node"), format!("{node}\n"));
        machine.add_file(&format!("{path}/local_cpulist"), "0-3\n");
        let address = path.rsplit('/').next().expect("an address");
        let target = path.replace("/sys/devices", "../../../devices");
        machine.add_link(&format!("/sys/bus/pci/devices/{address}"), &target);
    }
    let net = "../../devices/pci0000:80/0000:80:01.0/0000:81:00.0/net/eth0";
    machine.add_link("/sys/class/net/eth0", net);
    let topology = read(&machine);
    let devices = topology.devices.known().expect("devices");
    assert_eq!(devices.len(), 2, "the bridge is none");
    assert_eq!(devices[0].kind, DeviceKind::Storage);
    assert_eq!(devices[0].node.why(), Some("the firmware does not say"));
    assert_eq!(devices[1].names, ["eth0"]);
    assert_eq!(devices[1].node, Reading::Known(NodeId(1)));
}

#[test]
fn a_container_sees_what_it_may_use_and_the_whole_machine() {
    let mut machine = machine(&["0-3", "4-7"]);
    add_node(&mut machine, 0, "0-3", 1024, "10 21");
    add_node(&mut machine, 1, "4-7", 1024, "21 10");
    machine.add_file(
        "/proc/self/status",
        "Name:\tx\nCpus_allowed_list:\t2-5,64\nMems_allowed_list:\t1\n",
    );
    machine.add_file("/proc/self/cgroup", "0::/a/b\n");
    machine.add_file("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    machine.add_file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    machine.add_file("/sys/fs/cgroup/a/b/memory.max", "1073741824\n");
    let allowed = read(&machine).allowed;
    assert_eq!(allowed.cpus, cpus("2-5"));
    assert_eq!(allowed.nodes.to_string(), "1");
    assert_eq!(allowed.cpu_limit.map(|limit| limit.quota_us), Some(150_000));
    assert_eq!(allowed.memory_limit, Some(Bytes(1 << 30)));
}

#[test]
fn cpuset_version_1_is_read_where_the_process_status_is_missing() {
    let mut machine = machine(&["0-3"]);
    add_node(&mut machine, 0, "0-3", 1024, "10");
    machine.add_file("/proc/self/cgroup", "3:cpuset:/job\n2:memory:/job\n");
    machine.add_file("/sys/fs/cgroup/cpuset/job/cpuset.cpus", "1-2\n");
    machine.add_file("/sys/fs/cgroup/cpuset/job/cpuset.mems", "0\n");
    machine.add_file(
        "/sys/fs/cgroup/memory/job/memory.limit_in_bytes",
        "9223372036854771712\n",
    );
    let allowed = read(&machine).allowed;
    assert_eq!(allowed.cpus, cpus("1-2"));
    assert_eq!(allowed.memory_limit, None, "the largest number is no limit");
}

#[test]
fn an_empty_machine_is_refused() {
    let error = read_topology(
        &Snapshot::default(),
        Source::Captured("empty".to_owned()),
        Detail::Fast,
    )
    .unwrap_err();
    assert!(matches!(error, ReadError::NoCpus));
}
