//! Servers on another host: a network namespace with an sshd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{
    Background, Finished, Host, INNODB, Inserts, Servers, Step, Stored, TestDir, children, dbdyno,
    finish, resume_command, send, slices_of_live_run, stored_steps, wait_until,
};
use crate::mysql_release;

const READ: &str = "point-query.pre_range=100";
const WRITE: &str = "update-index_range=100";

/// MariaDB here, and MariaDB and PostgreSQL on the host.
const HERE_AND_THERE: [(&str, &str); 3] = [
    ("here", "system = \"mariadb\""),
    ("there", "system = \"mariadb\"\nhost = \"db1\""),
    ("postgres", "system = \"postgresql\"\nhost = \"db1\""),
];

/// The time in which an agent must have removed everything.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);

pub fn run(host: &Host, mut command: Command) -> Finished {
    host.known_to(&mut command);
    finish(command)
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

#[test]
fn servers_on_a_host_are_measured_beside_local_ones() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let section = host.section();
    let servers = Servers {
        sections: &section,
        candidates: &HERE_AND_THERE,
        microbenchmarks: &format!("\"{READ}\", \"{WRITE}\""),
        control: true,
        clients: "4",
        ..Servers::default()
    };
    let mut running = start(&host, servers.command(&test, &[]), &test);
    running.wait_until("slices", || slices_of_live_run(&test.out(), READ) >= 8);
    // Only the workers of servers on the host know the password, and it is in no file.
    let password = password_of(running.pid()).unwrap();
    assert!(password.len() >= 32);
    assert!(!is_anywhere(&password, test.path()));
    let listening = host.listening_addresses();
    assert!(listening.len() >= 3 && listening.iter().all(|it| it.starts_with(host.address())));
    running.end().assert_code(0).assert_prints("network round trip");
    assert_eq!(host.programs().len(), 1, "copied once, and complete: {:?}", host.programs());
    host.wait_until_clean();

    let stored = Stored::open(&test.out());
    for (number, name) in (0..).zip(["here", "there", "postgres", "control"]) {
        let slices: Vec<_> =
            stored.slices().into_iter().filter(|slice| slice.candidate == number).collect();
        assert!(slices.len() >= 24, "{name}: {}", slices.len());
        assert!(slices.iter().all(|slice| (slice.errors, slice.wrong) == (0, 0)), "{name}");
        let (cpu, switches) = stored.server_usage(number);
        assert!(cpu > 0 && switches > 0, "{name}: {cpu} ns, {switches} switches");
    }
    let text = test.out().join("report.html");
    let report = fs::read_to_string(text).unwrap();
    assert!(report.contains("host db1") && report.contains("TCP to host db1"), "{report}");
    let mut command = dbdyno();
    command.arg("check").arg(test.path().join("experiment.toml"));
    run(&host, command).assert_code(0).assert_prints("on host db1, version");
    host.wait_until_clean();
}

#[test]
fn connections_to_a_host_are_encrypted_on_request() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let section = host.section();
    let servers = Servers {
        sections: &section,
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
    let mut command = dbdyno();
    command.arg("check").arg(test.path().join("experiment.toml"));
    let checked = run(&host, command);
    checked.assert_code(1).assert_prints(error).assert_prints("disk on db1");
    checked.assert_prints("free in /var/tmp/small");
    assert!(
        host.ssh().arg("umount /var/tmp/small && rmdir /var/tmp/small").status().unwrap().success()
    );
    host.wait_until_clean();
}

/// The agent on a host, or its guard.
fn agent_on(host: &Host, guard: bool) -> Option<u32> {
    let is_it = |line: &str| {
        line.contains(" agent") && line.contains("--guard") == guard && !line.starts_with("sh ")
    };
    host.processes().iter().find(|(_, line)| is_it(line)).map(|(pid, _)| *pid)
}

/// What ends a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Run,
    Ssh,
    Agent,
    Guard,
    Sshd,
    Cable,
}

impl Loss {
    /// Does it to a run.
    fn happen(self, run: &Background, host: &Host) {
        match self {
            Self::Run => run.signal(libc::SIGKILL),
            Self::Ssh => {
                let is_ssh = |pid: &u32| {
                    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it == "ssh\n")
                };
                children(run.pid()).into_iter().filter(is_ssh).for_each(|pid| {
                    send(pid, libc::SIGKILL);
                });
            }
            Self::Agent | Self::Guard => {
                if let Some(pid) = agent_on(host, self == Self::Guard) {
                    send(pid, libc::SIGKILL);
                }
            }
            Self::Sshd => host.end_sessions(),
            Self::Cable => host.set_cable(false),
        }
    }
}

/// Loses the connection of a run, and checks that nothing is left on the host in time.
fn lose(loss: Loss, running: Background, host: &Host) {
    let lost = Instant::now();
    loss.happen(&running, host);
    let ended = running.end();
    host.wait_until_clean();
    assert!(lost.elapsed() < CLEAN_WITHIN, "{loss:?}: {:?}", lost.elapsed());
    host.set_cable(true);
    if loss != Loss::Run {
        ended.assert_code(1).assert_prints("lost the connection to host db1");
        ended.assert_prints("--resume");
    }
}

