//! Masking of passwords, which must not appear on the terminal or in logs.

use std::ops::Range;

/// The text with every password in a URL masked byte for byte, so that offsets remain valid.
///
/// Works on the raw text, so that it also covers syntax errors and URLs at unknown keys.
pub fn without_passwords(text: &str) -> String {
    let mut blotted = text.to_owned();
    for (scheme_end, separator) in text.match_indices("://") {
        let start = scheme_end + separator.len();
        let url = &text[start..];
        let quote = quote_before(&text[..scheme_end]);
        let url = &url[..url.find(|c| ends_url(c, quote)).unwrap_or(url.len())];
        // An unescaped password may contain an `@`, so the last one ends it.
        if let Some(at) = url.rfind('@')
            && let Some(colon) = url[..at].find(':')
        {
            blot(&mut blotted, start + colon + 1..start + at);
        }
        for (name, _) in url.match_indices("password=") {
            let value = name + "password=".len();
            let length = url[value..].find('&').unwrap_or(url.len() - value);
            blot(&mut blotted, start + value..start + value + length);
        }
    }
    blotted
}

/// The quote that a URL starts after, from the text before it with its scheme.
fn quote_before(text: &str) -> Option<char> {
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    text.trim_end_matches(is_scheme).chars().next_back().filter(|c| is_quote(*c))
}

const fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}

/// Whether a URL that starts after this quote, if any, ends before the character. A password in quotes may
/// contain spaces and the other quote.
fn ends_url(c: char, quote: Option<char>) -> bool {
    match quote {
        Some(quote) => c == quote || c == '\n',
        None => c.is_whitespace() || is_quote(c),
    }
}

/// Replaces a part of the text with asterisks, except line breaks. Has no effect if the part is out
/// of range or splits a character.
pub fn blot(text: &mut String, part: Range<usize>) {
    let Some(secret) = text.get(part.clone()) else { return };
    let stars: String = secret.bytes().map(|byte| if byte == b'\n' { '\n' } else { '*' }).collect();
    text.replace_range(part, &stars);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_passwords_are_masked() {
        for (text, shown) in [
            (
                "url = \"mysql://me:geheim@host/db\" # a:b@c",
                "url = \"mysql://me:******@host/db\" # a:b@c",
            ),
            ("'postgres://me:p@ss:w/rd?@host'", "'postgres://me:**********@host'"),
            ("mysql://me:µ@host", "mysql://me:**@host"),
            ("mysql://me:@host", "mysql://me:@host"),
            ("mysql://me@host:3306/?tls=off", "mysql://me@host:3306/?tls=off"),
            ("mysql://h/?password=geheim&tls=off", "mysql://h/?password=******&tls=off"),
            ("a://b:c@d a://e:f@g", "a://b:*@d a://e:*@g"),
            ("'mysql://me:geheim@host\nname = 'x@y:z'", "'mysql://me:******@host\nname = 'x@y:z'"),
            (r#"ulr = "mysql://me:ge'h eim@host/""#, r#"ulr = "mysql://me:********@host/""#),
            (r#"'mysql://me:ge"heim@host'"#, r#"'mysql://me:*******@host'"#),
            ("nothing: here@all", "nothing: here@all"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }

    proptest::proptest! {
        #[test]
        fn masking_keeps_the_length_of_any_text(text in "[a:/@ '\"µ?=&]{0,30}|[\\s\\S]*") {
            proptest::prop_assert_eq!(without_passwords(&text).len(), text.len());
        }
    }
}
