//! A topology as hwloc XML, for `lstopo`, MPI and everything else that reads it.
//!
//! Version 2.0 is written, which every hwloc since 2.0 reads. hwloc has one tree, in which two
//! objects either contain one another or share no CPU; what has no place in it (a cache across
//! packages in broken tables) is left out and said in an `info`
//! [`NOT_EXPRESSED`](homenode_topology::hwloc_info::NOT_EXPRESSED). CPU-less and memory-less nodes
//! are kept. What hwloc has no word for stands in further `info`s, which hwloc carries along and
//! [`homenode_topology::parse_hwloc_xml`] reads back.
//!
//! Not written: memory tiers, huge pages, memory slots, the ACPI tables and cgroup limits.

mod element;
mod measured;
mod sections;
mod tree;

use homenode_measure::Document;
use homenode_topology::{
    Access, CacheKind, Detail, Device, DeviceKind, MemoryKind, Node, Topology, Vendor, hwloc_info,
};
use homenode_units::{Bytes, BytesPerSecond, CpuSet, Nanoseconds, Reading};

use element::{Element, document, mask};
use tree::{Kind, Object, Tree};

/// Writes a topology as hwloc XML version 2.0.
#[must_use]
pub fn to_hwloc_xml(topology: &Topology) -> String {
    to_hwloc_xml_measured(topology, None)
}

/// The same with what was measured: a second `distances2` named `MeasuredLatency`, and memory
/// attributes `Latency` and `ReadLatency`, unless the HMAT gives them.
#[must_use]
pub fn to_hwloc_xml_measured(topology: &Topology, measured: Option<&Document>) -> String {
    let mut tree = Tree::of(topology);
    let mut root = Element::new("topology");
    root.set("version", "2.0");
    let mut machine = object(topology, &mut tree, 0);
    // Devices find out last that they have no place.
    for what in &tree.not_expressed {
        machine.add_info_first(hwloc_info::NOT_EXPRESSED, what);
    }
    let mut attributes = sections::memory_attributes(topology, &tree);
    if let Some(measured) = measured.filter(|_| attributes.is_empty()) {
        attributes = measured::memory_attributes(topology, &tree, measured);
        for name in attributes.iter().filter_map(|found| found.get("name")) {
            machine.add_info_first(hwloc_info::MEASURED_ATTRIBUTE, name);
        }
    }
    root.add(machine);
    root.extend(sections::distances(topology));
    root.extend(measured.and_then(|measured| measured::distances(topology, measured)));
    root.extend(attributes);
    root.extend(sections::core_kinds(topology));
    document(&root)
}

/// An object with everything below it.
///
/// Recursion ends: the tree is as deep as there are kinds of objects, and the caches of a machine.
fn object(topology: &Topology, tree: &mut Tree<'_>, at: usize) -> Element {
    let place = &tree.objects[at];
    let mut element = Element::new("object");
    name_object(&mut element, &place.kind);
    set_cpus(&mut element, topology, place);
    element.set("gp_index", place.gp_index.to_string());
    describe_object(&mut element, &place.kind);
    match place.kind {
        Kind::Machine => machine_infos(&mut element, topology),
        Kind::Package(_) => processor_infos(&mut element, topology),
        _ => {}
    }
    let (nodes, children, devices) = (
        place.nodes.clone(),
        place.children.clone(),
        place.devices.clone(),
    );
    for node in nodes {
        element.add(numa_node(topology, tree, at, node));
    }
    for child in children {
        element.add(object(topology, tree, child));
    }
    for bridge in host_bridges(tree, &devices) {
        element.add(bridge);
    }
    element
}

fn name_object(element: &mut Element, kind: &Kind<'_>) {
    let (name, id) = match kind {
        Kind::Machine => ("Machine".to_owned(), Some(0)),
        Kind::Package(group) => ("Package".to_owned(), group.id),
        Kind::Die(group) => ("Die".to_owned(), group.id),
        Kind::Core(group) => ("Core".to_owned(), group.id),
        Kind::Drawer(group) | Kind::Book(group) | Kind::Cluster(group) => {
            ("Group".to_owned(), group.id)
        }
        Kind::AroundNode => ("Group".to_owned(), None),
        Kind::Cache(cache) => {
            let instruction = match cache.kind {
                CacheKind::Instruction => "i",
                CacheKind::Data | CacheKind::Unified => "",
            };
            (format!("L{}{instruction}Cache", cache.level), cache.id)
        }
        Kind::Pu(cpu) => ("PU".to_owned(), Some(cpu.0)),
    };
    element.set("type", name);
    if let Some(id) = id {
        element.set("os_index", id.to_string());
    }
}

