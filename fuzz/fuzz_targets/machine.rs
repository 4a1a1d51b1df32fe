//! A machine's files: any content gives a possible machine that we can show, or an error.
//!
//! An input is lines of `path TAB content`; `\` at the end of a content stands for a line feed.

#![no_main]

use homenode_host::Snapshot;
use homenode_report::{
    NumactlLayout, TextOptions, coreinfo, numactl_hardware, to_hwloc_xml, topology_json,
    topology_svg, topology_text,
};
use homenode_topology::{Detail, Source, parse_hwloc_xml, read_topology, scrub};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut machine = Snapshot::default();
    for line in text.lines() {
        match line.split_once('\t') {
            Some((path, content)) => machine.add_file(path, content.replace('\\', "\n")),
            None => machine.add_folder(line),
        }
    }
    for detail in [Detail::Fast, Detail::Full] {
        let source = Source::Captured("fuzz".to_owned());
        let Ok(topology) = read_topology(&machine, source, detail) else { continue };
        let verdict = topology.verdict();
        let _ = topology_text(&topology, &verdict, &TextOptions::default());
        let _ = topology_json(&topology, &verdict);
        let _ = topology_svg(&topology, &verdict);
        let _ = coreinfo(&topology);
        let _ = numactl_hardware(&topology, NumactlLayout::V2_0_19);
        let xml = to_hwloc_xml(&topology);
        parse_hwloc_xml(xml.as_bytes(), "ours").expect("we read what we write");
    }
    scrub(&mut machine);
});
