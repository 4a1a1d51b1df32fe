use proptest::prelude::*;

use homenode_units::{Bytes, BytesPerSecond, Nanoseconds, NodeId};

use super::*;
use crate::{CacheKind, Detail, DeviceKind, MemoryKind, Vendor};

const TWO_PACKAGES: &str = include_str!("../../tests/fixtures/8cpu-2p2n2c-l3.xml");
const TWO_NODES_PER_GROUP: &str =
    include_str!("../../tests/fixtures/4cpu-1p4n-two-nodes-per-group.xml");
const SNC: &str = include_str!("../../tests/fixtures/8cpu-2p4n-snc-attributes.xml");

fn read(text: &str) -> Topology {
    parse_hwloc_xml(text.as_bytes(), "test").unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str) -> String {
    parse_hwloc_xml(text.as_bytes(), "test")
        .unwrap_err()
        .to_string()
}

/// Each node as `id: cpus < nearest nodes`.
fn nodes(topology: &Topology) -> Vec<String> {
    let line =
        |node: &crate::Node| format!("{}: {} < {}", node.id, node.cpus, node.nearest_cpu_nodes);
    topology.nodes.iter().map(line).collect()
}

/// A file with 2 CPUs, into which `inside` is put below the machine and `behind` after it.
fn small(version: &str, machine: &str, inside: &str, behind: &str) -> String {
    let pu = |n: u32| {
        format!(
            "<object type=\"PU\" os_index=\"{n}\" cpuset=\"0x{:x}\" gp_index=\"{}\"/>",
            1 << n,
            10 + n
        )
    };
    format!(
        "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n\
         <topology version=\"{version}\">\n<object type=\"Machine\" os_index=\"0\" \
         cpuset=\"0x3\" {machine} gp_index=\"1\">\n{inside}\n{}\n{}\n</object>\n{behind}\n\
         </topology>",
        pu(0),
        pu(1)
    )
}

const NODE: &str = "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" nodeset=\"0x1\" \
                    gp_index=\"2\" local_memory=\"4096\"/>";

#[test]
fn hwlocs_own_file_of_two_packages() {
    let topology = read(TWO_PACKAGES);
    assert_eq!(topology.source, Source::HwlocXml("test".to_owned()));
    assert_eq!(topology.detail, Detail::Full);
    assert_eq!(topology.cpus.online.to_string(), "0-7");
    assert_eq!(topology.cpus.possible.to_string(), "0-7");
    assert_eq!(nodes(&topology), ["0: 0-3 < 0", "1: 4-7 < 1"]);
    assert_eq!(
        topology.nodes[0].memory_total.known(),
        Some(&Bytes(16_000_000_000))
    );
    assert_eq!(topology.packages[1].id, Some(1));
    assert_eq!(topology.packages[1].cpus.to_string(), "4-7");
    assert_eq!(topology.cores.len(), 4);
    let l3 = &topology.caches[1];
    assert_eq!(
        (l3.level, l3.kind, l3.id, l3.ways),
        (3, CacheKind::Unified, None, None)
    );
    assert_eq!(l3.size.known(), Some(&Bytes(16 << 20)));
    assert_eq!(l3.line_size, Some(Bytes(64)));
    assert_eq!(l3.cpus.to_string(), "4-7");
    assert_eq!(
        topology.distances.why(),
        Some("hwloc XML without NUMALatency")
    );
    assert_eq!(topology.processor.model_name.why(), Some(NOT_TOLD));
    assert_eq!(topology.allowed.nodes.to_string(), "0-1");
    assert_eq!(topology.problems, []);
}

#[test]
fn of_two_nodes_with_the_same_cpus_the_lower_one_has_them() {
    let topology = read(TWO_NODES_PER_GROUP);
    assert_eq!(
        nodes(&topology),
        ["0: 0-1 < 0", "1:  < 0", "2: 2-3 < 2", "3:  < 2"]
    );
}

