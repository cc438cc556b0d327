//! The experiment file: parsing, defaults and validation.
//!
//! [`parse`] turns the text of an experiment into an [`Experiment`](experiment::Experiment) with
//! all defaults filled in and all names checked, or into the list of all problems of the file with
//! their lines. Each section of the file has its own module. [`compare`] writes the text of an
//! experiment from the words of a command line.

mod build;
mod candidate;
pub mod compare;
mod existing;
pub mod experiment;
mod insert;
mod live;
mod machines;
mod names;
mod option_file;
mod profiling;
mod schedule;
mod server;
mod source;
mod workload;

use std::collections::BTreeSet;

use dbdyno_document::{Document, Problems, Spanned, Table, did_you_mean};
use dbdyno_types::FlagCheck;
use dbdyno_units::Share;
use dbdyno_workloads::decode::NO_FILES;

use build::Definitions;
use candidate::{CandidateSection, Program, Sections};
use experiment::{Checks, Experiment, Workload};
pub use names::CONTROL;
pub use option_file::{LeftOut, OptionFile};
pub use workload::ReadFile;

/// Parses the text of an experiment that refers to no other file. Messages refer to it as `file_name`.
///
/// # Errors
/// All problems of the file, with their positions. After a TOML syntax error, only that one.
pub fn parse(file_name: &str, text: &str) -> Result<Experiment, Problems> {
    parse_with_files(file_name, text, NO_FILES)
}

/// Like [`parse`], with other files from `files`.
pub fn parse_with_files(
    file_name: &str,
    text: &str,
    files: ReadFile<'_>,
) -> Result<Experiment, Problems> {
    let document = Document::parse(file_name, text)?;
    let experiment = read(document.root(), files);
    document.finish()?;
    Ok(experiment.expect("a file without problems gives an experiment"))
}

/// The keys that are read in a text, present or not, each with its tables: `schedule.slice`.
pub fn valid_keys(text: &str) -> BTreeSet<String> {
    let document = Document::parse("", text).expect("valid TOML");
    read(document.root(), &|_: &str| Ok(String::new()));
    document.keys()
}

/// Reads the whole file. Returns `None` only when a problem was reported.
fn read(mut root: Table<'_>, files: ReadFile<'_>) -> Option<Experiment> {
    for key in ["name", "baseline"] {
        root.require(key);
    }
    let name = names::read(&mut root, "name", names::OF_EXPERIMENT);
    let baseline = root.string("baseline");
    let control = root.bool("control").map(|control| control.value);
    let seed = root.number("seed", 0..=i64::MAX).map_or(1, |seed| seed as u64);

    let insert_benchmark = insert::read(&mut root);
    let workload = match &insert_benchmark {
        Some(benchmark) => workload::WorkloadSection::of(benchmark.workload()),
        None => workload::read(&mut root, files),
    };
    // In an insert benchmark, repeats show the noise, and a control would take as long as a
    // candidate.
    let control = control.unwrap_or(insert_benchmark.is_none());
    let cpus = machines::read_cpus(root.table("cpus"));
    let fleet = machines::read_fleet(root.table("fleet"));
    let (checks, audit_ignore) = read_checks(root.table("checks"));
    let profile = match root.table("profile") {
        Some(table) if insert_benchmark.is_some() => profiling::refuse_beside_inserts(table),
        table => profiling::read(table, &workload, files),
    };
    let sections = Sections {
        sqlite: candidate::read_sqlite_settings(root.table("sqlite"), candidate::DEFAULT_SQLITE),
        servers: server::read_sections(&mut root, files),
        definitions: Definitions {
            variants: build::read_variants(&mut root),
            source: root.table("source").and_then(source::read),
            audit_ignore,
            catalog: workload.catalog,
        },
        hosts: machines::read_hosts(&mut root),
        files,
    };
    let candidates = candidate::read_all(&mut root, &sections);
    candidate::check_sections(&mut root, &candidates);
    check_baseline(&root, baseline, &candidates);
    let control_of = baseline.map(|baseline| baseline.value).filter(|_| control);
    let lives: Vec<_> = candidates.iter().filter_map(|one| one.live.as_ref()).collect();
    if insert_benchmark.is_some() {
        check_no_delays(&root, &candidates);
        live::refuse_beside_inserts(&root, &lives);
    } else if let Some(workload) = &workload.complete {
        live::check(&root, &lives, workload);
        live::check_samples(&root, &candidates);
    }
    existing::check_schemas(&root, &candidates, control_of);
    if let (Some(span), Some(workload)) = (workload.setup, &workload.complete) {
        workload::check_statements(&root, span, &workload.setup, &candidates);
    }
    if let Some(workload) = &workload.complete {
        workload::check_microbenchmarks(&root, &workload.microbenchmarks, &candidates);
        check_scripts(&root, workload, &candidates);
    }
    let is_server = |one: &CandidateSection<'_>| matches!(one.program, Some(Program::Server(_)));
    let is_live =
        |one: &CandidateSection<'_>| one.live.as_ref().is_some_and(|it| it.live.is_some());
    let lasts = |one: &CandidateSection<'_>| one.url.is_some() || is_live(one);
    let has_tables =
        workload.complete.as_ref().is_none_or(|workload| workload.uses_sbtest_tables());
    if let (Some(rows), true) = (workload.rows, candidates.iter().any(is_server) && has_tables) {
        workload::check_rows_of_servers(&root, rows);
    }
    let systems = match candidates.iter().any(is_server) {
        false => schedule::Systems::Embedded,
        true if candidates.iter().any(lasts) => schedule::Systems::LastingServers,
        true => schedule::Systems::PrivateServers,
    };
    let section = if insert_benchmark.is_none() { root.table("schedule") } else { None };
    let schedule = schedule::read(section, &workload.clients, systems);
    existing::check_restarts(&root, &candidates, schedule.restarts_anew);
    root.finish();

    let baseline = candidate::baseline(baseline?.value, &candidates);
    let mut complete = Vec::new();
    for candidate in candidates {
        complete.push(candidate.complete?);
        complete.extend(candidate.others);
    }
    Some(Experiment {
        name: name?.value.to_owned(),
        baseline,
        control,
        seed,
        workload: workload.complete?,
        insert_benchmark,
        schedule: schedule.schedule,
        profile,
        cpus,
        checks,
        hosts: sections.hosts,
        candidates: complete,
        fleet,
    })
}

