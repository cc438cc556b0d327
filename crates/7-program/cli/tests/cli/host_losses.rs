//! Lost connections to hosts: nothing is left there, and a resumed run continues.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::hosts::{HERE_AND_THERE, READ, WRITE, run, start};
use crate::common::{
    Background, Host, INNODB, Inserts, Servers, Step, Stored, TestDir, children, dbdyno,
    resume_command, send, slices_of_live_run, stored_steps, wait_until,
};

/// The time in which an agent must have removed everything.
const CLEAN_WITHIN: Duration = Duration::from_secs(60);

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
#[ignore = "full"]
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

/// At any moment of a run: of loading, warming up with the live optimizer, and measuring.
/// About 15 minutes.
#[test]
#[ignore = "full"]
fn nothing_is_left_after_losses_at_random_moments() {
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
#[ignore = "full"]
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
