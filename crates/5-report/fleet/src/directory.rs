//! The directory of a fleet run.
//!
//! ```text
//! fleet.json                    the record, replaced after each change
//! fleet.lock                    locked by the process that controls the fleet run
//! experiment.json, .toml        the experiment as parsed, and its text
//! dbdyno                        the program that the jobs run
//! cpus/ID                       the task that builds for a type of CPU
//! cancel                        exists if somebody asked the controller to cancel
//! NODE/run.sqlite               the run of a complete task
//! NODE/attempts/1/job.sh        the script of an attempt
//! NODE/attempts/1/job.log       what the job printed
//! NODE/attempts/1/claim.json    the job that runs it
//! NODE/attempts/1/fence         exists if the attempt must stop
//! NODE/attempts/1/progress.json what it does
//! NODE/attempts/1/run.sqlite    a copy of its run
//! NODE/attempts/1/result.json   how it ended
//! ```

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dbdyno_results::{ResultsError, RunDirectory};

use crate::controller::Store;
use crate::files::{self, AttemptFiles, StoreError, TaskResult};
use crate::record::{FORMAT, FleetRecord};
use crate::slurm::job_script;

const RECORD: &str = "fleet.json";
const LOCK: &str = "fleet.lock";
const CANCEL: &str = "cancel";
const PROGRAM: &str = "dbdyno";
const EXPERIMENT: &str = "experiment.json";
const EXPERIMENT_TEXT: &str = "experiment.toml";

/// A directory cannot be used for a fleet run.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It belongs to another user, or others can write to it.
    #[error(transparent)]
    NotOwn(ResultsError),
    /// There is no fleet run in it.
    #[error(
        "{} has no fleet run: {why}; `dbdyno fleet run FILE --out DIR` makes one", path.display()
    )]
    NoFleet { path: PathBuf, why: String },
    /// It holds something.
    #[error(
        "{} holds a fleet run already; continue it with `dbdyno fleet run --resume {}`, or choose \
         another directory with --out", path.display(), path.display()
    )]
    Exists { path: PathBuf },
    /// Another process controls it.
    #[error("{} is controlled by another dbdyno: use `dbdyno fleet status {}`", path.display(), path.display())]
    InUse { path: PathBuf },
}

/// The directory of a fleet run.
#[derive(Debug)]
pub struct FleetDirectory {
    path: PathBuf,
    /// The lock, if this process controls the fleet run.
    _lock: Option<File>,
}

