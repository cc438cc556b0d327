//! The user's own data: SQL scripts that create and fill tables.

mod script;

use serde::{Deserialize, Serialize};

use crate::definition::Microbenchmark;
use crate::sql::{SqlPart, split_sql};

pub use script::{Dialect, Effect, ScriptStatement, effect, split_script};

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
#[must_use]
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
}
