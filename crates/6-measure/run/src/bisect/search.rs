//! Which commit of a range is measured next: the bisection of `git bisect`, without input or output.

use std::cmp::Reverse;

use super::record::StepVerdict;

/// A commit by its position in the range; each commit comes after its parents.
pub(crate) type Position = usize;

/// The search for the first commit whose figure is like that of the last one.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    /// The parents of each commit that are in the range.
    parents: Vec<Vec<Position>>,
    /// Whether each commit may be the one that is searched for.
    may_be_first: Vec<bool>,
    skipped: Vec<bool>,
    /// The only commit that is known to be like bad and of which no ancestor is.
    earliest_bad: Position,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Measure this commit.
    Measure(Position),
    /// This is the first commit that is like bad.
    Found(Position),
    /// One of these is, and all but the last one were skipped.
    OnlySkipped,
}

impl Search {
    /// A search in a range of which the last commit is like bad, and what is before it like good.
    ///
    /// # Panics
    /// The range is empty.
    pub fn new(parents: Vec<Vec<Position>>) -> Self {
        let count = parents.len();
        let earliest_bad = count.checked_sub(1).expect("a range has commits");
        Self { parents, may_be_first: vec![true; count], skipped: vec![false; count], earliest_bad }
    }

    pub fn add(&mut self, commit: Position, verdict: StepVerdict) {
        match verdict {
            StepVerdict::Skipped => self.skipped[commit] = true,
            // It says nothing about other commits: a bisect ends with it.
            StepVerdict::Undecided => {}
            StepVerdict::LikeGood => {
                for ancestor in self.remaining_ancestors(commit) {
                    self.may_be_first[ancestor] = false;
                }
            }
            StepVerdict::LikeBad => {
                let ancestors = self.remaining_ancestors(commit);
                self.may_be_first.fill(false);
                for ancestor in ancestors {
                    self.may_be_first[ancestor] = true;
                }
                self.earliest_bad = commit;
            }
        }
    }

    /// What to do next. Of the commits that were not skipped, the one that divides the rest most
    /// evenly is measured: where the best one cannot be built, this is one of its neighbours.
    pub fn next(&self) -> Next {
        let remaining = self.remaining();
        let count = remaining.len();
        if count == 1 {
            return Next::Found(self.earliest_bad);
        }
        let ancestors = self.counts_of_ancestors();
        let smaller_part = |commit: &Position| ancestors[*commit].min(count - ancestors[*commit]);
        let can_be_measured =
            |commit: &Position| *commit != self.earliest_bad && !self.skipped[*commit];
        let best = remaining
            .into_iter()
            .filter(can_be_measured)
            .min_by_key(|commit| Reverse(smaller_part(commit)));
        best.map_or(Next::OnlySkipped, Next::Measure)
    }

    /// The commits that may be the first one that is like bad.
    pub fn remaining(&self) -> Vec<Position> {
        (0..self.parents.len()).filter(|commit| self.may_be_first[*commit]).collect()
    }

    /// About how many commits are still to be measured.
    pub fn steps_left(&self) -> u32 {
        self.remaining().len().max(1).next_power_of_two().ilog2()
    }

    /// The commit and its ancestors, as far as they remain.
    fn remaining_ancestors(&self, commit: Position) -> Vec<Position> {
        let mut is_known = vec![false; commit + 1];
        let mut waiting = vec![commit];
        let mut all = Vec::new();
        is_known[commit] = true;
        while let Some(one) = waiting.pop() {
            all.push(one);
            for &parent in &self.parents[one] {
                if self.may_be_first[parent] && !is_known[parent] {
                    is_known[parent] = true;
                    waiting.push(parent);
                }
            }
        }
        all
    }

