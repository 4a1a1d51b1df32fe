use homenode_measure::{
    Arrangement, Cell, Conditions, Document, Estimate, MachineId, Metric, Outcome, Pages, SCHEMA,
    Test, diff,
};
use homenode_topology::parse_synthetic;
use homenode_units::{Bytes, NodeId, NodeSet};

use super::*;

fn estimate(median: f64) -> Estimate {
    Estimate {
        median,
        low: median * 0.995,
        high: median * 1.005,
        min: median * 0.98,
        max: median * 1.2,
        p99: Some(median * 1.1),
        converged: true,
        dropped: 0,
        samples: vec![median; 12],
        placements: Vec::new(),
    }
}

fn cell(test: Test, metric: Metric, (from, to): (u32, u32), value: f64) -> Cell {
    Cell {
        test,
        metric,
        from: NodeSet::from_iter([NodeId(from)]),
        to: NodeSet::from_iter([NodeId(to)]),
        arrangement: Arrangement::Pair,
        threads: 1,
        kernel: "whole".to_owned(),
        pages: Pages::Thp,
        size: Bytes(128 << 20),
        at: None,
        bus_factor: None,
        outcome: Outcome::Measured(estimate(value)),
    }
}

fn document(cells: Vec<Cell>) -> Document {
    Document {
        schema: SCHEMA.to_owned(),
        version: "0".to_owned(),
        taken_at_unix: 1_785_542_400,
        machine: MachineId {
            processor: "Xeon Silver 4214".to_owned(),
            nodes: NodeSet::first(2),
            cpus: homenode_units::CpuSet::first(48),
        },
        conditions: Conditions {
            kernel: Some("6.12".to_owned()),
            hypervisor: Some(false),
            other_busy_cpus: Some(0.9),
            ..Conditions::default()
        },
        interrupted: false,
        notes: Vec::new(),
        cells,
    }
}

/// The matrix of systems.md 2.7 (M7), with one cell refused.
pub(crate) fn xeon() -> Document {
    let latency = |pair, value| cell(Test::Latency, Metric::Latency, pair, value);
    let mut cells = vec![
        latency((0, 0), 79.8),
        latency((0, 1), 136.2),
        latency((1, 0), 136.4),
        latency((1, 1), 79.7),
    ];
    let mut base = cells.clone();
    for cell in &mut base {
        cell.pages = Pages::Base;
    }
    base[2].outcome = Outcome::absent("expected its pages on node 0, found 60.0 % on node 1");
    base[1].outcome = Outcome::Measured(Estimate {
        converged: false,
        ..estimate(180.0)
    });
    cells.extend(base);
    document(cells)
}

