//! Definitions of microbenchmarks, as in the experiment file.
//!
//! Built-in and user-defined microbenchmarks have the same type and the same TOML form.

use std::fmt;

pub use dbdyno_scripts::Version;
use dbdyno_scripts::{FirstStatements, Options, Source, SourceError, only_reads};
use serde::{Deserialize, Serialize};

use crate::answers::{Answers, has_unordered_limit, undetermined_function};

/// One microbenchmark, with its range size filled in. Complete without other definitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Microbenchmark {
    /// The published name, such as `random-points.pre_range=100`.
    pub name: String,
    /// The group whose summary includes it.
    pub group: Group,
    /// The stage in which it runs.
    pub stage: Stage,
    /// Whether the statements of one event are wrapped in BEGIN and COMMIT.
    pub transaction: bool,
    /// What throughput counts.
    pub throughput: Throughput,
    /// The statements of one event, in order; none for a script.
    pub statements: Vec<Statement>,
    /// The sysbench script whose `event` is the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// What of its answers is compared, if the experiment sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
}

/// A sysbench script with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// The script and its modules.
    pub source: Source,
    /// The options that the experiment sets.
    pub options: Options,
    /// Those that events have instead, as with other options of `sysbench … run` than of `prepare`.
    #[serde(default, skip_serializing_if = "Options::is_empty")]
    pub run_options: Options,
    /// The schema of its data on a private server, if the experiment names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The number of its data in the run, from 0: scripts with the same number share it.
    #[serde(default, skip_serializing_if = "is_first")]
    pub data: u32,
    /// Whether another script makes its data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_data: bool,
    /// Whether its first events delete rows and insert none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletes: bool,
}

/// Whether it is the number of the first data, for smaller files.
const fn is_first(data: &u32) -> bool {
    *data == 0
}

impl Script {
    /// A script in the schema that the run chooses.
    pub const fn new(source: Source, options: Options) -> Self {
        let run_options = Options::new();
        let (schema, data, shares_data, deletes) = (None, 0, false, false);
        Self { source, options, run_options, schema, data, shares_data, deletes }
    }

    /// The options that it has: those of `prepare`, and those of events if they are others.
    pub fn all_options(&self) -> Vec<Options> {
        let mut all = vec![self.options.clone()];
        if !self.run_options.is_empty() {
            all.push(self.options_of_events());
        }
        all
    }

    /// The options of its events.
    pub fn options_of_events(&self) -> Options {
        let own = self.run_options.iter();
        let mut options = self.options.clone();
        options.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        options
    }

    /// Whether the file of a script can be read with `read`, also in sysbench's directories.
    pub fn check_file(
        path: &str,
        read: impl Fn(&str) -> Result<String, String>,
    ) -> Result<(), String> {
        match Source::find(path, read) {
            Err(SourceError::Unreadable(reason)) => Err(reason),
            Ok(_) | Err(SourceError::Missing(_)) => Ok(()),
        }
    }

    /// Whether the first events change nothing, as far as that is visible without a database.
    pub fn only_reads(&self) -> bool {
        only_reads(&self.source, &self.options_of_events())
    }

    /// Whether the first events delete rows and insert none, as far as that is visible without a database.
    pub fn only_deletes(&self) -> bool {
        let first = FirstStatements::of(&self.source, &self.options, &self.options_of_events());
        let has = |verbs: [&str; 2]| {
            let begins = |sql: &String, verb: &&str| {
                let word = sql.trim_start().get(..verb.len());
                word.is_some_and(|word| word.eq_ignore_ascii_case(verb))
            };
            first.of_events.iter().any(|sql| verbs.iter().any(|verb| begins(sql, verb)))
        };
        has(["DELETE", "TRUNCATE"]) && !has(["INSERT", "REPLACE"])
    }
}

impl Microbenchmark {
    /// What of its answers is compared, and why not everything: because the experiment says so, or because of a part
    /// of its SQL whose answer is not determined.
    pub fn compared_answers(&self) -> (Answers, Option<String>) {
        if let Some(answers) = self.answers {
            let reason = answers.limit().map(|_| "the experiment sets `answers`".to_owned());
            return (answers, reason);
        }
        let script = self.script.as_ref();
        let sent = script.map(|script| {
            FirstStatements::of(&script.source, &script.options, &script.options_of_events())
        });
        let sent = sent.unwrap_or_default();
        let own = self.statements.iter().map(|one| &one.sql).chain(&sent.of_events);
        // Data made by such a function differs between storage engines.
        let function =
            own.clone().chain(&sent.of_prepare).find_map(|sql| undetermined_function(sql));
        let mut own = own;
        let limit =
            || own.any(|sql| has_unordered_limit(sql)).then(|| "LIMIT without ORDER BY".to_owned());
        match function.or_else(limit) {
            Some(part) => (Answers::Rows, Some(format!("its SQL has {part}"))),
            None => (Answers::Values, None),
        }
    }

