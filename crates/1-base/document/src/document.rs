use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use crate::problem::line_number;
use crate::{Problem, Problems, Span, Table};

/// A TOML file's text, its tables, and the problems found so far.
#[derive(Debug)]
pub struct Document {
    file: String,
    text: String,
    toml: toml_edit::Document<String>,
    problems: RefCell<Vec<Problem>>,
    secrets: RefCell<Vec<Span>>,
    pub(crate) keys: RefCell<BTreeSet<String>>,
}

impl Document {
    /// Parses `text`; problems are shown with the name `file`.
    ///
    /// # Errors
    /// The first syntax error: the parser stops there.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        match toml_edit::Document::parse(text.to_owned()) {
            Ok(toml) => Ok(Self {
                file: file.to_owned(),
                text: text.to_owned(),
                toml,
                problems: RefCell::default(),
                secrets: RefCell::default(),
                keys: RefCell::default(),
            }),
            Err(error) => {
                let span = error.span().unwrap_or(0..0).into();
                let message = error.message().lines().collect::<Vec<_>>().join("; ");
                let list = vec![Problem::new(span, message)];
                Err(Problems { file: file.to_owned(), text: without_passwords(text), list })
            }
        }
    }

    /// The top-level table.
    pub fn root(&self) -> Table<'_> {
        Table::root(self, self.toml.as_table())
    }

    /// Adds a problem, unless the same one was already reported.
    pub fn report(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Adds a problem with help.
    pub fn problem(&self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.report(Problem::new(span, message).help(help));
    }

    /// Masks a part of the text in all problems shown. Passwords in URLs are masked anyway, as far
    /// as they are recognized.
    pub fn conceal(&self, span: Span) {
        self.secrets.borrow_mut().push(span);
    }

    /// All keys that were read so far, present or not, each with its tables: `schedule.slice`.
    pub fn keys(&self) -> BTreeSet<String> {
        self.keys.borrow().clone()
    }

    /// The number of problems so far; if it did not change, the text read since is valid.
    pub fn problem_count(&self) -> usize {
        self.problems.borrow().len()
    }

    /// The line in which `span` starts, from 1.
    pub fn line_of(&self, span: Span) -> usize {
        line_number(&self.text, span.start)
    }

    /// The span of a part of a string: `part` is a byte range of `value`, the string at `span`. If
    /// escapes make the file's text differ from the string, the span of the whole string.
    pub fn within(&self, span: Span, value: &str, part: Range<usize>) -> Span {
        match self.text.get(span.start..span.end).and_then(|raw| raw.find(value)) {
            Some(offset) => {
                let start = span.start + offset;
                Span { start: start + part.start, end: start + part.end }
            }
            None => span,
        }
    }

    /// Finishes reading.
    ///
    /// # Errors
    /// All reported problems, in the order of the text, with secrets masked.
    pub fn finish(self) -> Result<(), Problems> {
        let mut list = self.problems.into_inner();
        if list.is_empty() {
            return Ok(());
        }
        list.sort_by_key(|problem| problem.span);
        let mut text = without_passwords(&self.text);
        for secret in self.secrets.into_inner() {
            blot(&mut text, secret.start..secret.end);
        }
        Err(Problems { file: self.file, text, list })
    }
}

/// The text with every password in a URL masked byte for byte, so that offsets remain valid.
///
/// Works on the raw text, so that it also covers syntax errors and URLs at unknown keys.
pub fn without_passwords(text: &str) -> String {
    let mut blotted = text.to_owned();
    for (scheme_end, separator) in text.match_indices("://") {
        let start = scheme_end + separator.len();
        let url = &text[start..];
        let quote = quote_before(&text[..scheme_end]);
        let url = &url[..url.find(|c| ends_url(c, quote)).unwrap_or(url.len())];
        // An unescaped password may contain an `@`, so the last one ends it.
        if let Some(at) = url.rfind('@')
            && let Some(colon) = url[..at].find(':')
        {
            blot(&mut blotted, start + colon + 1..start + at);
        }
        for (name, _) in url.match_indices("password=") {
            let value = name + "password=".len();
            let length = url[value..].find('&').unwrap_or(url.len() - value);
            blot(&mut blotted, start + value..start + value + length);
        }
    }
    blotted
}

/// The quote that a URL starts after, from the text before it with its scheme.
fn quote_before(text: &str) -> Option<char> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    text.trim_end_matches(is_scheme).chars().next_back().filter(|c| is_quote(*c))
}

const fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}

/// Whether a URL that starts after this quote, if any, ends before the character. A password in quotes may
/// contain spaces and the other quote.
fn ends_url(c: char, quote: Option<char>) -> bool {
    match quote {
        Some(quote) => c == quote || c == '\n',
        None => c.is_whitespace() || is_quote(c),
    }
}

