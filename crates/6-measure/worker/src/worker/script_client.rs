//! A sysbench script on one connection.

use dbdyno_drivers::{Answer, Connection, Error, NonBlockingConnection};
use dbdyno_scripts::{Client, Progress, START_TIME, Seed, Setup, init};
use dbdyno_workloads::definition::Script;

use super::error::RequestError;
use super::prepared::ConnectionParams;
use super::script_host::{ScriptHost, ScriptStatements, ScriptTarget, SendStatement};
use super::script_time;
use super::tally::Tally;

/// Parts of the unique sequence: one for the data, and one for each position in the running order; further
/// positions continue where the client is.
const UNIQUE_PARTS: u32 = 64;

/// Values of a part that belong to a block. Clients that draw more continue behind them; only a restarted
/// worker relies on this.
const UNIQUE_PER_BLOCK: u32 = 1 << 14;

/// In place of a client's number: the random numbers of `init`.
const INIT: u64 = u64::MAX;

/// A script that is ready to run events on one connection.
pub(super) struct ScriptClient {
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
        connection: &mut C,
        script: &Script,
        target: ScriptTarget,
        (number, clients, passed): (u32, u32, u32),
        position: u32,
        seed: u64,
    ) -> Result<Self, RequestError> {
        script_time::set(connection, target.driver, START_TIME)?;
        let mut statements = ScriptStatements::new(target.driver);
        let (mut params, mut tally) = (ConnectionParams::default(), Tally::default());
        let host = &mut ScriptHost {
            connection,
            params: &mut params.0,
            tally: &mut tally,
            statements: &mut statements,
            send: None,
        };
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
    pub fn finish<C: Connection>(&mut self, connection: &mut C) -> Result<(), RequestError> {
        let (mut params, mut tally) = (ConnectionParams::default(), Tally::default());
        let host = &mut ScriptHost {
            connection,
            params: &mut params.0,
            tally: &mut tally,
            statements: &mut self.statements,
            send: None,
        };
        Ok(self.client.finish(host)?)
    }

    /// Starts a block: the next event begins with its random numbers.
    pub fn start_block<C: Connection>(
        &mut self,
        connection: &mut C,
        seed: u64,
        block: u32,
    ) -> Result<(), RequestError> {
        let numbers = [seed, self.position.into(), block.into(), self.number.into()];
        let part = u32::MAX / UNIQUE_PARTS;
        let before = (self.position + 1).min(UNIQUE_PARTS - 1) * part;
        let first_unique = before + block.saturating_mul(UNIQUE_PER_BLOCK).min(part - 1);
        // Each block adds a second.
        let time = START_TIME + f64::from(block);
        script_time::set(connection, self.target.driver, time)?;
        self.client.start_block(Seed::of(&numbers), first_unique, time);
        Ok(())
    }

    /// How many unique values the client has passed.
    pub fn passed_unique_values(&self) -> u32 {
        self.client.unique_position().passed
    }

    /// Runs one event.
    #[inline]
    pub fn event<C: Connection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
    ) -> Result<(), RequestError> {
        let Self { client, statements, .. } = self;
        let host =
            &mut ScriptHost { connection, params: &mut params.0, tally, statements, send: None };
        let progress = client.event(host);
        complete(progress, tally).map(drop)
    }

    /// Starts an event and sends its first statement. Returns whether the event is complete already.
    #[inline]
    pub fn begin_event<C: NonBlockingConnection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
    ) -> Result<bool, RequestError> {
        let Self { client, statements, .. } = self;
        let send = Some(C::send as SendStatement<C>);
        let host = &mut ScriptHost { connection, params: &mut params.0, tally, statements, send };
        let progress = client.event(host);
        complete(progress, tally)
    }

    /// Continues an event after an answer. Returns whether the event is complete.
    #[inline]
    pub fn received<C: NonBlockingConnection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
        answer: Result<Answer, Error>,
    ) -> Result<bool, RequestError> {
        let Self { client, statements, .. } = self;
        let send = Some(C::send as SendStatement<C>);
        let host = &mut ScriptHost { connection, params: &mut params.0, tally, statements, send };
        let outcome = host.received(answer);
        let progress = client.resume(host, outcome);
        complete(progress, tally)
    }
}

/// Whether the event is complete.
#[inline]
fn complete(
    progress: Result<Progress, dbdyno_scripts::ScriptError>,
    tally: &mut Tally,
) -> Result<bool, RequestError> {
    match progress {
        Ok(Progress::Event) => Ok(true),
        Ok(Progress::Waiting | Progress::Sleeping) => Ok(false),
        Ok(Progress::Ended) => {
            Err("the script has ended its client: event() returned a value".into())
        }
        Err(error) => {
            tally.errors += 1;
            Err(error.into())
        }
    }
}
