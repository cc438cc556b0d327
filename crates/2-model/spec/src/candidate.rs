//! `[[candidate]]`: the systems to compare.
//!
//! With `matrix`, a candidate for each combination of settings; `sqlite`, the settings of SQLite.

use dbdyno_document::{Document, Problem, Span, Spanned, Table};
use dbdyno_types::server::ServerSystem;
use dbdyno_types::{MatrixCell, MatrixLevel};
use dbdyno_units::{Bytes, Share};

use crate::build::{self, Definitions};
use crate::experiment::{Candidate, Host, JournalMode, SqliteConfig, Synchronous, System};
use crate::names::CONTROL;
use crate::server::{self, Defaults};
use crate::workload::ReadFile;
use crate::{existing, live, names};

/// Defaults for all candidates of a system.
pub struct Sections<'f> {
    pub sqlite: SqliteConfig,
    pub servers: Vec<(ServerSystem, Defaults)>,
    /// Variants and sources.
    pub definitions: Definitions,
    pub hosts: Vec<Host>,
    pub files: ReadFile<'f>,
}

/// A candidate that may be incomplete because of problems.
pub struct CandidateSection<'d> {
    /// Its name, if valid.
    pub name: Option<&'d str>,
    /// Its system, if known.
    pub program: Option<Program>,
    /// The position of its URL, if it has one.
    pub url: Option<Span>,
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

impl Program {
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Sqlite].into_iter().chain(ServerSystem::ALL.map(Self::Server))
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Server(system) => system.name(),
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Server(system) => system.title(),
        }
    }
}

pub fn read_all<'d>(root: &mut Table<'d>, sections: &Sections<'_>) -> Vec<CandidateSection<'d>> {
    if root.is_table("candidate") {
        root.refuse("candidate", "is a single table", "write `[[candidate]]`");
        return Vec::new();
    }
    let tables = root.tables("candidate");
    if tables.is_empty() {
        root.problem(root.span(), "missing [[candidate]]", "add one with `name` and `system`");
    }
    let mut names: Vec<Spanned<&str>> = Vec::with_capacity(tables.len());
    let mut candidates = Vec::with_capacity(tables.len());
    for mut table in tables {
        let name = read_name(&mut table, &mut names);
        candidates.push(read_rest(table, name, sections));
    }
    check_names(root, &candidates);
    candidates
}

fn read_name<'d>(table: &mut Table<'d>, taken: &mut Vec<Spanned<&'d str>>) -> Option<&'d str> {
    table.require("name");
    let name = names::read(table, "name", names::OF_CANDIDATE)?;
    if name.value == CONTROL {
        let message = format!("reserved name `{CONTROL}`");
        let help = "it is the name of the second instance of the baseline";
        return table.reject(name.span, message, help);
    }
    if let Some(first) = taken.iter().find(|other| other.value == name.value) {
        let line = table.document().line_of(first.span);
        let message = format!("duplicate candidate name `{}`", name.value);
        let help = format!("first used in line {line}");
        table.problem(name.span, message, help);
    }
    taken.push(name);
    Some(name.value)
}

/// Reads `injected_delay`. SQLite only: its clients run the additional events.
fn read_delay(table: &mut Table<'_>, program: Option<Program>) -> Option<Share> {
    let place = table.key_span("injected_delay");
    let delays = Share::default()..=Share::from_percent(1000.0);
    let delay = table.number("injected_delay", delays)?;
    if let (Some(Program::Server(_)), Some(place)) = (program, place) {
        let message = "`injected_delay` applies to SQLite only";
        return table.reject(place, message, "remove `injected_delay`");
    }
    Some(delay)
}

/// Reads `live`. Only for private servers: on others, changes would outlast the run.
fn read_live(table: &mut Table<'_>, program: Option<Program>) -> Option<live::LiveSection> {
    let of_url = "use `dbdyno live optimize --pid PID` for a running server";
    let of_sqlite = "SQLite is a library in dbdyno's worker: remove `live`";
    started_server(table, "live", program, [of_url, of_sqlite])?;
    live::read(table)
}

