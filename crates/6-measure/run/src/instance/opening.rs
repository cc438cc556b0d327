//! Opening an instance: starting its server and its worker.

use std::path::{Path, PathBuf};

use dbdyno_engines::server::{ServerAccess, ServerPlan};
use dbdyno_engines::sqlite::{self, Sqlite};
use dbdyno_hosts::{HostConnection, HostMonitor, RunningServer, ServerStart};
use dbdyno_spec::experiment::{ExistingServer, Experiment, PrivateServer, SqliteConfig, System};
use dbdyno_types::RunIdentity;
use dbdyno_types::settings::of_version;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::{Open, SystemUnderTest};

use crate::candidates::Deployment;
use crate::instance::context::RunContext;
use crate::instance::data::DataLocation;
use crate::instance::{Instance, monitor_on_host, server_failed};

/// The environment variable in which a worker gets the password of a server on another host.
const PASSWORD: &str = "DBDYNO_PASSWORD";

impl Instance {
    /// Starts the private server, unless it runs, and a worker with this number of connections.
    /// Set `create` if the location has no tables yet.
    pub fn open(
        &mut self,
        context: &RunContext<'_>,
        clients: u32,
        create: bool,
    ) -> Result<(), WorkerError> {
        self.worker = None;
        self.monitor = None;
        if let (Deployment::Private(plan), None) = (&self.candidate.deployment, &self.server) {
            self.server = start_server(context, &self.candidate.spec.system, plan, &self.location)?;
            self.server_log =
                self.server.as_ref().map(|server| server.warnings()).unwrap_or_default();
        }
        let RunContext { experiment, cpus, .. } = context;
        let embedded = self.candidate.spec.system.is_embedded();
        let log = context.directory.logs().join(format!("{}.log", self.candidate.name));
        // One without clients removes or ends something: what the one before it printed is kept.
        let log = if clients == 0 { Path::new("/dev/null") } else { &log };
        let logs_in = matches!(self.candidate.deployment, Deployment::Existing(_));
        let host = self.candidate.host.as_ref();
        // Before the worker connects: counters miss the threads that exist already.
        self.monitor = monitor(context, &self.candidate.deployment, host)?;
        let mut environment = context.environment.clone();
        if let (Some(host), false) = (host, logs_in) {
            environment.push((PASSWORD.to_owned(), host.password().to_owned()));
        }
        let mut worker = context.worker.start(log, &environment, logs_in)?;
        if let Some(host) = host {
            host.kill_on_loss(worker.pid());
        }
        let uses_schemas = |is_open: bool| {
            if create && matches!(self.location, DataLocation::Schema) {
                let mut used = context.used_schemas.borrow_mut();
                *used.entry(self.candidate.name.clone()).or_default() |= is_open;
            }
        };
        uses_schemas(false);
        let mut opened = worker.open(Open {
            system: self.system_under_test(context),
            create,
            clients,
            threads: if embedded { clients } else { cpus.dbdyno.len() as u32 },
            wait: context.client_wait,
            tables: experiment.workload.tables,
            load_tables: experiment.workload.uses_sbtest_tables(),
            own_tables: experiment.workload.has_own_tables(),
            more_schemas: self.schemas(context).split_off(1),
            setup: if create { experiment.workload.setup.clone() } else { Vec::new() },
            scripts: if create {
                experiment.workload.data_scripts().cloned().collect()
            } else {
                Vec::new()
            },
            script_clients: experiment.workload.most_clients(),
            rows: experiment.workload.rows,
            seed: experiment.seed,
            cpus: Some(if embedded { &cpus.system } else { &cpus.dbdyno }.to_string()),
            injected_delay: self.candidate.spec.injected_delay,
            count: counts(experiment),
            insert: experiment.insert_benchmark.as_ref().map(|one| one.plan.clone()),
            settings: match &self.candidate.deployment {
                Deployment::Private(plan) => names_to_read(experiment, plan),
                Deployment::Library(_) | Deployment::Existing(_) => Vec::new(),
            },
        })?;
        if let Some(monitor) = monitor_on_host(self.server.as_deref(), self.monitor.as_ref()) {
            opened.counting = monitor.counting().cloned();
        }
        self.opened = Some(opened);
        uses_schemas(true);
        self.worker = Some(worker);
        Ok(())
    }

    /// The schemas with its data; the first one has dbdyno's tables.
    fn schemas(&self, context: &RunContext<'_>) -> Vec<String> {
        let workload = &context.experiment.workload;
        match &self.candidate.deployment {
            Deployment::Existing(server) => workload.existing_schemas(&server.schema),
            Deployment::Private(_) | Deployment::Library(_) => workload.private_schemas(),
        }
    }

