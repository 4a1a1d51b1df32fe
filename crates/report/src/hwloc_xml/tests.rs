use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use homenode_topology::{CoreKind, SideCache, Source, parse_hwloc_xml, parse_synthetic};
use homenode_units::{Bytes, NodeId, NodeSet};

use super::*;

fn machine(text: &str) -> Topology {
    parse_synthetic(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn cpus(list: &str) -> CpuSet {
    CpuSet::parse_list(list).unwrap()
}

fn read(xml: &str) -> Topology {
    parse_hwloc_xml(xml.as_bytes(), "test").unwrap_or_else(|error| panic!("{error}\n{xml}"))
}

/// Everything that the format carries comes back, whatever the rest is.
fn assert_round_trip(topology: &Topology) -> Topology {
    let xml = to_hwloc_xml(topology);
    let back = read(&xml);
    assert_eq!(back.detail, topology.detail);
    assert_eq!(back.cpus, topology.cpus);
    assert_eq!(back.packages, topology.packages);
    assert_eq!(back.dies, topology.dies);
    assert_eq!(back.clusters, topology.clusters);
    assert_eq!(back.books, topology.books);
    assert_eq!(back.drawers, topology.drawers);
    assert_eq!(back.cores, topology.cores);
    assert_eq!(back.caches, topology.caches);
    assert_eq!(back.core_kinds, topology.core_kinds);
    assert_eq!(back.nodes_offline, topology.nodes_offline);
    assert_eq!(back.distances, topology.distances);
    assert_eq!(back.memory_total.known(), topology.memory_total.known());
    assert_eq!(back.kernel_options, topology.kernel_options);
    assert_eq!(back.allowed.cpus, topology.allowed.cpus);
    assert_eq!(back.allowed.nodes, topology.allowed.nodes);
    assert_eq!(back.devices.known(), topology.devices.known());
    assert_eq!(back.node_ids(), topology.node_ids());
    for (node, expected) in back.nodes.iter().zip(&topology.nodes) {
        assert_eq!(node.cpus, expected.cpus, "node {}", node.id);
        assert_eq!(node.cpus_offline, expected.cpus_offline);
        assert_eq!(
            node.nearest_cpu_nodes, expected.nearest_cpu_nodes,
            "node {}",
            node.id
        );
        assert_eq!(node.memory_total, expected.memory_total);
        assert_eq!(node.memory_free.known(), expected.memory_free.known());
        assert_eq!(node.memory_kind.known(), expected.memory_kind.known());
        assert_eq!(
            node.interleave_weight.known(),
            expected.interleave_weight.known()
        );
        assert_eq!(node.generic_initiator, expected.generic_initiator);
        assert_eq!(node.access, expected.access);
        assert_eq!(node.side_caches, expected.side_caches);
    }
    back
}

/// What lstopo says about a file, through each of its two XML parsers; `None`, and a line that
/// says so, where there is no lstopo.
fn lstopo(xml: &str, format: &[&str]) -> Option<String> {
    let mut answers = Vec::new();
    for libxml in ["0", "1"] {
        let child = Command::new("lstopo-no-graphics")
            .args(["--if", "xml", "-i", "-"])
            .args(format)
            .env("LC_ALL", "C")
            .env("HWLOC_LIBXML", libxml)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: cannot run lstopo-no-graphics: {error}");
                return None;
            }
        };
        child
            .stdin
            .take()
            .unwrap()
            .write_all(xml.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && complaints.is_empty(),
            "{complaints}\n{xml}"
        );
        answers.push(String::from_utf8(output.stdout).unwrap());
    }
    assert_eq!(answers[0], answers[1], "the parsers of hwloc differ");
    answers.pop()
}

/// lstopo reads our file, writes its own, and that one shows the same machine.
fn assert_lstopo_keeps(topology: &Topology) {
    let Some(xml) = lstopo(&to_hwloc_xml(topology), &["--of", "xml", "--no-factorize"]) else {
        return;
    };
    let back = read(&xml);
    assert_eq!(back.cpus, topology.cpus);
    assert_eq!(back.packages, topology.packages);
    assert_eq!(back.dies, topology.dies);
    assert_eq!(back.clusters, topology.clusters);
    assert_eq!(back.cores, topology.cores);
    assert_eq!(back.caches, topology.caches);
    assert_eq!(back.distances, topology.distances);
    assert_eq!(back.devices.known(), topology.devices.known());
    let facts = |topology: &Topology| -> Vec<_> {
        let nodes = topology.nodes.iter().map(|node| {
            (
                node.id,
                node.cpus.clone(),
                node.nearest_cpu_nodes.clone(),
                node.memory_total.clone(),
                node.side_caches.clone(),
                node.access.len(),
            )
        });
        nodes.collect()
    };
    assert_eq!(facts(&back), facts(topology));
}

