//! The command line as a text to point at.

use std::ops::Range;

use dbdyno_document::{Span, without_passwords};

/// The words of a command in one line, quoted as for a shell.
#[derive(Clone, Debug)]
pub struct CommandLine {
    text: String,
    /// The same with passwords masked.
    masked: String,
    /// The length of the program and the command, before the words.
    command: usize,
}

/// A word and its position in the line.
#[derive(Clone, Copy, Debug)]
pub struct Word<'w> {
    /// The word, without quotes.
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

    /// Adds a word.
    pub fn push<'w>(&mut self, word: &'w str) -> Word<'w> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:=+@/%".contains(c);
        let quote = if word.is_empty() || !word.chars().all(is_plain) { "'" } else { "" };
        let start = self.text.len() + 1 + quote.len();
        let escaped = word.replace('\'', r"'\''");
        for (line, word) in
            [(&mut self.text, &escaped), (&mut self.masked, &without_passwords_of_word(&escaped))]
        {
            line.push_str(&format!(" {quote}{word}{quote}"));
        }
        Word { text: word, start, length: escaped.len() }
    }

    /// Adds an option with its value; returns the value.
    pub fn push_option<'w>(&mut self, option: &str, value: &'w str) -> Word<'w> {
        self.push(option);
        self.push(value)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same text, with as many bytes, without passwords.
    pub fn masked(&self) -> &str {
        &self.masked
    }

    /// The name of the command, for problems of no single word.
    pub const fn command(&self) -> Span {
        Span { start: 0, end: self.command }
    }
}

/// A word without passwords, which may contain apostrophes.
fn without_passwords_of_word(word: &str) -> String {
    let quote = if word.contains('"') { '\'' } else { '"' };
    without_passwords(&format!("{quote}{word}")).split_off(quote.len_utf8())
}

impl Word<'_> {
    /// The position of a part of the word.
    pub fn span(&self, part: Range<usize>) -> Span {
        if self.length != self.text.len() {
            return self.whole();
        }
        Span { start: self.start + part.start, end: self.start + part.end }
    }

    /// The position of the word.
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
        assert_eq!(line.text(), r"dbdyno compare postgresql@15:engine=x 'mariadb{a=b}' 'a'\''b'");
        let at = |span: Span| &line.text()[span.start..span.end];
        assert_eq!(at(plain.span(11..13)), "15");
        assert_eq!(at(quoted.span(8..9)), "a");
        assert_eq!(at(apostrophe.span(0..1)), r"a'\''b");
        assert_eq!(at(line.command()), "dbdyno compare");
    }
}
