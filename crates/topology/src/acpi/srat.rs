//! System Resource Affinity Table (ACPI 6.5, 5.2.16).

use std::collections::BTreeMap;

use super::{Fields, TableError};
use crate::{Srat, SratDomain};
use homenode_units::Bytes;

const SIGNATURE: &str = "SRAT";
/// Header, four reserved bytes and eight more (ACPI 6.5, table 5.50).
const FIXED_BYTES: usize = 48;

/// Bit 0 of every flags field: the entry is in use.
const ENABLED: u32 = 1;
/// Bit 1 of a memory entry's flags: its memory may come or go.
const HOT_PLUGGABLE: u32 = 1 << 1;

/// Reads which processors, memory and devices the firmware puts into which proximity domain.
///
/// Disabled entries are passed over, as Linux does: firmware fills the table for the largest
/// machine of its line and enables what is fitted.
///
/// # Errors
///
/// [`TableError::Short`], [`TableError::Signature`], [`TableError::Length`] or
/// [`TableError::Checksum`] for a table that is none, [`TableError::Entry`] for an entry that is
/// cut off or shorter than its kind.
pub fn parse_srat(bytes: &[u8]) -> Result<Srat, TableError> {
    let table = Fields::of_table(SIGNATURE, bytes, FIXED_BYTES)?;
    let revision = table.revision()?;
    let mut domains = BTreeMap::new();
    let mut at = FIXED_BYTES;
    while at < bytes.len() {
        let length = usize::from(table.part(at, 2)?.u8(1)?);
        let entry = table.part(at, length)?;
        // An entry without even a kind and a length would never end.
        entry.needs(2)?;
        add_entry(entry, revision, &mut domains)?;
        at += length;
    }
    Ok(Srat {
        domains: domains.into_values().collect(),
    })
}

/// Adds what one entry says to its domain.
fn add_entry(
    entry: Fields<'_>,
    revision: u8,
    domains: &mut BTreeMap<u32, SratDomain>,
) -> Result<(), TableError> {
    let mut at_domain = |number: u32, change: &dyn Fn(&mut SratDomain)| {
        change(domains.entry(number).or_insert_with(|| SratDomain {
            domain: number,
            ..SratDomain::default()
        }));
    };
    match entry.u8(0)? {
        // Processor local APIC (5.2.16.1).
        0 => {
            entry.needs(16)?;
            if entry.u32(4)? & ENABLED != 0 {
                at_domain(split_domain(entry, revision)?, &|it| it.processors += 1);
            }
        }
        // Memory (5.2.16.2).
        1 => {
            entry.needs(40)?;
            let flags = entry.u32(28)?;
            let memory = Bytes(entry.u64(16)?);
            if flags & ENABLED != 0 {
                let domain = entry.u32(2)? & domain_mask(revision);
                at_domain(domain, &|it| {
                    it.memory = it.memory + memory;
                    if flags & HOT_PLUGGABLE != 0 {
                        it.hot_pluggable = it.hot_pluggable + memory;
                    }
                });
            }
        }
        // Processor local x2APIC (5.2.16.3).
        2 => {
            entry.needs(24)?;
            if entry.u32(12)? & ENABLED != 0 {
                at_domain(entry.u32(4)?, &|it| it.processors += 1);
            }
        }
        // GICC (5.2.16.4), 18 bytes, and RINTC, 20 bytes with the same first fields; the latter
        // is of ACPI 6.6, for RISC-V (acpi_srat_rintc_affinity, include/acpi/actbl3.h).
        kind @ (3 | 7) => {
            entry.needs(if kind == 3 { 18 } else { 20 })?;
            let (domain_at, flags_at) = if kind == 3 { (2, 10) } else { (4, 12) };
            if entry.u32(flags_at)? & ENABLED != 0 {
                at_domain(entry.u32(domain_at)?, &|it| it.processors += 1);
            }
        }
        // GIC interrupt translation service (5.2.16.5): in a domain, and neither processor nor
        // memory. It has no flags.
        4 => {
            entry.needs(12)?;
            at_domain(entry.u32(2)?, &|_| ());
        }
        // Generic initiator (5.2.16.6) and generic port (5.2.16.7), a port being the root of
        // memory that is yet to come (CXL).
        kind @ (5 | 6) => {
            entry.needs(32)?;
            if entry.u32(24)? & ENABLED != 0 {
                at_domain(entry.u32(4)?, &|it| it.generic_initiator |= kind == 5);
            }
        }
        _ => {}
    }
    Ok(())
}

