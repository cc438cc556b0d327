//! An experiment from the words of a command line: `mariadb mariadb:engine=myrocks`.
//!
//! [`experiment`] writes the text of an experiment and parses it as any other file, so that all
//! checks and defaults are the same, and the text can be saved. Problems that parsing finds are shown
//! at the word that caused them.

mod candidate;
mod each_option;
mod sql;
mod text;

use std::ops::Range;

use dbdyno_document::{BadValue, Document, Problem, Problems, parse_count, parse_duration};
use dbdyno_types::server::ServerSystem;
use dbdyno_units::Nanos;
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::decode::NO_FILES;
use dbdyno_workloads::definition::{Script, Version};

use self::candidate::Candidate;
pub use self::each_option::{Difference, OptionWords, option_words};
use self::sql::SqlOption;
pub use self::sql::SqlWords;
use self::text::{CommandLine, TomlText, Word, plain, quote};
pub use self::text::{MICROBENCHMARKS, ROWS, is_of_command_line};
use crate::candidate::Program;
use crate::experiment::Experiment;
use crate::parse_with_files;
use crate::workload::{ReadFile, dialect};

/// Names of the releases of a system that are installed on this machine.
pub type InstalledReleases<'a> = &'a dyn Fn(ServerSystem) -> Vec<String>;

/// The words of a command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words<'a> {
    pub command: &'a str,
    /// The current directory, which files of candidates are named from.
    pub directory: &'a str,
    /// The candidates; the first one is the baseline.
    pub candidates: &'a [String],
    /// Names, groups and patterns; empty for [`MICROBENCHMARKS`].
    pub microbenchmarks: &'a [String],
    /// A sysbench script that is measured instead of microbenchmarks.
    pub script: Option<ScriptWords<'a>>,
    /// SQL statements that are measured instead of microbenchmarks.
    pub sql: Option<SqlWords<'a>>,
    /// Numbers of clients; empty for one client.
    pub clients: &'a [String],
    /// Measuring time in all, with warm-up.
    pub time: Option<&'a str>,
    pub rows: Option<&'a str>,
    /// Half-width of intervals at which measuring may end.
    pub target: Option<&'a str>,
    /// Whether to measure shortly, in one start, to find what is worth a longer measurement.
    pub is_screening: bool,
    /// Whether stacks are sampled.
    pub profile: bool,
    /// Whether stacks are sampled and executed instructions counted.
    pub instructions: bool,
    /// Whether it is also recorded where threads wait.
    pub waits: bool,
}

#[derive(Clone, Debug)]
pub struct Comparison {
    pub experiment: Experiment,
    /// The measuring time that was asked for.
    pub asked: Option<Nanos>,
    /// The text of its file, with comments.
    pub text: String,
}

/// The experiment that the words describe. A script is read from `files`; `measuring` is the most time that measuring an
/// experiment takes, with warm-up.
///
/// # Errors
/// All problems of the words, with their positions in the command line.
pub fn experiment(
    words: &Words<'_>,
    installed: InstalledReleases<'_>,
    files: ReadFile<'_>,
    measuring: MeasuringTime<'_>,
) -> Result<Comparison, Problems> {
    let mut line = CommandLine::new(words.command);
    let mut problems = Vec::new();
    let places: Vec<Word<'_>> = words.candidates.iter().map(|word| line.push(word)).collect();
    let mut options = Options {
        directory: words.directory,
        microbenchmarks: push_all(&mut line, "-m", words.microbenchmarks),
        script: words.script.map(|script| ScriptOption::read(script, &mut line, &mut problems)),
        sql: words.sql.map(|sql| SqlOption::of(sql, &mut line)),
        clients: push_all(&mut line, "--clients", words.clients),
        time: words.time.map(|time| line.push_option("--for", time)),
        rows: words.rows.map(|rows| line.push_option("--rows", rows)),
        target: words.target.map(|target| line.push_option("--target", target)),
        is_screening: words.is_screening,
    };
    let read = |word| Candidate::read(word, installed, &mut problems);
    let candidates: Vec<Candidate<'_>> = places.into_iter().filter_map(read).collect();
    check_names(&candidates, &mut problems);
    if let Some(script) = &options.script {
        script.check_file(files, &mut problems);
        script.check_systems(&candidates, &mut problems);
    }
    if let (Some(sql), Some(first)) = (&mut options.sql, candidates.first()) {
        sql.read(words.directory, dialect(first.system), files, &mut problems);
    }
    let time = options.time.map(|word| parse_duration(word.text).map_err(|bad| (word, bad)));
    let problem =
        |word: Word<'_>, bad: BadValue| Problem::new(word.whole(), bad.message).help(bad.help);
    if let Some(Err((word, bad))) = &time {
        problems.push(problem(*word, bad.clone()));
    }
    for word in options.rows.iter().chain(&options.clients) {
        problems.extend(parse_count(word.text).err().map(|bad| problem(*word, bad)));
    }
    if !problems.is_empty() {
        return Err(line.problems(problems));
    }
    let asked = time.and_then(Result::ok);
    let write = |options: &Options<'_>, time| {
        let mut text = text::write(&line, &candidates, options, time);
        if words.profile || words.instructions || words.waits {
            text.push("\n[profile]\n");
        }
        if words.instructions {
            text.push("instructions = true\n");
        }
        if words.waits {
            text.push("waits = true\n");
        }
        match parse_with_files("the generated experiment", &text.text, files) {
            Ok(experiment) => Ok(Comparison { experiment, asked, text: text.text }),
            Err(of_text) => Err(text.problems(&of_text, &line)),
        }
    };
    let comparison = write(&options, asked)?;
    // Whether a script only reads is known when it has been loaded.
    let only_reads =
        comparison.experiment.workload.scripts().next().is_some_and(Script::only_reads);
    let comparison = match &mut options.script {
        Some(script) if only_reads => {
            script.only_reads = true;
            write(&options, asked)?
        }
        _ => comparison,
    };
    match asked {
        Some(asked) => within(asked, comparison, &|time| write(&options, Some(time)), measuring),
        None => Ok(comparison),
    }
}

