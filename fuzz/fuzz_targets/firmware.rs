//! ACPI tables and DMI structures: any bytes give a table, or an error.

#![no_main]

use homenode_topology::{acpi, dmi};
use libfuzzer_sys::fuzz_target;

/// Where an ACPI table keeps its checksum (ACPI 6.5, 5.2.6).
const CHECKSUM: usize = 9;

fuzz_target!(|data: &[u8]| {
    // Nearly no input has the right sum by chance, and nothing behind the check would be reached.
    let mut summed = data.to_vec();
    if let Some(checksum) = summed.get_mut(CHECKSUM) {
        *checksum = 0;
        let sum = summed.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        summed[CHECKSUM] = sum.wrapping_neg();
    }
    for bytes in [data, &summed] {
        let _ = acpi::parse_srat(bytes);
        let _ = acpi::parse_slit(bytes);
        let _ = acpi::parse_hmat(bytes);
    }
    let _ = dmi::parse_memory_slot(data);
    assert_eq!(dmi::scrub_dmi(data).len(), data.len());
});
