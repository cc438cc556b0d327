//! What is compared between the answers of candidates, and answers that differ by nature.

dbdyno_types::words! {
    /// What is compared between the answers that candidates of the same system give to the same events.
    #[derive(Default)]
    Answers {
        /// Numbers of rows, and all values.
        #[default]
        Values = "values",
        /// Numbers of rows only.
        Rows = "rows",
        None = "none",
    }
}

impl Answers {
    /// What is compared, for reports; `None` for everything.
    pub const fn limit(self) -> Option<&'static str> {
        match self {
            Self::Values => None,
            Self::Rows => Some("only numbers of rows are compared"),
            Self::None => Some("not compared"),
        }
    }
}

/// Functions whose values differ from server to server or from call to call, in lower case. Those of the time are not
/// included: scripts get the time of the block.
const FUNCTIONS: [&str; 17] = [
    "rand",
    "random",
    "random_normal",
    "random_bytes",
    "gen_random_bytes",
    "uuid",
    "uuid_short",
    "uuidv4",
    "uuidv7",
    "sys_guid",
    "gen_random_uuid",
    "uuid_generate_v1",
    "uuid_generate_v4",
    "connection_id",
    "pg_backend_pid",
    "sysdate",
    "timeofday",
];

/// Such a function in a statement.
pub(crate) fn undetermined_function(sql: &str) -> Option<String> {
    let lower = sql.to_ascii_lowercase();
    let found =
        words(&lower).find(|(word, after)| FUNCTIONS.contains(word) && after.starts_with('('));
    found.map(|(word, _)| format!("{}()", word.to_ascii_uppercase()))
}

/// Whether a statement has LIMIT without ORDER BY: which rows it returns is not determined.
pub(crate) fn has_unordered_limit(sql: &str) -> bool {
    let lower = sql.to_ascii_lowercase();
    let words: Vec<&str> = words(&lower).map(|(word, _)| word).collect();
    let Some(query) = words.iter().position(|word| *word == "select") else { return false };
    let query = &words[query..];
    query.contains(&"limit") && !query.windows(2).any(|pair| pair == ["order", "by"])
}

/// Words with what follows them. Qualified names are one word.
fn words(sql: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '@' | '$');
    let mut rest = sql;
    std::iter::from_fn(move || {
        let part = &rest[rest.find(is_of_name)?..];
        let (word, after) = part.split_at(part.find(|c| !is_of_name(c)).unwrap_or(part.len()));
        rest = after;
        Some((word, after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_whose_values_are_not_determined_are_found() {
        for (sql, expected) in [
            ("SELECT id FROM t ORDER BY RAND() LIMIT 5", "RAND()"),
            ("SELECT random()", "RANDOM()"),
            ("INSERT INTO u VALUES (1, UUID())", "UUID()"),
            ("SELECT pg_backend_pid(), k FROM t", "PG_BACKEND_PID()"),
        ] {
            assert_eq!(undetermined_function(sql).as_deref(), Some(expected), "{sql}");
        }
        for sql in ["", "SELECT brand(a), my.rand(a), uuid, rand FROM t", "SELECT NOW()"] {
            assert_eq!(undetermined_function(sql), None, "{sql}");
        }
    }

    #[test]
    fn limit_needs_an_order() {
        assert!(has_unordered_limit("select a from t where b > 3 limit 5"));
        for sql in ["SELECT a FROM t ORDER BY a LIMIT 5", "UPDATE t SET a = 1 LIMIT 5", "LIMIT", ""]
        {
            assert!(!has_unordered_limit(sql), "{sql}");
        }
    }
}
