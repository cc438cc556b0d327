//! A sysbench script as the work of a comparison: `--script FILE` with `--option NAME=VALUE`.

use std::ops::Range;

use dbdyno_document::{Document, Problem};
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::{Script, Version};

use super::candidate::{Candidate, System};
use super::command_line::{CommandLine, Word};
use super::experiment_text::{ROWS, TomlText, plain, quote};
use crate::workload::ReadFile;

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
pub struct ScriptOption<'w> {
    file: Word<'w>,
    path: &'w str,
    /// The name of the microbenchmark.
    name: String,
    version: &'static str,
    /// Names and values.
    options: Vec<(Word<'w>, Range<usize>, Range<usize>)>,
    /// Whether its first events change nothing.
    pub only_reads: bool,
}

/// The name of the microbenchmark: that of the file without `.lua`, or with it if the shorter name is taken,
/// as those of sysbench's own `select_random_points.lua` and `select_random_ranges.lua` are.
fn name_of(path: &str) -> String {
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.+=".contains(c);
    let file: String = file.chars().map(|c| if is_valid(c) { c } else { '_' }).collect();
    match file.strip_suffix(".lua") {
        Some(name) if !is_taken(name) => name.to_owned(),
        _ => file,
    }
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
        catalog.add(table);
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
    pub fn read(
        words: ScriptWords<'w>,
        line: &mut CommandLine,
        problems: &mut Vec<Problem>,
    ) -> Self {
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
        let is_this = |(_, version): &(&str, Version)| *version == words.version;
        let version = Version::ALL.into_iter().find(is_this).map_or("", |(name, _)| name);
        if words.version != Version::default() {
            line.push_option("--sysbench", version);
        }
        let name = name_of(words.path);
        Self { file, path: words.path, name, version, options, only_reads: false }
    }

    /// Reports a file that cannot be read. An experiment that names it would be searched from its own directory.
    pub fn check_file(&self, files: ReadFile<'_>, problems: &mut Vec<Problem>) {
        if let Err(reason) = Script::check_file(self.path, files) {
            let problem = Problem::new(self.file.whole(), format!("`--script`: {reason}"));
            problems.push(problem.help(
                "name a file, from the current directory, or a script of sysbench, such as `oltp_read_only.lua`",
            ));
        }
    }

    /// Reports candidates on which no script can run.
    pub fn check_systems(&self, candidates: &[Candidate<'_>], problems: &mut Vec<Problem>) {
        for candidate in candidates.iter().filter(|one| one.system == System::Sqlite) {
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

    /// Writes the list of selected microbenchmarks.
    pub fn write_selection(&self, text: &mut TomlText) {
        text.push_of(self.file.whole(), |text| text.push(&format!("[{}]", quote(&self.name))));
    }

    /// Writes the microbenchmark.
    pub fn write(&self, text: &mut TomlText) {
        text.push("\n[[microbenchmark]]\n");
        text.push_of(self.file.whole(), |text| {
            text.push(&format!("name = {}\nscript = {}\n", quote(&self.name), quote(self.path)));
            text.push(&format!("sysbench = {}\n", quote(self.version)));
        });
        if self.only_reads {
            text.comment("Its first events only read. Remove this if others write.");
            text.push("stages = [\"post\"]\n");
        }
        if !self.options.is_empty() {
            text.push("[microbenchmark.options]\n");
        }
        for (word, name, value) in &self.options {
            text.push_of(word.whole(), |text| {
                let name = &word.text[name.clone()];
                let is_bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
                let is_bare = !name.is_empty() && name.chars().all(is_bare);
                text.push(&if is_bare { name.to_owned() } else { quote(name) });
                text.push(" = ");
                match plain(&word.text[value.clone()]) {
                    quoted if quoted.starts_with('"') => text.string(word, value.clone()),
                    plain => text.push(&plain),
                }
                text.push("\n");
            });
        }
    }
}
