//! hwloc XML: any bytes give a possible machine that we can write again, or an error.

#![no_main]

use homenode_report::to_hwloc_xml;
use homenode_topology::parse_hwloc_xml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(machine) = parse_hwloc_xml(data, "fuzz") else { return };
    machine.check().expect("the reader checks what it returns");
    let _ = machine.verdict();
    let ours = to_hwloc_xml(&machine);
    parse_hwloc_xml(ours.as_bytes(), "ours").expect("we read what we write");
});
