//! Microbenchmarks from a file of SQL: each statement is one.

use std::path::Path;

use dbdyno_document::Problem;
use dbdyno_workloads::effect::changes_rows;
use dbdyno_workloads::setup::{Dialect, ScriptStatement, split_script};
use dbdyno_workloads::sql::{SqlPart, split_sql};

use crate::compare::text::{self, CommandLine, TomlText, Word, quote};
use crate::compare::valid_name;
use crate::workload::{ReadFile, is_file};

/// A file of SQL in the words of a command line.
#[derive(Clone, Copy, Debug)]
pub struct SqlWords<'a> {
    /// The file of the statements to measure.
    pub file: &'a str,
    /// The file that creates their tables.
    pub setup: Option<&'a str>,
}

/// The files, with the places of their words, and the statements to measure.
#[derive(Debug)]
pub(super) struct SqlOption<'w> {
    file: Word<'w>,
    setup: Option<Word<'w>>,
    statements: Vec<Measured>,
}

/// A statement that is a microbenchmark.
#[derive(Debug)]
struct Measured {
    name: String,
    sql: String,
    writes: bool,
}

impl<'w> SqlOption<'w> {
    /// Adds the words to the line.
    pub fn of(words: SqlWords<'w>, line: &mut CommandLine) -> Self {
        let file = line.push_option("--sql", words.file);
        let setup = words.setup.map(|setup| line.push_option("--setup", setup));
        Self { file, setup, statements: Vec::new() }
    }

    /// Reads the statements, and reports those that cannot be measured.
    pub fn read(
        &mut self,
        directory: &str,
        dialect: Dialect,
        files: ReadFile<'_>,
        problems: &mut Vec<Problem>,
    ) {
        if let Some(setup) = self.setup.filter(|setup| !is_file(setup.text)) {
            let message = format!("`--setup`: `{}` does not end in `.sql`", setup.text);
            problems.push(Problem::new(setup.whole(), message).help("name a file of SQL"));
        }
        let mut problem = |message: String, help: &str| {
            problems.push(Problem::new(self.file.whole(), message).help(help));
        };
        let text = match files(&text::absolute(directory, self.file.text)) {
            Ok(text) => text,
            Err(reason) => {
                return problem(format!("`--sql`: {reason}"), "name a file of SQL statements");
            }
        };
        let found = split_script(&text, dialect);
        if found.is_empty() {
            problem(
                format!("{} has no statement", self.file.text),
                "each statement ends with a semicolon",
            );
        }
        let stem = Path::new(self.file.text).file_stem().unwrap_or_default().to_string_lossy();
        for (number, statement) in found.iter().enumerate() {
            let at = format!("{}, line {}", self.file.text, statement.line);
            for part in split_sql(statement.sql) {
                if let SqlPart::Parameter(name) = part {
                    problem(
                        format!("{at}: `:{name}` has no value"),
                        "write a value, or give it a `draw` in an experiment file",
                    );
                }
            }
            let Some(writes) = changes_rows(statement.sql, dialect) else {
                let word = statement.sql.split_whitespace().next().unwrap_or_default();
                problem(
                    format!("{at}: `{word}` begins neither a query nor a change of rows"),
                    "what creates the tables goes into the file of `--setup`",
                );
                continue;
            };
            let name = name_before(&text, statement);
            let name = name.unwrap_or_else(|| format!("{stem}-{}", number + 1));
            let (name, sql) = (valid_name(&name), statement.sql.to_owned());
            self.statements.push(Measured { name, sql, writes });
        }
    }

    pub fn microbenchmarks(&self) -> usize {
        self.statements.len()
    }

    pub fn writes(&self) -> bool {
        self.statements.iter().any(|one| one.writes)
    }

    pub fn write_setup(&self, directory: &str, text: &mut TomlText) {
        if let Some(setup) = self.setup {
            let path = quote(&text::absolute(directory, setup.text));
            text.of(setup.whole(), &format!("setup = {path}\n"));
        }
    }

    pub fn write_selection(&self, text: &mut TomlText) {
        let names: Vec<String> = self.statements.iter().map(|one| quote(&one.name)).collect();
        text.of(self.file.whole(), &format!("[{}]", names.join(", ")));
    }

    pub fn write(&self, text: &mut TomlText) {
        for Measured { name, sql, writes } in &self.statements {
            let count = if *writes { "affects" } else { "rows" };
            let lines = format!(
                "\n[[microbenchmark]]\nname = {}\ngroup = {}\n[[microbenchmark.statements]]\nsql = {}\n\
                 {count} = \"any\"\n",
                quote(name),
                // Each has a sentence of its own in the answer.
                quote(&format!("query-{name}")),
                literal(sql),
            );
            text.of(self.file.whole(), &lines);
        }
    }
}

/// The name in a comment `-- name: NAME` above a statement.
fn name_before(text: &str, statement: &ScriptStatement<'_>) -> Option<String> {
    let above: Vec<&str> = text.lines().take(statement.line - 1).collect();
    let comments = above.iter().rev().map_while(|line| line.trim().strip_prefix("--"));
    let mut names = comments.filter_map(|comment| comment.trim().strip_prefix("name:"));
    names.next().map(|name| name.trim().to_owned())
}

/// A TOML string of several lines.
fn literal(sql: &str) -> String {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    match sql.contains("'''") || sql.ends_with('\'') || sql.contains(is_control) {
        true => quote(sql),
        false => format!("'''\n{sql}'''"),
    }
}