    /// For each commit, the number of commits that [`Self::remaining_ancestors`] returns; 0 for those
    /// that do not remain. Only merges need a search of their own.
    fn counts_of_ancestors(&self) -> Vec<usize> {
        let mut counts = vec![0; self.parents.len()];
        for commit in self.remaining() {
            let mut parents = self.parents[commit].iter().filter(|one| self.may_be_first[**one]);
            counts[commit] = match (parents.next(), parents.next()) {
                (None, _) => 1,
                (Some(&only), None) => counts[only] + 1,
                (Some(_), Some(_)) => self.remaining_ancestors(commit).len(),
            };
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A range without merges.
    fn linear(count: usize) -> Search {
        Search::new((0..count).map(|commit| commit.checked_sub(1).into_iter().collect()).collect())
    }

    /// Searches with a verdict for each commit; returns the end and the measured commits.
    fn search(
        mut search: Search,
        verdict: impl Fn(Position) -> StepVerdict,
    ) -> (Next, Search, Vec<Position>) {
        let mut measured = Vec::new();
        loop {
            match search.next() {
                Next::Measure(commit) => {
                    measured.push(commit);
                    search.add(commit, verdict(commit));
                }
                end => return (end, search, measured),
            }
        }
    }

    const fn like(commit: Position, first: Position) -> StepVerdict {
        if commit < first { StepVerdict::LikeGood } else { StepVerdict::LikeBad }
    }

    #[test]
    fn each_of_64_commits_is_found_with_six_measurements() {
        for first in 0..64 {
            assert_eq!(linear(64).steps_left(), 6);
            let (end, after, measured) = search(linear(64), |commit| like(commit, first));
            assert_eq!((end, measured.len()), (Next::Found(first), 6));
            assert_eq!(after.steps_left(), 0);
        }
        let (end, _, measured) = search(linear(1), |_| StepVerdict::Skipped);
        assert_eq!((end, measured.len()), (Next::Found(0), 0), "nothing is left to measure");
    }

    #[test]
    fn neighbours_of_skipped_commits_are_measured() {
        for first in [0, 20, 30, 34, 63] {
            // 31 to 33 do not compile.
            let (end, _, measured) = search(linear(64), |commit| match commit {
                31..=33 => StepVerdict::Skipped,
                _ => like(commit, first),
            });
            let skipped = measured.iter().filter(|commit| (31..=33).contains(*commit)).count();
            let expected = if first == 34 { Next::OnlySkipped } else { Next::Found(first) };
            assert_eq!(end, expected, "{first}: {measured:?}");
            assert!(measured.len() - skipped <= 7, "{first}: {measured:?}");
        }
    }

    #[test]
    fn range_of_skipped_commits_remains() {
        let (end, after, _) = search(linear(64), |commit| match commit {
            10..=12 => StepVerdict::Skipped,
            _ => like(commit, 12),
        });
        assert_eq!((end, after.remaining()), (Next::OnlySkipped, vec![10, 11, 12, 13]));
        let (end, after, measured) = search(linear(4), |_| StepVerdict::Skipped);
        assert_eq!((end, after.remaining().len(), measured.len()), (Next::OnlySkipped, 4, 3));
    }

    /// ```text
    /// 0 ── 1 ── 2 ──────── 6 ── 7
    ///      └─── 3 ── 4 ── 5┘
    /// ```
    fn merge() -> Search {
        let parents: [&[Position]; 8] = [&[], &[0], &[1], &[1], &[3], &[4], &[2, 5], &[6]];
        Search::new(parents.map(<[Position]>::to_vec).to_vec())
    }

    #[test]
    fn commits_of_merged_branches_are_found() {
        let descends_from = |first: Position, commit: Position| match first {
            2 => [2, 6, 7].contains(&commit),
            _ => commit >= first,
        };
        for first in 0..8 {
            let (end, _, measured) = search(merge(), |commit| match descends_from(first, commit) {
                true => StepVerdict::LikeBad,
                false => StepVerdict::LikeGood,
            });
            assert_eq!(end, Next::Found(first), "{measured:?}");
            assert!(measured.len() <= 4, "{first}: {measured:?}");
        }
    }
}
