//! Uprobes of tracing tools on functions that were moved.
//!
//! The kernel replaces the first byte of a function by a breakpoint, executes the first instruction of
//! the file elsewhere, and continues behind it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dbdyno_live::{Attachment, SamplingOptions, map_to_original, optimize, sample, symbols};
use dbdyno_relayout::{Options, Samples};
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr};
use perf_event_open_sys::perf_event_open;

use crate::copies::attach;
use crate::job::samples;
use crate::victim::{Program, Victim};

/// The instruction that the kernel writes.
const BREAKPOINT: u8 = 0xcc;

/// A uprobe in all processes that execute a file; one event per CPU.
struct Uprobe(Vec<File>);

impl Uprobe {
    /// Attaches to an offset in a file.
    fn attach(path: &Path, offset: u64) -> io::Result<Self> {
        let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut attr = perf_event_attr::default();
        attr.type_ = kind.trim().parse().map_err(io::Error::other)?;
        attr.size = size_of::<perf_event_attr>() as u32;
        attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
        attr.__bindgen_anon_4.probe_offset = offset;
        let cpus = std::thread::available_parallelism()?.get();
        // A program that another test starts meanwhile would keep the event open, and so the breakpoint.
        let flags = PERF_FLAG_FD_CLOEXEC.into();
        let event = |cpu: usize| {
            // SAFETY: the attributes are valid, and the path is terminated and alive.
            match unsafe { perf_event_open(&mut attr, -1, cpu as i32, -1, flags) } {
                -1 => Err(io::Error::last_os_error()),
                // SAFETY: the descriptor is new and owned by nobody else.
                descriptor => Ok(unsafe { File::from_raw_fd(descriptor) }),
            }
        };
        (0..cpus).map(event).collect::<io::Result<_>>().map(Self)
    }

    fn hits(&mut self) -> u64 {
        let mut count = |event: &mut File| {
            let mut bytes = [0; 8];
            event.read_exact(&mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        self.0.iter_mut().map(&mut count).sum()
    }
}

/// The address in the file of a static probe, as `readelf` shows it.
fn static_probe(program: &Path, name: &str) -> u64 {
    let output = Command::new("readelf").arg("--notes").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| *line == format!("Name: {name}")).expect("a static probe of this name");
    let location = lines.next().and_then(|line| line.strip_prefix("Location: 0x")).unwrap();
    u64::from_str_radix(location.split(',').next().unwrap(), 16).unwrap()
}

/// A program that calls its functions all the time, with samples that let all of them be moved.
struct Target {
    program: Program,
    victim: Victim,
    attachment: Attachment,
    samples: Samples,
    /// Difference between addresses in memory and in the file.
    bias: u64,
}

impl Target {
    /// An error if the kernel permits no uprobes.
    fn start() -> io::Result<Self> {
        // Without `endbr64`, so that functions start with an instruction that does something.
        let flags = ["-O2", "-mavx", "-fcf-protection=none"];
        let program = Program::compile("threads.c", "gcc", &flags);
        // Not to the program itself: a breakpoint that is left makes its function a modified one.
        let copy = program.path.with_extension("copy");
        fs::copy(&program.path, &copy).unwrap();
        Uprobe::attach(&copy, program.functions("leaf_")[0].0)?;
        let victim = program.start();
        let attachment = attach(&program, &victim);
        let sampling = SamplingOptions {
            time: Duration::from_millis(600),
            frequency: 7_999,
            ..SamplingOptions::default()
        };
        let sampled = sample(victim.pid(), false, &sampling, |_| false).unwrap();
        let mut samples = map_to_original(&attachment, &sampled.samples);
        let maps = attachment.process().maps().unwrap();
        let base = maps.all().iter().find(|it| Path::new(&it.name) == program.path).unwrap();
        let bias = base.range.start;
        // A busy machine leaves few samples: these have some in any case.
        for name in ["leaf_mix", "leaf_sum", "leaf_probed"] {
            for (function, _) in program.functions(name) {
                samples.add_hit(bias + function, 1_000);
            }
        }
        Ok(Self { program, victim, attachment, samples, bias })
    }

    /// Addresses in the file of the functions whose name has this prefix.
    fn functions(&self, prefix: &str) -> Vec<u64> {
        self.program.functions(prefix).iter().map(|(at, _)| *at).collect()
    }

    fn probe(&self, address: u64) -> Uprobe {
        Uprobe::attach(&self.program.path, address).unwrap()
    }

