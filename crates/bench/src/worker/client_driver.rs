//! Client drivers: how a thread drives its clients.

use std::os::fd::OwnedFd;

use dbdyno_drivers::{Connection, NonBlockingConnection};
use dbdyno_machine::clock;
use dbdyno_machine::tsc::TickSource;
use dbdyno_record::SliceMeasured;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::client::Client;
use super::deadline::Deadline;
use super::error::RequestError;
use super::meter::Meter;
use super::readings::Readings;
use crate::latency::TickHistogram;
use crate::slice::SliceRequest;

/// Drives the clients of a thread through the two parts of a slice.
pub(super) trait ClientDriver<C>: Sized + Send + 'static {
    /// A driver for these clients.
    fn new(clients: &mut [Client<C>]) -> std::io::Result<Self>;

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

/// One client per thread, with blocking calls.
pub(super) struct Blocking;

impl<C: Connection> ClientDriver<C> for Blocking {
    fn new(_: &mut [Client<C>]) -> std::io::Result<Self> {
        Ok(Self)
    }

    fn lead_in<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
    ) -> Result<(), RequestError> {
        clients.iter_mut().try_for_each(|client| client.lead_in::<T>(request))
    }

    fn timed<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, RequestError> {
        let [client] = clients else { return Err("a blocking thread has one client".into()) };
        client.timed::<T>(request, meter)
    }
}

/// Many clients per thread. The thread waits with epoll for replies on all connections. A single
/// client uses blocking calls instead, which saves a system call per statement.
pub(super) struct Epoll {
    epoll: OwnedFd,
    ready: Vec<Event>,
    /// Response times of all clients; one histogram per client would fill the cache.
    histogram: TickHistogram,
}

// SAFETY: the data of the events are client numbers, never pointers.
unsafe impl Send for Epoll {}

impl Epoll {
    /// Runs events on all clients until each has passed the deadline.
    fn run<C: NonBlockingConnection, T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        deadline: Deadline,
        mut stopped: impl FnMut(&mut Client<C>),
    ) -> Result<(), RequestError> {
        for client in &mut *clients {
            client.begin_event(T::now())?;
        }
        let mut running = clients.len();
        while running > 0 {
            let count = self.wait()?;
            for event in &self.ready[..count] {
                let client = &mut clients[event.data.u64() as usize];
                if client.advance::<T>(deadline, &mut self.histogram)? {
                    stopped(client);
                    running -= 1;
                }
            }
        }
        Ok(())
    }

    /// Waits until connections are readable. Returns the number of events in `ready`.
    fn wait(&mut self) -> Result<usize, RequestError> {
        loop {
            match epoll::wait(&self.epoll, &mut self.ready[..], None) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("waiting for replies: {error}").into()),
            }
        }
    }
}

impl<C: NonBlockingConnection> ClientDriver<C> for Epoll {
    fn new(clients: &mut [Client<C>]) -> std::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (number, client) in (0..).zip(clients.iter_mut()) {
            epoll::add(&epoll, client.connection(), EventData::new_u64(number), EventFlags::IN)?;
        }
        let no_event = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let ready = vec![no_event; clients.len().max(1)];
        Ok(Self { epoll, ready, histogram: TickHistogram::new() })
    }

    fn lead_in<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
    ) -> Result<(), RequestError> {
        if let [client] = clients {
            return client.lead_in::<T>(request);
        }
        for client in &mut *clients {
            client.begin_slice(request)?;
        }
        let (Some(lead_in), Some(first)) = (request.lead_in, clients.first()) else {
            return Ok(());
        };
        let deadline = Deadline::of::<T>(lead_in, first.calibration());
        self.run::<C, T>(clients, deadline, |_| ())
    }

    fn timed<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        request: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, RequestError> {
        if let [client] = clients {
            return client.timed::<T>(request, meter);
        }
        clients.iter_mut().for_each(Client::start_counting);
        self.histogram.clear();
        let Some(first) = clients.first() else { return Ok(SliceMeasured::default()) };
        let calibration = first.calibration();
        let readings = Readings::now(meter);
        let deadline = Deadline::of::<T>(request.quota, calibration);
        let mut total: Option<SliceMeasured> = None;
        self.run::<C, T>(clients, deadline, |client| {
            let own = client.finish(clock::monotonic() - readings.started);
            match &mut total {
                Some(total) => total.merge(own),
                None => total = Some(own),
            }
        })?;
        let mut total = total.unwrap_or_default();
        readings.finish(&mut total);
        total.latencies = self.histogram.drain(|ticks| calibration.to_nanos(ticks));
        Ok(total)
    }
}