/// Replaces a part of the text with asterisks, except line breaks. Has no effect if the part is out
/// of range or splits a character.
pub fn blot(text: &mut String, part: Range<usize>) {
    let Some(secret) = text.get(part.clone()) else { return };
    let stars: String = secret.bytes().map(|byte| if byte == b'\n' { '\n' } else { '*' }).collect();
    text.replace_range(part, &stars);
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn syntax(text: &str) -> String {
        Document::parse("bad.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn syntax_error_is_shown_at_its_position() {
        assert_snapshot!(syntax("name = \"quick\"\nslice 50\n"), @r"
        error: key with no value, expected `=`
         --> bad.toml:2:7
          |
        2 | slice 50
          |       ^
        ");
        assert_snapshot!(syntax("name = \"quick\n"), @r#"
        error: invalid basic string, expected `"`
         --> bad.toml:1:14
          |
        1 | name = "quick
          |              ^
        "#);
        assert_snapshot!(syntax("a = 1\na = 2\n"), @r"
        error: duplicate key
         --> bad.toml:2:1
          |
        2 | a = 2
          | ^
        ");
        assert_snapshot!(syntax("[schedule\n"), @r"
        error: unclosed table, expected `]`
         --> bad.toml:1:10
          |
        1 | [schedule
          |          ^
        ");
    }

    #[test]
    fn part_of_a_string_has_its_own_span() {
        let document = Document::parse("x.toml", r#"a = "SELECT :id""#).unwrap();
        let whole = Span { start: 4, end: 16 };
        let part = document.within(whole, "SELECT :id", 7..10);
        assert_eq!(part, Span { start: 12, end: 15 });
        assert_eq!(document.within(whole, "other", 0..1), whole);
    }

    proptest::proptest! {
        #[test]
        fn any_text_parses_or_is_rejected(text in "[\\s\\S]*") {
            let _ = Document::parse("x.toml", &text);
        }

        #[test]
        fn toml_like_text_parses_or_is_rejected(
            text in "([\\[\\]{}=.,\"'#\n\r ab1_\\-+:]|\\[\\[a\\]\\]|\\[a\\]|\n)*"
        ) {
            if let Err(problems) = Document::parse("x.toml", &text) {
                let _ = problems.to_string();
            }
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_snapshot!(syntax("url = \"mysql://me:geheim@host\n"), @r#"
        error: invalid basic string, expected `"`
         --> bad.toml:1:30
          |
        1 | url = "mysql://me:******@host
          |                              ^
        "#);
        let text = "ulr = 'mysql://me:geheim@host'\ntoken = 'abc'";
        let document = Document::parse("bad.toml", text).unwrap();
        let mut root = document.root();
        let token = root.string("token").unwrap();
        document.conceal((token.span.start + 1..token.span.end - 1).into());
        document.report(Problem::new(token.span, "expired"));
        root.finish();
        let problems = document.finish().unwrap_err();
        assert!(!format!("{problems:?}").contains("geheim"));
        assert_snapshot!(problems.to_string(), @r"
        error: unknown key `ulr`
         --> bad.toml:1:1
          |
        1 | ulr = 'mysql://me:******@host'
          | ^^^

        error: expired
         --> bad.toml:2:9
          |
        2 | token = '***'
          |         ^^^^^
        ");
    }

    #[test]
    fn only_passwords_are_masked() {
        for (text, shown) in [
            (
                "url = \"mysql://me:geheim@host/db\" # a:b@c",
                "url = \"mysql://me:******@host/db\" # a:b@c",
            ),
            ("'postgres://me:p@ss:w/rd?@host'", "'postgres://me:**********@host'"),
            ("mysql://me:µ@host", "mysql://me:**@host"),
            ("mysql://me:@host", "mysql://me:@host"),
            ("mysql://me@host:3306/?tls=off", "mysql://me@host:3306/?tls=off"),
            ("mysql://h/?password=geheim&tls=off", "mysql://h/?password=******&tls=off"),
            ("a://b:c@d a://e:f@g", "a://b:*@d a://e:*@g"),
            ("'mysql://me:geheim@host\nname = 'x@y:z'", "'mysql://me:******@host\nname = 'x@y:z'"),
            (r#"ulr = "mysql://me:ge'h eim@host/""#, r#"ulr = "mysql://me:********@host/""#),
            (r#"'mysql://me:ge"heim@host'"#, r#"'mysql://me:*******@host'"#),
            ("nothing: here@all", "nothing: here@all"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }

    proptest::proptest! {
        #[test]
        fn masking_keeps_the_length_of_any_text(text in "[a:/@ '\"µ?=&]{0,30}|[\\s\\S]*") {
            proptest::prop_assert_eq!(without_passwords(&text).len(), text.len());
        }
    }
}
