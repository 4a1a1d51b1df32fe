//! Heterogeneous Memory Attribute Table (ACPI 6.5, 5.2.27).

use homenode_units::Bytes;

use super::{Fields, TableError};
use crate::{Hmat, HmatMatrix, HmatMetric, HmatSideCache};

const SIGNATURE: &str = "HMAT";
/// Header and four reserved bytes (ACPI 6.5, table 5.139).
const FIXED_BYTES: usize = 40;
/// Kind, reserved, length: the start of every structure.
const STRUCTURE_BYTES: usize = 8;
/// A matrix before its lists of domains (ACPI 6.5, table 5.142).
const MATRIX_BYTES: usize = 32;
/// A side cache before its list of SMBIOS handles (ACPI 6.5, table 5.143).
const SIDE_CACHE_BYTES: usize = 32;
/// Not reachable (ACPI 6.5, table 5.142).
const UNREACHABLE: u16 = 0xffff;
/// Highest value of the memory hierarchy field: 0 is memory, 1 to 3 side caches.
const HIERARCHY_MAX: u8 = 3;

/// Reads the latencies and bandwidths that the firmware claims, and its memory-side caches.
///
/// Values come out in nanoseconds and bytes per second, whatever the revision. Structures of
/// unknown kind are skipped, and so are matrices of an unknown metric or hierarchy, since nobody
/// can say what their values mean. Which initiator is next to which memory (structure type 0) is
/// left to the kernel's own files.
///
/// # Errors
///
/// [`TableError::Short`], [`TableError::Signature`], [`TableError::Length`] or
/// [`TableError::Checksum`] for a table that is none, [`TableError::Revision`] for one that is
/// neither 1 nor 2, [`TableError::Entry`] for a structure that is cut off or shorter than its
/// kind and its lists.
pub fn parse_hmat(bytes: &[u8]) -> Result<Hmat, TableError> {
    let table = Fields::of_table(SIGNATURE, bytes, FIXED_BYTES)?;
    let revision = Revision::parse(table.revision()?)?;
    let mut hmat = Hmat::default();
    let mut at = FIXED_BYTES;
    while at < bytes.len() {
        let stated = table.part(at, STRUCTURE_BYTES)?.u32(4)?;
        let length = usize::try_from(stated).unwrap_or(usize::MAX);
        let structure = table.part(at, length)?;
        // A structure without even a kind and a length would never end.
        structure.needs(STRUCTURE_BYTES)?;
        match structure.u16(0)? {
            1 => hmat.matrices.extend(parse_matrix(structure, revision)?),
            2 => hmat.side_caches.push(parse_side_cache(structure)?),
            _ => {}
        }
        at += length;
    }
    Ok(hmat)
}

/// What the numbers of a table stand for.
#[derive(Clone, Copy)]
enum Revision {
    /// ACPI 6.2: tenths of a nanosecond and tenths of a megabyte per second. The specification
    /// is unclear; this is how Linux reads it (`hmat_normalize`, drivers/acpi/numa/hmat.c,
    /// Linux 6.15).
    One,
    /// ACPI 6.3 and later: picoseconds and megabytes per second.
    Two,
}

impl Revision {
    fn parse(number: u8) -> Result<Self, TableError> {
        match number {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            found => Err(TableError::Revision {
                table: SIGNATURE,
                expected: "1 or 2",
                found,
            }),
        }
    }

    /// A matrix cell in nanoseconds or bytes per second; `None` where the table does not tell.
    ///
    /// Products above 32 bits are no values: as picoseconds they are more than 4 ms. Linux drops
    /// them too.
    fn value(self, cell: u16, base_unit: u64, metric: HmatMetric) -> Option<f64> {
        if cell == UNREACHABLE {
            return None;
        }
        let product = base_unit.checked_mul(u64::from(cell))?;
        // A cell of 0 says that nothing is known.
        let product = u32::try_from(product).ok().filter(|&product| product > 0)?;
        let value = f64::from(product);
        Some(match (self, is_latency(metric)) {
            (Self::One, true) => value / 10.0,
            (Self::One, false) => value / 10.0 * 1e6,
            (Self::Two, true) => value / 1e3,
            (Self::Two, false) => value * 1e6,
        })
    }
}

fn is_latency(metric: HmatMetric) -> bool {
    matches!(
        metric,
        HmatMetric::AccessLatency | HmatMetric::ReadLatency | HmatMetric::WriteLatency
    )
}

fn parse_metric(data_type: u8) -> Option<HmatMetric> {
    Some(match data_type {
        0 => HmatMetric::AccessLatency,
        1 => HmatMetric::ReadLatency,
        2 => HmatMetric::WriteLatency,
        3 => HmatMetric::AccessBandwidth,
        4 => HmatMetric::ReadBandwidth,
        5 => HmatMetric::WriteBandwidth,
        _ => return None,
    })
}

