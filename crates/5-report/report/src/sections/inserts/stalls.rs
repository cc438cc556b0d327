//! Stalls of inserts and queries.

use dbdyno_units::Nanos;

use super::by_candidate;
use crate::model::{CandidateStep, InsertReport, Responses, StepRun};
use crate::sections::joined;

/// What can stall in a step.
pub(super) struct Stalls<'a> {
    /// The name of one.
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    /// The seconds in which they stalled.
    pub(super) seconds: &'a [u32],
    pub(super) responses: &'a Option<Responses>,
}

pub(super) fn kinds_of_stalls(run: &StepRun) -> [Stalls<'_>; 2] {
    let (seconds, responses) = (&run.stalls, &run.insert_responses);
    let inserts = Stalls { one: "insert", many: "inserts", seconds, responses };
    let (seconds, responses) = (&run.query_stalls, &run.query_responses);
    [inserts, Stalls { one: "query", many: "queries", seconds, responses }]
}

/// Where something stalled, and the longest insert or query of each candidate; `None` if no times are known.
pub(crate) fn stalls(report: &InsertReport) -> Option<String> {
    let mut longest: Vec<String> = Vec::new();
    let mut stalled: Vec<String> = Vec::new();
    for (name, steps) in by_candidate(report) {
        let times = steps.iter().flat_map(|(step, one)| {
            let kinds = one.repeats.iter().flat_map(kinds_of_stalls);
            kinds.filter_map(move |kind| Some((kind.responses.as_ref()?.max, &step.name)))
        });
        let time = times.max_by_key(|(time, _)| *time);
        longest.extend(time.map(|(time, step)| format!("{name} {time} in {step}")));
        let in_steps = steps.iter().filter(|(_, one)| {
            let mut kinds = one.repeats.iter().flat_map(kinds_of_stalls);
            kinds.any(|kind| !kind.seconds.is_empty())
        });
        let in_steps = joined(in_steps.map(|(step, _)| step.name.clone()), " and ");
        stalled.extend(in_steps.map(|steps| format!("{name} in {steps}")));
    }
    let stalled = joined(stalled, ", ").unwrap_or_else(|| "none".to_owned());
    joined(longest, ", ").map(|longest| format!("{stalled} (longest insert or query: {longest})"))
}

/// The stalls of all repeats: `inserts stalled in 6 of 60 seconds, the longest insert took 1.9 s; queries did not
/// stall, the longest took 12 ms`; and whether there were any.
pub(super) fn stalls_in_words(own: &CandidateStep) -> (String, bool) {
    let mut has_stalled = false;
    let all: usize = own.repeats.iter().map(|run| run.seconds.len()).sum();
    let of_kind = |kind: usize| {
        let kinds = own.repeats.iter().map(|run| kinds_of_stalls(run).into_iter().nth(kind));
        let kinds: Vec<Stalls<'_>> = kinds.flatten().collect();
        let Stalls { one, many, .. } = kinds.first()?;
        let longest = kinds.iter().filter_map(|one| Some(one.responses.as_ref()?.max)).max()?;
        let stalls = kinds.iter().map(|one| one.seconds.len()).sum::<usize>();
        has_stalled |= stalls > 0 || longest >= Nanos::from_secs(1);
        Some(match stalls {
            // With fewer than two a second, none is counted.
            0 if longest >= Nanos::from_secs(1) => format!("the longest {one} took {longest}"),
            0 => format!("{many} did not stall, the longest took {longest}"),
            stalls => format!(
                "{many} stalled in {stalls} of {all} seconds, the longest {one} took {longest}"
            ),
        })
    };
    let words = joined((0..2).filter_map(of_kind), "; ").unwrap_or_default();
    (words, has_stalled)
}
