//! Servers on another host: a network namespace with an sshd.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::{
    Background, Finished, Host, INNODB, Servers, Stored, TestDir, children, dbdyno, find_first_in,
    finish, send, slices_of_live_run, wait_until,
};
use crate::outside::write_program;
use crate::server_release;

pub const READ: &str = "point-query.pre_range=100";
pub const WRITE: &str = "update-index_range=100";

/// MariaDB here, and MariaDB and PostgreSQL on the host.
pub const HERE_AND_THERE: [(&str, &str); 3] = [
    ("here", "system = \"mariadb\""),
    ("there", "system = \"mariadb\"\nhost = \"db1\""),
    ("postgres", "system = \"postgresql\"\nhost = \"db1\""),
];

pub fn run(host: &Host, mut command: Command) -> Finished {
    host.known_to(&mut command);
    finish(command)
}

/// Checks an experiment.
pub fn check(host: &Host, file: &Path) -> Finished {
    let mut command = dbdyno();
    command.arg("check").arg(file);
    run(host, command)
}

pub fn start(host: &Host, mut command: Command, test: &TestDir) -> Background {
    host.known_to(&mut command);
    Background::start(command, test.path())
}

/// The password in the environment of a worker.
fn password_of(dbdyno: u32) -> Option<String> {
    children(dbdyno).into_iter().find_map(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let value = |one: &str| Some(one.strip_prefix("DBDYNO_PASSWORD=")?.to_owned());
        environment.split('\0').find_map(value)
    })
}

/// Whether a file in this directory, or a command line on this machine, contains the text.
fn is_anywhere(text: &str, directory: &Path) -> bool {
    let found = Command::new("grep").args(["-rlF", "--", text]).arg(directory).output().unwrap();
    let in_files = !found.stdout.is_empty();
    let in_commands = fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        // The one that searches for it.
        !line.starts_with(b"grep") && String::from_utf8_lossy(&line).contains(text)
    });
    in_files || in_commands
}

/// Asserts that only the workers of servers on the host know the password, that it is in no file, and that
/// the servers listen at the host's address only.
#[track_caller]
fn assert_closed(running: &mut Background, host: &Host, test: &TestDir) {
    let (pid, out) = (running.pid(), test.path().join("out"));
    let mut seen = (None, Vec::new());
    // All at one moment: the run may end before its files are searched.
    running.wait_until("slices, a password and servers that listen", || {
        if slices_of_live_run(&out, READ) < 8 {
            return false;
        }
        seen = (password_of(pid), host.listening_addresses());
        seen.0.is_some() && seen.1.len() >= 3
    });
    let (password, listening) = seen;
    assert!(listening.iter().all(|it| it.starts_with(host.address())), "{listening:?}");
    let password = password.unwrap();
    assert!(password.len() >= 32);
    assert!(!is_anywhere(&password, test.path()));
}

#[test]
fn servers_on_a_host_are_measured_beside_local_ones() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let servers = Servers {
        sections: &host.section(),
        candidates: &HERE_AND_THERE,
        microbenchmarks: &format!("\"{READ}\", \"{WRITE}\""),
        control: true,
        clients: "4",
        ..Servers::default()
    };
    let mut running = start(&host, servers.command(&test, &[]), &test);
    assert_closed(&mut running, &host, &test);
    running.end().assert_code(0).assert_prints("network round trip");
    assert_eq!(host.programs().len(), 1, "copied once, and complete: {:?}", host.programs());
    host.wait_until_clean();

    let stored = Stored::open(&test.out());
    for (number, name) in (0..).zip(["here", "there", "postgres", "control"]) {
        let slices: Vec<_> =
            stored.slices().into_iter().filter(|slice| slice.candidate == number).collect();
        assert!(slices.len() >= 2 * 6, "{name}: {}", slices.len());
        assert!(slices.iter().all(|slice| (slice.errors, slice.wrong) == (0, 0)), "{name}");
        let (cpu, switches) = stored.server_usage(number);
        assert!(cpu > 0 && switches > 0, "{name}: {cpu} ns, {switches} switches");
    }
    let text = test.out().join("report.html");
    let report = fs::read_to_string(text).unwrap();
    assert!(report.contains("host db1") && report.contains("TCP to host db1"), "{report}");
    let checked = check(&host, &test.path().join("experiment.toml"));
    checked.assert_code(0).assert_prints("on host db1, version");
    host.wait_until_clean();
}

