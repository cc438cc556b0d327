//! Candidates of several runs: which are compared with which, and which are equal.

use crate::model::{CandidateRecord, OriginRecord, Report, Role};

/// A candidate and its record in each run that has it.
pub(super) struct MatchedCandidate<'a> {
    /// Its name; both names if they differ.
    pub(super) name: String,
    /// By run.
    pub(super) records: Vec<Option<&'a CandidateRecord>>,
}

impl MatchedCandidate<'_> {
    /// Its name in a run.
    pub(super) fn name_in(&self, run: usize) -> Option<&str> {
        self.records.get(run)?.map(|record| record.name.as_str())
    }
}

/// All candidates without the controls. They are matched by name, except if every run has only one:
/// then these are compared, whatever their names.
pub(super) fn matched<'a>(reports: &[&'a Report]) -> Vec<MatchedCandidate<'a>> {
    let of = |report: &'_ Report| -> Vec<usize> {
        let all = report.candidates.iter().enumerate();
        all.filter(|(_, one)| one.role != Role::Control).map(|(index, _)| index).collect()
    };
    let mut names: Vec<&str> = Vec::new();
    for report in reports {
        for index in of(report) {
            let name = report.candidates[index].name.as_str();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if reports.iter().all(|report| of(report).len() == 1) && !names.is_empty() {
        let records = reports.iter().map(|report| Some(&report.candidates[of(report)[0]]));
        return vec![MatchedCandidate { name: names.join(" → "), records: records.collect() }];
    }
    let named = |name: &&str| MatchedCandidate {
        name: (*name).to_owned(),
        records: reports
            .iter()
            .map(|report| {
                let mut all = report.candidates.iter();
                all.find(|one| one.name == *name && one.role != Role::Control)
            })
            .collect(),
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
