//! Options that a script declares, and their values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    pub has_prepare: bool,
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

/// An option of sysbench that dbdyno does not accept.
struct Replaced {
    name: &'static str,
    /// What replaces it in an experiment file.
    in_file: &'static str,
    /// What replaces it in `run --script` and `compare`.
    on_command_line: &'static str,
}

const fn replaced(
    name: &'static str,
    in_file: &'static str,
    on_command_line: &'static str,
) -> Replaced {
    Replaced { name, in_file, on_command_line }
}

const CLIENTS: &str = "set `clients` in [workload]";
const BUDGET: &str = "set `budget` in [schedule]";
const SLICE: &str = "set `slice` and `budget` in [schedule]";
const WARMUP: &str = "set `warmup_blocks` in [schedule]";
const SEED: &str = "set `seed` at the top of the experiment";
const UNLIMITED: &str = "clients send as fast as they can";
const STORED: &str = "every slice is stored";
const PERCENTILES: &str = "all percentiles are reported";
const ONLY_POSTGRESQL: &str = "only PostgreSQL itself is supported";

const REPLACED_OPTIONS: [Replaced; 18] = [
    replaced("threads", CLIENTS, "use `--clients`"),
    replaced("num_threads", CLIENTS, "use `--clients`"),
    replaced("time", BUDGET, "use `--for`"),
    replaced("max_time", BUDGET, "use `--for`"),
    replaced("events", SLICE, "use `--for`"),
    replaced("max_requests", SLICE, "use `--for`"),
    replaced("rate", UNLIMITED, UNLIMITED),
    replaced("tx_rate", UNLIMITED, UNLIMITED),
    replaced("warmup_time", WARMUP, "set `warmup_blocks` in the file that `--save` writes"),
    replaced("report_interval", STORED, STORED),
    replaced("report_checkpoints", STORED, STORED),
    replaced("percentile", PERCENTILES, PERCENTILES),
    replaced("histogram", PERCENTILES, PERCENTILES),
    replaced("rand_seed", SEED, "set `seed` in the file that `--save` writes"),
    replaced("db_driver", "set `system` of the candidate", "name candidates, such as `mariadb`"),
    replaced(
        "db_ps_mode",
        "set `statements` of the candidate",
        "name a candidate such as `mariadb:statements=text`",
    ),
    replaced(
        "mysql_storage_engine",
        "set `engine` of the candidate",
        "name a candidate such as `mariadb:engine=myrocks`",
    ),
    replaced("pgsql_variant", ONLY_POSTGRESQL, ONLY_POSTGRESQL),
];

fn replaced_option(name: &str) -> Option<&'static Replaced> {
    let name = name.replace('-', "_");
    REPLACED_OPTIONS.iter().find(|option| option.name == name)
}

/// What replaces an option of sysbench on the command line of `run --script` and `compare`; `None` if dbdyno does
/// not replace it.
pub fn replaced_on_command_line(name: &str) -> Option<&'static str> {
    replaced_option(name).map(|option| option.on_command_line)
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
    if let Some(option) = replaced_option(name) {
        return Err(OptionProblem::Replaced(option.in_file));
    }
    let name = name.replace('-', "_");
    let has_own = |options: &Vec<(String, _)>| options.iter().any(|(known, _)| *known == name);
    let has_own = declared.options.as_ref().is_some_and(has_own);
    if !has_own && (name.starts_with("mysql_") || name.starts_with("pgsql_")) {
        return Err(OptionProblem::Replaced("the candidate determines connections"));
    }
    let Some(options) = &declared.options else { return Ok(()) };
    let random = random_options(declared.version).iter().copied();
    let names = options.iter().map(|(name, _)| name.as_str()).chain(random);
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
        let known = all.iter().find(|(name, _)| *name == value);
        let Some((_, distribution)) = known else {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
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
    if let Some(value) = take("rand_pareto_h") {
        match value.parse::<f64>() {
            Ok(h) if h > 0.0 && h < 1.0 => random.pareto_h = h,
            _ => {
                let message = format!("`{value}` is not between 0 and 1");
                return Err(("rand_pareto_h".to_owned(), message));
            }
        }
    }
    if let Some(value) = take("rand_zipfian_exp") {
        match value.parse::<f64>() {
            Ok(exponent) if exponent >= 0.0 && exponent.is_finite() => {
                random.zipfian_exponent = exponent;
            }
            _ => {
                let message = format!("`{value}` is not a number from 0");
                return Err(("rand_zipfian_exp".to_owned(), message));
            }
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
        let declared = Declared { options, has_event: true, has_prepare: true, version };
        assert_eq!(check_option("table-size", &declared), Ok(()));
        assert_eq!(check_option("rand-type", &declared), Ok(()));
        assert_eq!(check_option("pgsql-schema", &declared), Ok(()));
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