    fn optimize(&mut self) {
        let options = Options { coverage: 1.0, ..Options::default() };
        optimize(&mut self.attachment, &self.samples, &options, |_| ()).unwrap();
    }

    /// Addresses in the file of the functions that the newest generation moved.
    fn moved(&self) -> Vec<u64> {
        let Some(newest) = self.attachment.generations().last() else { return Vec::new() };
        let is_moved = |(at, size): &(u64, u64)| {
            let function = self.bias + at..self.bias + at + size;
            newest.entries.iter().any(|entry| function.contains(&entry.address))
        };
        let functions = self.program.functions("leaf_").into_iter();
        functions.filter(is_moved).map(|(at, _)| at).collect()
    }
}

fn wait_for(what: &str, victim: &mut Victim, mut happens: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happens() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {what}");
        std::thread::sleep(Duration::from_millis(20));
        victim.assert_alive();
    }
    victim.assert_alive();
}

#[test]
fn uprobes_on_moved_functions_do_not_disturb_the_program() {
    let mut target = match Target::start() {
        Ok(target) => target,
        Err(error) => return dbdyno_fuzz::skip(&format!("the kernel permits no uprobes: {error}")),
    };
    let [by_pointer] = target.functions("leaf_mix")[..] else { panic!("no leaf_mix") };
    let [probed_early, probed_late] = target.functions("leaf_probed")[..] else {
        panic!("no probed functions")
    };
    target.optimize();
    let moved = target.moved();
    assert!(moved.len() > 1 && moved.contains(&by_pointer), "{moved:x?}");
    // Attached and removed, mostly without hits.
    for _ in 0..3 {
        moved.iter().for_each(|function| drop(target.probe(*function)));
    }
    target.victim.assert_alive();
    // Static probes, behind the jump and where it would be.
    let [early, late] = ["early", "late"].map(|name| static_probe(&target.program.path, name));
    assert!(moved.contains(&probed_late) && !moved.contains(&probed_early), "{moved:x?}");
    let mut static_probes = [early, late].map(|probe| target.probe(probe));
    wait_for("hits of a static probe", &mut target.victim, || static_probes[0].hits() > 0);
    // With hits, through the pointer: it points to the original entry.
    let mut probes: Vec<Uprobe> = moved.iter().map(|it| target.probe(*it)).collect();
    wait_for("1,000 hits", &mut target.victim, || {
        probes.iter_mut().map(Uprobe::hits).sum::<u64>() >= 1_000
    });
    target.attachment.undo().unwrap();
    let before = static_probes[1].hits();
    wait_for("hits of the other one", &mut target.victim, || static_probes[1].hits() > before);
    target.attachment.redo().unwrap();
    target.victim.assert_alive();
    drop((probes, static_probes));
    target.victim.assert_alive();
    target.attachment.undo().unwrap();
    target.victim.assert_alive();
    // Return probes keep return addresses in the kernel: a copy may be in use without a trace of it.
    target.attachment.retire_unused(None).unwrap();
    assert_eq!(target.attachment.free().unwrap(), 0);
    target.victim.end();
}

#[test]
fn functions_that_have_a_uprobe_stay_until_it_is_removed() {
    let mut target = match Target::start() {
        Ok(target) => target,
        Err(error) => return dbdyno_fuzz::skip(&format!("the kernel permits no uprobes: {error}")),
    };
    let [by_pointer] = target.functions("leaf_mix")[..] else { panic!("no leaf_mix") };
    let late = static_probe(&target.program.path, "late");
    let [_, probed_late] = target.functions("leaf_probed")[..] else {
        panic!("no probed functions")
    };
    let mut probes = [by_pointer, late].map(|address| target.probe(address));
    wait_for("hits", &mut target.victim, || probes.iter_mut().all(|it| it.hits() > 0));
    target.optimize();
    let moved = target.moved();
    let stays = |function| !moved.contains(function);
    assert!(!moved.is_empty() && [by_pointer, probed_late].iter().all(stays), "{moved:x?}");
    // No call goes around them.
    let before = probes.each_mut().map(Uprobe::hits);
    wait_for("further hits", &mut target.victim, || {
        probes.iter_mut().zip(before).all(|(it, before)| it.hits() > before + 100)
    });
    drop(probes);
    // A program that another test starts may keep the events open until it is executed.
    let memory = target.attachment.process().memory();
    wait_for("removal", &mut target.victim, || {
        let is_removed = |at| memory.read(target.bias + at, 1).unwrap() != [BREAKPOINT];
        is_removed(by_pointer) && is_removed(late)
    });
    target.optimize();
    let moved = target.moved();
    assert!(moved.contains(&by_pointer) && moved.contains(&probed_late), "{moved:x?}");
    target.attachment.undo().unwrap();
    target.victim.end();
}

