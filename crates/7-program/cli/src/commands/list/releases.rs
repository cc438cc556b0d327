//! The releases of servers that are on this machine or can be fetched.

use std::fmt::Write as _;

use dbdyno_builds::{Cache, CacheDir, CacheEntryKind, System, suites};
use dbdyno_engines::server::installed_releases;
use dbdyno_types::server::ServerSystem;

/// Lists releases by system, each with what to write into an experiment.
pub(super) fn releases() -> String {
    let mut text = "Releases\n".to_owned();
    for system in ServerSystem::ALL {
        for release in installed_releases(system) {
            let name = format!("release = \"{}\"", release.name);
            let _ =
                writeln!(text, "  {:<11} {name:<32} {}", system.name(), release.program.display());
        }
    }
    for (system, of) in unpacked() {
        let _ = writeln!(text, "  {system:<11} {:<32} {of}", "in the cache");
    }
    text.push_str("  Can be fetched from Debian: release = { debian = SUITE }\n");
    for system in [System::MariaDb, System::PostgreSql, System::MySql] {
        let suites: Vec<String> =
            suites(system).iter().map(|suite| format!("\"{suite}\"")).collect();
        let _ = writeln!(text, "    {:<11} {}", system.name(), suites.join(", "));
    }
    text.push_str("  Can be unpacked: release = { tarball = \"URL or FILE\", sha256 = \"…\" }\n");
    text
}

/// The system of each release in the cache, and where it is from.
fn unpacked() -> Vec<(String, String)> {
    let Ok(root) = CacheDir::chosen_or_default(None) else { return Vec::new() };
    let mut all: Vec<(String, String)> = Cache::new(&root)
        .inventory()
        .into_iter()
        .filter_map(|entry| match entry.kind {
            CacheEntryKind::Release(of) => {
                let name = entry.path.file_name()?.to_string_lossy().into_owned();
                Some((name.split('-').next()?.to_owned(), of))
            }
            _ => None,
        })
        .collect();
    all.sort();
    all
}
