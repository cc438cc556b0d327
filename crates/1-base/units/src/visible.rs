//! Text from files, servers and processes, in a form that cannot control a terminal.

use std::borrow::Cow;

/// A character that a terminal shows and does not execute.
///
/// A control character becomes its symbol, such as `␛` for the escape character. A character that
/// changes the direction of the text after it, or a control character without a symbol, becomes
/// `�`. The result is always one character, so columns stay aligned.
#[must_use]
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
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    let shown = |c| if matches!(c, '\n' | '\t') { c } else { visible_char(c) };
    if text.chars().all(|c| shown(c) == c) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
