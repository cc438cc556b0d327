use crate::host::{Host, Outcome, Rows, Sent, SqlError, Value};
use crate::placeholders::replace_placeholders;
use crate::state::Driver;

/// A host that executes nothing and keeps the statements as text, with the parameters' values.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The statements that were executed since they were last taken.
    pub statements: Vec<String>,
    /// The lines that were printed.
    pub printed: Vec<String>,
    prepared: Vec<String>,
}

impl Host for Recorder {
    fn prepare(&mut self, sql: &str) -> Result<u32, SqlError> {
        self.prepared.push(sql.to_owned());
        Ok(self.prepared.len() as u32 - 1)
    }

    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent {
        let sql = self.prepared.get(statement as usize).map_or("", String::as_str);
        self.statements.push(with_values(sql, values, Driver::MySql));
        Sent::Done(Ok(outcome(sql)))
    }

    fn query(&mut self, sql: &str) -> Sent {
        self.statements.push(sql.to_owned());
        Sent::Done(Ok(outcome(sql)))
    }

    fn take_rows(&mut self) -> Rows {
        Rows::new()
    }

    fn close(&mut self, _: u32) {}

    fn print(&mut self, text: &str) {
        self.printed.push(text.to_owned());
    }

    fn restarted(&mut self) {}
}

/// A query returns no rows, as nothing is executed.
fn outcome(sql: &str) -> Outcome {
    let word = sql.split_whitespace().next().unwrap_or_default();
    Outcome { has_rows: word.eq_ignore_ascii_case("select"), rows: 0 }
}

/// SQL with the values as literals in place of each `?` outside of quotes.
#[must_use]
pub fn with_values(sql: &str, values: &[Value<'_>], driver: Driver) -> String {
    let mut values = values.iter();
    replace_placeholders(sql, driver, |_, text| match values.next() {
        None => text.push('?'),
        Some(Value::Null) => text.push_str("NULL"),
        Some(Value::Int(value)) => text.push_str(&value.to_string()),
        Some(Value::Double(value)) => text.push_str(&value.to_string()),
        Some(Value::Text(value)) => {
            text.push('\'');
            let value = String::from_utf8_lossy(value).replace('\'', "''");
            match driver {
                Driver::MySql => text.push_str(&value.replace('\\', "\\\\")),
                Driver::PostgreSql => text.push_str(&value),
            }
            text.push('\'');
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_only_placeholders_outside_of_quotes() {
        let values = [Value::Int(1), Value::Text(b"a?'")];
        let sql = with_values("SELECT '?', ?, ?", &values, Driver::MySql);
        assert_eq!(sql, "SELECT '?', 1, 'a?'''");
    }
}
