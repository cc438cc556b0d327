//! Text from outside, made harmless.

use std::fmt::{self, Write};

/// Text to be shown as it is, in an element or in a quoted attribute.
pub(crate) struct Escaped<'a>(&'a str);

/// Escapes everything that could end the text or start markup.
pub(crate) const fn esc(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A name in which lines may break after `_`, `-` and `.`: nothing else breaks in it.
pub(crate) fn breakable(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 16);
    for part in name.split_inclusive(['_', '-', '.']) {
        if !out.is_empty() {
            out.push_str("<wbr>");
        }
        out.push_str(&esc(part).to_string());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        let text = esc("<script>\"a\" & 'b'</script>").to_string();
        assert_eq!(text, "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;");
    }
}
