/// The candidate that `name` is most likely a misspelling of; `None` when none is near enough to
/// be worth a suggestion. Case does not count.
///
/// Near enough is one change (a letter added, lost, exchanged, or two letters swapped) for every
/// three letters, and at least one: `slcie` is near `slice`, `rows` is not near `seed`.
#[must_use]
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let distance = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
            let longer = lower.chars().count().max(candidate.chars().count());
            (distance <= (longer / 3).max(1) && distance < longer).then_some((distance, candidate))
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// The advice for an unknown name: the nearest valid one, or else all of them.
///
/// With no valid names there is nothing to advise, and the text says so.
#[must_use]
pub fn did_you_mean(name: &str, valid: &[&str]) -> String {
    match (nearest(name, valid.iter().copied()), valid) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => "there are no valid names".to_owned(),
        (None, [only]) => format!("the only valid name is `{only}`"),
        (None, _) => format!("valid are `{}`", valid.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 5] = ["slice", "write_slice", "pace", "target", "id"];

    #[test]
    fn finds_what_was_meant() {
        assert_eq!(nearest("slcie", KEYS), Some("slice"));
        assert_eq!(nearest("Slice", KEYS), Some("slice"));
        assert_eq!(nearest("writeslice", KEYS), Some("write_slice"));
        assert_eq!(nearest("targets", KEYS), Some("target"));
    }

    #[test]
    fn keeps_silent_when_nothing_is_near() {
        assert_eq!(nearest("budget", KEYS), None);
        assert_eq!(nearest("", KEYS), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("slice", []), None);
    }

    #[test]
    fn lists_all_when_nothing_is_near() {
        assert_eq!(did_you_mean("pac", &KEYS), "did you mean `pace`?");
        assert_eq!(did_you_mean("budget", &["wal", "off"]), "valid are `wal`, `off`");
    }
}
