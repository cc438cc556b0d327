//! The candidates of the runs that are compared with each other, and what differs between the runs besides
//! the results: settings, versions, builds, the machine.

use std::collections::HashMap;
use std::mem;

use dbdyno_results::setting;
use dbdyno_types::host_fact;
use serde::Serialize;

use crate::model::{BuildRecord, CandidateRecord, OriginRecord, Report, Role, by_key, distinct};
use crate::words::{first_digits, flags};

/// A candidate and its record in each run that has it.
pub(super) struct MatchedCandidate<'a> {
    /// Its name; both names if they differ.
    pub name: String,
    /// By run.
    pub records: Vec<Option<&'a CandidateRecord>>,
}

impl MatchedCandidate<'_> {
    /// Its name in a run.
    pub fn name_in(&self, run: usize) -> Option<&str> {
        self.records.get(run)?.map(|record| record.name.as_str())
    }
}

/// All candidates without the controls. They are matched by name, except if every run has only one:
/// then these are compared, whatever their names.
pub(super) fn matched<'a>(reports: &[&'a Report]) -> Vec<MatchedCandidate<'a>> {
    let of = |report: &'a Report| -> Vec<&'a CandidateRecord> {
        report.candidates.iter().filter(|one| one.role != Role::Control).collect()
    };
    let all = reports.iter().flat_map(|report| of(report));
    let names: Vec<&str> = distinct(all.map(|one| one.name.as_str()));
    if reports.iter().all(|report| of(report).len() == 1) && !names.is_empty() {
        let records = reports.iter().map(|report| of(report).first().copied()).collect();
        return vec![MatchedCandidate { name: names.join(" → "), records }];
    }
    let record =
        |report: &&'a Report, name: &str| of(report).into_iter().find(|one| one.name == name);
    let named = |name: &&str| MatchedCandidate {
        name: (*name).to_owned(),
        records: reports.iter().map(|report| record(report, name)).collect(),
    };
    names.iter().map(named).collect()
}

/// Whether two candidates run the same program with the same configuration. An existing server and
/// imported results are not known well enough, and the live optimizer makes new code in each run.
pub(super) fn are_equal(one: &CandidateRecord, other: &CandidateRecord) -> bool {
    let program = |candidate: &CandidateRecord| match (&candidate.build, &candidate.origin) {
        (Some(build), _) => Some((build.fingerprint.clone(), build.library_sha256.clone())),
        (None, Some(OriginRecord::Program { path, sha256, .. })) => {
            Some((path.clone(), sha256.clone()))
        }
        _ => None,
    };
    let optimized = one.configuration.iter().any(|(key, _)| key == "live optimizer");
    program(one).is_some()
        && program(one) == program(other)
        && !optimized
        && (&one.system, &one.version, &one.engine)
            == (&other.system, &other.version, &other.engine)
        && one.configuration == other.configuration
        && one.injected_delay == other.injected_delay
}

/// A fact that is not the same in all runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is, such as `kernel` or `rel_o2: compiler`.
    pub what: String,
    /// By run; `None` if the run does not record it, or does not have the candidate.
    pub values: Vec<Option<String>>,
}

/// The facts of all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Those that differ.
    pub different: Vec<Fact>,
    /// Those that differ and change all the time: load, free memory.
    pub momentary: Vec<Fact>,
    /// What is equal in all runs.
    pub equal: Vec<String>,
    /// What only some runs record, without a difference between these.
    pub incomplete: Vec<String>,
}

/// Facts about the host that change from minute to minute.
const MOMENTARY: [&str; 6] = [
    host_fact::MEMORY,
    host_fact::SWAP,
    host_fact::LOAD,
    host_fact::USED_BY_OTHERS,
    host_fact::STOLEN,
    host_fact::DISK,
];

/// Settings that are shown elsewhere.
const SHOWN_ELSEWHERE: [&str; 2] = [setting::BASELINE, setting::MICROBENCHMARKS];

