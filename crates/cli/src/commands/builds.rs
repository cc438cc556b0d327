mod make;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use dbdyno_builds::{Build, Cache, Kept, KeptKind, default_cache_dir};
use dbdyno_units::Bytes;

use crate::args::{Builds, BuildsAction, CleanBuilds};
use crate::error::CliError;
use crate::output;

/// Shows, makes or removes what the build cache keeps.
pub fn builds(args: &Builds) -> Result<ExitCode, CliError> {
    let root = match &args.cache {
        Some(cache) => cache.clone(),
        None => default_cache_dir().map_err(|error| CliError::Usage(error.to_string()))?,
    };
    match &args.action {
        BuildsAction::List => output::print(&list(root)),
        BuildsAction::Make(what) => return make::make(root, what),
        BuildsAction::Clean(what) => clean(root, what)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(root: PathBuf) -> String {
    let all = Cache::new(&root).inventory();
    let mut text = format!("Kept in {}\n", root.display());
    for kept in &all {
        let _ = writeln!(text, "  {:>10}  {}", kept.size.to_string(), line(kept));
    }
    let total = Bytes::from_bytes(all.iter().map(|kept| kept.size.as_bytes()).sum());
    let _ = writeln!(text, "  {:>10}  in all", total.to_string());
    text
}

fn line(kept: &Kept) -> String {
    let name = kept.path.file_name().unwrap_or_default().to_string_lossy();
    let start = &name[..name.len().min(12)];
    match &kept.kind {
        KeptKind::Build(build) => format!(
            "build    {}  {} {} as {} with {} {}{}",
            build.fingerprint.short(),
            build.system,
            build.source_version,
            build.variant,
            build.compiler.name,
            build.compiler.version,
            stage(build)
        ),
        KeptKind::Tree(_) => format!("tree     {start}  where it was compiled, with its objects"),
        KeptKind::Failed => format!("failed   {start}  the log of a build that failed"),
        KeptKind::Source => format!("source   {name}"),
        KeptKind::Download => format!("download {name}"),
    }
}

/// What else tells builds of one variant apart.
fn stage(build: &Build) -> &'static str {
    match (build.instrumented, &build.bolt) {
        (true, _) => ", instrumented",
        (false, None) if build.intent.bolt => ", linked for BOLT",
        (false, _) => "",
    }
}

fn clean(root: PathBuf, what: &CleanBuilds) -> Result<(), CliError> {
    let cache = Cache::new(root);
    let matches = |kept: &&Kept| {
        let name = kept.path.file_name().unwrap_or_default().to_string_lossy();
        let named = what.names.iter().any(|start| name.starts_with(start));
        let tree = matches!(kept.kind, KeptKind::Tree(_) | KeptKind::Failed);
        what.all || named || (what.trees && tree)
    };
    let all = cache.inventory();
    if let Some(name) = what.names.iter().find(|start| {
        !all.iter().any(|kept| {
            kept.path.file_name().unwrap_or_default().to_string_lossy().starts_with(*start)
        })
    }) {
        let message = format!("the cache has nothing called `{name}`: see `dbdyno builds list`");
        return Err(CliError::Usage(message));
    }
    let mut freed = 0;
    for kept in all.iter().filter(matches) {
        let gone = cache
            .remove(kept)
            .map_err(|source| CliError::Write { path: kept.path.clone(), source })?;
        if gone {
            freed += kept.size.as_bytes();
        } else {
            output::note(&format!("{} is in use and stays", kept.path.display()));
        }
    }
    output::print(&format!("{} freed\n", Bytes::from_bytes(freed)));
    Ok(())
}
