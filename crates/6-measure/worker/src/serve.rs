//! The worker's side of the protocol.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, Write};
use std::marker::PhantomData;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dbdyno_drivers::{Connection, NonBlockingConnection};
use dbdyno_engines::sqlite::Sqlite;
use dbdyno_engines::{
    Engine, InsertEngine, SchemaRemoval, Table, WithServerEngine, with_server_engine,
};
use dbdyno_machine::{Calibration, CpuSet, ProcessTree, TickSource, Ticks, WithTicks, pin_process};
use dbdyno_profile::ProfileError;
use dbdyno_types::{EngineCounts, SliceMeasured, StateSnapshot};
use dbdyno_workloads::insert;
use dbdyno_workloads::program::Tables;
use dbdyno_workloads::rows::{Row, Rows};
use dbdyno_workloads::schema::{index_name, table_name};

use crate::client::ClientSetup;
use crate::client_driver::{Blocking, ClientDriver, Epoll};
use crate::clients::{Clients, SlicePart};
use crate::error::{RequestError, ServeError};
use crate::insert::{InsertBenchmark, LocalSystem, RemoteServer, StepLink};
use crate::meter::Meter;
use crate::own_data::{dialect, own_table_names, prepare_script, run_scripts, with_schema};
use crate::prepared::{plans, refused_statements};
use crate::profiler::Profiler;
use crate::protocol::{
    Failed, InsertStep, Open, Opened, Reading, Request, Response, SliceRequest, SystemUnderTest,
    TimedUsage, receive, send,
};
use crate::script::ScriptTarget;
use crate::server_monitor::ServerMonitor;
use crate::waits::WaitMeter;

/// Duration of the calibration of the CPU's time stamp counter when an instance is opened. The
/// result is accurate to 30 ppm; response times have a resolution of 1%.
const CALIBRATION: Duration = Duration::from_millis(2);

/// Serves requests until the end of input.
pub fn serve(requests: &mut impl BufRead, responses: &mut impl Write) -> Result<(), ServeError> {
    let Some(request) = receive::<Request>(requests)? else { return Ok(()) };
    let Request::Open(open) = request else { return Err(ServeError::NotOpened) };
    match &open.system {
        SystemUnderTest::Sqlite { library, settings, file } => {
            match Sqlite::new(library, settings.clone(), file) {
                Ok(engine) => serve_engine::<_, Blocking>(engine, None, &open, requests, responses),
                Err(error) => send(responses, &failed(error)),
            }
        }
        SystemUnderTest::Server { settings, pid, .. } => {
            let monitor = match pid.map(ProcessTree::of).transpose() {
                Ok(family) => family.map(|family| {
                    let mut monitor = ServerMonitor::new(family, settings.is_private());
                    if open.count {
                        monitor.count();
                    }
                    monitor
                }),
                Err(error) => {
                    let message = format!("reading the server's processes: {error}");
                    return send(responses, &failed(message));
                }
            };
            let work = ServerWork { monitor, open: &open, requests, responses };
            with_server_engine(settings.clone(), work)
        }
    }
}

/// Serving the requests for a server.
struct ServerWork<'a, R, W> {
    monitor: Option<ServerMonitor>,
    open: &'a Open,
    requests: &'a mut R,
    responses: &'a mut W,
}

impl<R: BufRead, W: Write> WithServerEngine for ServerWork<'_, R, W> {
    type Output = Result<(), ServeError>;

    fn run<E: InsertEngine>(self, engine: E) -> Self::Output
    where
        E::Connection: NonBlockingConnection,
    {
        let Self { monitor, open, requests, responses } = self;
        serve_engine::<_, Epoll>(engine, monitor, open, requests, responses)
    }
}

fn serve_engine<E: InsertEngine, D: ClientDriver<E::Connection>>(
    engine: E,
    monitor: Option<ServerMonitor>,
    open: &Open,
    requests: &mut impl BufRead,
    responses: &mut impl Write,
) -> Result<(), ServeError> {
    if let Some(cpus) = &open.cpus
        && let Err(error) = pin(cpus)
    {
        return send(responses, &failed(error));
    }
    let driver = PhantomData::<D>;
    let serving = Serving { engine, driver, monitor, open, requests, responses };
    Ticks::choose(CALIBRATION).run(serving)
}

fn pin(cpus: &str) -> Result<(), RequestError> {
    let set: CpuSet = cpus.parse().map_err(|error| format!("CPUs `{cpus}`: {error}"))?;
    Ok(pin_process(std::process::id(), &set).map_err(|error| error.to_string())?)
}

