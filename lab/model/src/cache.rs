//! A set-associative cache with the least recently used line thrown out.

/// The lines in one cache. It holds no data, only which lines are there and which were written.
#[derive(Clone, Debug)]
pub struct Cache {
    /// `[set * ways + age]`, the youngest line of a set first; see [`Slot`].
    slots: Vec<Slot>,
    sets: u64,
    ways: usize,
}

/// A line's number plus one, so that 0 is an empty slot, and [`WRITTEN`].
type Slot = u64;

/// Set where the line was written since it came.
const WRITTEN: Slot = 1 << 63;

/// A line that left a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its number.
    pub line: u64,
    /// Whether it was written, so that its content has to go somewhere.
    pub written: bool,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Panics
    ///
    /// With no sets or no ways.
    #[must_use]
    pub fn new(sets: u32, ways: u16) -> Self {
        assert!(sets > 0 && ways > 0, "a cache has room for a line");
        let ways = usize::from(ways);
        let sets_index = usize::try_from(sets).expect("32 bits fit");
        Self {
            slots: vec![0; sets_index * ways],
            sets: u64::from(sets),
            ways,
        }
    }

    /// Throws everything out.
    pub fn clear(&mut self) {
        self.slots.fill(0);
    }

    /// Uses a line that is here: it becomes the youngest of its set. False where it is not here.
    #[inline]
    pub fn touch(&mut self, line: u64, store: bool) -> bool {
        let set = self.set(line);
        let Some(age) = set.iter().position(|&slot| slot & !WRITTEN == line + 1) else {
            return false;
        };
        let slot = set[age];
        set.copy_within(..age, 1);
        set[0] = if store { slot | WRITTEN } else { slot };
        true
    }

    /// Puts a line in as the youngest of its set; returns the one that had to leave.
    pub fn insert(&mut self, line: u64, written: bool) -> Option<Victim> {
        let set = self.set(line);
        let last = set.len() - 1;
        let oldest = set[last];
        set.copy_within(..last, 1);
        set[0] = (line + 1) | if written { WRITTEN } else { 0 };
        (oldest != 0).then(|| Victim {
            line: (oldest & !WRITTEN) - 1,
            written: oldest & WRITTEN != 0,
        })
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [Slot] {
        let set = if self.sets.is_power_of_two() {
            line & (self.sets - 1)
        } else {
            line % self.sets
        };
        let start = usize::try_from(set).expect("a set's number is below 2^32") * self.ways;
        &mut self.slots[start..start + self.ways]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// Loads a line; whether it was there.
    fn load(cache: &mut Cache, line: u64) -> bool {
        let hit = cache.touch(line, false);
        if !hit {
            cache.insert(line, false);
        }
        hit
    }

    #[test]
    fn a_buffer_that_fits_stays() {
        let mut cache = Cache::new(64, 8);
        for line in 0..512 {
            assert!(!load(&mut cache, line));
        }
        for line in 0..512 {
            assert!(load(&mut cache, line), "{line}");
        }
    }

    #[test]
    fn a_cycle_one_line_too_long_never_hits() {
        // The worst case of "least recently used", and why a chase over twice a cache misses always.
        let mut cache = Cache::new(1, 8);
        for _cycle in 0..3 {
            for line in 0..9 {
                assert!(!load(&mut cache, line));
            }
        }
    }

    #[test]
    fn what_was_written_is_told_when_it_leaves() {
        let mut cache = Cache::new(1, 2);
        cache.insert(1, false);
        cache.insert(2, true);
        assert!(cache.touch(1, true));
        assert_eq!(
            cache.insert(3, false),
            Some(Victim {
                line: 2,
                written: true
            })
        );
        assert_eq!(
            cache.insert(4, false),
            Some(Victim {
                line: 1,
                written: true
            })
        );
        assert_eq!(
            cache.insert(5, false),
            Some(Victim {
                line: 3,
                written: false
            })
        );
    }

    proptest! {
        /// Against a list per set that is kept in order of use.
        #[test]
        fn the_least_recently_used_leaves(
            sets in 1u32..6,
            ways in 1u16..5,
            lines in proptest::collection::vec(0u64..40, 0..200),
        ) {
            let mut cache = Cache::new(sets, ways);
            let mut expected = vec![VecDeque::new(); sets as usize];
            for line in lines {
                let set = &mut expected[usize::try_from(line % u64::from(sets)).unwrap()];
                let known = set.iter().position(|&other| other == line);
                prop_assert_eq!(cache.touch(line, false), known.is_some());
                if let Some(position) = known {
                    set.remove(position);
                } else {
                    let left = if set.len() == usize::from(ways) { set.pop_back() } else { None };
                    prop_assert_eq!(cache.insert(line, false).map(|victim| victim.line), left);
                }
                set.push_front(line);
            }
        }
    }
}
