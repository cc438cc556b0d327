//! Parser of parameter sources.

use dbdyno_document::BadValue;

use crate::definition::{Bound, Distribution, ParameterSource, Text};

/// The maximum length of a list: SQLite allows 32766 parameters per statement, others allow more.
const LONGEST_LIST: u32 = 32_766;

/// The maximum exponent: above it all draws are key 1. Real workloads have far less skew.
const GREATEST_EXPONENT: f64 = 10.0;

const FORMS: &str = "draws are \"uniform\", \"uniform(1..500)\", \"zipf(0.8)\", \"list(100, uniform)\", \"middle(100)\", \
                     \"fixed(1)\", \"c\", \"pad\", or another parameter plus a number, \"id + 1\"";

/// Parses the source of one parameter: `uniform`, `list(100, zipf(0.8))`, `id + 99`, ….
pub fn parse(text: &str) -> Result<ParameterSource, BadValue> {
    let text = text.trim();
    if let Some(text) = Text::by_name(text) {
        return Ok(ParameterSource::Text(text));
    }
    if let Some(argument) = call(text, "fixed") {
        let help = "write an integer, as \"fixed(1)\"";
        return argument.parse().map(ParameterSource::Fixed).map_err(|_| bad(text, help));
    }
    if let Some(argument) = call(text, "uniform") {
        return between(argument).ok_or_else(|| {
            bad(text, "write the smallest and the largest value, as \"uniform(1..500)\"")
        });
    }
    if let Some(argument) = call(text, "middle") {
        return Ok(ParameterSource::Middle { count: count(argument)? });
    }
    if let Some(arguments) = call(text, "list") {
        let Some((length, keys)) = arguments.split_once(',') else {
            return Err(bad(text, "write length and distribution, as \"list(100, uniform)\""));
        };
        return Ok(ParameterSource::KeyList {
            count: count(length.trim())?,
            distribution: distribution(keys.trim())?,
        });
    }
    if text.contains(['+', '-']) && !text.contains('(') {
        return offset(text);
    }
    distribution(text).map(ParameterSource::Key)
}

/// Parses `low..high`.
fn between(range: &str) -> Option<ParameterSource> {
    let (low, high) = range.split_once("..")?;
    let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    (low <= high).then_some(ParameterSource::Between { low, high })
}

/// Whether `name` is a valid parameter name: a letter or `_`, then letters, digits and `_`.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn bad(text: &str, help: &str) -> BadValue {
    BadValue { message: format!("`{text}` is not a way to draw"), help: help.to_owned() }
}

/// The argument of `name(argument)`.
fn call<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let arguments = text.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')')?;
    Some(arguments.trim())
}

fn count(text: &str) -> Result<u32, BadValue> {
    match text.parse() {
        Ok(count) if (1..=LONGEST_LIST).contains(&count) => Ok(count),
        _ => Err(BadValue {
            message: format!("`{text}` is not the length of a list"),
            help: format!("it must be from 1 to {LONGEST_LIST}"),
        }),
    }
}

fn distribution(text: &str) -> Result<Distribution, BadValue> {
    if text == "uniform" {
        return Ok(Distribution::Uniform);
    }
    let exponent = call(text, "zipf").ok_or_else(|| bad(text, FORMS))?;
    match exponent.parse() {
        Ok(exponent) if exponent > 0.0 && exponent <= GREATEST_EXPONENT => {
            Ok(Distribution::Zipf(exponent))
        }
        _ => Err(BadValue {
            message: format!("`{exponent}` is not an exponent"),
            help: format!("it must be greater than 0 and at most {GREATEST_EXPONENT}"),
        }),
    }
}

/// Parses a parameter plus constant terms: `id + 100 - 1`.
fn offset(text: &str) -> Result<ParameterSource, BadValue> {
    let wrong = || bad(text, "write a parameter and integers, as \"id + 100 - 1\"");
    let end = text.find(['+', '-']).unwrap_or(text.len());
    let (of, mut rest) = text.split_at(end);
    let of = of.trim();
    if !is_name(of) {
        return Err(wrong());
    }
    let mut plus = 0_i64;
    while let Some(sign) = rest.chars().next() {
        let after = &rest[1..];
        let end = after.find(['+', '-']).unwrap_or(after.len());
        let (term, next) = after.split_at(end);
        let digits = term.trim();
        // The integer parser would accept a second sign.
        if !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong());
        }
        let term: i64 = digits.parse().map_err(|_| wrong())?;
        plus = if sign == '+' { plus.checked_add(term) } else { plus.checked_sub(term) }
            .ok_or_else(wrong)?;
        rest = next;
    }
    Ok(ParameterSource::Offset { of: of.to_owned(), plus })
}

