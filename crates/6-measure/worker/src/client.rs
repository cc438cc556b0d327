//! One client and its hot loop.

use std::thread;
use std::time::Duration;

use dbdyno_drivers::{Answer, Connection, Error, NonBlockingConnection, Received};
use dbdyno_machine::tsc::{Calibration, TickSource};
use dbdyno_types::{SliceMeasured, StatementTimes};
use dbdyno_units::{Nanos, Share};
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::events::Events;
use dbdyno_workloads::program::Tables;

use crate::client_context::{ClientContext, Deadline, SliceCounts};
use crate::delay::Delay;
use crate::error::RequestError;
use crate::latency::TickHistogram;
use crate::meter::{Meter, Readings};
use crate::prepared::Prepared;
use crate::protocol::SliceRequest;
use crate::script::{NonBlockingCalls, ScriptClient, ScriptTarget, print};
use crate::waiting::{EventStep, Sleeping, Waiting};

#[derive(Clone, Debug)]
pub struct ClientSetup {
    pub number: u32,
    pub tables: Tables,
    /// Seed of all random draws.
    pub seed: u64,
    /// The length of a tick.
    pub calibration: Calibration,
    /// Work added to slices, as a share of their time.
    pub injected_delay: Option<Share>,
    /// How sysbench scripts are run; `None` if they cannot be.
    pub scripts: Option<ScriptTarget>,
}

/// How far a client came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    Nothing,
    /// An event is in progress.
    Continues,
    /// The deadline has passed, and no event is started.
    Stopped,
    /// The event in progress sleeps, for [`Client::sleep_time`].
    Asleep,
}

/// What a client executes.
enum Work {
    Statements(Box<Prepared>),
    Script(Box<ScriptClient>),
}

impl Work {
    #[inline]
    fn event<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
        waiting: &mut impl Waiting<C>,
    ) -> Result<(), RequestError> {
        match self {
            Self::Statements(prepared) => prepared.event(context, waiting),
            Self::Script(script) => waiting.script_event(script, context),
        }
    }

    /// Runs one event of another stream, with counts of its own. A script has no other stream.
    fn event_of<C: Connection>(
        &mut self,
        (events, counts): (&mut Events, &mut SliceCounts),
        context: &mut ClientContext<C>,
        waiting: &mut impl Waiting<C>,
    ) -> Result<(), RequestError> {
        let Self::Statements(prepared) = self else { return Ok(()) };
        std::mem::swap(&mut prepared.events, events);
        std::mem::swap(&mut context.counts, counts);
        let done = prepared.event(context, waiting);
        std::mem::swap(&mut context.counts, counts);
        std::mem::swap(&mut prepared.events, events);
        done
    }

    fn end_lead_in(&mut self, request: SliceRequest) {
        if let Self::Script(script) = self {
            script.end_lead_in(request.lead_in);
        }
    }

    /// Starts an event, or continues one after a sleep.
    #[inline]
    fn begin_event<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
    ) -> Result<EventStep, RequestError> {
        match self {
            Self::Statements(prepared) => prepared.begin_event(context),
            Self::Script(script) => script.begin(context),
        }
    }

    /// Continues an event after an answer.
    #[inline]
    fn received<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
        answer: Result<Answer, Error>,
    ) -> Result<EventStep, RequestError> {
        match self {
            Self::Statements(prepared) => prepared.received(context, answer),
            Self::Script(script) => script.received(context, answer),
        }
    }
}

/// One client: a connection, its prepared microbenchmark, and its measurements.
pub struct Client<C> {
    context: ClientContext<C>,
    setup: ClientSetup,
    prepared: Option<Work>,
    delay: Option<Delay>,
    histogram: TickHistogram,
    /// The connection's count of lock waits at the start of the timed part.
    busy_before: u64,
    /// Values of the unique sequence that scripts of this client have passed.
    passed_unique_values: u32,
    /// The tick at which the current event began.
    event_began: u64,
}

