//! The sample with flag audits: one build has exceptions, one has ignored violations.

use dbdyno_results::{AuditRecord, CommandLineDifference, CommandLinesRecord, NamedCount};

use crate::model::{Report, Role};

const OBJECTS: u64 = 912;

/// The sample with only these microbenchmarks and builds of many objects.
#[must_use]
pub fn audited(microbenchmarks: &[&str]) -> Report {
    let mut report = super::report_of(microbenchmarks);
    for candidate in &mut report.candidates {
        let Some(build) = &mut candidate.build else { continue };
        build.audit = Some(match (candidate.role, candidate.name.as_str()) {
            (Role::Candidate, "rel") => rel(),
            (Role::Candidate, name) => native(name.ends_with("lto")),
            _ => plain("O2"),
        });
    }
    report
}

fn tallies(all: &[(&str, u64)]) -> Vec<NamedCount> {
    all.iter().map(|(what, count)| NamedCount { name: (*what).to_owned(), count: *count }).collect()
}

fn plain(level: &str) -> AuditRecord {
    AuditRecord {
        objects: OBJECTS,
        from_objects: true,
        optimization: tallies(&[(level, OBJECTS)]),
        lto: tallies(&[("none", OBJECTS)]),
        march: tallies(&[("x86-64", OBJECTS)]),
        assertions: tallies(&[("off", OBJECTS)]),
        profile: tallies(&[("none", OBJECTS)]),
        ..AuditRecord::default()
    }
}

fn kind(added: &[&str], removed: &[&str], files: u64) -> CommandLineDifference {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let examples = ["src/port/pg_crc32c_sse42.c", "src/backend/storage/page/checksum.c"];
    CommandLineDifference {
        added: words(added),
        removed: words(removed),
        files,
        examples: words(&examples[..usize::try_from(files).unwrap_or(2).min(2)]),
    }
}

/// Without debug information; some files have another optimization level.
fn rel() -> AuditRecord {
    AuditRecord {
        optimization: tallies(&[("O3", OBJECTS - 7), ("O2", 5), ("O0", 2)]),
        ignored: tallies(&[("optimization-level", 5), ("unoptimized", 2)]),
        against_baseline: Some(CommandLinesRecord {
            compared: OBJECTS,
            same: 5,
            kinds: vec![
                kind(&["-O3"], &["-O2", "-g"], OBJECTS - 7),
                kind(&["-O0"], &["-O2", "-g"], 2),
            ],
            ..CommandLinesRecord::default()
        }),
        ..plain("O3")
    }
}

/// Hardened, with more kinds of differences than a terminal shows.
fn native(lto: bool) -> AuditRecord {
    let added = ["-O3", "-march=znver3", "-mtune=znver3", "-fstack-protector-strong"];
    let mut all = added.to_vec();
    if lto {
        all.push("-flto=auto");
    }
    let mut kinds = vec![kind(&all, &["-O2", "-g"], OBJECTS - 10)];
    kinds.extend((1..=4).map(|more| kind(&all[..more], &["-O2"], 1)));
    AuditRecord {
        lto: if lto {
            tallies(&[("slim", OBJECTS - 3), ("none", 3)])
        } else {
            tallies(&[("none", OBJECTS)])
        },
        march: tallies(&[("znver3", OBJECTS)]),
        hardening: tallies(&[("fortify 2", OBJECTS), ("stack protector strong", OBJECTS)]),
        warnings: if lto { tallies(&[("lto-partial", 3)]) } else { Vec::new() },
        against_baseline: Some(CommandLinesRecord {
            compared: OBJECTS - 6,
            same: 0,
            only_here: 6,
            only_in_baseline: 1,
            kinds,
        }),
        ..plain("O3")
    }
}
