//! The user's own data: SQL scripts that create and fill tables, split into statements.

use serde::{Deserialize, Serialize};

use crate::definition::Microbenchmark;
use crate::sql::{SqlPart, split_sql};

/// A SQL script of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupScript {
    /// Its name in messages: its file, or the place in the experiment.
    pub origin: String,
    /// The statements, each ended by a semicolon.
    pub text: String,
}

/// Whether these scripts or microbenchmarks use dbdyno's own tables: by `{table}`, or by a name such as
/// `sbtest1`.
pub fn use_sbtest_tables(setup: &[SetupScript], microbenchmarks: &[Microbenchmark]) -> bool {
    let statements = microbenchmarks.iter().flat_map(|one| &one.statements);
    setup.iter().any(|script| names_sbtest(&script.text))
        || statements.into_iter().any(|statement| {
            split_sql(&statement.sql).contains(&SqlPart::Table) || names_sbtest(&statement.sql)
        })
}

/// Whether a text contains a name such as `sbtest1`, in any case.
fn names_sbtest(sql: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let lower = sql.to_ascii_lowercase();
    lower.match_indices("sbtest").any(|(at, name)| {
        let before = lower.as_bytes()[..at].last();
        let after = &lower.as_bytes()[at + name.len()..];
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0
            && !before.is_some_and(|byte| is_word(*byte))
            && !after.get(digits).is_some_and(|byte| is_word(*byte))
    })
}

/// The lexical rules that differ between systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    /// MariaDB and MySQL: backslashes escape in strings, `#` starts a comment.
    MySql,
    /// PostgreSQL: strings in dollar quotes, escape strings, nested comments.
    PostgreSql,
}

/// A statement of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptStatement<'a> {
    /// The line in which it starts, from 1.
    pub line: usize,
    /// Its text, without the semicolon and without comments before it.
    pub sql: &'a str,
}

/// Splits a script at semicolons outside quotes, comments, parentheses, and the bodies of triggers and
/// routines.
pub fn split_script(text: &str, dialect: Dialect) -> Vec<ScriptStatement<'_>> {
    let mut found = Vec::new();
    let mut lexer = Lexer::new(text, dialect);
    let mut current = Current::default();
    while let Some(token) = lexer.next() {
        match token {
            Token::Space => continue,
            Token::Other(";") if current.is_at_end() => {
                if let Some(start) = current.start {
                    found.push(statement(text, start, lexer.at - 1));
                }
                current = Current::default();
                continue;
            }
            Token::Word(word) => current.add_word(word),
            Token::Other("(") => current.parentheses += 1,
            Token::Other(")") => current.parentheses = current.parentheses.saturating_sub(1),
            Token::Other(_) => {}
        }
        if matches!(token, Token::Other(_)) {
            // What follows does not belong to the word before: an IF after `END;` begins another one.
            current.previous = "";
        }
        current.start.get_or_insert(lexer.start_of(token));
    }
    if let Some(start) = current.start {
        found.push(statement(text, start, text.len()));
    }
    found
}

fn statement(text: &str, start: usize, end: usize) -> ScriptStatement<'_> {
    let line = text[..start].matches('\n').count() + 1;
    ScriptStatement { line, sql: text[start..end].trim_end() }
}

/// The words of a statement, without spaces and comments, and with what MySQL and MariaDB execute of comments.
pub(crate) fn words(sql: &str, dialect: Dialect) -> Vec<Word<'_>> {
    let mut lexer = Lexer::new(sql, dialect);
    let mut found = Vec::new();
    while let Some(token) = lexer.next() {
        match token {
            Token::Space => {}
            Token::Word(word) => found.push(Word::Plain(word)),
            Token::Other(text) if text.starts_with("/*") => {
                let inside = text.strip_prefix("/*M!").or(text.strip_prefix("/*!"));
                let inside =
                    inside.unwrap_or_default().trim_start_matches(|c: char| c.is_ascii_digit());
                found.extend(words(inside.strip_suffix("*/").unwrap_or(inside), dialect));
            }
            Token::Other(text) => {
                let quoted = text.strip_prefix(['"', '`']).and_then(|t| t.strip_suffix(['"', '`']));
                found.push(match quoted {
                    Some(name) => Word::Quoted(name.replace("\"\"", "\"").replace("``", "`")),
                    None => Word::Other(text),
                });
            }
        }
    }
    found
}