/// System locality latency and bandwidth information (ACPI 6.5, 5.2.27.4).
fn parse_matrix(
    structure: Fields<'_>,
    revision: Revision,
) -> Result<Option<HmatMatrix>, TableError> {
    structure.needs(MATRIX_BYTES)?;
    let hierarchy = structure.u8(8)? & 0xf;
    let metric = parse_metric(structure.u8(9)?);
    let (Some(metric), 0..=HIERARCHY_MAX) = (metric, hierarchy) else {
        return Ok(None);
    };
    let count = |at| -> Result<usize, TableError> {
        Ok(usize::try_from(structure.u32(at)?).unwrap_or(usize::MAX))
    };
    let (initiator_count, target_count) = (count(12)?, count(16)?);
    let base_unit = structure.u64(24)?;

    let initiators_bytes = initiator_count.saturating_mul(4);
    let targets_bytes = target_count.saturating_mul(4);
    let row_bytes = target_count.saturating_mul(2);
    let targets_at = MATRIX_BYTES.saturating_add(initiators_bytes);
    let cells_at = targets_at.saturating_add(targets_bytes);
    let cells_bytes = initiator_count.saturating_mul(row_bytes);
    // Checked before anything is allocated: the counts are as trustworthy as the firmware.
    let cells = structure.part(cells_at, cells_bytes)?;

    let numbers = |at, length| -> Result<Vec<u32>, TableError> {
        let list = structure.part(at, length)?;
        (0..length).step_by(4).map(|at| list.u32(at)).collect()
    };
    let row = |index: usize| -> Result<Vec<Option<f64>>, TableError> {
        let row = cells.part(index * row_bytes, row_bytes)?;
        (0..row_bytes)
            .step_by(2)
            .map(|at| Ok(revision.value(row.u16(at)?, base_unit, metric)))
            .collect()
    };
    Ok(Some(HmatMatrix {
        metric,
        hierarchy,
        initiators: numbers(MATRIX_BYTES, initiators_bytes)?,
        targets: numbers(targets_at, targets_bytes)?,
        values: (0..initiator_count).map(row).collect::<Result<_, _>>()?,
    }))
}

