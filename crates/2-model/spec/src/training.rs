//! `training` of a candidate: the workload that its profiles are collected from.

use dbdyno_document::{Problem, Spanned, Table};
use dbdyno_types::build::{BoltProfileMethod, Pgo, Variant};
use dbdyno_units::Nanos;
use dbdyno_workloads::catalog::Catalog;

use crate::experiment::Training;

/// Long enough for high counts of common code.
const DEFAULT_TIME: Nanos = Nanos::from_millis(500);

/// Accepts all keys unchecked: valid keys depend on the variant, which is unknown.
pub fn skip(table: &mut Table<'_>) {
    table.strings("training");
    table.string("training_time");
    table.bool("bolt");
    table.string("bolt_profile");
}

/// Reads `bolt`: whether BOLT is run on a build of this variant.
pub fn read_bolt(table: &mut Table<'_>, variant: &Variant) -> bool {
    if variant.bolt {
        return table.bool("bolt").is_none_or(|bolt| bolt.value);
    }
    refuse_without_bolt(table, "bolt");
    true
}

fn refuse_without_bolt(table: &mut Table<'_>, key: &'static str) {
    table.refuse(key, "is for candidates that BOLT optimizes", "set `bolt = true`");
}

/// Reads the keys for a variant; the outer `None` after a problem. With `bolt = false`, BOLT needs
/// no profile.
pub fn read(
    table: &mut Table<'_>,
    variant: &Variant,
    bolt: bool,
    catalog: &Catalog,
) -> Option<Option<Training>> {
    let with_bolt = variant.bolt && bolt;
    let method = if with_bolt {
        table.choice("bolt_profile", BoltProfileMethod::WORDS).map(|method| method.value)
    } else {
        refuse_without_bolt(table, "bolt_profile");
        None
    };
    let bolt_profile = method.unwrap_or(BoltProfileMethod::Instrumentation);
    if variant.pgo == Pgo::Off && !with_bolt {
        for key in ["training", "training_time"] {
            let help = "set `pgo = \"instrument\"`, `pgo = \"sample\"` or `bolt = true`";
            table.refuse(key, "is for candidates that use a profile", help);
        }
        return Some(None);
    }
    let times = Nanos::from_millis(10)..=Nanos::from_secs(3600);
    let time = table.duration("training_time", times).map_or(DEFAULT_TIME, |time| time.value);
    let Some(words) = table.strings("training") else {
        if !table.has("training") {
            let message = format!("missing `training`: `{variant}` uses a profile");
            let help = "list microbenchmarks or groups; exclude with `!`: [\"all\", \"!point-1\"]";
            table.report(Problem::new(table.span(), message).help(help));
        }
        return None;
    };
    let (out, chosen): (Vec<Spanned<&str>>, Vec<Spanned<&str>>) =
        words.value.iter().copied().partition(|word| word.value.starts_with('!'));
    let select = |words: &[Spanned<&str>]| {
        let bare = words.iter().map(|word| word.value.trim_start_matches('!'));
        catalog.select(bare).map_err(|unmatched| {
            for one in unmatched {
                let span = words[one.index].span;
                table.report(Problem::new(span, one.to_string()).help(one.help()));
            }
        })
    };
    let (chosen, out) = (select(&chosen), select(&out));
    let (chosen, out) = (chosen.ok()?, out.ok()?);
    let left_out = |name: &str| out.iter().any(|other| other.name == name);
    let microbenchmarks: Vec<_> = chosen.into_iter().filter(|one| !left_out(&one.name)).collect();
    if microbenchmarks.is_empty() {
        let problem = Problem::new(words.span, "`training` selects nothing");
        table.report(problem.help("list at least one microbenchmark that is not excluded"));
        return None;
    }
    let words = words.value.iter().map(|word| word.value.to_owned()).collect();
    Some(Some(Training { words, microbenchmarks, time, bolt_profile }))
}