#[test]
fn a_small_machine_line_by_line() {
    let topology = machine(
        "(distances=17) pack:1 [numa(memory=4096)] [numa(memory=0 cpuless)] l3:1(size=1MiB) pu:2",
    );
    let sets = |cpus: &str, nodes: &str| {
        format!(
            r#"cpuset="{cpus}" complete_cpuset="{cpus}" nodeset="{nodes}" complete_nodeset="{nodes}""#
        )
    };
    let all = sets("0x00000003", "0x00000003");
    let expected = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003" gp_index="1">
    <info name="HomenodeMemoryTotal" value="4096"/>
    <object type="Package" os_index="0" {all} gp_index="2">
      <object type="NUMANode" os_index="0" {} gp_index="6" local_memory="4096"/>
      <object type="NUMANode" os_index="1" {} gp_index="7">
        <info name="HomenodeCpus" value=""/>
        <info name="HomenodeNearestCpuNodes" value="0"/>
        <info name="HomenodeMemory" value="0"/>
      </object>
      <object type="L3Cache" {all} gp_index="3" cache_size="1048576" depth="3" cache_linesize="64" cache_associativity="0" cache_type="0">
        <object type="PU" os_index="0" {} gp_index="4"/>
        <object type="PU" os_index="1" {} gp_index="5"/>
      </object>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 1 </indexes>
    <u64values length="12">10 17 17 10 </u64values>
  </distances2>
</topology>
"#,
        sets("0x00000003", "0x00000001"),
        sets("0x00000003", "0x00000002"),
        sets("0x00000001", "0x00000003"),
        sets("0x00000002", "0x00000003"),
    );
    assert_eq!(to_hwloc_xml(&topology), expected);
}

#[test]
fn lstopo_shows_the_machine_that_was_written() {
    let topology = machine("pack:2 [numa(memory=16GiB)] l3:1 core:2 pu:2");
    let Some(shown) = lstopo(&to_hwloc_xml(&topology), &["--of", "console"]) else {
        return;
    };
    assert_eq!(
        shown,
        "Machine (32GB total)\n  Package L#0\n    NUMANode L#0 (P#0 16GB)\n    L3 L#0 (16MB)\n      \
         Core L#0\n        PU L#0 (P#0)\n        PU L#1 (P#1)\n      Core L#1\n        PU L#2 \
         (P#2)\n        PU L#3 (P#3)\n  Package L#1\n    NUMANode L#1 (P#1 16GB)\n    L3 L#1 \
         (16MB)\n      Core L#2\n        PU L#4 (P#4)\n        PU L#5 (P#5)\n      Core L#3\n        \
         PU L#6 (P#6)\n        PU L#7 (P#7)\n"
    );
}