impl<C: Connection> Client<C> {
    pub fn new(connection: C, setup: ClientSetup) -> Self {
        Self {
            context: ClientContext::new(connection),
            setup,
            prepared: None,
            delay: None,
            histogram: TickHistogram::new(),
            busy_before: 0,
            passed_unique_values: 0,
            event_began: 0,
        }
    }

    /// The connection, for work between slices.
    pub fn connection(&mut self) -> &mut C {
        &mut self.context.connection
    }

    /// Prepares every statement of `microbenchmark` for every table, or starts its script as one of `clients`.
    pub fn prepare(
        &mut self,
        microbenchmark: &Microbenchmark,
        position: u32,
        clients: u32,
    ) -> Result<(), RequestError> {
        if self.setup.number == 0 {
            self.init(microbenchmark, position, clients)?;
        }
        self.begin_preparing(microbenchmark, position, clients)?;
        while let Some(time) = self.continue_preparing(None)? {
            thread::sleep(time);
        }
        Ok(())
    }

    /// Runs the `init` of a script, before clients prepare.
    pub(crate) fn init(
        &mut self,
        microbenchmark: &Microbenchmark,
        position: u32,
        clients: u32,
    ) -> Result<(), RequestError> {
        let ClientSetup { seed, scripts, .. } = &self.setup;
        match microbenchmark.script.as_ref().zip(scripts.as_ref()) {
            Some((script, target)) => {
                let context = &mut self.context;
                ScriptClient::init(context, script, target, clients, position, *seed)
            }
            None => Ok(()),
        }
    }

    /// Prepares statements, or loads a script, whose `thread_init` then runs in [`Self::continue_preparing`].
    pub(crate) fn begin_preparing(
        &mut self,
        microbenchmark: &Microbenchmark,
        position: u32,
        clients: u32,
    ) -> Result<(), RequestError> {
        self.free_statements();
        let ClientSetup { number, tables, seed, scripts, injected_delay, .. } = self.setup.clone();
        let context = &mut self.context;
        self.prepared = Some(match &microbenchmark.script {
            None => {
                let connection = &mut context.connection;
                let prepared =
                    Prepared::new(connection, microbenchmark, tables, (number, clients), position)?;
                self.delay = injected_delay.map(|share| Delay::new(share, &prepared.events));
                Work::Statements(Box::new(prepared))
            }
            Some(script) => {
                let target = scripts.ok_or("sysbench scripts cannot run on this system")?;
                let client = (number, clients, self.passed_unique_values);
                let script = ScriptClient::new(context, script, target, client, position, seed)?;
                self.delay = injected_delay.map(Delay::waiting);
                Work::Script(Box::new(script))
            }
        });
        Ok(())
    }

    /// Runs the `thread_init` of a script until others have a turn: for how long, or `None` at the end.
    pub(crate) fn continue_preparing(
        &mut self,
        calls: Option<NonBlockingCalls<C>>,
    ) -> Result<Option<Duration>, RequestError> {
        match &mut self.prepared {
            Some(Work::Script(script)) => script.start(&mut self.context, calls),
            _ => Ok(None),
        }
    }

    /// Gives up a script that has not started, without its `thread_done`.
    pub(crate) fn discard_script(&mut self) {
        self.prepared = None;
    }

    /// Ends what was prepared: runs the `thread_done` of a script, and frees the statements.
    pub fn free_statements(&mut self) {
        while let Some(time) = self.end_script(None) {
            thread::sleep(time);
        }
        self.prepared = None;
        self.context.connection.close_statements();
    }

    /// Ends a script with its `thread_done`, whose error is logged: all events are measured. Returns for
    /// how long others have a turn, or `None` at the end.
    pub(crate) fn end_script(&mut self, calls: Option<NonBlockingCalls<C>>) -> Option<Duration> {
        let Some(Work::Script(script)) = &mut self.prepared else { return None };
        match script.finish(&mut self.context, calls) {
            Ok(None) => {}
            Ok(others) => return others,
            Err(error) => print(&format!("thread_done of client {}: {error}", self.setup.number)),
        }
        self.passed_unique_values = script.passed_unique_values();
        self.prepared = None;
        None
    }

