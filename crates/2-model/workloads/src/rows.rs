//! The rows that tables are loaded with.

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
    #[must_use]
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

#[cfg(test)]
mod tests {
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
}
