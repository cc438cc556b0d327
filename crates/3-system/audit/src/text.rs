//! Audits and differences as documents.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use dbdyno_text::{Cell, Column, Fact, Facts, Row, Section, Table, Text};
use dbdyno_units::{Bytes, grouped};

use crate::audit::{
    Change, Component, Difference, Evidence, FileDifference, Finding, Location, Severity,
    SizeDifference,
};
use crate::binary::{Binary, Code, FunctionsFrom};
use crate::expected::Expected;
use crate::{Audit, Check};

/// How many entries of a list are shown.
#[derive(Clone, Copy)]
struct Most {
    all: bool,
}

impl Most {
    const fn of(self, few: usize) -> usize {
        if self.all { usize::MAX } else { few }
    }
}

/// Rows of the table of components.
const COMPONENTS: usize = 40;

/// Names of a group of findings.
const FINDINGS: usize = 8;

const BINARIES: usize = 10;

/// Functions with transactions.
const FUNCTIONS: usize = 20;

/// Files with the same difference.
const FILES: usize = 10;

/// Directories with flags that were not requested.
const DIRECTORIES: usize = 10;

pub fn sections(audit: &Audit, all: bool) -> Vec<Section> {
    let most = Most { all };
    let mut sections = vec![header(audit)];
    sections.extend(components(audit, most));
    sections.push(unrequested(audit, most));
    sections.extend(findings(audit, most));
    sections.extend(binaries(audit, most));
    sections.push(verdict(audit));
    sections
}

/// Names and values of equal width in all sections.
fn facts(rows: Vec<Fact>) -> Facts {
    Facts { least: 10, ..Facts::new(rows).indent(2) }
}

fn list(lines: impl IntoIterator<Item = String>, indent: usize) -> Facts {
    let rows = lines.into_iter().map(|line| Fact::new("", line));
    Facts { gap: 0, ..Facts::new(rows).indent(indent) }
}

/// Names below what they are about, with the number of those that are not shown.
fn names(names: impl ExactSizeIterator<Item = String>, most: usize) -> Facts {
    let more = names.len().saturating_sub(most);
    let more = (more > 0).then(|| format!("… and {more} more (--all shows them)"));
    list(names.take(most).chain(more), 6)
}

fn header(audit: &Audit) -> Section {
    let checked = audit.objects.iter().filter(|object| object.is_checked()).count();
    let recorded = audit.objects.iter().filter(|o| o.is_checked() && o.flags.is_some()).count();
    let used: BTreeSet<usize> = audit.objects.iter().filter_map(|object| object.flags).collect();
    let objects = counted(checked, "object");
    let objects = match recorded {
        0 => format!("{objects}, no recorded command line"),
        _ => {
            let recorded =
                if recorded == checked { "all".to_owned() } else { grouped(recorded as u64) };
            let lines = counted(used.len(), "distinct command line");
            format!("{objects}, {recorded} with a recorded command line; {lines}")
        }
    };
    let compilers = audit.objects.iter().filter_map(|object| object.effective.compiler.as_ref());
    let evidence: BTreeMap<Evidence, usize> =
        count(audit.objects.iter().flat_map(|object| &object.evidence).copied());
    let mut rows = vec![
        Fact::new("objects", objects),
        Fact::new(
            "compilers",
            with_counts(&count(compilers.map(ToString::to_string)), "not recorded"),
        ),
        Fact::new("read from", with_counts(&evidence, "nothing")),
    ];
    if let Some(commands) = audit.compile_commands {
        let matched = audit.objects.iter().filter(|object| object.requested.is_some()).count();
        let text = format!("{commands} commands, for {matched} of these objects");
        rows.push(Fact::new("database", text));
    }
    rows.push(Fact::new("expected", expected(&audit.expected)));
    rows.extend(audit.unreadable.iter().map(|unreadable| {
        let text = format!("{}: {}", unreadable.path.display(), unreadable.reason);
        Fact::new("unreadable", text)
    }));
    let mut section = Section::new("audit", format!("Flag audit of {}", audit.root.display()));
    section.push(facts(rows));
    section
}

fn count<T: Ord>(values: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts
}

fn with_counts<T: Display>(counts: &BTreeMap<T, usize>, none: &str) -> String {
    let words: Vec<String> = counts.iter().map(|(it, count)| format!("{it} ({count})")).collect();
    if words.is_empty() { none.to_owned() } else { words.join(", ") }
}

