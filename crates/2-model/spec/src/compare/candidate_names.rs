//! Names of candidates, from what they are.

use super::candidate::{Candidate, Kind};
use crate::matrix::{part, short};
use crate::names::{CONTROL, LONGEST};

/// Keys that a name mentions by their value only: their values are unambiguous.
const KEYS_WITH_PLAIN_VALUES: [&str; 5] =
    ["durability", "statements", "compiler", "optimization", "march"];

/// Keys that do not appear in names: of the name itself, and of what it begins with.
const KEYS_WITHOUT_PART: [&str; 4] = ["name", "engine", "series", "training"];

/// A unique name for each candidate: short if no other has the same, such as `myrocks`, else with the
/// system, such as `mysql-myrocks`, else with a number.
pub fn of(candidates: &[Candidate<'_>]) -> Vec<String> {
    let own = |candidate: &Candidate<'_>| candidate.value("name").map(str::to_owned);
    let short: Vec<String> = candidates
        .iter()
        .map(|one| own(one).unwrap_or_else(|| name(one, short_base(one))))
        .collect();
    let mut names: Vec<String> = Vec::with_capacity(candidates.len());
    for (candidate, short_name) in candidates.iter().zip(&short) {
        let is_unique = short.iter().filter(|other| *other == short_name).count() == 1;
        if own(candidate).is_some() || (is_unique && short_name != CONTROL) {
            names.push(short_name.clone());
            continue;
        }
        let full = name(candidate, full_base(candidate));
        let is_taken = |name: &String| names.contains(name) || name == CONTROL;
        let numbered = (2..).map(|number| format!("{full}-{number}"));
        names.extend([full.clone()].into_iter().chain(numbered).find(|name| {
            !is_taken(name) && !short.iter().any(|other| other == name && other != short_name)
        }));
    }
    names
}

/// The base and what else distinguishes the candidate.
fn name(candidate: &Candidate<'_>, base: String) -> String {
    let mut name = base;
    if let Kind::Own(own) = &candidate.kind {
        for (key, _, value) in &own.keys {
            let value = part(candidate.text(value).trim_start_matches('/'));
            if KEYS_WITH_PLAIN_VALUES.contains(&key.name) {
                name.push_str(&format!(".{value}"));
            } else if !KEYS_WITHOUT_PART.contains(&key.name) {
                name.push_str(&format!(".{}-{value}", key.name));
            }
        }
        for (setting, value) in &own.settings {
            let (setting, value) = (candidate.text(setting), candidate.text(value));
            name.push_str(&format!(".{}-{}", part(short(setting)), part(value)));
        }
    }
    // Room for a number.
    name.truncate(LONGEST - 4);
    name
}

/// The system or what stands for it: a storage engine, a variant, the host of a URL.
fn short_base(candidate: &Candidate<'_>) -> String {
    let system = candidate.system.name();
    let base = match &candidate.kind {
        Kind::Url => host(candidate.word.text).unwrap_or(system).to_owned(),
        Kind::Own(own) => {
            let base = candidate.value("engine").unwrap_or(system);
            match (&own.release, candidate.variant()) {
                (Some(release), _) => format!("{base}-{}", candidate.text(release)),
                (None, Some(variant)) if base == system => variant.to_owned(),
                (None, Some(variant)) => format!("{base}-{variant}"),
                (None, None) => base.to_owned(),
            }
        }
    };
    valid(&base, system)
}

/// The same with the system.
fn full_base(candidate: &Candidate<'_>) -> String {
    let system = candidate.system.name();
    let parts: Vec<&str> = match &candidate.kind {
        Kind::Url => {
            host(candidate.word.text).into_iter().chain(port(candidate.word.text)).collect()
        }
        Kind::Own(own) => {
            let release = own.release.as_ref().map(|release| candidate.text(release));
            [release, candidate.value("engine"), candidate.variant()]
                .into_iter()
                .flatten()
                .collect()
        }
    };
    let base = parts.iter().fold(system.to_owned(), |base, one| format!("{base}-{one}"));
    valid(&base, system)
}

/// The text as a name, which starts with a letter or a digit.
fn valid(text: &str, system: &str) -> String {
    let name = part(text);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well { name } else { format!("{system}{name}") }
}

/// Host and port of a URL.
fn authority(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
}

fn host(url: &str) -> Option<&str> {
    let authority = authority(url)?;
    let end = match authority.starts_with('[') {
        true => authority.find(']')? + 1,
        false => authority.find(':').unwrap_or(authority.len()),
    };
    Some(authority[..end].trim_matches(['[', ']'])).filter(|host| !host.is_empty())
}

fn port(url: &str) -> Option<&str> {
    let authority = authority(url)?;
    let (_, port) = authority.rsplit_once(':')?;
    (!port.is_empty() && !port.contains(']')).then_some(port)
}

/// The name of an experiment: that of the baseline and of the first other candidate.
pub fn of_experiment(candidates: &[String]) -> String {
    // Names of candidates may have a `+`, and one that the user chose may be invalid.
    let words: String = match candidates {
        [] => "compare".to_owned(),
        [only] => format!("compare-{only}"),
        [baseline, other] => format!("{baseline}-vs-{other}"),
        [baseline, others @ ..] => format!("{baseline}-vs-{}-others", others.len()),
    };
    let mut name = part(&words).replace('+', "_");
    name.truncate(LONGEST);
    valid(&name, "compare")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::command_line::CommandLine;

    fn names(words: &[&str]) -> Vec<String> {
        let mut line = CommandLine::new("compare");
        let mut problems = Vec::new();
        let installed = |_| vec!["15".to_owned(), "8.0.37".to_owned()];
        let candidates: Vec<_> = words
            .iter()
            .filter_map(|word| Candidate::read(line.push(word), &installed, &mut problems))
            .collect();
        assert_eq!(problems, []);
        of(&candidates)
    }

    #[test]
    fn names_are_short_where_they_are_unique() {
        for (words, expected) in [
            (&["mariadb", "mariadb:engine=myrocks"][..], &["mariadb", "myrocks"][..]),
            (&["mariadb:engine=innodb", "mysql"], &["innodb", "mysql"]),
            (
                &["mariadb:engine=myrocks", "mysql:engine=myrocks"],
                &["mariadb-myrocks", "mysql-myrocks"],
            ),
            (&["postgresql@15", "postgresql@sid"], &["postgresql-15", "postgresql-sid"]),
            (&["mysql@8.0", "mysql@8.0.37"], &["mysql-8.0", "mysql-8.0.37"]),
            (&["sqlite:rel_o2", "sqlite:rel_lto_pgo"], &["rel_o2", "rel_lto_pgo"]),
            (
                &["mariadb", "mariadb{innodb_doublewrite=OFF}", "mariadb:durability=strict"],
                &["mariadb", "mariadb.doublewrite-OFF", "mariadb.strict"],
            ),
            (&["mysql://bench@db1/", "mysql://bench@db2:3307/?tls=off"], &["db1", "db2"]),
            (&["mysql://a@h:1/", "mysql://a@h:2/"], &["mysql-h-1", "mysql-h-2"]),
            (
                &["postgres://a@[::1]/", "postgres://a@/?host=/run"],
                &["postgresql__1", "postgresql"],
            ),
            (&["mysql://a@control/"], &["mysql-control"]),
            (&["mariadb", "mariadb", "mariadb"], &["mariadb", "mariadb-2", "mariadb-3"]),
            (
                &["mariadb", "mariadb:name=mariadb-2", "mariadb"],
                &["mariadb", "mariadb-2", "mariadb-3"],
            ),
        ] {
            assert_eq!(names(words), expected, "{words:?}");
        }
    }
}
