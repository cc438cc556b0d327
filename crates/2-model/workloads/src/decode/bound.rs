//! Parser of `rows` and `affects`.

use dbdyno_document::BadValue;

use crate::definition::Bound;

const HELP: &str =
    "write a number, \"keys\", \"range\", \"any\", or two of them as \"0..1\" (both ends count)";

/// Parses the minimum and maximum expected count: `10`, `keys`, `0..1`, `1..range`.
pub fn parse(text: &str) -> Result<(Bound, Bound), BadValue> {
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
            help: HELP.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_bound_or_two() {
        assert_eq!(parse("10"), Ok((Bound::Count(10), Bound::Count(10))));
        assert_eq!(parse("keys"), Ok((Bound::Keys, Bound::Keys)));
        assert_eq!(parse("0..1"), Ok((Bound::Count(0), Bound::Count(1))));
        assert_eq!(parse("1 .. range"), Ok((Bound::Count(1), Bound::Range)));
        assert_eq!(parse("1..any"), Ok((Bound::Count(1), Bound::Any)));
    }

    #[test]
    fn invalid_bounds_are_rejected() {
        for bad in ["", "-1", "many", "1..", "..", "1..2..3", "2..1", "1.5"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
