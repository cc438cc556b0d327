//! Comparison of recorded with expected properties.

use std::collections::BTreeMap;
use std::fmt::Display;

use dbdyno_types::FlagCheck as Check;

use crate::audit::{Audit, Finding, Location, ObjectRecord, Severity};
use crate::binary::{Binary, Code, Extension, Protections};
use crate::effective::{
    Effective, Fortify, LtoForm, Optimization, Profile, StackProtector, is_baseline,
};
use crate::expected::{Expected, ExpectedLto, ExpectedMarch};
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

fn check_binaries(audit: &Audit, findings: &mut Vec<Finding>) {
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
    let mut violations = Vec::new();
    let mut add = |check, recorded: &str, expected: &str| {
        violations.push((check, recorded.to_owned(), expected.to_owned()));
    };
    let protections = &binary.protections;
    match (expected.lto, binary.link_time_code) {
        (Some(ExpectedLto::None), Some(true)) => {
            let expected = ExpectedLto::None.to_string();
            add(Check::LtoUnexpected, "the link generated code", &expected);
        }
        (None | Some(ExpectedLto::None), _) | (_, None | Some(true)) => {}
        (Some(expected), Some(false)) => {
            add(Check::LtoMissing, "the link generated no code", &expected.to_string());
        }
    }
    if expected.assertions == Some(false) && protections.assertions {
        add(Check::AssertionsOn, "it calls the handler of failed assertions", "-DNDEBUG");
    }
    if expected.stack_protector == Some(StackProtector::Off) && protections.stack_protector {
        let recorded = "it calls the stack protector's handler";
        add(Check::HardeningUnexpected, recorded, "stack protector off");
    }
    if expected.fortify == Some(Fortify::Off) && !protections.fortified.is_empty() {
        let count = protections.fortified.len();
        let recorded = format!("it calls {count} checked functions of the C library");
        add(Check::HardeningUnexpected, &recorded, "_FORTIFY_SOURCE off");
    }
    violations
}

fn check_database(audit: &Audit) -> Vec<Finding> {
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
        ..CommandContext::default()
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

/// From this share of functions on, an extension is considered compiled in, not selected at run
/// time.
const LEAKED: f64 = 0.05;

/// Below this share of functions, `-march=native` is considered not applied.
const ARRIVED: f64 = 0.01;

/// With fewer functions, shares are unreliable: one file may use an extension on purpose.
const ENOUGH_FUNCTIONS: u64 = 200;

fn check_objects(audit: &Audit) -> Vec<Finding> {
    let mut judge = Checker { audit, findings: Vec::new(), tally: BTreeMap::new() };
    let common = Common::of(audit);
    for (index, object) in audit.objects.iter().enumerate() {
        if object.is_checked() {
            judge.object(index, object, &common);
        }
    }
    judge.unproven();
    judge.findings
}

/// How most objects were compiled; used for comparison without expectations.
struct Common {
    optimized: bool,
    any_lto: bool,
    /// Whether some objects were not generated by the linker.
    any_compiled: bool,
    all_lto: bool,
}

impl Common {
    fn of(audit: &Audit) -> Self {
        let checked = || audit.objects.iter().filter(|object| object.is_checked());
        let levels = || checked().filter_map(|object| object.effective.optimization);
        let optimized = levels().filter(|level| *level != Optimization::O0).count();
        let forms = || checked().filter_map(|object| object.effective.lto);
        Self {
            optimized: optimized * 2 > levels().count(),
            any_compiled: forms().any(|form| form != LtoForm::Linked),
            any_lto: forms().any(LtoForm::is_on),
            all_lto: forms().all(LtoForm::is_on),
        }
    }
}

/// An expected property: the number of objects for which it is known or unknown.
#[derive(Default)]
struct Known {
    known: usize,
    unknown: usize,
    expected: String,
    /// Whether it shows only in objects that call certain functions, so that many show nothing.
    by_calls: bool,
}

struct Checker<'a> {
    audit: &'a Audit,
    findings: Vec<Finding>,
    tally: BTreeMap<&'static str, Known>,
}

