//! `[workload]` and the user's own `[[microbenchmark]]`: the data and the microbenchmarks.
//!
//! Its `setup`: SQL scripts that create and fill the user's own tables.

use std::collections::HashMap;

use dbdyno_document::{Span, Spanned, Table};
use dbdyno_types::server::{Protocol, ServerSystem};
use dbdyno_workloads::catalog::{Catalog, Unmatched};
pub use dbdyno_workloads::decode::ReadFile;
use dbdyno_workloads::definition::{Microbenchmark, ParameterSource};
use dbdyno_workloads::effect;
use dbdyno_workloads::setup::{Dialect, SetupScript, client_command, split_script};

use crate::candidate::{CandidateSection, Program};
use crate::experiment::Workload;

const DEFAULT_ROWS: u64 = 100_000;

/// More rows than fit on any disk.
const MOST_ROWS: i64 = 1_000_000_000_000;

/// Maximum number of rows of a server's table: its keys have 32 bits, and some are needed for new rows.
const MOST_ROWS_OF_SERVERS: u64 = 2_000_000_000;

/// Each client has its own connection, and servers limit their number.
const MOST_CLIENTS: u32 = 1024;

/// A workload that may be incomplete because of problems.
pub struct WorkloadSection {
    /// Numbers of concurrent clients, on which the schedule depends.
    pub clients: Vec<u32>,
    /// The workload, if the selection is valid.
    pub complete: Option<Workload>,
    /// All known microbenchmarks.
    pub catalog: Catalog,
    /// The position of `setup`, if there is one.
    pub setup: Option<Span>,
    /// Rows of each table, if they are from the file or the default.
    pub rows: Option<Spanned<u64>>,
}

impl WorkloadSection {
    /// A workload that is not read from the file.
    pub fn of(workload: Workload) -> Self {
        Self {
            clients: workload.clients.clone(),
            complete: Some(workload),
            catalog: Catalog::builtin(),
            setup: None,
            rows: None,
        }
    }
}

pub fn read(root: &mut Table<'_>, files: ReadFile<'_>) -> WorkloadSection {
    let document = root.document();
    let problems_before = document.problem_count();
    let mut catalog = Catalog::builtin();
    for definition in root.tables("microbenchmark") {
        catalog.add(definition, files);
    }
    let own_are_valid = document.problem_count() == problems_before;

    let Some(mut table) = root.table("workload") else {
        let rows = Spanned { value: DEFAULT_ROWS, span: Span::default() };
        let microbenchmarks = catalog.select(["all"]).unwrap_or_default();
        check_rows(root, rows, &microbenchmarks);
        let (rows, clients, setup) = (rows.value, vec![1], Vec::new());
        let workload = Workload { tables: 1, rows, clients, microbenchmarks, setup };
        return WorkloadSection { catalog, ..WorkloadSection::of(workload) };
    };
    let tables = table.number("tables", 1..=1024).unwrap_or(1);
    let rows = table.number_at("rows", 1000..=MOST_ROWS).map(|rows| rows.map(|rows| rows as u64));
    let clients = read_clients(&mut table);
    let microbenchmarks = select(&mut table, &catalog, own_are_valid);
    let default_rows =
        (!table.has("rows")).then_some(Spanned { value: DEFAULT_ROWS, span: table.span() });
    let rows = rows.or(default_rows);
    if let (Some(rows), Some(microbenchmarks)) = (rows, &microbenchmarks) {
        check_rows(&table, rows, microbenchmarks);
    }
    let setup_span = table.key_span("setup");
    let setup = read_setup(&mut table, files);
    table.finish();
    let complete = rows.zip(microbenchmarks).map(|(rows, microbenchmarks)| Workload {
        tables,
        rows: rows.value,
        clients: clients.clone(),
        microbenchmarks,
        setup,
    });
    WorkloadSection { clients, complete, catalog, setup: setup_span, rows }
}

/// Numbers of concurrent clients: one, or several for a sweep.
fn read_clients(table: &mut Table<'_>) -> Vec<u32> {
    let Some(clients) = table.one_or_more("clients", 1..=MOST_CLIENTS) else {
        return vec![1];
    };
    if clients.value.is_empty() {
        table.problem(clients.span, "`clients` is empty", "remove `clients` for one client");
    }
    check_duplicates(table, &clients.value, "number of clients", "each number is measured once");
    clients.value.into_iter().map(|number| number.value).collect()
}

/// Reports numbers of a list that are equal to an earlier one.
pub fn check_duplicates(table: &Table<'_>, numbers: &[Spanned<u32>], what: &str, help: &str) {
    for (i, number) in numbers.iter().enumerate() {
        if numbers[..i].iter().any(|earlier| earlier.value == number.value) {
            table.problem(number.span, format!("duplicate {what} {}", number.value), help);
        }
    }
}

