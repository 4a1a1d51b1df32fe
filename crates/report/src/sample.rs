//! Machines for the tests of the renderers, each named by its shape.

use homenode_topology::{
    Allowed, Cache, CacheKind, Certainty, CpuGroup, CpuLimit, Cpus, Detail, Device, DeviceKind,
    Distance, Firmware, GroupedBy, MemoryKind, Mode, Node, Problem, Processor, Source, Topology,
    Vendor, Verdict, Warning,
};
use homenode_units::{Bytes, CpuSet, NodeId, NodeMatrix, NodeSet, Reading};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

pub(crate) fn cpus(list: &str) -> CpuSet {
    CpuSet::parse_list(list).unwrap()
}

fn node(id: u32, list: &str, total: Bytes, free: Bytes) -> Node {
    let cpus = cpus(list);
    Node {
        id: NodeId(id),
        nearest_cpu_nodes: [NodeId(id)]
            .into_iter()
            .filter(|_| !cpus.is_empty())
            .collect(),
        cpus,
        cpus_offline: CpuSet::new(),
        memory_total: Reading::Known(total),
        memory_free: Reading::Known(free),
        huge_pages: Vec::new(),
        side_caches: Vec::new(),
        access: Vec::new(),
        memory_kind: Reading::absent("no evidence"),
        interleave_weight: Reading::absent("no /sys/kernel/mm/mempolicy"),
        generic_initiator: false,
    }
}

fn cpuless(id: u32, gib: u64, nearest: &[u32], kind: Option<MemoryKind>) -> Node {
    let size = Bytes(gib * GIB);
    Node {
        nearest_cpu_nodes: nearest.iter().copied().map(NodeId).collect(),
        memory_kind: kind.map_or_else(|| Reading::absent("no DAX device, no HMAT"), Reading::Known),
        ..node(id, "", size, size)
    }
}

fn group(id: u32, list: &str) -> CpuGroup {
    CpuGroup {
        id: Some(id),
        cpus: cpus(list),
        grouped_by: GroupedBy::Id,
    }
}

fn cache(level: u8, kind: CacheKind, id: u32, size: Bytes, list: CpuSet) -> Cache {
    Cache {
        level,
        kind,
        id: Some(id),
        size: Reading::Known(size),
        line_size: Some(Bytes(64)),
        ways: Some(16),
        cpus: list,
    }
}

/// A machine with these nodes and nothing else known.
fn machine(nodes: Vec<Node>) -> Topology {
    let online: CpuSet = nodes.iter().flat_map(|node| node.cpus.iter()).collect();
    let ids: NodeSet = nodes.iter().map(|node| node.id).collect();
    let memory = nodes.iter().filter_map(|node| node.memory_total.known());
    Topology {
        source: Source::Captured("sample".to_owned()),
        detail: Detail::Full,
        processor: Processor {
            architecture: Reading::Known("x86_64".to_owned()),
            vendor: Reading::Known(Vendor::Intel),
            model_name: Reading::absent("not in /proc/cpuinfo"),
            family: Reading::absent("not read"),
            model: Reading::absent("not read"),
            hypervisor: Reading::Known(false),
        },
        memory_total: Reading::Known(memory.copied().sum()),
        allowed: Allowed {
            cpus: online.clone(),
            nodes: ids,
            evidence: "/proc/self/status".to_owned(),
            cpu_limit: None,
            memory_limit: None,
        },
        cpus: Cpus {
            possible: online.clone(),
            online,
            ..Cpus::default()
        },
        packages: Vec::new(),
        dies: Vec::new(),
        clusters: Vec::new(),
        books: Vec::new(),
        drawers: Vec::new(),
        cores: Vec::new(),
        caches: Vec::new(),
        core_kinds: Vec::new(),
        nodes,
        nodes_implied: false,
        nodes_offline: NodeSet::new(),
        distances: Reading::absent("no distance file"),
        tiers: Reading::absent("needs Linux 6.1"),
        demotion_enabled: Reading::absent("needs Linux 5.15"),
        devices: Reading::Known(Vec::new()),
        memory_slots: Reading::absent("needs root"),
        firmware: Firmware {
            srat: Reading::absent("needs root"),
            slit: Reading::absent("needs root"),
            hmat: Reading::absent("needs root"),
        },
        kernel_options: Vec::new(),
        problems: Vec::new(),
    }
}

fn with_distances(mut topology: Topology, rows: &[&[u32]]) -> Topology {
    let nodes = topology.nodes.iter().map(|node| node.id).collect();
    let rows = rows
        .iter()
        .map(|row| row.iter().copied().map(Distance).collect())
        .collect();
    topology.distances = Reading::Known(NodeMatrix::from_rows(nodes, rows).unwrap());
    topology
}

