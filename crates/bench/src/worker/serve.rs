//! The worker's own end of the conversation.

use std::io::{BufRead, Write};
use std::marker::PhantomData;
use std::sync::mpsc::channel;
use std::time::Duration;

use dbdyno_drivers::Connection;
use dbdyno_engines::mysql::MySql;
use dbdyno_engines::postgres::Postgres;
use dbdyno_engines::sqlite::Sqlite;
use dbdyno_engines::{Engine, InsertEngine, Table};
use dbdyno_machine::{Calibration, CpuSet, ProcessTree, TickSource, Ticks, WithTicks, pin_process};
use dbdyno_record::server::ServerSystem;
use dbdyno_record::{SliceMeasured, StateSnapshot};
use dbdyno_workloads::insert;
use dbdyno_workloads::program::Tables;
use dbdyno_workloads::rows::{Row, Rows};
use dbdyno_workloads::schema::{index_name, table_name};

use super::client::ClientSetup;
use super::client_driver::{Blocking, ClientDriver, Epoll};
use super::clients::{Clients, Part};
use super::insert::InsertBenchmark;
use super::meter::Meter;
use super::server_monitor::{Ended, ServerMonitor};
use crate::protocol::{Failed, InsertStep, Open, Opened, Request, Response, SystemUnderTest};
use crate::slice::SliceRequest;

/// How long the CPU's counter is measured against the clock when an instance is opened. That
/// gives its rate to 30 parts in a million; response times are kept to 1%.
const CALIBRATION: Duration = Duration::from_millis(2);

/// Answers requests until the other side closes the conversation.
///
/// # Errors
/// The conversation broke, or what came is no request. Everything else that fails is answered.
pub fn serve(requests: &mut impl BufRead, responses: &mut impl Write) -> Result<(), String> {
    let Some(request) = receive(requests)? else { return Ok(()) };
    let Request::Open(open) = request else {
        return Err(format!("the first request must open an instance, but was {request:?}"));
    };
    match &open.system {
        SystemUnderTest::Sqlite { library, settings, file } => {
            match Sqlite::new(library, settings.clone(), file) {
                Ok(engine) => serve_engine::<_, Blocking>(engine, None, &open, requests, responses),
                Err(error) => send(responses, &failed(error.to_string())),
            }
        }
        SystemUnderTest::Server { settings, pid } => {
            let monitor = match pid.map(ProcessTree::of).transpose() {
                Ok(family) => family.map(|family| {
                    let mut monitor = ServerMonitor::new(family, settings.private);
                    if open.count {
                        monitor.count();
                    }
                    monitor
                }),
                Err(error) => {
                    let message = format!("watching the server's processes: {error}");
                    return send(responses, &failed(message));
                }
            };
            let settings = settings.clone();
            match settings.system {
                ServerSystem::MariaDb | ServerSystem::MySql => {
                    let engine = MySql::new(settings);
                    serve_engine::<_, Epoll>(engine, monitor, &open, requests, responses)
                }
                ServerSystem::PostgreSql => {
                    let engine = Postgres::new(settings);
                    serve_engine::<_, Epoll>(engine, monitor, &open, requests, responses)
                }
            }
        }
    }
}

fn serve_engine<E: InsertEngine, D: ClientDriver<E::Connection>>(
    engine: E,
    monitor: Option<ServerMonitor>,
    open: &Open,
    requests: &mut impl BufRead,
    responses: &mut impl Write,
) -> Result<(), String> {
    if let Some(cpus) = &open.cpus
        && let Err(message) = pin(cpus)
    {
        return send(responses, &failed(message));
    }
    let ticks = Ticks::choose(CALIBRATION);
    let drive = PhantomData::<D>;
    ticks.run(Serving { engine, drive, monitor, open, ticks: ticks.name(), requests, responses })
}

fn pin(cpus: &str) -> Result<(), String> {
    let cpus: CpuSet = cpus.parse().map_err(|error| format!("CPUs `{cpus}`: {error}"))?;
    pin_process(std::process::id(), &cpus).map_err(|error| error.to_string())
}

/// The conversation about one engine, compiled once for each source of ticks.
struct Serving<'a, E, D, R, W> {
    engine: E,
    drive: PhantomData<D>,
    monitor: Option<ServerMonitor>,
    open: &'a Open,
    ticks: &'static str,
    requests: &'a mut R,
    responses: &'a mut W,
}

