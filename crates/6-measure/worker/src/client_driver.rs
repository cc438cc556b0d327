//! Client drivers: how a thread drives its clients.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use dbdyno_drivers::{Connection, NonBlockingConnection};
use dbdyno_machine::clock;
use dbdyno_machine::tsc::TickSource;
use dbdyno_types::{ClientWait, SliceMeasured};
use dbdyno_units::Nanos;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::client::{Advance, Client};
use crate::client_context::Deadline;
use crate::error::RequestError;
use crate::latency::TickHistogram;
use crate::meter::{Meter, Readings};
use crate::protocol::SliceRequest;
use crate::script::{NonBlockingCalls, non_blocking_calls};
use crate::waiting::{PollMeter, Polling, Sleeping, sleep_until_readable};

/// Drives the clients of a thread through the two parts of a slice.
pub(crate) trait ClientDriver<C>: Sized + Send + 'static {
    /// How scripts send and receive outside of events, where they take turns; `None` to wait.
    fn script_calls() -> Option<NonBlockingCalls<C>>;

    /// A driver for these clients, which wait for answers in this way.
    fn new(clients: &mut [Client<C>], wait: ClientWait) -> std::io::Result<Self>;

    /// Notes that connections may be replaced before the next slice.
    fn connections_may_change(&mut self);

    /// Runs the lead-in of a slice on `clients`, the first of those given to [`Self::new`].
    fn lead_in<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
    ) -> Result<(), RequestError>;

    /// Runs the timed part of a slice. `meter` is the meter of this thread.
    fn timed<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, RequestError>;
}

/// One client per thread, with blocking calls: for embedded databases, which never wait for answers.
pub(crate) struct Blocking;

impl<C: Connection> ClientDriver<C> for Blocking {
    fn script_calls() -> Option<NonBlockingCalls<C>> {
        None
    }

    fn new(_: &mut [Client<C>], _: ClientWait) -> std::io::Result<Self> {
        Ok(Self)
    }

    fn connections_may_change(&mut self) {}

    fn lead_in<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
    ) -> Result<(), RequestError> {
        clients.iter_mut().try_for_each(|client| client.lead_in::<T>(request, &mut Sleeping))
    }

    fn timed<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, RequestError> {
        let [client] = clients else { return Err("a blocking thread has one client".into()) };
        client.timed::<T>(request, meter, &mut Sleeping)
    }
}

/// Up to this many polling clients of a thread are polled one after the other; with more, answers that have
/// arrived would wait. Throughput of point queries with 16 to 64 clients was 1.1 to 1.3 times that with epoll.
const MAX_POLLED_IN_TURN: usize = 64;

const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Many clients per thread. The thread waits with epoll for replies on all connections. A single
/// client reads from its connection instead, which saves a system call per statement, and clients that poll read
/// from theirs in turn: a server that sends to a connection in an epoll set does work for the set.
pub(crate) struct Epoll {
    wait: ClientWait,
    epoll: OwnedFd,
    /// The number of clients whose connections are in the epoll set, from the first one; `None` if it is not
    /// known whether they are still the same.
    registered: Option<usize>,
    ready: Vec<Event>,
    /// Numbers of the clients that have not passed the deadline, if they are polled in turn.
    running: Vec<usize>,
    asleep: Asleep,
    /// Response times of all clients; one histogram per client would fill the cache.
    histogram: TickHistogram,
}

/// Clients whose events sleep, by the time at which they continue. Without such clients, no clock is read.
#[derive(Default)]
struct Asleep(BinaryHeap<Reverse<(Nanos, usize)>>);

impl Asleep {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a client sleeps: its connection may be closed meanwhile.
    fn contains(&self, client: usize) -> bool {
        self.0.iter().any(|Reverse((_, one))| *one == client)
    }

    fn add(&mut self, client: usize, time: Duration) {
        // Later, it would only be asked again.
        let time = Nanos::from(time.min(Duration::from_secs(86_400)));
        self.0.push(Reverse((clock::monotonic() + time, client)));
    }

    /// How long the first one still sleeps; `None` if none sleeps.
    fn left(&self) -> Option<Duration> {
        let Reverse((wake, _)) = self.0.peek()?;
        let left = wake.as_nanos().saturating_sub(clock::monotonic().as_nanos());
        Some(Duration::from_nanos(left))
    }

