//! Commands of the live optimizer: refusals, and a small program optimized and undone.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use dbdyno_machine::clock;
use dbdyno_units::Nanos;
use tempfile::TempDir;

use crate::common::{Finished, call, children, dbdyno, finish, send, wait_until};

/// A busy program, killed on drop.
pub struct Busy(pub Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SOURCE: &str = "
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) uint64_t mix(uint64_t x) {
    for (int i = 0; i < 50; i++) x = x % 3 ? x * 5 + 1 : x / 3 + 7;
    return x;
}
int main(void) {
    volatile uint64_t sum = 0;
    FIRST;
    for (uint64_t i = 0;; i++) sum += mix(i);
}
";

/// Samples for half a second. `--force` because that may be too little on a busy machine.
const SAMPLING: [&str; 5] = ["--seconds", "0.5", "--frequency", "7999", "--force"];

/// The program may wait for a CPU before it stops.
const PAUSE: [&str; 2] = ["--max-pause", "500"];

/// A few samples.
pub const FEW: [&str; 4] = ["--seconds", "0.5", "--frequency", "199"];

/// A program that runs some code and then a busy loop, and the state directory of commands about it.
pub struct Lab {
    pub busy: Busy,
    pub pid: String,
    pub state: PathBuf,
    directory: TempDir,
}

impl Lab {
    pub fn new(first: &str) -> Self {
        Self::compiled(first, &[])
    }

    fn compiled(first: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [source, program, state] =
            ["busy.c", "busy", "state"].map(|name| directory.path().join(name));
        fs::write(&source, SOURCE.replace("FIRST", first)).unwrap();
        let mut gcc = Command::new("gcc");
        let status = gcc.arg("-O1").args(flags).arg("-o").arg(&program).arg(&source).status();
        assert!(status.unwrap().success());
        let busy = Busy(Command::new(program).spawn().unwrap());
        let cpu = || clock::process_cpu_of(busy.0.id()).unwrap();
        wait_until("its loop runs", || cpu() > Nanos::from_millis(50));
        Self { pid: busy.0.id().to_string(), busy, state, directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Its only child.
    fn session(&self) -> u32 {
        let [session] = children(self.busy.0.id())[..] else { panic!("it has one child") };
        session
    }

    /// The command `dbdyno live` with these words.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = dbdyno();
        command.arg("live").args(words).arg("--state").arg(&self.state);
        command
    }

    pub fn live(&self, words: &[&str]) -> Finished {
        finish(self.command(words))
    }

    /// The command that samples and optimizes the program.
    pub fn optimize_command(&self, words: &[&str]) -> Command {
        self.command(&[&["optimize"], &SAMPLING[..], &PAUSE, &["--pid", &self.pid], words].concat())
    }

    pub fn optimize(&self, words: &[&str]) -> Finished {
        finish(self.optimize_command(words))
    }

    /// Stops the program for this.
    pub fn change(&self, words: &[&str]) -> Finished {
        self.live(&[words, &PAUSE, &["--pid", &self.pid]].concat())
    }

    fn status(&self) -> Finished {
        self.live(&["status", "--pid", &self.pid])
    }

    /// The mappings of the program; they show memory that was added.
    fn mappings(&self) -> String {
        fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap()
    }

    /// Rules of `watch` for it, for many attempts in a second.
    pub fn watch_rules(&self) -> String {
        let rules = self.path().join("rules.toml");
        let program = self.path().join("busy").display().to_string();
        let watch =
            "cpu = \"1%\"\npoll_interval = \"100ms\"\nprofile = \"100ms\"\ncounts = \"sampled\"";
        fs::write(&rules, format!("[watch]\nexecutables = [{program:?}]\n{watch}\n")).unwrap();
        rules.display().to_string()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_file(format!("/tmp/perf-{}.map", self.pid));
    }
}

#[test]
fn unsupported_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    call(["live", "status", "--state", &state])
        .assert_code(0)
        .assert_prints("No process is optimized");
    // In a PID namespace there are no kernel threads.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let refused = call(["live", "optimize", "--pid", "2", "--state", &state]);
        refused.assert_code(1).assert_prints("kernel thread");
    } else {
        dbdyno_fuzz::skip("in part: no kernel thread here");
    }
    let missing = ["live", "undo", "--pid", "2147483000", "--state", &state];
    call(missing).assert_code(1).assert_prints("does not exist");
    let too_short = call([&missing[..], &["--max-pause", "0"]].concat());
    too_short.assert_code(2).assert_prints("0 is not in 5..=10000").assert_prints("--max-pause");
    let rules = directory.path().join("rules.toml");
    fs::write(&rules, "[watch]\nexecutabels = []\n").unwrap();
    let file = rules.display().to_string();
    let finished = call(["live", "watch", &file, "--state", &state]);
    finished.assert_code(2).assert_prints("executabels").assert_prints("executables");
}

