//! Programs that are copied to a host: releases, and servers that were compiled here.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    Background, Host, INNODB, MYSQL, Servers, Stored, TestDir, dbdyno, slices_of_live_run,
    wait_until,
};
use crate::hosts::{run, start};
use crate::server_release;

const READ: &str = "point-query.pre_range=100";

/// A release of MariaDB in a directory of its own, made from the installed one, with a file of this size.
fn release_of_mariadb(folder: &Path, mebibytes: usize) {
    // Where Debian's programs look for each other.
    let all = ["sbin/mariadbd", "bin/mariadb-install-db", "bin/my_print_defaults", "bin/resolveip"];
    for program in all {
        let copy = folder.join(program);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(Path::new("/usr").join(program), copy).unwrap();
    }
    let share = folder.join("share/mysql");
    fs::create_dir_all(&share).unwrap();
    for entry in fs::read_dir("/usr/share/mysql").unwrap() {
        let entry = entry.unwrap().path();
        let name = entry.file_name().unwrap().to_str().unwrap();
        if name.ends_with(".sql") || ["charsets", "english"].contains(&name) {
            let copied = Command::new("cp").arg("-rL").arg(&entry).arg(&share).status();
            assert!(copied.unwrap().success());
        }
    }
    // What is not needed makes the copy longer, and has all kinds of files.
    fs::write(folder.join("share/large"), vec![7_u8; mebibytes << 20]).unwrap();
    symlink("large", folder.join("share/link")).unwrap();
}

/// The complete copies on the host.
fn copies(host: &Host) -> Vec<PathBuf> {
    let entries = fs::read_dir(host.copied_programs()).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_dir() && path.extension().is_none()).collect()
}

#[test]
#[ignore = "full"]
fn release_is_copied_once_and_an_interrupted_copy_continues() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    fs::set_permissions(test.path(), fs::Permissions::from_mode(0o755)).unwrap();
    release_of_mariadb(&test.path().join("opt/mariadb/9.9.9"), 200);
    let release = "system = \"mariadb\"\nrelease = \"9.9.9\"\nhost = \"db1\"";
    let servers = Servers {
        sections: &host.section(),
        candidates: &[("installed", "system = \"mariadb\"\nhost = \"db1\""), ("copied", release)],
        ..Servers::default()
    };
    let command = || {
        let mut command = servers.command(&test, &[]);
        // The user's releases.
        command.env("HOME", test.path());
        command
    };
    let check = || {
        let mut command = dbdyno();
        command.arg("check").arg(test.path().join("experiment.toml")).env("HOME", test.path());
        run(&host, command)
    };
    let running = start(&host, command(), &test);
    let large = |path: &Path| fs::metadata(path.join("share/large")).map_or(0, |file| file.len());
    let part = || {
        let entries = fs::read_dir(host.copied_programs()).into_iter().flatten();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|it| it == "part"))
    };
    wait_until("a part of the copy", || part().is_some_and(|part| large(&part) > 20 << 20));
    running.signal(libc::SIGKILL);
    running.end();
    host.wait_until_clean();
    let part = part().expect("the copy was complete already");
    let first = fs::metadata(part.join("share/large")).unwrap();
    assert!(first.len() < 200 << 20);
    check().assert_code(0).assert_prints("copied to host db1 when the run starts");
    assert!(part.exists(), "a check copies nothing");

    run(&host, command()).assert_code(0);
    host.wait_until_clean();
    let [copy] = &copies(&host)[..] else { panic!("{:?}", copies(&host)) };
    let complete = fs::metadata(copy.join("share/large")).unwrap();
    assert_eq!((complete.ino(), complete.len()), (first.ino(), 200 << 20), "it was continued");
    assert_eq!(fs::read_link(copy.join("share/link")).unwrap(), Path::new("large"));
    let modes = |name: &str| fs::metadata(copy.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((modes(""), modes("sbin/mariadbd"), modes("share/large")), (0o755, 0o755, 0o644));
    assert!(Stored::open(&test.out()).server_usage(1).0 > 0);
    // It is used again as it is.
    fs::remove_dir_all(test.out()).unwrap();
    run(&host, command()).assert_code(0);
    let again = fs::metadata(copy.join("share/large")).unwrap();
    assert_eq!((again.ino(), again.ctime_nsec()), (complete.ino(), complete.ctime_nsec()));
    host.wait_until_clean();
}

#[test]
fn archive_is_unpacked_here_and_copied_to_a_host() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    release_of_mariadb(&test.path().join("mariadb-9.9.9"), 1);
    let tar = ["-czf", "release.tar.gz", "mariadb-9.9.9"];
    let packed = Command::new("tar").args(tar).current_dir(test.path()).status();
    assert!(packed.unwrap().success());
    let archive = test.path().join("release.tar.gz");
    let there = format!(
        "system = \"mariadb\"\nrelease = {{ tarball = \"{}\" }}\nhost = \"db1\"",
        archive.display()
    );
    let servers = Servers {
        sections: &host.section(),
        candidates: &[("here", INNODB.1), ("there", &there)],
        ..Servers::default()
    };
    run(&host, servers.command(&test, &[])).assert_code(0);
    host.wait_until_clean();
    assert!(Stored::open(&test.out()).server_usage(1).0 > 0);
    assert_eq!(copies(&host).len(), 1);
}

#[test]
#[ignore = "full"]
fn release_runs_on_a_host_with_its_own_loader() {
    let Some(release) = server_release::mysql() else { return };
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let there = format!("{MYSQL}\nhost = \"db1\"");
    let servers = Servers {
        sections: &host.section(),
        candidates: &[("here", MYSQL), ("there", &there)],
        ..Servers::default()
    };
    let mut running: Background = start(&host, servers.command(&test, &[]), &test);
    running.wait_until("slices", || slices_of_live_run(&test.out(), READ) >= 4);
    let server = host.processes().into_iter().find(|(_, line)| line.contains("mysqld")).unwrap();
    // The files that its process has mapped, as they are named on the host.
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.0)).unwrap();
    let libc = maps.lines().find(|line| line.contains("libc.so.6")).unwrap();
    assert!(libc.contains("var-cache/dbdyno/programs/") || libc.contains("/var/cache/dbdyno/"));
    let own = release.folder().to_str().unwrap();
    assert!(!maps.contains(own), "a file of this machine's cache is used");
    running.end().assert_code(0);
    host.wait_until_clean();
    assert!(Stored::open(&test.out()).server_usage(1).0 > 0);
}

#[test]
#[ignore = "full"]
fn compiled_server_runs_on_a_host() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let there = "system = \"postgresql\"\nsource = { debian = \"postgresql-15\" }\nvariant = \"o0\"\n\
                 flags = [\"-march=native\"]\nhost = \"db1\"";
    let servers = Servers {
        sections: &host.section(),
        candidates: &[("here", "system = \"postgresql\""), ("there", there)],
        ..Servers::default()
    };
    run(&host, servers.command(&test, &[])).assert_code(0);
    host.wait_until_clean();
    assert!(Stored::open(&test.out()).server_usage(1).0 > 0);
    assert_eq!(copies(&host).len(), 1);

    host.set_cpuinfo("processor\t: 0\nmodel name\t: Old CPU\nflags\t\t: fpu\n\n");
    fs::remove_dir_all(test.out()).unwrap();
    let finished = run(&host, servers.command(&test, &[]));
    finished.assert_code(1).assert_prints("is compiled for the CPU of this machine");
    finished.assert_prints("and the CPU there, Old CPU, does not have");
    host.wait_until_clean();
}
