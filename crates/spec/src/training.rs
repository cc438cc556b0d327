//! `training` of a candidate: what its profile is collected from.

use dbdyno_document::{Problem, Spanned, Table};
use dbdyno_units::Nanos;
use dbdyno_workloads::catalog::Catalog;

use crate::experiment::{BoltProfile, Training};

/// Variants whose names end so are optimized with a profile, by the compiler or by BOLT.
const PROFILED: [&str; 3] = ["_pgo", "_autofdo", BOLT];

const BOLT: &str = "_bolt";

const BOLT_PROFILES: [(&str, BoltProfile); 2] =
    [("instrumentation", BoltProfile::Instrumentation), ("samples", BoltProfile::Samples)];

/// Long enough for the counts of what is common to be large.
const DEFAULT_TIME: Nanos = Nanos::from_millis(500);

/// Passes over the keys where nobody knows what they should be.
pub fn skip(table: &mut Table<'_>) {
    table.strings("training");
    table.string("training_time");
    table.bool("bolt");
    table.string("bolt_profile");
}

/// Whether BOLT lays out a candidate with this built-in variant.
pub fn read_bolt(table: &mut Table<'_>, variant: &str) -> bool {
    if variant.ends_with(BOLT) {
        return table.bool("bolt").is_none_or(|bolt| bolt.value);
    }
    refuse_without_bolt(table, "bolt", variant);
    true
}

fn refuse_without_bolt(table: &mut Table<'_>, key: &'static str, variant: &str) {
    let help = format!("its variant would be {variant}{BOLT}");
    table.refuse(key, "is for candidates that BOLT lays out", help);
}

/// Reads the keys of a candidate with this built-in variant; the outer `None` where a problem was
/// reported. Without `bolt` it is the variant before that.
pub fn read(
    table: &mut Table<'_>,
    variant: &str,
    bolt: bool,
    catalog: &Catalog,
) -> Option<Option<Training>> {
    let variant = variant.strip_suffix(BOLT).filter(|_| !bolt).unwrap_or(variant);
    let bolt_profile = if variant.ends_with(BOLT) {
        let chosen = table.choice("bolt_profile", &BOLT_PROFILES);
        chosen.map_or(BoltProfile::Instrumentation, |chosen| chosen.value)
    } else {
        refuse_without_bolt(table, "bolt_profile", variant);
        BoltProfile::Instrumentation
    };
    if !PROFILED.iter().any(|ending| variant.ends_with(ending)) {
        for key in ["training", "training_time"] {
            let names = PROFILED.map(|ending| format!("{variant}{ending}")).join(", ");
            let help = format!("its variant would be one of: {names}");
            table.refuse(key, "is for candidates that are optimized with a profile", help);
        }
        return Some(None);
    }
    let times = Nanos::from_millis(10)..=Nanos::from_secs(3600);
    let time = table.duration("training_time", times).map_or(DEFAULT_TIME, |time| time.value);
    let Some(words) = table.strings("training") else {
        if !table.has("training") {
            let message = format!("`{variant}` needs a `training`");
            let help = "name microbenchmarks or groups, and with ! before those to leave out: \
                        [\"all\", \"!point-1\"]";
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
    let (chosen, out) = (select(&chosen).ok()?, select(&out).ok()?);
    let left_out = |name: &str| out.iter().any(|other| other.name == name);
    let microbenchmarks: Vec<_> = chosen.into_iter().filter(|one| !left_out(&one.name)).collect();
    if microbenchmarks.is_empty() {
        let problem = Problem::new(words.span, "`training` selects nothing");
        table.report(problem.help("name what to run, before what to leave out"));
        return None;
    }
    let words = words.value.iter().map(|word| word.value.to_owned()).collect();
    Some(Some(Training { words, microbenchmarks, time, bolt_profile }))
}