/// Adds cores of two threads: each node's list is cut in two halves, the n-th of each a core.
fn with_smt_cores(mut topology: Topology) -> Topology {
    for node in &topology.nodes {
        let ids: Vec<_> = node.cpus.iter().collect();
        let half = ids.len() / 2;
        for (index, pair) in (0u32..).zip(ids[..half].iter().zip(&ids[half..])) {
            topology.cores.push(CpuGroup {
                id: Some(index),
                cpus: [*pair.0, *pair.1].into_iter().collect(),
                grouped_by: GroupedBy::Id,
            });
        }
    }
    topology.cores.sort_by_key(|core| core.cpus.lowest());
    topology
}

fn with_l3(mut topology: Topology, size: Bytes, lists: &[&str]) -> Topology {
    for (id, list) in (0u32..).zip(lists) {
        let cache = cache(3, CacheKind::Unified, id, size, cpus(list));
        topology.caches.push(cache);
    }
    topology
}

fn with_packages(mut topology: Topology, lists: &[&str]) -> Topology {
    topology.packages = (0u32..)
        .zip(lists)
        .map(|(id, list)| group(id, list))
        .collect();
    topology
}

/// A desktop: 1 node, 8 cores of 2 threads, all cache levels.
pub(crate) fn single() -> Topology {
    let size = Bytes(31 * GIB + 200 * MIB);
    let free = Bytes(22 * GIB);
    let topology = machine(vec![node(0, "0-15", size, free)]);
    let topology = with_smt_cores(with_distances(topology, &[&[10]]));
    let mut topology = with_l3(
        with_packages(topology, &["0-15"]),
        Bytes(32 * MIB),
        &["0-15"],
    );
    let name = "AMD Ryzen 7 5800X 8-Core Processor".to_owned();
    topology.processor.model_name = Reading::Known(name);
    topology.processor.vendor = Reading::Known(Vendor::Amd);
    for (id, core) in (0u32..).zip(topology.cores.clone()) {
        let kib = |size: u64| Bytes(size * 1024);
        let list = || core.cpus.clone();
        topology.caches.extend([
            cache(1, CacheKind::Data, id, kib(32), list()),
            cache(1, CacheKind::Instruction, id, kib(32), list()),
            cache(2, CacheKind::Unified, id, kib(512), list()),
        ]);
    }
    topology
}

/// Two sockets of 12 cores, the memory use of the numactl example in the reference (T17, T32).
pub(crate) fn two_nodes() -> Topology {
    let lists = ["0-11,24-35", "12-23,36-47"];
    let mib = |size: u64| Bytes(size * MIB);
    let topology = machine(vec![
        node(0, lists[0], mib(130_669), mib(130_669 - 17_784)),
        node(1, lists[1], mib(131_072), mib(131_072 - 28_284)),
    ]);
    let topology = with_distances(topology, &[&[10, 21], &[21, 10]]);
    let topology = with_smt_cores(with_packages(topology, &lists));
    let mut topology = with_l3(topology, Bytes(30 * MIB), &lists);
    let name = "Intel(R) Xeon(R) CPU E5-2690 v3 @ 2.60GHz".to_owned();
    topology.processor.model_name = Reading::Known(name);
    topology
}

/// Four sockets in a ring: two neighbours at 16, the opposite one at 22.
pub(crate) fn ring4() -> Topology {
    let lists = ["0-7,32-39", "8-15,40-47", "16-23,48-55", "24-31,56-63"];
    let nodes = (0u32..).zip(lists);
    let nodes = nodes.map(|(id, list)| node(id, list, Bytes(64 * GIB), Bytes(48 * GIB)));
    let topology = machine(nodes.collect());
    let rows: [&[u32]; 4] = [
        &[10, 16, 22, 16],
        &[16, 10, 16, 22],
        &[22, 16, 10, 16],
        &[16, 22, 16, 10],
    ];
    let topology = with_smt_cores(with_distances(topology, &rows));
    with_l3(with_packages(topology, &lists), Bytes(20 * MIB), &lists)
}

/// CPU numbers `first`, `first + 4`, … as SNC firmware deals them out.
fn dealt(first: u32, count: u32) -> String {
    let ids: Vec<String> = (0..count).map(|i| (first + 4 * i).to_string()).collect();
    ids.join(",")
}

