//! Releases that are installed in directories of their name.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{TestDir, dbdyno, finish};

#[test]
fn installed_releases_are_listed_and_found_by_name() {
    let test = TestDir::new();
    // The program runs as the user for servers, who must be able to reach it.
    fs::set_permissions(test.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = test.path().join("opt/mysql/8.0.99/bin/mysqld");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, "#!/bin/sh\necho 'mysqld  Ver 8.0.99 for Linux on x86_64'\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let list = || {
        let mut command = dbdyno();
        command.args(["list", "releases"]).env("HOME", test.path()).env_remove("SANDBOX_BINARY");
        finish(command)
    };
    list().assert_code(0).assert_prints("release = \"8.0.99\"").assert_prints("\"sid\"");
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