/// The system of a server that dbdyno starts. For others the key is refused, with what to do for a server with a `url`,
/// and for SQLite.
fn started_server(
    table: &mut Table<'_>,
    key: &'static str,
    program: Option<Program>,
    [of_url, of_sqlite]: [&str; 2],
) -> Option<ServerSystem> {
    match program? {
        Program::Server(system) if !table.has("url") => return Some(system),
        Program::Server(_) => {
            table.refuse(key, "applies to servers that dbdyno starts only", of_url);
        }
        Program::Sqlite => table.refuse(key, "applies to servers only", of_sqlite),
    }
    None
}

fn read_rest<'d>(
    mut table: Table<'d>,
    name: Option<&'d str>,
    sections: &Sections<'_>,
) -> CandidateSection<'d> {
    let table_document = table.document();
    table.require("system");
    let programs: Vec<_> = Program::all().map(|program| (program.name(), program)).collect();
    let program = table.choice("system", &programs).map(|program| program.value);
    let injected_delay = read_delay(&mut table, program);
    let url = table.key_span("url");
    let live = read_live(&mut table, program);
    let series = names::read(&mut table, "series", names::OF_CANDIDATE);
    let system = match program {
        Some(Program::Sqlite) => read_sqlite(&mut table, sections),
        Some(Program::Server(system)) => read_server(&mut table, name, system, sections),
        None => None,
    };
    let matrix = read_matrix(&mut table, program);
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
        series: series.map(|series| series.value.to_owned()),
    });
    let mut all = match (one, matrix) {
        (Some(one), Some(matrix)) => matrix.candidates(&one, table_document),
        (one, _) => one.into_iter().collect(),
    };
    let complete = (!all.is_empty()).then(|| all.remove(0));
    CandidateSection { name, program, url, live, complete, others: all }
}

fn read_sqlite(table: &mut Table<'_>, sections: &Sections<'_>) -> Option<System> {
    for key in ["configure", "configure_with"] {
        table.refuse(key, "applies to servers only", "SQLite has no configure step: remove it");
    }
    let build = build::read(table, &sections.definitions, None);
    let config = read_sqlite_settings(table.table("sqlite"), sections.sqlite);
    for key in server::KEYS.into_iter().chain(existing::KEYS) {
        table.refuse(key, "applies to servers only", "configure SQLite in `sqlite = { … }`");
    }
    build.map(|build| System::Sqlite { build, config })
}

fn read_server(
    table: &mut Table<'_>,
    name: Option<&str>,
    system: ServerSystem,
    sections: &Sections<'_>,
) -> Option<System> {
    let title = system.title();
    table.refuse(
        "sqlite",
        "applies to SQLite only",
        format!("configure {title} in `configuration = {{ … }}`"),
    );
    let defaults = sections.servers.iter().find(|(of, _)| *of == system);
    let defaults = defaults.map(|(_, defaults)| defaults.clone()).unwrap_or_default();
    if table.has("url") {
        build::refuse(table, "dbdyno does not compile a server with a `url`");
        existing::read(table, name, system, &defaults, &sections.hosts).map(System::Existing)
    } else {
        server::read(table, system, defaults, sections).map(System::Private)
    }
}

/// Reports what would have no effect: sections of systems that no candidate has, and keys about starting servers in
/// sections of systems that dbdyno starts none of.
pub fn check_sections(root: &mut Table<'_>, candidates: &[CandidateSection<'_>]) {
    // One with an unknown system was reported already.
    let is_for = |program| candidates.iter().any(|one| one.program.is_none_or(|of| of == program));
    let unused = Program::all().filter(|program| !candidates.is_empty() && !is_for(*program));
    for program in unused {
        if let Some(span) = root.key_span(program.name()) {
            let (name, title) = (program.name(), program.title());
            let message = format!("[{name}] is for candidates of {title}, and there is none");
            root.problem(
                span,
                message,
                format!("remove it, or add one with `system = \"{name}\"`"),
            );
        }
    }
    let is_started = |system| {
        let program = Some(Program::Server(system));
        candidates
            .iter()
            .any(|one| one.program.is_none() || (one.program == program && one.url.is_none()))
    };
    for system in ServerSystem::ALL.into_iter().filter(|system| !is_started(*system)) {
        let is_used = candidates.iter().any(|one| one.program == Some(Program::Server(system)));
        if let Some(mut section) = is_used.then(|| root.table(system.name())).flatten() {
            server::refuse_keys_of_starting(&mut section);
            let help = "dbdyno does not compile a server with a `url`";
            section.refuse("source", "applies to systems that dbdyno compiles only", help);
        }
    }
}