#[test]
fn an_l3_over_several_nodes_holds_a_group_for_each() {
    let topology = machine("(distances=21) pack:2 l3:1 numa:2(memory=8GiB) core:2 pu:2");
    let xml = to_hwloc_xml(&topology);
    assert_eq!(xml.matches(r#"kind="1001""#).count(), 4);
    let back = assert_round_trip(&topology);
    assert_eq!(back.problems, []);
    assert_lstopo_keeps(&topology);
}

#[test]
fn cpuless_and_memoryless_nodes_stay() {
    let topology = machine(
        "(distances=20) [numa(cpuless memory=1GiB)] pack:2 [numa(cpuless memory=2GiB)] \
         group:2 [numa(memory=0)] [numa(memory=4GiB memorysidecachesize=1MiB)] core:2 pu:1",
    );
    assert_round_trip(&topology);
    assert_lstopo_keeps(&topology);
}

#[test]
fn everything_that_a_full_reading_fills() {
    let mut topology = machine("(distances=21) pack:2 [numa(memory=1GiB)] die:2 l3:1 core:2 pu:2");
    topology.clusters.clone_from(&topology.cores);
    topology.books.push(topology.packages[0].clone());
    topology.drawers.push(topology.packages[0].clone());
    topology.cpus.offline = cpus("16-17");
    topology.cpus.possible = cpus("0-31");
    topology.cpus.isolated = cpus("3");
    topology.nodes[1].cpus_offline = cpus("16-17");
    topology.nodes[1].memory_free = Reading::Known(Bytes(77));
    topology.nodes[1].memory_kind = Reading::Known(MemoryKind::Hbm);
    topology.nodes[1].interleave_weight = Reading::Known(3);
    topology.nodes[1].generic_initiator = true;
    topology.nodes[1].side_caches = [1, 2]
        .map(|level| SideCache {
            level,
            size: Reading::Known(Bytes(1 << 30)),
            line_size: None,
        })
        .to_vec();
    topology.caches[0].ways = Some(0);
    topology.caches[1].ways = Some(16);
    topology.caches[1].id = Some(7);
    // Any initiator may be faster than CPUs; hwloc, without classes, gets what CPUs see.
    topology.nodes[1].access = [(0, 60.5), (1, 80.5)]
        .map(|(class, read_latency)| Access {
            class,
            initiators: NodeSet::parse_list("1").unwrap(),
            read_latency: Some(Nanoseconds(read_latency)),
            write_latency: None,
            read_bandwidth: Some(BytesPerSecond(1e9 / 3.0)),
            write_bandwidth: Some(BytesPerSecond(2e9)),
        })
        .to_vec();
    topology.nodes_offline = NodeSet::parse_list("2-3").unwrap();
    topology.core_kinds = [("0-7", "capacity 1024"), ("8-15", "capacity 446")]
        .map(|(list, name)| CoreKind {
            cpus: cpus(list),
            name: name.to_owned(),
        })
        .to_vec();
    topology.processor.vendor = Reading::Known(Vendor::Amd);
    topology.processor.model_name = Reading::Known("AMD \"EPYC\" <7713> & more".to_owned());
    topology.processor.family = Reading::Known(25);
    topology.processor.model = Reading::Known(1);
    topology.processor.architecture = Reading::Known("x86_64".to_owned());
    topology.processor.hypervisor = Reading::Known(false);
    topology.kernel_options = vec!["numa=off".to_owned(), "isolcpus=3".to_owned()];
    topology.allowed.cpus = cpus("0-1");
    topology.allowed.nodes = NodeSet::parse_list("1").unwrap();
    topology.check().unwrap();
    let back = assert_round_trip(&topology);
    assert_eq!(back.processor, topology.processor);
    assert_eq!(back.problems, []);
    // lstopo leaves out what the writer of the file might not use.
    topology.allowed.cpus.clone_from(&topology.cpus.online);
    topology.allowed.nodes = topology.node_ids();
    let Some(shown) = lstopo(&to_hwloc_xml(&topology), &["--of", "console", "--memattrs"]) else {
        return;
    };
    assert!(shown.contains("name `ReadBandwidth' flags 5"), "{shown}");
    assert!(shown.contains("= 333 from cpuset 0x0000ff00"), "{shown}");
    assert!(shown.contains("= 80 from cpuset 0x0000ff00"), "{shown}");
}

/// What hwloc's users ask for: a matrix of measured latencies, and attributes that its
/// `get_best_target` can use, where the firmware has none.
#[test]
fn measured_latencies_are_a_matrix_and_attributes() {
    let topology = machine("(distances=21) pack:2 [numa(memory=1GiB)] core:2 pu:2");
    let measured = crate::measure::tests::xeon();
    let xml = to_hwloc_xml_measured(&topology, Some(&measured));
    assert!(xml.contains("name=\"MeasuredLatency\""), "{xml}");
    assert!(xml.contains("80 136 136 80 "), "{xml}");
    assert_eq!(
        to_hwloc_xml_measured(&topology, None),
        to_hwloc_xml(&topology)
    );
    // What is not a claim of the firmware does not come back as one.
    let back = read(&xml);
    assert_eq!(back.distances, topology.distances);
    assert!(back.nodes.iter().all(|node| node.access.is_empty()));
    assert_eq!(back.problems, []);
    let Some(shown) = lstopo(&xml, &["--of", "console", "--distances"]) else {
        return;
    };
    assert!(shown.contains("MeasuredLatency"), "{shown}");
    let Some(shown) = lstopo(&xml, &["--of", "console", "--memattrs"]) else {
        return;
    };
    assert!(shown.contains("name `ReadLatency' flags 6"), "{shown}");
    assert!(shown.contains("= 136 from cpuset"), "{shown}");
    // Also where hwloc has read and written the file in between.
    let Some(copied) = lstopo(&xml, &["--of", "xml"]) else {
        return;
    };
    assert!(copied.contains("<memattr name=\"ReadLatency\""), "{copied}");
    let back = read(&copied);
    assert!(back.nodes.iter().all(|node| node.access.is_empty()));
}

fn device(address: &str, kind: DeviceKind, names: &[&str], node: Reading<NodeId>) -> Device {
    Device {
        address: address.to_owned(),
        kind,
        names: names.iter().map(|&name| name.to_owned()).collect(),
        node,
        cpus: CpuSet::new(),
    }
}

#[test]
fn devices_hang_at_their_node() {
    let mut topology = machine("(distances=21) pack:2 [numa(memory=1GiB)] core:2 pu:2");
    let unknown = || Reading::absent("firmware without _PXM");
    topology.devices = Reading::Known(vec![
        device("0000:00:1f.2", DeviceKind::Storage, &["sda"], unknown()),
        device(
            "0000:02:00.0",
            DeviceKind::Network,
            &["eth0"],
            Reading::Known(NodeId(0)),
        ),
        device(
            "0000:81:00.0",
            DeviceKind::InfiniBand,
            &["ib0", "mlx5_0"],
            Reading::Known(NodeId(1)),
        ),
        device(
            "0001:01:00.0",
            DeviceKind::Display,
            &[],
            Reading::Known(NodeId(1)),
        ),
    ]);
    let xml = to_hwloc_xml(&topology);
    let mut back = read(&xml);
    // The file has the order of the tree: what hangs nowhere comes last.
    if let Reading::Known(devices) = &mut back.devices {
        devices.sort_by(|a, b| a.address.cmp(&b.address));
    }
    assert_eq!(back.devices, topology.devices);
    let Some(shown) = lstopo(&xml, &["--of", "console"]) else {
        return;
    };
    for line in [
        "PCI 0000:02:00.0 (Network)",
        "Net \"eth0\"",
        "OpenFabrics \"mlx5_0\"",
        "Net \"ib0\"",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}

#[test]
fn a_fast_reading_has_cpus_right_below_what_was_read() {
    let mut topology = machine("(distances=21) pack:2 [numa(memory=1GiB)] l3:1 core:2 pu:2");
    topology.detail = Detail::Fast;
    topology.cores.clear();
    assert_round_trip(&topology);
    assert_lstopo_keeps(&topology);
}

#[test]
fn one_node_keeps_its_distance_and_unknown_sizes_their_reason() {
    let mut topology = machine("(distances=21) pack:1 pu:2");
    topology.nodes[0].memory_total = Reading::absent("no meminfo");
    let back = assert_round_trip(&topology);
    assert_eq!(back.distances, topology.distances);
    assert_eq!(back.nodes[0].memory_total.why(), Some("no meminfo"));
}

#[test]
fn overlapping_nodes_load_and_come_back() {
    let mut topology = machine("(distances=10) pack:2 [numa(memory=1GiB)] core:2 pu:1");
    // The same CPUs in both, then CPUs of both packages.
    for second in ["0-1", "1-2", "0-3"] {
        topology.nodes[1].cpus = cpus(second);
        topology.check().unwrap();
        let back = read(&to_hwloc_xml(&topology));
        assert_eq!(back.nodes[0].cpus, cpus("0-1"));
        assert_eq!(back.nodes[1].cpus, cpus(second));
        let shown = lstopo(&to_hwloc_xml(&topology), &["--of", "console"]);
        assert!(shown.is_none_or(|shown| shown.matches("NUMANode").count() == 2));
    }
}

#[test]
fn a_cache_across_packages_is_left_out_and_said() {
    let mut topology = machine("pack:2 [numa(memory=1GiB)] l3:1 core:2 pu:1");
    topology.caches[0].cpus = cpus("0-2");
    topology.check().unwrap();
    let back = read(&to_hwloc_xml(&topology));
    let said: Vec<_> = back
        .problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect();
    assert_eq!(
        said,
        [
            "what could not be expressed: L3 Unified cache of CPUs 0-2 lies across package 1 of CPUs \
          2-3"
        ]
    );
    assert_eq!(back.packages, topology.packages);
    assert_eq!(back.caches, topology.caches[1..]);
    assert!(lstopo(&to_hwloc_xml(&topology), &["--of", "console"]).is_none_or(|s| !s.is_empty()));
}

#[test]
fn devices_without_a_pci_address_are_said() {
    let mut topology = machine("pu:1");
    let node = Reading::Known(NodeId(0));
    topology.devices = Reading::Known(vec![device("1", DeviceKind::Other, &[], node)]);
    let back = read(&to_hwloc_xml(&topology));
    assert_eq!(
        back.problems[0].message,
        "what could not be expressed: device `1`: no PCI address"
    );
}

#[test]
fn children_stand_in_the_order_of_their_cpus_whatever_their_size() {
    let mut topology = machine("pack:2 [numa(memory=1GiB)] core:2 pu:1");
    topology.packages[0].cpus = cpus("0");
    topology.packages[1].cpus = cpus("1-3");
    topology.nodes[0].cpus = cpus("0");
    topology.nodes[1].cpus = cpus("1-3");
    topology.check().unwrap();
    let xml = to_hwloc_xml(&topology);
    let place = |id: u32| xml.find(&format!(r#""Package" os_index="{id}""#)).unwrap();
    assert!(place(0) < place(1), "{xml}");
    assert_lstopo_keeps(&topology);
}

#[test]
fn objects_with_the_same_cpus_nest_as_in_hwloc() {
    let mut topology = machine("pack:1 l3:1 l2:1 l1d:1 l1i:1 core:1 pu:2");
    topology.clusters.clone_from(&topology.packages);
    topology.dies.clone_from(&topology.packages);
    let xml = to_hwloc_xml(&topology);
    let types: Vec<&str> = xml
        .split("<object type=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert_eq!(
        types,
        [
            "Machine", "Package", "NUMANode", "Die", "L3Cache", "Group", "L2Cache", "L1Cache",
            "L1iCache", "Core", "PU", "PU"
        ]
    );
    assert_round_trip(&topology);
}

#[test]
fn without_packages_the_processor_stands_at_the_machine() {
    let mut topology = machine("core:1 pu:2");
    topology.processor.vendor = Reading::Known(Vendor::Other("IBM".to_owned()));
    assert_eq!(
        read(&to_hwloc_xml(&topology)).processor.vendor,
        topology.processor.vendor
    );
}

/// The files that lstopo wrote, in the tests of the reader.
const FIXTURES: [&str; 3] = [
    include_str!("../../../topology/tests/fixtures/8cpu-2p2n2c-l3.xml"),
    include_str!("../../../topology/tests/fixtures/4cpu-1p4n-two-nodes-per-group.xml"),
    include_str!("../../../topology/tests/fixtures/8cpu-2p4n-snc-attributes.xml"),
];

#[test]
fn what_hwloc_wrote_comes_back_and_looks_the_same() {
    for fixture in FIXTURES {
        let topology = read(fixture);
        assert!(matches!(topology.source, Source::HwlocXml(_)));
        assert_round_trip(&topology);
        let ours = lstopo(&to_hwloc_xml(&topology), &["--of", "console"]);
        let theirs = lstopo(fixture, &["--of", "console"]);
        assert_eq!(ours, theirs);
    }
}

prop_compose! {
    /// A synthetic description with levels in the usual order.
    fn description()(
        packages in 1usize..4,
        dies in prop::option::of(1usize..3),
        nodes in prop::collection::vec((0u64..4, any::<bool>()), 0..3),
        l3 in prop::option::of(1usize..3),
        inner in prop::option::of((1usize..3, 0u64..3)),
        l2 in prop::option::of(1usize..3),
        cores in 1usize..4,
        threads in 1usize..3,
        distance in prop::option::of(10u32..255),
        interleaved in any::<bool>(),
    ) -> String {
        let mut text = distance.map_or(String::new(), |far| format!("(distances={far}) "));
        text.push_str(&format!("pack:{packages} "));
        for (size, cpuless) in nodes {
            let cpuless = if cpuless { " cpuless" } else { "" };
            text.push_str(&format!("[numa(memory={size}GiB{cpuless})] "));
        }
        if let Some(dies) = dies {
            text.push_str(&format!("die:{dies} "));
        }
        if let Some(l3) = l3 {
            text.push_str(&format!("l3:{l3}(size=32MiB) "));
        }
        if let Some((groups, size)) = inner {
            text.push_str(&format!("group:{groups} [numa(memory={size}MiB)] "));
        }
        if let Some(l2) = l2 {
            text.push_str(&format!("l2:{l2} l1d:1 l1i:1 "));
        }
        let indexes = if interleaved { "(indexes=core:pack)" } else { "" };
        text.push_str(&format!("core:{cores} pu:{threads}{indexes}"));
        text
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn described_machines_come_back(text in description()) {
        assert_round_trip(&machine(&text));
    }
}

proptest! {
    // Each case runs lstopo twice.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn lstopo_keeps_described_machines(text in description()) {
        assert_lstopo_keeps(&machine(&text));
    }
}
