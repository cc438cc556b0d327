//! `dbdyno list`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use dbdyno_builds::variant::compile_flags;
use dbdyno_builds::{
    Cache, CacheDir, CacheEntryKind, CompilerKind, Source, System, Variant, installed_compilers,
    suites,
};
use dbdyno_document::did_you_mean;
use dbdyno_engines::server::{Installation, installed_releases};
use dbdyno_scripts::{
    Client, Driver, OptionProblem, OptionValue, Options, Progress, Recorder, ScriptError, Seed,
    Setup, check_option, inspect,
};
use dbdyno_types::PublishedRelease;
use dbdyno_types::build::Pgo;
use dbdyno_types::server::{ServerSystem, StorageEngine};
use dbdyno_workloads::catalog::{Catalog, Origin};
use dbdyno_workloads::definition::{Microbenchmark, Statement};

use crate::args::{List, Listed};
use crate::commands::session::{ScriptLimit, read_file};
use crate::error::CliError;
use crate::output;

pub fn list(args: &List) -> Result<ExitCode, CliError> {
    refuse_without_effect(args)?;
    if args.what == Some(Listed::Script) {
        return list_script(args);
    }
    let wants = |what| args.what.is_none_or(|wanted| wanted == what);
    let mut sections = Vec::new();
    if wants(Listed::Microbenchmarks) {
        sections.push(microbenchmarks(&args.words, args.sql)?);
    }
    let others: [(Listed, fn() -> String); 3] =
        [(Listed::Variants, variants), (Listed::Systems, systems), (Listed::Releases, releases)];
    sections.extend(others.into_iter().filter(|(what, _)| wants(*what)).map(|(_, list)| list()));
    output::print(&sections.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// Refuses what would be ignored.
fn refuse_without_effect(args: &List) -> Result<(), CliError> {
    let is_script = args.what == Some(Listed::Script);
    let has_microbenchmarks = args.what.is_none_or(|what| what == Listed::Microbenchmarks);
    let message = match (args.words.first(), args.of_script()) {
        (Some(word), _) if !has_microbenchmarks && !is_script => {
            format!("`{word}` is unexpected: only microbenchmarks are listed by pattern")
        }
        _ if args.sql && !has_microbenchmarks => {
            "--sql is for `dbdyno list microbenchmarks`".to_owned()
        }
        (_, Some(option)) if !is_script => format!("{option} is for `dbdyno list script`"),
        _ => return Ok(()),
    };
    Err(CliError::Usage(message))
}

fn microbenchmarks(words: &[String], sql: bool) -> Result<String, CliError> {
    let catalog = Catalog::builtin();
    let chosen: Vec<Microbenchmark> = if words.is_empty() {
        catalog.entries().iter().map(|entry| entry.microbenchmark.clone()).collect()
    } else {
        catalog.select(words.iter().map(String::as_str)).map_err(|unmatched| {
            let problems: Vec<String> =
                unmatched.iter().map(|u| format!("{u}: {}", u.help())).collect();
            CliError::Usage(problems.join("\n"))
        })?
    };
    let mut text = "Microbenchmarks, in running order, with their names in sysbench\n".to_owned();
    for microbenchmark in chosen {
        let mut entries = catalog.entries().iter();
        let entry = entries.find(|entry| entry.microbenchmark.name == microbenchmark.name);
        let mut remarks: Vec<String> =
            entry.and_then(|entry| entry.sysbench_name.clone()).into_iter().collect();
        if microbenchmark.transaction {
            remarks.push("transaction".to_owned());
        }
        match entry.map(|entry| (entry.set, entry.origin)) {
            Some((Some(set), _)) => remarks.push(format!("in `{set}`, not in `all`")),
            Some((None, Origin::Extra)) => remarks.push("not in `all`".to_owned()),
            _ => {}
        }
        text.push_str(&format!(
            "  {:<36} {:<8} {}\n",
            microbenchmark.name,
            microbenchmark.group.name(),
            remarks.join(", ")
        ));
        if sql {
            add_statements(&mut text, &microbenchmark);
        }
    }
    Ok(without_trailing_blanks(&text))
}

/// Appends the statements of an event, each followed by the sources of the parameters it draws.
fn add_statements(text: &mut String, microbenchmark: &Microbenchmark) {
    const INDENT: &str = "      ";
    if microbenchmark.transaction {
        text.push_str(&format!("{INDENT}BEGIN\n"));
    }
    for Statement { sql, draw, repeat, .. } in &microbenchmark.statements {
        let times = if *repeat > 1 { format!("{repeat} × ") } else { String::new() };
        output::wrapped(text, &format!("{INDENT}{times}"), sql);
        let sources: Vec<String> =
            draw.iter().map(|(name, source)| format!(":{name} {source}")).collect();
        if !sources.is_empty() {
            output::wrapped(text, &format!("{INDENT}  -- "), &sources.join(", "));
        }
    }
    if microbenchmark.transaction {
        text.push_str(&format!("{INDENT}COMMIT\n"));
    }
}

/// What names of presets end with, in this order, and what that means.
const SUFFIXES: [(&str, &str); 3] = [
    ("_pgo", "with an instrumented profile"),
    ("_autofdo", "with a sampled profile"),
    ("_bolt", "with BOLT; gcc adds -fno-reorder-blocks-and-partition"),
];

fn variants() -> String {
    let mut text = "Variants\n".to_owned();
    for variant in Variant::all() {
        if variant.pgo == Pgo::Off && !variant.bolt {
            let flags = compile_flags(&variant, CompilerKind::Gcc).join(" ");
            text.push_str(&format!("  {:<16} {flags}\n", variant.name));
        }
    }
    text.push_str(
        "  Each rel… also with a profile, with BOLT, or both, such as rel_lto_pgo_bolt:\n",
    );
    for (suffix, what) in SUFFIXES {
        text.push_str(&format!("  {:<16} {what}\n", format!("…{suffix}")));
    }
    let compilers = installed_compilers();
    let compilers =
        if compilers.is_empty() { "none found".to_owned() } else { compilers.join(", ") };
    text.push_str(&format!("  Compilers on this machine: {compilers}\n"));
    text
}

fn systems() -> String {
    let sqlite = Source::bundled_sqlite();
    let mut text = format!(
        "Systems\n  {:<16} {}, bundled, runs in the worker process\n",
        "sqlite",
        sqlite.version()
    );
    for system in ServerSystem::ALL {
        let engines: Vec<Option<StorageEngine>> = match system.storage_engines() {
            [] => vec![None],
            engines => engines.iter().copied().map(Some).collect(),
        };
        for engine in engines {
            let name = match engine {
                Some(engine) => format!("{}, {}", system.name(), engine.name()),
                None => system.name().to_owned(),
            };
            let found = match Installation::find(system, engine, None) {
                Ok(found) => format!("{} in {}", found.version, found.program.display()),
                Err(error) => format!("not installed: {error}"),
            };
            output::wrapped(&mut text, &format!("  {name:<16} "), &found);
        }
    }
    text
}

fn without_trailing_blanks(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Lists releases by system, each with what to write into an experiment.
fn releases() -> String {
    let mut text = "Releases\n".to_owned();
    for system in ServerSystem::ALL {
        for release in installed_releases(system) {
            // By this name, the published one is fetched.
            let is_published = PublishedRelease::by_name(system, &release.name).is_some();
            let name = match is_published {
                true => "with `program` only".to_owned(),
                false => format!("release = \"{}\"", release.name),
            };
            let _ =
                writeln!(text, "  {:<11} {name:<32} {}", system.name(), release.program.display());
        }
    }
    for (system, of) in unpacked() {
        let _ = writeln!(text, "  {system:<11} {:<32} {of}", "in the cache");
    }
    text.push_str("  Can be fetched from Debian: release = { debian = SUITE }\n");
    for system in [System::MariaDb, System::PostgreSql, System::MySql] {
        let suites: Vec<String> =
            suites(system).iter().map(|suite| suite_with_version(system, suite)).collect();
        let _ = writeln!(text, "    {:<11} {}", system.name(), suites.join(", "));
    }
    text.push_str("  Can be fetched by name, for x86-64, with the size of the download:\n");
    for release in ServerSystem::ALL.into_iter().flat_map(PublishedRelease::all) {
        let name = format!("release = \"{}\"", release.name());
        let _ = writeln!(text, "    {:<11} {name:<32} {}", release.system.name(), release.size);
    }
    for (what, key, value) in
        [("Maven", "maven", "GROUP:ARTIFACT:VERSION[:CLASSIFIER]"), ("npm", "npm", "NAME@VERSION")]
    {
        let _ = writeln!(text, "  Can be fetched from {what}: release = {{ {key} = \"{value}\" }}");
    }
    text.push_str("  Can be unpacked: release = { tarball = \"URL or FILE\", sha256 = \"…\" }\n");
    text
}

/// A suite as it is written into an experiment, with the version that it has.
fn suite_with_version(system: System, suite: &str) -> String {
    let server = ServerSystem::by_name(system.name());
    match server.and_then(|server| server.describe_series_in(suite)) {
        Some(version) => format!("\"{suite}\" ({version})"),
        None => format!("\"{suite}\""),
    }
}

/// The system of each release in the cache, and where it is from.
fn unpacked() -> Vec<(String, String)> {
    let Ok(root) = CacheDir::chosen_or_default(None) else { return Vec::new() };
    let mut all: Vec<(String, String)> = Cache::new(&root)
        .inventory()
        .into_iter()
        .filter_map(|entry| match entry.kind {
            CacheEntryKind::Release(of) => {
                let name = entry.path.file_name()?.to_string_lossy().into_owned();
                Some((name.split('-').next()?.to_owned(), of))
            }
            _ => None,
        })
        .collect();
    all.sort();
    all
}

const DEFAULT_SEED: u32 = 42;

/// Prints the statements of the first events of a script, which are not executed.
fn list_script(args: &List) -> Result<ExitCode, CliError> {
    let [file] = &args.words[..] else {
        let message = "name one script: dbdyno list script oltp_read_only.lua --events 2";
        return Err(CliError::usage(message));
    };
    let _limit = ScriptLimit::start();
    let read = |path: &str| read_file(Path::new(path));
    let source = dbdyno_scripts::Source::find(file, read).map_err(CliError::usage)?;
    let source = dbdyno_scripts::Source { version: args.sysbench.unwrap_or_default(), ..source };
    let options = script_options(&args.options)?;
    let invalid = |error: ScriptError| CliError::Usage(error.to_string());
    let declared = inspect(&source, Driver::MySql, &Options::new()).map_err(invalid)?;
    for name in options.keys() {
        let problem = match check_option(name, &declared) {
            Ok(()) => continue,
            Err(OptionProblem::Replaced(in_file)) => {
                let instead = match name.as_str() {
                    "events" | "max_requests" => "use `--events`",
                    "rand_seed" => "use `--seed`",
                    _ => in_file,
                };
                format!("option {name} of sysbench has no effect here: {instead}")
            }
            Err(OptionProblem::Unknown(known)) => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                format!("{file} has no option `{name}`: {}", did_you_mean(name, &known))
            }
        };
        return Err(CliError::Usage(problem));
    }
    let seed = Seed::of_sysbench(args.seed.unwrap_or(DEFAULT_SEED));
    let setup = Setup { seed, ..Setup::restricted(Driver::MySql, &options) };
    let mut recorder = Recorder::default();
    let started = Client::start(&source, &setup, &mut recorder);
    let mut client = started.map_err(|error| without_answers(&error, &recorder))?;
    let mut left = args.events.unwrap_or(1);
    while left > 0 {
        let progress = client.event(&mut recorder);
        let progress = progress.map_err(|error| without_answers(&error, &recorder))?;
        left -= u32::from(progress == Progress::Event);
        for statement in recorder.statements.drain(..) {
            output::print(&format!("{}\n", statement.trim_end()));
        }
        if progress == Progress::Ended {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The error of a script, which may need rows.
fn without_answers(error: &ScriptError, recorder: &Recorder) -> CliError {
    let reason = match recorder.asked {
        true => ": nothing is executed here, so that its queries have no rows",
        false => "",
    };
    CliError::Usage(format!("{error}{reason}"))
}

fn script_options(words: &[String]) -> Result<Options, CliError> {
    let mut options = Options::new();
    for word in words {
        let invalid = |what: &str| CliError::Usage(format!("--option {word}: {what}"));
        let (name, value) =
            word.split_once('=').ok_or_else(|| invalid("write NAME=VALUE, such as tables=4"))?;
        let value = OptionValue::Text(value.to_owned());
        if options.insert(name.replace('-', "_"), value).is_some() {
            return Err(invalid("this option is set twice"));
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_presets_are_listed_or_have_suffixes() {
        let text = variants();
        for preset in Variant::names() {
            let base = SUFFIXES
                .iter()
                .rev()
                .fold(&*preset, |name, (suffix, _)| name.strip_suffix(suffix).unwrap_or(name));
            assert!(text.contains(&format!("\n  {base} ")), "{preset} in {text}");
        }
        let lines = text.lines().take_while(|line| !line.contains("Compilers"));
        assert!(lines.map(|line| line.chars().count()).all(|columns| columns <= 80), "{text}");
    }
}
