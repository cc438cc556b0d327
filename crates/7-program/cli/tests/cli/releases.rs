//! Releases: installed in directories of their name, fetched from Debian, and those that cannot be
//! fetched or started.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{Finished, MYSQL, Servers, TestDir, cache, dbdyno, finish};
use crate::mysql_release;
use crate::outside::write_program;
use crate::servers::count;

/// A run of MySQL's release in this suite with an empty cache, and additional environment variables.
fn run_fetching(suite: &str, environment: &[(&str, &str)]) -> Finished {
    let test = TestDir::new();
    fs::set_permissions(test.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "name = \"x\"\nbaseline = \"a\"\ncontrol = false\n[[candidate]]\nname = \"a\"\n\
         system = \"mysql\"\nrelease = {{ debian = \"{suite}\" }}\n"
    );
    let mut command = dbdyno();
    command.arg("run").arg(test.file(&text)).arg("--out").arg(test.out());
    command.arg("--cache").arg(test.path().join("cache")).envs(environment.iter().copied());
    finish(command)
}

#[test]
fn unreachable_mirror_is_explained() {
    // A proxy that nobody listens on.
    let proxy = "http://127.0.0.1:9";
    let finished = run_fetching("sid", &[("http_proxy", proxy), ("https_proxy", proxy)]);
    finished.assert_code(1).assert_prints("the release of MySQL, Debian sid");
    finished.assert_prints("no network connection?").assert_prints("set http_proxy");
}

#[test]
#[ignore = "full"]
fn unknown_suite_and_missing_package_are_explained() {
    // Skipped without a network.
    let Some(_release) = mysql_release::mysql() else { return };
    let unknown = run_fetching("no-such-suite", &[]);
    unknown.assert_code(1).assert_prints("Debian has no suite no-such-suite");
    unknown.assert_prints("such as bookworm, trixie or sid");
    let without = run_fetching("bookworm", &[]);
    without.assert_code(1).assert_prints("bookworm has no package mysql-server-core");
    without.assert_prints("MySQL is in sid");
}

/// A command in a network namespace without any interface; `None` if this machine does not allow it.
fn without_network(command: &Command) -> Option<Command> {
    let isolated = ["--net", "--"];
    let allowed = Command::new("unshare").args(isolated).arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        dbdyno_fuzz::skip("a network namespace needs root");
        return None;
    }
    let mut outer = Command::new("unshare");
    outer.args(isolated).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        let empty = OsStr::new("");
        outer.env(name, value.unwrap_or(empty));
        if value.is_none() {
            outer.env_remove(name);
        }
    }
    Some(outer)
}

#[test]
#[ignore = "full"]
fn fetched_release_needs_no_network() {
    let Some(_release) = mysql_release::mysql() else { return };
    let test = TestDir::new();
    let servers = Servers { candidates: &[("mysql", MYSQL)], ..Servers::default() };
    let Some(command) = without_network(&servers.command(&test, &[])) else { return };
    finish(command).assert_code(0);
    assert!(count(&test.out(), "SELECT COUNT(*) FROM slice") >= 6);
}

#[test]
#[ignore = "full"]
fn builds_make_fetches_releases() {
    let Some(_release) = mysql_release::mysql() else { return };
    let test = TestDir::new();
    let text =
        format!("name = \"x\"\nbaseline = \"ours\"\n[[candidate]]\nname = \"ours\"\n{MYSQL}\n");
    let mut make = dbdyno();
    make.args(["builds", "make"]).arg(test.file(&text)).arg("--cache").arg(cache());
    let made = finish(make);
    made.assert_code(0).assert_prints("candidate release");
    made.assert_prints("Debian sid mysql-server-core");
}

/// An archive with a program of another system.
#[test]
fn release_that_does_not_start_is_explained() {
    let test = TestDir::new();
    fs::set_permissions(test.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let inner = test.path().join("mysql-8.0.99/bin");
    fs::create_dir_all(&inner).unwrap();
    let program = inner.join("mysqld");
    let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    run(Command::new("cp").arg("/bin/true").arg(&program));
    run(Command::new("patchelf").args(["--set-interpreter", "/no/such/ld.so"]).arg(&program));
    let tar = ["-czf", "release.tar.gz", "mysql-8.0.99"];
    run(Command::new("tar").args(tar).current_dir(test.path()));
    let archive = test.path().join("release.tar.gz");
    let release =
        format!("system = \"mysql\"\nrelease = {{ tarball = \"{}\" }}", archive.display());
    let servers = Servers { candidates: &[("mysql", &release)], ..Servers::default() };
    let finished = servers.run(&test, &[]);
    finished.assert_code(1).assert_prints("does not start");
    finished.assert_prints("the loader that it names does not exist");
    assert_eq!(count(&test.out(), "SELECT COUNT(*) FROM slice"), 0);
}

#[test]
fn installed_releases_are_listed_and_found_by_name() {
    let test = TestDir::new();
    // The program runs as the user for servers, who must be able to reach it.
    fs::set_permissions(test.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = test.path().join("opt/mysql/8.0.99/bin/mysqld");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    write_program(&program, "#!/bin/sh\necho 'mysqld  Ver 8.0.99 for Linux on x86_64'\n");
    let list = || {
        let mut command = dbdyno();
        command.args(["list", "releases"]).env("HOME", test.path()).env_remove("SANDBOX_BINARY");
        finish(command)
    };
    list().assert_code(0).assert_prints("release = \"8.0.99\"").assert_prints("mysql \"sid\"");
    let check = |name: &str| {
        let text = format!(
            "name = \"x\"\nbaseline = \"a\"\n[[candidate]]\nname = \"a\"\nsystem = \"mysql\"\n\
             release = \"{name}\"\n"
        );
        let mut command = dbdyno();
        command.arg("check").arg(test.file(&text)).env("HOME", test.path());
        command.env_remove("SANDBOX_BINARY");
        finish(command)
    };
    let found = check("8.0.99");
    assert!(found.all().contains("8.0.99/bin/mysqld"), "{found:?}");
    check("8.0.98").assert_code(1).assert_prints("MySQL has no release `8.0.98`");
}
