//! Passwords in a file's text are not for the terminal, nor for a log of it.

use std::ops::Range;

/// The text with every password in something like a URL blotted out, byte for byte, so that places
/// in it stay what they are.
///
/// This looks at the raw text: it also works where the file's syntax is wrong, or where a URL
/// stands at an unknown key.
pub fn without_passwords(text: &str) -> String {
    let mut blotted = text.to_owned();
    for (scheme_end, separator) in text.match_indices("://") {
        let start = scheme_end + separator.len();
        let url = &text[start..];
        let url = &url[..url.find(ends_url).unwrap_or(url.len())];
        // A password with unescaped signs may hold an @ itself, hence the last one.
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

fn ends_url(c: char) -> bool {
    c.is_whitespace() || c == '"' || c == '\''
}

/// Puts stars over a part of the text; lines stay lines. A part that cuts through a character, or
/// lies outside, changes nothing.
pub fn blot(text: &mut String, part: Range<usize>) {
    let Some(secret) = text.get(part.clone()) else { return };
    let stars: String = secret.bytes().map(|byte| if byte == b'\n' { '\n' } else { '*' }).collect();
    text.replace_range(part, &stars);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blots_out_passwords_and_nothing_else() {
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
            ("nothing: here@all", "nothing: here@all"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_keeps_its_length(text in "[a:/@ '\"µ?=&]{0,30}|[\\s\\S]*") {
            proptest::prop_assert_eq!(without_passwords(&text).len(), text.len());
        }
    }
}
