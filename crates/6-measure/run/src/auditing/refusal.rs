//! The message about a build that does not match its variant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use dbdyno_audit::{Audit, Check, Finding, Location, Severity};
use dbdyno_builds::Build;

/// The objects named per kind of violation.
const MAX_OBJECTS: usize = 10;

/// Describes the violations of a build: the check, what was recorded and expected, and how to
/// ignore it. `None` for a build without violations.
pub(crate) fn refusal(build: &Build, audit: &Audit, cache: Option<&str>) -> Option<String> {
    let violations: Vec<&Finding> =
        audit.findings.iter().filter(|finding| finding.severity == Severity::Violation).collect();
    if violations.is_empty() {
        return None;
    }
    let (variant, name) = (&build.variant, build.fingerprint.short());
    let mut text = format!("the build does not match its variant {variant}:\n");
    for ((check, recorded, expected), findings) in kinds(&violations) {
        let expected =
            expected.map_or_else(String::new, |expected| format!(", expected: {expected}"));
        let names = names(audit, &findings);
        let count = match names.len() {
            0 => String::new(),
            1 => ", in 1 file".to_owned(),
            many => format!(", in {many} files"),
        };
        let meaning = check.meaning();
        let _ = writeln!(text, "  {check} ({meaning}){count}: recorded: {recorded}{expected}");
        for name in names.iter().take(MAX_OBJECTS) {
            let _ = writeln!(text, "    {name}");
        }
        if names.len() > MAX_OBJECTS {
            let _ = writeln!(text, "    … and {} more", names.len() - MAX_OBJECTS);
        }
    }
    let checks: BTreeSet<Check> = violations.iter().map(|finding| finding.check).collect();
    let checks: Vec<String> = checks.iter().map(|check| format!("\"{check}\"")).collect();
    let cache = cache.map_or_else(String::new, |cache| format!(" --cache {cache}"));
    let _ = write!(
        text,
        "  for the full audit: dbdyno audit {name}{cache}\n  to measure it anyway, add to the \
         candidate, or to [checks] for all candidates:\n    audit_ignore = [{}]",
        checks.join(", ")
    );
    Some(text)
}

type Kind<'a> = (Check, &'a str, Option<&'a str>);

/// Findings grouped by check and values.
fn kinds<'a>(violations: &[&'a Finding]) -> BTreeMap<Kind<'a>, Vec<&'a Finding>> {
    let mut kinds: BTreeMap<Kind<'a>, Vec<&Finding>> = BTreeMap::new();
    for finding in violations {
        let kind = (finding.check, finding.recorded.as_str(), finding.expected.as_deref());
        kinds.entry(kind).or_default().push(finding);
    }
    kinds
}

fn names(audit: &Audit, findings: &[&Finding]) -> Vec<String> {
    let name = |finding: &&Finding| match finding.location {
        Location::Object(index) => Some(audit.objects.get(index)?.name()),
        Location::Binary(index) => Some(audit.binaries.get(index)?.path.display().to_string()),
        Location::Whole => None,
    };
    findings.iter().filter_map(name).collect()
}
