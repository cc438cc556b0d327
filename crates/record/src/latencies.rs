use serde::{Deserialize, Serialize};

/// Counts of response times: pairs of a time in nanoseconds (precise to 1%) and how many events
/// took it, in rising order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latencies(Vec<(u64, u64)>);

impl Latencies {
    /// From times and counts in any order.
    #[must_use]
    pub fn new(mut counts: Vec<(u64, u64)>) -> Self {
        counts.sort_unstable();
        Self(counts)
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
        self.0.sort_unstable();
        self.0.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
    }

    /// Pairs of nanoseconds and counts, in rising order.
    #[must_use]
    pub fn counts(&self) -> &[(u64, u64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_counts_of_equal_times() {
        let mut latencies = Latencies::new(vec![(5, 1), (2, 1)]);
        latencies.merge(&Latencies::new(vec![(2, 3), (9, 1)]));
        assert_eq!(latencies.counts(), [(2, 4), (5, 1), (9, 1)]);
    }
}
