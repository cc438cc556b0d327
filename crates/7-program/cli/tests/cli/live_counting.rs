//! Code that counts executions is deactivated, whatever happens to the dbdyno that activated it.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use dbdyno_live::GenerationState;

use crate::common::{Background, call, children, dbdyno, send, wait_until};
use crate::live::{FEW, SAMPLING, busy, watch_rules};

/// Whether code that counts is active in a process, or may be.
fn is_counting(state: &Path) -> bool {
    let records = dbdyno_live::live_records(state);
    let mut generations = records.iter().flat_map(|record| &record.generations);
    let may_be_active = [GenerationState::Switching, GenerationState::Active];
    generations.any(|it| it.counts && may_be_active.contains(&it.state))
}

/// The guards of an optimization.
fn guards(optimizer: &Background) -> Vec<u32> {
    let is_guard = |pid: &u32| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline"));
        command.is_ok_and(|command| command.contains("guard-counting"))
    };
    children(optimizer.pid()).into_iter().filter(is_guard).collect()
}

#[test]
fn counting_ends_after_a_kill_also_if_the_guard_gets_signals_of_a_service() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let mut busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let mut killed_while_counting = false;
    for _ in 0..8 {
        let mut command = dbdyno();
        command.args(["live", "optimize", "--max-pause", "500", "--pid", &pid, "--state"]);
        command.arg(&state).args(SAMPLING);
        let mut optimizer = Background::start(command, directory.path());
        optimizer.wait_until("it counts", || is_counting(&state));
        for guard in guards(&optimizer) {
            for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
                send(guard, signal);
            }
        }
        optimizer.signal(libc::SIGKILL);
        killed_while_counting |= is_counting(&state);
        wait_until("the original code is active", || !is_counting(&state));
        let said = optimizer.end().all();
        assert!(!said.contains("panicked"), "{said}");
    }
    assert!(killed_while_counting, "in no attempt");
    let state = state.display().to_string();
    call(["live", "status", "--pid", &pid, "--state", &state]).assert_code(0).assert_prints("0 of");
    assert!(busy.0.try_wait().unwrap().is_none(), "it died");
}

#[test]
fn counting_of_a_stopped_program_ends_when_it_continues() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let busy = busy(directory.path(), "");
    let pid = busy.0.id();
    let is_still_counting = (0..20).any(|_| {
        let mut command = dbdyno();
        command.args(["live", "optimize", "--max-pause", "500", "--pid", &pid.to_string()]);
        command.arg("--state").arg(&state).args(SAMPLING);
        let mut optimizer = Background::start(command, directory.path());
        optimizer.wait_until("it counts", || is_counting(&state));
        send(pid, libc::SIGSTOP);
        optimizer.signal(libc::SIGKILL);
        optimizer.end();
        // The guard is refused meanwhile.
        sleep(Duration::from_secs(1));
        let was_counting = is_counting(&state);
        send(pid, libc::SIGCONT);
        was_counting
    });
    assert!(is_still_counting, "it was not interrupted while it counted");
    wait_until("the original code is active", || !is_counting(&state));
}

#[test]
fn mostly_idle_program_is_sampled_longer_because_its_executions_are_too_few_to_count() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    // One instruction that takes long, so that it has many samples for few executions.
    let fill = "static char memory[1 << 20];
        for (;; usleep(1000)) {
            void *to = memory;
            uint64_t count = sizeof memory;
            __asm__ volatile(\"rep stosb\" : \"+D\"(to), \"+c\"(count) : \"a\"(0) : \"memory\");
        }";
    let idle = busy(directory.path(), fill);
    let pid = idle.0.id().to_string();
    let sampling = ["--frequency", "7999", "--force", "--json"];
    let optimize = ["live", "optimize", "--pid", &pid, "--max-pause", "500", "--state", &state];
    let optimized = call(optimize.iter().chain(&sampling).copied());
    optimized.assert_code(0).assert_prints("for 10 s, ").assert_prints("for another 5 s");
    let json: serde_json::Value = serde_json::from_str(&optimized.out).unwrap();
    assert_eq!(json[0]["profile"]["seconds"], 15.0, "{json}");
    let fallback = json[0]["counting"]["fallback"].as_str().unwrap();
    assert!(fallback.contains("mostly idle"), "{fallback}");
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

/// Interrupts an optimization and its guard while code that counts is active.
fn leave_counting(directory: &Path, state: &Path, pid: &str) {
    for _ in 0..20 {
        let mut command = dbdyno();
        command.args(["live", "optimize", "--max-pause", "500", "--pid", pid, "--state"]);
        command.arg(state).args(SAMPLING);
        let mut optimizer = Background::start(command, directory);
        optimizer.wait_until("it counts", || is_counting(state));
        guards(&optimizer).into_iter().for_each(|guard| send(guard, libc::SIGKILL));
        optimizer.signal(libc::SIGKILL);
        optimizer.end();
        if is_counting(state) {
            return;
        }
    }
    panic!("it was not interrupted while it counted");
}

#[test]
fn code_that_counts_is_deactivated_by_the_next_optimization_even_if_that_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let busy = busy(directory.path(), "");
    let pid = busy.0.id().to_string();
    let to_state = ["--state", state.to_str().unwrap()];

    leave_counting(directory.path(), &state, &pid);
    let optimize = ["live", "optimize", "--pid", &pid, "--max-pause", "500"];
    let refused = call(optimize.iter().chain(&FEW).chain(&to_state).copied());
    refused.assert_code(1).assert_prints("too few samples");
    refused.assert_prints(&format!("counted executions in process {pid}: the original code"));
    assert!(!is_counting(&state));

    leave_counting(directory.path(), &state, &pid);
    let file = watch_rules(directory.path());
    let watched = call(["live", "watch", &file, "--seconds", "3"].iter().chain(&to_state).copied());
    watched.assert_code(0).assert_prints("the original code is active now");
    assert!(!is_counting(&state));
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}
