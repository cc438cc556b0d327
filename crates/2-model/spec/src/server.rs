//! Servers that dbdyno starts: keys of a `[[candidate]]`, and the sections `[mariadb]`, `[mysql]`
//! and `[postgresql]` with defaults for all candidates of a system.
//!
//! `configuration = { … }`: the server's own settings, under its names.

use std::path::{Path, PathBuf};

use dbdyno_document::{Setting, Span, Spanned, Table};
use dbdyno_types::ReleaseOrigin;
use dbdyno_types::build::SourceOrigin;
use dbdyno_types::server::{
    Durability, Protocol, ServerSystem, SettingDefaults, StatementMode, StorageEngine,
};
use dbdyno_types::settings::of_version;

use crate::build::{self, Definitions};
use crate::candidate::Sections;
use crate::experiment::{Build, PrivateServer};
use crate::option_file::{self, OptionFile};
use crate::workload::ReadFile;
use crate::{existing, machines, source};

/// A candidate's keys for a private server. Some also apply to an existing server.
pub const KEYS: [&str; 10] = [
    "host",
    "engine",
    "program",
    "release",
    "defaults",
    "durability",
    "statements",
    "restarts_after_death",
    "options",
    "configuration",
];

/// The keys in [`KEYS`] that are not about starting a server.
const KEYS_OF_ALL_SERVERS: [&str; 3] = ["host", "engine", "statements"];

const MOST_RESTARTS: u32 = 1000;

/// Keys that both a section and a candidate have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub program: Option<PathBuf>,
    /// The source, for candidates that are compiled.
    pub source: Option<SourceOrigin>,
    pub defaults: SettingDefaults,
    pub durability: Durability,
    pub statements: StatementMode,
    /// Maximum number of restarts per session after it died.
    pub restarts_after_death: u32,
    /// The files that some of the settings are from.
    pub options: Vec<OptionFile>,
    pub configuration: Vec<(String, String)>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            program: None,
            source: None,
            defaults: SettingDefaults::Dbdyno,
            durability: Durability::Relaxed,
            statements: StatementMode::Prepared,
            restarts_after_death: 1,
            options: Vec::new(),
            configuration: Vec::new(),
        }
    }
}

/// Reads the sections for servers.
pub fn read_sections(root: &mut Table<'_>, files: ReadFile<'_>) -> Vec<(ServerSystem, Defaults)> {
    let mut sections = Vec::with_capacity(ServerSystem::ALL.len());
    for system in ServerSystem::ALL {
        let mut defaults = Defaults::default();
        if let Some(mut table) = root.table(system.name()) {
            defaults = read_over(&mut table, system, defaults, files);
            defaults.source = table.table("source").and_then(source::read);
            table.finish();
        }
        sections.push((system, defaults));
    }
    sections
}

/// Reads a candidate's keys; `defaults` are those of its system's section.
///
/// The server is compiled if the candidate has a `variant` or settings of one.
pub fn read(
    table: &mut Table<'_>,
    system: ServerSystem,
    defaults: Defaults,
    sections: &Sections<'_>,
) -> Option<PrivateServer> {
    let Sections { definitions, hosts, files, .. } = sections;
    let (host, tls) = machines::of_server(table, hosts);
    let engine = read_engine(table, system).or(system.storage_engines().first().copied());
    let program = table.key_span("program");
    let own = read_over(table, system, defaults, *files);
    let release = read_release(table, system, program);
    let build = read_build(table, system, own.source.as_ref(), program, definitions);
    if system.facts().has_configure && build::is_requested(table) && tls {
        let span = table.key_span("tls").unwrap_or_else(|| table.span());
        let message = format!("{} that dbdyno compiles has no TLS", system.title());
        table.problem(span, message, "remove `tls`, or use an installed server or a `release`");
    }
    for key in existing::KEYS {
        let help = "add `url`, or remove this";
        table.refuse(key, "applies to existing servers only", help);
    }
    Some(PrivateServer {
        system,
        engine,
        // A section's program is for candidates that name none.
        program: own.program.filter(|_| release.is_none()),
        release,
        build: build?,
        host,
        tls,
        defaults: own.defaults,
        durability: match own.defaults {
            SettingDefaults::Server => Durability::Strict,
            SettingDefaults::Dbdyno => own.durability,
        },
        options: own.options,
        configuration: own.configuration,
        statements: own.statements,
        restarts_after_death: own.restarts_after_death,
    })
}

