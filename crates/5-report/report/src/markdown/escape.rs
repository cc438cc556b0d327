//! Text of others as Markdown that shows exactly this text, also inside a table.

use crate::terminal::paint;

/// Characters that can start markup, an entity or a reference.
const SPECIAL: &str = "\\`*[]<>|&~#$@!";

/// The text without markup, in one line.
pub(crate) fn plain(text: &str) -> String {
    let characters: Vec<char> = paint::plain(text).chars().collect();
    let mut escaped = String::with_capacity(characters.len());
    for (at, c) in characters.iter().enumerate() {
        let is_word = |at: Option<usize>| {
            at.and_then(|at| characters.get(at)).is_some_and(|c| c.is_alphanumeric())
        };
        // An underscore inside a word is no markup.
        let inside = is_word(at.checked_sub(1)) && is_word(Some(at + 1));
        match c {
            // Parsers differ on a backslash before an escaped pipe.
            '\\' => escaped.push_str("&#92;"),
            '_' if inside => escaped.push('_'),
            '_' => escaped.push_str("\\_"),
            c if SPECIAL.contains(*c) => escaped.extend(['\\', *c]),
            c => escaped.push(*c),
        }
    }
    escaped
}

/// The text as code; without markup where code cannot show it.
pub(crate) fn code(text: &str) -> String {
    let text = paint::plain(text);
    let is_code = !text.trim().is_empty() && !text.contains(['`', '|', '\\']);
    if is_code { format!("`{text}`") } else { plain(&text) }
}
