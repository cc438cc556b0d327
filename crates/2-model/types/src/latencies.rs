use serde::{Deserialize, Serialize};

/// A histogram of response times: pairs of a time in nanoseconds (accurate to 1%) and the number
/// of events, in ascending order.
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

    /// Encodes as bytes: a list of pairs in the postcard format (variable-length integers), each
    /// time as the difference from the previous one. About three bytes per pair.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut before = 0;
        let distances: Vec<(u64, u64)> = self
            .0
            .iter()
            .map(|(nanos, count)| (nanos - std::mem::replace(&mut before, *nanos), *count))
            .collect();
        postcard::to_allocvec(&distances).expect("a vector grows as needed")
    }

    /// Decodes the result of [`Self::to_bytes`].
    ///
    /// # Errors
    /// The bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let distances: Vec<(u64, u64)> =
            postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        let mut nanos: u64 = 0;
        distances
            .into_iter()
            .map(|(distance, count)| {
                nanos = nanos.checked_add(distance).ok_or("a time is too long")?;
                Ok((nanos, count))
            })
            .collect::<Result<_, String>>()
            .map(Self)
    }

    /// Pairs of nanoseconds and counts, in ascending order.
    #[must_use]
    pub fn counts(&self) -> &[(u64, u64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn latencies_round_trip_through_bytes(
            counts in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50)
        ) {
            let latencies = Latencies::new(counts);
            prop_assert_eq!(Latencies::from_bytes(&latencies.to_bytes()), Ok(latencies));
        }

        #[test]
        fn invalid_bytes_do_not_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64)
        ) {
            let _ = Latencies::from_bytes(&bytes);
        }
    }

    #[test]
    fn merging_adds_counts_of_equal_times() {
        let mut latencies = Latencies::new(vec![(5, 1), (2, 1)]);
        latencies.merge(&Latencies::new(vec![(2, 3), (9, 1)]));
        assert_eq!(latencies.counts(), [(2, 4), (5, 1), (9, 1)]);
    }
}
