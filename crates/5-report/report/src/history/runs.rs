//! The runs of a history: their order, whether they are of the same experiment, and what differs between
//! them.

use std::collections::BTreeSet;

use dbdyno_results::{DataSize, setting};
use dbdyno_types::host_fact;
use serde::Serialize;

use super::{FigureHistory, MIN_RUNS};
use crate::model::{
    CandidateRecord, OriginRecord, Report, Role, RunStatus, by_key, compared_names, distinct,
};
use crate::words::{first_digits, joined, status};

#[derive(Clone, Debug, Serialize)]
pub struct HistoryRun {
    /// The run directory, as the user named it.
    pub directory: String,
    /// Its name where all runs are in the same directory, else the whole path; not exported.
    #[serde(skip)]
    pub label: String,
    pub started: String,
    pub version: String,
    pub candidates: Vec<CandidateVersion>,
}

/// Which program a candidate was in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CandidateVersion {
    pub name: String,
    /// Its system and version, and the release, build or program; empty if nothing is recorded.
    pub version: String,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HistoryError(String);

/// The runs with microbenchmarks by the time they started.
pub(super) fn in_order(reports: &[Report]) -> Result<Vec<&Report>, HistoryError> {
    let mut all: Vec<&Report> =
        reports.iter().filter(|report| !report.microbenchmarks.is_empty()).collect();
    all.sort_by_key(|report| (&report.started, &report.directory));
    let baselines = by(&all, |report| report.baseline.clone());
    if baselines.len() > 1 {
        let mut experiments: Vec<&str> = all.iter().map(|report| report.name.as_str()).collect();
        experiments.sort_unstable();
        let lines = baselines.iter().map(|(name, runs)| format!("  {name}: {runs}\n"));
        return Err(HistoryError(format!(
            "the runs have different baselines, so that their ratios have different meanings:\n{}Name \
             only the runs of one experiment, or choose one with --experiment: {}",
            lines.collect::<String>(),
            distinct(experiments).join(", ")
        )));
    }
    if all.len() < MIN_RUNS {
        let found: Vec<String> = all.iter().map(|report| directory(report)).collect();
        let found = match &found[..] {
            [] => "none".to_owned(),
            some => format!("{}: {}", some.len(), some.join(", ")),
        };
        return Err(HistoryError(format!(
            "a history needs at least {MIN_RUNS} runs with microbenchmarks; found {found}"
        )));
    }
    Ok(all)
}

/// The error for runs of which too few measured the same.
pub(super) fn nothing_in_common(reports: &[&Report]) -> HistoryError {
    // Runs that measured the same are one line.
    let contents = by(reports, |report| {
        let candidates = compared_names(&[report]);
        let names = distinct(report.microbenchmarks.iter().map(|one| one.name.as_str()));
        let candidates = match &candidates[..] {
            [] => "no candidate besides the baseline".to_owned(),
            some => some_of(some),
        };
        format!("{candidates} on {}", some_of(&names))
    });
    let lines = contents.iter().map(|(what, runs)| format!("\n  {runs}: {what}"));
    HistoryError(format!(
        "no candidate and microbenchmark was measured in {MIN_RUNS} of the runs:{}",
        lines.collect::<String>()
    ))
}

/// The runs by a property: each value with the directories of its runs.
fn by(reports: &[&Report], property: impl Fn(&Report) -> String) -> Vec<(String, String)> {
    let groups = by_key(reports.iter().map(|report| (property(report), directory(report))));
    groups.into_iter().map(|(value, runs)| (value, some_of(&runs))).collect()
}

fn directory(report: &Report) -> String {
    report.directory.display().to_string()
}

fn labels(reports: &[&Report]) -> Vec<String> {
    let mut parents: Vec<_> = reports.iter().map(|report| report.directory.parent()).collect();
    parents.dedup();
    let label = |report: &&Report| {
        let name = report.directory.file_name().filter(|_| parents.len() == 1);
        name.map_or_else(|| directory(report), |name| name.to_string_lossy().into_owned())
    };
    reports.iter().map(label).collect()
}

/// The runs as they are shown and exported.
pub(super) fn describe(reports: &[&Report]) -> Vec<HistoryRun> {
    let run = |(report, label): (&&Report, String)| HistoryRun {
        directory: directory(report),
        label,
        started: report.started.clone(),
        version: report.version.clone(),
        candidates: report
            .candidates
            .iter()
            .filter(|one| one.role != Role::Control)
            .map(|one| CandidateVersion { name: one.name.clone(), version: version(one) })
            .collect(),
    };
    reports.iter().zip(labels(reports)).map(run).collect()
}

