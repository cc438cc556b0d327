//! Attacks by other local users and by sources: directories of others are not used, and programs of
//! a build see no password.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::common::{TestDir, call, dbdyno, finish};

const SECRET: &str = "kept from compilers";

#[test]
fn cache_and_journals_of_others_are_refused() {
    let test = TestDir::new();
    let open = test.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = |what: &str| {
        let mut list = dbdyno();
        list.args(["builds", "list"]).env("XDG_CACHE_HOME", &open);
        let finished = finish(list);
        finished.assert_code(2);
        assert!(finished.err.contains(what), "{finished:?}");
        let state = open.join("journals");
        let args = ["live", "status", "--state", state.to_str().unwrap()];
        let finished = call(args);
        assert!(finished.err.contains(what) && finished.code != Some(0), "{finished:?}");
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    };
    refused("has mode 0777");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    if chown(&open, Some(65534), None).is_ok() {
        refused("belongs to user 65534");
        chown(&open, Some(0), None).unwrap();
    } else {
        println!("skipped: only root can give a directory to another user");
    }
}

#[test]
fn configure_sees_no_password() {
    // The servers' user must have access to the cache.
    let test = tempfile::tempdir().unwrap();
    executable(test.path());
    let source = test.path().join("postgresql-99.1");
    fs::create_dir(&source).unwrap();
    let seen = test.path().join("environment");
    let configure =
        format!("#!/bin/sh\nPACKAGE_VERSION='99.1'\nenv > {}\nexit 1\n", seen.display());
    fs::write(source.join("configure"), configure).unwrap();
    executable(&source.join("configure"));
    let compiler = test.path().join("gcc");
    let seen_by_compiler = test.path().join("environment-of-compiler");
    let wrapper = format!("#!/bin/sh\nenv >> {}\nexec gcc \"$@\"\n", seen_by_compiler.display());
    fs::write(&compiler, wrapper).unwrap();
    executable(&compiler);
    let text = format!(
        "name = \"secrets\"\nbaseline = \"base\"\n\
         [[candidate]]\nname = \"base\"\nsystem = \"postgresql\"\nvariant = \"rel_o2\"\n\
         source = {{ path = \"{}\" }}\ncompiler = \"{}\"\n",
        source.display(),
        compiler.display()
    );
    let mut make = dbdyno();
    let experiment = test.path().join("experiment.toml");
    fs::write(&experiment, text).unwrap();
    make.args(["builds", "make"]).arg(experiment);
    make.arg("--cache").arg(test.path().join("cache"));
    for name in ["DBDYNO_PASSWORD", "MYSQL_PWD", "PGPASSWORD", "GITHUB_TOKEN"] {
        make.env(name, SECRET);
    }
    make.env("VISIBLE", "to everybody");
    let finished = finish(make);
    finished.assert_code(1);
    for file in [&seen, &seen_by_compiler] {
        let environment = fs::read_to_string(file).unwrap_or_else(|_| panic!("{finished:?}"));
        assert!(environment.contains("VISIBLE=to everybody"), "{environment}");
        assert!(!environment.contains(SECRET), "{environment}");
    }
}

fn executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
