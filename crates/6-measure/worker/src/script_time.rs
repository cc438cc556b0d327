//! The time that scripts and their statements see: fixed for each block, since answers that contain a real time
//! would differ between candidates.

use std::borrow::Cow;

use dbdyno_drivers::{Connection, Error, ErrorKind};
use dbdyno_scripts::Driver;

/// What replaces `now()` on PostgreSQL, whose time cannot be set: a function of a schema before `pg_catalog` in the
/// search path would not replace the keywords, and would be lost when a script sets its path.
const POSTGRESQL_NOW: &str = "to_timestamp(current_setting('dbdyno.now')::float8)";

/// Sets the time that `now()` returns on a connection. A server that refuses it, such as MariaDB with
/// `secure_timestamp`, returns the real time.
pub(crate) fn set<C: Connection>(
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

/// An expression of the time of PostgreSQL.
#[derive(Clone, Copy)]
struct Time {
    /// The expression, in lower case.
    name: &'static str,
    /// Its type.
    kind: &'static str,
    /// Whether a precision may follow, as in `current_timestamp(3)`.
    precise: bool,
}

/// The type of [`POSTGRESQL_NOW`].
const TIMESTAMP: &str = "timestamptz";

const TIMES: [Time; 9] = [
    time("now()", TIMESTAMP, false),
    time("transaction_timestamp()", TIMESTAMP, false),
    time("statement_timestamp()", TIMESTAMP, false),
    time("clock_timestamp()", TIMESTAMP, false),
    time("current_timestamp", TIMESTAMP, true),
    time("localtimestamp", "timestamp", true),
    time("current_time", "timetz", true),
    time("localtime", "time", true),
    time("current_date", "date", false),
];

const fn time(name: &'static str, kind: &'static str, precise: bool) -> Time {
    Time { name, kind, precise }
}

/// SQL in which expressions of the time have the time of [`set`].
pub(crate) fn fixed(sql: &str, driver: Driver) -> Cow<'_, str> {
    if driver == Driver::MySql {
        return Cow::Borrowed(sql);
    }
    let mut text = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(part) = sql.get(at..).filter(|rest| !rest.is_empty()) {
        let is_qualified = sql[..at].ends_with('.');
        match time_at(part).filter(|_| !is_qualified) {
            Some((length, kind)) => {
                text.push_str(&sql[copied..at]);
                text.push_str(&match kind.as_str() {
                    TIMESTAMP => POSTGRESQL_NOW.to_owned(),
                    kind => format!("CAST({POSTGRESQL_NOW} AS {kind})"),
                });
                at += length;
                copied = at;
            }
            None => at += token_length(part),
        }
    }
    if copied == 0 {
        return Cow::Borrowed(sql);
    }
    text.push_str(&sql[copied..]);
    Cow::Owned(text)
}

/// The length of the expression of the time at the start of the text, and the type that it has.
fn time_at(text: &str) -> Option<(usize, String)> {
    TIMES.into_iter().find_map(|Time { name, kind, precise }| {
        let start = text.get(..name.len())?;
        let rest = &text[name.len()..];
        if !start.eq_ignore_ascii_case(name) || !name.ends_with(')') && rest.starts_with(is_of_name)
        {
            return None;
        }
        match precision(rest).filter(|_| !name.ends_with(')')) {
            None => Some((name.len(), kind.to_owned())),
            Some((length, digits)) => {
                precise.then(|| (name.len() + length, format!("{kind}({digits})")))
            }
        }
    })
}

/// The length of what is in parentheses at the start of the text, and the precision in it.
fn precision(text: &str) -> Option<(usize, &str)> {
    let inside = text.trim_start().strip_prefix('(')?;
    let (digits, rest) = inside.split_once(')')?;
    Some((text.len() - rest.len(), digits.trim()))
}

/// The length of a name, of something in quotes, or else of one character.
fn token_length(text: &str) -> usize {
    let Some(first) = text.chars().next() else { return 0 };
    let rest = &text[first.len_utf8()..];
    let length = match first {
        // A doubled quote is the start of another text.
        '\'' | '"' => rest.find(first).map_or(rest.len(), |end| end + 1),
        first if is_of_name(first) => rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()),
        _ => 0,
    };
    first.len_utf8() + length
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_of_quotes_are_replaced_on_postgresql() {
        let sql = "INSERT INTO é VALUES (NOW(), 'now()', my_now(), t.now(),now())";
        let expected = format!(
            "INSERT INTO é VALUES ({POSTGRESQL_NOW}, 'now()', my_now(), t.now(),{POSTGRESQL_NOW})"
        );
        assert_eq!(fixed(sql, Driver::PostgreSql), expected);
        assert_eq!(fixed(sql, Driver::MySql), sql);
        let sql = "SELECT Current_Timestamp, current_date - 1, localtimestamp, clock_timestamp()";
        let expected = format!(
            "SELECT {POSTGRESQL_NOW}, CAST({POSTGRESQL_NOW} AS date) - 1, \
             CAST({POSTGRESQL_NOW} AS timestamp), {POSTGRESQL_NOW}"
        );
        assert_eq!(fixed(sql, Driver::PostgreSql), expected);
        let sql = "SELECT CURRENT_TIMESTAMP (3), localtime(0), current_time, (now())(1)";
        let expected = format!(
            "SELECT CAST({POSTGRESQL_NOW} AS timestamptz(3)), CAST({POSTGRESQL_NOW} AS time(0)), \
             CAST({POSTGRESQL_NOW} AS timetz), ({POSTGRESQL_NOW})(1)"
        );
        assert_eq!(fixed(sql, Driver::PostgreSql), expected);
        for sql in [
            "",
            "now",
            "SELECT 1",
            "'now()'",
            "\"current_date\"",
            "'it''s current_date'",
            "current_date(3)",
            "current_dates",
            "my_current_date",
            "'current_date",
        ] {
            assert_eq!(fixed(sql, Driver::PostgreSql), sql);
        }
    }
}
