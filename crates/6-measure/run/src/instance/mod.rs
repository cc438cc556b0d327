//! An instance: a candidate with its worker and, for a private server, its server.

pub(crate) mod context;
pub(crate) mod cpus;
pub(crate) mod data;
pub(crate) mod in_force;
pub(crate) mod instructions;
pub(crate) mod live_optimization;
pub(crate) mod opening;

use std::time::Duration;

use dbdyno_engines::server::says_disk_full;
use dbdyno_hosts::{HostError, HostMonitor, RunningServer};
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_types::SliceMeasured;
use dbdyno_types::insert::{Second, StepMeasured};
use dbdyno_types::profile::Profile;
use dbdyno_worker::protocol::{InsertStep, Opened, Prepare, SliceRequest, StepUsages};
use dbdyno_worker::{WorkerError, WorkerHandle};

use crate::candidates::ResolvedCandidate;
use crate::error::{RunError, StatementProblem};
use crate::instance::context::RunContext;
use crate::instance::data::DataLocation;
use crate::instance::live_optimization::LiveState;
use crate::training::sampling::SampledProcess;

/// The running instances with their numbers.
pub(crate) fn running(instances: &mut [Instance]) -> impl Iterator<Item = (usize, &mut Instance)> {
    instances.iter_mut().enumerate().filter(|(_, instance)| instance.is_running())
}

/// The instances with their numbers, in this order.
pub(crate) fn in_order<'i>(
    instances: &'i mut [Instance],
    order: &[usize],
) -> Vec<(usize, &'i mut Instance)> {
    let mut all: Vec<_> = instances.iter_mut().enumerate().collect();
    all.sort_by_key(|(number, _)| order.iter().position(|one| one == number));
    all
}

/// Why a slice was not run.
#[derive(Debug)]
pub(crate) enum SliceError {
    /// The server or its connections were lost; the instance was restarted and continues with the
    /// next block.
    Lost(LostSlice),
    Failed(WorkerError),
}

/// A slice that was lost, after which the instance was restarted.
#[derive(Debug)]
pub(crate) struct LostSlice {
    pub error: WorkerError,
    /// Whether the instance's data differs from that of the other instances since then, and did not
    /// before.
    pub begins_to_differ: bool,
}

/// A candidate with its worker and, for a private server, its server.
pub(crate) struct Instance {
    pub candidate: ResolvedCandidate,
    pub location: DataLocation,
    /// The private server, while it runs.
    server: Option<Box<dyn RunningServer>>,
    /// Reads the usage of an existing server on its host, while the worker runs.
    monitor: Option<HostMonitor>,
    /// The worker, while it runs.
    worker: Option<WorkerHandle>,
    /// What the system reported when it was last opened; `None` before.
    pub opened: Option<Opened>,
    /// Warnings and errors that its private server logged at its last start.
    pub server_log: Vec<String>,
    /// Number of restarts after a loss, in this session.
    recoveries: u32,
    /// Whether its data differs from that of the other instances: a slice of writes was lost.
    pub has_diverged: bool,
    /// The same for the kept copy of its data.
    copy_has_diverged: bool,
    live: LiveState,
}

impl Instance {
    /// An instance that is not started yet, with its data in the location of its name.
    pub fn new(context: &RunContext<'_>, candidate: ResolvedCandidate) -> Self {
        let location = context.data_location(&candidate, &candidate.name);
        Self::at(candidate, location)
    }

    /// An instance that is not started yet, with its data in this location.
    pub fn at(candidate: ResolvedCandidate, location: DataLocation) -> Self {
        Self {
            candidate,
            location,
            server: None,
            monitor: None,
            worker: None,
            opened: None,
            server_log: Vec::new(),
            recoveries: 0,
            has_diverged: false,
            copy_has_diverged: false,
            live: LiveState::default(),
        }
    }

    pub const fn is_running(&self) -> bool {
        self.worker.is_some()
    }

    pub fn worker_mut(&mut self) -> Result<&mut WorkerHandle, WorkerError> {
        self.worker.as_mut().ok_or_else(stopped)
    }

