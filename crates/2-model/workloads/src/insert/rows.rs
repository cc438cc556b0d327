//! The rows that a client inserts.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::clock::SaleClock;
use crate::events::ParameterSink;
use crate::keys::below;
use crate::seeds::{Purpose, rng_for};

/// The minimum length of `data`, in bytes.
pub const LEAST_DATA: u32 = 1;

/// The maximum length of `data`, in bytes: the length of its column.
pub const MOST_DATA: u32 = 4_000;

/// Number of values of `cashregisterid`, from 0; likewise for the other columns.
pub(super) const CASH_REGISTERS: u64 = 1_000;
const CUSTOMERS: u64 = 100_000;
pub(super) const PRODUCTS: u64 = 10_000;
pub(super) const PRICES: u64 = 500;

/// Characters of the random half of `data`: 64, six bits each.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

/// The rows of one client in one step of one repeat. The same seed gives the same rows.
#[derive(Clone, Debug)]
pub struct RowStream {
    rng: Xoshiro256PlusPlus,
    clock: SaleClock,
    /// `data`; its second half is constant.
    data: Vec<u8>,
    random: usize,
}

/// A position in a [`RowStream`].
#[derive(Clone, Debug)]
pub struct Position(Xoshiro256PlusPlus);

impl RowStream {
    /// The rows of client number `client` in step number `step`; `data_length` is the length of
    /// `data` in bytes.
    #[must_use]
    pub fn new(seed: u64, repeat: u32, step: u32, client: u32, data_length: u32) -> Self {
        let length = data_length as usize;
        Self {
            rng: rng_for(seed, Purpose::Inserts { repeat, step, client }),
            clock: SaleClock::of_step(step),
            data: vec![b'x'; length],
            random: length.div_ceil(2),
        }
    }

    /// Begins a commit. All its rows have the same time, one second after the previous commit.
    #[inline]
    pub fn begin_commit(&mut self) {
        self.clock.tick();
    }

    /// The current position, for [`Self::restore`].
    #[must_use]
    pub fn position(&self) -> Position {
        Position(self.rng.clone())
    }

    /// Returns to a position in the current commit, to draw the same rows again.
    pub fn restore(&mut self, position: Position) {
        self.rng = position.0;
    }

    /// Draws the values of the next row, in the order of [`super::COLUMNS`].
    #[inline]
    pub fn draw(&mut self, sink: &mut impl ParameterSink) {
        sink.text(self.clock.text());
        for values in [CASH_REGISTERS, CUSTOMERS, PRODUCTS, PRICES] {
            sink.int(below(&mut self.rng, values) as i64);
        }
        for letters in self.data[..self.random].chunks_mut(10) {
            let mut bits = self.rng.next_u64();
            for letter in letters {
                *letter = LETTERS[(bits & 63) as usize];
                bits >>= 6;
            }
        }
        sink.text(&self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Values(Vec<String>);

    impl ParameterSink for Values {
        fn int(&mut self, value: i64) {
            self.0.push(value.to_string());
        }

        fn text(&mut self, text: &[u8]) {
            self.0.push(String::from_utf8(text.to_vec()).unwrap());
        }
    }

    fn rows(seed: u64, repeat: u32, step: u32, client: u32) -> Vec<Vec<String>> {
        let mut stream = RowStream::new(seed, repeat, step, client, 10);
        stream.begin_commit();
        let mut row = || {
            let mut values = Values::default();
            stream.draw(&mut values);
            values.0
        };
        (0..200).map(|_| row()).collect()
    }

    #[test]
    fn rows_depend_on_seed_repeat_step_and_client_only() {
        let first = rows(1, 0, 0, 0);
        assert_eq!(first, rows(1, 0, 0, 0));
        for other in [rows(2, 0, 0, 0), rows(1, 1, 0, 0), rows(1, 0, 1, 0), rows(1, 0, 0, 1)] {
            assert!(first.iter().zip(&other).filter(|(a, b)| a[1..] == b[1..]).count() == 0);
        }
    }

    #[test]
    fn values_are_in_range_and_half_of_the_data_is_random() {
        let mut datas = std::collections::BTreeSet::new();
        for row in rows(3, 0, 0, 0) {
            let number = |at: usize| row[at].parse::<u64>().unwrap();
            assert!(number(1) < 1_000 && number(2) < 100_000 && number(3) < 10_000);
            assert!(number(4) < 500);
            assert_eq!((row[0].len(), row[5].len()), (19, 10));
            assert!(row[5].ends_with("xxxxx"));
            datas.insert(row[5].clone());
        }
        assert!(datas.len() > 190, "{}", datas.len());
    }

    #[test]
    fn a_commit_can_be_drawn_again() {
        let mut stream = RowStream::new(1, 0, 0, 0, 10);
        stream.begin_commit();
        let position = stream.position();
        let mut draw = || {
            let mut values = Values::default();
            (0..50).for_each(|_| stream.draw(&mut values));
            values.0
        };
        let first = draw();
        assert_ne!(first, draw());
        stream.restore(position);
        let mut again = Values::default();
        (0..50).for_each(|_| stream.draw(&mut again));
        assert_eq!(first, again.0);
    }

    #[test]
    fn short_and_long_data_have_the_requested_length() {
        for (length, random) in [(1, 1), (25, 13), (4_000, 2_000)] {
            let mut stream = RowStream::new(1, 0, 0, 0, length);
            stream.begin_commit();
            let mut values = Values::default();
            stream.draw(&mut values);
            assert_eq!(values.0[5].len(), length as usize);
            assert_eq!(values.0[5][random..], "x".repeat(length as usize - random));
        }
    }
}
