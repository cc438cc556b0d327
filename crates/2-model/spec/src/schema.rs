//! The schemas that dbdyno creates for its tables on existing servers.

use dbdyno_document::{Problem, Spanned, Table};

/// PostgreSQL's limit; MySQL allows one more.
const LONGEST_OF_SERVERS: usize = 63;

/// Schema names reserved by servers.
const RESERVED: [&str; 5] = ["information_schema", "mysql", "performance_schema", "public", "sys"];

/// The control's schema on a server where the baseline uses `schema`.
pub fn of_control(schema: &str) -> String {
    format!("{schema}_control")
}

/// The candidate's `schema`; by default derived from the candidate's name.
pub fn read(table: &mut Table<'_>, candidate: Option<&str>) -> Option<String> {
    let Some(schema) = table.string("schema") else {
        if table.has("schema") {
            return None;
        }
        let schema = default_for(candidate?);
        let span = table.span();
        return check_length(table, Spanned { value: &schema, span }).then_some(schema);
    };
    let starts_well = schema.value.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let (message, help) = if !starts_well || !schema.value.chars().all(valid) {
        let message = format!("`{}` cannot be the name of a schema", schema.value);
        (message, "names consist of lowercase letters, digits and _, and do not start with a digit")
    } else if RESERVED.contains(&schema.value) || schema.value.starts_with("pg_") {
        let message = format!("the schema `{}` is the server's own", schema.value);
        (message, "dbdyno creates its own schema: choose an unused name")
    } else {
        return check_length(table, schema).then(|| schema.value.to_owned());
    };
    table.report(Problem::new(schema.span, message).help(help));
    None
}

/// The candidate's name, converted to an identifier that needs no quotes on any server.
fn default_for(candidate: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let candidate: String = candidate.chars().map(safe).collect();
    format!("dbdyno_{candidate}")
}

fn check_length(table: &Table<'_>, schema: Spanned<&str>) -> bool {
    let longest = LONGEST_OF_SERVERS - of_control("").len();
    let fits = schema.value.len() <= longest;
    if !fits {
        let message = format!("schema name `{}` is too long", schema.value);
        let help = format!("set `schema` to one of at most {longest} characters");
        table.report(Problem::new(schema.span, message).help(help));
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidate_name_is_converted_to_an_identifier() {
        assert_eq!(default_for("production"), "dbdyno_production");
        assert_eq!(default_for("8.0-Prod+x"), "dbdyno_8_0_prod_x");
    }
}
