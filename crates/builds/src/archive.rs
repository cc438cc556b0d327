//! Archives of sources and of compiled releases, from a URL or a file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::build_dir::open_folder;
use crate::fetching::{Fetching, Tool};
use crate::{BuildError, Sha256};

const CURL: Tool = Tool { program: "curl", package: "curl" };
const TAR: Tool = Tool { program: "tar", package: "tar" };

/// The tools that are needed.
pub(crate) const TOOLS: [Tool; 2] = [CURL, TAR];

/// Downloads the archive if necessary, verifies its checksum and unpacks it. Returns the directory
/// with the content and the checksum.
pub(crate) fn fetch(
    fetching: &Fetching<'_>,
    location: &str,
    expected: Option<&Sha256>,
    downloads: &Path,
) -> Result<(PathBuf, Sha256), BuildError> {
    let file = if is_url(location) {
        download(fetching, location, expected, downloads)?
    } else {
        PathBuf::from(location)
    };
    let sha256 = Sha256::of_file(&file).map_err(Fetching::io("reading the archive", &file))?;
    if let Some(expected) = expected.filter(|expected| **expected != sha256) {
        if is_url(location) {
            // A file with the wrong checksum must not be reused.
            let _ = fs::remove_file(&file);
        }
        return Err(fetching.failed(
            "checking it",
            format!("its checksum is {sha256}, and {expected} was expected"),
            "the archive is another one than you thought, or damaged: compare with what its \
             makers publish",
        ));
    }
    let inside = fetching.part.join("inside");
    fs::create_dir(&inside).map_err(Fetching::io("creating", &inside))?;
    let name = file.to_string_lossy();
    fetching.run(
        TAR,
        "unpacking it",
        &inside,
        &["--extract", "--no-same-owner", "--file", &name],
    )?;
    Ok((only_folder(&inside), sha256))
}

/// Whether the archive that was unpacked is still the one at its location. A local file without an
/// expected checksum may have been replaced; one that does not exist any more has not.
pub(crate) fn is_current(location: &str, expected: Option<&str>, unpacked: &str) -> bool {
    if is_url(location) || expected.is_some() {
        return true;
    }
    Sha256::of_file(Path::new(location)).map_or(true, |sha256| sha256.to_string() == unpacked)
}

/// Whether the location is a URL.
pub(crate) fn is_url(location: &str) -> bool {
    location.contains("://")
}

fn download(
    fetching: &Fetching<'_>,
    url: &str,
    expected: Option<&Sha256>,
    downloads: &Path,
) -> Result<PathBuf, BuildError> {
    let Some(expected) = expected else {
        return Err(fetching.failed(
            "downloading it",
            "no checksum is named for it",
            "add its `sha256`: what is downloaded and executed must be known",
        ));
    };
    open_folder(downloads).map_err(Fetching::io("creating", downloads))?;
    let file = downloads.join(expected.to_string());
    if file.is_file() {
        return Ok(file);
    }
    (fetching.report)(format!("downloading {url}"));
    // Continues an interrupted download.
    let part = downloads.join(format!("{expected}.part"));
    let name = part.to_string_lossy();
    let go_on = ["--continue-at", "-", "--output", &name, url];
    let quiet = ["--fail", "--location", "--silent", "--show-error", "--retry", "2"];
    let args: Vec<&str> = quiet.into_iter().chain(go_on).collect();
    fetching.run(CURL, "downloading it", fetching.part, &args)?;
    fs::rename(&part, &file).map_err(Fetching::io("renaming", &part))?;
    Ok(file)
}

/// The only directory at the top level of an archive; if there is not exactly one, the archive
/// itself.
fn only_folder(inside: &Path) -> PathBuf {
    let entries = fs::read_dir(inside).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    match &paths[..] {
        [only] if only.is_dir() => only.clone(),
        _ => inside.to_owned(),
    }
}
