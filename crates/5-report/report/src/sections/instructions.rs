//! Executed instructions per query: whether other CPU time is more work or slower work.

use dbdyno_text::Cell;
use dbdyno_units::Ratio;

use crate::figures::{compact, percent, percent_change};
use crate::model::{Instructions, ProfileDifference, ProfileRow, by_key};

/// Within this distance from 1, the instructions are the same.
const SAME: f64 = 0.01;

/// So many functions are named.
const NAMED: usize = 5;

/// Executed instructions per query of a function, of the candidate and the baseline; `None` where they were not
/// counted.
pub(crate) fn of_function(profile: &ProfileDifference, name: &str) -> [Option<f64>; 2] {
    let functions = profile.instructions.as_ref().map(|instructions| &instructions.functions);
    functions.and_then(|functions| functions.get(name).copied()).unwrap_or_default()
}

/// The instructions of a candidate's function, and by how much they differ from the baseline's.
pub(crate) fn cell(profile: &ProfileDifference, name: &str) -> Cell {
    match of_function(profile, name) {
        [Some(own), Some(base)] if base > 0.0 => {
            let change = percent_change(Ratio::new(own / base));
            Cell::text(format!("{} {change}", compact(own)))
        }
        [own, _] => Cell::number(own.map(compact)),
    }
}

/// What the instructions tell of the functions that certainly need another CPU time, and in how much of the CPU time
/// they were counted. `names`: of the candidate and the baseline.
pub(crate) fn sentences(profile: &ProfileDifference, names: [&str; 2]) -> Vec<String> {
    let Some(instructions) = &profile.instructions else { return Vec::new() };
    let Instructions { covered, not_counted, .. } = instructions;
    let refused = names.iter().zip(not_counted).filter_map(|(name, reason)| {
        Some(format!("instructions of {name} were not counted: {}", reason.as_ref()?))
    });
    let mut sentences: Vec<String> = refused.collect();
    let ([Some(own), Some(base)], true) = (covered, sentences.is_empty()) else {
        return sentences;
    };
    let kinds = by_kind(profile);
    if kinds.is_empty() {
        let none = "no function that certainly differs was counted on both sides, so that more work cannot be told from \
                    slower work";
        sentences.push(none.to_owned());
    }
    sentences.extend(kinds);
    sentences.push(format!(
        "instructions are counted, with one client, in functions with {} of the CPU time outside of the kernel ({}: {})",
        percent(*own),
        names[1],
        percent(*base)
    ));
    sentences
}

/// A sentence for each kind of difference, with the functions that differ so.
fn by_kind(profile: &ProfileDifference) -> Vec<String> {
    // Of functions that are inlined on one side only, part of the time moved, and no instructions.
    let certain = profile.functions.iter().filter(|row| row.certain && !row.moved);
    let explained = certain.filter_map(|row| explained(row, of_function(profile, &row.name)));
    let kinds = by_key(explained.take(NAMED)).into_iter();
    kinds.map(|(kind, texts)| format!("{kind}: {}", texts.join(", "))).collect()
}

/// How a function's work differs, and by how much. CPU time is instructions times the time of each: what of the ratio
/// of CPU times is not in the instructions is another speed.
fn explained(row: &ProfileRow, instructions: [Option<f64>; 2]) -> Option<(&'static str, String)> {
    let [Some(own), Some(base)] = instructions else { return None };
    if [own, base, row.us, row.baseline_us].iter().any(|value| *value <= 0.0) {
        return None;
    }
    let (work, time) = (own / base, row.us / row.baseline_us);
    let explains_most = work.ln() / time.ln() >= 0.5;
    let is_same = (work - 1.0).abs() <= SAME;
    let kind = match (time > 1.0, work > 1.0) {
        (true, _) if is_same => "slower work",
        (false, _) if is_same => "faster work",
        (true, true) if explains_most => "more work",
        (true, true) => "more and slower work",
        (true, false) => "less, but slower work",
        (false, false) if explains_most => "less work",
        (false, false) => "less and faster work",
        (false, true) => "more, but faster work",
    };
    let [work, time] = [work, time].map(|ratio| percent_change(Ratio::new(ratio)));
    let work =
        if is_same { "the same instructions".to_owned() } else { format!("{work} instructions") };
    Some((kind, format!("{} ({work}, {time} CPU time)", row.name)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dbdyno_units::Share;

    use super::*;

    fn row(name: &str, us: f64, certain: bool) -> ProfileRow {
        ProfileRow {
            name: name.to_owned(),
            us,
            baseline_us: 1.0,
            half_width_us: 0.01,
            certain,
            moved: false,
        }
    }

    fn profile(not_counted: [Option<String>; 2]) -> ProfileDifference {
        let functions = [("a", 1_300.0), ("b", 1_005.0), ("c", 1_020.0), ("d", 700.0), ("e", 2e3)];
        let functions = functions.map(|(name, own)| (name.to_owned(), [Some(own), Some(1e3)]));
        let covered = [0.931, 0.94].map(|share| Some(Share::from_fraction(share)));
        ProfileDifference {
            samples: [1_000; 2],
            layers: Vec::new(),
            functions: vec![
                row("a", 1.28, true),
                row("b", 1.1, true),
                row("c", 1.4, true),
                row("d", 0.7, true),
                row("e", 2.0, false),
                row("f", 2.0, true),
            ],
            instructions: Some(Instructions {
                covered,
                not_counted,
                functions: BTreeMap::from(functions),
            }),
            ..ProfileDifference::default()
        }
    }

    #[test]
    fn certain_differences_are_more_work_or_slower_work() {
        let profile = profile([None, None]);
        assert_eq!(
            sentences(&profile, ["new", "old"]),
            [
                "more work: a (+30.0% instructions, +28.0% CPU time)",
                "slower work: b (the same instructions, +10.0% CPU time)",
                "more and slower work: c (+2.0% instructions, +40.0% CPU time)",
                "less work: d (−30.0% instructions, −30.0% CPU time)",
                "instructions are counted, with one client, in functions with 93.1% of the CPU time outside of the \
                 kernel (old: 94%)",
            ]
        );
        assert_eq!(cell(&profile, "a").text, "1.30k +30.0%");
        assert_eq!(cell(&profile, "f").text, "–");
    }

    #[test]
    fn reason_is_told_if_instructions_were_not_counted() {
        let profile = profile([Some("it runs on another host".to_owned()), None]);
        let reason = "instructions of new were not counted: it runs on another host";
        assert_eq!(sentences(&profile, ["new", "old"]), [reason]);
    }
}
