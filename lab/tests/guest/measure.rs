//! `homenode measure` on machines with several nodes: shapes, placement, and what is refused. The
//! emulated memory is equally fast everywhere, so no time is judged.

use std::process::{Command, Stdio};

use homenode_units::{NodeId, NodeSet};
use serde_json::Value;

use crate::support::node_set;

/// Cells of a run, where they are enough for the test. A busy host may stop the guest for seconds: then
/// those of a second run, with more time.
fn cells(arguments: &[&str], is_enough: fn(&[Value]) -> bool) -> Vec<Value> {
    let run = |budget: &str| {
        let output = Command::new("homenode")
            .arg("measure")
            .args(arguments)
            .args(["--json", "--no-save", "--budget", budget])
            .output()
            .expect("homenode starts");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            panic!("{arguments:?}: {error}: {stderr}")
        });
        document["cells"].as_array().expect("cells").clone()
    };
    let cells = run("3s");
    if is_enough(&cells) { cells } else { run("20s") }
}

fn nodes(cell: &Value, side: &str) -> NodeSet {
    NodeSet::parse_list(cell[side].as_str().expect("a list")).expect("a list of nodes")
}

fn is_measured(cell: &Value) -> bool {
    cell["outcome"]["median"]
        .as_f64()
        .is_some_and(|median| median > 0.0)
}

const SMALL: [&str; 2] = ["--size", "2MiB"];

/// Why a cell may be empty where one host thread emulates all CPUs: time runs out, and threads that
/// should work at the same time do not. Nothing else is an excuse.
const EXCUSES: [&str; 3] = [
    "no time was left",
    "never worked at the same time",
    "its latency was not measured",
];

/// Threads of four nodes would not meet in the time there is: two nodes measure all the memory there.
fn from_two_nodes() -> Vec<&'static str> {
    match node_set("has_cpu").len() {
        0..=3 => Vec::new(),
        _ => vec!["--from", "0-1"],
    }
}

/// A node without CPUs is a column only, one without memory a row only.
#[test]
fn the_latency_matrix_has_the_shape_of_the_machine() {
    let all: fn(&[Value]) -> bool = |cells| cells.iter().all(is_measured);
    let cells = cells(&["latency", "--quick", "--size", "2MiB"], all);
    let rows = node_set("has_cpu");
    let columns = node_set("has_memory");
    let mut kinds = 0;
    for pages in ["base", "huge"] {
        let of: Vec<&Value> = cells
            .iter()
            .filter(|cell| (cell["pages"] == "base") == (pages == "base"))
            .collect();
        // Where there are no huge pages, there is one walk.
        if of.is_empty() {
            continue;
        }
        kinds += 1;
        for row in rows.iter() {
            for column in columns.iter() {
                let pair = |cell: &&&Value| {
                    nodes(cell, "from").lowest() == Some(row)
                        && nodes(cell, "to").lowest() == Some(column)
                };
                assert!(
                    of.iter().any(|cell| pair(&cell)),
                    "{row} to {column}, {pages}"
                );
            }
        }
    }
    assert_eq!(cells.len(), kinds * rows.len() * columns.len());
    assert!(cells.iter().all(is_measured), "{cells:?}");
}

#[test]
fn every_test_runs_to_its_end() {
    // The first touch has a test of its own.
    for test in [
        "bandwidth",
        "working-set",
        "loaded-latency",
        "interleave",
        "core-to-core",
        "rmma",
    ] {
        // A line between two CPUs has no size.
        let small = match test {
            "core-to-core" => &[],
            _ => &SMALL[..],
        };
        let from = from_two_nodes();
        let cells = cells(&[&[test, "--quick"], small, &from[..]].concat(), |cells| {
            cells.iter().any(is_measured)
        });
        let measured = cells.iter().filter(|cell| is_measured(cell)).count();
        assert!(measured > 0, "{test}: {cells:?}");
        for cell in cells.iter().filter(|cell| !is_measured(cell)) {
            let why = cell["outcome"]["absent"].as_str().unwrap_or_default();
            assert!(
                EXCUSES.iter().any(|excuse| why.contains(excuse)),
                "{test}: {cell}"
            );
        }
    }
}

/// T24 to T26: where memory lies is decided by who touches it, or by where it was placed.
#[test]
fn first_touch_places_pages_as_documented() {
    // A share may be 0.
    let all: fn(&[Value]) -> bool = |cells| {
        let numbers = cells.iter().map(|cell| &cell["outcome"]["median"]);
        numbers.into_iter().all(Value::is_number)
    };
    let cells = cells(&[&["first-touch"], &SMALL[..]].concat(), all);
    let share = |arrangement: &str, on_user: bool| {
        let is_it = |cell: &&Value| {
            cell["metric"] == "page-share"
                && cell["arrangement"] == arrangement
                && cell["at"].is_number() == on_user
        };
        let cell = cells
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no {arrangement}"));
        cell["outcome"]["median"].as_f64().expect("a share")
    };
    assert!(share("touched-by-one", false) > 0.99);
    assert!(share("touched-by-user", true) > 0.99);
    assert!(share("placed-at-allocation", false) > 0.99);
    let with_both = node_set("has_cpu").intersection(&node_set("has_memory"));
    if with_both.len() > 1 {
        assert!(
            share("touched-by-one", true) < 0.99,
            "users on other nodes are remote"
        );
        assert!(share("touched-by-user", false) < 0.99);
    }
}

/// Somebody moves the memory while it is measured: the cells are refused.
#[test]
fn memory_that_is_moved_away_is_noticed() {
    let memory = node_set("has_memory");
    let (Some(from), Some(to)) = (memory.lowest(), memory.highest()) else {
        panic!("a machine without memory");
    };
    if from == to {
        return;
    }
    let from_text = from.to_string();
    let mut child = Command::new("homenode")
        .args([
            "measure",
            "latency",
            "--quick",
            "--json",
            "--no-save",
            "--size",
            "2MiB",
        ])
        .args(["--budget", "4s", "--to", &from_text])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("homenode starts");
    let pid = child.id().to_string();
    // Once its buffers are there; a walk is laid in well under the time that sampling takes.
    let buffer_pages = |node: NodeId| -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default();
        let field = format!(" N{node}=");
        maps.lines()
            .filter(|line| line.contains("bind"))
            .filter_map(|line| {
                line.split_once(&field)?
                    .1
                    .split(' ')
                    .next()?
                    .parse::<usize>()
                    .ok()
            })
            .sum()
    };
    while buffer_pages(from) < 2 * 512 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Memory is placed anew now and then: whenever that is, it is moved again.
    while child.try_wait().expect("it is a child").is_none() {
        // It may end meanwhile.
        let _ = Command::new("migratepages")
            .args([&pid, &from_text, &to.to_string()])
            .output();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let output = child.wait_with_output().expect("it ends");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let refused = document["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .filter(|cell| {
            let why = cell["outcome"]["absent"].as_str().unwrap_or_default();
            why.contains(&format!("expected its pages on node {from}"))
        });
    assert!(refused.count() > 0, "{document}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn nodes_that_cannot_be_measured_are_refused() {
    let refused = |flag: &str, node: NodeId| {
        let output = Command::new("homenode")
            .args(["measure", "latency", flag, &node.to_string()])
            .output()
            .expect("homenode starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flag} {node}: {stderr}");
        assert!(stderr.contains("help: "), "{stderr}");
    };
    let online = node_set("online");
    for node in online.difference(&node_set("has_cpu")).iter() {
        refused("--from", node);
    }
    for node in online.difference(&node_set("has_memory")).iter() {
        refused("--to", node);
    }
    refused("--to", NodeId(99));
}
