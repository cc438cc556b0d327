//! Session settings of dbdyno's connections: a server's own settings must not make its statements fail or wait.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};

use crate::server_engine::Purpose;

/// For every connection. With `autocommit = 0` transactions stay open, and statements that change tables wait for them;
/// the others are those of `--safe-updates`, and of commits that start another transaction or disconnect. The last is a
/// year, the maximum: connections are idle while other candidates are measured.
const ALWAYS: [(&str, &str); 6] = [
    ("autocommit", "1"),
    ("sql_safe_updates", "0"),
    ("sql_select_limit", "18446744073709551615"),
    ("sql_big_selects", "1"),
    ("completion_type", "0"),
    ("wait_timeout", "31536000"),
];

/// For every connection to MariaDB, which has them since 10.3.
const IDLE_TIMEOUTS: &str = "idle_transaction_timeout = 0, SESSION idle_write_transaction_timeout = 0, \
    SESSION idle_readonly_transaction_timeout = 0";

/// How long to wait for other clients that use a table, in seconds. The default is a day.
const LOCK_TIMEOUT: &str = "60";

/// A mode without special syntax. Without the second part a server replaces an unknown storage engine.
const MODE: &str = "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'";

/// Limits of statements: names that a version may not have, and their values.
const LIMITS: [(&str, &str); 2] = [("max_statement_time", "0"), ("max_execution_time", "0")];

/// Prevents `CREATE INDEX` of MariaDB from failing.
const ALTER_ALGORITHM: (&str, &str) = ("alter_algorithm", "'DEFAULT'");

/// "Unknown system variable".
const UNKNOWN_VARIABLE: i32 = 1193;

/// Sets what a new connection needs for its purpose.
pub(crate) fn set_up(connection: &mut MySqlConnection, purpose: Purpose) -> Result<(), Error> {
    if purpose == Purpose::Inspect {
        return Ok(());
    }
    let mut settings = ALWAYS.to_vec();
    if purpose != Purpose::Measure {
        settings.push(("lock_wait_timeout", LOCK_TIMEOUT));
    }
    if purpose == Purpose::Administer {
        settings.push(("sql_mode", MODE));
    }
    let all: Vec<String> =
        settings.iter().map(|(name, value)| format!("SESSION {name} = {value}")).collect();
    connection.run(&format!("SET {}", all.join(", ")))?;
    connection.run("SET SESSION TRANSACTION READ WRITE")?;
    if connection.is_mariadb() {
        set_if_known(connection, IDLE_TIMEOUTS)?;
    }
    if purpose == Purpose::Administer {
        // Names of tables may have characters that are not in the tables' character set.
        connection.run("SET NAMES utf8mb4")?;
    }
    let optional = match purpose {
        Purpose::Inspect | Purpose::Measure => &[][..],
        Purpose::SetUp => &LIMITS[..],
        Purpose::Administer => &[LIMITS[0], LIMITS[1], ALTER_ALGORITHM][..],
    };
    for (name, value) in optional {
        set_if_known(connection, &format!("{name} = {value}"))?;
    }
    Ok(())
}

fn set_if_known(connection: &mut MySqlConnection, settings: &str) -> Result<(), Error> {
    match connection.run(&format!("SET SESSION {settings}")) {
        Err(error) if error.has_number(UNKNOWN_VARIABLE) => Ok(()),
        set => set,
    }
}
