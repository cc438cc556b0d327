//! `[profile]`: which stacks are sampled, how often, and the layers that functions belong to.

use std::ops::RangeInclusive;

use dbdyno_document::Table;
use dbdyno_units::Nanos;

use crate::experiment::{LayerRules, Profiling};
use crate::workload::{ReadFile, WorkloadSection, read_file, selected};

const TIMES: RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(3_600);

/// A sample takes one or two microseconds, on a virtual machine 20 or more.
const FREQUENCIES: RangeInclusive<u32> = 1..=10_000;

/// Maximum length of rules in bytes: ten times that of the built-in ones. They are stored with the run.
const MOST_BYTES: usize = 256 << 10;

pub fn read(
    table: Option<Table<'_>>,
    workload: &WorkloadSection,
    files: ReadFile<'_>,
) -> Option<Profiling> {
    let mut table = table?;
    let mut profiling = Profiling::default();
    table.set("time", TIMES, &mut profiling.time);
    table.set_bool("instructions", &mut profiling.instructions);
    table.set_bool("waits", &mut profiling.waits);
    table.set("frequency", FREQUENCIES, &mut profiling.frequency);
    profiling.microbenchmarks = read_microbenchmarks(&mut table, workload);
    profiling.layers = read_layers(&mut table, files);
    table.finish();
    Some(profiling)
}

/// Reports the section in an insert benchmark, whose steps are not sampled.
pub fn refuse_beside_inserts(table: Table<'_>) -> Option<Profiling> {
    let help = "stacks are sampled in microbenchmarks only: remove [profile]";
    table.reject(table.span(), "the insert benchmark has no profile", help)
}

/// The names of microbenchmarks of the run that the words select.
fn read_microbenchmarks(table: &mut Table<'_>, workload: &WorkloadSection) -> Option<Vec<String>> {
    let words = table.strings("microbenchmarks")?;
    if words.value.is_empty() {
        let help = "remove `microbenchmarks` to sample all";
        return table.reject(words.span, "`microbenchmarks` is empty", help);
    }
    // Without it, its problem is reported already.
    let measured = &workload.complete.as_ref()?.microbenchmarks;
    let mut names: Vec<String> = Vec::new();
    for word in words.value {
        let Some(selected) = selected(table, &workload.catalog, &[word]) else { continue };
        let is_measured = |name: &String| measured.iter().any(|one| one.name == *name);
        let found: Vec<String> =
            selected.into_iter().map(|one| one.name).filter(is_measured).collect();
        if found.is_empty() {
            let message = format!("`{}` is not measured", word.value);
            let help = "name microbenchmarks that [workload] selects";
            table.problem(word.span, message, help);
        }
        names.extend(found);
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// The text of the rules; their syntax is checked where they are used.
fn read_layers(table: &mut Table<'_>, files: ReadFile<'_>) -> Option<LayerRules> {
    let file = table.string("layers")?;
    let rules = read_file(table, "layers", file, files)?;
    if rules.len() > MOST_BYTES {
        let message = format!("`layers`: {} has {} bytes", file.value, rules.len());
        return table.reject(file.span, message, "rules have at most 256 KiB");
    }
    Some(LayerRules { file: file.value.to_owned(), rules })
}