impl<E: InsertEngine, D: ClientDriver<E::Connection>, R: BufRead, W: Write> WithTicks
    for Serving<'_, E, D, R, W>
{
    type Output = Result<(), String>;

    fn run<T: TickSource>(self, calibration: Calibration) -> Self::Output {
        let Self { engine, monitor, open, ticks, requests, responses, .. } = self;
        let clients = match connect::<E, D, T>(&engine, open, calibration) {
            Ok(clients) => clients,
            Err(message) => return send(responses, &failed(message)),
        };
        let counting = match (&open.system, &monitor) {
            _ if !open.count => None,
            // Its threads may do what this one may.
            (SystemUnderTest::Sqlite { .. }, _) => Some(Meter::of_this_thread(false).counting()),
            (SystemUnderTest::Server { .. }, Some(monitor)) => Some(monitor.counting()),
            (SystemUnderTest::Server { .. }, None) => Some(Meter::none().counting()),
        };
        let opened = Opened {
            version: engine.version(),
            options: engine.options(),
            ticks: ticks.into(),
            counting,
        };
        send(responses, &Response::Opened(opened))?;
        let insert = open.insert.as_ref().map(|plan| {
            let embedded = matches!(open.system, SystemUnderTest::Sqlite { .. });
            InsertBenchmark::new(engine.clone(), plan.clone(), open.seed, embedded)
        });
        let mut instance = Instance { engine, clients, monitor, insert, tables: tables(open) };
        while let Some(request) = receive(requests)? {
            let response = match request {
                Request::InsertStep(order) => instance.insert_step(&order, responses),
                request => instance.answer(request, open),
            };
            send(responses, &response.unwrap_or_else(failed))?;
        }
        Ok(())
    }
}

fn connect<E: Engine, D: ClientDriver<E::Connection>, T: TickSource>(
    engine: &E,
    open: &Open,
    calibration: Calibration,
) -> Result<Clients<E::Connection, D, T>, String> {
    let words = |error: dbdyno_drivers::Error| error.to_string();
    if open.create {
        engine.create_schema().map_err(words)?;
    }
    let connections =
        (0..open.clients).map(|_| engine.connect()).collect::<Result<_, _>>().map_err(words)?;
    let setup = ClientSetup {
        number: 0,
        tables: Tables { count: open.tables, rows: open.rows },
        seed: open.seed,
        calibration,
        injected_delay: open.injected_delay,
    };
    let inside = matches!(open.system, SystemUnderTest::Sqlite { .. }) && open.count;
    Clients::start(connections, open.threads as usize, inside, setup)
        .map_err(|error| format!("starting a client: {error}"))
}

/// Why a step of the insert benchmark cannot be run.
const NOT_FOR_INSERTS: &str = "the instance was not opened for the insert benchmark";

/// An open instance.
struct Instance<E: InsertEngine, D, T> {
    engine: E,
    clients: Clients<E::Connection, D, T>,
    /// Of a server whose processes can be seen.
    monitor: Option<ServerMonitor>,
    /// The insert benchmark, where that is what the instance is for.
    insert: Option<InsertBenchmark<E>>,
    tables: Vec<Table>,
}

impl<E: InsertEngine, D: ClientDriver<E::Connection>, T: TickSource> Instance<E, D, T> {
    fn answer(&mut self, request: Request, open: &Open) -> Result<Response, String> {
        if let (Some(monitor), false) = (&mut self.monitor, matches!(request, Request::Slice(_))) {
            monitor.interrupt();
        }
        match request {
            Request::Open(_) => return Err("the instance is open already".to_owned()),
            Request::InsertTables => match &mut self.insert {
                Some(insert) => insert.make_tables()?,
                None => return Err(NOT_FOR_INSERTS.to_owned()),
            },
            Request::InsertStep(_) => {
                return Err("a step of the insert benchmark answers more than once".to_owned());
            }
            Request::Load => self.load(open)?,
            Request::Warm => self.warm()?,
            Request::Settle => {
                let engine = self.engine.clone();
                self.clients.first(move |connection| {
                    engine.settle(connection).map_err(|error| error.to_string())
                })?;
            }
            Request::StateSnapshot => return self.state_snapshot().map(Response::StateSnapshot),
            Request::Prepare(prepare) => self.clients.prepare(*prepare)?,
            Request::Slice(order) => {
                return self.slice(order).map(|m| Response::Sliced(Box::new(m)));
            }
            Request::FreeStatements => self.clients.free_statements()?,
            Request::Remove => self.engine.drop_schema().map_err(|error| error.to_string())?,
        }
        Ok(Response::Done)
    }

