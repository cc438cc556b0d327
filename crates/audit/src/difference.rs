//! The difference of command lines between two builds.

use std::collections::{BTreeMap, BTreeSet};

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::Audit;
use crate::record::ObjectRecord;

/// How the command lines of one build differ from those of another, the baseline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// How many files are in both and have a recorded command line in both.
    pub compared: usize,
    /// How many of them have the same.
    pub same: usize,
    /// Flags that files have here and not in the baseline, those of most files first.
    pub added: Vec<Change>,
    /// Flags that files have in the baseline and not here.
    pub removed: Vec<Change>,
    /// The files that differ.
    pub files: Vec<FileDifference>,
    /// Files that are only here.
    pub only_here: Vec<String>,
    /// Files that are only in the baseline.
    pub only_in_baseline: Vec<String>,
    /// Sizes of linked files of the same name.
    pub sizes: Vec<SizeDifference>,
}

/// A flag, and in how many files it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The flag.
    pub flag: String,
    /// How many files.
    pub files: usize,
}

/// One file whose command lines differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDifference {
    /// Its name: the source file, or the object.
    pub file: String,
    /// Flags that it has here and not in the baseline.
    pub added: Vec<String>,
    /// Flags that it has in the baseline and not here.
    pub removed: Vec<String>,
}

/// Sizes of one linked file in both builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeDifference {
    /// Its name.
    pub file: String,
    /// Its `.text`: in the baseline, and here.
    pub text: (Option<Bytes>, Option<Bytes>),
    /// What `strip` leaves: in the baseline, and here.
    pub stripped: (Option<Bytes>, Option<Bytes>),
}

/// Lays an audit beside that of a baseline. Files are matched by their source or, where that is
/// not recorded, by the place of the object in the build.
#[must_use]
pub fn difference(audit: &Audit, baseline: &Audit) -> Difference {
    let (here, there) = (by_name(audit), by_name(baseline));
    let mut difference = Difference::default();
    let (mut added, mut removed) = (BTreeMap::new(), BTreeMap::new());
    for (name, flags) in &here {
        let Some(before) = there.get(name) else {
            difference.only_here.push(name.clone());
            continue;
        };
        let (Some(flags), Some(before)) = (flags, before) else { continue };
        difference.compared += 1;
        if flags == before {
            difference.same += 1;
            continue;
        }
        let file = FileDifference {
            file: name.clone(),
            added: flags.difference(before).map(|flag| (*flag).to_owned()).collect(),
            removed: before.difference(flags).map(|flag| (*flag).to_owned()).collect(),
        };
        for flag in &file.added {
            *added.entry(flag.clone()).or_default() += 1;
        }
        for flag in &file.removed {
            *removed.entry(flag.clone()).or_default() += 1;
        }
        difference.files.push(file);
    }
    difference.only_in_baseline =
        there.keys().filter(|name| !here.contains_key(*name)).cloned().collect();
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

type Flags<'a> = BTreeMap<String, Option<BTreeSet<&'a str>>>;

/// The flags of each file. A source that is compiled several times is told apart by its object.
fn by_name(audit: &Audit) -> Flags<'_> {
    let objects = || audit.objects.iter().filter(|object| object.is_checked());
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for source in objects().filter_map(|object| object.source.as_deref()) {
        *times.entry(source).or_default() += 1;
    }
    objects()
        .map(|object| {
            let name = match &object.source {
                Some(source) if times.get(source.as_str()) == Some(&1) => source.clone(),
                _ => object.name(),
            };
            (name, flags(audit, object))
        })
        .collect()
}

fn flags<'a>(audit: &'a Audit, object: &ObjectRecord) -> Option<BTreeSet<&'a str>> {
    let set = audit.flag_sets.get(object.flags?)?;
    Some(set.flags.iter().map(String::as_str).collect())
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
