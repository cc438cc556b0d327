//! Existing servers: a `[[candidate]]` with a `url`.

use dbdyno_document::{Problem, Span, Spanned, Table};
use dbdyno_types::server::{Protocol, ServerSystem};

use crate::candidate::CandidateSection;
use crate::experiment::{ExistingServer, Host, System};
use crate::server::{self, Defaults};
use crate::{machines, target};

/// The keys that only such a candidate has.
pub const KEYS: [&str; 3] = ["url", "schema", "pid"];

/// The maximum process ID on Linux.
const GREATEST_PID: i64 = 1 << 22;

/// Reads the keys; `None` after a problem.
pub fn read(
    table: &mut Table<'_>,
    name: Option<&str>,
    system: ServerSystem,
    defaults: &Defaults,
    hosts: &[Host],
) -> Option<ExistingServer> {
    let url = table.string("url");
    let target = url.and_then(|url| target::parse(url, system, table.document()));
    let engine = server::read_engine(table, system);
    let statements = server::read_statements(table).unwrap_or(defaults.statements);
    let schema = read_schema(table, name);
    let pid = table.integer("pid", 1..=GREATEST_PID).map(|pid| pid.value as u32);
    let host = machines::of_existing(table, url.zip(target.as_ref()), hosts);
    server::refuse_keys_of_starting(table);
    Some(ExistingServer { system, engine, target: target?, schema: schema?, statements, pid, host })
}

/// Reports a schema shared by two candidates, or by a candidate and the control.
pub fn check_schemas(
    root: &Table<'_>,
    candidates: &[CandidateSection<'_>],
    control_of: Option<&str>,
) {
    let mut taken: Vec<(ExistingServer, String)> = Vec::new();
    for candidate in candidates {
        let (Some(url), Some(complete)) = (candidate.url, &candidate.complete) else { continue };
        let System::Existing(server) = &complete.system else { continue };
        let mut servers = vec![(server.clone(), format!("`{}`", complete.name))];
        if control_of == Some(complete.name.as_str()) {
            servers.push((server.for_control(), "the control".to_owned()));
        }
        for (server, whose) in servers {
            if let Some((_, first)) = taken.iter().find(|(other, _)| share(other, &server)) {
                let message = format!("{first} and {whose} would share `{}`", server.schema);
                let help = "set a different `schema` for one of them";
                root.report(Problem::new(url, message).help(help));
            }
            taken.push((server, whose));
        }
    }
}

/// Whether two candidates would use the same schema. In PostgreSQL each database has its own
/// schemas; in MySQL, schemas are databases.
fn share(one: &ExistingServer, other: &ExistingServer) -> bool {
    one.target.address == other.target.address
        && one.schema == other.schema
        && (one.system.facts().protocol != Protocol::PostgreSql
            || one.target.database == other.target.database)
}

/// Reports existing servers if the schedule requires restarts: dbdyno cannot restart them.
pub fn check_restarts(
    root: &Table<'_>,
    candidates: &[CandidateSection<'_>],
    restarts: Option<Span>,
) {
    if let Some(span) = restarts
        && candidates.iter().any(|candidate| candidate.url.is_some())
    {
        let message = "an existing server cannot be restarted";
        let help = "remove `restarts`, or the candidates with a `url`";
        root.report(Problem::new(span, message).help(help));
    }
}

/// PostgreSQL's limit; MySQL allows one more.
const LONGEST_OF_SERVERS: usize = 63;

/// Schema names reserved by servers.
const RESERVED: [&str; 5] = ["information_schema", "mysql", "performance_schema", "public", "sys"];

/// The control's schema on a server where the baseline uses `schema`.
pub fn schema_of_control(schema: &str) -> String {
    format!("{schema}_control")
}

/// The candidate's `schema`; by default derived from the candidate's name.
pub fn read_schema(table: &mut Table<'_>, candidate: Option<&str>) -> Option<String> {
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
    let longest = LONGEST_OF_SERVERS - schema_of_control("").len();
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
