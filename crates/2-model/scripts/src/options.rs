//! Options that a script declares, and their values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::client::Setup;
use crate::host::Driver;
use crate::random::{Distribution, RandomOptions};
use crate::source::Version;

/// A value as written in the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

impl OptionValue {
    /// As it would be written on sysbench's command line.
    pub fn to_text(&self) -> String {
        match self {
            Self::Bool(true) => "on".to_owned(),
            Self::Bool(false) => "off".to_owned(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Options by name, with `_` instead of `-`.
pub type Options = BTreeMap<String, OptionValue>;

/// What a script declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its options by name, in alphabetical order; `None` for a script of 1.0 that declares none and accepts all.
    pub options: Option<Vec<(String, OptionKind)>>,
    pub has_event: bool,
    /// The version of sysbench that it is written for.
    pub version: Version,
}

/// The type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    Bool,
    Number,
    Text,
}

/// Where a script's statements are sent, as it finds that in its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub host: String,
    /// `None` for the system's default.
    pub port: Option<u16>,
    pub socket: Option<String>,
    pub user: String,
    pub database: String,
    /// Whether prepared statements are sent as text.
    pub sends_text: bool,
}

impl Default for Access {
    /// sysbench's.
    fn default() -> Self {
        let (user, database) = ("sbtest".to_owned(), "sbtest".to_owned());
        let (host, port, socket) = ("localhost".to_owned(), None, None);
        Self { host, port, socket, user, database, sends_text: false }
    }
}

/// The value of a general option of sysbench.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum General {
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<String>),
}

/// General options that scripts read, and that mean nothing else.
const READ_BY_SCRIPTS: [&str; 3] = ["debug", "validate", "verbosity"];

/// The general options of sysbench that scripts find, with the values that fit a run of dbdyno: its clients have no
/// limits of their own, and no reports.
pub(crate) fn general_options(
    setup: &Setup,
    random: &RandomOptions,
    version: Version,
) -> Result<Vec<(&'static str, General)>, (String, String)> {
    use General::{Bool, List, Number, Text};
    let Setup { driver, access, clients, options, .. } = setup;
    let list = |values: &[&str]| List(values.iter().map(|value| (*value).to_owned()).collect());
    let flag = |name: &str| match options.get(name).map(OptionValue::to_text).as_deref() {
        None => Ok(false),
        Some(text) => {
            is_on(text).ok_or_else(|| (name.to_owned(), format!("`{text}` is not on or off")))
        }
    };
    let verbosity = options.get("verbosity").map_or_else(|| "3".to_owned(), OptionValue::to_text);
    let verbosity: f64 = verbosity
        .parse()
        .map_err(|_| ("verbosity".to_owned(), format!("`{verbosity}` is not a number")))?;
    let here = |of: Driver| *driver == of;
    let of = |of: Driver, here_value: &str, default: &str| {
        Text(if here(of) { here_value } else { default }.to_owned())
    };
    let (mysql, pgsql) = (Driver::MySql, Driver::PostgreSql);
    let host = |of| if here(of) { access.host.as_str() } else { "localhost" };
    let port = |of, default: u16| access.port.filter(|_| here(of)).unwrap_or(default);
    let socket = access.socket.as_deref().filter(|_| here(mysql));
    let ignored = IgnoredErrors::of(options)?;
    let mut all = vec![
        ("threads", Number((*clients).into())),
        ("num_threads", Number((*clients).into())),
        ("events", Number(0.0)),
        ("max_requests", Number(0.0)),
        ("time", Number(0.0)),
        ("max_time", Number(0.0)),
        ("rate", Number(0.0)),
        ("tx_rate", Number(0.0)),
        ("forced_shutdown", Text("off".to_owned())),
        ("thread_stack_size", Number(65536.0)),
        ("report_interval", Number(0.0)),
        ("report_checkpoints", list(&[])),
        ("percentile", Number(0.0)),
        ("histogram", Bool(false)),
        ("help", Bool(false)),
        ("version", Bool(false)),
        ("debug", Bool(flag("debug")?)),
        ("validate", Bool(flag("validate")?)),
        ("verbosity", Number(verbosity)),
        ("db_driver", Text(driver.name().to_owned())),
        ("db_ps_mode", Text(if access.sends_text { "disable" } else { "auto" }.to_owned())),
        ("db_debug", Bool(false)),
        ("mysql_host", list(&[host(mysql)])),
        ("mysql_port", List(vec![port(mysql, 3306).to_string()])),
        ("mysql_socket", list(socket.as_slice())),
        ("mysql_user", of(mysql, &access.user, "sbtest")),
        ("mysql_password", Text(String::new())),
        ("mysql_db", of(mysql, &access.database, "sbtest")),
        ("mysql_ssl", Bool(false)),
        ("mysql_ssl_cipher", Text(String::new())),
        ("mysql_compression", Bool(false)),
        ("mysql_debug", Bool(false)),
        ("mysql_dry_run", Bool(false)),
        ("mysql_ignore_errors", List(ignored.names())),
        ("pgsql_host", Text(host(pgsql).to_owned())),
        ("pgsql_port", Number(port(pgsql, 5432).into())),
        ("pgsql_user", of(pgsql, &access.user, "sbtest")),
        ("pgsql_password", Text(String::new())),
        ("pgsql_db", of(pgsql, &access.database, "sbtest")),
        ("rand_type", Text(random.distribution.name().to_owned())),
        ("rand_seed", Number(0.0)),
        ("rand_pareto_h", Number(random.pareto_h)),
    ];
    match version {
        Version::V1_0 => all.extend([
            ("rand_spec_iter", Number(random.iterations.into())),
            ("rand_spec_pct", Number(random.special_range.into())),
            ("rand_spec_res", Number(random.special_values.into())),
        ]),
        Version::V1_1 => all.extend([
            ("rand_zipfian_exp", Number(random.zipfian_exponent)),
            ("warmup_time", Number(0.0)),
            ("thread_init_timeout", Number(30.0)),
        ]),
    }
    Ok(all)
}

