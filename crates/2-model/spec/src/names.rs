//! Valid names.

use dbdyno_document::{Spanned, Table};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The name of the second instance of the baseline in results.
pub const CONTROL: &str = "control";

/// Names become parts of file names, which are limited to 255 bytes.
pub const LONGEST: usize = 100;

/// What the name of an experiment, which begins that of the run directory, and of a host may contain besides letters
/// and digits.
pub const OF_EXPERIMENT: &str = "-_.";

/// The same of candidates, series and variants.
pub const OF_CANDIDATE: &str = "-_.+";

/// Whether a candidate can have this name.
pub fn is_of_candidate(name: &str) -> bool {
    name != CONTROL && problem_of(name, OF_CANDIDATE).is_none()
}

/// The experiment's name or a host's in a stored experiment, which somebody may have changed.
pub fn stored_of_experiment<'de, D: Deserializer<'de>>(stored: D) -> Result<String, D::Error> {
    stored_name(stored, OF_EXPERIMENT)
}

/// A candidate's name in a stored experiment.
pub fn stored_of_candidate<'de, D: Deserializer<'de>>(stored: D) -> Result<String, D::Error> {
    stored_name(stored, OF_CANDIDATE)
}

fn stored_name<'de, D: Deserializer<'de>>(stored: D, signs: &str) -> Result<String, D::Error> {
    let name = String::deserialize(stored)?;
    match problem_of(&name, signs) {
        None => Ok(name),
        Some((message, _)) => Err(D::Error::custom(message)),
    }
}

/// Reads the name under a key.
pub fn read<'d>(table: &mut Table<'d>, key: &'static str, signs: &str) -> Option<Spanned<&'d str>> {
    let name = table.string(key)?;
    check(table, name, signs)
}

/// Checks a name, such as one that is the key of its table; `None` after a problem.
pub fn check<'d>(
    table: &Table<'d>,
    name: Spanned<&'d str>,
    signs: &str,
) -> Option<Spanned<&'d str>> {
    let Some((message, help)) = problem_of(name.value, signs) else { return Some(name) };
    table.reject(name.span, message, help)
}

/// Why a name is not valid, and the help text; `None` if it is valid.
fn problem_of(name: &str, signs: &str) -> Option<(String, String)> {
    let listed = signs.chars().map(String::from).collect::<Vec<_>>().join(" ");
    let made_of = format!("names are made of letters a–z and A–Z, digits and {listed}");
    let valid = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
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