/// A tracer, a system call filter that permits everything, and executable memory in no file.
const RESTRICTED: &str = r"{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ptrace(PTRACE_SEIZE, getppid(), 0, 0);
        for (;;) pause();
    }
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = { 1, &allow };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    mmap(0, 65536, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}";

#[test]
fn check_lists_all_that_forbids_an_optimization_and_touches_nothing() {
    let check = |lab: &Lab, more: &[&str]| {
        let before = lab.mappings();
        let finished = lab.live(&[&["status", "--check", "--pid", &lab.pid], more].concat());
        assert_eq!(lab.mappings(), before);
        assert_eq!(fs::read_dir(&lab.state).unwrap().count(), 0, "a journal");
        finished
    };
    let plain = Lab::new("");
    let found = check(&plain, &[]);
    found.assert_code(0).assert_prints("busy can be optimized").assert_prints("dynamically linked");
    let found: serde_json::Value = serde_json::from_str(&check(&plain, &["--json"]).out).unwrap();
    assert_eq!(found[0]["optimizable"], true);
    assert_eq!(found[0]["checks"][0]["id"], "program");
    // The tracer keeps dbdyno from attaching, and all checks are done nevertheless.
    let found = check(&Lab::new(RESTRICTED), &[]);
    found.assert_code(1).assert_prints("cannot be optimized").assert_prints("(busy) traces it");
    found
        .assert_prints("it has one (seccomp)")
        .assert_prints("64 KiB of executable memory in no file");
    let fixed = Lab::compiled("", &["-static"]);
    check(&fixed, &[]).assert_code(1).assert_prints("FORBIDDEN program: it is statically linked");
    let missing = plain.live(&["status", "--check", "--pid", "2147483000"]);
    missing.assert_code(1).assert_prints("does not exist");
    plain.live(&["status", "--check"]).assert_code(0).assert_prints("No process is optimized");
}

/// A loop that counts down to zero: `dec rdi; jnz; ret`.
const GENERATED: &str = r#"{
    static const char code[] = "\x48\xff\xcf\x75\xfb\xc3";
    char *made = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, code, sizeof code);
    mprotect(made, 4096, PROT_READ | PROT_EXEC);
    for (;;) ((void (*)(uint64_t))made)(1000000000);
}"#;

#[test]
fn program_with_generated_code_is_refused() {
    let lab = Lab::new(GENERATED);
    let finished = lab.live(&["optimize", "--pid", &lab.pid, "--seconds", "0.5"]);
    finished.assert_code(1).assert_prints("just-in-time");
    lab.live(&["status"]).assert_prints("No process is optimized");
}

#[test]
fn program_is_optimized_undone_and_redone() {
    let lab = Lab::new("");
    let undone = lab.change(&["undo"]);
    undone.assert_code(1).assert_prints("is not optimized");
    let bolt = lab.path().join("profile.fdata");
    let done = lab.optimize(&["--bolt-out", bolt.to_str().unwrap()]);
    done.assert_code(0).assert_prints("functions").assert_prints("not measured");
    // The kernel may have lowered the limit of a slow machine.
    done.assert_prints(" times per second and CPU; this takes about ");
    done.assert_prints("per sample, as measured on this machine");
    let profile = fs::read_to_string(bolt).unwrap();
    assert!(profile.contains(" mix ") || profile.contains(" main "), "{profile}");
    lab.status().assert_code(0).assert_prints("; active");
    send(lab.busy.0.id(), libc::SIGSTOP);
    // It may still be running.
    let stopped =
        (0..1_000).map(|_| lab.status()).find(|finished| !finished.out.contains("; active"));
    stopped.expect("it stops").assert_code(0).assert_prints("unknown").assert_prints("is stopped");
    send(lab.busy.0.id(), libc::SIGCONT);
    lab.change(&["undo"]).assert_code(0).assert_prints("undone");
    lab.status().assert_code(0).assert_prints("0 of");
    lab.change(&["undo"]).assert_code(0).assert_prints("nothing to undo: it is not optimized");
    lab.change(&["redo"]).assert_code(0).assert_prints("redone");
    // The replaced code stays.
    lab.optimize(&[]).assert_code(0);
    let status = lab.status();
    status.assert_prints("replaced; its code is kept").assert_prints("of at most 32 MiB");
    lab.change(&["undo"]).assert_code(0);
}

