//! One attempt of a task, in its job: where its run is, and what the others see of it.
//!
//! The run directory is on a local disk of the node, where only one attempt at a time can use it: a lock
//! of the local kernel is held until the process is dead. A copy of the run is put into the directory of
//! the attempt on the shared file system, between slices. So an attempt on a node that is cut off can
//! never damage what another attempt writes.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dbdyno_results::{ResultsError, RunDirectory, RunReader, snapshot};
use rustix::process::geteuid;

use crate::attempt::{Attempt, FENCE_INTERVAL, Finish, TaskError, TaskPlace};
use crate::build_session::BuildSession;
use crate::files::TaskEnd;

/// How often the run is copied to the shared file system.
const COPY_INTERVAL: Duration = Duration::from_secs(60);

/// How often copying the run is tried at the end, and the time between.
const LAST_COPIES: (u32, Duration) = (3, Duration::from_secs(5));

/// Whether an attempt is to run.
#[derive(Debug)]
pub enum Begin {
    /// It is to measure.
    Run(Box<TaskSession>),
    Build(Box<BuildSession>),
    /// Another job runs it, or it is not needed any more; with the reason.
    NotNeeded(String),
}

/// A running attempt.
#[derive(Debug)]
pub struct TaskSession {
    pub attempt: Attempt,
    /// The run directory, on a local disk.
    pub run: PathBuf,
    /// Whether there is a run in it to continue.
    pub resumes: bool,
    last: Mutex<LastCopy>,
    _lock: File,
}

/// When the run was copied last, and how much was measured.
#[derive(Debug)]
struct LastCopy {
    time: Instant,
    measured: u64,
}

impl TaskSession {
    /// Claims the attempt. If it measures, waits until no other attempt runs on this node, and finds the run
    /// to continue.
    pub fn begin(
        fleet: &Path,
        task: &str,
        attempt: u32,
        place: &TaskPlace,
        stop: &AtomicBool,
    ) -> Result<Begin, TaskError> {
        let Some(claimed) = Attempt::claim(fleet, task, attempt, place)? else {
            return Ok(Begin::NotNeeded("another job runs this attempt".to_owned()));
        };
        if claimed.task().builds {
            return Ok(Begin::Build(Box::new(BuildSession::new(claimed))));
        }
        let (fleet, record) = (&claimed.fleet, &claimed.record);
        let scratch = open_scratch(Path::new(&record.request.scratch), &place.node)?;
        let lock_file = scratch.join("node.lock");
        let at_lock = |source| TaskError::Scratch { path: lock_file.clone(), source };
        let open = File::options().create(true).truncate(false).write(true).open(&lock_file);
        let lock = open.map_err(at_lock)?;
        while let Err(error) = lock.try_lock() {
            // Some shared file systems have no locks.
            if let TryLockError::Error(source) = error {
                return Err(at_lock(source));
            }
            let is_fenced = claimed.is_fenced();
            if is_fenced || stop.load(Ordering::Relaxed) {
                if !is_fenced {
                    claimed.write_result(0, TaskEnd::Interrupted)?;
                }
                return Ok(Begin::NotNeeded("told to stop while another attempt ran".to_owned()));
            }
            std::thread::sleep(FENCE_INTERVAL / 4);
        }
        let is_complete = |number: u32| {
            let result = fleet.files_of(record, task, number).result;
            result.is_some_and(|result| matches!(result.end, TaskEnd::Complete { .. }))
        };
        if (1..attempt).any(is_complete) {
            return Ok(Begin::NotNeeded("an earlier attempt is complete".to_owned()));
        }
        let run = scratch.join(format!("{}-{task}", record.id));
        let copies = (1..attempt).rev().filter_map(|number| {
            let claim = fleet.files_of(record, task, number).claim?;
            (claim.node == place.node).then(|| fleet.attempt(task, number))
        });
        let resumes = prepare_run(&run, copies)?;
        let last = Mutex::new(LastCopy { time: Instant::now(), measured: 0 });
        Ok(Begin::Run(Box::new(Self { attempt: claimed, run, resumes, last, _lock: lock })))
    }

