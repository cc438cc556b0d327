//! Lists of findings.

use std::collections::BTreeMap;

use super::TextOptions;
use super::layout::{Lines, counted};
use crate::finding::{Finding, Location, Severity};
use crate::{Audit, Check};

/// The names shown per group.
const MAX_NAMES: usize = 8;

pub(super) fn render(out: &mut Lines, audit: &Audit, options: &TextOptions) {
    for (severity, heading) in [
        (Severity::Violation, "Violations"),
        (Severity::Warning, "Warnings"),
        (Severity::Note, "Notes"),
    ] {
        let groups = groups(audit, severity);
        if groups.is_empty() {
            continue;
        }
        out.blank();
        out.line(heading);
        for ((check, recorded, expected), findings) in groups {
            let expected =
                expected.map_or_else(String::new, |expected| format!(" (expected: {expected})"));
            let what = match findings.as_slice() {
                [Finding { location: Location::Whole, .. }] => String::new(),
                [Finding { location: Location::Binary(_), .. }, ..] => {
                    format!(", {}", counted(findings.len(), "linked file"))
                }
                _ => format!(", {}", counted(findings.len(), "object")),
            };
            out.wrapped("  ", &format!("{check}: {}{what}: {recorded}{expected}", check.meaning()));
            let names = names(audit, &findings);
            let shown = options.entries(MAX_NAMES);
            for name in names.iter().take(shown) {
                out.wrapped("      ", name);
            }
            if names.len() > shown {
                out.line(&format!("      … and {} more (--all shows them)", names.len() - shown));
            }
        }
    }
}

type Group<'a> = (Check, &'a str, Option<&'a str>);

/// Findings grouped by check and values.
fn groups(audit: &Audit, severity: Severity) -> Vec<(Group<'_>, Vec<&Finding>)> {
    let mut groups: BTreeMap<Group<'_>, Vec<&Finding>> = BTreeMap::new();
    for finding in audit.findings.iter().filter(|finding| finding.severity == severity) {
        groups
            .entry((finding.check, &finding.recorded, finding.expected.as_deref()))
            .or_default()
            .push(finding);
    }
    groups.into_iter().collect()
}

fn names(audit: &Audit, findings: &[&Finding]) -> Vec<String> {
    findings
        .iter()
        .filter_map(|finding| match finding.location {
            Location::Object(index) => Some(audit.objects.get(index)?.name()),
            Location::Binary(index) => Some(audit.binaries.get(index)?.path.display().to_string()),
            Location::Whole => None,
        })
        .collect()
}