impl Checker<'_> {
    fn object(&mut self, index: usize, object: &ObjectRecord, common: &Common) {
        let expected = &self.audit.expected;
        let effective = &object.effective;
        // The linker generates code with each function's own options; the unit's options are only
        // defaults. If no others are recorded, they are the only evidence.
        let linked = effective.lto == Some(LtoForm::Linked) && common.any_compiled;
        let severity = if linked { Severity::Warning } else { Severity::Violation };
        let mut found = ObjectFindings { index, severity, findings: Vec::new() };

        match (expected.optimization, effective.optimization) {
            (Some(expected), Some(level)) if level != expected => {
                let check = match level {
                    Optimization::O0 => Check::Unoptimized,
                    _ => Check::OptimizationLevel,
                };
                found.add(check, format!("-{level}"), format!("-{expected}"));
            }
            (None, Some(Optimization::O0)) if common.optimized && !linked => {
                found.suspect(Check::Unoptimized, "-O0, unlike most others");
            }
            _ => {}
        }
        self.count("optimization", expected.optimization, effective.optimization.is_some());

        lto(&mut found, expected.lto, effective, common);
        self.count("link-time optimization", expected.lto, effective.lto.is_some());

        let march_known = march(&mut found, expected.march.as_ref(), object, self.audit);
        self.count("instruction set", expected.march.as_ref(), march_known);

        hardening(&mut found, object, self.audit);
        let protector = effective.stack_protector.is_some();
        self.count("stack protector", expected.stack_protector, protector);

        let fortified = effective.fortify.is_some()
            || self.in_linked(|protections| !protections.fortified.is_empty());
        let fortify = expected.fortify.filter(|fortify| fortify.is_on());
        self.count_calls("_FORTIFY_SOURCE", fortify, fortified);
        let asserts =
            effective.assertions.is_some() || self.in_linked(|protections| protections.assertions);
        self.count_calls("assertions", expected.assertions.filter(|on| *on), asserts);
        // Without their flags they are off, if a command line is recorded.
        let stack_clash = object.flags.is_some() || effective.stack_clash.is_some();
        let expected_clash = expected.stack_clash.filter(|on| *on);
        self.count("-fstack-clash-protection", expected_clash, stack_clash);
        let control_flow = object.flags.is_some() || effective.control_flow.is_some();
        let expected_flow = expected.control_flow.filter(|on| *on);
        self.count("-fcf-protection", expected_flow, control_flow);

        match (expected.assertions, effective.assertions) {
            (Some(false), Some(true)) => {
                found.add(Check::AssertionsOn, "assertions".into(), "-DNDEBUG".into());
            }
            (Some(true), Some(false)) => {
                found.add(Check::AssertionsOff, "-DNDEBUG".into(), "assertions".into());
            }
            _ => {}
        }
        for (check, expected, is, what) in [
            (Check::DebugInformation, expected.debug, effective.debug, "debug information"),
            (
                Check::FramePointers,
                expected.frame_pointers,
                effective.frame_pointers,
                "frame pointers",
            ),
        ] {
            found.boolean(check, expected, is, what);
            self.count(what, expected, is.is_some());
        }
        profile(&mut found, expected.profile, effective);
        self.count("profile", expected.profile, effective.profile.is_some());
        if let (Some(expected), Some(used)) = (expected.compiler, &effective.compiler)
            && used.family != expected
        {
            found.add(Check::Compiler, used.to_string(), expected.to_string());
        }
        self.count("compiler", expected.compiler, effective.compiler.is_some());
        self.findings.extend(found.findings);
    }

    fn count<W: Display>(&mut self, what: &'static str, expected: Option<W>, known: bool) {
        let Some(expected) = expected else { return };
        let tally = self.tally.entry(what).or_default();
        tally.expected = expected.to_string();
        if known {
            tally.known += 1;
        } else {
            tally.unknown += 1;
        }
    }

    /// As [`Self::count`], for a property that shows only in objects that call certain functions.
    fn count_calls<W: Display>(&mut self, what: &'static str, expected: Option<W>, known: bool) {
        self.count(what, expected, known);
        if let Some(tally) = self.tally.get_mut(what) {
            tally.by_calls = true;
        }
    }

    /// Whether a linked file shows it. Objects of link-time optimization have no calls yet.
    fn in_linked(&self, shows: impl Fn(&Protections) -> bool) -> bool {
        self.audit.binaries.iter().any(|binary| shows(&binary.protections))
    }

    /// Reports what could not be checked: a violation if it is unknown for all objects, else a
    /// warning.
    fn unproven(&mut self) {
        let mut add = |severity, recorded, expected: &str| {
            let expected = Some(expected.to_owned());
            let (check, location) = (Check::Unproven, Location::Whole);
            self.findings.push(Finding { check, severity, location, recorded, expected });
        };
        let is_empty = !self.audit.objects.iter().any(ObjectRecord::is_checked);
        if is_empty && self.audit.expected != Expected::default() {
            add(Severity::Violation, "no objects".to_owned(), "at least one object to check");
        }
        for (what, tally) in &self.tally {
            if tally.unknown == 0 || (tally.by_calls && tally.known > 0) {
                continue;
            }
            let recorded = match tally.known {
                0 => format!("{what}: not recorded in any object"),
                known => format!(
                    "{what}: not recorded in {} of {} objects",
                    tally.unknown,
                    known + tally.unknown
                ),
            };
            let is_unknown = tally.known == 0;
            let severity = if is_unknown { Severity::Violation } else { Severity::Warning };
            add(severity, recorded, &tally.expected);
        }
    }
}

