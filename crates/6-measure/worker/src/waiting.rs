//! How a thread waits for answers: asleep, or polling.

use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use dbdyno_drivers::{
    Answer, Connection, Error, NonBlockingConnection, Params, Received, StatementId,
};
use dbdyno_machine::tsc::{Calibration, TickSource};
use dbdyno_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::client_context::ClientContext;
use crate::error::RequestError;
use crate::script::ScriptClient;

/// How long a thread polls without receiving anything before it sleeps. The cost of waking it is
/// small compared with such a statement, and a server that hangs does not keep a CPU busy.
const LIMIT: Nanos = Nanos::from_millis(50);

/// How a client that drives one connection waits for answers.
pub(crate) trait Waiting<C> {
    /// Executes a statement and waits for the answer.
    fn execute(
        &mut self,
        connection: &mut C,
        statement: StatementId,
        params: &Params,
    ) -> Result<Answer, Error>;

    /// Runs an event of a script, which sends its statements itself.
    fn script_event(
        &mut self,
        script: &mut ScriptClient,
        context: &mut ClientContext<C>,
    ) -> Result<(), RequestError>;

    /// The part of the CPU time `cpu` of a thread that was used for polling, if the thread took
    /// `ticks` in all; `None` without polling.
    fn polling(&self, ticks: u64, cpu: Nanos) -> Option<Nanos>;
}

/// How far an event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventStep {
    /// It waits for an answer.
    Waiting,
    Complete,
    /// It sleeps: think time.
    Asleep,
}

/// Sleeps in blocking calls.
pub(crate) struct Sleeping;

impl<C: Connection> Waiting<C> for Sleeping {
    #[inline]
    fn execute(
        &mut self,
        connection: &mut C,
        statement: StatementId,
        params: &Params,
    ) -> Result<Answer, Error> {
        connection.execute(statement, params)
    }

    fn script_event(
        &mut self,
        script: &mut ScriptClient,
        context: &mut ClientContext<C>,
    ) -> Result<(), RequestError> {
        script.run(context)
    }

    fn polling(&self, _: u64, _: Nanos) -> Option<Nanos> {
        None
    }
}

/// Reads without blocking, again and again.
pub(crate) struct Polling<T> {
    meter: PollMeter<T>,
}

impl<T: TickSource> Polling<T> {
    pub fn new(calibration: Calibration) -> Self {
        Self { meter: PollMeter::new(calibration) }
    }

    /// Receives the answer to a statement that was sent.
    #[inline]
    fn receive<C: NonBlockingConnection>(&mut self, connection: &mut C) -> Result<Answer, Error> {
        self.meter.begin();
        loop {
            match connection.receive_available()? {
                Received::Answer(answer) => return Ok(answer),
                // Processing it was work.
                Received::Part => self.meter.begin(),
                Received::Nothing => {
                    if self.meter.found_nothing() {
                        sleep_until_readable(std::iter::once(&*connection), None);
                        self.meter.slept();
                    }
                }
            }
        }
    }
}

impl<C: NonBlockingConnection, T: TickSource> Waiting<C> for Polling<T> {
    #[inline]
    fn execute(
        &mut self,
        connection: &mut C,
        statement: StatementId,
        params: &Params,
    ) -> Result<Answer, Error> {
        connection.send(statement, params)?;
        self.receive(connection)
    }

    fn script_event(
        &mut self,
        script: &mut ScriptClient,
        context: &mut ClientContext<C>,
    ) -> Result<(), RequestError> {
        let mut step = script.begin(context)?;
        loop {
            step = match step {
                EventStep::Complete => return Ok(()),
                EventStep::Waiting => {
                    let answer = self.receive(&mut context.connection);
                    script.received(context, answer)?
                }
                EventStep::Asleep => {
                    self.meter.sleep(script.sleep_time());
                    script.begin(context)?
                }
            };
        }
    }

    fn polling(&self, ticks: u64, cpu: Nanos) -> Option<Nanos> {
        Some(self.meter.of_cpu(ticks, cpu))
    }
}

/// Sleeps until a connection is readable or lost, or for this time: returns which. Errors occur again when it is read.
#[cold]
pub(crate) fn sleep_until_readable<'a, C: AsFd + 'a>(
    connections: impl Iterator<Item = &'a C>,
    longest: Option<&Timespec>,
) -> bool {
    let mut readable: Vec<PollFd<'_>> =
        connections.map(|connection| PollFd::new(connection, PollFlags::IN)).collect();
    loop {
        match rustix::event::poll(&mut readable, longest) {
            Err(Errno::INTR) => {}
            found => return found != Ok(0),
        }
    }
}

/// How long a client keeps its turn while it waits for an answer outside of events.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Receives an answer if it is there; with `may_wait`, also if it comes soon.
pub(crate) fn receive_soon<C: NonBlockingConnection>(
    connection: &mut C,
    mut may_wait: bool,
) -> Result<Option<Answer>, Error> {
    loop {
        match connection.receive_available()? {
            Received::Answer(answer) => return Ok(Some(answer)),
            Received::Part => {}
            Received::Nothing if may_wait => {
                sleep_until_readable(std::iter::once(&*connection), Some(&TURN));
                may_wait = false;
            }
            Received::Nothing => return Ok(None),
        }
    }
}

