//! Flag audits of builds: what is expected of a build, and where its audit is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::{fs, io};

use dbdyno_audit::{
    Audit, AuditError, Check, Effective, Expected, ExpectedMarch, Family, Finding, Fortify,
    Location, ObjectRecord, Profile, Progress, Severity, StackProtector, binary, build_watched,
    difference, find_files, from_json, is_current, to_json,
};
use dbdyno_builds::variant::compile_flags;
use dbdyno_builds::{Build, Cache, CompilerKind, System, Variant};
use dbdyno_results::{
    AuditRecord, CommandLineDifference, CommandLinesRecord, NamedCount, Role, Warning,
};
use dbdyno_types::build::{Hardening, Pgo};

use super::ResolvedCandidate;

/// The file with the audit, in the build's directory.
const STORED: &str = "audit.json";

/// What is expected of a build: its variant, the distribution's flags, its profile and the
/// candidate's extra flags.
///
/// Hardening is checked only if the variant sets it; otherwise what the build system adds is a note.
pub fn expected_of(build: &Build) -> Expected {
    let mut from_flags = Expected::of_flags(&build.flags);
    if from_flags.march == Some(ExpectedMarch::Baseline) {
        from_flags.march = Some(ExpectedMarch::default_of(build.compiler.default_march()));
    }
    let compiler = Some(match build.compiler.name {
        CompilerKind::Gcc => Family::Gcc,
        CompilerKind::Clang => Family::Clang,
    });
    let profile = Some(from_flags.profile.unwrap_or(Profile::None));
    of_variant(&build.settings, Expected { compiler, profile, ..from_flags })
}

/// What is expected of a build of a variant.
pub fn expected_of_variant(variant: &Variant) -> Expected {
    let from_flags = Expected::of_flags(&compile_flags(variant, CompilerKind::Gcc));
    // Profiling flags come with the profile, not with the variant.
    let profile = Some(match variant.pgo {
        Pgo::Instrument => Profile::Use,
        Pgo::Sample => Profile::Samples,
        Pgo::Off => Profile::None,
    });
    of_variant(variant, Expected { profile, ..from_flags })
}

/// Adds what a variant implies in addition to its flags.
fn of_variant(variant: &Variant, from_flags: Expected) -> Expected {
    let mut expected = Expected {
        name: Some(variant.name.clone()),
        assertions: from_flags.assertions.or(Some(variant.assertions)),
        ..from_flags
    };
    if variant.hardening == Hardening::Default {
        expected.ignored.insert(Check::HardeningUnexpected);
    }
    expected
}

/// The audit of a build, checked against [`expected_of`] it: the stored one, or a new one.
///
/// Reads the objects in the build directory. If they have been removed, it reads the program or
/// library, which has less information. `watch` gets the progress every few seconds, from several
/// threads.
pub fn audit_of(
    cache: &Cache,
    build: &Build,
    cancel: &AtomicBool,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Audit, AuditError> {
    let expected = expected_of(build);
    // Prevents removal. In a read-only cache, nothing is removed.
    let _held = cache.lease(&build.fingerprint, cancel);
    if let Some(audit) = stored(build) {
        return Ok(audit.checked_against(expected));
    }
    let audit = make(build, &expected, watch)?;
    // If it cannot be stored, it is made again the next time.
    let _ = store(build, &audit);
    Ok(audit)
}

fn stored(build: &Build) -> Option<Audit> {
    let text = fs::read(build.folder.join(STORED)).ok()?;
    if !is_current(&text) && has_objects(build) {
        // Reading the objects again finds more.
        return None;
    }
    from_json(&text).ok()
}

fn store(build: &Build, audit: &Audit) -> io::Result<()> {
    let path = build.folder.join(STORED);
    let half = build.folder.join(format!("{STORED}.{}", std::process::id()));
    let text = serde_json::to_vec(&to_json(audit, None))?;
    // As the other files of a cached build: one that its group can write to is not trusted.
    let readable = Permissions::from_mode(0o644);
    fs::write(&half, text)
        .and_then(|()| fs::set_permissions(&half, readable))
        .and_then(|()| fs::rename(&half, &path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&half);
        })
}