/// Memory side cache information (ACPI 6.5, 5.2.27.5).
fn parse_side_cache(structure: Fields<'_>) -> Result<HmatSideCache, TableError> {
    structure.needs(SIDE_CACHE_BYTES)?;
    // Bits 4-7 of the attributes are the level, bits 16-31 the line size.
    let level = structure.u8(24)? >> 4;
    let line_size = structure.u16(26)?;
    Ok(HmatSideCache {
        domain: structure.u32(8)?,
        size: Bytes(structure.u64(16)?),
        level,
        line_size: Bytes(u64::from(line_size)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{hex, seal, table};
    use super::*;

    /// `iasl -T HMAT` (20200925) with a read latency matrix of 2 × 3 domains in units of 1000 ps
    /// and a side cache of 96 GiB, compiled. That compiler writes the cache's attributes as zero;
    /// they were put in afterwards, and `iasl -d` shows them as level 2 of 3 with lines of 64 bytes.
    const IASL: &str = "
        484d4154b200000002cd494e54454c2054454d504c41544500000000494e544c2509202000000000
        00000000280000000000000000000000000000000000000000000000000000000000000000000000
        010000004000000000010000020000000300000000000000e8030000000000000000000001000000
        00000000010000000700000050008800ffff88005000000002000000220000000700000000000000
        000000001800000023004000000001000000";

    fn matrix(
        data_type: u8,
        flags: u8,
        base_unit: u64,
        domains: (u32, u32),
        rest: &[u8],
    ) -> Vec<u8> {
        let mut bytes = vec![1, 0, 0, 0];
        let length = u32::try_from(MATRIX_BYTES + rest.len()).unwrap();
        bytes.extend(length.to_le_bytes());
        bytes.extend([flags, data_type, 0, 0]);
        bytes.extend(domains.0.to_le_bytes());
        bytes.extend(domains.1.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(base_unit.to_le_bytes());
        bytes.extend(rest);
        bytes
    }

    /// A 1 × 1 matrix from domain 3 to domain 4.
    fn single(data_type: u8, base_unit: u64, cell: u16) -> Vec<u8> {
        let mut rest = vec![3, 0, 0, 0, 4, 0, 0, 0];
        rest.extend(cell.to_le_bytes());
        matrix(data_type, 0, base_unit, (1, 1), &rest)
    }

    fn body(structures: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; FIXED_BYTES - 36];
        body.extend(structures.concat());
        body
    }

    fn single_value(revision: u8, data_type: u8, base_unit: u64, cell: u16) -> Option<f64> {
        let bytes = table(
            "HMAT",
            revision,
            &body(&[single(data_type, base_unit, cell)]),
        );
        parse_hmat(&bytes).unwrap().matrices[0].values[0][0]
    }

    #[test]
    fn a_table_of_iasl() {
        let hmat = parse_hmat(&hex(IASL)).unwrap();
        assert_eq!(
            hmat.matrices,
            [HmatMatrix {
                metric: HmatMetric::ReadLatency,
                hierarchy: 0,
                initiators: vec![0, 1],
                targets: vec![0, 1, 7],
                values: vec![
                    vec![Some(80.0), Some(136.0), None],
                    vec![Some(136.0), Some(80.0), None],
                ],
            }]
        );
        assert_eq!(
            hmat.side_caches,
            [HmatSideCache {
                domain: 7,
                size: Bytes(96 << 30),
                level: 2,
                line_size: Bytes(64),
            }]
        );
    }

    #[test]
    fn units_of_both_revisions() {
        // 80 × 1000: 80 ns as picoseconds, 8000 ns as tenths of nanoseconds.
        assert_eq!(single_value(2, 0, 1000, 80), Some(80.0));
        assert_eq!(single_value(1, 0, 1000, 80), Some(8000.0));
        assert_eq!(single_value(2, 5, 100, 80), Some(8e9));
        assert_eq!(single_value(1, 5, 100, 80), Some(8e8));
    }

    #[test]
    fn cells_that_tell_nothing() {
        for (base_unit, cell) in [
            (1000, 0),
            (1000, 0xffff),
            (0, 5),
            (u64::MAX, 2),
            (1 << 31, 2),
        ] {
            assert_eq!(
                single_value(2, 1, base_unit, cell),
                None,
                "{base_unit} {cell}"
            );
        }
    }

    #[test]
    fn matrices_nobody_can_read_are_left_out() {
        let unknown_metric = single(6, 1, 1);
        let unknown_hierarchy = matrix(0, 4, 1, (0, 0), &[]);
        let side_cache = matrix(0, 0x13, 1, (0, 0), &[]);
        let structures = [unknown_metric, unknown_hierarchy, side_cache];
        let hmat = parse_hmat(&table("HMAT", 2, &body(&structures))).unwrap();
        assert_eq!(hmat.matrices.len(), 1);
        assert_eq!(hmat.matrices[0].hierarchy, 3);
    }

    #[test]
    fn other_revisions_are_refused() {
        for found in [0, 3] {
            assert_eq!(
                parse_hmat(&table("HMAT", found, &body(&[]))),
                Err(TableError::Revision {
                    table: "HMAT",
                    expected: "1 or 2",
                    found
                })
            );
        }
    }

    #[test]
    fn structures_that_do_not_fit_are_refused() {
        for structure in [
            vec![9, 0, 0, 0, 0, 0, 0, 0],
            vec![9, 0, 0, 0, 7, 0, 0, 0],
            vec![9, 0, 0, 0, 9, 0, 0, 0],
            vec![9, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            vec![9, 0, 0],
            vec![1, 0, 0, 0, 8, 0, 0, 0],
            vec![2, 0, 0, 0, 8, 0, 0, 0],
            matrix(0, 0, 1, (1, 1), &[0; 9]),
            matrix(0, 0, 1, (u32::MAX, u32::MAX), &[0; 10]),
        ] {
            let error = parse_hmat(&table("HMAT", 2, &body(&[structure]))).unwrap_err();
            assert!(matches!(error, TableError::Entry { .. }), "{error}");
        }
    }

    #[test]
    fn a_table_cut_anywhere_is_an_error() {
        let whole = hex(IASL);
        for length in 0..whole.len() {
            assert!(parse_hmat(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_table_cut_and_sealed_again_is_whole_only_between_structures() {
        let whole = hex(IASL);
        let ends: Vec<usize> = (FIXED_BYTES..whole.len())
            .filter(|&length| {
                let mut cut = whole[..length].to_vec();
                cut[4] = u8::try_from(length).unwrap();
                seal(&mut cut);
                parse_hmat(&cut).is_ok()
            })
            .collect();
        assert_eq!(ends, [40, 80, 144]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_table_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_hmat(&bytes);
            let _ = parse_hmat(&table("HMAT", 2, &bytes));
        }

        #[test]
        fn any_matrix_gives_a_table_or_an_error(
            data_type in 0u8..8,
            initiators in 0u32..5,
            targets in 0u32..5,
            rest in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let structure = matrix(data_type, 0, 7, (initiators, targets), &rest);
            let _ = parse_hmat(&table("HMAT", 2, &body(&[structure])));
        }
    }
}
