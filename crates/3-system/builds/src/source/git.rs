//! Git repositories.

use std::fs;
use std::path::{Path, PathBuf};

use super::tree;
use crate::fetching::{Fetching, Tool};
use crate::{BuildError, Sha256};

const GIT: Tool = Tool { program: "git", package: "git" };

/// Options for every command: hooks and monitors that the user's configuration names are not run,
/// and nothing runs in the background after a command.
const OPTIONS: [&str; 8] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

/// Runs git in a directory and returns its output.
pub(super) fn git(
    fetching: &Fetching<'_>,
    doing: &str,
    dir: &Path,
    args: &[&str],
) -> Result<String, BuildError> {
    fetching.run(GIT, doing, dir, &[&OPTIONS, args].concat())
}

/// Fetches one revision with its submodules, without history. Returns the directory, the checksum
/// and the commit. `from` is the repository at `url`, or a clone of it.
pub(super) fn fetch(
    fetching: &Fetching<'_>,
    (url, from): (&str, &str),
    revision: &str,
) -> Result<(PathBuf, Sha256, String), BuildError> {
    let folder = fetching.part.join("inside");
    fs::create_dir(&folder).map_err(Fetching::io("creating", &folder))?;
    (fetching.report)(format!("fetching {revision} of {url}"));
    let git = |doing: &str, args: &[&str]| git(fetching, doing, &folder, args);
    git("making a repository for it", &["init", "--quiet"])?;
    // Submodules may have URLs relative to it.
    git("preparing it", &["remote", "add", "--", "origin", &without_credentials(url)])?;
    git("fetching it", &["fetch", "--quiet", "--depth", "1", "--", from, revision])?;
    git("checking it out", &["checkout", "--quiet", "--detach", "FETCH_HEAD"])?;
    let submodules = ["submodule", "update", "--quiet", "--init", "--recursive", "--depth", "1"];
    git("fetching its submodules", &submodules)?;
    let commit = git("asking for its commit", &["rev-parse", "HEAD"])?.trim().to_owned();
    let sha256 = tree::sha256(&folder).map_err(Fetching::io("reading", &folder))?;
    Ok((folder, sha256, commit))
}

/// A URL without a password or token, for git's configuration, which is a file. The user's name of
/// other protocols than HTTP stays: it is part of the address.
fn without_credentials(url: &str) -> String {
    let Some((protocol, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) if protocol.starts_with("http") || rest[..at].contains(':') => {
            format!("{protocol}://{}", &rest[at + 1..])
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_stored() {
        for (url, stored) in [
            ("https://me:secret@host/a.git", "https://host/a.git"),
            ("https://token@host/a.git", "https://host/a.git"),
            ("ssh://me:secret@host:22/a.git", "ssh://host:22/a.git"),
            ("ssh://git@host/a@b:c.git", "ssh://git@host/a@b:c.git"),
            ("https://host/a@b", "https://host/a@b"),
            ("git@host:a.git", "git@host:a.git"),
            ("/srv/a.git", "/srv/a.git"),
        ] {
            assert_eq!(without_credentials(url), stored);
        }
    }
}
