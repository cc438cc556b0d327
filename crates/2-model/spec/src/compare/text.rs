//! The text of the experiment, with comments for who edits it, and the command line that caused it.

use std::ops::Range;
use std::path::Path;

use dbdyno_document::{Problem, Problems, Span, parse_count, without_passwords};
use dbdyno_units::{Nanos, visible};
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::Microbenchmark;

use crate::build::DEFAULT_BASE;
use crate::candidate::Program;
use crate::compare::Options;
use crate::compare::candidate::{Candidate, Form, Own, ReleaseFrom, name_of_experiment, names_of};

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

/// Time per candidate and microbenchmark, and counted blocks, of a screening.
const SCREENING_BUDGET: Nanos = Nanos::from_secs(2);
const SCREENING_BLOCKS: u32 = 20;

/// The first line of a text, above the command line.
const WRITTEN: &str = "Written by this command:";

/// Whether the text of an experiment was written for a command line.
pub fn is_of_command_line(text: &str) -> bool {
    text.strip_prefix("# ").is_some_and(|text| text.starts_with(WRITTEN))
}

pub fn write(
    line: &CommandLine,
    candidates: &[Candidate<'_>],
    options: &Options<'_>,
    time: Option<Nanos>,
) -> TomlText {
    let names = names_of(candidates);
    let work = Work::of(options);
    let mut text = TomlText::default();
    text.comment(&format!("{WRITTEN}\n{}", line.text));
    text.comment("Run it again with `dbdyno run FILE`. All keys: docs/experiments.md");
    text.push(&format!("\nname = {}\n", quote(&name_of_experiment(&names))));
    if let (Some(first), Some(name)) = (candidates.first(), names.first()) {
        text.of(first.word.whole(), &format!("baseline = {}\n", quote(name)));
    }
    workload(&mut text, options);
    if let Some(script) = &options.script {
        script.write(&mut text);
    }
    if let Some(sql) = &options.sql {
        sql.write(&mut text);
    }
    schedule(&mut text, &work, candidates, options, time);
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
        if let Some(sql) = &options.sql {
            let cases = sql.microbenchmarks().max(1) * clients;
            return Self { cases: cases as u64, writes: sql.writes() };
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
        (Some(rows), _) => text.of(rows.whole(), &format!("rows = {}\n", count(rows.text))),
        (None, Some(script)) => {
            text.comment("Servers get caches for this number of rows of sysbench's tables.");
            text.push(&format!("rows = {}\n", script.rows()));
        }
        (None, None) => {
            let why = "Few, so that loading takes seconds. The default of other files is 100_000.";
            text.comment(why);
            text.push(&format!("rows = {ROWS}\n"));
        }
    }
    if !options.clients.is_empty() {
        text.entry("clients", |text| {
            list(text, &options.clients, |text, clients| {
                text.of(clients.whole(), &count(clients.text))
            });
        });
    }
    if let Some(sql) = &options.sql {
        sql.write_setup(options.directory, text);
    }
    text.entry("microbenchmarks", |text| microbenchmarks(text, options));
}

fn microbenchmarks(text: &mut TomlText, options: &Options<'_>) {
    if let Some(script) = &options.script {
        script.write_selection(text);
    } else if let Some(sql) = &options.sql {
        sql.write_selection(text);
    } else if options.microbenchmarks.is_empty() {
        text.push(&format!("[{}]", MICROBENCHMARKS.map(quote).join(", ")));
    } else {
        list(text, &options.microbenchmarks, |text, word| text.string(word, 0..word.text.len()));
    }
}

fn schedule(
    text: &mut TomlText,
    work: &Work,
    candidates: &[Candidate<'_>],
    options: &Options<'_>,
    time: Option<Nanos>,
) {
    let Options { time: word, target, is_screening, .. } = *options;
    let has_servers = candidates.iter().any(|one| one.system != Program::Sqlite);
    if !has_servers && time.is_none() && target.is_none() && !is_screening {
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
            "{} in all, with warm-up, for {instances} instances, one of them the control, and {cases}.",
            word.text
        ));
        text.of(word.whole(), &format!("budget = {}\n", duration(each)));
    }
    if is_screening && word.is_none() {
        text.push(&format!("budget = {}\n", duration(SCREENING_BUDGET)));
    }
    if is_screening {
        text.comment("Screening, in one start: what differs is measured again in several.");
        text.push(&format!("restarts = 1\nmin_blocks = {SCREENING_BLOCKS}\n"));
    }
    if let Some(target) = target {
        text.entry("target", |text| text.string(&target, 0..target.text.len()));
    }
    if !has_servers {
        return;
    }
    if !is_screening {
        let why = "At least six blocks in each of six starts, so that the first one gives a ratio.";
        text.comment(why);
        text.push(&format!("min_blocks = {MIN_BLOCKS}\n"));
    }
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
    let word = &candidate.word;
    text.push("[[candidate]]\nname = ");
    match candidate.place_of("name") {
        Some(place) => text.string(word, place.clone()),
        None => text.of(word.whole(), &quote(name)),
    }
    let system = format!("\nsystem = {}\n", quote(candidate.system.name()));
    match &candidate.own {
        None => {
            text.push(&system);
            text.entry("url", |text| text.string(word, 0..word.text.len()));
        }
        Some(own) => {
            text.of(word.span(own.system.clone()), &system);
            write_own(text, candidate, own, options);
        }
    }
}