/// The findings of one object.
struct ObjectFindings {
    index: usize,
    severity: Severity,
    findings: Vec<Finding>,
}

impl ObjectFindings {
    fn add(&mut self, check: Check, recorded: String, expected: String) {
        self.push(check, self.severity, recorded, Some(expected));
    }

    fn suspect(&mut self, check: Check, recorded: &str) {
        self.push(check, Severity::Warning, recorded.to_owned(), None);
    }

    fn push(
        &mut self,
        check: Check,
        severity: Severity,
        recorded: String,
        expected: Option<String>,
    ) {
        let location = Location::Object(self.index);
        self.findings.push(Finding { check, severity, location, recorded, expected });
    }

    /// Compares the ways of a protection; `any` is one of the ways other than `off`.
    fn protection<W: PartialEq + Display>(
        &mut self,
        what: &str,
        expected: Option<W>,
        is: Option<W>,
        (off, any): (W, W),
    ) {
        let (Some(expected), Some(is)) = (expected, is) else { return };
        let is_on = |way: &W| *way != off;
        if expected == is || is_on(&expected) && is_on(&is) && (expected == any || is == any) {
            return;
        }
        let check = match is_on(&expected) {
            true => Check::HardeningMissing,
            false => Check::HardeningUnexpected,
        };
        self.add(check, format!("{what} {is}"), format!("{what} {expected}"));
    }

    fn boolean(&mut self, check: Check, expected: Option<bool>, is: Option<bool>, what: &str) {
        if let (Some(expected), Some(is)) = (expected, is)
            && expected != is
        {
            let word = |on: bool| if on { what.to_owned() } else { format!("no {what}") };
            self.add(check, word(is), word(expected));
        }
    }
}

fn lto(
    found: &mut ObjectFindings,
    expected: Option<ExpectedLto>,
    effective: &Effective,
    common: &Common,
) {
    let Some(form) = effective.lto else { return };
    let Some(expected) = expected else {
        if common.any_lto && !common.all_lto && !form.is_on() {
            found.suspect(Check::LtoPartial, "none, unlike others");
        }
        return;
    };
    if expected.is_met_by(form) {
        return;
    }
    let check = match (expected, form.is_on()) {
        (ExpectedLto::None, _) => Check::LtoUnexpected,
        (_, true) => Check::LtoForm,
        (_, false) if common.any_lto => Check::LtoPartial,
        (_, false) => Check::LtoMissing,
    };
    found.add(check, form.to_string(), expected.to_string());
}

/// Checks the instruction set. Returns whether anything is known about it.
fn march(
    found: &mut ObjectFindings,
    expected: Option<&ExpectedMarch>,
    object: &ObjectRecord,
    audit: &Audit,
) -> bool {
    let recorded = object.effective.march.as_deref();
    let Some(expected) = expected else { return recorded.is_some() };
    let check = match expected {
        ExpectedMarch::Baseline | ExpectedMarch::Default(_) => Check::MarchLeaked,
        ExpectedMarch::Native | ExpectedMarch::Named(_) => Check::MarchMissing,
    };
    if let Some(march) = recorded {
        if !expected.is_met_by(march) {
            found.add(check, format!("-march={march}"), expected.to_string());
        } else if is_baseline(march) && *expected == ExpectedMarch::Baseline {
            extension_flags(found, object, audit);
        }
        return true;
    }
    let Some(code) = &object.code else { return false };
    match expected {
        ExpectedMarch::Baseline => leaked_code(found, code),
        ExpectedMarch::Native if code.functions >= ENOUGH_FUNCTIONS => {
            let most = most_used(code);
            if most.is_none_or(|(_, share)| share < ARRIVED) {
                let expected = Some(expected.to_string());
                found.push(check, Severity::Violation, described(code, most), expected);
            }
        }
        ExpectedMarch::Native | ExpectedMarch::Named(_) | ExpectedMarch::Default(_) => {
            return false;
        }
    }
    true
}

