//! `[[candidate]]`: what is compared.

use dbdyno_document::{Problem, Spanned, Table, did_you_mean};
use dbdyno_units::Share;

use crate::experiment::{Candidate, SqliteConfig, System};
use crate::{Known, names, sqlite};

/// The name under which results show the second instance of the baseline.
const CONTROL: &str = "control";

/// A candidate as far as it could be read.
pub struct Named<'d> {
    /// Its name, where it has a valid one.
    pub name: Option<&'d str>,
    /// All of it, where nothing is missing.
    pub complete: Option<Candidate>,
}

/// Reads all candidates; `sqlite` is what holds for SQLite unless a candidate says otherwise.
pub fn read_all<'d>(
    root: &mut Table<'d>,
    known: &Known<'_>,
    sqlite: SqliteConfig,
) -> Vec<Named<'d>> {
    let tables = root.tables("candidate");
    if tables.is_empty() {
        let problem = Problem::new(root.span(), "there is nothing to compare");
        root.report(problem.help("add [[candidate]] with `name`, `system` and `variant`"));
    }
    let mut names: Vec<Spanned<&str>> = Vec::with_capacity(tables.len());
    let mut candidates = Vec::with_capacity(tables.len());
    for mut table in tables {
        let name = read_name(&mut table, &mut names);
        let complete = read_rest(table, name, known, sqlite);
        candidates.push(Named { name, complete });
    }
    candidates
}

/// The candidate's name, checked against those of the candidates before.
fn read_name<'d>(table: &mut Table<'d>, taken: &mut Vec<Spanned<&'d str>>) -> Option<&'d str> {
    table.require("name");
    let name = names::of_candidate(table)?;
    if name.value == CONTROL {
        let message = format!("`{CONTROL}` cannot be the name of a candidate");
        let help = "it is what the second instance of the baseline is called";
        table.report(Problem::new(name.span, message).help(help));
        return None;
    }
    if let Some(first) = taken.iter().find(|other| other.value == name.value) {
        let line = table.document().line_of(first.span);
        let message = format!("two candidates are called `{}`", name.value);
        let help = format!("the first is in line {line}");
        table.report(Problem::new(name.span, message).help(help));
    }
    taken.push(name);
    Some(name.value)
}

fn read_rest(
    mut table: Table<'_>,
    name: Option<&str>,
    known: &Known<'_>,
    sqlite: SqliteConfig,
) -> Option<Candidate> {
    for key in ["system", "variant"] {
        table.require(key);
    }
    let sqlite = sqlite::read(table.table("sqlite"), sqlite);
    let system = table.choice("system", &[("sqlite", System::Sqlite(sqlite))]);
    let variant = read_variant(&mut table, known);
    let compiler = read_compiler(&mut table);
    let flags = read_flags(&mut table);
    let delays = Share::default()..=Share::from_percent(1000.0);
    let injected_delay = table.share("injected_delay", delays).map(|delay| delay.value);
    table.finish();
    Some(Candidate {
        name: name?.to_owned(),
        system: system?.value,
        variant: variant?,
        compiler: compiler?,
        flags: flags?,
        injected_delay,
    })
}

fn read_variant(table: &mut Table<'_>, known: &Known<'_>) -> Option<String> {
    let variant = table.string("variant")?;
    if known.variants.contains(&variant.value) {
        return Some(variant.value.to_owned());
    }
    let message = format!("unknown variant `{}`", variant.value);
    let help = did_you_mean(variant.value, known.variants);
    table.report(Problem::new(variant.span, message).help(help));
    None
}

fn read_compiler(table: &mut Table<'_>) -> Option<String> {
    let Some(compiler) = table.string("compiler") else {
        return (!table.has("compiler")).then(|| "gcc".to_owned());
    };
    if compiler.value.is_empty() || compiler.value.contains(char::is_control) {
        let problem = Problem::new(compiler.span, "`compiler` names no compiler");
        table.report(problem.help("write `gcc`, `clang`, a versioned name or a path"));
        return None;
    }
    Some(compiler.value.to_owned())
}

fn read_flags(table: &mut Table<'_>) -> Option<Vec<String>> {
    let Some(flags) = table.strings("flags") else {
        return (!table.has("flags")).then(Vec::new);
    };
    for flag in &flags.value {
        // A compiler takes a word without a dash for the name of a file to compile.
        if !flag.value.starts_with('-') || flag.value.contains(char::is_control) {
            let message = format!("`{}` is not a compiler flag", flag.value);
            let help = "flags start with `-`, and arguments are joined: \"--param=max-inline=9\"";
            table.report(Problem::new(flag.span, message).help(help));
        }
    }
    Some(flags.value.into_iter().map(|flag| flag.value.to_owned()).collect())
}
