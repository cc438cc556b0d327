//! Checks of each object against the compile database.

use dbdyno_record::FlagCheck as Check;

use crate::audit::Audit;
use crate::effective::{Effective, LtoForm, Profile, StackProtector, is_baseline};
use crate::finding::{Finding, Location, Severity};
use crate::flags::{CommandContext, interpret};
use crate::machine::Machine;
use crate::record::ObjectRecord;

pub(super) fn check(audit: &Audit) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, object) in audit.objects.iter().enumerate() {
        let requested = object.requested.and_then(|set| audit.flag_sets.get(set));
        // Without a recorded command line there is nothing to compare the database with.
        if let (Some(requested), true, true) =
            (requested, object.flags.is_some(), object.is_checked())
        {
            let context = CommandContext {
                compiler: object.effective.compiler.as_ref(),
                language: None,
                machine: Machine::default(),
                macros: false,
            };
            let requested = interpret(context, &requested.flags);
            for (recorded, expected) in differences(&requested, object) {
                findings.push(Finding {
                    check: Check::CompileDatabaseMismatch,
                    severity: Severity::Violation,
                    location: Location::Object(index),
                    recorded,
                    expected: Some(expected),
                });
            }
        }
    }
    findings
}

/// Pairs of recorded and requested values that differ.
fn differences(requested: &Effective, object: &ObjectRecord) -> Vec<(String, String)> {
    let is = &object.effective;
    let mut differences = Vec::new();
    if let (Some(requested), Some(is)) = (requested.optimization, is.optimization)
        && requested != is
    {
        differences.push((format!("-{is}"), format!("-{requested}")));
    }
    if let (Some(requested), Some(is)) = (requested.lto, is.lto)
        && requested.is_on() != is.is_on()
        && is != LtoForm::Linked
    {
        differences.push((format!("lto {is}"), format!("lto {requested}")));
    }
    match (requested.march.as_deref(), is.march.as_deref()) {
        (Some("native"), Some(is)) if is_baseline(is) => {
            differences.push((format!("-march={is}"), "-march=native".to_owned()));
        }
        (Some("native"), _) => {}
        (Some(requested), Some(is)) if requested != is => {
            differences.push((format!("-march={is}"), format!("-march={requested}")));
        }
        (None, Some(is)) if !is_baseline(is) => {
            differences.push((format!("-march={is}"), "no -march".to_owned()));
        }
        _ => {}
    }
    let protector = requested.stack_protector.unwrap_or(StackProtector::Off);
    if let Some(is) = is.stack_protector
        && is != protector
        && !(is == StackProtector::Some && protector != StackProtector::Off)
    {
        let word = |protector| format!("stack protector {protector}");
        differences.push((word(is), word(protector)));
    }
    if let (Some(requested), Some(is)) = (requested.debug, is.debug)
        && requested != is
    {
        let word = |on| if on { "debug information" } else { "no debug information" }.to_owned();
        differences.push((word(is), word(requested)));
    }
    let profile = requested.profile.unwrap_or(Profile::None);
    if let Some(is) = is.profile
        && is != profile
    {
        differences.push((format!("profile: {is}"), format!("profile: {profile}")));
    }
    differences
}
