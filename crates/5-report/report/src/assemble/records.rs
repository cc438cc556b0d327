//! Records of the run for people: warnings, losses, optimizations and state snapshots, with names
//! instead of numbers.

use std::collections::{BTreeMap, BTreeSet};

use dbdyno_results::{
    CandidateRecord, FailureKind, FailureRecord, MicrobenchmarkRecord, OptimizationRecord,
    OriginRecord, ResultsError, RunReader, SessionRecord, StateSnapshotRecord,
};
use dbdyno_stats::NoiseFloor;
use dbdyno_types::StateSnapshot;

use super::Measured;
use crate::metric::with_clients;
use crate::model::{Failure, Lost, Optimization, StateSnapshots, Warning, by_key, distinct};

/// Each warning once, even if several sessions reported it. The last one comes first: a session starts with the
/// machine, and what it finds later is about the results.
pub(super) fn warnings(sessions: &[SessionRecord]) -> Vec<Warning> {
    let all = sessions.iter().rev().flat_map(|session| session.warnings.iter().rev());
    let by_text = by_key(all.map(|warning| (&warning.what, warning)));
    by_text.into_iter().map(|(_, same)| same[0].clone()).collect()
}

/// A warning for each microbenchmark in which not all of the answers were compared.
pub(super) fn not_compared(
    microbenchmarks: &[(MicrobenchmarkRecord, bool)],
    failures: &[FailureRecord],
) -> Vec<Warning> {
    let not_compared = (0..).zip(microbenchmarks).filter_map(|(id, (record, _))| {
        let found = failures.iter().find(|failure| {
            failure.kind == FailureKind::Undetermined && failure.microbenchmark == Some(id)
        });
        let text = record.answers.as_ref().or(found.map(|failure| &failure.reason))?;
        Some((text, record.name.as_str()))
    });
    let warning = |(text, names): (&String, Vec<&str>)| Warning {
        what: format!("answers of {}: {text}", distinct(names).join(", ")),
        advice: "Wrong values would not be noticed; `answers` of the microbenchmark sets what is \
                 compared."
            .to_owned(),
    };
    by_key(not_compared).into_iter().map(warning).collect()
}

pub(super) fn failures(failures: &[FailureRecord], candidates: &[CandidateRecord]) -> Vec<Failure> {
    failures
        .iter()
        .filter(|failure| matches!(failure.kind, FailureKind::Wrong | FailureKind::Ended))
        .map(|failure| Failure {
            candidate: name_of(candidates, failure.candidate),
            at: failure.at.clone(),
            reason: failure.reason.clone(),
        })
        .collect()
}

/// Losses per candidate, and whether its data differs since then.
pub(super) fn lost(failures: &[FailureRecord], candidates: &[CandidateRecord]) -> Vec<Lost> {
    let of_candidate = |number: u32| {
        let own = failures.iter().filter(|failure| failure.candidate == number);
        let differs = own.clone().find(|failure| failure.kind == FailureKind::Differs);
        let lost = own.filter(|failure| failure.kind == FailureKind::Lost);
        let last = lost.clone().next_back()?;
        Some(Lost {
            candidate: name_of(candidates, number),
            count: lost.count() as u64,
            at: last.at.clone(),
            reason: last.reason.clone(),
            data_differs_from: differs.map(|differs| differs.at.clone()),
        })
    };
    let numbers: BTreeSet<u32> = failures.iter().map(|failure| failure.candidate).collect();
    numbers.into_iter().filter_map(of_candidate).collect()
}

fn name_of(candidates: &[CandidateRecord], number: u32) -> String {
    let candidate = candidates.get(number as usize);
    candidate.map_or_else(|| number.to_string(), |candidate| candidate.name.clone())
}

/// With fewer microbenchmarks, there is no conclusion.
const LEAST: usize = 4;

/// About 95% of the intervals of equal instances contain 1; a share below this has another cause.
const EXPECTED: f64 = 0.75;

