//! Synthetic descriptions: any text gives a possible machine, or an error.

#![no_main]

use homenode_topology::parse_synthetic;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(machine) = parse_synthetic(text) {
        machine.check().expect("the reader checks what it returns");
        let _ = machine.verdict();
    }
});
