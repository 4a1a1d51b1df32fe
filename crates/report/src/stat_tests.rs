use std::time::Duration;

use homenode_observe::{NodeCounters, NodeSample};
use homenode_topology::parse_synthetic;

use super::*;

const TWO: &str = "(distances=10,21;21,10) pack:2 [numa(memory=16GiB)] l3:1 core:8 pu:2";

fn observation(seconds: u64, foreign: u64) -> Observation {
    let counters = |numa_foreign| NodeCounters {
        numa_hit: 1000 * seconds,
        numa_foreign,
        ..NodeCounters::default()
    };
    let node = |node, total_mib: u64, free_mib: u64, foreign| NodeSample {
        node: NodeId(node),
        memory: Reading::Known(
            homenode_observe::parse_meminfo(&format!(
                "MemTotal: {} kB\nMemFree: {} kB\n",
                total_mib << 10,
                free_mib << 10
            ))
            .unwrap(),
        ),
        counters: Reading::Known(counters(foreign)),
    };
    Observation {
        taken_at: Duration::from_secs(seconds),
        since_epoch: Duration::from_secs(seconds),
        nodes: vec![
            // `numactl -H` of a host with two Xeon Silver 4214.
            node(0, 130_669, 112_885, foreign),
            node(1, 131_072, 102_788, 0),
        ],
        pressure: Reading::Known(0.0),
        processes: Vec::new(),
        groups: Vec::new(),
        unreadable: 2,
        took: Duration::ZERO,
    }
}

fn stat(foreign: u64) -> StatReport {
    let topology = parse_synthetic(TWO).unwrap();
    let (earlier, later) = (observation(10, 0), observation(12, foreign));
    stat_report(
        &distances_of(&topology),
        &earlier,
        &later,
        View::Processes,
        10,
    )
}

#[test]
fn t32_used_is_size_less_free() {
    let stat = stat(0);
    let used: Vec<u64> = stat
        .nodes
        .iter()
        .map(|node| node.used.known().unwrap().mib())
        .collect();
    assert_eq!(used, [17_784, 28_284]);
    let text = stat_text(&stat, 80);
    assert!(text.contains("14%") && text.contains("22%"), "{text}");
    assert!(text.contains("2 could not be read"), "{text}");
}

#[test]
fn t28_the_verdict_names_the_node_that_misses_with_rate_and_cost() {
    let verdict = &stat(2000).verdict;
    assert_eq!(verdict.len(), 1, "{verdict:?}");
    // 2,000 pages in 2 s, beside 1,000 pages/s that were placed as wanted.
    for words in [
        "node 0 misses: 1,000 pages/s",
        "3.9 MiB/s",
        "50%",
        "2.1 times",
        "not measured",
    ] {
        assert!(verdict[0].contains(words), "{words}: {verdict:?}");
    }
    assert!(stat(0).verdict[0].contains("no node misses"));
}

#[test]
fn lines_fit_the_terminal() {
    for width in [60, 80, 160] {
        let text = stat_text(&stat(2000), width);
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{line}");
        }
    }
}
