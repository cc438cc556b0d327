//! Servers that dbdyno starts: keys of a `[[candidate]]`, and the sections `[mariadb]`, `[mysql]`
//! and `[postgresql]`, which hold for all candidates of a system.

use std::path::{Path, PathBuf};

use dbdyno_document::{Problem, Span, Table};
use dbdyno_record::server::{Durability, ServerSystem, StatementMode, StorageEngine};

use crate::build::{self, Definitions};
use crate::experiment::{Build, PrivateServer, Source};
use crate::{configuration, source};

/// The keys that a candidate has for a server that dbdyno starts. Some of them also hold for one
/// that runs already.
pub const KEYS: [&str; 6] =
    ["engine", "program", "durability", "statements", "restarts_after_death", "configuration"];

/// Those of the keys that say how to start a server.
const KEYS_OF_STARTING: [&str; 4] =
    ["program", "durability", "restarts_after_death", "configuration"];

/// The keys of a candidate that make no sense for a server that dbdyno starts.
const KEYS_OF_EXISTING: [&str; 2] = ["schema", "pid"];

/// As often as anybody wants to see a server die.
const MOST_RESTARTS: i64 = 1000;

/// What a section and a candidate can both say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The server's executable.
    pub program: Option<PathBuf>,
    /// Where the source comes from, for candidates that are compiled.
    pub source: Option<Source>,
    /// What a commit promises.
    pub durability: Durability,
    /// How statements go to it.
    pub statements: StatementMode,
    /// How often in a session it may be started again after it died.
    pub restarts_after_death: u32,
    /// The server's own settings.
    pub configuration: Vec<(String, String)>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            program: None,
            source: None,
            durability: Durability::Relaxed,
            statements: StatementMode::Prepared,
            restarts_after_death: 1,
            configuration: Vec::new(),
        }
    }
}

/// Reads the sections for servers.
pub fn read_sections(root: &mut Table<'_>) -> Vec<(ServerSystem, Defaults)> {
    let mut sections = Vec::with_capacity(ServerSystem::ALL.len());
    for system in ServerSystem::ALL {
        let mut defaults = Defaults::default();
        if let Some(mut table) = root.table(system.name()) {
            defaults = read_over(&mut table, system, defaults);
            defaults.source = table.table("source").and_then(source::read);
            table.finish();
        }
        sections.push((system, defaults));
    }
    sections
}

/// Reads a candidate's keys over what holds for all candidates of its system.
///
/// It is compiled where it has a `variant`.
pub fn read(
    table: &mut Table<'_>,
    system: ServerSystem,
    defaults: Defaults,
    definitions: &Definitions<'_>,
) -> Option<PrivateServer> {
    let engine = read_engine(table, system).or(system.storage_engines().first().copied());
    let program = table.key_span("program");
    let own = read_over(table, system, defaults);
    let build = read_build(table, system, own.source.as_ref(), program, definitions);
    for key in KEYS_OF_EXISTING {
        let help = "add its `url`, or leave this out for a server that dbdyno starts";
        table.refuse(key, "is for a server that runs already", help);
    }
    Some(PrivateServer {
        system,
        engine,
        program: own.program,
        build: build?,
        durability: own.durability,
        configuration: own.configuration,
        statements: own.statements,
        restarts_after_death: own.restarts_after_death,
    })
}

/// How it is compiled, if it is; the outer `None` where a problem was reported.
fn read_build(
    table: &mut Table<'_>,
    system: ServerSystem,
    source: Option<&Source>,
    program: Option<Span>,
    definitions: &Definitions<'_>,
) -> Option<Option<Build>> {
    let title = system.title();
    if system != ServerSystem::PostgreSql {
        let help = format!("{title} is configured by cmake");
        table.refuse("configure_with", "is for systems with a choice", help);
    }
    if !table.has("variant") {
        for key in build::KEYS {
            let help = format!("add a `variant` to have {title} compiled, or leave this out");
            table.refuse(key, "is for systems that dbdyno compiles", help);
        }
        return Some(None);
    }
    if let Some(program) = program {
        let problem = Problem::new(program, "`program` names a server that is compiled already");
        table.report(problem.help("leave out `program` or `variant`"));
    }
    let build = build::read(table, definitions, source)?;
    if build.source == Source::Bundled {
        let message = format!("{title} is compiled, and its source is not named");
        let example = match system {
            ServerSystem::PostgreSql => "debian = \"postgresql-15\", suite = \"bookworm\"",
            ServerSystem::MariaDb => "debian = \"mariadb\", suite = \"bookworm\"",
            ServerSystem::MySql => "path = \"mysql-server\"",
        };
        let help = format!("add a `source`, such as {{ {example} }}");
        let span = table.key_span("variant").unwrap_or_else(|| table.span());
        table.report(Problem::new(span, message).help(help));
        return None;
    }
    Some(Some(build))
}

/// The storage engine, where one is named and the system has it.
pub fn read_engine(table: &mut Table<'_>, system: ServerSystem) -> Option<StorageEngine> {
    let engines = system.storage_engines();
    if engines.is_empty() {
        let message = "is for systems with several storage engines";
        table.refuse("engine", message, format!("{} has only its own", system.title()));
        return None;
    }
    let words: Vec<_> = engines.iter().map(|engine| (engine.name(), *engine)).collect();
    table.choice("engine", &words).map(|engine| engine.value)
}

/// How statements go to the server, where it is said.
pub fn read_statements(table: &mut Table<'_>) -> Option<StatementMode> {
    let words = [StatementMode::Prepared, StatementMode::Text].map(|mode| (mode.name(), mode));
    table.choice("statements", &words).map(|mode| mode.value)
}

/// Refuses what only makes sense for a server that dbdyno starts.
pub fn refuse_keys_of_starting(table: &mut Table<'_>) {
    for key in KEYS_OF_STARTING {
        let help = "a server at a `url` runs already: dbdyno does not start it or set it up";
        table.refuse(key, "is for a server that dbdyno starts", help);
    }
}

fn read_over(table: &mut Table<'_>, system: ServerSystem, defaults: Defaults) -> Defaults {
    let durabilities = [Durability::Relaxed, Durability::Strict].map(|one| (one.name(), one));
    let durability = table.choice("durability", &durabilities);
    let restarts = table.integer("restarts_after_death", 0..=MOST_RESTARTS);
    Defaults {
        program: read_program(table).or(defaults.program),
        source: defaults.source,
        durability: durability.map_or(defaults.durability, |durability| durability.value),
        statements: read_statements(table).unwrap_or(defaults.statements),
        restarts_after_death: restarts
            .map_or(defaults.restarts_after_death, |restarts| restarts.value as u32),
        configuration: configuration::read(
            table.table("configuration"),
            system,
            defaults.configuration,
        ),
    }
}

fn read_program(table: &mut Table<'_>) -> Option<PathBuf> {
    let program = table.string("program")?;
    let path = Path::new(program.value);
    // The server starts in another directory, and as another user.
    if !path.is_absolute() || program.value.contains(char::is_control) {
        let problem = Problem::new(program.span, "`program` must be a whole path");
        table.report(problem.help("write it from / on, as \"/usr/sbin/mariadbd\""));
        return None;
    }
    Some(path.to_owned())
}