#[test]
fn ordinary_memory_has_the_cpus_before_special_memory() {
    let hbm = TWO_NODES_PER_GROUP.replacen(
        "os_index=\"0\" cpuset=\"0x00000003\"",
        "os_index=\"0\" subtype=\"HBM\" cpuset=\"0x00000003\"",
        1,
    );
    assert_ne!(hbm, TWO_NODES_PER_GROUP);
    let topology = read(&hbm);
    assert_eq!(nodes(&topology)[..2], ["0:  < 1", "1: 0-1 < 1"]);
    assert_eq!(
        topology.nodes[0].memory_kind.known(),
        Some(&MemoryKind::Hbm)
    );
    let dax = hbm.replacen("subtype=\"HBM\"", "", 1).replacen(
        "<page_type size=\"4096\" count=\"244140\"/>",
        "<page_type size=\"4096\" count=\"244140\"/><info name=\"DAXDevice\" value=\"dax0.0\"/>",
        1,
    );
    assert!(dax.contains("DAXDevice"));
    assert_eq!(nodes(&read(&dax))[..2], ["0:  < 1", "1: 0-1 < 1"]);
}

#[test]
fn distances_attributes_and_core_kinds() {
    let topology = read(SNC);
    assert_eq!(
        nodes(&topology),
        ["0: 0,4 < 0", "1: 1,5 < 1", "2: 2,6 < 2", "3: 3,7 < 3"]
    );
    let distances = topology.distances.known().unwrap();
    let row: Vec<u32> = distances
        .rows()
        .nth(2)
        .unwrap()
        .1
        .iter()
        .map(|d| d.0)
        .collect();
    assert_eq!(row, [21, 21, 10, 11]);
    let access = &topology.nodes[3].access;
    assert_eq!(access.len(), 1);
    assert_eq!(
        (access[0].class, access[0].initiators.to_string().as_str()),
        (1, "3")
    );
    assert_eq!(access[0].read_latency, Some(Nanoseconds(83.0)));
    assert_eq!(access[0].read_bandwidth, Some(BytesPerSecond(20_003e6)));
    assert_eq!(access[0].write_latency, None);
    let kinds: Vec<_> = topology
        .core_kinds
        .iter()
        .map(|kind| format!("{} {}", kind.cpus, kind.name))
        .collect();
    assert_eq!(kinds, ["0-3 IntelAtom", "4-7 IntelCore"]);
    // One L3 over both nodes of a package, which is what SNC looks like.
    assert_eq!(topology.caches[0].cpus.to_string(), "0-1,4-5");
}

#[test]
fn rows_and_columns_are_sorted_by_node() {
    let nodes = "<object type=\"NUMANode\" os_index=\"5\" cpuset=\"0x3\" gp_index=\"2\"/>\
                 <object type=\"NUMANode\" os_index=\"3\" cpuset=\"0x3\" gp_index=\"3\"/>";
    let matrix = |indexes: &str, values: &str, attributes: &str| {
        format!(
            "<distances2 type=\"NUMANode\" nbobjs=\"2\" {attributes} indexing=\"os\">\
             <indexes>{indexes}</indexes><u64values>{values}</u64values></distances2>"
        )
    };
    let slit = "kind=\"5\" name=\"NUMALatency\"";
    let topology = read(&small(
        "2.0",
        "",
        nodes,
        &matrix("5 3 ", "10 21 31 11 ", slit),
    ));
    let distances = topology.distances.known().unwrap();
    assert_eq!(distances.get(NodeId(5), NodeId(3)).unwrap().0, 21);
    assert_eq!(distances.get(NodeId(3), NodeId(5)).unwrap().0, 31);
    assert_eq!(distances.get(NodeId(3), NodeId(3)).unwrap().0, 11);

    // Measured by somebody (2), a bandwidth (8), or under another name: not the firmware's.
    for other in ["kind=\"6\"", "kind=\"9\"", "kind=\"5\" name=\"XGMIHops\""] {
        let topology = read(&small("2.0", "", nodes, &matrix("5 3", "1 2 3 4", other)));
        assert_eq!(
            topology.distances.why(),
            Some("hwloc XML without NUMALatency")
        );
    }
    let partial = read(&small("2.0", "", nodes, &matrix("5 4", "1 2 3 4", slit)));
    assert_eq!(
        partial.distances.why(),
        Some("hwloc XML has distances of nodes 4-5 only")
    );
    for (indexes, values, message) in [
        (
            "5",
            "1 2 3 4",
            "indexes: expected 2 numbers, as nbobjs says, found `1`",
        ),
        (
            "5 3",
            "1 2 3",
            "u64values: expected 4 numbers, as nbobjs says, found `3`",
        ),
        (
            "5 3",
            "1 2 3 4 5",
            "u64values: expected 4 numbers, as nbobjs says, found `more`",
        ),
        (
            "5 x",
            "1 2 3 4",
            "text: expected numbers below 4294967296, found `x`",
        ),
        (
            "5 5",
            "1 2 3 4",
            "indexes: expected each node once, found `expected nodes in ascending",
        ),
    ] {
        let message_found = refusal(&small("2.0", "", nodes, &matrix(indexes, values, slit)));
        assert!(message_found.contains(message), "{message_found}");
    }
}

