//! What a server spends: in the timed part of a slice, and in the background since the slice before.

use dbdyno_machine::{ProcessTree, ProcessTreeDelta, ProcessTreeUsage};
use dbdyno_record::{Counting, Counts, ServerUsed};
use dbdyno_units::{Energy, Nanos};

use super::meter::{Meter, Shown, covers};

/// How often counters are opened anew because they may have missed, or had missed, threads. When
/// the latter does not help, what they show is unknown.
const ATTEMPTS: u32 = 3;

/// Reads the account of a server's processes at the edges of slices.
///
/// A reading that fails, as when the server is gone, leaves unknown what it would have told.
pub(super) struct ServerMonitor {
    family: ProcessTree,
    /// Whether the server works for this worker alone: else what it did between two slices may
    /// have been anybody's, the control's for one.
    private: bool,
    /// Counters of the server's threads.
    meter: Meter,
    /// How often the counters were opened anew.
    reopened: u32,
    /// At the end of the last slice, if the server was asked for nothing but slices since.
    last: Option<ProcessTreeUsage>,
}

/// What is known when the timed part of a slice starts.
pub(super) struct Started {
    before: Option<ProcessTreeUsage>,
    background: Option<Nanos>,
    shown: Shown,
}

/// What is known when it has ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub server: Option<ServerUsed>,
    pub counts: Counts,
    pub energy: Option<Energy>,
}

impl ServerMonitor {
    pub fn new(family: ProcessTree, private: bool) -> Self {
        Self { family, private, meter: Meter::none(), reopened: 0, last: None }
    }

    /// From now on counters are at work on all threads of the server, and on those that they will
    /// start: call it while the server rests, before connections are made.
    pub fn count(&mut self) {
        let pids = |family: &mut ProcessTree| -> Vec<u32> {
            // A family that cannot be read is told when the slice is over.
            let _ = family.read();
            family.pids().collect()
        };
        let mut before = pids(&mut self.family);
        for _ in 0..ATTEMPTS {
            self.meter = Meter::of_processes(before.clone());
            let after = pids(&mut self.family);
            // A process that came meanwhile may be in nobody's count.
            if after == before {
                return;
            }
            before = after;
        }
    }

    /// What the counters count, and what they cannot.
    pub fn counting(&self) -> Counting {
        self.meter.counting()
    }

    /// The server's processes, for what reads them in its own way.
    pub fn family(&mut self) -> &mut ProcessTree {
        &mut self.family
    }

    /// Something else than a slice is asked for: what that takes is no slice's background.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// Before the lead-in: what was spent since the last slice.
    pub fn background(&mut self) -> Option<Nanos> {
        let last = self.last.take()?;
        Some(self.family.read().ok()?.since(&last).cpu)
    }

    /// Between the lead-in and the timed part.
    pub fn start(&mut self, background: Option<Nanos>) -> Started {
        Started { before: self.family.read().ok(), background, shown: self.meter.read() }
    }

    /// After the timed part: what it took.
    pub fn end(&mut self, started: Started) -> Ended {
        let (mut counts, energy) = self.meter.since(&started.shown);
        let after = self.family.read().ok();
        let used = after.as_ref().zip(started.before).map(|(after, before)| after.since(&before));
        if let Some(used) = &used
            && !covers(&counts, used.cpu)
        {
            counts = Counts::default();
            if self.reopened < ATTEMPTS {
                self.reopened += 1;
                self.count();
            }
        }
        self.last = after.filter(|_| self.private);
        let server = used.map(|used| server_used(&used, started.background));
        Ended { server, counts, energy }
    }
}

