//! The summary of an audit that is stored with a run.

use std::collections::BTreeMap;

use dbdyno_audit::{
    Audit, Check, Effective, Fortify, ObjectRecord, Severity, StackProtector, difference,
};
use dbdyno_builds::Build;
use dbdyno_results::{AuditRecord, CommandLineDifference, CommandLinesRecord, NamedCount};

use super::{expected_of, is_of_objects};

/// Files listed per difference.
const EXAMPLES: usize = 5;

/// Summarizes an audit, and its difference from the baseline's.
pub(crate) fn record(build: &Build, audit: &Audit, baseline: Option<&Audit>) -> AuditRecord {
    let objects: Vec<&ObjectRecord> =
        audit.objects.iter().filter(|object| object.is_checked()).collect();
    let tally = |word: &dyn Fn(&Effective) -> Option<String>| {
        tallies(objects.iter().filter_map(|object| word(&object.effective)))
    };
    AuditRecord {
        objects: objects.len() as u64,
        from_objects: is_of_objects(build, audit),
        optimization: tally(&|flags| flags.optimization.map(|level| level.to_string())),
        lto: tally(&|flags| flags.lto.map(|form| form.to_string())),
        march: tally(&|flags| flags.march.clone()),
        assertions: tally(&|flags| {
            flags.assertions.map(|on| if on { "on" } else { "off" }.to_owned())
        }),
        profile: tally(&|flags| flags.profile.map(|profile| profile.to_string())),
        hardening: tallies(objects.iter().flat_map(|object| hardening(&object.effective))),
        ignored: ignored(build, audit),
        warnings: tallies(of_severity(audit, Severity::Warning)),
        against_baseline: baseline.map(|baseline| command_lines(audit, baseline)),
    }
}

/// Counts each word, the most frequent first.
fn tallies(words: impl Iterator<Item = String>) -> Vec<NamedCount> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    let mut tallies: Vec<NamedCount> =
        counts.into_iter().map(|(name, count)| NamedCount { name, count }).collect();
    tallies.sort_by_key(|tally| std::cmp::Reverse(tally.count));
    tallies
}

fn hardening(flags: &Effective) -> Vec<String> {
    let mut words = Vec::new();
    match flags.stack_protector {
        None | Some(StackProtector::Off) => {}
        Some(StackProtector::Some) => words.push("stack protector".to_owned()),
        Some(which) => words.push(format!("stack protector {which}")),
    }
    match flags.fortify {
        None | Some(Fortify::Off) => {}
        Some(Fortify::On) => words.push("fortify".to_owned()),
        Some(level) => words.push(format!("fortify {level}")),
    }
    for (on, word) in [(flags.stack_clash, "stack clash"), (flags.control_flow, "control flow")] {
        if on == Some(true) {
            words.push(word.to_owned());
        }
    }
    words
}

fn of_severity(audit: &Audit, severity: Severity) -> impl Iterator<Item = String> {
    let findings = audit.findings.iter().filter(move |finding| finding.severity == severity);
    findings.map(|finding| finding.check.to_string())
}

/// The violations that the experiment ignores.
fn ignored(build: &Build, audit: &Audit) -> Vec<NamedCount> {
    let own = expected_of(build).ignored;
    let by_experiment: Vec<Check> = audit.expected.ignored.difference(&own).copied().collect();
    if by_experiment.is_empty() {
        return Vec::new();
    }
    let strict = audit.clone().checked_against(expected_of(build));
    let violations =
        strict.findings.iter().filter(|finding| finding.severity == Severity::Violation);
    let allowed = violations.filter(|finding| by_experiment.contains(&finding.check));
    tallies(allowed.map(|finding| finding.check.to_string()))
}

/// Groups the files by their difference.
fn command_lines(audit: &Audit, baseline: &Audit) -> CommandLinesRecord {
    let difference = difference(audit, baseline);
    let mut kinds: BTreeMap<(&[String], &[String]), Vec<&str>> = BTreeMap::new();
    for file in &difference.files {
        kinds.entry((&file.added[..], &file.removed[..])).or_default().push(&file.file);
    }
    let mut kinds: Vec<CommandLineDifference> = kinds
        .into_iter()
        .map(|((added, removed), files)| CommandLineDifference {
            added: added.to_vec(),
            removed: removed.to_vec(),
            files: files.len() as u64,
            examples: files.iter().take(EXAMPLES).map(|file| (*file).to_owned()).collect(),
        })
        .collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.files));
    CommandLinesRecord {
        compared: difference.compared as u64,
        same: difference.same as u64,
        only_here: difference.only_here.len() as u64,
        only_in_baseline: difference.only_in_baseline.len() as u64,
        kinds,
    }
}