#[test]
#[ignore = "full"]
fn connections_to_a_host_are_encrypted_on_request() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let servers = Servers {
        sections: &host.section(),
        candidates: &[
            ("plain", "system = \"mariadb\"\nhost = \"db1\""),
            ("encrypted", "system = \"mariadb\"\nhost = \"db1\"\ntls = \"verified\""),
            ("postgres", "system = \"postgresql\"\nhost = \"db1\"\ntls = \"verified\""),
        ],
        clients: "4",
        budget: "3s",
        ..Servers::default()
    };
    let mut running = start(&host, servers.command(&test, &[]), &test);
    running.wait_until("slices", || slices_of_live_run(&test.out(), READ) >= 8);
    // The accounts for the network, as the servers' own sockets tell.
    let accounts = "for f in $(find /var/tmp/dbdyno-agent-* -name my.cnf); do \
         s=$(sed -n 's/^socket = \"\\(.*\\)\"/\\1/p' $f); \
         mariadb --no-defaults --user=root --socket=$s -Ne \
           \"SELECT CONCAT('type=', ssl_type) FROM mysql.user WHERE User = 'dbdyno'; \
             SHOW STATUS LIKE 'Ssl_finished_accepts'\"; done";
    let output = host.ssh().arg(accounts).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut types: Vec<&str> = text.lines().filter(|line| line.starts_with("type=")).collect();
    types.sort_unstable();
    assert_eq!(types, ["type=", "type=ANY"], "{output:?}");
    let accepted: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("Ssl_finished_accepts")?.trim().parse().ok())
        .collect();
    assert!(accepted.contains(&0) && accepted.iter().any(|count| *count >= 4), "{text}");
    let sessions = "f=$(find /var/tmp/dbdyno-agent-* -name postgresql.conf | grep -v /data/post | head -1); \
         d=$(sed -n \"s/^unix_socket_directories = '\\\"\\(.*\\)\\\"'/\\1/p\" $f); \
         p=$(sed -n \"s/^port = '\\(.*\\)'/\\1/p\" $f); \
         psql -h $d -p $p -U dbdyno postgres -Atc \
           \"SELECT bool_and(ssl), COUNT(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE client_addr IS NOT NULL\"";
    let output = host.ssh().arg(sessions).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("t|4"), "{output:?}");
    // The keys are readable by the servers' user only.
    let keys =
        "find /var/tmp/dbdyno-agent-* -name tls-key.pem -perm /077 -o -name tls-key.pem -user root";
    let output = host.ssh().arg(keys).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    running.end().assert_code(0).assert_prints("encryption");
    let stored = Stored::open(&test.out());
    for number in 0..3 {
        let slices = stored.slices().into_iter().filter(|slice| slice.candidate == number);
        assert!(slices.clone().all(|slice| (slice.errors, slice.wrong) == (0, 0)));
    }
    host.wait_until_clean();
}

#[test]
fn full_disk_on_a_host_is_found_before_anything_is_loaded() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let mount = "mkdir /var/tmp/small && mount -t tmpfs -o size=64m small /var/tmp/small";
    assert!(host.ssh().arg(mount).status().unwrap().success());
    let section = format!("{}directory = \"/var/tmp/small\"\n", host.section());
    let candidates = [INNODB, ("there", "system = \"mariadb\"\nhost = \"db1\"")];
    let servers = Servers { sections: &section, candidates: &candidates, ..Servers::default() };
    let error = "host db1: the data needs about";
    run(&host, servers.command(&test, &[])).assert_code(1).assert_prints(error);
    let checked = check(&host, &test.path().join("experiment.toml"));
    checked.assert_code(1).assert_prints(error).assert_prints("disk on db1");
    checked.assert_prints("free in /var/tmp/small");
    assert!(
        host.ssh().arg("umount /var/tmp/small && rmdir /var/tmp/small").status().unwrap().success()
    );
    host.wait_until_clean();
}