fn make(
    build: &Build,
    expected: &Expected,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Audit, AuditError> {
    let database = Some(build.compile_database()).filter(|path| path.is_file());
    let database = database.as_deref();
    if !has_objects(build) {
        return binary(&build.artifact, database, expected);
    }
    build_watched(objects_dir(build), &linked(build), database, expected, watch)
}

/// The directory with the objects. A library is compiled in its directory, which may have been moved.
fn objects_dir(build: &Build) -> &Path {
    if build.system.is_server() { &build.tree } else { &build.folder }
}

fn has_objects(build: &Build) -> bool {
    find_files(objects_dir(build)).is_ok_and(|found| !found.objects.is_empty())
}

/// The linked files: the artifact, then the others that are installed with it.
fn linked(build: &Build) -> Vec<PathBuf> {
    let mut linked = vec![build.artifact.clone()];
    let found = find_files(&build.folder).unwrap_or_default();
    linked.extend(found.linked.into_iter().filter(|path| *path != build.artifact));
    linked
}

/// Files listed per difference.
const EXAMPLES: usize = 5;

/// Summarizes an audit, and its difference from the baseline's.
pub(crate) fn record(build: &Build, audit: &Audit, baseline: Option<&Audit>) -> AuditRecord {
    let objects: Vec<&ObjectRecord> =
        audit.objects.iter().filter(|object| object.is_checked()).collect();
    let tally = |word: &dyn Fn(&Effective) -> Option<String>| {
        tallies(objects.iter().filter_map(|object| word(&object.effective)))
    };
    AuditRecord {
        objects: objects.len() as u64,
        // Not only from the program or library. The cache may have been moved.
        from_objects: audit.root.file_name() != build.artifact.file_name(),
        optimization: tally(&|flags| flags.optimization.map(|level| level.to_string())),
        lto: tally(&|flags| flags.lto.map(|form| form.to_string())),
        march: tally(&|flags| flags.march.clone()),
        assertions: tally(&|flags| {
            flags.assertions.map(|on| if on { "on" } else { "off" }.to_owned())
        }),
        profile: tally(&|flags| flags.profile.map(|profile| profile.to_string())),
        hardening: tallies(objects.iter().flat_map(|object| hardening(&object.effective))),
        ignored: ignored(build, audit),
        warnings: tallies(of_severity(audit, Severity::Warning)),
        against_baseline: baseline.map(|baseline| command_lines(audit, baseline)),
    }
}

/// Counts each word, the most frequent first.
fn tallies(words: impl Iterator<Item = String>) -> Vec<NamedCount> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    let mut tallies: Vec<NamedCount> =
        counts.into_iter().map(|(name, count)| NamedCount { name, count }).collect();
    tallies.sort_by_key(|tally| std::cmp::Reverse(tally.count));
    tallies
}

fn hardening(flags: &Effective) -> Vec<String> {
    let mut words = Vec::new();
    match flags.stack_protector {
        None | Some(StackProtector::Off) => {}
        Some(StackProtector::Some) => words.push("stack protector".to_owned()),
        Some(which) => words.push(format!("stack protector {which}")),
    }
    match flags.fortify {
        None | Some(Fortify::Off) => {}
        Some(Fortify::On) => words.push("fortify".to_owned()),
        Some(level) => words.push(format!("fortify {level}")),
    }
    for (on, word) in [(flags.stack_clash, "stack clash"), (flags.control_flow, "control flow")] {
        if on == Some(true) {
            words.push(word.to_owned());
        }
    }
    words
}

fn of_severity(audit: &Audit, severity: Severity) -> impl Iterator<Item = String> {
    let findings = audit.findings.iter().filter(move |finding| finding.severity == severity);
    findings.map(|finding| finding.check.to_string())
}

/// The violations that the experiment ignores.
fn ignored(build: &Build, audit: &Audit) -> Vec<NamedCount> {
    let own = expected_of(build).ignored;
    let by_experiment: Vec<Check> = audit.expected.ignored.difference(&own).copied().collect();
    if by_experiment.is_empty() {
        return Vec::new();
    }
    let strict = audit.clone().checked_against(expected_of(build));
    let violations =
        strict.findings.iter().filter(|finding| finding.severity == Severity::Violation);
    let allowed = violations.filter(|finding| by_experiment.contains(&finding.check));
    tallies(allowed.map(|finding| finding.check.to_string()))
}