/// The domain of a local APIC entry: its low byte, and three high bytes elsewhere.
fn split_domain(entry: Fields<'_>, revision: u8) -> Result<u32, TableError> {
    let [high0, high1, high2] = entry.array(9)?;
    let domain = u32::from_le_bytes([entry.u8(2)?, high0, high1, high2]);
    Ok(domain & domain_mask(revision))
}

/// Before revision 2 a domain had eight bits and what are its high bits today were reserved, not
/// zero (`acpi_numa_memory_affinity_init`, drivers/acpi/numa/srat.c, Linux 6.8).
fn domain_mask(revision: u8) -> u32 {
    if revision < 2 { 0xff } else { u32::MAX }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{hex, seal, table};
    use super::*;

    /// `iasl -T SRAT` (20200925) with a domain of its own in each entry, compiled.
    const IASL: &str = "
        53524154be000000038a494e54454c2054656d706c61746501000000494e544c2509202001000000
        00000000000000000010010001000000000002000000000001280200000000000000000000000000
        00000040000000000000000003000000000000000000000002180000030000000000000001000000
        0000000000000000031204000000000000000100000000000000040c050000000000010000000520
        000006000000000000000000000000000000000000000100000000000000";

    fn processors(domain: u32, processors: u32) -> SratDomain {
        SratDomain {
            domain,
            processors,
            ..SratDomain::default()
        }
    }

    fn body(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; FIXED_BYTES - 36];
        body.extend(entries.concat());
        body
    }

    fn rintc(domain: u32, flags: u32) -> Vec<u8> {
        let mut entry = vec![7, 20, 0, 0];
        entry.extend(domain.to_le_bytes());
        entry.extend(9u32.to_le_bytes());
        entry.extend(flags.to_le_bytes());
        entry.extend(0u32.to_le_bytes());
        entry
    }

    fn memory(domain: u32, size: u64, flags: u32) -> Vec<u8> {
        let mut entry = vec![1, 40];
        entry.extend(domain.to_le_bytes());
        entry.extend([0; 10]);
        entry.extend(size.to_le_bytes());
        entry.extend([0; 4]);
        entry.extend(flags.to_le_bytes());
        entry.extend([0; 8]);
        entry
    }

    #[test]
    fn each_kind_of_entry_reaches_its_domain() {
        let srat = parse_srat(&hex(IASL)).unwrap();
        assert_eq!(
            srat.domains,
            [
                SratDomain {
                    domain: 2,
                    memory: Bytes(1 << 30),
                    hot_pluggable: Bytes(1 << 30),
                    ..SratDomain::default()
                },
                processors(3, 1),
                processors(4, 1),
                processors(5, 0),
                SratDomain {
                    domain: 6,
                    generic_initiator: true,
                    ..SratDomain::default()
                },
                // The local APIC entry: low byte 01, high bytes 00 02 00.
                processors(0x0002_0001, 1),
            ]
        );
    }

    #[test]
    fn risc_v_harts_and_generic_ports() {
        let mut port = vec![6, 32, 0, 0];
        port.extend(8u32.to_le_bytes());
        port.extend([0; 16]);
        port.extend(1u32.to_le_bytes());
        port.extend([0; 4]);
        let bytes = table(
            "SRAT",
            3,
            &body(&[rintc(1, 1), rintc(1, 1), rintc(2, 0), port]),
        );
        let srat = parse_srat(&bytes).unwrap();
        assert_eq!(srat.domains, [processors(1, 2), processors(8, 0)]);
    }

    #[test]
    fn disabled_memory_counts_for_nothing_and_the_rest_adds_up() {
        let entries = [
            memory(0, 5, 1),
            memory(0, 7, 3),
            memory(0, 11, 2),
            memory(1, 1, 0),
        ];
        let srat = parse_srat(&table("SRAT", 3, &body(&entries))).unwrap();
        assert_eq!(srat.domains.len(), 1);
        assert_eq!(srat.domains[0].memory, Bytes(12));
        assert_eq!(srat.domains[0].hot_pluggable, Bytes(7));
    }

    #[test]
    fn revision_1_has_domains_of_eight_bits() {
        let apic = vec![0, 16, 1, 0, 1, 0, 0, 0, 0, 0xee, 0xee, 0xee, 0, 0, 0, 0];
        let bytes = table("SRAT", 1, &body(&[apic, memory(0xee01, 4096, 1)]));
        let srat = parse_srat(&bytes).unwrap();
        assert_eq!(srat.domains.len(), 1);
        assert_eq!(srat.domains[0].domain, 1);
        assert_eq!(srat.domains[0].memory, Bytes(4096));
    }

    #[test]
    fn a_split_domain_has_its_low_byte_first() {
        let apic = vec![0, 16, 0x11, 0, 1, 0, 0, 0, 0, 0x22, 0x33, 0x44, 0, 0, 0, 0];
        let srat = parse_srat(&table("SRAT", 3, &body(&[apic]))).unwrap();
        assert_eq!(srat.domains, [processors(0x4433_2211, 1)]);
    }

    #[test]
    fn unknown_kinds_are_passed_over() {
        let bytes = table("SRAT", 3, &body(&[vec![200, 3, 7], rintc(1, 1)]));
        assert_eq!(parse_srat(&bytes).unwrap().domains, [processors(1, 1)]);
    }

    #[test]
    fn entries_that_do_not_fit_are_refused() {
        for (entry, expected, found) in [
            (vec![200, 0], 2, 0),
            (vec![200, 1], 2, 1),
            (vec![1, 39].into_iter().chain([0; 37]).collect(), 40, 39),
            (vec![0, 15].into_iter().chain([0; 13]).collect(), 16, 15),
            (vec![3, 17].into_iter().chain([0; 15]).collect(), 18, 17),
            (vec![7, 19].into_iter().chain([0; 17]).collect(), 20, 19),
        ] {
            let bytes = table("SRAT", 3, &body(&[entry]));
            let error = TableError::Entry {
                table: "SRAT",
                offset: 48,
                expected,
                found,
            };
            assert_eq!(parse_srat(&bytes), Err(error));
        }
        // Past the end, and a lone byte.
        for entry in [vec![200, 4, 0], vec![2]] {
            let error = parse_srat(&table("SRAT", 3, &body(&[entry]))).unwrap_err();
            assert!(matches!(error, TableError::Entry { .. }), "{error}");
        }
    }

    #[test]
    fn a_table_cut_anywhere_is_an_error() {
        let whole = hex(IASL);
        for length in 0..whole.len() {
            assert!(parse_srat(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_table_cut_and_sealed_again_is_whole_only_between_entries() {
        let whole = hex(IASL);
        let ends: Vec<usize> = (48..whole.len())
            .filter(|&length| {
                let mut cut = whole[..length].to_vec();
                cut[4] = u8::try_from(length).unwrap();
                seal(&mut cut);
                parse_srat(&cut).is_ok()
            })
            .collect();
        assert_eq!(ends, [48, 64, 104, 128, 146, 158]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_table_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_srat(&bytes);
            let _ = parse_srat(&table("SRAT", 3, &bytes));
        }
    }
}
