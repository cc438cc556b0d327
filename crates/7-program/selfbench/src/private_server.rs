//! A private server for a benchmark, with dbdyno's tables.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use dbdyno_drivers::Connection;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_engines::server::{
    DataShape, Installation, Server, ServerAccess, ServerDirs, ServerPlan, initialise,
};
use dbdyno_machine::{CpuAssignment, CpuSet};
use dbdyno_types::server::{Durability, ServerSystem, StatementMode, StorageEngine, Target};
use dbdyno_types::{ClientWait, SliceMeasured};
use dbdyno_worker::WorkerHandle;
use dbdyno_worker::protocol::{Open, SliceRequest, SystemUnderTest};
use dbdyno_workloads::insert::Plan;
use dbdyno_workloads::schema::table_name;
use tempfile::TempDir;

use crate::harness::Harness;

/// The schema of dbdyno's tables.
pub const SCHEMA: &str = "dbdyno";

/// The seed of all random draws.
pub const SEED: u64 = 1;

/// How long the server may take to close connections of an ended client.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The system of this name and, if it has storage engines, the named one or else its first.
pub fn find_system(
    system: &str,
    engine: Option<&str>,
) -> anyhow::Result<(ServerSystem, Option<StorageEngine>)> {
    let found = ServerSystem::ALL.into_iter().find(|one| one.name() == system);
    let found = found.with_context(|| format!("unknown system `{system}`"))?;
    let mut engines = found.storage_engines().iter().copied();
    let engine = match engine {
        None => engines.next(),
        Some(name) => Some(
            engines
                .find(|engine| engine.name() == name)
                .with_context(|| format!("{system} has no engine `{name}`"))?,
        ),
    };
    Ok((found, engine))
}

pub fn run_slice(
    worker: &mut WorkerHandle,
    request: SliceRequest,
) -> anyhow::Result<SliceMeasured> {
    let measured = worker.slice(request)?;
    let SliceMeasured { errors, wrong, first_complaint, .. } = &measured;
    ensure!(
        *errors == 0 && *wrong == 0,
        "{errors} errors, {wrong} wrong: {}",
        first_complaint.as_deref().unwrap_or_default()
    );
    Ok(measured)
}

/// A running server and its directories. Dropping it stops it and removes its data.
pub struct PrivateServer {
    // In the order in which they are dropped.
    server: Option<Server>,
    server_dirs: Option<ServerDirs>,
    directory: TempDir,
    system: ServerSystem,
    engine: Option<StorageEngine>,
    shape: DataShape,
}

impl PrivateServer {
    /// Starts a server with a new data directory on these CPUs, with the default settings of an experiment;
    /// `engine` is for systems with storage engines. Without `program`, the installed one is used.
    pub fn start(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        program: Option<&Path>,
        shape: DataShape,
        cpus: &CpuSet,
    ) -> anyhow::Result<Self> {
        let installation = Installation::find(system, engine, program)?;
        let settings = Vec::new();
        let plan = ServerPlan::new(installation, engine, Durability::Relaxed, settings, shape)?;
        let directory = tempfile::Builder::new().prefix("dbdyno-bench-").tempdir()?;
        let server_dirs = ServerDirs::open(&directory.path().join("data"))?;
        let server_dir = server_dirs.server_dir(engine.map_or(system.name(), StorageEngine::name));
        // From here on, any failure removes the data.
        let server_dirs = Some(server_dirs);
        let mut private = Self { server: None, server_dirs, directory, system, engine, shape };
        initialise(&plan, &server_dir)?;
        private.server = Some(Server::start(&plan, &server_dir, Some(&cpus.to_string()))?);
        Ok(private)
    }

    pub fn target(&self) -> anyhow::Result<Target> {
        Ok(self.server.as_ref().context("the server is not running")?.target())
    }