impl FleetDirectory {
    /// Creates the directory with the program and the experiment, and locks it. There is no fleet run in
    /// it until the record is stored.
    pub fn create(
        path: &Path,
        program: &Path,
        experiment: &serde_json::Value,
        text: &str,
    ) -> Result<Self, FleetError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(at(path))?;
        // Jobs start in other directories.
        let path = path.canonicalize().map_err(at(path))?;
        let directory = Self::locked(&path)?;
        if path.join(RECORD).exists() || RunDirectory::at(&path).database().exists() {
            return Err(FleetError::Exists { path });
        }
        let copy = path.join(PROGRAM);
        files::remove(&copy).map_err(at(&copy))?;
        fs::copy(program, &copy).map_err(at(&copy))?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).map_err(at(&copy))?;
        files::replace_json(&path.join(EXPERIMENT), experiment)?;
        files::replace(&path.join(EXPERIMENT_TEXT), text.as_bytes())?;
        Ok(directory)
    }

    /// Opens and locks the directory of a fleet run, to control it.
    pub fn open(path: &Path) -> Result<(Self, FleetRecord), FleetError> {
        let path = own(path)?;
        let directory = Self::locked(&path)?;
        let record = directory.record()?;
        Ok((directory, record))
    }

    /// Opens the directory of a fleet run to read it.
    pub fn read(path: &Path) -> Result<(Self, FleetRecord), FleetError> {
        let directory = Self { path: own(path)?, _lock: None };
        let record = directory.record()?;
        Ok((directory, record))
    }

    fn locked(path: &Path) -> Result<Self, FleetError> {
        RunDirectory::at(path).check_own().map_err(FleetError::NotOwn)?;
        let file = path.join(LOCK);
        let open = File::options().create(true).truncate(false).write(true).open(&file);
        let lock = open.map_err(at(&file))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(FleetError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(at(&file)(source).into()),
        }
    }

    fn record(&self) -> Result<FleetRecord, FleetError> {
        let file = self.path.join(RECORD);
        let no_fleet = |why| FleetError::NoFleet { path: self.path.clone(), why };
        let text = files::read(&file).map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_fleet(format!("there is no {RECORD}")),
            _ => at(&file)(error).into(),
        })?;
        let record: FleetRecord = serde_json::from_str(&text)
            .map_err(|error| no_fleet(format!("{RECORD} cannot be read: {error}")))?;
        let is_name = |name: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !name.starts_with('.') && !name.is_empty() && name.chars().all(is_part)
        };
        if record.format != FORMAT {
            return Err(no_fleet(format!("{RECORD} has format {}", record.format)));
        }
        if !record.tasks.iter().all(|task| is_name(&task.name)) {
            return Err(no_fleet("a task has an invalid name".to_owned()));
        }
        Ok(record)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a process controls the fleet run.
    pub fn is_controlled(&self) -> bool {
        let open = File::options().write(true).open(self.path.join(LOCK));
        open.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Asks the process that controls the fleet run to cancel it.
    pub fn ask_to_cancel(&self) -> Result<(), StoreError> {
        files::replace(&self.path.join(CANCEL), b"")
    }

    /// Whether somebody asked to cancel; if so, the request is removed.
    pub fn take_cancel(&self) -> bool {
        fs::remove_file(self.path.join(CANCEL)).is_ok()
    }

    /// The experiment as parsed, and its text.
    pub fn experiment(&self) -> Result<(serde_json::Value, String), StoreError> {
        let file = self.path.join(EXPERIMENT);
        let read = || Ok(serde_json::from_str(&files::read(&file)?)?);
        let experiment = read().map_err(at(&file))?;
        let file = self.path.join(EXPERIMENT_TEXT);
        Ok((experiment, files::read(&file).map_err(at(&file))?))
    }

    /// The run directory of a complete task.
    pub fn run_of(&self, task: &str) -> PathBuf {
        self.path.join(task)
    }

    /// The directory of an attempt.
    pub fn attempt(&self, task: &str, attempt: u32) -> PathBuf {
        self.path.join(task).join("attempts").join(attempt.to_string())
    }

    /// What an attempt wrote. A result of another fleet run, task or attempt is ignored.
    pub fn files_of(&self, record: &FleetRecord, task: &str, attempt: u32) -> AttemptFiles {
        let directory = self.attempt(task, attempt);
        let is_own = |result: &TaskResult| {
            (&*result.fleet, &*result.task, result.attempt) == (&*record.id, task, attempt)
        };
        AttemptFiles {
            claim: files::read_json(&directory.join("claim.json")),
            progress: files::read_json(&directory.join("progress.json")),
            result: files::read_json(&directory.join("result.json")).filter(is_own),
        }
    }
}

impl Store for FleetDirectory {
    fn save(&mut self, record: &FleetRecord) -> Result<(), StoreError> {
        files::replace_json(&self.path.join(RECORD), record)
    }

    fn files(&mut self, record: &FleetRecord) -> BTreeMap<(usize, u32), AttemptFiles> {
        let mut all = BTreeMap::new();
        for (index, task) in record.tasks.iter().enumerate() {
            if task.outcome.is_some() && !task.has_open_attempt() {
                continue;
            }
            for attempt in &task.attempts {
                let files = self.files_of(record, &task.name, attempt.number);
                all.insert((index, attempt.number), files);
            }
        }
        all
    }

    fn prepare(&mut self, task: &str, attempt: u32) -> Result<PathBuf, StoreError> {
        let directory = self.attempt(task, attempt);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(at(&directory))?;
        let script = job_script(&self.path, task, attempt);
        files::replace(&directory.join("job.sh"), script.as_bytes())?;
        Ok(directory)
    }

