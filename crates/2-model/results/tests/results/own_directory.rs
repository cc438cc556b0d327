//! Run directories that somebody else made or changed: with links to files of others.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

use dbdyno_results::{NotOwn, ResultsError, RunWriter};
use tempfile::TempDir;

use crate::run_directory::{lab, new_run, started};

/// A directory with a run and a file outside it.
struct Lab {
    dir: TempDir,
}

const CONTENT: &str = "of somebody else\n";

impl Lab {
    fn new() -> Self {
        let dir = lab();
        drop(started(&dir.path().join("run")));
        fs::write(dir.path().join("victim"), CONTENT).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Tries to resume the run: it must not change what is outside.
    #[track_caller]
    fn resume_fails(&self) -> ResultsError {
        let error = RunWriter::resume(&self.path("run")).unwrap_err();
        assert_eq!(fs::read_to_string(self.path("victim")).unwrap(), CONTENT);
        error
    }
}

fn reason(error: &ResultsError) -> NotOwn {
    match error {
        ResultsError::NotOwn { why, .. } => *why,
        other => panic!("{other}"),
    }
}

#[test]
fn lock_that_is_a_link_is_refused_and_its_target_kept() {
    let lab = Lab::new();
    let lock = lab.path("run/run.lock");
    fs::remove_file(&lock).unwrap();
    symlink(lab.path("victim"), &lock).unwrap();
    assert_eq!(reason(&lab.resume_fails()), NotOwn::Link);
}

#[test]
fn lock_that_is_another_name_of_a_file_is_refused() {
    let lab = Lab::new();
    let lock = lab.path("run/run.lock");
    fs::remove_file(&lock).unwrap();
    fs::hard_link(lab.path("victim"), &lock).unwrap();
    assert!(lab.resume_fails().to_string().contains("other content"));
}

#[test]
fn links_to_directories_are_refused() {
    for name in ["data", "logs", "data/base", "data/servers/base", "data/base/data.sqlite"] {
        let lab = Lab::new();
        let link = lab.path("run").join(name);
        let _ = fs::remove_dir(&link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(lab.path("victim"), &link).unwrap();
        let error = lab.resume_fails();
        assert_eq!(reason(&error), NotOwn::Link, "{name}");
        assert!(error.to_string().contains(&link.display().to_string()), "{error}");
    }
}

#[test]
fn directories_that_others_own_or_can_write_to_are_refused() {
    let lab = Lab::new();
    fs::set_permissions(lab.path("run/logs"), Permissions::from_mode(0o777)).unwrap();
    assert_eq!(reason(&lab.resume_fails()), NotOwn::Writable(0o777));
    fs::set_permissions(lab.path("run/logs"), Permissions::from_mode(0o700)).unwrap();
    if fs::metadata(lab.path("run")).unwrap().uid() != 0 {
        dbdyno_fuzz::skip("only root can give files away");
        return;
    }
    for name in ["run", "run/data", "run/run.sqlite"] {
        chown(lab.path(name), Some(65_534), None).unwrap();
        assert_eq!(reason(&lab.resume_fails()), NotOwn::Owner { owner: 65_534 }, "{name}");
        chown(lab.path(name), Some(0), None).unwrap();
    }
    drop(RunWriter::resume(&lab.path("run")).unwrap());
}

#[test]
fn new_run_does_not_follow_links_in_a_prepared_directory() {
    for name in ["run.lock", "data", "logs", "run.sqlite.new"] {
        let lab = Lab::new();
        let out = lab.path("prepared");
        fs::create_dir(&out).unwrap();
        symlink(lab.path("missing"), out.join(name)).unwrap();
        RunWriter::create(&out, &new_run()).unwrap_err();
        assert!(!lab.path("missing").exists(), "{name}");
    }
}

#[test]
fn path_to_the_run_directory_may_contain_links() {
    let lab = Lab::new();
    symlink(lab.path("run"), lab.path("latest")).unwrap();
    drop(RunWriter::resume(&lab.path("latest")).unwrap());
}
