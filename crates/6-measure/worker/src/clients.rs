//! The clients of a worker, on a few threads that receive commands through channels.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use dbdyno_drivers::Connection;
use dbdyno_machine::tsc::TickSource;
use dbdyno_scripts::take_turns;
use dbdyno_types::{ClientWait, SliceMeasured};

use crate::client::{Client, ClientSetup};
use crate::client_driver::ClientDriver;
use crate::error::RequestError;
use crate::meter::Meter;
use crate::protocol::{Prepare, SliceRequest};

/// Work between slices, on one client's connection.
type Task<C> = Box<dyn FnOnce(&mut C) -> Result<(), RequestError> + Send>;

enum Command<C> {
    /// Run the `init` of a script on the first client.
    Init(Arc<Prepare>),
    /// Prepare this number of the thread's clients, starting with the first. The flag is set if one fails.
    Prepare(usize, Arc<Prepare>, Arc<AtomicBool>),
    /// Run a part of a slice on this number of the thread's clients; the others stay idle.
    Slice(usize, SlicePart, SliceRequest, Arc<Barrier>),
    EndScripts,
    FreeStatements,
    /// Run a task on the connection of the thread's client with this number.
    Run(usize, Task<C>),
}

/// The part of a slice to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlicePart {
    Whole,
    LeadIn,
    Timed,
}

type Outcome = Result<SliceMeasured, RequestError>;

struct Thread<C> {
    commands: Option<Sender<Command<C>>>,
    outcomes: Receiver<Outcome>,
    handle: Option<JoinHandle<()>>,
}

/// The clients of one instance. Client number n is on thread n modulo the number of threads.
pub(crate) struct Clients<C, D, T> {
    threads: Vec<Thread<C>>,
    connections: usize,
    /// Number of clients for which the microbenchmark is prepared.
    prepared: usize,
    kinds: PhantomData<(D, T)>,
}