    fn is_due(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Removes a client that continues now.
    fn next_due(&mut self) -> Option<usize> {
        if !self.is_due() {
            return None;
        }
        self.0.pop().map(|Reverse((_, client))| client)
    }

    /// As the timeout of a system call.
    fn timeout(&self) -> Option<Timespec> {
        Timespec::try_from(self.left()?).ok()
    }
}

// SAFETY: the data of the events are client numbers, never pointers.
unsafe impl Send for Epoll {}

impl Epoll {
    /// Puts the connections of these clients, and no others, into the epoll set if the thread waits with it.
    fn register<C: NonBlockingConnection>(
        &mut self,
        clients: &mut [Client<C>],
    ) -> Result<(), RequestError> {
        let needed = if self.polls_in_turn(clients.len()) { 0 } else { clients.len() };
        if self.registered == Some(needed) {
            return Ok(());
        }
        let mut set = || -> std::io::Result<OwnedFd> {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            for (number, client) in (0..).zip(&mut clients[..needed]) {
                let data = EventData::new_u64(number);
                epoll::add(&epoll, client.connection(), data, EventFlags::IN)?;
            }
            Ok(epoll)
        };
        self.epoll = set().map_err(|error| format!("waiting for replies: {error}"))?;
        self.registered = Some(needed);
        Ok(())
    }

    fn polls_in_turn(&self, clients: usize) -> bool {
        clients == 1 || self.wait == ClientWait::Poll && clients <= MAX_POLLED_IN_TURN
    }

    /// Runs events on all clients until each has passed the deadline.
    fn run<C: NonBlockingConnection, T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        deadline: Deadline,
        polling: &mut PollMeter<T>,
        mut stopped: impl FnMut(&mut Client<C>),
    ) -> Result<(), RequestError> {
        self.running.clear();
        // An error may have left some.
        self.asleep.0.clear();
        for (number, client) in clients.iter_mut().enumerate() {
            match client.begin_events::<T>(deadline, &mut self.histogram, T::now())? {
                Advance::Stopped => stopped(client),
                Advance::Asleep => self.asleep.add(number, client.sleep_time()),
                Advance::Continues | Advance::Nothing => self.running.push(number),
            }
        }
        if self.polls_in_turn(clients.len()) {
            return self.poll_in_turn(clients, deadline, polling, stopped);
        }
        let mut running = self.running.len();
        while running > 0 || !self.asleep.is_empty() {
            let count = match self.wait {
                ClientWait::Poll => self.poll(polling, running > 0)?,
                ClientWait::Sleep => self.ready_or_due()?,
            };
            let Self { ready, asleep, histogram, .. } = self;
            for event in &ready[..count] {
                let number = event.data.u64() as usize;
                if asleep.contains(number) {
                    continue;
                }
                let client = &mut clients[number];
                match client.advance::<T>(deadline, histogram)? {
                    Advance::Continues | Advance::Nothing => continue,
                    Advance::Stopped => stopped(client),
                    Advance::Asleep => asleep.add(number, client.sleep_time()),
                }
                running -= 1;
            }
            while let Some(number) = asleep.next_due() {
                let client = &mut clients[number];
                match client.wake::<T>(deadline, histogram)? {
                    Advance::Continues | Advance::Nothing => running += 1,
                    Advance::Stopped => stopped(client),
                    Advance::Asleep => asleep.add(number, client.sleep_time()),
                }
            }
        }
        Ok(())
    }

