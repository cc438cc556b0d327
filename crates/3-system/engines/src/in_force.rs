//! Settings in force: what a running server reports, compared with what it was asked for.
//!
//! A server may ignore a value, round it, or limit it, and says so in its log only. The comparison needs to know
//! how the server reads a value: `1G` is 1073741824, `ON` is 1, `4` may be the fifth word of a list.

use dbdyno_document::nearest;
use serde::{Deserialize, Serialize};

/// What a server reports about a setting that it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportedSetting {
    /// The name that was asked for.
    pub name: String,
    pub state: SettingState,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingState {
    Reported(SettingInForce),
    /// The server reports no setting of this name; the nearest name of one.
    Unknown(Option<String>),
}

/// The value of a setting in a running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingInForce {
    /// As the server shows it.
    pub value: String,
    pub kind: SettingKind,
    /// Whether it is the server's default, because nothing has set it.
    pub is_default: bool,
    /// The server's own default; `None` if the server does not tell it.
    pub default: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingKind {
    Switch,
    /// Whether a file has been named; any text but a switch is a name.
    File,
    Number(SettingNumber),
    /// One of these words, or its number from 0; empty if the words are not known.
    Word(Vec<String>),
    /// Words separated by commas.
    Words,
    Text,
}

/// A number in its smallest unit: bytes, milliseconds, or just a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingNumber {
    pub value: f64,
    /// The unit of a number without one.
    pub unit: f64,
    pub range: Option<(f64, f64)>,
}

/// What became of a value that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// In force, perhaps in another spelling.
    AsAsked,
    /// A number that the server rounded a little.
    Rounded,
    /// Another value that the server made of it, such as the limit of a number.
    Adjusted,
    /// Not in force.
    Ignored,
}

/// A number with at most this range has a meaning of its own for each value.
const MOST_CODES: f64 = 16.0;

/// Modes of `sql_mode` that switch on others.
/// Source: <https://mariadb.com/kb/en/sql-mode/>, "Defined combinations".
const COMBINATIONS: [&str; 9] =
    ["ansi", "db2", "maxdb", "mssql", "mysql323", "mysql40", "oracle", "postgresql", "traditional"];

/// The greatest change that is rounding, as a share of the value.
const ROUNDING: f64 = 0.125;

impl SettingInForce {
    /// What became of `asked`.
    pub fn effect(&self, asked: &str) -> Effect {
        let asked = asked.trim();
        let same = match &self.kind {
            SettingKind::Switch => truth(asked).is_some() && truth(asked) == truth(&self.value),
            SettingKind::File => truth(asked).unwrap_or(true) == (truth(&self.value) == Some(true)),
            SettingKind::Number(number) => match parse_number(asked, number.unit) {
                Some(asked) => return number.effect(asked, self.is_default),
                None => is_same_text(asked, &self.value),
            },
            SettingKind::Word(words) => self.is_word(asked, words),
            SettingKind::Words => return self.effect_of_words(asked),
            SettingKind::Text => is_same_text(asked, &self.value),
        };
        let is_known = match &self.kind {
            SettingKind::Switch | SettingKind::File => true,
            SettingKind::Word(words) => !words.is_empty(),
            _ => false,
        };
        match same {
            true => Effect::AsAsked,
            false if is_known || self.is_default => Effect::Ignored,
            false => Effect::Adjusted,
        }
    }

    fn is_word(&self, asked: &str, words: &[String]) -> bool {
        let is = |word: &str| is_same_text(word, &self.value);
        let by_number = || words.get(asked.parse::<usize>().ok()?);
        let begun = || {
            let begins = |word: &&String| {
                word.get(..asked.len()).is_some_and(|start| start.eq_ignore_ascii_case(asked))
            };
            let mut all = words.iter().filter(begins);
            all.next().filter(|_| !asked.is_empty() && all.next().is_none())
        };
        is(asked)
            || by_number().is_some_and(|word| is(word))
            || (truth(asked).is_some() && truth(asked) == truth(&self.value))
            || begun().is_some_and(|word| is(word))
    }