impl<C: Connection + Send + 'static, D: ClientDriver<C>, T: TickSource> Clients<C, D, T> {
    /// Distributes the connections over `threads` threads, which wait for answers in this way. With
    /// `inside`, the system under test runs in these threads, so counters are read for them.
    pub fn start(
        connections: Vec<C>,
        (threads, wait): (usize, ClientWait),
        inside: bool,
        setup: ClientSetup,
    ) -> std::io::Result<Self> {
        let count = connections.len();
        let threads = threads.clamp(1, count.max(1));
        let mut of_threads: Vec<Vec<Client<C>>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, connection) in (0..).zip(connections) {
            let client = Client::new(connection, ClientSetup { number, ..setup.clone() });
            of_threads[number as usize % threads].push(client);
        }
        let threads = of_threads
            .into_iter()
            .enumerate()
            .map(|(number, clients)| Thread::start::<D, T>(number, inside, clients, wait))
            .collect::<std::io::Result<_>>()?;
        Ok(Self { threads, connections: count, prepared: count, kinds: PhantomData })
    }

    /// Prepares a microbenchmark for the requested number of clients.
    pub fn prepare(&mut self, prepare: Prepare) -> Result<(), RequestError> {
        self.free_statements()?;
        let (clients, connections) = (prepare.clients as usize, self.connections);
        if clients == 0 || clients > connections {
            return Err(format!("{clients} clients requested, {connections} connected").into());
        }
        self.prepared = clients;
        let prepare = Arc::new(prepare);
        self.all(1, |_| Command::Init(Arc::clone(&prepare)))?;
        let failed = Arc::new(AtomicBool::new(false));
        self.all(self.busy_threads(clients), |number| {
            let of_thread = self.of_thread(number, clients);
            Command::Prepare(of_thread, Arc::clone(&prepare), Arc::clone(&failed))
        })
        .map(drop)
    }

    /// Runs a part of a slice on the requested clients concurrently.
    pub fn slice(&self, part: SlicePart, request: SliceRequest) -> Outcome {
        let clients = request.clients.map_or(self.prepared, |clients| clients as usize);
        if clients == 0 || clients > self.prepared {
            return Err(format!("{clients} clients requested, {} prepared", self.prepared).into());
        }
        // Start all clients at the same time, so that they compete from the first event.
        let busy = self.busy_threads(clients);
        let start_line = Arc::new(Barrier::new(busy));
        let slice = |number| {
            let clients = self.of_thread(number, clients);
            Command::Slice(clients, part, request, Arc::clone(&start_line))
        };
        let mut measured = self.all(busy, slice)?.into_iter();
        let mut total = measured.next().ok_or("a worker needs a client")?;
        measured.for_each(|thread| total.merge(thread));
        Ok(total)
    }

    /// Ends scripts. Statements of theirs may still be executed, as after an error in another client: the connections
    /// are to be replaced.
    pub fn end_scripts(&self) -> Result<(), RequestError> {
        self.all(self.threads.len(), |_| Command::EndScripts).map(drop)
    }

    pub fn free_statements(&self) -> Result<(), RequestError> {
        self.all(self.threads.len(), |_| Command::FreeStatements).map(drop)
    }

    /// Runs `task` on every connection, one after another.
    pub fn each(
        &self,
        task: impl Fn(&mut C) -> Result<(), RequestError> + Clone + Send + 'static,
    ) -> Result<(), RequestError> {
        (0..self.connections).try_for_each(|client| self.on(client, task.clone()))
    }

    /// Runs `task` on the connection of a client.
    pub fn on(
        &self,
        client: usize,
        task: impl FnOnce(&mut C) -> Result<(), RequestError> + Send + 'static,
    ) -> Result<(), RequestError> {
        let thread = &self.threads[client % self.threads.len()];
        thread.send(Command::Run(client / self.threads.len(), Box::new(task)))?;
        thread.outcome().map(drop)
    }

    /// Number of threads that have one of the first `clients` clients.
    fn busy_threads(&self, clients: usize) -> usize {
        self.threads.len().min(clients)
    }

    /// Number of the first `clients` clients that a busy thread has: number, number + threads,
    /// number + 2 × threads, …
    fn of_thread(&self, number: usize, clients: usize) -> usize {
        (clients - number).div_ceil(self.threads.len())
    }

    /// Sends a command to each of the first `threads` threads. Waits for all, even if one fails.
    fn all(
        &self,
        threads: usize,
        command: impl Fn(usize) -> Command<C>,
    ) -> Result<Vec<SliceMeasured>, RequestError> {
        let threads = &self.threads[..threads];
        for (number, thread) in threads.iter().enumerate() {
            thread.send(command(number))?;
        }
        let outcomes: Vec<Outcome> = threads.iter().map(Thread::outcome).collect();
        outcomes.into_iter().collect()
    }
}

impl<C: Connection + Send + 'static> Thread<C> {
    fn start<D: ClientDriver<C>, T: TickSource>(
        number: usize,
        inside: bool,
        mut clients: Vec<Client<C>>,
        wait: ClientWait,
    ) -> std::io::Result<Self> {
        let (commands, to_do) = channel::<Command<C>>();
        let (done, outcomes) = channel();
        let mut driver = D::new(&mut clients, wait)?;
        let work = move || {
            let meter = if inside { Meter::of_this_thread(number == 0) } else { Meter::none() };
            for command in to_do {
                let outcome = match command {
                    Command::Init(prepare) => {
                        let Prepare { microbenchmark, position, clients: all } = &*prepare;
                        nothing(clients[0].init(microbenchmark, *position, *all))
                    }
                    Command::Prepare(count, prepare, failed) => {
                        nothing(prepare_all::<C, D>(&mut clients[..count], &prepare, &failed))
                    }
                    Command::Slice(count, part, request, start_line) => {
                        start_line.wait();
                        slice::<C, D, T>(&mut driver, &mut clients[..count], &meter, part, request)
                    }
                    Command::EndScripts => {
                        end_scripts::<C, D>(&mut clients);
                        Ok(SliceMeasured::default())
                    }
                    Command::FreeStatements => {
                        end_scripts::<C, D>(&mut clients);
                        clients.iter_mut().for_each(Client::free_statements);
                        Ok(SliceMeasured::default())
                    }
                    Command::Run(client, task) => {
                        driver.connections_may_change();
                        nothing(task(clients[client].connection()))
                    }
                };
                if done.send(outcome).is_err() {
                    break;
                }
            }
            end_scripts::<C, D>(&mut clients);
        };
        let handle = thread::Builder::new().name(format!("clients-{number}")).spawn(work)?;
        Ok(Self { commands: Some(commands), outcomes, handle: Some(handle) })
    }

    fn send(&self, command: Command<C>) -> Result<(), RequestError> {
        self.commands.as_ref().ok_or(ENDED)?.send(command).map_err(|_| ENDED.into())
    }

    fn outcome(&self) -> Outcome {
        self.outcomes.recv().unwrap_or_else(|_| Err(ENDED.into()))
    }
}

