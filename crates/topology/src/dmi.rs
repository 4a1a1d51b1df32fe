//! Memory slots as the firmware lists them: DMI (SMBIOS) structures of type 17.
//!
//! Layout and rules are those of SMBIOS 3.7, 7.18 (Memory Device) and 6.1.3 (text strings).

use homenode_units::{Bytes, Reading};

use crate::MemorySlot;

/// The type of a memory device.
const MEMORY_DEVICE: u8 = 17;
/// Length of a memory device in SMBIOS 2.1, the first to have it; later ones only grow.
const FIXED_BYTES: usize = 0x15;

const SIZE: usize = 0x0c;
const LOCATOR: usize = 0x10;
const BANK: usize = 0x11;
const SERIAL_NUMBER: usize = 0x18;
const ASSET_TAG: usize = 0x19;
const EXTENDED_SIZE: usize = 0x1c;
const CONFIGURED_SPEED: usize = 0x20;
const EXTENDED_CONFIGURED_SPEED: usize = 0x58;

/// Why bytes are no memory slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmiError {
    /// The bytes end within the structure.
    #[error("expected a DMI structure of at least {expected} bytes, found {found}")]
    Short {
        /// What the structure needs to hold. Unit: bytes.
        expected: usize,
        /// Length of the input. Unit: bytes.
        found: usize,
    },
    /// It is another structure.
    #[error("expected a DMI structure of type 17 (memory device), found type {found}")]
    Type {
        /// The type of the structure.
        found: u8,
    },
    /// The structure claims to be shorter than any memory device.
    #[error("expected a memory device of at least {expected} bytes, found one of {found}")]
    Length {
        /// Length of the shortest memory device. Unit: bytes.
        expected: usize,
        /// The length it claims. Unit: bytes.
        found: usize,
    },
    /// The strings after the structure do not end with two zero bytes.
    #[error("expected two zero bytes after the strings of a DMI structure, found none")]
    Unterminated,
}

/// Reads a slot from `/sys/firmware/dmi/entries/17-*/raw`.
///
/// A string that the structure names and does not have is empty, as is one it does not name:
/// firmware gets the numbers wrong (dmidecode prints `<BAD INDEX>`), and the size is of use
/// without the name.
///
/// # Errors
///
/// [`DmiError::Short`], [`DmiError::Type`], [`DmiError::Length`] or [`DmiError::Unterminated`].
pub fn parse_memory_slot(bytes: &[u8]) -> Result<MemorySlot, DmiError> {
    let device = MemoryDevice::parse(bytes)?;
    Ok(MemorySlot {
        locator: device.string(LOCATOR),
        bank: device.string(BANK),
        size: device.size(),
        speed_mts: device.configured_speed_mts(),
    })
}

/// A copy of a memory device without what identifies the module: its serial number and asset tag
/// become blanks of the same length.
///
/// Bytes that are no memory device become zeros, since nobody can tell what they hold. Where the
/// firmware uses one string for the serial number and for something else, that is blank too.
#[must_use]
pub fn scrub_dmi(bytes: &[u8]) -> Vec<u8> {
    let mut scrubbed = bytes.to_vec();
    let Ok(device) = MemoryDevice::parse(bytes) else {
        scrubbed.fill(0);
        return scrubbed;
    };
    for field in [SERIAL_NUMBER, ASSET_TAG] {
        if let Some(range) = device.string_range(field) {
            scrubbed[range].fill(b' ');
        }
    }
    // Nothing belongs behind the strings, so nothing vouches for what stands there.
    scrubbed[device.end..].fill(0);
    scrubbed
}

/// A memory device whose two parts, fields and strings, have been found.
struct MemoryDevice<'a> {
    /// The whole input.
    bytes: &'a [u8],
    /// Its formatted part.
    fields: &'a [u8],
    /// Where the strings end, their last zero byte included.
    end: usize,
}

