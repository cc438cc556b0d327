//! What the candidates are, and what is to be said about the run, from its records.

use std::collections::BTreeMap;

use dbdyno_record::server::ServerSystem;
use dbdyno_results::{
    BuildRecord, CandidateRecord, FailureKind, FailureRecord, OriginRecord, Role, SessionRecord,
};

use crate::model;

pub(super) fn candidate(record: &CandidateRecord) -> model::CandidateSummary {
    model::CandidateSummary {
        name: record.name.clone(),
        role: role(record.role),
        system: system(record),
        build: record.build.as_ref().map(build),
        origin: record.origin.as_ref().map(origin),
        configuration: record.configuration.clone(),
        parity: record.parity.clone(),
        injected_delay: record.injected_delay,
    }
}

/// As its makers write it, with version and engine.
fn system(record: &CandidateRecord) -> String {
    let server = ServerSystem::ALL.into_iter().find(|system| system.name() == record.system);
    let name = match record.system.as_str() {
        "sqlite" => "SQLite",
        other => server.map_or(other, |server| server.title()),
    };
    // MariaDB says its name in its version, too.
    let version = record.version.split_once("-MariaDB").map_or(record.version.as_str(), |v| v.0);
    let engine = record.engine.as_ref().map_or_else(String::new, |engine| format!(" ({engine})"));
    format!("{}{engine}", format!("{name} {version}").trim_end())
}

fn build(record: &BuildRecord) -> model::BuildSummary {
    model::BuildSummary {
        variant: record.variant.clone(),
        trained_on: record.trained_on.clone(),
        bolted: record.bolted,
        compiler: record.compiler.clone(),
        command: record.commands.join("\n"),
        fingerprint: record.fingerprint.clone(),
        text_size: record.text_size,
        file_size: record.file_size,
        stripped_size: record.stripped_size,
        audit: record.audit.clone(),
    }
}

fn origin(record: &OriginRecord) -> model::Origin {
    match record.clone() {
        OriginRecord::Program { path, sha256, file_size } => {
            model::Origin::Program { path, sha256, file_size }
        }
        OriginRecord::Server { address } => model::Origin::Server { address },
        OriginRecord::Imported { file } => model::Origin::Imported { file },
    }
}

/// Each warning once, however many sessions had it.
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

/// Losses counted by candidate, and whether they left it with other data.
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

pub(super) const fn role(role: Role) -> model::Role {
    match role {
        Role::Baseline => model::Role::Baseline,
        Role::Candidate => model::Role::Candidate,
        Role::Control => model::Role::Control,
    }
}