/// A warning for each build that has files with flags which its variant does not ask for, and that is
/// measured because the experiment ignores them; and for each of which BOLT optimized a part only.
pub(crate) fn warnings(candidates: &[ResolvedCandidate]) -> Vec<Warning> {
    let all = || candidates.iter().filter(|one| one.role != Role::Control);
    let flags = all().filter_map(|one| warning(&one.name, one.audit.as_deref()?));
    flags
        .chain(all().filter_map(|one| without_bolt(&one.name, one.server_build.as_deref()?)))
        .collect()
}

/// A plugin has the storage engine, and BOLT rewrites the program.
fn without_bolt(candidate: &str, build: &Build) -> Option<Warning> {
    let is_plugin = build.system == System::MariaDb && build.options.myrocks;
    (is_plugin && build.bolt.is_some()).then(|| Warning {
        what: format!("{candidate}: BOLT optimized mariadbd only; MyRocks is a plugin, which is as it was linked"),
        advice: "compare builds with a compiler's profile, which covers the plugin, too".to_owned(),
    })
}

fn warning(candidate: &str, audit: &Audit) -> Option<Warning> {
    let directories = unrequested(audit);
    (!directories.is_empty()).then(|| Warning {
        what: format!("{candidate}: {}", directories.join("; ")),
        advice: "compare it with builds that have the same flags there".to_owned(),
    })
}

/// The directories named in a warning or an error.
const MAX_DIRECTORIES: usize = 3;

/// The directories with flags that the variant does not ask for, in a sentence each.
fn unrequested(audit: &Audit) -> Vec<String> {
    let all = audit.unrequested();
    let mut sentences: Vec<String> =
        all.iter().take(MAX_DIRECTORIES).map(ToString::to_string).collect();
    if all.len() > MAX_DIRECTORIES {
        sentences.push(format!("and {} more of such flags", all.len() - MAX_DIRECTORIES));
    }
    sentences
}

/// Groups the files by their difference.
fn command_lines(audit: &Audit, baseline: &Audit) -> CommandLinesRecord {
    let difference = difference(audit, baseline);
    let mut kinds: BTreeMap<(&[String], &[String]), Vec<&str>> = BTreeMap::new();
    for file in &difference.files {
        kinds.entry((&file.added[..], &file.removed[..])).or_default().push(&file.file);
    }
    let mut kinds: Vec<CommandLineDifference> = kinds
        .into_iter()
        .map(|((added, removed), files)| CommandLineDifference {
            added: added.to_vec(),
            removed: removed.to_vec(),
            files: files.len() as u64,
            examples: files.iter().take(EXAMPLES).map(|file| (*file).to_owned()).collect(),
        })
        .collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.files));
    CommandLinesRecord {
        compared: difference.compared as u64,
        same: difference.same as u64,
        only_here: difference.only_here.len() as u64,
        only_in_baseline: difference.only_in_baseline.len() as u64,
        kinds,
    }
}

/// The objects named per kind of violation.
const MAX_OBJECTS: usize = 10;

