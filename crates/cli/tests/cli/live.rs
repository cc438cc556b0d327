//! Commands of the live optimizer: refusals, and a small program optimized and undone.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{call, children, send};

/// A busy program, killed on drop.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SOURCE: &str = "
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

/// Runs some code and then a busy loop.
fn busy(directory: &Path, first: &str) -> Busy {
    let source = directory.join("busy.c");
    let program = directory.join("busy");
    fs::write(&source, SOURCE.replace("FIRST", first)).unwrap();
    let status = Command::new("gcc").arg("-O1").arg("-o").arg(&program).arg(&source).status();
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
        println!("skipped in part: no kernel thread here");
    }
    let missing = ["live", "undo", "--pid", "2147483000", "--state", &state];
    call(missing).assert_code(1).assert_prints("does not exist");
    let too_short = call([&missing[..], &["--max-pause", "0"]].concat());
    too_short.assert_code(2).assert_prints("0 is not in 5..=10000").assert_prints("--max-pause");
    let former = call([&missing[..], &["--stop-bound", "50"]].concat());
    former.assert_code(1).assert_prints("--stop-bound is deprecated: use --max-pause");
    let rules = directory.path().join("rules.toml");
    fs::write(&rules, "[watch]\nexecutabels = []\n").unwrap();
    let file = rules.display().to_string();
    let finished = call(["live", "watch", &file, "--state", &state]);
    finished.assert_code(2).assert_prints("executabels").assert_prints("executables");
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
    let done = to(&["optimize", "--seconds", "0.5", "--bolt-out", &bolt]);
    done.assert_code(0).assert_prints("functions").assert_prints("not measured");
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
    to(&["undo"]).assert_code(0);
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
    to(&["optimize", "--seconds", "0.5"]).assert_code(0).assert_prints("optimized as its parent");
    let own = |entry: &fs::DirEntry| {
        entry.file_name().to_str().unwrap().starts_with(&format!("{session}-"))
    };
    let journal = fs::read_dir(&state).unwrap().flatten().find(own).unwrap().path();
    let lock = File::open(journal.join("lock")).unwrap();
    lock.lock().unwrap();
    let finished = to(&["undo"]);
    finished.assert_code(1).assert_prints(&format!("Process {pid}: undone"));
    finished.assert_prints(&format!("Process {session}: not undone: another dbdyno is attached"));
    drop(lock);
    to(&["undo"]).assert_code(0).assert_prints(&format!("Process {session}: undone"));
    to(&["redo"]).assert_code(0).assert_prints(&format!("Process {session}: redone"));
    to(&["undo"]).assert_code(0);
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

#[test]
fn ab_test_verdict_decides_whether_optimization_stays_active() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let whom = ["live", "optimize", "--pid", &pid, "--state", &state, "--max-pause", "500"];
    // Its work is independent of the layout, so that there is no real difference.
    let work = ["--work-command", "cut -d ' ' -f 1 /proc/uptime"];
    let how = ["--seconds", "0.5", "--ab-test", "4"];
    let finished = call(whom.iter().chain(&how).chain(&work).copied());
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    finished.assert_code(0).assert_prints("CPU time per work × ");
    let status = call(["live", "status", "--state", &state]);
    let is_worse = finished.out.contains(": worse; undone");
    status.assert_prints(if is_worse { "; inactive" } else { "; active" });
    status.assert_prints("gdb: source ");
    let undo = ["live", "undo", "--pid", &pid, "--state", &state, "--max-pause", "500"];
    call(undo).assert_code(0);
}

#[test]
fn failed_ab_test_reports_the_optimization_as_active() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    // It is read once before the A/B test and twice per period; the sixth period fails.
    let file = directory.path().join("asked").display().to_string();
    let work = format!("echo >> {file}; wc -l < {file}; [ $(wc -l < {file}) -le 11 ]");
    let whom = ["live", "optimize", "--pid", &pid, "--state", &state, "--max-pause", "500"];
    let how = ["--seconds", "0.5", "--ab-test", "0.2", "--work-command", &work];
    let finished = call(whom.iter().chain(&how).copied());
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
    finished
        .assert_code(1)
        .assert_prints("functions")
        .assert_prints("active, but the A/B test failed: ");
    call(["live", "status", "--state", &state]).assert_prints("; active");
    let undo = ["live", "undo", "--pid", &pid, "--state", &state, "--max-pause", "500"];
    call(undo).assert_code(0);
}
