//! Commands of the live optimizer: refusals, and a small program optimized and undone.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

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
pub const SAMPLING: [&str; 5] = ["--seconds", "0.5", "--frequency", "7999", "--force"];

/// A few samples.
pub const FEW: [&str; 4] = ["--seconds", "0.5", "--frequency", "199"];

/// Runs some code and then a busy loop.
pub fn busy(directory: &Path, first: &str) -> Busy {
    busy_with(directory, first, &[])
}

fn busy_with(directory: &Path, first: &str, flags: &[&str]) -> Busy {
    let source = directory.join("busy.c");
    let program = directory.join("busy");
    fs::write(&source, SOURCE.replace("FIRST", first)).unwrap();
    let status =
        Command::new("gcc").arg("-O1").args(flags).arg("-o").arg(&program).arg(&source).status();
    assert!(status.unwrap().success());
    let child = Busy(Command::new(program).spawn().unwrap());
    sleep(Duration::from_millis(200));
    child
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
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let check = |busy: &Busy, more: &[&str]| {
        let pid = busy.0.id().to_string();
        let before = mappings(&pid);
        let words = ["live", "status", "--check", "--pid", &pid, "--state", &state];
        let finished = call(words.iter().chain(more).copied());
        assert_eq!(mappings(&pid), before);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0, "a journal");
        finished
    };
    let plain = busy(directory.path(), "");
    let found = check(&plain, &[]);
    found.assert_code(0).assert_prints("busy can be optimized").assert_prints("dynamically linked");
    let found: serde_json::Value = serde_json::from_str(&check(&plain, &["--json"]).out).unwrap();
    assert_eq!(found[0]["optimizable"], true);
    assert_eq!(found[0]["checks"][0]["id"], "program");
    drop(plain);
    // The tracer keeps dbdyno from attaching, and all checks are done nevertheless.
    let restricted = busy(directory.path(), RESTRICTED);
    let found = check(&restricted, &[]);
    found.assert_code(1).assert_prints("cannot be optimized").assert_prints("(busy) traces it");
    found
        .assert_prints("it has one (seccomp)")
        .assert_prints("64 KiB of executable memory in no file");
    drop(restricted);
    let fixed = busy_with(directory.path(), "", &["-static"]);
    check(&fixed, &[]).assert_code(1).assert_prints("FORBIDDEN program: it is statically linked");
    call(["live", "status", "--check", "--pid", "2147483000", "--state", &state])
        .assert_code(1)
        .assert_prints("does not exist");
    call(["live", "status", "--check", "--state", &state])
        .assert_code(0)
        .assert_prints("No process is optimized");
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
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), GENERATED);
    let pid = busy.0.id().to_string();
    let finished = call(["live", "optimize", "--pid", &pid, "--state", &state, "--seconds", "0.5"]);
    finished.assert_code(1).assert_prints("just-in-time");
    call(["live", "status", "--state", &state]).assert_prints("No process is optimized");
}

#[test]
fn program_is_optimized_undone_and_redone() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let to = |words: &[&str]| {
        let rest = ["--pid", &pid, "--state", &state];
        let options = if words[0] == "status" { &[][..] } else { &["--max-pause", "500"][..] };
        call(["live"].iter().chain(words).chain(&rest).chain(options).copied())
    };
    let undone = to(&["undo"]);
    undone.assert_code(1).assert_prints("is not optimized");
    let bolt = directory.path().join("profile.fdata").display().to_string();
    let done = to(&[&["optimize", "--bolt-out", &bolt], &SAMPLING[..]].concat());
    done.assert_code(0).assert_prints("functions").assert_prints("not measured");
    done.assert_prints("7999 times per second and CPU; this takes about ");
    done.assert_prints("per sample, as measured on this machine");
    let profile = fs::read_to_string(bolt).unwrap();
    assert!(profile.contains(" mix ") || profile.contains(" main "), "{profile}");
    to(&["status"]).assert_code(0).assert_prints("; active");
    send(busy.0.id(), libc::SIGSTOP);
    // It may still be running.
    let stopped =
        (0..1_000).map(|_| to(&["status"])).find(|finished| !finished.out.contains("; active"));
    stopped.expect("it stops").assert_code(0).assert_prints("unknown").assert_prints("is stopped");
    send(busy.0.id(), libc::SIGCONT);
    to(&["undo"]).assert_code(0).assert_prints("undone");
    to(&["status"]).assert_code(0).assert_prints("0 of");
    to(&["redo"]).assert_code(0).assert_prints("redone");
    // The replaced code stays.
    to(&[&["optimize"], &SAMPLING[..]].concat()).assert_code(0);
    let status = to(&["status"]);
    status.assert_prints("replaced; its code is kept").assert_prints("of at most 32 MiB");
    to(&["undo"]).assert_code(0);
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

