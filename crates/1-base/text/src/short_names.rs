//! Short names for tables, if the full ones are too long: those of a matrix have all settings in their
//! names.

use std::collections::{BTreeMap, BTreeSet};

/// A short form of each name, or letters if none of them fits; `None` if the full names fit.
pub fn short_names(names: &[&str], fit: impl Fn(&[&str]) -> bool) -> Option<Vec<String>> {
    if fit(names) {
        return None;
    }
    let short = without_common_parts(names);
    // Values may be as long as names.
    let fits = fit(&short.iter().map(String::as_str).collect::<Vec<_>>());
    Some(if fits { short } else { (0..names.len()).map(letter).collect() })
}

/// `A` to `Z`, then `A2` and so on.
pub fn letter(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{}", round + 1),
    }
}

/// The names without what those have in common that begin with the same part, up to the first dot:
/// `maria.doublewrite-ON.flush_neighbors-0` is `ON.0`, or `maria.ON.0` beside names that begin
/// otherwise. All full names if a short one would be empty or not unique.
fn without_common_parts(names: &[&str]) -> Vec<String> {
    let start = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let mut families: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        families.entry(start(name)).or_default().push(name);
    }
    let are_single = families.values().all(|family| family.len() == 1);
    let short = |name: &&str| -> String {
        if are_single {
            return distinct(name, names);
        }
        let first = start(name);
        let family = &families[&first];
        let own = distinct(name, family);
        match (family.len(), families.len()) {
            (1, _) => (*name).to_owned(),
            (_, 1) => own,
            _ => format!("{first}.{own}"),
        }
    };
    let short: Vec<String> = names.iter().map(short).collect();
    let is_unique = short.iter().collect::<BTreeSet<_>>().len() == names.len();
    let is_valid = is_unique && !short.iter().any(String::is_empty);
    if is_valid { short } else { names.iter().map(|&name| name.to_owned()).collect() }
}

/// The parts of `name` that differ in `names`: of each part between dots if all have as many, of the
/// whole names otherwise.
fn distinct(name: &str, names: &[&str]) -> String {
    let own: Vec<&str> = name.split('.').collect();
    if names.iter().any(|other| other.split('.').count() != own.len()) {
        return without_common_ends(name, names).to_owned();
    }
    let differing = own.iter().enumerate().filter_map(|(at, part)| {
        let others: Vec<&str> = names.iter().filter_map(|other| other.split('.').nth(at)).collect();
        let differs = others.iter().any(|other| other != part);
        differs.then(|| without_common_ends(part, &others))
    });
    differing.collect::<Vec<&str>>().join(".")
}

/// The name without the words that all names start or end with. A name keeps at least one word.
pub fn without_common_ends<'a>(name: &'a str, names: &[&str]) -> &'a str {
    let words: Vec<Vec<&str>> = names.iter().map(|name| words_of(name)).collect();
    let fewest = words.iter().map(Vec::len).min().unwrap_or(0);
    let Some(first) = words.first().filter(|_| names.len() > 1 && fewest > 1) else { return name };
    let same = |at: &dyn Fn(&[&str]) -> usize| {
        let word = first[at(first)];
        words.iter().all(|one| one[at(one)] == word)
    };
    let start = (0..fewest - 1).take_while(|&n| same(&|_| n)).count();
    let end = (1..fewest - start).take_while(|&n| same(&|words| words.len() - n)).count();
    let own = words_of(name);
    let length = |words: &[&str]| words.iter().map(|word| word.len()).sum::<usize>();
    let end = name.len() - length(&own[own.len().saturating_sub(end)..]);
    name[length(&own[..start.min(own.len())])..end].trim_matches(is_separator)
}

/// Words with the separator after each. A point between digits is of the same word, so that versions stay whole.
fn words_of(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut words = Vec::new();
    let mut start = 0;
    for (at, c) in name.char_indices() {
        let in_version = c == '.' && at > 0 && is_digit(at - 1) && is_digit(at + 1);
        if is_separator(c) && !in_version {
            words.push(&name[start..at + c.len_utf8()]);
            start = at + c.len_utf8();
        }
    }
    if start < name.len() {
        words.push(&name[start..]);
    }
    words
}

fn is_separator(c: char) -> bool {
    matches!(c, '_' | '-' | '.' | ' ' | '/' | '+' | ',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_matrix_become_its_values() {
        let names = [
            "maria.doublewrite-ON.flush_neighbors-0",
            "maria.doublewrite-ON.flush_neighbors-1",
            "maria.doublewrite-OFF.flush_neighbors-0",
            "maria.doublewrite-OFF.flush_neighbors-1",
        ];
        assert_eq!(without_common_parts(&names), ["ON.0", "ON.1", "OFF.0", "OFF.1"]);
        let with_another = [&names[..2], &["postgresql"]].concat();
        assert_eq!(without_common_parts(&with_another), ["maria.0", "maria.1", "postgresql"]);
    }

    #[test]
    fn common_ends_are_cut_at_separators() {
        let names = ["mariadb-pool-128-mb-debian", "mariadb-pool-1280-mb-debian"];
        assert_eq!(without_common_parts(&names), ["128", "1280"]);
        let prefixes = ["server", "server-tuned"];
        assert_eq!(without_common_parts(&prefixes), prefixes);
        // The common end overlaps the common start.
        assert_eq!(without_common_parts(&["a-b-a-b", "a-b"]), ["b-a-b", "b"]);
    }

    #[test]
    fn names_lose_the_words_that_all_have_at_an_end() {
        let short = |names: &[&'static str]| -> Vec<&str> {
            names.iter().map(|name| without_common_ends(name, names)).collect()
        };
        let names = ["ma100244_rel_withdbg.z12a_c32r128", "ma100339_rel_withdbg.z12a_c32r128"];
        assert_eq!(short(&names), ["ma100244", "ma100339"]);
        assert_eq!(short(&["mariadb-10.5", "mariadb-10.11"]), ["10.5", "10.11"]);
        assert_eq!(short(&["mariadb-10.11.1", "mariadb-10.11.2"]), ["10.11.1", "10.11.2"]);
        assert_eq!(short(&["a_x", "a_x"]), ["x", "x"]);
        assert_eq!(short(&["a", "b"]), ["a", "b"]);
        assert_eq!(short(&["only_one"]), ["only_one"]);
        assert_eq!(short(&["a-1", "a-1-b"]), ["1", "1-b"]);
    }

    #[test]
    fn letters_follow_the_alphabet() {
        assert_eq!([0, 25, 26, 27].map(letter), ["A", "Z", "A2", "B2"]);
    }
}
