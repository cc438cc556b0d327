use std::sync::Arc;

use dbdyno_units::{Bytes, Nanos};

use super::process::Spent;
use crate::proc_stat::{ChildUsage, ticks};

/// Resource usage of all processes of a tree since their start.
#[derive(Clone, Debug)]
pub struct ProcessTreeUsage {
    /// Time of the reading, in clock ticks since boot.
    pub(super) at: u64,
    pub(super) members: Vec<Member>,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) pid: u32,
    pub(super) started: u64,
    pub(super) spent: Arc<Spent>,
}

/// Resource usage of a process tree between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTreeDelta {
    /// CPU time: to the nanosecond for processes that are alive at the end. For processes that
    /// ended in between, the part after the earlier reading is rounded down to the kernel's tick
    /// (mostly 10 ms), and is missing if no process of the tree reaped them.
    pub cpu: Nanos,
    /// User CPU time, in steps of the kernel's tick.
    pub user: Nanos,
    /// System CPU time, in steps of the kernel's tick.
    pub system: Nanos,
    /// Voluntary and involuntary context switches, with an error of one per thread; those of
    /// threads that ended in between are missing. `None` if unknown.
    pub context_switches: Option<u64>,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Bytes read from storage; `None` if this user may not trace the process, which the kernel
    /// requires for reading it.
    pub read_from_storage: Option<Bytes>,
    /// Bytes written to storage or to the page cache; `None` as above.
    pub written_to_storage: Option<Bytes>,
    /// Number of processes at the end.
    pub processes: u32,
}

impl ProcessTreeUsage {
    /// The usage since an `earlier` reading of the same tree.
    pub fn since(&self, earlier: &Self) -> ProcessTreeDelta {
        let mut sum = Sum::default();
        let mut processes = 0;
        for member in &self.members {
            processes += 1;
            match earlier.find(member) {
                Some(then) if Arc::ptr_eq(then, &member.spent) => {
                    sum.unknown(&member.spent); // No change, but counters may be unknown.
                }
                Some(then) => sum.add(&member.spent, Some(then)),
                // It was started after the earlier reading, so all of its usage counts.
                None if member.started >= earlier.at => sum.add(&member.spent, None),
                // Found too late: its usage at the earlier reading is unknown.
                None => {}
            }
        }
        let ended = earlier.members.iter().filter(|member| self.find(member).is_none());
        ended.for_each(|member| sum.end(&member.spent));
        sum.total(processes)
    }

    fn find(&self, member: &Member) -> Option<&Arc<Spent>> {
        let place = self.members.binary_search_by_key(&member.pid, |other| other.pid).ok()?;
        let found = &self.members[place];
        (found.started == member.started).then_some(&found.spent)
    }
}

/// The increase of live processes, and the usage of ended ones at the earlier reading.
///
/// When a process is reaped, its usage is added to its parent's counters for reaped children. The
/// usage of ended processes between the readings is therefore the increase of these counters minus
/// the usage of the ended processes at the earlier reading.
#[derive(Default)]
struct Sum {
    lived: ProcessTreeDelta,
    /// The context switches, or the bytes, of some process are unknown.
    no_switches: bool,
    no_io: bool,
    switches: u64,
    read: u64,
    written: u64,
    reaped: ChildUsage,
    had: ProcessTreeDelta,
    had_read: u64,
    had_written: u64,
}

impl Sum {
    fn unknown(&mut self, now: &Spent) {
        self.no_switches |= now.switches.is_none();
        self.no_io |= now.io.is_none();
    }

    fn add(&mut self, now: &Spent, then: Option<&Arc<Spent>>) {
        self.unknown(now);
        let then = then.map(Arc::as_ref);
        let time =
            |get: fn(&Spent) -> Nanos| get(now).saturating_sub(then.map_or(Nanos::ZERO, get));
        let count = |get: fn(&Spent) -> u64| get(now).saturating_sub(then.map_or(0, get));
        self.lived.cpu += time(|spent| spent.cpu);
        self.lived.user += time(|spent| ticks(spent.stat.user_ticks));
        self.lived.system += time(|spent| ticks(spent.stat.system_ticks));
        self.lived.minor_faults += count(|spent| spent.stat.minor_faults);
        self.lived.major_faults += count(|spent| spent.stat.major_faults);
        self.reaped.minor_faults += count(|spent| spent.stat.reaped_children.minor_faults);
        self.reaped.major_faults += count(|spent| spent.stat.reaped_children.major_faults);
        self.reaped.user_ticks += count(|spent| spent.stat.reaped_children.user_ticks);
        self.reaped.system_ticks += count(|spent| spent.stat.reaped_children.system_ticks);
        self.read += count(|spent| spent.io.map_or(0, |(read, _)| read.as_bytes()));
        self.written += count(|spent| spent.io.map_or(0, |(_, written)| written.as_bytes()));
        let before = then.and_then(|then| then.switches.as_deref()).unwrap_or(&[]);
        for (thread, switches) in now.switches.as_deref().unwrap_or(&[]) {
            let before = before.iter().find(|(other, _)| other == thread);
            self.switches += switches.saturating_sub(before.map_or(0, |(_, count)| *count));
        }
    }