    /// The statements of all microbenchmarks that its system refuses.
    pub fn statement_problems(
        &mut self,
        experiment: &Experiment,
    ) -> Result<Vec<StatementProblem>, WorkerError> {
        let refused = self.worker_mut()?.check_statements(&experiment.workload.microbenchmarks)?;
        let candidate = &self.candidate.name;
        let problem =
            |refused| StatementProblem { candidate: candidate.clone(), refused, line: None };
        Ok(refused.into_iter().map(problem).collect())
    }

    /// The process of the system under test on this machine: its server with all descendants, or its
    /// worker.
    pub fn process(&self) -> Result<SampledProcess, WorkerError> {
        let server = self.server.as_ref().and_then(|server| server.pid());
        let server = server.map(|pid| SampledProcess { pid, family: true });
        let worker = self.worker.as_ref();
        let worker = worker.map(|worker| SampledProcess { pid: worker.pid(), family: false });
        server.or(worker).ok_or_else(stopped)
    }

    /// Restarts the instance and reads its data into its caches.
    pub fn start(&mut self, context: &RunContext<'_>) -> Result<(), WorkerError> {
        self.stop();
        self.open(context, context.experiment.workload.most_clients(), false)?;
        self.worker_mut()?.warm()
    }

    /// Shuts the worker and the server down.
    pub fn close(&mut self) -> Result<(), WorkerError> {
        let worker = self.worker.take().map_or(Ok(()), WorkerHandle::close);
        self.monitor = None;
        let server = self.server.take().map_or(Ok(()), |server| server.stop());
        worker.and(server.map_err(server_failed))
    }

    /// Shuts the worker and the server down, ignoring errors: what does not exit is killed, and the
    /// next start recovers the data.
    pub fn stop(&mut self) {
        let _ = self.close();
    }

    /// Kills the worker and the server, after a failure.
    pub fn kill(&mut self) {
        self.worker = None;
        self.server = None;
        self.monitor = None;
    }

    /// Runs one slice of what was prepared. If its worker, its server or a connection is lost,
    /// restarts the instance, as often as the experiment allows.
    pub fn run_slice(
        &mut self,
        context: &RunContext<'_>,
        request: SliceRequest,
        prepare: &Prepare,
    ) -> Result<SliceMeasured, SliceError> {
        let error = match self.slice(request) {
            Ok(measured) => return Ok(measured),
            Err(error) => self.cause(error),
        };
        if !error.is_loss() {
            return Err(SliceError::Failed(error));
        }
        let had_diverged = self.has_diverged;
        match self.recover(context, prepare) {
            Ok(true) => {
                let begins_to_differ = self.has_diverged && !had_diverged;
                Err(SliceError::Lost(LostSlice { error, begins_to_differ }))
            }
            Ok(false) => Err(SliceError::Failed(error)),
            Err(WorkerError::Stopped) => Err(SliceError::Failed(WorkerError::Stopped)),
            Err(again) => {
                let text =
                    |error: &str, again: &str| format!("{error}; restarting failed: {again}");
                Err(SliceError::Failed(WorkerError::Server {
                    brief: text(&error.brief(), &again.brief()),
                    whole: text(&error.to_string(), &again.to_string()),
                }))
            }
        }
    }

    fn slice(&mut self, request: SliceRequest) -> Result<SliceMeasured, WorkerError> {
        let worker = self.worker.as_mut().ok_or_else(stopped)?;
        match monitor_on_host(self.server.as_deref(), self.monitor.as_ref()) {
            Some(monitor) => worker.slice_on_host(request, &mut |reading| monitor.read(reading)),
            None => worker.slice(request),
        }
    }

    /// Prepares to sample its stacks in slices, with this number of samples per second and CPU.
    pub fn start_profile(&mut self, frequency: u32) -> Result<(), WorkerError> {
        match monitor_on_host(self.server.as_deref(), self.monitor.as_ref()) {
            Some(monitor) => monitor
                .start_profile(frequency)
                .map_err(|error| WorkerError::failed("sampling stacks", error)),
            None => self.worker_mut()?.start_profile(frequency),
        }
    }

    /// What was sampled since the last call; `None` if nothing was.
    pub fn profile(&mut self) -> Result<Option<Profile>, WorkerError> {
        match monitor_on_host(self.server.as_deref(), self.monitor.as_ref()) {
            Some(monitor) => monitor
                .profile()
                .map(Some)
                .map_err(|error| WorkerError::failed("collecting samples", error)),
            None => self.worker_mut()?.profile(),
        }
    }