/// Reads `release`, which names the program, as `program` and `variant` do.
fn read_release(
    table: &mut Table<'_>,
    system: ServerSystem,
    program: Option<Span>,
) -> Option<ReleaseOrigin> {
    let place = table.key_span("release")?;
    let release = source::read_release(table, system);
    let other = if program.is_some() {
        "program"
    } else if build::is_requested(table) {
        "variant"
    } else {
        return release;
    };
    table.problem(
        place,
        format!("`release` and `{other}` exclude each other"),
        format!("remove `release` or `{other}`"),
    );
    release
}

/// Reads the build, if the server is compiled; the outer `None` after a problem.
fn read_build(
    table: &mut Table<'_>,
    system: ServerSystem,
    source: Option<&SourceOrigin>,
    program: Option<Span>,
    definitions: &Definitions,
) -> Option<Option<Build>> {
    let title = system.title();
    if !system.facts().has_configure {
        let help = format!("{title} is configured by CMake");
        table.refuse("configure_with", "applies to PostgreSQL only", help);
    }
    if !build::is_requested(table) {
        build::refuse(table, &format!("add a `variant` to compile {title}, or remove this"));
        return Some(None);
    }
    if let Some(program) = program {
        table.problem(
            program,
            "`program` and `variant` exclude each other",
            "remove `program` or `variant`",
        );
    }
    let build = build::read(table, definitions, source)?;
    if build.source == SourceOrigin::Bundled {
        let message = format!("missing `source`: {title} is compiled for the run");
        let example = system.facts().example_source;
        let help = format!("add `source`, such as {{ {example} }}");
        let span = table.key_span("variant").unwrap_or_else(|| table.span());
        return table.reject(span, message, help);
    }
    Some(Some(build))
}

pub fn read_engine(table: &mut Table<'_>, system: ServerSystem) -> Option<StorageEngine> {
    let engines = system.storage_engines();
    if engines.is_empty() {
        let message = "applies to systems with several storage engines only";
        table.refuse("engine", message, format!("{} has only one", system.title()));
        return None;
    }
    let words: Vec<_> = engines.iter().map(|engine| (engine.name(), *engine)).collect();
    table.choice("engine", &words).map(|engine| engine.value)
}

pub fn read_statements(table: &mut Table<'_>, mode: &mut StatementMode) {
    table.set_choice("statements", StatementMode::WORDS, mode);
}

/// Rejects the keys about starting a server.
pub fn refuse_keys_of_starting(table: &mut Table<'_>) {
    for key in KEYS.into_iter().filter(|key| !KEYS_OF_ALL_SERVERS.contains(key)) {
        let help = "dbdyno does not start or configure a server with a `url`";
        table.refuse(key, "applies to servers that dbdyno starts only", help);
    }
}

fn read_over(
    table: &mut Table<'_>,
    system: ServerSystem,
    mut own: Defaults,
    files: ReadFile<'_>,
) -> Defaults {
    let example = "write the full path, such as \"/usr/sbin/mariadbd\"";
    own.program = read_path(table, "program", example).or(own.program);
    table.set_choice("defaults", SettingDefaults::WORDS, &mut own.defaults);
    let of_durability = table.key_span("durability");
    table.set_choice("durability", Durability::WORDS, &mut own.durability);
    if let (Some(span), SettingDefaults::Server) = (of_durability, own.defaults) {
        let message = "`durability` sets dbdyno's values, and `defaults = \"server\"` sets none";
        let help = "remove one of them; single settings are set in `configuration`";
        table.problem(span, message, help);
    }
    read_statements(table, &mut own.statements);
    table.set("restarts_after_death", 0..=MOST_RESTARTS, &mut own.restarts_after_death);
    own.options.extend(option_file::read(table, system, files, &mut own.configuration));
    own.configuration = read_configuration(table.table("configuration"), system, own.configuration);
    own
}