/// Serves the requests for one engine; compiled once per source of ticks.
struct Serving<'a, E, D, R, W> {
    engine: E,
    driver: PhantomData<D>,
    monitor: Option<ServerMonitor>,
    open: &'a Open,
    requests: &'a mut R,
    responses: &'a mut W,
}

impl<E: InsertEngine, D: ClientDriver<E::Connection>, R: BufRead, W: Write> WithTicks
    for Serving<'_, E, D, R, W>
{
    type Output = Result<(), ServeError>;

    fn run<T: TickSource>(self, calibration: Calibration) -> Self::Output {
        let Self { engine, monitor, open, requests, responses, .. } = self;
        let others = open.more_schemas.iter().map(|schema| engine.in_schema(schema));
        let engines: Vec<E> = std::iter::once(engine.clone()).chain(others).collect();
        let clients = match connect::<E, D, T>(&engines, open, calibration) {
            Ok(clients) => clients,
            Err(error) => return send(responses, &failed(error)),
        };
        let counting = match (&open.system, &monitor) {
            _ if !open.count => None,
            // The client threads have the same permissions as this one.
            (SystemUnderTest::Sqlite { .. }, _) => Some(Meter::of_this_thread(false).counting()),
            (SystemUnderTest::Server { .. }, Some(monitor)) => Some(monitor.counting()),
            (SystemUnderTest::Server { .. }, None) => Some(Meter::none().counting()),
        };
        let reported = engine
            .version()
            .and_then(|version| Ok((version, engine.settings_in_force(&open.settings)?)));
        let (version, in_force) = match reported {
            Ok(reported) => reported,
            Err(error) => return send(responses, &failed(error)),
        };
        let opened = Opened { version, in_force, options: engine.options(), counting };
        send(responses, &Response::Opened(opened))?;
        let insert = open
            .insert
            .as_ref()
            .map(|plan| InsertBenchmark::new(engine.clone(), plan.clone(), open.seed, open.wait));
        let (tables, own_tables) = (tables(open), open.own_tables);
        let on_host = matches!(open.system, SystemUnderTest::Server { on_host: true, .. });
        let mut instance = Instance {
            engines,
            connected: 0,
            clients,
            monitor,
            insert,
            tables,
            own_tables,
            ran_script: false,
            observer: None,
            has_told_counters: false,
            profiler: None,
            waits: None,
        };
        let mut interrupted = false;
        while let Some(request) = receive::<Request>(requests)? {
            let is_slice = matches!(request, Request::Slice(_));
            let response = match request {
                Request::Slice(request) if on_host => {
                    instance.slice_on_host(request, interrupted, requests, responses)
                }
                Request::InsertStep(step) if on_host => {
                    instance.insert_step(&step, &mut RemoteServer { requests, responses })
                }
                Request::InsertStep(step) => instance.insert_step_here(&step, responses),
                request => instance.answer(request, open),
            };
            interrupted = !is_slice;
            send(
                responses,
                &response.unwrap_or_else(|error| failed(instance.explained(error, open))),
            )?;
        }
        Ok(())
    }
}

fn connect<E: Engine, D: ClientDriver<E::Connection>, T: TickSource>(
    engines: &[E],
    open: &Open,
    calibration: Calibration,
) -> Result<Clients<E::Connection, D, T>, RequestError> {
    if open.create {
        engines.iter().try_for_each(E::create_schema)?;
    }
    let engine = &engines[0];
    let connections = (0..open.clients)
        .map(|_| engine.connect())
        .collect::<Result<_, dbdyno_drivers::Error>>()?;
    let setup = ClientSetup {
        number: 0,
        tables: Tables { count: open.tables, rows: open.rows },
        seed: open.seed,
        calibration,
        injected_delay: open.injected_delay,
        scripts: ScriptTarget::of(open),
    };
    let inside = matches!(open.system, SystemUnderTest::Sqlite { .. }) && open.count;
    Clients::start(connections, (open.threads as usize, open.wait), inside, setup)
        .map_err(|error| format!("starting a client: {error}").into())
}

/// The error if the stacks or the waits of a server cannot be sampled.
const UNKNOWN_PROCESS: &str = "the server runs on another machine, or its process is not known: set `pid`, or `host` for \
     another machine";

/// The error if a step of the insert benchmark cannot run.
const NOT_FOR_INSERTS: &str = "the instance was not opened for the insert benchmark";

