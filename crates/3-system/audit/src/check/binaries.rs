//! Checks of linked files against the expectations.

use dbdyno_types::FlagCheck as Check;

use crate::audit::Audit;
use crate::binary::Binary;
use crate::effective::{Fortify, StackProtector};
use crate::expected::{Expected, ExpectedLto};
use crate::finding::{Finding, Location, Severity};

pub(super) fn check(audit: &Audit, findings: &mut Vec<Finding>) {
    for (index, binary) in audit.binaries.iter().enumerate() {
        for (check, recorded, expected) in binary_violations(binary, &audit.expected) {
            // A finding in an object is more precise. If all readable objects pass, the finding is
            // from a third-party library.
            let in_objects = findings.iter().any(|finding| {
                finding.check == check && matches!(finding.location, Location::Object(_))
            });
            let has_own_objects = audit.objects.iter().any(|object| object.file != binary.path);
            let of_link = matches!(check, Check::LtoMissing | Check::LtoUnexpected);
            if in_objects {
                continue;
            }
            findings.push(Finding {
                check,
                severity: match has_own_objects && !of_link {
                    true => Severity::Warning,
                    false => Severity::Violation,
                },
                location: Location::Binary(index),
                recorded,
                expected: Some(expected),
            });
        }
    }
}

fn binary_violations(binary: &Binary, expected: &Expected) -> Vec<(Check, String, String)> {
    let mut binary_violations = Vec::new();
    let protections = &binary.protections;
    match (expected.lto, binary.link_time_code) {
        (Some(ExpectedLto::None), Some(true)) => binary_violations.push((
            Check::LtoUnexpected,
            "the link generated code".to_owned(),
            ExpectedLto::None.to_string(),
        )),
        (None | Some(ExpectedLto::None), _) | (_, None | Some(true)) => {}
        (Some(expected), Some(false)) => binary_violations.push((
            Check::LtoMissing,
            "the link generated no code".to_owned(),
            expected.to_string(),
        )),
    }
    if expected.assertions == Some(false) && protections.assertions {
        let recorded = "it calls the handler of failed assertions".to_owned();
        binary_violations.push((Check::AssertionsOn, recorded, "-DNDEBUG".to_owned()));
    }
    if expected.stack_protector == Some(StackProtector::Off) && protections.stack_protector {
        let recorded = "it calls the stack protector's handler".to_owned();
        binary_violations.push((
            Check::HardeningUnexpected,
            recorded,
            "stack protector off".to_owned(),
        ));
    }
    if expected.fortify == Some(Fortify::Off) && !protections.fortified.is_empty() {
        let recorded =
            format!("it calls {} checked functions of the C library", protections.fortified.len());
        binary_violations.push((
            Check::HardeningUnexpected,
            recorded,
            "_FORTIFY_SOURCE off".to_owned(),
        ));
    }
    binary_violations
}
