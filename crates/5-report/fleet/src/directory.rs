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
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dbdyno_machine::safe_files::{SafeDir, UntrustedDir, check_regular};
use dbdyno_results::{ResultsError, RunDirectory};
use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::controller::Store;
use crate::files::{self, AttemptFiles, LARGE, SMALL, StoreError, TaskResult, at};
use crate::record::{FORMAT, FleetRecord, TaskRecord, is_hexadecimal, is_node_name, is_task_name};
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
    /// Another user's link leads to it.
    #[error(transparent)]
    Link(#[from] UntrustedDir),
    /// Others could exchange what its jobs execute.
    #[error("the group of {} can write to it: use `chmod g-w`, because its jobs run as you", .0.display())]
    OfGroup(PathBuf),
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
        SafeDir::check_links(path)?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(at(path))?;
        // Jobs start in other directories.
        let path = path.canonicalize().map_err(at(path))?;
        let directory = Self::locked(&path)?;
        if path.join(RECORD).exists() || RunDirectory::at(&path).database().exists() {
            return Err(FleetError::Exists { path });
        }
        directory.copy_program(program)?;
        files::replace_json(&path.join(EXPERIMENT), experiment)?;
        files::replace(&path.join(EXPERIMENT_TEXT), text.as_bytes())?;
        Ok(directory)
    }

    /// Opens and locks the directory of a fleet run, to control it. The caller decides whether it is trusted.
    pub fn open(path: &Path) -> Result<(Self, FleetRecord), FleetError> {
        SafeDir::check_links(path)?;
        let path = found(path)?;
        let directory = Self::locked(&path)?;
        let record = directory.record()?;
        Ok((directory, record))
    }

    /// Opens the directory of a fleet run, also of another user, to read it as data.
    pub fn read(path: &Path) -> Result<(Self, FleetRecord), FleetError> {
        let directory = Self { path: found(path)?, _lock: None };
        let record = directory.record()?;
        Ok((directory, record))
    }

    /// Does the same if the directory is this user's own, to take part in the fleet run.
    pub fn read_own(path: &Path) -> Result<(Self, FleetRecord), FleetError> {
        SafeDir::check_links(path)?;
        let opened = Self::read(path)?;
        check_own(&opened.0.path)?;
        Ok(opened)
    }

    /// Copies the program that the jobs run, unless it is there. One of another content is kept under another name
    /// for the jobs that run it.
    pub fn copy_program(&self, program: &Path) -> Result<(), StoreError> {
        let copy = self.path.join(PROGRAM);
        let bytes = fs::read(program).map_err(at(program))?;
        let is_same = |bytes: &[u8]| -> io::Result<bool> {
            let metadata = fs::symlink_metadata(&copy)?;
            let is_own = metadata.is_file() && metadata.uid() == geteuid().as_raw();
            let has_mode = metadata.mode() & 0o7777 == 0o755;
            let has_size = metadata.len() == bytes.len() as u64;
            Ok(is_own && has_mode && has_size && fs::read(&copy)? == bytes)
        };
        match is_same(&bytes) {
            Ok(true) => return Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(&copy)(error)),
            Err(_) => {}
            Ok(false) => {
                fs::rename(&copy, self.path.join("dbdyno.old")).map_err(at(&copy))?;
            }
        }
        let new = self.path.join("dbdyno.new");
        let write = || {
            files::remove(&new)?;
            let mut file = File::options().write(true).create_new(true).mode(0o700).open(&new)?;
            file.write_all(&bytes)?;
            file.set_permissions(fs::Permissions::from_mode(0o755))?;
            file.sync_all()?;
            fs::rename(&new, &copy)
        };
        write().map_err(at(&copy))
    }

    fn locked(path: &Path) -> Result<Self, FleetError> {
        check_own(path)?;
        let file = path.join(LOCK);
        let lock = open_lock(&file, true).map_err(at(&file))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(FleetError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(at(&file)(source).into()),
        }
    }

    fn record(&self) -> Result<FleetRecord, FleetError> {
        let file = self.path.join(RECORD);
        let no_fleet = |why| FleetError::NoFleet { path: self.path.clone(), why };
        let text = files::read(&self.path, RECORD, LARGE).map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_fleet(format!("there is no {RECORD}")),
            _ => at(&file)(error).into(),
        })?;
        let record: FleetRecord = serde_json::from_str(&text)
            .map_err(|error| no_fleet(format!("{RECORD} cannot be read: {error}")))?;
        if record.format != FORMAT {
            return Err(no_fleet(format!("{RECORD} has format {}", record.format)));
        }
        // They become parts of paths, of names of jobs and of arguments.
        let nodes = |task: &TaskRecord| {
            let attempts = task.attempts.iter().map(|attempt| &attempt.node);
            attempts.chain([&task.node]).all(|node| is_node_name(node))
        };
        if !record.tasks.iter().all(|task| is_task_name(&task.name) && nodes(task)) {
            return Err(no_fleet("a task or a node has an invalid name".to_owned()));
        }
        if !is_hexadecimal(&record.id) {
            return Err(no_fleet("its ID is invalid".to_owned()));
        }
        Ok(record)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a process controls the fleet run.
    pub fn is_controlled(&self) -> bool {
        let open = open_lock(&self.path.join(LOCK), false);
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
        let read = |name| files::read(&self.path, name, LARGE).map_err(at(&self.path.join(name)));
        let experiment = serde_json::from_str(&read(EXPERIMENT)?)
            .map_err(|error| at(&self.path.join(EXPERIMENT))(error.into()))?;
        Ok((experiment, read(EXPERIMENT_TEXT)?))
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
        let inner = |name: &str| format!("{task}/attempts/{attempt}/{name}.json");
        let is_own = |result: &TaskResult| {
            (&*result.fleet, &*result.task, result.attempt) == (&*record.id, task, attempt)
        };
        AttemptFiles {
            claim: files::read_json(&self.path, &inner("claim")),
            progress: files::read_json(&self.path, &inner("progress")),
            result: files::read_json(&self.path, &inner("result")).filter(is_own),
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
        files::touch(&self.attempt(task, attempt).join("fence"))
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

/// The absolute path of a directory.
fn found(path: &Path) -> Result<PathBuf, FleetError> {
    path.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            FleetError::NoFleet { path: path.to_owned(), why: "it does not exist".to_owned() }
        }
        _ => at(path)(error).into(),
    })
}

