//! Code that counts executions is deactivated, whatever happens to the dbdyno that activated it.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use dbdyno_live::GenerationState;

use crate::common::{Background, children, send, wait_until};
use crate::live::{FEW, Lab};

/// Whether code that counts is active in the program, or may be.
fn is_counting(lab: &Lab) -> bool {
    let records = dbdyno_live::live_records(&lab.state);
    let mut generations = records.iter().flat_map(|record| &record.generations);
    let may_be_active = [GenerationState::Switching, GenerationState::Active];
    generations.any(|it| it.counts && may_be_active.contains(&it.state))
}

/// An optimization that counts executions now.
fn start_counting(lab: &Lab) -> Background {
    let mut optimizer = Background::start(lab.optimize_command(&[]), lab.path());
    optimizer.wait_until("it counts", || is_counting(lab));
    optimizer
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
    let mut lab = Lab::new("");
    let mut killed_while_counting = false;
    for _ in 0..8 {
        let optimizer = start_counting(&lab);
        for guard in guards(&optimizer) {
            for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
                send(guard, signal);
            }
        }
        optimizer.signal(libc::SIGKILL);
        killed_while_counting |= is_counting(&lab);
        wait_until("the original code is active", || !is_counting(&lab));
        let said = optimizer.end().all();
        assert!(!said.contains("panicked"), "{said}");
    }
    assert!(killed_while_counting, "in no attempt");
    lab.live(&["status", "--pid", &lab.pid]).assert_code(0).assert_prints("0 of");
    assert!(lab.busy.0.try_wait().unwrap().is_none(), "it died");
}

#[test]
fn counting_of_a_stopped_program_ends_when_it_continues() {
    let lab = Lab::new("");
    let pid = lab.busy.0.id();
    let is_still_counting = (0..20).any(|_| {
        let optimizer = start_counting(&lab);
        send(pid, libc::SIGSTOP);
        optimizer.signal(libc::SIGKILL);
        optimizer.end();
        // The guard is refused meanwhile.
        sleep(Duration::from_secs(1));
        let was_counting = is_counting(&lab);
        send(pid, libc::SIGCONT);
        was_counting
    });
    assert!(is_still_counting, "it was not interrupted while it counted");
    wait_until("the original code is active", || !is_counting(&lab));
}

#[test]
fn mostly_idle_program_is_sampled_longer_because_its_executions_are_too_few_to_count() {
    // One instruction that takes long, so that it has many samples for few executions.
    let fill = "static char memory[1 << 20];
        for (;; usleep(1000)) {
            void *to = memory;
            uint64_t count = sizeof memory;
            __asm__ volatile(\"rep stosb\" : \"+D\"(to), \"+c\"(count) : \"a\"(0) : \"memory\");
        }";
    let lab = Lab::new(fill);
    let optimized = lab.change(&["optimize", "--frequency", "7999", "--force", "--json"]);
    // The times follow from the kernel's limit of samples per second, which it may have lowered.
    optimized.assert_code(0).assert_prints(" s in all if counting executions ");
    optimized
        .assert_prints("the process is mostly idle), so process")
        .assert_prints("for another ");
    let json: serde_json::Value = serde_json::from_str(&optimized.out).unwrap();
    assert!(json[0]["profile"]["seconds"].as_f64().unwrap() > 10.0, "{json}");
    let fallback = json[0]["counting"]["fallback"].as_str().unwrap();
    assert!(fallback.contains("mostly idle"), "{fallback}");
}

/// Interrupts an optimization and its guard while code that counts is active.
fn leave_counting(lab: &Lab) {
    for _ in 0..20 {
        let optimizer = start_counting(lab);
        guards(&optimizer).into_iter().for_each(|guard| send(guard, libc::SIGKILL));
        optimizer.signal(libc::SIGKILL);
        optimizer.end();
        if is_counting(lab) {
            return;
        }
    }
    panic!("it was not interrupted while it counted");
}

#[test]
fn code_that_counts_is_deactivated_by_the_next_optimization_even_if_that_is_refused() {
    let lab = Lab::new("");
    leave_counting(&lab);
    let refused = lab.change(&[&["optimize"], &FEW[..]].concat());
    refused.assert_code(1).assert_prints("too few samples");
    refused.assert_prints(&format!("counted executions in process {}: the original code", lab.pid));
    assert!(!is_counting(&lab));

    leave_counting(&lab);
    let watched = lab.live(&["watch", &lab.watch_rules(), "--seconds", "3"]);
    watched.assert_code(0).assert_prints("the original code is active now");
    assert!(!is_counting(&lab));
}
