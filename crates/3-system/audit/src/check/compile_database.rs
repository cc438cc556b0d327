//! Checks of each object against the compile database.

use dbdyno_types::FlagCheck as Check;

use crate::audit::Audit;
use crate::effective::{Effective, LtoForm, Profile, StackProtector, is_baseline};
use crate::finding::{Finding, Location, Severity};
use crate::flags::{CommandContext, interpret};
use crate::machine::Machine;
use crate::record::ObjectRecord;

pub(super) fn check(audit: &Audit) -> Vec<Finding> {
    // Without a recorded command line there is nothing to compare the database with.
    let is_compared = |object: &ObjectRecord| object.flags.is_some() && object.is_checked();
    let objects = audit.objects.iter().enumerate().filter(|(_, object)| is_compared(object));
    let objects: Vec<_> = objects
        .filter_map(|(index, object)| Some((index, object, requested(audit, object)?)))
        .collect();
    let defaults = Defaults::of(objects.iter().map(|(_, object, requested)| (requested, *object)));
    let mut findings = Vec::new();
    for (index, object, requested) in objects {
        for (recorded, expected) in differences(&requested, object, &defaults) {
            findings.push(Finding {
                check: Check::CompileDatabaseMismatch,
                severity: Severity::Violation,
                location: Location::Object(index),
                recorded,
                expected: Some(expected),
            });
        }
    }
    findings
}

/// What the database's command for an object requests; `None` if it has none.
fn requested(audit: &Audit, object: &ObjectRecord) -> Option<Effective> {
    let requested = audit.flag_sets.get(object.requested?)?;
    let context = CommandContext {
        compiler: object.effective.compiler.as_ref(),
        language: None,
        machine: Machine::default(),
        macros: false,
    };
    Some(interpret(context, &requested.flags))
}

/// The compiler's defaults, which distributions configure: what all objects have whose commands do not set it.
struct Defaults {
    march: Option<String>,
    stack_protector: StackProtector,
}

impl Defaults {
    fn of<'a>(objects: impl Iterator<Item = (&'a Effective, &'a ObjectRecord)> + Clone) -> Self {
        let marches = objects
            .clone()
            .filter(|(requested, _)| requested.march.is_none())
            .filter_map(|(_, object)| object.effective.march.clone());
        let protectors = objects
            .filter(|(requested, _)| requested.stack_protector.is_none())
            .filter_map(|(_, object)| object.effective.stack_protector);
        Self {
            march: only_one(marches),
            stack_protector: only_one(protectors).unwrap_or(StackProtector::Off),
        }
    }
}

/// The value that all have; `None` if they differ, or there is none.
fn only_one<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// Pairs of recorded and requested values that differ.
fn differences(
    requested: &Effective,
    object: &ObjectRecord,
    defaults: &Defaults,
) -> Vec<(String, String)> {
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
        (None, Some(is)) if !is_baseline(is) && defaults.march.as_deref() != Some(is) => {
            differences.push((format!("-march={is}"), "no -march".to_owned()));
        }
        _ => {}
    }
    let protector = requested.stack_protector.unwrap_or(defaults.stack_protector);
    // One that only the called functions show was set by no flag: it is the compiler's default.
    if let Some(is) = is.stack_protector
        && is != protector
        && is != StackProtector::Some
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
