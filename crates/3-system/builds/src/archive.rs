//! Archives of sources and of compiled releases, from a URL or a file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::build_dir::open_folder;
use crate::fetching::{Fetching, Tool};
use crate::lock::{Lock, Sharing};
use crate::{BuildError, Cache, Sha256};

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
    cache: &Cache,
) -> Result<(PathBuf, Sha256), BuildError> {
    let file = if is_url(location) {
        download(fetching, location, expected, cache)?
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
    cache: &Cache,
) -> Result<PathBuf, BuildError> {
    let Some(expected) = expected else {
        return Err(fetching.failed(
            "downloading it",
            "no checksum is named for it",
            "add its `sha256`: what is downloaded and executed must be known",
        ));
    };
    let downloads = cache.root().join("downloads");
    let path = cache.download_lock(&expected.to_string());
    for folder in [&downloads, path.parent().unwrap_or(&path)] {
        open_folder(folder).map_err(Fetching::io("creating", folder))?;
    }
    // Sources and releases from several origins may have the same archive.
    let waiting =
        || (fetching.report)(format!("waiting for another dbdyno process to download {url}"));
    let lock = Lock::wait_unless(&path, Sharing::Exclusive, fetching.cancel, waiting)
        .map_err(Fetching::io("locking", &path))?
        .ok_or_else(|| BuildError::Cancelled { what: fetching.what.to_owned() })?;
    let file = downloads.join(expected.to_string());
    if file.is_file() {
        return Ok(file);
    }
    (fetching.report)(format!("downloading {url}"));
    let part = downloads.join(format!("{expected}.part"));
    let name = part.to_string_lossy();
    let size = || fs::metadata(&part).map(|meta| meta.len()).ok();
    // curl also holds the lock, in case dbdyno is killed.
    let fetching = Fetching { lock: &lock, ..*fetching };
    let run = |how: &[&str]| {
        let quiet = ["--fail", "--location", "--silent", "--show-error", "--retry", "2"];
        let args = [&quiet, how, &["--output", &name, url]].concat();
        fetching.run(CURL, "downloading it", fetching.part, &args)
    };
    // Continues an interrupted download.
    let before = size();
    match run(&["--continue-at", "-"]) {
        Err(BuildError::Fetching { .. }) if before.is_some() && size() == before => {
            // The server does not send parts of files. curl replaces the file when the first data
            // arrives, so it is kept if there is no connection.
            run(&[])?
        }
        other => other?,
    };
    fs::rename(&part, &file).map_err(Fetching::io("renaming", &part))?;
    Ok(file)
}

/// The only directory at the top level of an archive; if there is not exactly one, the archive
/// itself.
fn only_folder(inside: &Path) -> PathBuf {
    let entries = fs::read_dir(inside).into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    match &paths[..] {
        [only] if only.is_dir() && !only.is_symlink() => only.clone(),
        _ => inside.to_owned(),
    }
}