/// An open instance.
struct Instance<E: InsertEngine, D, T> {
    /// With the tables in each schema; the first is that of microbenchmarks without a script.
    engines: Vec<E>,
    /// The number of the engine that the clients are connected to.
    connected: usize,
    clients: Clients<E::Connection, D, T>,
    /// `None` if the server's processes are unknown.
    monitor: Option<ServerMonitor>,
    /// `None` if the instance runs microbenchmarks.
    insert: Option<InsertBenchmark<E>>,
    /// dbdyno's tables.
    tables: Vec<Table>,
    /// Whether there are tables of the user.
    own_tables: bool,
    /// Whether a script may have changed settings of the connections.
    ran_script: bool,
    /// The connection that reads the server's counters; `None` until they are read.
    observer: Option<E::Connection>,
    /// Whether the counters that do not change were told, too.
    has_told_counters: bool,
    /// Samples stacks; `None` until they are sampled.
    profiler: Option<Profiler>,
    /// Records waits; `None` until they are recorded.
    waits: Option<WaitMeter>,
}

impl<E: InsertEngine, D: ClientDriver<E::Connection>, T: TickSource> Instance<E, D, T> {
    fn answer(&mut self, request: Request, open: &Open) -> Result<Response, RequestError> {
        if let (Some(monitor), false) = (&mut self.monitor, matches!(request, Request::Slice(_))) {
            monitor.interrupt();
        }
        match request {
            Request::Open(_) => return Err("the instance is open already".into()),
            Request::InsertTables => match &mut self.insert {
                Some(insert) => insert.create_tables()?,
                None => return Err(NOT_FOR_INSERTS.into()),
            },
            Request::InsertStep(_) => {
                return Err("a step of the insert benchmark has several responses".into());
            }
            Request::Load => self.load(open)?,
            Request::Warm => self.warm()?,
            Request::Settle => {
                let engine = self.engines[0].clone();
                self.clients.each(move |connection| Ok(engine.count_work(connection)?))?;
                self.administer(|engine, connection| Ok(engine.settle(connection)?))?;
                for engine in &self.engines[1..] {
                    engine.settle(&mut engine.connect_to_administer()?)?;
                }
            }
            Request::StateSnapshot => return self.state_snapshot().map(Response::StateSnapshot),
            Request::Prepare(prepare) => {
                let script = prepare.microbenchmark.script.as_ref();
                self.end_script(script.map_or(0, |script| script.data as usize))?;
                self.ran_script = script.is_some();
                self.clients.prepare(*prepare)?;
            }
            Request::Slice(request) => return self.slice(request).map(sliced),
            Request::Read | Request::ReadStep(_) => {
                return Err("no reading was requested".into());
            }
            Request::CheckStatements(microbenchmarks) => {
                let tables = Tables { count: open.tables, rows: open.rows };
                let refused = refused_statements(&self.engines[0], &microbenchmarks, tables)?;
                return Ok(Response::RefusedStatements(refused));
            }
            Request::Plans(microbenchmark) => {
                let tables = Tables { count: open.tables, rows: open.rows };
                let plans = plans(&self.engines[0], &microbenchmark, tables, open.seed)?;
                return Ok(Response::Plans(plans));
            }
            Request::StartProfile(frequency) => self.start_profile(frequency)?,
            Request::Profile => {
                let profile = self.profiler.as_mut().map(|profiler| Box::new(profiler.take()));
                return Ok(Response::Profile(profile));
            }
            Request::WaitSlice(request) => return self.slice_with_waits(request).map(sliced),
            Request::Waits => {
                let waits = self.waits.as_mut().map(|waits| Box::new(waits.take()));
                return Ok(Response::Waits(waits));
            }
            Request::CheckAccess(connections) => {
                self.engines.iter().try_for_each(|engine| engine.check_access(connections))?;
            }
            Request::FreeStatements => {
                self.end_script(0)?;
                self.clients.free_statements()?;
            }
            Request::EndStatements => self.engines.iter().try_for_each(Engine::end_statements)?,
            Request::Remove => return Ok(Response::Removed(self.drop_schemas()?)),
        }
        Ok(Response::Done)
    }

    /// Drops the schemas that belong to this run. Reports the first that does not.
    fn drop_schemas(&self) -> Result<SchemaRemoval, RequestError> {
        let mut all = SchemaRemoval::Absent;
        for engine in &self.engines {
            match (engine.drop_schema()?, &all) {
                (SchemaRemoval::Absent, _) | (_, SchemaRemoval::LeftAlone(_)) => {}
                (removal, _) => all = removal,
            }
        }
        Ok(all)
    }