impl<'a> MemoryDevice<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, DmiError> {
        let short = |expected| DmiError::Short {
            expected,
            found: bytes.len(),
        };
        let &[kind, length, ..] = bytes else {
            return Err(short(FIXED_BYTES));
        };
        if kind != MEMORY_DEVICE {
            return Err(DmiError::Type { found: kind });
        }
        let length = usize::from(length);
        if length < FIXED_BYTES {
            return Err(DmiError::Length {
                expected: FIXED_BYTES,
                found: length,
            });
        }
        let (fields, strings) = bytes
            .split_at_checked(length)
            .ok_or_else(|| short(length))?;
        let strings_bytes = strings
            .windows(2)
            .position(|pair| pair == [0, 0])
            .ok_or(DmiError::Unterminated)?;
        Ok(Self {
            bytes,
            fields,
            end: length + strings_bytes + 2,
        })
    }

    /// A field, or `None` where the structure is of an older SMBIOS that lacks it.
    fn field<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.fields.get(at..)?.first_chunk().copied()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.field(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.field(at).map(u32::from_le_bytes)
    }

    /// Where the string is that the field names; strings count from 1, and 0 is none.
    fn string_range(&self, field: usize) -> Option<std::ops::Range<usize>> {
        let [number] = self.field(field)?;
        let index = usize::from(number).checked_sub(1)?;
        let mut start = self.fields.len();
        let strings = self.bytes.get(start..self.end)?;
        for (position, string) in strings.split(|&byte| byte == 0).enumerate() {
            let end = start + string.len();
            if position == index {
                return Some(start..end);
            }
            start = end + 1;
        }
        None
    }

    fn string(&self, field: usize) -> String {
        let range = self.string_range(field);
        let bytes = range.and_then(|range| self.bytes.get(range)).unwrap_or(&[]);
        String::from_utf8_lossy(bytes).trim().to_owned()
    }

    /// The size of the module: 0 is none, 0xffff unknown, 0x7fff "see the extended size"; else
    /// bit 15 tells whether the rest counts kibibytes or mebibytes.
    fn size(&self) -> Reading<Option<Bytes>> {
        const UNIT_IS_KIB: u16 = 1 << 15;
        let bytes = match self.u16(SIZE) {
            Some(0) => return Reading::Known(None),
            Some(0xffff) | None => return Reading::absent("the firmware does not know the size"),
            Some(0x7fff) => match self.u32(EXTENDED_SIZE).map(|mib| mib & 0x7fff_ffff) {
                Some(mib) if mib > 0 => u64::from(mib) << 20,
                _ => return Reading::absent("the firmware announces a size and does not give it"),
            },
            Some(size) if size & UNIT_IS_KIB != 0 => u64::from(size & !UNIT_IS_KIB) << 10,
            Some(size) => u64::from(size) << 20,
        };
        Reading::Known(Some(Bytes(bytes)))
    }

    /// The speed at which the module runs, which may be below the one it is made for.
    fn configured_speed_mts(&self) -> Option<u32> {
        let speed = match self.u16(CONFIGURED_SPEED)? {
            0xffff => self.u32(EXTENDED_CONFIGURED_SPEED)? & 0x7fff_ffff,
            speed => u32::from(speed),
        };
        (speed > 0).then_some(speed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A memory device of SMBIOS 3.7 with these strings, all fields zero.
    fn device(strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0; 0x5c];
        bytes[0] = MEMORY_DEVICE;
        bytes[1] = 0x5c;
        for string in strings {
            bytes.extend(string.as_bytes());
            bytes.push(0);
        }
        if strings.is_empty() {
            bytes.push(0);
        }
        bytes.push(0);
        bytes
    }

    /// A slot as a Dell server of 2012 (SMBIOS 2.7) lists it, with made-up numbers: no bank, a
    /// module of 4 GiB at 1600 MT/s.
    fn dell() -> Vec<u8> {
        let mut bytes = vec![0x11, 0x22, 0, 0x11, 0, 0x10, 0xfe, 0xff, 0x48, 0, 0x40, 0];
        bytes.extend([
            0x00, 0x10, 0x09, 0x01, 0x01, 0, 0x18, 0x80, 0x20, 0x40, 0x06,
        ]);
        bytes.extend([2, 3, 4, 5, 2, 0, 0, 0, 0, 0x40, 0x06]);
        bytes.extend(b"DIMM_A1 \x0000AD00B300AD\x00SERIAL00\x00ASSET000\x00HMT351R7  \0\0");
        bytes
    }

    fn size_of(size: u16, extended_mib: u32) -> Reading<Option<Bytes>> {
        let mut bytes = device(&[]);
        bytes[SIZE..][..2].copy_from_slice(&size.to_le_bytes());
        bytes[EXTENDED_SIZE..][..4].copy_from_slice(&extended_mib.to_le_bytes());
        parse_memory_slot(&bytes).unwrap().size
    }

    fn speed_of(speed: u16, extended: u32) -> Option<u32> {
        let mut bytes = device(&[]);
        bytes[CONFIGURED_SPEED..][..2].copy_from_slice(&speed.to_le_bytes());
        bytes[EXTENDED_CONFIGURED_SPEED..][..4].copy_from_slice(&extended.to_le_bytes());
        parse_memory_slot(&bytes).unwrap().speed_mts
    }

    #[test]
    fn a_slot_of_smbios_2_7() {
        assert_eq!(
            parse_memory_slot(&dell()).unwrap(),
            MemorySlot {
                locator: "DIMM_A1".to_owned(),
                bank: String::new(),
                size: Reading::Known(Some(Bytes(4 << 30))),
                speed_mts: Some(1600),
            }
        );
    }

    #[test]
    fn sizes() {
        let known = |bytes| Reading::Known(Some(Bytes(bytes)));
        assert_eq!(size_of(0, 0), Reading::Known(None));
        assert_eq!(size_of(512, 0), known(512 << 20));
        assert_eq!(size_of(0x8200, 0), known(512 << 10));
        assert_eq!(size_of(0x7fff, 65536), known(64 << 30));
        // Bit 31 of the extended size is reserved.
        assert_eq!(size_of(0x7fff, 0x8001_0000), known(64 << 30));
        assert!(size_of(0x7fff, 0).known().is_none());
        assert!(size_of(0xffff, 65536).known().is_none());
    }

    #[test]
    fn an_old_structure_without_an_extended_size_does_not_tell_it() {
        let mut bytes = vec![0; 0x1b];
        bytes[0] = MEMORY_DEVICE;
        bytes[1] = 0x1b;
        bytes[SIZE..][..2].copy_from_slice(&[0xff, 0x7f]);
        bytes.extend([0, 0, 1, 0, 0, 0, 0]);
        let slot = parse_memory_slot(&bytes).unwrap();
        assert!(slot.size.known().is_none());
        assert_eq!(slot.speed_mts, None);
    }

    #[test]
    fn speeds() {
        assert_eq!(speed_of(3200, 0), Some(3200));
        assert_eq!(speed_of(0, 8800), None);
        assert_eq!(speed_of(0xffff, 0x8000_0000 | 70_000), Some(70_000));
        assert_eq!(speed_of(0xffff, 0), None);
    }

    #[test]
    fn strings_count_from_one_and_may_be_missing() {
        let mut bytes = device(&["one", "two"]);
        for (number, name) in [(0, ""), (1, "one"), (2, "two"), (3, ""), (255, "")] {
            bytes[LOCATOR] = number;
            bytes[BANK] = 2;
            let slot = parse_memory_slot(&bytes).unwrap();
            assert_eq!((slot.locator.as_str(), slot.bank.as_str()), (name, "two"));
        }
    }

    #[test]
    fn other_structures_are_refused() {
        let mut bytes = device(&["one"]);
        bytes[0] = 16;
        assert_eq!(parse_memory_slot(&bytes), Err(DmiError::Type { found: 16 }));
        bytes[..2].copy_from_slice(&[17, 0x14]);
        assert_eq!(
            parse_memory_slot(&bytes),
            Err(DmiError::Length {
                expected: 0x15,
                found: 0x14
            })
        );
    }

    #[test]
    fn a_slot_cut_anywhere_is_an_error() {
        let whole = dell();
        for length in 0..whole.len() {
            assert!(parse_memory_slot(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn scrubbing_takes_serial_number_and_asset_tag_and_leaves_the_rest() {
        let before = dell();
        let after = scrub_dmi(&before);
        let text = String::from_utf8_lossy(&after);
        assert!(!text.contains("SERIAL00"), "{text}");
        assert!(!text.contains("ASSET000"), "{text}");
        assert!(text.contains("00AD00B300AD"), "{text}");
        assert_eq!(after.len(), before.len());
        assert_eq!(parse_memory_slot(&after), parse_memory_slot(&before));
        assert_eq!(scrub_dmi(&after), after);
    }

    #[test]
    fn scrubbing_what_nobody_can_read_leaves_zeros() {
        let cut = &dell()[..70];
        assert_eq!(scrub_dmi(cut), vec![0; 70]);
        let mut tail = dell();
        tail.extend(b"SERIAL01");
        assert!(scrub_dmi(&tail).ends_with(&[0; 10]));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_slot_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_memory_slot(&bytes);
            prop_assert_eq!(scrub_dmi(&bytes).len(), bytes.len());
        }

        #[test]
        fn any_fields_and_strings_give_a_slot(
            fields in prop::collection::vec(any::<u8>(), 0x15..0x60),
            strings in prop::collection::vec("[a-z]{1,5}", 0..6),
        ) {
            let mut bytes = fields;
            bytes[0] = MEMORY_DEVICE;
            bytes[1] = u8::try_from(bytes.len()).unwrap();
            bytes.extend(device(&strings.iter().map(String::as_str).collect::<Vec<_>>()).split_off(0x5c));
            let slot = parse_memory_slot(&bytes).unwrap();
            let scrubbed = parse_memory_slot(&scrub_dmi(&bytes)).unwrap();
            prop_assert_eq!(scrubbed.size, slot.size);
        }
    }
}
