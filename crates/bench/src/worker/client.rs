//! One client and its hot loop.

use dbdyno_drivers::{Connection, NonBlockingConnection};
use dbdyno_machine::tsc::{Calibration, TickSource};
use dbdyno_record::SliceMeasured;
use dbdyno_units::{Nanos, Share};
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::program::Tables;

use super::deadline::Deadline;
use super::delay::Delay;
use super::error::RequestError;
use super::meter::Meter;
use super::prepared::{ConnectionParams, PrepareError, Prepared};
use super::readings::Readings;
use super::tally::Tally;
use crate::latency::TickHistogram;
use crate::slice::SliceRequest;

/// Parameters of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientSetup {
    /// The client's number, from 0.
    pub number: u32,
    /// The tables.
    pub tables: Tables,
    /// Seed of all random draws.
    pub seed: u64,
    /// The length of a tick.
    pub calibration: Calibration,
    /// Time added to every event, as a share of the event's time.
    pub injected_delay: Option<Share>,
}

/// One client: a connection, its prepared microbenchmark, and its measurements.
pub struct Client<C> {
    connection: C,
    setup: ClientSetup,
    prepared: Option<Prepared>,
    histogram: TickHistogram,
    params: ConnectionParams,
    tally: Tally,
    /// The connection's count of lock waits at the start of the timed part.
    busy_before: u64,
    /// The tick at which the current event began.
    event_began: u64,
}

impl<C: Connection> Client<C> {
    /// A client on a connection.
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
    /// The definition is inconsistent, or the database refuses a statement.
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
    /// The connection is unusable, or nothing is prepared. Other failed statements are counted.
    pub fn slice<T: TickSource>(
        &mut self,
        request: SliceRequest,
    ) -> Result<SliceMeasured, RequestError> {
        self.lead_in::<T>(request)?;
        self.timed::<T>(request, &Meter::none())
    }

    /// Runs the lead-in of a slice.
    ///
    /// # Errors
    /// As [`Self::slice`].
    pub fn lead_in<T: TickSource>(&mut self, request: SliceRequest) -> Result<(), RequestError> {
        self.start_block(request)?;
        let Some(lead_in) = request.lead_in else { return Ok(()) };
        let Self { connection, setup, prepared, params, tally, .. } = self;
        let prepared = prepared.as_mut().ok_or(NOT_PREPARED)?;
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
        request: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, RequestError> {
        let Self { connection, setup, prepared, histogram, params, tally, .. } = self;
        let prepared = prepared.as_mut().ok_or(NOT_PREPARED)?;
        let mut delay = setup.injected_delay.map(|share| Delay::new(share, setup.calibration));
        let busy_before = connection.busy_retries();
        let readings = Readings::now(meter);
        let mut last = T::now();
        let deadline = Deadline::of::<T>(request.quota, setup.calibration);
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

    fn start_block(&mut self, request: SliceRequest) -> Result<(), RequestError> {
        let prepared = self.prepared.as_mut().ok_or(NOT_PREPARED)?;
        prepared.events.start_block(self.setup.seed, prepared.position, request.block);
        self.tally = Tally::default();
        Ok(())
    }
}

/// Single steps, for a thread that drives several clients.
impl<C: NonBlockingConnection> Client<C> {
    /// The length of a tick.
    pub(super) const fn calibration(&self) -> Calibration {
        self.setup.calibration
    }

    /// Prepares for a slice's lead-in.
    pub(super) fn begin_slice(&mut self, request: SliceRequest) -> Result<(), RequestError> {
        self.start_block(request)
    }

    /// Prepares for a slice's timed part.
    pub(super) fn start_counting(&mut self) {
        self.tally.start_counting();
        self.busy_before = self.connection.busy_retries();
    }

    /// Starts an event at this tick.
    #[inline]
    pub(super) fn begin_event(&mut self, now: u64) -> Result<(), RequestError> {
        let Self { connection, prepared, params, tally, .. } = self;
        self.event_began = now;
        prepared.as_mut().ok_or(NOT_PREPARED)?.begin_event(connection, params, tally)
    }

    /// Continues the current event without blocking, and starts the next one if it is complete and
    /// the deadline has not passed. Returns whether the client has stopped, with no event started.
    #[inline]
    pub(super) fn advance<T: TickSource>(
        &mut self,
        deadline: Deadline,
        histogram: &mut TickHistogram,
    ) -> Result<bool, RequestError> {
        let Self { connection, prepared, params, tally, .. } = self;
        let prepared = prepared.as_mut().ok_or(NOT_PREPARED)?;
        if !prepared.advance(connection, params, tally)? {
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

    /// The client's measurements in the timed part, which took `wall`, without response times.
    pub(super) fn finish(&mut self, wall: Nanos) -> SliceMeasured {
        let mut measured = self.tally.finish(wall);
        measured.busy_retries += self.connection.busy_retries() - self.busy_before;
        measured
    }
}

const NOT_PREPARED: &str = "no microbenchmark is prepared";