#[test]
fn watch_leaves_a_program_alone_whose_optimization_was_undone() {
    let lab = Lab::new("");
    lab.optimize(&["--counts", "sampled"]).assert_code(0);
    lab.change(&["undo"]).assert_code(0);
    let watched = lab.live(&["watch", &lab.watch_rules(), "--seconds", "3"]);
    watched.assert_code(0).assert_prints("undone: left alone until `dbdyno live redo`");
    assert_eq!(watched.out.lines().count(), 1, "{}", watched.out);
    lab.live(&["status"]).assert_prints("; inactive");
}

#[test]
fn files_of_an_ended_program_are_removed_by_status() {
    let mut lab = Lab::new("");
    lab.optimize(&["--counts", "sampled"]).assert_code(0);
    let map = PathBuf::from(format!("/tmp/perf-{}.map", lab.pid));
    let state = lab.state.clone();
    let journals = || fs::read_dir(&state).unwrap().count();
    lab.status().assert_code(0).assert_prints("; active");
    assert_eq!((map.exists(), journals()), (true, 1));
    lab.busy.0.kill().unwrap();
    lab.busy.0.wait().unwrap();
    lab.live(&["status"]).assert_code(0).assert_prints("No process is optimized");
    assert_eq!((map.exists(), journals()), (false, 0));
}

/// Kills the child when its parent exits.
const FORK: &str = "if (fork() == 0) prctl(PR_SET_PDEATHSIG, SIGKILL)";

#[test]
fn optimization_that_cannot_be_undone_is_reported() {
    let lab = Lab::new(FORK);
    let (pid, session) = (&lab.pid, lab.session());
    let to = |word| lab.change(&[word, "--family"]);
    lab.optimize(&["--family"]).assert_code(0).assert_prints("optimized as its parent");
    let lock = |pid: u32| {
        let prefix = format!("{pid}-");
        let is_own =
            |entry: &fs::DirEntry| entry.file_name().to_str().unwrap().starts_with(&prefix);
        let journal = fs::read_dir(&lab.state).unwrap().flatten().find(is_own).unwrap().path();
        let lock = File::open(journal.join("lock")).unwrap();
        lock.lock().unwrap();
        lock
    };
    // The session is undone even if its parent cannot be.
    let locked = lock(lab.busy.0.id());
    let finished = to("undo");
    finished.assert_code(1).assert_prints(&format!("attached to process {pid};"));
    finished.assert_prints(&format!("Process {session}: undone"));
    drop(locked);
    to("redo").assert_code(0).assert_prints(&format!("Process {session}: redone"));
    let locked = lock(session);
    let finished = to("undo");
    finished.assert_code(1).assert_prints(&format!("Process {pid}: undone"));
    finished.assert_prints(&format!("Process {session}: not undone: another dbdyno is attached"));
    drop(locked);
    to("undo").assert_code(0).assert_prints(&format!("Process {session}: undone"));
    to("redo").assert_code(0).assert_prints(&format!("Process {session}: redone"));
    to("undo").assert_code(0);
}

#[test]
fn few_samples_are_refused_and_change_nothing() {
    let lab = Lab::new("");
    let to = |words: &[&str]| lab.change(&[&["optimize"], &FEW[..], words].concat());
    let before = lab.mappings();
    let refused = to(&[]);
    refused.assert_code(1).assert_prints("was not changed: too few samples: ");
    refused.assert_prints("at least 1000 are required").assert_prints("--force");
    let planned = to(&["--dry-run"]);
    planned.assert_code(1).assert_prints("would not be optimized");
    planned.assert_prints("refused too few samples: ");
    assert_eq!(lab.mappings(), before);
    // Nothing is left that `status` could show.
    assert_eq!(fs::read_dir(&lab.state).unwrap().count(), 0);
    lab.live(&["status"]).assert_prints("No process is optimized");
    let forced = to(&["--force"]);
    forced.assert_code(0).assert_prints("warning too few samples: ");
    let undone = lab.live(&["undo", "--all", PAUSE[0], PAUSE[1]]);
    undone.assert_code(0).assert_prints(&format!("Process {}: undone", lab.pid));
}

