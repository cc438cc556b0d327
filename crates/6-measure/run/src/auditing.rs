//! Flag audits of builds: what is expected of a build, and where its audit is stored.

pub(crate) mod record;
pub(crate) mod refusal;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use dbdyno_audit::{
    Audit, AuditError, Check, Expected, ExpectedMarch, Family, Profile, Progress, binary,
    build_watched, find_files, from_json, is_current, to_json,
};
use dbdyno_builds::variant::compile_flags;
use dbdyno_builds::{Build, Cache, CompilerKind, Variant};
use dbdyno_types::build::{Hardening, Pgo};

/// The file with the audit, in the build's directory.
const STORED: &str = "audit.json";

/// The interval of progress messages.
const PERIOD: Duration = Duration::from_secs(2);

/// What is expected of a build: its variant, the distribution's flags, its profile and the
/// candidate's extra flags.
///
/// Hardening is checked only if the variant sets it; otherwise what the build system adds is a note.
#[must_use]
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
#[must_use]
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
///
/// # Errors
/// Its files cannot be read.
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

/// Whether an audit has read the objects, not only the program or library.
pub(crate) fn is_of_objects(build: &Build, audit: &Audit) -> bool {
    // The cache may have been moved.
    audit.root.file_name() != build.artifact.file_name()
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
    fs::write(&half, text).and_then(|()| fs::rename(&half, &path)).inspect_err(|_| {
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
    let last_report = Mutex::new(Instant::now());
    build_watched(objects_dir(build), &linked(build), database, expected, &|progress| {
        // Another thread is reporting.
        let Ok(mut last_report) = last_report.try_lock() else { return };
        if last_report.elapsed() >= PERIOD {
            *last_report = Instant::now();
            watch(progress);
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_sets_the_expected_profile() {
        let profile = |name| expected_of_variant(&Variant::by_name(name).unwrap()).profile;
        assert_eq!(profile("rel_lto"), Some(Profile::None));
        assert_eq!(profile("rel_lto_pgo"), Some(Profile::Use));
        assert_eq!(profile("rel_pgo_bolt"), Some(Profile::Use));
        assert_eq!(profile("rel_o2_autofdo"), Some(Profile::Samples));
    }
}
