//! Releases from archives, without a network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use dbdyno_builds::{
    BuildError, Cache, CacheEntryKind, Release, ReleaseOrigin, Releases, Sha256, System,
};
use tempfile::TempDir;

use crate::common::{cache_in, open_folder};

/// A directory with an archive of a release of MySQL, and a cache.
struct Bench {
    dir: TempDir,
    releases: Releases,
}

impl Bench {
    fn new() -> Self {
        let dir = open_folder();
        let releases = Releases::new(&cache_in(dir.path(), "cache"), Arc::default());
        let inner = dir.path().join("mysql-8.0.99/bin");
        fs::create_dir_all(&inner).unwrap();
        let program = inner.join("mysqld");
        fs::write(&program, "#!/bin/sh\necho 'mysqld  Ver 8.0.99 for Linux on x86_64'\n").unwrap();
        // Others could change it, if its permissions were kept.
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        let bench = Self { dir, releases };
        bench.pack();
        bench
    }

    fn pack(&self) {
        let args = ["-czf", "release.tar.gz", "mysql-8.0.99"];
        let packed = Command::new("tar").args(args).current_dir(self.dir.path()).status().unwrap();
        assert!(packed.success());
    }

    fn archive(&self) -> PathBuf {
        self.dir.path().join("release.tar.gz")
    }

    fn origin(&self, sha256: Option<Sha256>) -> ReleaseOrigin {
        let location = self.archive().to_string_lossy().into_owned();
        ReleaseOrigin::Tarball { location, sha256 }
    }

    fn obtain(&self, system: System, sha256: Option<Sha256>) -> Result<Release, BuildError> {
        self.releases.obtain(system, &self.origin(sha256), &|_| {})
    }
}

#[test]
fn archive_is_unpacked_once_and_removed_by_name() {
    let bench = Bench::new();
    let sha256 = Sha256::of_file(&bench.archive()).unwrap();
    let origin = bench.origin(Some(sha256));
    assert!(bench.releases.cached(System::MySql, &origin).unwrap().is_none());
    let release = bench.obtain(System::MySql, Some(sha256)).unwrap();
    assert_eq!(fs::metadata(release.program()).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(release.files().len(), 1);
    assert_eq!(
        (release.files()[0].name.as_str(), release.files()[0].sha256.clone()),
        ("release.tar.gz", sha256.to_string())
    );

    // The archive is not needed any more.
    fs::remove_file(bench.archive()).unwrap();
    let again = bench.obtain(System::MySql, Some(sha256)).unwrap();
    assert_eq!(again.program(), release.program());
    let cached = bench.releases.cached(System::MySql, &origin).unwrap().unwrap();
    assert_eq!(cached.files(), release.files());

    let cache = Cache::new(&cache_in(bench.dir.path(), "cache"));
    let entries = cache.inventory();
    let entry = entries.iter().find(|entry| matches!(entry.kind, CacheEntryKind::Release(_)));
    let entry = entry.expect("it is listed");
    assert!(
        matches!(&entry.kind, CacheEntryKind::Release(of) if of.starts_with("release.tar.gz, "))
    );
    assert!(!cache.remove(entry).unwrap(), "it is in use");
    drop((release, again, cached));
    assert!(cache.remove(entry).unwrap());
    assert!(bench.releases.cached(System::MySql, &origin).unwrap().is_none());
}

#[test]
fn changed_or_moved_release_is_unpacked_again() {
    let bench = Bench::new();
    let release = bench.obtain(System::MySql, None).unwrap();
    let program = release.program().to_owned();
    drop(release);
    // Somebody else could have changed it.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o757)).unwrap();
    fs::write(&program, "another").unwrap();
    let release = bench.obtain(System::MySql, None).unwrap();
    assert!(fs::read_to_string(release.program()).unwrap().starts_with("#!/bin/sh"));
    drop(release);
    let moved = bench.dir.path().join("moved");
    fs::rename(bench.dir.path().join("cache"), &moved).unwrap();
    let releases = Releases::new(&cache_in(bench.dir.path(), "moved"), Arc::default());
    assert!(releases.cached(System::MySql, &bench.origin(None)).unwrap().is_none());
    let release = releases.obtain(System::MySql, &bench.origin(None), &|_| {}).unwrap();
    assert!(release.program().starts_with(&moved));
}

#[test]
fn changed_archive_is_unpacked_again() {
    let bench = Bench::new();
    let old = bench.obtain(System::MySql, None).unwrap().files()[0].sha256.clone();
    fs::write(bench.dir.path().join("mysql-8.0.99/bin/mysqld"), "#!/bin/sh\nexit 1\n").unwrap();
    bench.pack();
    assert!(bench.releases.cached(System::MySql, &bench.origin(None)).unwrap().is_none());
    let release = bench.obtain(System::MySql, None).unwrap();
    assert_eq!(fs::read_to_string(release.program()).unwrap(), "#!/bin/sh\nexit 1\n");
    assert_ne!(release.files()[0].sha256, old);
}

#[test]
fn release_without_its_description_is_unpacked_again() {
    let bench = Bench::new();
    let program = bench.obtain(System::MySql, None).unwrap().program().to_owned();
    let folder = program.ancestors().nth(3).unwrap();
    let archive = fs::read(bench.archive()).unwrap();
    fs::write(bench.archive(), "no archive").unwrap();
    bench.obtain(System::MySql, None).unwrap_err();
    fs::write(bench.archive(), archive).unwrap();
    // A directory without its description is incomplete.
    fs::remove_file(folder.join("release.json")).unwrap();
    fs::remove_file(&program).unwrap();
    assert!(bench.obtain(System::MySql, None).unwrap().program().is_file());
}

#[test]
fn programs_of_an_archive_find_its_libraries() {
    let bench = Bench::new();
    let inner = bench.dir.path().join("mysql-8.0.99");
    fs::create_dir_all(inner.join("lib/private")).unwrap();
    fs::write(inner.join("own.c"), "int own(void) { return 0; }\n").unwrap();
    fs::write(inner.join("main.c"), "int own(void);\nint main(void) { return own(); }\n").unwrap();
    let compile = |args: &str| {
        let mut gcc = Command::new("gcc");
        let compiled = gcc.args(args.split(' ')).current_dir(&inner).status().unwrap();
        assert!(compiled.success(), "{args}");
    };
    compile("-shared -fPIC -Wl,-soname,libown.so.1 -o lib/private/libown.so.1 own.c");
    compile("-o bin/mysqld main.c lib/private/libown.so.1");
    bench.pack();
    let release = bench.obtain(System::MySql, None).unwrap();
    assert!(Command::new(release.program()).status().unwrap().success());
    drop(release);
    // Another host may have it.
    fs::remove_file(inner.join("lib/private/libown.so.1")).unwrap();
    bench.pack();
    let release = bench.obtain(System::MySql, None).unwrap();
    assert!(!Command::new(release.program()).status().unwrap().success());
}

#[test]
fn unsuitable_archive_is_explained() {
    let bench = Bench::new();
    let error = bench.obtain(System::MySql, Some(Sha256::of(b"another"))).unwrap_err().to_string();
    assert!(error.contains("checking it failed for the release of MySQL"), "{error}");
    assert!(error.contains("compare with what its makers publish"), "{error}");
    let error = bench.obtain(System::PostgreSql, None).unwrap_err().to_string();
    assert!(error.contains("no program postgres in bin or sbin"), "{error}");
    let releases = bench.dir.path().join("cache/releases");
    let left = fs::read_dir(releases).unwrap().flatten().filter(|entry| entry.path().is_dir());
    assert_eq!(left.count(), 0);
}
