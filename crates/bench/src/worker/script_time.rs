//! The time that scripts and their statements see: fixed for each block, since answers that contain a real time
//! would differ between candidates.

use std::borrow::Cow;

use dbdyno_drivers::{Connection, Error, ErrorKind};
use dbdyno_scripts::Driver;

/// The first time, in seconds since 1970; each block adds a second.
pub(super) const START: f64 = 1_735_689_600.0;

/// What replaces `now()` on PostgreSQL, whose time cannot be set.
const POSTGRESQL_NOW: &str = "to_timestamp(current_setting('dbdyno.now')::float8)";

/// Sets the time that `now()` returns on a connection. A server that refuses it, such as MariaDB with
/// `secure_timestamp`, returns the real time.
pub(super) fn set<C: Connection>(
    connection: &mut C,
    driver: Driver,
    time: f64,
) -> Result<(), Error> {
    let sql = match driver {
        Driver::MySql => format!("SET timestamp = {time}"),
        Driver::PostgreSql => format!("SET dbdyno.now = '{time}'"),
    };
    match connection.run(&sql) {
        Err(error) if error.kind == ErrorKind::Connection => Err(error),
        _ => Ok(()),
    }
}

/// SQL in which `now()` returns the time of [`set`].
pub(super) fn fixed(sql: &str, driver: Driver) -> Cow<'_, str> {
    const NOW: &[u8] = b"now()";
    let is_here = |at: usize| {
        let bytes = sql.as_bytes();
        let follows_name =
            at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || b"_.".contains(&bytes[at - 1]));
        bytes[at..at + NOW.len()].eq_ignore_ascii_case(NOW) && !follows_name
    };
    if driver == Driver::MySql || sql.len() < NOW.len() {
        return Cow::Borrowed(sql);
    }
    let mut found = (0..=sql.len() - NOW.len()).filter(|at| is_here(*at)).peekable();
    if found.peek().is_none() {
        return Cow::Borrowed(sql);
    }
    let mut text = String::with_capacity(sql.len() + POSTGRESQL_NOW.len());
    let mut copied = 0;
    for at in found {
        // A quote before it is open or closed.
        let is_quoted = sql[..at].matches('\'').count() % 2 == 1;
        if !is_quoted {
            text.push_str(&sql[copied..at]);
            text.push_str(POSTGRESQL_NOW);
            copied = at + NOW.len();
        }
    }
    text.push_str(&sql[copied..]);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_outside_of_quotes_are_replaced_on_postgresql() {
        let sql = "INSERT INTO é VALUES (NOW(), 'now()', my_now(), t.now(),now())";
        let expected = format!(
            "INSERT INTO é VALUES ({POSTGRESQL_NOW}, 'now()', my_now(), t.now(),{POSTGRESQL_NOW})"
        );
        assert_eq!(fixed(sql, Driver::PostgreSql), expected);
        assert_eq!(fixed(sql, Driver::MySql), sql);
        for sql in ["", "now", "SELECT 1", "'now()'"] {
            assert_eq!(fixed(sql, Driver::PostgreSql), sql);
        }
    }
}
