//! Compiled builds: what compilers recorded, and differences between command lines.

use dbdyno_results::{AuditRecord, NamedCount};
use dbdyno_text::{Cell, Column, Fact, Facts, Row, Table};
use dbdyno_units::{Bytes, counted, grouped};

use super::{Output, Section, candidate, titled};
use crate::model::{BuildRecord, CandidateRecord, Report, Role, by_key};
use crate::words::joined;

/// Number of kinds of differences per candidate on a terminal; the page lists all.
const MAX_KINDS: usize = 4;

const NAME: usize = 24;

const ABOUT: &str = "Compiler settings recorded in the objects of each build. Small text below a value \
     lists settings of only some of the objects. Sizes are relative to the baseline’s.";

/// A row per build, and the differences between command lines. On a terminal, properties that are the
/// same for all builds are listed below the table.
pub(crate) fn builds(report: &Report, output: Output) -> Section {
    let titles = ["builds, by what compilers recorded", "Builds"];
    let mut section = titled(output, "builds", titles);
    let builds = audited(report);
    let Some(first) = builds.first() else { return section };
    let (same, differing): (Vec<Property>, Vec<Property>) = Property::all()
        .partition(|property| output == Output::Terminal && is_same(*property, &builds));
    if output != Output::Terminal {
        section.note(ABOUT);
    }
    section.push(table(report, &builds, &differing, output));
    if output == Output::Terminal {
        section.note(in_all(first, &same, builds.len()));
        builds.iter().flat_map(exceptions).for_each(|note| section.note(note));
    }
    if builds.iter().any(|build| build.audit.against_baseline.is_some()) {
        let title = match output {
            Output::Terminal => "command lines against",
            _ => "Command lines compared with",
        };
        section.title(format!("{title} {}", report.baseline), "");
        let lines = builds.iter().flat_map(|build| command_lines(build, output));
        section.push(difference(report, lines.collect(), output));
    }
    section
}

