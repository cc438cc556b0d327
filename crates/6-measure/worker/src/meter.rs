//! Counters of the CPU and the kernel for the system under test, and the usage of client threads, read before and
//! after slices.

use dbdyno_machine::{
    Counters, Power, PowerReading, Scope, Target, ThreadUsage, Unavailable, clock,
};
use dbdyno_types::{Counted, Counter, Counting, Counts, Missing, SliceMeasured};
use dbdyno_units::{Energy, Nanos};

/// The reason for missing counters if the server's process is unknown.
const NO_PROCESS: &str =
    "the server's process is unknown: it runs on another machine or as another user";

/// Counters that ran for less than this share of a slice's CPU time missed threads. Their time
/// excludes context switches, which take a quarter of a server's CPU time with one client, and more
/// than half on a busy machine.
const COVERED: f64 = 0.2;

/// Minimum CPU time for this comparison.
const COMPARABLE: Nanos = Nanos::from_millis(2);

/// Counters of the system under test, and of the machine's energy.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    counters: Option<Counters>,
    power: Option<Power>,
}

#[derive(Debug, Default)]
pub(crate) struct MeterReading {
    counts: Counts,
    power: Option<PowerReading>,
}

impl Meter {
    /// A meter that counts nothing.
    pub const fn none() -> Self {
        Self { counters: None, power: None }
    }

    /// A meter of the calling thread and the threads that it starts. Only one of several threads
    /// should read the machine's energy.
    pub fn of_this_thread(with_power: bool) -> Self {
        let counters = Some(open(&Target::ThisThread));
        Self { counters, power: with_power.then(Power::open).and_then(Result::ok) }
    }

    /// A meter of a server's processes and of all threads and processes that they start.
    pub fn of_processes(pids: Vec<u32>) -> Self {
        let counters = Some(open(&Target::Processes(pids)));
        Self { counters, power: Power::open().ok() }
    }

    /// Which counters are available, and why the others are not.
    pub fn counting(&self) -> Counting {
        let Some(counters) = &self.counters else {
            let missing = |counter| Missing { counter, reason: NO_PROCESS.into(), advice: None };
            return Counting {
                counted: Vec::new(),
                missing: Counter::ALL.map(missing).into(),
                no_energy: Some(NO_PROCESS.to_owned()),
            };
        };
        let counted = counters
            .counted()
            .map(|(counter, scope)| Counted { counter, user_only: scope == Scope::User });
        let missing = counters.unavailable().map(missing);
        let mut counting = Counting {
            counted: counted.collect(),
            missing: missing.collect(),
            no_energy: Power::open().err().map(|why| why.to_string()),
        };
        counting.counted.sort_by_key(|one| one.counter);
        counting.missing.sort_by_key(|one| one.counter);
        counting
    }

    /// Reads all counters. Counters that cannot be read are unknown.
    pub fn read(&self) -> MeterReading {
        MeterReading {
            counts: self.counters.as_ref().and_then(|it| it.read().ok()).unwrap_or_default(),
            power: self.power.as_ref().and_then(Power::read),
        }
    }

    pub fn since(&self, earlier: &MeterReading) -> (Counts, Option<Energy>) {
        let now = self.read();
        let energy = match (&self.power, &earlier.power, &now.power) {
            (Some(power), Some(then), Some(now)) => Some(power.between(then, now)),
            _ => None,
        };
        (now.counts.since(&earlier.counts), energy)
    }
}

/// Resource usage of a client thread at the start of the timed part.
pub(crate) struct Readings<'a> {
    meter: &'a Meter,
    reading: MeterReading,
    usage: ThreadUsage,
    cpu: Nanos,
    /// On the monotonic clock.
    pub started: Nanos,
}

