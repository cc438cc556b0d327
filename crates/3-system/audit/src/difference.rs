//! The difference of command lines between two builds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::audit::{Audit, Change, Difference, FileDifference, ObjectRecord, SizeDifference};

/// Compares an audit with that of a baseline. Files are matched by source or, if that is not
/// recorded in both, by the path of the object in the build. Macro definitions, which gcc does not record, are those of
/// the compile databases.
pub fn difference(audit: &Audit, baseline: &Audit) -> Difference {
    let (here, there) = (files(audit), files(baseline));
    let partners = partners(&here, &there);
    let mut difference = Difference::default();
    let (mut added, mut removed) = (BTreeMap::new(), BTreeMap::new());
    for (file, partner) in here.iter().zip(&partners) {
        let Some(partner) = partner.map(|number| &there[number]) else {
            difference.only_here.push(file.name());
            continue;
        };
        let (Some(flags), Some(before)) = (&file.flags, &partner.flags) else { continue };
        let (flags, before) = match (&file.definitions, &partner.definitions) {
            (Some(own), Some(others)) => (&(flags | own), &(before | others)),
            _ => (flags, before),
        };
        difference.compared += 1;
        if flags == before {
            difference.same += 1;
            continue;
        }
        let shown = file.shown.as_ref().or(partner.shown.as_ref());
        let file = FileDifference {
            file: shown.unwrap_or(&file.object).clone(),
            added: flags.difference(before).cloned().collect(),
            removed: before.difference(flags).cloned().collect(),
        };
        for flag in &file.added {
            *added.entry(flag.clone()).or_default() += 1;
        }
        for flag in &file.removed {
            *removed.entry(flag.clone()).or_default() += 1;
        }
        difference.files.push(file);
    }
    let matched: BTreeSet<usize> = partners.into_iter().flatten().collect();
    let rest = there.iter().enumerate().filter(|(number, _)| !matched.contains(number));
    difference.only_in_baseline = rest.map(|(_, file)| file.name()).collect();
    difference.only_in_baseline.sort();
    difference.only_here.sort();
    difference.files.sort_by(|a, b| a.file.cmp(&b.file));
    difference.added = by_count(added);
    difference.removed = by_count(removed);
    difference.sizes = sizes(audit, baseline);
    difference
}

fn by_count(counts: BTreeMap<String, usize>) -> Vec<Change> {
    let mut changes: Vec<Change> =
        counts.into_iter().map(|(flag, files)| Change { flag, files }).collect();
    changes.sort_by(|a, b| b.files.cmp(&a.files).then(a.flag.cmp(&b.flag)));
    changes
}

struct File<'a> {
    /// The path of its object in the build.
    object: String,
    /// Its source, if recorded and compiled only once.
    source: Option<&'a str>,
    /// That source as it is shown: if it was generated, relative to the build.
    shown: Option<String>,
    /// Its flags, if a command line is recorded.
    flags: Option<BTreeSet<String>>,
    /// Its macro definitions in the compile database, if it is there.
    definitions: Option<BTreeSet<String>>,
}

impl File<'_> {
    fn name(&self) -> String {
        self.shown.as_ref().unwrap_or(&self.object).clone()
    }
}

fn files(audit: &Audit) -> Vec<File<'_>> {
    let objects = || audit.objects.iter().filter(|object| object.is_checked());
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for source in objects().filter_map(|object| object.source.as_deref()) {
        *times.entry(source).or_default() += 1;
    }
    let root = std::path::absolute(&audit.root).unwrap_or_default();
    let shown = |source: &str| {
        let path = Path::new(source);
        path.strip_prefix(&root).unwrap_or(path).display().to_string()
    };
    objects()
        .map(|object| {
            let source = object.source.as_deref().filter(|source| times[source] == 1);
            File {
                object: object.name(),
                source,
                shown: source.map(shown),
                flags: flags(audit, object),
                definitions: definitions(audit, object),
            }
        })
        .collect()
}

