//! Open-loop clock: due times of commits at a fixed rate, independent of earlier commits.

use dbdyno_units::Nanos;

/// The times at which a client's commits are due.
///
/// There is no queue: a late client continues with the next due commit as fast as it can, and the
/// delay is part of that commit's response time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    start: Nanos,
    rows_per_commit: u32,
    rate: u32,
    offset: Nanos,
}

impl Due {
    /// Commits of `rows_per_commit` rows, `rate` rows per second. The clients' commits are spread
    /// evenly over the interval between two commits.
    pub fn new(start: Nanos, rows_per_commit: u32, rate: u32, client: (u32, u32)) -> Self {
        let (client, clients) = client;
        let mut due = Self { start, rows_per_commit, rate, offset: Nanos::ZERO };
        let interval = due.after_start(1).as_nanos();
        due.offset = Nanos::from_nanos(interval / u64::from(clients.max(1)) * u64::from(client));
        due
    }

    /// The due time of commit number `commit`.
    #[inline]
    pub fn at(&self, commit: u64) -> Nanos {
        self.start + self.after_start(commit)
    }

    /// The number of commits that are due before `end`.
    pub fn before(&self, end: Nanos) -> u64 {
        let length =
            u128::from(end.saturating_sub(self.start).saturating_sub(self.offset).as_nanos());
        let in_one = u128::from(self.rows_per_commit) * 1_000_000_000;
        (length * u128::from(self.rate)).div_ceil(in_one) as u64
    }

    /// The due time relative to `start`. Rounding errors do not accumulate.
    #[inline]
    fn after_start(&self, commit: u64) -> Nanos {
        let rows = u128::from(commit) * u128::from(self.rows_per_commit);
        self.offset + Nanos::from_nanos((rows * 1_000_000_000 / u128::from(self.rate)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_exact_over_any_time() {
        let start = Nanos::from_secs(7);
        let due = Due::new(start, 50, 300, (0, 1));
        assert_eq!(due.at(0), start);
        assert_eq!(due.at(6), start + Nanos::from_secs(1));
        assert_eq!(due.at(6 * 3600), start + Nanos::from_secs(3600));
        assert_eq!(due.before(start + Nanos::from_secs(10)), 60);
        assert_eq!(due.before(start), 0);
        assert_eq!(due.before(start + Nanos::from_nanos(1)), 1);
    }

    #[test]
    fn commits_of_clients_are_spread_evenly() {
        let start = Nanos::ZERO;
        let at: Vec<Nanos> = (0..4).map(|n| Due::new(start, 50, 100, (n, 4)).at(0)).collect();
        assert_eq!(at, [0, 125, 250, 375].map(Nanos::from_millis));
        let due = Due::new(start, 50, 100, (3, 4));
        let end = Nanos::from_secs(1);
        let count = due.before(end);
        assert_eq!(count, 2);
        assert!(due.at(count - 1) < end && due.at(count) >= end);
    }
}
