//! What the threads of a step count, and the measurements of each second: the system under test, the load
//! generator and the storage device.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dbdyno_machine::{ProcessTree, clock};
use dbdyno_types::insert::{Operations, Second, StepMeasured};
use dbdyno_units::Nanos;

use crate::error::{RequestError, ServeError};
use crate::latency::TickHistogram;
use crate::protocol::{Request, Response, StepReading, StepUsage, StepUsages, receive, send};
use crate::server_monitor::StepMeter;

/// A flag that stops all threads: one has failed, or dbdyno has exited.
#[derive(Debug, Default)]
pub(super) struct Stop(AtomicBool);

impl Stop {
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One thread's operations of one kind, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct OperationProgress {
    rows: AtomicU64,
    worst: AtomicU64,
}

impl OperationProgress {
    /// Adds a completed operation.
    #[inline]
    pub fn note(&self, rows: u64, response: Nanos) {
        // Only this thread writes the count, so no atomic addition is needed.
        self.rows.store(self.rows.load(Ordering::Relaxed) + rows, Ordering::Relaxed);
        // The sampler resets this, so it must be one atomic operation.
        self.worst.fetch_max(response.as_nanos().max(1), Ordering::Relaxed);
    }

    /// All rows so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The longest response time since the last call; `None` without operations.
    pub fn take_worst(&self) -> Option<Nanos> {
        match self.worst.swap(0, Ordering::Relaxed) {
            0 => None,
            nanos => Some(Nanos::from_nanos(nanos)),
        }
    }
}

/// Counts of the threads of one client.
#[derive(Debug, Default)]
pub(super) struct ClientProgress {
    pub inserts: OperationProgress,
    pub queries: OperationProgress,
    pub deletes: OperationProgress,
}

const KINDS: [fn(&ClientProgress) -> &OperationProgress; 3] =
    [|client| &client.inserts, |client| &client.queries, |client| &client.deletes];

/// Count and times of operations of one kind.
pub(super) struct Times {
    count: u64,
    rows: u64,
    /// In nanoseconds.
    response: TickHistogram,
    longest: Option<Nanos>,
}

impl Times {
    pub fn new() -> Self {
        Self { count: 0, rows: 0, response: TickHistogram::new(), longest: None }
    }

    #[inline]
    pub fn record(&mut self, rows: u64, response: Nanos) {
        self.count += 1;
        self.rows += rows;
        self.response.record(response.as_nanos());
        self.longest = self.longest.max(Some(response));
    }

    pub fn finish(mut self) -> Operations {
        Operations {
            count: self.count,
            rows: self.rows,
            response: self.response.drain(Nanos::from_nanos),
            longest: self.longest,
            service: None,
            longest_service: None,
        }
    }

    /// The operations, with their service times.
    pub fn finish_with(self, service: Self) -> Operations {
        let service = service.finish();
        Operations {
            service: Some(service.response),
            longest_service: service.longest,
            ..self.finish()
        }
    }
}

/// Adds a thread's measurements to the total.
pub(super) fn add_thread(total: &mut StepMeasured, thread: &StepMeasured) {
    total.wall = total.wall.max(thread.wall);
    total.inserts.merge(&thread.inserts);
    total.queries.merge(&thread.queries);
    total.deletes.merge(&thread.deletes);
    total.overdue += thread.overdue;
    total.retries += thread.retries;
    total.lock_waits += thread.lock_waits;
    total.wrong += thread.wrong;
    if total.first_complaint.is_none() {
        total.first_complaint.clone_from(&thread.first_complaint);
    }
}

/// What a step needs from outside: readings of the usage of the system under test, and a receiver of its
/// seconds. An error stops the step.
pub(crate) trait StepLink {
    /// Takes a reading. What it starts with is not used.
    fn read(&mut self, reading: StepReading) -> Result<StepUsages, RequestError>;

    fn report(&mut self, second: Second) -> Result<(), RequestError>;
}

/// A last second shorter than this is not reported.
const SHORTEST_SECOND: Nanos = Nanos::from_millis(1);

/// Takes the measurements of each second.
pub(super) struct Sampler {
    embedded: bool,
    first: Reading,
    last: Reading,
    /// Usage of the system under test until the end of the last second.
    total: StepUsage,
    rows: [u64; 3],
    number: u32,
}

/// The clocks of this process.
#[derive(Clone, Copy)]
struct Reading {
    at: Nanos,
    client: Nanos,
}

impl Reading {
    fn now() -> Self {
        Self { at: clock::monotonic(), client: clock::process_cpu() }
    }
}

impl Sampler {
    /// A sampler that starts now. `embedded` tells whether the database is in this process.
    pub fn start(embedded: bool, link: &mut dyn StepLink) -> Result<Self, RequestError> {
        link.read(StepReading::Start)?;
        let now = Reading::now();
        let total = StepUsage::default();
        Ok(Self { embedded, first: now, last: now, total, rows: [0; 3], number: 0 })
    }

    /// The end of the next second.
    pub fn next_at(&self) -> Nanos {
        self.first.at + Nanos::from_secs(u64::from(self.number) + 1)
    }

    /// Whether so little time has passed since the end of a second that the rest is not reported.
    pub fn is_at_end(&self) -> bool {
        self.number > 0 && clock::monotonic().saturating_sub(self.last.at) < SHORTEST_SECOND
    }

