//! `release = …`: a compiled release of a server, by name, from Debian or from an archive.

use dbdyno_document::{Problem, Table};
use dbdyno_types::server::ServerSystem;
use dbdyno_types::{ReleaseOrigin, suites};

use crate::source::{self, word};

/// The keys of a location, of which exactly one must be set.
const KINDS: [&str; 2] = ["debian", "tarball"];

/// Reads the key of a candidate; `None` if it is missing, or after a problem.
pub fn read(table: &mut Table<'_>, system: ServerSystem) -> Option<ReleaseOrigin> {
    if table.is_table("release") {
        read_location(table.table("release")?, system)
    } else {
        read_name(table)
    }
}

/// The name of a release that is installed.
fn read_name(table: &mut Table<'_>) -> Option<ReleaseOrigin> {
    let name = table.string("release")?;
    let valid = |c: char| c.is_ascii_alphanumeric() || "+-._~".contains(c);
    if !name.value.chars().all(valid)
        || !name.value.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        let message = format!("invalid release `{}`", name.value);
        let help = "use the name of its directory, such as \"8.0.37\" for ~/opt/mysql/8.0.37, or \
                    { debian = \"sid\" }, or { tarball = \"…\", sha256 = \"…\" }";
        table.report(Problem::new(name.span, message).help(help));
        return None;
    }
    Some(ReleaseOrigin::Installed { name: name.value.to_owned() })
}

fn read_location(mut table: Table<'_>, system: ServerSystem) -> Option<ReleaseOrigin> {
    let named: Vec<&str> = KINDS.into_iter().filter(|kind| table.has(kind)).collect();
    let release = match named[..] {
        ["debian"] => read_debian(&mut table, system),
        ["tarball"] => read_tarball(&mut table),
        _ => {
            let message = match named.len() {
                0 => "`release` has no location".to_owned(),
                _ => format!("`release` has {}", named.join(" and ")),
            };
            let help = format!("set exactly one of {}", KINDS.join(", "));
            table.report(Problem::new(table.span(), message).help(help));
            return None;
        }
    };
    table.finish();
    release
}

fn read_debian(table: &mut Table<'_>, system: ServerSystem) -> Option<ReleaseOrigin> {
    let suite = word(table, "debian")?;
    source::check_suite(table, suite, suites(system))?;
    Some(ReleaseOrigin::Debian { suite: suite.value.to_owned() })
}

fn read_tarball(table: &mut Table<'_>) -> Option<ReleaseOrigin> {
    let (location, sha256) = source::read_archive(table, "release")?;
    Some(ReleaseOrigin::Tarball { location, sha256 })
}