fn set_cpus(element: &mut Element, topology: &Topology, place: &Object<'_>) {
    let cpus = mask(&place.cpus);
    let nodes = mask(&place.node_set);
    let is_machine = matches!(place.kind, Kind::Machine);
    element.set("cpuset", cpus.clone());
    if is_machine {
        let complete = topology.cpus.online.union(&topology.cpus.offline);
        element.set("complete_cpuset", mask(&complete));
        element.set("allowed_cpuset", mask(&topology.allowed.cpus));
    } else {
        element.set("complete_cpuset", cpus);
    }
    element.set("nodeset", nodes.clone());
    element.set("complete_nodeset", nodes);
    if is_machine {
        element.set("allowed_nodeset", mask(&topology.allowed.nodes));
    }
}

fn describe_object(element: &mut Element, kind: &Kind<'_>) {
    // hwloc 2.x numbers the kinds of groups in include/private/misc.h: 110 is s390, 222 is a
    // cluster, 1001 is around memory. On loading, lstopo 2.9.0 drops a group that has the same CPUs
    // as another object, with `dont_merge` as without; the file keeps it all the same.
    let mut group = |subtype: Option<&str>, kind: &str| {
        if let Some(subtype) = subtype {
            element.set("subtype", subtype);
        }
        element.set("kind", kind);
        element.set("subkind", "0");
    };
    match kind {
        Kind::Drawer(_) => group(Some("Drawer"), "110"),
        Kind::Book(_) => group(Some("Book"), "110"),
        Kind::Cluster(_) => group(Some("Cluster"), "222"),
        Kind::AroundNode => group(None, "1001"),
        Kind::Cache(cache) => {
            let size = cache.size.known().map_or(0, |size| size.0);
            element.set("cache_size", size.to_string());
            element.set("depth", cache.level.to_string());
            element.set(
                "cache_linesize",
                cache.line_size.map_or(0, |size| size.0).to_string(),
            );
            // hwloc: 0 is unknown, -1 is fully associative.
            let ways = match cache.ways {
                None => "0".to_owned(),
                Some(0) => "-1".to_owned(),
                Some(ways) => ways.to_string(),
            };
            element.set("cache_associativity", ways);
            let kind = match cache.kind {
                CacheKind::Unified => "0",
                CacheKind::Data => "1",
                CacheKind::Instruction => "2",
            };
            element.set("cache_type", kind);
        }
        Kind::Machine | Kind::Package(_) | Kind::Die(_) | Kind::Core(_) | Kind::Pu(_) => {}
    }
}

fn machine_infos(element: &mut Element, topology: &Topology) {
    if let Reading::Known(architecture) = &topology.processor.architecture {
        element.add_info("Architecture", architecture);
    }
    if topology.packages.is_empty() {
        processor_infos(element, topology);
    }
    if topology.detail == Detail::Fast {
        element.add_info(hwloc_info::DETAIL, "fast");
    }
    let cpus = &topology.cpus;
    if cpus.possible != cpus.online.union(&cpus.offline) {
        element.add_info(hwloc_info::POSSIBLE_CPUS, &cpus.possible.to_string());
    }
    for (name, set) in [
        (hwloc_info::OFFLINE_CPUS, &cpus.offline),
        (hwloc_info::ISOLATED_CPUS, &cpus.isolated),
    ] {
        if !set.is_empty() {
            element.add_info(name, &set.to_string());
        }
    }
    if !topology.nodes_offline.is_empty() {
        element.add_info(
            hwloc_info::OFFLINE_NODES,
            &topology.nodes_offline.to_string(),
        );
    }
    if let Reading::Known(total) = topology.memory_total {
        element.add_info(hwloc_info::MEMORY_TOTAL, &total.0.to_string());
    }
    if let Reading::Known(hypervisor) = topology.processor.hypervisor {
        element.add_info(hwloc_info::HYPERVISOR, &hypervisor.to_string());
    }
    for word in &topology.kernel_options {
        element.add_info(hwloc_info::KERNEL_OPTION, word);
    }
    match &topology.distances {
        Reading::Absent { why } => element.add_absence(hwloc_info::DISTANCES, why),
        Reading::Known(matrix) => {
            if let ([_], Some((_, _, distance))) = (matrix.nodes(), matrix.cells().next()) {
                element.add_info(hwloc_info::DISTANCES, &distance.to_string());
            }
        }
    }
}

