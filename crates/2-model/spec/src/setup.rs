//! `setup` of `[workload]`: SQL scripts that create and fill the user's own tables.

use dbdyno_document::{Problem, Span, Spanned, Table};
use dbdyno_types::server::{Protocol, ServerSystem};
use dbdyno_workloads::setup::{Dialect, Effect, SetupScript, effect, split_script};

use crate::candidate::{self, Program};

/// Reads a file that an experiment names, relative to the experiment's directory; or why it cannot be
/// read.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Maximum length of all scripts in bytes. They are one value in the database of a run, where a byte may need two.
const MOST_BYTES: usize = 24 << 20;

/// Reads the scripts: texts, or files whose names end in `.sql`.
pub fn read(table: &mut Table<'_>, files: ReadFile<'_>) -> Vec<SetupScript> {
    let Some(values) = table.one_or_more_strings("setup") else { return Vec::new() };
    let mut scripts = Vec::new();
    for value in &values.value {
        let left = MOST_BYTES
            - scripts.iter().map(|script: &SetupScript| script.text.len()).sum::<usize>();
        scripts.extend(read_script(table, *value, files, left));
    }
    if values.value.is_empty() {
        let problem = Problem::new(values.span, "`setup` is empty");
        table.report(problem.help("remove `setup` if there are no own tables"));
    }
    scripts
}

fn read_script(
    table: &Table<'_>,
    value: Spanned<&str>,
    files: ReadFile<'_>,
    most_bytes: usize,
) -> Option<SetupScript> {
    let refuse = |message: String, help: &str| {
        table.report(Problem::new(value.span, message).help(help));
        None
    };
    let script = if is_file(value.value) {
        match files(value.value) {
            Ok(text) => SetupScript { origin: value.value.to_owned(), text },
            Err(reason) => {
                let help = "it is relative to the directory of the experiment file";
                return refuse(format!("`setup`: {reason}"), help);
            }
        }
    } else {
        // A line of the text is not a line of the file: escapes and the opening quotes differ.
        let line = table.document().line_of(value.span);
        SetupScript { origin: format!("`setup` of line {line}"), text: value.value.to_owned() }
    };
    if script.text.len() > most_bytes {
        return refuse(
            format!("{} has {} bytes", script.origin, script.text.len()),
            "the scripts have at most 24 MiB in all; create rows with INSERT … SELECT",
        );
    }
    // No dialect finds a statement where another finds none.
    if split_script(&script.text, Dialect::Sqlite).is_empty() {
        let help = "write SQL statements, or the name of a file that ends in .sql";
        return refuse(format!("{} has no statement", script.origin), help);
    }
    Some(script)
}

/// Whether a value of `setup` is the name of a file: one line that ends in `.sql`.
fn is_file(value: &str) -> bool {
    let value = value.trim();
    !value.contains('\n') && value.to_ascii_lowercase().ends_with(".sql")
}

/// Checks that scripts create only tables and their indexes on existing servers: dbdyno removes nothing
/// else from them.
pub fn check_statements(
    root: &Table<'_>,
    span: Span,
    scripts: &[SetupScript],
    candidates: &[candidate::CandidateSection<'_>],
) {
    // One server of each dialect: what is a comment for one is executed by another.
    for dialect in [Dialect::MySql, Dialect::PostgreSql] {
        let existing = candidates.iter().find(|candidate| match candidate.program {
            Some(Program::Server(system)) => {
                candidate.url.is_some() && dialect_of(system) == dialect
            }
            _ => false,
        });
        if let Some(name) = existing.and_then(|candidate| candidate.name) {
            check_dialect(root, span, scripts, (name, dialect));
        }
    }
}

const fn dialect_of(system: ServerSystem) -> Dialect {
    match system.facts().protocol {
        Protocol::MySql => Dialect::MySql,
        Protocol::PostgreSql => Dialect::PostgreSql,
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
            if let Effect::Other(what) = effect(statement.sql, dialect) {
                let message = format!(
                    "{origin}, line {}: {what} is not possible on the existing server of {name}",
                    statement.line
                );
                let help = "there, `setup` may create tables and indexes, and change rows and \
                            session settings: dbdyno would not remove anything else";
                root.report(Problem::new(span, message).help(help));
            }
        }
    }
}
