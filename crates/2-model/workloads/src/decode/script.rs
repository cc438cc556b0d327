//! Decoder of `[[microbenchmark]]` tables with a sysbench script.

use dbdyno_document::{Spanned, Table, did_you_mean};
use dbdyno_scripts::{
    Declared, Driver, OptionProblem, OptionValue, Options, ScriptError, Source, SourceError,
    Version, check_option, inspect,
};

use super::{Decoded, ReadFile, full_name, read_answers, read_group, read_name, read_stages};
use crate::definition::{Microbenchmark, Script, Stage, Throughput};

/// Decodes one table. Returns `None` if it has problems; they are reported to its document.
pub(super) fn decode(mut table: Table<'_>, files: ReadFile<'_>) -> Option<Decoded> {
    let document = table.document();
    let problems_before = document.problem_count();
    table.require("name");
    let name = read_name(&mut table);
    let group = read_group(&mut table);
    let stages = read_stages(&mut table);
    let answers = read_answers(&mut table);
    let schema = read_schema(&mut table);
    let version = table.choice("sysbench", Version::WORDS).map(|version| version.value);
    for key in ["statements", "ranges", "transaction", "throughput"] {
        table.refuse(
            key,
            "has no effect with `script`",
            "the script determines what an event does",
        );
    }
    let path = table.string("script");
    let source = path.and_then(|path| read_source(&table, path, files));
    let source = source.map(|source| Source { version: version.unwrap_or_default(), ..source });
    let declared = path.zip(source.as_ref()).and_then(|(path, source)| {
        match inspect(source, Driver::MySql, &Options::new()) {
            Ok(declared) => Some(declared),
            // It is checked when a run begins.
            Err(error) if error.needs_run() => None,
            Err(error) => {
                report(&table, path, &error);
                None
            }
        }
    });
    if let (Some(path), Some(declared)) = (path, &declared)
        && !declared.has_event
    {
        let message = format!("{} has no function event()", path.value);
        table.problem(path.span, message, "`event` is measured");
    }
    let [options, run_options] = ["options", "run_options"].map(|key| {
        let section = table.table(key);
        read_options(section, path.map_or("", |path| path.value), declared.as_ref())
    });
    let with_options = |source| Script {
        run_options: run_options.clone(),
        ..Script::new(source, options.clone())
    };
    if document.problem_count() == problems_before
        && let (Some(path), Some(source)) = (path, &source)
        && let Err(error) = with_options(source.clone())
            .all_options()
            .iter()
            .try_for_each(|options| inspect(source, Driver::MySql, options).map(drop))
        && !error.needs_run()
    {
        report(&table, path, &error);
    }
    let whole = table.span();
    table.finish();

    let (name, group, source) = (name?, group?, source?);
    let stages = stages?.unwrap_or_else(|| vec![Spanned { value: Stage::Write, span: whole }]);
    let microbenchmarks = stages
        .iter()
        .map(|stage| Microbenchmark {
            name: full_name(name.value, stage.value, None),
            group: group.clone(),
            stage: stage.value,
            transaction: false,
            throughput: Throughput::default(),
            statements: Vec::new(),
            script: Some(Script {
                schema: schema.map(str::to_owned),
                ..with_options(source.clone())
            }),
            answers,
        })
        .collect();
    let name = name.map(str::to_owned);
    (document.problem_count() == problems_before).then_some(Decoded { name, microbenchmarks })
}

/// The name of the schema for its data, if it is set. It needs no quotes on any server.
fn read_schema<'d>(table: &mut Table<'d>) -> Option<&'d str> {
    const LONGEST: usize = 63;
    let schema = table.string("schema")?;
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts_well = !schema.value.starts_with(|c: char| c.is_ascii_digit());
    let is_own = RESERVED.contains(&schema.value) || schema.value.starts_with("pg_");
    let fits = (1..=LONGEST).contains(&schema.value.len());
    if fits && starts_well && !is_own && schema.value.chars().all(valid) {
        return Some(schema.value);
    }
    let message = format!("`{}` cannot be the name of a schema", schema.value);
    let help = "names have lowercase letters, digits and _, do not start with a digit, and are not those of the server";
    table.reject(schema.span, message, help)
}

/// Names of databases that servers have.
const RESERVED: [&str; 9] = [
    "information_schema",
    "mysql",
    "performance_schema",
    "sys",
    "postgres",
    "template0",
    "template1",
    "public",
    "dbdyno",
];

fn read_source(table: &Table<'_>, path: Spanned<&str>, files: ReadFile<'_>) -> Option<Source> {
    let refuse = |message: String, help: &str| table.reject(path.span, message, help);
    match Source::find(path.value, files) {
        Ok(source) => Some(source),
        Err(SourceError::Unreadable(reason)) => refuse(
            format!("`script`: {reason}"),
            "it is relative to the directory of the experiment file, or a script of sysbench",
        ),
        Err(error) => refuse(error.to_string(), "put the module next to the script"),
    }
}

fn report(table: &Table<'_>, path: Spanned<&str>, error: &ScriptError) {
    let message = format!("`script`: {error}");
    let help = "the script is loaded without a database to find its options and functions";
    table.problem(path.span, message, help);
}

/// The options, of which the invalid ones are reported.
fn read_options(section: Option<Table<'_>>, script: &str, declared: Option<&Declared>) -> Options {
    use dbdyno_document::Setting;
    let mut options = Options::new();
    let Some(mut section) = section else { return options };
    for (name, value) in section.named_settings() {
        let problem = declared.and_then(|declared| check_option(name.value, declared).err());
        match problem {
            None => {}
            Some(OptionProblem::Replaced(instead)) => {
                let message = format!("option `{}` of sysbench has no effect here", name.value);
                section.problem(name.span, message, instead);
            }
            Some(OptionProblem::Unknown(known)) => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let message = format!("{script} has no option `{}`", name.value);
                let help = did_you_mean(name.value, &known);
                section.problem(name.span, message, help);
            }
        }
        let value = match value.value {
            Setting::String(text) => OptionValue::Text(text.to_owned()),
            Setting::Integer(number) => OptionValue::Int(number),
            Setting::Float(number) => OptionValue::Float(number),
            Setting::Boolean(value) => OptionValue::Bool(value),
        };
        options.insert(name.value.replace('-', "_"), value);
    }
    options
}
