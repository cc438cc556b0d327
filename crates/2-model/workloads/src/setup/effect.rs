//! What a statement of a script creates.

use super::script::{Dialect, Word, words};

/// What a statement of a setup script does to the catalogue, as far as its text shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It creates the table of this name in the current schema.
    CreatesTable(String),
    /// It may create or rename tables.
    MayCreateTable,
    /// It changes rows, indexes or the session only.
    CreatesNoTable,
    /// It creates or changes what does not belong to the current schema's tables; with a name of the
    /// statement for messages.
    Other(String),
}

/// The effect of a statement.
#[must_use]
pub fn effect(sql: &str, dialect: Dialect) -> Effect {
    let words: Vec<Word> = words(sql, dialect).take(12).collect();
    let is = |at: usize, keyword: &str| words.get(at).is_some_and(|word| word.is(keyword));
    let first = |keywords: &[&str]| keywords.iter().any(|keyword| is(0, keyword));
    if is(0, "CREATE") {
        return created(&words);
    }
    let on_tables = is(1, "TABLE") || is(1, "INDEX");
    if first(&["SELECT", "WITH", "ALTER"]) && (!is(0, "ALTER") || on_tables) {
        // SELECT … INTO creates a table in PostgreSQL.
        return Effect::MayCreateTable;
    }
    let global = ["GLOBAL", "PERSIST", "PERSIST_ONLY", "PASSWORD", "ROLE"];
    let sets = first(&["SET"]) && !global.iter().any(|scope| is(1, scope)) && !sets_global(&words);
    let rows = [
        "INSERT", "REPLACE", "UPDATE", "DELETE", "VALUES", "BEGIN", "START", "COMMIT", "END",
        "ROLLBACK", "ANALYZE", "VACUUM", "OPTIMIZE", "CLUSTER", "TRUNCATE", "COMMENT", "LOCK",
        "UNLOCK",
    ];
    if sets || first(&rows) || (is(0, "DROP") && on_tables) {
        return Effect::CreatesNoTable;
    }
    Effect::Other(title(&words))
}

/// Whether a SET statement changes `@@global.…` or `@@persist.…`.
fn sets_global(words: &[Word]) -> bool {
    words.windows(2).any(|pair| {
        pair[0] == Word::Other("@".to_owned()) && (pair[1].is("global") || pair[1].is("persist"))
    })
}

/// The effect of a CREATE statement.
fn created(words: &[Word]) -> Effect {
    let mut rest = &words[1..];
    let mut skip = |keywords: &[&str]| {
        let matches = keywords.iter().zip(rest).filter(|(keyword, word)| word.is(keyword)).count();
        let all = matches == keywords.len();
        if all {
            rest = &rest[matches..];
        }
        all
    };
    skip(&["OR", "REPLACE"]);
    let of_session = skip(&["TEMPORARY"]) || skip(&["TEMP"]);
    skip(&["UNLOGGED"]);
    let is_index = skip(&["UNIQUE", "INDEX"]) || skip(&["FULLTEXT", "INDEX"]) || skip(&["INDEX"]);
    if is_index {
        return Effect::CreatesNoTable;
    }
    if !skip(&["TABLE"]) {
        return Effect::Other(title(words));
    }
    skip(&["IF", "NOT", "EXISTS"]);
    match rest {
        _ if of_session => Effect::CreatesNoTable,
        [_, Word::Other(dot), ..] if dot == "." => {
            Effect::Other("CREATE TABLE with the name of a schema".to_owned())
        }
        [Word::Plain(name) | Word::Quoted(name), ..] => Effect::CreatesTable(name.clone()),
        _ => Effect::MayCreateTable,
    }
}

/// The first words of a statement, as far as they are keywords.
fn title(words: &[Word]) -> String {
    let plain = words.iter().take(2).map_while(|word| match word {
        Word::Plain(word) => Some(word.to_uppercase()),
        Word::Quoted(_) | Word::Other(_) => None,
    });
    let title = plain.collect::<Vec<_>>().join(" ");
    if title.is_empty() { "this statement".to_owned() } else { title }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_tables_are_recognized() {
        for (sql, name) in [
            ("CREATE TABLE orders (id INT)", "orders"),
            ("create table if not exists `my``orders` (id INT)", "my`orders"),
            ("CREATE /* x */ OR REPLACE TABLE \"Orders\" AS SELECT 1", "Orders"),
            ("CREATE UNLOGGED TABLE orders (id INT)", "orders"),
        ] {
            assert_eq!(
                effect(sql, Dialect::PostgreSql),
                Effect::CreatesTable(name.to_owned()),
                "{sql}"
            );
        }
    }

    #[test]
    fn statements_are_classified() {
        let other = |title: &str| Effect::Other(title.to_owned());
        for (sql, expected) in [
            ("CREATE UNIQUE INDEX i ON t (a)", Effect::CreatesNoTable),
            ("CREATE TEMPORARY TABLE t (a INT)", Effect::CreatesNoTable),
            ("INSERT INTO t VALUES (1)", Effect::CreatesNoTable),
            ("SET foreign_key_checks = 0", Effect::CreatesNoTable),
            ("DROP TABLE t", Effect::CreatesNoTable),
            ("ALTER TABLE a RENAME TO b", Effect::MayCreateTable),
            ("SELECT 1 INTO t", Effect::MayCreateTable),
            ("CREATE TABLE other.t (a INT)", other("CREATE TABLE with the name of a schema")),
            ("CREATE VIEW v AS SELECT 1", other("CREATE VIEW")),
            ("CREATE OR REPLACE FUNCTION f() RETURNS int", other("CREATE OR")),
            ("SET GLOBAL max_connections = 1", other("SET GLOBAL")),
            ("SET @@global.max_connections = 1", other("SET")),
            ("GRANT ALL ON t TO u", other("GRANT ALL")),
            ("DROP DATABASE d", other("DROP DATABASE")),
            ("ALTER SYSTEM SET a = 1", other("ALTER SYSTEM")),
            ("USE d", other("USE D")),
            ("(SELECT 1)", other("this statement")),
        ] {
            assert_eq!(effect(sql, Dialect::MySql), expected, "{sql}");
        }
    }
}
