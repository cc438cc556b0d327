//! The random texts of the columns `c` and `pad`.

use rand_core::Rng;

use crate::definition::Text;

const DIGITS_PER_GROUP: usize = 11;

impl Text {
    /// Length in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        self.groups() * (DIGITS_PER_GROUP + 1) - 1
    }

    /// Always false: every text has digits.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
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
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

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
