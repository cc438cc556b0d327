//! Git repositories.

use std::fs;
use std::path::PathBuf;

use super::tree;
use crate::fetching::{Fetching, Tool};
use crate::{BuildError, Sha256};

const GIT: Tool = Tool { program: "git", package: "git" };

/// Fetches one revision with its submodules, without history. Returns the directory, the checksum
/// and the commit.
pub(super) fn fetch(
    fetching: &Fetching<'_>,
    url: &str,
    revision: &str,
) -> Result<(PathBuf, Sha256, String), BuildError> {
    let folder = fetching.part.join("inside");
    fs::create_dir(&folder).map_err(Fetching::io("creating", &folder))?;
    (fetching.report)(format!("fetching {revision} of {url}"));
    let git = |doing: &str, args: &[&str]| fetching.run(GIT, doing, &folder, args);
    git("making a repository for it", &["init", "--quiet"])?;
    git("fetching it", &["fetch", "--quiet", "--depth", "1", "--", url, revision])?;
    git("checking it out", &["checkout", "--quiet", "--detach", "FETCH_HEAD"])?;
    let submodules = ["submodule", "update", "--quiet", "--init", "--recursive", "--depth", "1"];
    git("fetching its submodules", &submodules)?;
    let commit = git("asking for its commit", &["rev-parse", "HEAD"])?.trim().to_owned();
    let sha256 = tree::sha256(&folder).map_err(Fetching::io("reading", &folder))?;
    Ok((folder, sha256, commit))
}
