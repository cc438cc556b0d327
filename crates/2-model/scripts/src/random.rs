//! sysbench's random numbers: the same seed gives the same values as in sysbench.

use serde::{Deserialize, Serialize};

use crate::source::Version;

/// The state of a thread's generator: xoroshiro128+.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub [u64; 2]);

impl Seed {
    /// The state of sysbench's first thread with `--rand-seed`: four values of the C library's `random`.
    pub fn of_sysbench(seed: u32) -> Self {
        let mut random = LibraryRandom::new(seed);
        let mut word = || u64::from(random.next()) << 32 | u64::from(random.next());
        Self([word(), word()])
    }

    /// A state for each combination of these numbers, by SplitMix64.
    pub fn of(numbers: &[u64]) -> Self {
        let mut state = 0_u64;
        let mut next = |input: u64| {
            state = (state ^ input).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        for number in numbers {
            let mixed = next(*number);
            next(mixed);
        }
        // The state must not be 0.
        Self([next(1), next(2) | 1])
    }
}

/// The C library's `random` after `srandom`: an additive generator of degree 31.
struct LibraryRandom {
    values: [u32; 31],
    front: usize,
    back: usize,
}

impl LibraryRandom {
    fn new(seed: u32) -> Self {
        let mut values = [0_u32; 31];
        let mut word = if seed == 0 { 1 } else { seed as i32 };
        for value in &mut values {
            *value = word as u32;
            let next = (i64::from(word) * 16807) % 2_147_483_647;
            word = (if next < 0 { next + 2_147_483_647 } else { next }) as i32;
        }
        let mut random = Self { values, front: 3, back: 0 };
        for _ in 0..310 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u32 {
        let sum = self.values[self.front].wrapping_add(self.values[self.back]);
        self.values[self.front] = sum;
        self.front = (self.front + 1) % 31;
        self.back = (self.back + 1) % 31;
        sum >> 1
    }
}

dbdyno_types::words! {
    /// The distributions of sysbench, with their names in `--rand-type`.
    #[derive(Default)]
    Distribution {
        Uniform = "uniform",
        /// The mean of several uniform values.
        Gaussian = "gaussian",
        /// Mostly values of a small range in the middle, otherwise Gaussian.
        #[default]
        Special = "special",
        /// Powers of uniform values.
        Pareto = "pareto",
        /// Small values more often, by powers of the values.
        Zipfian = "zipfian",
    }
}

impl Distribution {
    /// Those of a version.
    pub(crate) const fn of(version: Version) -> &'static [Self] {
        match version {
            Version::V1_0 => &[Self::Uniform, Self::Gaussian, Self::Special, Self::Pareto],
            Version::V1_1 => &[Self::Uniform, Self::Gaussian, Self::Pareto, Self::Zipfian],
        }
    }
}

/// The options `--rand-*`, with sysbench's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomOptions {
    /// `--rand-type`: the distribution of `sysbench.rand.default`.
    pub distribution: Distribution,
    /// `--rand-spec-iter`: uniform values per Gaussian value.
    pub iterations: u32,
    /// `--rand-spec-pct`: the size of the special range, in percent of the whole.
    pub special_range: u32,
    /// `--rand-spec-res`: how many values are in the special range, in percent.
    pub special_values: u32,
    /// `--rand-pareto-h`.
    pub pareto_h: f64,
    /// `--rand-zipfian-exp`.
    pub zipfian_exponent: f64,
}

impl RandomOptions {
    pub fn of(version: Version) -> Self {
        let distribution = match version {
            Version::V1_0 => Distribution::Special,
            Version::V1_1 => Distribution::Uniform,
        };
        Self { distribution, ..Self::default() }
    }
}

impl Default for RandomOptions {
    fn default() -> Self {
        Self {
            distribution: Distribution::default(),
            iterations: 12,
            special_range: 1,
            special_values: 75,
            pareto_h: 0.2,
            zipfian_exponent: 0.8,
        }
    }
}