impl HistoryRun {
    /// Which program a candidate was; `None` if it was not in the run, or if nothing is recorded.
    pub(crate) fn version_of(&self, candidate: &str) -> Option<&str> {
        let one = self.candidates.iter().find(|one| one.name == candidate)?;
        Some(one.version.as_str()).filter(|version| !version.is_empty())
    }

    pub(crate) fn date(&self) -> &str {
        self.started.split_once('T').map_or(self.started.as_str(), |(date, _)| date)
    }
}

/// The system and version of a candidate, and its release, build or program.
pub(super) fn version(candidate: &CandidateRecord) -> String {
    let build = candidate.build.as_ref();
    let build = build.map(|build| format!("build {}", first_digits(&build.fingerprint)));
    let origin = match &candidate.origin {
        Some(OriginRecord::Program { release: Some(release), .. }) => Some(release.origin.clone()),
        Some(OriginRecord::Program { sha256, .. }) => {
            Some(format!("program {}", first_digits(sha256)))
        }
        Some(OriginRecord::Imported { .. }) => return String::new(),
        Some(OriginRecord::Server { .. }) | None => None,
    };
    let parts = [Some(candidate.system_title()), origin, build].into_iter().flatten();
    joined(parts.filter(|part| !part.is_empty()), ", ").unwrap_or_default()
}

/// Most names to list in a sentence.
const LISTED: usize = 4;

/// Some names, and the number of the others.
pub(super) fn some_of<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(LISTED).map(AsRef::as_ref).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Differences between the runs that limit what changes mean.
pub(super) fn notes(reports: &[&Report], figures: &[FigureHistory]) -> Vec<String> {
    let labels = labels(reports);
    let mut notes = Vec::new();
    let mut changing = |what: &str, of: &dyn Fn(&Report) -> Option<String>| {
        let mut values: Vec<(String, &str)> = Vec::new();
        for (report, label) in reports.iter().zip(&labels) {
            let value = of(report).unwrap_or_else(|| "not recorded".to_owned());
            if values.last().is_none_or(|(known, _)| *known != value) {
                values.push((value, label.as_str()));
            }
        }
        if values.len() > 1 {
            let values: Vec<String> =
                values.iter().map(|(value, from)| format!("{value} from {from}")).collect();
            notes.push(format!("{what}: {}", some_of(&values)));
        }
    };
    changing(
        "the baseline is not the same program in all runs, which changes all ratios",
        &|report| report.candidates.first().map(version),
    );
    changing("the data is not the same in all runs", &|report| {
        DataSize::of(&report.settings).map(|data| data.to_string())
    });
    changing("the runs have experiments of different names", &|report| Some(report.name.clone()));
    changing("the runs are not of the same machine", &|report| {
        report.host_fact(host_fact::CPU).map(str::to_owned)
    });
    for (pair, label) in reports.windows(2).zip(labels.iter().skip(1)) {
        let other = setting::other_work(&pair[0].settings, &pair[1].settings);
        if !other.is_empty() {
            notes.push(format!("{label} has other work than the run before: {}", other.join(", ")));
        }
    }
    let incomplete: Vec<String> = reports
        .iter()
        .zip(&labels)
        .filter(|(report, _)| report.status == RunStatus::Incomplete)
        .map(|(report, label)| format!("{label} ({})", status(report)))
        .collect();
    if !incomplete.is_empty() {
        notes.push(format!(
            "not complete, only what was measured is used: {}",
            some_of(&incomplete)
        ));
    }
    notes.extend(missing(reports, &labels, figures));
    notes
}

/// Candidates and microbenchmarks that some runs lack.
fn missing(reports: &[&Report], labels: &[String], figures: &[FigureHistory]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut about = |name: &str, has: &dyn Fn(&Report) -> bool| {
        let without = reports.iter().zip(labels).filter(|(report, _)| !has(report));
        let without: Vec<&str> = without.map(|(_, label)| label.as_str()).collect();
        if !without.is_empty() {
            notes.push(format!("{name} is missing in {}", some_of(&without)));
        }
    };
    let candidates: BTreeSet<&str> =
        figures.iter().map(|one| one.figure.candidate.as_str()).collect();
    for name in candidates {
        about(name, &|report| report.candidates.iter().any(|one| one.name == name));
    }
    let names: BTreeSet<&str> =
        figures.iter().filter_map(|one| one.figure.microbenchmark.as_deref()).collect();
    for name in names {
        about(name, &|report| report.microbenchmarks.iter().any(|one| one.name == name));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened() {
        assert_eq!(some_of(&["a", "b"]), "a, b");
        assert_eq!(some_of(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