/// Prepares clients in turns: the `thread_init` of a script may wait for what another one does.
fn prepare_all<C: Connection, D: ClientDriver<C>>(
    clients: &mut [Client<C>],
    prepare: &Prepare,
    failed: &AtomicBool,
) -> Result<(), RequestError> {
    let Prepare { microbenchmark, position, clients: all } = prepare;
    let begin = |client: &mut Client<C>| client.begin_preparing(microbenchmark, *position, *all);
    let step = |(): &mut (), client: &mut Client<C>| {
        if failed.load(Ordering::Relaxed) {
            // The client of another thread has the error, and this one may wait for it.
            client.discard_script();
            return Ok(None);
        }
        client.continue_preparing(D::script_calls())
    };
    let begun = clients.iter_mut().try_for_each(begin);
    let prepared =
        begun.and_then(|()| take_turns(&mut (), clients, step, |(), time| thread::sleep(time)));
    if prepared.is_err() {
        failed.store(true, Ordering::Relaxed);
        clients.iter_mut().for_each(Client::discard_script);
    }
    prepared
}

/// Ends scripts in turns, as they start.
fn end_scripts<C: Connection, D: ClientDriver<C>>(clients: &mut [Client<C>]) {
    let step = |(): &mut (), client: &mut Client<C>| {
        Ok::<_, Infallible>(client.end_script(D::script_calls()))
    };
    let Ok(()) = take_turns(&mut (), clients, step, |(), time| thread::sleep(time));
}

/// The error if a thread does not respond.
const ENDED: &str = "a client's thread has ended";

fn slice<C, D: ClientDriver<C>, T: TickSource>(
    driver: &mut D,
    clients: &mut [Client<C>],
    meter: &Meter,
    part: SlicePart,
    request: SliceRequest,
) -> Outcome {
    if part != SlicePart::Timed {
        driver.lead_in::<T>(clients, request)?;
    }
    if part == SlicePart::LeadIn {
        return Ok(SliceMeasured::default());
    }
    driver.timed::<T>(clients, request, meter)
}

fn nothing(done: Result<(), RequestError>) -> Outcome {
    done.map(|()| SliceMeasured::default())
}

impl<C> Drop for Thread<C> {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(handle) = self.handle.take() {
            // A panic has already been reported as an outcome.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use dbdyno_machine::tsc::{Calibration, MonotonicTicks};
    use dbdyno_scripts::{Driver, Options, Source};
    use dbdyno_workloads::catalog::Catalog;
    use dbdyno_workloads::definition::{Microbenchmark, Script};
    use dbdyno_workloads::program::Tables;

    use super::*;
    use crate::client_driver::Epoll;
    use crate::fake_server::{Behaviour, FakeConnection, Reaction};
    use crate::protocol::Quota;
    use crate::script::ScriptTarget;

    /// In each function, every client waits for the next one.
    const WAITS: &str = "
ffi.cdef('int usleep(unsigned int);')
local function meet(what)
   io.open(DIRECTORY .. what .. sysbench.tid, 'w'):close()
   local next = (sysbench.tid + 1) % sysbench.opt.threads
   while true do
      local file = io.open(DIRECTORY .. what .. next)
      if file then return file:close() end
      ffi.C.usleep(200)
   end
end
function init() io.open(DIRECTORY .. 'init', 'w'):close() end
function thread_init()
   con = sysbench.sql.driver():connect()
   io.open(DIRECTORY .. 'init'):close()
   meet('start')
end
local events = 0
function event()
   events = events + 1
   con:query('SELECT 1')
   meet(events .. '-')
   con:query('SELECT 2')
end
function thread_done() meet('end') end";

