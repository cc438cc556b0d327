//! What is said of a build that is not what its name says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use dbdyno_audit::{Audit, Check, Finding, Place, Severity};
use dbdyno_builds::Build;

/// How many objects are named of each kind of offence.
const FEW: usize = 10;

/// A build that is not what its variant says, in words: what offends, what was recorded and what
/// was wanted, and how to allow it. `None` for a build that is as it should be.
pub(crate) fn refusal(build: &Build, audit: &Audit, cache: Option<&str>) -> Option<String> {
    let offences: Vec<&Finding> =
        audit.findings.iter().filter(|finding| finding.severity == Severity::Offence).collect();
    if offences.is_empty() {
        return None;
    }
    let (variant, name) = (&build.variant, build.fingerprint.short());
    let mut text = format!("what was compiled is not {variant}:\n");
    for ((check, recorded, wanted), findings) in kinds(&offences) {
        let wanted = wanted.map_or_else(String::new, |wanted| format!(", wanted: {wanted}"));
        let names = names(audit, &findings);
        let count = match names.len() {
            0 => String::new(),
            1 => ", in 1 file".to_owned(),
            many => format!(", in {many} files"),
        };
        let meaning = check.meaning();
        let _ = writeln!(text, "  {check} ({meaning}){count}: recorded: {recorded}{wanted}");
        for name in names.iter().take(FEW) {
            let _ = writeln!(text, "    {name}");
        }
        if names.len() > FEW {
            let _ = writeln!(text, "    … and {} more", names.len() - FEW);
        }
    }
    let checks: BTreeSet<Check> = offences.iter().map(|finding| finding.check).collect();
    let checks: Vec<String> = checks.iter().map(|check| format!("\"{check}\"")).collect();
    let cache = cache.map_or_else(String::new, |cache| format!(" --cache {cache}"));
    let _ = write!(
        text,
        "  to see all of it: dbdyno audit {name}{cache}\n  to measure it as it is, add to the \
         candidate, or to [checks] for all of them:\n    audit_allows = [{}]",
        checks.join(", ")
    );
    Some(text)
}

type Kind<'a> = (Check, &'a str, Option<&'a str>);

/// Findings that say the same, together.
fn kinds<'a>(offences: &[&'a Finding]) -> BTreeMap<Kind<'a>, Vec<&'a Finding>> {
    let mut kinds: BTreeMap<Kind<'a>, Vec<&Finding>> = BTreeMap::new();
    for finding in offences {
        let kind = (finding.check, finding.recorded.as_str(), finding.wanted.as_deref());
        kinds.entry(kind).or_default().push(finding);
    }
    kinds
}

fn names(audit: &Audit, findings: &[&Finding]) -> Vec<String> {
    let name = |finding: &&Finding| match finding.place {
        Place::Object(index) => Some(audit.objects.get(index)?.name()),
        Place::Binary(index) => Some(audit.binaries.get(index)?.path.display().to_string()),
        Place::Whole => None,
    };
    findings.iter().filter_map(name).collect()
}
