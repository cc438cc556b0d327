//! Lists of what is not as it should be.

use std::collections::BTreeMap;

use super::TextOptions;
use super::layout::{Lines, counted};
use crate::Audit;
use crate::check::{Check, Finding, Place, Severity};

/// How many names are shown of each kind.
const FEW: usize = 8;

pub(super) fn render(out: &mut Lines, audit: &Audit, options: &TextOptions) {
    for (severity, heading) in [
        (Severity::Offence, "Offences"),
        (Severity::Warning, "Warnings"),
        (Severity::Note, "Notes"),
    ] {
        let groups = groups(audit, severity);
        if groups.is_empty() {
            continue;
        }
        out.blank();
        out.line(heading);
        for ((check, recorded, wanted), findings) in groups {
            let wanted = wanted.map_or_else(String::new, |wanted| format!(" (wanted: {wanted})"));
            let what = match findings.as_slice() {
                [Finding { place: Place::Whole, .. }] => String::new(),
                [Finding { place: Place::Binary(_), .. }, ..] => {
                    format!(", {}", counted(findings.len(), "linked file"))
                }
                _ => format!(", {}", counted(findings.len(), "object")),
            };
            out.wrapped("  ", &format!("{check}: {}{what}: {recorded}{wanted}", check.meaning()));
            let names = names(audit, &findings);
            let shown = options.entries(FEW);
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

/// Findings that say the same, together.
fn groups(audit: &Audit, severity: Severity) -> Vec<(Group<'_>, Vec<&Finding>)> {
    let mut groups: BTreeMap<Group<'_>, Vec<&Finding>> = BTreeMap::new();
    for finding in audit.findings.iter().filter(|finding| finding.severity == severity) {
        groups
            .entry((finding.check, &finding.recorded, finding.wanted.as_deref()))
            .or_default()
            .push(finding);
    }
    groups.into_iter().collect()
}

fn names(audit: &Audit, findings: &[&Finding]) -> Vec<String> {
    findings
        .iter()
        .filter_map(|finding| match finding.place {
            Place::Object(index) => Some(audit.objects.get(index)?.name()),
            Place::Binary(index) => Some(audit.binaries.get(index)?.path.display().to_string()),
            Place::Whole => None,
        })
        .collect()
}
