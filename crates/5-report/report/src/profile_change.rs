//! The functions and layers whose CPU time per query changed, between runs or between two candidates of a run.

use dbdyno_text::cut;
use serde::Serialize;

use crate::assemble::profile::{Difference, Samples, Start, is_not_sampled, judged, mean, names};
use crate::figures::{signed, tiny};
use crate::model::{ProfileDifference, ProfileRow};
use crate::words::joined;

/// Runs on each side of a change, so that each side shows how much runs vary.
const LEAST_RUNS: usize = 2;

/// Changes that are named in a line.
const NAMED: usize = 3;

/// Most characters of a name in a line.
const LONGEST: usize = 60;

/// Where a candidate's CPU time per query changed between earlier and later runs. Runs are named by their indices.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileChange {
    /// The runs whose profiles are compared.
    pub runs_before: Vec<usize>,
    pub runs_after: Vec<usize>,
    /// All layers, the largest change first.
    pub layers: Vec<ChangedTime>,
    /// The functions that something was sampled in, the largest change first.
    pub functions: Vec<ChangedTime>,
    /// Whether a function of one side may be without a name on the other.
    #[serde(skip)]
    lacks_names: bool,
}

/// CPU time per query in a layer or a function, without what it calls, in µs. Between runs it is scaled to the speed
/// that the machine had in their mean, by the CPU time per query of the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedTime {
    pub name: String,
    pub before_us: f64,
    pub after_us: f64,
    /// After less before. Between runs also less the same of the baseline: what changed in both is the machine's.
    pub difference_us: f64,
    /// Half of the 95% interval of the difference.
    pub half_width_us: f64,
    /// Whether the difference is certain, with 5% false discoveries among all that are.
    pub certain: bool,
    /// See [`ProfileRow::moved`]; unknown between runs.
    #[serde(skip)]
    moved: bool,
}

impl ProfileChange {
    /// Of profiles of a candidate in earlier and in later runs, with their indices; `None` with too few.
    pub(crate) fn between(runs: &[Vec<(usize, &ProfileDifference)>; 2]) -> Option<Self> {
        if runs.iter().any(|side| side.len() < LEAST_RUNS) {
            return None;
        }
        let all = runs.iter().flatten();
        let baselines: Vec<f64> = all.map(|(_, profile)| totals(&profile.functions)[1]).collect();
        let speed = baselines.iter().sum::<f64>() / baselines.len() as f64;
        let changed = |rows: fn(&ProfileDifference) -> &[ProfileRow]| {
            let starts = |side: &Vec<(usize, &ProfileDifference)>| -> Vec<[Start; 2]> {
                let of = |(_, one): &(usize, &ProfileDifference)| start(one, rows(one), speed);
                side.iter().map(of).collect()
            };
            changed(&starts(&runs[0]), &starts(&runs[1]))
        };
        let [runs_before, runs_after] = [0, 1]
            .map(|side: usize| -> Vec<usize> { runs[side].iter().map(|(run, _)| *run).collect() });
        Some(Self {
            runs_before,
            runs_after,
            layers: changed(|profile| &profile.layers),
            functions: changed(|profile| &profile.functions),
            lacks_names: runs.iter().flatten().any(|(_, profile)| profile.lacks_names()[0]),
        })
    }

    /// What changed in a line each, with its label.
    pub fn facts(&self) -> [(&'static str, String); 2] {
        let words = |rows: &[ChangedTime]| in_words(rows, self.lacks_names);
        [("functions", words(&self.functions)), ("layers", words(&self.layers))]
    }
}

impl ProfileDifference {
    /// Whether both sides have CPU time, so that shares of it are known.
    pub(crate) fn is_usable(&self) -> bool {
        let sides = [&self.functions, &self.layers].map(|rows| totals(rows));
        let is_known = |time: &f64| time.is_finite() && *time > 0.0;
        sides.iter().flatten().all(is_known) && self.samples.iter().all(|samples| *samples > 0)
    }

