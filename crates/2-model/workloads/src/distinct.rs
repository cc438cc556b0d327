//! Number of distinct keys in a list.

/// Counts distinct keys without clearing or allocating between lists: an open-addressing hash
/// table in which only entries with the current stamp are valid.
#[derive(Clone, Debug)]
pub(crate) struct DistinctCounter {
    entries: Vec<(i64, u32)>,
    stamp: u32,
    shift: u32,
}

impl DistinctCounter {
    /// A counter for lists of up to `len` keys.
    pub fn for_up_to(len: usize) -> Self {
        let size = (len.max(1) * 2).next_power_of_two();
        Self { entries: vec![(0, 0); size], stamp: 0, shift: 64 - size.trailing_zeros() }
    }

    /// The number of distinct keys in `keys`.
    pub fn count(&mut self, keys: &[i64]) -> u64 {
        if self.stamp == u32::MAX {
            self.entries.fill((0, 0));
            self.stamp = 0;
        }
        self.stamp += 1;
        let mask = self.entries.len() - 1;
        let mut distinct = 0;
        for &key in keys {
            // Fibonacci hashing: the high bits of a product with 2^64 / golden ratio.
            let mut at = ((key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
            loop {
                let entry = &mut self.entries[at];
                if entry.1 != self.stamp {
                    *entry = (key, self.stamp);
                    distinct += 1;
                    break;
                }
                if entry.0 == key {
                    break;
                }
                at = (at + 1) & mask;
            }
        }
        distinct
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn count_equals_the_size_of_a_set(lists in prop::collection::vec(prop::collection::vec(-20i64..20, 0..64), 1..8)) {
            let mut counter = DistinctCounter::for_up_to(64);
            for list in lists {
                let set: HashSet<_> = list.iter().collect();
                prop_assert_eq!(counter.count(&list), set.len() as u64);
            }
        }
    }

    #[test]
    fn old_entries_are_not_counted_after_stamp_overflow() {
        let mut counter = DistinctCounter::for_up_to(4);
        counter.stamp = u32::MAX - 1;
        assert_eq!(counter.count(&[1, 2, 2]), 2);
        assert_eq!(counter.count(&[1, 2, 3]), 3);
    }
}