    /// The error, with the schema that a script uses if it names another one.
    fn explained(&self, error: RequestError, open: &Open) -> RequestError {
        if self.ran_script { with_schema(error, open, self.connected) } else { error }
    }

    /// Opens new connections after a script, whose settings and transactions end with the old ones, or if the next
    /// work is in another schema.
    fn end_script(&mut self, next: usize) -> Result<(), RequestError> {
        let is_elsewhere = std::mem::replace(&mut self.connected, next) != next;
        if std::mem::take(&mut self.ran_script) || is_elsewhere {
            self.clients.end_scripts()?;
            let engine = self.engines[next].clone();
            self.clients.each(move |connection| {
                *connection = engine.connect()?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Runs a step of the insert benchmark, with a response for each second. The usage is that of the server,
    /// or of this process for an embedded database.
    fn insert_step_here(
        &mut self,
        step: &InsertStep,
        responses: &mut impl Write,
    ) -> Result<Response, RequestError> {
        let mut monitor = self.monitor.take();
        let mut own = if E::SHARES_CACHE { None } else { ProcessTree::of(std::process::id()).ok() };
        let family = own.as_mut().or(monitor.as_mut().map(ServerMonitor::family));
        let outcome =
            self.insert_step(step, &mut LocalSystem::new(family, step.data.clone(), responses));
        self.monitor = monitor;
        outcome
    }

    fn insert_step(
        &mut self,
        step: &InsertStep,
        link: &mut dyn StepLink,
    ) -> Result<Response, RequestError> {
        let insert = self.insert.as_mut().ok_or(NOT_FOR_INSERTS)?;
        Ok(Response::Stepped(Box::new(insert.step(step, link)?)))
    }

    /// Runs a slice. A server's usage is read before the lead-in, and before and after the timed
    /// part; the engine's counters, if they are requested, before the lead-in and after the timed part.
    fn slice(&mut self, request: SliceRequest) -> Result<SliceMeasured, RequestError> {
        if request.profile {
            return self.profiled_slice(request);
        }
        let background = self.monitor.as_mut().and_then(ServerMonitor::background);
        let counters = request.counters.then(|| (self.counters(), self.counters()));
        let mut measured = match &mut self.monitor {
            None => self.clients.slice(SlicePart::Whole, request)?,
            Some(monitor) => {
                self.clients.slice(SlicePart::LeadIn, request)?;
                let started = monitor.start(background);
                let measured = self.clients.slice(SlicePart::Timed, request)?;
                let TimedUsage { server, counts, energy } = monitor.end(started);
                SliceMeasured { server, counts, energy, ..measured }
            }
        };
        let statements = measured.lead_in_statements.map(|count| count + measured.statements);
        if let (Some((Some(first), Some(second))), Some(statements)) = (counters, statements) {
            if let Some(last) = self.counters() {
                let with_all = !std::mem::replace(&mut self.has_told_counters, true);
                let counts = EngineCounts::between([&first, &second, &last], statements, with_all);
                measured.engine_counts = Some(counts);
            }
            if let Some(monitor) = &mut self.monitor {
                // Reading is no background work.
                monitor.begin_background();
            }
        }
        Ok(measured)
    }

    /// Prepares to sample the stacks of the server, or of this process with an embedded database.
    fn start_profile(&mut self, frequency: u32) -> Result<(), RequestError> {
        if self.profiler.is_some() {
            return Ok(());
        }
        if let Some(monitor) = &mut self.monitor {
            // An error occurs again when it is sampled.
            let _ = monitor.family().read();
        }
        let pids = Self::pids(&mut self.monitor)?;
        let opened = Profiler::open(&pids, frequency).map_err(|error| error.to_string())?;
        self.profiler = Some(opened);
        Ok(())
    }

    /// Runs a slice in whose timed part stacks are sampled.
    fn profiled_slice(&mut self, request: SliceRequest) -> Result<SliceMeasured, RequestError> {
        let failed = |error: ProfileError| error.to_string();
        let profiler = self.profiler.as_mut().ok_or("the sampling was not prepared")?;
        self.clients.slice(SlicePart::LeadIn, request)?;
        let Some(monitor) = &mut self.monitor else {
            profiler.begin().map_err(failed)?;
            let measured = self.clients.slice(SlicePart::Timed, request);
            profiler.end().map_err(failed)?;
            profiler.collect(&HashSet::from([std::process::id()]), None);
            return measured;
        };
        let started = monitor.start(None);
        let mut pids: HashSet<u32> = monitor.family().pids().collect();
        profiler.begin().map_err(failed)?;
        let measured = self.clients.slice(SlicePart::Timed, request);
        profiler.end().map_err(failed)?;
        let TimedUsage { server, .. } = monitor.end(started);
        // Some may have begun, and others ended.
        pids.extend(monitor.family().pids());
        profiler.collect(&pids, server.as_ref());
        Ok(SliceMeasured { server, ..measured? })
    }

    /// Runs a slice in whose timed part it is recorded where the threads of the server, or of this process with an
    /// embedded database, wait.
    fn slice_with_waits(&mut self, request: SliceRequest) -> Result<SliceMeasured, RequestError> {
        let waits = match &mut self.waits {
            Some(waits) => waits,
            none => none.insert(WaitMeter::open(!E::SHARES_CACHE)?),
        };
        let pids: HashSet<u32> = Self::pids(&mut self.monitor)?.into_iter().collect();
        self.clients.slice(SlicePart::LeadIn, request)?;
        let started = self.monitor.as_mut().map(|monitor| monitor.start(None));
        waits.begin(&pids)?;
        let measured = self.clients.slice(SlicePart::Timed, request);
        waits.end()?;
        let used =
            self.monitor.as_mut().zip(started).map(|(monitor, started)| monitor.end(started));
        let server = used.and_then(|used| used.server);
        let measured = SliceMeasured { server, ..measured? };
        // With those that were started meanwhile.
        let pids: HashSet<u32> = Self::pids(&mut self.monitor)?.into_iter().collect();
        waits.add(&pids, request, &measured)?;
        Ok(measured)
    }

    /// The processes of the server, first the one that outlives the others; or this one with an embedded database.
    fn pids(monitor: &mut Option<ServerMonitor>) -> Result<Vec<u32>, RequestError> {
        match monitor {
            Some(monitor) => Ok(monitor.family().pids().collect()),
            None if !E::SHARES_CACHE => Ok(vec![std::process::id()]),
            None => Err(UNKNOWN_PROCESS.into()),
        }
    }

    /// The system's counters, of an embedded system over all its connections; `None` if it has none, or they cannot be
    /// read, which must not end the measurement.
    fn counters(&mut self) -> Option<BTreeMap<String, u64>> {
        let engine = self.engines[self.connected].clone();
        if E::SHARES_CACHE {
            let own = engine.clone();
            self.clients.each(move |connection| Ok(own.count_work(connection)?)).ok()?;
            let connection = match &mut self.observer {
                Some(connection) => connection,
                none => none.insert(engine.connect_to_administer().ok()?),
            };
            engine.count_work(connection).ok()?;
            let all: BTreeMap<String, u64> =
                engine.counters(connection).ok()?.into_iter().collect();
            return Some(all).filter(|all| !all.is_empty());
        }
        let sums = Arc::new(Mutex::new(BTreeMap::new()));
        let all = Arc::clone(&sums);
        let add = move |connection: &mut E::Connection| {
            let mut sums = all.lock().unwrap_or_else(PoisonError::into_inner);
            for (name, value) in engine.counters(connection)? {
                *sums.entry(name).or_insert(0) += value;
            }
            Ok(())
        };
        self.clients.each(add).ok()?;
        let sums = std::mem::take(&mut *sums.lock().unwrap_or_else(PoisonError::into_inner));
        Some(sums)
    }

    /// As [`Self::slice`], for a server on another host: dbdyno takes the readings there, on request. None
    /// is inside the timed part.
    fn slice_on_host(
        &mut self,
        request: SliceRequest,
        interrupted: bool,
        requests: &mut impl BufRead,
        responses: &mut impl Write,
    ) -> Result<Response, RequestError> {
        let mut read = |reading| -> Result<(), RequestError> {
            send(responses, &Response::Read(reading)).map_err(|error| error.to_string())?;
            match receive::<Request>(requests).map_err(|error| error.to_string())? {
                Some(Request::Read) => Ok(()),
                _ => Err("a reading was not answered".into()),
            }
        };
        read(Reading::LeadIn { interrupted })?;
        self.clients.slice(SlicePart::LeadIn, request)?;
        read(if request.profile { Reading::StartSampled } else { Reading::Start })?;
        // dbdyno takes the last reading when it gets this response.
        self.clients.slice(SlicePart::Timed, request).map(sliced)
    }

    /// Reads all tables: through every connection of an embedded engine, which has a cache per
    /// connection; through one of a server.
    fn warm(&self) -> Result<(), RequestError> {
        let tables = self.tables.clone();
        let own_tables = self.own_tables;
        let warm = move |engine: &E, connection: &mut E::Connection| -> Result<(), RequestError> {
            engine.warm(connection, &tables)?;
            if own_tables {
                let own = own_table_names(engine, connection, &tables)?;
                engine.warm_own(connection, &own)?;
            }
            Ok(())
        };
        if !E::SHARES_CACHE {
            let engine = self.engines[0].clone();
            return self.clients.each(move |connection| warm(&engine, connection));
        }
        for engine in &self.engines[1..] {
            let connection = &mut engine.connect_to_administer()?;
            let own = own_table_names(engine, connection, &[])?;
            engine.warm_own(connection, &own)?;
        }
        self.administer(warm)
    }

    /// Runs `task` in the first schema, on a connection that no setting of the server affects: of an embedded engine,
    /// that of the first client.
    fn administer(
        &self,
        task: impl FnOnce(&E, &mut E::Connection) -> Result<(), RequestError> + Send + 'static,
    ) -> Result<(), RequestError> {
        let engine = self.engines[0].clone();
        match E::SHARES_CACHE {
            true => task(&engine, &mut engine.connect_to_administer()?),
            false => self.clients.on(0, move |connection| task(&engine, connection)),
        }
    }

    fn load(&self, open: &Open) -> Result<(), RequestError> {
        for (number, table) in (0..).zip(&self.tables) {
            let mut rows = Rows::of_table(open.seed, number, open.rows);
            let table = table.clone();
            self.administer(move |engine, connection| {
                let mut row = Row::default();
                let mut next = |params: &mut dbdyno_drivers::Params| {
                    let more = rows.next_into(&mut row);
                    if more {
                        params.push_int(row.k);
                        params.push_text(&row.c);
                        params.push_text(&row.pad);
                    }
                    more
                };
                let loaded = engine.load_table(connection, &table, &mut next);
                connection.close_statements();
                Ok(loaded?)
            })?;
        }
        if open.setup.is_empty() && open.scripts.is_empty() {
            return Ok(());
        }
        let dialect = dialect(&open.system);
        let first = &self.engines[0];
        run_scripts(first, &mut first.connect_for_setup()?, dialect, &open.setup)?;
        let Some(target) = ScriptTarget::of(open) else { return Ok(()) };
        for script in &open.scripts {
            let number = script.data as usize;
            let seed = (open.seed, open.script_clients);
            let made = prepare_script(&self.engines[number], dialect, &target, script, seed);
            made.map_err(|error| with_schema(error, open, number))?;
        }
        Ok(())
    }

    fn state_snapshot(&self) -> Result<StateSnapshot, RequestError> {
        let tables = self.tables.clone();
        let own_tables = self.own_tables;
        let (sender, receiver) = channel();
        self.administer(move |engine, connection| {
            let mut names: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
            if own_tables {
                names.extend(own_table_names(engine, connection, &tables)?);
            }
            let state_snapshot = engine.state_snapshot(connection, &names)?;
            Ok(sender.send(state_snapshot).map_err(|error| error.to_string())?)
        })?;
        let mut snapshot = receiver.recv().map_err(|error| error.to_string())?;
        for engine in &self.engines[1..] {
            let connection = &mut engine.connect_to_administer()?;
            let names = own_table_names(engine, connection, &[])?;
            engine.add_to_snapshot(&mut snapshot, engine.state_snapshot(connection, &names)?);
        }
        Ok(snapshot)
    }
}

fn tables(open: &Open) -> Vec<Table> {
    let of_sales = |table| {
        let [index, ..] = insert::indexes(table);
        Table { name: insert::table_name(table), index: index.name }
    };
    match open.insert {
        Some(_) => (0..open.tables).map(of_sales).collect(),
        None if !open.load_tables => Vec::new(),
        None => (0..open.tables)
            .map(|table| Table { name: table_name(table), index: index_name(table) })
            .collect(),
    }
}

fn sliced(measured: SliceMeasured) -> Response {
    Response::Sliced(Box::new(measured))
}

fn failed(error: impl Into<RequestError>) -> Response {
    let error = error.into();
    let lost_connection = error.lost_connection;
    Response::Failed(Failed { message: error.to_string(), lost_connection })
}