/// Starts a MariaDB server on the host that does not belong to dbdyno. Returns its process there.
fn start_theirs(host: &Host, port: u16) -> u32 {
    let address = host.address();
    let script = format!(
        "d=/var/tmp/theirs; mkdir $d && \
         mariadb-install-db --no-defaults --user=root --datadir=$d/data --skip-test-db \
           --auth-root-authentication-method=normal >/dev/null 2>&1 && \
         printf \"%s\\n\" \"CREATE USER bench;\" \"GRANT ALL ON *.* TO bench;\" > $d/init.sql && \
         (setsid mariadbd --no-defaults --user=root --datadir=$d/data --socket=$d/socket \
           --pid-file=$d/pid --bind-address={address} --port={port} --init-file=$d/init.sql \
           </dev/null >$d/log 2>&1 &) ; \
         while ! mariadb-admin --socket=$d/socket ping >/dev/null 2>&1; do sleep 0.1; done; cat $d/pid"
    );
    let output = host.ssh().arg(script).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
#[ignore = "full"]
fn usage_of_an_existing_server_is_read_on_its_host() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let port = 3_399;
    let pid = start_theirs(&host, port);
    let section = host.section();
    let address = host.address();
    let theirs = format!(
        "system = \"mariadb\"\nurl = \"mysql://bench@{address}:{port}/?tls=off\"\nhost = \"db1\""
    );
    let candidates = [("theirs", theirs.as_str()), ("own", "system = \"mariadb\"\nhost = \"db1\"")];
    let servers = Servers {
        sections: &section,
        candidates: &candidates,
        control: true,
        clients: "2",
        ..Servers::default()
    };
    let process = format!("process {pid} (mariadbd) on host db1");
    run(&host, servers.command(&test, &[]))
        .assert_code(0)
        .assert_prints(&format!("theirs: CPU time of {process}"));
    let stored = Stored::open(&test.out());
    for (number, name) in (0..).zip(["theirs", "own", "control"]) {
        let (cpu, switches) = stored.server_usage(number);
        assert!(cpu > 0 && switches > 0, "{name}: {cpu} ns, {switches} switches");
    }
    // The run's schemas are dropped, and the server runs on.
    let tables = "mariadb --socket=/var/tmp/theirs/socket -Ne \"SHOW DATABASES LIKE 'dbdyno%'\"";
    let output = host.ssh().arg(tables).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");

    let check = |lines: &str| {
        let text = format!(
            "name = \"x\"\nbaseline = \"a\"\n{section}\n[[candidate]]\nname = \"a\"\n{theirs}\n{lines}"
        );
        check(&host, &test.file(&text))
    };
    check("").assert_code(0).assert_prints(&process);
    check("pid = 1").assert_code(1).assert_prints("candidate a: host db1: `pid` is process 1 (");
    let end = "kill -9 $(cat /var/tmp/theirs/pid); rm -rf /var/tmp/theirs";
    assert!(host.ssh().arg(end).status().unwrap().success());
    host.wait_until_clean();
}

#[test]
#[ignore = "full"]
fn mysql_runs_on_a_host_with_its_own_account() {
    let Some(release) = server_release::mysql() else { return };
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let program = release.program().display();
    let mysql = format!("system = \"mysql\"\nprogram = \"{program}\"\nhost = \"db1\"");
    let encrypted = format!("{mysql}\ntls = \"verified\"");
    let servers = Servers {
        sections: &host.section(),
        candidates: &[
            ("there", "system = \"mariadb\"\nhost = \"db1\""),
            ("mysql", &mysql),
            ("encrypted", &encrypted),
        ],
        microbenchmarks: &format!("\"{READ}\", \"{WRITE}\""),
        clients: "4",
        ..Servers::default()
    };
    let mut running = start(&host, servers.command(&test, &[]), &test);
    assert_closed(&mut running, &host, &test);
    running.end().assert_code(0);
    let stored = Stored::open(&test.out());
    for number in 0..3 {
        let slices = stored.slices().into_iter().filter(|slice| slice.candidate == number);
        assert!(slices.clone().count() >= 12);
        assert!(slices.clone().all(|slice| (slice.errors, slice.wrong) == (0, 0)));
        assert!(stored.server_usage(number).0 > 0);
    }
    host.wait_until_clean();
}

#[test]
fn unusable_hosts_are_reported_with_the_reason() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let check = |section: &str, candidate: &str| {
        let text = format!(
            "name = \"x\"\nbaseline = \"a\"\n{section}\n[[candidate]]\nname = \"a\"\n\
             system = \"mariadb\"\nhost = \"db1\"\n{candidate}"
        );
        check(&host, &test.file(&text))
    };
    let address = host.address();
    let at = |more: &str| format!("[host.db1]\naddress = \"{address}\"\n{more}");
    check("[host.db1]\naddress = \"no-such-host.invalid\"", "")
        .assert_code(1)
        .assert_prints("set `address`");
    check(&at("ssh = \"other@no-such-host.invalid\""), "")
        .assert_code(1)
        .assert_prints("host db1: logging in with ssh:");
    check(&at("directory = \"/no/such\""), "")
        .assert_code(1)
        .assert_prints("creating a directory for data in /no/such");
    check(&at(""), "program = \"/no/such/mariadbd\"")
        .assert_code(1)
        .assert_prints("candidate a: host db1: looking for the server program /no/such/mariadbd");
    check("[host.db1]\naddress = \"192.0.2.1\"\nssh = \"db1\"", "")
        .assert_code(1)
        .assert_prints("192.0.2.1");
    // An incomplete copy of the program is replaced.
    let [program] = &host.programs()[..] else { panic!("{:?}", host.programs()) };
    // The agent of the last check may still run.
    fs::remove_file(program).unwrap();
    fs::write(program, "incomplete").unwrap();
    check(&at(""), "").assert_code(0).assert_prints("agent answers in");
    host.forbid_logins();
    check(&at(""), "").assert_code(1).assert_prints("Permission denied");
    host.wait_until_clean();
}

