//! `postgresql.conf`, as `guc-file.l` of PostgreSQL reads it.

use super::{Fault, Place, Reader};

const SYNTAX: &str = "a setting is NAME = VALUE, and a value with other characters than letters, digits and \
     -._:/ is in single quotes";

impl Reader<'_> {
    pub(super) fn postgresql_conf(&mut self, file: &str, text: &str) -> Result<(), Fault> {
        for (line, text) in (1..).zip(text.split('\n')) {
            let place = Place { file, line };
            let read = setting(text).map_err(|near| {
                place.fault(format!("syntax error near `{}`", near.trim_end()), SYNTAX)
            })?;
            let Some((name, value)) = read else { continue };
            match name.to_ascii_lowercase().as_str() {
                "include_dir" => self.directory(&place.resolve(&value), ".conf", place)?,
                "include" => self.file(&place.resolve(&value), Some(place))?,
                "include_if_exists" => {
                    let path = place.resolve(&value);
                    if (self.files)(&path).is_ok() {
                        self.file(&path, Some(place))?;
                    }
                }
                _ => self.add(place, (name, value), None)?,
            }
        }
        Ok(())
    }
}

/// The name and the value of a line, if it has any; else the text at which the error is.
fn setting(line: &str) -> Result<Option<(&str, String)>, &str> {
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\r');
    let text = line.trim_start_matches(is_space);
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let end = text.find(|c| !is_name(c) && c != '.').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(text);
    }
    let rest = rest.trim_start_matches(is_space);
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start_matches(is_space);
    let (value, after) = match rest.strip_prefix('\'') {
        Some(quoted) => string(quoted).ok_or(rest)?,
        None => {
            let is_part = |c: char| is_name(c) || matches!(c, '-' | '.' | ':' | '/' | '+');
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let starts = |c: char| is_name(c) || matches!(c, '-' | '+' | '.');
            if !rest[..end].starts_with(starts) {
                return Err(rest);
            }
            (rest[..end].to_owned(), &rest[end..])
        }
    };
    let after = after.trim_start_matches(is_space);
    if after.is_empty() || after.starts_with('#') { Ok(Some((name, value))) } else { Err(after) }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// The string whose quote was opened, and the text after it.
fn string(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if chars.next_if(|(_, next)| *next == '\'').is_some() => value.push('\''),
            '\'' => return Some((value, &text[at + 1..])),
            '\\' => {
                let (_, escaped) = chars.next()?;
                let mut code = escaped.to_digit(8);
                for _ in 0..2 {
                    let next = code.and_then(|_| chars.next_if(|(_, c)| c.is_digit(8)));
                    let Some((_, digit)) = next else { break };
                    code = code.zip(digit.to_digit(8)).map(|(code, digit)| code * 8 + digit);
                }
                value.push(match (code, escaped) {
                    (Some(code), _) => char::from_u32(code & 0xff)?,
                    (None, 'b') => '\u{8}',
                    (None, 'f') => '\u{c}',
                    (None, 'n') => '\n',
                    (None, 'r') => '\r',
                    (None, 't') => '\t',
                    (None, other) => other,
                });
            }
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_server_reads_them() {
        for (line, name, value) in [
            ("shared_buffers = 8GB", "shared_buffers", "8GB"),
            ("\tmax_connections 100\t\t# (change requires restart)\r", "max_connections", "100"),
            ("log_line_prefix = '%m [%p] %q%u@%d '", "log_line_prefix", "%m [%p] %q%u@%d "),
            ("a='it''s # \\'x\\' \\101\\\\' # c", "a", "it's # 'x' A\\"),
            ("auto_explain.log_min_duration=-1", "auto_explain.log_min_duration", "-1"),
            ("random_page_cost=1.1", "random_page_cost", "1.1"),
            ("a=''", "a", ""),
            ("archive_mode off", "archive_mode", "off"),
            ("x = Europe/Berlin", "x", "Europe/Berlin"),
        ] {
            assert_eq!(setting(line), Ok(Some((name, value.to_owned()))), "{line}");
        }
        for line in ["", "  \t\r", "# a = 1", "   #"] {
            assert_eq!(setting(line), Ok(None), "{line}");
        }
        for (line, near) in [
            ("a", ""),
            ("a =", ""),
            ("a = 'b", "'b"),
            ("a = 1 2", "2"),
            ("a = b, c", ", c"),
            ("8GB = a", "8GB = a"),
            ("[mysqld]", "[mysqld]"),
            ("a = # b", "# b"),
        ] {
            assert_eq!(setting(line), Err(near), "{line}");
        }
    }
}
