//! An experiment from the words of a command line: `mariadb mariadb:engine=myrocks`.
//!
//! [`experiment`] writes the text of an experiment and parses it as any other file, so that all
//! checks and defaults are the same, and the text can be saved. Problems that parsing finds are shown
//! at the word that caused them.

mod candidate;
mod command_line;
mod experiment_text;
mod script;

use dbdyno_document::{Problem, Problems, parse_duration};
use dbdyno_types::server::ServerSystem;
use dbdyno_workloads::definition::Script;

use self::candidate::Candidate;
use self::command_line::{CommandLine, Word};
use self::experiment_text::TomlText;
pub use self::experiment_text::{MICROBENCHMARKS, ROWS};
use self::script::ScriptOption;
pub use self::script::ScriptWords;
use crate::experiment::Experiment;
use crate::parse_with_files;
use crate::workload::ReadFile;

/// Names of the releases of a system that are installed on this machine.
pub type InstalledReleases<'a> = &'a dyn Fn(ServerSystem) -> Vec<String>;

/// The words of a command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words<'a> {
    /// The command of dbdyno, for messages.
    pub command: &'a str,
    /// The candidates; the first one is the baseline.
    pub candidates: &'a [String],
    /// Names, groups and patterns; empty for [`MICROBENCHMARKS`].
    pub microbenchmarks: &'a [String],
    /// A sysbench script that is measured instead of microbenchmarks.
    pub script: Option<ScriptWords<'a>>,
    /// Numbers of clients; empty for one client.
    pub clients: &'a [String],
    /// Measuring time in all.
    pub time: Option<&'a str>,
    /// Rows per table.
    pub rows: Option<&'a str>,
}

/// An experiment and its text.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub experiment: Experiment,
    /// The text of its file, with comments.
    pub text: String,
}

/// The experiment that the words describe. A script is read from `files`.
///
/// # Errors
/// All problems of the words, with their positions in the command line.
pub fn experiment(
    words: &Words<'_>,
    installed: InstalledReleases<'_>,
    files: ReadFile<'_>,
) -> Result<Comparison, Problems> {
    let mut line = CommandLine::new(words.command);
    let mut problems = Vec::new();
    let places: Vec<Word<'_>> = words.candidates.iter().map(|word| line.push(word)).collect();
    let mut options = Options {
        microbenchmarks: push_all(&mut line, "-m", words.microbenchmarks),
        script: words.script.map(|script| ScriptOption::read(script, &mut line, &mut problems)),
        clients: push_all(&mut line, "--clients", words.clients),
        time: words.time.map(|time| line.push_option("--for", time)),
        rows: words.rows.map(|rows| line.push_option("--rows", rows)),
    };
    let read = |word| Candidate::read(word, installed, &mut problems);
    let candidates: Vec<Candidate<'_>> = places.into_iter().filter_map(read).collect();
    check_names(&candidates, &mut problems);
    if let Some(script) = &options.script {
        script.check_file(files, &mut problems);
        script.check_systems(&candidates, &mut problems);
    }
    let time = options.time.map(|word| parse_duration(word.text).map_err(|bad| (word, bad)));
    if let Some(Err((word, bad))) = &time {
        problems.push(Problem::new(word.whole(), bad.message.clone()).help(bad.help.clone()));
    }
    if !problems.is_empty() {
        return Err(experiment_text::problems(problems, line.masked()));
    }
    let time = time.and_then(Result::ok);
    let write = |options: &Options<'_>| {
        let text = experiment_text::write(&line, &candidates, options, time);
        parse_text(text, &line, files)
    };
    let comparison = write(&options)?;
    // Whether a script only reads is known when it has been loaded.
    let only_reads =
        comparison.experiment.workload.scripts().next().is_some_and(Script::only_reads);
    match &mut options.script {
        Some(script) if only_reads => {
            script.only_reads = true;
            write(&options)
        }
        _ => Ok(comparison),
    }
}

/// Reports names that several words set.
fn check_names(candidates: &[Candidate<'_>], problems: &mut Vec<Problem>) {
    for (number, candidate) in candidates.iter().enumerate() {
        let Some(place) = candidate.place_of("name") else { continue };
        let name = candidate.text(place);
        if candidates[..number].iter().any(|other| other.value("name") == Some(name)) {
            let message = format!("duplicate candidate name `{name}`");
            let problem = Problem::new(candidate.word.span(place.clone()), message);
            problems.push(problem.help("another candidate has it: choose another name"));
        }
    }
}

/// Parses the text. Problems are those of the command line.
fn parse_text(
    text: TomlText,
    line: &CommandLine,
    files: ReadFile<'_>,
) -> Result<Comparison, Problems> {
    match parse_with_files("the generated experiment", text.text(), files) {
        Ok(experiment) => Ok(Comparison { experiment, text: text.into_text() }),
        Err(of_text) => Err(text.problems(&of_text, line)),
    }
}

/// The options of the command, with their values.
struct Options<'w> {
    microbenchmarks: Vec<Word<'w>>,
    script: Option<ScriptOption<'w>>,
    clients: Vec<Word<'w>>,
    time: Option<Word<'w>>,
    rows: Option<Word<'w>>,
}

fn push_all<'w>(line: &mut CommandLine, option: &str, values: &'w [String]) -> Vec<Word<'w>> {
    values.iter().map(|value| line.push_option(option, value)).collect()
}
