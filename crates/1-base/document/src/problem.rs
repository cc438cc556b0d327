use std::fmt;
use std::ops::Range;

use dbdyno_units::visible_char;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The invalid part of the text.
    pub span: Span,
    /// The problem, in one line.
    pub message: String,
    /// How to fix it, in one line.
    pub help: Option<String>,
}

impl Problem {
    /// A problem without help.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None }
    }

    /// The same problem with help.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// All problems of a file, in the order of the text.
///
/// Displayed with the line of each problem, with the invalid part underlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file's name for display.
    pub file: String,
    pub text: String,
    /// The problems; never empty.
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
        let start = self.text.floor_char_boundary(problem.span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        // A span may start at the end of the line and may continue in later lines.
        let at = |offset: usize| {
            line.floor_char_boundary(offset.saturating_sub(line_start).min(line.len()))
        };
        let from = at(start);
        let to = at(problem.span.end).max(from);
        let [before, wrong, after] = [&line[..from], &line[from..to], &line[to..]].map(printable);
        let number = line_number(&self.text, start).to_string();
        let margin = " ".repeat(number.len());
        let carets = "^".repeat(wrong.chars().count().max(1));
        let indent = " ".repeat(before.chars().count());

        writeln!(f, "error: {}", problem.message)?;
        let column = line[..from].chars().count() + 1;
        writeln!(f, "{margin}--> {}:{number}:{column}", self.file)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{}", format!("{number} | {before}{wrong}{after}").trim_end())?;
        write!(f, "{margin} | {indent}{carets}")?;
        match &problem.help {
            Some(help) => write!(f, " {help}"),
            None => Ok(()),
        }
    }
}

/// The line of the byte at `offset`, from 1.
pub(crate) fn line_number(text: &str, offset: usize) -> usize {
    let offset = text.floor_char_boundary(offset);
    text[..offset].matches('\n').count() + 1
}

/// The text in a form that is safe to print: carets stay aligned, and escape sequences of the file
/// have no effect.
fn printable(text: &str) -> String {
    text.replace('\t', "    ").chars().map(visible_char).collect()
}

/// A part of a file's text, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// A value and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    pub value: T,
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Another value with the same span.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned { value: change(self.value), span: self.span }
    }
}

/// The candidate that `name` is most likely a misspelling of; `None` if none is close enough.
/// Ignores case.
///
/// Close enough is one edit (a letter inserted, deleted or replaced, or two letters swapped) per
/// three letters, and at least one: `slcie` is close to `slice`, `rows` is not close to `seed`. If
/// nothing is, the only candidate that starts with `name` is the answer: `config` abbreviates
/// `configuration`.
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let lower = name.to_lowercase();
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let misspelt = candidates
        .iter()
        .filter_map(|&candidate| {
            let distance = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
            let longer = lower.chars().count().max(candidate.chars().count());
            (distance <= (longer / 3).max(1) && distance < longer).then_some((distance, candidate))
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate);
    misspelt.or_else(|| abbreviated(&lower, &candidates))
}

/// Letters of an abbreviation, at least.
const ABBREVIATION: usize = 3;

/// The only candidate that starts with a name in lowercase.
fn abbreviated<'c>(lower: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let starts = |one: &&&str| one.to_lowercase().starts_with(lower);
    let mut longer = candidates.iter().filter(starts);
    let only = longer.next().filter(|_| lower.chars().count() >= ABBREVIATION)?;
    longer.all(|other| other == only).then_some(*only)
}

/// The help text for an unknown name: the nearest valid name, or else all of them.
///
/// If there are no valid names, the text states that.
pub fn did_you_mean(name: &str, valid: &[&str]) -> String {
    match (nearest(name, valid.iter().copied()), valid) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => "there are no valid names".to_owned(),
        (None, [only]) => format!("the only valid name is `{only}`"),
        (None, _) => format!("valid are `{}`", valid.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn shown(text: &str, list: Vec<Problem>) -> String {
        Problems { file: "quickstart.toml".into(), text: text.into(), list }.to_string()
    }

    #[test]
    fn problem_is_shown_with_its_line_underlined() {
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
    fn all_problems_are_shown() {
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
    fn only_first_line_of_a_span_is_underlined() {
        assert_snapshot!(shown("a = [\n1,\n]\r\n", vec![Problem::new((4..10).into(), "long")]), @r"
        error: long
         --> quickstart.toml:1:5
          |
        1 | a = [
          |     ^
        ");
    }

    #[test]
    fn carets_are_aligned_after_tabs_and_wide_characters() {
        assert_snapshot!(shown("\tµ = \u{1b}[31mx", vec![Problem::new((6..7).into(), "here")]), @r"
        error: here
         --> quickstart.toml:1:6
          |
        1 |     µ = ␛[31mx
          |         ^
        ");
    }

    #[test]
    fn empty_file_has_one_line() {
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
        fn any_span_of_any_text_is_shown(text in "\\PC*|[\\s\\S]*", start: usize, end: usize) {
            let start = start % (text.len() + 2);
            let span = Span { start, end: end % (text.len() + 2) };
            shown(&text, vec![Problem::new(span, "x")]);
        }
    }

    const KEYS: [&str; 5] = ["slice", "write_slice", "pace", "target", "id"];

    #[test]
    fn nearest_name_is_found() {
        assert_eq!(nearest("slcie", KEYS), Some("slice"));
        assert_eq!(nearest("Slice", KEYS), Some("slice"));
        assert_eq!(nearest("writeslice", KEYS), Some("write_slice"));
        assert_eq!(nearest("targets", KEYS), Some("target"));
    }

    #[test]
    fn distant_names_are_not_suggested() {
        assert_eq!(nearest("budget", KEYS), None);
        assert_eq!(nearest("", KEYS), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("slice", []), None);
    }

    #[test]
    fn unique_abbreviation_is_completed() {
        let keys = ["configuration", "configure", "configure_with", "durability"];
        assert_eq!(nearest("dura", keys), Some("durability"));
        assert_eq!(nearest("config", ["name", "configuration"]), Some("configuration"));
        assert_eq!(nearest("conf", keys), None, "ambiguous");
        assert_eq!(nearest("du", keys), None, "too short");
    }

    #[test]
    fn all_names_are_listed_when_none_is_near() {
        assert_eq!(did_you_mean("pac", &KEYS), "did you mean `pace`?");
        assert_eq!(did_you_mean("budget", &["wal", "off"]), "valid are `wal`, `off`");
    }
}
