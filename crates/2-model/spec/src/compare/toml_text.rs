//! The text of an experiment, with the origin of each value in the command line.

use std::ops::Range;

use dbdyno_document::{Problem, Problems, Span};
use dbdyno_units::visible;

use super::command_line::{CommandLine, Word};

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