/// The selected microbenchmarks; all by default. If the user's own microbenchmarks have problems,
/// an unknown name is not reported: it may refer to one of them.
fn select(
    table: &mut Table<'_>,
    catalog: &Catalog,
    own_are_valid: bool,
) -> Option<Vec<Microbenchmark>> {
    let Some(words) = table.strings("microbenchmarks") else {
        return (!table.has("microbenchmarks")).then(|| catalog.select(["all"]).ok()).flatten();
    };
    if words.value.is_empty() {
        return table.reject(
            words.span,
            "`microbenchmarks` is empty",
            "remove `microbenchmarks` to select all",
        );
    }
    match own_are_valid {
        true => selected(table, catalog, &words.value),
        false => catalog.select(words.value.iter().map(|word| word.value)).ok(),
    }
}

/// The microbenchmarks that words select; `None` after a problem.
pub fn selected(
    table: &Table<'_>,
    catalog: &Catalog,
    words: &[Spanned<&str>],
) -> Option<Vec<Microbenchmark>> {
    let report = |unmatched: Vec<Unmatched>| {
        for one in unmatched {
            table.problem(words[one.index].span, one.to_string(), one.help());
        }
    };
    catalog.select(words.iter().map(|word| word.value)).map_err(report).ok()
}

/// The text of a file that a key names; `None` after a problem.
pub fn read_file(
    table: &Table<'_>,
    key: &str,
    file: Spanned<&str>,
    files: ReadFile<'_>,
) -> Option<String> {
    let help = "it is relative to the directory of the experiment file";
    let report = |reason: String| table.problem(file.span, format!("`{key}`: {reason}"), help);
    files(file.value).map_err(report).ok()
}

/// Checks that the keys of a server's tables are sufficient.
pub fn check_rows_of_servers(root: &Table<'_>, rows: Spanned<u64>) {
    if rows.value > MOST_ROWS_OF_SERVERS {
        let message = format!("{} rows are too many for a table of a server", rows.value);
        let help =
            "keys have 32 bits: use at most 2_000_000_000 rows, in several `tables` if needed";
        root.problem(rows.span, message, help);
    }
}

/// Checks that no range is longer than the table: the microbenchmark would not match its name.
fn check_rows(table: &Table<'_>, rows: Spanned<u64>, microbenchmarks: &[Microbenchmark]) {
    let widest = microbenchmarks.iter().max_by_key(|one| width(one));
    let Some((name, width)) = widest.map(|one| (&one.name, width(one))) else { return };
    if rows.value <= width {
        let message = format!("{} rows are not enough for {name}", rows.value);
        let help = format!("it reads {width} keys per statement: use more rows than that");
        table.problem(rows.span, message, help);
    }
}

/// The maximum number of keys that one of its statements reads.
fn width(microbenchmark: &Microbenchmark) -> u64 {
    let mut widest = 0;
    for statement in &microbenchmark.statements {
        // Distances from the first parameter of a chain: one refers to another one before it.
        let mut distances: HashMap<&str, i64> = HashMap::new();
        for (name, draw) in &statement.draw {
            let width = match draw {
                ParameterSource::KeyList { count, .. } | ParameterSource::Middle { count } => {
                    u64::from(*count)
                }
                ParameterSource::Offset { of, plus } => {
                    let before = distances.get(of.as_str()).copied().unwrap_or(0);
                    let distance = before.saturating_add(*plus);
                    distances.insert(name, distance);
                    u64::try_from(distance).map_or(1, |distance| distance.saturating_add(1))
                }
                ParameterSource::Key(_)
                | ParameterSource::Fixed(_)
                | ParameterSource::Between { .. }
                | ParameterSource::Text(_) => 1,
            };
            widest = widest.max(width);
        }
    }
    widest
}

/// Maximum length of all scripts in bytes. They are one value in the database of a run, where a byte may need two.
const MOST_BYTES: usize = 24 << 20;

/// Reads the scripts: texts, or files whose names end in `.sql`.
fn read_setup(table: &mut Table<'_>, files: ReadFile<'_>) -> Vec<SetupScript> {
    let Some(values) = table.one_or_more_strings("setup") else { return Vec::new() };
    let mut scripts = Vec::new();
    for value in &values.value {
        let left = MOST_BYTES
            - scripts.iter().map(|script: &SetupScript| script.text.len()).sum::<usize>();
        scripts.extend(read_script(table, *value, files, left));
    }
    if values.value.is_empty() {
        table.problem(values.span, "`setup` is empty", "remove `setup` if there are no own tables");
    }
    scripts
}

