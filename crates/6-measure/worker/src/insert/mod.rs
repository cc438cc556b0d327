//! Steps of the insert benchmark on one instance: threads that insert and query, and a sampler that
//! reports every second.

mod sampler;
mod threads;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;
use std::sync::atomic::AtomicI64;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use dbdyno_drivers::Connection;
use dbdyno_engines::InsertEngine;
use dbdyno_machine::{clock, set_minimal_timer_slack};
use dbdyno_types::ClientWait;
use dbdyno_types::insert::StepMeasured;
use dbdyno_units::Nanos;
use dbdyno_workloads::insert::{
    Inserts as InsertTask, Mix, Plan, RowStream, Task, indexes, table_name, table_of,
};
use dbdyno_workloads::seeds::{Purpose, rng_for};

use crate::error::RequestError;
use crate::protocol::InsertStep;
use sampler::{ClientProgress, Sampler, Stop, add_thread};
use threads::{CommitTimes, Oldest, Pace, Reader, Writer, described};

pub(crate) use sampler::{LocalSystem, RemoteServer, StepLink};

/// The insert benchmark on one instance. Connections stay open between steps, which keeps their
/// caches.
pub(crate) struct InsertBenchmark<E: InsertEngine> {
    engine: E,
    plan: Plan,
    seed: u64,
    /// How clients wait until a commit is due.
    wait: ClientWait,
    /// Connections of the inserting threads, one per client.
    writers: Vec<E::Connection>,
    /// Connections of the querying threads.
    readers: Vec<E::Connection>,
}

/// The work of one thread, from its start time until it is done or stopped.
type Work<'a> = Box<dyn FnOnce(Nanos, &Stop) -> Result<StepMeasured, RequestError> + Send + 'a>;

impl<E: InsertEngine> InsertBenchmark<E> {
    pub fn new(engine: E, plan: Plan, seed: u64, wait: ClientWait) -> Self {
        Self { engine, plan, seed, wait, writers: Vec::new(), readers: Vec::new() }
    }

    pub fn create_tables(&mut self) -> Result<(), RequestError> {
        let connection = &mut self.engine.connect_to_administer().map_err(described)?;
        for table in 0..self.plan.tables {
            let name = table_name(table);
            let sql = self.engine.table_sql(&name);
            self.engine.create_table(connection, &name, &sql).map_err(described)?;
        }
        Ok(())
    }

    fn connect(&mut self, writers: u32, readers: u32) -> Result<(), RequestError> {
        let engine = &self.engine;
        while self.writers.len() < writers as usize {
            // Without time limits of statements, which may create indexes.
            self.writers.push(engine.connect_for_setup().map_err(described)?);
        }
        while self.readers.len() < readers as usize {
            self.readers.push(engine.connect().map_err(described)?);
        }
        Ok(())
    }

    pub fn step(
        &mut self,
        request: &InsertStep,
        link: &mut dyn StepLink,
    ) -> Result<StepMeasured, RequestError> {
        let number = request.step as usize;
        let task = self.plan.steps.get(number).ok_or("there is no such step")?.task;
        let clients = self.plan.clients;
        match task {
            Task::Insert(_) => self.connect(clients, 0)?,
            Task::Mix(_) => self.connect(clients, clients)?,
            Task::Index => self.connect(self.plan.tables, 0)?,
            Task::Settle => self.connect(1, 0)?,
        }
        let progress: Vec<ClientProgress> =
            (0..clients).map(|_| ClientProgress::default()).collect();
        let mut work = match task {
            Task::Insert(inserts) => self.inserts(request, inserts, &progress)?,
            Task::Mix(mix) => self.mix(request, mix, &progress)?,
            Task::Index => self.index(),
            Task::Settle => self.settle(),
        };
        let outcome = Sampler::start(!E::SHARES_CACHE, link)
            .and_then(|sampler| run(&mut work, sampler, &progress, link));
        drop(work);
        for connection in self.writers.iter_mut().chain(&mut self.readers) {
            connection.close_statements();
        }
        outcome
    }

