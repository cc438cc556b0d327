use std::cell::RefCell;
use std::ops::Range;

use crate::problem::line_number;
use crate::secret::{blot, without_passwords};
use crate::{Problem, Problems, Span, Table};

/// A TOML file's text, its tables, and the problems found so far.
#[derive(Debug)]
pub struct Document {
    file: String,
    text: String,
    toml: toml_edit::Document<String>,
    problems: RefCell<Vec<Problem>>,
    secrets: RefCell<Vec<Span>>,
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

    /// Masks a part of the text in all problems shown. Passwords in URLs are masked anyway, as far
    /// as they are recognized.
    pub fn conceal(&self, span: Span) {
        self.secrets.borrow_mut().push(span);
    }

    /// The number of problems so far; if it did not change, the text read since is valid.
    #[must_use]
    pub fn problem_count(&self) -> usize {
        self.problems.borrow().len()
    }

    /// The line in which `span` starts, from 1.
    #[must_use]
    pub fn line_of(&self, span: Span) -> usize {
        line_number(&self.text, span.start)
    }

    /// The span of a part of a string: `part` is a byte range of `value`, the string at `span`. If
    /// escapes make the file's text differ from the string, the span of the whole string.
    #[must_use]
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
}
