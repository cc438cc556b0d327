//! Valid names.

use dbdyno_document::{Problem, Spanned, Table};

/// Names become parts of file names, which are limited to 255 bytes.
const LONGEST: usize = 100;

/// The experiment's name, used as a prefix of the run directory's name.
pub fn of_experiment<'d>(table: &mut Table<'d>) -> Option<&'d str> {
    read(table, "-_.", "letters, digits and - _ .").map(|name| name.value)
}

/// A candidate's name.
pub fn of_candidate<'d>(table: &mut Table<'d>) -> Option<Spanned<&'d str>> {
    read(table, "-_.+", "letters, digits and - _ . +")
}

/// A variant's name, which is the key of its table.
pub fn of_variant<'d>(table: &Table<'d>, name: Spanned<&'d str>) -> Option<&'d str> {
    check(table, name, "-_.+", "letters, digits and - _ . +").map(|name| name.value)
}

fn read<'d>(table: &mut Table<'d>, signs: &str, made_of: &str) -> Option<Spanned<&'d str>> {
    let name = table.string("name")?;
    check(table, name, signs, made_of)
}

fn check<'d>(
    table: &Table<'d>,
    name: Spanned<&'d str>,
    signs: &str,
    made_of: &str,
) -> Option<Spanned<&'d str>> {
    let valid = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    let message = if !name.value.chars().all(valid) {
        format!("`{}` cannot be a name", name.value)
    } else if !name.value.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        // A leading dot would hide the run directory; a leading `-` would look like an option.
        "a name must start with a letter or a digit".to_owned()
    } else if name.value.len() > LONGEST {
        format!("the name is longer than {LONGEST} characters")
    } else {
        return Some(name);
    };
    table.report(Problem::new(name.span, message).help(format!("names are made of {made_of}")));
    None
}