impl Facts {
    /// Compare the facts of these runs.
    pub(super) fn of(reports: &[&Report], candidates: &[MatchedCandidate<'_>]) -> Self {
        let mut facts = Self::default();
        facts.add_candidates(candidates);
        let of_runs: Vec<Vec<(String, String)>> = reports.iter().map(|run| of_run(run)).collect();
        by_label(&of_runs).into_iter().for_each(|fact| facts.add(fact));
        facts
    }

    /// What is the same for several candidates is listed once, with their names.
    fn add_candidates(&mut self, candidates: &[MatchedCandidate<'_>]) {
        let (mut different, mut equal) = (Vec::new(), Vec::new());
        for candidate in candidates {
            let name = candidate.name.as_str();
            let (differing, same): (Vec<Fact>, Vec<Fact>) =
                of_candidate(candidate).into_iter().partition(Fact::differs);
            different.extend(differing.into_iter().map(|fact| (fact, name)));
            let same: Vec<&str> = same.iter().map(|fact| fact.what.as_str()).collect();
            equal.extend((!same.is_empty()).then(|| (same.join(", "), name)));
        }
        self.different.extend(by_key(different).into_iter().map(|(fact, names)| {
            let what = format!("{}: {}", names.join(", "), fact.what);
            Fact { what, ..fact }
        }));
        let listed = |(same, names): (String, Vec<&str>)| format!("{} ({same})", names.join(", "));
        self.equal.extend(by_key(equal).into_iter().map(listed));
    }

    fn add(&mut self, fact: Fact) {
        let incomplete = fact.values.iter().any(Option::is_none);
        match (fact.differs(), incomplete) {
            (false, true) => self.incomplete.push(fact.what),
            (false, false) => self.equal.push(fact.what),
            (true, _) if MOMENTARY.contains(&fact.what.as_str()) => self.momentary.push(fact),
            (true, _) => self.different.push(fact),
        }
    }
}

impl Fact {
    /// Whether two known values differ.
    fn differs(&self) -> bool {
        let known = self.values.iter().flatten().map(|value| match self.what.as_str() {
            setting::PACE => setting::word(value),
            _ => value.as_str(),
        });
        distinct(known).len() > 1
    }
}

/// Version, settings and host of a run.
fn of_run(report: &Report) -> Vec<(String, String)> {
    let names: Vec<&str> = report.candidates.iter().map(|one| one.name.as_str()).collect();
    let mut facts = vec![
        ("candidates and control".to_owned(), names.join(", ")),
        ("dbdyno".to_owned(), report.version.clone()),
    ];
    let settings = report.settings.iter().chain(&report.host);
    facts.extend(settings.filter(|(label, _)| !SHOWN_ELSEWHERE.contains(&label.as_str())).cloned());
    facts
}

/// Facts of one candidate; empty if only one run has it.
fn of_candidate(candidate: &MatchedCandidate<'_>) -> Vec<Fact> {
    let records: Vec<&CandidateRecord> = candidate.records.iter().flatten().copied().collect();
    if records.len() < 2 {
        return Vec::new();
    }
    let own = own_flags(records.iter().filter_map(|record| record.build.as_ref()));
    let described: Vec<Vec<(String, String)>> =
        records.iter().map(|record| describe(record, &own)).collect();
    let mut facts = by_label(&described);
    facts.extend(reported(&records));
    // Of different systems, everything differs.
    let system = |record: &CandidateRecord| (record.system.clone(), record.engine.clone());
    if records.iter().any(|record| system(record) != system(records[0])) {
        facts.truncate(1);
    }
    for fact in &mut facts {
        let mut known = mem::take(&mut fact.values).into_iter();
        let mut next = || known.next().flatten().unwrap_or_else(|| "not set".to_owned());
        fact.values = candidate.records.iter().map(|record| record.map(|_| next())).collect();
    }
    facts
}

/// What the servers reported, if this is known of all: the settings that differ, or that none does.
fn reported(records: &[&CandidateRecord]) -> Vec<Fact> {
    if records.iter().any(|record| record.server_settings.is_empty()) {
        return Vec::new();
    }
    let all: Vec<Vec<(String, String)>> =
        records.iter().map(|record| record.server_settings.clone()).collect();
    let differing: Vec<Fact> = by_label(&all)
        .into_iter()
        .filter(|fact| fact.values.iter().all(Option::is_some) && fact.differs())
        .collect();
    if !differing.is_empty() {
        return differing;
    }
    let equal = Some(format!("{} settings", all[0].len()));
    vec![Fact { what: "settings of the server".to_owned(), values: vec![equal; records.len()] }]
}

/// Version, program, build and configuration of a candidate.
fn describe(record: &CandidateRecord, own: &OwnFlags<'_>) -> Vec<(String, String)> {
    let mut facts: Vec<(&str, String)> = vec![("version", record.system_title())];
    match &record.origin {
        Some(OriginRecord::Program { path, sha256, .. }) => {
            facts.push(("program", format!("{path}, SHA-256 {}…", first_digits(sha256))));
        }
        Some(OriginRecord::Imported { file }) => facts.push(("imported from", file.clone())),
        Some(OriginRecord::Server { .. }) | None => {}
    }
    if let Some(build) = &record.build {
        facts.push(("variant", build.variant.clone()));
        facts.push(("compiler", build.compiler.clone()));
        let flags = own.get(build.commands.as_slice());
        facts.extend(flags.map(|flags| ("flags only there", flags.clone())));
        facts.extend(build.trained_on.as_ref().map(|of| ("profile of", of.clone())));
        facts.push(("source", format!("SHA-256 {}…", first_digits(&build.source_sha256))));
        facts.push(("build", build.fingerprint.clone()));
    }
    facts.extend(record.injected_delay.map(|delay| ("injected delay", delay.to_string())));
    let facts = facts.into_iter().map(|(label, value)| (label.to_owned(), value));
    facts.chain(record.configuration.iter().cloned()).collect()
}

/// The flags that not all builds have, by the commands of the builds.
type OwnFlags<'a> = HashMap<&'a [String], String>;

/// The flags of each build that not all builds have; empty if all have the same.
fn own_flags<'a>(builds: impl Iterator<Item = &'a BuildRecord>) -> OwnFlags<'a> {
    let all: HashMap<&[String], Vec<&str>> =
        builds.map(|build| (build.commands.as_slice(), flags(build))).collect();
    let is_common = |flag: &str| all.values().all(|other| other.contains(&flag));
    let mut own = all.clone();
    own.values_mut().for_each(|flags| flags.retain(|flag| !is_common(flag)));
    if own.values().all(Vec::is_empty) {
        return OwnFlags::new();
    }
    let text =
        |flags: Vec<&str>| if flags.is_empty() { "none".to_owned() } else { flags.join(" ") };
    own.into_iter().map(|(commands, flags)| (commands, text(flags))).collect()
}

