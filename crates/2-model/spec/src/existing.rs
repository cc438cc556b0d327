//! Existing servers: a `[[candidate]]` with a `url`.

use dbdyno_document::{Problem, Span, Table};
use dbdyno_types::server::{Protocol, ServerSystem};

use crate::candidate::Read;
use crate::experiment::{ExistingServer, Host, System};
use crate::server::{self, Defaults};
use crate::{host, schema, target};

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
    let schema = schema::read(table, name);
    let pid = table.integer("pid", 1..=GREATEST_PID).map(|pid| pid.value as u32);
    let host = host::of_existing(table, url.zip(target.as_ref()), hosts);
    server::refuse_keys_of_starting(table);
    Some(ExistingServer { system, engine, target: target?, schema: schema?, statements, pid, host })
}

/// Reports a schema shared by two candidates, or by a candidate and the control.
pub fn check_schemas(root: &Table<'_>, candidates: &[Read<'_>], control_of: Option<&str>) {
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
pub fn check_restarts(root: &Table<'_>, candidates: &[Read<'_>], restarts: Option<Span>) {
    if let Some(span) = restarts
        && candidates.iter().any(|candidate| candidate.url.is_some())
    {
        let message = "an existing server cannot be restarted";
        let help = "remove `restarts`, or the candidates with a `url`";
        root.report(Problem::new(span, message).help(help));
    }
}