    pub fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.server.as_ref().context("the server is not running")?.pid())
    }

    /// Starts a worker with a connection per client, which wait for answers in this way, and loads the
    /// tables.
    pub fn load(
        &self,
        harness: &Harness,
        cpus: &CpuAssignment,
        wait: ClientWait,
    ) -> anyhow::Result<WorkerHandle> {
        let worker = harness.worker(&self.directory.path().join("worker.log"))?;
        let mut worker = self.open(worker, cpus, wait, None)?;
        worker.load()?;
        worker.settle()?;
        worker.warm()?;
        Ok(worker)
    }

    /// Opens the instance in a worker; `insert` is for the insert benchmark.
    pub fn open(
        &self,
        mut worker: WorkerHandle,
        cpus: &CpuAssignment,
        wait: ClientWait,
        insert: Option<Plan>,
    ) -> anyhow::Result<WorkerHandle> {
        let server = self.server.as_ref().context("the server is not running")?;
        worker.open(Open {
            system: SystemUnderTest::Server {
                on_host: false,
                settings: ServerAccess {
                    system: self.system,
                    engine: self.engine,
                    target: server.target(),
                    schema: SCHEMA.to_owned(),
                    statements: StatementMode::Prepared,
                    owner: None,
                },
                pid: Some(server.pid()),
            },
            create: true,
            clients: self.shape.clients,
            threads: cpus.dbdyno.len() as u32,
            wait,
            tables: self.shape.tables,
            load_tables: true,
            own_tables: false,
            more_schemas: Vec::new(),
            setup: Vec::new(),
            scripts: Vec::new(),
            script_clients: self.shape.clients,
            rows: self.shape.rows,
            seed: SEED,
            cpus: Some(cpus.dbdyno.to_string()),
            injected_delay: None,
            count: false,
            insert,
            settings: Vec::new(),
        })?;
        Ok(worker)
    }

    /// The sum of the column `k` of the first table, read in a connection of its own.
    pub fn sum_of_k(&self) -> anyhow::Result<u64> {
        let sql = format!("SELECT SUM(k) FROM {SCHEMA}.{}", table_name(0));
        let (target, mode) = (self.target()?, StatementMode::Text);
        let rows = match self.system {
            ServerSystem::PostgreSql => {
                PostgresConnection::connect(&target, mode).and_then(|mut one| one.query(&sql))
            }
            _ => MySqlConnection::connect(&target, mode).and_then(|mut one| one.query(&sql)),
        };
        let rows = rows.map_err(|error| anyhow!("{error}"))?;
        let sum = rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok());
        sum.with_context(|| format!("{sql} returned {rows:?}"))
    }

    /// A connection for reading the server's status counters.
    pub fn observe(&self) -> anyhow::Result<Observer> {
        let target = self.target()?;
        let connection = MySqlConnection::connect(&target, StatementMode::Text);
        Ok(Observer(connection.map_err(|error| anyhow!("{error}"))?))
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.server = None;
        if let Some(server_dirs) = self.server_dirs.take() {
            // A failure shows in the directory that is left.
            let _ = server_dirs.remove();
        }
    }
}

pub struct Observer(MySqlConnection);

impl Observer {
    /// Statements that clients have sent since the server started.
    pub fn statements(&mut self) -> anyhow::Result<u64> {
        self.status("Questions")
    }

    /// Open connections, including this one.
    pub fn connections(&mut self) -> anyhow::Result<u64> {
        self.status("Threads_connected")
    }

    /// Waits until at most `at_most` connections are open: by then, transactions of ended clients
    /// are rolled back.
    pub fn wait_for_connections(&mut self, at_most: u64) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let left = self.connections()?;
            if left <= at_most {
                return Ok(());
            }
            if started.elapsed() > CLOSE_TIMEOUT {
                bail!("{left} connections are still open after {CLOSE_TIMEOUT:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn status(&mut self, name: &str) -> anyhow::Result<u64> {
        let rows = self.0.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        let rows = rows.map_err(|error| anyhow!("{error}"))?;
        let value = rows.first().and_then(|row| row.get(1)?.as_deref()?.parse().ok());
        value.with_context(|| format!("the server has no status variable {name}"))
    }
}
