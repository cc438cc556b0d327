//! Flag audits of the compiled candidates: the texts that all tables share.

use dbdyno_results::{AuditRecord, CommandLineDifference, NamedCount};
use dbdyno_units::{Bytes, grouped};

use crate::model::{BuildRecord, CandidateRecord, Report, Role};

/// A compiled and audited candidate.
#[derive(Clone, Copy)]
pub(crate) struct Audited<'a> {
    pub(crate) candidate: &'a CandidateRecord,
    pub(crate) build: &'a BuildRecord,
    pub(crate) audit: &'a AuditRecord,
}

impl Audited<'_> {
    /// A remark for builds whose sizes cannot be compared with the others'.
    pub(crate) fn remark_on_sizes(&self) -> Option<&'static str> {
        let remark = "BOLT keeps the code that it moved: sizes do not compare";
        self.build.bolted.then_some(remark)
    }
}

/// The audited candidates of a report, baseline first, without the control.
pub(crate) fn audited(report: &Report) -> Vec<Audited<'_>> {
    let candidates = report.candidates.iter().filter(|one| one.role != Role::Control);
    candidates
        .filter_map(|candidate| {
            let build = candidate.build.as_ref()?;
            Some(Audited { candidate, build, audit: build.audit.as_ref()? })
        })
        .collect()
}

/// Properties of a build's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    Objects,
    Optimization,
    Lto,
    March,
    Assertions,
    Profile,
    Hardening,
}

/// A property of a build: the value of most objects, and the exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) most: String,
    pub(crate) rest: Vec<String>,
}

impl Property {
    pub(crate) const ALL: [Self; 7] = [
        Self::Objects,
        Self::Optimization,
        Self::Lto,
        Self::March,
        Self::Assertions,
        Self::Profile,
        Self::Hardening,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Optimization => "-O",
            Self::Lto => "LTO",
            Self::March => "march",
            Self::Assertions => "assertions",
            Self::Profile => "profile",
            Self::Hardening => "hardening",
        }
    }

    pub(crate) fn of(self, audit: &AuditRecord) -> Value {
        let tallies = match self {
            Self::Objects => {
                return Value { most: grouped(audit.objects), rest: Vec::new() };
            }
            Self::Hardening => return hardening(audit),
            Self::Optimization => &audit.optimization,
            Self::Lto => &audit.lto,
            Self::March => &audit.march,
            Self::Assertions => &audit.assertions,
            Self::Profile => &audit.profile,
        };
        let Some((first, others)) = tallies.split_first() else {
            return Value { most: "–".to_owned(), rest: Vec::new() };
        };
        let mut rest: Vec<String> = others.iter().map(|tally| part(tally, audit)).collect();
        let known: u64 = tallies.iter().map(|tally| tally.count).sum();
        if known < audit.objects {
            let count = audit.objects - known;
            rest.push(part(&NamedCount { name: "not recorded".to_owned(), count }, audit));
        }
        Value { most: first.name.clone(), rest }
    }

    /// The text for a list of exceptions.
    pub(crate) fn exception(self, text: &str) -> String {
        match self {
            Self::Objects | Self::March => text.to_owned(),
            Self::Optimization if text.starts_with('O') => format!("-{text}"),
            Self::Optimization => format!("optimization {text}"),
            Self::Lto | Self::Assertions | Self::Profile => format!("{} {text}", self.title()),
            Self::Hardening => text.to_owned(),
        }
    }
}

/// `O2 in 7 of 912`.
fn part(tally: &NamedCount, audit: &AuditRecord) -> String {
    let (count, of) = (grouped(tally.count), grouped(audit.objects));
    format!("{} in {count} of {of}", tally.name)
}

fn hardening(audit: &AuditRecord) -> Value {
    let (most, few): (Vec<&NamedCount>, Vec<&NamedCount>) =
        audit.hardening.iter().partition(|tally| tally.count * 2 > audit.objects);
    let names: Vec<&str> = most.iter().map(|tally| tally.name.as_str()).collect();
    let some = most.into_iter().filter(|tally| tally.count < audit.objects);
    Value {
        most: if names.is_empty() { "none".to_owned() } else { names.join(", ") },
        rest: some.chain(few).map(|tally| part(tally, audit)).collect(),
    }
}

/// A size relative to the baseline's: `+12.1%`; `None` if a size is unknown.
pub(crate) fn relative(own: Option<Bytes>, baseline: Option<Bytes>) -> Option<String> {
    let (own, baseline) = (own?.as_bytes() as f64, baseline?.as_bytes() as f64);
    (baseline > 0.0).then(|| format!("{:+.1}%", 100.0 * (own / baseline - 1.0)))
}

/// Checks with their numbers of findings: `optimization-level (7), lto-partial (2)`.
pub(crate) fn counted(tallies: &[NamedCount]) -> String {
    let one = |tally: &NamedCount| format!("{} ({})", tally.name, grouped(tally.count));
    tallies.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The flags of a difference with a sign, added ones first.
pub(crate) fn signed(kind: &CommandLineDifference) -> Vec<(char, &str)> {
    let added = kind.added.iter().map(|flag| ('+', flag.as_str()));
    added.chain(kind.removed.iter().map(|flag| ('-', flag.as_str()))).collect()
}

/// `1 file`, `905 files`.
pub(crate) fn files(count: u64) -> String {
    match count {
        1 => "1 file".to_owned(),
        many => format!("{} files", grouped(many)),
    }
}

/// Numbers of files without a counterpart in the baseline or the build.
pub(crate) fn unmatched(only_here: u64, only_in_baseline: u64) -> Option<String> {
    let here = (only_here > 0).then(|| format!("{} only here", files(only_here)));
    let there =
        (only_in_baseline > 0).then(|| format!("{} only in the baseline", files(only_in_baseline)));
    let both: Vec<String> = here.into_iter().chain(there).collect();
    (!both.is_empty()).then(|| both.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(what: &str, count: u64) -> NamedCount {
        NamedCount { name: what.to_owned(), count }
    }

    #[test]
    fn exceptions_and_unrecorded_objects_are_counted() {
        let audit = AuditRecord {
            objects: 1_000,
            optimization: vec![tally("O3", 990), tally("O2", 7)],
            ..AuditRecord::default()
        };
        let value = Property::Optimization.of(&audit);
        assert_eq!(value.most, "O3");
        assert_eq!(value.rest, ["O2 in 7 of 1,000", "not recorded in 3 of 1,000"]);
        assert_eq!(Property::Optimization.exception(&value.rest[0]), "-O2 in 7 of 1,000");
        assert_eq!(Property::Lto.of(&audit).most, "–");
    }

    #[test]
    fn objects_with_several_kinds_of_hardening_are_counted_in_each() {
        let hardening = vec![tally("fortify 2", 10), tally("stack protector strong", 9)];
        let audit = AuditRecord { objects: 10, hardening, ..AuditRecord::default() };
        let value = Property::Hardening.of(&audit);
        assert_eq!(value.most, "fortify 2, stack protector strong");
        assert_eq!(value.rest, ["stack protector strong in 9 of 10"]);
        let none = AuditRecord { objects: 10, ..AuditRecord::default() };
        assert_eq!(Property::Hardening.of(&none).most, "none");
    }

    #[test]
    fn size_is_relative_if_both_are_known() {
        let kib = |kib| Some(Bytes::from_kib(kib));
        assert_eq!(relative(kib(110), kib(100)).as_deref(), Some("+10.0%"));
        assert_eq!(relative(kib(110), None), None);
        assert_eq!(relative(kib(110), kib(0)), None);
    }
}
