//! The server program in an unpacked release.

use std::path::{Path, PathBuf};

use crate::System;
use crate::removal::listed;

/// Names of the server program, the preferred one first.
pub(super) const fn names(system: System) -> &'static [&'static str] {
    match system {
        System::MariaDb => &["mariadbd", "mysqld"],
        System::MySql => &["mysqld"],
        System::PostgreSql => &["postgres"],
        System::Sqlite => &[],
    }
}

/// The server program in a tree, relative to it.
pub(super) fn find(system: System, tree: &Path) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> =
        ["usr/sbin", "usr/bin", "bin", "sbin", "libexec", "usr/libexec"].map(PathBuf::from).into();
    let versions = listed(&tree.join("usr/lib/postgresql")).filter_map(|path| {
        let inner = path.strip_prefix(tree).ok()?.join("bin");
        Some(inner)
    });
    folders.extend(versions);
    names(system).iter().find_map(|name| {
        folders.iter().map(|folder| folder.join(name)).find(|file| tree.join(file).is_file())
    })
}

/// The programs that must run with the release's own libraries: the server, and those that create
/// its data.
pub(super) fn linked(system: System, tree: &Path, program: &Path) -> Vec<PathBuf> {
    let mut all = vec![tree.join(program)];
    match system {
        System::PostgreSql => {
            let folder = tree.join(program);
            all.extend(folder.parent().into_iter().flat_map(listed));
        }
        System::MariaDb | System::MySql => {
            let helpers =
                ["my_print_defaults", "resolveip"].map(|name| tree.join("usr/bin").join(name));
            all.extend(helpers);
        }
        System::Sqlite => {}
    }
    all.sort();
    all.dedup();
    all.retain(|path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()));
    all
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn programs_are_found_in_both_layouts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        };
        assert_eq!(find(System::MySql, dir.path()), None);
        write("bin/mysqld");
        assert_eq!(find(System::MySql, dir.path()), Some("bin/mysqld".into()));
        write("usr/sbin/mariadbd");
        assert_eq!(find(System::MariaDb, dir.path()), Some("usr/sbin/mariadbd".into()));
        write("usr/lib/postgresql/17/bin/postgres");
        write("usr/lib/postgresql/17/bin/initdb");
        let postgres = find(System::PostgreSql, dir.path()).unwrap();
        assert_eq!(postgres, Path::new("usr/lib/postgresql/17/bin/postgres"));
        let names: Vec<_> = linked(System::PostgreSql, dir.path(), &postgres)
            .into_iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["initdb", "postgres"]);
    }
}