    fn stream(&self, request: &InsertStep, client: u32) -> RowStream {
        RowStream::new(self.seed, request.repeat, request.step, client, self.plan.data_length)
    }

    fn inserts<'a>(
        &'a mut self,
        request: &InsertStep,
        inserts: InsertTask,
        progress: &'a [ClientProgress],
    ) -> Result<Vec<Work<'a>>, RequestError> {
        let InsertTask { rows_per_client, rows_per_commit, indexed } = inserts;
        let streams: Vec<RowStream> =
            (0..self.plan.clients).map(|client| self.stream(request, client)).collect();
        let deletes = self.plan.delete_per_insert && indexed;
        let fronts = if deletes { Some(self.fronts()?) } else { None };
        let mut work: Vec<Work<'a>> = Vec::new();
        let connections = self.writers.iter_mut().zip(progress).zip(streams);
        for (client, ((connection, progress), stream)) in (0..).zip(connections) {
            let table = table_of(client, self.plan.tables);
            let oldest = fronts.as_ref().map(|fronts| fronts[&table].0.clone());
            let most = E::rows_per_statement(self.plan.data_length);
            let name = table_name(table);
            let mut writer = Writer::new(connection, name, stream, rows_per_commit, most, oldest)
                .map_err(described)?;
            work.push(Box::new(move |start, stop| {
                writer.work(Pace::Rows(rows_per_client), start, progress, stop)
            }));
        }
        Ok(work)
    }

    fn mix<'a>(
        &'a mut self,
        request: &InsertStep,
        mix: Mix,
        progress: &'a [ClientProgress],
    ) -> Result<Vec<Work<'a>>, RequestError> {
        let Mix { rate, rows_per_commit, time, queries } = mix;
        let (clients, wait) = (self.plan.clients, self.wait);
        let streams: Vec<RowStream> =
            (0..clients).map(|client| self.stream(request, client)).collect();
        let fronts = self.fronts()?;
        let mut work: Vec<Work<'a>> = Vec::new();
        let connections = self.writers.iter_mut().zip(&mut self.readers).zip(progress).zip(streams);
        for (client, (((writer, reader), progress), stream)) in (0..).zip(connections) {
            let table = table_of(client, self.plan.tables);
            let (oldest, newest) = fronts[&table].clone();
            let name = table_name(table);
            let InsertStep { repeat, step, .. } = *request;
            let rng = rng_for(self.seed, Purpose::Queries { repeat, step, client });
            let mut reader = Reader::new(reader, &name, queries, rng, (oldest.clone(), newest))
                .map_err(described)?;
            let deletes = self.plan.delete_per_insert.then_some(oldest);
            let most = E::rows_per_statement(self.plan.data_length);
            let mut writer = Writer::new(writer, name, stream, rows_per_commit, most, deletes)
                .map_err(described)?;
            work.push(Box::new(move |start, stop| {
                set_minimal_timer_slack();
                let due = CommitTimes::new(start, rows_per_commit, rate, (client, clients));
                writer.work(Pace::Rate { due, end: start + time, wait }, start, progress, stop)
            }));
            work.push(Box::new(move |start, stop| {
                reader.work(start + time, start, progress, stop)
            }));
        }
        Ok(work)
    }

    /// The oldest row of each table, advanced by deletes, and the newest.
    fn fronts(&mut self) -> Result<BTreeMap<u32, (Oldest, i64)>, RequestError> {
        let mut fronts = BTreeMap::new();
        for table in 0..self.plan.tables {
            let keys =
                self.engine.keys(&mut self.writers[0], &table_name(table)).map_err(described)?;
            let (oldest, newest) = keys.unwrap_or((1, 1));
            fronts.insert(table, (Oldest::new(AtomicI64::new(oldest)), newest));
        }
        Ok(fronts)
    }

    fn index(&mut self) -> Vec<Work<'_>> {
        let mut of_tables: Vec<Vec<String>> = (0..self.plan.tables)
            .map(|table| {
                let sql = |index: dbdyno_workloads::insert::Index| {
                    let columns = index.columns.join(", ");
                    format!("CREATE INDEX {} ON {} ({columns})", index.name, table_name(table))
                };
                indexes(table).into_iter().map(sql).collect()
            })
            .collect();
        if !E::CONCURRENT_INDEX_BUILDS {
            of_tables = vec![of_tables.concat()];
        }
        let work = self.writers.iter_mut().zip(of_tables);
        work.map(|(connection, statements)| -> Work<'_> {
            Box::new(move |start, stop| {
                for sql in statements {
                    if stop.is_set() {
                        break;
                    }
                    connection.run(&sql).map_err(described)?;
                }
                Ok(StepMeasured { wall: clock::monotonic() - start, ..StepMeasured::default() })
            })
        })
        .collect()
    }

    fn settle(&mut self) -> Vec<Work<'_>> {
        let engine = self.engine.clone();
        let connection = &mut self.writers[0];
        vec![Box::new(move |start, _| {
            engine.settle(connection).map_err(described)?;
            Ok(StepMeasured { wall: clock::monotonic() - start, ..StepMeasured::default() })
        })]
    }
}

