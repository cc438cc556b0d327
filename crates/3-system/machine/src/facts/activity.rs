use std::thread;
use std::time::Duration;

use dbdyno_units::{Nanos, Share};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::fs_root::FsRoot;

/// CPU time used by others during an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Length of the interval.
    pub interval: Nanos,
    /// Share of the CPUs' time that the hypervisor gave to others while this machine had work to
    /// run.
    pub steal: Share,
    /// Share of the CPUs' time used by other processes of this machine and by its interrupts.
    pub busy_by_others: Share,
}

impl Activity {
    /// Sleep for `interval` and measure the activity meanwhile; `None` if `/proc/stat` cannot be
    /// read, or if the interval is shorter than the resolution of the kernel's counters (10 ms).
    #[must_use]
    pub fn sample(interval: Duration) -> Option<Self> {
        let root = FsRoot::this_machine();
        let take = || Some((Stat::read(&root)?, clock::process_cpu(), clock::monotonic()));
        let (before, own_before, start) = take()?;
        thread::sleep(interval);
        let (after, own_after, end) = take()?;
        let interval = end.saturating_sub(start);
        Self::between(&before, &after, own_after.saturating_sub(own_before), interval)
    }

    /// `own` is the CPU time of this process.
    fn between(before: &Stat, after: &Stat, own: Nanos, interval: Nanos) -> Option<Self> {
        let total = after.total.checked_sub(before.total).filter(|total| *total > 0)? as f64;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / total;
        // The unit of the counters cancels out: the total time is the interval times the number of
        // CPUs.
        let machine = interval.as_secs_f64() * f64::from(after.cpus);
        let own = if machine > 0.0 { own.as_secs_f64() / machine } else { 0.0 };
        Some(Self {
            interval,
            steal: Share::from_fraction(share(after.steal, before.steal)),
            busy_by_others: Share::from_fraction((share(after.busy, before.busy) - own).max(0.0)),
        })
    }
}

/// CPU times of all CPUs since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    busy: u64,
    steal: u64,
    total: u64,
    cpus: u32,
}

impl Stat {
    fn read(root: &FsRoot) -> Option<Self> {
        Self::parse(&root.text("proc/stat")?)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Option<Vec<u64>> =
            line.split_whitespace().map(|field| field.parse().ok()).collect();
        let fields = fields?;
        // The following two fields, for guests, are included in user and nice.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *fields.first_chunk()?;
        let sum = |parts: &[u64]| parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(*part));
        let busy = sum(&[user, nice, system, irq, softirq])?;
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        Some(Self {
            busy,
            steal,
            total: sum(&[busy, idle, iowait, steal])?,
            cpus: u32::try_from(text.lines().filter(is_cpu).count()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_of_all_cpus_without_this_process() {
        let before = Stat::parse("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0\ncpu1 0\n").unwrap();
        // Two CPUs for a second: 200 ticks, of which 2 stolen and 50 busy.
        let after = Stat::parse("cpu  30 5 10 140 8 2 3 2 9 9\ncpu0 0\ncpu1 0\nctxt 1\n").unwrap();
        assert_eq!(after, Stat { busy: 50, steal: 2, total: 200, cpus: 2 });
        let own = Nanos::from_millis(400);
        let activity = Activity::between(&before, &after, own, Nanos::from_secs(1)).unwrap();
        assert_eq!(activity.steal.to_string(), "1%");
        assert_eq!(activity.busy_by_others.to_string(), "5%");
    }

    #[test]
    fn interval_of_zero_gives_no_shares() {
        let stat = Stat::parse("cpu 1 2 3 4 5 6 7 8\ncpu0 1\n").unwrap();
        assert_eq!(Activity::between(&stat, &stat, Nanos::ZERO, Nanos::ZERO), None);
        assert_eq!(Stat::parse("cpu 1 2 3 4\n"), None);
    }

    #[test]
    fn shares_of_this_machine_are_between_0_and_1() {
        if let Some(activity) = Activity::sample(Duration::from_millis(50)) {
            let shares = [activity.steal, activity.busy_by_others];
            assert!(shares.iter().all(|it| (0.0..=1.0).contains(&it.as_fraction())), "{shares:?}");
        }
    }

    proptest! {
        #[test]
        fn parser_does_not_panic_on_any_text(text in "(cpu[ 0-9]{0,3}[ 0-9]{0,90}\n){0,3}.{0,20}") {
            let _ = Stat::parse(&text);
        }
    }
}