    /// Reads from the connections of all running clients, one after the other, until all have stopped.
    fn poll_in_turn<C: NonBlockingConnection, T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        deadline: Deadline,
        polling: &mut PollMeter<T>,
        mut stopped: impl FnMut(&mut Client<C>),
    ) -> Result<(), RequestError> {
        let Self { running, histogram, asleep, .. } = self;
        polling.begin();
        let mut place = 0;
        while !running.is_empty() || !asleep.is_empty() {
            while let Some(number) = asleep.next_due() {
                let client = &mut clients[number];
                match client.wake::<T>(deadline, histogram)? {
                    Advance::Continues | Advance::Nothing => running.push(number),
                    Advance::Stopped => stopped(client),
                    Advance::Asleep => asleep.add(number, client.sleep_time()),
                }
                polling.begin();
            }
            if running.is_empty() {
                asleep.left().into_iter().for_each(|time| polling.sleep(time));
                continue;
            }
            place %= running.len();
            let client = &mut clients[running[place]];
            match client.advance::<T>(deadline, histogram)? {
                Advance::Nothing => {
                    if polling.found_nothing() {
                        let waiting = running.iter().map(|number| clients[*number].readable());
                        sleep_until_readable(waiting, asleep.timeout().as_ref());
                        polling.slept();
                    }
                    place += 1;
                }
                Advance::Continues => {
                    polling.begin();
                    place += 1;
                }
                Advance::Stopped => {
                    stopped(client);
                    running.swap_remove(place);
                    polling.begin();
                }
                Advance::Asleep => {
                    asleep.add(running.swap_remove(place), client.sleep_time());
                    polling.begin();
                }
            }
        }
        Ok(())
    }

    /// Polls until connections are readable or a client's sleep ends; sleeps if no client `waits` for an answer.
    /// Returns the number of events in `ready`.
    fn poll<T: TickSource>(
        &mut self,
        meter: &mut PollMeter<T>,
        waits: bool,
    ) -> Result<usize, RequestError> {
        meter.begin();
        loop {
            match self.ready(Some(&NO_WAIT))? {
                0 if self.asleep.is_due() => return Ok(0),
                0 if !waits || meter.found_nothing() => {
                    let count = self.ready_or_due()?;
                    meter.slept();
                    return Ok(count);
                }
                0 => {}
                count => return Ok(count),
            }
        }
    }

    /// Waits until connections are readable or a client's sleep ends. Returns the number of events in `ready`.
    fn ready_or_due(&mut self) -> Result<usize, RequestError> {
        let Some(timeout) = self.asleep.timeout() else { return self.ready(None) };
        // epoll itself may round the time up to milliseconds.
        sleep_until_readable(std::iter::once(&self.epoll), Some(&timeout));
        self.ready(Some(&NO_WAIT))
    }

    /// Waits at most this long until connections are readable. Returns the number of events in `ready`.
    fn ready(&mut self, timeout: Option<&Timespec>) -> Result<usize, RequestError> {
        loop {
            match epoll::wait(&self.epoll, &mut self.ready[..], timeout) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("waiting for replies: {error}").into()),
            }
        }
    }
}

impl<C: NonBlockingConnection> ClientDriver<C> for Epoll {
    fn script_calls() -> Option<NonBlockingCalls<C>> {
        Some(non_blocking_calls())
    }