/// Writes rules of `watch` for the busy program, for many attempts in a second.
pub fn watch_rules(directory: &Path) -> String {
    let rules = directory.join("rules.toml");
    let program = directory.join("busy").display().to_string();
    let watch =
        "cpu = \"1%\"\npoll_interval = \"100ms\"\nprofile = \"100ms\"\ncounts = \"sampled\"";
    fs::write(&rules, format!("[watch]\nexecutables = [{program:?}]\n{watch}\n")).unwrap();
    rules.display().to_string()
}

#[test]
fn watch_leaves_a_program_alone_whose_optimization_was_undone() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let rest = ["--pid", &pid, "--state", &state, "--max-pause", "500"];
    let optimize = ["live", "optimize", "--counts", "sampled"];
    call(optimize.iter().chain(&SAMPLING).chain(&rest).copied()).assert_code(0);
    call(["live", "undo"].iter().chain(&rest).copied()).assert_code(0);
    let file = watch_rules(directory.path());
    let watched = call(["live", "watch", &file, "--seconds", "3", "--state", &state]);
    watched.assert_code(0).assert_prints("undone: left alone until `dbdyno live redo`");
    assert_eq!(watched.out.lines().count(), 1, "{}", watched.out);
    call(["live", "status", "--state", &state]).assert_prints("; inactive");
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

/// Kills the child when its parent exits.
const FORK: &str = "if (fork() == 0) prctl(PR_SET_PDEATHSIG, SIGKILL)";

#[test]
fn optimization_that_cannot_be_undone_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let busy = busy(directory.path(), FORK);
    let pid = busy.0.id().to_string();
    let [session] = children(busy.0.id())[..] else { panic!("it has one child") };
    let to = |words: &[&str]| {
        let rest = ["--pid", &pid, "--family", "--max-pause", "500"];
        let state = ["--state", state.to_str().unwrap()];
        call(["live"].iter().chain(words).chain(&rest).chain(&state).copied())
    };
    let optimized = to(&[&["optimize"], &SAMPLING[..]].concat());
    optimized.assert_code(0).assert_prints("optimized as its parent");
    let lock = |pid: u32| {
        let prefix = format!("{pid}-");
        let is_own =
            |entry: &fs::DirEntry| entry.file_name().to_str().unwrap().starts_with(&prefix);
        let journal = fs::read_dir(&state).unwrap().flatten().find(is_own).unwrap().path();
        let lock = File::open(journal.join("lock")).unwrap();
        lock.lock().unwrap();
        lock
    };
    // The session is undone even if its parent cannot be.
    let locked = lock(busy.0.id());
    let finished = to(&["undo"]);
    finished.assert_code(1).assert_prints(&format!("attached to process {pid};"));
    finished.assert_prints(&format!("Process {session}: undone"));
    drop(locked);
    to(&["redo"]).assert_code(0).assert_prints(&format!("Process {session}: redone"));
    let locked = lock(session);
    let finished = to(&["undo"]);
    finished.assert_code(1).assert_prints(&format!("Process {pid}: undone"));
    finished.assert_prints(&format!("Process {session}: not undone: another dbdyno is attached"));
    drop(locked);
    to(&["undo"]).assert_code(0).assert_prints(&format!("Process {session}: undone"));
    to(&["redo"]).assert_code(0).assert_prints(&format!("Process {session}: redone"));
    to(&["undo"]).assert_code(0);
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

/// The mappings of a process; they show memory that was added.
fn mappings(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/maps")).unwrap()
}