#[test]
fn the_best_initiators_count_and_reads_told_apart_come_before_means() {
    let nodes = "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" gp_index=\"2\"/>\
                 <object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x2\" gp_index=\"3\"/>";
    let attribute = |name: &str, values: &[(u32, &str)]| {
        let values: String = values
            .iter()
            .map(|(value, from)| {
                format!(
                    "<memattr_value target_obj_type=\"NUMANode\" target_obj_gp_index=\"3\" \
                     value=\"{value}\" {from}/>"
                )
            })
            .collect();
        format!("<memattr name=\"{name}\" flags=\"6\">{values}</memattr>")
    };
    let (first, second) = ("initiator_cpuset=\"0x1\"", "initiator_cpuset=\"0x2\"");
    let by_object = "initiator_obj_type=\"NUMANode\" initiator_obj_gp_index=\"2\"";
    let all = [
        attribute("ReadLatency", &[(90, first), (80, second), (0, first)]),
        attribute("Latency", &[(70, first), (75, second)]),
        attribute(
            "Bandwidth",
            &[(10, first), (30, by_object), (20, second), (30, second)],
        ),
        attribute("Capacity", &[(1, first)]),
    ]
    .concat();
    let topology = read(&small("2.0", "", nodes, &all));
    assert_eq!(topology.nodes[0].access, []);
    let access = &topology.nodes[1].access[0];
    assert_eq!(access.initiators.to_string(), "1");
    assert_eq!(access.read_latency, Some(Nanoseconds(80.0)));
    assert_eq!(access.write_latency, Some(Nanoseconds(70.0)));
    assert_eq!(access.write_bandwidth, Some(BytesPerSecond(30e6)));
    let found = refusal(&small(
        "2.0",
        "",
        nodes,
        &all.replace("index=\"3\"", "index=\"9\""),
    ));
    assert!(
        found.contains("expected the gp_index of a NUMANode, found `9`"),
        "{found}"
    );
}

#[test]
fn a_node_without_a_size_is_empty_only_where_others_have_one() {
    let unknown = NODE.replace("local_memory=\"4096\"", "");
    let topology = read(&small("2.0", "", &unknown, ""));
    assert_eq!(
        topology.nodes[0].memory_total.why(),
        Some("hwloc XML without a memory size at any node")
    );
    let other = NODE.replace("os_index=\"0\"", "os_index=\"7\"");
    let topology = read(&small("2.0", "", &format!("{unknown}{other}"), ""));
    assert!(topology.nodes[0].is_memoryless());
}