/// The most time that measuring an experiment takes, with warm-up.
pub type MeasuringTime<'a> = &'a dyn Fn(&Experiment) -> Nanos;

/// Tries to find the time of slices with which everything takes the time that was asked for.
const TRIES: u32 = 5;

/// The comparison with less time in slices, so that with warm-up it takes at most the time that was asked for; or as
/// near to it as the least number of blocks permits.
fn within(
    asked: Nanos,
    first: Comparison,
    write: &dyn Fn(Nanos) -> Result<Comparison, Problems>,
    measuring: MeasuringTime<'_>,
) -> Result<Comparison, Problems> {
    let (mut best, mut time) = (first, asked);
    for _ in 0..TRIES {
        let planned = measuring(&best.experiment);
        if planned <= asked {
            break;
        }
        time =
            Nanos::from_secs_f64(time.as_secs_f64() * asked.as_secs_f64() / planned.as_secs_f64());
        let shorter = write(time)?;
        if measuring(&shorter.experiment) >= planned {
            break;
        }
        best = shorter;
    }
    Ok(best)
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

struct Options<'w> {
    directory: &'w str,
    microbenchmarks: Vec<Word<'w>>,
    script: Option<ScriptOption<'w>>,
    sql: Option<SqlOption<'w>>,
    clients: Vec<Word<'w>>,
    time: Option<Word<'w>>,
    rows: Option<Word<'w>>,
    target: Option<Word<'w>>,
    is_screening: bool,
}

fn push_all<'w>(line: &mut CommandLine, option: &str, values: &'w [String]) -> Vec<Word<'w>> {
    values.iter().map(|value| line.push_option(option, value)).collect()
}

/// A script in the words of a command line.
#[derive(Clone, Copy, Debug)]
pub struct ScriptWords<'a> {
    /// The file as it was written.
    pub file: &'a str,
    /// The file as the experiment names it, from wherever the experiment is.
    pub path: &'a str,
    /// Its options: `NAME=VALUE`.
    pub options: &'a [String],
    /// The version of sysbench that it is written for.
    pub version: Version,
}

/// A script, with the places of its words.
#[derive(Debug)]
struct ScriptOption<'w> {
    file: Word<'w>,
    path: &'w str,
    name: String,
    version: &'static str,
    options: Vec<(Word<'w>, Range<usize>, Range<usize>)>,
    /// Whether its first events change nothing.
    only_reads: bool,
}

/// The name of the microbenchmark: that of the file without `.lua`, or with it if the shorter name is taken,
/// as those of sysbench's own `select_random_points.lua` and `select_random_ranges.lua` are.
fn name_of(path: &str) -> String {
    let file = valid_name(path.rsplit_once('/').map_or(path, |(_, file)| file));
    match file.strip_suffix(".lua") {
        Some(name) if !is_taken(name) => name.to_owned(),
        _ => file,
    }
}

/// A text as a name of a microbenchmark.
fn valid_name(text: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.+=".contains(c);
    text.chars().map(|c| if is_valid(c) { c } else { '_' }).collect()
}