#[test]
fn few_samples_are_refused_and_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let to = |words: &[&str]| {
        let rest = ["--pid", &pid, "--state", &state, "--max-pause", "500"];
        call(["live", "optimize"].iter().chain(&FEW).chain(words).chain(&rest).copied())
    };
    let before = mappings(&pid);
    let refused = to(&[]);
    refused.assert_code(1).assert_prints("was not changed: too few samples: ");
    refused.assert_prints("at least 1000 are required").assert_prints("--force");
    let planned = to(&["--dry-run"]);
    planned.assert_code(1).assert_prints("refused too few samples: ");
    assert_eq!(mappings(&pid), before);
    // Nothing is left that `status` could show.
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    call(["live", "status", "--state", &state]).assert_prints("No process is optimized");
    let forced = to(&["--force"]);
    forced.assert_code(0).assert_prints("warning too few samples: ");
    let undo = ["live", "undo", "--all", "--state", &state, "--max-pause", "500"];
    call(undo).assert_code(0).assert_prints(&format!("Process {pid}: undone"));
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

#[test]
fn dry_run_shows_the_plan_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let before = mappings(&pid);
    let words = ["live", "optimize", "--dry-run", "--pid", &pid, "--state", &state];
    let planned = call(words.iter().chain(&SAMPLING).copied());
    planned.assert_code(0).assert_prints("dry run; it was not changed").assert_prints("to move");
    planned.assert_prints("of address space added").assert_prints("to redirect");
    planned
        .assert_prints("1 thread, normally once for a few milliseconds, at most 20 ms at a time");
    let json = call(words.iter().chain(&SAMPLING).chain(&["--json"]).copied());
    json.assert_code(0).assert_prints("\"planned\": {").assert_prints("\"per_sample_ns\": ");
    assert_eq!(mappings(&pid), before);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

#[test]
fn all_optimizations_are_undone_at_once() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let state = directories[0].path().join("state").display().to_string();
    let undo = || call(["live", "undo", "--all", "--state", &state, "--max-pause", "500"]);
    undo().assert_code(0).assert_prints("No process is optimized");
    let both = directories.each_ref().map(|directory| busy(directory.path(), ""));
    let pids = both.each_ref().map(|busy| busy.0.id().to_string());
    for pid in &pids {
        let whom = ["live", "optimize", "--pid", pid, "--state", &state, "--max-pause", "500"];
        call(whom.iter().chain(&SAMPLING).copied()).assert_code(0);
    }
    let undone = undo();
    undone.assert_code(0);
    let status = call(["live", "status", "--state", &state]);
    for pid in &pids {
        undone.assert_prints(&format!("Process {pid}: undone"));
        status.assert_prints(&format!("Process {pid}: "));
        let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    }
    assert!(!status.out.contains("; active"), "{}", status.out);
}

#[test]
fn several_processes_and_none_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), FORK);
    let pid = busy.0.id().to_string();
    let [session] = children(busy.0.id())[..] else { panic!("it has one child") };
    // As from `--pid $(pidof busy)`, youngest first.
    let session = session.to_string();
    for command in ["optimize", "status", "undo", "redo"] {
        let several = ["live", command, "--pid", &session, &pid, "--state", &state];
        let refused = call(several);
        refused.assert_code(2).assert_prints("--pid accepts one process, but 2 are given");
        refused.assert_prints(&format!("use: --pid {pid} --family"));
        assert!(refused.err.matches("/busy").count() >= 2, "{}", refused.err);
    }
    let none = call(["live", "undo", "--pid", "--state", &state]);
    none.assert_code(2).assert_prints("no process has this name");
    let help = call(["live", "optimize", "--help"]);
    help.assert_prints("--dry-run").assert_prints("--max-overhead <PERCENT>");
    assert!(!help.out.contains("[PID]"), "{}", help.out);
    let budget = ["live", "optimize", "--pid", &pid, "--max-overhead", "5", "--state", &state];
    call(budget).assert_code(2).assert_prints("has no unit");
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
fn call_filtered(words: &[&str]) -> Finished {
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
    let mut command = dbdyno();
    command.args(words);
    // SAFETY: it makes system calls only.
    unsafe { command.pre_exec(install) };
    finish(command)
}

#[test]
fn undo_and_redo_work_under_a_filter_that_permits_no_system_call() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let mut busy = busy(directory.path(), CONFINE);
    let pid = busy.0.id().to_string();
    let rest = ["--pid", &pid, "--state", &state, "--max-pause", "500"];
    let optimize = [&["live", "optimize"], &SAMPLING[..], &rest].concat();
    call(&optimize).assert_code(0);
    send(busy.0.id(), libc::SIGUSR1);
    let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    wait_until("it has a filter", || status().contains("Seccomp:\t2"));
    call_filtered(&optimize).assert_code(1).assert_prints("system call filter (seccomp)");
    let to = |operation| call_filtered(&[&["live", operation], &rest[..]].concat());
    to("undo").assert_code(0).assert_prints("undone; ");
    to("redo").assert_code(0).assert_prints("redone; ");
    assert!(busy.0.try_wait().unwrap().is_none(), "it died");
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

