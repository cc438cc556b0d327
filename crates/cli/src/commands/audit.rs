use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dbdyno_audit::text::{TextOptions, render, render_difference};
use dbdyno_audit::{Audit, AuditError, Difference, Intent, Progress, difference, walk};
use dbdyno_builds::{CompilerKind, Variant};

use crate::args;
use crate::error::CliError;
use crate::output;

/// How often somebody who waits is told how far it is.
const PERIOD: Duration = Duration::from_secs(2);

/// The name that build tools give to the compile database.
const COMPILE_DB: &str = "compile_commands.json";

/// Audits a binary or a build.
pub fn audit(args: &args::Audit) -> Result<ExitCode, CliError> {
    let intent = intent(args)?;
    let audit = read(&args.path, args, &intent)?;
    let compared = match &args.against {
        Some(path) => Some((path, difference(&audit, &baseline(path)?))),
        None => None,
    };
    if args.json {
        output::print(&json(&audit, compared.as_ref().map(|(_, difference)| difference))?);
    } else {
        let options = TextOptions { width: output::width().min(120), all: args.all };
        let mut text = render(&audit, &options);
        if let Some((path, difference)) = &compared {
            text.push('\n');
            text.push_str(&render_difference(difference, &path.display().to_string(), &options));
        }
        output::print(&text);
    }
    Ok(ExitCode::from(u8::from(audit.has_offences())))
}

/// What the variant and the wishes add up to.
fn intent(args: &args::Audit) -> Result<Intent, CliError> {
    let mut intent = match &args.variant {
        Some(name) => {
            let variant =
                Variant::by_name(name).map_err(|error| CliError::Usage(error.to_string()))?;
            Intent {
                name: Some(name.clone()),
                ..Intent::of_flags(&variant.flags(CompilerKind::Gcc))
            }
        }
        None => Intent::default(),
    };
    for wish in &args.want {
        intent.want(wish).map_err(|error| CliError::Usage(format!("--want {wish}: {error}")))?;
    }
    Ok(intent)
}

fn read(path: &Path, args: &args::Audit, intent: &Intent) -> Result<Audit, CliError> {
    let about =
        fs::metadata(path).map_err(|source| CliError::Read { path: path.to_owned(), source })?;
    if !about.is_dir() {
        if !args.linked.is_empty() {
            let problem = format!("--linked needs a directory, and {} is none", path.display());
            return Err(CliError::Usage(problem));
        }
        return Ok(dbdyno_audit::binary(path, args.compile_db.as_deref(), intent)?);
    }
    let compile_db = args.compile_db.clone().or_else(|| database_in(path));
    Ok(build(path, &args.linked, compile_db.as_deref(), intent)?)
}

fn database_in(directory: &Path) -> Option<PathBuf> {
    Some(directory.join(COMPILE_DB)).filter(|file| file.is_file())
}

fn build(
    directory: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    intent: &Intent,
) -> Result<Audit, AuditError> {
    let found;
    let linked = if linked.is_empty() {
        found = walk::find(directory)?.linked;
        &found
    } else {
        linked
    };
    let told = Mutex::new(Instant::now());
    dbdyno_audit::build_watched(directory, linked, compile_db, intent, &|progress| {
        let Progress { done, of } = progress;
        // Whoever finds it taken can leave the telling to the other.
        let Ok(mut told) = told.try_lock() else { return };
        if told.elapsed() >= PERIOD {
            *told = Instant::now();
            output::note(&format!("read {done} of {of} files"));
        }
    })
}

/// The baseline: an audit that was printed as JSON, or what can be audited now.
fn baseline(path: &Path) -> Result<Audit, CliError> {
    let read = |source| CliError::Read { path: path.to_owned(), source };
    if path.is_dir() {
        return Ok(build(path, &[], database_in(path).as_deref(), &Intent::default())?);
    }
    if path.extension().is_none_or(|ending| ending != "json") {
        return Ok(dbdyno_audit::binary(path, None, &Intent::default())?);
    }
    let text = fs::read(path).map_err(read)?;
    let not_ours = |error: serde_json::Error| {
        CliError::Usage(format!(
            "{} is not what `dbdyno audit --json` prints: {error}",
            path.display()
        ))
    };
    let mut whole: serde_json::Value = serde_json::from_slice(&text).map_err(not_ours)?;
    let audit = whole.get_mut("audit").map(serde_json::Value::take).unwrap_or_default();
    serde_json::from_value(audit).map_err(not_ours)
}

fn json(audit: &Audit, difference: Option<&Difference>) -> Result<String, CliError> {
    let components = audit.components();
    let mut whole = serde_json::json!({ "audit": audit, "components": components });
    if let Some(difference) = difference {
        whole["difference"] = serde_json::json!(difference);
    }
    serde_json::to_string_pretty(&whole)
        .map(|text| text + "\n")
        .map_err(|error| CliError::Other(error.to_string()))
}
