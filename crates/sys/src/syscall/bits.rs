//! Sets of ids as the kernel's arrays of words.

use std::ffi::c_ulong;

use homenode_units::{Id, IdSet};

/// Bits of one word of a mask.
pub(crate) const WORD_BITS: usize = c_ulong::BITS as usize;

/// The set as words, least significant first; none for the empty set.
pub(crate) fn to_words<T: Id>(set: &IdSet<T>) -> Vec<c_ulong> {
    let Some(highest) = set.highest() else {
        return Vec::new();
    };
    let mut words: Vec<c_ulong> = vec![0; place(highest).0 + 1];
    for id in set.iter() {
        let (word, bit) = place(id);
        words[word] |= bit;
    }
    words
}

fn place<T: Id>(id: T) -> (usize, c_ulong) {
    let number = id.number() as usize;
    (number / WORD_BITS, 1 << (number % WORD_BITS))
}

/// The ids whose bits are set.
pub(crate) fn to_set<T: Id>(words: &[c_ulong]) -> IdSet<T> {
    (0u32..)
        .zip(
            words
                .iter()
                .flat_map(|word| (0..WORD_BITS).map(move |bit| word >> bit & 1 == 1)),
        )
        .filter(|&(_, set)| set)
        .map(|(number, _)| T::new(number))
        .collect()
}

#[cfg(test)]
mod tests {
    use homenode_units::NodeSet;

    use super::*;

    #[test]
    fn bits_become_ids_across_words_and_back() {
        let words = [1 | 1 << 63, 1 << 1];
        let nodes: NodeSet = to_set(&words);
        assert_eq!(nodes.to_string(), "0,63,65");
        assert_eq!(to_words(&nodes), words);
        assert!(to_words(&NodeSet::new()).is_empty());
    }
}
