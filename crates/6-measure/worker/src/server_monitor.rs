//! Resource usage of a server: in the timed part of a slice, in the background since the previous slice, and in a
//! step of the insert benchmark.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dbdyno_machine::{BlockDevice, ProcessTree, ProcessTreeDelta, ProcessTreeUsage};
use dbdyno_types::insert::DeviceUsage;
use dbdyno_types::{Counting, Counts, ServerUsage};
use dbdyno_units::{Bytes, Nanos};

use crate::meter::{Meter, MeterReading, covers};
use crate::protocol::{StepReading, StepUsage, StepUsages, TimedUsage};

/// Maximum number of times counters are reopened because they missed threads. Counts that do not
/// cover the CPU time are unknown.
const ATTEMPTS: u32 = 3;

/// Reads the usage of a server's processes before and after slices.
///
/// If a reading fails, for example because the server has exited, the usage is unknown.
pub struct ServerMonitor {
    family: ProcessTree,
    /// Whether only this worker uses the server. Otherwise its background work may be caused by
    /// others, such as the control.
    private: bool,
    /// Counters of the server's threads.
    meter: Meter,
    /// Number of times the counters were reopened.
    reopened: u32,
    /// Usage at the end of the last slice; `None` after other requests.
    last: Option<ProcessTreeUsage>,
}

/// Readings at the start of a timed part.
pub struct TimedPart {
    before: Option<ProcessTreeUsage>,
    background: Option<Nanos>,
    reading: MeterReading,
}

impl ServerMonitor {
    /// A monitor without counters of the server with these processes. `private` tells whether only one
    /// worker uses it.
    pub fn new(family: ProcessTree, private: bool) -> Self {
        Self { family, private, meter: Meter::none(), reopened: 0, last: None }
    }

    /// Starts counters for all threads of the server and all that they start later. Must be called
    /// before connecting, while the server is idle.
    pub fn count(&mut self) {
        let pids = |family: &mut ProcessTree| -> Vec<u32> {
            // An error occurs again when the slice is read.
            let _ = family.read();
            family.pids().collect()
        };
        let mut before = pids(&mut self.family);
        for _ in 0..ATTEMPTS {
            self.meter = Meter::of_processes(before.clone());
            let after = pids(&mut self.family);
            // A process started in between may have been missed.
            if after == before {
                return;
            }
            before = after;
        }
    }

    /// Which counters are available.
    pub fn counting(&self) -> Counting {
        self.meter.counting()
    }

    /// The server's processes.
    pub fn family(&mut self) -> &mut ProcessTree {
        &mut self.family
    }

    /// Handles a request other than a slice: its usage is not part of the next background.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// Begins the background here: work since the last slice is not in it.
    pub fn begin_background(&mut self) {
        self.last = self.last.take().and_then(|_| self.family.read().ok());
    }

    /// CPU time since the last slice. Must be called before the lead-in.
    pub fn background(&mut self) -> Option<Nanos> {
        let last = self.last.take()?;
        Some(self.family.read().ok()?.since(&last).cpu)
    }

    pub fn start(&mut self, background: Option<Nanos>) -> TimedPart {
        TimedPart { before: self.family.read().ok(), background, reading: self.meter.read() }
    }

    pub fn end(&mut self, started: TimedPart) -> TimedUsage {
        let (mut counts, energy) = self.meter.since(&started.reading);
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
        let server = used.map(|used| server_usage(&used, started.background));
        TimedUsage { server, counts, energy }
    }
}

