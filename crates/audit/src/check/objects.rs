//! Each object against the expectations, and against its neighbours where nobody said anything.

use std::collections::BTreeMap;

use dbdyno_record::FlagCheck as Check;

use super::{Finding, Location, Severity};
use crate::Audit;
use crate::code::{Code, Extension};
use crate::effective::{
    Effective, Fortify, LtoForm, Optimization, Profile, StackProtector, is_baseline,
};
use crate::expected::{ExpectedLto, ExpectedMarch};
use crate::record::ObjectRecord;

/// From this share of functions on, an extension is not chosen at run time but was compiled in.
const LEAKED: f64 = 0.05;

/// Below this share of functions the instruction set of the machine did not arrive.
const ARRIVED: f64 = 0.01;

/// With fewer functions a share means little: one file may have an extension of its own.
const ENOUGH_FUNCTIONS: u64 = 200;

pub(super) fn check(audit: &Audit) -> Vec<Finding> {
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

/// How most objects were compiled: what to compare with where nobody said what was expected.
struct Common {
    optimized: bool,
    any_lto: bool,
    /// Some objects are not the link's.
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

/// A property that is expected, for how many objects it is known and for how many it is not.
#[derive(Default)]
struct Known {
    known: usize,
    unknown: usize,
    expected: String,
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
        // The link generates code with each function's own options; its own are only a default.
        // Where no others are recorded, they are all there is to go by.
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

        match (expected.assertions, effective.assertions) {
            (Some(false), Some(true)) => {
                found.add(Check::AssertionsOn, "assertions".into(), "-DNDEBUG".into());
            }
            (Some(true), Some(false)) => {
                found.add(Check::AssertionsOff, "-DNDEBUG".into(), "assertions".into());
            }
            _ => {}
        }
        found.boolean(
            Check::DebugInformation,
            expected.debug,
            effective.debug,
            "debug information",
        );
        self.count("debug information", expected.debug, effective.debug.is_some());
        found.boolean(
            Check::FramePointers,
            expected.frame_pointers,
            effective.frame_pointers,
            "frame pointers",
        );
        self.count("frame pointers", expected.frame_pointers, effective.frame_pointers.is_some());
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

    fn count<W: std::fmt::Display>(
        &mut self,
        what: &'static str,
        expected: Option<W>,
        known: bool,
    ) {
        let Some(expected) = expected else { return };
        let tally = self.tally.entry(what).or_default();
        tally.expected = expected.to_string();
        if known {
            tally.known += 1;
        } else {
            tally.unknown += 1;
        }
    }

    /// What could not be checked. Where that is so for every object, the claim stands on nothing.
    fn unproven(&mut self) {
        for (what, tally) in &self.tally {
            if tally.unknown == 0 {
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
            self.findings.push(Finding {
                check: Check::Unproven,
                severity: if tally.known == 0 { Severity::Violation } else { Severity::Warning },
                location: Location::Whole,
                recorded,
                expected: Some(tally.expected.clone()),
            });
        }
    }
}

/// What speaks against one object.
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

/// Returns whether anything is known about the instruction set.
fn march(
    found: &mut ObjectFindings,
    expected: Option<&ExpectedMarch>,
    object: &ObjectRecord,
    audit: &Audit,
) -> bool {
    let recorded = object.effective.march.as_deref();
    let Some(expected) = expected else { return recorded.is_some() };
    let check = match expected {
        ExpectedMarch::Baseline => Check::MarchLeaked,
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
                found.push(
                    check,
                    Severity::Violation,
                    described(code, most),
                    Some(expected.to_string()),
                );
            }
        }
        ExpectedMarch::Native | ExpectedMarch::Named(_) => return false,
    }
    true
}

/// Flags such as `-msse4.2` for files that need them; more often right than wrong.
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

/// The extension that most functions use. SSE4 is left out: servers choose it at run time for
/// checksums, and with it alone little changes.
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
    if let (Some(expected), Some(is)) = (expected.stack_protector, effective.stack_protector) {
        let word = |protector: StackProtector| format!("stack protector {protector}");
        match (expected, is) {
            (StackProtector::Off, StackProtector::Off) => {}
            (StackProtector::Off, is) => {
                found.add(Check::HardeningUnexpected, word(is), word(expected));
            }
            (expected, StackProtector::Off) => {
                found.add(Check::HardeningMissing, word(is), word(expected));
            }
            // Which functions it is for is not always recorded.
            (StackProtector::Some, _) | (_, StackProtector::Some) => {}
            (expected, is) if expected != is => {
                found.add(Check::HardeningMissing, word(is), word(expected));
            }
            _ => {}
        }
    }
    if let (Some(expected), Some(is)) = (expected.fortify, effective.fortify) {
        let word = |fortify: Fortify| format!("_FORTIFY_SOURCE {fortify}");
        match (expected.is_on(), is.is_on()) {
            (false, true) => found.add(Check::HardeningUnexpected, word(is), word(expected)),
            (true, false) => found.add(Check::HardeningMissing, word(is), word(expected)),
            _ => {}
        }
    }
    for (expected, is, what) in [
        (expected.stack_clash, effective.stack_clash, "-fstack-clash-protection"),
        (expected.control_flow, effective.control_flow, "-fcf-protection"),
    ] {
        // Where nothing is said it is off, as far as anything is recorded.
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