fn is_same(property: Property, builds: &[Audited<'_>]) -> bool {
    let most = |build: &Audited<'_>| property.of(build.audit).most;
    builds.windows(2).all(|pair| most(&pair[0]) == most(&pair[1]))
}

fn table(
    report: &Report,
    builds: &[Audited<'_>],
    properties: &[Property],
    output: Output,
) -> Table {
    let column = |property: &Property| match property {
        Property::Objects => Column::number(property.title()),
        _ => Column::text(property.title()),
    };
    let columns = [Column::name("candidate").most(NAME)].into_iter();
    let columns = columns.chain(properties.iter().map(column));
    let columns = columns.chain(["text", "stripped"].map(Column::number));
    let mut table = Table::new(columns).class("builds").caption("Builds");
    for (number, build) in builds.iter().enumerate() {
        let other = builds.first().filter(|_| number > 0).map(|baseline| baseline.build);
        let mut name = candidate(report, &build.candidate.name, build.candidate.role);
        name.notes = build_remarks(build);
        let sizes = [
            size(Some(build.build.text_size), other.map(|other| other.text_size)),
            size(build.build.stripped_size, other.and_then(|other| other.stripped_size)),
        ];
        let cells = properties.iter().map(|property| {
            let Value { most, rest } = property.of(build.audit);
            match output {
                Output::Terminal => {
                    let sign = if rest.is_empty() { "" } else { "*" };
                    Cell::text(format!("{}{sign}", short(*property, &most)))
                }
                _ => Cell { notes: rest, ..Cell::text(most) },
            }
        });
        table.push(Row::new([name].into_iter().chain(cells).chain(sizes)));
    }
    table
}

/// A size: relative to the baseline's where that is known, with the absolute one below.
fn size(own: Option<Bytes>, baseline: Option<Bytes>) -> Cell {
    let absolute = Cell::number(own);
    match relative(own, baseline) {
        Some(relative) => Cell::text(relative).note(absolute.text),
        None => absolute,
    }
}

/// The short text of a property on a terminal.
fn short(property: Property, value: &str) -> String {
    if property != Property::Hardening {
        return value.to_owned();
    }
    let words = value.split(", ").map(|word| match word {
        word if word.starts_with("stack protector") => "protector",
        word if word.starts_with("fortify") => "fortify",
        "stack clash" => "clash",
        "control flow" => "branches",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn in_all(first: &Audited<'_>, same: &[Property], builds: usize) -> String {
    let word = |property: &Property| {
        let most = property.of(first.audit).most;
        Some(match property {
            // Not listed if unknown for all.
            _ if most == "–" => return None,
            Property::Objects if most == "1" => "1 object".to_owned(),
            Property::Objects => format!("{most} objects"),
            Property::Optimization => format!("-{most}"),
            other => format!("{} {most}", other.title()),
        })
    };
    match (joined(same.iter().filter_map(word), "; "), builds) {
        (None, _) => String::new(),
        (Some(words), 1) => words,
        (Some(words), _) => format!("in all: {words}"),
    }
}

/// Exceptions among a build's objects, ignored violations and warnings.
fn exceptions(build: &Audited<'_>) -> Vec<String> {
    let Audited { candidate, audit, .. } = build;
    let of = |property: Property| {
        let rest = property.of(audit).rest.into_iter();
        rest.map(move |text| property.exception(&text))
    };
    let rest = joined(Property::all().flat_map(of), "; ");
    let rest = rest.map(|rest| format!("* {}: {rest}", candidate.name));
    let remarks = build_remarks(build).into_iter();
    let remarks = remarks.map(|remark| format!("{}: {remark}", candidate.name));
    rest.into_iter().chain(remarks).collect()
}

fn difference(
    report: &Report,
    lines: Vec<(&CandidateRecord, String, String)>,
    output: Output,
) -> super::Block {
    if output == Output::Terminal {
        let facts = lines.into_iter().map(|(candidate, count, text)| {
            let space = if count.is_empty() { "" } else { ": " };
            Fact::new(&candidate.name, format!("{count}{space}{text}"))
        });
        return Facts::new(facts).into();
    }
    let titles = [Column::group("candidate"), Column::number("files"), Column::text("flags")];
    let mut table = Table::new(titles).class("builds").caption("Command lines");
    for (one, count, text) in lines {
        let name = candidate(report, &one.name, one.role);
        table.push(Row::new([name, Cell::text(count), Cell::text(text).class("mono")]));
    }
    table.into()
}

/// How one build's command lines differ from the baseline's: candidate, number of files and flags by
/// kind of difference.
fn command_lines<'a>(
    build: &Audited<'a>,
    output: Output,
) -> Vec<(&'a CandidateRecord, String, String)> {
    let Some(lines) = &build.audit.against_baseline else { return Vec::new() };
    let mut all = Vec::new();
    let mut add = |count: &str, text: String| {
        all.push((build.candidate, count.to_owned(), text));
    };
    if lines.compared == 0 {
        add("", "no file has a recorded command line in both builds".to_owned());
    }
    let files = |count| counted(count, "file");
    if lines.same > 0 {
        add(&files(lines.same), "the same flags".to_owned());
    }
    let most = if output == Output::Terminal { MAX_KINDS } else { usize::MAX };
    for kind in lines.kinds.iter().take(most) {
        let flags = [("added", &kind.added), ("removed", &kind.removed)];
        let flags = flags.into_iter().filter(|(_, flags)| !flags.is_empty());
        let flags = flags.map(|(word, flags)| format!("{word} {}", flags.join(" ")));
        let mut text = joined(flags, "; ").unwrap_or_default();
        // Names of files if it is at most half of them.
        if output == Output::Page && kind.files * 2 <= lines.compared {
            let more = if (kind.examples.len() as u64) < kind.files { ", …" } else { "" };
            text.push_str(&format!(" ({}{more})", kind.examples.join(", ")));
        }
        add(&files(kind.files), text);
    }
    if lines.kinds.len() > most {
        let rest = lines.kinds.len() - most;
        let count = lines.kinds.iter().skip(most).map(|kind| kind.files).sum();
        let kinds = if rest == 1 { "kind" } else { "kinds" };
        add(&files(count), format!("{rest} more {kinds} of difference: see report.html"));
    }
    // Without a counterpart in the baseline or the build.
    let unmatched = [(lines.only_here, "here"), (lines.only_in_baseline, "in the baseline")];
    let unmatched = unmatched.into_iter().filter(|(count, _)| *count > 0);
    let unmatched = unmatched.map(|(count, place)| format!("{} only {place}", files(count)));
    if let Some(text) = joined(unmatched, ", ") {
        add("", text);
    }
    all
}

const VERIFIED: &str = "verified by the audit: each build has those of its variant";

/// Whether the builds have the flags of their variants, in short lines; empty without builds.
pub(crate) fn flags(report: &Report) -> Vec<String> {
    let candidates = report.candidates.iter().filter(|one| one.role != Role::Control);
    let remarks = candidates.filter_map(|one| {
        let audit = one.build.as_ref()?.audit.as_ref();
        let remarks = audit.map_or_else(|| vec!["not audited".to_owned()], audit_remarks);
        Some((remarks.join("; "), one.name.as_str()))
    });
    let remarks = by_key(remarks);
    let (verified, others): (Vec<_>, Vec<_>) =
        remarks.into_iter().partition(|(remark, _)| remark.is_empty());
    if others.is_empty() {
        return verified.iter().map(|_| VERIFIED.to_owned()).collect();
    }
    others.iter().map(|(remark, names)| format!("{}: {remark}", names.join(", "))).collect()
}

/// Ignored findings, warnings and limits of a build's audit, and of its sizes.
fn build_remarks(build: &Audited<'_>) -> Vec<String> {
    let mut remarks = audit_remarks(build.audit);
    if build.build.bolted {
        remarks.push("BOLT keeps the code that it moved: sizes do not compare".to_owned());
    }
    remarks
}

fn audit_remarks(audit: &AuditRecord) -> Vec<String> {
    let mut remarks = Vec::new();
    if !audit.ignored.is_empty() {
        remarks.push(format!("ignored findings: {}", with_counts(&audit.ignored)));
    }
    if !audit.warnings.is_empty() {
        remarks.push(format!("warnings: {}", with_counts(&audit.warnings)));
    }
    if !audit.from_objects {
        remarks.push("read from the linked file only: its objects no longer exist".to_owned());
    }
    remarks
}

#[derive(Clone, Copy)]
struct Audited<'a> {
    candidate: &'a CandidateRecord,
    build: &'a BuildRecord,
    audit: &'a AuditRecord,
}

/// The audited candidates of a report, baseline first, without the control.
fn audited(report: &Report) -> Vec<Audited<'_>> {
    let candidates = report.candidates.iter().filter(|one| one.role != Role::Control);
    candidates
        .filter_map(|candidate| {
            let build = candidate.build.as_ref()?;
            Some(Audited { candidate, build, audit: build.audit.as_ref()? })
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
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
struct Value {
    most: String,
    rest: Vec<String>,
}

impl Property {
    /// Each with its title, in the order of the variants.
    const TABLE: [(Self, &str); 7] = [
        (Self::Objects, "objects"),
        (Self::Optimization, "-O"),
        (Self::Lto, "LTO"),
        (Self::March, "march"),
        (Self::Assertions, "assertions"),
        (Self::Profile, "profile"),
        (Self::Hardening, "hardening"),
    ];

    fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(property, _)| property)
    }

    const fn title(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    fn of(self, audit: &AuditRecord) -> Value {
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
    fn exception(self, text: &str) -> String {
        match self {
            Self::Objects | Self::March | Self::Hardening => text.to_owned(),
            Self::Optimization if text.starts_with('O') => format!("-{text}"),
            Self::Optimization => format!("optimization {text}"),
            Self::Lto | Self::Assertions | Self::Profile => format!("{} {text}", self.title()),
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
fn with_counts(tallies: &[NamedCount]) -> String {
    let one = |tally: &NamedCount| format!("{} ({})", tally.name, grouped(tally.count));
    joined(tallies.iter().map(one), ", ").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

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
    fn flags_are_verified_unless_an_audit_has_remarks() {
        let mut report = sample::audited(&[]);
        assert_eq!(
            flags(&report),
            [
                "rel: ignored findings: optimization-level (5), unoptimized (2)",
                "rel_native_lto: warnings: lto-partial (3)"
            ]
        );
        report.candidates.retain(|one| !["rel", "rel_native_lto"].contains(&one.name.as_str()));
        assert_eq!(flags(&report), [VERIFIED]);
        let not_audited = flags(&sample::report_of(&[]));
        assert_eq!(not_audited, ["rel_withdbg, rel, rel_native, rel_native_lto: not audited"]);
        assert!(flags(&sample::servers_of(&[])).is_empty());
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