    /// Whether events use up the data, so that another start needs it as it was: they delete rows without inserting
    /// others, or the experiment says of a script that its tables grow or shrink.
    pub fn uses_up_data(&self) -> bool {
        match &self.script {
            Some(script) => script.deletes || self.stage == Stage::Last,
            None => self.has("DELETE") && !self.has("INSERT"),
        }
    }

    /// The microbenchmark with expected counts for this number of concurrent clients.
    ///
    /// A single client finds every key. With several clients, a key may be missing temporarily: a
    /// client that waited for another client to delete and insert the same row finds either the new
    /// row (InnoDB) or no row (PostgreSQL, because the row it waited for was deleted). If events
    /// delete rows, updates and deletes may therefore change 0 rows. Queries always see the old or
    /// the new row.
    pub fn for_clients(mut self, clients: u32) -> Self {
        if clients > 1 && self.has("DELETE") {
            for statement in &mut self.statements {
                let changes = statement.expect.what == Counted::Affected;
                if changes && !statement.starts_with("INSERT") {
                    statement.expect.at_least = Bound::Count(0);
                }
            }
        }
        self
    }

    fn has(&self, verb: &str) -> bool {
        self.statements.iter().any(|statement| statement.starts_with(verb))
    }

    /// Whether any statement changes data. What a script does is known from its stage.
    pub fn writes(&self) -> bool {
        if self.script.is_some() {
            return matches!(self.stage, Stage::Write | Stage::Last);
        }
        self.statements.iter().any(|statement| statement.expect.what == Counted::Affected)
    }
}

/// The group of a microbenchmark: its results are summarized with those of the same group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Group {
    /// Point queries, one key or a list with one table access each.
    #[serde(rename = "point-1")]
    Point1,
    /// In-lists of 10 to 1000 random keys.
    #[serde(rename = "point-2")]
    Point2,
    /// Ranges and scans without aggregation.
    #[serde(rename = "range-1")]
    Range1,
    /// The read-only transaction: ranges with sorting and aggregation.
    #[serde(rename = "range-2")]
    Range2,
    /// Everything that changes data.
    #[serde(rename = "writes")]
    Writes,
    /// A group that an experiment defines, by name.
    #[serde(untagged)]
    Own(String),
}

/// The five published groups, in the order in which reports show them.
pub static PUBLISHED_GROUPS: [Group; 5] =
    [Group::Point1, Group::Point2, Group::Range1, Group::Range2, Group::Writes];

impl Group {
    /// The group of user-defined microbenchmarks that name none.
    pub const DEFAULT_OWN: &str = "own";

    /// The name in experiments and reports.
    pub fn name(&self) -> &str {
        match self {
            Self::Point1 => "point-1",
            Self::Point2 => "point-2",
            Self::Range1 => "range-1",
            Self::Range2 => "range-2",
            Self::Writes => "writes",
            Self::Own(name) => name,
        }
    }

    /// The name of the group in the older classification into point, range and write; groups of
    /// experiments keep their name.
    pub fn coarse_name(&self) -> &str {
        match self {
            Self::Point1 | Self::Point2 => "point",
            Self::Range1 | Self::Range2 => "range",
            Self::Writes => "write",
            Self::Own(name) => name,
        }
    }

    /// The group with this name: a published one, or one of the experiment.
    pub fn from_name(name: &str) -> Self {
        let published = PUBLISHED_GROUPS.iter().find(|group| group.name() == name);
        published.cloned().unwrap_or_else(|| Self::Own(name.to_owned()))
    }
}

dbdyno_types::words! {
    /// When a microbenchmark runs. The stages follow each other in this order.
    Stage {
        /// Before the writes fragment the tables.
        Pre = "pre",
        /// The writes. The engine is settled after them.
        Write = "write",
        /// After the writes and the settling.
        Post = "post",
        /// After all others: microbenchmarks that grow or shrink the tables.
        Last = "last",
    }
}

