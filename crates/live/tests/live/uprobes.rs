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
use std::time::{Duration, Instant};

use dbdyno_live::{Attachment, SamplingOptions, map_to_original, optimize, sample};
use dbdyno_relayout::Options;
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr};
use perf_event_open_sys::perf_event_open;

use crate::copies::attach;
use crate::victim::{Program, Victim};

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

fn wait_for(what: &str, victim: &mut Victim, mut happens: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happens() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {what}");
        std::thread::sleep(Duration::from_millis(20));
        victim.assert_alive();
    }
    victim.assert_alive();
}

/// Whether the start of a function is followed by a jump.
fn is_moved(attachment: &Attachment, function: u64, size: u64) -> bool {
    let newest = attachment.generations().last();
    newest.is_some_and(|it| {
        it.entries.iter().any(|entry| (function..function + size).contains(&entry.address))
    })
}

#[test]
fn uprobes_on_moved_functions_do_not_disturb_the_program() {
    // Without `endbr64`, so that functions start with an instruction that does something.
    let flags = ["-O2", "-mavx", "-fcf-protection=none"];
    let program = Program::compile("threads.c", "gcc", &flags);
    let functions = program.functions("leaf_");
    let attach_to = |function: u64| Uprobe::attach(&program.path, function);
    // Not to the program itself: a breakpoint that is left makes its function a modified one.
    let copy = program.path.with_extension("copy");
    fs::copy(&program.path, &copy).unwrap();
    if let Err(error) = Uprobe::attach(&copy, functions[0].0) {
        return println!("skipped: the kernel permits no uprobes: {error}");
    }
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let sampling = SamplingOptions {
        time: Duration::from_millis(600),
        frequency: 7_999,
        ..SamplingOptions::default()
    };
    let sampled = sample(victim.pid(), false, &sampling, |_| false).unwrap();
    let mut samples = map_to_original(&attachment, &sampled.samples);
    let maps = attachment.process().maps().unwrap();
    let base = maps.all().iter().find(|it| Path::new(&it.name) == program.path).unwrap();
    // A busy machine leaves few samples: the function that is called through a pointer has some in
    // any case.
    let [by_pointer] = program.functions("leaf_mix")[..] else { panic!("no leaf_mix") };
    let [probed_early, probed_late] = program.functions("leaf_probed")[..] else {
        panic!("no probed functions")
    };
    for (function, _) in [by_pointer, probed_early, probed_late] {
        samples.add_hit(base.range.start + function, 1_000);
    }
    let options = Options { coverage: 1.0, ..Options::default() };
    optimize(&mut attachment, &samples, &options, |_| ()).unwrap();
    let moved: Vec<u64> = functions
        .iter()
        .filter(|(at, size)| is_moved(&attachment, base.range.start + at, *size))
        .map(|(at, _)| *at)
        .collect();
    assert!(moved.len() > 1 && moved.contains(&by_pointer.0), "{moved:?} of {functions:?}");
    // Attached and removed, mostly without hits.
    for _ in 0..3 {
        moved.iter().for_each(|function| drop(attach_to(*function).unwrap()));
    }
    victim.assert_alive();
    // Static probes, behind the jump and where it would be.
    let [early, late] = ["early", "late"].map(|name| static_probe(&program.path, name));
    assert!(moved.contains(&probed_late.0) && !moved.contains(&probed_early.0), "{moved:x?}");
    let mut static_probes = [early, late].map(|probe| attach_to(probe).unwrap());
    wait_for("hits of a static probe", &mut victim, || static_probes[0].hits() > 0);
    // With hits, through the pointer: it points to the original entry.
    let mut probes: Vec<Uprobe> = moved.iter().map(|it| attach_to(*it).unwrap()).collect();
    wait_for("1,000 hits", &mut victim, || {
        probes.iter_mut().map(Uprobe::hits).sum::<u64>() >= 1_000
    });
    attachment.undo().unwrap();
    let before = static_probes[1].hits();
    wait_for("hits of the other one", &mut victim, || static_probes[1].hits() > before);
    attachment.redo().unwrap();
    victim.assert_alive();
    drop((probes, static_probes));
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.assert_alive();
    // Return probes keep return addresses in the kernel: a copy may be in use without a trace of it.
    attachment.retire_unused().unwrap();
    assert_eq!(attachment.free().unwrap(), 0);
    victim.end();
}