/// Two packages in SNC-2, nodes 0 and 2 on package 0, and four CPU-less nodes.
pub(crate) fn snc_cpuless() -> Topology {
    let lists: Vec<String> = (0..4).map(|first| dealt(first, 28)).collect();
    let mut nodes: Vec<Node> = (0u32..)
        .zip(&lists)
        .map(|(id, list)| node(id, list, Bytes(96 * GIB), Bytes(80 * GIB)))
        .collect();
    nodes.extend((0..4).map(|id| cpuless(id + 4, 252, &[id], None)));
    let rows: [&[u32]; 8] = [
        &[10, 21, 11, 21, 17, 28, 28, 28],
        &[21, 10, 21, 11, 28, 17, 28, 28],
        &[11, 21, 10, 21, 28, 28, 17, 28],
        &[21, 11, 21, 10, 28, 28, 28, 17],
        &[17, 28, 28, 28, 10, 28, 28, 28],
        &[28, 17, 28, 28, 28, 10, 28, 28],
        &[28, 28, 17, 28, 28, 28, 10, 28],
        &[28, 28, 28, 17, 28, 28, 28, 10],
    ];
    let packages = [
        format!("{},{}", lists[0], lists[2]),
        format!("{},{}", lists[1], lists[3]),
    ];
    let packages = [packages[0].as_str(), packages[1].as_str()];
    let topology = with_smt_cores(with_distances(machine(nodes), &rows));
    with_l3(
        with_packages(topology, &packages),
        Bytes(38 * MIB + 512 * 1024),
        &packages,
    )
}

/// Four packages of two nodes, node ids with gaps, five pairs of distances.
pub(crate) fn sparse() -> Topology {
    let ids = [0u32, 1, 2, 33, 34, 45, 72, 73];
    let lists: Vec<String> = (0..8).map(|i| format!("{}-{}", 6 * i, 6 * i + 5)).collect();
    let nodes = ids.iter().zip(&lists).map(|(&id, list)| {
        let gib = if id % 2 == 0 && id != 34 { 8 } else { 16 };
        node(id, list, Bytes(gib * GIB), Bytes(gib * GIB - 300 * MIB))
    });
    let rows: [&[u32]; 8] = [
        &[10, 16, 16, 22, 16, 22, 16, 22],
        &[16, 10, 22, 16, 16, 22, 22, 16],
        &[16, 22, 10, 16, 16, 16, 16, 16],
        &[22, 16, 16, 10, 16, 16, 22, 22],
        &[16, 16, 16, 16, 10, 16, 16, 22],
        &[22, 22, 16, 16, 16, 10, 22, 16],
        &[16, 22, 16, 22, 16, 22, 10, 16],
        &[22, 16, 16, 22, 22, 16, 16, 10],
    ];
    let topology = with_distances(machine(nodes.collect()), &rows);
    let topology = with_packages(topology, &["0-11", "12-23", "24-35", "36-47"]);
    let lists: Vec<&str> = lists.iter().map(String::as_str).collect();
    let mut topology = with_l3(topology, Bytes(5 * MIB), &lists);
    topology.cores = (0u32..48).map(|i| group(i, &i.to_string())).collect();
    topology
}

/// Four nodes of which two have no memory, and a generic initiator with neither.
pub(crate) fn memoryless() -> Topology {
    let mut nodes = vec![
        node(0, "0-7", Bytes(64 * GIB), Bytes(60 * GIB)),
        node(1, "8-15", Bytes(0), Bytes(0)),
        node(2, "16-23", Bytes(64 * GIB), Bytes(GIB)),
        node(3, "24-31", Bytes(0), Bytes(0)),
        cpuless(4, 0, &[0], None),
    ];
    nodes[4].generic_initiator = true;
    let rows: [&[u32]; 5] = [
        &[10, 16, 32, 32, 20],
        &[16, 10, 32, 32, 20],
        &[32, 32, 10, 16, 255],
        &[32, 32, 16, 10, 255],
        &[20, 20, 255, 255, 10],
    ];
    let topology = with_distances(machine(nodes), &rows);
    with_packages(topology, &["0-15", "16-31"])
}