dbdyno_types::words! {
    /// The unit of a microbenchmark's throughput.
    #[derive(Default)]
    Throughput {
        /// Statements, including BEGIN and COMMIT.
        #[default]
        Statements = "statements",
        /// Millions of rows read, for scans that return none.
        MillionRowsRead = "million-rows-read",
    }
}

/// One statement of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// SQL with `{table}` for the table and `:name` for each parameter. A list parameter must be
    /// alone in parentheses: `IN (:ids)`.
    pub sql: String,
    /// The source of each parameter, in the order of drawing. A parameter of the SQL without a
    /// source has the value that an earlier statement of the event drew under the same name.
    pub draw: Vec<(String, ParameterSource)>,
    /// Number of consecutive executions, each with newly drawn parameters.
    pub repeat: u32,
    /// The table it runs on.
    pub table: TableChoice,
    /// The expected count of rows.
    pub expect: Expect,
}

impl Statement {
    /// Whether the SQL starts with this word.
    fn starts_with(&self, verb: &str) -> bool {
        let word = self.sql.split_whitespace().next().unwrap_or_default();
        word.eq_ignore_ascii_case(verb)
    }
}

dbdyno_types::words! {
    /// The table a statement runs on.
    #[derive(Default)]
    TableChoice {
        /// A random table for each execution, uniformly distributed.
        #[default]
        Any = "any",
        /// The table of the event's previous statement.
        Same = "same",
        /// The client's own: client i uses table i modulo the number of tables.
        Own = "own",
    }
}

/// The source of a parameter's values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParameterSource {
    /// A key from 1..N.
    Key(Distribution),
    /// A constant.
    Fixed(i64),
    /// An integer from `low` to `high`, uniformly distributed.
    Between {
        /// The smallest value.
        low: i64,
        /// The largest value.
        high: i64,
    },
    /// Another parameter of the event plus a constant.
    Offset {
        /// The other parameter's name.
        of: String,
        /// The constant.
        plus: i64,
    },
    /// A list of independently drawn keys from 1..N, possibly with duplicates.
    KeyList {
        /// The number of keys.
        count: u32,
        /// The distribution of each key.
        distribution: Distribution,
    },
    /// A constant list of adjacent keys from the middle of 1..N.
    Middle {
        /// The number of keys.
        count: u32,
    },
    /// A new random text.
    Text(Text),
}

/// The form in the experiment file, such as `list(100, uniform)`.
impl fmt::Display for ParameterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(distribution) => write!(f, "{distribution}"),
            Self::Fixed(value) => write!(f, "fixed({value})"),
            Self::Between { low, high } => write!(f, "uniform({low}..{high})"),
            Self::Offset { of, plus } => {
                let sign = if *plus < 0 { '-' } else { '+' };
                write!(f, "{of} {sign} {}", plus.unsigned_abs())
            }
            Self::KeyList { count, distribution } => write!(f, "list({count}, {distribution})"),
            Self::Middle { count } => write!(f, "middle({count})"),
            Self::Text(text) => write!(f, "{text}"),
        }
    }
}

/// A distribution over the keys 1..N.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Every key with the same probability.
    Uniform,
    /// Key i with a weight of i^-exponent.
    Zipf(f64),
}

/// The form in the experiment file.
impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf({exponent})"),
        }
    }
}

dbdyno_types::words! {
    /// A random text in the format of a column.
    Text {
        /// Ten groups of 11 digits: 119 characters.
        C = "c",
        /// Five groups of 11 digits: 59 characters.
        Pad = "pad",
    }
}

/// The expected count of one execution of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// Which count is checked.
    pub what: Counted,
    /// The minimum expected count.
    pub at_least: Bound,
    /// The maximum expected count.
    pub at_most: Bound,
}

/// Which count of an execution is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    /// Rows returned by a query.
    Rows,
    /// Rows changed by a write.
    Affected,
}

/// A minimum or maximum expected count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// A constant.
    Count(u64),
    /// The number of distinct keys in the statement's list parameter.
    Keys,
    /// The number of ids from the statement's first to its second parameter, limited to 1..N.
    Range,
    /// Any number: the count depends on the data. The answers of candidates that run the same
    /// events must still be equal.
    Any,
}
