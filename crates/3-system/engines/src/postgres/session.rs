//! Session settings of dbdyno's connections: a server's own settings must not make its statements fail or wait.

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Error};

use crate::server_engine::Purpose;

/// A setting, its value, and the oldest major version that has it.
type Setting = (&'static str, &'static str, u32);

/// For every connection: transactions can write, and idle connections stay, since they wait while other candidates are
/// measured.
const ALWAYS: [Setting; 4] = [
    ("default_transaction_read_only", "off", 0),
    ("default_transaction_deferrable", "off", 0),
    ("idle_in_transaction_session_timeout", "0", 0),
    ("idle_session_timeout", "0", 14),
];

/// For connections that are not measured. The default is to wait without limit for other clients that use a table.
const NOT_MEASURED: [Setting; 3] =
    [("statement_timeout", "0", 0), ("lock_timeout", "60s", 0), ("transaction_timeout", "0", 17)];

/// For dbdyno's own statements: none is repeated after a conflict.
const ADMINISTER: Setting = ("default_transaction_isolation", "read committed", 0);

/// The oldest major version with `jit`.
pub(crate) const FIRST_WITH_JIT: u32 = 11;

/// Sets what a new connection needs for its purpose. The search path is not changed.
pub(crate) fn set_up(connection: &mut PostgresConnection, purpose: Purpose) -> Result<(), Error> {
    if purpose == Purpose::Inspect {
        return Ok(());
    }
    let mut settings = ALWAYS.to_vec();
    if purpose != Purpose::Measure {
        settings.extend(NOT_MEASURED);
    }
    if purpose == Purpose::Administer {
        settings.push(ADMINISTER);
    }
    let major = major_version(connection.server_version());
    // One statement, since there are many connections.
    let all: Vec<String> = settings
        .iter()
        .filter(|(_, _, since)| major >= *since)
        .map(|(name, value, _)| format!("pg_catalog.set_config('{name}', '{value}', false)"))
        .collect();
    connection.run(&format!("SELECT {}", all.join(", ")))
}

/// The major number of a version such as `15.13` or `17beta1`; 0 if there is none.
pub(crate) fn major_version(version: &str) -> u32 {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_default()
}