/// A word of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word<'a> {
    /// A keyword or an unquoted name.
    Plain(&'a str),
    /// A quoted name, unquoted.
    Quoted(String),
    /// Anything else: a string or a single character.
    Other(&'a str),
}

impl Word<'_> {
    /// Whether it is this keyword.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Plain(word) if word.eq_ignore_ascii_case(keyword))
    }

    pub(crate) fn is_any(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(keyword))
    }

    /// Whether it is this character.
    pub(crate) fn is_other(&self, character: &str) -> bool {
        matches!(self, Self::Other(text) if *text == character)
    }

    /// As a name; `None` if it cannot be one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Plain(name) => Some(name),
            Self::Quoted(name) => Some(name),
            Self::Other(_) => None,
        }
    }

    /// Whether it is one of these names, as the server compares them.
    pub(crate) fn is_one_of(&self, names: &[&str], dialect: Dialect) -> bool {
        names.iter().any(|name| match self {
            Self::Plain(word) if dialect == Dialect::PostgreSql => word.eq_ignore_ascii_case(name),
            word => word.name() == Some(name),
        })
    }
}

/// The statement that is being read.
#[derive(Default)]
struct Current<'a> {
    start: Option<usize>,
    parentheses: usize,
    /// Number of words so far.
    words: usize,
    /// Whether it creates a trigger, a routine or an event, which may have a body with semicolons.
    has_body: bool,
    is_create: bool,
    /// Depth of BEGIN and CASE in a body.
    depth: usize,
    previous: &'a str,
}

impl<'a> Current<'a> {
    fn is_at_end(&self) -> bool {
        self.parentheses == 0 && self.depth == 0
    }

    fn add_word(&mut self, word: &'a str) {
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        if self.words == 0 {
            self.is_create = is("CREATE");
        } else if self.is_create
            && ["TRIGGER", "PROCEDURE", "FUNCTION", "EVENT"].into_iter().any(is)
        {
            self.has_body = true;
        }
        self.words += 1;
        if self.has_body {
            let after_end = self.previous.eq_ignore_ascii_case("END");
            if is("BEGIN") || (is("CASE") && !after_end) {
                self.depth += 1;
            } else if ["IF", "LOOP", "WHILE", "REPEAT"].into_iter().any(is) && after_end {
                // END IF ends what BEGIN and CASE did not start.
                self.depth += 1;
            } else if is("END") {
                self.depth = self.depth.saturating_sub(1);
            }
        }
        self.previous = word;
    }
}

/// A token: a word, a space or comment, a whole string, or another character.
#[derive(Clone, Copy)]
pub(crate) enum Token<'a> {
    Word(&'a str),
    Space,
    Other(&'a str),
}

pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
}

impl<'a> Lexer<'a> {
    pub(crate) const fn new(text: &'a str, dialect: Dialect) -> Self {
        Self { text, at: 0, dialect }
    }

    /// The start of the token that was read last.
    fn start_of(&self, token: Token<'_>) -> usize {
        match token {
            Token::Word(text) | Token::Other(text) => self.at - text.len(),
            Token::Space => self.at,
        }
    }

