use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// Ids must be below this.
///
/// Linux supports at most 8,192 CPUs (`CONFIG_NR_CPUS`) and 1,024 nodes (`CONFIG_NODES_SHIFT` 10);
/// the limit is far above both, so that no real machine is refused, and low enough that a hostile
/// `0-4294967295` costs 128 KiB and not 512 MiB.
pub const ID_LIMIT: u32 = 1 << 20;

const WORD_BITS: u32 = u64::BITS;

/// A number that the kernel gave to something; it has gaps and is not a position.
pub trait Id: Copy + Ord + fmt::Debug + fmt::Display {
    /// What such an id names, for messages: `CPU`, `node`.
    const NOUN: &'static str;
    /// Makes the id from the kernel's number.
    fn new(number: u32) -> Self;
    /// The kernel's number.
    fn number(self) -> u32;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $noun:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl Id for $name {
            const NOUN: &'static str = $noun;
            fn new(number: u32) -> Self {
                Self(number)
            }
            fn number(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A logical CPU, as in `/sys/devices/system/cpu/cpu<id>`.
    CpuId,
    "CPU"
);
id!(
    /// A memory node, as in `/sys/devices/system/node/node<id>`.
    NodeId,
    "node"
);

/// A set of CPUs.
pub type CpuSet = IdSet<CpuId>;
/// A set of nodes.
pub type NodeSet = IdSet<NodeId>;

/// A set of kernel ids, kept as a bit mask.
///
/// Its text form, also in JSON, is the kernel's list: `0-3,8`; empty is the empty string.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet<T> {
    /// Bit `i % 64` of word `i / 64` is id `i`. The last word is never zero, so that equal sets
    /// are equal vectors. A machine of up to 256 CPUs needs no allocation.
    words: SmallVec<[u64; 4]>,
    id: PhantomData<T>,
}

/// Why a text is no set of ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// A part of a list is neither a number nor a range.
    #[error("expected a number or a range such as 0-3, found `{found}`")]
    Part {
        /// The part, cut to a readable length.
        found: String,
    },
    /// A range runs backwards.
    #[error(
        "expected a range from low to high, found `{first}-{last}`; did you mean {last}-{first}?"
    )]
    Reversed {
        /// The number before the dash.
        first: u32,
        /// The number after the dash.
        last: u32,
    },
    /// A number or mask goes beyond [`ID_LIMIT`].
    #[error("expected {noun} numbers below {ID_LIMIT}, found `{found}`")]
    TooLarge {
        /// What is numbered.
        noun: &'static str,
        /// The number, cut to a readable length.
        found: String,
    },
    /// A mask holds something other than hexadecimal words.
    #[error(
        "expected a mask of hexadecimal digits, such as 0x10000 or 1,00000000, found `{found}`"
    )]
    Mask {
        /// The word, cut to a readable length.
        found: String,
    },
}

