//! All clients of a worker, on a few threads that are told what to do through channels.

use std::marker::PhantomData;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use dbdyno_drivers::Connection;
use dbdyno_machine::tsc::TickSource;
use dbdyno_record::SliceMeasured;

use super::client::{Client, ClientSetup};
use super::client_driver::ClientDriver;
use super::meter::Meter;
use crate::protocol::Prepare;
use crate::slice::SliceRequest;

/// Work between slices, on one client's connection.
type Chore<C> = Box<dyn FnOnce(&mut C) -> Result<(), String> + Send>;

enum Command<C> {
    /// For the first so many of the thread's clients; the others rest.
    Prepare(usize, Arc<Prepare>),
    Slice(Part, SliceRequest, Arc<Barrier>),
    FreeStatements,
    /// On the connection of the thread's client of this number.
    Chore(usize, Chore<C>),
}

/// The part of a slice to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    LeadIn,
    Timed,
}

type Outcome = Result<SliceMeasured, String>;

struct Thread<C> {
    commands: Option<Sender<Command<C>>>,
    outcomes: Receiver<Outcome>,
    handle: Option<JoinHandle<()>>,
}

/// The clients of one instance. Client number n is on thread n modulo the number of threads.
pub(super) struct Clients<C, D, T> {
    threads: Vec<Thread<C>>,
    connections: usize,
    /// Clients of the microbenchmark that was prepared last.
    active: usize,
    kinds: PhantomData<(D, T)>,
}

impl<C: Connection + Send + 'static, D: ClientDriver<C>, T: TickSource> Clients<C, D, T> {
    /// Spreads the connections over so many threads. `inside` says that what the
    /// CPU and the kernel count for these threads is to be known: the system under test is in them.
    pub fn start(
        connections: Vec<C>,
        threads: usize,
        inside: bool,
        setup: ClientSetup,
    ) -> std::io::Result<Self> {
        let count = connections.len();
        let threads = threads.clamp(1, count.max(1));
        let mut of_threads: Vec<Vec<Client<C>>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, connection) in (0..).zip(connections) {
            let client = Client::new(connection, ClientSetup { number, ..setup });
            of_threads[number as usize % threads].push(client);
        }
        let threads = of_threads
            .into_iter()
            .enumerate()
            .map(|(number, clients)| Thread::start::<D, T>(number, inside, clients))
            .collect::<std::io::Result<_>>()?;
        Ok(Self { threads, connections: count, active: count, kinds: PhantomData })
    }

    /// Prepares a microbenchmark for as many clients as it wants.
    pub fn prepare(&mut self, prepare: Prepare) -> Result<(), String> {
        self.free_statements()?;
        let (wanted, connections) = (prepare.clients as usize, self.connections);
        if wanted == 0 || wanted > connections {
            return Err(format!("{wanted} clients are wanted, and there are {connections}"));
        }
        self.active = wanted;
        let prepare = Arc::new(prepare);
        self.all(self.busy_threads(), |number| {
            // Of the clients number, number + threads, number + 2 × threads, … those below `active`.
            let clients = (wanted - number).div_ceil(self.threads.len());
            Command::Prepare(clients, Arc::clone(&prepare))
        })
        .map(drop)
    }

    /// Runs a part of a slice on all clients at once.
    pub fn slice(&self, part: Part, order: SliceRequest) -> Outcome {
        // Clients that start a slice together compete from its first event to its last.
        let busy = self.busy_threads();
        let start_line = Arc::new(Barrier::new(busy));
        let mut measured =
            self.all(busy, |_| Command::Slice(part, order, Arc::clone(&start_line)))?.into_iter();
        let mut total = measured.next().ok_or("a worker needs a client")?;
        measured.for_each(|thread| total.merge(thread));
        Ok(total)
    }

    /// Frees all prepared statements.
    pub fn free_statements(&self) -> Result<(), String> {
        self.all(self.threads.len(), |_| Command::FreeStatements).map(drop)
    }

    /// Does `chore` on every connection, one after another.
    pub fn each(
        &self,
        chore: impl Fn(&mut C) -> Result<(), String> + Clone + Send + 'static,
    ) -> Result<(), String> {
        (0..self.connections).try_for_each(|client| self.on(client, chore.clone()))
    }

    /// Does `chore` on the first client's connection.
    pub fn first(
        &self,
        chore: impl FnOnce(&mut C) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        self.on(0, chore)
    }

    fn on(
        &self,
        client: usize,
        chore: impl FnOnce(&mut C) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let thread = &self.threads[client % self.threads.len()];
        thread.send(Command::Chore(client / self.threads.len(), Box::new(chore)))?;
        thread.outcome().map(drop)
    }

    /// Threads that have a client of the prepared microbenchmark.
    fn busy_threads(&self) -> usize {
        self.threads.len().min(self.active)
    }

    /// Sends the first threads a command each and waits for all of them, also when one fails.
    fn all(
        &self,
        threads: usize,
        command: impl Fn(usize) -> Command<C>,
    ) -> Result<Vec<SliceMeasured>, String> {
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
    ) -> std::io::Result<Self> {
        let (commands, to_do) = channel::<Command<C>>();
        let (done, outcomes) = channel();
        let mut drive = D::new(&mut clients)?;
        let mut active = 0;
        let work = move || {
            let meter = if inside { Meter::of_this_thread(number == 0) } else { Meter::none() };
            for command in to_do {
                let outcome = match command {
                    Command::Prepare(wanted, prepare) => {
                        active = wanted;
                        let Prepare { microbenchmark, position, .. } = &*prepare;
                        nothing(clients[..active].iter_mut().try_for_each(|client| {
                            let prepared = client.prepare(microbenchmark, *position);
                            prepared.map_err(|error| error.to_string())
                        }))
                    }
                    Command::Slice(part, order, start_line) => {
                        start_line.wait();
                        slice::<C, D, T>(&mut drive, &mut clients[..active], &meter, part, order)
                    }
                    Command::FreeStatements => {
                        clients.iter_mut().for_each(Client::free_statements);
                        Ok(SliceMeasured::default())
                    }
                    Command::Chore(client, chore) => nothing(chore(clients[client].connection())),
                };
                if done.send(outcome).is_err() {
                    break;
                }
            }
        };
        let handle = std::thread::Builder::new().name(format!("clients-{number}")).spawn(work)?;
        Ok(Self { commands: Some(commands), outcomes, handle: Some(handle) })
    }

    fn send(&self, command: Command<C>) -> Result<(), String> {
        let gone = || "a client's thread has ended".to_owned();
        self.commands.as_ref().ok_or_else(gone)?.send(command).map_err(|_| gone())
    }

    fn outcome(&self) -> Outcome {
        self.outcomes.recv().unwrap_or_else(|_| Err("a client's thread has ended".to_owned()))
    }
}

fn slice<C, D: ClientDriver<C>, T: TickSource>(
    drive: &mut D,
    clients: &mut [Client<C>],
    meter: &Meter,
    part: Part,
    order: SliceRequest,
) -> Outcome {
    if part != Part::Timed {
        drive.lead_in::<T>(clients, order)?;
    }
    if part == Part::LeadIn {
        return Ok(SliceMeasured::default());
    }
    drive.timed::<T>(clients, order, meter)
}

fn nothing(done: Result<(), String>) -> Outcome {
    done.map(|()| SliceMeasured::default())
}

impl<C> Drop for Thread<C> {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(handle) = self.handle.take() {
            // A client that panicked has been reported by whoever waited for its outcome.
            let _ = handle.join();
        }
    }
}
