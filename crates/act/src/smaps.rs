//! Which mappings consist of explicit huge pages.

use std::collections::BTreeMap;

/// The size of the pages of each mapping of explicit huge pages, by its first address.
///
/// Unit: bytes. Source: `KernelPageSize` of those mappings of `/proc/<pid>/smaps` whose `VmFlags`
/// hold `ht`, `proc_pid_smaps(5)`. What is not understood is left out: such a mapping is then
/// walked in base pages, which is slower and right (kernel.md, 6.3).
pub(crate) fn parse_huge_mappings(text: &str) -> BTreeMap<usize, usize> {
    let mut found = BTreeMap::new();
    let mut start = None;
    let mut page_bytes = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("KernelPageSize:") => {
                page_bytes = words
                    .next()
                    .and_then(|kib| kib.parse::<usize>().ok())
                    .and_then(|kib| kib.checked_mul(1024))
                    .filter(|bytes| bytes.is_power_of_two());
            }
            Some("VmFlags:") if words.any(|flag| flag == "ht") => {
                if let (Some(start), Some(page_bytes)) = (start, page_bytes) {
                    found.insert(start, page_bytes);
                }
            }
            Some(word) if !word.ends_with(':') => {
                start = word
                    .split_once('-')
                    .and_then(|(start, _)| usize::from_str_radix(start, 16).ok());
                page_bytes = None;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_explicit_huge_pages_are_found() {
        let text = "\
7f0000000000-7f0040000000 rw-s 00000000 00:0f 5 /dev/hugepages/vm: 1
Size:            1048576 kB
KernelPageSize:     2048 kB
MMUPageSize:        2048 kB
VmFlags: rd wr mr mw me ms de ht sd
7f0080000000-7f00a0000000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
VmFlags: rd wr mr mw me ac sd
7f00b0000000-7f00c0000000 rw-p 00000000 00:00 0
KernelPageSize:        odd kB
VmFlags: ht
";
        let found = parse_huge_mappings(text);
        assert_eq!(found, BTreeMap::from([(0x7f00_0000_0000, 2 << 20)]));
    }
}
