//! What statements of the user's scripts do to the catalogue, as far as their text shows. Decides what `setup` and
//! sysbench scripts may do on an existing server.

use crate::setup::{Dialect, Word, split_script, words};

/// What a statement of a script does to the catalogue, from the least to the most.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It changes rows, indexes or the session only.
    CreatesNoTable,
    /// It may create tables.
    MayCreateTable,
    /// It creates the table of this name in the current schema, gives a table this name, or prepares that.
    CreatesTable(String),
    /// It creates or changes what does not belong to the current schema's tables; with a name of the
    /// statement for messages.
    Other(String),
}

/// What scripts may do on an existing server, for messages.
pub const ALLOWED: &str = "there, statements may create tables and indexes, and change their rows and session settings: \
                           dbdyno would not remove anything else";

/// Statements that change rows or tables of the current schema, or the session.
const HARMLESS: [&str; 36] = [
    "INSERT",
    "REPLACE",
    "UPDATE",
    "DELETE",
    "MERGE",
    "TRUNCATE",
    "VALUES",
    "TABLE",
    "SHOW",
    "EXPLAIN",
    "DESC",
    "DESCRIBE",
    "BEGIN",
    "START",
    "COMMIT",
    "END",
    "ROLLBACK",
    "ABORT",
    "SAVEPOINT",
    "RELEASE",
    "ANALYZE",
    "VACUUM",
    "OPTIMIZE",
    "CHECK",
    "CHECKSUM",
    "CLUSTER",
    "COMMENT",
    "LOCK",
    "UNLOCK",
    "PREPARE",
    "EXECUTE",
    "DEALLOCATE",
    "DECLARE",
    "FETCH",
    "CLOSE",
    "SET",
];

/// Statements that are not, although their first word is one of [`HARMLESS`].
const HARMFUL: [(&str, &str); 11] = [
    ("BEGIN", "NOT"),
    ("EXECUTE", "IMMEDIATE"),
    ("LOCK", "INSTANCE"),
    ("START", "REPLICA"),
    ("START", "SLAVE"),
    ("START", "ALL"),
    ("START", "GROUP_REPLICATION"),
    ("SET", "PASSWORD"),
    ("SET", "ROLE"),
    ("SET", "DEFAULT"),
    ("SET", "SCHEMA"),
];

/// Objects of tables, which a comment may belong to.
const OF_TABLES: [&str; 4] = ["TABLE", "COLUMN", "INDEX", "CONSTRAINT"];

/// Words after which a statement names a table that it changes, if no keyword follows.
const BEFORE_NAMES: [&str; 26] = [
    "ANALYZE",
    "CLUSTER",
    "CONCURRENTLY",
    "DELAYED",
    "FULL",
    "HIGH_PRIORITY",
    "VERBOSE",
    "INTO",
    "INSERT",
    "REPLACE",
    "DELETE",
    "TRUNCATE",
    "IGNORE",
    "LOW_PRIORITY",
    "QUICK",
    "ONLY",
    "TABLE",
    "TABLES",
    "EXISTS",
    "REFERENCES",
    "PARTITION",
    "OF",
    "INHERIT",
    "LOCK",
    "VACUUM",
    "INDEX",
];

/// What a statement of a text does that no script may do on an existing server, where the run has these schemas.
pub fn refused(text: &str, dialect: Dialect, own: &[&str]) -> Option<String> {
    match effect(text, dialect, own) {
        Effect::Other(what) => Some(what),
        Effect::CreatesTable(_) | Effect::MayCreateTable | Effect::CreatesNoTable => None,
    }
}

/// The effect of a text's statements: that of the one that does most. `own` are the names of the run's schemas.
pub fn effect(text: &str, dialect: Dialect, own: &[&str]) -> Effect {
    let statements = split_script(text, dialect).into_iter();
    let effects = statements.map(|one| effect_of(&words(one.sql, dialect), dialect, own));
    effects.max().unwrap_or(Effect::CreatesNoTable)
}

/// Whether a statement changes rows (`true`) or is a query (`false`), by its words; `None` if it is neither.
pub fn changes_rows(sql: &str, dialect: Dialect) -> Option<bool> {
    const CHANGES: [&str; 5] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE"];
    const QUERIES: [&str; 4] = ["SELECT", "VALUES", "TABLE", "SHOW"];
    let words = words(sql, dialect);
    let first = words.iter().find(|word| !word.is_other("("))?;
    if first.is("WITH") {
        // `FOR UPDATE` changes nothing.
        let mut pairs = words.windows(2);
        return Some(pairs.any(|pair| pair[1].is_any(&CHANGES) && !pair[0].is("FOR")));
    }
    match first.is_any(&CHANGES) {
        false => first.is_any(&QUERIES).then_some(false),
        true => Some(true),
    }
}