/// Checks an experiment with a program `ssh` that answers every command with this script.
fn fake_ssh(test: &TestDir, script: &str) -> Finished {
    finish(with_fake_ssh(test, "check", script))
}

/// A command about an experiment with a host, with a program `ssh` that is this script.
fn with_fake_ssh(test: &TestDir, name: &str, script: &str) -> Command {
    let bin = test.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    write_program(&bin.join("ssh"), &format!("#!/bin/sh\n{script}\n"));
    let text = "name = \"x\"\nbaseline = \"a\"\n[host.db1]\naddress = \"192.0.2.1\"\n\
                [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\nhost = \"db1\"\n";
    let mut command = dbdyno();
    command.arg(name).arg(test.file(text));
    find_first_in(&mut command, &bin);
    command
}

#[test]
fn ctrl_c_does_not_reach_the_ssh_that_logs_in() {
    let test = TestDir::new();
    let started = test.path().join("started");
    let script = format!(": > {}; sleep 1; echo no login now >&2; exit 255", started.display());
    let mut command = with_fake_ssh(&test, "run", &script);
    command.arg("--out").arg(test.out()).process_group(0);
    let mut running = Background::start(command, test.path());
    running.wait_until("ssh starts", || started.exists());
    // To the whole process group, as by a terminal.
    send(running.pid().wrapping_neg(), libc::SIGINT);
    running.end().assert_code(1).assert_prints("logging in with ssh: no login now");
}

#[test]
fn other_machines_and_failed_copies_are_reported() {
    let test = TestDir::new();
    let facts = |machine: &str, libc: &str| {
        format!("echo dbdyno: {machine}; echo dbdyno: {libc}; echo dbdyno: 0")
    };
    fake_ssh(&test, &facts("Linux riscv64", "glibc 2.36"))
        .assert_code(1)
        .assert_prints("host db1: dbdyno cannot run there: it is Linux riscv64");
    let here = format!("Linux {}", std::env::consts::ARCH);
    fake_ssh(&test, &facts(&here, "glibc 2.12"))
        .assert_code(1)
        .assert_prints("it has version 2.12 of the GNU C library");
    fake_ssh(&test, &facts(&here, "other")).assert_code(1).assert_prints("it has no GNU C library");
    let full = format!(
        "case \"$*\" in *umask*) echo cat: write error: No space left on device >&2; exit 1;; \
         *) {};; esac",
        facts(&here, "glibc 2.99")
    );
    fake_ssh(&test, &full).assert_code(1).assert_prints("copying dbdyno");
    fake_ssh(&test, &full).assert_prints("No space left on device");
    for endless in ["exec yes", "exec yes >&2"] {
        fake_ssh(&test, endless).assert_code(1).assert_prints("it printed more than 16 MiB");
    }
    let refused = "echo Host key verification failed. >&2; exit 255";
    fake_ssh(&test, refused).assert_code(1).assert_prints(
        "Host key verification failed.; `ssh db1 true` must work without a question",
    );
}

#[test]
#[ignore = "full"]
fn server_on_a_host_is_restarted_after_its_death() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let section = host.section();
    let candidates = [INNODB, ("there", "system = \"mariadb\"\nhost = \"db1\"")];
    let servers =
        Servers { sections: &section, candidates: &candidates, budget: "2s", ..Servers::default() };
    let mut running = start(&host, servers.command(&test, &[]), &test);
    running.wait_until("slices", || slices_of_live_run(&test.out(), READ) >= 10);
    let processes = host.processes();
    let server = processes.iter().find(|(_, line)| line.contains("mariadbd")).unwrap();
    send(server.0, libc::SIGKILL);
    wait_until("another server", || {
        let is_other = |(pid, line): &(u32, String)| *pid != server.0 && line.contains("mariadbd");
        host.processes().iter().any(is_other)
    });
    running.end().assert_code(0).assert_prints("it was killed");
    host.wait_until_clean();
}