/// What of a bad input is worth showing in a message.
fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 24;
    let mut shown: String = text
        .chars()
        .take(SHOWN_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

impl<T: Id> IdSet<T> {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            words: SmallVec::new_const(),
            id: PhantomData,
        }
    }

    /// Every id from 0 up to, not including, `count`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        (0..count).map(T::new).collect()
    }

    fn place(id: T) -> (usize, u64) {
        let number = id.number();
        ((number / WORD_BITS) as usize, 1 << (number % WORD_BITS))
    }

    /// Adds an id.
    ///
    /// # Panics
    ///
    /// When the id is not below [`ID_LIMIT`]; text is checked before it becomes an id.
    pub fn insert(&mut self, id: T) {
        assert!(
            id.number() < ID_LIMIT,
            "{} {id} is beyond the limit of a set",
            T::NOUN
        );
        let (word, bit) = Self::place(id);
        self.add_bits(word, bit);
    }

    /// Adds the ids of one word; `bits` are not all zero.
    fn add_bits(&mut self, word: usize, bits: u64) {
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bits;
    }

    /// Takes an id out.
    pub fn remove(&mut self, id: T) {
        let (word, bit) = Self::place(id);
        if let Some(bits) = self.words.get_mut(word) {
            *bits &= !bit;
        }
        self.trim();
    }

    /// Whether the id is in the set.
    #[must_use]
    pub fn contains(&self, id: T) -> bool {
        let (word, bit) = Self::place(id);
        self.words.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// How many ids the set holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether the set holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The lowest id.
    #[must_use]
    pub fn lowest(&self) -> Option<T> {
        self.iter().next()
    }

    /// The highest id.
    #[must_use]
    pub fn highest(&self) -> Option<T> {
        let last = self.words.last()?;
        let word = u32::try_from(self.words.len() - 1).ok()?;
        Some(T::new(word * WORD_BITS + last.ilog2()))
    }

    /// The ids, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        (0u32..).zip(&self.words).flat_map(|(word, &bits)| {
            let mut rest = bits;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                Some(T::new(word * WORD_BITS + bit))
            })
        })
    }

    /// Whether every id of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(i, word)| word & !other.words.get(i).copied().unwrap_or(0) == 0)
    }

    /// Whether the two sets share an id.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// The ids in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    /// The ids in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    /// The ids of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    fn combine(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let word = |set: &Self, i: usize| set.words.get(i).copied().unwrap_or(0);
        let words = (0..self.words.len().max(other.words.len()))
            .map(|i| op(word(self, i), word(other, i)))
            .collect();
        let mut set = Self {
            words,
            id: PhantomData,
        };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// Reads the kernel's list format: numbers and ranges with commas between, `0-3,8`.
    ///
    /// Blanks around the text, an empty text and a trailing comma are allowed, since old kernels
    /// write them.
    ///
    /// # Errors
    ///
    /// [`SetError::Part`], [`SetError::Reversed`] or [`SetError::TooLarge`].
    pub fn parse_list(text: &str) -> Result<Self, SetError> {
        let text = text.trim();
        let text = text.strip_suffix(',').unwrap_or(text);
        let mut set = Self::new();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let part = part.trim();
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (
                    Self::parse_number(first, part)?,
                    Self::parse_number(last, part)?,
                ),
                None => {
                    let number = Self::parse_number(part, part)?;
                    (number, number)
                }
            };
            if first > last {
                return Err(SetError::Reversed { first, last });
            }
            for number in first..=last {
                set.insert(T::new(number));
            }
        }
        Ok(set)
    }

    fn parse_number(text: &str, part: &str) -> Result<u32, SetError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SetError::Part {
                found: excerpt(part),
            });
        }
        text.parse::<u32>()
            .ok()
            .filter(|&number| number < ID_LIMIT)
            .ok_or_else(|| SetError::TooLarge {
                noun: T::NOUN,
                found: excerpt(text),
            })
    }

    /// Reads a mask: hexadecimal words of 32 bits, most significant first, commas between.
    ///
    /// Accepts what the kernel writes (`ff,00000000`, a first word of 1 to 8 digits), what hwloc
    /// writes (`0x00000010,,,0x0`: an empty word is zero) and one long number of any width
    /// (`0x10000`, `FFFFFFFFh`).
    ///
    /// # Errors
    ///
    /// [`SetError::Mask`] or [`SetError::TooLarge`].
    pub fn parse_mask(text: &str) -> Result<Self, SetError> {
        let bytes = text.as_bytes().trim_ascii();
        let not_a_mask = |word: &[u8]| SetError::Mask {
            found: excerpt(&String::from_utf8_lossy(word)),
        };
        let mut set = Self::new();
        // `half` counts words of 32 bits from the least significant one. The most significant one
        // comes first, so that the set grows once.
        let mut add = |half: usize, digits: &[u8], shown: &[u8]| {
            let bits = parse_hex(digits).ok_or_else(|| not_a_mask(shown))?;
            if bits == 0 {
                return Ok(());
            }
            if half >= ID_LIMIT as usize / 32 {
                return Err(SetError::TooLarge {
                    noun: T::NOUN,
                    found: excerpt(text),
                });
            }
            set.add_bits(half / 2, u64::from(bits) << (32 * (half % 2)));
            Ok(())
        };
        let commas = bytes.iter().filter(|&&byte| byte == b',').count();
        if commas > 0 {
            for (index, word) in bytes.split(|&byte| byte == b',').enumerate() {
                let digits = strip_hex_prefix(word.trim_ascii());
                if index == 0 && digits.is_empty() {
                    return Err(not_a_mask(word));
                }
                add(commas - index, digits, word)?;
            }
        } else {
            let digits = strip_hex_prefix(bytes);
            let digits = digits
                .strip_suffix(b"h")
                .or(digits.strip_suffix(b"H"))
                .unwrap_or(digits);
            if digits.is_empty() {
                return Err(not_a_mask(bytes));
            }
            for (half, word) in digits.rchunks(8).enumerate().rev() {
                add(half, word, bytes)?;
            }
        }
        Ok(set)
    }

    /// Writes the kernel's mask: 32-bit words of 8 digits, commas between; empty is `00000000`.
    #[must_use]
    pub fn to_mask(&self) -> String {
        let words: Vec<String> = self
            .words_u32()
            .rev()
            .map(|word| format!("{word:08x}"))
            .collect();
        words.join(",")
    }

    /// The set as 32-bit words, least significant first; at least one, the last one not zero
    /// unless it is the only one.
    pub fn words_u32(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let count = self.highest().map_or(1, |id| id.number() / 32 + 1);
        (0..count).map(|i| {
            let word = self.words.get((i / 2) as usize).copied().unwrap_or(0);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "one half of the word is wanted"
            )]
            let half = (word >> (32 * (i % 2))) as u32;
            half
        })
    }
}

/// At most 8 hexadecimal digits; none are zero.
fn parse_hex(digits: &[u8]) -> Option<u32> {
    if digits.len() > 8 {
        return None;
    }
    digits.iter().try_fold(0, |value, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some(value << 4 | digit)
    })
}

