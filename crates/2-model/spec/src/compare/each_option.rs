//! Words for candidates that have some of the settings in which one differs from the baseline.

use dbdyno_document::{Problem, Problems};
use dbdyno_types::settings::of_version;

use crate::candidate::{Program, part, short};
use crate::compare::InstalledReleases;
use crate::compare::candidate::{Candidate, Own};
use crate::compare::text::CommandLine;
use crate::experiment::{Experiment, System};
use crate::server;

/// A setting in which a candidate differs from the baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub setting: String,
    /// `None` if it is not set.
    pub own: Option<String>,
    pub baseline: Option<String>,
}

impl Difference {
    /// `innodb_doublewrite=OFF`, as the candidate has it.
    pub fn text(&self) -> String {
        match &self.own {
            Some(value) => format!("{}={value}", self.setting),
            None => format!("{} not set", self.setting),
        }
    }

    /// The server's name of the setting, without a version.
    pub fn setting_name(&self) -> &str {
        of_version(&self.setting).1
    }

    /// The setting as a part of a candidate's name.
    pub fn name(&self) -> String {
        part(short(self.setting_name()))
    }
}

/// The settings in which a candidate differs from the baseline, and all others.
#[derive(Clone, Debug)]
pub struct OptionWords {
    /// The candidate's word without settings and name.
    head: String,
    common: Vec<(String, String)>,
    pub differences: Vec<Difference>,
}

/// The settings in which the second of two candidates differs from the first.
///
/// # Errors
/// Words of which one is not understood, or that differ in something else.
pub fn option_words(
    words: &[String],
    experiment: &Experiment,
    installed: InstalledReleases<'_>,
) -> Result<OptionWords, Problems> {
    let mut line = CommandLine::new("compare");
    let mut problems = Vec::new();
    let places: Vec<_> = words.iter().map(|word| line.push(word)).collect();
    line.push("--each-option");
    let read = |word| Candidate::read(word, installed, &mut problems);
    let candidates: Vec<Candidate<'_>> = places.into_iter().filter_map(read).collect();
    let [baseline, candidate] = &candidates[..] else {
        problems.push(
            Problem::new(line.command(), "`--each-option` needs two candidates")
                .help("the baseline, and one with other settings: mariadb 'mariadb{a=1,b=2}'"),
        );
        return Err(line.problems(problems));
    };
    for one in [baseline, candidate] {
        if one.own.is_none() {
            let message = "`--each-option` changes settings, and dbdyno does not configure a server with a URL";
            let help = "name a server that dbdyno starts: 'mariadb{innodb_doublewrite=OFF}'";
            problems.push(Problem::new(one.word.whole(), message).help(help));
        }
    }
    let (head, of_baseline) = (head(candidate), head(baseline));
    if problems.is_empty() && head != of_baseline {
        let message = format!("`{head}` and `{of_baseline}` differ in more than settings");
        let help = "--each-option needs candidates that differ in settings only";
        problems.push(Problem::new(candidate.word.whole(), message).help(help));
    }
    if !problems.is_empty() {
        return Err(line.problems(problems));
    }
    let of = |number: usize, candidate: &Candidate<'_>| {
        let resolved = experiment.candidates.get(number).map(|one| &one.system);
        settings(candidate, resolved)
    };
    let (theirs, own) = (of(0, baseline), of(1, candidate));
    let key = |name: &str| match candidate.system {
        Program::Server(system) => server::canonical(name, system),
        Program::Sqlite => name.to_owned(),
    };
    let value = |of: &[(String, String)], name: &str| {
        let mut all = of.iter();
        all.find(|(other, _)| key(other) == key(name)).map(|(_, value)| value.clone())
    };
    let mut found = OptionWords { head, common: Vec::new(), differences: Vec::new() };
    for (setting, own) in &own {
        match value(&theirs, setting) {
            Some(same) if same == *own => found.common.push((setting.clone(), same)),
            baseline => found.differences.push(Difference {
                setting: setting.clone(),
                own: Some(own.clone()),
                baseline,
            }),
        }
    }
    for (setting, theirs) in &theirs {
        if value(&own, setting).is_none() {
            let (setting, baseline) = (setting.clone(), Some(theirs.clone()));
            found.differences.push(Difference { setting, own: None, baseline });
        }
    }
    if found.differences.len() < 2 {
        let count = if found.differences.is_empty() { "no" } else { "one" };
        let message = format!("the candidates differ in {count} setting");
        let help = "with fewer than two, remove --each-option";
        problems.push(Problem::new(candidate.word.whole(), message).help(help));
        return Err(line.problems(problems));
    }
    Ok(found)
}

/// The settings of a candidate: of a server those of the experiment, which may be from a file.
fn settings(candidate: &Candidate<'_>, resolved: Option<&System>) -> Vec<(String, String)> {
    if let Some(System::Private(server)) = resolved {
        return server.configuration.clone();
    }
    let own = candidate.own.iter().flat_map(|own| &own.settings);
    own.map(|(name, value)| (candidate.text(name).to_owned(), candidate.text(value).to_owned()))
        .collect()
}

/// A word without settings, and without keys that only name it or its settings.
fn head(candidate: &Candidate<'_>) -> String {
    let Some(Own { system, release, variant, keys, .. }) = &candidate.own else {
        return candidate.word.text.to_owned();
    };
    let mut head = candidate.text(system).to_owned();
    if let Some(release) = release {
        head.push_str(&format!("@{}", candidate.text(release)));
    }
    if let Some(variant) = variant {
        head.push_str(&format!(":{}", candidate.text(variant)));
    }
    let mut keys: Vec<_> =
        keys.iter().filter(|(key, ..)| !["name", "options"].contains(&key.name)).collect();
    keys.sort_by_key(|(key, ..)| key.name);
    for (key, _, value) in keys {
        head.push_str(&format!(":{}={}", key.name, candidate.text(value)));
    }
    head
}

impl OptionWords {
    /// The word for the candidate with this name in which some differences, by their numbers, are as in the baseline.
    pub fn word(&self, name: &str, reverted: &[usize]) -> String {
        let changed = self.differences.iter().enumerate().filter_map(|(number, one)| {
            let value = if reverted.contains(&number) { &one.baseline } else { &one.own };
            Some((&one.setting, value.as_ref()?))
        });
        let common = self.common.iter().map(|(name, value)| (name, value));
        let mut settings: Vec<(&String, &String)> = common.chain(changed).collect();
        // One for all versions would replace those for one version before it.
        settings.sort_by_key(|(name, _)| of_version(name).0.is_some());
        let settings: Vec<String> =
            settings.into_iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        let settings = settings.join(",");
        let settings = if settings.is_empty() { settings } else { format!("{{{settings}}}") };
        format!("{}:name={name}{settings}", self.head)
    }
}

/// A value as it is written in a word.
fn quoted(value: &str) -> String {
    let is_plain = !value.starts_with(['\'', '"']) && !value.contains([',', '{', '}']);
    match (is_plain, value.contains('\'')) {
        (true, _) => value.to_owned(),
        (false, true) => format!("\"{value}\""),
        (false, false) => format!("'{value}'"),
    }
}