fn write_own(text: &mut TomlText, candidate: &Candidate<'_>, own: &Own, options: &Options<'_>) {
    let word = &candidate.word;
    if let Some(release) = &own.release {
        let value = match own.from {
            ReleaseFrom::Suite(suite) => format!("{{ debian = {} }}", quote(suite)),
            ReleaseFrom::Published(version) => {
                quote(&format!("{}-{version}", candidate.system.name()))
            }
            ReleaseFrom::Installed => quote(candidate.text(release)),
        };
        text.of(word.span(release.clone()), &format!("release = {value}\n"));
    }
    if let Some(variant) = &own.variant {
        text.entry("variant", |text| text.string(word, variant.clone()));
    } else if candidate.system == Program::Sqlite {
        text.push(&format!("variant = {}\n", quote(DEFAULT_BASE)));
    }
    for (key, name, value) in own.keys.iter().filter(|(key, ..)| key.name != "name") {
        text.push_of(word.span(name.start..value.end), |text| {
            text.entry(key.name, |text| match key.form {
                Form::String => text.string(word, value.clone()),
                Form::File => {
                    let path = absolute(options.directory, candidate.text(value));
                    text.of(word.span(value.clone()), &quote(&path));
                }
                Form::Plain => text.push(&plain(candidate.text(value))),
                Form::List => {
                    list(text, words(word.text, value), |text, part| text.string(word, part));
                }
                Form::Source => {
                    text.push("{ path = ");
                    text.string(word, value.clone());
                    text.push(" }");
                }
            });
        });
    }
    if candidate.needs_training() && candidate.value("training").is_none() {
        text.comment("The profile is collected with the microbenchmarks that are measured.");
        text.entry("training", |text| microbenchmarks(text, options));
    }
    // A table of its own, so that each setting has a line.
    let is_sqlite = candidate.system == Program::Sqlite;
    let table = if is_sqlite { "sqlite" } else { "configuration" };
    for (number, (name, value)) in own.settings.iter().enumerate() {
        if number == 0 {
            text.push(&format!("[candidate.{table}]\n"));
        }
        text.push_of(word.span(name.start..value.end), |text| {
            text.key(candidate.text(name), word.span(name.clone()));
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

fn list<T>(
    text: &mut TomlText,
    values: impl IntoIterator<Item = T>,
    write: impl Fn(&mut TomlText, T),
) {
    text.push("[");
    for (number, value) in values.into_iter().enumerate() {
        text.push(if number > 0 { ", " } else { "" });
        write(text, value);
    }
    text.push("]");
}

/// A count as a TOML integer. TOML has none above 2^63 - 1.
fn count(text: &str) -> String {
    parse_count(text).map_or_else(|_| quote(text), |count| count.min(i64::MAX as u64).to_string())
}

/// A number or a boolean as TOML; any other text as a string, which is reported when it is parsed.
pub fn plain(text: &str) -> String {
    match (text, text.parse::<i64>()) {
        ("true" | "false", _) => text.to_owned(),
        (_, Ok(number)) => number.to_string(),
        _ => quote(text),
    }
}

/// Text that is being written.
#[derive(Debug, Default)]
pub struct TomlText {
    pub text: String,
    /// Parts of the text, and the parts of the command line that caused them.
    origins: Vec<(Range<usize>, Span)>,
}

impl TomlText {
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
        self.origins.push((start..self.text.len(), span));
    }

    /// Like [`TomlText::push_of`], with text that no other part of the command line caused.
    pub fn of(&mut self, span: Span, text: &str) {
        self.push_of(span, |whole| whole.push(text));
    }

    /// Adds a part of a word as a string.
    pub fn string(&mut self, word: &Word<'_>, part: Range<usize>) {
        self.of(word.span(part.clone()), &quote(&word.text[part]));
    }

    /// Adds a key and its value.
    fn entry(&mut self, key: &str, write: impl FnOnce(&mut Self)) {
        self.push(&format!("{key} = "));
        write(self);
        self.push("\n");
    }

    /// A name as a key.
    pub fn key(&mut self, name: &str, span: Span) {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        match !name.is_empty() && name.chars().all(is_bare) {
            true => self.of(span, name),
            false => self.of(span, &quote(name)),
        }
        self.push(" = ");
    }

    /// The problems of this text, at the parts of the command line that caused them.
    pub fn problems(&self, of_text: &Problems, line: &CommandLine) -> Problems {
        let place = |span: Span| self.place(span, line).unwrap_or_else(|| line.command());
        let list = of_text.list.iter().map(|one| Problem { span: place(one.span), ..one.clone() });
        line.problems(list.collect())
    }

    /// The part of the command line that caused a part of the text: of those that contain its start,
    /// the shortest.
    fn place(&self, span: Span, line: &CommandLine) -> Option<Span> {
        let around = self.origins.iter().filter(|(written, _)| written.contains(&span.start));
        let (written, whole) = around.min_by_key(|(written, _)| written.len())?;
        // A string has quotes, and may be escaped or quoted in another way than in the line.
        let quotes = usize::from(self.text[written.clone()].starts_with('"'));
        let inner = written.start + quotes..written.end - quotes;
        let (start, end) = (span.start.max(inner.start), span.end.min(inner.end));
        let is_same = self.text.get(inner.clone()) == line.text.get(whole.start..whole.end);
        if !is_same || start >= end || span.end > written.end {
            return Some(*whole);
        }
        let shift = |at: usize| at - inner.start + whole.start;
        Some(Span { start: shift(start), end: shift(end) })
    }
}

/// A file that is named from the current directory.
pub fn absolute(directory: &str, file: &str) -> String {
    Path::new(directory).join(file).to_string_lossy().into_owned()
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

/// The words of a command in one line, quoted as for a shell.
#[derive(Clone, Debug)]
pub struct CommandLine {
    pub text: String,
    /// The same, with passwords masked and as many bytes.
    masked: String,
    /// The length of the program and the command, before the words.
    command: usize,
}

/// A word and its position in the line.
#[derive(Clone, Copy, Debug)]
pub struct Word<'w> {
    pub text: &'w str,
    /// Where it starts in the line, after a quote.
    start: usize,
    /// Its length in the line. If it contains quotes, this is not that of the word, and only the whole
    /// word can be pointed at.
    length: usize,
}

impl CommandLine {
    /// The line of a command of dbdyno, without words.
    pub fn new(command: &str) -> Self {
        let text = format!("dbdyno {command}");
        Self { command: text.len(), masked: text.clone(), text }
    }

    pub fn push<'w>(&mut self, word: &'w str) -> Word<'w> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:=+@/%".contains(c);
        let quote = if word.is_empty() || !word.chars().all(is_plain) { "'" } else { "" };
        let start = self.text.len() + 1 + quote.len();
        let escaped = word.replace('\'', r"'\''");
        self.text.push_str(&format!(" {quote}{escaped}{quote}"));
        self.masked.push_str(&format!(" {quote}{}{quote}", without_passwords_of_word(&escaped)));
        Word { text: word, start, length: escaped.len() }
    }

    /// Adds an option with its value; returns the value.
    pub fn push_option<'w>(&mut self, option: &str, value: &'w str) -> Word<'w> {
        self.push(option);
        self.push(value)
    }

    /// The name of the command, for problems of no single word.
    pub const fn command(&self) -> Span {
        Span { start: 0, end: self.command }
    }

    /// Problems without passwords, one for each part of the line, and none around another one: they
    /// follow from it.
    pub fn problems(&self, mut list: Vec<Problem>) -> Problems {
        list.sort_by_key(|problem| problem.span);
        list.dedup_by_key(|problem| problem.span);
        let spans: Vec<Span> = list.iter().map(|problem| problem.span).collect();
        list.retain(|Problem { span, .. }| {
            let is_inside =
                |one: &Span| one != span && span.start <= one.start && one.end <= span.end;
            !spans.iter().any(is_inside)
        });
        Problems { file: "command line".to_owned(), text: self.masked.clone(), list }
    }
}

