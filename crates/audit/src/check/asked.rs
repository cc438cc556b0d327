//! Each object against the compile database.

use super::{Check, Finding, Place, Severity};
use crate::Audit;
use crate::effective::{Effective, Lto, Profile, StackProtector, is_baseline};
use crate::flags::{Speaker, interpret};
use crate::read::Machine;
use crate::record::ObjectRecord;

pub(super) fn check(audit: &Audit) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, object) in audit.objects.iter().enumerate() {
        let asked = object.asked.and_then(|set| audit.flag_sets.get(set));
        // Without a record the database itself is what is known.
        if let (Some(asked), true, true) = (asked, object.flags.is_some(), object.is_checked()) {
            let speaker = Speaker {
                compiler: object.effective.compiler.as_ref(),
                language: None,
                machine: Machine::default(),
                macros: false,
            };
            let asked = interpret(speaker, &asked.flags);
            for (recorded, wanted) in differences(&asked, object) {
                findings.push(Finding {
                    check: Check::NotAsAsked,
                    severity: Severity::Offence,
                    place: Place::Object(index),
                    recorded,
                    wanted: Some(wanted),
                });
            }
        }
    }
    findings
}

/// Pairs of what is recorded and what was asked for, where they differ.
fn differences(asked: &Effective, object: &ObjectRecord) -> Vec<(String, String)> {
    let is = &object.effective;
    let mut differences = Vec::new();
    if let (Some(asked), Some(is)) = (asked.optimization, is.optimization)
        && asked != is
    {
        differences.push((format!("-{is}"), format!("-{asked}")));
    }
    if let (Some(asked), Some(is)) = (asked.lto, is.lto)
        && asked.is_on() != is.is_on()
        && is != Lto::Linked
    {
        differences.push((format!("lto {is}"), format!("lto {asked}")));
    }
    match (asked.march.as_deref(), is.march.as_deref()) {
        (Some("native"), Some(is)) if is_baseline(is) => {
            differences.push((format!("-march={is}"), "-march=native".to_owned()));
        }
        (Some("native"), _) => {}
        (Some(asked), Some(is)) if asked != is => {
            differences.push((format!("-march={is}"), format!("-march={asked}")));
        }
        (None, Some(is)) if !is_baseline(is) => {
            differences.push((format!("-march={is}"), "no -march".to_owned()));
        }
        _ => {}
    }
    let protector = asked.stack_protector.unwrap_or(StackProtector::Off);
    if let Some(is) = is.stack_protector
        && is != protector
        && !(is == StackProtector::Some && protector != StackProtector::Off)
    {
        let word = |protector| format!("stack protector {protector}");
        differences.push((word(is), word(protector)));
    }
    if let (Some(asked), Some(is)) = (asked.debug, is.debug)
        && asked != is
    {
        let word = |on| if on { "debug information" } else { "no debug information" }.to_owned();
        differences.push((word(is), word(asked)));
    }
    let profile = asked.profile.unwrap_or(Profile::None);
    if let Some(is) = is.profile
        && is != profile
    {
        differences.push((format!("profile: {is}"), format!("profile: {profile}")));
    }
    differences
}
