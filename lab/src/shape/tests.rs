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

mod timing {
    use super::*;

    /// The shape `drepper` with `from` replaced by `to`: the line and the words of the complaint.
    fn complaint(from: &str, to: &str) -> (usize, String) {
        let text = Shape::named("drepper").unwrap().text;
        assert!(text.contains(from), "{from}");
        match parse(&text.replacen(from, to, 1)).unwrap_err() {
            ShapeError::Timing { line, problem, .. } => (line, problem),
            other => panic!("{other}"),
        }
    }

    /// The line of `drepper` that has `words`, counted from 1.
    fn line_of(words: &str) -> usize {
        let text = Shape::named("drepper").unwrap().text;
        1 + text.lines().position(|line| line.contains(words)).unwrap()
    }

    #[test]
    fn a_machine_is_what_its_shape_says() {
        let shape = Shape::named("drepper").unwrap();
        let machine = shape.machine().unwrap();
        machine.check().unwrap();
        let path = |from: usize, to: usize| machine.paths[from * 4 + to].as_ref().unwrap();
        assert_eq!(path(0, 0).read_ps, 100_000);
        assert_eq!(path(0, 3).read_ps, 130_000);
        assert_eq!(path(0, 3).write_ps, 149_000);
        let names = |parts: &[u16]| -> Vec<&str> {
            let names = parts
                .iter()
                .map(|&part| &machine.resources[usize::from(part)].name);
            names.map(String::as_str).collect()
        };
        assert_eq!(names(&path(0, 0).fetch), ["controller 0"]);
        assert_eq!(
            names(&path(0, 3).fetch),
            ["controller 3", "link 1 to 0", "link 3 to 1"]
        );
        assert_eq!(
            names(&path(0, 3).write_back),
            ["controller 3", "link 0 to 1", "link 1 to 3"]
        );
        // 6.4 GB/s.
        assert_eq!(machine.resources[0].line_ps, 10_000);
        // 100 ns are ten lines; 2.5 times that, between two CPUs.
        assert_eq!(machine.cpus[7].lines_in_flight, 13);
        assert_eq!(machine.cpus[7].node, 3);
        assert_eq!(machine.caches.len(), 16);
        assert_eq!(
            (machine.caches[8].sets, machine.caches[8].ways),
            (1_024, 16)
        );
    }

    #[test]
    fn shapes_without_costs_have_no_machine() {
        assert_eq!(Shape::named("2n").unwrap().machine(), None);
    }

    #[test]
    fn firmware_can_hide_nodes() {
        let shape = Shape::named("xeon-4214-numa-off").unwrap();
        assert_eq!(shape.nodes().len(), 1);
        let machine = shape.machine().unwrap();
        assert_eq!(machine.nodes, 2);
        assert_eq!(machine.interleave, [0, 1]);
        assert_eq!(machine.cpus[3].node, 0);
        assert_eq!(machine.cpus[4].node, 1);
    }

    #[test]
    fn memory_without_cpus_and_cpus_without_memory() {
        let shape = Shape::named("cxl").unwrap();
        let machine = shape.machine().unwrap();
        assert_eq!(machine.paths[2].as_ref().unwrap().read_ps, 266_000);
        assert_eq!(machine.paths[3 * 2], None, "node 2 has no CPUs");
        let shape = Shape::named("opteron-4p0").unwrap();
        let machine = shape.machine().unwrap();
        assert_eq!(machine.paths[1], None, "node 1 has no memory");
        assert_eq!(machine.paths[2].as_ref().unwrap().read_ps, 70_600);
    }

    #[test]
    fn wrong_costs_are_refused_with_their_line() {
        for (from, to, place, expected) in [
            (
                "[100, 109, 109, 130]",
                "[100, 109, 109]",
                "read_ns",
                "expected a value for each of 4 nodes with memory in the row of node 0, found 3",
            ),
            (
                "[6.4, 6.4, 6.4, 6.4]",
                "[6.4, 0, 6.4, 6.4]",
                "controllers_gb_per_s",
                "expected 0.001 to 10000 GB/s, found 0",
            ),
            (
                "[6.4, 6.4, 6.4, 6.4]",
                "[6.4]",
                "controllers_gb_per_s",
                "expected a value for each of 4 nodes with memory, found 1",
            ),
            (
                "instruction_ns = 0.4",
                "instruction_ns = 0",
                "instruction_ns",
                "expected 0.05 to 10 ns, found 0",
            ),
            (
                "between = [0, 2]",
                "between = [0, 4]",
                "between = [0, 2]",
                "expected two of nodes 0-3, found 0 and 4",
            ),
            (
                "between = [0, 2]",
                "between = [1, 0]",
                "between = [0, 2]",
                "expected nodes 1 and 0 once",
            ),
            (
                "size = \"1MiB\"",
                "size = \"1000000B\"",
                "size = \"1MiB\"",
                "expected a size of up to 1 GiB that is a multiple of 1024 bytes",
            ),
            (
                "size = \"64KiB\"",
                "size = \"48KiB\"",
                "size = \"64KiB\"",
                "expected a power of two of sets, found 384",
            ),
            (
                "latency_ns = 5.5",
                "latency_ns = 100",
                "read_ns",
                "expected memory to be slower than every cache",
            ),
            (
                "level = 2",
                "level = 3",
                "level = 2",
                "expected level 2, found 3",
            ),
        ] {
            let (line, problem) = complaint(from, to);
            assert!(problem.contains(expected), "{problem}");
            // Tables that are written over several lines are told by the row at fault.
            assert!(line.abs_diff(line_of(place)) <= 1, "line {line}: {problem}");
        }
    }

    #[test]
    fn the_line_is_part_of_the_message() {
        let text = Shape::named("drepper").unwrap().text;
        let text = text.replacen("[6.4, 6.4, 6.4, 6.4]", "[6.4, -1, 6.4, 6.4]", 1);
        let message = parse(&text).unwrap_err().to_string();
        let line = line_of("controllers_gb_per_s");
        assert!(
            message.starts_with(&format!("lab/shapes/test.toml:{line}: timing: ")),
            "{message}"
        );
    }

    #[test]
    fn too_many_cpus_are_refused() {
        let text = Shape::named("epyc-nps1").unwrap().text;
        let text = text
            .replacen("cores = 2", "cores = 9", 1)
            .replacen("0-7", "0-35", 1);
        let message = parse(&text).unwrap_err().to_string();
        assert!(
            message.contains("expected at most 32 CPUs, found 36"),
            "{message}"
        );
    }

    #[test]
    fn unreachable_nodes_are_refused() {
        let text = Shape::named("opteron").unwrap().text;
        let (before, link_and_after) = text.split_once("[[timing.link]]").unwrap();
        let (_, after) = link_and_after.split_once("\n\n").unwrap();
        let message = parse(&format!("{before}{after}")).unwrap_err().to_string();
        assert!(
            message.contains("expected links that lead from node 0 to node 1"),
            "{message}"
        );
    }
}