/// A warning if too many of the control's intervals exclude 1 and the instances will not be restarted.
/// The memory layout of data and code changes with each start; with a single start its effect is in
/// every ratio.
pub(super) fn warning(
    measured: &[Measured],
    candidates: &[CandidateRecord],
    floor: Option<&NoiseFloor>,
) -> Option<Warning> {
    let NoiseFloor { contains_one, count, typical, .. } = floor?;
    let once = |one: &Measured| {
        let restarts = || one.slices.iter().map(|slice| slice.restart);
        one.planned_restarts.is_none_or(|planned| planned == 1)
            && restarts().min() == restarts().max()
    };
    let is_off = *count >= LEAST && (*contains_one as f64) < EXPECTED * *count as f64;
    let is_existing = matches!(candidates.first()?.origin, Some(OriginRecord::Server { .. }));
    let advice = match is_existing {
        true => "Both use the same server, which is not restarted. Another run may differ as much.",
        false => {
            "The instances were started once, and their memory layouts differ. With restarts = 4 in \
             [schedule] the results average over several layouts."
        }
    };
    (is_off && measured.iter().all(once)).then(|| Warning {
        what: format!(
            "two equal instances, the baseline and the control, differ by {typical} typically, \
             beyond their intervals in {} of {count} microbenchmarks",
            count - contains_one
        ),
        advice: advice.to_owned(),
    })
}

pub(super) fn optimizations(
    run: &RunReader,
    candidates: &[CandidateRecord],
) -> Result<Vec<Optimization>, ResultsError> {
    let microbenchmarks = run.microbenchmarks()?;
    let sweep = microbenchmarks.windows(2).any(|pair| pair[0].0.clients != pair[1].0.clients);
    let name = |id: u32| match microbenchmarks.get(id as usize) {
        Some((one, _)) => with_clients(&one.name, one.clients, sweep),
        None => id.to_string(),
    };
    let optimization = |one: OptimizationRecord| Optimization {
        candidate: name_of(candidates, one.candidate),
        trained_with: name(one.trained_with),
        measured_next: name(one.measured_next),
        after_restart: one.after_restart,
        refused: one.refused,
        layout: one.layout,
    };
    Ok(run.optimizations()?.into_iter().map(optimization).collect())
}

/// One table per time, in order. If a name occurs again, in another session or after other writes,
/// it gets a number and a separate table.
pub(super) fn by_time(
    state_snapshots: &[StateSnapshotRecord],
    candidates: &[CandidateRecord],
) -> Vec<StateSnapshots> {
    let mut points: Vec<Vec<&StateSnapshotRecord>> = Vec::new();
    for one in state_snapshots {
        match points.last_mut() {
            Some(point)
                if point[0].at == one.at
                    && point.iter().all(|other| other.candidate != one.candidate) =>
            {
                point.push(one);
            }
            _ => points.push(vec![one]),
        }
    }
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    points
        .into_iter()
        .map(|point| {
            let at = &point[0].at;
            let time = times.entry(at).or_default();
            *time += 1;
            let at = if *time == 1 { at.clone() } else { format!("{at} ({time})") };
            table(at, &point, candidates)
        })
        .collect()
}

fn table(
    at: String,
    point: &[&StateSnapshotRecord],
    candidates: &[CandidateRecord],
) -> StateSnapshots {
    let figures: Vec<Vec<(&str, u64)>> = point
        .iter()
        .map(|one| {
            let StateSnapshot { rows, data_size, state } = &one.state_snapshot;
            let common = [("rows", *rows), ("data_size", data_size.as_bytes())];
            let own = state.iter().map(|(name, value)| (name.as_str(), *value));
            common.into_iter().chain(own).collect()
        })
        .collect();
    let names = distinct(figures.iter().flatten().map(|(name, _)| *name));
    let value = |figures: &Vec<(&str, u64)>, wanted: &str| {
        figures.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
    };
    StateSnapshots {
        at,
        candidates: point.iter().map(|one| name_of(candidates, one.candidate)).collect(),
        state: names
            .into_iter()
            .map(|name| (name.to_owned(), figures.iter().map(|f| value(f, name)).collect()))
            .collect(),
    }
}