/// Two nodes with devices on each, and some whose node the machine does not say.
pub(crate) fn devices() -> Topology {
    let mut topology = two_nodes();
    let device = |address: &str, kind, names: &[&str], node: Option<u32>| Device {
        address: address.to_owned(),
        kind,
        names: names.iter().map(|&name| name.to_owned()).collect(),
        node: node.map_or_else(
            || Reading::absent("numa_node is -1"),
            |id| Reading::Known(NodeId(id)),
        ),
        cpus: CpuSet::new(),
    };
    topology.devices = Reading::Known(vec![
        device("0000:03:00.0", DeviceKind::Storage, &["nvme0n1"], Some(0)),
        device(
            "0000:04:00.0",
            DeviceKind::Network,
            &["eth0", "mlx5_0"],
            Some(0),
        ),
        device("0000:05:00.0", DeviceKind::Display, &["card0"], Some(0)),
        device("0000:81:00.0", DeviceKind::InfiniBand, &["mlx5_1"], Some(1)),
        device("0000:82:00.0", DeviceKind::Accelerator, &[], Some(1)),
        device("0000:ff:00.0", DeviceKind::Storage, &["sda"], None),
        device("0000:ff:01.0", DeviceKind::Network, &[], None),
    ]);
    topology
}

/// What strains a drawing: ragged lists, long names, many devices, nodes that belong nowhere.
pub(crate) fn crowded() -> Topology {
    let mut topology = devices();
    topology.distances = Reading::absent("no distance file");
    let ragged = "0,3,5-7,9,14,17-19,26,30-33,35,41,43-44,46";
    topology.nodes[0].cpus = cpus(ragged);
    topology.nodes.push(cpuless(2, 4, &[], None));
    topology.nodes.push(cpuless(3, 4, &[2], None));
    let long = "a-device-with-a-name-that-nobody-would-give-it".to_owned();
    if let Reading::Known(devices) = &mut topology.devices {
        for index in 0..6 {
            devices.push(Device {
                address: format!("0000:a{index}:00.0"),
                kind: DeviceKind::Network,
                names: vec![long.clone()],
                node: Reading::Known(NodeId(2)),
                cpus: CpuSet::new(),
            });
        }
    }
    topology
}

/// Two packages of two nodes whose distances across differ, 10 to 33, after Kunpeng 920.
pub(crate) fn uneven() -> Topology {
    let lists = ["0-31", "32-63", "64-95", "96-127"];
    let nodes = (0u32..).zip(lists);
    let nodes = nodes.map(|(id, list)| node(id, list, Bytes(126 * GIB), Bytes(120 * GIB)));
    let rows: [&[u32]; 4] = [
        &[10, 16, 32, 33],
        &[16, 10, 25, 32],
        &[32, 25, 10, 16],
        &[33, 32, 16, 10],
    ];
    let topology = with_distances(machine(nodes.collect()), &rows);
    with_l3(
        with_packages(topology, &["0-63", "64-127"]),
        Bytes(32 * MIB),
        &lists,
    )
}

/// 64 nodes of 4 CPUs behind a hierarchy of routers, five distances.
pub(crate) fn big() -> Topology {
    let nodes = (0u64..).zip(0u32..64).map(|(extra, id)| {
        let list = format!("{}-{}", 4 * id, 4 * id + 3);
        let total = Bytes(7875 * MIB + extra % 3 * 4 * MIB);
        node(id, &list, total, Bytes(6900 * MIB + extra * 3 * MIB))
    });
    let distance = |a: u32, b: u32| match a ^ b {
        0 => 10,
        1 => 12,
        2..8 => 14,
        8..32 => 18,
        _ => 34,
    };
    let rows: Vec<Vec<u32>> = (0..64)
        .map(|a| (0..64).map(|b| distance(a, b)).collect())
        .collect();
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    let packages: Vec<String> = (0..128)
        .map(|i| format!("{}-{}", 2 * i, 2 * i + 1))
        .collect();
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let topology = with_distances(machine(nodes.collect()), &rows);
    with_l3(
        with_packages(topology, &packages),
        Bytes(9 * MIB),
        &packages,
    )
}

/// POWER9: two sockets and six GPU nodes with ids 250 to 255.
pub(crate) fn gpus() -> Topology {
    let mut nodes = vec![
        node(0, "0-15", Bytes(256 * GIB), Bytes(200 * GIB)),
        node(8, "16-31", Bytes(256 * GIB), Bytes(210 * GIB)),
    ];
    nodes.extend((250..256).map(|id| {
        let home = if id < 253 { 8 } else { 0 };
        cpuless(id, 16, &[home], Some(MemoryKind::Gpu))
    }));
    let ids: Vec<u32> = nodes.iter().map(|node| node.id.0).collect();
    let home = |id: u32| id == 8 || (250..253).contains(&id);
    let distance = |a: u32, b: u32| match (a == b, a.max(b) < 250) {
        (true, _) => 10,
        (false, true) => 40,
        (false, false) if home(a) == home(b) && a.min(b) < 250 => 80,
        (false, false) => 120,
    };
    let rows: Vec<Vec<u32>> = ids
        .iter()
        .map(|&a| ids.iter().map(|&b| distance(a, b)).collect())
        .collect();
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    with_packages(with_distances(machine(nodes), &rows), &["0-15", "16-31"])
}

