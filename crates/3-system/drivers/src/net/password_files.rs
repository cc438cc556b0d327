//! Passwords in the option files of database clients.

/// The password in the section `[client]` of a MySQL option file
/// (<https://dev.mysql.com/doc/refman/8.4/en/option-files.html>). The last one wins. Included files
/// are not read.
pub(super) fn option_password(text: &str) -> Option<String> {
    let mut in_client = false;
    let mut password = None;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            in_client = section.split(']').next().is_some_and(|name| name.trim() == "client");
        } else if in_client
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "password"
        {
            password = Some(option_value(value.trim()));
        }
    }
    password
}

/// Removes quotes, comment and escapes from a value.
fn option_value(value: &str) -> String {
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
    let inner = match quote {
        Some(quote) => match value[1..].rfind(quote) {
            Some(end) => &value[1..=end],
            None => value,
        },
        // A comment may follow an unquoted value.
        None => value.split('#').next().unwrap_or_default().trim_end(),
    };
    let mut plain = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('b') => plain.push('\u{8}'),
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('s') => plain.push(' '),
            Some(same @ ('\\' | '"' | '\'')) => plain.push(same),
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    plain
}

/// The password of the first matching line `host:port:database:user:password`; `*` matches anything
/// (<https://www.postgresql.org/docs/current/libpq-pgpass.html>).
pub(super) fn pgpass_password(
    text: &str,
    hosts: &[String],
    port: &str,
    database: &str,
    user: &str,
) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let mut next = || fields.next();
        let matches = |field: &Field, value: &str| field.is_star() || field.plain == value;
        let host = next()?;
        let is_match = hosts.iter().any(|name| matches(&host, name))
            && matches(&next()?, port)
            && matches(&next()?, database)
            && matches(&next()?, user);
        if is_match { next().map(|password| password.plain) } else { None }
    })
}

/// A field with escapes removed.
#[derive(Default)]
struct Field {
    plain: String,
    escaped: bool,
}

impl Field {
    fn is_star(&self) -> bool {
        self.plain == "*" && !self.escaped
    }
}

/// The first four fields, and the rest as the fifth: a password may contain colons.
fn fields(line: &str) -> Vec<Field> {
    let mut fields = vec![Field::default()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let count = fields.len();
        let Some(field) = fields.last_mut() else { break };
        match character {
            ':' if count < 5 => fields.push(Field::default()),
            '\\' => {
                field.escaped = true;
                field.plain.push(characters.next().unwrap_or('\\'));
            }
            other => field.plain.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_password_of_the_client_section_wins() {
        let text = "password=before\n[mysqld]\npassword=server\n[client]\nuser = ann\n\
                    password = first\n# password=comment\npassword = last # remark\n[mysql]\n\
                    password=shell\n";
        assert_eq!(option_password(text).as_deref(), Some("last"));
        assert_eq!(option_password("[client]\nuser=ann\n"), None);
    }

    #[test]
    fn quotes_and_escapes_are_removed() {
        let of = |value: &str| option_password(&format!("[client]\npassword={value}\n")).unwrap();
        assert_eq!(of("\"a # b\""), "a # b");
        assert_eq!(of("'it\\'s'"), "it's");
        assert_eq!(of("two\\swords\\\\"), "two words\\");
        assert_eq!(of("\\q"), "\\q");
        assert_eq!(of(""), "");
    }

    #[test]
    fn first_matching_line_wins() {
        let text =
            "# remark\nother:5432:*:*:wrong\nhost:5432:db\\:1:an\\\\n:pa:ss\\\\\n*:*:*:*:any\n";
        let of = |host: &str, database: &str, user: &str| {
            pgpass_password(text, &[host.to_owned()], "5432", database, user)
        };
        assert_eq!(of("host", "db:1", "an\\n").as_deref(), Some("pa:ss\\"));
        assert_eq!(of("host", "db", "ann").as_deref(), Some("any"));
        assert_eq!(pgpass_password("a:b:c\n\n", &["a".to_owned()], "b", "c", "d"), None);
        let star = "\\*:*:*:*:escaped\n";
        assert_eq!(pgpass_password(star, &["h".to_owned()], "1", "d", "u"), None);
    }
}