/// Whether the effect of a text is the same with other strings and numbers.
pub(crate) fn depends_on_names_only(text: &str, dialect: Dialect) -> bool {
    let first =
        ["SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "BEGIN", "START", "COMMIT", "ROLLBACK"];
    let words = words(text, dialect);
    words.first().is_some_and(|word| word.is_any(&first))
        && !words.iter().any(|word| word.is_other(";") || word.is("set_config"))
}

fn effect_of(words: &[Word<'_>], dialect: Dialect, own: &[&str]) -> Effect {
    let words = &words[words.iter().take_while(|word| word.is_other("(")).count()..];
    let is = |at: usize, keyword: &str| words.get(at).is_some_and(|word| word.is(keyword));
    let first = |keywords: &[&str]| keywords.iter().any(|keyword| is(0, keyword));
    let second = |keywords: &[&str]| keywords.iter().any(|keyword| is(1, keyword));
    let other = || Effect::Other(title(words));
    // Comments that are executed may contain several statements.
    if words.iter().any(|word| word.is_other(";")) {
        return other();
    }
    match inner(words, dialect) {
        Inner::None => {}
        Inner::Planned => return Effect::CreatesNoTable,
        Inner::Statement(inside) => return without_rows(effect_of(inside, dialect, own)),
        Inner::Text(text) => return without_rows(effect(&text, dialect, own)),
        Inner::Unknown => return other(),
    }
    if changes_search_path(words) {
        return Effect::Other("a change of search_path".to_owned());
    }
    let into_file =
        |pair: &[Word<'_>]| pair[0].is("INTO") && (pair[1].is("OUTFILE") || pair[1].is("DUMPFILE"));
    if dialect == Dialect::MySql && words.windows(2).any(into_file) {
        return Effect::Other("SELECT INTO a file".to_owned());
    }
    if (!first(&["SELECT"]) || words.iter().any(|word| word.is("INTO")))
        && let Some(table) = foreign_table(words, dialect, own)
    {
        return Effect::Other(format!("a change of {table}, a table of another schema,"));
    }
    if is(0, "CREATE") {
        return created(words);
    }
    let on_tables = second(&["TABLE", "INDEX"]);
    if first(&["SELECT", "WITH"]) {
        return selected(words, dialect);
    }
    if is(0, "ALTER") && on_tables && !is(2, "ALL") && !sets_schema(words) {
        return altered(words);
    }
    // `SET LOCAL ROLE r` is `SET ROLE r`.
    let scoped = is(0, "SET") && second(&["LOCAL", "SESSION"]) && !is(2, "CHARACTERISTICS");
    let subject = if scoped { 2 } else { 1 };
    let sets_user = words.iter().take(4).any(|word| word.is("AUTHORIZATION"));
    let is_harmful = HARMFUL.iter().any(|(one, two)| is(0, one) && is(subject, two))
        || (is(0, "SET") && (sets_global(words) || sets_user))
        || locks_all_tables(words)
        || (is(0, "COMMENT") && !OF_TABLES.iter().any(|object| is(2, object)));
    let drops = is(0, "DROP") && (on_tables || second(&["TEMPORARY", "PREPARE"]));
    let of_session = match dialect {
        Dialect::MySql => {
            let stays = words.get(1).is_some_and(|name| name.is_one_of(own, dialect));
            is(0, "DO") || (is(0, "USE") && stays)
        }
        Dialect::PostgreSql => is(0, "RESET") && !second(&["ALL", "ROLE", "SESSION"]),
        Dialect::Sqlite => false,
    };
    if (first(&HARMLESS) && !is_harmful) || drops || of_session {
        return Effect::CreatesNoTable;
    }
    other()
}

/// A statement inside another one.
enum Inner<'a, 'w> {
    None,
    /// It is not executed.
    Planned,
    Statement(&'a [Word<'w>]),
    /// In a string.
    Text(String),
    /// In a variable.
    Unknown,
}

fn inner<'a, 'w>(words: &'a [Word<'w>], dialect: Dialect) -> Inner<'a, 'w> {
    let is = |at: usize, keyword: &str| words.get(at).is_some_and(|word| word.is(keyword));
    let behind = |keyword: &str| words.iter().position(|word| word.is(keyword)).map(|at| at + 1);
    if is(0, "PREPARE") {
        let at = behind(if dialect == Dialect::MySql { "FROM" } else { "AS" });
        return match at.and_then(|at| Some((at, words.get(at)?))) {
            Some((_, Word::Other(text))) if text.starts_with('\'') => {
                let inside = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
                Inner::Text(inside.replace("''", "'").replace("\\'", "'"))
            }
            Some((_, Word::Quoted(text))) => Inner::Text(text.clone()),
            Some((at, Word::Plain(_))) => Inner::Statement(&words[at..]),
            _ => Inner::Unknown,
        };
    }
    if is(0, "SET") && is(1, "STATEMENT") {
        return behind("FOR").map_or(Inner::Unknown, |at| Inner::Statement(&words[at..]));
    }
    if ["EXPLAIN", "ANALYZE", "DESCRIBE", "DESC"].iter().any(|keyword| is(0, keyword)) {
        let starts = ["SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "MERGE", "WITH", "CREATE"];
        // `ANALYZE TABLE` updates statistics.
        let is_query = |word: &Word<'_>| word.is("TABLE") && !is(0, "ANALYZE");
        let is_start = |word: &Word<'_>| is_query(word) || word.is_any(&starts);
        let Some(at) = words.iter().skip(1).position(is_start) else { return Inner::None };
        let (options, statement) = words.split_at(at + 1);
        // MySQL may ignore what is in a comment: `/*!99999 EXPLAIN */ DELETE FROM a`.
        return match dialect != Dialect::MySql && options.iter().all(only_plans) {
            true => Inner::Planned,
            false => Inner::Statement(statement),
        };
    }
    Inner::None
}

/// Whether a word before an explained statement does not have it executed. PostgreSQL also knows `ANALYSE` and
/// `("analyze")`.
fn only_plans(word: &Word<'_>) -> bool {
    match word {
        Word::Plain(_) => !word.is("ANALYZE") && !word.is("ANALYSE"),
        Word::Quoted(_) => false,
        Word::Other(text) => ["(", ")", ",", "="].contains(text),
    }
}

/// Whether a statement changes PostgreSQL's search path, so that names would be those of another schema.
fn changes_search_path(words: &[Word<'_>]) -> bool {
    let calls = words.iter().any(|word| word.is("set_config"));
    let names = |word: &Word<'_>| matches!(word, Word::Other(text) if text.contains("search_path"));
    let sets = words.first().is_some_and(|word| word.is("SET") || word.is("RESET"));
    let is_path =
        |word: &Word<'_>| word.name().is_some_and(|name| name.eq_ignore_ascii_case("search_path"));
    (calls && words.iter().any(names)) || (sets && words.iter().any(is_path))
}

/// Whether a statement rewrites all tables of a database of PostgreSQL, which nobody can use in this time.
fn locks_all_tables(words: &[Word<'_>]) -> bool {
    let Some((first, last)) = words.first().zip(words.last()) else { return false };
    let has_no_name = last.is_other(")") || last.is_any(&["FULL", "VERBOSE", "ANALYZE"]);
    (first.is("CLUSTER") && (words.len() == 1 || has_no_name))
        || (first.is("VACUUM") && words.iter().any(|word| word.is("FULL")) && has_no_name)
}

fn sets_schema(words: &[Word<'_>]) -> bool {
    words.windows(2).any(|pair| pair[0].is("SET") && pair[1].is("SCHEMA"))
}

/// Whether a SET statement changes a setting of the whole server, such as `GLOBAL a` or `@@global.a`.
fn sets_global(words: &[Word<'_>]) -> bool {
    let starts = |word: &Word<'_>| word.is("SET") || word.is_other(",") || word.is_other("@");
    let scopes = ["GLOBAL", "PERSIST", "PERSIST_ONLY"];
    words.windows(2).any(|pair| starts(&pair[0]) && pair[1].is_any(&scopes))
}

/// The first table of another schema that a statement changes.
fn foreign_table(words: &[Word<'_>], dialect: Dialect, own: &[&str]) -> Option<String> {
    let is_any =
        |word: Option<&Word<'_>>, keywords: &[&str]| word.is_some_and(|word| word.is_any(keywords));
    let first = |keywords: &[&str]| is_any(words.first(), keywords);
    // In MySQL, `WITH … DELETE a FROM a JOIN b` changes rows as well.
    let has = |keyword: &str| {
        let is = |word: &Word<'_>| word.is(keyword);
        first(&[keyword]) || (first(&["WITH"]) && dialect == Dialect::MySql && words.iter().any(is))
    };
    let is_delete = has("DELETE");
    // Tables separated by commas, up to what is assigned or only read.
    let lists = ["DROP", "TRUNCATE", "LOCK", "RENAME", "VACUUM", "ANALYZE", "OPTIMIZE"];
    let mut in_list = is_delete || has("UPDATE") || first(&lists);
    let of_index = first(&["CREATE", "DROP"]) && words.iter().take(5).any(|word| word.is("INDEX"));
    let joins = ["UPDATE", "FROM", "JOIN", "STRAIGHT_JOIN", "USING", "LOW_PRIORITY", "IGNORE"];
    // For each open parenthesis, whether tables of the list are in it.
    let mut open: Vec<bool> = Vec::new();
    let mut froms = 0;
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| &words[at]);
        let after = |keywords: &[&str]| is_any(before, keywords);
        let is = |keywords: &[&str]| is_any(Some(word), keywords);
        let is_listed = in_list && open.last() != Some(&false);
        let precedes_name = match word {
            Word::Other("(") => {
                let in_place = after(&joins)
                    || before.is_some_and(|word| word.is_other(",") || word.is_other("("));
                let reads = is_any(words.get(at + 1), &["SELECT", "WITH", "VALUES", "TABLE"]);
                open.push(is_listed && in_place && !reads);
                after(&["INHERITS"]) || open.last() == Some(&true)
            }
            Word::Other(")") => {
                open.pop();
                open.is_empty() && first(&["VACUUM", "ANALYZE", "CLUSTER"])
            }
            Word::Other(",") => is_listed,
            Word::Quoted(_) | Word::Other(_) => false,
            Word::Plain(_) if is(&["USING"]) && dialect == Dialect::MySql => is_delete && is_listed,
            Word::Plain(_) if is(&["SET", "WHERE", "USING", "VALUES"]) => {
                in_list &= !open.is_empty();
                false
            }
            Word::Plain(_) if is(&["FROM"]) => {
                froms += usize::from(open.is_empty());
                after(&["DELETE", "IGNORE", "QUICK", "LOW_PRIORITY"])
                    || (is_delete && froms == 1 && open.is_empty())
            }
            Word::Plain(_) if is(&["JOIN", "STRAIGHT_JOIN"]) => is_listed,
            Word::Plain(_) if is(&["ON"]) => of_index,
            Word::Plain(_) if is(&["COLUMN"]) && first(&["COMMENT"]) => {
                // The last part is the column.
                words.get(at + 4).is_some_and(|word| word.is_other("."))
                    && foreign_name(&words[at + 1..at + 4], dialect, own).is_some()
            }
            Word::Plain(_) if is(&["RENAME", "TO", "AS"]) => {
                let renames = is(&["RENAME"]) || after(&["RENAME"]);
                first(&["RENAME"]) || (first(&["ALTER"]) && renames)
            }
            // ON DUPLICATE KEY UPDATE a.b = …
            Word::Plain(_) if is(&["UPDATE"]) => !after(&["KEY"]),
            // `TABLE a` is also a query. MySQL may ignore the word before it: `DROP /*!99999 AS */ TABLE a`.
            Word::Plain(_) if is(&["TABLE"]) && dialect != Dialect::MySql => {
                let is_query = before.is_none_or(|word| word.is_other("("))
                    || after(&["AS", "UNION", "ALL", "EXCEPT", "INTERSECT"])
                    || first(&["INSERT", "REPLACE"]);
                !is_query
            }
            Word::Plain(_) => is(&BEFORE_NAMES),
        };
        if precedes_name && let Some(table) = foreign_name(&words[at + 1..], dialect, own) {
            return Some(table);
        }
    }
    None
}

/// The name at the start of these words, if its schema is not one of `own`.
fn foreign_name(words: &[Word<'_>], dialect: Dialect, own: &[&str]) -> Option<String> {
    let mut parts = vec![words.first()?];
    for pair in words[1..].chunks(2) {
        match pair {
            [dot, name] if dot.is_other(".") && name.name().is_some() => parts.push(name),
            _ => break,
        }
    }
    let names = parts.iter().map(|part| part.name()).collect::<Option<Vec<_>>>()?;
    let Some(schema) = parts.len().checked_sub(2).map(|at| parts[at]) else {
        // The catalogue is always in PostgreSQL's search path.
        let of_catalogue = names[0].get(..3).is_some_and(|start| start.eq_ignore_ascii_case("pg_"));
        return (dialect == Dialect::PostgreSql && of_catalogue).then(|| names.join("."));
    };
    (!schema.is_one_of(own, dialect) && !schema.is("pg_temp")).then(|| names.join("."))
}

/// The effect of a statement inside another one. Functions that it calls are not taken to create tables.
fn without_rows(effect: Effect) -> Effect {
    if effect == Effect::MayCreateTable { Effect::CreatesNoTable } else { effect }
}

/// The effect of a query: functions may create tables, and so does `SELECT … INTO` in PostgreSQL.
fn selected(words: &[Word<'_>], dialect: Dialect) -> Effect {
    let into = |pair: &[Word<'_>]| pair[1].is("INTO") && !pair[0].is_any(&["INSERT", "MERGE"]);
    match words.windows(2).position(into) {
        Some(at) if dialect == Dialect::PostgreSql => {
            let rest = &words[at + 2..];
            let of_session = rest.iter().take(2).any(|one| one.is_any(&["TEMPORARY", "TEMP"]));
            let kinds = rest.iter().take_while(|one| one.is_any(&["UNLOGGED", "TABLE"]));
            if of_session { Effect::CreatesNoTable } else { of_new(&rest[kinds.count()..]) }
        }
        _ => Effect::MayCreateTable,
    }
}

/// The effect of ALTER TABLE or ALTER INDEX, whose table stays in its schema.
fn altered(words: &[Word<'_>]) -> Effect {
    if words[1].is("INDEX") {
        return Effect::MayCreateTable;
    }
    let parts = ["COLUMN", "INDEX", "KEY", "CONSTRAINT", "ATTRIBUTE", "VALUE"];
    for (at, word) in words.iter().enumerate().skip(3) {
        let rest = &words[at + 1..];
        let next = |keyword: &str| rest.first().is_some_and(|word| word.is(keyword));
        // `RENAME a TO b` renames a column, `RENAME TO b` the table; a partition is converted `TO TABLE b`.
        let of_column = rest.get(1).is_some_and(|word| word.is("TO"));
        if word.is("RENAME") && !of_column && !parts.iter().any(|part| next(part)) {
            let is_name = |word: &Word<'_>| !word.is("TO") && !word.is("AS") && !word.is_other("=");
            return of_new(&rest[usize::from(!rest.first().is_none_or(is_name))..]);
        }
        if word.is("TO") && next("TABLE") {
            return of_new(&rest[1..]);
        }
    }
    Effect::MayCreateTable
}

/// The effect of creating the table whose name starts these words, in the current schema.
fn of_new(words: &[Word<'_>]) -> Effect {
    let name = match words {
        [_, dot, name, ..] if dot.is_other(".") => name.name(),
        [name, ..] => name.name(),
        [] => None,
    };
    name.map_or(Effect::MayCreateTable, |name| Effect::CreatesTable(name.to_owned()))
}

/// The effect of a CREATE statement, whose table is not in another schema.
fn created(words: &[Word<'_>]) -> Effect {
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
    let _ = skip(&["GLOBAL"]) || skip(&["LOCAL"]);
    let of_session = skip(&["TEMPORARY"]) || skip(&["TEMP"]);
    skip(&["UNLOGGED"]);
    let kinds = ["UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"];
    if kinds.iter().any(|kind| skip(&[kind, "INDEX"])) || skip(&["INDEX"]) {
        return Effect::CreatesNoTable;
    }
    if !skip(&["TABLE"]) {
        return Effect::Other(title(words));
    }
    skip(&["IF", "NOT", "EXISTS"]);
    if of_session { Effect::CreatesNoTable } else { of_new(rest) }
}

/// The first words of a statement, as far as they are keywords.
fn title(words: &[Word<'_>]) -> String {
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

    fn of(sql: &str, dialect: Dialect) -> Effect {
        effect(sql, dialect, &["mine", "mine_2"])
    }

    #[test]
    fn queries_and_changes_of_rows_are_told_apart() {
        for (sql, expected) in [
            ("SELECT a FROM t FOR UPDATE", Some(false)),
            ("/* DELETE */ (SELECT 1)", Some(false)),
            ("WITH x AS (SELECT 1) SELECT * FROM x FOR UPDATE", Some(false)),
            ("with x as (select 1) delete from t", Some(true)),
            ("Insert INTO t SELECT 1", Some(true)),
            ("CREATE TABLE t (k INT)", None),
            ("BEGIN", None),
            ("", None),
        ] {
            assert_eq!(changes_rows(sql, Dialect::PostgreSql), expected, "{sql}");
        }
    }

    #[test]
    fn created_tables_are_recognized() {
        for (sql, name) in [
            ("CREATE TABLE orders (id INT)", "orders"),
            ("create table if not exists `my``orders` (id INT)", "my`orders"),
            ("CREATE /* x */ OR REPLACE TABLE \"Orders\" AS SELECT 1", "Orders"),
            ("CREATE UNLOGGED TABLE orders (id INT)", "orders"),
            ("CREATE TABLE mine.orders (id INT)", "orders"),
        ] {
            let expected = Effect::CreatesTable(name.to_owned());
            assert_eq!(of(sql, Dialect::PostgreSql), expected, "{sql}");
        }
    }

    #[test]
    fn tables_are_also_created_by_other_statements() {
        let new = || Effect::CreatesTable("new".to_owned());
        for sql in [
            "PREPARE p FROM 'CREATE TABLE new (id INT)'",
            "SELECT 1; CREATE TABLE new (id INT)",
            "SET STATEMENT max_statement_time=1 FOR CREATE TABLE new (id INT)",
            "ALTER TABLE t RENAME TO new",
            "ALTER TABLE t ADD b INT, RENAME AS `new`",
            "ALTER TABLE t RENAME = mine.new",
            "ALTER TABLE t CONVERT PARTITION p TO TABLE new",
        ] {
            assert_eq!(of(sql, Dialect::MySql), new(), "{sql}");
        }
        for sql in [
            "SELECT * INTO new FROM t",
            "(SELECT 1 INTO UNLOGGED TABLE mine.new)",
            "WITH a AS (INSERT INTO t VALUES (1) RETURNING id) SELECT id INTO new FROM a",
            "PREPARE p (int) AS SELECT $1 INTO new",
            "EXPLAIN ANALYZE CREATE TABLE new AS SELECT 1",
            "ALTER TABLE IF EXISTS t RENAME TO \"new\"",
        ] {
            assert_eq!(of(sql, Dialect::PostgreSql), new(), "{sql}");
        }
        for (sql, expected) in [
            ("SELECT 1 INTO TEMP t", Effect::CreatesNoTable),
            ("ALTER TABLE t RENAME a TO b", Effect::MayCreateTable),
            ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", Effect::MayCreateTable),
            ("EXPLAIN CREATE TABLE new AS SELECT 1", Effect::CreatesNoTable),
        ] {
            assert_eq!(of(sql, Dialect::PostgreSql), expected, "{sql}");
        }
    }

    #[test]
    fn statements_are_classified() {
        for (sql, expected) in [
            ("CREATE UNIQUE INDEX i ON t (a)", Effect::CreatesNoTable),
            ("CREATE TEMPORARY TABLE t (a INT)", Effect::CreatesNoTable),
            ("INSERT INTO t VALUES (1)", Effect::CreatesNoTable),
            ("SET foreign_key_checks = 0", Effect::CreatesNoTable),
            ("/*!40101 SET NAMES utf8 */", Effect::CreatesNoTable),
            ("DROP TABLE t", Effect::CreatesNoTable),
            ("USE mine", Effect::CreatesNoTable),
            ("ALTER TABLE a ADD b INT, RENAME COLUMN c TO d", Effect::MayCreateTable),
            ("SELECT 1 INTO t", Effect::MayCreateTable),
            ("PREPARE p FROM 'SELECT 1'", Effect::CreatesNoTable),
            ("EXPLAIN SELECT 1", Effect::CreatesNoTable),
            ("(SELECT 1)", Effect::MayCreateTable),
        ] {
            assert_eq!(of(sql, Dialect::MySql), expected, "{sql}");
        }
    }

    #[test]
    fn what_does_not_belong_to_the_schema_is_refused_however_it_is_written() {
        for (sql, what) in [
            ("CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
            ("CREATE OR REPLACE FUNCTION f() RETURNS int", "CREATE OR"),
            ("CREATE DATABASE d", "CREATE DATABASE"),
            ("DROP DATABASE IF EXISTS d", "DROP DATABASE"),
            ("drop /* it */ schema d", "DROP SCHEMA"),
            ("SELECT 1; DROP DATABASE d", "DROP DATABASE"),
            ("/*!50000 DROP DATABASE d */", "DROP DATABASE"),
            ("/*M!100100 DROP DATABASE d */", "DROP DATABASE"),
            ("SET STATEMENT max_statement_time=1 FOR DROP DATABASE d", "DROP DATABASE"),
            ("PREPARE p FROM 'DROP DATABASE d'", "DROP DATABASE"),
            ("PREPARE p FROM @text", "PREPARE P"),
            ("EXECUTE IMMEDIATE 'DROP DATABASE d'", "EXECUTE IMMEDIATE"),
            ("BEGIN NOT ATOMIC DROP DATABASE d; END", "BEGIN NOT"),
            ("SET GLOBAL max_connections = 1", "SET GLOBAL"),
            ("SET sql_mode = '', GLOBAL max_connections = 1", "SET SQL_MODE"),
            ("SET @@global.max_connections = 1", "SET"),
            ("SET PERSIST max_connections = 1", "SET PERSIST"),
            ("SET PASSWORD = 'x'", "SET PASSWORD"),
            ("GRANT ALL ON t TO u", "GRANT ALL"),
            ("CREATE USER u", "CREATE USER"),
            ("FLUSH TABLES", "FLUSH TABLES"),
            ("KILL 1", "KILL 1"),
            ("LOAD DATA INFILE 'x' INTO TABLE t", "LOAD DATA"),
            ("SELECT 1 INTO OUTFILE '/tmp/x'", "SELECT INTO a file"),
            ("CALL other.p()", "CALL OTHER"),
            ("USE d", "USE D"),
            ("WITH a AS (SELECT 1) SELECT * FROM a INTO OUTFILE '/tmp/x'", "SELECT INTO a file"),
            ("TABLE t INTO OUTFILE '/tmp/x'", "SELECT INTO a file"),
            ("UPDATE t SET k=k--1; DROP DATABASE d", "DROP DATABASE"),
            ("START SLAVE", "START SLAVE"),
        ] {
            let found = refused(sql, Dialect::MySql, &["mine"]);
            assert_eq!(found.as_deref(), Some(what), "{sql}");
        }
        for (sql, what) in [
            ("ALTER SYSTEM SET a = 1", "ALTER SYSTEM"),
            ("ALTER ROLE r SET a = 1", "ALTER ROLE"),
            ("CREATE EXTENSION e", "CREATE EXTENSION"),
            ("DO $$ BEGIN DROP SCHEMA d; END $$", "DO"),
            ("SET search_path TO public", "a change of search_path"),
            ("SELECT pg_catalog.set_config('search_path', '', false)", "a change of search_path"),
            ("SET SESSION AUTHORIZATION joe", "SET SESSION"),
            ("SET LOCAL SESSION AUTHORIZATION joe", "SET LOCAL"),
            ("SET LOCAL SCHEMA 'public'", "SET LOCAL"),
            ("SET SESSION ROLE r", "SET SESSION"),
            ("SET \"search_path\" TO public", "a change of search_path"),
            ("VACUUM FULL", "VACUUM FULL"),
            ("VACUUM (FULL, ANALYZE)", "VACUUM"),
            ("CLUSTER", "CLUSTER"),
            ("RESET ALL", "RESET ALL"),
            ("ALTER TABLE t SET SCHEMA other", "ALTER TABLE"),
            ("COMMENT ON DATABASE d IS 'x'", "COMMENT ON"),
            ("PREPARE p (int) AS DROP SCHEMA d", "DROP SCHEMA"),
        ] {
            let found = refused(sql, Dialect::PostgreSql, &["mine"]);
            assert_eq!(found.as_deref(), Some(what), "{sql}");
        }
    }

    #[test]
    fn changes_of_tables_of_other_schemas_are_refused() {
        let check = |sql: &str, dialect, name: &str| {
            let what = format!("a change of {name}, a table of another schema,");
            assert_eq!(of(sql, dialect), Effect::Other(what), "{sql}");
        };
        for sql in [
            "CREATE TABLE other.t (a INT)",
            "CREATE TABLE IF NOT EXISTS other.t (a INT)",
            "CREATE TABLE a (b INT REFERENCES other.t (id))",
            "CREATE INDEX i ON other.t (a)",
            "DROP TABLE IF EXISTS a, other.t",
            "DROP INDEX i ON other.t",
            "ALTER TABLE other.t ADD b INT",
            "ALTER TABLE a RENAME TO other.t",
            "INSERT INTO other.t VALUES (1)",
            "INSERT IGNORE other.t VALUES (1)",
            "UPDATE other . t SET a = 1",
            "UPDATE a JOIN other.t ON a.id = t.id SET t.b = 1",
            "DELETE FROM other.t",
            "DELETE other.t FROM other.t JOIN a",
            "TRUNCATE other.t",
            "TRUNCATE TABLE other.t",
            "LOCK TABLES a READ, other.t WRITE",
            "WITH d AS (DELETE FROM other.t RETURNING id) SELECT * FROM d",
            "MERGE INTO other.t USING a ON a.id = t.id WHEN MATCHED THEN DELETE",
            "EXPLAIN ANALYZE DELETE FROM other.t",
            "SELECT 1 INTO other.t",
        ] {
            for dialect in [Dialect::MySql, Dialect::PostgreSql] {
                check(sql, dialect, "other.t");
            }
        }
        for sql in [
            "REPLACE INTO `other`.t VALUES (1)",
            "DELETE FROM b USING other.t b",
            "UPDATE a JOIN c USING (id) JOIN other.t b SET b.x = 1",
            "UPDATE a JOIN (SELECT id FROM c WHERE id > 1) c JOIN other.t SET t.b = 1",
            "UPDATE a STRAIGHT_JOIN other.t SET t.b = 1",
            "UPDATE (a, other.t) SET t.b = 1",
            "WITH x AS (SELECT id FROM c) DELETE b FROM a JOIN other.t b",
            "DELETE FROM other.t.* USING other.t",
            "INSERT HIGH_PRIORITY other.t VALUES (1)",
            "INSERT DELAYED other.t VALUES (1)",
            "CREATE OR REPLACE UNIQUE INDEX i ON other.t (a)",
            "ANALYZE TABLE other.t",
            "ANALYZE FORMAT=JSON DELETE FROM other.t",
            "ALTER TABLE a EXCHANGE PARTITION p WITH TABLE other.t",
            "DROP /*!99999 AS */ TABLE other.t",
            "/*!99999 EXPLAIN */ DELETE FROM other.t",
        ] {
            check(sql, Dialect::MySql, "other.t");
        }
        for sql in [
            "CLUSTER other.t",
            "VACUUM FULL other.t",
            "VACUUM (FULL) other.t",
            "ANALYZE other.t",
            "DROP INDEX CONCURRENTLY other.t",
            "EXPLAIN ANALYSE UPDATE other.t SET a = 1",
            "EXPLAIN (COSTS OFF, ANALYZE) UPDATE other.t SET a = 1",
            "EXPLAIN (\"analyze\") UPDATE other.t SET a = 1",
        ] {
            check(sql, Dialect::PostgreSql, "other.t");
        }
        check("COMMENT ON COLUMN other.t.a IS 'x'", Dialect::PostgreSql, "other.t.a");
        check("UPDATE pg_database SET datname = 'x'", Dialect::PostgreSql, "pg_database");
        check("CREATE TABLE a () INHERITS (other.t)", Dialect::PostgreSql, "other.t");
        check("CREATE TABLE a PARTITION OF other.t DEFAULT", Dialect::PostgreSql, "other.t");
        check("INSERT INTO mine.other.t VALUES (1)", Dialect::PostgreSql, "mine.other.t");
    }

    #[test]
    fn own_tables_and_reading_others_are_allowed() {
        for sql in [
            "INSERT INTO mine.t VALUES (1.5)",
            "INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE t.a = t.a + 1",
            "INSERT INTO t SELECT o.id FROM other.t o",
            "UPDATE t SET t.a = 1 WHERE t.b = (SELECT MAX(x.id) FROM other.x)",
            "UPDATE t a JOIN u b ON a.id = b.id SET a.x = b.y",
            "UPDATE t a JOIN u b ON (a.id = b.id AND COALESCE(a.x, b.y) > 1) SET a.x = b.y",
            "UPDATE t a JOIN (SELECT o.a, o.b FROM other.o o) b ON a.id = b.a SET a.x = b.b",
            "CREATE SPATIAL INDEX i ON t (a)",
            "COMMENT ON COLUMN t.a IS 'x'",
            "DELETE FROM t WHERE t.a IN (SELECT other.x.id FROM other.x)",
            "CREATE INDEX i ON mine_2.t (a)",
            "SELECT a.id FROM a JOIN other.b ON a.id = b.id FOR UPDATE",
            "CREATE TABLE t AS SELECT o.id FROM orders o",
            "SELECT 'DROP DATABASE d'",
            "BEGIN",
            "START TRANSACTION",
            "SAVEPOINT s",
            "SET autocommit = 0",
            "EXECUTE p USING @a",
            "DEALLOCATE PREPARE p",
        ] {
            for dialect in [Dialect::MySql, Dialect::PostgreSql] {
                assert_eq!(refused(sql, dialect, &["mine", "mine_2"]), None, "{sql}");
            }
        }
        for sql in [
            "TABLE other.t",
            "TABLE a UNION ALL TABLE other.t",
            "INSERT INTO t TABLE other.t",
            "CREATE TABLE t AS TABLE other.t",
            "WITH a AS (TABLE other.t) SELECT id FROM a",
            "EXPLAIN UPDATE other.t SET a = 1",
            "EXPLAIN (VERBOSE, COSTS OFF) DELETE FROM other.t",
            "EXPLAIN TABLE other.t",
            "EXPLAIN ANALYZE TABLE other.t",
        ] {
            assert_eq!(refused(sql, Dialect::PostgreSql, &["mine"]), None, "{sql}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_is_classified(text in r#"([-aeE'"$`;()/*!\\.,@1é_# ]|UPDATE |SET |INTO |PREPARE |FROM |FOR |a\.b){0,40}"#) {
            for dialect in [Dialect::Sqlite, Dialect::MySql, Dialect::PostgreSql] {
                refused(&text, dialect, &["a"]);
            }
        }
    }
}