    /// A set may be asked for by one word that stands for several; flags that are not named keep their values.
    fn effect_of_words(&self, asked: &str) -> Effect {
        let words = |text: &str| -> Vec<String> {
            text.split(',').map(comparable).filter(|word| !word.is_empty()).collect()
        };
        let (asked, all) = (words(asked), words(&self.value));
        let is_in = |word: &String| {
            let is_default = word == "default" || word.ends_with("=default");
            is_default || word.parse::<u64>().is_ok() || all.contains(word)
        };
        let flags = all.iter().any(|word| word.contains('='));
        let combines = asked.iter().any(|word| COMBINATIONS.contains(&word.as_str()));
        match asked.iter().all(is_in) {
            true if flags || combines || asked.len() == all.len() => Effect::AsAsked,
            true if !asked.is_empty() => Effect::Adjusted,
            _ => Effect::Ignored,
        }
    }

    /// The values that are valid, if that may help.
    pub fn valid(&self) -> Option<String> {
        match &self.kind {
            SettingKind::Switch => Some("ON or OFF".to_owned()),
            SettingKind::Number(SettingNumber { range: Some((least, most)), .. }) => {
                Some(format!("{least} to {most}"))
            }
            SettingKind::Word(words) if !words.is_empty() => Some(words.join(", ")),
            _ => None,
        }
    }

    /// Whether the value is known to be the server's own default, set or not.
    pub fn equals_default(&self) -> bool {
        let default = self.default.as_deref();
        default.is_some_and(|default| self.effect(default) == Effect::AsAsked)
    }

    /// Whether two servers have the same value.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (SettingKind::Number(own), SettingKind::Number(other)) => own.value == other.value,
            _ => is_same_text(&self.value, &other.value),
        }
    }

    /// The value, if it is a number.
    pub const fn number(&self) -> Option<f64> {
        match &self.kind {
            SettingKind::Number(number) => Some(number.value),
            _ => None,
        }
    }

    /// The value as `asked` was written: a size in a unit has a unit.
    pub fn written_as(&self, asked: &str) -> String {
        let has_unit = asked.trim().ends_with(|c: char| c.is_ascii_alphabetic());
        let bytes = self.value.parse::<u64>().ok().filter(|bytes| has_unit && *bytes > 0);
        let units = [(30, "G"), (20, "M"), (10, "K")];
        let fits = |bytes: u64| {
            let mut units = units.into_iter();
            units.find(|(shift, _)| bytes.is_multiple_of(1 << shift))
        };
        match bytes.and_then(|bytes| Some((bytes, fits(bytes)?))) {
            Some((bytes, (shift, unit))) => format!("{}{unit}", bytes >> shift),
            None => self.value.clone(),
        }
    }
}

impl SettingNumber {
    fn effect(&self, asked: f64, is_default: bool) -> Effect {
        let distance = (asked - self.value).abs();
        // A server counts in whole units.
        let tolerance = if self.unit > 1.0 { self.unit } else { asked.abs() * 1e-9 };
        let is_code = self.range.is_some_and(|(least, most)| most - least <= MOST_CODES);
        match () {
            () if distance <= tolerance => Effect::AsAsked,
            () if is_default || is_code => Effect::Ignored,
            () if distance <= asked.abs() * ROUNDING => Effect::Rounded,
            () => Effect::Adjusted,
        }
    }
}

/// Whether two values that were written for one setting are known to mean the same.
pub fn is_same_value(one: &str, other: &str) -> bool {
    let both = |of: fn(&str) -> Option<bool>| of(one).is_some() && of(one) == of(other);
    let number = |text: &str| parse_number(text.trim(), 1.0);
    is_same_text(one, other)
        || both(truth)
        || (number(one).is_some() && number(one) == number(other))
}

/// A switch as servers read it. MariaDB and MySQL do not know `yes`, and switch off what they do not know.
fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "1" | "yes" | "t" | "y" => Some(true),
        "off" | "false" | "0" | "no" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// Sizes and times, in bytes and milliseconds.