    /// What differs from the baseline in a line each, with its label.
    pub fn facts(&self) -> [(&'static str, String); 2] {
        let lacks_names = self.lacks_names().contains(&true);
        let words = |rows: &[ProfileRow]| {
            in_words(&rows.iter().map(ChangedTime::from).collect::<Vec<_>>(), lacks_names)
        };
        [("functions", words(&self.functions)), ("layers", words(&self.layers))]
    }
}

impl From<&ProfileRow> for ChangedTime {
    fn from(row: &ProfileRow) -> Self {
        Self {
            name: row.name.clone(),
            before_us: row.baseline_us,
            after_us: row.us,
            difference_us: row.difference(),
            half_width_us: row.half_width_us,
            certain: row.certain,
            moved: row.moved,
        }
    }
}

/// CPU time per query in µs of the candidate and of the baseline.
fn totals(rows: &[ProfileRow]) -> [f64; 2] {
    [rows.iter().map(|row| row.us).sum(), rows.iter().map(|row| row.baseline_us).sum()]
}

/// The samples of a candidate and of its baseline in a run, on a machine on which the baseline's query takes `speed` µs.
fn start(profile: &ProfileDifference, rows: &[ProfileRow], speed: f64) -> [Start; 2] {
    let totals = totals(rows);
    [0, 1].map(|side: usize| {
        let samples = profile.samples[side] as f64;
        let of = |row: &ProfileRow| {
            let share = [row.us, row.baseline_us][side] / totals[side];
            (share > 0.0).then(|| (row.name.clone(), share * samples))
        };
        let cpu = speed * totals[side] / totals[1];
        let functions = rows.iter().filter_map(of).collect();
        Start { cpu, samples, functions, ..Start::default() }
    })
}

fn changed(before: &[[Start; 2]], after: &[[Start; 2]]) -> Vec<ChangedTime> {
    let of: fn(&Start) -> &Samples = |start| &start.functions;
    let (old, new) = (names(before, of), names(after, of));
    let all: Vec<&str> = old.union(&new).copied().collect();
    let (times, differences): (Vec<[f64; 2]>, Vec<Difference>) = all
        .iter()
        .map(|name| {
            let (([before_us, _], before), ([after_us, _], after)) =
                (mean(before, of, name), mean(after, of, name));
            ([before_us, after_us], after.since(&before))
        })
        .unzip();
    let judged = judged(&differences, 1.0).rows;
    let all = all.into_iter().zip(times).zip(differences.iter().zip(judged));
    let rows = all.map(|((name, [before_us, after_us]), (difference, judged))| ChangedTime {
        name: name.to_owned(),
        before_us,
        after_us,
        difference_us: difference.us,
        half_width_us: judged.0,
        certain: judged.1 && !is_not_sampled(name),
        moved: false,
    });
    let mut rows: Vec<ChangedTime> = rows.collect();
    rows.sort_by(|a, b| b.difference_us.abs().total_cmp(&a.difference_us.abs()));
    rows
}

/// What a difference in a function is besides its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remark {
    New,
    Gone,
    /// It has samples on one side only, but may be in functions without a name on the other.
    OneSide,
    /// See [`ProfileRow::moved`].
    Moved,
}

impl Remark {
    /// Of a row with these times; `None` if it did not move and has samples on both sides.
    pub(crate) fn of([us, before_us]: [f64; 2], moved: bool, lacks_names: bool) -> Option<Self> {
        match (us > 0.0, before_us > 0.0) {
            _ if moved => Some(Self::Moved),
            (true, true) | (false, false) => None,
            _ if lacks_names => Some(Self::OneSide),
            (true, false) => Some(Self::New),
            (false, true) => Some(Self::Gone),
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::OneSide => "one side only",
            Self::Moved => "moved",
        }
    }