    /// The word that follows if it starts with a digit.
    pub(crate) fn next_number(&mut self) -> Option<&'a str> {
        if !self.text[self.at..].starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        match self.next()? {
            Token::Word(word) => Some(word),
            Token::Space | Token::Other(_) => None,
        }
    }

    pub(crate) fn next(&mut self) -> Option<Token<'a>> {
        let start = self.at;
        let rest = &self.text[start..];
        let first = rest.chars().next()?;
        let (length, is_space) = match first {
            _ if first.is_whitespace() => (first.len_utf8(), true),
            '-' if rest.starts_with("--") && self.is_comment(&rest[2..]) => {
                (past(rest, "\n", 2), true)
            }
            '#' if self.dialect == Dialect::MySql => (past(rest, "\n", 1), true),
            // MySQL and MariaDB execute the content of this kind of comment.
            '/' if self.dialect == Dialect::MySql
                && (rest.starts_with("/*!") || rest.starts_with("/*M!")) =>
            {
                (past(rest, "*/", 3), false)
            }
            '/' if rest.starts_with("/*") => (self.comment(rest), true),
            '\'' | '"' | '`' => (self.quoted(rest, first, false), false),
            'e' | 'E' if rest[1..].starts_with('\'') && self.dialect == Dialect::PostgreSql => {
                (1 + self.quoted(&rest[1..], '\'', true), false)
            }
            '$' if self.dialect == Dialect::PostgreSql => (dollar_quoted(rest), false),
            _ if is_word(first) => {
                let length = rest.find(|c| !is_word(c) && c != '$').unwrap_or(rest.len());
                self.at += length;
                return Some(Token::Word(&rest[..length]));
            }
            _ => (first.len_utf8(), false),
        };
        self.at += length;
        Some(if is_space { Token::Space } else { Token::Other(&rest[..length]) })
    }

    /// Whether `--` before this text starts a comment: in MySQL `1--1` is 2.
    fn is_comment(&self, rest: &str) -> bool {
        let is_space = |c: char| c.is_whitespace() || c.is_control();
        self.dialect != Dialect::MySql || rest.chars().next().is_none_or(is_space)
    }

    /// The length of a string or quoted name. A doubled quote ends one string and starts the next,
    /// which is the same.
    fn quoted(&self, rest: &str, quote: char, escapes: bool) -> usize {
        let escapes = escapes || (self.dialect == Dialect::MySql && quote != '`');
        let mut chars = rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == quote {
                let end = at + c.len_utf8();
                if !rest[end..].starts_with(quote) {
                    return end;
                }
                chars.next();
            } else if c == '\\' && escapes {
                chars.next();
            }
        }
        rest.len()
    }

    /// The length of a comment; PostgreSQL's are nested.
    fn comment(&self, rest: &str) -> usize {
        if self.dialect != Dialect::PostgreSql {
            return past(rest, "*/", 2);
        }
        let (mut at, mut depth) = (0, 0);
        while at < rest.len() {
            let step = if rest[at..].starts_with("/*") {
                depth += 1;
                2
            } else if rest[at..].starts_with("*/") {
                depth -= 1;
                2
            } else {
                rest[at..].chars().next().map_or(1, char::len_utf8)
            };
            at += step;
            if depth == 0 {
                return at;
            }
        }
        rest.len()
    }
}

/// The length up to the end of `end`, searched from byte `from`.
fn past(rest: &str, end: &str, from: usize) -> usize {
    rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len())
}

/// The length of a dollar-quoted string, or of the dollar sign alone.
fn dollar_quoted(rest: &str) -> usize {
    let tag = rest[1..].find(|c| !is_word(c)).unwrap_or(rest.len() - 1) + 1;
    if !rest[tag..].starts_with('$') || rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return 1;
    }
    past(rest, &rest[..=tag], tag + 1)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A command of a client program in a statement, which servers do not know, and what to do.