    /// Runs one slice of the prepared microbenchmark, with response times in ticks of `T`.
    pub fn slice<T: TickSource>(
        &mut self,
        request: SliceRequest,
    ) -> Result<SliceMeasured, RequestError> {
        self.lead_in::<T>(request, &mut Sleeping)?;
        self.timed::<T>(request, &Meter::none(), &mut Sleeping)
    }

    /// Runs the lead-in of a slice.
    pub(crate) fn lead_in<T: TickSource>(
        &mut self,
        request: SliceRequest,
        waiting: &mut impl Waiting<C>,
    ) -> Result<(), RequestError> {
        self.start_block(request)?;
        let Some(lead_in) = request.lead_in else { return Ok(()) };
        let Self { context, setup, prepared, .. } = self;
        let prepared = prepared.as_mut().ok_or(NOT_PREPARED)?;
        let deadline = Deadline::of::<T>(lead_in, setup.calibration);
        while !deadline.is_over(&context.counts, T::now()) {
            prepared.event(context, waiting)?;
            context.counts.events += 1;
        }
        context.counts.start_counting();
        Ok(())
    }

    /// Runs the timed part of a slice.
    pub(crate) fn timed<T: TickSource>(
        &mut self,
        request: SliceRequest,
        meter: &Meter,
        waiting: &mut impl Waiting<C>,
    ) -> Result<SliceMeasured, RequestError> {
        let Self { context, setup, prepared, delay, histogram, .. } = self;
        let prepared = prepared.as_mut().ok_or(NOT_PREPARED)?;
        prepared.end_lead_in(request);
        let busy_before = context.connection.busy_retries();
        let readings = Readings::now(meter);
        let start = T::now();
        let mut last = start;
        let deadline = Deadline::of::<T>(request.quota, setup.calibration);
        loop {
            prepared.event(context, waiting)?;
            let mut now = T::now();
            if let Some(delay) = &mut *delay {
                now = delay.after_event::<T>(now, |events, counts| {
                    prepared.event_of((events, counts), context, waiting)
                })?;
            }
            histogram.record(now.saturating_sub(last));
            last = now;
            context.counts.events += 1;
            if deadline.is_over(&context.counts, now) {
                break;
            }
        }
        if let Some(delay) = &mut *delay {
            let additional = delay.settle::<T>(context.counts.events, start, last);
            context.counts.add_problems(additional);
        }
        let wall = dbdyno_machine::clock::monotonic() - readings.started;
        let mut measured = context.counts.finish(wall);
        readings.finish(&mut measured);
        measured.polling = waiting.polling(last.saturating_sub(start), measured.cpu);
        measured.busy_retries += context.connection.busy_retries() - busy_before;
        measured.latencies = histogram.drain(|ticks| setup.calibration.to_nanos(ticks));
        measured.statement_times =
            self.take_statement_times((measured.events, measured.statements));
        Ok(measured)
    }

    /// The response times of a script's statements in the slice that has ended, with these numbers of events and
    /// statements.
    pub(crate) fn take_statement_times(&mut self, counts: (u64, u64)) -> Vec<StatementTimes> {
        match &mut self.prepared {
            Some(Work::Script(script)) => script.take_times(counts),
            _ => Vec::new(),
        }
    }

    /// Prepares for a slice's lead-in.
    pub(crate) fn start_block(&mut self, request: SliceRequest) -> Result<(), RequestError> {
        let seed = self.setup.seed;
        let position = match self.prepared.as_mut().ok_or(NOT_PREPARED)? {
            Work::Statements(prepared) => {
                prepared.events.start_block(seed, prepared.position, request.block);
                prepared.position
            }
            Work::Script(script) => {
                script.start_block(&mut self.context, seed, request)?;
                0
            }
        };
        if let Some(delay) = &mut self.delay {
            delay.start_block(seed, position, request.block);
        }
        self.context.counts = SliceCounts::default();
        // A slice that failed leaves some.
        self.histogram.clear();
        Ok(())
    }
}

/// Single steps, for a thread that drives several clients.
impl<C: NonBlockingConnection> Client<C> {
    /// The length of a tick.
    pub(crate) const fn calibration(&self) -> Calibration {
        self.setup.calibration
    }