/// Checks that a directory is this user's own, and that nobody else can write to it.
fn check_own(path: &Path) -> Result<(), FleetError> {
    RunDirectory::at(path).check_own().map_err(FleetError::NotOwn)?;
    let mode = fs::metadata(path).map_err(at(path))?.mode();
    if mode & 0o020 == 0 { Ok(()) } else { Err(FleetError::OfGroup(path.to_owned())) }
}

/// Opens the lock without waiting: it may be a pipe of another user.
fn open_lock(path: &Path, create: bool) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    let lock = options.create(create).truncate(false).write(true).custom_flags(flags).open(path)?;
    check_regular(&lock, SMALL)?;
    Ok(lock)
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
        let mut refuses = |change: &dyn Fn(&mut FleetRecord)| {
            let mut record = fleet(1);
            change(&mut record);
            directory.save(&record).unwrap();
            matches!(directory.record(), Err(FleetError::NoFleet { .. }))
        };
        for name in ["..", "a/b", "", ".x", "-x", "n1;id", "n\x1b[31m"] {
            assert!(refuses(&|record| name.clone_into(&mut record.tasks[0].name)), "{name}");
            assert!(refuses(&|record| name.clone_into(&mut record.tasks[0].node)), "{name}");
            assert!(refuses(&|record| name.clone_into(&mut record.id)), "{name}");
        }
        for name in ["fleet.json", "dbdyno", "cpus", "run.sqlite", "data", "comparison.html"] {
            assert!(refuses(&|record| name.clone_into(&mut record.tasks[0].name)), "{name}");
            assert!(!refuses(&|record| name.clone_into(&mut record.tasks[0].node)), "{name}");
        }
    }

    #[test]
    fn directory_that_its_group_can_write_to_is_read_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        drop(create(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(FleetDirectory::open(&path), Err(FleetError::OfGroup(_))));
        assert!(matches!(FleetDirectory::read_own(&path), Err(FleetError::OfGroup(_))));
        FleetDirectory::read(&path).unwrap();
    }

    #[test]
    fn fleet_run_behind_a_link_of_another_user_is_only_read() {
        if !geteuid().is_root() {
            return dbdyno_fuzz::skip("only root can give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        drop(create(&dir.path().join("real/f")));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("real"), &link).unwrap();
        let path = link.join("f");
        FleetDirectory::read_own(&path).unwrap();
        drop(FleetDirectory::open(&path).unwrap());
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        FleetDirectory::read(&path).unwrap();
        let (own, opened) = (FleetDirectory::read_own(&path), FleetDirectory::open(&path));
        for error in [own.unwrap_err(), opened.unwrap_err()] {
            assert!(matches!(error, FleetError::Link(_)), "{error}");
        }
    }

    /// The directory may be of another user, who wrote what is in it.
    #[test]
    fn damaged_files_are_read_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let directory = create(&dir.path().join("f"));
        let result = TaskResult {
            fleet: "5eed".to_owned(),
            task: "n001".to_owned(),
            attempt: 1,
            node: "n001".to_owned(),
            measured: 7,
            end: TaskEnd::Failed { reason: "full".to_owned(), retry: true },
        };
        let record = directory.path().join(RECORD);
        let samples = vec![fs::read(&record).unwrap(), serde_json::to_vec(&result).unwrap()];
        let words = ["null", "-1", "1e400", "[[[[", "18446744073709551615", "../", "\"end\":"];
        dbdyno_fuzz::Fuzz::new(samples).words(&words).run(|content| {
            fs::write(&record, content).unwrap();
            let _ = directory.record();
            let _ = files::read_json::<TaskResult>(directory.path(), RECORD);
            let _ = files::read_json::<Claim>(directory.path(), RECORD);
        });
    }

    #[test]
    fn program_that_was_exchanged_is_copied_again() {
        let dir = tempfile::tempdir().unwrap();
        let directory = create(&dir.path().join("f"));
        let (copy, program) = (directory.path().join(PROGRAM), dir.path().join("program"));
        fs::write(&program, "this one").unwrap();
        fs::remove_file(&copy).unwrap();
        std::os::unix::fs::symlink("/bin/true", &copy).unwrap();
        directory.copy_program(&program).unwrap();
        assert!(!copy.is_symlink());
        fs::write(&copy, "other...").unwrap();
        for _ in 0..2 {
            directory.copy_program(&program).unwrap();
            assert_eq!(fs::read_to_string(&copy).unwrap(), "this one");
        }
        let old = directory.path().join("dbdyno.old");
        assert_eq!(fs::read_to_string(old).unwrap(), "other...", "for jobs that run it");
    }

    /// With one that waits or reads everything, this test does not end.
    #[test]
    fn pipes_and_huge_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut directory = create(&dir.path().join("f"));
        let record = fleet(1);
        let at = directory.prepare("n001", 1).unwrap();
        let pipe = |path: &Path| {
            let _ = fs::remove_file(path);
            let mode = rustix::fs::Mode::RWXU;
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        };
        pipe(&at.join("claim.json"));
        File::create(at.join("progress.json")).unwrap().set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at.join("result.json")).unwrap();
        assert_eq!(directory.files_of(&record, "n001", 1), AttemptFiles::default());
        pipe(&directory.path().join(LOCK));
        assert!(!directory.is_controlled());
        pipe(&directory.path().join(RECORD));
        assert!(FleetDirectory::read(directory.path()).is_err());
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