/// Measures how long a thread polls unsuccessfully. Calls that receive something are not included.
pub(crate) struct PollMeter<T> {
    /// Ticks that a thread may poll before it sleeps.
    limit: u64,
    /// When the thread began to wait.
    began: u64,
    /// When the last call ended.
    last: u64,
    /// Ticks in calls that received nothing.
    polled: u64,
    /// Ticks asleep.
    asleep: u64,
    ticks: PhantomData<T>,
}

impl<T: TickSource> PollMeter<T> {
    pub fn new(calibration: Calibration) -> Self {
        let limit = calibration.to_ticks(LIMIT);
        Self { limit, began: 0, last: 0, polled: 0, asleep: 0, ticks: PhantomData }
    }

    /// Begins to wait.
    #[inline]
    pub fn begin(&mut self) {
        self.began = T::now();
        self.last = self.began;
    }

    /// Counts a call that received nothing. Returns whether the thread shall sleep.
    #[inline]
    pub fn found_nothing(&mut self) -> bool {
        let now = T::now();
        self.polled += now.saturating_sub(self.last);
        self.last = now;
        now.saturating_sub(self.began) > self.limit
    }

    /// Counts a sleep after that, and begins to wait again.
    pub fn slept(&mut self) {
        let now = T::now();
        self.asleep += now.saturating_sub(self.last);
        (self.began, self.last) = (now, now);
    }

    /// Sleeps for this time.
    pub fn sleep(&mut self, time: Duration) {
        self.begin();
        thread::sleep(time);
        self.slept();
    }

    /// The part of the CPU time `cpu` of a thread that was used for polling, if the thread took
    /// `ticks` in all. A share, because ticks also pass while the thread or the whole machine does not
    /// run.
    pub fn of_cpu(&self, ticks: u64, cpu: Nanos) -> Nanos {
        let awake = ticks.saturating_sub(self.asleep).max(1);
        let share = (self.polled as f64 / awake as f64).min(1.0);
        Nanos::from_nanos((cpu.as_nanos() as f64 * share) as u64)
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_drivers::ErrorKind;
    use dbdyno_machine::clock;
    use dbdyno_machine::tsc::MonotonicTicks;

    use super::*;
    use crate::fake_server::{FakeConnection, Reaction};

    /// Executes a statement with the parameter 7 by polling. Returns the meter and the CPU time.
    fn poll(
        connection: &mut FakeConnection,
    ) -> (Result<Answer, Error>, PollMeter<MonotonicTicks>, Nanos) {
        let mut polling = Polling::<MonotonicTicks>::new(Calibration::NANOS);
        let mut params = Params::default();
        params.push_int(7);
        let before = clock::thread_cpu();
        let answer = polling.execute(connection, StatementId::default(), &params);
        (answer, polling.meter, clock::thread_cpu() - before)
    }

    const ANSWER: Answer = Answer { rows: 1, affected: 0, digest: 7 };

    #[test]
    fn polling_receives_whole_answers_and_parts() {
        let after = Duration::from_millis(2);
        let whole = |_| Reaction::AnswerAfter(Duration::from_millis(2));
        let parts = |_| Reaction::PartsAfter(Duration::from_millis(2));
        for connection in [FakeConnection::new(whole), FakeConnection::new(parts)] {
            let mut connection = connection;
            // A thread that does not run when it could poll finds the answer there.
            let waited = (0..200).any(|_| {
                let (answer, meter, _) = poll(&mut connection);
                assert_eq!(answer.unwrap(), ANSWER);
                meter.polled + meter.asleep >= after.as_nanos() as u64 / 2
            });
            assert!(waited, "it never waited");
        }
    }

    #[test]
    fn client_of_a_server_that_hangs_sleeps_after_the_limit() {
        let mut connection =
            FakeConnection::new(|_| Reaction::AnswerAfter(Duration::from_millis(600)));
        let (answer, meter, cpu) = poll(&mut connection);
        assert_eq!(answer.unwrap(), ANSWER);
        assert!(cpu < Nanos::from_millis(300), "{cpu}");
        assert!(meter.asleep > 0, "it never slept");
    }

    #[test]
    fn polling_a_dead_server_is_an_error() {
        let mut connection = FakeConnection::new(|number| match number {
            0 => Reaction::AnswerAfter(Duration::ZERO),
            _ => Reaction::Close,
        });
        assert_eq!(poll(&mut connection).0.unwrap(), ANSWER);
        let error = poll(&mut connection).0.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connection);
    }

    #[test]
    fn polling_is_a_share_of_the_time_awake() {
        let meter = PollMeter::<MonotonicTicks> {
            polled: 600,
            asleep: 1_000,
            ..PollMeter::new(Calibration::NANOS)
        };
        // Half of the 1,600 ticks awake, the thread did not run.
        let cpu = Nanos::from_nanos(800);
        assert_eq!(meter.of_cpu(2_600, cpu), Nanos::from_nanos(300));
        assert_eq!(meter.of_cpu(1_100, cpu), cpu, "never more than the CPU time");
    }
}