/// For each file of `here`, the index of the same file in `there`.
fn partners(here: &[File<'_>], there: &[File<'_>]) -> Vec<Option<usize>> {
    let numbered = || there.iter().enumerate();
    let sources: BTreeMap<&str, usize> =
        numbered().filter_map(|(number, file)| Some((file.source?, number))).collect();
    let mut partners: Vec<Option<usize>> =
        here.iter().map(|file| sources.get(file.source?).copied()).collect();
    let matched: BTreeSet<usize> = partners.iter().flatten().copied().collect();
    let objects: BTreeMap<&str, usize> = numbered()
        .filter(|(number, _)| !matched.contains(number))
        .map(|(number, file)| (file.object.as_str(), number))
        .collect();
    for (partner, file) in partners.iter_mut().zip(here) {
        *partner = partner.or_else(|| objects.get(file.object.as_str()).copied());
    }
    partners
}

/// The flags of an object, without those that a later one overrides. The flags implied by `-march=native`, about a
/// hundred, are replaced by one.
fn flags(audit: &Audit, object: &ObjectRecord) -> Option<BTreeSet<String>> {
    /// More `-m` flags than users write.
    const MANY: usize = 30;
    let set = audit.flag_sets.get(object.flags?)?;
    let (parts, mut flags): (BTreeSet<String>, BTreeSet<String>) =
        in_force(&set.flags).cloned().partition(|flag| is_part_of_native(flag));
    match parts.len() {
        0..=MANY => flags.extend(parts),
        many => drop(flags.insert(format!("-m… ({many} flags that native stands for)"))),
    }
    Some(flags)
}

/// The macro definitions that the compile database has for an object, without values with paths, which differ between
/// directories.
fn definitions(audit: &Audit, object: &ObjectRecord) -> Option<BTreeSet<String>> {
    let set = audit.flag_sets.get(object.requested?)?;
    let is_definition = |flag: &&String| {
        ["-D", "-U"].iter().any(|start| flag.starts_with(start)) && !flag.contains('/')
    };
    Some(in_force(&set.flags).filter(is_definition).cloned().collect())
}

/// The flags without those that a later one of the same subject overrides.
fn in_force(flags: &[String]) -> impl Iterator<Item = &String> {
    let mut seen = BTreeSet::new();
    flags.iter().rev().filter(move |flag| seen.insert(subject(flag)))
}

/// What a flag decides, of which the last flag counts: the level of optimization, a feature that can be on or off, a macro.
fn subject(flag: &str) -> (&'static str, &str) {
    let macro_name = |text: &'_ str| text.find('=').map_or(text.len(), |equals| equals);
    for (prefix, kind) in [("-O", "-O"), ("-fno-", "-f"), ("-f", "-f"), ("-D", "-D"), ("-U", "-D")]
    {
        if let Some(rest) = flag.strip_prefix(prefix) {
            return match kind {
                "-O" => (kind, ""),
                "-D" => (kind, &rest[..macro_name(rest)]),
                _ => (kind, rest),
            };
        }
    }
    ("", flag)
}

/// Whether compilers record this flag for `-march=native`: parts of the instruction set and cache
/// sizes.
fn is_part_of_native(flag: &str) -> bool {
    let chosen = ["-march=", "-mtune=", "-mcpu="].iter().any(|start| flag.starts_with(start));
    let cache = ["--param=l1-cache-", "--param=l2-cache-"];
    (flag.starts_with("-m") && !chosen) || cache.iter().any(|start| flag.starts_with(start))
}

fn sizes(audit: &Audit, baseline: &Audit) -> Vec<SizeDifference> {
    let mut sizes = Vec::new();
    for binary in &audit.binaries {
        let name = binary.path.file_name();
        let same = baseline
            .binaries
            .iter()
            .find(|other| other.path == binary.path)
            .or_else(|| baseline.binaries.iter().find(|other| other.path.file_name() == name));
        if let Some(before) = same {
            sizes.push(SizeDifference {
                file: binary.path.display().to_string(),
                text: (before.sizes.text, binary.sizes.text),
                stripped: (before.sizes.stripped, binary.sizes.stripped),
            });
        }
    }
    sizes
}
