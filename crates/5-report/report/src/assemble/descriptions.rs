//! Descriptions of candidates, warnings and losses, from the records of the run.

use std::collections::BTreeMap;

use dbdyno_results::{CandidateRecord, FailureKind, FailureRecord, SessionRecord};

use crate::model;

/// Each warning once, even if several sessions reported it.
pub(super) fn warnings(sessions: &[SessionRecord]) -> Vec<model::Warning> {
    let mut by_text = BTreeMap::new();
    for warning in sessions.iter().flat_map(|session| &session.warnings) {
        by_text.entry(&warning.what).or_insert(&warning.advice);
    }
    by_text
        .into_iter()
        .map(|(what, advice)| model::Warning { what: what.clone(), advice: advice.clone() })
        .collect()
}

pub(super) fn failures(
    failures: &[FailureRecord],
    candidates: &[CandidateRecord],
) -> Vec<model::Failure> {
    failures
        .iter()
        .filter(|failure| matches!(failure.kind, FailureKind::Wrong | FailureKind::Ended))
        .map(|failure| model::Failure {
            candidate: name(failure, candidates),
            at: failure.at.clone(),
            reason: failure.reason.clone(),
        })
        .collect()
}

/// Losses per candidate, and whether its data differs since then.
pub(super) fn lost(failures: &[FailureRecord], candidates: &[CandidateRecord]) -> Vec<model::Lost> {
    let mut by_candidate: BTreeMap<u32, model::Lost> = BTreeMap::new();
    for failure in failures.iter().filter(|failure| failure.kind == FailureKind::Lost) {
        let before = by_candidate.get(&failure.candidate).map_or(0, |lost| lost.count);
        let differs = |other: &&FailureRecord| {
            other.kind == FailureKind::Differs && other.candidate == failure.candidate
        };
        by_candidate.insert(
            failure.candidate,
            model::Lost {
                candidate: name(failure, candidates),
                count: before + 1,
                at: failure.at.clone(),
                reason: failure.reason.clone(),
                data_differs_from: failures.iter().find(differs).map(|other| other.at.clone()),
            },
        );
    }
    by_candidate.into_values().collect()
}

fn name(failure: &FailureRecord, candidates: &[CandidateRecord]) -> String {
    candidates
        .get(failure.candidate as usize)
        .map_or_else(|| failure.candidate.to_string(), |candidate| candidate.name.clone())
}
