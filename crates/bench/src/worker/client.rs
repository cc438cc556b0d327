//! One client and its hot loop.

use dbdyno_drivers::{Connection, NonBlockingConnection};
use dbdyno_machine::tsc::{Calibration, TickSource};
use dbdyno_record::SliceMeasured;
use dbdyno_units::{Nanos, Share};
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::program::Tables;

use super::deadline::Deadline;
use super::delay::Delay;
use super::meter::Meter;
use super::prepared::{ConnectionParams, PrepareError, Prepared};
use super::readings::Readings;
use super::tally::Tally;
use crate::latency::TickHistogram;
use crate::slice::SliceRequest;

/// What a client is made with.
#[derive(Clone, Copy, Debug)]
pub struct ClientSetup {
    /// The client's number, from 0.
    pub number: u32,
    /// The tables.
    pub tables: Tables,
    /// Where all random draws start from.
    pub seed: u64,
    /// The length of a tick.
    pub calibration: Calibration,
    /// Time added to every event, as a share of it.
    pub injected_delay: Option<Share>,
}

/// One client: a connection, its prepared microbenchmark, and what it measures with.
pub struct Client<C> {
    connection: C,
    setup: ClientSetup,
    prepared: Option<Prepared>,
    histogram: TickHistogram,
    params: ConnectionParams,
    tally: Tally,
    /// Waits for locks before the timed part, by the connection's own count.
    busy_before: u64,
    /// The tick at which the event that is under way began.
    event_began: u64,
}

impl<C: Connection> Client<C> {
    /// A client on this connection.
    #[must_use]
    pub fn new(connection: C, setup: ClientSetup) -> Self {
        Self {
            connection,
            setup,
            prepared: None,
            histogram: TickHistogram::new(),
            params: ConnectionParams::default(),
            tally: Tally::default(),
            busy_before: 0,
            event_began: 0,
        }
    }

    /// The connection, for work between slices.
    pub fn connection(&mut self) -> &mut C {
        &mut self.connection
    }

    /// Prepares every statement of `microbenchmark` for every table.
    ///
    /// # Errors
    /// The definition does not fit together, or the database refuses a statement.
    pub fn prepare(
        &mut self,
        microbenchmark: &Microbenchmark,
        position: u32,
    ) -> Result<(), PrepareError> {
        self.free_statements();
        let ClientSetup { number, tables, .. } = self.setup;
        let connection = &mut self.connection;
        self.prepared = Some(Prepared::new(connection, microbenchmark, tables, number, position)?);
        Ok(())
    }

    /// Frees the prepared statements.
    pub fn free_statements(&mut self) {
        self.prepared = None;
        self.connection.close_statements();
    }

    /// Runs one slice of the prepared microbenchmark, with response times in ticks of `T`.
    ///
    /// # Errors
    /// The database cannot go on at all; an ordinary failure of a statement is counted instead.
    /// Also when nothing is prepared.
    pub fn slice<T: TickSource>(&mut self, order: SliceRequest) -> Result<SliceMeasured, String> {
        self.lead_in::<T>(order)?;
        self.timed::<T>(order, &Meter::none())
    }

    /// Runs the part of a slice that comes before the clocks start.
    ///
    /// # Errors
    /// As [`Self::slice`].
    pub fn lead_in<T: TickSource>(&mut self, order: SliceRequest) -> Result<(), String> {
        self.start_block(order)?;
        let Some(lead_in) = order.lead_in else { return Ok(()) };
        let Self { connection, setup, prepared, params, tally, .. } = self;
        let prepared = prepared.as_mut().ok_or(UNPREPARED)?;
        let deadline = Deadline::of::<T>(lead_in, setup.calibration);
        while !deadline.is_over(tally, T::now()) {
            prepared.event(connection, params, tally)?;
            tally.events += 1;
        }
        tally.start_counting();
        Ok(())
    }

    /// Runs the timed part of a slice.
    ///
    /// # Errors
    /// As [`Self::slice`].
    pub(super) fn timed<T: TickSource>(
        &mut self,
        order: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, String> {
        let Self { connection, setup, prepared, histogram, params, tally, .. } = self;
        let prepared = prepared.as_mut().ok_or(UNPREPARED)?;
        let mut delay = setup.injected_delay.map(|share| Delay::new(share, setup.calibration));
        let busy_before = connection.busy_retries();
        let readings = Readings::now(meter);
        let mut last = T::now();
        let deadline = Deadline::of::<T>(order.quota, setup.calibration);
        loop {
            prepared.event(connection, params, tally)?;
            let mut now = T::now();
            if let Some(delay) = &mut delay {
                now = delay.spend::<T>(last, now);
            }
            histogram.record(now.saturating_sub(last));
            last = now;
            tally.events += 1;
            if deadline.is_over(tally, now) {
                break;
            }
        }
        if let Some(delay) = &mut delay {
            delay.settle::<T>(last);
        }
        let wall = dbdyno_machine::clock::monotonic() - readings.started;
        let mut measured = tally.finish(wall);
        readings.finish(&mut measured);
        measured.busy_retries += connection.busy_retries() - busy_before;
        measured.latencies = histogram.drain(|ticks| setup.calibration.to_nanos(ticks));
        Ok(measured)
    }

    fn start_block(&mut self, order: SliceRequest) -> Result<(), String> {
        let prepared = self.prepared.as_mut().ok_or(UNPREPARED)?;
        prepared.events.start_block(self.setup.seed, prepared.position, order.block);
        self.tally = Tally::default();
        Ok(())
    }
}

/// The same in steps, for a thread that drives several clients.
impl<C: NonBlockingConnection> Client<C> {
    /// The length of a tick.
    pub(super) const fn calibration(&self) -> Calibration {
        self.setup.calibration
    }

    /// Gets ready for a slice's lead-in.
    pub(super) fn begin_slice(&mut self, order: SliceRequest) -> Result<(), String> {
        self.start_block(order)
    }

    /// Gets ready for a slice's timed part.
    pub(super) fn start_counting(&mut self) {
        self.tally.start_counting();
        self.busy_before = self.connection.busy_retries();
    }

    /// Starts an event at this tick.
    #[inline]
    pub(super) fn begin_event(&mut self, now: u64) -> Result<(), String> {
        let Self { connection, prepared, params, tally, .. } = self;
        self.event_began = now;
        prepared.as_mut().ok_or(UNPREPARED)?.begin_event(connection, params, tally)
    }

    /// Goes on with the event as far as that is possible without waiting, and from event to event
    /// until the deadline. Returns whether the client has stopped: nothing is under way then.
    #[inline]
    pub(super) fn go_on<T: TickSource>(
        &mut self,
        deadline: Deadline,
        histogram: &mut TickHistogram,
    ) -> Result<bool, String> {
        let Self { connection, prepared, params, tally, .. } = self;
        let prepared = prepared.as_mut().ok_or(UNPREPARED)?;
        if !prepared.go_on(connection, params, tally)? {
            return Ok(false);
        }
        let now = T::now();
        histogram.record(now.saturating_sub(self.event_began));
        self.tally.events += 1;
        if deadline.is_over(&self.tally, now) {
            return Ok(true);
        }
        self.begin_event(now)?;
        Ok(false)
    }

    /// What the client measured in `wall` of the timed part, but for the response times.
    pub(super) fn finish(&mut self, wall: Nanos) -> SliceMeasured {
        let mut measured = self.tally.finish(wall);
        measured.busy_retries += self.connection.busy_retries() - self.busy_before;
        measured
    }
}

const UNPREPARED: &str = "no microbenchmark is prepared";