    /// Runs a step of the insert benchmark, and calls `on_second` after each of its seconds: see
    /// [`WorkerHandle::insert_step`].
    pub fn insert_step<X: From<WorkerError>>(
        &mut self,
        step: InsertStep,
        on_second: impl FnMut(Second) -> Result<bool, X>,
    ) -> Result<Option<StepMeasured>, X> {
        let worker = self.worker.as_mut().ok_or_else(stopped)?;
        let monitor = monitor_on_host(self.server.as_deref(), self.monitor.as_ref());
        let mut read =
            |reading| monitor.map_or_else(StepUsages::default, |one| one.read_step(reading));
        worker.insert_step(step, &mut read, on_second)
    }

    /// Says that the next slice is one of this instance: a reading on another host can begin meanwhile.
    pub fn announce_slice(&self) {
        if let Some(monitor) = monitor_on_host(self.server.as_deref(), self.monitor.as_ref()) {
            monitor.announce();
        }
    }

    /// The error if the connection to its server's host is lost.
    pub fn lost_host(&self) -> Option<HostError> {
        self.candidate.host.as_ref()?.lost()
    }

    /// Kills it after this failure. An error ends the session if what failed is not the candidate: the connection to its
    /// host is lost, or the disk is full. Its data may be incomplete or gone: a resumed run loads it again and continues.
    pub fn kill_failed(&mut self, error: &WorkerError) -> Result<(), RunError> {
        self.kill();
        if let Some(lost) = self.lost_host() {
            return Err(lost.into());
        }
        if !says_disk_full(&error.to_string()) {
            return Ok(());
        }
        let name = &self.candidate.name;
        Err(RunError::Other(format!(
            "{name}: {error}\nWhat was measured is stored: free space, then continue with --resume"
        )))
    }

    /// The cause of a worker's error. If its server exited, how it exited, which is more specific
    /// than the broken connection. A server may exit slightly later than its connections break.
    pub fn cause(&mut self, error: WorkerError) -> WorkerError {
        const POLLS: u32 = 10;
        const POLL_INTERVAL: Duration = Duration::from_millis(10);
        for _ in 0..POLLS {
            if let Some(ended) = self.server_ended() {
                return ended;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        error
    }

    /// How its server exited; `None` while it runs.
    fn server_ended(&mut self) -> Option<WorkerError> {
        self.server.as_mut().and_then(|server| server.ended()).map(server_failed)
    }

    /// Restarts the instance after a loss and prepares the same work again. Returns false if no
    /// more restarts are allowed.
    ///
    /// Some or all writes of the lost slice are missing from its data.
    fn recover(
        &mut self,
        context: &RunContext<'_>,
        prepare: &Prepare,
    ) -> Result<bool, WorkerError> {
        let allowed = match &self.candidate.spec.system {
            System::Sqlite { .. } => 0,
            System::Private(server) => server.restarts_after_death,
            System::Existing(_) => 1,
        };
        if self.recoveries >= allowed || self.lost_host().is_some() {
            return Ok(false);
        }
        self.recoveries += 1;
        if self.server_ended().is_some() {
            self.server = None;
        }
        self.open(context, context.experiment.workload.most_clients(), false)?;
        self.worker_mut()?.warm()?;
        self.reoptimize()?;
        self.worker_mut()?.prepare(prepare.clone())?;
        self.has_diverged |= prepare.microbenchmark.writes();
        Ok(true)
    }
}

/// The monitor of a private server on a host, or of an existing one.
fn monitor_on_host<'a>(
    server: Option<&'a dyn RunningServer>,
    existing: Option<&'a HostMonitor>,
) -> Option<&'a HostMonitor> {
    server.and_then(RunningServer::monitor).or(existing)
}

fn server_failed(error: HostError) -> WorkerError {
    WorkerError::Server { brief: error.brief(), whole: error.to_string() }
}

fn stopped() -> WorkerError {
    WorkerError::NotStarted("the instance is stopped".to_owned())
}

/// What is done with the copy of an instance's data from before its tables shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptCopy {
    Keep,
    Restore,
}

impl Instance {
    /// Removes the run's tables from an existing server. Errors are ignored: the next run that needs
    /// the schema reports them.
    pub fn remove_schema(&mut self) {
        if let (DataLocation::Schema, Some(worker)) = (&self.location, &mut self.worker) {
            let _ = worker.remove();
        }
    }