pub(crate) fn server_usage(used: &ProcessTreeDelta, background_cpu: Option<Nanos>) -> ServerUsage {
    ServerUsage {
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

/// Reads the usage of a server and of its storage since the start of a step.
pub struct StepMeter {
    data: Option<PathBuf>,
    device: Option<BlockDevice>,
    first: StepState,
    last: StepState,
}

#[derive(Clone)]
struct StepState {
    system: Option<ProcessTreeUsage>,
    device: Option<DeviceUsage>,
}

impl StepMeter {
    /// Takes a reading in a step with its `meter`, which starts with the first reading, of which all is unknown. `family` are
    /// the server's processes, `data` is the directory of its files on this machine; `None` if unknown.
    pub fn read(
        meter: &mut Option<Self>,
        reading: StepReading,
        family: Option<&mut ProcessTree>,
        data: Option<&Path>,
    ) -> StepUsages {
        match (reading, meter) {
            (StepReading::Second, Some(meter)) => meter.second(family),
            (StepReading::Start | StepReading::Second, meter) => {
                *meter = Some(Self::start(family, data));
                StepUsages::default()
            }
        }
    }

    fn start(family: Option<&mut ProcessTree>, data: Option<&Path>) -> Self {
        let device = data.and_then(BlockDevice::of);
        let first = StepState::take(family, device.as_ref());
        Self { data: data.map(Path::to_owned), device, last: first.clone(), first }
    }

    fn second(&mut self, mut family: Option<&mut ProcessTree>) -> StepUsages {
        let now = StepState::take(family.as_deref_mut(), self.device.as_ref());
        let database = self.data.as_deref().and_then(size_on_storage);
        let resident = family.and_then(|family| family.resident());
        let since = |then: &StepState| StepUsage {
            server: now.server_since(then),
            device: now.device.zip(then.device).map(|(now, then)| now.since(&then)),
            database,
            resident,
        };
        let usages = StepUsages { second: since(&self.last), total: since(&self.first) };
        self.last = now;
        usages
    }
}

impl StepState {
    /// If the server has exited, its usage is unknown; its clients report the exit.
    fn take(family: Option<&mut ProcessTree>, device: Option<&BlockDevice>) -> Self {
        Self {
            system: family.and_then(|family| family.read().ok()),
            device: device.and_then(|device| device.read().ok()),
        }
    }

    fn server_since(&self, then: &Self) -> Option<ServerUsage> {
        let (now, then) = (self.system.as_ref()?, then.system.as_ref()?);
        Some(server_usage(&now.since(then), None))
    }
}

/// Allocated size of all files in a directory, without holes; `None` if it cannot be read.
fn size_on_storage(directory: &Path) -> Option<Bytes> {
    /// The unit of `st_blocks`, independent of the file system's block size.
    const BLOCK: u64 = 512;
    let mut sum = 0;
    let mut directories = vec![directory.to_owned()];
    let mut top = true;
    while let Some(directory) = directories.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(_) if top => return None,
            // The directory was removed after it was listed.
            Err(_) => continue,
        };
        top = false;
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                directories.push(entry.path());
            } else {
                sum += metadata.blocks() * BLOCK;
            }
        }
    }
    Some(Bytes::from_bytes(sum))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use dbdyno_machine::{ProcStat, clock};
    use dbdyno_types::Counter;

    use super::*;

    /// A process that is always busy, or idle.
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

        /// Waits until the process has used this CPU time.
        fn work(&self, millis: u64) {
            let cpu = || clock::process_cpu_of(self.0.id()).unwrap();
            let before = cpu();
            wait_until("it runs", || cpu() - before >= Nanos::from_millis(millis));
        }
    }

    fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(60), "not so: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Runs a slice with this CPU time in the lead-in and in the timed part.
    fn slice(monitor: &mut ServerMonitor, server: &Server, millis: u64) -> ServerUsage {
        let background = monitor.background();
        server.work(millis);
        let started = monitor.start(background);
        server.work(millis);
        monitor.end(started).server.unwrap()
    }

    #[test]
    fn background_is_cpu_time_since_the_previous_slice() {
        let server = Server::busy();
        let mut monitor = server.monitor(true);
        assert_eq!(slice(&mut monitor, &server, 5).background_cpu, None, "nothing came before");
        let before = clock::process_cpu_of(server.0.id()).unwrap();
        server.work(100);
        let second = slice(&mut monitor, &server, 100);
        let whole = clock::process_cpu_of(server.0.id()).unwrap() - before;
        let background = second.background_cpu.unwrap();
        assert!(background >= Nanos::from_millis(100), "{second:?}");
        // The background includes neither the lead-in of 100 ms nor the slice. Both clocks differ by less than half of it.
        assert!(background + second.cpu + Nanos::from_millis(50) <= whole, "{second:?} of {whole}");
    }

    #[test]
    fn idle_server_has_no_background() {
        let server = Server::idle();
        let mut monitor = server.monitor(true);
        wait_until("it sleeps", || ProcStat::of_process(server.0.id()).unwrap().state == b'S');
        slice(&mut monitor, &server, 0);
        let second = slice(&mut monitor, &server, 0);
        assert_eq!((second.background_cpu, second.cpu), (Some(Nanos::ZERO), Nanos::ZERO));
    }

    #[test]
    fn other_requests_are_not_background() {
        let server = Server::busy();
        let mut monitor = server.monitor(true);
        slice(&mut monitor, &server, 5);
        monitor.interrupt();
        server.work(50);
        assert_eq!(slice(&mut monitor, &server, 5).background_cpu, None);
        assert!(slice(&mut monitor, &server, 5).background_cpu.is_some());
    }

    #[test]
    fn later_processes_are_counted_and_missed_ones_are_detected() {
        // The child starts during the slice, is busy, and ends with its parent.
        let child = "n=0; while kill -0 $PPID 2>/dev/null; do n=$((n+1)); done";
        let script = format!("sleep 1; sh -c '{child}' & while :; do :; done");
        let server = Server(Command::new("sh").args(["-c", &script]).spawn().unwrap());
        let mut monitor = server.monitor(true);
        monitor.count();
        if monitor.counting().counted.is_empty() {
            // A sandbox may forbid the system call altogether.
            let missing = &monitor.counting().missing[0];
            return dbdyno_fuzz::skip(&format!("no counters: {}", missing.reason));
        }
        let started = monitor.start(None);
        let pid = server.0.id();
        wait_until("its child is busy", || {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let child = children.unwrap().split(' ').next().and_then(|pid| pid.parse().ok());
            let cpu = child.and_then(|pid| clock::process_cpu_of(pid).ok());
            cpu > Some(Nanos::from_millis(20))
        });
        server.work(40);
        let ended = monitor.end(started);
        let (cpu, covered) = (ended.server.unwrap().cpu, ended.counts.covered().unwrap());
        assert!(covered.as_nanos() as f64 > 0.6 * cpu.as_nanos() as f64, "{covered} of {cpu}");
        // Starting programs causes page faults.
        let faults = ended.counts.estimate(Counter::MinorFaults).unwrap();
        assert!(faults > 20.0, "{faults}");

        // Counters of another process miss it.
        let other = Server::idle();
        monitor.meter = Meter::of_processes(vec![other.0.id()]);
        let started = monitor.start(None);
        server.work(40);
        let ended = monitor.end(started);
        assert!(ended.server.is_some());
        assert_eq!(ended.counts, Counts::default());
        // The counters were reopened.
        let started = monitor.start(None);
        server.work(40);
        assert!(monitor.end(started).counts.covered() > Some(Nanos::from_millis(20)));
    }

    #[test]
    fn shared_server_has_no_background() {
        let server = Server::busy();
        let mut monitor = server.monitor(false);
        slice(&mut monitor, &server, 5);
        let second = slice(&mut monitor, &server, 5);
        assert_eq!(second.background_cpu, None);
        assert!(second.cpu >= Nanos::from_millis(5), "{second:?}");
    }

    #[test]
    fn size_on_storage_is_that_of_the_files() {
        assert_eq!(size_on_storage(Path::new("/nonexistent")), None);
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let size = size_on_storage(&own).unwrap();
        assert!(size > Bytes::from_kib(64) && size < Bytes::from_mib(64), "{size}");
    }
}