    /// Ends a second.
    pub fn second(
        &mut self,
        clients: &[ClientProgress],
        link: &mut dyn StepLink,
    ) -> Result<Second, RequestError> {
        let now = Reading::now();
        // Before the reading of the usage, which may take long: these are of the time until `now`.
        let rows: [u64; 3] =
            KINDS.map(|kind| clients.iter().map(|client| kind(client).rows()).sum());
        let [insert_worst, query_worst, delete_worst] =
            KINDS.map(|kind| clients.iter().filter_map(|client| kind(client).take_worst()).max());
        let StepUsages { second: used, total } = link.read(StepReading::Second)?;
        self.total = total;
        let grown = |kind: usize| rows[kind] - self.rows[kind];
        let second = Second {
            number: self.number,
            elapsed: now.at.saturating_sub(self.last.at),
            inserts: grown(0),
            queries: grown(1),
            deletes: grown(2),
            insert_worst,
            query_worst,
            delete_worst,
            system: used.server,
            client_cpu: self.client(&now, &self.last),
            device: used.device,
            database: used.database,
            resident: used.resident,
        };
        self.rows = rows;
        self.last = now;
        // Seconds in which this thread did not run are part of this one; see its length.
        let whole = (self.last.at - self.first.at).as_nanos() / 1_000_000_000;
        self.number = u32::try_from(whole).unwrap_or(u32::MAX).max(self.number + 1);
        Ok(second)
    }

    /// Writes the usage from the start to the end of the last second to `measured`.
    pub fn finish(self, measured: &mut StepMeasured) {
        measured.client_cpu = self.client(&self.last, &self.first);
        let StepUsage { server, device, database, resident } = self.total;
        measured.system = server;
        measured.device = device;
        measured.database = database;
        measured.resident = resident;
    }

    fn client(&self, now: &Reading, then: &Reading) -> Option<Nanos> {
        (!self.embedded).then(|| now.client.saturating_sub(then.client))
    }
}

/// A system under test on this machine.
pub(crate) struct LocalSystem<'a, W> {
    /// Its processes, if they are known.
    family: Option<&'a mut ProcessTree>,
    data: Option<PathBuf>,
    meter: Option<StepMeter>,
    responses: &'a mut W,
}

impl<'a, W: Write> LocalSystem<'a, W> {
    /// `data` is the directory of its files, if it is known.
    pub fn new(
        family: Option<&'a mut ProcessTree>,
        data: Option<PathBuf>,
        responses: &'a mut W,
    ) -> Self {
        Self { family, data, meter: None, responses }
    }
}

impl<W: Write> StepLink for LocalSystem<'_, W> {
    fn read(&mut self, reading: StepReading) -> Result<StepUsages, RequestError> {
        let Self { family, data, meter, .. } = self;
        Ok(StepMeter::read(meter, reading, family.as_deref_mut(), data.as_deref()))
    }

    fn report(&mut self, second: Second) -> Result<(), RequestError> {
        report(self.responses, second)
    }
}

/// A server on another host, whose usage dbdyno reads there.
pub(crate) struct RemoteServer<'a, R, W> {
    pub requests: &'a mut R,
    pub responses: &'a mut W,
}

impl<R: BufRead, W: Write> StepLink for RemoteServer<'_, R, W> {
    fn read(&mut self, reading: StepReading) -> Result<StepUsages, RequestError> {
        send(self.responses, &Response::ReadStep(reading)).map_err(broken)?;
        match receive::<Request>(self.requests).map_err(broken)? {
            Some(Request::ReadStep(usages)) => Ok(*usages),
            _ => Err("a reading was not answered".into()),
        }
    }

    fn report(&mut self, second: Second) -> Result<(), RequestError> {
        report(self.responses, second)
    }
}

fn report(responses: &mut impl Write, second: Second) -> Result<(), RequestError> {
    send(responses, &Response::Second(Box::new(second))).map_err(broken)
}

fn broken(error: ServeError) -> RequestError {
    error.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_response_time_is_reset_when_taken() {
        let progress = OperationProgress::default();
        assert_eq!(progress.take_worst(), None);
        progress.note(50, Nanos::from_millis(3));
        progress.note(50, Nanos::from_millis(2));
        assert_eq!(progress.take_worst(), Some(Nanos::from_millis(3)));
        assert_eq!(progress.take_worst(), None);
        progress.note(1, Nanos::ZERO);
        assert!(progress.take_worst().is_some());
        assert_eq!(progress.rows(), 101);
    }

    /// Clients go on inserting while the usage is read.
    struct SlowLink<'a>(&'a ClientProgress);

    impl StepLink for SlowLink<'_> {
        fn read(&mut self, reading: StepReading) -> Result<StepUsages, RequestError> {
            if reading == StepReading::Second {
                self.0.inserts.note(50, Nanos::from_millis(9));
            }
            Ok(StepUsages::default())
        }

        fn report(&mut self, _: Second) -> Result<(), RequestError> {
            Ok(())
        }
    }

    #[test]
    fn operations_during_the_reading_of_the_usage_are_of_the_next_second() {
        let clients = [ClientProgress::default()];
        let mut link = SlowLink(&clients[0]);
        let mut sampler = Sampler::start(false, &mut link).unwrap();
        clients[0].inserts.note(3, Nanos::from_millis(2));
        let first = sampler.second(&clients, &mut link).unwrap();
        assert_eq!((first.inserts, first.insert_worst), (3, Some(Nanos::from_millis(2))));
        let next = sampler.second(&clients, &mut link).unwrap();
        assert_eq!((next.inserts, next.insert_worst), (50, Some(Nanos::from_millis(9))));
    }
}
