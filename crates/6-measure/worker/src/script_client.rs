//! A sysbench script on one connection.

use dbdyno_drivers::{Answer, Connection, Error, NonBlockingConnection};
use dbdyno_scripts::{Client, Progress, START_TIME, ScriptError, Seed, Setup, init};
use dbdyno_workloads::definition::Script;

use crate::client_context::{ClientContext, SliceCounts};
use crate::error::RequestError;
use crate::script_host::{ScriptHost, ScriptStatements, ScriptTarget, SendStatement, set_time};
use crate::waiting::ScriptEvent;

/// Parts of the unique sequence: one for the data, and one for each position in the running order; further
/// positions continue where the client is.
const UNIQUE_PARTS: u32 = 64;

/// Values of a part that belong to a block. Clients that draw more continue behind them; only a restarted
/// worker relies on this.
const UNIQUE_PER_BLOCK: u32 = 1 << 14;

/// In place of a client's number: the random numbers of `init`.
const INIT: u64 = u64::MAX;

/// A script that is ready to run events on one connection.
pub(crate) struct ScriptClient {
    client: Client,
    statements: ScriptStatements,
    target: ScriptTarget,
    number: u32,
    /// Position in the running order: selects the stream of events.
    position: u32,
}

impl ScriptClient {
    /// Loads the script and runs its `thread_init`, and its `init` for the first client, with the experiment's
    /// seed.
    pub fn new<C: Connection>(
        context: &mut ClientContext<C>,
        script: &Script,
        target: ScriptTarget,
        (number, clients, passed): (u32, u32, u32),
        position: u32,
        seed: u64,
    ) -> Result<Self, RequestError> {
        set_time(&mut context.connection, target.driver, START_TIME)?;
        let mut statements = ScriptStatements::new(target.driver);
        let host = &mut ScriptHost { context, statements: &mut statements, send: None };
        let numbers = [seed, position.into(), number.into()];
        let setup = target.setup(script, number, clients, Seed::of(&numbers), passed);
        let source = &script.source;
        if number == 0 {
            let seed = Seed::of(&[seed, position.into(), INIT]);
            init(source, &Setup { seed, ..setup.clone() }, host)?;
        }
        let client = Client::start(source, &setup, host)?;
        Ok(Self { client, statements, target, number, position })
    }

    /// Runs the script's `thread_done`.
    pub fn finish<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
    ) -> Result<(), RequestError> {
        let host = &mut ScriptHost { context, statements: &mut self.statements, send: None };
        Ok(self.client.finish(host)?)
    }

    /// Starts a block: the next event begins with its random numbers.
    pub fn start_block<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
        seed: u64,
        block: u32,
    ) -> Result<(), RequestError> {
        let numbers = [seed, self.position.into(), block.into(), self.number.into()];
        let part = u32::MAX / UNIQUE_PARTS;
        let before = (self.position + 1).min(UNIQUE_PARTS - 1) * part;
        let first_unique = before + block.saturating_mul(UNIQUE_PER_BLOCK).min(part - 1);
        // Each block adds a second.
        let time = START_TIME + f64::from(block);
        set_time(&mut context.connection, self.target.driver, time)?;
        self.client.start_block(Seed::of(&numbers), first_unique, time);
        Ok(())
    }

    /// How many unique values the client has passed.
    pub fn passed_unique_values(&self) -> u32 {
        self.client.unique_position().passed
    }
}

impl<C: Connection> ScriptEvent<C> for ScriptClient {
    #[inline]
    fn run(&mut self, context: &mut ClientContext<C>) -> Result<(), RequestError> {
        let Self { client, statements, .. } = self;
        let progress = client.event(&mut ScriptHost { context, statements, send: None });
        complete(progress, &mut context.counts).map(drop)
    }

    #[inline]
    fn begin(&mut self, context: &mut ClientContext<C>) -> Result<bool, RequestError>
    where
        C: NonBlockingConnection,
    {
        let Self { client, statements, .. } = self;
        let send = Some(C::send as SendStatement<C>);
        let progress = client.event(&mut ScriptHost { context, statements, send });
        complete(progress, &mut context.counts)
    }

    #[inline]
    fn received(
        &mut self,
        context: &mut ClientContext<C>,
        answer: Result<Answer, Error>,
    ) -> Result<bool, RequestError>
    where
        C: NonBlockingConnection,
    {
        let Self { client, statements, .. } = self;
        let send = Some(C::send as SendStatement<C>);
        let host = &mut ScriptHost { context, statements, send };
        let outcome = host.received(answer);
        let progress = client.resume(host, outcome);
        complete(progress, &mut context.counts)
    }
}

/// Whether the event is complete.
#[inline]
fn complete(
    progress: Result<Progress, ScriptError>,
    counts: &mut SliceCounts,
) -> Result<bool, RequestError> {
    match progress {
        Ok(Progress::Event) => Ok(true),
        Ok(Progress::Waiting | Progress::Sleeping) => Ok(false),
        Ok(Progress::Ended) => {
            Err("the script has ended its client: event() returned a value".into())
        }
        Err(error) => {
            counts.errors += 1;
            Err(error.into())
        }
    }
}