    /// Whether the difference may be of names or callers instead of work.
    pub(crate) const fn is_doubtful(self) -> bool {
        matches!(self, Self::OneSide | Self::Moved)
    }
}

/// The largest certain changes, doubtful ones last: `memcmp +0.42 µs ±0.05, sort +0.20 µs ±0.03 (new)`.
fn in_words(rows: &[ChangedTime], lacks_names: bool) -> String {
    let remark =
        |row: &ChangedTime| Remark::of([row.after_us, row.before_us], row.moved, lacks_names);
    let text = |row: &ChangedTime| {
        let (size, half) = (signed(row.difference_us, tiny), tiny(row.half_width_us));
        let remark = remark(row).map(|it| format!(" ({})", it.word())).unwrap_or_default();
        format!("{} {size} µs ±{half}{remark}", cut(&row.name, LONGEST))
    };
    let mut certain: Vec<&ChangedTime> = rows.iter().filter(|row| row.certain).collect();
    certain.sort_by_key(|row| remark(row).is_some_and(Remark::is_doubtful));
    let named = joined(certain.into_iter().take(NAMED).map(text), ", ");
    named.unwrap_or_else(|| "no certain change".to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use dbdyno_units::Share;

    use super::*;

    /// A profile of a machine on which everything takes `slow` times as long: functions with the CPU time of a candidate
    /// and of the baseline.
    pub(crate) fn profile(slow: f64, functions: &[(&str, f64, f64)]) -> ProfileDifference {
        let row = |(name, us, baseline_us): &(&str, f64, f64)| ProfileRow {
            name: (*name).to_owned(),
            us: us * slow,
            baseline_us: baseline_us * slow,
            half_width_us: 0.0,
            certain: false,
            moved: false,
        };
        ProfileDifference {
            samples: [10_000, 10_000],
            layers: functions.iter().map(row).collect(),
            functions: functions.iter().map(row).collect(),
            ..ProfileDifference::default()
        }
    }

    fn between(before: &[ProfileDifference], after: &[ProfileDifference]) -> Option<ProfileChange> {
        ProfileChange::between(&[before, after].map(|side| side.iter().enumerate().collect()))
    }

    #[test]
    fn functions_of_a_candidate_are_named_and_not_what_changed_in_the_baseline_too() {
        // Four days of another speed each; a new kernel on the fifth.
        let before: Vec<ProfileDifference> = [1.0, 1.3, 0.8, 1.1]
            .map(|slow| {
                profile(
                    slow,
                    &[("parse", 10.0, 10.0), ("read", 20.0, 20.0), ("copy [kernel]", 10.0, 10.0)],
                )
            })
            .into();
        let after: Vec<ProfileDifference> = [0.9, 1.2]
            .map(|slow| {
                let new = [
                    ("parse", 7.0, 10.0),
                    ("read", 20.0, 20.0),
                    ("copy [kernel]", 14.0, 14.0),
                    ("sort", 4.0, 0.0),
                ];
                profile(slow, &new)
            })
            .into();
        let change = between(&before, &after).unwrap();
        assert_eq!((&change.runs_before, &change.runs_after), (&vec![0, 1, 2, 3], &vec![0, 1]));
        let certain: Vec<&str> = change
            .functions
            .iter()
            .filter(|row| row.certain)
            .map(|row| row.name.as_str())
            .collect();
        assert_eq!(certain, ["sort", "parse"], "{:?}", change.functions);
        // The rows add up to the change of the figure: 45 ÷ 44 instead of 1.
        let sum: f64 = change.functions.iter().map(|row| row.difference_us).sum();
        let speed = (40.0 * 4.2 + 44.0 * 2.1) / 6.0;
        assert!((sum - speed / 44.0).abs() < 1e-9, "{sum}");
        let [(_, words), _] = change.facts();
        assert!(words.starts_with("sort +3.9") && words.contains("(new), parse −2.9"), "{words}");
        let back = between(&after, &before).unwrap();
        assert!(back.facts()[0].1.contains("(gone)"), "{:?}", back.functions);
        assert_eq!(in_words(&change.functions[2..], false), "no certain change");
        // Some functions of the earlier runs have no name.
        let mut before = before;
        before[0].unnamed[0] = Share::from_fraction(0.06);
        let [(_, words), _] = between(&before, &after).unwrap().facts();
        assert!(words.starts_with("parse −2.9") && words.ends_with(" (one side only)"), "{words}");
    }

    #[test]
    fn function_of_one_candidate_is_not_new_if_the_other_lacks_names() {
        let mut profile = profile(1.0, &[("parse", 7.0, 10.0), ("sort", 4.0, 0.0)]);
        profile.functions.iter_mut().for_each(|row| row.certain = true);
        assert!(profile.facts()[0].1.ends_with("(new)"), "{:?}", profile.facts());
        profile.unnamed[1] = Share::from_fraction(0.06);
        assert!(profile.facts()[0].1.ends_with("(one side only)"), "{:?}", profile.facts());
        profile.functions[0].moved = true;
        assert!(profile.facts()[0].1.contains("(moved)"), "{:?}", profile.facts());
    }

    #[test]
    fn function_that_varies_from_run_to_run_is_not_named() {
        let runs = |shares: [f64; 4]| -> Vec<ProfileDifference> {
            shares.map(|us| profile(1.0, &[("wait", us, 5.0), ("read", 40.0, 40.0)])).into()
        };
        let change = between(&runs([5.0, 9.0, 4.0, 8.0]), &runs([8.0, 10.0, 5.0, 9.0])).unwrap();
        assert!(change.functions.iter().all(|row| !row.certain), "{:?}", change.functions);
    }

    #[test]
    fn one_run_is_too_few() {
        let runs = [(); 2].map(|()| profile(1.0, &[("read", 40.0, 40.0)]));
        assert!(between(&runs, &runs[..1]).is_none());
    }
}