#[test]
fn cpus_without_a_pu_are_offline_and_said_to_be() {
    let machine = "complete_cpuset=\"0xf\" complete_nodeset=\"0x3\" allowed_cpuset=\"0x2\"";
    let topology = read(&small("2.1", machine, NODE, ""));
    assert_eq!(topology.cpus.offline.to_string(), "2-3");
    assert_eq!(topology.cpus.possible.to_string(), "0-3");
    assert_eq!(topology.nodes_offline.to_string(), "1");
    assert_eq!(topology.allowed.cpus.to_string(), "1");
    assert_eq!(topology.allowed.nodes.to_string(), "0");
    assert_eq!(topology.problems.len(), 2);
    let asleep = NODE.replace("cpuset=\"0x3\"", "cpuset=\"0x0\" complete_cpuset=\"0xc\"");
    let topology = read(&small("2.1", machine, &asleep, ""));
    assert_eq!(topology.nodes[0].cpus_offline.to_string(), "2-3");
    assert!(!topology.nodes[0].is_cpuless());
}

#[test]
fn version_3_moves_infos_to_the_topology() {
    let package = "<object type=\"Package\" os_index=\"4\" cpuset=\"0x3\" gp_index=\"3\">\
                   <info name=\"CPUVendor\" value=\"AuthenticAMD\"/>\
                   <info name=\"CPUFamilyNumber\" value=\"25\"/>\
                   <info name=\"CPUModel\" value=\"AMD EPYC &amp; more\"/></object>";
    let behind = "<info name=\"Architecture\" value=\"x86_64\"/>\
                  <memtier nodeset=\"0x1\" kinds=\"2\"/>";
    let topology = read(&small(
        "3.0",
        "id=\"obj1\"",
        &format!("{NODE}{package}"),
        behind,
    ));
    assert_eq!(topology.processor.architecture.known().unwrap(), "x86_64");
    assert_eq!(topology.processor.vendor.known(), Some(&Vendor::Amd));
    assert_eq!(topology.processor.family.known(), Some(&25));
    assert_eq!(
        topology.processor.model_name.known().unwrap(),
        "AMD EPYC & more"
    );
    assert_eq!(topology.packages[0].id, Some(4));
}

#[test]
fn groups_side_caches_and_caches() {
    let inside = "<object type=\"MemCache\" cpuset=\"0x3\" depth=\"2\" cache_size=\"64\">\
         <object type=\"MemCache\" cpuset=\"0x3\" depth=\"1\" cache_size=\"0\" \
         cache_linesize=\"64\">"
        .to_owned()
        + NODE
        + "</object></object>\
           <object type=\"Group\" subtype=\"Book\" kind=\"110\" cpuset=\"0x3\"/>\
           <object type=\"Group\" subtype=\"Drawer\" kind=\"110\" cpuset=\"0x3\"/>\
           <object type=\"Group\" subtype=\"Die\" kind=\"0\" cpuset=\"0x1\"/>\
           <object type=\"Die\" cpuset=\"0x2\"/>\
           <object type=\"Group\" kind=\"222\" cpuset=\"0x3\"/>\
           <object type=\"Group\" kind=\"1001\" cpuset=\"0x3\"/>\
           <object type=\"L1Cache\" cache_type=\"1\" cache_associativity=\"-1\" cpuset=\"0x1\"/>\
           <object type=\"L1iCache\" cache_type=\"2\" depth=\"1\" cpuset=\"0x1\"/>\
           <object type=\"L3Cache\" subtype=\"MemorySideCache\" cpuset=\"0x3\"/>";
    let topology = read(&small("2.0", "", &inside, ""));
    assert_eq!(topology.books.len(), 1);
    assert_eq!(topology.drawers.len(), 1);
    assert_eq!(topology.dies.len(), 2);
    assert_eq!(topology.clusters.len(), 1);
    let levels: Vec<_> = topology.nodes[0]
        .side_caches
        .iter()
        .map(|cache| cache.level)
        .collect();
    assert_eq!(levels, [1, 2]);
    assert_eq!(topology.nodes[0].side_caches[0].size.why(), Some(NOT_TOLD));
    assert_eq!(
        topology.nodes[0].side_caches[1].size.known(),
        Some(&Bytes(64))
    );
    let caches: Vec<_> = topology
        .caches
        .iter()
        .map(|cache| (cache.kind, cache.ways))
        .collect();
    assert_eq!(
        caches,
        [(CacheKind::Data, Some(0)), (CacheKind::Instruction, None)]
    );
}

