use std::process::{Command, Stdio};
use std::thread;

use dbdyno_units::Nanos;

use super::*;

const SOFTWARE: [Counter; 3] = [Counter::MinorFaults, Counter::MajorFaults, Counter::CpuMigrations];
const HARDWARE: [Counter; 6] = [
    Counter::Cycles,
    Counter::Instructions,
    Counter::Branches,
    Counter::BranchMisses,
    Counter::L1iMisses,
    Counter::ItlbMisses,
];

fn count(counts: &Counts, counter: Counter) -> Option<u64> {
    counts.get(counter).map(|one| one.count)
}

fn touch_memory(bytes: usize) {
    let mut memory = vec![0_u8; bytes];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(memory);
}

#[test]
fn software_counters_include_threads_started_later() {
    let mut counters = Counters::open(&SOFTWARE, &Target::ThisThread, Scope::UserAndKernel);
    // A sandbox may forbid the system call; then there must be a reason.
    if let Some(unavailable) = counters.unavailable().next() {
        assert!(!unavailable.reason.to_string().is_empty());
        return;
    }
    touch_memory(16 << 20);
    let stopped = counters.read().unwrap();
    assert!(stopped.iter().all(|one| one.count == 0), "counted before the start: {stopped:?}");

    counters.enable().unwrap();
    thread::spawn(|| touch_memory(16 << 20)).join().unwrap();
    let counts = counters.read().unwrap();
    // With huge pages 8 faults may be enough.
    assert!(count(&counts, Counter::MinorFaults).unwrap() >= 8, "{counts:?}");
    assert!(counts.iter().all(|one| one.enabled > Nanos::from_micros(100)), "{counts:?}");
    let difference = counts.since(&counts);
    for one in difference.iter() {
        assert_eq!((one.count, one.enabled, one.running), (0, Nanos::ZERO, Nanos::ZERO));
    }
}

#[test]
fn other_process_is_counted_with_its_threads_and_children() {
    let mut child = Command::new("sh")
        .args(["-c", "read go; cat /dev/null; cat /dev/null; echo; read end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let target = Target::Processes(vec![child.id()]);
    let mut counters = Counters::open(&[Counter::MinorFaults], &target, Scope::User);
    counters.enable().unwrap();
    io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let counts = counters.read().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    match (counters.unavailable().next(), counts.get(Counter::MinorFaults)) {
        (None, Some(one)) => {
            assert!(one.count > 10, "{one:?}");
            assert!(one.enabled > Nanos::from_micros(100), "{one:?}");
            assert_eq!(one.running, one.enabled, "{one:?}");
        }
        (Some(unavailable), None) => assert!(!unavailable.to_string().is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hardware_counters_are_available_or_have_a_reason() {
    let mut counters = Counters::open(&HARDWARE, &Target::ThisThread, Scope::UserAndKernel);
    counters.enable().unwrap();
    touch_memory(1 << 20);
    let counts = counters.read().unwrap();
    let counted: Vec<Counter> = counts.iter().map(|one| one.counter).collect();
    let mut known = counted.clone();
    for it in counters.unavailable() {
        assert!(it.to_string().starts_with(&format!("cannot count {}: ", it.counter)));
        known.push(it.counter);
    }
    assert!(counted.iter().all(|counter| counters.counted().any(|(it, _)| it == *counter)));
    known.sort_unstable();
    assert_eq!(known, HARDWARE);
    if let (Some(cycles), Some(instructions)) =
        (count(&counts, Counter::Cycles), count(&counts, Counter::Instructions))
    {
        assert!(cycles > 1_000 && instructions > 1_000, "{counts:?}");
    }
}

#[test]
fn missing_process_is_the_reason_for_all_counters() {
    let target = Target::Processes(vec![i32::MAX.cast_unsigned()]);
    let counters = Counters::open(&SOFTWARE, &target, Scope::User);
    assert_eq!(counters.unavailable().count(), SOFTWARE.len());
    assert!(counters.unavailable().all(|it| it.reason == Reason::NoSuchProcess));
    assert_eq!(counters.read().unwrap(), Counts::default());
}

#[test]
fn processes_are_counted_although_one_of_them_has_ended() {
    let counters = |pids: Vec<u32>| -> Vec<Unavailable> {
        let target = Target::Processes(pids);
        Counters::open(&SOFTWARE, &target, Scope::User).unavailable().cloned().collect()
    };
    let (own, ended) = (std::process::id(), i32::MAX.cast_unsigned());
    // A sandbox may forbid the system call.
    assert_eq!(counters(vec![ended, own]), counters(vec![own]));
    assert!(counters(vec![own]).iter().all(|it| it.reason != Reason::NoSuchProcess));
}

#[test]
fn counters_of_a_group_are_assigned_to_their_own_values() {
    // Opened in another order than their groups are read in.
    let requested = [Counter::CpuMigrations, Counter::Cycles, Counter::MinorFaults];
    let mut counters = Counters::open(&requested, &Target::ThisThread, Scope::UserAndKernel);
    counters.enable().unwrap();
    touch_memory(16 << 20);
    let counts = counters.read().unwrap();
    let unavailable: Vec<Counter> = counters.unavailable().map(|it| it.counter).collect();
    for counter in requested {
        assert_eq!(counts.get(counter).is_none(), unavailable.contains(&counter), "{counter}");
    }
    if let (Some(faults), Some(migrations)) =
        (count(&counts, Counter::MinorFaults), count(&counts, Counter::CpuMigrations))
    {
        assert!(faults >= 8 && migrations < faults, "{counts:?}");
    }
}