/// An experiment whose baseline is here, with a read and a write.
fn interrupted<'a>(section: &'a str, microbenchmarks: &'a str, budget: &'a str) -> Servers<'a> {
    Servers {
        sections: section,
        candidates: &HERE_AND_THERE[..2],
        microbenchmarks,
        budget,
        ..Servers::default()
    }
}

#[test]
fn nothing_is_left_after_a_loss_and_resume_continues() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let section = host.section();
    let microbenchmarks = format!("\"{READ}\", \"{WRITE}\"");
    let servers = interrupted(&section, &microbenchmarks, "3s");
    let out = test.out();
    let mut running = start(&host, servers.command(&test, &[]), &test);
    let mut slices = 0;
    for loss in [Loss::Run, Loss::Agent, Loss::Cable] {
        running.wait_until("slices", || {
            let now = slices_of_live_run(&out, READ) + slices_of_live_run(&out, WRITE);
            now >= slices + 10
        });
        lose(loss, running, &host);
        slices = Stored::open(&out).slices().len() as u64;
        running = start(&host, resume_command(&out, &[]), &test);
    }
    running.end().assert_code(0);
    host.wait_until_clean();
    let stored = Stored::open(&out);
    assert!(stored.microbenchmarks().iter().all(|(_, done)| *done));
    assert!(stored.slices().len() as u64 > slices);
}

#[test]
fn clean_removes_what_a_killed_agent_and_its_guard_left() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let section = host.section();
    let servers = interrupted(&section, "\"point-query.pre_range=100\"", "30s");
    let out = test.out();
    let mut running = start(&host, servers.command(&test, &[]), &test);
    running.wait_until("slices", || slices_of_live_run(&out, READ) >= 4);
    let (agent, guard) = (agent_on(&host, false).unwrap(), agent_on(&host, true).unwrap());
    // A stopped one neither cleans up nor is replaced.
    send(guard, libc::SIGSTOP);
    send(agent, libc::SIGKILL);
    send(guard, libc::SIGKILL);
    running.end().assert_code(1).assert_prints("lost the connection to host db1");
    wait_until("the servers end with their agent", || host.processes().is_empty());
    assert!(!host.files().is_empty());
    let mut command = dbdyno();
    command.arg("clean").arg(&out);
    run(&host, command).assert_code(0);
    host.wait_until_clean();
}

/// At any moment of a run: of loading, warming up with the live optimizer, and measuring. With
/// `DBDYNO_LONG_TESTS=1` only: about 15 minutes.
#[test]
fn nothing_is_left_after_losses_at_random_moments() {
    if !std::env::var("DBDYNO_LONG_TESTS").is_ok_and(|value| value == "1") {
        return;
    }
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let section = host.section();
    let microbenchmarks = format!("\"{READ}\", \"{WRITE}\"");
    let live = "system = \"mariadb\"\nhost = \"db1\"\ntls = \"verified\"\n\
                live = { profile = \"500ms\", max_pause = \"500ms\", force = true }";
    let candidates = [HERE_AND_THERE[0], HERE_AND_THERE[2], ("live", live)];
    let servers =
        Servers { candidates: &candidates, ..interrupted(&section, &microbenchmarks, "5min") };
    let out = test.out();
    let losses = [Loss::Run, Loss::Ssh, Loss::Agent, Loss::Sshd, Loss::Cable, Loss::Guard];
    let mut running = start(&host, servers.command(&test, &[]), &test);
    let mut slices = 0;
    // Multiplication by an odd constant visits all moments of the first 6 s.
    for number in 0..50_u64 {
        let loss = losses[number as usize % losses.len()];
        // Before, there is nothing to lose, and nothing to resume.
        running.wait_until("the agent", || {
            agent_on(&host, true).is_some() && out.join("run.sqlite").exists()
        });
        std::thread::sleep(Duration::from_millis(number * 2_741 % 6_000));
        if loss == Loss::Guard {
            // Harmless: the agent starts another.
            loss.happen(&running, &host);
            std::thread::sleep(Duration::from_secs(3));
            lose(Loss::Run, running, &host);
        } else {
            lose(loss, running, &host);
        }
        let now = Stored::open(&out).slices().len() as u64;
        assert!(now >= slices, "{loss:?}: slices are lost");
        slices = now;
        running = start(&host, resume_command(&out, &[]), &test);
    }
    running.signal(libc::SIGINT);
    running.end();
    host.wait_until_clean();
}