pub(super) fn server_used(used: &ProcessTreeDelta, background_cpu: Option<Nanos>) -> ServerUsed {
    ServerUsed {
        cpu: used.cpu,
        background_cpu,
        user: used.user,
        system: used.system,
        context_switches: used.context_switches,
        page_faults: used.minor_faults + used.major_faults,
        read_from_storage: used.read_from_storage,
        written_to_storage: used.written_to_storage,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use dbdyno_machine::clock;

    use super::*;

    /// A process that is always at work, or waits.
    struct Server(Child);

    impl Server {
        fn busy() -> Self {
            Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
        }

        fn idle() -> Self {
            Self(Command::new("sleep").arg("600").spawn().unwrap())
        }

        fn monitor(&self, private: bool) -> ServerMonitor {
            ServerMonitor::new(ProcessTree::of(self.0.id()).unwrap(), private)
        }

        /// Waits until it has had so much more CPU time: how long that takes depends on what else
        /// runs.
        fn work(&self, millis: u64) {
            let cpu = || clock::process_cpu_of(self.0.id()).unwrap();
            let (before, start) = (cpu(), Instant::now());
            while cpu() - before < Nanos::from_millis(millis) {
                assert!(start.elapsed() < Duration::from_secs(60), "it does not run");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A slice of so much work, with a lead-in of as much.
    fn slice(monitor: &mut ServerMonitor, server: &Server, millis: u64) -> ServerUsed {
        let background = monitor.background();
        server.work(millis);
        let started = monitor.start(background);
        server.work(millis);
        monitor.end(started).server.unwrap()
    }

    #[test]
    fn what_is_spent_between_slices_is_the_next_ones_background() {
        let server = Server::busy();
        let mut monitor = server.monitor(true);
        assert_eq!(slice(&mut monitor, &server, 5).background_cpu, None, "nothing came before");
        let before = clock::process_cpu_of(server.0.id()).unwrap();
        server.work(100);
        let second = slice(&mut monitor, &server, 20);
        let whole = clock::process_cpu_of(server.0.id()).unwrap() - before;
        let background = second.background_cpu.unwrap();
        assert!(background >= Nanos::from_millis(100), "{second:?}");
        // The lead-in is in neither, and the slice is not in the background.
        assert!(background + second.cpu + Nanos::from_millis(20) <= whole, "{second:?} of {whole}");
    }

    #[test]
    fn a_server_that_rests_between_slices_has_no_background() {
        let server = Server::idle();
        let mut monitor = server.monitor(true);
        // Until it sleeps.
        std::thread::sleep(Duration::from_millis(200));
        slice(&mut monitor, &server, 0);
        let second = slice(&mut monitor, &server, 0);
        assert_eq!((second.background_cpu, second.cpu), (Some(Nanos::ZERO), Nanos::ZERO));
    }

    #[test]
    fn what_else_it_is_asked_for_is_no_background() {
        let server = Server::busy();
        let mut monitor = server.monitor(true);
        slice(&mut monitor, &server, 5);
        monitor.interrupt();
        server.work(50);
        assert_eq!(slice(&mut monitor, &server, 5).background_cpu, None);
        assert!(slice(&mut monitor, &server, 5).background_cpu.is_some());
    }

    #[test]
    fn what_a_server_starts_later_is_counted_and_what_was_missed_is_told() {
        // Its child is born when the slice has begun, is at work, and ends with it.
        let child = "n=0; while kill -0 $PPID 2>/dev/null; do n=$((n+1)); done";
        let script = format!("sleep 0.2; sh -c '{child}' & while :; do :; done");
        let server = Server(Command::new("sh").args(["-c", &script]).spawn().unwrap());
        let mut monitor = server.monitor(true);
        monitor.count();
        if monitor.counting().counted.is_empty() {
            // A sandbox may forbid the system call altogether.
            assert!(!monitor.counting().missing.is_empty());
            return;
        }
        let started = monitor.start(None);
        std::thread::sleep(Duration::from_millis(300));
        server.work(40);
        let ended = monitor.end(started);
        let (cpu, covered) = (ended.server.unwrap().cpu, ended.counts.covered().unwrap());
        assert!(covered.as_nanos() as f64 > 0.6 * cpu.as_nanos() as f64, "{covered} of {cpu}");
        // Starting programs takes memory.
        let faults = ended.counts.estimate(dbdyno_record::Counter::MinorFaults).unwrap();
        assert!(faults > 20.0, "{faults}");

        // Counters of somebody else saw nothing of it.
        let other = Server::idle();
        monitor.meter = Meter::of_processes(vec![other.0.id()]);
        let started = monitor.start(None);
        server.work(40);
        let ended = monitor.end(started);
        assert!(ended.server.is_some());
        assert_eq!(ended.counts, Counts::default());
        // It looked again, and found all of them.
        let started = monitor.start(None);
        server.work(40);
        assert!(monitor.end(started).counts.covered() > Some(Nanos::from_millis(20)));
    }

    #[test]
    fn a_server_that_others_use_has_no_background_of_ours() {
        let server = Server::busy();
        let mut monitor = server.monitor(false);
        slice(&mut monitor, &server, 5);
        let second = slice(&mut monitor, &server, 5);
        assert_eq!(second.background_cpu, None);
        assert!(second.cpu >= Nanos::from_millis(5), "{second:?}");
    }
}