/// Reads an absolute path: whoever uses it works in another directory, maybe as another user or on another host.
pub fn read_path(table: &mut Table<'_>, key: &'static str, help: &str) -> Option<PathBuf> {
    let text = table.string(key)?;
    let path = Path::new(text.value);
    if !path.is_absolute() || text.value.contains(char::is_control) {
        let message = format!("the path of `{key}` must be absolute");
        return table.reject(text.span, message, help);
    }
    Some(path.to_owned())
}

/// Reads a table on top of the default settings. Settings keep their order; an override keeps the
/// position of the setting that it replaces.
fn read_configuration(
    table: Option<Table<'_>>,
    system: ServerSystem,
    mut settings: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let Some(mut table) = table else { return settings };
    let mut seen: Vec<Spanned<String>> = Vec::new();
    for (name, value) in table.named_settings() {
        let canonical = canonical(name.value, system);
        if !is_setting_name(plain_name(name.value)) {
            report_setting_name(&table, name);
            continue;
        }
        if let Some(first) = seen.iter().find(|first| first.value == canonical) {
            let line = table.document().line_of(first.span);
            let message = format!("`{}` is set twice", name.value);
            let help = format!("same setting as in line {line}");
            table.problem(name.span, message, help);
        }
        let Some(value) = setting_text(value, system, &table) else { continue };
        set(&mut settings, canonical.clone(), value);
        seen.push(name.map(|_| canonical));
    }
    settings
}

/// Sets a setting. One for all versions replaces those for one version before it, such as `10.11/NAME`.
pub fn set(settings: &mut Vec<(String, String)>, name: String, value: String) {
    if of_version(&name).0.is_none() {
        settings.retain(|(known, _)| of_version(known).0.is_none() || of_version(known).1 != name);
    }
    match settings.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => settings.push((name, value)),
    }
}

pub type ValueList = Spanned<Vec<Spanned<String>>>;

/// Reads lists of values: the canonical name of each setting with its values, in the syntax of the
/// server's configuration file. Values with problems are left out.
pub fn read_configuration_lists<'d>(
    table: &mut Table<'d>,
    system: ServerSystem,
) -> Vec<(Spanned<String>, ValueList)> {
    let mut settings = Vec::new();
    for (name, values) in table.named_setting_lists() {
        if !is_setting_name(name.value) {
            report_setting_name(table, name);
            continue;
        }
        let texts = values.value.iter().filter_map(|value| {
            let text = setting_text(*value, system, table)?;
            Some(value.map(|_| text))
        });
        let texts = Spanned { value: texts.collect(), span: values.span };
        settings.push((name.map(|name| canonical(name, system)), texts));
    }
    settings
}

fn report_setting_name(table: &Table<'_>, name: Spanned<&str>) {
    let message = format!("`{}` cannot be the name of a setting", name.value);
    let help = "names consist of letters, digits and _ - .";
    table.problem(name.span, message, help);
}

/// The canonical spelling of a name with several spellings.
pub fn canonical(name: &str, system: ServerSystem) -> String {
    match system.facts().protocol {
        Protocol::MySql => name.replace('-', "_"),
        Protocol::PostgreSql => name.to_ascii_lowercase(),
    }
}

/// The name without the version that it is for.
fn plain_name(name: &str) -> &str {
    match of_version(name) {
        (Some(version), plain) if version.chars().all(|c| c.is_ascii_digit() || c == '.') => plain,
        _ => name,
    }
}

/// Other characters are special in the configuration file of some server.
pub fn is_setting_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// The value in the syntax of the server's configuration file.
fn setting_text(
    value: Spanned<Setting<'_>>,
    system: ServerSystem,
    table: &Table<'_>,
) -> Option<String> {
    let problem = |message: &str, help: &str| table.reject(value.span, message, help);
    match value.value {
        Setting::String(text) if text.contains(char::is_control) => {
            problem("a setting must be one line of plain text", "remove line breaks and tabs")
        }
        Setting::String(text) => Some(text.to_owned()),
        Setting::Integer(number) => Some(number.to_string()),
        Setting::Float(number) if number.is_finite() => Some(number.to_string()),
        Setting::Float(_) => problem("a setting must be a finite number", "write it as a string"),
        Setting::Boolean(on) => Some(system.facts().booleans[usize::from(on)].to_owned()),
    }
}
