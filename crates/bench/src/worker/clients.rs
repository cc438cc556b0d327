//! All clients of a worker: a thread each, told what to do through a channel.

use std::marker::PhantomData;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use dbdyno_drivers::Connection;
use dbdyno_machine::tsc::TickSource;
use dbdyno_record::SliceMeasured;

use super::client::{Client, ClientSetup};
use crate::protocol::Prepare;
use crate::slice::SliceOrder;

/// Work between slices, on one client's connection.
type Chore<C> = Box<dyn FnOnce(&mut C) -> Result<(), String> + Send>;

enum Command<C> {
    Prepare(Arc<Prepare>),
    Slice(SliceOrder),
    Forget,
    Chore(Chore<C>),
}

type Outcome = Result<SliceMeasured, String>;

struct Thread<C> {
    commands: Option<Sender<Command<C>>>,
    outcomes: Receiver<Outcome>,
    handle: Option<JoinHandle<()>>,
}

/// The clients of one instance.
pub(super) struct Clients<C, T> {
    threads: Vec<Thread<C>>,
    ticks: PhantomData<T>,
}

impl<C: Connection + Send + 'static, T: TickSource> Clients<C, T> {
    /// Starts a thread for each connection.
    pub fn start(connections: Vec<C>, setup: ClientSetup) -> std::io::Result<Self> {
        // Clients that start a slice together compete from its first event to its last.
        let start_line = Arc::new(Barrier::new(connections.len()));
        let threads = (0..)
            .zip(connections)
            .map(|(number, connection)| {
                let client = Client::new(connection, ClientSetup { number, ..setup });
                Thread::start::<T>(number, client, Arc::clone(&start_line))
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Self { threads, ticks: PhantomData })
    }

    /// Prepares a microbenchmark on every connection.
    pub fn prepare(&self, prepare: Prepare) -> Result<(), String> {
        let prepare = Arc::new(prepare);
        self.all(|| Command::Prepare(Arc::clone(&prepare))).map(drop)
    }

    /// Runs one slice on all clients at once.
    pub fn slice(&self, order: SliceOrder) -> Outcome {
        let mut measured = self.all(|| Command::Slice(order))?.into_iter();
        let mut total = measured.next().ok_or("a worker needs a client")?;
        measured.for_each(|client| total.merge(client));
        Ok(total)
    }

    /// Frees all prepared statements.
    pub fn forget(&self) -> Result<(), String> {
        self.all(|| Command::Forget).map(drop)
    }

    /// Does `chore` on every connection, one after another.
    pub fn each(
        &self,
        chore: impl Fn(&mut C) -> Result<(), String> + Clone + Send + 'static,
    ) -> Result<(), String> {
        self.threads.iter().try_for_each(|thread| {
            thread.send(Command::Chore(Box::new(chore.clone())))?;
            thread.outcome().map(drop)
        })
    }

    /// Does `chore` on the first client's connection.
    pub fn first(
        &self,
        chore: impl FnOnce(&mut C) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let thread = self.threads.first().ok_or("a worker needs a client")?;
        thread.send(Command::Chore(Box::new(chore)))?;
        thread.outcome().map(drop)
    }

    /// Sends the command to all and waits for all, also when one fails.
    fn all(&self, command: impl Fn() -> Command<C>) -> Result<Vec<SliceMeasured>, String> {
        self.threads.iter().try_for_each(|thread| thread.send(command()))?;
        let outcomes: Vec<Outcome> = self.threads.iter().map(Thread::outcome).collect();
        outcomes.into_iter().collect()
    }
}

impl<C: Connection + Send + 'static> Thread<C> {
    fn start<T: TickSource>(
        number: u32,
        mut client: Client<C>,
        start_line: Arc<Barrier>,
    ) -> std::io::Result<Self> {
        let (commands, to_do) = channel::<Command<C>>();
        let (done, outcomes) = channel();
        let work = move || {
            for command in to_do {
                let outcome = match command {
                    Command::Prepare(prepare) => client
                        .prepare(&prepare.microbenchmark, prepare.position)
                        .map(|()| SliceMeasured::default())
                        .map_err(|error| error.to_string()),
                    Command::Slice(order) => {
                        start_line.wait();
                        client.slice::<T>(order)
                    }
                    Command::Forget => {
                        client.forget();
                        Ok(SliceMeasured::default())
                    }
                    Command::Chore(chore) => {
                        chore(client.connection()).map(|()| SliceMeasured::default())
                    }
                };
                if done.send(outcome).is_err() {
                    break;
                }
            }
        };
        let handle = std::thread::Builder::new().name(format!("client-{number}")).spawn(work)?;
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

impl<C> Drop for Thread<C> {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(handle) = self.handle.take() {
            // A client that panicked has been reported by whoever waited for its outcome.
            let _ = handle.join();
        }
    }
}
