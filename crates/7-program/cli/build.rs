//! Sets `DBDYNO_VERSION`: the package's version with the commit it is built from, where known.
//!
//! `DBDYNO_COMMIT` overrides the commit, for packagers who build outside the repository.

#![allow(clippy::print_stdout, reason = "cargo reads a build script's instructions there")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DBDYNO_COMMIT");
    let given = std::env::var("DBDYNO_COMMIT").ok().filter(|commit| !commit.is_empty());
    let version = env!("CARGO_PKG_VERSION");
    let version = match given.or_else(commit) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=DBDYNO_VERSION={version}");
}

/// Abbreviated hash and date of HEAD. `None` outside dbdyno's own repository: the sources may lie
/// in a directory of another one.
fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3)?.canonicalize().ok()?;
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // The log of HEAD gets a line for each commit and checkout, wherever references are stored.
    // Cargo would run this script every time for a file that does not exist.
    for file in ["HEAD", "logs/HEAD"] {
        let path = PathBuf::from(git(&["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&["log", "-1", "--abbrev=10", "--format=%h %cs"])
}

/// The trimmed output of a git command; `None` when it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