/// Runs all work concurrently, one thread each, and reports each second.
fn run(
    work: &mut Vec<Work<'_>>,
    mut sampler: Sampler,
    progress: &[ClientProgress],
    link: &mut dyn StepLink,
) -> Result<StepMeasured, RequestError> {
    let stop = Stop::default();
    let (start_line, end_line) = (RwLock::new(()), RwLock::new(()));
    let (done, outcomes) = channel();
    let mut total = StepMeasured::default();
    let mut failure = None;
    std::thread::scope(|scope| {
        let (closed, alive) = (start_line.write(), end_line.write());
        let mut running = 0;
        for work in work.drain(..) {
            let (stop, lines, done) = (&stop, (&start_line, &end_line), done.clone());
            let thread = move || thread(work, stop, lines, &done);
            match std::thread::Builder::new().spawn_scoped(scope, thread) {
                Ok(_) => running += 1,
                Err(why) => {
                    failure = Some(format!("cannot create the thread of a client: {why}").into());
                    stop.set();
                    break;
                }
            }
        }
        drop(closed);
        while running > 0 {
            let timeout = sampler.next_at().saturating_sub(clock::monotonic());
            match outcomes.recv_timeout(timeout.into()) {
                Ok(Ok(measured)) => {
                    running -= 1;
                    add_thread(&mut total, &measured);
                }
                Ok(Err(why)) => {
                    running -= 1;
                    failure.get_or_insert(why);
                    stop.set();
                }
                Err(RecvTimeoutError::Timeout) => {
                    let second = sampler.second(progress, link);
                    if let Err(why) = second.and_then(|second| link.report(second)) {
                        failure.get_or_insert(why);
                        stop.set();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The threads are still alive, so that their usage can be read.
        if failure.is_none() {
            let short = sampler.is_at_end();
            let last = sampler.second(progress, link);
            sampler.finish(&mut total);
            failure = match last {
                Ok(last) if !short => link.report(last).err(),
                Ok(_) => None,
                Err(why) => Some(why),
            };
        }
        drop(alive);
    });
    failure.map_or(Ok(total), Err)
}

fn thread(
    work: Work<'_>,
    stop: &Stop,
    (start_line, end_line): (&RwLock<()>, &RwLock<()>),
    done: &Sender<Result<StepMeasured, RequestError>>,
) {
    drop(start_line.read());
    let start = clock::monotonic();
    // The receiver needs an outcome even after a panic.
    let outcome = catch_unwind(AssertUnwindSafe(|| work(start, stop)))
        .unwrap_or_else(|_| Err("a client's thread has panicked".into()));
    // Without a receiver, the step was aborted.
    let _ = done.send(outcome);
    drop(end_line.read());
}