/// Work that is independent of what the program does, so that nothing can be proven.
const NO_WORK: [&str; 4] = ["--work-command", "echo 5", "--ab-test", "0.4"];

#[test]
fn unproven_optimization_is_undone_unless_kept() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let whom = ["live", "optimize", "--pid", &pid, "--state", &state, "--max-pause", "500"];
    let run =
        |words: &[&str]| call(whom.iter().chain(&SAMPLING).chain(&NO_WORK).chain(words).copied());
    let status = || call(["live", "status", "--state", &state]);
    run(&[])
        .assert_code(0)
        .assert_prints("not proven: work was done in 0 of 10")
        .assert_prints("; undone");
    status().assert_prints("; inactive").assert_prints("gdb: source ");
    run(&["--keep"]).assert_code(0).assert_prints("; active");
    status().assert_prints("; active");
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    let keep = [&whom[..], &["--keep"]].concat();
    call(keep).assert_code(2).assert_prints("--work-command");
    call(["live", "undo", "--all", "--state", &state, "--max-pause", "500"]).assert_code(0);
}

#[test]
fn ab_test_verdict_decides_whether_optimization_stays_active() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let whom = ["live", "optimize", "--pid", &pid, "--state", &state, "--max-pause", "500"];
    // Its work is independent of the layout, so that there is no real difference.
    let work = ["--work-command", "cut -d ' ' -f 1 /proc/uptime", "--ab-test", "4"];
    let finished = call(whom.iter().chain(&SAMPLING).chain(&work).copied());
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    finished.assert_code(0).assert_prints("CPU time per work × ");
    let status = call(["live", "status", "--state", &state]);
    let is_better = finished.out.contains(": better; active");
    status.assert_prints(if is_better { "; active" } else { "; inactive" });
    assert!(is_better || finished.out.contains("; undone"), "{}", finished.out);
}

#[test]
fn failed_ab_test_undoes_the_optimization() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    // It is read once before the A/B test and twice per period; the sixth period fails.
    let file = directory.path().join("asked").display().to_string();
    let work = format!("echo >> {file}; wc -l < {file}; [ $(wc -l < {file}) -le 11 ]");
    let whom = ["live", "optimize", "--pid", &pid, "--state", &state, "--max-pause", "500"];
    let how = ["--ab-test", "0.2", "--work-command", &work];
    let finished = call(whom.iter().chain(&SAMPLING).chain(&how).copied());
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    finished
        .assert_code(1)
        .assert_prints("functions")
        .assert_prints("the A/B test failed: ")
        .assert_prints("; undone");
    call(["live", "status", "--state", &state]).assert_prints("; inactive");
}

/// Forks a process that does the same when it gets SIGUSR1, as servers do for a session.
const FORK_LATER: &str =
    "void split(int signal) { if (fork() == 0) prctl(PR_SET_PDEATHSIG, SIGKILL); }
    signal(SIGUSR1, split)";

#[test]
fn failed_ab_test_undoes_the_optimization_in_sessions_that_started_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), FORK_LATER);
    let pid = busy.0.id().to_string();
    // As above. The fifth period starts a session, while the optimized code is active.
    let file = directory.path().join("asked").display().to_string();
    let children_of = format!("/proc/{pid}/task/{pid}/children");
    let start = format!(
        "if [ $(wc -l < {file}) -eq 10 ]; then kill -USR1 {pid}; \
         while [ -z \"$(cat {children_of})\" ]; do sleep 0.01; done; fi"
    );
    let work = format!("echo >> {file}; {start}; wc -l < {file}; [ $(wc -l < {file}) -le 11 ]");
    let whom = ["live", "optimize", "--pid", &pid, "--state", &state, "--max-pause", "500"];
    let how = ["--family", "--ab-test", "0.2", "--work-command", &work];
    let finished = call(whom.iter().chain(&SAMPLING).chain(&how).copied());
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    finished.assert_code(1).assert_prints("; undone");
    let [session] = children(busy.0.id())[..] else { panic!("it has one child") };
    let status = ["live", "status", "--pid", &session.to_string(), "--state", &state];
    call(status).assert_prints("; inactive");
}
