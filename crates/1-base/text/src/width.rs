//! Width, padding and line breaks.

use dbdyno_units::visible_char;

/// The number of characters, used as width. Names are almost always ASCII; exact widths would
/// require a table of Unicode widths.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

pub fn left(text: &str, columns: usize) -> String {
    format!("{text:<columns$}")
}

pub fn right(text: &str, columns: usize) -> String {
    format!("{text:>columns$}")
}

/// External text in one line that cannot control the terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() { ' ' } else { visible_char(c) }).collect()
}

/// Break at spaces; longer words are not broken.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
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

/// The characters after which names break.
const SEPARATORS: [char; 6] = ['_', '-', '.', ' ', '/', '+'];

/// The width of the longest part of a name that [`break_name`] need not break.
pub(crate) fn longest_part(name: &str) -> usize {
    name.split_inclusive(SEPARATORS).map(|part| width(part.trim_end())).max().unwrap_or(0)
}

/// Break a name into lines of at most `columns`, after `_`, `-`, `.`, `/`, `+` or a space if possible.
pub fn break_name(name: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = name.chars().collect();
    while rest.len() > columns.max(1) {
        let separator = rest[..columns.max(1)].iter().rposition(|c| SEPARATORS.contains(c));
        let tail = rest.split_off(separator.map_or(columns.max(1), |at| at + 1));
        lines.push(rest.into_iter().collect());
        rest = tail;
    }
    lines.push(rest.into_iter().collect());
    lines
}

/// A name shortened to `columns`, in its middle: names often differ only at their ends.
pub fn cut(name: &str, columns: usize) -> String {
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
        assert_eq!(break_name("release+lto+native", 8), ["release+", "lto+", "native"]);
        assert_eq!(break_name("control", 7), ["control"]);
        assert_eq!(break_name("server/sql", 7), ["server/", "sql"]);
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

    #[test]
    fn cut_names_keep_both_ends() {
        assert_eq!(cut("a-long-name-1", 7), "a-l…e-1");
    }
}