/// Checks that scripts of sysbench can run on all candidates, and that their tables have no others in the way.
fn check_scripts(root: &Table<'_>, workload: &Workload, candidates: &[CandidateSection<'_>]) {
    let Some(script) = workload.scripts().next() else { return };
    let name = &script.source.name;
    let span = root.key_span("microbenchmark").unwrap_or_default();
    if workload.uses_sbtest_tables() {
        let message =
            format!("{name} makes its own data, beside tables of dbdyno with the same names");
        let help = "measure scripts in an experiment without other microbenchmarks that use dbdyno's tables: \
                    list them in `microbenchmarks` of [workload]";
        root.problem(span, message, help);
    }
    let sqlite = candidates.iter().find(|one| one.program == Some(Program::Sqlite));
    if let Some(candidate) = sqlite {
        let candidate = candidate.name.unwrap_or("one candidate");
        let message = format!("{name} cannot run on SQLite ({candidate})");
        let help = "sysbench scripts run on MariaDB, MySQL and PostgreSQL";
        root.problem(span, message, help);
    }
}

fn check_no_delays(root: &Table<'_>, candidates: &[CandidateSection<'_>]) {
    let complete = candidates.iter().filter_map(|candidate| candidate.complete.as_ref());
    for candidate in complete.filter(|candidate| candidate.injected_delay.is_some()) {
        let span = root.key_span("insert_benchmark").unwrap_or_default();
        let message = format!("candidate {} has an injected delay", candidate.name);
        let help = "an insert benchmark has no delays: remove `injected_delay`";
        root.problem(span, message, help);
    }
}

/// Reads `[checks]`; also returns the default of the candidates' `audit_ignore`.
fn read_checks(table: Option<Table<'_>>) -> (Checks, Vec<FlagCheck>) {
    let mut checks = Checks { max_error_share: Share::from_percent(0.1) };
    let mut audit_ignore = Vec::new();
    if let Some(mut table) = table {
        let range = Share::default()..=Share::from_percent(100.0);
        table.set("max_error_share", range, &mut checks.max_error_share);
        audit_ignore = build::read_audit_ignore(&mut table).unwrap_or_default();
        table.finish();
    }
    (checks, audit_ignore)
}

fn check_baseline(
    root: &Table<'_>,
    baseline: Option<Spanned<&str>>,
    candidates: &[CandidateSection<'_>],
) {
    let Some(baseline) = baseline else { return };
    let mut names: Vec<&str> = candidates.iter().filter_map(|candidate| candidate.name).collect();
    if names.len() < candidates.len() && !names::is_of_candidate(baseline.value) {
        // It is the name of a candidate with an invalid name, which was reported there.
        return;
    }
    for candidate in candidates.iter().filter(|candidate| !candidate.others.is_empty()) {
        names.extend(candidate.all().map(|one| one.name.as_str()));
    }
    if !names.is_empty() && !names.contains(&baseline.value) {
        let message = format!("unknown candidate `{}`", baseline.value);
        let help = did_you_mean(baseline.value, &names);
        root.problem(baseline.span, message, help);
    }
}