    fn fence(&mut self, task: &str, attempt: u32) -> Result<(), StoreError> {
        let fence = self.attempt(task, attempt).join("fence");
        match files::create_new(&fence) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(at(&fence)(error)),
            _ => Ok(()),
        }
    }

    fn accept(&mut self, task: &str, attempt: u32) -> Result<(), StoreError> {
        let from = self.attempt(task, attempt).join("run.sqlite");
        let to = self.run_of(task).join("run.sqlite");
        let new = self.run_of(task).join("run.sqlite.accepted");
        let copy = || {
            files::remove(&new)?;
            // A second name of the same file; some file systems have none.
            if fs::hard_link(&from, &new).is_err() {
                fs::copy(&from, &new)?;
                File::open(&new)?.sync_all()?;
            }
            fs::rename(&new, &to)?;
            // Renaming one name of a file to another name of it does nothing.
            files::remove(&new)
        };
        copy().map_err(at(&to))
    }
}

/// The absolute path of a directory of this user.
fn own(path: &Path) -> Result<PathBuf, FleetError> {
    let absolute = path.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            FleetError::NoFleet { path: path.to_owned(), why: "it does not exist".to_owned() }
        }
        _ => at(path)(error).into(),
    })?;
    RunDirectory::at(&absolute).check_own().map_err(FleetError::NotOwn)?;
    Ok(absolute)
}

/// An error of a file.
fn at(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Claim, TaskEnd};
    use crate::record::sample::fleet;

    fn create(path: &Path) -> FleetDirectory {
        let program = std::env::current_exe().unwrap();
        let mut directory =
            FleetDirectory::create(path, &program, &serde_json::json!({ "a": 1 }), "a = 1\n")
                .unwrap();
        directory.save(&fleet(2)).unwrap();
        directory
    }

    #[test]
    fn record_and_experiment_are_stored_and_one_process_controls() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let directory = create(&path);
        assert!(matches!(FleetDirectory::open(&path), Err(FleetError::InUse { .. })));
        let (reader, record) = FleetDirectory::read(&path).unwrap();
        assert_eq!(record, fleet(2));
        assert!(reader.is_controlled());
        drop(directory);
        assert!(!reader.is_controlled());
        assert_eq!(reader.experiment().unwrap().1, "a = 1\n");
        let program = std::env::current_exe().unwrap();
        let again = FleetDirectory::create(&path, &program, &serde_json::Value::Null, "");
        assert!(matches!(again, Err(FleetError::Exists { .. })));
        assert!(!reader.take_cancel());
        reader.ask_to_cancel().unwrap();
        assert!(reader.take_cancel() && !reader.take_cancel());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut directory = create(&dir.path().join("f"));
        for name in ["..", "a/b", "", ".x"] {
            let mut record = fleet(1);
            name.clone_into(&mut record.tasks[0].name);
            directory.save(&record).unwrap();
            assert!(matches!(directory.record(), Err(FleetError::NoFleet { .. })), "{name}");
        }
    }

    #[test]
    fn results_of_other_attempts_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let mut directory = create(&dir.path().join("f"));
        let record = fleet(2);
        let at = directory.prepare("n001", 1).unwrap();
        let claim = Claim { job: Some(5), node: "n001".to_owned() };
        files::replace_json(&at.join("claim.json"), &claim).unwrap();
        let mut result = TaskResult {
            fleet: record.id.clone(),
            task: "n001".to_owned(),
            attempt: 1,
            node: "n001".to_owned(),
            measured: 7,
            end: TaskEnd::Interrupted,
        };
        files::replace_json(&at.join("result.json"), &result).unwrap();
        let read = directory.files_of(&record, "n001", 1);
        assert_eq!((read.claim, read.result.as_ref()), (Some(claim), Some(&result)));
        result.attempt = 2;
        files::replace_json(&at.join("result.json"), &result).unwrap();
        assert_eq!(directory.files_of(&record, "n001", 1).result, None);
        fs::write(at.join("result.json"), "{\"fleet\":").unwrap();
        assert_eq!(directory.files_of(&record, "n001", 1).result, None);
    }

    #[test]
    fn accepting_twice_is_the_same_as_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut directory = create(&dir.path().join("f"));
        let at = directory.prepare("n001", 1).unwrap();
        fs::write(at.join("run.sqlite"), "run").unwrap();
        for _ in 0..2 {
            directory.accept("n001", 1).unwrap();
        }
        let run = directory.run_of("n001");
        assert_eq!(fs::read_to_string(run.join("run.sqlite")).unwrap(), "run");
        assert_eq!(fs::read_dir(run).unwrap().count(), 2, "the run and attempts");
        assert!(directory.accept("n002", 1).is_err());
    }
}