impl<'a> Readings<'a> {
    /// Reads counters, usage and clocks.
    ///
    /// The wall clock is read last. Counters are read first here and last in [`Self::finish`], so
    /// that reading them is not part of the measured CPU time.
    pub fn now(meter: &'a Meter) -> Self {
        let reading = meter.read();
        let usage = ThreadUsage::now();
        let cpu = clock::thread_cpu();
        Self { meter, reading, usage, cpu, started: clock::monotonic() }
    }

    /// Writes the thread's usage since [`Self::now`] to `measured`.
    pub fn finish(&self, measured: &mut SliceMeasured) {
        measured.started = self.started;
        measured.cpu = clock::thread_cpu().saturating_sub(self.cpu);
        let usage = ThreadUsage::now().since(&self.usage);
        measured.context_switches = usage.context_switches;
        measured.page_faults = usage.page_faults;
        (measured.counts, measured.energy) = self.meter.since(&self.reading);
    }
}

/// Whether the counters covered the threads that used this CPU time. A thread that a server starts
/// while the counters are opened is missed.
pub(crate) fn covers(counts: &Counts, cpu: Nanos) -> bool {
    counts.covered().is_none_or(|covered| {
        cpu < COMPARABLE || covered.as_nanos() as f64 >= COVERED * cpu.as_nanos() as f64
    })
}

/// Opens and starts all counters.
fn open(target: &Target) -> Counters {
    let mut counters = Counters::open(&Counter::ALL, target, Scope::UserAndKernel);
    // A counter that does not start has no running time and counts as unknown.
    let _ = counters.enable();
    counters
}

fn missing(unavailable: &Unavailable) -> Missing {
    let Unavailable { counter, reason } = unavailable;
    Missing { counter: *counter, reason: reason.to_string(), advice: reason.advice() }
}

#[cfg(test)]
mod tests {
    use dbdyno_types::Count;

    use super::*;

    #[test]
    fn missed_thread_is_detected_by_its_cpu_time() {
        let counts = Counts::new(vec![Count {
            counter: Counter::MinorFaults,
            count: 3,
            enabled: Nanos::from_millis(40),
            running: Nanos::from_millis(40),
        }]);
        assert!(covers(&counts, Nanos::from_millis(41)));
        assert!(!covers(&counts, Nanos::from_millis(210)));
        assert!(covers(&Counts::default(), Nanos::from_millis(210)), "nothing was counted at all");
    }

    #[test]
    fn page_faults_equal_those_of_getrusage() {
        let meter = Meter::of_this_thread(true);
        let counting = meter.counting();
        let known = counting.counted.len() + counting.missing.len();
        assert_eq!(known, Counter::ALL.len(), "{counting:?}");
        let before = (meter.read(), ThreadUsage::now());
        let mut memory = vec![0_u8; 8 << 20];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&memory);
        let accounted = ThreadUsage::now().since(&before.1).page_faults;
        let (counts, _) = meter.since(&before.0);
        for missing in &counting.missing {
            assert_eq!(counts.get(missing.counter), None);
            assert!(!missing.reason.is_empty());
        }
        let faults = |counter| counts.get(counter).map(|one| one.count);
        let Some((minor, major)) = faults(Counter::MinorFaults).zip(faults(Counter::MajorFaults))
        else {
            // A sandbox may forbid the system call altogether.
            return dbdyno_fuzz::skip(&format!("no counters: {}", counting.missing[0].reason));
        };
        // With huge pages, 4 faults are sufficient.
        assert!(accounted >= 4, "{accounted}");
        assert!(
            (minor + major).abs_diff(accounted) <= 2 + accounted / 50,
            "{counts:?} {accounted}"
        );
    }

    #[test]
    fn unknown_process_is_reported_as_reason() {
        let counting = Meter::none().counting();
        assert_eq!(counting.missing.len(), Counter::ALL.len());
        assert!(counting.missing[0].reason.contains("another machine"));
        assert_eq!(Meter::none().since(&MeterReading::default()), (Counts::default(), None));
    }
}
