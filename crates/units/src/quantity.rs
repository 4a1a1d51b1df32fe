use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An amount of memory.
///
/// Unit: bytes. Shown with a binary unit (`1.5 GiB`), read with one (`512MiB`, `2GiB`, `4096`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Why a text is no amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No number, or an unknown unit.
    #[error("expected a size such as 512MiB or 2GiB, found `{found}`")]
    Size {
        /// The text.
        found: String,
    },
    /// More than 2^64 bytes.
    #[error("expected a size below 16 EiB, found `{found}`")]
    TooLarge {
        /// The text.
        found: String,
    },
}

impl Bytes {
    /// From kibibytes, the kernel's `kB`; saturates.
    #[must_use]
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1024))
    }

    /// Whole mebibytes, rounded down, as numactl prints.
    #[must_use]
    pub const fn mib(self) -> u64 {
        self.0 >> 20
    }

    /// The difference, or zero when `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This amount as a share of `whole`; `None` when `whole` is zero.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share for people, not an amount"
    )]
    pub fn share_of(self, whole: Self) -> Option<f64> {
        (whole.0 > 0).then(|| self.0 as f64 / whole.0 as f64)
    }
}

const UNITS: [(&str, u32); 5] = [
    ("KiB", 10),
    ("MiB", 20),
    ("GiB", 30),
    ("TiB", 40),
    ("PiB", 50),
];

impl fmt::Display for Bytes {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((unit, shift)) = UNITS.iter().rev().find(|(_, shift)| self.0 >> shift > 0) else {
            return f.pad(&format!("{} B", self.0));
        };
        let whole = 1u64 << shift;
        if self.0.is_multiple_of(whole) {
            f.pad(&format!("{} {unit}", self.0 >> shift))
        } else {
            f.pad(&format!("{:.1} {unit}", self.0 as f64 / whole as f64))
        }
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let found = || text.to_owned();
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim();
        let shift = match UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        {
            Some(&(_, shift)) => shift,
            None if unit.is_empty() || unit == "B" => 0,
            None => return Err(QuantityError::Size { found: found() }),
        };
        if number.is_empty() {
            return Err(QuantityError::Size { found: found() });
        }
        number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(1 << shift))
            .map(Self)
            .ok_or_else(|| QuantityError::TooLarge { found: found() })
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self(0), Add::add)
    }
}

/// A latency. Unit: nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanoseconds(pub f64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} ns", self.0))
    }
}

/// A bandwidth. Unit: bytes per second. Shown in GB/s (10^9), as memory vendors state it.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BytesPerSecond(pub f64);

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} GB/s", self.0 / 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_with_one_decimal_unless_whole() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (16 << 30, "16 GiB"),
            (130_669 << 20, "127.6 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!("512MiB".parse(), Ok(Bytes(512 << 20)));
        assert_eq!(" 2 gib ".parse(), Ok(Bytes(2 << 30)));
        assert_eq!("4096".parse(), Ok(Bytes(4096)));
        for text in ["", "GiB", "-1", "1.5GiB", "3XB", "1e3"] {
            assert!(
                matches!(text.parse::<Bytes>(), Err(QuantityError::Size { .. })),
                "{text}"
            );
        }
        assert!(matches!(
            "99999999PiB".parse::<Bytes>(),
            Err(QuantityError::TooLarge { .. })
        ));
    }
}
