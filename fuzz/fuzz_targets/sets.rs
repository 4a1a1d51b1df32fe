//! Lists and masks: any text gives a set that survives a round trip, or an error.

#![no_main]

use homenode_units::{Bytes, CpuSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for set in [CpuSet::parse_list(text), CpuSet::parse_mask(text)].into_iter().flatten() {
        assert_eq!(CpuSet::parse_list(&set.to_string()).as_ref(), Ok(&set));
        assert_eq!(CpuSet::parse_mask(&set.to_mask()).as_ref(), Ok(&set));
    }
    let _ = text.parse::<Bytes>();
});