/// The defaults: the data stays in memory, so that storage does not affect the measurement.
pub const DEFAULT_SQLITE: SqliteConfig = SqliteConfig {
    page_size: Bytes::from_kib(4),
    cache_size: Bytes::from_mib(256),
    journal_mode: JournalMode::Wal,
    synchronous: Synchronous::Off,
};

/// Reads a table on top of the given values.
pub fn read_sqlite_settings(table: Option<Table<'_>>, mut config: SqliteConfig) -> SqliteConfig {
    let Some(mut table) = table else { return config };
    let pages = Bytes::from_bytes(512)..=Bytes::from_kib(64);
    if let Some(size) = table.number_at("page_size", pages) {
        if size.value.as_bytes().is_power_of_two() {
            config.page_size = size.value;
        } else {
            table.problem(
                size.span,
                "`page_size` must be a power of two",
                "valid values: 512 B, 1 KiB, 2 KiB, 4 KiB … 64 KiB",
            );
        }
    }
    let caches = Bytes::from_kib(64)..=Bytes::from_mib(1 << 20);
    table.set("cache_size", caches, &mut config.cache_size);
    table.set_choice("journal_mode", JournalMode::WORDS, &mut config.journal_mode);
    table.set_choice("synchronous", Synchronous::WORDS, &mut config.synchronous);
    table.finish();
    config
}

/// Maximum number of candidates of a matrix: each is a server with its own data.
const MOST: usize = 16;

/// Prefixes of settings that are left out of candidates' names.
const PREFIXES: [&str; 2] = ["innodb_", "rocksdb_"];

struct Matrix {
    span: Span,
    settings: Vec<(Spanned<String>, Vec<String>)>,
}

/// Reads `matrix`; `None` if there is none or it has problems.
fn read_matrix(table: &mut Table<'_>, program: Option<Program>) -> Option<Matrix> {
    let span = table.key_span("matrix")?;
    let of_url = "dbdyno does not configure a server with a `url`";
    let of_sqlite = "write a [[candidate]] with `sqlite = { … }` for each combination";
    let system = started_server(table, "matrix", program, [of_url, of_sqlite])?;
    let mut matrix = table.table("matrix")?;
    let problems_before = matrix.document().problem_count();
    let mut settings: Vec<(Spanned<String>, Vec<String>)> = Vec::new();
    for (name, values) in server::read_configuration_lists(&mut matrix, system) {
        if settings.iter().any(|(other, _)| other.value == name.value) {
            matrix.problem(name.span, format!("`{}` is set twice", name.value), "remove one");
        }
        if values.value.len() < 2 {
            let help = "write a setting with one value in `configuration`";
            matrix.problem(values.span, format!("`{}` needs two values", name.value), help);
        }
        for (index, value) in values.value.iter().enumerate() {
            if values.value[..index].iter().any(|other| part(&other.value) == part(&value.value)) {
                let message = format!("`{}` twice", value.value);
                let help = "each value gives candidates with a name of their own";
                matrix.problem(value.span, message, help);
            }
        }
        settings.push((name, values.value.into_iter().map(|value| value.value).collect()));
    }
    let count = settings.iter().fold(1_usize, |all, (_, values)| all.saturating_mul(values.len()));
    if count > MOST {
        let help = format!("at most {MOST}: each has a server and a copy of the data");
        matrix.problem(span, format!("`matrix` has {count} combinations"), &help);
    }
    if settings.is_empty() && matrix.document().problem_count() == problems_before {
        let help = "as in { innodb_flush_neighbors = [0, 1] }";
        matrix.problem(span, "`matrix` is empty".to_owned(), help);
    }
    let is_valid = matrix.document().problem_count() == problems_before;
    is_valid.then_some(Matrix { span, settings })
}