#[test]
fn dry_run_shows_the_plan_and_changes_nothing() {
    let lab = Lab::new("");
    let before = lab.mappings();
    let plan = |words: &[&str]| {
        let dry_run = ["optimize", "--dry-run", "--pid", &lab.pid];
        lab.live(&[&dry_run, &SAMPLING[..], words].concat())
    };
    let planned = plan(&[]);
    planned.assert_code(0).assert_prints("dry run; it was not changed").assert_prints("to move");
    planned.assert_prints("of address space added").assert_prints("to redirect");
    planned.assert_prints("1 thread, at most 20 ms at a time");
    let json = plan(&["--json"]);
    json.assert_code(0).assert_prints("\"planned\": {").assert_prints("\"per_sample_ns\": ");
    assert_eq!(lab.mappings(), before);
    assert_eq!(fs::read_dir(&lab.state).unwrap().count(), 0);
}

#[test]
fn all_optimizations_are_undone_at_once() {
    let mut both = [Lab::new(""), Lab::new("")];
    both[1].state = both[0].path().join("state");
    let undo = || both[0].live(&["undo", "--all", PAUSE[0], PAUSE[1]]);
    undo().assert_code(0).assert_prints("No process is optimized");
    both.iter().for_each(|lab| {
        lab.optimize(&[]).assert_code(0);
    });
    let undone = undo();
    undone.assert_code(0);
    let status = both[0].live(&["status"]);
    for lab in &both {
        undone.assert_prints(&format!("Process {}: undone", lab.pid));
        status.assert_prints(&format!("Process {}: ", lab.pid));
    }
    assert!(!status.out.contains("; active"), "{}", status.out);
}

#[test]
fn several_processes_and_none_are_explained() {
    let lab = Lab::new(FORK);
    // As from `--pid $(pidof busy)`, youngest first.
    let session = lab.session().to_string();
    for command in ["optimize", "status", "undo", "redo"] {
        let refused = lab.live(&[command, "--pid", &session, &lab.pid]);
        refused.assert_code(2).assert_prints("--pid accepts one process, but 2 are given");
        refused.assert_prints(&format!("use: --pid {} --family", lab.pid));
        assert!(refused.err.matches("/busy").count() >= 2, "{}", refused.err);
    }
    lab.live(&["undo", "--pid"]).assert_code(2).assert_prints("no process has this name");
    let help = call(["live", "optimize", "--help"]);
    help.assert_prints("--dry-run").assert_prints("--max-overhead <PERCENT>");
    assert!(!help.out.contains("[PID]"), "{}", help.out);
    let budget = lab.live(&["optimize", "--pid", &lab.pid, "--max-overhead", "5"]);
    budget.assert_code(2).assert_prints("has no unit");
}