#[test]
fn devices_hang_on_the_node_at_their_place() {
    let device = |bus: &str, class: &str, name: &str| {
        format!(
            "<object type=\"PCIDev\" pci_busid=\"0000:{bus}:00.0\" pci_type=\"{class} \
             [8086:1521] [1028:0000] 01\"><object type=\"OSDev\" name=\"{name}\" \
             osdev_type=\"2\"/></object>"
        )
    };
    let inside = format!(
        "{NODE}<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x1\" gp_index=\"4\"/>\
         <object type=\"Package\" cpuset=\"0x1\">\
         <object type=\"Bridge\" bridge_type=\"0-1\">{}</object></object>{}\
         <object type=\"OSDev\" name=\"dax0.0\"/>",
        device("02", "0200", "eth0"),
        device("81", "0c06", "mlx5_0"),
    );
    let topology = read(&small("2.0", "", &inside, ""));
    let devices = topology.devices.known().unwrap();
    assert_eq!(devices[0].address, "0000:02:00.0");
    assert_eq!(devices[0].kind, DeviceKind::Network);
    assert_eq!(devices[0].names, ["eth0"]);
    assert_eq!(devices[0].node.known(), Some(&NodeId(1)));
    assert_eq!(devices[0].cpus.to_string(), "0");
    assert_eq!(devices[1].kind, DeviceKind::InfiniBand);
    assert_eq!(devices[1].names, ["mlx5_0"]);
    assert!(devices[1].cpus.is_empty());
}

#[test]
fn other_files_are_refused_by_name() {
    for (text, message) in [
        ("<html/>", "expected <topology>, found <html>"),
        (
            "<topology version=\"2.0\"/>",
            "expected <topology>, found a topology without objects",
        ),
        (
            "<topology version=\"4.0\"/>",
            "expected hwloc XML version 2 or 3, found `4.0`",
        ),
    ] {
        assert_eq!(refusal(text), message);
    }
    let version_1 = "this is hwloc XML version 1, expected version 2 or 3; hwloc 2.x converts it: \
                     lstopo -i OLD.xml NEW.xml";
    assert_eq!(
        refusal("<topology><object type=\"Machine\"/></topology>"),
        version_1
    );
    assert_eq!(refusal("<topology version=\"1.0\"/>"), version_1);
}

#[test]
fn wrong_objects_are_named_with_attribute_expectation_and_finding() {
    let pu = "<object type=\"PU\" os_index=\"2\" cpuset=\"0x8\"/>";
    let cache = "<object type=\"L2Cache\" depth=\"3\" cpuset=\"0x3\"/>";
    for (inside, message) in [
        (
            pu,
            "type=\"PU\": cpuset: expected the PU's own number 2 alone, found `0x8`",
        ),
        (
            "<object/>",
            "object: expected type=, the type of the object, such as Package, found none",
        ),
        (
            "<object type=\"Socket\" cpuset=\"0x3\"/>",
            "expected a type of hwloc's, such as Package or L3Cache, found `Socket`",
        ),
        (
            "<object type=\"Core\"/>",
            "expected cpuset=, a mask of CPUs, such as 0x0000000f, found",
        ),
        (
            "<object type=\"Core\" cpuset=\"0xf...f\"/>",
            "cpuset: expected a mask of CPU numbers below 65536, such as 0x0000000f, found",
        ),
        (
            "<object type=\"Core\" cpuset=\"\"/>",
            "cpuset: expected a mask of CPU numbers",
        ),
        (cache, "depth: expected 2, the level in the type, found `3`"),
        (
            "<object type=\"L2Cache\" cache_type=\"2\" cpuset=\"0x3\"/>",
            "cache_type: expected 0 (unified) or 1 (data), for a type with an i 2 (instruction)",
        ),
        (
            "<object type=\"NUMANode\" os_index=\"1024\" cpuset=\"0x3\"/>",
            "os_index: expected the number of the node, below 1024, found `1024`",
        ),
        (
            NODE,
            "os_index: expected a number that no other NUMANode has, found `0`",
        ),
        (
            "<object type=\"Machine\" cpuset=\"0x3\"/>",
            "expected only one Machine, the root",
        ),
    ] {
        let found = refusal(&small("2.0", "", &format!("{NODE}\n{inside}"), ""));
        assert!(found.starts_with("line "), "{found}");
        assert!(found.contains(message), "{found}");
    }
    let twice = "<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\"/>";
    let found = refusal(&small("2.0", "", &format!("{NODE}{twice}"), ""));
    assert!(found.contains("os_index: expected a number that no other PU has, found `1`"));
}