impl Matrix {
    /// The candidates: `one` with each combination of values. The last setting changes first.
    pub fn candidates(&self, one: &Candidate, document: &Document) -> Vec<Candidate> {
        let System::Private(server) = &one.system else { return vec![one.clone()] };
        for (name, _) in &self.settings {
            if server.configuration.iter().any(|(set, _)| *set == name.value) {
                let message = format!("`{}` is also in `configuration`", name.value);
                document
                    .report(Problem::new(name.span, message).help("remove it from one of them"));
            }
        }
        let mut cells: Vec<Vec<MatrixLevel>> = vec![Vec::new()];
        for (setting, values) in &self.settings {
            let level = |value: &String| MatrixLevel {
                setting: setting.value.clone(),
                value: value.clone(),
            };
            cells = cells
                .iter()
                .flat_map(|cell| {
                    values.iter().map(move |value| [&cell[..], &[level(value)]].concat())
                })
                .collect();
        }
        let candidates = cells.into_iter().map(|levels| {
            let mut server = server.clone();
            let settings = levels.iter().map(|one| (one.setting.clone(), one.value.clone()));
            server.configuration.extend(settings);
            Candidate {
                name: self.name(&one.name, &levels),
                system: System::Private(server),
                matrix: Some(MatrixCell { matrix: one.name.clone(), levels }),
                ..one.clone()
            }
        });
        let candidates: Vec<Candidate> = candidates.collect();
        if let Some(long) = candidates.iter().find(|one| one.name.len() > names::LONGEST) {
            let message = format!("the name {} is too long", long.name);
            let help = format!("at most {} characters: shorten `name`", names::LONGEST);
            document.problem(self.span, message, help);
        }
        candidates
    }

    /// The name of a combination, such as `maria.doublewrite-ON.flush_neighbors-0`.
    fn name(&self, of: &str, levels: &[MatrixLevel]) -> String {
        let all: Vec<&str> = self.settings.iter().map(|(name, _)| short(&name.value)).collect();
        let mut name = of.to_owned();
        for MatrixLevel { setting, value } in levels {
            let short = short(setting);
            let is_unique = all.iter().filter(|other| **other == short).count() == 1;
            let setting = if is_unique { short } else { setting };
            name.push_str(&format!(".{}-{}", part(setting), part(value)));
        }
        name
    }
}

/// The name of a setting in candidates' names.
pub fn short(setting: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| setting.strip_prefix(prefix)).unwrap_or(setting)
}

/// A text as a part of a candidate's name.
pub fn part(text: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    text.chars().map(|c| if valid(c) { c } else { '_' }).collect()
}

/// Reports a candidate of a matrix with the name of another candidate.
fn check_names(root: &Table<'_>, candidates: &[CandidateSection<'_>]) {
    let mut taken: Vec<&Candidate> = Vec::new();
    for one in candidates.iter().flat_map(CandidateSection::all) {
        let is_equal = |other: &&Candidate| {
            other.name == one.name && (other.matrix.is_some() || one.matrix.is_some())
        };
        if taken.iter().any(is_equal) {
            let message = format!("duplicate candidate name `{}`, of a `matrix`", one.name);
            let span = root.key_span("candidate").unwrap_or_default();
            root.problem(span, message, "rename one of the candidates");
        }
        taken.push(one);
    }
}

/// The name of the baseline: of a matrix, the candidate with the first value of each setting.
pub fn baseline(name: &str, candidates: &[CandidateSection<'_>]) -> String {
    let of_matrix = candidates.iter().find(|candidate| candidate.name == Some(name));
    let first = of_matrix.and_then(|candidate| candidate.complete.as_ref());
    first.map_or(name, |first| first.name.as_str()).to_owned()
}