    /// Copies the data while the instance runs but no request is in progress. A server started on
    /// the copy recovers everything that was committed.
    pub fn copy_live(&self, to: &DataLocation) -> Result<(), RunError> {
        match (&self.server, to) {
            (Some(server), DataLocation::Server(_, to)) => Ok(server.copy_paused(to)?),
            _ => self.location.copy_to(to),
        }
    }

    /// Keeps a copy of its data, or replaces the data by it, while it is stopped. Does nothing if its data cannot be
    /// copied.
    pub fn copy_stopped(
        &mut self,
        context: &RunContext<'_>,
        copy: KeptCopy,
    ) -> Result<(), WorkerError> {
        if !self.location.can_be_copied() {
            return Ok(());
        }
        let kept = context.kept_copy(&self.candidate);
        let copied = match copy {
            KeptCopy::Keep => self.location.copy_to(&kept),
            KeptCopy::Restore => kept.copy_to(&self.location),
        };
        copied.map_err(|error| WorkerError::failed("copying its data", error))?;
        match copy {
            KeptCopy::Keep => self.copy_has_diverged = self.has_diverged,
            KeptCopy::Restore => self.has_diverged = self.copy_has_diverged,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use dbdyno_machine::CpuAssignment;
    use dbdyno_results::RunDirectory;
    use dbdyno_spec::parse;
    use dbdyno_units::Nanos;
    use dbdyno_worker::protocol::{Failed, Quota, Response};

    use super::*;
    use crate::candidates::on_existing_servers;
    use crate::options::WorkerProgram;
    use crate::plan::cases::cases;

    const EXPERIMENT: &str = "name = 'test'\nbaseline = 'a'\n[workload]\n\
        microbenchmarks = ['point-query_range=100']\n\
        [[candidate]]\nname = 'a'\nsystem = 'mariadb'\nurl = 'mysql://u@127.0.0.1:1/db'\n\
        [[candidate]]\nname = 'b'\nsystem = 'mariadb'\nurl = 'mysql://u@127.0.0.1:1/other'\n";

    #[test]
    fn instance_is_restarted_only_if_a_connection_is_lost() {
        let experiment = parse("test.toml", EXPERIMENT).unwrap_or_else(|p| panic!("{p}"));
        let dir = tempfile::tempdir().unwrap();
        let worker = WorkerProgram {
            program: "/bin/false".into(),
            args: Vec::new(),
            cancel: Arc::default(),
        };
        let all = || "0".parse().unwrap();
        let cpus = CpuAssignment { system: all(), dbdyno: all() };
        let directory = RunDirectory::at(dir.path());
        let context = RunContext::new(&experiment, None, directory, &worker, cpus);
        let case = cases(&experiment).remove(0);
        let prepare = Prepare { microbenchmark: case.microbenchmark, position: 0, clients: 1 };
        let request = SliceRequest::of(Quota::Time(Nanos::from_millis(5)));
        for lost_connection in [false, true] {
            let failed = Failed { message: "the disk is full".to_owned(), lost_connection };
            let answer = serde_json::to_string(&Response::Failed(failed)).unwrap();
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &format!("read -r request; echo '{answer}'; read -r request")]);
            let candidate = on_existing_servers(&experiment).pop().unwrap();
            let mut instance = Instance::new(&context, candidate);
            let worker = WorkerHandle::start(&mut command, &dir.path().join("log"), Arc::default());
            instance.worker = Some(worker.unwrap());
            let error = instance.run_slice(&context, request, &prepare).unwrap_err();
            let SliceError::Failed(error) = error else { panic!("no server was restarted") };
            assert!(error.to_string().contains("the disk is full"), "{error}");
            assert_eq!(error.to_string().contains("restarting failed"), lost_connection);
            assert_eq!(instance.recoveries, u32::from(lost_connection));
            let ended = instance.kill_failed(&error).expect_err("the disk is not the candidate's");
            let ended = ended.to_string();
            assert!(ended.contains("free space, then continue with --resume"), "{ended}");
            let own = WorkerError::failed("counting", "no such table");
            assert!(instance.kill_failed(&own).is_ok());
        }
    }
}