const UNITS: [(&str, f64); 18] = [
    ("b", 1.0),
    ("k", 1024.0),
    ("kb", 1024.0),
    ("m", 1048576.0),
    ("mb", 1048576.0),
    ("g", 1073741824.0),
    ("gb", 1073741824.0),
    ("t", 1099511627776.0),
    ("tb", 1099511627776.0),
    ("p", 1125899906842624.0),
    ("e", 1152921504606846976.0),
    ("us", 0.001),
    ("ms", 1.0),
    ("s", 1000.0),
    ("min", 60_000.0),
    ("h", 3_600_000.0),
    ("d", 86_400_000.0),
    ("%", 1.0),
];

/// A number with a unit, in its smallest one; one without has `unit`.
pub(crate) fn parse_number(text: &str, unit: f64) -> Option<f64> {
    let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%').len();
    let (number, suffix) = text.split_at(end);
    let number: f64 = number.trim().parse().ok()?;
    let suffix = suffix.to_ascii_lowercase();
    let unit = match UNITS.iter().find(|(name, _)| *name == suffix) {
        _ if suffix.is_empty() => unit,
        found => found?.1,
    };
    Some(number * unit).filter(|number| number.is_finite())
}

fn is_same_text(one: &str, other: &str) -> bool {
    comparable(one) == comparable(other)
}