fn is_on(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "" | "on" | "true" | "1" | "yes" => Some(true),
        "off" | "false" | "0" | "no" => Some(false),
        _ => None,
    }
}

/// The option of the errors of MariaDB and MySQL after which an event is restarted.
const IGNORED_ERRORS: &str = "mysql_ignore_errors";

/// Errors of MariaDB and MySQL after which an event is restarted, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IgnoredErrors {
    All,
    Numbers(Vec<i32>),
}

impl Default for IgnoredErrors {
    /// Deadlock, lock wait timeout, changed record: sysbench's.
    fn default() -> Self {
        Self::Numbers(vec![1213, 1020, 1205])
    }
}

impl IgnoredErrors {
    /// Those of a script's options; or the name of the option and what is wrong with it.
    pub fn of(options: &Options) -> Result<Self, (String, String)> {
        let Some(text) = options.get(IGNORED_ERRORS).map(OptionValue::to_text) else {
            return Ok(Self::default());
        };
        if text.trim() == "all" {
            return Ok(Self::All);
        }
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(str::parse).collect::<Result<_, _>>().map(Self::Numbers).map_err(|_| {
            let message =
                format!("`{text}` is not `all` or numbers of errors, such as `1213,1062`");
            (IGNORED_ERRORS.to_owned(), message)
        })
    }

    pub fn contains(&self, number: i32) -> bool {
        match self {
            Self::All => true,
            Self::Numbers(numbers) => numbers.contains(&number),
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::All => vec!["all".to_owned()],
            Self::Numbers(numbers) => numbers.iter().map(i32::to_string).collect(),
        }
    }
}

/// What replaces options of connections.
const SERVER: [&str; 2] = [
    "set `url` of the candidate to use an existing server",
    "name the URL of an existing server as a candidate",
];
const SCHEMA: &str =
    "dbdyno creates a schema for the data, whose name the script finds in this option";
const LOGIN: &str =
    "passwords are read from the user's files or the environment, never from options";
const DRIVERS: &str = "dbdyno's connections are its own, and do not have this";

/// Options of sysbench that dbdyno does not accept, with what replaces them in an experiment file, and in
/// `run --script` and `compare`.
const REPLACED_OPTIONS: [(&[&str], [&str; 2]); 22] = [
    (&["mysql_host", "mysql_port", "mysql_socket", "mysql_user", "mysql_ssl"], SERVER),
    (&["pgsql_host", "pgsql_port", "pgsql_user"], SERVER),
    (&["mysql_password", "pgsql_password"], [LOGIN; 2]),
    (&["mysql_db", "pgsql_db"], [SCHEMA; 2]),
    (&["mysql_ssl_cipher", "mysql_compression", "mysql_debug", "db_debug"], [DRIVERS; 2]),
    (&["mysql_dry_run"], ["use `dbdyno list script`"; 2]),
    (&["forced_shutdown"], ["events in progress end before a slice does"; 2]),
    (&["thread_stack_size"], ["a client's stack has 1 MiB"; 2]),
    (&["config_file"], ["write options into `options`", "write each as `--option NAME=VALUE`"]),
    (&["thread_init_timeout"], ["`thread_init` has no limit of time"; 2]),
    (&["threads", "num_threads"], ["set `clients` in [workload]", "use `--clients`"]),
    (&["time", "max_time"], ["set `budget` in [schedule]", "use `--for`"]),
    (&["events", "max_requests"], ["set `slice` and `budget` in [schedule]", "use `--for`"]),
    (&["rate", "tx_rate"], ["clients send as fast as they can"; 2]),
    (
        &["warmup_time"],
        [
            "set `warmup_blocks` in [schedule]",
            "set `warmup_blocks` in the file that `--save` writes",
        ],
    ),
    (&["report_interval", "report_checkpoints"], ["every slice is stored"; 2]),
    (&["percentile", "histogram"], ["all percentiles are reported"; 2]),
    (
        &["rand_seed"],
        ["set `seed` at the top of the experiment", "set `seed` in the file that `--save` writes"],
    ),
    (&["db_driver"], ["set `system` of the candidate", "name candidates, such as `mariadb`"]),
    (
        &["db_ps_mode"],
        ["set `statements` of the candidate", "name a candidate such as `mariadb:statements=text`"],
    ),
    (
        &["mysql_storage_engine"],
        ["set `engine` of the candidate", "name a candidate such as `mariadb:engine=myrocks`"],
    ),
    (&["pgsql_variant"], ["only PostgreSQL itself is supported"; 2]),
];