fn strip_hex_prefix(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"0x")
        .or_else(|| text.strip_prefix(b"0X"))
        .unwrap_or(text)
}

impl<T: Id> Default for IdSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Id> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl<T: Id> Extend<T> for IdSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

/// The kernel's list format: `0-3,8`.
impl<T: Id> fmt::Display for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut ids = self.iter().map(Id::number).peekable();
        while let Some(first) = ids.next() {
            let mut last = first;
            while ids.next_if(|&next| next == last + 1).is_some() {
                last += 1;
            }
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&first.to_string());
            if last > first {
                text.push('-');
                text.push_str(&last.to_string());
            }
        }
        f.pad(&text)
    }
}

impl<T: Id> fmt::Debug for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl<T: Id> Serialize for IdSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: Id> Deserialize<'de> for IdSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse_list(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    #[test]
    fn lists_as_kernels_write_them() {
        assert_eq!(set(""), CpuSet::new());
        assert_eq!(set("\n"), CpuSet::new());
        assert_eq!(set("0-2,33\n").to_string(), "0-2,33");
        assert_eq!(set("7,").to_string(), "7");
        assert_eq!(set("3,1,2").to_string(), "1-3");
    }

    #[test]
    fn bad_lists_name_what_was_found() {
        for (text, message) in [
            (
                "3-1",
                "expected a range from low to high, found `3-1`; did you mean 1-3?",
            ),
            (
                "1-2-3",
                "expected a number or a range such as 0-3, found `1-2-3`",
            ),
            ("-1", "expected a number or a range such as 0-3, found `-1`"),
            ("1,,2", "expected a number or a range such as 0-3, found ``"),
            ("+1", "expected a number or a range such as 0-3, found `+1`"),
            (
                "4294967296",
                "expected CPU numbers below 1048576, found `4294967296`",
            ),
            (
                "0-1048576",
                "expected CPU numbers below 1048576, found `1048576`",
            ),
        ] {
            assert_eq!(
                CpuSet::parse_list(text).unwrap_err().to_string(),
                message,
                "{text}"
            );
        }
    }

    #[test]
    fn masks_as_kernels_hwloc_and_people_write_them() {
        for (mask, list) in [
            ("0", ""),
            ("1f", "0-4"),
            ("ff,00000000", "32-39"),
            ("0000,0000003f", "0-5"),
            ("0x00000010,,,0x0", "100"),
            ("0x10000", "16"),
            ("0000000000010000h", "16"),
            ("0xFFFFFFFF", "0-31"),
            ("0x1ffffffffffffffff", "0-64"),
        ] {
            assert_eq!(
                CpuSet::parse_mask(mask).unwrap().to_string(),
                list,
                "{mask}"
            );
        }
    }

    #[test]
    fn bad_masks_are_refused() {
        for mask in [
            "",
            "0x",
            "xyz",
            "1,fffffffff",
            ",1",
            "0x1g",
            "-1",
            "1 2",
            "ü",
        ] {
            assert!(
                matches!(CpuSet::parse_mask(mask), Err(SetError::Mask { .. })),
                "{mask}"
            );
        }
        let wide = "f".repeat(ID_LIMIT as usize / 4 + 1);
        assert!(matches!(
            CpuSet::parse_mask(&wide),
            Err(SetError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_removed_high_id_leaves_equal_sets_equal() {
        let mut cpus = set("1,200");
        cpus.remove(CpuId(200));
        assert_eq!(cpus, set("1"));
        assert_eq!(cpus.highest(), Some(CpuId(1)));
        assert_eq!(set("0,64").difference(&set("64")), set("0"));
    }

    proptest! {
        #[test]
        fn list_and_mask_round_trip(ids in prop::collection::btree_set(0u32..5000, 0..60)) {
            let cpus: CpuSet = ids.iter().copied().map(CpuId).collect();
            prop_assert_eq!(cpus.len(), ids.len());
            prop_assert!(cpus.iter().map(Id::number).eq(ids.iter().copied()));
            prop_assert_eq!(&CpuSet::parse_list(&cpus.to_string()).unwrap(), &cpus);
            prop_assert_eq!(&CpuSet::parse_mask(&cpus.to_mask()).unwrap(), &cpus);
        }

        #[test]
        fn set_algebra_agrees_with_btree_sets(
            a in prop::collection::btree_set(0u32..200, 0..40),
            b in prop::collection::btree_set(0u32..200, 0..40),
        ) {
            let of = |ids: &std::collections::BTreeSet<u32>| -> CpuSet {
                ids.iter().copied().map(CpuId).collect()
            };
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.union(&y), of(&(&a | &b)));
            prop_assert_eq!(x.intersection(&y), of(&(&a & &b)));
            prop_assert_eq!(x.difference(&y), of(&(&a - &b)));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
        }

        #[test]
        fn any_text_gives_a_set_or_an_error(text in ".{0,40}") {
            let _ = CpuSet::parse_list(&text);
            let _ = CpuSet::parse_mask(&text);
        }
    }
}
