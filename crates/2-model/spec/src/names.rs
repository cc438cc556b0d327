//! Valid names.

use dbdyno_document::{Spanned, Table};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The name of the second instance of the baseline in results.
pub const CONTROL: &str = "control";

/// Names become parts of file names, which are limited to 255 bytes.
pub const LONGEST: usize = 100;

/// What a name may contain besides letters and digits.
#[derive(Clone, Copy)]
struct Signs {
    allowed: &'static str,
    made_of: &'static str,
}

const OF_EXPERIMENT: Signs =
    Signs { allowed: "-_.", made_of: "letters a–z and A–Z, digits and - _ ." };

const OF_CANDIDATE: Signs =
    Signs { allowed: "-_.+", made_of: "letters a–z and A–Z, digits and - _ . +" };

/// The experiment's name, used as a prefix of the run directory's name.
pub fn of_experiment<'d>(table: &mut Table<'d>) -> Option<&'d str> {
    read(table, OF_EXPERIMENT).map(|name| name.value)
}

pub fn of_candidate<'d>(table: &mut Table<'d>) -> Option<Spanned<&'d str>> {
    read(table, OF_CANDIDATE)
}

/// Whether a candidate can have this name.
pub fn is_of_candidate(name: &str) -> bool {
    name != CONTROL && problem_of(name, OF_CANDIDATE).is_none()
}

/// The name of a candidate's series.
pub fn of_series(table: &mut Table<'_>) -> Option<String> {
    let name = table.string("series")?;
    check(table, name, OF_CANDIDATE).map(|name| name.value.to_owned())
}

/// A variant's name, which is the key of its table.
pub fn of_variant<'d>(table: &Table<'d>, name: Spanned<&'d str>) -> Option<&'d str> {
    check(table, name, OF_CANDIDATE).map(|name| name.value)
}

/// A host's name, which is the key of its table.
pub fn of_host<'d>(table: &Table<'d>, name: Spanned<&'d str>) -> Option<&'d str> {
    check(table, name, OF_EXPERIMENT).map(|name| name.value)
}

/// The experiment's name or a host's in a stored experiment, which somebody may have changed.
pub fn stored_of_experiment<'de, D: Deserializer<'de>>(stored: D) -> Result<String, D::Error> {
    stored_name(stored, OF_EXPERIMENT)
}

/// A candidate's name in a stored experiment.
pub fn stored_of_candidate<'de, D: Deserializer<'de>>(stored: D) -> Result<String, D::Error> {
    stored_name(stored, OF_CANDIDATE)
}

fn stored_name<'de, D: Deserializer<'de>>(stored: D, signs: Signs) -> Result<String, D::Error> {
    let name = String::deserialize(stored)?;
    match problem_of(&name, signs) {
        None => Ok(name),
        Some((message, _)) => Err(D::Error::custom(message)),
    }
}

fn read<'d>(table: &mut Table<'d>, signs: Signs) -> Option<Spanned<&'d str>> {
    let name = table.string("name")?;
    check(table, name, signs)
}

fn check<'d>(table: &Table<'d>, name: Spanned<&'d str>, signs: Signs) -> Option<Spanned<&'d str>> {
    let Some((message, help)) = problem_of(name.value, signs) else { return Some(name) };
    table.reject(name.span, message, help)
}

/// Why a name is not valid, and the help text; `None` if it is valid.
fn problem_of(name: &str, signs: Signs) -> Option<(String, String)> {
    let made_of = format!("names are made of {}", signs.made_of);
    let valid = |c: char| c.is_ascii_alphanumeric() || signs.allowed.contains(c);
    if !name.chars().all(valid) {
        Some((format!("`{name}` cannot be a name"), made_of))
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        // A leading dot would hide the run directory; a leading `-` would look like an option.
        Some(("a name must start with a letter or a digit".to_owned(), made_of))
    } else if name.len() > LONGEST {
        let message = format!("the name is longer than {LONGEST} characters");
        Some((message, format!("it has {}", name.len())))
    } else {
        None
    }
}