    /// Runs a step of the insert benchmark and tells of each second.
    fn insert_step(
        &mut self,
        order: &InsertStep,
        responses: &mut impl Write,
    ) -> Result<Response, String> {
        let Self { monitor, insert, .. } = self;
        let insert = insert.as_mut().ok_or(NOT_FOR_INSERTS)?;
        let mut own = None;
        if insert.is_embedded() {
            own = ProcessTree::of(std::process::id()).ok();
        }
        let family = own.as_mut().or(monitor.as_mut().map(ServerMonitor::family));
        let measured = insert.step(order, family, &mut |second| {
            send(responses, &Response::Second(Box::new(second)))
        })?;
        Ok(Response::Stepped(Box::new(measured)))
    }

    /// Runs a slice; what a server spends is read before its lead-in, between that and its timed
    /// part, and after that.
    fn slice(&mut self, order: SliceRequest) -> Result<SliceMeasured, String> {
        let Some(monitor) = &mut self.monitor else {
            return self.clients.slice(Part::Whole, order);
        };
        let background = monitor.background();
        self.clients.slice(Part::LeadIn, order)?;
        let started = monitor.start(background);
        let measured = self.clients.slice(Part::Timed, order)?;
        let Ended { server, counts, energy } = monitor.end(started);
        Ok(SliceMeasured { server, counts, energy, ..measured })
    }

    /// An embedded engine has a cache per connection; a server has one for all.
    fn warm(&self) -> Result<(), String> {
        let (engine, tables) = (self.engine.clone(), self.tables.clone());
        let chore = move |connection: &mut E::Connection| {
            engine.warm(connection, &tables).map_err(|error| error.to_string())
        };
        if E::SHARES_CACHE { self.clients.first(chore) } else { self.clients.each(chore) }
    }

    fn load(&self, open: &Open) -> Result<(), String> {
        for (number, table) in (0..).zip(&self.tables) {
            let mut rows = Rows::of_table(open.seed, number, open.rows);
            let (engine, table) = (self.engine.clone(), table.clone());
            self.clients.first(move |connection| {
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
                loaded.map_err(|error| error.to_string())
            })?;
        }
        Ok(())
    }

    fn state_snapshot(&self) -> Result<StateSnapshot, String> {
        let (engine, tables) = (self.engine.clone(), self.tables.clone());
        let (tell, told) = channel();
        self.clients.first(move |connection| {
            let state_snapshot = engine.state_snapshot(connection, &tables);
            let state_snapshot = state_snapshot.map_err(|error| error.to_string())?;
            tell.send(state_snapshot).map_err(|error| error.to_string())
        })?;
        told.recv().map_err(|error| error.to_string())
    }
}

fn tables(open: &Open) -> Vec<Table> {
    let of_sales = |table| {
        let [index, ..] = insert::indexes(table);
        Table { name: insert::table_name(table), index: index.name }
    };
    match open.insert {
        Some(_) => (0..open.tables).map(of_sales).collect(),
        None => (0..open.tables)
            .map(|table| Table { name: table_name(table), index: index_name(table) })
            .collect(),
    }
}

fn failed(message: String) -> Response {
    Response::Failed(Failed { message })
}

fn receive(requests: &mut impl BufRead) -> Result<Option<Request>, String> {
    let mut line = String::new();
    match requests.read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line)
            .map(Some)
            .map_err(|error| format!("this is no request of this version: {error}")),
        Err(error) => Err(format!("reading a request: {error}")),
    }
}

fn send(responses: &mut impl Write, response: &Response) -> Result<(), String> {
    let mut line = serde_json::to_vec(response).map_err(|error| error.to_string())?;
    line.push(b'\n');
    responses
        .write_all(&line)
        .and_then(|()| responses.flush())
        .map_err(|error| format!("sending a response: {error}"))
}