#[test]
fn insert_benchmark_reads_usage_of_a_server_on_its_host() {
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let inserts = Inserts {
        section: "clients = 2\ntables = 1\nrows = { i0 = 20_000, i1 = 6_000, i2 = 500 }\n\
                  rates = 200\nseconds = \"3s\"",
        candidates: &[
            INNODB,
            ("there", "system = \"mariadb\"\nhost = \"db1\""),
            ("rocks", "system = \"mariadb\"\nengine = \"myrocks\"\nhost = \"db1\""),
            ("postgres", "system = \"postgresql\"\nhost = \"db1\""),
        ],
    };
    let out = test.out();
    let running = start(&host, inserts.command(&test, &out, &host.section()), &test);
    // The second in the order, whichever it is.
    wait_until("steps of the second candidate on the host", || {
        let of_second = |step: &&Step| step.place >= 1 && step.candidate != 0 && step.is_done();
        stored_steps(&out).iter().filter(of_second).count() >= 3
    });
    lose(Loss::Agent, running, &host);
    let before = stored_steps(&out);
    let lost = before.last().unwrap().candidate;
    run(&host, resume_command(&out, &[])).assert_code(0).assert_prints("from its first step");
    host.wait_until_clean();
    // The data there ends with the connection: the steps of that candidate are repeated, no others.
    let steps = stored_steps(&out);
    let is_same = |old: &Step| steps.contains(old);
    for old in &before {
        assert_eq!(is_same(old), old.candidate != lost, "{} of {}", old.name, old.candidate);
    }
    let of = |number: i64| -> Vec<&Step> {
        steps.iter().filter(|step| step.candidate == number).collect()
    };
    for number in 0..4 {
        let steps = of(number);
        assert!(steps.len() >= 6 && steps.iter().all(|step| step.is_done()), "{number}");
        for step in steps.iter().filter(|step| step.name != "settle") {
            let positive = ["/system/cpu", "/system/context_switches", "/database", "/resident"];
            for path in positive {
                assert!(step.number(path) > 0.0, "{path} of {} of {number}", step.name);
            }
        }
        let timed = steps.iter().find(|step| step.name.starts_with('q')).unwrap();
        assert!(timed.seconds >= 2);
        // Each second has its own readings, and their sum is that of the step.
        let cpu = cpu_of_seconds(&out, timed.id);
        assert_eq!(cpu.0, timed.seconds, "{number}");
        let whole = timed.number("/system/cpu");
        assert!(cpu.1 > 0.95 * whole && cpu.1 <= whole, "{number}: {cpu:?} of {whole}");
    }
}

/// The number of stored seconds of a step whose CPU time is known, and the sum of it.
fn cpu_of_seconds(out: &Path, step: i64) -> (i64, f64) {
    let database = rusqlite::Connection::open(out.join("run.sqlite")).unwrap();
    let sql = "SELECT COUNT(cpu_ns), SUM(cpu_ns) FROM insert_second WHERE step = ?";
    database.query_row(sql, [step], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
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
        let mut command = dbdyno();
        command.arg("check").arg(test.file(&text));
        run(&host, command)
    };
    check("").assert_code(0).assert_prints(&process);
    check("pid = 1").assert_code(1).assert_prints("candidate a: host db1: `pid` is process 1 (");
    let end = "kill -9 $(cat /var/tmp/theirs/pid); rm -rf /var/tmp/theirs";
    assert!(host.ssh().arg(end).status().unwrap().success());
    host.wait_until_clean();
}

#[test]
fn mysql_runs_on_a_host_with_its_own_account() {
    let Some(release) = mysql_release::mysql() else { return };
    let test = TestDir::new();
    let Some(host) = Host::start(&test) else { return };
    let section = host.section();
    let program = release.program().display();
    let mysql = format!("system = \"mysql\"\nprogram = \"{program}\"\nhost = \"db1\"");
    let encrypted = format!("{mysql}\ntls = \"verified\"");
    let servers = Servers {
        sections: &section,
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
    running.wait_until("slices", || slices_of_live_run(&test.out(), READ) >= 8);
    let password = password_of(running.pid()).unwrap();
    assert!(!is_anywhere(&password, test.path()));
    let listening = host.listening_addresses();
    assert!(listening.len() >= 3 && listening.iter().all(|it| it.starts_with(host.address())));
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
        let mut command = dbdyno();
        command.arg("check").arg(test.file(&text));
        run(&host, command)
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
    fs::write(program, "incomplete").unwrap();
    check(&at(""), "").assert_code(0).assert_prints("agent answers in");
    host.forbid_logins();
    check(&at(""), "").assert_code(1).assert_prints("Permission denied");
    host.wait_until_clean();
}

/// A program `ssh` that answers every command with this script.
fn fake_ssh(test: &TestDir, script: &str) -> Finished {
    let bin = test.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("ssh"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let text = "name = \"x\"\nbaseline = \"a\"\n[host.db1]\naddress = \"192.0.2.1\"\n\
                [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\nhost = \"db1\"\n";
    let mut command = dbdyno();
    command.arg("check").arg(test.file(text));
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
    finish(command)
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
    let refused = "echo Host key verification failed. >&2; exit 255";
    fake_ssh(&test, refused).assert_code(1).assert_prints(
        "Host key verification failed.; `ssh db1 true` must work without a question",
    );
}

#[test]
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
