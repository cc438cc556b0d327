//! `dbdyno builds`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use dbdyno_builds::{Build, Cache, CacheDir, CacheEntry, CacheEntryKind};
use dbdyno_run::{CandidateBuild, CandidateRelease, Options, make_candidates};
use dbdyno_units::Bytes;

use crate::args::{Builds, BuildsAction, CleanBuilds, MakeBuilds};
use crate::commands::session::{INTERRUPTED, options, read_experiment, stop_on_signals};
use crate::error::CliError;
use crate::output::{self, Display};

pub fn builds(args: &Builds) -> Result<ExitCode, CliError> {
    let root = CacheDir::chosen_or_default(args.cache.as_deref())?;
    match &args.action {
        BuildsAction::List => output::print(&list(&root)),
        BuildsAction::Make(what) => return make(&root, what),
        BuildsAction::Clean(what) => clean(&root, what)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(root: &CacheDir) -> String {
    let all = Cache::new(root).inventory();
    let builds: BTreeMap<String, &Build> = all.iter().filter_map(build_of).collect();
    let mut lines: Vec<(usize, String, String)> = all
        .iter()
        .map(|entry| {
            let (kind, name, what) = row(entry, &builds);
            let line = format!("{:>10}  {:<8} {name}", entry.size.to_string(), KINDS[kind]);
            let gap = if what.is_empty() { "" } else { "  " };
            (kind, format!("{what} {name}"), format!("  {line}{gap}{what}\n"))
        })
        .collect();
    lines.sort();
    let mut text = format!("Build cache {}\n", root.path().display());
    text.extend(lines.into_iter().map(|(.., line)| line));
    let total = Bytes::from_bytes(all.iter().map(|entry| entry.size.as_bytes()).sum());
    let _ = writeln!(text, "  {:>10}  total", total.to_string());
    text
}

/// Kinds of cache entries, in the order of the list.
const KINDS: [&str; 7] = ["build", "tree", "failed", "profile", "release", "source", "download"];

fn build_of(entry: &CacheEntry) -> Option<(String, &Build)> {
    match &entry.kind {
        CacheEntryKind::Build(build) => Some((build.fingerprint.short(), build)),
        _ => None,
    }
}

/// The index of its kind, its name and its description.
fn row(entry: &CacheEntry, builds: &BTreeMap<String, &Build>) -> (usize, String, String) {
    let name = entry.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let short: String = name.chars().take(12).collect();
    match &entry.kind {
        CacheEntryKind::Build(build) => (0, short, describe(build)),
        CacheEntryKind::UnreadableBuild => {
            (0, short, "unreadable: damaged, or of another version of dbdyno".to_owned())
        }
        CacheEntryKind::Tree => {
            let of = builds.get(&short).map_or_else(
                || "objects of an incomplete build".to_owned(),
                |build| format!("objects of {}", describe(build)),
            );
            (1, short, of)
        }
        CacheEntryKind::Failed => (2, short, "log of a failed build".to_owned()),
        CacheEntryKind::Profile(trained_on) => (3, short, format!("trained on {trained_on}")),
        CacheEntryKind::Release(of) => (4, name, of.clone()),
        CacheEntryKind::Source => (5, name, String::new()),
        CacheEntryKind::Download => (6, name, String::new()),
    }
}

fn describe(build: &Build) -> String {
    format!("{build}{}", stage(build))
}

/// What distinguishes builds of one variant.
fn stage(build: &Build) -> &'static str {
    match (build.instrumented, &build.bolt) {
        (true, _) => ", instrumented",
        (false, None) if build.settings.bolt => ", linked for BOLT",
        (false, _) => "",
    }
}

fn clean(root: &CacheDir, what: &CleanBuilds) -> Result<(), CliError> {
    let cache = Cache::new(root);
    let matches = |entry: &&CacheEntry| {
        let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
        let named = what.names.iter().any(|start| name.starts_with(start));
        let tree = matches!(entry.kind, CacheEntryKind::Tree | CacheEntryKind::Failed);
        what.all || named || (what.trees && tree)
    };
    let all = cache.inventory();
    if let Some(name) = what.names.iter().find(|start| {
        !all.iter().any(|entry| {
            entry.path.file_name().unwrap_or_default().to_string_lossy().starts_with(*start)
        })
    }) {
        let message = format!("no cache entry named `{name}`: see `dbdyno builds list`");
        return Err(CliError::Usage(message));
    }
    let mut freed = 0;
    for entry in all.iter().filter(matches) {
        let removed = cache.remove(entry).map_err(CliError::write(&entry.path))?;
        if removed {
            freed += entry.size.as_bytes();
        } else {
            output::note(&format!("{} is in use and was not removed", entry.path.display()));
        }
    }
    output::print(&format!("{} freed\n", Bytes::from_bytes(freed)));
    Ok(())
}

/// Builds all candidates that an experiment compiles, fetches the releases of others, and prints them.
fn make(root: &CacheDir, what: &MakeBuilds) -> Result<ExitCode, CliError> {
    let (experiment, _) = read_experiment(&what.file)?;
    let cancel = stop_on_signals("stopping")?;
    let display = Display::new();
    let progress = |event: dbdyno_run::RunEvent<'_>| display.show(&event);
    let options =
        Options { cache: Some(root.path().to_owned()), ..options(cancel.clone(), &progress)? };
    let made = make_candidates(&experiment, &options);
    display.finish();
    if made.is_err() && cancel.load(Ordering::Relaxed) {
        output::note("stopped; run the same command again to resume");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let (releases, builds) = made?;
    if releases.is_empty() && builds.is_empty() {
        let file = what.file.display();
        output::print(&format!("{file} has no candidates to compile or to fetch.\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("Build cache {}\n", root.path().display());
    if !releases.is_empty() {
        text.push_str(&table(
            ["candidate", "release", "program"],
            releases.iter().map(release_row),
        ));
    }
    if !builds.is_empty() {
        let head = ["candidate", "variant", "compiler", "compiled in", "text", "stripped"];
        text.push_str(&table(head, builds.iter().map(build_row)));
    }
    output::print(&text);
    Ok(ExitCode::SUCCESS)
}

fn release_row(CandidateRelease { candidate, release }: &CandidateRelease) -> [String; 3] {
    // The server program is in the first file.
    let program = release.files().first().map(ToString::to_string);
    [candidate.clone(), release.origin().to_string(), program.unwrap_or_default()]
}

fn build_row(CandidateBuild { candidate, build }: &CandidateBuild) -> [String; 6] {
    [
        candidate.clone(),
        build.variant.clone(),
        format!("{} {}", build.compiler.name, build.compiler.version),
        build.compile_time.to_string(),
        build.text_size.to_string(),
        build.stripped_size.to_string(),
    ]
}

/// One line per candidate.
fn table<const N: usize>(head: [&str; N], made: impl Iterator<Item = [String; N]>) -> String {
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(made);
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Text is left-aligned, numbers right-aligned.
            let _ = match column {
                0..=2 => write!(line, " {cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