/// Notes flags such as `-msse4.2`, which are usually set on purpose for files that need them.
fn extension_flags(found: &mut ObjectFindings, object: &ObjectRecord, audit: &Audit) {
    const EXTENSIONS: [&str; 12] = [
        "-msse3",
        "-mssse3",
        "-msse4",
        "-mavx",
        "-mbmi",
        "-mfma",
        "-mpclmul",
        "-maes",
        "-mpopcnt",
        "-mlzcnt",
        "-mmovbe",
        "-mvpclmul",
    ];
    let Some(set) = object.flags.and_then(|set| audit.flag_sets.get(set)) else { return };
    let extensions: Vec<&str> = set
        .flags
        .iter()
        .filter(|flag| EXTENSIONS.iter().any(|extension| flag.starts_with(extension)))
        .map(String::as_str)
        .collect();
    if !extensions.is_empty() {
        let expected = Some(ExpectedMarch::Baseline.to_string());
        found.push(Check::ExtensionFlags, Severity::Note, extensions.join(" "), expected);
    }
}

fn leaked_code(found: &mut ObjectFindings, code: &Code) {
    let most = most_used(code);
    if most.is_some_and(|(_, share)| share >= LEAKED) {
        let severity = match code.functions >= ENOUGH_FUNCTIONS {
            true => Severity::Violation,
            false => Severity::Warning,
        };
        let expected = Some(ExpectedMarch::Baseline.to_string());
        found.push(Check::MarchLeaked, severity, described(code, most), expected);
    }
}

/// The extension that most functions use, except SSE4: servers select it at run time for checksums,
/// and it alone has little effect.
fn most_used(code: &Code) -> Option<(Extension, f64)> {
    code.extensions
        .keys()
        .filter(|extension| **extension != Extension::Sse4)
        .map(|extension| (*extension, code.share(*extension).as_fraction()))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

fn described(code: &Code, most: Option<(Extension, f64)>) -> String {
    match most {
        Some((extension, _)) => format!(
            "{extension} in {} of {} functions",
            code.extensions.get(&extension).map_or(0, |used| used.functions),
            code.functions
        ),
        None => format!("no extensions in {} functions", code.functions),
    }
}

fn hardening(found: &mut ObjectFindings, object: &ObjectRecord, audit: &Audit) {
    let expected = &audit.expected;
    let effective = &object.effective;
    // Which functions are protected, and the level of checks, are not always recorded.
    let (protector, fortify) = (expected.stack_protector, expected.fortify);
    let ways = (StackProtector::Off, StackProtector::Some);
    found.protection("stack protector", protector, effective.stack_protector, ways);
    found.protection("_FORTIFY_SOURCE", fortify, effective.fortify, (Fortify::Off, Fortify::On));
    for (expected, is, what) in [
        (expected.stack_clash, effective.stack_clash, "-fstack-clash-protection"),
        (expected.control_flow, effective.control_flow, "-fcf-protection"),
    ] {
        // Off without a flag, if a command line is recorded.
        let is = is.or(object.flags.map(|_| false));
        let check = match expected {
            Some(true) => Check::HardeningMissing,
            _ => Check::HardeningUnexpected,
        };
        found.boolean(check, expected, is, what);
    }
}

fn profile(found: &mut ObjectFindings, expected: Option<Profile>, effective: &Effective) {
    let Some(is) = effective.profile else { return };
    match expected {
        Some(expected) if expected != is => {
            let check = match is {
                Profile::Generate => Check::Instrumented,
                _ => Check::Profile,
            };
            found.add(check, format!("profile: {is}"), format!("profile: {expected}"));
        }
        None if is == Profile::Generate => {
            found.suspect(Check::Instrumented, "it counts for a profile");
        }
        _ => {}
    }
}