const BOUNDS: &str =
    "write a number, \"keys\", \"range\", \"any\", or two of them as \"0..1\" (both ends count)";

/// Parses the minimum and maximum expected count: `10`, `keys`, `0..1`, `1..range`.
pub fn parse_bounds(text: &str) -> Result<(Bound, Bound), BadValue> {
    let Some((least, most)) = text.split_once("..") else {
        return one(text.trim()).map(|bound| (bound, bound));
    };
    let bounds = (one(least.trim())?, one(most.trim())?);
    if let (Bound::Count(least), Bound::Count(most)) = bounds
        && least > most
    {
        let message = format!("`{text}` allows no count: {least} is greater than {most}");
        return Err(BadValue { message, help: format!("did you mean \"{most}..{least}\"?") });
    }
    Ok(bounds)
}

fn one(word: &str) -> Result<Bound, BadValue> {
    match word {
        "keys" => Ok(Bound::Keys),
        "range" => Ok(Bound::Range),
        "any" => Ok(Bound::Any),
        _ => word.parse().map(Bound::Count).map_err(|_| BadValue {
            message: format!("`{word}` is not a count"),
            help: BOUNDS.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_parsed() {
        let uniform = Distribution::Uniform;
        let offset = |of: &str, plus| ParameterSource::Offset { of: of.to_owned(), plus };
        for (text, draw) in [
            ("uniform", ParameterSource::Key(uniform)),
            ("zipf(0.8)", ParameterSource::Key(Distribution::Zipf(0.8))),
            ("fixed(-1)", ParameterSource::Fixed(-1)),
            ("uniform(-1..500)", ParameterSource::Between { low: -1, high: 500 }),
            ("uniform( 7 .. 7 )", ParameterSource::Between { low: 7, high: 7 }),
            ("id + 99", offset("id", 99)),
            ("id + 100 - 1", offset("id", 99)),
            ("low_2-5", offset("low_2", -5)),
            ("list(100, uniform)", ParameterSource::KeyList { count: 100, distribution: uniform }),
            (
                "list( 2 ,zipf(1))",
                ParameterSource::KeyList { count: 2, distribution: Distribution::Zipf(1.0) },
            ),
            ("middle(100)", ParameterSource::Middle { count: 100 }),
            ("c", ParameterSource::Text(Text::C)),
            ("pad", ParameterSource::Text(Text::Pad)),
            ("c + 1", offset("c", 1)),
        ] {
            assert_eq!(parse(&draw.to_string()).as_ref(), Ok(&draw), "{draw} is not its form");
            assert_eq!(parse(text), Ok(draw), "{text}");
        }
    }

    #[test]
    fn invalid_sources_are_rejected() {
        for text in [
            "",
            "unifrom",
            "zipf",
            "zipf()",
            "zipf(-1)",
            "zipf(NaN)",
            "fixed(x)",
            "uniform()",
            "uniform(5)",
            "uniform(5..4)",
            "list(0, uniform)",
            "list(100)",
            "list(100, c)",
            "middle(99999999999)",
            "id +",
            "id + x",
            "1 + 2",
            "id + -1",
            "id + 9223372036854775807 + 1",
            "µ+µ",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_one_bound_or_two() {
        assert_eq!(parse_bounds("10"), Ok((Bound::Count(10), Bound::Count(10))));
        assert_eq!(parse_bounds("keys"), Ok((Bound::Keys, Bound::Keys)));
        assert_eq!(parse_bounds("0..1"), Ok((Bound::Count(0), Bound::Count(1))));
        assert_eq!(parse_bounds("1 .. range"), Ok((Bound::Count(1), Bound::Range)));
        assert_eq!(parse_bounds("1..any"), Ok((Bound::Count(1), Bound::Any)));
    }

    #[test]
    fn invalid_bounds_are_rejected() {
        for bad in ["", "-1", "many", "1..", "..", "1..2..3", "2..1", "1.5"] {
            assert!(parse_bounds(bad).is_err(), "{bad}");
        }
    }
}
