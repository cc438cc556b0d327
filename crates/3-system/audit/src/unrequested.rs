//! Flags that reached files although the variant does not ask for them, by directory: build systems
//! nest, and one for a part of the program may add flags of its own.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use dbdyno_types::FlagCheck as Check;
use dbdyno_units::grouped;

use crate::audit::{Audit, Location, ObjectRecord, Severity};

/// Files of one directory with a flag that is not expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrequested {
    /// The directory of the build.
    pub component: String,
    pub flag: String,
    /// The number of files with this flag.
    pub files: usize,
    /// The number of checked files in the directory.
    pub of: usize,
    /// The name of the variant; `None` if other expectations were checked.
    pub variant: Option<String>,
}

/// Prints `storage/rocksdb: 312 of 312 files have -march=native, which the variant rel does not ask
/// for`.
impl fmt::Display for Unrequested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, flag, files, of, variant } = self;
        let noun = if *of == 1 { "file" } else { "files" };
        let verb = if *files == 1 { "has" } else { "have" };
        let (files, of) = (grouped(*files as u64), grouped(*of as u64));
        write!(f, "{component}: {files} of {of} {noun} {verb} {flag}, which ")?;
        match variant {
            Some(variant) => write!(f, "the variant {variant} does not ask for"),
            None => f.write_str("is not expected"),
        }
    }
}

/// The checks that compare one flag.
const OF_ONE_FLAG: [Check; 4] =
    [Check::Unoptimized, Check::OptimizationLevel, Check::MarchLeaked, Check::MarchMissing];

impl Audit {
    /// The directories with optimization levels and instruction sets that are not expected, those
    /// with most such files first. Ignored findings are included. Empty for a build in one
    /// directory, where the findings say the same.
    pub fn unrequested(&self) -> Vec<Unrequested> {
        let components = self.components();
        if components.len() < 2 {
            return Vec::new();
        }
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for finding in &self.findings {
            let Location::Object(index) = finding.location else { continue };
            // What machine code shows is not a flag, and warnings are not conclusive.
            let is_flag = OF_ONE_FLAG.contains(&finding.check)
                && finding.recorded.starts_with('-')
                && finding.severity != Severity::Warning;
            if let Some(object) = self.objects.get(index).filter(|_| is_flag) {
                let flag = self.as_written(object, &finding.recorded);
                *counts.entry((object.component.as_str(), flag)).or_default() += 1;
            }
        }
        let all = |name: &str| {
            components.iter().find(|component| component.name == name).map_or(0, |one| one.objects)
        };
        let mut unrequested: Vec<Unrequested> = counts
            .into_iter()
            .map(|((component, flag), files)| Unrequested {
                component: component.to_owned(),
                flag: flag.to_owned(),
                files,
                of: all(component),
                variant: self.expected.name.clone(),
            })
            .collect();
        unrequested.sort_by_key(|one| Reverse(one.files));
        unrequested
    }

    /// The flag as the build system wrote it: gcc records the CPU's name for `native`.
    fn as_written<'a>(&'a self, object: &ObjectRecord, recorded: &'a str) -> &'a str {
        const MARCH: &str = "-march=";
        let set = object.requested.and_then(|set| self.flag_sets.get(set));
        let march = set.and_then(|set| set.flags.iter().rev().find(|flag| flag.starts_with(MARCH)));
        match march {
            Some(march) if recorded.starts_with(MARCH) && march == "-march=native" => {
                march.as_str()
            }
            _ => recorded,
        }
    }
}
