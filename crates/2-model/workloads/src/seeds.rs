//! Random streams: one per purpose, all derived from the run's seed.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The purpose of a random stream. Streams of different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The rows of one table.
    Rows {
        /// The table's number, from 0.
        table: u32,
    },
    /// The events of one client in one block of one microbenchmark: the same for all candidates.
    Events {
        /// The microbenchmark's position in the running order.
        microbenchmark: u32,
        block: u32,
        /// The client's number, from 0.
        client: u32,
    },
    /// The order of the candidates in the blocks of one microbenchmark.
    Order {
        /// The microbenchmark's position in the running order.
        microbenchmark: u32,
        block: u32,
    },
    /// The order of the numbers of clients in the rounds of one microbenchmark.
    Clients {
        /// The position of its first number of clients in the running order.
        microbenchmark: u32,
        round: u32,
    },
    /// The order in which instances are started.
    Starts {
        /// The microbenchmark's position in the running order; `None` at the start of a session.
        microbenchmark: Option<u32>,
        /// Number of earlier starts for this microbenchmark.
        restart: u32,
    },
    /// The rows that one client inserts in one step of the insert benchmark: the same for all
    /// candidates.
    Inserts {
        /// The repeat, from 0.
        repeat: u32,
        /// The step's number, from 0.
        step: u32,
        /// The client's number, from 0.
        client: u32,
    },
    /// The queries that one client sends in one step of the insert benchmark.
    Queries {
        /// The repeat, from 0.
        repeat: u32,
        /// The step's number, from 0.
        step: u32,
        /// The client's number, from 0.
        client: u32,
    },
    /// The order of the candidates in the repeats of the insert benchmark.
    Repeats {
        /// The draw's number. Each draw orders as many repeats as there are candidates.
        round: u32,
    },
}

/// The generator of the stream for `purpose`.
pub fn rng_for(seed: u64, purpose: Purpose) -> Xoshiro256PlusPlus {
    let words = match purpose {
        Purpose::Rows { table } => [1, table, 0, 0],
        Purpose::Events { microbenchmark, block, client } => [2, microbenchmark, block, client],
        Purpose::Order { microbenchmark, block } => [3, microbenchmark, block, 0],
        Purpose::Inserts { repeat, step, client } => [4, repeat, step, client],
        Purpose::Queries { repeat, step, client } => [5, repeat, step, client],
        Purpose::Repeats { round } => [6, round, 0, 0],
        Purpose::Starts { microbenchmark: None, restart } => [7, 0, restart, 0],
        Purpose::Starts { microbenchmark: Some(number), restart } => [8, number, restart, 0],
        Purpose::Clients { microbenchmark, round } => [9, microbenchmark, round, 0],
    };
    // Mix the seed first; otherwise neighbouring seeds and purposes give the same stream.
    let start = split_mix(seed);
    let mixed = words.iter().fold(start, |state, word| split_mix(state ^ u64::from(*word)));
    Xoshiro256PlusPlus::seed_from_u64(mixed)
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014): each output bit depends on every input bit.
const fn split_mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use rand_core::Rng;

    use super::*;

    #[test]
    fn streams_differ_by_purpose_and_seed() {
        let first = |seed, purpose| rng_for(seed, purpose).next_u64();
        let mut seen = std::collections::HashSet::new();
        for seed in 0..3 {
            for x in 0..20 {
                assert!(seen.insert(first(seed, Purpose::Rows { table: x })));
                for block in 0..20 {
                    let microbenchmark = x;
                    assert!(seen.insert(first(seed, Purpose::Order { microbenchmark, block })));
                    let events = Purpose::Events { microbenchmark, block, client: 0 };
                    assert!(seen.insert(first(seed, events)));
                }
            }
        }
    }
}
