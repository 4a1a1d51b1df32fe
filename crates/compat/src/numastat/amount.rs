//! Amounts as numastat writes them.

/// An amount of memory on its way into a table.
///
/// Unit: bytes. Wide enough that pages of any size times any 64-bit count fit.
pub(super) type ByteCount = u128;

const MEGABYTE_BITS: u32 = 20;

/// Megabytes of 2^20 bytes, with two decimals.
pub(super) fn megabytes_with_decimals(bytes: ByteCount) -> String {
    let below_megabyte = bytes & ((1 << MEGABYTE_BITS) - 1);
    let hundredths = (bytes >> MEGABYTE_BITS) * 100 + shift_rounded(below_megabyte * 100);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Whole megabytes of 2^20 bytes.
pub(super) fn whole_megabytes(bytes: ByteCount) -> String {
    shift_rounded(bytes).to_string()
}

/// Divides by a megabyte. Half goes to the even neighbour, as printf(3) rounds.
fn shift_rounded(value: u128) -> u128 {
    let whole = value >> MEGABYTE_BITS;
    let half = 1 << (MEGABYTE_BITS - 1);
    let rest = value & ((1 << MEGABYTE_BITS) - 1);
    let up = rest > half || (rest == half && whole % 2 == 1);
    whole + u128::from(up)
}

/// The number that a text begins with, as strtol(3) finds it; 0 where there is none.
///
/// What does not fit is the largest `long`, which is what numastat shows then.
pub(super) fn leading_number(text: &[u8]) -> u64 {
    let largest = i64::MAX.unsigned_abs();
    text.iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |number: u64, digit| {
            number
                .saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
                .min(largest)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_the_even_neighbour() {
        let kib = |kib: u128| kib << 10;
        for (bytes, decimals, whole) in [
            (0, "0.00", "0"),
            (kib(5), "0.00", "0"),
            (kib(6), "0.01", "0"),
            (kib(128), "0.12", "0"),
            (kib(384), "0.38", "0"),
            (kib(512), "0.50", "0"),
            (kib(512) + 1, "0.50", "1"),
            (kib(640), "0.62", "1"),
            (kib(1536), "1.50", "2"),
            (kib(2560), "2.50", "2"),
            (kib(2_097_151), "2048.00", "2048"),
            (kib(1 << 40), "1073741824.00", "1073741824"),
        ] {
            assert_eq!(megabytes_with_decimals(bytes), decimals, "{bytes}");
            assert_eq!(whole_megabytes(bytes), whole, "{bytes}");
        }
        // The largest there can be: no panic.
        megabytes_with_decimals(u128::MAX >> 7);
    }

    #[test]
    fn numbers_end_where_their_digits_end() {
        for (text, number) in [
            ("12", 12),
            ("12x", 12),
            ("", 0),
            ("x", 0),
            ("9999999999999999999999", i64::MAX.unsigned_abs()),
        ] {
            assert_eq!(leading_number(text.as_bytes()), number, "{text}");
        }
    }
}