    fn new(clients: &mut [Client<C>], wait: ClientWait) -> std::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let no_event = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let ready = vec![no_event; clients.len().max(1)];
        let (running, histogram) = (Vec::with_capacity(clients.len()), TickHistogram::new());
        let asleep = Asleep::default();
        Ok(Self { wait, epoll, registered: Some(0), ready, running, asleep, histogram })
    }

    fn connections_may_change(&mut self) {
        self.registered = None;
    }

    fn lead_in<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
    ) -> Result<(), RequestError> {
        self.register(clients)?;
        if let [client] = clients {
            return match self.wait {
                ClientWait::Poll => {
                    let mut polling = Polling::<T>::new(client.calibration());
                    client.lead_in::<T>(request, &mut polling)
                }
                ClientWait::Sleep => client.lead_in::<T>(request, &mut Sleeping),
            };
        }
        for client in &mut *clients {
            client.start_block(request)?;
        }
        let (Some(lead_in), Some(first)) = (request.lead_in, clients.first()) else {
            return Ok(());
        };
        let calibration = first.calibration();
        let deadline = Deadline::of::<T>(lead_in, calibration);
        self.run::<C, T>(clients, deadline, &mut PollMeter::new(calibration), |_| ())
    }

    fn timed<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, RequestError> {
        if let [client] = clients {
            return match self.wait {
                ClientWait::Poll => {
                    let mut polling = Polling::<T>::new(client.calibration());
                    client.timed::<T>(request, meter, &mut polling)
                }
                ClientWait::Sleep => client.timed::<T>(request, meter, &mut Sleeping),
            };
        }
        clients.iter_mut().for_each(|client| client.start_counting(request));
        self.histogram.clear();
        let Some(first) = clients.first() else { return Ok(SliceMeasured::default()) };
        let calibration = first.calibration();
        let readings = Readings::now(meter);
        let deadline = Deadline::of::<T>(request.quota, calibration);
        let mut total: Option<SliceMeasured> = None;
        let mut polling = PollMeter::new(calibration);
        let start = T::now();
        self.run::<C, T>(clients, deadline, &mut polling, |client| {
            let own = client.finish(clock::monotonic() - readings.started);
            match &mut total {
                Some(total) => total.merge(own),
                None => total = Some(own),
            }
        })?;
        let ticks = T::now().saturating_sub(start);
        let mut total = total.unwrap_or_default();
        readings.finish(&mut total);
        if self.wait == ClientWait::Poll {
            total.polling = Some(polling.of_cpu(ticks, total.cpu));
        }
        total.latencies = self.histogram.drain(|ticks| calibration.to_nanos(ticks));
        let counts = (total.events, total.statements);
        let times = clients.iter_mut().flat_map(|client| client.take_statement_times(counts));
        times.for_each(|one| total.add_statement(one));
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dbdyno_machine::Calibration;
    use dbdyno_machine::tsc::MonotonicTicks;
    use dbdyno_units::Nanos;
    use dbdyno_workloads::catalog::Catalog;
    use dbdyno_workloads::program::Tables;

    use super::*;
    use crate::client::ClientSetup;
    use crate::fake_server::{Behaviour, FakeConnection, Reaction};
    use crate::protocol::Quota;

    /// Runs a slice of a lead-in and this number of events per client.
    fn slice(
        wait: ClientWait,
        clients: u32,
        events: u64,
        behaviour: Behaviour,
    ) -> Result<SliceMeasured, RequestError> {
        let tables = Tables { count: 1, rows: 1_000 };
        let mut clients: Vec<Client<FakeConnection>> = (0..clients)
            .map(|number| {
                let calibration = Calibration::NANOS;
                let setup = ClientSetup {
                    number,
                    tables,
                    seed: 5,
                    calibration,
                    injected_delay: None,
                    scripts: None,
                };
                Client::new(FakeConnection::new(behaviour), setup)
            })
            .collect();
        let microbenchmark = Catalog::builtin().get("point-query_range=100").cloned().unwrap();
        for client in &mut clients {
            client.prepare(&microbenchmark, 0, 2)?;
        }
        let mut driver = Epoll::new(&mut clients, wait).unwrap();
        let lead_in = (events > 1).then_some(Quota::Events(6));
        let request = SliceRequest { block: 3, lead_in, ..SliceRequest::of(Quota::Events(events)) };
        driver.lead_in::<MonotonicTicks>(&mut clients, request)?;
        driver.timed::<MonotonicTicks>(&mut clients, request, &Meter::none())
    }

    const ALWAYS: Behaviour = |_| Reaction::AnswerAfter(Duration::ZERO);

    #[test]
    fn polling_and_sleeping_clients_receive_equal_answers() {
        for clients in [1, 7, 70] {
            let [polled, slept] = [ClientWait::Poll, ClientWait::Sleep]
                .map(|wait| slice(wait, clients, 50, ALWAYS).unwrap());
            assert_eq!(polled.events, u64::from(50 * clients));
            assert_eq!((polled.events, polled.digest), (slept.events, slept.digest));
            assert_eq!((polled.errors, polled.wrong), (0, 0));
            assert_eq!(slept.polling, None);
            let polling = polled.polling.unwrap();
            assert!(polling <= polled.cpu, "{polling} of {}", polled.cpu);
        }
    }

    #[test]
    fn server_that_dies_ends_the_slice() {
        let dies: Behaviour = |number| match number {
            0..20 => Reaction::AnswerAfter(Duration::ZERO),
            _ => Reaction::Close,
        };
        for clients in [1, 7, 70] {
            for wait in ClientWait::ALL {
                let error = slice(wait, clients, 50, dies).unwrap_err().to_string();
                assert!(error.contains("closed the connection"), "{error}");
            }
        }
    }

    #[test]
    fn clients_of_a_server_that_pauses_sleep_after_the_limit() {
        let pauses: Behaviour = |_| Reaction::AnswerAfter(Duration::from_secs(1));
        for clients in [1, 3, 70] {
            let measured = slice(ClientWait::Poll, clients, 1, pauses).unwrap();
            assert_eq!(measured.events, u64::from(clients));
            assert!(measured.polling.unwrap() > Nanos::ZERO);
            assert!(measured.cpu < Nanos::from_millis(500), "{}", measured.cpu);
        }
    }
}