    /// Shows progress to the others and looks whether the attempt must stop, both not more often than
    /// every few seconds; `between_slices`, also copies the run now and then. Returns whether to go on.
    pub fn tick(&self, doing: &str, between_slices: bool) -> bool {
        if !self.attempt.may_go_on() {
            return false;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if between_slices && last.time.elapsed() >= COPY_INTERVAL {
            last.time = Instant::now();
            match self.copy() {
                Ok(measured) => last.measured = measured,
                // The next copy may succeed; what was measured is on the local disk.
                Err(error) => tracing::warn!(%error, "copying the run"),
            }
        }
        self.attempt.show(doing, last.measured);
        true
    }

    /// Copies the run and writes the result, unless another attempt took over. What is on the local disk
    /// is removed if it is not needed any more.
    pub fn finish(self, end: TaskEnd) -> Result<Finish, TaskError> {
        let mut tries = LAST_COPIES.0;
        let copied = loop {
            if self.attempt.is_superseded(&end) {
                return Ok(Finish::Fenced);
            }
            tries -= 1;
            match self.copy() {
                Err(_) if tries > 0 && self.has_run() => std::thread::sleep(LAST_COPIES.1),
                copied => break copied,
            }
        };
        let measured = match (copied, &end) {
            (Ok(measured), _) => measured,
            // An error may have come before there was anything to copy.
            (Err(_), TaskEnd::Failed { .. } | TaskEnd::Interrupted) if !self.has_run() => 0,
            (Err(error), _) => return Err(error.into()),
        };
        let is_over =
            matches!(end, TaskEnd::Complete { .. } | TaskEnd::Failed { retry: false, .. });
        let finish = self.attempt.write_result(measured, end)?;
        if is_over && let Err(error) = remove_run(&self.run) {
            tracing::warn!(%error, "removing the local run directory");
        }
        Ok(finish)
    }

    fn has_run(&self) -> bool {
        RunReader::open(&self.run).is_ok()
    }

    /// Copies the run to the shared file system. Returns how much is measured in it, at least.
    fn copy(&self) -> Result<u64, ResultsError> {
        let measured = RunReader::open(&self.run)?.measurements()?;
        snapshot(&self.run, &self.attempt.directory.join("run.sqlite"))?;
        Ok(measured)
    }
}

/// The directory for runs on this node, private to this user. It has the node's name, because nodes that
/// boot from the network may share their disks.
fn open_scratch(scratch: &Path, node: &str) -> Result<PathBuf, TaskError> {
    let own = scratch.join(format!("dbdyno-fleet-{}", geteuid().as_raw()));
    let of_node = own.join(node.replace('/', "_"));
    for path in [&own, &of_node] {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                return Err(TaskError::Scratch { path: path.clone(), source });
            }
            _ => {}
        }
        // Others can write to the directory above: what is there already may be a trap.
        if fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink()) {
            let source = io::Error::other("it is a symbolic link");
            return Err(TaskError::Scratch { path: path.clone(), source });
        }
        RunDirectory::at(path).check_own()?;
    }
    Ok(of_node)
}

/// Finds a run to continue: that in the directory, which has the latest measurements, or the first copy
/// that can be read. Returns whether there is one. Otherwise the directory does not exist.
fn prepare_run(run: &Path, mut copies: impl Iterator<Item = PathBuf>) -> Result<bool, TaskError> {
    if RunReader::open(run).is_ok() {
        return Ok(true);
    }
    let at = |source| TaskError::Scratch { path: run.to_owned(), source };
    remove_run(run).map_err(at)?;
    let Some(copy) = copies.find(|copy| RunReader::open(copy).is_ok()) else { return Ok(false) };
    let directory = RunDirectory::at(run);
    for path in [run.to_owned(), directory.data(), directory.logs()] {
        DirBuilder::new().mode(0o700).create(path).map_err(at)?;
    }
    let from = RunDirectory::at(&copy).database();
    fs::copy(from, directory.database()).map_err(at)?;
    Ok(true)
}

