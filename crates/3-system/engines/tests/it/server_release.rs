//! MySQL's own program, from Debian's packages, and older releases of servers, from a registry.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use dbdyno_builds::{BuildError, CacheDir, ProblemKind, Release, ReleaseOrigin, Releases, System};
use dbdyno_fuzz::skip;
use dbdyno_types::PublishedRelease;
use dbdyno_types::server::ServerSystem;

/// The suite that has it.
const SUITE: &str = "sid";

/// The release in the tests' cache, fetched once; `None` with a reason if the suite is out of
/// reach.
pub fn mysql() -> Option<Release> {
    static RELEASE: Mutex<Option<Option<Release>>> = Mutex::new(None);
    let mut known = RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let newest = ReleaseOrigin::Debian { suite: SUITE.to_owned() };
    let fetch_newest = || fetch(ServerSystem::MySql, &newest);
    known.get_or_insert_with(fetch_newest).clone()
}

/// An older release that is known by name, such as `mysql-8.0.33`; `None` with a reason if it is out of reach.
#[allow(dead_code, reason = "each test program needs a part")]
pub fn older(system: ServerSystem, name: &str) -> Option<Release> {
    fetch(system, &PublishedRelease::by_name(system, name).unwrap().origin)
}

fn fetch(system: ServerSystem, origin: &ReleaseOrigin) -> Option<Release> {
    // Root trusts only its own directories: see `scripts/run-tests.sh`.
    let cache = std::env::var_os("DBDYNO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
        .join("dbdyno-cache");
    let releases = Releases::new(&CacheDir::open(&cache).unwrap(), Arc::default());
    match releases.obtain(System::from(system), origin, &|_| {}) {
        Ok(release) => Some(release),
        Err(error) if is_out_of_reach(&error) => {
            skip(&format!("the program cannot be fetched: {error}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether it cannot be fetched, which is no fault of the program: there is no network, the mirror is being updated, or
/// its packages cannot be installed together; or a tool is missing, or servers cannot reach the tests' cache.
fn is_out_of_reach(error: &BuildError) -> bool {
    let BuildError::Other(problem) = error else { return false };
    // What apt and curl say; what dbdyno finds in an archive or an answer is a fault.
    let is_of_tool = ["E: ", "curl: ("].iter().any(|sign| problem.what.contains(sign));
    problem.kind == ProblemKind::Machine
        || problem.kind == ProblemKind::Fetching && is_of_tool
        || problem.advice.ends_with("try again later")
}
