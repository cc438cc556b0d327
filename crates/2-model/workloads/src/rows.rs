//! The rows that tables are loaded with, and the random texts of their columns `c` and `pad`.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::definition::{Distribution, Text};
use crate::keys::KeyDistribution;
use crate::seeds::{Purpose, rng_for};

/// One row to insert; the database assigns the id.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Column `k`.
    pub k: i64,
    /// Column `c`, 119 bytes of ASCII.
    pub c: Vec<u8>,
    /// Column `pad`, 59 bytes of ASCII.
    pub pad: Vec<u8>,
}

/// The rows of one table. The same seed gives the same rows.
#[derive(Debug)]
pub struct Rows {
    rng: Xoshiro256PlusPlus,
    keys: KeyDistribution,
    left: u64,
}

impl Rows {
    /// All `rows` rows of table number `table` (from 0).
    pub fn of_table(seed: u64, table: u32, rows: u64) -> Self {
        Self {
            rng: rng_for(seed, Purpose::Rows { table }),
            keys: KeyDistribution::new(Distribution::Uniform, rows.max(1)),
            left: rows,
        }
    }

    /// Overwrites `row` with the next row. Returns false if there are no more rows.
    pub fn next_into(&mut self, row: &mut Row) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        row.k = self.keys.draw(&mut self.rng);
        Text::C.draw(&mut self.rng, &mut row.c);
        Text::Pad.draw(&mut self.rng, &mut row.pad);
        true
    }
}

const DIGITS_PER_GROUP: usize = 11;

impl Text {
    /// Length in bytes.
    const fn len(self) -> usize {
        self.groups() * (DIGITS_PER_GROUP + 1) - 1
    }

    const fn groups(self) -> usize {
        match self {
            Self::C => 10,
            Self::Pad => 5,
        }
    }

    /// Overwrites `text` with a new random text.
    #[inline]
    pub fn draw(self, rng: &mut impl Rng, text: &mut Vec<u8>) {
        text.clear();
        text.resize(self.len(), b'-');
        for group in text.chunks_mut(DIGITS_PER_GROUP + 1) {
            // A random fraction of 1; its decimal digits are extracted from the left.
            let mut fraction = rng.next_u64();
            for digit in &mut group[..DIGITS_PER_GROUP] {
                let product = u128::from(fraction) * 10;
                *digit = b'0' + (product >> 64) as u8;
                fraction = product as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    fn rows(seed: u64, table: u32) -> Vec<(i64, Vec<u8>)> {
        let mut rows = Rows::of_table(seed, table, 100);
        let mut row = Row::default();
        let mut all = Vec::new();
        while rows.next_into(&mut row) {
            all.push((row.k, row.c.clone()));
        }
        all
    }

    #[test]
    fn rows_depend_on_seed_and_table_only() {
        assert_eq!(rows(1, 0), rows(1, 0));
        assert_ne!(rows(1, 0), rows(2, 0));
        assert_ne!(rows(1, 0), rows(1, 1));
        assert_eq!(rows(1, 0).len(), 100);
        assert!(rows(1, 0).iter().all(|(k, _)| (1..=100).contains(k)));
    }

    #[test]
    fn texts_have_the_published_form() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for (text, len, groups) in [(Text::C, 119, 10), (Text::Pad, 59, 5)] {
            let mut drawn = Vec::new();
            text.draw(&mut rng, &mut drawn);
            assert_eq!(drawn.len(), len);
            let drawn = String::from_utf8(drawn).unwrap();
            let parts: Vec<_> = drawn.split('-').collect();
            assert_eq!(parts.len(), groups);
            assert!(parts.iter().all(|part| part.len() == 11));
            assert!(parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_digit())));
        }
    }
}
