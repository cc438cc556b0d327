/// The candidate that `name` is most likely a misspelling of; `None` if none is close enough.
/// Ignores case.
///
/// Close enough is one edit (a letter inserted, deleted or replaced, or two letters swapped) per
/// three letters, and at least one: `slcie` is close to `slice`, `rows` is not close to `seed`. If
/// nothing is, the only candidate that starts with `name` is the answer: `config` abbreviates
/// `configuration`.
#[must_use]
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let lower = name.to_lowercase();
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let misspelt = candidates
        .iter()
        .filter_map(|&candidate| {
            let distance = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
            let longer = lower.chars().count().max(candidate.chars().count());
            (distance <= (longer / 3).max(1) && distance < longer).then_some((distance, candidate))
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate);
    misspelt.or_else(|| abbreviated(&lower, &candidates))
}

/// Letters of an abbreviation, at least.
const ABBREVIATION: usize = 3;

/// The only candidate that starts with a name in lowercase.
fn abbreviated<'c>(lower: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let starts = |one: &&&str| one.to_lowercase().starts_with(lower);
    let mut longer = candidates.iter().filter(starts);
    let only = longer.next().filter(|_| lower.chars().count() >= ABBREVIATION)?;
    longer.all(|other| other == only).then_some(*only)
}

/// The help text for an unknown name: the nearest valid name, or else all of them.
///
/// If there are no valid names, the text states that.
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
    fn nearest_name_is_found() {
        assert_eq!(nearest("slcie", KEYS), Some("slice"));
        assert_eq!(nearest("Slice", KEYS), Some("slice"));
        assert_eq!(nearest("writeslice", KEYS), Some("write_slice"));
        assert_eq!(nearest("targets", KEYS), Some("target"));
    }

    #[test]
    fn distant_names_are_not_suggested() {
        assert_eq!(nearest("budget", KEYS), None);
        assert_eq!(nearest("", KEYS), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("slice", []), None);
    }

    #[test]
    fn unique_abbreviation_is_completed() {
        let keys = ["configuration", "configure", "configure_with", "durability"];
        assert_eq!(nearest("dura", keys), Some("durability"));
        assert_eq!(nearest("config", ["name", "configuration"]), Some("configuration"));
        assert_eq!(nearest("conf", keys), None, "ambiguous");
        assert_eq!(nearest("du", keys), None, "too short");
    }

    #[test]
    fn all_names_are_listed_when_none_is_near() {
        assert_eq!(did_you_mean("pac", &KEYS), "did you mean `pace`?");
        assert_eq!(did_you_mean("budget", &["wal", "off"]), "valid are `wal`, `off`");
    }
}