/// The random numbers of one client.
#[derive(Debug)]
pub struct Random {
    state: [u64; 2],
    distribution: Distribution,
    iterations: u32,
    /// Factors calculated once, as the results of divisions are not exact.
    per_iteration: f64,
    special_share: f64,
    half_special_share: f64,
    special_factor: f64,
    pareto_power: f64,
    zipfian: Zipfian,
    client: u32,
    unique: UniquePosition,
}

/// A client's position in the sequence of `sysbench.rand.unique`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniquePosition {
    /// Each client has every n-th value of the sequence, starting with the one of its number.
    pub stride: u32,
    /// How many of its values the client has passed.
    pub passed: u32,
}

impl Default for UniquePosition {
    fn default() -> Self {
        Self { stride: 1, passed: 0 }
    }
}

impl Random {
    /// The numbers of a client.
    pub fn new(options: RandomOptions, seed: Seed, client: u32, unique: UniquePosition) -> Self {
        let h = options.pareto_h;
        Self {
            state: seed.0,
            distribution: options.distribution,
            iterations: options.iterations,
            per_iteration: 1.0 / f64::from(options.iterations),
            special_share: f64::from(options.special_range) / 100.0,
            half_special_share: f64::from(options.special_range) / 200.0,
            special_factor: 100.0 / (100.0 - f64::from(options.special_values)),
            pareto_power: h.ln() / (1.0 - h).ln(),
            zipfian: Zipfian::new(options.zipfian_exponent),
            client,
            unique,
        }
    }

    /// Continues with another seed, and with the value number `first_unique` of the unique sequence unless it is
    /// passed.
    pub fn start_block(&mut self, seed: Seed, first_unique: u32) {
        self.state = seed.0;
        let UniquePosition { stride, passed } = &mut self.unique;
        *passed = (*passed).max(first_unique / *stride);
    }

    pub fn unique_position(&self) -> UniquePosition {
        self.unique
    }

    /// `sysbench.rand.uniform_uint64`.
    #[inline]
    pub fn uniform_uint64(&mut self) -> u64 {
        let [first, second] = self.state;
        let mixed = first ^ second;
        self.state = [first.rotate_left(55) ^ mixed ^ (mixed << 14), mixed.rotate_left(36)];
        first.wrapping_add(second)
    }

    /// `sysbench.rand.uniform_double`: at least 0, less than 1.
    #[inline]
    pub fn uniform_double(&mut self) -> f64 {
        f64::from_bits(0x3ff << 52 | self.uniform_uint64() >> 12) - 1.0
    }

    /// `sysbench.rand.uniform`: from `low` to `high`.
    #[inline]
    pub fn uniform(&mut self, low: u32, high: u32) -> u32 {
        let size = f64::from(high.wrapping_sub(low).wrapping_add(1));
        to_u32(f64::from(low) + self.uniform_double() * size)
    }

    /// `sysbench.rand.gaussian`.
    pub fn gaussian(&mut self, low: u32, high: u32) -> u32 {
        let size = f64::from(high.wrapping_sub(low).wrapping_add(1));
        let mut sum = 0.0;
        for _ in 0..self.iterations {
            sum += self.uniform_double() * size;
        }
        low.wrapping_add(to_u32(sum * self.per_iteration))
    }

    /// `sysbench.rand.special`.
    pub fn special(&mut self, low: u32, high: u32) -> u32 {
        let size = f64::from(high.wrapping_sub(low));
        let drawn = self.uniform_double();
        if drawn * (size * self.special_factor) < size {
            let mut sum = 0.0;
            for _ in 0..self.iterations {
                sum += self.uniform_double();
            }
            return to_u32(f64::from(low) + sum * size * self.per_iteration);
        }
        let mut offset = drawn * (size * self.special_share + 1.0);
        offset += size / 2.0 - size * self.half_special_share;
        low.wrapping_add(to_u32(offset))
    }

    /// `sysbench.rand.pareto`.
    pub fn pareto(&mut self, low: u32, high: u32) -> u32 {
        let size = f64::from(high.wrapping_sub(low).wrapping_add(1));
        low.wrapping_add(to_u32(size * self.uniform_double().powf(self.pareto_power)))
    }