pub fn client_command(sql: &str, dialect: Dialect) -> Option<(String, &'static str)> {
    let words = words(sql, dialect);
    let first = sql.split_whitespace().next().unwrap_or_default();
    let is = |keyword: &str| first.eq_ignore_ascii_case(keyword);
    let reads_input =
        || words.windows(2).any(|pair| pair[0].is("FROM") && pair[1].is("STDIN")) && is("COPY");
    match dialect {
        Dialect::PostgreSql if first.starts_with('\\') => Some((
            format!("`{first}` is a command of psql, not SQL"),
            "remove the lines that start with a backslash, as the dumps of pg_dump have",
        )),
        Dialect::PostgreSql if reads_input() => Some((
            "COPY … FROM stdin reads what follows through psql".to_owned(),
            "write the dump with `pg_dump --inserts`",
        )),
        Dialect::MySql if is("DELIMITER") || is("SOURCE") || first.starts_with('\\') => Some((
            format!("`{first}` is a command of the mysql client, not SQL"),
            "remove it; dbdyno finds the end of statements with a body itself",
        )),
        Dialect::Sqlite if first.starts_with('.') => {
            Some((format!("`{first}` is a command of the sqlite3 program, not SQL"), "remove it"))
        }
        Dialect::Sqlite | Dialect::MySql | Dialect::PostgreSql => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_dbdyno_tables_are_found() {
        for sql in ["SELECT * FROM sbtest1", "select 1 from `SBTEST12` a", "s.sbtest3.id"] {
            assert!(names_sbtest(sql), "{sql}");
        }
        for sql in ["SELECT 1", "FROM sbtest", "FROM my_sbtest1", "FROM sbtest1_copy", "sbtest_1"] {
            assert!(!names_sbtest(sql), "{sql}");
        }
    }

    const ALL: [Dialect; 3] = [Dialect::Sqlite, Dialect::MySql, Dialect::PostgreSql];

    fn split(text: &str, dialect: Dialect) -> Vec<&str> {
        split_script(text, dialect).into_iter().map(|one| one.sql).collect()
    }

    #[test]
    fn statements_have_their_lines() {
        let text = "-- data; of the shop\nCREATE TABLE a (\n  id INT\n);\n\n/* ; */ INSERT INTO a\n\
                    VALUES (1);;\nSELECT 1";
        for dialect in ALL {
            let found = split_script(text, dialect);
            let lines: Vec<_> = found.iter().map(|one| one.line).collect();
            assert_eq!(lines, [2, 6, 8]);
            assert_eq!(found[0].sql, "CREATE TABLE a (\n  id INT\n)");
            assert_eq!(found[1].sql, "INSERT INTO a\nVALUES (1)");
        }
        assert_eq!(split(" ;\n-- nothing\n;", Dialect::Sqlite), [""; 0]);
    }

    #[test]
    fn semicolons_in_quotes_and_bodies_do_not_end_a_statement() {
        let of_all = [
            "INSERT INTO a VALUES ('x;y', 'it''s; \"here')",
            "SELECT \"a;b\", `c;d`",
            "SELECT 1 /* one; two */ + 1 -- ;",
            "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE b SET n = 1; DELETE FROM c; END",
            "CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW BEGIN IF 1 THEN SET @a = CASE 1 WHEN 1 \
             THEN 2 END; END IF; SET @b = 1; END",
            "CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW BEGIN SET @a = CASE 1 WHEN 1 THEN 2 END; \
             IF 1 THEN BEGIN SET @b = 1; END; WHILE 0 DO SET @b = 2; END WHILE; END IF; END",
            "CREATE TABLE event_log (begin_time INT)",
        ];
        let mysql = [r"SELECT 'it\'s; here'", "SELECT 1 # one; two", "/*!50000 SET @a = 1; */"];
        let postgres = [
            r"SELECT E'it\'s; here'",
            "DO $$ BEGIN; END; $$",
            "DO $b$ $$; $b$",
            "SELECT 1 /* /* ; */ ; */ + 1",
            r"SELECT 'backslash\', 1",
            "CREATE RULE r AS ON INSERT TO t DO (DELETE FROM u; DELETE FROM v)",
        ];
        for dialect in ALL {
            let own = match dialect {
                Dialect::Sqlite => &[][..],
                Dialect::MySql => &mysql,
                Dialect::PostgreSql => &postgres,
            };
            for sql in of_all.iter().chain(own) {
                assert_eq!(split(&format!("{sql}\n;\nSELECT 2"), dialect), [sql, "SELECT 2"]);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_split_in_order(text in r#"([-aeE'"$`;()/*!\\\n1é_# ]|BEGIN |END |CREATE |TRIGGER ){0,40}"#) {
            for dialect in ALL {
                let mut rest = text.as_str();
                for one in split_script(&text, dialect) {
                    proptest::prop_assert!(!one.sql.trim().is_empty());
                    let at = rest.find(one.sql).expect("statements are parts of the text, in order");
                    rest = &rest[at + one.sql.len()..];
                }
            }
        }
    }

    #[test]
    fn commands_of_client_programs_are_recognized() {
        for (sql, dialect) in [
            ("\\restrict x1\n\nSET statement_timeout = 0", Dialect::PostgreSql),
            ("COPY public.t (a) FROM stdin", Dialect::PostgreSql),
            ("delimiter ;;\nCREATE TRIGGER", Dialect::MySql),
            (".mode csv", Dialect::Sqlite),
        ] {
            assert!(client_command(sql, dialect).is_some(), "{sql}");
            assert_eq!(client_command("SELECT 1", dialect), None);
        }
        assert_eq!(client_command("COPY t FROM '/tmp/x'", Dialect::PostgreSql), None);
    }
}
