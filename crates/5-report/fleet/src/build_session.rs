//! One attempt to compile what the measuring jobs of a fleet run need, into a cache that all nodes share.
//!
//! Whether they share it is not guessed from the type of the file system: the process that plans the fleet
//! run marks its cache with a file, and the job looks whether it finds the mark in the cache of its node.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attempt::{Attempt, Finish, TaskError};
use crate::files::{self, StoreError, TaskEnd};
use crate::record::FleetRecord;

/// A running attempt to build.
#[derive(Debug)]
pub struct BuildSession {
    pub attempt: Attempt,
    /// Number of finished builds.
    built: AtomicU64,
}

impl BuildSession {
    pub(crate) fn new(attempt: Attempt) -> Self {
        Self { attempt, built: AtomicU64::new(0) }
    }

    /// Takes over all builds for a type of CPU, named by letters and digits. Returns the task that has done
    /// so before, unless it is this one.
    pub fn claim_cpu(&self, cpu: &str) -> Result<Option<String>, StoreError> {
        let own = &self.attempt.task().name;
        let directory = self.attempt.fleet.path().join("cpus");
        let (claim, new) = (directory.join(cpu), directory.join(format!("{cpu}.{own}")));
        let claimed = || -> io::Result<Option<String>> {
            fs::create_dir_all(&directory)?;
            files::replace(&new, own.as_bytes()).map_err(|error| error.source)?;
            // A name for a whole file: whoever finds it can read it.
            let linked = fs::hard_link(&new, &claim);
            files::remove(&new)?;
            match linked {
                Ok(()) => Ok(None),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    let other = files::read(&directory, cpu, files::SMALL)?;
                    Ok((other != *own).then_some(other))
                }
                Err(error) => Err(error),
            }
        };
        claimed().map_err(files::at(&claim))
    }

    /// Counts a finished build.
    pub fn count_build(&self) {
        self.built.fetch_add(1, Ordering::Relaxed);
    }

    /// Shows progress to the others and looks whether the attempt must stop, both not more often than every
    /// few seconds. Returns whether to go on.
    pub fn tick(&self, doing: &str) -> bool {
        let goes_on = self.attempt.may_go_on();
        if goes_on {
            self.attempt.show(doing, self.built.load(Ordering::Relaxed));
        }
        goes_on
    }

    /// Writes the result, unless another attempt took over.
    pub fn finish(self, end: TaskEnd) -> Result<Finish, TaskError> {
        if self.attempt.is_superseded(&end) {
            return Ok(Finish::Fenced);
        }
        Ok(self.attempt.write_result(self.built.into_inner(), end)?)
    }
}

/// Marks a build cache, so that jobs see whether theirs is the same one.
pub fn mark_cache(cache: &Path, record: &FleetRecord) -> Result<(), StoreError> {
    files::touch(&mark(cache, record))
}

/// Whether a build cache has the mark of a fleet run.
pub fn is_marked(cache: &Path, record: &FleetRecord) -> bool {
    mark(cache, record).exists()
}

/// Removes the mark of a fleet run.
pub fn unmark_cache(cache: &Path, record: &FleetRecord) -> Result<(), StoreError> {
    let mark = mark(cache, record);
    files::remove(&mark).map_err(files::at(&mark))
}

fn mark(cache: &Path, record: &FleetRecord) -> PathBuf {
    cache.join(format!("fleet-{}", record.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::TaskPlace;
    use crate::controller::Store;
    use crate::directory::FleetDirectory;
    use crate::files::TaskResult;
    use crate::plan::with_builds;
    use crate::record::sample::fleet;
    use crate::task_session::{Begin, TaskSession};

    /// A fleet run with two nodes, each of which builds.
    fn directory(path: &Path) -> FleetDirectory {
        let program = std::env::current_exe().unwrap();
        let mut directory =
            FleetDirectory::create(path, &program, &serde_json::Value::Null, "").unwrap();
        let mut record = fleet(2);
        record.tasks = with_builds(record.tasks, true);
        directory.save(&record).unwrap();
        directory
    }

    fn begin(directory: &mut FleetDirectory, task: &str, attempt: u32) -> BuildSession {
        directory.prepare(task, attempt).unwrap();
        let place = TaskPlace { node: "n".to_owned(), job: Some(1) };
        match TaskSession::begin(directory.path(), task, attempt, &place, &false.into()).unwrap() {
            Begin::Build(session) => *session,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_task_builds_for_a_type_of_cpu_also_in_its_next_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let mut directory = directory(&dir.path().join("f"));
        let first = begin(&mut directory, "build-n001", 1);
        let other = begin(&mut directory, "build-n002", 1);
        assert_eq!(first.claim_cpu("abc").unwrap(), None);
        assert_eq!(other.claim_cpu("abc").unwrap().as_deref(), Some("build-n001"));
        assert_eq!(other.claim_cpu("def").unwrap(), None);
        let again = begin(&mut directory, "build-n001", 2);
        assert_eq!(again.claim_cpu("abc").unwrap(), None);
    }

    #[test]
    fn fenced_build_writes_no_result_unless_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let mut directory = directory(&dir.path().join("f"));
        let record = FleetDirectory::read(directory.path()).unwrap().1;
        let task = "build-n001";
        for (attempt, end, written) in [
            (1, TaskEnd::Interrupted, Finish::Fenced),
            (2, TaskEnd::Complete { failures: 0 }, Finish::Written),
        ] {
            let session = begin(&mut directory, task, attempt);
            session.count_build();
            directory.fence(task, attempt).unwrap();
            assert_eq!(session.finish(end.clone()).unwrap(), written);
            let result: Option<TaskResult> = directory.files_of(&record, task, attempt).result;
            let expected = (written == Finish::Written).then_some((1, end));
            assert_eq!(result.map(|result| (result.measured, result.end)), expected);
        }
    }

    #[test]
    fn cache_is_shared_if_it_has_the_mark_of_the_fleet_run() {
        let dir = tempfile::tempdir().unwrap();
        let (record, other) = (fleet(1), FleetRecord { id: "0ther".to_owned(), ..fleet(1) });
        mark_cache(dir.path(), &record).unwrap();
        mark_cache(dir.path(), &record).unwrap();
        assert!(is_marked(dir.path(), &record) && !is_marked(dir.path(), &other));
        unmark_cache(dir.path(), &record).unwrap();
        unmark_cache(dir.path(), &record).unwrap();
        assert!(!is_marked(dir.path(), &record));
        assert!(mark_cache(&dir.path().join("missing"), &record).is_err());
    }
}