/// Describes the violations of a build: the check, what was recorded and expected, and how to
/// ignore it. `None` for a build without violations.
pub(crate) fn refusal(build: &Build, audit: &Audit, cache: Option<&str>) -> Option<String> {
    let violations: Vec<&Finding> =
        audit.findings.iter().filter(|finding| finding.severity == Severity::Violation).collect();
    if violations.is_empty() {
        return None;
    }
    let (variant, name) = (&build.variant, build.fingerprint.short());
    let mut text = format!("the build does not match its variant {variant}:\n");
    for ((check, recorded, expected), findings) in kinds(&violations) {
        let expected =
            expected.map_or_else(String::new, |expected| format!(", expected: {expected}"));
        let names = names(audit, &findings);
        let count = match names.len() {
            0 => String::new(),
            1 => ", in 1 file".to_owned(),
            many => format!(", in {many} files"),
        };
        let meaning = check.meaning();
        let _ = writeln!(text, "  {check} ({meaning}){count}: recorded: {recorded}{expected}");
        for name in names.iter().take(MAX_OBJECTS) {
            let _ = writeln!(text, "    {name}");
        }
        if names.len() > MAX_OBJECTS {
            let _ = writeln!(text, "    … and {} more", names.len() - MAX_OBJECTS);
        }
    }
    for directory in unrequested(audit) {
        let _ = writeln!(text, "  {directory}");
    }
    let checks: BTreeSet<Check> = violations.iter().map(|finding| finding.check).collect();
    let checks: Vec<String> = checks.iter().map(|check| format!("\"{check}\"")).collect();
    let cache = cache.map_or_else(String::new, |cache| format!(" --cache {cache}"));
    let _ = write!(
        text,
        "  for the full audit: dbdyno audit {name}{cache}\n  to measure it anyway, add to the \
         candidate, or to [checks] for all candidates:\n    audit_ignore = [{}]",
        checks.join(", ")
    );
    Some(text)
}

type Kind<'a> = (Check, &'a str, Option<&'a str>);

/// Findings grouped by check and values.
fn kinds<'a>(violations: &[&'a Finding]) -> BTreeMap<Kind<'a>, Vec<&'a Finding>> {
    let mut kinds: BTreeMap<Kind<'a>, Vec<&Finding>> = BTreeMap::new();
    for finding in violations {
        let kind = (finding.check, finding.recorded.as_str(), finding.expected.as_deref());
        kinds.entry(kind).or_default().push(finding);
    }
    kinds
}

fn names(audit: &Audit, findings: &[&Finding]) -> Vec<String> {
    let name = |finding: &&Finding| match finding.location {
        Location::Object(index) => Some(audit.objects.get(index)?.name()),
        Location::Binary(index) => Some(audit.binaries.get(index)?.path.display().to_string()),
        Location::Whole => None,
    };
    findings.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_flags_of_a_directory_are_a_warning() {
        let object = |component: &str, march: &str| ObjectRecord {
            file: Path::new(component).join("a.o"),
            member: None,
            source: None,
            component: component.to_owned(),
            effective: Effective { march: Some(march.to_owned()), ..Effective::default() },
            flags: None,
            requested: None,
            evidence: Vec::new(),
            text: None,
            code: None,
        };
        let audit = |inner: &[&str]| {
            let mut objects = vec![object("sql", "x86-64")];
            objects.extend(inner.iter().map(|inner| object(inner, "haswell")));
            let audit = Audit {
                root: PathBuf::from("/build"),
                expected: Expected::default(),
                objects,
                flag_sets: Vec::new(),
                binaries: Vec::new(),
                findings: Vec::new(),
                unreadable: Vec::new(),
                compile_commands: None,
            };
            audit.checked_against(Expected {
                name: Some("rel".to_owned()),
                march: Some(ExpectedMarch::Baseline),
                ignored: BTreeSet::from([Check::MarchLeaked]),
                ..Expected::default()
            })
        };
        assert_eq!(warning("a", &audit(&[])), None);
        assert_eq!(
            warning("a", &audit(&["storage/rocksdb"])).unwrap().what,
            "a: storage/rocksdb: 1 of 1 file has -march=haswell, which the variant rel does not ask \
             for"
        );
        let many = warning("a", &audit(&["b", "c", "d", "e", "f"])).unwrap().what;
        assert!(many.ends_with("; and 2 more of such flags"), "{many}");
    }

    #[test]
    fn preset_sets_the_expected_profile() {
        let profile = |name| expected_of_variant(&Variant::by_name(name).unwrap()).profile;
        assert_eq!(profile("rel_lto"), Some(Profile::None));
        assert_eq!(profile("rel_lto_pgo"), Some(Profile::Use));
        assert_eq!(profile("rel_pgo_bolt"), Some(Profile::Use));
        assert_eq!(profile("rel_o2_autofdo"), Some(Profile::Samples));
    }
}
