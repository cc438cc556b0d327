//! Comparison of recorded with expected properties.

mod binaries;
mod compile_database;
mod objects;

use crate::audit::Audit;
use crate::expected::Expected;
use crate::finding::{Finding, Severity};

impl Audit {
    /// The same files, checked against other expectations.
    #[must_use]
    pub fn checked_against(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self.findings = check(&self);
        self
    }
}

/// Checks all objects and linked files against the audit's expectations.
fn check(audit: &Audit) -> Vec<Finding> {
    let mut findings = objects::check(audit);
    findings.extend(compile_database::check(audit));
    binaries::check(audit, &mut findings);
    for finding in &mut findings {
        if audit.expected.ignored.contains(&finding.check) {
            finding.severity = Severity::Note;
        }
    }
    findings.sort_by(|a, b| {
        b.severity.cmp(&a.severity).then(a.check.cmp(&b.check)).then(a.location.cmp(&b.location))
    });
    findings
}
