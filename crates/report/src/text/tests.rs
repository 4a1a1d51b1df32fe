//! Whole screens, and what must hold for every machine at every width.

use homenode_topology::{Topology, Verdict};

use super::*;
use crate::sample;

fn screen(topology: &Topology, verdict: &Verdict, width: usize) -> String {
    let options = TextOptions {
        width,
        ..TextOptions::default()
    };
    topology_text(topology, verdict, &options)
}

macro_rules! screens {
    ($($name:ident: $topology:expr, $verdict:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let (topology, verdict) = ($topology, $verdict);
                let narrow = screen(&topology, &verdict, 80);
                insta::assert_snapshot!(concat!(stringify!($name), "_80"), narrow);
                let wide = screen(&topology, &verdict, 120);
                insta::assert_snapshot!(concat!(stringify!($name), "_120"), wide);
            }
        )*
        /// Every machine there is a screen of.
        fn machines() -> Vec<(&'static str, Topology, Verdict)> {
            vec![$((stringify!($name), $topology, $verdict)),*]
        }
    };
}

screens! {
    single: sample::single(), sample::uniform();
    two_nodes: sample::two_nodes(), sample::plain(2);
    ring4: sample::ring4(), sample::plain(4);
    snc_cpuless: sample::snc_cpuless(), sample::snc();
    sparse: sample::sparse(), sample::l3_as_numa();
    memoryless: sample::memoryless(), sample::plain(2);
    devices: sample::devices(), sample::plain(2);
    big: sample::big(), sample::plain(64);
    gpus: sample::gpus(), sample::plain(2);
    nothing_but_cpus: sample::nothing_but_cpus(), sample::plain(2);
    crowded: sample::crowded(), sample::plain(2);
    contained: sample::contained(), sample::plain(2);
}

#[test]
fn no_line_is_wider_than_the_screen_and_none_ends_in_a_blank() {
    for (name, topology, verdict) in machines() {
        for width in [40, 60, 80, 120, 200] {
            for full in [false, true] {
                let options = TextOptions {
                    width,
                    colour: false,
                    full,
                };
                let text = topology_text(&topology, &verdict, &options);
                for line in text.lines() {
                    assert!(line.chars().count() <= width, "{name} at {width}: {line}");
                    assert!(!line.ends_with(' '), "{name} at {width}: {line:?}");
                }
                assert!(text.ends_with('\n') && !text.contains("\n\n\n"), "{name}");
            }
        }
    }
}

#[test]
fn the_first_screen_has_the_whole_table_of_nodes() {
    for (name, topology, verdict) in machines() {
        let text = screen(&topology, &verdict, 80);
        let first: Vec<&str> = text.lines().take(24).collect();
        assert!(
            first.iter().any(|line| line.starts_with("distance ")),
            "{name}"
        );
        let last = topology
            .nodes
            .last()
            .map(|node| node.id.to_string())
            .unwrap();
        let is_row = |line: &&&str| line.trim_start().starts_with(&last) || line.contains("0-63");
        assert!(
            first.iter().skip(4).any(|line| is_row(&line)),
            "{name}:\n{text}"
        );
    }
}

#[test]
fn colour_changes_no_character() {
    for (name, topology, verdict) in machines() {
        let options = TextOptions {
            colour: true,
            ..TextOptions::default()
        };
        let mut text = topology_text(&topology, &verdict, &options);
        assert!(text.contains('\x1b'), "{name}");
        for codes in ["1", "2", "32", "33", "31", "0"] {
            text = text.replace(&format!("\x1b[{codes}m"), "");
        }
        assert_eq!(text, screen(&topology, &verdict, 80), "{name}");
    }
}

#[test]
fn reasons_of_single_cells_are_said_once_below_the_table() {
    let mut topology = sample::ring4();
    for index in [1, 3] {
        topology.nodes[index].memory_free = homenode_units::Reading::absent("no MemFree");
    }
    let text = screen(&topology, &sample::plain(4), 80);
    assert_eq!(text.matches("n/a¹").count(), 2, "{text}");
    assert_eq!(text.matches("no MemFree").count(), 1, "{text}");
}
