//! Numbers, words of a shell and foreign text as text.

use std::borrow::Cow;
use std::fmt;

/// An integer with a comma after each three digits: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with what it counts, whose plural ends with `s`: `1 row`, `2,000 rows`.
pub fn counted(number: u64, one: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{} {one}{end}", grouped(number))
}

/// One word for a POSIX shell, quoted if it has special characters.
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    // Within single quotes, only the single quote itself is special.
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A character that a terminal shows and does not execute.
///
/// A control character becomes its symbol, such as `␛` for the escape character. A character that
/// changes the direction of the text after it, or a control character without a symbol, becomes
/// `�`. The result is always one character, so columns stay aligned.
pub fn visible_char(c: char) -> char {
    match c {
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}' => '\u{fffd}',
        // Marks, embeddings, overrides and isolates of bidirectional text; line separators.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            '\u{fffd}'
        }
        other => other,
    }
}

/// The text with all characters as [`visible_char`], except line feeds and tabs.
pub fn visible(text: &str) -> Cow<'_, str> {
    let shown = |c| if matches!(c, '\n' | '\t') { c } else { visible_char(c) };
    if text.chars().all(|c| shown(c) == c) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(shown).collect())
}

/// A text of limited length for demangled names: a short symbol can refer to its parts so often that they would fill
/// the memory. Names of templates have some thousands of bytes.
#[derive(Debug, Default)]
pub struct LimitedText(pub String);

impl LimitedText {
    /// Its maximum length in bytes.
    pub const LONGEST: usize = 64 << 10;
}

impl fmt::Write for LimitedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > Self::LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        let shown = [0, 999, 1_000, 99_999, 1_234_567, u64::MAX].map(grouped);
        assert_eq!(
            shown,
            ["0", "999", "1,000", "99,999", "1,234,567", "18,446,744,073,709,551,615"]
        );
    }

    #[test]
    fn only_one_is_singular() {
        let shown = [0, 1, 2, 2_000].map(|number| counted(number, "row"));
        assert_eq!(shown, ["0 rows", "1 row", "2 rows", "2,000 rows"]);
    }

    #[test]
    fn only_special_words_are_quoted() {
        assert_eq!(shell_quoted("-march=native"), "-march=native");
        assert_eq!(shell_quoted("results/first"), "results/first");
        assert_eq!(shell_quoted("-DX=("), "'-DX=('");
        assert_eq!(shell_quoted("größe"), "'größe'");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
        assert_eq!(shell_quoted(""), "''");
    }

    #[test]
    fn control_characters_are_shown_as_symbols() {
        assert_eq!(visible("a\tb\n"), "a\tb\n");
        assert_eq!(visible("\x1b]0;title\x07\r\x7f"), "␛]0;title␇␍␡");
        assert_eq!(visible("\u{9b}31m\u{202e}txt.exe"), "�31m�txt.exe");
        assert_eq!(visible("größer ✓"), "größer ✓");
    }

    #[test]
    fn no_control_character_remains() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            assert!(!visible_char(c).is_control(), "{c:?}");
        }
    }
}
