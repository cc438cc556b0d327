//! The text of the experiment, with comments for who edits it.

use std::ops::Range;

use dbdyno_document::{Problem, Problems, Span};
use dbdyno_types::SUITES;
use dbdyno_units::{Nanos, visible};
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::Microbenchmark;

use crate::build::DEFAULT_BASE;
use crate::compare::Options;
use crate::compare::candidate::{Candidate, Form, Kind, Own, System, name_of_experiment, names_of};
use crate::compare::command_line::{CommandLine, Word};

/// The microbenchmarks of a comparison that names none: a transaction that reads, and one that also
/// writes. The first one runs before any writes, so that its ratio comes early.
pub const MICROBENCHMARKS: [&str; 2] = ["read-only.pre_range=100", "read-write_range=100"];

/// Rows of a comparison: more than the longest range of a published microbenchmark, and few, because
/// loading comes before the first ratio.
pub const ROWS: u64 = 20_000;

/// Slice of writes on servers: shorter than in an experiment file, for an early ratio.
const WRITE_SLICE: Nanos = Nanos::from_millis(200);

/// Minimum slice of writes with little time: hundreds of statements.
const SHORTEST_WRITE_SLICE: Nanos = Nanos::from_millis(50);

/// Counted blocks with servers: six in each of six starts. An interval needs six, so that the first
/// start already gives one.
const MIN_BLOCKS: u32 = 36;