    /// `sysbench.rand.zipfian`.
    pub fn zipfian(&mut self, low: u32, high: u32) -> u32 {
        let size = high.wrapping_sub(low).wrapping_add(1);
        let zipfian = self.zipfian;
        low.wrapping_add(zipfian.draw(size, || self.uniform_double())).wrapping_sub(1)
    }

    /// `sysbench.rand.default`.
    #[inline]
    pub fn default(&mut self, low: u32, high: u32) -> u32 {
        match self.distribution {
            Distribution::Uniform => self.uniform(low, high),
            Distribution::Gaussian => self.gaussian(low, high),
            Distribution::Special => self.special(low, high),
            Distribution::Pareto => self.pareto(low, high),
            Distribution::Zipfian => self.zipfian(low, high),
        }
    }

    /// `sysbench.rand.unique`: no value twice, for all clients and blocks together.
    pub fn unique(&mut self) -> u32 {
        let UniquePosition { stride, passed } = self.unique;
        self.unique.passed = passed.wrapping_add(1);
        let index = passed.wrapping_mul(stride).wrapping_add(self.client);
        permute(permute(index).wrapping_add(UNIQUE_OFFSET) ^ 0x5bf0_3635)
    }

    /// `sysbench.rand.string`: `#` becomes a digit and `@` a small letter.
    #[inline]
    pub fn text(&mut self, format: &[u8], out: &mut [u8]) {
        for (byte, to) in format.iter().zip(out) {
            *to = match byte {
                b'#' => self.uniform(u32::from(b'0'), u32::from(b'9')) as u8,
                b'@' => self.uniform(u32::from(b'a'), u32::from(b'z')) as u8,
                other => *other,
            };
        }
    }
}

/// The second start value of the unique sequence. Any value gives a permutation.
const UNIQUE_OFFSET: u32 = 0x46ac_12fd;

/// A permutation of all 32-bit numbers, by quadratic residues of a prime that is 3 modulo 4.
const fn permute(x: u32) -> u32 {
    const PRIME: u64 = 4_294_967_291;
    let x = x as u64;
    if x >= PRIME {
        return x as u32;
    }
    let residue = x * x % PRIME;
    (if x <= PRIME / 2 { residue } else { PRIME - residue }) as u32
}

/// As C converts on x86-64 and aarch64 for values in range.
#[inline]
fn to_u32(value: f64) -> u32 {
    value as u64 as u32
}

/// A distribution of 1 to any number, value k with weight k^-exponent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipfian {
    exponent: f64,
    shortcut: f64,
    integral_of_first: f64,
}

impl Zipfian {
    pub fn new(exponent: f64) -> Self {
        let mut zipfian = Self { exponent, shortcut: 0.0, integral_of_first: 0.0 };
        zipfian.shortcut = 2.0 - zipfian.inverse(zipfian.integral(2.5) - zipfian.weight(2.0));
        zipfian.integral_of_first = zipfian.integral(1.5) - 1.0;
        zipfian
    }

    /// A value from 1 to `most`, with uniform numbers from `uniform`.
    pub fn draw(&self, most: u32, mut uniform: impl FnMut() -> f64) -> u32 {
        let integral_of_all = self.integral(f64::from(most) + 0.5);
        loop {
            let drawn = integral_of_all + uniform() * (self.integral_of_first - integral_of_all);
            let x = self.inverse(drawn);
            // As C converts; beyond the range only by inexact arithmetic.
            let value = ((x + 0.5) as u64 as u32).max(1).min(most);
            let k = f64::from(value);
            if k - x <= self.shortcut || drawn >= self.integral(k + 0.5) - self.weight(k) {
                return value;
            }
        }
    }

    /// The integral of [`Self::weight`], (x^(1 - e) - 1) / (1 - e).
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_by_x((1.0 - self.exponent) * log) * log
    }

    /// x^-e
    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The inverse of [`Self::integral`].
    fn inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        (ln1p_by_x(t) * x).exp()
    }
}

/// Where the series is more exact.
const SMALL: f64 = 1e-8;

fn ln1p_by_x(x: f64) -> f64 {
    if x.abs() > SMALL {
        x.ln_1p() / x
    } else {
        1.0 - x * (0.5 - x * (0.333_333_333_333_333_3 - 0.25 * x))
    }
}