fn processor_infos(element: &mut Element, topology: &Topology) {
    let processor = &topology.processor;
    if let Reading::Known(vendor) = &processor.vendor {
        let vendor = match vendor {
            Vendor::Intel => "GenuineIntel",
            Vendor::Amd => "AuthenticAMD",
            Vendor::Hygon => "HygonGenuine",
            Vendor::Other(name) => name,
        };
        element.add_info("CPUVendor", vendor);
    }
    if let Reading::Known(family) = processor.family {
        element.add_info("CPUFamilyNumber", &family.to_string());
    }
    if let Reading::Known(model) = processor.model {
        element.add_info("CPUModelNumber", &model.to_string());
    }
    if let Reading::Known(name) = &processor.model_name {
        element.add_info("CPUModel", name);
    }
}

/// A node inside its memory-side caches, the one nearest to the memory innermost.
fn numa_node(topology: &Topology, tree: &mut Tree<'_>, at: usize, node: &Node) -> Element {
    let cpus = tree.objects[at].cpus.clone();
    let own = [node.id].into_iter().collect();
    let set_places = |element: &mut Element, gp_index: u64| {
        element.set("cpuset", mask(&cpus));
        element.set("complete_cpuset", mask(&cpus));
        element.set("nodeset", mask(&own));
        element.set("complete_nodeset", mask(&own));
        element.set("gp_index", gp_index.to_string());
    };
    let mut element = Element::new("object");
    element.set("type", "NUMANode");
    element.set("os_index", node.id.to_string());
    set_places(&mut element, tree.node_gp_index(node.id));
    if let Reading::Known(kind) = node.memory_kind {
        element.set("subtype", subtype(kind));
    }
    if let Reading::Known(size) = node.memory_total
        && size.0 > 0
    {
        element.set("local_memory", size.0.to_string());
    }
    node_infos(&mut element, topology, node, &cpus);
    for cache in &node.side_caches {
        let mut around = Element::new("object");
        around.set("type", "MemCache");
        set_places(&mut around, tree.next_gp_index());
        let size = cache.size.known().map_or(0, |size| size.0);
        around.set("cache_size", size.to_string());
        around.set("depth", cache.level.to_string());
        around.set(
            "cache_linesize",
            cache.line_size.map_or(0, |size| size.0).to_string(),
        );
        around.set("cache_associativity", "0");
        around.set("cache_type", "0");
        around.add(element);
        element = around;
    }
    element
}

fn node_infos(element: &mut Element, topology: &Topology, node: &Node, place: &CpuSet) {
    // Its place gives a node CPUs, but not the same ones to two nodes.
    let shared = topology
        .nodes
        .iter()
        .any(|other| other.id != node.id && other.cpus.intersects(&node.cpus));
    if node.cpus != *place || shared {
        element.add_info(hwloc_info::CPUS, &node.cpus.to_string());
    }
    if !node.cpus_offline.is_empty() {
        element.add_info(hwloc_info::OFFLINE_CPUS, &node.cpus_offline.to_string());
    }
    let itself = [node.id].into_iter().collect();
    if node.cpus.is_empty() || node.nearest_cpu_nodes != itself {
        element.add_info(
            hwloc_info::NEAREST_CPU_NODES,
            &node.nearest_cpu_nodes.to_string(),
        );
    }
    match &node.memory_total {
        Reading::Known(Bytes(0)) => element.add_info(hwloc_info::MEMORY, "0"),
        Reading::Known(_) => {}
        Reading::Absent { why } => element.add_absence(hwloc_info::MEMORY, why),
    }
    if let Reading::Known(free) = node.memory_free {
        element.add_info(hwloc_info::MEMORY_FREE, &free.0.to_string());
    }
    if let Reading::Known(weight) = node.interleave_weight {
        element.add_info(hwloc_info::INTERLEAVE_WEIGHT, &weight.to_string());
    }
    if node.generic_initiator {
        element.add_info(hwloc_info::GENERIC_INITIATOR, "true");
    }
    for access in &node.access {
        element.add_info(hwloc_info::ACCESS, &access_words(access));
    }
}