/// The values of each label in all runs, in the order in which the labels occur.
fn by_label(runs: &[Vec<(String, String)>]) -> Vec<Fact> {
    let value = |run: &Vec<(String, String)>, wanted: &str| {
        run.iter().rev().find(|(label, _)| label == wanted).map(|(_, value)| value.clone())
    };
    let fact = |label: &str| Fact {
        what: label.to_owned(),
        values: runs.iter().map(|run| value(run, label)).collect(),
    };
    distinct(runs.iter().flatten().map(|(label, _)| label.as_str())).into_iter().map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn single_candidates_are_matched_whatever_their_names() {
        let mut one = sample::report_of(&[]);
        one.candidates.retain(|candidate| candidate.role != Role::Candidate);
        let mut other = one.clone();
        other.candidates[0].name = "tuned".to_owned();
        let matched = matched(&[&one, &other]);
        assert_eq!(matched.len(), 1);
        assert_eq!(matched[0].name, format!("{} → tuned", one.candidates[0].name));
        assert_eq!(matched[0].name_in(1), Some("tuned"));
    }

    #[test]
    fn candidates_of_the_same_program_and_configuration_are_equal() {
        let report = sample::report_of(&[]);
        let one = &report.candidates[0];
        assert!(are_equal(one, one));
        assert!(!are_equal(one, &report.candidates[1]), "another build");
        let mut other = one.clone();
        other.configuration.push(("cache_size".to_owned(), "1 GiB".to_owned()));
        assert!(!are_equal(one, &other), "another configuration");
        let mut server = one.clone();
        server.build = None;
        server.origin = Some(OriginRecord::Server { address: "db:3306".to_owned() });
        assert!(!are_equal(&server, &server), "its settings are unknown");
    }
}