/// (e^x - 1) / x
fn expm1_by_x(x: f64) -> f64 {
    if x.abs() > SMALL {
        x.exp_m1() / x
    } else {
        1.0 + x * 0.5 * (1.0 + x * 0.333_333_333_333_333_3 * (1.0 + 0.25 * x))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn first_values_with_a_seed_are_those_of_sysbench() {
        // Printed by a script in `thread_init`: sysbench --rand-seed=42 --threads=1.
        let seed = Seed::of_sysbench(42);
        let mut random = Random::new(RandomOptions::default(), seed, 0, UniquePosition::default());
        let values: Vec<u64> = (0..3).map(|_| random.uniform_uint64()).collect();
        let expected =
            [6_678_695_823_595_818_893, 12_985_727_069_636_131_040, 13_785_426_779_914_018_964];
        assert_eq!(values, expected);
    }

    #[test]
    fn zipfian_values_are_those_of_sysbench() {
        // Of `sb_rand_zipfian(100, 100099)` of sysbench 1.1 after the same seed: the first values, and the sum of
        // 100,000 values, each multiplied by 1 to 7 in turn.
        for (exponent, first, expected) in [
            (0.8, [13597, 690, 428, 1800, 25337, 100, 166, 1890], 7_317_218_804),
            (1.0, [1347, 119, 111, 160, 4187, 100, 103, 164], 3_323_958_275),
            (1.5, [103, 100, 100, 101, 107, 100, 100, 101], 131_021_057),
            (0.0, [63894, 29704, 25369, 38966, 73693, 203, 15795, 39468], 19_945_863_573),
        ] {
            let options = RandomOptions { zipfian_exponent: exponent, ..RandomOptions::default() };
            let seed = Seed::of_sysbench(42);
            let mut random = Random::new(options, seed, 0, UniquePosition::default());
            let values: Vec<u64> =
                (0..100_000).map(|_| random.zipfian(100, 100_099).into()).collect();
            assert_eq!(values[..8], first, "{exponent}");
            let sum: u64 = values.iter().zip(0..).map(|(value, i)| value * (i % 7 + 1)).sum();
            assert_eq!(sum, expected, "{exponent}");
        }
    }

    #[test]
    fn unique_values_of_all_clients_and_blocks_differ() {
        let mut seen = HashSet::new();
        let unique = UniquePosition { stride: 3, passed: 0 };
        let new =
            |client, unique| Random::new(RandomOptions::default(), Seed::of(&[1]), client, unique);
        let mut clients: Vec<Random> = (0..3).map(|client| new(client, unique)).collect();
        for block in 0..40 {
            for random in &mut clients {
                random.start_block(Seed::of(&[1]), block * 2000);
                for _ in 0..1000 {
                    assert!(seen.insert(random.unique()));
                }
            }
            if block % 10 == 9 {
                // Another script on the same connections.
                for (client, random) in (0..).zip(&mut clients) {
                    *random = new(client, random.unique_position());
                }
            }
        }
        assert_eq!(seen.len(), 120_000);
    }

    #[test]
    fn unique_values_after_a_restart_continue_behind_the_earlier_blocks() {
        let mut seen = HashSet::new();
        for block in 0..20 {
            let unique = UniquePosition::default();
            let mut random = Random::new(RandomOptions::default(), Seed::of(&[1]), 0, unique);
            random.start_block(Seed::of(&[1]), block << 14);
            for _ in 0..5000 {
                assert!(seen.insert(random.unique()));
            }
        }
    }

    #[test]
    fn values_are_in_their_range() {
        let options = RandomOptions::default();
        let mut random = Random::new(options, Seed::of(&[7, 8]), 0, UniquePosition::default());
        for _ in 0..10_000 {
            for value in [
                random.uniform(5, 9),
                random.gaussian(5, 9),
                random.special(5, 9),
                random.pareto(5, 9),
                random.zipfian(5, 9),
            ] {
                assert!((5..=9).contains(&value), "{value}");
            }
        }
    }
}
