use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::*;

fn count(readings: &[Reading], event: Event) -> Option<u64> {
    readings.iter().find(|reading| reading.event == event).map(|reading| reading.count)
}

/// Makes the kernel give at least `pages` new pages.
fn touch(pages: usize) {
    let memory = vec![0_u8; pages * 4096];
    std::hint::black_box(&memory);
    for page in memory.chunks(4096) {
        std::hint::black_box(page[0]);
    }
}

#[test]
fn software_events_are_counted_in_every_thread_started_later() {
    let counters = Counters::open(&Event::SOFTWARE, &Target::ThisThread, Scope::UserAndKernel);
    // A sandbox may forbid the system call altogether; then a reason must be given.
    if let Some(unavailable) = counters.unavailable().next() {
        assert!(!unavailable.reason.to_string().is_empty());
        return;
    }
    counters.enable().unwrap();
    thread::spawn(|| {
        let mut memory = vec![0_u8; 16 << 20];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(memory);
        (0..5).for_each(|_| thread::sleep(Duration::from_millis(1)));
    })
    .join()
    .unwrap();
    counters.disable().unwrap();
    let readings = counters.read().unwrap();
    touch(512);
    assert_eq!(counters.read().unwrap(), readings, "counted while stopped");

    assert!(count(&readings, Event::TaskClock).unwrap() > 100_000, "{readings:?}");
    // Huge pages may serve it all in 8 faults.
    assert!(count(&readings, Event::PageFaults).unwrap() >= 8, "{readings:?}");
    let in_kernel = counters.iter().flatten().all(|it| it.scope() == Scope::UserAndKernel);
    if in_kernel {
        assert!(count(&readings, Event::ContextSwitches).unwrap() >= 5, "{readings:?}");
    }
    let later = readings[0].since(&readings[0]);
    assert_eq!((later.count, later.scaled()), (0, Some(0.0)));
}

#[test]
fn another_process_is_counted_with_all_its_threads_and_children() {
    let mut child = Command::new("sh")
        .args([
            "-c",
            "read go; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; cat /dev/null; read end",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let target = Target::Processes(vec![child.id()]);
    let counter = Counter::open(Event::TaskClock, &target, Scope::User);
    let reading = counter.map(|counter| {
        use std::io::Write;
        counter.enable().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        thread::sleep(Duration::from_millis(200));
        counter.read().unwrap()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    match reading {
        Ok(reading) => {
            assert!(reading.count > 100_000, "{reading:?}");
            assert!(reading.is_exact(), "{reading:?}");
        }
        Err(unavailable) => assert!(!unavailable.to_string().is_empty()),
    }
}

#[test]
fn hardware_events_are_counted_or_explained() {
    let counters = Counters::open(&Event::HARDWARE, &Target::ThisThread, Scope::UserAndKernel);
    counters.enable().unwrap();
    touch(256);
    counters.disable().unwrap();
    let readings = counters.read().unwrap();
    for counter in counters.iter() {
        match counter {
            Ok(counter) => assert!(readings.iter().any(|it| it.event == counter.event())),
            Err(it) => assert!(it.to_string().starts_with(&format!("cannot count {}: ", it.event))),
        }
    }
    if let (Some(cycles), Some(instructions)) =
        (count(&readings, Event::Cycles), count(&readings, Event::Instructions))
    {
        assert!(cycles > 1_000 && instructions > 1_000, "{readings:?}");
    }
}

#[test]
fn no_such_process_is_a_reason() {
    let target = Target::Processes(vec![i32::MAX.cast_unsigned()]);
    let unavailable = Counter::open(Event::TaskClock, &target, Scope::User).unwrap_err();
    assert_eq!(unavailable.reason, Reason::NoSuchProcess);
    let counters = Counters::open(&Event::SOFTWARE, &target, Scope::User);
    assert_eq!(counters.unavailable().count(), Event::SOFTWARE.len());
}

#[test]
fn counters_that_take_turns_are_scaled() {
    let reading = |count, enabled, running| Reading {
        event: Event::Cycles,
        scope: Scope::User,
        count,
        enabled: Nanos::from_nanos(enabled),
        running: Nanos::from_nanos(running),
    };
    assert_eq!(reading(100, 30, 10).scaled(), Some(300.0));
    assert_eq!(reading(100, 30, 30).scaled(), Some(100.0));
    assert_eq!(reading(0, 30, 0).scaled(), None);
    assert_eq!(reading(0, 0, 0).scaled(), Some(0.0));
    assert!(!reading(100, 30, 10).is_exact());
}