#[test]
fn uprobes_come_and_go_while_functions_are_moved() {
    move_functions_beside_uprobes(5);
}

#[test]
#[ignore = "full"]
fn uprobes_come_and_go_while_functions_are_moved_many_times() {
    move_functions_beside_uprobes(25);
}

fn move_functions_beside_uprobes(count: u64) {
    let mut target = match Target::start() {
        Ok(target) => target,
        Err(error) => return dbdyno_fuzz::skip(&format!("the kernel permits no uprobes: {error}")),
    };
    let functions = target.functions("leaf_");
    let path = target.program.path.clone();
    let (is_done, rounds, hits) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let round = rounds.load(Ordering::Relaxed);
                for function in &functions {
                    let mut probe = Uprobe::attach(&path, *function).unwrap();
                    std::thread::sleep(Duration::from_millis(round % 3));
                    hits.fetch_add(probe.hits(), Ordering::Relaxed);
                }
                rounds.store(round + 1, Ordering::Relaxed);
            }
        });
        let _done = Done(&is_done);
        let start = Instant::now();
        let was_used = || rounds.load(Ordering::Relaxed) > 1 && hits.load(Ordering::Relaxed) > 0;
        // Attaching all probes once may take longer than all cycles.
        for cycle in 0.. {
            if cycle >= count && was_used() {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(300), "{rounds:?} rounds, {hits:?} hits");
            target.optimize();
            target.victim.assert_alive();
            target.attachment.undo().unwrap();
            target.victim.assert_alive();
            target.attachment.redo().unwrap();
            target.victim.assert_alive();
        }
    });
    target.victim.assert_alive();
    target.attachment.undo().unwrap();
    target.victim.end();
}

/// Ends the tool also if the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The output of gdb's `bt` after loading a script.
fn backtrace(victim: &Victim, script: &Path) -> String {
    let output = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &victim.pid().to_string()])
        .arg("-ex")
        .arg(format!("source {}", script.display()))
        .args(["-ex", "bt"])
        .output()
        .expect("install the Debian package gdb");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn optimize_once(attachment: &mut Attachment) {
    let samples = samples(attachment);
    let (_, prepared) = optimize(attachment, &samples, &Options::default(), |_| ()).unwrap();
    prepared.write_symbols(attachment);
}

#[test]
fn gdb_has_symbols_and_frames_of_new_code() {
    let program = Program::compile("frames.c", "gcc", &["-O2", "-fomit-frame-pointer"]);
    let victim = program.start();
    let mut attachment = attach(&program, &victim);
    let identity = attachment.process().identity().clone();
    let script = || symbols::gdb_script(&program.state(), &identity);
    assert_eq!(script(), None);
    let (mut deepest, mut seen) = (0, false);
    // The second optimization replaces the first, whose memory is freed with the third.
    for round in 0..3 {
        optimize_once(&mut attachment);
        let script = script().expect("there are symbols");
        let text = fs::read_to_string(&script).unwrap();
        assert!(text.lines().count() <= 2, "{round}: {text}");
        for _ in 0..5 {
            let output = backtrace(&victim, &script);
            let frames: Vec<&str> = output.lines().filter(|line| line.starts_with('#')).collect();
            let names = ["main", "outer", "middle", "inner"];
            assert!(frames.len() <= names.len(), "{output}");
            for (frame, name) in frames.iter().rev().zip(names) {
                // gdb shows the suffix in square brackets. `main` is never called again, and the others may do
                // too little to be hot.
                let is_copy = frame.contains("relaid");
                assert!(frame.contains(name), "{output}");
                assert!(is_copy || name != "inner", "{output}");
                seen |= is_copy && name == "middle";
            }
            deepest = deepest.max(frames.len());
        }
    }
    assert_eq!((deepest, seen), (4, true), "never sampled in `inner`, or `middle` never moved");
    attachment.undo().unwrap();
    attachment.retire_unused(None).unwrap();
    let start = Instant::now();
    while script().is_some() {
        assert!(start.elapsed() < Duration::from_secs(60), "threads do not leave the code");
        attachment.free().unwrap();
    }
    let _ = fs::remove_file(format!("/tmp/perf-{}.map", victim.pid()));
}
