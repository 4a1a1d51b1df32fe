//! System Locality Distance Information Table (ACPI 6.5, 5.2.17).

use super::{Fields, TableError};
use crate::Slit;

const SIGNATURE: &str = "SLIT";
/// Header and the number of localities (ACPI 6.5, table 5.61).
const FIXED_BYTES: usize = 44;

/// Reads what the firmware claims about distances between proximity domains.
///
/// Values are kept as they are, also where they break the rules of the specification: saying so
/// is the verdict's part.
///
/// # Errors
///
/// [`TableError::Short`], [`TableError::Signature`], [`TableError::Length`] or
/// [`TableError::Checksum`] for a table that is none, [`TableError::Entry`] when the rows it
/// announces do not fit.
pub fn parse_slit(bytes: &[u8]) -> Result<Slit, TableError> {
    let table = Fields::of_table(SIGNATURE, bytes, FIXED_BYTES)?;
    // A count beyond the address space is one that cannot fit either.
    let localities = usize::try_from(table.u64(36)?).unwrap_or(usize::MAX);
    let cells = localities.saturating_mul(localities);
    let matrix = table.part(FIXED_BYTES, cells)?;
    Ok(Slit {
        // chunks() refuses a length of zero, which a table without localities would ask for.
        rows: matrix
            .bytes
            .chunks(localities.max(1))
            .map(<[u8]>::to_vec)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{hex, table};
    use super::*;

    /// `iasl -T SLIT` (20200925) with two localities, compiled.
    const IASL: &str = "
        534c49543000000001ab494e54454c2054454d504c41544501000000494e544c2509202002000000000000000a151f0a";

    fn body(localities: u64, cells: &[u8]) -> Vec<u8> {
        let mut body = localities.to_le_bytes().to_vec();
        body.extend(cells);
        body
    }

    #[test]
    fn rows_are_where_an_access_comes_from() {
        let slit = parse_slit(&hex(IASL)).unwrap();
        assert_eq!(slit.rows, [[10, 21], [31, 10]]);
    }

    #[test]
    fn a_table_without_localities_has_no_rows() {
        let slit = parse_slit(&table("SLIT", 1, &body(0, &[]))).unwrap();
        assert!(slit.rows.is_empty());
    }

    #[test]
    fn more_localities_than_cells_are_refused() {
        for localities in [3, 1 << 32, u64::MAX] {
            let error = parse_slit(&table("SLIT", 1, &body(localities, &[10; 4]))).unwrap_err();
            assert!(matches!(error, TableError::Entry { .. }), "{error}");
        }
    }

    #[test]
    fn a_table_cut_anywhere_is_an_error() {
        let whole = hex(IASL);
        for length in 0..whole.len() {
            assert!(parse_slit(&whole[..length]).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_table_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_slit(&bytes);
            let _ = parse_slit(&table("SLIT", 1, &bytes));
        }

        #[test]
        fn rows_come_back_as_written(
            rows in (1usize..8).prop_flat_map(|n| {
                prop::collection::vec(prop::collection::vec(any::<u8>(), n), n)
            })
        ) {
            let count = u64::try_from(rows.len()).unwrap();
            let slit = parse_slit(&table("SLIT", 1, &body(count, &rows.concat()))).unwrap();
            prop_assert_eq!(slit.rows, rows);
        }
    }
}
