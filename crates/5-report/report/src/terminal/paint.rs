//! Colours, padding and line breaks.

use dbdyno_units::visible_char;

use crate::model::Verdict;

const BOLD: &str = "1";
const DIM: &str = "2";
const BETTER: &str = "32";
const WORSE: &str = "31";
const FAILED: &str = "1;31";
const END: &str = "0";

/// The codes of all ANSI colours in the text for terminals: escape sequences `ESC [ CODE m`.
pub const COLOR_CODES: [&str; 6] = [BOLD, DIM, BETTER, WORSE, FAILED, END];

/// Adds ANSI colours if enabled.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    color: bool,
}

impl Paint {
    pub(crate) const fn new(color: bool) -> Self {
        Self { color }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[{END}m")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with(BOLD, text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with(DIM, text)
    }

    pub(crate) fn better(self, text: &str) -> String {
        self.with(BETTER, text)
    }

    pub(crate) fn worse(self, text: &str) -> String {
        self.with(WORSE, text)
    }

    /// The text in the colour of the verdict.
    pub(crate) fn verdict(self, verdict: Verdict, text: &str) -> String {
        match verdict {
            Verdict::Better => self.better(text),
            Verdict::Worse => self.worse(text),
            Verdict::Failed => self.with(FAILED, text),
            Verdict::ClientBound | Verdict::NoInterval => text.to_owned(),
            Verdict::WithinNoise | Verdict::Unknown => self.dim(text),
        }
    }
}

/// The number of characters, used as width. Names are almost always ASCII; exact widths would
/// require a table of Unicode widths.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

pub(crate) fn left(text: &str, columns: usize) -> String {
    format!("{text:<columns$}")
}

pub(crate) fn right(text: &str, columns: usize) -> String {
    format!("{text:>columns$}")
}

/// External text in one line that cannot control the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() { ' ' } else { visible_char(c) }).collect()
}

/// Break at spaces; longer words are not broken.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Break a name into lines of at most `columns`, after `_`, `-` or `.` if possible.
pub(crate) fn break_name(name: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = name.chars().collect();
    while rest.len() > columns.max(1) {
        let separator = rest[..columns.max(1)].iter().rposition(|c| "_-. ".contains(*c));
        let tail = rest.split_off(separator.map_or(columns.max(1), |at| at + 1));
        lines.push(rest.into_iter().collect());
        rest = tail;
    }
    lines.push(rest.into_iter().collect());
    lines
}

/// A name shortened to `columns`, in its middle: names often differ only at their ends.
pub(crate) fn cut(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_owned();
    }
    let kept = columns.saturating_sub(1);
    let start = name.chars().take(kept.div_ceil(2));
    start.chain(['…']).chain(name.chars().skip(width(name) - kept / 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_break_after_separators() {
        assert_eq!(break_name("rel_native_lto", 7), ["rel_", "native_", "lto"]);
        assert_eq!(break_name("control", 7), ["control"]);
        assert_eq!(break_name("averylongname", 5), ["avery", "longn", "ame"]);
    }

    #[test]
    fn external_text_is_one_line_without_control_characters() {
        assert_eq!(plain("a\x1b[2Jb\nc"), "a␛[2Jb c");
    }

    #[test]
    fn text_wraps_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
    }
}
