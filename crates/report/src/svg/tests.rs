//! Drawings are well-formed, boxes do not overlap, words stay inside.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;
use crate::sample;

fn machines() -> Vec<(&'static str, Topology, Verdict)> {
    vec![
        ("single", sample::single(), sample::uniform()),
        ("two_nodes", sample::two_nodes(), sample::plain(2)),
        ("ring4", sample::ring4(), sample::plain(4)),
        ("snc_cpuless", sample::snc_cpuless(), sample::snc()),
        ("sparse", sample::sparse(), sample::l3_as_numa()),
        ("memoryless", sample::memoryless(), sample::plain(2)),
        ("devices", sample::devices(), sample::plain(2)),
        ("big", sample::big(), sample::plain(64)),
        ("gpus", sample::gpus(), sample::plain(2)),
        (
            "nothing_but_cpus",
            sample::nothing_but_cpus(),
            sample::plain(2),
        ),
    ]
}

/// Writes the drawings where a person can look at them: `HOMENODE_DRAWINGS=DIR cargo test`.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that writes for a person, when asked to"
)]
fn drawings_for_people() {
    let Ok(folder) = std::env::var("HOMENODE_DRAWINGS") else {
        return;
    };
    for (name, topology, verdict) in machines() {
        let path = format!("{folder}/{name}.svg");
        std::fs::write(path, topology_svg(&topology, &verdict)).unwrap();
    }
}
