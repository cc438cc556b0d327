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
    let faults = count(&readings, Event::PageFaults);
    let (minor, major) =
        (count(&readings, Event::MinorFaults), count(&readings, Event::MajorFaults));
    assert_eq!(minor.zip(major).map(|(minor, major)| minor + major), faults, "{readings:?}");
    if counters.counted().all(|(_, scope)| scope == Scope::UserAndKernel) {
        assert!(count(&readings, Event::ContextSwitches).unwrap() >= 5, "{readings:?}");
    }
    let later = readings[0].since(&readings[0]);
    assert_eq!((later.count, later.enabled, later.running), (0, Nanos::ZERO, Nanos::ZERO));
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
    let counters = Counters::open(&[Event::TaskClock], &target, Scope::User);
    counters.enable().unwrap();
    io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    thread::sleep(Duration::from_millis(200));
    let readings = counters.read().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    match (counters.unavailable().next(), &readings[..]) {
        (None, [reading]) => {
            assert!(reading.count > 100_000, "{reading:?}");
            assert_eq!(reading.running, reading.enabled, "{reading:?}");
        }
        (Some(unavailable), []) => assert!(!unavailable.to_string().is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hardware_events_are_counted_or_explained() {
    let counters = Counters::open(&Event::HARDWARE, &Target::ThisThread, Scope::UserAndKernel);
    counters.enable().unwrap();
    touch(256);
    counters.disable().unwrap();
    let readings = counters.read().unwrap();
    let counted: Vec<Event> = readings.iter().map(|reading| reading.event).collect();
    let mut known = counted.clone();
    for it in counters.unavailable() {
        assert!(it.to_string().starts_with(&format!("cannot count {}: ", it.event)));
        known.push(it.event);
    }
    assert!(counted.iter().all(|event| counters.counted().any(|(it, _)| it == *event)));
    known.sort_unstable();
    let mut all = Event::HARDWARE;
    all.sort_unstable();
    assert_eq!(known, all);
    if let (Some(cycles), Some(instructions)) =
        (count(&readings, Event::Cycles), count(&readings, Event::Instructions))
    {
        assert!(cycles > 1_000 && instructions > 1_000, "{readings:?}");
    }
}

#[test]
fn no_such_process_is_a_reason() {
    let target = Target::Processes(vec![i32::MAX.cast_unsigned()]);
    let counters = Counters::open(&Event::SOFTWARE, &target, Scope::User);
    assert_eq!(counters.unavailable().count(), Event::SOFTWARE.len());
    assert!(counters.unavailable().all(|it| it.reason == Reason::NoSuchProcess));
    assert!(counters.read().unwrap().is_empty());
}

#[test]
fn readings_come_in_the_order_that_was_asked_for() {
    let events = [Event::CpuMigrations, Event::Cycles, Event::MinorFaults, Event::TaskClock];
    let counters = Counters::open(&events, &Target::ThisThread, Scope::UserAndKernel);
    let readings = counters.read().unwrap();
    let told: Vec<Event> = readings.iter().map(|reading| reading.event).collect();
    let missing: Vec<Event> = counters.unavailable().map(|it| it.event).collect();
    let expected: Vec<Event> = events.into_iter().filter(|it| !missing.contains(it)).collect();
    assert_eq!(told, expected);
}
