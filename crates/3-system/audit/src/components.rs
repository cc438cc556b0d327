use std::collections::{BTreeMap, BTreeSet};

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::audit::Audit;
use crate::effective::{LtoForm, Optimization};
use crate::finding::{Location, Severity};

/// A directory of a build with a summary of its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// The directory, relative to the build.
    pub name: String,
    /// Number of checked objects: those of gcc, clang or an unknown compiler.
    pub objects: usize,
    /// Number of different recorded command lines.
    pub flag_sets: usize,
    /// Number of objects per optimization level; objects with an unknown level are not counted.
    pub optimization: BTreeMap<Optimization, usize>,
    /// Number of objects per form of link-time optimization.
    pub lto: BTreeMap<LtoForm, usize>,
    /// Number of objects per instruction set.
    pub march: BTreeMap<String, usize>,
    /// Number of objects with violations.
    pub offending: usize,
    /// Total size of machine code; `None` if no object's is known.
    pub text: Option<Bytes>,
}

impl Audit {
    /// The directories of the build with a summary of their objects.
    #[must_use]
    pub fn components(&self) -> Vec<Component> {
        let offending: BTreeSet<usize> = self
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Violation)
            .filter_map(|finding| match finding.location {
                Location::Object(index) => Some(index),
                Location::Binary(_) | Location::Whole => None,
            })
            .collect();
        let mut components: BTreeMap<&str, Component> = BTreeMap::new();
        let mut sets: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (index, object) in self.objects.iter().enumerate().filter(|(_, o)| o.is_checked()) {
            let component = components.entry(&object.component).or_default();
            component.objects += 1;
            component.offending += usize::from(offending.contains(&index));
            let effective = &object.effective;
            if let Some(level) = effective.optimization {
                *component.optimization.entry(level).or_default() += 1;
            }
            if let Some(form) = effective.lto {
                *component.lto.entry(form).or_default() += 1;
            }
            if let Some(march) = &effective.march {
                *component.march.entry(march.clone()).or_default() += 1;
            }
            if let Some(text) = object.text {
                component.text = Some(component.text.unwrap_or_default() + text);
            }
            sets.entry(&object.component).or_default().extend(object.flags);
        }
        components
            .into_iter()
            .map(|(name, component)| Component {
                name: name.to_owned(),
                flag_sets: sets.get(name).map_or(0, BTreeSet::len),
                ..component
            })
            .collect()
    }
}