/// Naples read from a tree without memory and distances: 8 nodes, 2 L3 each.
pub(crate) fn nothing_but_cpus() -> Topology {
    let lists: Vec<String> = (0..8)
        .map(|i| format!("{}-{},{}-{}", 6 * i, 6 * i + 5, 6 * i + 48, 6 * i + 53))
        .collect();
    let nodes = (0u32..).zip(&lists).map(|(id, list)| Node {
        memory_total: Reading::absent("no node meminfo"),
        memory_free: Reading::absent("no node meminfo"),
        ..node(id, list, Bytes(0), Bytes(0))
    });
    let halves: Vec<String> = (0..16)
        .map(|i| format!("{}-{},{}-{}", 3 * i, 3 * i + 2, 3 * i + 48, 3 * i + 50))
        .collect();
    let halves: Vec<&str> = halves.iter().map(String::as_str).collect();
    let mut topology = with_l3(machine(nodes.collect()), Bytes(8 * MIB), &halves);
    topology.detail = Detail::Fast;
    topology.memory_total = Reading::absent("no /proc/meminfo");
    topology.devices = Reading::absent("not read");
    with_packages(topology, &["0-23,48-71", "24-47,72-95"])
}

/// Two nodes seen from a container, with a contradiction in the files.
pub(crate) fn contained() -> Topology {
    let mut topology = two_nodes();
    topology.allowed = Allowed {
        cpus: cpus("0-3,24-27"),
        nodes: [NodeId(0)].into_iter().collect(),
        evidence: "/proc/self/status".to_owned(),
        cpu_limit: Some(CpuLimit {
            quota_us: 250_000,
            period_us: 100_000,
        }),
        memory_limit: Some(Bytes(16 * GIB)),
    };
    topology.memory_total = Reading::Known(Bytes(128 * GIB));
    topology.problems.push(Problem {
        object: "/sys/devices/system/node/node1/cpulist".to_owned(),
        message: "expected the CPUs of cpumap, 12-23,36-47, found 12-23; the map wins".to_owned(),
    });
    topology
}

fn verdict_of(mode: Mode, certainty: Certainty, headline: &str, evidence: &[&str]) -> Verdict {
    Verdict {
        mode,
        certainty,
        headline: headline.to_owned(),
        evidence: evidence.iter().map(|&line| line.to_owned()).collect(),
        undecided: None,
        warnings: Vec::new(),
    }
}

pub(crate) fn uniform() -> Verdict {
    let headline = "1 package, 1 node: all memory is equally far (UMA)";
    verdict_of(
        Mode::Uniform,
        Certainty::Certain,
        headline,
        &["1 node in 1 package"],
    )
}

pub(crate) fn plain(count: usize) -> Verdict {
    let headline = format!("{count} packages, a node each: plain NUMA");
    let evidence = [format!("{count} nodes with CPUs, {count} packages by id")];
    verdict_of(Mode::Plain, Certainty::Certain, &headline, &[&evidence[0]])
}

pub(crate) fn snc() -> Verdict {
    let mode = Mode::Snc {
        nodes_per_package: 2,
    };
    let headline = "2 packages, 2 nodes each: sub-NUMA clustering (SNC-2)";
    let evidence = [
        "4 nodes with CPUs in 2 packages, 2 in each",
        "each of the 4 nodes is a part of one L3 of 56 CPUs",
    ];
    let mut verdict = verdict_of(mode, Certainty::Certain, headline, &evidence);
    verdict.warnings.push(Warning {
        subject: "nodes 4-7".to_owned(),
        message: "have memory and no CPUs, and no file says what kind of memory it is".to_owned(),
        advice: Some("homenode measure bandwidth tells slow memory from fast".to_owned()),
    });
    verdict
}

pub(crate) fn l3_as_numa() -> Verdict {
    let mode = Mode::L3AsNuma {
        nodes_per_package: 2,
    };
    let headline = "4 packages, 2 nodes each, a node per L3: Magny-Cours or Interlagos";
    let evidence = [
        "8 nodes with CPUs in 4 packages, 2 in each",
        "each node is one L3",
    ];
    let mut verdict = verdict_of(mode, Certainty::CannotTell, headline, &evidence);
    verdict.undecided = Some(
        "two dies in a package and L3 as NUMA look the same in these files; homenode measure \
         bandwidth tells them apart"
            .to_owned(),
    );
    verdict
}
