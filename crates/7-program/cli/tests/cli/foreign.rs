//! Run directories that somebody else made or changed, and passwords that programs do not get.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    Background, Experiment, TestDir, call, modify_run, resume, slices_of_live_run, wait_until,
    worker_of,
};
use crate::outside::write_program;

const READ: &str = "point-query.pre_range=100";

/// A run with a compiler that fails and leaves a mark.
struct Marked {
    test: TestDir,
}

impl Marked {
    fn new() -> Self {
        let marked = Self { test: TestDir::new() };
        let compiler = marked.path("gcc");
        let script = format!("#!/bin/sh\n: >'{}'\nexit 1\n", marked.path("mark").display());
        write_program(&compiler, &script);
        let lines = format!("compiler = \"{}\"", compiler.display());
        let experiment = Experiment { candidates: &[("base", &lines)], ..Experiment::default() };
        marked.test.run(&experiment, &[]).assert_code(1);
        assert!(marked.was_run());
        marked
    }

    fn path(&self, name: &str) -> PathBuf {
        self.test.path().join(name)
    }

    /// Whether the compiler was run since the last call.
    fn was_run(&self) -> bool {
        fs::remove_file(self.path("mark")).is_ok()
    }

    /// A copy, as if it had been sent by mail.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.path(name);
        let mut command = Command::new("cp");
        assert!(command.arg("-a").arg(self.test.out()).arg(&copy).status().unwrap().success());
        copy
    }
}

#[test]
fn copied_run_starts_nothing_unless_it_is_trusted() {
    let marked = Marked::new();
    let copy = marked.copy("copy");
    resume(&copy, &[]).assert_code(2).assert_prints("--trust").assert_prints("with /");
    call([Path::new("clean"), &copy]).assert_code(2).assert_prints("--trust");
    assert!(!marked.was_run(), "a program that the run names was started");
    call([Path::new("report"), &copy]).assert_no_panic();
    assert!(!marked.was_run());

    resume(&copy, &["--trust"]).assert_code(1);
    assert!(marked.was_run());
    // From now on it is registered.
    resume(&copy, &[]).assert_code(1);
    assert!(marked.was_run());
    call([Path::new("clean"), &copy]).assert_code(0);
    call([Path::new("clean"), Path::new("--trust"), &marked.copy("cleaned")]).assert_code(0);
}

/// Somebody else could lead what is written there to other files.
#[test]
fn nothing_is_written_to_the_run_of_another_user_or_where_his_link_leads() {
    let test = TestDir::new();
    test.run(&Experiment::default(), &[]).assert_code(0);
    let (run, elsewhere) = (test.out(), test.path().join("elsewhere"));
    let files = |directory: &Path| fs::read_dir(directory).unwrap().count();
    fs::remove_file(run.join("report.html")).unwrap();
    let before = files(&run);
    let nobody = Some(65_534);
    if std::os::unix::fs::chown(&run, nobody, None).is_ok() {
        let read = call([Path::new("report"), &run]);
        read.assert_code(0).assert_prints("nothing is written to it").assert_prints("--out");
        assert_eq!(files(&run), before);
        call([Path::new("report"), &run, Path::new("--out"), &elsewhere]).assert_code(0);
        assert!(elsewhere.join("report.html").exists());
        std::os::unix::fs::chown(&run, Some(0), None).unwrap();
        let link = test.path().join("link");
        symlink(&run, &link).unwrap();
        std::os::unix::fs::lchown(&link, nobody, None).unwrap();
        call([Path::new("report"), &link.join("")]).assert_code(0);
        assert_eq!(files(&run), before);
        resume(&link, &[]).assert_code(1).assert_prints("a symbolic link of another user");
        call([Path::new("clean"), &link]).assert_code(1);
    }
    let (inner, own) = (test.path().join("inner"), test.path().join("own"));
    symlink(&run, &inner).unwrap();
    symlink("inner", &own).unwrap();
    call([Path::new("report"), &own]).assert_code(0);
    assert_eq!(files(&run), before + 1);
}

#[test]
fn own_run_resumes_where_it_is_and_after_it_was_moved() {
    let marked = Marked::new();
    resume(&marked.test.out(), &[]).assert_code(1);
    assert!(marked.was_run());
    let moved = marked.path("moved");
    fs::rename(marked.test.out(), &moved).unwrap();
    resume(&moved, &[]).assert_code(1);
    assert!(marked.was_run());
}

#[test]
fn run_of_an_older_version_resumes_when_it_is_trusted() {
    let marked = Marked::new();
    let out = marked.test.out();
    modify_run(&out, "DELETE FROM meta WHERE key = 'identity'");
    resume(&out, &[]).assert_code(2).assert_prints("--trust");
    resume(&out, &["--trust"]).assert_code(1);
    resume(&out, &[]).assert_code(1);
}

#[test]
fn candidates_whose_names_are_paths_are_refused() {
    let marked = Marked::new();
    let out = marked.test.out();
    let log = marked.path("victim.log");
    fs::write(&log, "of another program").unwrap();
    modify_run(
        &out,
        "UPDATE meta SET value = replace(replace(value, '\"name\":\"base\"', \
         '\"name\":\"../../victim\"'), '\"baseline\":\"base\"', '\"baseline\":\"../../victim\"') \
         WHERE key = 'experiment'",
    );
    for finished in [resume(&out, &["--trust"]), call([Path::new("clean"), &out])] {
        finished.assert_code(1).assert_prints("`../../victim` cannot be a name");
    }
    assert!(!marked.was_run());
    assert_eq!(fs::read_to_string(&log).unwrap(), "of another program");
}

#[test]
fn workers_of_embedded_databases_get_no_passwords() {
    let test = TestDir::new();
    let out = test.out();
    let microbenchmarks = &format!("\"{READ}\"");
    let experiment = Experiment { budget: "2s", microbenchmarks, ..Experiment::default() };
    let mut command = test.run_command(&experiment, &out, &[]);
    for name in ["DBDYNO_PASSWORD", "MYSQL_PWD", "PGPASSWORD"] {
        command.env(name, "open sesame");
    }
    let mut run = Background::start(command, test.path());
    let (mut worker, pid) = (None, run.pid());
    run.wait_until("slices", || slices_of_live_run(&out, READ) > 0);
    wait_until("its worker", || {
        worker = worker_of(pid, &out, "base");
        worker.is_some()
    });
    let environment = fs::read(format!("/proc/{}/environ", worker.unwrap())).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("PATH=") && !environment.contains("sesame"), "{environment}");
    run.signal(libc::SIGINT);
    run.end().assert_code(130);
}
