//! The user's own tables: running setup scripts, and finding the tables.

use dbdyno_engines::{Engine, Table, TableCreation};
use dbdyno_types::server::ServerSystem;
use dbdyno_workloads::setup::{Dialect, Effect, SetupScript, effect, split_script};

use super::error::RequestError;
use crate::protocol::SystemUnderTest;

/// Characters of a statement in messages.
const EXCERPT: usize = 60;

/// The lexical rules of a system's SQL.
pub(super) const fn dialect(system: &SystemUnderTest) -> Dialect {
    match system {
        SystemUnderTest::Sqlite { .. } => Dialect::Sqlite,
        SystemUnderTest::Server { settings, .. } => match settings.system {
            ServerSystem::MariaDb | ServerSystem::MySql => Dialect::MySql,
            ServerSystem::PostgreSql => Dialect::PostgreSql,
        },
    }
}

/// Runs the statements of the scripts, in order.
///
/// # Errors
/// A statement failed; with its script, line and number, and the database's message.
pub(super) fn run_scripts<E: Engine>(
    engine: &E,
    connection: &mut E::Connection,
    dialect: Dialect,
    scripts: &[SetupScript],
) -> Result<(), RequestError> {
    for SetupScript { origin, text } in scripts {
        for (number, statement) in (1..).zip(split_script(text, dialect)) {
            let effect = effect(statement.sql, dialect);
            let creates = match &effect {
                Effect::CreatesTable(name) => TableCreation::Named(name),
                Effect::CreatesNoTable => TableCreation::None,
                Effect::MayCreateTable | Effect::Other(_) => TableCreation::Possible,
            };
            let ran = engine.run_setup(connection, statement.sql, creates);
            ran.map_err(|error| {
                format!(
                    "{origin}, line {}, statement {number} ({}): {}",
                    statement.line,
                    excerpt(statement.sql),
                    error.message
                )
            })?;
        }
    }
    Ok(())
}

/// The tables that are not dbdyno's.
///
/// # Errors
/// The tables cannot be listed.
pub(super) fn own_table_names<E: Engine>(
    engine: &E,
    connection: &mut E::Connection,
    tables: &[Table],
) -> Result<Vec<String>, RequestError> {
    let mut names = engine.table_names(connection)?;
    names.retain(|name| tables.iter().all(|table| table.name != *name));
    Ok(names)
}

/// The start of a statement, in one line.
fn excerpt(sql: &str) -> String {
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_lines() {
        assert_eq!(excerpt("SELECT\n  1"), "SELECT 1");
        let long = excerpt(&format!("INSERT INTO é VALUES ({})", "é".repeat(99)));
        assert_eq!(long.chars().count(), EXCERPT + 1);
    }
}
