//! Linked files against the intent.

use super::{Check, Finding, Place, Severity};
use crate::Audit;
use crate::binary::Binary;
use crate::effective::{Fortify, StackProtector};
use crate::intent::{Intent, WantedLto};

pub(super) fn check(audit: &Audit, findings: &mut Vec<Finding>) {
    for (index, binary) in audit.binaries.iter().enumerate() {
        for (check, recorded, wanted) in objections(binary, &audit.intent) {
            // Objects tell more exactly where it is from. Where all of those that can be read are
            // in order, it is from a library of somebody else.
            let in_objects = findings
                .iter()
                .any(|finding| finding.check == check && finding.place != Place::Whole);
            let has_own_objects = audit.objects.iter().any(|object| object.file != binary.path);
            let of_link = matches!(check, Check::LtoMissing | Check::LtoUnasked);
            if in_objects {
                continue;
            }
            findings.push(Finding {
                check,
                severity: match has_own_objects && !of_link {
                    true => Severity::Warning,
                    false => Severity::Offence,
                },
                place: Place::Binary(index),
                recorded,
                wanted: Some(wanted),
            });
        }
    }
}

fn objections(binary: &Binary, intent: &Intent) -> Vec<(Check, String, String)> {
    let mut objections = Vec::new();
    let protections = &binary.protections;
    match (intent.lto, binary.link_time_code) {
        (Some(WantedLto::None), Some(true)) => objections.push((
            Check::LtoUnasked,
            "the link generated code".to_owned(),
            WantedLto::None.to_string(),
        )),
        (None | Some(WantedLto::None), _) | (_, None | Some(true)) => {}
        (Some(wanted), Some(false)) => objections.push((
            Check::LtoMissing,
            "the link generated no code".to_owned(),
            wanted.to_string(),
        )),
    }
    if intent.assertions == Some(false) && protections.assertions {
        let recorded = "it calls the handler of failed assertions".to_owned();
        objections.push((Check::AssertionsOn, recorded, "-DNDEBUG".to_owned()));
    }
    if intent.stack_protector == Some(StackProtector::Off) && protections.stack_protector {
        let recorded = "it calls the stack protector's handler".to_owned();
        objections.push((Check::HardeningUnasked, recorded, "stack protector off".to_owned()));
    }
    if intent.fortify == Some(Fortify::Off) && !protections.fortified.is_empty() {
        let recorded =
            format!("it calls {} checked functions of the C library", protections.fortified.len());
        objections.push((Check::HardeningUnasked, recorded, "_FORTIFY_SOURCE off".to_owned()));
    }
    objections
}