/// Those that sysbench's own scripts declare.
const REPLACED_OF_SCRIPTS: [&str; 2] = ["mysql_storage_engine", "pgsql_variant"];

/// What replaces an option, as in [`REPLACED_OPTIONS`].
fn replaced_option(name: &str) -> Option<[&'static str; 2]> {
    let name = name.replace('-', "_");
    let mut all = REPLACED_OPTIONS.iter();
    all.find(|(names, _)| names.contains(&name.as_str())).map(|(_, instead)| *instead)
}

/// What replaces an option of sysbench on the command line of `run --script` and `compare`; `None` if dbdyno does
/// not replace it.
pub fn replaced_on_command_line(name: &str) -> Option<&'static str> {
    replaced_option(name).map(|[_, on_command_line]| on_command_line)
}

/// Options of sysbench that dbdyno accepts for every script.
const fn random_options(version: Version) -> &'static [&'static str] {
    match version {
        Version::V1_0 => {
            &["rand_type", "rand_spec_iter", "rand_spec_pct", "rand_spec_res", "rand_pareto_h"]
        }
        Version::V1_1 => &["rand_type", "rand_pareto_h", "rand_zipfian_exp"],
    }
}

/// An option that cannot be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionProblem {
    /// dbdyno does this differently: how, in an experiment file.
    Replaced(&'static str),
    /// The script does not declare it. All names that it could be.
    Unknown(Vec<String>),
}

/// Whether a script with these options has the option `name`.
pub fn check_option(name: &str, declared: &Declared) -> Result<(), OptionProblem> {
    let underscored = name.replace('-', "_");
    let has_own = |options: &Vec<(String, _)>| options.iter().any(|(one, _)| *one == underscored);
    let is_own = declared.options.as_ref().is_some_and(has_own)
        && !REPLACED_OF_SCRIPTS.contains(&underscored.as_str());
    if let Some([in_file, _]) = replaced_option(name).filter(|_| !is_own) {
        return Err(OptionProblem::Replaced(in_file));
    }
    let name = underscored;
    let Some(options) = &declared.options else { return Ok(()) };
    let random = random_options(declared.version).iter().copied();
    let general = random.chain(READ_BY_SCRIPTS).chain([IGNORED_ERRORS]);
    let names = options.iter().map(|(name, _)| name.as_str()).chain(general);
    if names.clone().any(|known| known == name) {
        return Ok(());
    }
    Err(OptionProblem::Unknown(names.map(str::to_owned).collect()))
}

