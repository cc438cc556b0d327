use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use dbdyno_audit::text::{differing_properties, sections, sections_of_difference};
use dbdyno_audit::{
    Audit, AuditError, Expected, Progress, difference, find_files, from_json, to_json,
};
use dbdyno_builds::{Build, Cache, CacheDir, Variant};
use dbdyno_run::{audit_of, expected_of, expected_of_variant};
use dbdyno_text::{Paint, terminal};

use crate::args;
use crate::error::CliError;
use crate::output;

const COMPILE_DB: &str = "compile_commands.json";

pub fn audit(args: &args::Audit) -> Result<ExitCode, CliError> {
    let audit = read(args)?;
    let baseline = args.against.as_ref().map(|path| baseline(path, args)).transpose()?;
    let compared = baseline.as_ref().map(|baseline| difference(&audit, baseline));
    if args.json {
        output::print_pretty(&to_json(&audit, compared.as_ref()))?;
    } else {
        let mut shown = sections(&audit, args.all);
        if let (Some(path), Some(baseline), Some(difference)) =
            (&args.against, &baseline, &compared)
        {
            shown.extend(sections_of_difference(difference, &path.display().to_string(), args.all));
            shown.push(differing_properties(&audit, baseline));
        }
        let text = terminal(&shown, output::width().min(120), Paint::new(false));
        output::print(text.trim_start());
    }
    Ok(ExitCode::from(u8::from(audit.has_violations())))
}

/// What is expected: `--variant`, else the build's own settings, then `--expect`.
fn expected(args: &args::Audit, own: Expected) -> Result<Expected, CliError> {
    let mut expected = match &args.variant {
        Some(name) => {
            let variant = Variant::by_name(name).map_err(CliError::usage)?;
            expected_of_variant(&variant)
        }
        None => own,
    };
    for expectation in &args.expect {
        expected
            .set(expectation)
            .map_err(|error| CliError::Usage(format!("--expect {expectation}: {error}")))?;
    }
    Ok(expected)
}

fn read(args: &args::Audit) -> Result<Audit, CliError> {
    let path = &args.path;
    if let Some((cache, build)) = kept(path, args)? {
        if !args.linked.is_empty() || args.compile_db.is_some() {
            let problem = "--linked and --compile-db are for builds that dbdyno did not make";
            return Err(CliError::usage(problem));
        }
        let expected = expected(args, expected_of(&build))?;
        return Ok(audit_kept(&cache, &build)?.checked_against(expected));
    }
    let expected = &expected(args, Expected::default())?;
    let about = fs::metadata(path).map_err(CliError::read(path))?;
    if !about.is_dir() {
        if !args.linked.is_empty() {
            let problem = format!("--linked needs a directory: {}", path.display());
            return Err(CliError::Usage(problem));
        }
        return Ok(dbdyno_audit::binary(path, args.compile_db.as_deref(), expected)?);
    }
    let compile_db = args.compile_db.clone().or_else(|| database_in(path));
    Ok(build(path, &args.linked, compile_db.as_deref(), expected)?)
}

/// The cached build of this name, unless it is a path.
fn kept(path: &Path, args: &args::Audit) -> Result<Option<(Cache, Build)>, CliError> {
    let name = path.to_str().unwrap_or_default();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if path.exists() {
        return Ok(None);
    }
    if !is_name {
        if name.contains('/') {
            return Ok(None);
        }
        let problem = format!(
            "no file `{name}`, and not the name of a build, which has digits and the letters a to f: \
             see `dbdyno builds list`"
        );
        return Err(CliError::Usage(problem));
    }
    let root = CacheDir::chosen_or_default(args.cache.as_deref())?;
    let cache = Cache::new(&root);
    let found = cache.named(&name.to_ascii_lowercase());
    let problem = match &found[..] {
        [build] => return Ok(Some((cache, build.clone()))),
        [] => format!(
            "no file `{name}`, and no build of this name in {}: see `dbdyno builds list`",
            root.path().display()
        ),
        several => {
            let line = |build: &Build| {
                format!("\n  {}  {} {}", build.fingerprint.short(), build.system, build.variant)
            };
            let lines: String = several.iter().map(line).collect();
            format!("`{name}` matches several builds; use a longer prefix:{lines}")
        }
    };
    Err(CliError::Usage(problem))
}

fn audit_kept(cache: &Cache, build: &Build) -> Result<Audit, AuditError> {
    audit_of(cache, build, &AtomicBool::new(false), &tell)
}

fn tell(Progress { done, of }: Progress) {
    output::note(&format!("read {done} of {of} files"));
}

fn database_in(directory: &Path) -> Option<PathBuf> {
    Some(directory.join(COMPILE_DB)).filter(|file| file.is_file())
}

fn build(
    directory: &Path,
    linked: &[PathBuf],
    compile_db: Option<&Path>,
    expected: &Expected,
) -> Result<Audit, AuditError> {
    let found;
    let linked = if linked.is_empty() {
        found = find_files(directory)?.linked;
        &found
    } else {
        linked
    };
    dbdyno_audit::build_watched(directory, linked, compile_db, expected, &tell)
}

/// The audit of the baseline: from JSON, or made now.
fn baseline(path: &Path, args: &args::Audit) -> Result<Audit, CliError> {
    if let Some((cache, build)) = kept(path, args)? {
        return Ok(audit_kept(&cache, &build)?);
    }
    if path.is_dir() {
        return Ok(build(path, &[], database_in(path).as_deref(), &Expected::default())?);
    }
    match json(path).map_err(CliError::read(path))? {
        None => Ok(dbdyno_audit::binary(path, None, &Expected::default())?),
        Some(text) => from_json(&text).map_err(|reason| {
            let path = path.display();
            CliError::Usage(format!("{path} is not output of `dbdyno audit --json`: {reason}"))
        }),
    }
}

/// The content of a JSON file or of a pipe; `None` of a program, an object or an archive. It is opened once: a pipe
/// cannot be read again.
fn json(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return Ok(None);
    }
    let mut reader = BufReader::new(file);
    let start = reader.fill_buf()?.trim_ascii_start();
    let is_json = start.starts_with(b"{")
        || kind.is_fifo()
        || path.extension().is_some_and(|ending| ending == "json");
    let mut text = Vec::new();
    if is_json {
        reader.read_to_end(&mut text)?;
    }
    Ok(is_json.then_some(text))
}