    /// The connection, to wait until it is readable.
    pub(crate) const fn readable(&self) -> &C {
        &self.context.connection
    }

    /// Prepares for a slice's timed part.
    pub(crate) fn start_counting(&mut self, request: SliceRequest) {
        self.prepared.iter_mut().for_each(|work| work.end_lead_in(request));
        self.context.counts.start_counting();
        self.busy_before = self.context.connection.busy_retries();
    }

    /// Starts an event, and the next ones if it is complete immediately and the deadline has not passed.
    #[inline]
    pub(crate) fn begin_events<T: TickSource>(
        &mut self,
        deadline: Deadline,
        histogram: &mut TickHistogram,
        mut now: u64,
    ) -> Result<Advance, RequestError> {
        loop {
            let Self { context, prepared, .. } = self;
            self.event_began = now;
            match prepared.as_mut().ok_or(NOT_PREPARED)?.begin_event(context)? {
                EventStep::Complete => {}
                EventStep::Waiting => return Ok(Advance::Continues),
                EventStep::Asleep => return Ok(Advance::Asleep),
            }
            now = T::now();
            if self.end_event(deadline, histogram, now) {
                return Ok(Advance::Stopped);
            }
        }
    }

    /// Reads what has arrived, without blocking. After an answer, continues the current event, and starts the
    /// next one if it is complete and the deadline has not passed.
    #[inline]
    pub(crate) fn advance<T: TickSource>(
        &mut self,
        deadline: Deadline,
        histogram: &mut TickHistogram,
    ) -> Result<Advance, RequestError> {
        let Self { context, prepared, .. } = self;
        let answer = match context.connection.receive_available() {
            Ok(Received::Nothing) => return Ok(Advance::Nothing),
            Ok(Received::Part) => return Ok(Advance::Continues),
            Ok(Received::Answer(answer)) => Ok(answer),
            Err(error) => Err(error),
        };
        let prepared = prepared.as_mut().ok_or(NOT_PREPARED)?;
        let step = prepared.received(context, answer)?;
        self.after::<T>(step, deadline, histogram)
    }

    /// Continues an event that has slept, as [`Self::advance`].
    #[cold]
    pub(crate) fn wake<T: TickSource>(
        &mut self,
        deadline: Deadline,
        histogram: &mut TickHistogram,
    ) -> Result<Advance, RequestError> {
        let Self { context, prepared, .. } = self;
        let step = prepared.as_mut().ok_or(NOT_PREPARED)?.begin_event(context)?;
        self.after::<T>(step, deadline, histogram)
    }

    /// Starts the next event if the current one is complete and the deadline has not passed.
    #[inline]
    fn after<T: TickSource>(
        &mut self,
        step: EventStep,
        deadline: Deadline,
        histogram: &mut TickHistogram,
    ) -> Result<Advance, RequestError> {
        match step {
            EventStep::Waiting => Ok(Advance::Continues),
            EventStep::Asleep => Ok(Advance::Asleep),
            EventStep::Complete => {
                let now = T::now();
                if self.end_event(deadline, histogram, now) {
                    return Ok(Advance::Stopped);
                }
                self.begin_events::<T>(deadline, histogram, now)
            }
        }
    }

    /// How long the event sleeps after [`Advance::Asleep`].
    pub(crate) fn sleep_time(&self) -> Duration {
        match &self.prepared {
            Some(Work::Script(script)) => script.sleep_time(),
            _ => Duration::ZERO,
        }
    }

    /// Counts an event. Returns whether the deadline has passed.
    #[inline]
    fn end_event(&mut self, deadline: Deadline, histogram: &mut TickHistogram, now: u64) -> bool {
        histogram.record(now.saturating_sub(self.event_began));
        self.context.counts.events += 1;
        deadline.is_over(&self.context.counts, now)
    }

    /// The client's measurements in the timed part, which took `wall`, without response times.
    pub(crate) fn finish(&mut self, wall: Nanos) -> SliceMeasured {
        let mut measured = self.context.counts.finish(wall);
        measured.busy_retries += self.context.connection.busy_retries() - self.busy_before;
        measured
    }
}

