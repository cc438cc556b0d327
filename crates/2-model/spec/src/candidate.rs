//! `[[candidate]]`: the systems to compare.

use dbdyno_document::{Problem, Span, Spanned, Table};
use dbdyno_types::server::ServerSystem;
use dbdyno_units::Share;

use crate::build::{self, Definitions};
use crate::experiment::{Candidate, Host, SqliteConfig, System};
use crate::names::CONTROL;
use crate::server::{self, Defaults};
use crate::{existing, live, matrix, names, sqlite};

/// Defaults for all candidates of a system.
pub struct Sections {
    /// Defaults for SQLite.
    pub sqlite: SqliteConfig,
    pub servers: Vec<(ServerSystem, Defaults)>,
    /// Variants and sources.
    pub definitions: Definitions,
    /// The hosts of servers.
    pub hosts: Vec<Host>,
}

/// A candidate that may be incomplete because of problems.
pub struct CandidateSection<'d> {
    /// Its name, if valid.
    pub name: Option<&'d str>,
    /// Its system, if known.
    pub program: Option<Program>,
    /// The position of its URL, if it has one.
    pub url: Option<Span>,
    /// Its `live`, if it has one.
    pub live: Option<live::LiveSection>,
    /// The candidate, if it is valid; of a matrix, the first one.
    pub complete: Option<Candidate>,
    /// The other candidates of its matrix.
    pub others: Vec<Candidate>,
}

impl CandidateSection<'_> {
    /// The candidate, or all of its matrix.
    pub fn all(&self) -> impl Iterator<Item = &Candidate> {
        self.complete.iter().chain(&self.others)
    }
}

/// A value of `system`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Sqlite,
    Server(ServerSystem),
}

/// Reads all candidates.
pub fn read_all<'d>(root: &mut Table<'d>, sections: &Sections) -> Vec<CandidateSection<'d>> {
    if root.is_table("candidate") {
        root.refuse("candidate", "is a single table", "write `[[candidate]]`");
        return Vec::new();
    }
    let tables = root.tables("candidate");
    if tables.is_empty() {
        let problem = Problem::new(root.span(), "missing [[candidate]]");
        root.report(problem.help("add one with `name` and `system`"));
    }
    let mut names: Vec<Spanned<&str>> = Vec::with_capacity(tables.len());
    let mut candidates = Vec::with_capacity(tables.len());
    for mut table in tables {
        let name = read_name(&mut table, &mut names);
        candidates.push(read_rest(table, name, sections));
    }
    matrix::check_names(root, &candidates);
    candidates
}

/// Reads the name, which must be unique.
fn read_name<'d>(table: &mut Table<'d>, taken: &mut Vec<Spanned<&'d str>>) -> Option<&'d str> {
    table.require("name");
    let name = names::of_candidate(table)?;
    if name.value == CONTROL {
        let message = format!("reserved name `{CONTROL}`");
        let help = "it is the name of the second instance of the baseline";
        table.report(Problem::new(name.span, message).help(help));
        return None;
    }
    if let Some(first) = taken.iter().find(|other| other.value == name.value) {
        let line = table.document().line_of(first.span);
        let message = format!("duplicate candidate name `{}`", name.value);
        let help = format!("first used in line {line}");
        table.report(Problem::new(name.span, message).help(help));
    }
    taken.push(name);
    Some(name.value)
}

/// Reads `injected_delay`. SQLite only: its clients run the additional events.
fn read_delay(table: &mut Table<'_>, program: Option<Program>) -> Option<Share> {
    let place = table.key_span("injected_delay");
    let delays = Share::default()..=Share::from_percent(1000.0);
    let delay = table.share("injected_delay", delays)?;
    if let (Some(Program::Server(_)), Some(place)) = (program, place) {
        let message = "`injected_delay` is for SQLite";
        table.report(Problem::new(place, message).help("remove `injected_delay`"));
        return None;
    }
    Some(delay.value)
}

/// Reads `live`. Only for private servers: on others, changes would outlast the run.
fn read_live(table: &mut Table<'_>, program: Option<Program>) -> Option<live::LiveSection> {
    match program {
        Some(Program::Server(_)) if !table.has("url") => live::read(table),
        Some(Program::Server(_)) => {
            let help = "use `dbdyno live optimize --pid PID` for a running server";
            table.refuse("live", "is for a server that dbdyno starts", help);
            None
        }
        Some(Program::Sqlite) => {
            let help = "SQLite is a library in dbdyno's worker: remove `live`";
            table.refuse("live", "is for servers", help);
            None
        }
        None => None,
    }
}

fn read_rest<'d>(
    mut table: Table<'d>,
    name: Option<&'d str>,
    sections: &Sections,
) -> CandidateSection<'d> {
    let table_document = table.document();
    table.require("system");
    let program = table.choice("system", &programs()).map(|program| program.value);
    let injected_delay = read_delay(&mut table, program);
    let url = table.key_span("url");
    let live = read_live(&mut table, program);
    let series = names::of_series(&mut table);
    let system = match program {
        Some(Program::Sqlite) => read_sqlite(&mut table, sections),
        Some(Program::Server(system)) => read_server(&mut table, name, system, sections),
        None => None,
    };
    let matrix = matrix::read(&mut table, program);
    // The valid keys depend on the system.
    if program.is_some() {
        table.finish();
    }
    let one = name.zip(system).map(|(name, system)| Candidate {
        name: name.to_owned(),
        system,
        injected_delay,
        live: live.as_ref().and_then(|read| read.live.clone()),
        matrix: None,
        series: series.clone(),
    });
    let mut all = match (one, matrix) {
        (Some(one), Some(matrix)) => matrix.candidates(&one, table_document),
        (one, _) => one.into_iter().collect(),
    };
    let complete = (!all.is_empty()).then(|| all.remove(0));
    CandidateSection { name, program, url, live, complete, others: all }
}

fn programs() -> Vec<(&'static str, Program)> {
    let servers = ServerSystem::ALL.map(|system| (system.name(), Program::Server(system)));
    [("sqlite", Program::Sqlite)].into_iter().chain(servers).collect()
}

fn read_sqlite(table: &mut Table<'_>, sections: &Sections) -> Option<System> {
    for key in ["configure", "configure_with"] {
        table.refuse(key, "is for servers", "SQLite has no configure step: remove it");
    }
    let build = build::read(table, &sections.definitions, None);
    let config = sqlite::read(table.table("sqlite"), sections.sqlite);
    for key in server::KEYS.into_iter().chain(existing::KEYS) {
        table.refuse(key, "is for servers", "configure SQLite in `sqlite = { … }`");
    }
    build.map(|build| System::Sqlite { build, config })
}

fn read_server(
    table: &mut Table<'_>,
    name: Option<&str>,
    system: ServerSystem,
    sections: &Sections,
) -> Option<System> {
    let title = system.title();
    table.refuse(
        "sqlite",
        "is for SQLite",
        format!("configure {title} in `configuration = {{ … }}`"),
    );
    let defaults = sections.servers.iter().find(|(of, _)| *of == system);
    let defaults = defaults.map(|(_, defaults)| defaults.clone()).unwrap_or_default();
    let Sections { definitions, hosts, .. } = sections;
    if table.has("url") {
        build::refuse(table, "dbdyno does not compile a server with a `url`");
        existing::read(table, name, system, &defaults, hosts).map(System::Existing)
    } else {
        server::read(table, system, defaults, definitions, hosts).map(System::Private)
    }
}
