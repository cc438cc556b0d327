//! MySQL's own program, from Debian's packages.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use dbdyno_builds::{BuildError, CacheDir, Release, ReleaseOrigin, Releases, System};

/// The suite that has it.
const SUITE: &str = "sid";

/// The release in the tests' cache, fetched once; `None` with a printed reason if the suite cannot be
/// reached, or a tool that fetches it is missing.
pub fn mysql() -> Option<Release> {
    static RELEASE: Mutex<Option<Option<Release>>> = Mutex::new(None);
    let mut known = RELEASE.lock().unwrap();
    known.get_or_insert_with(fetch).clone()
}

fn fetch() -> Option<Release> {
    // Root trusts only its own directories: see `scripts/run-tests.sh`.
    let cache = std::env::var_os("DBDYNO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
        .join("dbdyno-cache");
    let releases = Releases::new(&CacheDir::open(&cache).unwrap(), Arc::default());
    let origin = ReleaseOrigin::Debian { suite: SUITE.to_owned() };
    match releases.obtain(System::MySql, &origin, &|_| {}) {
        Ok(release) => Some(release),
        Err(error) if is_out_of_reach(&error) => {
            println!("skipped: MySQL's program cannot be fetched: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether the archive cannot be reached, a tool is missing, or servers cannot reach the tests' cache.
fn is_out_of_reach(error: &BuildError) -> bool {
    match error {
        BuildError::MissingTool { .. } | BuildError::Unreachable { .. } => true,
        // The mirror is being updated, or there is no network.
        BuildError::Fetching { doing, .. } => {
            ["updating the list of packages", "downloading it"].contains(&doing.as_str())
        }
        _ => false,
    }
}
