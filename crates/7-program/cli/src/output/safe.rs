//! What may reach a terminal: everything printed passes through one of these functions, because it
//! may quote files, servers and processes of others.

use std::borrow::Cow;

use dbdyno_report::terminal::COLOR_CODES;
pub use dbdyno_units::visible;
use dbdyno_units::visible_char;

/// The text as [`visible`], except for the colours of reports.
pub fn visible_with_colors(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut out = visible(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let code = COLOR_CODES.into_iter().find_map(|code| {
            let rest = part.strip_prefix('[')?.strip_prefix(code)?.strip_prefix('m')?;
            Some((code, rest))
        });
        match code {
            Some((code, rest)) => out.push_str(&format!("\x1b[{code}m{}", visible(rest))),
            None => {
                out.push(visible_char('\x1b'));
                out.push_str(&visible(part));
            }
        }
    }
    out
}

/// JSON with the same meaning in which characters that control a terminal are escaped.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    // JSON has none of these characters outside of strings, and none below U+0020 inside.
    let is_safe = |c: char| c == '\n' || visible_char(c) == c;
    if json.chars().all(is_safe) {
        return Cow::Borrowed(json);
    }
    let escape = |c: char| match is_safe(c) {
        true => c.to_string(),
        false => format!("\\u{:04x}", u32::from(c)),
    };
    Cow::Owned(json.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colors_of_reports_are_kept() {
        let painted = "\x1b[1;31mFAILED\x1b[0m \x1b[2J\x1b[35m\x1b]0;title\x07\x1b[1";
        assert_eq!(visible_with_colors(painted), "\x1b[1;31mFAILED\x1b[0m ␛[2J␛[35m␛]0;title␇␛[1");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "name": "a\x1b\u{9b}31m\u{202e}\x7f\n" });
        let text = format!("{value:#}\n");
        let safe = visible_json(&text);
        assert!(safe.chars().all(|c| c == '\n' || visible_char(c) == c), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