    fn end(&mut self, then: &Spent) {
        let (stat, reaped) = (&then.stat, &then.stat.reaped_children);
        let (user, system) = (ticks(reaped.user_ticks), ticks(reaped.system_ticks));
        self.had.cpu += then.cpu + user + system;
        self.had.user += ticks(stat.user_ticks) + user;
        self.had.system += ticks(stat.system_ticks) + system;
        self.had.minor_faults += stat.minor_faults + reaped.minor_faults;
        self.had.major_faults += stat.major_faults + reaped.major_faults;
        let (read, written) = then.io.unwrap_or_default();
        self.had_read += read.as_bytes();
        self.had_written += written.as_bytes();
    }

    fn total(self, processes: u32) -> ProcessTreeDelta {
        let Self { lived, reaped, had, .. } = self;
        let (user, system) = (ticks(reaped.user_ticks), ticks(reaped.system_ticks));
        let bytes = |grown: u64, had: u64| {
            (!self.no_io).then(|| Bytes::from_bytes(grown.saturating_sub(had)))
        };
        ProcessTreeDelta {
            cpu: lived.cpu + (user + system).saturating_sub(had.cpu),
            user: lived.user + user.saturating_sub(had.user),
            system: lived.system + system.saturating_sub(had.system),
            context_switches: (!self.no_switches).then_some(self.switches),
            minor_faults: lived.minor_faults + reaped.minor_faults.saturating_sub(had.minor_faults),
            major_faults: lived.major_faults + reaped.major_faults.saturating_sub(had.major_faults),
            // The kernel adds the bytes of reaped children to the parent's own.
            read_from_storage: bytes(self.read, self.had_read),
            written_to_storage: bytes(self.written, self.had_written),
            processes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc_stat::ProcStat;

    fn spent(cpu: u64, waited_user_ticks: u64, written: u64) -> Spent {
        Spent {
            cpu: Nanos::from_millis(cpu),
            stat: ProcStat {
                user_ticks: cpu / 10,
                minor_faults: cpu,
                reaped_children: ChildUsage {
                    user_ticks: waited_user_ticks,
                    ..ChildUsage::default()
                },
                ..ProcStat::default()
            },
            io: Some((Bytes::from_bytes(0), Bytes::from_bytes(written))),
            switches: Some(vec![(1, cpu)]),
        }
    }

    fn usage(at: u64, members: &[(u32, u64, Spent)]) -> ProcessTreeUsage {
        let members = members.iter().map(|(pid, started, spent)| Member {
            pid: *pid,
            started: *started,
            spent: Arc::new(spent.clone()),
        });
        ProcessTreeUsage { at, members: members.collect() }
    }

    #[test]
    fn running_processes_count_their_increase_and_new_ones_in_full() {
        let earlier = usage(100, &[(7, 1, spent(5, 0, 10)), (9, 90, spent(3, 0, 0))]);
        let now = [(7, 1, spent(6, 0, 15)), (9, 90, spent(3, 0, 0)), (12, 100, spent(2, 0, 1))];
        let used = usage(110, &now).since(&earlier);
        assert_eq!(used.cpu, Nanos::from_millis(3));
        assert_eq!(used.context_switches, Some(3));
        assert_eq!(used.written_to_storage, Some(Bytes::from_bytes(6)));
        assert_eq!(used.processes, 3);
    }

    #[test]
    fn process_found_after_its_start_does_not_count() {
        let earlier = usage(100, &[(7, 1, spent(5, 0, 0))]);
        let used = usage(110, &[(7, 1, spent(5, 0, 0)), (8, 99, spent(500, 0, 0))]).since(&earlier);
        assert_eq!(used.cpu, Nanos::ZERO);
    }

    #[test]
    fn ended_process_counts_its_usage_since_the_earlier_reading() {
        let earlier = usage(100, &[(7, 1, spent(5, 2, 10)), (9, 90, spent(33, 0, 20))]);
        // Process 9 had 33 ms, and 60 ms when it ended.
        let used = usage(110, &[(7, 1, spent(6, 8, 33))]).since(&earlier);
        assert_eq!(used.cpu, Nanos::from_millis(1 + 27));
        assert_eq!(used.user, Nanos::from_millis(30));
        assert_eq!(used.written_to_storage, Some(Bytes::from_bytes(3)));
        // It was not reaped by the tree.
        let used = usage(110, &[(7, 1, spent(6, 2, 10))]).since(&earlier);
        assert_eq!(used.cpu, Nanos::from_millis(1));
    }

    #[test]
    fn reused_process_id_is_another_process() {
        let earlier = usage(100, &[(7, 1, spent(5, 0, 0)), (9, 90, spent(33, 0, 0))]);
        let used = usage(110, &[(7, 1, spent(5, 4, 0)), (9, 105, spent(8, 0, 0))]).since(&earlier);
        assert_eq!(used.cpu, Nanos::from_millis(8 + 7));
    }

    #[test]
    fn unknown_for_one_process_is_unknown_for_the_tree() {
        let secret = Spent { io: None, switches: None, ..spent(5, 0, 0) };
        let earlier = usage(100, &[(7, 1, spent(5, 0, 0)), (9, 90, secret.clone())]);
        let used = usage(110, &[(7, 1, spent(6, 0, 0)), (9, 90, secret)]).since(&earlier);
        assert_eq!((used.context_switches, used.written_to_storage), (None, None));
        assert_eq!(used.cpu, Nanos::from_millis(1));
    }
}
