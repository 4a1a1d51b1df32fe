//! What homenode says of the machine is the shape that was asked for.

use homenode_lab::Shape;
use homenode_units::{Bytes, CpuSet, NodeId};
use serde_json::Value;

use crate::support::{memory_total, output_of, shape};

fn topo() -> Value {
    parse(&output_of("homenode", &["topo", "--json"]))
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

fn node(topo: &Value, id: NodeId) -> &Value {
    topo["topology"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|node| node["id"] == id.0)
        .unwrap_or_else(|| panic!("no node {id} in {topo:#}"))
}

fn cpus(value: &Value) -> CpuSet {
    CpuSet::parse_list(value.as_str().unwrap()).unwrap()
}

#[test]
fn nodes_cpus_and_memory_are_those_of_the_shape() {
    let (shape, topo) = (shape(), topo());
    let count = topo["topology"]["nodes"].as_array().unwrap().len();
    assert_eq!(count, shape.expected_nodes().len());
    for expected in shape.expected_nodes() {
        let found = node(&topo, expected.id);
        assert_eq!(cpus(&found["cpus"]), expected.cpus, "node {}", expected.id);
        let memory = Bytes(found["memory_total"].as_u64().unwrap());
        assert_eq!(memory, memory_total(expected.id), "node {}", expected.id);
        assert_eq!(
            memory == Bytes(0),
            expected.memory == Bytes(0),
            "node {}",
            expected.id
        );
        if !expected.cpus.is_empty() {
            assert_eq!(found["nearest_cpu_nodes"], expected.id.to_string());
        }
    }
}

#[test]
fn a_cpu_less_node_names_the_nearest_node_with_cpus() {
    let (shape, topo) = (shape(), topo());
    for expected in shape.expected_nodes() {
        if let (true, Some(nearest)) = (expected.cpus.is_empty(), expected.initiator) {
            let found = &node(&topo, expected.id)["nearest_cpu_nodes"];
            assert_eq!(*found, nearest.to_string(), "node {}", expected.id);
        }
    }
}

#[test]
fn distances_are_those_of_the_shape() {
    let (shape, topo) = (shape(), topo());
    let distances = &topo["topology"]["distances"];
    for (row, (from, expected)) in shape.expected_distances().rows().enumerate() {
        assert_eq!(distances["nodes"][row], from.0);
        let found: Vec<u64> = distances["rows"][row]
            .as_array()
            .unwrap()
            .iter()
            .map(|value| value.as_u64().unwrap())
            .collect();
        let expected: Vec<u64> = expected.iter().map(|&distance| distance.into()).collect();
        assert_eq!(found, expected, "from node {from}");
    }
}

#[test]
fn packages_are_those_of_the_shape() {
    let (shape, topo) = (shape(), topo());
    let found: Vec<CpuSet> = topo["topology"]["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| cpus(&package["cpus"]))
        .collect();
    assert_eq!(found, shape.packages());
}

#[test]
fn the_verdict_is_the_expected_one() {
    let (shape, topo) = (shape(), topo());
    assert_eq!(
        topo["verdict"]["mode"]["name"], *shape.expect.verdict,
        "{:#}",
        topo["verdict"]
    );
}

/// What a PC keeps for video memory and firmware below 1 MiB is not in the table.
const HOLE_BYTES: Bytes = Bytes(384 << 10);

#[test]
fn the_firmware_tables_hold_the_shape() {
    let (shape, topo) = (shape(), topo());
    let domains = topo["topology"]["firmware"]["srat"]["domains"].as_array();
    // A machine of one node needs no such table, and QEMU makes none.
    let Some(domains) = domains else {
        assert_eq!(shape.nodes().len(), 1, "{:#}", topo["topology"]["firmware"]);
        return;
    };
    for expected in shape.nodes() {
        let domain = domains
            .iter()
            .find(|domain| domain["domain"] == expected.id.0)
            .unwrap();
        assert_eq!(
            domain["processors"].as_u64().unwrap(),
            expected.cpus.len() as u64
        );
        let memory = Bytes(domain["memory"].as_u64().unwrap());
        assert!(
            memory <= expected.memory && memory + HOLE_BYTES >= expected.memory,
            "node {}: expected {}, found {memory}",
            expected.id,
            expected.memory
        );
    }
}

#[test]
fn latency_and_bandwidth_are_those_of_the_firmware() {
    let (shape, topo) = (shape(), topo());
    for entry in &shape.hmat {
        let access = &node(&topo, entry.to)["access"][0];
        assert_eq!(
            access["read_latency"].as_f64().unwrap(),
            f64::from(entry.latency_ns)
        );
        // The kernel's unit is MB/s, and QEMU counts it in units of 2^20.
        let megabytes = entry.bandwidth_per_second.0 >> 20;
        let bandwidth = access["read_bandwidth"].as_f64().unwrap();
        assert!(
            (bandwidth / 1e6 - megabytes as f64).abs() < 0.5,
            "{bandwidth}"
        );
    }
}

/// Free memory changes from one moment to the next, and a program that runs takes some itself: all
/// else must be the same at once, free memory within a few tries.
#[test]
fn the_numactl_form_is_numactls_to_the_byte() {
    const TRIES: usize = 40;
    let without_free = |listing: &str| -> Vec<String> {
        listing
            .lines()
            .filter(|line| !line.contains(" free: "))
            .map(str::to_owned)
            .collect()
    };
    let mut last = (String::new(), String::new());
    for _ in 0..TRIES {
        let theirs = output_of("numactl", &["--hardware"]);
        let ours = output_of("homenode", &["topo", "--numactl"]);
        if ours == theirs {
            return;
        }
        assert_eq!(without_free(&ours), without_free(&theirs));
        last = (ours, theirs);
    }
    panic!("free memory never agreed in {TRIES} tries: {last:?}");
}

#[test]
fn a_capture_reads_back_as_the_machine() {
    let folder = "/tmp/captured";
    output_of("homenode", &["capture", folder]);
    let mut captured = parse(&output_of(
        "homenode",
        &["topo", "--json", "--root", folder],
    ));
    let mut live = topo();
    for machine in [&mut captured, &mut live] {
        machine["topology"]["source"].take();
        // Only a live machine knows this without a word in /proc/cpuinfo.
        machine["topology"]["processor"]["architecture"].take();
        machine["topology"]["kernel_options"].take();
        for node in machine["topology"]["nodes"].as_array_mut().unwrap() {
            node["memory_free"].take();
        }
    }
    assert_eq!(captured, live);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_text_names_every_node() {
    let text = output_of("homenode", &["topo"]);
    let shape: Shape = shape();
    for expected in shape.expected_nodes() {
        let id = expected.id.to_string();
        assert!(
            text.lines()
                .any(|line| line.split_whitespace().next() == Some(&id)),
            "no line for node {id} in\n{text}"
        );
    }
}
