//! What is bisected: the candidate with a git source, and the experiment of each step.

use dbdyno_spec::experiment::{Candidate, Experiment, Workload};
use dbdyno_types::build::SourceOrigin;

use super::BisectError;

/// The candidate that is bisected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub experiment: &'a Experiment,
    pub candidate: &'a Candidate,
    pub url: &'a str,
}

impl<'a> Subject<'a> {
    /// The candidate with a git source, or the named one of several.
    pub fn of(experiment: &'a Experiment, name: Option<&str>) -> Result<Self, BisectError> {
        let unsuitable = |text: String| Err(BisectError::Unsuitable(text));
        let of_git = |candidate: &'a Candidate| match &candidate.system.build()?.source {
            SourceOrigin::Git { url, .. } => Some(Self { experiment, candidate, url }),
            _ => None,
        };
        let all: Vec<Self> = experiment.candidates.iter().filter_map(of_git).collect();
        let names: Vec<&str> = all.iter().map(|one| one.candidate.name.as_str()).collect();
        let names = names.join(", ");
        let matching: Vec<Self> = all
            .into_iter()
            .filter(|one| name.is_none_or(|name| one.candidate.name == name))
            .collect();
        let subject = match (&matching[..], name) {
            ([only], _) => *only,
            ([], _) if names.is_empty() => {
                return unsuitable(
                    "no candidate has a git source: add `source = { git = \"URL\", revision = \
                     \"REVISION\" }` to the candidate to bisect"
                        .to_owned(),
                );
            }
            ([], name) => {
                let name = name.unwrap_or_default();
                return unsuitable(format!(
                    "no candidate `{name}` has a git source; these have: {names}"
                ));
            }
            _ => {
                return unsuitable(format!(
                    "several candidates have a git source: name one of {names} with --candidate"
                ));
            }
        };
        let samples_of = subject.candidate.live.as_ref().and_then(|live| live.samples_of.as_ref());
        if samples_of.is_some() {
            return unsuitable(format!(
                "candidate {} uses the samples of another candidate: remove `samples_of`",
                subject.candidate.name
            ));
        }
        if experiment.insert_benchmark.is_some() {
            return unsuitable(
                "an insert benchmark cannot be bisected: use an experiment with microbenchmarks"
                    .to_owned(),
            );
        }
        if experiment.workload.clients.len() > 1 {
            return unsuitable(
                "a sweep cannot be bisected: set one number of `clients` under [workload]"
                    .to_owned(),
            );
        }
        Ok(subject)
    }

    /// Checks that the experiment has a microbenchmark.
    pub fn check_microbenchmark(&self, name: &str) -> Result<(), BisectError> {
        let mut all = self.experiment.workload.microbenchmarks.iter();
        if all.any(|one| one.name == name) {
            return Ok(());
        }
        let all = &self.experiment.workload.microbenchmarks;
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        Err(BisectError::Unsuitable(format!(
            "the experiment does not select microbenchmark `{name}`; it selects: {}",
            names.join(", ")
        )))
    }

    /// The experiment of a step: the candidate at these commits, each with its name, of which the first
    /// is the baseline; with a control, and without a profile. `microbenchmark` is the only one that is
    /// measured; `None` for all.
    pub fn at(&self, commits: &[(&str, &str)], microbenchmark: Option<&str>) -> Experiment {
        let at = |(name, commit): &(&str, &str)| {
            let mut candidate = Candidate {
                name: (*name).to_owned(),
                matrix: None,
                series: None,
                ..self.candidate.clone()
            };
            if let Some(build) = candidate.system.build_mut() {
                let (url, revision) = (self.url.to_owned(), (*commit).to_owned());
                build.source = SourceOrigin::Git { url, revision };
            }
            candidate
        };
        let mut microbenchmarks = self.experiment.workload.microbenchmarks.clone();
        microbenchmarks.retain(|one| microbenchmark.is_none_or(|name| one.name == name));
        Experiment {
            baseline: commits.first().map(|(name, _)| (*name).to_owned()).unwrap_or_default(),
            control: true,
            profile: None,
            workload: Workload { microbenchmarks, ..self.experiment.workload.clone() },
            candidates: commits.iter().map(at).collect(),
            ..self.experiment.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_spec::experiment::Profiling;

    use super::*;

    const HEAD: &str = "name = \"x\"\nbaseline = \"a\"\n";
    const GIT: &str = "[[candidate]]\nname = \"NAME\"\nsystem = \"sqlite\"\nvariant = \"o1\"\n\
                       source = { git = \"/srv/sqlite\", revision = \"main\" }\n";
    const BUNDLED: &str = "[[candidate]]\nname = \"a\"\nsystem = \"sqlite\"\nvariant = \"o1\"\n";

    fn parse(text: &str) -> Experiment {
        dbdyno_spec::parse("x.toml", text).unwrap()
    }

    fn reason(experiment: &Experiment, name: Option<&str>) -> String {
        Subject::of(experiment, name).unwrap_err().to_string()
    }

    #[test]
    fn candidate_with_a_git_source_is_bisected() {
        let workload = "[workload]\nmicrobenchmarks = [\"point-1\"]\n[profile]\n";
        let git = GIT.replace("NAME", "b");
        let experiment = parse(&format!("{HEAD}{workload}{BUNDLED}{git}"));
        let subject = Subject::of(&experiment, None).unwrap();
        assert_eq!((subject.candidate.name.as_str(), subject.url), ("b", "/srv/sqlite"));
        let name = &experiment.workload.microbenchmarks[0].name;
        let step = subject.at(&[("good", "1111"), ("bad", "2222")], Some(name));
        assert_eq!((step.baseline.as_str(), step.control), ("good", true));
        assert_eq!(step.workload.microbenchmarks.len(), 1);
        // Only the last run has a profile.
        assert_eq!(
            (step.profile, subject.experiment.profile.clone()),
            (None, Some(Profiling::default()))
        );
        let revision = |candidate: &Candidate| match &candidate.system.build().unwrap().source {
            SourceOrigin::Git { revision, .. } => revision.clone(),
            other => panic!("{other}"),
        };
        let candidates: Vec<_> =
            step.candidates.iter().map(|one| (one.name.clone(), revision(one))).collect();
        let expected = [("good", "1111"), ("bad", "2222")];
        assert_eq!(candidates, expected.map(|(name, at)| (name.to_owned(), at.to_owned())));
        let error = subject.check_microbenchmark("scan").unwrap_err().to_string();
        assert!(error.contains("does not select microbenchmark `scan`"), "{error}");
    }

    #[test]
    fn one_of_several_candidates_must_be_named() {
        let (one, two) = (GIT.replace("NAME", "a"), GIT.replace("NAME", "b"));
        let experiment = parse(&format!("{HEAD}{one}{two}"));
        assert!(reason(&experiment, None).contains("name one of a, b with --candidate"));
        assert!(reason(&experiment, Some("c")).contains("these have: a, b"));
        assert_eq!(Subject::of(&experiment, Some("b")).unwrap().candidate.name, "b");
        assert!(reason(&parse(&format!("{HEAD}{BUNDLED}")), None).contains("no candidate has a"));
    }

    #[test]
    fn sweep_and_insert_benchmark_are_refused() {
        let git = GIT.replace("NAME", "a");
        let sweep = parse(&format!("{HEAD}[workload]\nclients = [1, 2]\n{git}"));
        assert!(reason(&sweep, None).contains("set one number of `clients`"));
        let inserts = parse(&format!("{HEAD}[insert_benchmark]\n{git}"));
        assert!(reason(&inserts, None).contains("an insert benchmark cannot be bisected"));
    }
}
