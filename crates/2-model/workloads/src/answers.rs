//! What is compared between the answers of candidates, and answers that differ by nature.

use serde::{Deserialize, Serialize};

/// What is compared between the answers that candidates of the same system give to the same events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answers {
    /// Numbers of rows, and all values.
    #[default]
    Values,
    /// Numbers of rows only.
    Rows,
    None,
}

impl Answers {
    /// All cases with their names in the experiment.
    pub const ALL: [(&'static str, Self); 3] =
        [("values", Self::Values), ("rows", Self::Rows), ("none", Self::None)];

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

/// The part of a statement, or of a piece of one, whose answer is not determined: such a function, or LIMIT without
/// ORDER BY.
pub fn undetermined(sql: &str) -> Option<String> {
    let lower = sql.to_ascii_lowercase();
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '@' | '$');
    let mut words = Vec::new();
    let mut rest = lower.as_str();
    while let Some(start) = rest.find(is_of_name) {
        let part = &rest[start..];
        let length = part.find(|c| !is_of_name(c)).unwrap_or(part.len());
        let (word, after) = part.split_at(length);
        if FUNCTIONS.contains(&word) && after.starts_with('(') {
            return Some(format!("{}()", word.to_ascii_uppercase()));
        }
        words.push(word);
        rest = after;
    }
    let selected = words.iter().position(|word| *word == "select")?;
    let of_query = &words[selected..];
    let is_ordered = of_query.windows(2).any(|pair| pair == ["order", "by"]);
    (of_query.contains(&"limit") && !is_ordered).then(|| "LIMIT without ORDER BY".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undetermined_parts_of_statements_are_found() {
        for (sql, expected) in [
            ("SELECT id FROM t ORDER BY RAND() LIMIT 5", "RAND()"),
            ("random()", "RANDOM()"),
            ("INSERT INTO u VALUES (1, UUID())", "UUID()"),
            ("pg_backend_pid()", "PG_BACKEND_PID()"),
            ("select a from t where b > 3 limit 5", "LIMIT without ORDER BY"),
        ] {
            assert_eq!(undetermined(sql).as_deref(), Some(expected), "{sql}");
        }
        for sql in [
            "",
            "SELECT a FROM t ORDER BY a LIMIT 5",
            "UPDATE t SET a = 1 LIMIT 5",
            "SELECT brand(a), my.rand(a), uuid, rand FROM t",
            "LIMIT",
            "SELECT NOW()",
        ] {
            assert_eq!(undetermined(sql), None, "{sql}");
        }
    }
}