/// A word without passwords, as long as before. A URL ends with its word: quotes and spaces in it may be
/// part of a password.
fn without_passwords_of_word(word: &str) -> String {
    let url = word.replace(['"', '\'', '\n'], "x");
    let masked = without_passwords(&format!("\"{url}")).split_off(1);
    if masked == url { word.to_owned() } else { masked }
}

impl Word<'_> {
    /// The position of a part of the word.
    pub fn span(&self, part: Range<usize>) -> Span {
        if self.length != self.text.len() {
            return self.whole();
        }
        Span { start: self.start + part.start, end: self.start + part.end }
    }

    pub const fn whole(&self) -> Span {
        Span { start: self.start, end: self.start + self.length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_for_a_shell_and_keep_their_positions() {
        let mut line = CommandLine::new("compare");
        let plain = line.push("postgresql@15:engine=x");
        let quoted = line.push("mariadb{a=b}");
        let apostrophe = line.push("a'b");
        assert_eq!(line.text, r"dbdyno compare postgresql@15:engine=x 'mariadb{a=b}' 'a'\''b'");
        let at = |span: Span| &line.text[span.start..span.end];
        assert_eq!(at(plain.span(11..13)), "15");
        assert_eq!(at(quoted.span(8..9)), "a");
        assert_eq!(at(apostrophe.span(0..1)), r"a'\''b");
        assert_eq!(at(line.command()), "dbdyno compare");
    }
}
