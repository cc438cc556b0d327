//! `my.cnf`, as `mysys/my_default.c` of MariaDB and MySQL reads it.

use dbdyno_types::server::ServerSystem;

use super::{Fault, Place, Reader};

/// Whose settings follow a line `[GROUP]`.
enum Group<'t> {
    /// No line of a group yet.
    None,
    /// Another program's.
    Other,
    Server,
    /// This version's of the server.
    Version(&'t str),
}

impl<'t> Group<'t> {
    fn of(name: &'t str, system: ServerSystem) -> Self {
        let [plain, with_version] = system.facts().option_groups;
        if plain.iter().any(|one| one.eq_ignore_ascii_case(name)) {
            return Self::Server;
        }
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        match name.rsplit_once('-') {
            Some((group, version))
                if with_version.iter().any(|one| one.eq_ignore_ascii_case(group))
                    && version.split('.').count() == 2
                    && version.split('.').all(is_number) =>
            {
                Self::Version(version)
            }
            _ => Self::Other,
        }
    }
}

impl Reader<'_> {
    pub(super) fn my_cnf(&mut self, file: &str, text: &str) -> Result<(), Fault> {
        let mut group = Group::None;
        for (line, text) in (1..).zip(text.lines()) {
            let place = Place { file, line };
            let text = text.trim();
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            } else if let Some(directive) = text.strip_prefix('!') {
                self.directive(place, directive.trim_start())?;
            } else if let Some(rest) = text.strip_prefix('[') {
                let Some((name, _)) = rest.split_once(']') else {
                    return Err(place.fault("a group has no `]`", "write [mysqld]"));
                };
                let name = name.trim_end();
                group = Group::of(name, self.system);
                if matches!(group, Group::Other) {
                    self.other_groups.insert(name.to_owned());
                }
            } else {
                let version = match group {
                    Group::None => {
                        let help = "write [mysqld] above it";
                        return Err(place.fault("there is a setting before any group", help));
                    }
                    Group::Other => continue,
                    Group::Server => None,
                    Group::Version(version) => Some(version),
                };
                self.add(place, setting(text), version)?;
            }
        }
        Ok(())
    }

    /// `!include FILE` or `!includedir DIRECTORY`.
    fn directive(&mut self, place: Place<'_>, text: &str) -> Result<(), Fault> {
        let (word, path) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let path = path.trim();
        if path.is_empty() || !["include", "includedir"].contains(&word) {
            let help = "write `!include FILE` or `!includedir DIRECTORY`";
            return Err(place.fault(format!("`!{text}` is not a directive"), help));
        }
        let path = place.resolve(path);
        if word == "includedir" {
            return self.directory(&path, ".cnf", place);
        }
        // As servers do.
        if (self.files)(&path).is_err() {
            self.leave_out(place, format!("!include {path}"), "there is no such file");
            return Ok(());
        }
        self.file(&path, Some(place))
    }
}

/// The name and the value of a line; without a value, the setting is switched on.
fn setting(text: &str) -> (&str, String) {
    let text = without_comment(text);
    match text.split_once('=') {
        None => (text.trim_end(), "ON".to_owned()),
        Some((name, value)) => (name.trim_end(), unescaped(unquoted(value.trim()))),
    }
}

/// The text before a `#` outside quotes.
fn without_comment(text: &str) -> &str {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, c) in text.char_indices() {
        if (c == '\'' || c == '"') && !is_escaped {
            match quote {
                None => quote = Some(c),
                Some(open) if open == c => quote = None,
                Some(_) => {}
            }
        }
        if quote.is_none() && c == '#' {
            return text[..at].trim_end();
        }
        is_escaped = quote.is_some() && c == '\\' && !is_escaped;
    }
    text
}

fn unquoted(value: &str) -> &str {
    let inner = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

fn unescaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' || chars.peek().is_none() {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('b') => text.push('\u{8}'),
            Some('s') => text.push(' '),
            Some(c @ ('"' | '\'' | '\\')) => text.push(c),
            other => text.extend(['\\'].into_iter().chain(other)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_servers_read_them() {
        for (line, name, value) in [
            ("skip-name-resolve", "skip-name-resolve", "ON"),
            ("innodb_buffer_pool_size=80G", "innodb_buffer_pool_size", "80G"),
            ("sql_mode = ''", "sql_mode", ""),
            ("a =  b c # d", "a", "b c"),
            ("a = b ; c", "a", "b ; c"),
            ("a = 'b # c' # d", "a", "b # c"),
            (r#"a = "b \" # c" # d"#, "a", r#"b " # c"#),
            (r"a = \\x\s\q\", "a", r"\x \q\"),
            ("a = \"b", "a", "\"b"),
            ("a = b=c", "a", "b=c"),
            ("log-bin#x", "log-bin", "ON"),
        ] {
            assert_eq!(setting(line), (name, value.to_owned()), "{line}");
        }
    }

    #[test]
    fn groups_of_servers_are_read() {
        let group = |name, system| match Group::of(name, system) {
            Group::None | Group::Other => "".to_owned(),
            Group::Server => "all".to_owned(),
            Group::Version(version) => version.to_owned(),
        };
        for (name, mariadb, mysql) in [
            ("mysqld", "all", "all"),
            ("Server", "all", "all"),
            ("mariadb", "all", ""),
            ("client-server", "all", ""),
            ("mysqld-8.0", "8.0", "8.0"),
            ("mariadb-10.11", "10.11", ""),
            ("mysqld_safe", "", ""),
            ("mysqld-8", "", ""),
            ("mysqld1", "", ""),
            ("client", "", ""),
            ("é", "", ""),
        ] {
            assert_eq!(group(name, ServerSystem::MariaDb), mariadb, "{name}");
            assert_eq!(group(name, ServerSystem::MySql), mysql, "{name}");
        }
    }
}
