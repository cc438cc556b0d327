//! Comparison of recorded with expected properties.

mod objects;

use dbdyno_types::FlagCheck as Check;
use objects::check_objects;

use crate::audit::{Audit, Finding, Location, ObjectRecord, Severity};
use crate::binary::Binary;
use crate::effective::{
    Effective, Fortify, LtoForm, Machine, Profile, StackProtector, is_baseline,
};
use crate::expected::{Expected, ExpectedLto};
use crate::flags::{CommandContext, interpret};

impl Audit {
    /// The same files, checked against other expectations.
    pub fn checked_against(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self.findings = check(&self);
        self
    }
}

/// Checks all objects and linked files against the audit's expectations.
fn check(audit: &Audit) -> Vec<Finding> {
    let mut findings = check_objects(audit);
    findings.extend(check_database(audit));
    check_binaries(audit, &mut findings);
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

pub(super) fn check_binaries(audit: &Audit, findings: &mut Vec<Finding>) {
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

pub(super) fn check_database(audit: &Audit) -> Vec<Finding> {
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