/// Removes a run directory, if it exists.
fn remove_run(run: &Path) -> io::Result<()> {
    match fs::remove_dir_all(run) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_results::{NewRun, RunWriter};

    use super::*;
    use crate::controller::Store;
    use crate::directory::FleetDirectory;
    use crate::files::TaskResult;
    use crate::record::sample::fleet;

    /// A fleet run with two tasks in a directory, with scratch beside it.
    struct Scene {
        dir: tempfile::TempDir,
        directory: FleetDirectory,
    }

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let program = std::env::current_exe().unwrap();
            let (path, value) = (dir.path().join("f"), serde_json::Value::Null);
            let mut directory = FleetDirectory::create(&path, &program, &value, "").unwrap();
            let mut record = fleet(2);
            record.request.scratch = dir.path().to_string_lossy().into_owned();
            directory.save(&record).unwrap();
            for attempt in 1..=3 {
                directory.prepare("n001", attempt).unwrap();
            }
            Self { dir, directory }
        }

        fn begin(&self, attempt: u32, node: &str) -> Begin {
            let place = TaskPlace { node: node.to_owned(), job: Some(u64::from(attempt)) };
            let stop = AtomicBool::new(false);
            TaskSession::begin(self.directory.path(), "n001", attempt, &place, &stop).unwrap()
        }

        fn session(&self, attempt: u32, node: &str) -> TaskSession {
            match self.begin(attempt, node) {
                Begin::Run(session) => *session,
                other => panic!("{other:?}"),
            }
        }

        fn result(&self, attempt: u32) -> Option<TaskResult> {
            let record = FleetDirectory::read(self.directory.path()).unwrap().1;
            self.directory.files_of(&record, "n001", attempt).result
        }
    }

    fn run(session: &TaskSession, name: &str) {
        let new = NewRun {
            name: name.to_owned(),
            baseline: "a".to_owned(),
            experiment_text: String::new(),
            experiment: serde_json::json!({}),
            settings: Vec::new(),
            microbenchmarks: Vec::new(),
            insert: None,
        };
        RunWriter::create(&session.run, &new).unwrap();
    }

    fn name(run: &Path) -> String {
        RunReader::open(run).unwrap().name().unwrap()
    }

    #[test]
    fn complete_run_is_copied_before_its_result_and_removed_locally() {
        let scene = Scene::new();
        let session = scene.session(1, "n001");
        assert!(!session.resumes && !session.run.exists());
        run(&session, "first");
        assert!(session.tick("measuring", true));
        let local = session.run.clone();
        assert_eq!(session.finish(TaskEnd::Complete { failures: 0 }).unwrap(), Finish::Written);
        assert!(!local.exists());
        assert!(matches!(scene.result(1).unwrap().end, TaskEnd::Complete { failures: 0 }));
        assert_eq!(name(&scene.directory.attempt("n001", 1)), "first");
        assert!(matches!(scene.begin(2, "n001"), Begin::NotNeeded(_)), "it is complete");
    }

    #[test]
    fn complete_run_that_cannot_be_copied_has_no_result_and_stays() {
        let scene = Scene::new();
        let session = scene.session(1, "n001");
        // There is nothing to copy, as if it could not be read.
        assert!(session.finish(TaskEnd::Complete { failures: 0 }).is_err());
        assert_eq!(scene.result(1), None);
    }

    #[test]
    fn next_attempt_continues_on_the_same_node_only() {
        let scene = Scene::new();
        let session = scene.session(1, "n001");
        run(&session, "first");
        let local = session.run.clone();
        session.finish(TaskEnd::Interrupted).unwrap();
        // The local run, or its copy if the disk was replaced.
        assert!(scene.session(2, "n001").resumes);
        fs::remove_dir_all(&local).unwrap();
        let session = scene.session(3, "n001");
        assert!(session.resumes);
        assert_eq!(name(&session.run), "first");
        drop(session);
        fs::remove_file(scene.directory.attempt("n001", 3).join("claim.json")).unwrap();
        assert!(!scene.session(3, "n002").resumes, "another machine measures anew");
    }

    #[test]
    fn attempt_has_one_job_and_waits_for_the_one_before() {
        let mut scene = Scene::new();
        let first = scene.session(1, "n001");
        run(&first, "first");
        assert!(matches!(scene.begin(1, "n001"), Begin::NotNeeded(_)), "claimed");
        scene.directory.fence("n001", 1).unwrap();
        scene.directory.fence("n001", 1).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| scene.session(2, "n001"));
            std::thread::sleep(FENCE_INTERVAL);
            assert!(!second.is_finished(), "the first holds the node");
            assert!(!first.tick("measuring", true), "it is told to stop");
            assert_eq!(first.finish(TaskEnd::Interrupted).unwrap(), Finish::Fenced);
            assert!(second.join().unwrap().resumes);
        });
        assert_eq!(scene.result(1), None);
    }

    #[test]
    fn attempt_that_is_stopped_while_it_waits_is_interrupted() {
        let scene = Scene::new();
        let _first = scene.session(1, "n001");
        let place = TaskPlace { node: "n001".to_owned(), job: Some(2) };
        let stop = AtomicBool::new(true);
        let begun = TaskSession::begin(scene.directory.path(), "n001", 2, &place, &stop).unwrap();
        assert!(matches!(begun, Begin::NotNeeded(_)));
        assert_eq!(scene.result(2).unwrap().end, TaskEnd::Interrupted);
    }

    #[test]
    fn link_instead_of_the_local_directory_is_refused() {
        let scene = Scene::new();
        let own = format!("dbdyno-fleet-{}", geteuid().as_raw());
        std::os::unix::fs::symlink("/", scene.dir.path().join(own)).unwrap();
        let place = TaskPlace { node: "n001".to_owned(), job: None };
        let stop = AtomicBool::new(false);
        let begun = TaskSession::begin(scene.directory.path(), "n001", 1, &place, &stop);
        assert!(begun.is_err());
    }
}