/// A text without what has no meaning: case, quotes, spaces at commas, `/` at the end of a directory, and the two
/// names of one character set.
fn comparable(text: &str) -> String {
    let part = |part: &str| {
        let part = part.trim().trim_matches(['"', '\'']).to_lowercase().replace('_', "-");
        let part = if part.len() > 1 { part.trim_end_matches('/').to_owned() } else { part };
        match part.strip_prefix("utf8") {
            Some(rest) if rest.is_empty() || rest.starts_with('-') => format!("utf8mb3{rest}"),
            _ => part,
        }
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
}

/// The settings of these names among all that a server has; `find` finds one in another spelling.
pub(crate) fn of_names(
    names: &[String],
    all: &[(String, SettingInForce)],
    find: impl Fn(&str) -> Option<SettingInForce>,
) -> Vec<ReportedSetting> {
    let state = |name: &str| match find(name) {
        Some(found) => SettingState::Reported(found),
        None => {
            let near = nearest(name, all.iter().map(|(name, _)| name.as_str()));
            SettingState::Unknown(near.map(str::to_owned))
        }
    };
    names.iter().map(|name| ReportedSetting { name: name.clone(), state: state(name) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: SettingKind, value: &str) -> SettingInForce {
        SettingInForce { value: value.to_owned(), kind, is_default: false, default: None }
    }

    fn number(value: &str, unit: f64, range: Option<(f64, f64)>) -> SettingInForce {
        let parsed = parse_number(value, unit).unwrap();
        of(SettingKind::Number(SettingNumber { value: parsed, unit, range }), value)
    }

    fn words(words: &[&str]) -> SettingKind {
        SettingKind::Word(words.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn spellings_of_one_value_are_equal() {
        let methods = words(&["fsync", "O_DSYNC", "littlesync", "nosync", "O_DIRECT"]);
        for (asked, in_force) in [
            ("1G", number("1073741824", 1.0, None)),
            ("1024m", number("1073741824", 1.0, None)),
            ("0.5", number("0.500000", 1.0, None)),
            ("-1", number("-1", 1.0, None)),
            ("8MB", number("1024", 8192.0, None)),
            ("1024", number("8MB", 8192.0, None)),
            ("0.5GB", number("512MB", 1024.0, None)),
            ("30min", number("1800", 1000.0, None)),
            ("300", number("5min", 1000.0, None)),
            ("4100B", number("4kB", 1024.0, None)),
            ("1", of(SettingKind::Switch, "ON")),
            ("False", of(SettingKind::Switch, "OFF")),
            ("yes", of(SettingKind::Switch, "on")),
            ("4", of(methods.clone(), "O_DIRECT")),
            ("o_direct", of(methods.clone(), "O_DIRECT")),
            ("nos", of(methods, "nosync")),
            ("read-committed", of(words(&["READ-COMMITTED"]), "READ-COMMITTED")),
            ("true", of(words(&["off", "on"]), "on")),
            ("mrr=on", of(SettingKind::Words, "index_merge=on,mrr=on,derived_merge=off")),
            ("B, a", of(SettingKind::Words, "A,B")),
            ("TRADITIONAL", of(SettingKind::Words, "STRICT,TRADITIONAL")),
            ("/var/lib/mysql", of(SettingKind::Text, "/var/lib/mysql/")),
            ("utf8", of(SettingKind::Text, "utf8mb3")),
            ("utf8_general_ci", of(SettingKind::Text, "utf8mb3_general_ci")),
            ("iso,mdy", of(SettingKind::Text, "ISO, MDY")),
        ] {
            assert_eq!(in_force.effect(asked), Effect::AsAsked, "{asked} {in_force:?}");
        }
    }

    #[test]
    fn value_that_is_not_in_force_is_ignored_and_a_number_may_be_adjusted() {
        let default = |setting| SettingInForce { is_default: true, ..setting };
        for (asked, in_force, effect) in [
            ("MAYBE", of(SettingKind::Switch, "ON"), Effect::Ignored),
            // MariaDB and MySQL do not know `yes`.
            ("yes", of(SettingKind::Switch, "OFF"), Effect::Ignored),
            ("ON", of(SettingKind::Switch, "OFF"), Effect::Ignored),
            ("7", number("3", 1.0, Some((0.0, 3.0))), Effect::Ignored),
            ("100", number("64", 1.0, Some((1.0, 64.0))), Effect::Adjusted),
            ("1M", number("5242880", 1.0, None), Effect::Adjusted),
            ("1000000000", number("999292928", 1.0, None), Effect::Rounded),
            ("-1", number("4MB", 8192.0, None), Effect::Adjusted),
            ("9", default(number("8", 1.0, None)), Effect::Ignored),
            ("O_FAST", of(words(&["fsync", "O_DIRECT"]), "fsync"), Effect::Ignored),
            ("hot_standby", of(words(&[]), "replica"), Effect::Adjusted),
            ("STRICT", of(SettingKind::Words, "STRICT,NO_ZERO_DATE"), Effect::Adjusted),
            ("mrr=on", of(SettingKind::Words, "index_merge=on,mrr=off"), Effect::Ignored),
            ("NO_SUCH", of(SettingKind::Words, "STRICT,TRADITIONAL"), Effect::Ignored),
            ("x", default(of(SettingKind::Text, "y")), Effect::Ignored),
            ("utf8", of(SettingKind::Text, "utf8mb4"), Effect::Adjusted),
        ] {
            assert_eq!(in_force.effect(asked), effect, "{asked} {in_force:?}");
        }
    }

    #[test]
    fn value_equals_a_known_default_in_any_spelling() {
        let with = |setting: SettingInForce, default: Option<&str>| {
            SettingInForce { default: default.map(str::to_owned), ..setting }.equals_default()
        };
        assert!(with(number("8MB", 8192.0, None), Some("1024")));
        assert!(with(of(SettingKind::Switch, "ON"), Some("1")));
        assert!(!with(number("2", 1.0, Some((0.0, 3.0))), Some("1")));
        assert!(!with(number("2", 1.0, None), None), "not known");
    }

    #[test]
    fn value_in_force_is_written_as_it_was_asked_for() {
        assert_eq!(number("999292928", 1.0, None).written_as("1000M"), "953M");
        assert_eq!(number("999292928", 1.0, None).written_as("1000000000"), "999292928");
        assert_eq!(of(SettingKind::Text, "32kB").written_as("8kB"), "32kB");
    }

    #[test]
    fn written_values_are_compared_without_a_server() {
        for (one, other) in [("off", "0"), ("1G", "1024M"), ("O_DIRECT", "o_direct")] {
            assert!(is_same_value(one, other), "{one} {other}");
        }
        for (one, other) in [("off", "on"), ("1G", "1000M"), ("4MB", "4096"), ("a", "b")] {
            assert!(!is_same_value(one, other), "{one} {other}");
        }
    }
}