/// A one-line description of the expectations.
fn expected(expected: &Expected) -> String {
    let mut words: Vec<String> = expected.name.iter().map(|name| format!("{name}:")).collect();
    let mut add = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {value},")));
    };
    let on_off = |on: Option<bool>| on.map(|on| if on { "on" } else { "off" }.to_owned());
    add("compiler", expected.compiler.map(|family| family.to_string()));
    add("optimization", expected.optimization.map(|level| format!("-{level}")));
    add("lto", expected.lto.map(|lto| lto.to_string()));
    add("march", expected.march.as_ref().map(ToString::to_string));
    add("debug", on_off(expected.debug));
    add("frame pointers", on_off(expected.frame_pointers));
    add("stack protector", expected.stack_protector.map(|protector| protector.to_string()));
    add("fortify", expected.fortify.map(|fortify| fortify.to_string()));
    add("stack clash", on_off(expected.stack_clash));
    add("control flow", on_off(expected.control_flow));
    add("assertions", on_off(expected.assertions));
    add("profile", expected.profile.map(|profile| profile.to_string()));
    words.extend(expected.ignored.iter().map(|check| format!("ignoring {check},")));
    match words.is_empty() {
        true => "nothing specified; only inconsistencies are shown".to_owned(),
        false => words.join(" ").trim_end_matches([',', ':']).to_owned(),
    }
}

fn verdict(audit: &Audit) -> Section {
    let count = |severity| audit.findings.iter().filter(|f| f.severity == severity).count();
    let (violations, warnings) = (count(Severity::Violation), count(Severity::Warning));
    let name = audit.expected.name.as_deref().unwrap_or("what was expected");
    let text = match (violations, warnings, audit.expected == Expected::default()) {
        (0, 0, true) => "No inconsistencies found.".to_owned(),
        (0, 0, false) => format!("It is {name}, as far as recorded."),
        (0, warnings, _) => format!("{}, no violation.", counted(warnings, "warning")),
        (violations, warnings, _) => format!(
            "It is not {name}: {}, {}.",
            counted(violations, "violation"),
            counted(warnings, "warning")
        ),
    };
    let mut section = Section::new("verdict", "Verdict");
    section.push(Text::new(text));
    section
}

fn components(audit: &Audit, most: Most) -> Option<Section> {
    let components = audit.components();
    // A single row would only repeat the header.
    if components.is_empty() || audit.objects.len() == 1 {
        return None;
    }
    let rows = gathered(&components, most.of(COMPONENTS));
    let mut total = gathered(&components, 1);
    let sets: BTreeSet<usize> = audit.objects.iter().filter_map(|object| object.flags).collect();
    for row in &mut total {
        row.flag_sets = sets.len();
        "all".clone_into(&mut row.name);
    }
    let total = total.iter().filter(|_| rows.len() > 1);
    let mut table = Table::new([
        Column::name("component"),
        Column::number("objects"),
        Column::number("flag sets"),
        Column::text("level"),
        Column::text("lto"),
        Column::text("march"),
        Column::number("text"),
        Column::number("offending"),
    ]);
    for component in rows.iter().chain(total) {
        let offending = Some(component.offending as u64).filter(|count| *count > 0);
        table.push(Row::new([
            Cell::text(&component.name),
            Cell::text(grouped(component.objects as u64)),
            Cell::number(Some(component.flag_sets)),
            Cell::text(values(&component.optimization, component.objects)),
            Cell::text(values(&component.lto, component.objects)),
            Cell::text(values(&component.march, component.objects)),
            Cell::number(component.text),
            Cell::number(offending.map(grouped)),
        ]));
    }
    let mut section = Section::new("components", "Components");
    section.push(table);
    Some(section)
}

