//! The ACPI tables that speak about memory locality: SRAT, SLIT and HMAT.
//!
//! Parsers take the bytes of one table, as `/sys/firmware/acpi/tables/<name>` holds them, and
//! refuse a table that contradicts itself: signature, length, checksum, and every entry's length
//! must hold. An entry of a kind that ACPI added later is skipped.
//!
//! Layouts are those of the ACPI specification 6.5, chapter 5.2; they were checked against tables
//! that iasl 20200925 compiled from its own templates, which stand in the tests.

mod hmat;
mod slit;
mod srat;

pub use hmat::parse_hmat;
pub use slit::parse_slit;
pub use srat::parse_srat;

/// Length of the header that every table starts with (ACPI 6.5, 5.2.6).
const HEADER_BYTES: usize = 36;

/// Why bytes are no ACPI table of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The bytes end within the table's fixed part.
    #[error("expected at least {expected} bytes of {table}, found {found}")]
    Short {
        /// Signature of the wanted table.
        table: &'static str,
        /// Length of the fixed part. Unit: bytes.
        expected: usize,
        /// Length of the input. Unit: bytes.
        found: usize,
    },
    /// It is another table, or none.
    #[error("expected the signature {expected}, found `{found}`")]
    Signature {
        /// Signature of the wanted table.
        expected: &'static str,
        /// The first four bytes, escaped.
        found: String,
    },
    /// The table claims another length than it has.
    #[error("expected {stated} bytes of {table}, as its header says, found {found}")]
    Length {
        /// Signature of the table.
        table: &'static str,
        /// Length in the header. Unit: bytes.
        stated: u32,
        /// Length of the input. Unit: bytes.
        found: usize,
    },
    /// The bytes do not add up to zero.
    #[error("expected the bytes of {table} to add up to 0 modulo 256, found {found}")]
    Checksum {
        /// Signature of the table.
        table: &'static str,
        /// The sum modulo 256.
        found: u8,
    },
    /// The table's values have an unknown meaning.
    #[error("expected {table} revision {expected}, found {found}")]
    Revision {
        /// Signature of the table.
        table: &'static str,
        /// The revisions that are understood.
        expected: &'static str,
        /// The revision of the table.
        found: u8,
    },
    /// An entry, or the list it announces, does not fit: cut off, or shorter than its kind.
    #[error(
        "expected an entry of {expected} bytes or more in {table} at byte {offset}, found {found}"
    )]
    Entry {
        /// Signature of the table.
        table: &'static str,
        /// Where the entry starts, from the start of the table. Unit: bytes.
        offset: usize,
        /// What the entry needs to hold. Unit: bytes.
        expected: usize,
        /// What it claims, or what is left of the table where that is less. Unit: bytes.
        found: usize,
    },
}