    fn system_under_test(&self, context: &RunContext<'_>) -> SystemUnderTest {
        match (&self.candidate.spec.system, &self.candidate.deployment, &self.server) {
            (System::Sqlite { config, .. }, Deployment::Library(build), _) => {
                SystemUnderTest::Sqlite {
                    library: build.artifact.clone(),
                    settings: sqlite_settings(config),
                    file: match &self.location {
                        DataLocation::Directory(directory) => Sqlite::file_in(directory),
                        DataLocation::Server(..) | DataLocation::Schema => PathBuf::new(),
                    },
                }
            }
            (System::Private(private), Deployment::Private(plan), Some(server)) => {
                let PrivateServer { system, statements, .. } = *private;
                SystemUnderTest::Server {
                    settings: ServerAccess {
                        system,
                        engine: plan.engine(),
                        target: server.target(),
                        schema: self.schemas(context).remove(0),
                        statements,
                        owner: None,
                    },
                    pid: server.pid(),
                    on_host: self.candidate.host.is_some(),
                }
            }
            (_, Deployment::Existing(server), _) => {
                let owner = context.run.clone().expect("training uses no existing servers");
                SystemUnderTest::Server {
                    settings: access_of(server, owner),
                    // On a host, it is the number of a process there.
                    pid: server.pid.filter(|_| server.host.is_none()),
                    on_host: self.monitor.is_some(),
                }
            }
            _ => unreachable!("a candidate's deployment fits its system"),
        }
    }
}

/// How a worker of this run reaches an existing server.
pub(crate) fn access_of(server: &ExistingServer, run: RunIdentity) -> ServerAccess {
    ServerAccess {
        system: server.system,
        engine: server.engine,
        target: server.target.clone(),
        schema: server.schema.clone(),
        statements: server.statements,
        owner: Some(run),
    }
}

/// Whether counters of a server's process are read in slices. The insert benchmark has its own figures
/// for each second.
const fn counts(experiment: &Experiment) -> bool {
    experiment.schedule.counters && experiment.insert_benchmark.is_none()
}

/// A monitor of an existing server on this host; `None` for any other server.
fn monitor(
    context: &RunContext<'_>,
    deployment: &Deployment,
    host: Option<&HostConnection>,
) -> Result<Option<HostMonitor>, WorkerError> {
    let (Deployment::Existing(server), Some(host)) = (deployment, host) else { return Ok(None) };
    let Some(pid) = server.pid else { return Ok(None) };
    let count = counts(context.experiment);
    HostMonitor::of(host, pid, count).map(Some).map_err(server_failed)
}

/// Starts the private server with its data in this location; `None` in one that is not a server's.
fn start_server(
    context: &RunContext<'_>,
    system: &System,
    plan: &ServerPlan,
    location: &DataLocation,
) -> Result<Option<Box<dyn RunningServer>>, WorkerError> {
    let DataLocation::Server(host, name) = location else { return Ok(None) };
    let tls = matches!(system, System::Private(PrivateServer { tls: true, .. }));
    let start = ServerStart { tls, count: counts(context.experiment) };
    host.start(plan, name, start).map(Some).map_err(server_failed)
}

/// The settings whose values in force are read: all that some candidate of the same system sets, and sizes of caches.
fn names_to_read(experiment: &Experiment, plan: &ServerPlan) -> Vec<String> {
    let system = plan.installation().system;
    let mut names: Vec<String> = plan.settings().iter().map(|(name, _)| name.clone()).collect();
    for candidate in &experiment.candidates {
        if let System::Private(server) = &candidate.system
            && server.system == system
        {
            let names_of = server.configuration.iter().map(|(name, _)| of_version(name).1);
            names.extend(names_of.map(|name| plan.canonical_name(name)));
        }
    }
    names.extend(plan.cache_settings().map(str::to_owned));
    names.sort_unstable();
    names.dedup();
    names
}

fn sqlite_settings(config: &SqliteConfig) -> sqlite::Settings {
    sqlite::Settings {
        page_size: config.page_size,
        cache_size: config.cache_size,
        // The experiment file uses SQLite's own names for these.
        journal_mode: config.journal_mode.name().to_owned(),
        synchronous: config.synchronous.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_spec::parse;

    use super::*;

    #[test]
    fn counters_are_read_unless_disabled_and_not_in_insert_benchmarks() {
        let counts = |lines: &str| {
            let candidate = "[[candidate]]\nname = 'a'\nsystem = 'mariadb'\n";
            let text = format!("name = 'test'\nbaseline = 'a'\n{lines}{candidate}");
            counts(&parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}")))
        };
        assert!(counts(""));
        assert!(!counts("[schedule]\ncounters = false\n"));
        assert!(!counts("[insert_benchmark]\n"));
    }
}