fn access_words(access: &Access) -> String {
    let mut words = format!("class={} initiators={}", access.class, access.initiators);
    let latencies = [
        ("read", access.read_latency),
        ("write", access.write_latency),
    ];
    for (name, latency) in latencies {
        if let Some(Nanoseconds(value)) = latency {
            words.push_str(&format!(" {name}_latency_ns={value}"));
        }
    }
    let bandwidths = [
        ("read", access.read_bandwidth),
        ("write", access.write_bandwidth),
    ];
    for (name, bandwidth) in bandwidths {
        if let Some(BytesPerSecond(value)) = bandwidth {
            words.push_str(&format!(" {name}_bandwidth_bytes_per_s={value}"));
        }
    }
    words
}

const fn subtype(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Dram => "DRAM",
        MemoryKind::Hbm => "HBM",
        MemoryKind::Cxl => "CXL-DRAM",
        MemoryKind::Nvm => "NVM",
        MemoryKind::Gpu => "GPUMemory",
        MemoryKind::SpecialPurpose => "SPM",
    }
}

/// The devices of one place, behind one host bridge per PCI domain: the model does not keep the
/// real bridges, and hwloc wants one.
fn host_bridges(tree: &mut Tree<'_>, devices: &[&Device]) -> Vec<Element> {
    let mut by_domain: std::collections::BTreeMap<&str, Vec<&Device>> = Default::default();
    for &device in devices {
        let domain = device.address.split(':').next().unwrap_or_default();
        by_domain.entry(domain).or_default().push(device);
    }
    let mut bridges = Vec::new();
    for (domain, mut devices) in by_domain {
        devices.sort_by_key(|device| &device.address);
        let bus = |device: Option<&&Device>| {
            let bus = device.and_then(|device| device.address.split(':').nth(1));
            bus.unwrap_or("00").to_owned()
        };
        let mut bridge = Element::new("object");
        bridge.set("type", "Bridge");
        bridge.set("gp_index", tree.next_gp_index().to_string());
        bridge.set("bridge_type", "0-1");
        bridge.set("depth", "0");
        let buses = format!(
            "{domain}:[{}-{}]",
            bus(devices.first()),
            bus(devices.last())
        );
        bridge.set("bridge_pci", buses);
        for device in devices {
            bridge.add(pci_device(tree, device));
        }
        bridges.push(bridge);
    }
    bridges
}

fn pci_device(tree: &mut Tree<'_>, device: &Device) -> Element {
    let mut element = Element::new("object");
    element.set("type", "PCIDev");
    element.set("gp_index", tree.next_gp_index().to_string());
    element.set("pci_busid", device.address.clone());
    // The model keeps what a device is for, so the class is right and the rest is "other" and 0.
    let class = match device.kind {
        DeviceKind::Storage => "0180",
        DeviceKind::Network => "0280",
        DeviceKind::InfiniBand => "0c06",
        DeviceKind::Display => "0380",
        DeviceKind::Accelerator => "1200",
        DeviceKind::Other => "ff00",
    };
    element.set("pci_type", format!("{class} [0000:0000] [0000:0000] 00"));
    element.set("pci_link_speed", "0.000000");
    match &device.node {
        Reading::Known(node) => element.add_info(hwloc_info::NODE, &node.to_string()),
        Reading::Absent { why } => element.add_absence(hwloc_info::NODE, why),
    }
    element.add_info(hwloc_info::CPUS, &device.cpus.to_string());
    for name in &device.names {
        let mut os_device = Element::new("object");
        os_device.set("type", "OSDev");
        os_device.set("gp_index", tree.next_gp_index().to_string());
        os_device.set("name", name.clone());
        os_device.set("osdev_type", os_device_type(device.kind, name));
        element.add(os_device);
    }
    element
}

/// hwloc 2.x: 0 block, 1 GPU, 2 network, 3 `OpenFabrics`, 4 DMA, 5 co-processor.
fn os_device_type(kind: DeviceKind, name: &str) -> &'static str {
    // One adapter has names of both kinds: `eth0` or `ib0`, and `mlx5_0`.
    let is_interface = ["en", "eth", "ib"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    match kind {
        DeviceKind::Storage => "0",
        DeviceKind::Display => "1",
        DeviceKind::Network | DeviceKind::InfiniBand if is_interface => "2",
        DeviceKind::Network if !name.contains('_') => "2",
        DeviceKind::Network | DeviceKind::InfiniBand => "3",
        DeviceKind::Other => "4",
        DeviceKind::Accelerator => "5",
    }
}

#[cfg(test)]
mod tests;
