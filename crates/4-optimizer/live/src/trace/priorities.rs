//! Threads whose priority is raised so that they reach their stop on a busy machine.
//!
//! A priority does not end with the process that set it. So each original value is recorded twice: with
//! the watchdog, which resets it if dbdyno is killed, and in a file, from which the next dbdyno resets
//! it if both were killed at the same time, with their control group for instance.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dbdyno_machine::ProcStat;

use crate::process::{HIGHEST_PRIORITY, set_priority};
use crate::watchdog::{MAX_RAISED, Watchdog};

const FILE: &str = "priorities";
/// Number of threads whose priority is raised before the others are looked at again, which may have stopped meanwhile.
const RAISED_AT_ONCE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RaisedThread {
    tid: i32,
    /// Start time, in clock ticks since boot.
    start_ticks: u64,
    nice: i32,
}

impl RaisedThread {
    fn of(pid: u32, tid: i32) -> Option<Self> {
        let start_ticks = ProcStat::of_thread(pid, tid.cast_unsigned()).ok()?.start_ticks;
        Some(Self { tid, start_ticks, nice: nice(tid) })
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        Some(Self {
            tid: fields.next()?.parse().ok()?,
            start_ticks: fields.next()?.parse().ok()?,
            nice: fields.next()?.parse().ok()?,
        })
    }
}

fn nice(tid: i32) -> i32 {
    // SAFETY: takes numbers.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, tid.cast_unsigned()) }
}

/// Threads with a raised priority.
#[derive(Debug)]
pub(super) struct PriorityBoosts<'a> {
    pid: u32,
    watchdog: &'a Watchdog,
    /// Directory of the journal; `None`: no priority is raised.
    directory: Option<&'a Path>,
    /// By thread ID; at most [`MAX_RAISED`].
    raised: HashMap<i32, RaisedThread>,
}

impl<'a> PriorityBoosts<'a> {
    pub(super) fn new(pid: u32, watchdog: &'a Watchdog, directory: Option<&'a Path>) -> Self {
        Self { pid, watchdog, directory, raised: HashMap::new() }
    }

    /// Raises the priority of some of these threads for which it was not raised before.
    pub(super) fn raise(&mut self, tids: &[i32]) {
        let most = RAISED_AT_ONCE.min(MAX_RAISED.saturating_sub(self.raised.len()));
        let new = tids.iter().filter(|tid| !self.raised.contains_key(*tid));
        let new: Vec<_> =
            new.filter_map(|tid| RaisedThread::of(self.pid, *tid)).take(most).collect();
        let Some(directory) = self.directory.filter(|_| !new.is_empty()) else { return };
        // Not without both records.
        if record(directory, &new).is_err() {
            return;
        }
        for thread in new {
            if self.watchdog.will_raise(thread.tid, thread.nice).is_ok() {
                set_priority(thread.tid, HIGHEST_PRIORITY);
                self.raised.insert(thread.tid, thread);
            }
        }
    }

    pub(super) fn end(&mut self) {
        if self.raised.is_empty() {
            return;
        }
        for thread in std::mem::take(&mut self.raised).into_values() {
            set_priority(thread.tid, thread.nice);
        }
        // If this fails, the next dbdyno finds that there is nothing to restore.
        let _ = self.directory.map(|directory| fs::remove_file(directory.join(FILE)));
    }
}

fn record(directory: &Path, threads: &[RaisedThread]) -> io::Result<()> {
    let lines: String = threads
        .iter()
        .map(|thread| format!("{} {} {}\n", thread.tid, thread.start_ticks, thread.nice))
        .collect();
    let path = directory.join(FILE);
    let mut file = File::options().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(lines.as_bytes())
}

/// Restores the priorities that a killed dbdyno and its watchdog left raised. Priorities that were
/// changed since stay.
pub(crate) fn restore_priorities(pid: u32, directory: &Path) {
    let path = directory.join(FILE);
    let Ok(text) = fs::read_to_string(&path) else { return };
    for thread in text.lines().filter_map(RaisedThread::parse) {
        let now = RaisedThread::of(pid, thread.tid);
        let is_same = now.is_some_and(|now| now.start_ticks == thread.start_ticks);
        if is_same && nice(thread.tid) == HIGHEST_PRIORITY {
            tracing::info!(pid, thread.tid, thread.nice, "restoring a priority");
            set_priority(thread.tid, thread.nice);
        }
    }
    // If this fails, the next dbdyno finds that there is nothing to restore.
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::process::testing::KillOnDrop;
    use crate::watchdog::{MIN_LIMIT, watched};
    use crate::{Attachment, DEFAULT_MAX_PAUSE, ProbeOptions, Process};

    #[test]
    fn raised_priority_is_restored_at_the_end_and_by_the_next_dbdyno() {
        let child = KillOnDrop::sleep();
        let tid = child.0.id().cast_signed();
        set_priority(tid, 7);
        let state = tempfile::tempdir().unwrap();
        let open = || {
            let process = Process::open(child.0.id(), ProbeOptions::default()).unwrap();
            Attachment::open(process, state.path(), DEFAULT_MAX_PAUSE).unwrap()
        };
        let directory = open().directory().to_owned();
        // A journal without content is removed when it is closed.
        let create = || fs::create_dir_all(&directory).unwrap();
        let work = |watchdog: &Watchdog| {
            let mut boosts = PriorityBoosts::new(child.0.id(), watchdog, Some(&directory));
            create();
            boosts.raise(&[tid]);
            if nice(tid) != HIGHEST_PRIORITY {
                dbdyno_fuzz::skip("raising a priority is not permitted");
                return Ok(());
            }
            boosts.end();
            assert_eq!(nice(tid), 7);
            assert!(!directory.join(FILE).exists());
            // As if this process and its watchdog were killed.
            boosts.raise(&[tid]);
            assert_eq!(nice(tid), HIGHEST_PRIORITY);
            drop(open());
            assert_eq!(nice(tid), 7);
            // Somebody else has changed it since then.
            create();
            boosts.raised.clear();
            boosts.raise(&[tid]);
            set_priority(tid, 3);
            drop(open());
            assert_eq!(nice(tid), 3);
            boosts.raised.clear();
            Ok(())
        };
        watched(child.0.id(), MIN_LIMIT, work).unwrap();
    }

    #[test]
    fn no_priority_is_raised_without_a_record() {
        let child = KillOnDrop::sleep();
        let tid = child.0.id().cast_signed();
        let before = nice(tid);
        let work = |watchdog: &Watchdog| {
            for directory in [None, Some(Path::new("/nonexistent/directory"))] {
                PriorityBoosts::new(child.0.id(), watchdog, directory).raise(&[tid]);
                assert_eq!(nice(tid), before);
            }
            Ok(())
        };
        watched(child.0.id(), MIN_LIMIT, work).unwrap();
    }

    #[test]
    fn damaged_records_are_ignored() {
        for line in ["", "1", "1 2", "a b c", "1 2 x", "99999999999 1 1"] {
            assert_eq!(RaisedThread::parse(line), None);
        }
    }
}