    fn script(text: &str) -> Microbenchmark {
        let source = Source::new("waits.lua", text.to_owned(), |_| None).unwrap();
        let script = Some(Script::new(source, Options::new()));
        let of_catalog = Catalog::builtin().get("point-query_range=100").cloned().unwrap();
        Microbenchmark { script, ..of_catalog }
    }

    const ALWAYS: Behaviour = |_| Reaction::AnswerAfter(Duration::ZERO);

    type OfThreads = Clients<FakeConnection, Epoll, MonotonicTicks>;

    fn start(count: u32, threads: usize, wait: ClientWait, behaviour: Behaviour) -> OfThreads {
        let scripts = Some(ScriptTarget {
            driver: Driver::MySql,
            storage_engine: None,
            access: vec![Arc::default()],
            connections: count,
            own: Arc::default(),
        });
        let tables = Tables { count: 1, rows: 1 };
        let setup = ClientSetup {
            number: 0,
            tables,
            seed: 5,
            calibration: Calibration::NANOS,
            injected_delay: None,
            scripts,
        };
        let connect = |_| FakeConnection::new(behaviour);
        let connections = (0..count).map(connect).collect();
        Clients::start(connections, (threads, wait), false, setup).unwrap()
    }

    #[test]
    fn clients_of_a_script_that_wait_for_each_other_run_in_turns() {
        for (count, threads) in [(3, 1), (3, 2), (70, 1)] {
            for wait in ClientWait::ALL {
                let dir = tempfile::tempdir().unwrap();
                let directory = format!("DIRECTORY = '{}/'\n", dir.path().display());
                let mut clients = start(count, threads, wait, ALWAYS);
                let microbenchmark = script(&format!("{directory}{WAITS}"));
                let prepare = Prepare { microbenchmark, position: 0, clients: count };
                clients.prepare(prepare).unwrap();
                let request = SliceRequest::of(Quota::Events(2));
                let measured = clients.slice(SlicePart::Whole, request).unwrap();
                let expected = (u64::from(2 * count), u64::from(4 * count));
                assert_eq!((measured.events, measured.statements), expected);
                clients.free_statements().unwrap();
                let last = dir.path().join(format!("end{}", count - 1));
                assert!(last.exists(), "{count} clients on {threads} threads, {wait:?}");
            }
        }
    }

    #[test]
    fn client_that_fails_to_start_ends_those_that_wait_for_it() {
        const FAILS: &str = "
ffi.cdef('int usleep(unsigned int);')
function thread_init()
   if sysbench.tid == 2 then error('no luck') end
   while true do ffi.C.usleep(1000) end
end
function event() end";
        for threads in [1, 2] {
            let mut clients = start(4, threads, ClientWait::Sleep, ALWAYS);
            let microbenchmark = script(FAILS);
            let prepare = Prepare { microbenchmark, position: 0, clients: 4 };
            let error = clients.prepare(prepare).unwrap_err().to_string();
            assert_eq!(error, "waits.lua:4: no luck");
        }
    }

    /// A server with one lock, which the first request of each two waits for and the second one frees.
    fn locking(number: u32) -> Reaction {
        static HELD: Mutex<bool> = Mutex::new(false);
        static FREED: Condvar = Condvar::new();
        let locks = number.is_multiple_of(2);
        *FREED.wait_while(HELD.lock().unwrap(), |held| locks && *held).unwrap() = locks;
        FREED.notify_all();
        Reaction::AnswerAfter(Duration::ZERO)
    }

    #[test]
    fn client_that_sleeps_with_a_lock_continues_while_others_wait_for_it() {
        const LOCKS: &str = "
ffi.cdef('int usleep(unsigned int);')
local function lock()
   con:query('lock')
   ffi.C.usleep(1000)
   con:query('free')
end
function thread_init()
   con = sysbench.sql.driver():connect()
   lock()
end
function event() end
function thread_done() lock() end";
        for threads in [1, 2] {
            let mut clients = start(4, threads, ClientWait::Sleep, locking);
            let microbenchmark = script(LOCKS);
            clients.prepare(Prepare { microbenchmark, position: 0, clients: 4 }).unwrap();
            clients.free_statements().unwrap();
            let check = |connection: &mut FakeConnection| {
                assert_eq!(connection.texts.len(), 4);
                Ok(())
            };
            clients.each(check).unwrap();
        }
    }
}