fn read_script(
    table: &Table<'_>,
    value: Spanned<&str>,
    files: ReadFile<'_>,
    most_bytes: usize,
) -> Option<SetupScript> {
    let script = if is_file(value.value) {
        let text = read_file(table, "setup", value, files)?;
        SetupScript { origin: value.value.to_owned(), text }
    } else {
        // A line of the text is not a line of the file: escapes and the opening quotes differ.
        let line = table.document().line_of(value.span);
        SetupScript { origin: format!("`setup` of line {line}"), text: value.value.to_owned() }
    };
    if script.text.len() > most_bytes {
        let message = format!("{} has {} bytes", script.origin, script.text.len());
        let help = "the scripts have at most 24 MiB in all; create rows with INSERT … SELECT";
        return table.reject(value.span, message, help);
    }
    // No dialect finds a statement where another finds none.
    if split_script(&script.text, Dialect::Sqlite).is_empty() {
        let help = "write SQL statements, or the name of a file that ends in .sql";
        return table.reject(value.span, format!("{} has no statement", script.origin), help);
    }
    Some(script)
}

/// Whether a value of `setup` is the name of a file: one line that ends in `.sql`.
pub(crate) fn is_file(value: &str) -> bool {
    let value = value.trim();
    !value.contains('\n') && value.to_ascii_lowercase().ends_with(".sql")
}

/// Checks that scripts have no commands of client programs, and that they create only tables and their indexes on
/// existing servers: dbdyno removes nothing else from them.
pub fn check_statements(
    root: &Table<'_>,
    span: Span,
    scripts: &[SetupScript],
    candidates: &[CandidateSection<'_>],
) {
    let dialects = candidates.iter().filter_map(|candidate| candidate.program.map(dialect));
    let mut checked = Vec::new();
    for dialect in dialects {
        if !checked.contains(&dialect) {
            checked.push(dialect);
            check_client_commands(root, span, scripts, dialect);
        }
    }
    for existing in existing_servers(candidates) {
        check_dialect(root, span, scripts, existing);
    }
}

/// Checks that the user's own microbenchmarks change nothing on existing servers that `setup` may not change.
pub fn check_microbenchmarks(
    root: &Table<'_>,
    microbenchmarks: &[Microbenchmark],
    candidates: &[CandidateSection<'_>],
) {
    let Some(span) = root.key_span("microbenchmark") else { return };
    for (server, dialect) in existing_servers(candidates) {
        for Microbenchmark { name, statements, .. } in microbenchmarks {
            let mut texts = statements.iter().map(|one| one.sql.replace("{table}", "sbtest1"));
            if let Some(what) = texts.find_map(|sql| effect::refused(&sql, dialect, &[])) {
                let message =
                    format!("{name}: {what} is not possible on the existing server of {server}");
                root.problem(span, message, effect::ALLOWED);
            }
        }
    }
}

/// The name of a candidate on an existing server of each dialect: what is a comment for one is executed by another.
fn existing_servers<'c>(candidates: &'c [CandidateSection<'_>]) -> Vec<(&'c str, Dialect)> {
    let of_dialect = |dialect: Dialect| {
        let existing = candidates.iter().find(|candidate| match candidate.program {
            Some(Program::Server(system)) => {
                candidate.url.is_some() && dialect_of(system) == dialect
            }
            _ => false,
        });
        Some((existing?.name?, dialect))
    };
    [Dialect::MySql, Dialect::PostgreSql].into_iter().filter_map(of_dialect).collect()
}

pub const fn dialect(program: Program) -> Dialect {
    match program {
        Program::Sqlite => Dialect::Sqlite,
        Program::Server(system) => dialect_of(system),
    }
}

const fn dialect_of(system: ServerSystem) -> Dialect {
    match system.facts().protocol {
        Protocol::MySql => Dialect::MySql,
        Protocol::PostgreSql => Dialect::PostgreSql,
    }
}

/// Reports the first command of a client program in each script.
fn check_client_commands(root: &Table<'_>, span: Span, scripts: &[SetupScript], dialect: Dialect) {
    for SetupScript { origin, text } in scripts {
        let found = split_script(text, dialect)
            .into_iter()
            .find_map(|statement| Some((statement.line, client_command(statement.sql, dialect)?)));
        if let Some((line, (what, help))) = found {
            root.problem(span, format!("{origin}, line {line}: {what}"), help);
        }
    }
}

/// Checks scripts for the existing server of the candidate `name`.
fn check_dialect(
    root: &Table<'_>,
    span: Span,
    scripts: &[SetupScript],
    (name, dialect): (&str, Dialect),
) {
    for SetupScript { origin, text } in scripts {
        for statement in split_script(text, dialect) {
            if let Some(what) = effect::refused(statement.sql, dialect, &[]) {
                let message = format!(
                    "{origin}, line {}: {what} is not possible on the existing server of {name}",
                    statement.line
                );
                root.problem(span, message, effect::ALLOWED);
            }
        }
    }
}