#[test]
fn a_latency_matrix_fits_80_columns_and_names_what_is_missing() {
    let machine = parse_synthetic("pack:2 [numa(memory=16GB)] core:12 pu:2").unwrap();
    let text = measure_text(&xeon(), Some(&machine), 80);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

/// T29 and T31: the ratio is 1.71, whatever the firmware's 21 says.
#[test]
fn firmware_that_disagrees_is_named() {
    let mut machine = parse_synthetic("pack:2 [numa(memory=16GB)] core:12 pu:2").unwrap();
    let nodes = vec![NodeId(0), NodeId(1)];
    let slit = [[10, 21], [21, 10]].map(|row| row.map(homenode_topology::Distance).to_vec());
    machine.distances = homenode_units::Reading::Known(
        homenode_units::NodeMatrix::from_rows(nodes, slit.to_vec()).unwrap(),
    );
    let text = measure_text(&xeon(), Some(&machine), 80);
    assert!(text.contains("1.71"), "{text}");
    assert!(
        text.contains("node 0 to 1: the firmware's distance says 2.1 × local, measured 1.71 ×"),
        "{text}"
    );
}

#[test]
fn sixteen_nodes_stay_readable() {
    let mut cells = Vec::new();
    for from in 0..16u32 {
        for to in 0..16 {
            let value = 80.0 + 10.0 * f64::from(from.abs_diff(to));
            cells.push(cell(Test::Latency, Metric::Latency, (from, to), value));
        }
    }
    let text = measure_text(&document(cells), None, 80);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(text.contains("       0   80  90 100 110"), "{text}");
}

#[test]
fn cells_that_cannot_be_told_apart_are_named() {
    let latency = |pair, value| cell(Test::Latency, Metric::Latency, pair, value);
    let same = document(vec![latency((0, 0), 80.0), latency((0, 1), 80.2)]);
    let text = measure_text(&same, None, 80);
    assert!(
        text.contains("cannot be told apart: from node 0, memory of nodes 0-1"),
        "{text}"
    );
}

fn bandwidth_document() -> Document {
    let make = |arrangement, threads, kernel: &str, value: f64, factor| Cell {
        arrangement,
        threads,
        kernel: kernel.to_owned(),
        bus_factor: Some(factor),
        ..cell(Test::Bandwidth, Metric::UsefulBandwidth, (0, 0), value)
    };
    document(vec![
        make(Arrangement::Single, 4, "read avx2", 33.9e9, (1.0, 1.0)),
        make(Arrangement::Single, 4, "copy sse2", 30e9, (1.0, 1.5)),
        make(Arrangement::Single, 1, "read avx2", 20e9, (1.0, 1.0)),
        make(Arrangement::Single, 2, "read avx2", 33.8e9, (1.0, 1.0)),
    ])
}

#[test]
fn bandwidth_shows_its_counting_rule_and_the_knee() {
    let text = measure_text(&bandwidth_document(), None, 80);
    assert!(text.contains("30.0 to 45.0"), "{text}");
    assert!(text.contains("single: 2 threads reach 33.8 GB/s"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

#[test]
fn csv_has_a_line_for_each_cell_and_as_many_fields_in_each() {
    let csv = measure_csv(&xeon());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 8);
    let fields = |line: &str| {
        let mut inside = false;
        line.chars()
            .filter(|&char| {
                inside ^= char == '"';
                char == ',' && !inside
            })
            .count()
    };
    assert!(
        lines.iter().all(|line| fields(line) == fields(lines[0])),
        "{csv}"
    );
    assert!(lines[1].starts_with("latency,\"0\",\"0\",pair,1,whole,thp,134217728,,latency,ns,"));
    assert!(csv.contains("absent: expected its pages on node 0"));
}

#[test]
fn drawings_hold_every_number() {
    let svg = measure_svg(&xeon());
    for text in ["79.8", "136.2", "136.4", "79.7", "n/a"] {
        assert!(svg.contains(text), "{text}");
    }
    let svg = measure_svg(&bandwidth_document());
    assert!(svg.contains("read avx2 by threads") && svg.contains("single"));
}

#[test]
fn a_diff_tells_better_from_worse() {
    let before = xeon();
    let mut after = xeon();
    after.cells[1].outcome = Outcome::Measured(estimate(100.0));
    after.cells[3].outcome = Outcome::Measured(estimate(90.0));
    let text = measure_diff_text(&diff(&before, &after), 80);
    assert!(
        text.starts_with("better   -26.6 %  136.2 to 100.0 ns"),
        "{text}"
    );
    assert!(text.contains("worse    +12.9 %  79.7 to 90.0 ns"), "{text}");
    assert!(
        text.ends_with("1 better, 1 worse, 5 cannot be told apart\n"),
        "{text}"
    );
}

/// A cache is judged by where the latency rises, and not at all where nothing that large was
/// measured.
#[test]
fn caches_are_compared_with_what_sysfs_says() {
    let machine =
        parse_synthetic("pack:1 [numa(memory=16GB)] l3:1(size=32MiB) l2:1(size=1MiB) core:1 pu:1")
            .unwrap();
    let kib = |kib, latency| (Bytes::from_kib(kib), latency);
    let mut latencies = vec![
        kib(64, 3.8),
        kib(256, 3.8),
        kib(512, 3.9),
        kib(1024, 8.0),
        kib(4096, 20.0),
        kib(8192, 22.0),
        kib(16384, 125.0),
    ];
    let lines = curves::cache_lines(&machine, &latencies);
    assert!(
        lines.iter().all(|line| !line.starts_with("L3")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.ends_with("as seen")),
        "{lines:?}"
    );
    latencies.push(kib(65536, 160.0));
    let lines = curves::cache_lines(&machine, &latencies);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("but 16 MiB are slow already")),
        "{lines:?}"
    );
}

/// T1 to T3, with the study's numbers: 45 and 70 ns, 6.4 and 3.2 GB/s.
#[test]
fn interleaving_is_compared_with_what_its_parts_say() {
    let latency = tables::expectation(Metric::Latency, &[45.0, 70.0], 57.6);
    assert!(latency[0].starts_with("expected 57.5 ns"), "{latency:?}");
    assert!(latency[0].contains("as expected"), "{latency:?}");
    let bandwidth = tables::expectation(Metric::UsefulBandwidth, &[6.4e9, 3.2e9], 4.2e9);
    assert!(bandwidth[0].contains("expected 4.3 GB/s"), "{bandwidth:?}");
    assert!(
        bandwidth[0].contains("4.8 if nodes add up"),
        "{bandwidth:?}"
    );
    assert!(bandwidth[0].contains("take turns"), "{bandwidth:?}");
    let both = tables::expectation(Metric::UsefulBandwidth, &[6.4e9, 3.2e9], 4.8e9);
    assert!(both[0].contains("both controllers"), "{both:?}");
}