/// The options `rand_*` in `options`; they are removed.
pub(crate) fn take_random(
    options: &mut Options,
    version: Version,
) -> Result<RandomOptions, (String, String)> {
    let mut random = RandomOptions::of(version);
    let mut take = |name: &str| match random_options(version).contains(&name) {
        true => options.remove(name).map(|value| value.to_text()),
        false => None,
    };
    if let Some(value) = take("rand_type") {
        let all = Distribution::of(version);
        let Some(distribution) = all.iter().find(|one| one.name() == value) else {
            let names = all.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
            return Err(("rand_type".to_owned(), format!("`{value}` is not one of {names}")));
        };
        random.distribution = *distribution;
    }
    for (name, field, range) in [
        ("rand_spec_iter", &mut random.iterations, 1..=1000),
        ("rand_spec_pct", &mut random.special_range, 0..=100),
        ("rand_spec_res", &mut random.special_values, 0..=99),
    ] {
        let Some(value) = take(name) else { continue };
        match value.parse::<u32>() {
            Ok(number) if range.contains(&number) => *field = number,
            _ => {
                let (low, high) = range.into_inner();
                return Err((name.to_owned(), format!("`{value}` is not from {low} to {high}")));
            }
        }
    }
    for (name, field, range, valid) in [
        ("rand_pareto_h", &mut random.pareto_h, f64::MIN_POSITIVE..1.0, "between 0 and 1"),
        ("rand_zipfian_exp", &mut random.zipfian_exponent, 0.0..f64::INFINITY, "a number from 0"),
    ] {
        let Some(value) = take(name) else { continue };
        match value.parse::<f64>() {
            Ok(number) if range.contains(&number) => *field = number,
            _ => return Err((name.to_owned(), format!("`{value}` is not {valid}"))),
        }
    }
    Ok(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_sysbench_and_unknown_ones_are_refused() {
        let options = Some(vec![
            ("table_size".to_owned(), OptionKind::Number),
            ("pgsql_schema".to_owned(), OptionKind::Text),
        ]);
        let version = Version::V1_0;
        let declared = Declared { options, has_event: true, version };
        assert_eq!(check_option("table-size", &declared), Ok(()));
        assert_eq!(check_option("rand-type", &declared), Ok(()));
        assert_eq!(check_option("pgsql-schema", &declared), Ok(()));
        assert_eq!(check_option("mysql-ignore-errors", &declared), Ok(()));
        for replaced in ["threads", "mysql-host", "mysql_storage_engine"] {
            let problem = check_option(replaced, &declared).unwrap_err();
            assert!(matches!(problem, OptionProblem::Replaced(_)), "{replaced}");
        }
        assert_eq!(replaced_on_command_line("num-threads"), Some("use `--clients`"));
        assert_eq!(replaced_on_command_line("table_size"), None);
        let problem = check_option("tables_size", &declared).unwrap_err();
        assert!(matches!(problem, OptionProblem::Unknown(names) if names[0] == "table_size"));
        let newer = Declared { version: Version::V1_1, ..declared.clone() };
        assert_eq!(check_option("rand-zipfian-exp", &newer), Ok(()));
        assert!(check_option("rand-spec-pct", &newer).is_err());
        let accepts_all = Declared { options: None, ..declared };
        assert_eq!(check_option("anything", &accepts_all), Ok(()));
    }

    #[test]
    fn ignored_errors_are_numbers_or_all() {
        let of = |text: &str| {
            let value = OptionValue::Text(text.to_owned());
            IgnoredErrors::of(&Options::from([(IGNORED_ERRORS.to_owned(), value)]))
        };
        assert!(IgnoredErrors::of(&Options::new()).unwrap().contains(1213));
        let numbers = of("1062, 1213").unwrap();
        assert!(numbers.contains(1062) && !numbers.contains(1205));
        assert!(of("all").unwrap().contains(1));
        assert_eq!(of("none").unwrap_err().0, IGNORED_ERRORS);
    }

    #[test]
    fn random_options_are_taken_and_checked() {
        let text = |value: &str| OptionValue::Text(value.to_owned());
        let mut options = Options::from([
            ("rand_type".to_owned(), text("pareto")),
            ("rand_pareto_h".to_owned(), OptionValue::Float(0.3)),
            ("tables".to_owned(), OptionValue::Int(3)),
        ]);
        let random = take_random(&mut options, Version::V1_0).unwrap();
        assert_eq!((random.distribution, random.pareto_h), (Distribution::Pareto, 0.3));
        assert_eq!(options.len(), 1);

        let mut wrong = Options::from([("rand_type".to_owned(), text("normal"))]);
        let (name, message) = take_random(&mut wrong, Version::V1_0).unwrap_err();
        assert_eq!(name, "rand_type");
        assert!(message.contains("uniform, gaussian, special, pareto"), "{message}");
        let mut wrong = Options::from([("rand_spec_res".to_owned(), OptionValue::Int(100))]);
        assert_eq!(
            take_random(&mut wrong, Version::V1_0).unwrap_err().1,
            "`100` is not from 0 to 99"
        );

        let mut newer = Options::from([("rand_type".to_owned(), text("special"))]);
        let (_, message) = take_random(&mut newer, Version::V1_1).unwrap_err();
        assert!(message.contains("uniform, gaussian, pareto, zipfian"), "{message}");
        let mut newer = Options::from([
            ("rand_type".to_owned(), text("zipfian")),
            ("rand_zipfian_exp".to_owned(), OptionValue::Float(1.5)),
        ]);
        let random = take_random(&mut newer, Version::V1_1).unwrap();
        assert_eq!((random.distribution, random.zipfian_exponent), (Distribution::Zipfian, 1.5));
        let default = take_random(&mut Options::new(), Version::V1_1).unwrap();
        assert_eq!(default.distribution, Distribution::Uniform);
    }
}
