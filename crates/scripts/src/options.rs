//! Values of a script's options.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::inspect::Declared;
use crate::random::{Distribution, RandomOptions};
use crate::version::Version;

/// A value as written in the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
}

impl OptionValue {
    /// As it would be written on sysbench's command line.
    #[must_use]
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

/// Options of sysbench that dbdyno does not accept, and what replaces them.
const REPLACED_OPTIONS: [(&str, &str); 18] = [
    ("threads", "set `clients` in [workload]"),
    ("num_threads", "set `clients` in [workload]"),
    ("time", "set `budget` in [schedule]"),
    ("max_time", "set `budget` in [schedule]"),
    ("events", "set `slice` and `budget` in [schedule]"),
    ("max_requests", "set `slice` and `budget` in [schedule]"),
    ("rate", "clients send as fast as they can"),
    ("tx_rate", "clients send as fast as they can"),
    ("warmup_time", "set `warmup_blocks` in [schedule]"),
    ("report_interval", "every slice is stored"),
    ("report_checkpoints", "every slice is stored"),
    ("percentile", "all percentiles are reported"),
    ("histogram", "all percentiles are reported"),
    ("rand_seed", "set `seed` at the top of the experiment"),
    ("db_driver", "set `system` of the candidate"),
    ("db_ps_mode", "set `statements` of the candidate"),
    ("mysql_storage_engine", "set `engine` of the candidate"),
    ("pgsql_variant", "only PostgreSQL itself is supported"),
];

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
    /// dbdyno does this differently: how.
    Replaced(&'static str),
    /// The script does not declare it. All names that it could be.
    Unknown(Vec<String>),
}

/// Whether a script with these options has the option `name`.
///
/// # Errors
/// It has not, or dbdyno replaces it.
pub fn check_option(name: &str, declared: &Declared) -> Result<(), OptionProblem> {
    let name = name.replace('-', "_");
    if let Some((_, instead)) = REPLACED_OPTIONS.iter().find(|(replaced, _)| *replaced == name) {
        return Err(OptionProblem::Replaced(instead));
    }
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
///
/// # Errors
/// The name and what is wrong with the value.
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
    use crate::inspect::OptionKind;

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