/// The values of a property, the most frequent first: `O2`, `O2, 3× O0`; `?` if not recorded.
fn values<T: Display>(counts: &BTreeMap<T, usize>, objects: usize) -> String {
    let mut sorted: Vec<(String, usize)> =
        counts.iter().map(|(value, count)| (value.to_string(), *count)).collect();
    sorted.sort_by_key(|(_, count)| Reverse(*count));
    let known: usize = sorted.iter().map(|(_, count)| count).sum();
    if known < objects {
        sorted.push(("?".to_owned(), objects - known));
    }
    let words = sorted.iter().enumerate().map(|(index, (value, count))| match index {
        0 => value.clone(),
        _ => format!("{count}× {value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Merges directories at the greatest depth that gives at most `most` rows.
fn gathered(components: &[Component], most: usize) -> Vec<Component> {
    let depth_of = |name: &str| name.split('/').count();
    let deepest = components.iter().map(|component| depth_of(&component.name)).max().unwrap_or(0);
    for depth in (0..=deepest).rev() {
        let mut rows: BTreeMap<String, Component> = BTreeMap::new();
        for component in components {
            let parts: Vec<&str> = component.name.split('/').take(depth).collect();
            let name = if parts.is_empty() { ".".to_owned() } else { parts.join("/") };
            let empty = || Component { name: name.clone(), ..Component::default() };
            add(rows.entry(name.clone()).or_insert_with(empty), component);
        }
        if rows.len() <= most || depth == 0 {
            return rows.into_values().collect();
        }
    }
    components.to_vec()
}

/// Adds a component to a row. Directories may share command lines, so the sum of `flag_sets` would
/// be an upper bound; the maximum is the lower bound, and closer to the true number if a build has
/// few.
fn add(row: &mut Component, other: &Component) {
    row.objects += other.objects;
    row.flag_sets = row.flag_sets.max(other.flag_sets);
    row.offending += other.offending;
    for (level, count) in &other.optimization {
        *row.optimization.entry(*level).or_default() += count;
    }
    for (form, count) in &other.lto {
        *row.lto.entry(*form).or_default() += count;
    }
    for (march, count) in &other.march {
        *row.march.entry(march.clone()).or_default() += count;
    }
    row.text = match (row.text, other.text) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
}

/// The directories of the findings, in a sentence each.
fn unrequested(audit: &Audit, most: Most) -> Section {
    let mut section = Section::new("unrequested", "Flags that were not requested");
    let sentences: Vec<String> = audit.unrequested().iter().map(ToString::to_string).collect();
    if !sentences.is_empty() {
        section.push(names(sentences.into_iter(), most.of(DIRECTORIES)));
    }
    section
}

fn findings(audit: &Audit, most: Most) -> Vec<Section> {
    let mut sections = Vec::new();
    for (severity, id, title) in [
        (Severity::Violation, "violations", "Violations"),
        (Severity::Warning, "warnings", "Warnings"),
        (Severity::Note, "notes", "Notes"),
    ] {
        let mut section = Section::new(id, title);
        for ((check, recorded, expected), findings) in groups(audit, severity) {
            let expected =
                expected.map_or_else(String::new, |expected| format!(" (expected: {expected})"));
            let what = match findings.as_slice() {
                [Finding { location: Location::Whole, .. }] => String::new(),
                [Finding { location: Location::Binary(_), .. }, ..] => {
                    format!(", {}", counted(findings.len(), "linked file"))
                }
                _ => format!(", {}", counted(findings.len(), "object")),
            };
            let text = format!("{check}: {}{what}: {recorded}{expected}", check.meaning());
            section.push(list([text], 2));
            section.push(names(locations(audit, &findings).into_iter(), most.of(FINDINGS)));
        }
        sections.push(section);
    }
    sections
}

type Group<'a> = (Check, &'a str, Option<&'a str>);

/// Findings grouped by check and values.
fn groups(audit: &Audit, severity: Severity) -> BTreeMap<Group<'_>, Vec<&Finding>> {
    let mut groups: BTreeMap<Group<'_>, Vec<&Finding>> = BTreeMap::new();
    for finding in audit.findings.iter().filter(|finding| finding.severity == severity) {
        let group = (finding.check, finding.recorded.as_str(), finding.expected.as_deref());
        groups.entry(group).or_default().push(finding);
    }
    groups
}

fn locations(audit: &Audit, findings: &[&Finding]) -> Vec<String> {
    let locations = findings.iter().filter_map(|finding| match finding.location {
        Location::Object(index) => Some(audit.objects.get(index)?.name()),
        Location::Binary(index) => Some(audit.binaries.get(index)?.path.display().to_string()),
        Location::Whole => None,
    });
    locations.collect()
}

fn binaries(audit: &Audit, most: Most) -> Vec<Section> {
    let mut binaries: Vec<&Binary> = audit.binaries.iter().collect();
    binaries.sort_by_key(|binary| Reverse(binary.sizes.stripped));
    let shown = most.of(BINARIES);
    let mut sections: Vec<Section> =
        binaries.iter().take(shown).map(|binary| of_binary(binary, most)).collect();
    if binaries.len() > shown
        && let Some(last) = sections.last_mut()
    {
        last.push(smaller(binaries.len() - shown));
    }
    sections
}

fn smaller(more: usize) -> Text {
    Text::new(format!("… and {} (--all shows them)", counted(more, "smaller linked file")))
}

/// What is known of a linked file, without its transactional functions.
fn rows(binary: &Binary) -> Vec<Fact> {
    let id = binary.build_id.as_deref().unwrap_or("none");
    let sizes = &binary.sizes;
    let mut size = vec![format!("{} executable", sizes.executable)];
    if let Some(text) = sizes.text {
        size.insert(0, format!("{text} text"));
    }
    size.extend(sizes.stripped.map(|stripped| format!("{stripped} stripped")));
    size.push(format!("{} in all", sizes.file));
    let mut rows = vec![
        Fact::new("kind", format!("{}, {}, build id {id}", binary.kind, binary.architecture)),
        Fact::new("size", size.join(", ")),
        Fact::new("records", records(binary)),
        Fact::new("protection", protections(binary)),
    ];
    if let Some(link) = binary.link_time_code {
        let text = if link { "generated code (lto)" } else { "generated no code" };
        rows.push(Fact::new("link", text));
    }
    if !binary.comments.is_empty() {
        rows.push(Fact::new("comments", binary.comments.join("; ")));
    }
    rows.extend(binary.code.iter().flat_map(machine_code));
    rows
}

fn of_binary(binary: &Binary, most: Most) -> Section {
    let mut rows = rows(binary);
    let mut transactional = None;
    if let Some(code) = &binary.code
        && !code.transactional.is_empty()
    {
        let count = counted(code.transactional.len(), "function");
        let text = format!(
            "{count} with hardware transactions; a layout optimizer must leave them whole:"
        );
        rows.push(Fact::new("xbegin", text));
        let functions = code
            .transactional
            .iter()
            .map(|f| format!("{} ({} bytes)", f.readable(), grouped(f.size)));
        transactional = Some(names(functions, most.of(FUNCTIONS)));
    }
    let mut section = Section::new("binary", binary.path.display().to_string());
    section.push(facts(rows));
    if let Some(functions) = transactional {
        section.push(functions);
    }
    section
}

/// The name of something that is there, or that it is not.
fn there_or_no((is_there, what): (bool, &str)) -> String {
    if is_there { what.to_owned() } else { format!("no {what}") }
}

fn records(binary: &Binary) -> String {
    let records = &binary.records;
    let mut words = vec![match &records.debug_file {
        Some(file) => format!("debug information in {}", file.display()),
        None => there_or_no((records.debug, "debug information")),
    }];
    let others = [
        (records.command_lines, "command lines"),
        (records.symbols, "symbols"),
        (records.relocations, "relocations"),
    ];
    words.extend(others.map(there_or_no));
    words.join(", ")
}

fn protections(binary: &Binary) -> String {
    let protections = &binary.protections;
    let mut words = vec![format!("relro {}", protections.relro)];
    let others = [
        (protections.stack_protector, "stack protector"),
        (protections.control_flow, "marked jump targets"),
        (protections.assertions, "calls of assert()"),
    ];
    words.extend(others.map(there_or_no));
    words.push(match protections.fortified.len() {
        0 => "not fortified".to_owned(),
        count => counted(count, "fortified function"),
    });
    if protections.executable_stack == Some(true) {
        words.push("executable stack".to_owned());
    }
    words.join(", ")
}

fn machine_code(code: &Code) -> [Fact; 2] {
    let from = match code.found {
        FunctionsFrom::Symbols => "symbols",
        FunctionsFrom::Unwinding => "unwinding tables",
        FunctionsFrom::Sections => "sections only",
    };
    let frames = match code.frame_pointers() {
        Some(true) => ", frame pointers",
        Some(false) => ", no frame pointers",
        None => "",
    };
    let (functions, instructions) = (grouped(code.functions), grouped(code.instructions));
    let extensions: Vec<String> = code
        .extensions
        .iter()
        .map(|(extension, used)| {
            let share = match code.share(*extension) {
                tiny if tiny.as_percent() < 0.005 => "<0.01%".to_owned(),
                share => share.to_string(),
            };
            format!("{extension} in {} ({share})", counted(used.functions as usize, "function"))
        })
        .collect();
    let extensions = if extensions.is_empty() { "none".to_owned() } else { extensions.join(", ") };
    let code = format!("{functions} functions (from {from}), {instructions} instructions{frames}");
    [Fact::new("code", code), Fact::new("extensions", extensions)]
}

/// What differs between two linked files; empty if there are several.
pub fn differing_properties(audit: &Audit, baseline: &Audit) -> Section {
    let mut section = Section::new("properties", "Properties that differ (+ here, - there)");
    if let ([here], [there]) = (&audit.binaries[..], &baseline.binaries[..]) {
        let (here, there) = (rows(here), rows(there));
        let fact = |sign, row: &Fact| Fact::new(format!("{sign} {}", row.label), row.text.clone());
        let signed = |sign: char, of: &[Fact], other: &[Fact]| -> Vec<Fact> {
            let differing = of.iter().filter(|row| !other.contains(row));
            differing.map(|row| fact(sign, row)).collect()
        };
        let mut all = [signed('+', &here, &there), signed('-', &there, &here)].concat();
        all.sort_by(|a, b| a.label[2..].cmp(&b.label[2..]));
        if !all.is_empty() {
            section.push(facts(all));
        }
    }
    section
}

/// A difference from the baseline of this name; `all` shows complete lists.
pub fn sections_of_difference(difference: &Difference, baseline: &str, all: bool) -> Vec<Section> {
    let (compared, same) = (difference.compared, grouped(difference.same as u64));
    let text = format!("{}, {same} with the same command line", counted(compared, "file"));
    let mut rows = vec![Fact::new("compared", text)];
    for (name, files) in
        [("only here", &difference.only_here), ("only there", &difference.only_in_baseline)]
    {
        if !files.is_empty() {
            let examples: Vec<&str> = files.iter().take(3).map(String::as_str).collect();
            let dots = if files.len() > 3 { ", …" } else { "" };
            let text = format!("{}: {}{dots}", counted(files.len(), "file"), examples.join(", "));
            rows.push(Fact::new(name, text));
        }
    }
    let mut section = Section::new("difference", format!("Command lines against {baseline}"));
    section.push(facts(rows));
    if difference.compared == 0 {
        section.push(Text::new(
            "No file has a recorded command line in both: build both with -g or \
             -frecord-gcc-switches (clang: -frecord-command-line).",
        ));
    }
    vec![
        section,
        changes("added", "Added", '+', &difference.added),
        changes("removed", "Removed", '-', &difference.removed),
        files(&difference.files, Most { all }),
        sizes(&difference.sizes, Most { all }),
    ]
}

fn changes(id: &'static str, title: &str, sign: char, changes: &[Change]) -> Section {
    let mut section = Section::new(id, title);
    if changes.is_empty() {
        return section;
    }
    let mut table = Table::new([Column::number("files"), Column::text("flag")]);
    for change in changes {
        let flag = format!("{sign} {}", change.flag);
        table.push(Row::new([Cell::text(grouped(change.files as u64)), Cell::text(flag)]));
    }
    section.push(table);
    section
}

/// Files, grouped by difference.
fn files(files: &[FileDifference], most: Most) -> Section {
    let mut section = Section::new("files", "Per file");
    let mut rest: Vec<&FileDifference> = files.iter().collect();
    while let Some(first) = rest.first().copied() {
        let is_like =
            |file: &FileDifference| file.added == first.added && file.removed == first.removed;
        let (like, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|file| is_like(file));
        let changes: Vec<String> = [("added", &first.added), ("removed", &first.removed)]
            .into_iter()
            .filter(|(_, flags)| !flags.is_empty())
            .map(|(change, flags)| format!("{change} {}", flags.join(", ")))
            .collect();
        let text = format!("{}: {}", counted(like.len(), "file"), changes.join("; "));
        section.push(list([text], 2));
        section.push(names(like.iter().map(|file| file.file.clone()), most.of(FILES)));
        rest = others;
    }
    section
}

/// The largest first.
fn sizes(sizes: &[SizeDifference], most: Most) -> Section {
    let mut section = Section::new("sizes", "Sizes");
    if sizes.is_empty() {
        return section;
    }
    let mut sizes: Vec<&SizeDifference> = sizes.iter().collect();
    sizes.sort_by_key(|size| Reverse(size.stripped.1));
    let shown = most.of(BINARIES).min(sizes.len());
    let mut table =
        Table::new([Column::name("file"), Column::number("text"), Column::number("stripped")]);
    // With its directory in the build, if that tells them apart.
    let short = |file: &str| {
        let slash = file.rmatch_indices('/').nth(1).map_or(0, |(slash, _)| slash + 1);
        file[slash..].to_owned()
    };
    let names: BTreeSet<String> = sizes.iter().map(|size| short(&size.file)).collect();
    for size in &sizes[..shown] {
        let file = if names.len() == sizes.len() { short(&size.file) } else { size.file.clone() };
        table.push(Row::new([file, pair(size.text), pair(size.stripped)].map(Cell::text)));
    }
    section.push(table);
    if shown < sizes.len() {
        section.push(smaller(sizes.len() - shown));
    }
    section
}

fn pair((before, now): (Option<Bytes>, Option<Bytes>)) -> String {
    let word = |bytes: Option<Bytes>| bytes.map_or_else(|| "–".to_owned(), |b| b.to_string());
    format!("{} → {}", word(before), word(now))
}

/// `1 object`, `2 objects`.
fn counted(count: usize, what: &str) -> String {
    dbdyno_units::counted(count as u64, what)
}
