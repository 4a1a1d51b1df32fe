use std::path::Path;

use super::*;

const GOOD: &str = r#"
description = "two nodes"
distances = [[10, 21], [21, 10]]
[cpu]
sockets = 2
cores = 1
[[node]]
id = 0
cpus = "0"
memory = "256MiB"
[[node]]
id = 1
cpus = "1"
memory = "128MiB"
[expect]
verdict = "plain"
"#;

fn parse(text: &str) -> Result<Shape, ShapeError> {
    Shape::parse("test", text)
}

/// The message for `GOOD` with `from` replaced by `to`.
fn message(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn every_file_is_a_shape_and_is_listed() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("shapes");
    let mut files: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let mut listed: Vec<String> = Shape::names().map(|name| format!("{name}.toml")).collect();
    listed.sort();
    assert_eq!(files, listed);
    for name in Shape::names() {
        let shape = Shape::named(name).unwrap();
        assert!(
            shape.text.starts_with("# "),
            "{name} does not say why it is interesting"
        );
    }
}

#[test]
fn facts_of_a_shape() {
    let shape = parse(GOOD).unwrap();
    assert_eq!(shape.memory(), Bytes(384 << 20));
    assert_eq!(
        shape.packages(),
        [
            CpuSet::parse_list("0").unwrap(),
            CpuSet::parse_list("1").unwrap()
        ]
    );
    assert_eq!(shape.distances().get(NodeId(0), NodeId(1)), Some(&21));
    assert_eq!(shape.expected_nodes(), shape.nodes());
}

#[test]
fn a_kernel_argument_can_change_what_is_expected() {
    let shape = Shape::named("2n-numa-off").unwrap();
    assert_eq!(shape.nodes().len(), 2);
    assert_eq!(shape.expected_nodes().len(), 1);
    assert_eq!(shape.expected_distances().nodes(), [NodeId(0)]);
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let message = Shape::named("3n").unwrap_err().to_string();
    assert!(
        message.contains("found `3n`") && message.contains("4n-ring"),
        "{message}"
    );
}

#[test]
fn unknown_and_missing_fields_are_refused() {
    for (from, to, expected) in [
        ("sockets = 2", "socket = 2", "unknown field `socket`"),
        ("verdict = \"plain\"", "", "missing field `verdict`"),
        ("128MiB", "128 cats", "expected a size such as 512MiB"),
        (
            "cpus = \"1\"",
            "cpus = \"3-1\"",
            "expected a range from low to high",
        ),
    ] {
        let message = message(from, to);
        assert!(
            message.contains("lab/shapes/test.toml") && message.contains(expected),
            "{message}"
        );
    }
}

#[test]
fn impossible_machines_are_refused() {
    for (from, to, expected) in [
        (
            "id = 1",
            "id = 3",
            "node 3: id: expected 1, as QEMU numbers nodes without gaps",
        ),
        (
            "cpus = \"1\"",
            "cpus = \"0\"",
            "node 1: cpus: expected CPUs of no other node, found 0",
        ),
        (
            "cpus = \"1\"",
            "",
            "node: cpus: expected nodes to have CPUs 0-1 between them, found 0",
        ),
        (
            "cores = 1",
            "cores = 99",
            "cpu: expected 1 to 64 CPUs in all",
        ),
        (
            "[10, 21]",
            "[10, 21, 30]",
            "distances: expected 2 values in the row of node 0, found 3",
        ),
        (
            "[10, 21]",
            "[11, 21]",
            "expected 10 to 10 from node 0 to node 0, found 11",
        ),
        (
            "[10, 21]",
            "[10, 9]",
            "expected 10 to 254 from node 0 to node 1, found 9",
        ),
        (
            "256MiB",
            "0",
            "node 0: memory: expected memory, as machines start from node 0",
        ),
        ("256MiB", "1KiB", "node 0: memory: expected whole mebibytes"),
        ("\"plain\"", "\"\"", "expect: verdict"),
        (
            "\"plain\"",
            "\"plain\"\ndistances = [[10]]",
            "expected `node` and `distances` together",
        ),
    ] {
        let message = message(from, to);
        assert!(message.starts_with("lab/shapes/test.toml: "), "{message}");
        assert!(message.contains(expected), "{message}\nlacks\n{expected}");
    }
}

#[test]
fn hmat_must_name_nodes_that_can() {
    for (entry, expected) in [
        (
            "from = 2\nto = 0\nlatency_ns = 1\nbandwidth_per_second = \"1GiB\"",
            "expected `from` to be a node with CPUs",
        ),
        (
            "from = 0\nto = 2\nlatency_ns = 1\nbandwidth_per_second = \"1GiB\"",
            "expected `to` to be a node with memory",
        ),
        (
            "from = 0\nto = 0\nlatency_ns = 0\nbandwidth_per_second = \"1GiB\"",
            "expected a latency above 0",
        ),
        (
            "from = 0\nto = 0\nlatency_ns = 1\nbandwidth_per_second = \"1KiB\"",
            "whole mebibytes per second",
        ),
    ] {
        let message = parse(&format!("{GOOD}\n[[hmat]]\n{entry}"))
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{message}");
    }
}