/// A checked table, or one entry of it.
#[derive(Clone, Copy)]
struct Fields<'a> {
    table: &'static str,
    /// Where `bytes` start in the table.
    offset: usize,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Checks what all tables have in common: signature, length and checksum.
    fn of_table(
        table: &'static str,
        bytes: &'a [u8],
        fixed_bytes: usize,
    ) -> Result<Self, TableError> {
        let found = bytes.len();
        if let Some(signature) = bytes.get(..4).filter(|&four| four != table.as_bytes()) {
            return Err(TableError::Signature {
                expected: table,
                found: signature.escape_ascii().to_string(),
            });
        }
        if found < fixed_bytes.max(HEADER_BYTES) {
            return Err(TableError::Short {
                table,
                expected: fixed_bytes.max(HEADER_BYTES),
                found,
            });
        }
        let fields = Self {
            table,
            offset: 0,
            bytes,
        };
        let stated = fields.u32(4)?;
        if usize::try_from(stated) != Ok(found) {
            return Err(TableError::Length {
                table,
                stated,
                found,
            });
        }
        match bytes.iter().copied().fold(0, u8::wrapping_add) {
            0 => Ok(fields),
            found => Err(TableError::Checksum { table, found }),
        }
    }

    /// The table's revision.
    fn revision(self) -> Result<u8, TableError> {
        self.u8(8)
    }

    /// `length` bytes from `at` on, as fields of their own.
    fn part(self, at: usize, length: usize) -> Result<Self, TableError> {
        let end = at.checked_add(length);
        let bytes = end.and_then(|end| self.bytes.get(at..end));
        Ok(Self {
            table: self.table,
            offset: self.offset.saturating_add(at),
            bytes: bytes.ok_or_else(|| self.too_short_for(end.unwrap_or(usize::MAX)))?,
        })
    }

    /// Fails unless there are at least `expected` bytes.
    fn needs(self, expected: usize) -> Result<(), TableError> {
        if self.bytes.len() < expected {
            return Err(self.too_short_for(expected));
        }
        Ok(())
    }

    fn too_short_for(self, expected: usize) -> TableError {
        TableError::Entry {
            table: self.table,
            offset: self.offset,
            expected,
            found: self.bytes.len(),
        }
    }

    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], TableError> {
        self.bytes
            .get(at..)
            .and_then(<[u8]>::first_chunk)
            .copied()
            .ok_or_else(|| self.too_short_for(at.saturating_add(N)))
    }

    fn u8(self, at: usize) -> Result<u8, TableError> {
        self.array(at).map(u8::from_le_bytes)
    }

    fn u16(self, at: usize) -> Result<u16, TableError> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32, TableError> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64, TableError> {
        self.array(at).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod sample {
    /// A table with this revision and what follows its header, length and checksum made to fit.
    pub(super) fn table(signature: &str, revision: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; super::HEADER_BYTES];
        bytes[..4].copy_from_slice(signature.as_bytes());
        bytes[8] = revision;
        bytes.extend(body);
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Makes the checksum right again.
    pub(super) fn seal(bytes: &mut [u8]) {
        bytes[9] = 0;
        bytes[9] = bytes.iter().copied().fold(0, u8::wrapping_sub);
    }

    /// Bytes from hexadecimal digits; blanks are skipped.
    pub(super) fn hex(digits: &str) -> Vec<u8> {
        let digits: Vec<u8> = digits
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .map(|digit| u8::try_from(digit).unwrap())
            .collect();
        digits
            .chunks(2)
            .map(|pair| pair[0] * 16 + pair[1])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::sample::{seal, table};
    use super::*;

    const BODY: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn another_signature_is_refused() {
        assert_eq!(
            parse_srat(&table("SLIT", 1, &BODY)),
            Err(TableError::Signature {
                expected: "SRAT",
                found: "SLIT".to_owned()
            })
        );
        assert_eq!(
            parse_slit(b"\n\xff\0S").unwrap_err().to_string(),
            "expected the signature SLIT, found `\\n\\xff\\x00S`"
        );
    }

    #[test]
    fn a_length_other_than_the_header_says_is_refused() {
        let mut bytes = table("SRAT", 3, &BODY);
        bytes.push(0);
        assert_eq!(
            parse_srat(&bytes).unwrap_err().to_string(),
            "expected 48 bytes of SRAT, as its header says, found 49"
        );
    }

    #[test]
    fn a_wrong_checksum_is_refused() {
        let mut bytes = table("SRAT", 3, &BODY);
        bytes[9] = bytes[9].wrapping_add(5);
        assert_eq!(
            parse_srat(&bytes),
            Err(TableError::Checksum {
                table: "SRAT",
                found: 5
            })
        );
        seal(&mut bytes);
        assert_eq!(parse_srat(&bytes), Ok(crate::Srat::default()));
    }

    #[test]
    fn a_table_without_its_fixed_part_is_refused() {
        assert_eq!(
            parse_srat(b""),
            Err(TableError::Short {
                table: "SRAT",
                expected: 48,
                found: 0
            })
        );
        let expected = TableError::Short {
            table: "SLIT",
            expected: 44,
            found: 43,
        };
        assert_eq!(parse_slit(&table("SLIT", 1, &[0; 7])), Err(expected));
    }
}