/// Writes the experiment.
pub fn write(
    line: &CommandLine,
    candidates: &[Candidate<'_>],
    options: &Options<'_>,
    time: Option<Nanos>,
) -> TomlText {
    let names = names_of(candidates);
    let work = Work::of(options);
    let mut text = TomlText::default();
    text.comment(&format!("Written by this command:\n{}", line.text()));
    text.comment("Run it again with `dbdyno run FILE`. All keys: docs/experiments.md");
    text.push(&format!("\nname = {}\n", quote(&name_of_experiment(&names))));
    if let (Some(first), Some(name)) = (candidates.first(), names.first()) {
        text.push_of(first.word.whole(), |text| {
            text.push(&format!("baseline = {}\n", quote(name)));
        });
    }
    workload(&mut text, options);
    if let Some(script) = &options.script {
        script.write(&mut text);
    }
    schedule(&mut text, &work, candidates, (options.time, time));
    for (candidate, name) in candidates.iter().zip(&names) {
        text.push("\n");
        text.push_of(candidate.word.whole(), |text| {
            write_candidate(text, candidate, name, options)
        });
    }
    text
}

/// The size of the work that the options select.
struct Work {
    /// Microbenchmarks times numbers of clients.
    cases: u64,
    writes: bool,
}

impl Work {
    /// Words that select nothing are reported when the text is parsed.
    fn of(options: &Options<'_>) -> Self {
        let clients = options.clients.len().max(1);
        if let Some(script) = &options.script {
            return Self { cases: clients as u64, writes: !script.only_reads };
        }
        let named = options.microbenchmarks.iter().map(|word| word.text);
        let defaults = MICROBENCHMARKS.into_iter().filter(|_| options.microbenchmarks.is_empty());
        let selected = Catalog::builtin().select(named.chain(defaults)).unwrap_or_default();
        let cases = selected.len().max(1) * clients;
        Self { cases: cases as u64, writes: selected.iter().any(Microbenchmark::writes) }
    }
}

fn workload(text: &mut TomlText, options: &Options<'_>) {
    text.push("\n[workload]\n");
    match (options.rows, &options.script) {
        (Some(rows), _) => text.push_of(rows.whole(), |text| {
            text.push(&format!("rows = {}\n", plain(rows.text)));
        }),
        (None, Some(script)) => {
            text.comment("Servers get caches for this number of rows of sysbench's tables.");
            text.push(&format!("rows = {}\n", script.rows()));
        }
        (None, None) => {
            text.comment(
                "Few, so that loading takes seconds. The default of other files is 100_000.",
            );
            text.push(&format!("rows = {ROWS}\n"));
        }
    }
    if !options.clients.is_empty() {
        text.push("clients = [");
        for (number, clients) in options.clients.iter().enumerate() {
            text.push(if number > 0 { ", " } else { "" });
            text.push_of(clients.whole(), |text| text.push(&plain(clients.text)));
        }
        text.push("]\n");
    }
    text.push("microbenchmarks = ");
    microbenchmarks(text, options);
    text.push("\n");
}

/// The list of selected microbenchmarks.
fn microbenchmarks(text: &mut TomlText, options: &Options<'_>) {
    if let Some(script) = &options.script {
        script.write_selection(text);
    } else if options.microbenchmarks.is_empty() {
        text.push(&format!("[{}]", MICROBENCHMARKS.map(quote).join(", ")));
    } else {
        list(text, options.microbenchmarks.iter().map(|word| (word, 0..word.text.len())));
    }
}

fn schedule(
    text: &mut TomlText,
    work: &Work,
    candidates: &[Candidate<'_>],
    (word, time): (Option<Word<'_>>, Option<Nanos>),
) {
    let has_servers = candidates.iter().any(|one| one.system != System::Sqlite);
    if !has_servers && time.is_none() {
        return;
    }
    // With the control.
    let instances = candidates.len() as u64 + 1;
    let each = time.map(|time| {
        Nanos::from_millis(whole_millis(time) / (instances * work.cases)).max(Nanos::from_millis(1))
    });
    text.push("\n[schedule]\n");
    if let (Some(word), Some(each)) = (word, each) {
        let cases = match work.cases {
            1 => "1 microbenchmark".to_owned(),
            cases => format!("{cases} microbenchmarks"),
        };
        text.comment(&format!(
            "{} for {instances} instances, one of them the control, and {cases}.",
            word.text
        ));
        text.push_of(word.whole(), |text| {
            text.push(&format!("budget = {}\n", duration(each)));
        });
    }
    if !has_servers {
        return;
    }
    text.comment("At least six blocks in each of six starts, so that the first one gives a ratio.");
    text.push(&format!("min_blocks = {MIN_BLOCKS}\n"));
    if work.writes {
        let slice = each.map_or(WRITE_SLICE, |each| {
            let millis = whole_millis(each) / u64::from(MIN_BLOCKS);
            Nanos::from_millis(millis).clamp(SHORTEST_WRITE_SLICE, WRITE_SLICE)
        });
        text.comment(
            "Short, for a ratio within seconds. Remove this for narrower intervals: with the\n\
             default of 1s, flushing and compaction disturb other candidates less.",
        );
        text.push(&format!("write_slice = {}\n", duration(slice)));
    }
}

/// A duration as TOML, in whole milliseconds.
fn duration(time: Nanos) -> String {
    match whole_millis(time) {
        millis if millis.is_multiple_of(1000) => format!("\"{}s\"", millis / 1000),
        millis => format!("\"{millis}ms\""),
    }
}

const fn whole_millis(time: Nanos) -> u64 {
    time.as_nanos() / 1_000_000
}

fn write_candidate(
    text: &mut TomlText,
    candidate: &Candidate<'_>,
    name: &str,
    options: &Options<'_>,
) {
    text.push("[[candidate]]\nname = ");
    write_name(text, candidate, name);
    let system = format!("system = {}\n", quote(candidate.system.name()));
    match &candidate.kind {
        Kind::Url => {
            text.push(&system);
            text.push("url = ");
            text.string(&candidate.word, 0..candidate.word.text.len());
            text.push("\n");
        }
        Kind::Own(own) => {
            let span = candidate.word.span(own.system.clone());
            text.push_of(span, |text| text.push(&system));
            write_own(text, candidate, own, options);
        }
    }
}

/// The name, which is derived or part of the word.
fn write_name(text: &mut TomlText, candidate: &Candidate<'_>, name: &str) {
    match candidate.place_of("name") {
        Some(place) => text.string(&candidate.word, place.clone()),
        None => text.push_of(candidate.word.whole(), |text| text.push(&quote(name))),
    }
    text.push("\n");
}

fn write_own(text: &mut TomlText, candidate: &Candidate<'_>, own: &Own, options: &Options<'_>) {
    let word = &candidate.word;
    if let Some(release) = &own.release {
        let name = candidate.text(release);
        text.push_of(word.span(release.clone()), |text| match SUITES.contains(&name) {
            true => text.push(&format!("release = {{ debian = {} }}\n", quote(name))),
            false => text.push(&format!("release = {}\n", quote(name))),
        });
    }
    if let Some(variant) = &own.variant {
        text.push("variant = ");
        text.string(word, variant.clone());
        text.push("\n");
    } else if candidate.system == System::Sqlite {
        text.push(&format!("variant = {}\n", quote(DEFAULT_BASE)));
    }
    for (key, name, value) in own.keys.iter().filter(|(key, ..)| key.name != "name") {
        let span = Span { end: word.span(value.clone()).end, ..word.span(name.clone()) };
        text.push_of(span, |text| {
            text.push(&format!("{} = ", key.name));
            match key.form {
                Form::String => text.string(word, value.clone()),
                Form::Plain => text.push(&plain(candidate.text(value))),
                Form::List => list(text, words(word.text, value).map(|part| (word, part))),
                Form::Source => {
                    text.push("{ path = ");
                    text.string(word, value.clone());
                    text.push(" }");
                }
            }
            text.push("\n");
        });
    }
    if candidate.needs_training() && candidate.value("training").is_none() {
        text.comment("The profile is collected with the microbenchmarks that are measured.");
        text.push("training = ");
        microbenchmarks(text, options);
        text.push("\n");
    }
    write_settings(text, candidate, own);
}

/// Settings of the database: a table of its own, so that each has a line.
fn write_settings(text: &mut TomlText, candidate: &Candidate<'_>, own: &Own) {
    if own.settings.is_empty() {
        return;
    }
    let (table, is_sqlite) = match candidate.system {
        System::Sqlite => ("sqlite", true),
        System::Server(_) => ("configuration", false),
    };
    let word = &candidate.word;
    text.push(&format!("[candidate.{table}]\n"));
    for (name, value) in &own.settings {
        let span = Span { end: word.span(value.clone()).end, ..word.span(name.clone()) };
        text.push_of(span, |text| {
            let setting = candidate.text(name);
            let is_bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            if setting.is_empty() || !setting.chars().all(is_bare) {
                text.push(&quote(setting));
            } else {
                text.push_of(word.span(name.clone()), |text| text.push(setting));
            }
            text.push(" = ");
            // SQLite's sizes are numbers of bytes, or strings with a unit.
            match candidate.text(value).parse::<u64>() {
                Ok(number) if is_sqlite => text.push(&number.to_string()),
                _ => text.string(word, value.clone()),
            }
            text.push("\n");
        });
    }
}

/// The words of a value, separated by spaces.
fn words(text: &str, value: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let all = &text[value.clone()];
    let at = |part: &str| part.as_ptr() as usize - all.as_ptr() as usize + value.start;
    let parts: Vec<_> =
        all.split_whitespace().map(|part| at(part)..at(part) + part.len()).collect();
    parts.into_iter()
}

fn list<'a, 'w: 'a>(
    text: &mut TomlText,
    values: impl Iterator<Item = (&'a Word<'w>, Range<usize>)>,
) {
    text.push("[");
    for (number, (word, part)) in values.enumerate() {
        text.push(if number > 0 { ", " } else { "" });
        text.string(word, part);
    }
    text.push("]");
}

/// A number or a boolean as TOML; any other text as a string, which is reported when it is parsed.
pub fn plain(text: &str) -> String {
    match (text, text.parse::<i64>()) {
        ("true" | "false", _) => text.to_owned(),
        (_, Ok(number)) => number.to_string(),
        _ => quote(text),
    }
}

/// The command line's name in problems.
const FILE: &str = "command line";

/// Text that is being written.
#[derive(Debug, Default)]
pub struct TomlText {
    text: String,
    origins: Vec<Origin>,
}

/// A part of the text that was written because of a part of the command line.
#[derive(Debug)]
struct Origin {
    /// In the text; of a string, without its quotes.
    written: Range<usize>,
    /// In the command line.
    span: Span,
    kind: OriginKind,
}

/// How a part of the text follows from one of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OriginKind {
    /// A string with the same text.
    Same,
    /// A string with the same value, which is escaped or quoted in another way.
    Escaped,
    /// Text that was written because of it.
    Derived,
}

impl TomlText {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn into_text(self) -> String {
        self.text
    }

    /// Adds text that no word caused.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds a comment of one or more lines.
    pub fn comment(&mut self, text: &str) {
        for line in text.lines() {
            self.text.push_str(format!("# {}", visible(line)).trim_end());
            self.text.push('\n');
        }
    }

    /// Adds text that was written because of a part of the command line.
    pub fn push_of(&mut self, span: Span, write: impl FnOnce(&mut Self)) {
        let start = self.text.len();
        write(self);
        let written = start..self.text.len();
        self.origins.push(Origin { written, span, kind: OriginKind::Derived });
    }

    /// Adds a part of a word as a string.
    pub fn string(&mut self, word: &Word<'_>, part: Range<usize>) {
        let value = &word.text[part.clone()];
        let quoted = quote(value);
        let start = self.text.len() + 1;
        self.text.push_str(&quoted);
        let end = self.text.len() - 1;
        let span = word.span(part);
        let is_same = quoted.len() == value.len() + 2 && span.end - span.start == value.len();
        let kind = if is_same { OriginKind::Same } else { OriginKind::Escaped };
        self.origins.push(Origin { written: start..end, span, kind });
    }

    /// The problems of this text, at the parts of the command line that caused them.
    pub fn problems(&self, of_text: &Problems, line: &CommandLine) -> Problems {
        let mut shown = line.masked().to_owned();
        for origin in self.origins.iter().filter(|origin| origin.kind != OriginKind::Derived) {
            // A secret of an invalid URL is masked in the text.
            let (Some(before), Some(after)) =
                (self.text.get(origin.written.clone()), of_text.text.get(origin.written.clone()))
            else {
                continue;
            };
            if before != after {
                let Span { start, end } = origin.span;
                let masked = match origin.kind {
                    OriginKind::Same => after.to_owned(),
                    // Where the secret is in the word is unknown.
                    _ => "*".repeat(end - start),
                };
                shown.replace_range(start..end, &masked);
            }
        }
        let place = |span: Span| self.place(span).unwrap_or_else(|| line.command());
        let list = of_text.list.iter().map(|one| Problem { span: place(one.span), ..one.clone() });
        problems(list.collect(), &shown)
    }

    /// The part of the command line that caused a part of the text: of those that contain its start,
    /// the shortest.
    fn place(&self, span: Span) -> Option<Span> {
        // The position of a string includes its quotes.
        let contains = |origin: &&Origin| {
            let quotes = usize::from(origin.kind != OriginKind::Derived);
            let Range { start, end } = origin.written;
            (start - quotes..=end + quotes).contains(&span.start)
        };
        let length = |origin: &&Origin| origin.written.len();
        let Origin { written, span: whole, kind } =
            self.origins.iter().filter(contains).min_by_key(length)?;
        let (start, end) = (span.start.max(written.start), span.end.min(written.end));
        if *kind != OriginKind::Same || start >= end || span.end > written.end + 1 {
            return Some(*whole);
        }
        let shift = |at: usize| at - written.start + whole.start;
        Some(Span { start: shift(start), end: shift(end) })
    }
}

/// Problems of the command line without passwords, one for each place, and none around another one: they
/// follow from it.
pub fn problems(mut list: Vec<Problem>, line: &str) -> Problems {
    list.sort_by_key(|problem| problem.span);
    list.dedup_by_key(|problem| problem.span);
    let spans: Vec<Span> = list.iter().map(|problem| problem.span).collect();
    list.retain(|Problem { span, .. }| {
        let is_inside = |one: &Span| one != span && span.start <= one.start && one.end <= span.end;
        !spans.iter().any(is_inside)
    });
    Problems { file: FILE.to_owned(), text: line.to_owned(), list }
}

/// A TOML string.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