/// Installs a system call filter when it gets SIGUSR1, which ends the process for any call.
const CONFINE: &str = "
    void confine(int signal) {
        struct sock_filter steps[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        struct sock_fprog filter = { 4, steps };
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    }
    signal(SIGUSR1, confine)";

/// Runs dbdyno under a system call filter that permits everything: so it cannot read those of others.
fn finish_filtered(mut command: Command) -> Finished {
    const ALLOW: libc::sock_filter = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let install = || {
        let mut steps = [ALLOW];
        let filter = libc::sock_fprog { len: 1, filter: steps.as_mut_ptr() };
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: numbers, and a live filter.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: it makes system calls only.
    unsafe { command.pre_exec(install) };
    finish(command)
}

#[test]
fn undo_and_redo_work_under_a_filter_that_permits_no_system_call() {
    let mut lab = Lab::new(CONFINE);
    lab.optimize(&[]).assert_code(0);
    send(lab.busy.0.id(), libc::SIGUSR1);
    let status = || fs::read_to_string(format!("/proc/{}/status", lab.pid)).unwrap();
    wait_until("it has a filter", || status().contains("Seccomp:\t2"));
    let refused = finish_filtered(lab.optimize_command(&[]));
    refused.assert_code(1).assert_prints("system call filter (seccomp)");
    let planned = finish_filtered(lab.optimize_command(&["--dry-run"]));
    planned.assert_code(1).assert_prints("system call filter (seccomp)");
    let to = |word| finish_filtered(lab.command(&[word, "--pid", &lab.pid, PAUSE[0], PAUSE[1]]));
    to("undo").assert_code(0).assert_prints("undone; ");
    to("redo").assert_code(0).assert_prints("redone; ");
    assert!(lab.busy.0.try_wait().unwrap().is_none(), "it died");
}

/// Work that is independent of what the program does, so that nothing can be proven.
const NO_WORK: [&str; 4] = ["--work-command", "echo 5", "--ab-test", "0.4"];

#[test]
fn unproven_optimization_is_undone_unless_kept() {
    let lab = Lab::new("");
    let run = |words: &[&str]| lab.optimize(&[&NO_WORK, words].concat());
    let status = || lab.live(&["status"]);
    run(&[])
        .assert_code(0)
        .assert_prints("not proven: work was done in 0 of 10")
        .assert_prints("; undone");
    status().assert_prints("; inactive").assert_prints("gdb: source ");
    run(&["--keep"]).assert_code(0).assert_prints("; active");
    status().assert_prints("; active");
    lab.change(&["optimize", "--keep"]).assert_code(2).assert_prints("--work-command");
    lab.live(&["undo", "--all", PAUSE[0], PAUSE[1]]).assert_code(0);
}

#[test]
fn ab_test_verdict_decides_whether_optimization_stays_active() {
    let lab = Lab::new("");
    // Its work is independent of the layout, so that there is no real difference.
    let work = ["--work-command", "cut -d ' ' -f 1 /proc/uptime", "--ab-test", "4"];
    let finished = lab.optimize(&work);
    finished.assert_code(0).assert_prints("CPU time per unit of work × ");
    let status = lab.live(&["status"]);
    let words = finished.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_better = words.contains(": better; active");
    status.assert_prints(if is_better { "; active" } else { "; inactive" });
    assert!(is_better || words.contains("; undone"), "{words}");
}

#[test]
fn failed_ab_test_undoes_the_optimization() {
    let lab = Lab::new("");
    // It is read once before the A/B test and twice per period; the sixth period fails.
    let file = lab.path().join("asked").display().to_string();
    let work = format!("echo >> {file}; wc -l < {file}; [ $(wc -l < {file}) -le 11 ]");
    let finished = lab.optimize(&["--ab-test", "0.2", "--work-command", &work]);
    finished
        .assert_code(1)
        .assert_prints("functions")
        .assert_prints("the A/B test failed: ")
        .assert_prints("; undone");
    lab.live(&["status"]).assert_prints("; inactive");
}

/// Forks a process that does the same when it gets SIGUSR1, as servers do for a session.
const FORK_LATER: &str =
    "void split(int signal) { if (fork() == 0) prctl(PR_SET_PDEATHSIG, SIGKILL); }
    signal(SIGUSR1, split)";

#[test]
fn failed_ab_test_undoes_the_optimization_in_sessions_that_started_meanwhile() {
    let lab = Lab::new(FORK_LATER);
    let pid = &lab.pid;
    // As above. The fifth period starts a session, while the optimized code is active.
    let file = lab.path().join("asked").display().to_string();
    let children_of = format!("/proc/{pid}/task/{pid}/children");
    let start = format!(
        "if [ $(wc -l < {file}) -eq 10 ]; then kill -USR1 {pid}; \
         while [ -z \"$(cat {children_of})\" ]; do sleep 0.01; done; fi"
    );
    let work = format!("echo >> {file}; {start}; wc -l < {file}; [ $(wc -l < {file}) -le 11 ]");
    let finished = lab.optimize(&["--family", "--ab-test", "0.2", "--work-command", &work]);
    finished.assert_code(1).assert_prints("; undone");
    let status = lab.live(&["status", "--pid", &lab.session().to_string()]);
    status.assert_prints("; inactive");
}
