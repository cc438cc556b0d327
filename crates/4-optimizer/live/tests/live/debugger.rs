//! An optimized program in a debugger.

use std::process::Command;
use std::time::{Duration, Instant};

use dbdyno_live::{Attachment, optimize, symbols};
use dbdyno_relayout::Options;

use crate::copies::attach;
use crate::sampling::samples;
use crate::victim::{Program, Victim};

/// The output of gdb's `bt` after loading a script.
fn backtrace(victim: &Victim, script: &std::path::Path) -> String {
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
    let mut deepest = 0;
    // The second optimization replaces the first, whose memory is freed with the third.
    for round in 0..3 {
        optimize_once(&mut attachment);
        let script = script().expect("there are symbols");
        let text = std::fs::read_to_string(&script).unwrap();
        assert!(text.lines().count() <= 2, "{round}: {text}");
        for _ in 0..5 {
            let output = backtrace(&victim, &script);
            let frames: Vec<&str> = output.lines().filter(|line| line.starts_with('#')).collect();
            let names = ["main", "outer", "middle", "inner"];
            assert!(frames.len() <= names.len(), "{output}");
            for (frame, name) in frames.iter().rev().zip(names) {
                // gdb shows the suffix in square brackets. `main` is never called again, and `outer`
                // may do too little to be hot.
                let is_copy = name == "middle" || name == "inner";
                assert!(frame.contains(name), "{output}");
                assert!(!is_copy || frame.contains("relaid"), "{output}");
            }
            deepest = deepest.max(frames.len());
        }
    }
    assert_eq!(deepest, 4, "never sampled in `inner`");
    attachment.undo().unwrap();
    attachment.retire_unused().unwrap();
    let start = Instant::now();
    while script().is_some() {
        assert!(start.elapsed() < Duration::from_secs(60), "threads do not leave the code");
        attachment.free().unwrap();
    }
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", victim.pid()));
}