/// Whether a user's microbenchmark cannot have this name, beside the built-in ones.
fn is_taken(name: &str) -> bool {
    let name = quote(name);
    let text = format!(
        "microbenchmark = [{{ name = {name}, statements = [{{ sql = \"SELECT 1\", rows = 1 }}] }}]"
    );
    let Ok(document) = Document::parse("", &text) else { return true };
    let mut catalog = Catalog::builtin();
    for table in document.root().tables("microbenchmark") {
        catalog.add(table, NO_FILES);
    }
    document.problem_count() > 0
}

/// The name of an option as sysbench treats it: `-` and `_` are equivalent.
fn spelling(name: &str) -> String {
    name.replace('-', "_")
}

/// Rows of a table of sysbench's own scripts.
const TABLE_SIZE: u64 = 10_000;

impl<'w> ScriptOption<'w> {
    /// Adds the words to the line. Those with problems are left out.
    fn read(words: ScriptWords<'w>, line: &mut CommandLine, problems: &mut Vec<Problem>) -> Self {
        let file = line.push_option("--script", words.file);
        let mut options: Vec<(Word<'w>, Range<usize>, Range<usize>)> = Vec::new();
        for option in words.options {
            let word = line.push_option("--option", option);
            let Some((name, _)) = option.split_once('=') else {
                let message = format!("option `{option}` of the script has no value");
                problems.push(Problem::new(word.whole(), message).help("write `NAME=VALUE`"));
                continue;
            };
            let is_equal = |(other, range, _): &(Word<'w>, Range<usize>, Range<usize>)| {
                spelling(&other.text[range.clone()]) == spelling(name)
            };
            if options.iter().any(is_equal) {
                let message = format!("option `{name}` of the script is set twice");
                problems.push(Problem::new(word.whole(), message).help("remove one of them"));
                continue;
            }
            options.push((word, 0..name.len(), name.len() + 1..option.len()));
        }
        let version = words.version.name();
        if words.version != Version::default() {
            line.push_option("--sysbench", version);
        }
        let name = name_of(words.path);
        Self { file, path: words.path, name, version, options, only_reads: false }
    }

    /// Reports a file that cannot be read. An experiment that names it would be searched from its own directory.
    fn check_file(&self, files: ReadFile<'_>, problems: &mut Vec<Problem>) {
        if let Err(reason) = Script::check_file(self.path, files) {
            let problem = Problem::new(self.file.whole(), format!("`--script`: {reason}"));
            problems.push(problem.help(
                "name a file, from the current directory, or a script of sysbench, such as `oltp_read_only.lua`",
            ));
        }
    }

    /// Reports candidates on which no script can run.
    fn check_systems(&self, candidates: &[Candidate<'_>], problems: &mut Vec<Problem>) {
        for candidate in candidates.iter().filter(|one| one.system == Program::Sqlite) {
            let problem = Problem::new(candidate.word.whole(), "scripts cannot run on SQLite");
            problems.push(problem.help("they run on mariadb, mysql and postgresql"));
        }
    }

    /// The number of rows that servers should expect, from the options of sysbench's own scripts.
    pub fn rows(&self) -> u64 {
        let number = |wanted: &str| {
            let is_wanted = |name: &str| spelling(name) == wanted;
            let mut found = self.options.iter();
            let (word, _, value) =
                found.find(|(word, name, _)| is_wanted(&word.text[name.clone()]))?;
            word.text[value.clone()].parse::<u64>().ok()
        };
        let (tables, size) = (number("tables"), number("table_size"));
        let rows = tables.unwrap_or(1).saturating_mul(size.unwrap_or(TABLE_SIZE));
        // TOML has no larger integers.
        rows.clamp(ROWS, i64::MAX.unsigned_abs())
    }

    pub fn write_selection(&self, text: &mut TomlText) {
        text.of(self.file.whole(), &format!("[{}]", quote(&self.name)));
    }

    pub fn write(&self, text: &mut TomlText) {
        text.push("\n[[microbenchmark]]\n");
        let [name, path, version] = [&self.name, self.path, self.version].map(quote);
        let lines = format!("name = {name}\nscript = {path}\nsysbench = {version}\n");
        text.of(self.file.whole(), &lines);
        if self.only_reads {
            text.comment("Its first events only read. Remove this if others write.");
            text.push("stages = [\"post\"]\n");
        }
        if !self.options.is_empty() {
            text.push("[microbenchmark.options]\n");
        }
        for (word, name, value) in &self.options {
            text.push_of(word.whole(), |text| {
                text.key(&word.text[name.clone()], word.whole());
                match plain(&word.text[value.clone()]) {
                    quoted if quoted.starts_with('"') => text.string(word, value.clone()),
                    plain => text.push(&plain),
                }
                text.push("\n");
            });
        }
    }
}
