use homenode_topology::parse_synthetic;

use super::*;

fn sites(text: &str) -> Sites {
    Sites::of(&parse_synthetic(text).unwrap())
}

#[test]
fn counts_double_up_to_all() {
    assert_eq!(thread_counts(1, false), [1]);
    assert_eq!(thread_counts(6, false), [1, 2, 4, 6]);
    assert_eq!(thread_counts(16, true), [1, 4, 16]);
}

/// T21: single keeps to one node, distributed goes round; remote is the same with other memory.
#[test]
fn threads_sit_where_their_arrangement_says() {
    let sites = sites("pack:2 [numa(memory=16GB)] core:2 pu:1");
    let nodes = |arrangement, threads| -> Vec<(u32, u32, usize)> {
        let seats = seating(&sites, arrangement, threads).into_iter();
        seats
            .map(|(from, _, to, index)| (from.0, to.0, index))
            .collect()
    };
    assert_eq!(nodes(Arrangement::Single, 2), [(0, 0, 0), (0, 0, 1)]);
    assert_eq!(nodes(Arrangement::Single, 9).len(), 2);
    let distributed = [(0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)];
    assert_eq!(nodes(Arrangement::Distributed, 4), distributed);
    assert_eq!(nodes(Arrangement::Remote, 2), [(0, 1, 0), (1, 0, 0)]);
    let interleaved: Vec<usize> = nodes(Arrangement::Interleaved, 3)
        .iter()
        .map(|seat| seat.2)
        .collect();
    assert_eq!(interleaved, [0, 1, 2]);
}

/// Hager's factors: copy 1.5, triad 1.33; stores past the caches cost nothing more.
#[test]
fn bus_bytes_are_estimated_by_the_rule() {
    let close = |found: (f64, f64), least: f64, most: f64| {
        assert!(
            (found.0 - least).abs() < 1e-9 && (found.1 - most).abs() < 1e-9,
            "{found:?}"
        );
    };
    close(bus_factor(Operation::Read), 1.0, 1.0);
    close(bus_factor(Operation::Write), 1.0, 2.0);
    close(bus_factor(Operation::Copy), 1.0, 1.5);
    close(bus_factor(Operation::CopyNt), 1.0, 1.0);
    close(bus_factor(Operation::Triad), 1.0, 4.0 / 3.0);
}