#[test]
fn a_mask_longer_than_any_machine_is_refused_unread() {
    // Every comma stands for 32 CPUs that are not there.
    let long = format!("0x0{}", ",".repeat(32 << 10));
    let core = format!("{NODE}<object type=\"Core\" cpuset=\"{long}\"/>");
    let found = refusal(&small("2.0", "", &core, ""));
    assert!(
        found.contains("cpuset: expected a mask of CPU numbers below 65536"),
        "{found}"
    );
    let high = format!(
        "{NODE}<object type=\"Core\" cpuset=\"0x1{}\"/>",
        ",0x0".repeat(2048)
    );
    assert_eq!(
        refusal(&small("2.0", "", &high, ""))
            .matches("below 65536")
            .count(),
        1
    );
}

#[test]
fn machines_that_cannot_exist_are_refused_with_the_reason() {
    let stray = format!("{NODE}<object type=\"Package\" cpuset=\"0x7\"/>");
    let error = parse_hwloc_xml(small("2.0", "", &stray, "").as_bytes(), "test").unwrap_err();
    assert_eq!(
        error,
        HwlocXmlError::Impossible(CheckError::StrayCpus {
            object: "package at position 0".to_owned(),
            expected: "online CPUs",
            found: homenode_units::CpuSet::parse_list("2").unwrap(),
        })
    );
    let nothing = small("2.0", "", "", "");
    assert_eq!(
        parse_hwloc_xml(nothing.as_bytes(), "test"),
        Err(HwlocXmlError::Impossible(CheckError::NoNode))
    );
}

#[test]
fn lists_of_ours_must_ascend() {
    for (list, ok) in [
        ("", true),
        ("0-1", true),
        ("0,1", true),
        ("1,0", false),
        ("0-1,0-1", false),
        ("0-65536", false),
        ("0-0", false),
        ("x", false),
    ] {
        let node = format!(
            "{}<info name=\"HomenodeCpus\" value=\"{list}\"/></object>",
            NODE.replace("/>", ">")
        );
        assert_eq!(
            parse_hwloc_xml(small("2.0", "", &node, "").as_bytes(), "test").is_ok(),
            ok,
            "{list}"
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_topology_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_hwloc_xml(&bytes, "test");
    }

    #[test]
    fn a_file_that_is_cut_is_refused(at in 0..SNC.trim_end().len()) {
        prop_assert!(parse_hwloc_xml(&SNC.as_bytes()[..at], "test").is_err());
    }

    #[test]
    fn a_damaged_file_gives_a_topology_or_an_error(
        at in 0..SNC.len(),
        length in 0usize..40,
        filling in prop::sample::select(vec![
            "", "\"", "<", "</object>", "0", "0x0", "0xffffffff,", "-1", "99999999999999999999",
            "type=\"PU\"", "&amp;", "&x;", "<object type=\"PCIDev\" pci_busid=\"é\"/>", "\u{0}",
        ]),
    ) {
        let mut damaged = SNC.as_bytes().to_vec();
        let end = (at + length).min(damaged.len());
        damaged.splice(at..end, filling.bytes());
        let _ = parse_hwloc_xml(&damaged, "test");
    }
}
