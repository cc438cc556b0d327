//! Colours, padding and line breaks.

use crate::model::Verdict;

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
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn better(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn worse(self, text: &str) -> String {
        self.with("31", text)
    }

    /// The text in the colour of the verdict.
    pub(crate) fn verdict(self, verdict: Verdict, text: &str) -> String {
        match verdict {
            Verdict::Better => self.better(text),
            Verdict::Worse => self.worse(text),
            Verdict::Failed => self.with("1;31", text),
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

/// External text without control characters, which could rewrite the screen.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
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

/// A name truncated to `columns`.
pub(super) fn cut(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_owned();
    }
    name.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
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
    fn control_characters_are_removed() {
        assert_eq!(plain("a\x1b[2Jb"), "a [2Jb");
    }

    #[test]
    fn text_wraps_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
    }
}
