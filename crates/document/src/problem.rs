use std::fmt;

use crate::Span;

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The part of the text that is wrong.
    pub span: Span,
    /// What is wrong, in one line.
    pub message: String,
    /// What to try, in one line.
    pub help: Option<String>,
}

impl Problem {
    /// A problem without advice.
    #[must_use]
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None }
    }

    /// The same problem with advice.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// Everything that is wrong with a file, in the order of the text.
///
/// Prints each problem with its line of the file and the wrong part underlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file's name, as it is to be shown.
    pub file: String,
    /// The file's text.
    pub text: String,
    /// The problems; at least one.
    pub list: Vec<Problem>,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            self.show(problem, f)?;
        }
        Ok(())
    }
}

impl Problems {
    fn show(&self, problem: &Problem, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Place::of(problem.span, &self.text);
        let number = place.number.to_string();
        let margin = " ".repeat(number.len());
        let before = printable(place.before);
        let wrong = printable(place.wrong);
        let carets = "^".repeat(wrong.chars().count().max(1));
        let indent = " ".repeat(before.chars().count());

        writeln!(f, "error: {}", problem.message)?;
        let column = place.before.chars().count() + 1;
        writeln!(f, "{margin}--> {}:{number}:{column}", self.file)?;
        writeln!(f, "{margin} |")?;
        let line = format!("{before}{wrong}{}", printable(place.after));
        writeln!(f, "{}", format!("{number} | {line}").trim_end())?;
        write!(f, "{margin} | {indent}{carets}")?;
        match &problem.help {
            Some(help) => write!(f, " {help}"),
            None => Ok(()),
        }
    }
}

/// The number of the line that the byte at `offset` is in, from 1.
pub(crate) fn line_number(text: &str, offset: usize) -> usize {
    let offset = text.floor_char_boundary(offset);
    text[..offset].matches('\n').count() + 1
}

/// The line in which a span starts, cut in three.
struct Place<'t> {
    number: usize,
    before: &'t str,
    wrong: &'t str,
    after: &'t str,
}

impl<'t> Place<'t> {
    fn of(span: Span, text: &'t str) -> Self {
        let start = text.floor_char_boundary(span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        // A span may start at the line's end and may go on in later lines.
        let from = line.floor_char_boundary((start - line_start).min(line.len()));
        let to = line.floor_char_boundary(span.end.saturating_sub(line_start).min(line.len()));
        let to = to.max(from);
        Self {
            number: line_number(text, start),
            before: &line[..from],
            wrong: &line[from..to],
            after: &line[to..],
        }
    }
}

/// The text as it may go to a terminal: carets stay under what they mean, and escape sequences of
/// the file do nothing.
fn printable(text: &str) -> String {
    text.replace('\t', "    ")
        .chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn shown(text: &str, list: Vec<Problem>) -> String {
        Problems { file: "quickstart.toml".into(), text: text.into(), list }.to_string()
    }

    #[test]
    fn shows_the_line_and_underlines_the_part() {
        let text = "\n".repeat(11) + "slcie = \"50ms\"\n";
        let problem = Problem::new((11..16).into(), "unknown key `slcie` in [schedule]")
            .help("did you mean `slice`?");
        assert_snapshot!(shown(&text, vec![problem]), @r#"
        error: unknown key `slcie` in [schedule]
          --> quickstart.toml:12:1
           |
        12 | slcie = "50ms"
           | ^^^^^ did you mean `slice`?
        "#);
    }

    #[test]
    fn shows_every_problem() {
        let text = "a = 1\nb = 2";
        let list = vec![
            Problem::new((4..5).into(), "first"),
            Problem::new((10..11).into(), "second").help("advice"),
        ];
        assert_snapshot!(shown(text, list), @r"
        error: first
         --> quickstart.toml:1:5
          |
        1 | a = 1
          |     ^

        error: second
         --> quickstart.toml:2:5
          |
        2 | b = 2
          |     ^ advice
        ");
    }

    #[test]
    fn underlines_only_the_first_of_several_lines() {
        assert_snapshot!(shown("a = [\n1,\n]\r\n", vec![Problem::new((4..10).into(), "long")]), @r"
        error: long
         --> quickstart.toml:1:5
          |
        1 | a = [
          |     ^
        ");
    }

    #[test]
    fn keeps_carets_under_tabs_and_other_alphabets() {
        assert_snapshot!(shown("\tµ = \u{1b}[31mx", vec![Problem::new((6..7).into(), "here")]), @r"
        error: here
         --> quickstart.toml:1:6
          |
        1 |     µ = �[31mx
          |         ^
        ");
    }

    #[test]
    fn an_empty_file_has_a_line_too() {
        assert_snapshot!(shown("", vec![Problem::new(Span::default(), "missing key `name`")]), @r"
        error: missing key `name`
         --> quickstart.toml:1:1
          |
        1 |
          | ^
        ");
    }

    proptest::proptest! {
        #[test]
        fn any_span_of_any_text_can_be_shown(text in "\\PC*|[\\s\\S]*", start: usize, end: usize) {
            let start = start % (text.len() + 2);
            let span = Span { start, end: end % (text.len() + 2) };
            shown(&text, vec![Problem::new(span, "x")]);
        }
    }
}