const NOT_PREPARED: &str = "no microbenchmark is prepared";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use dbdyno_machine::tsc::MonotonicTicks;
    use dbdyno_scripts::{Driver, Options, Source};
    use dbdyno_workloads::catalog::Catalog;
    use dbdyno_workloads::definition::Script;

    use super::*;
    use crate::fake_server::{FakeConnection, Reaction};
    use crate::protocol::Quota;

    const SCRIPT: &str = "
function thread_init() con = sysbench.sql.driver():connect() end
function event() con:query('SELECT 1') end
function thread_done() con:query('INSERT INTO ended VALUES (1)') end";

    /// A client that has started the script.
    fn client(driver: Driver, script: &str, seed: u64) -> Client<FakeConnection> {
        let scripts = Some(ScriptTarget {
            driver,
            storage_engine: None,
            access: vec![Arc::default()],
            connections: 1,
            own: Arc::default(),
        });
        let (tables, calibration) = (Tables { count: 1, rows: 1 }, Calibration::NANOS);
        let setup =
            ClientSetup { number: 0, tables, seed, calibration, injected_delay: None, scripts };
        let connection = FakeConnection::new(|_| Reaction::AnswerAfter(Duration::ZERO));
        let mut client = Client::new(connection, setup);
        let source = Source::new("my.lua", script.to_owned(), |_| None).unwrap();
        let script = Some(Script::new(source, Options::new()));
        let of_catalog = Catalog::builtin().get("point-query_range=100").cloned().unwrap();
        client.prepare(&Microbenchmark { script, ..of_catalog }, 0, 1).unwrap();
        client
    }

    #[test]
    fn script_ends_with_its_thread_done() {
        let mut client = client(Driver::MySql, SCRIPT, 5);
        let request = SliceRequest::of(Quota::Events(2));
        client.slice::<MonotonicTicks>(request).unwrap();
        client.free_statements();
        let expected = ["SELECT 1", "SELECT 1", "INSERT INTO ended VALUES (1)"];
        assert_eq!(client.connection().texts, expected);
        client.end_script(None);
        assert_eq!(client.connection().texts.len(), 3, "it has ended");
    }

    #[test]
    fn postgresql_prepares_with_declared_types_or_with_inferred_ones() {
        const SCRIPT: &str = "
function thread_init()
   con = sysbench.sql.driver():connect()
   local kind = sysbench.sql.type
   for _, one in ipairs({ kind.INT, kind.FLOAT, kind.CHAR }) do
      local statement = con:prepare('SELECT 1 + ?')
      statement:bind_param(statement:bind_create(one, 9))
   end
   con:prepare('SELECT 2 + ?'):execute()
end
function event() end";
        let prepared = |driver| client(driver, SCRIPT, 5).connection().texts.clone();
        let expected = [
            "SELECT 1 + CAST(? AS bigint)",
            "SELECT 1 + CAST(? AS double precision)",
            "SELECT 1 + CAST(? AS varchar)",
            "SELECT 1 + ?",
            "SELECT 2 + ?",
        ];
        assert_eq!(prepared(Driver::PostgreSql), expected);
        let inferred = ["SELECT 1 + ?", "SELECT 1 + ?", "SELECT 1 + ?", "SELECT 2 + ?"];
        assert_eq!(prepared(Driver::MySql), inferred);
    }

    #[test]
    fn random_numbers_of_a_starting_script_depend_on_the_seed_and_the_function() {
        const SCRIPT: &str = "
local function draw()
   con = sysbench.sql.driver():connect()
   con:query('SELECT ' .. sysbench.rand.uniform(1, 1000000000))
end
function init() draw() end
function thread_init() draw() end
function event() end";
        let drawn = |seed| client(Driver::MySql, SCRIPT, seed).connection().texts.clone();
        assert_eq!(drawn(5), drawn(5));
        let mut all = [drawn(5), drawn(6)].concat();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4, "{all:?}");
    }
}
