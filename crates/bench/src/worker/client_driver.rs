//! How a thread drives its clients.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use dbdyno_drivers::{Connection, NonBlockingConnection};
use dbdyno_machine::clock;
use dbdyno_machine::tsc::TickSource;
use dbdyno_record::SliceMeasured;

use super::client::Client;
use super::deadline::Deadline;
use super::meter::Meter;
use super::readings::Readings;
use crate::latency::TickHistogram;
use crate::slice::SliceRequest;

/// How a thread drives its clients through the two parts of a slice.
pub(super) trait ClientDriver<C>: Sized + Send + 'static {
    /// Gets ready to drive these clients.
    fn new(clients: &mut [Client<C>]) -> std::io::Result<Self>;

    /// Runs the lead-in of a slice on all of `clients`, the first of those given to [`Self::new`].
    fn lead_in<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        order: SliceRequest,
    ) -> Result<(), String>;

    /// Runs the timed part. The meter is the thread's.
    fn timed<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        order: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, String>;
}

/// One client per thread, which waits inside its calls.
pub(super) struct Blocking;

impl<C: Connection> ClientDriver<C> for Blocking {
    fn new(_: &mut [Client<C>]) -> std::io::Result<Self> {
        Ok(Self)
    }

    fn lead_in<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        order: SliceRequest,
    ) -> Result<(), String> {
        clients.iter_mut().try_for_each(|client| client.lead_in::<T>(order))
    }

    fn timed<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        order: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, String> {
        let [client] = clients else { return Err("a thread has one client".to_owned()) };
        client.timed::<T>(order, meter)
    }
}

/// Many clients per thread: it waits for whichever connection has an answer first. A single one
/// waits inside its calls, which saves it a system call per statement.
pub(super) struct Epoll {
    epoll: OwnedFd,
    ready: Vec<libc::epoll_event>,
    /// Of all clients: the tables of many would share the cache with little else.
    histogram: TickHistogram,
}

impl Epoll {
    /// Runs events on all clients until each has passed the deadline.
    fn run<C: NonBlockingConnection, T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        deadline: Deadline,
        mut stopped: impl FnMut(&mut Client<C>),
    ) -> Result<(), String> {
        for client in &mut *clients {
            client.begin_event(T::now())?;
        }
        let mut at_work = clients.len();
        while at_work > 0 {
            let count = self.wait()?;
            for event in &self.ready[..count] {
                let client = &mut clients[event.u64 as usize];
                if client.go_on::<T>(deadline, &mut self.histogram)? {
                    stopped(client);
                    at_work -= 1;
                }
            }
        }
        Ok(())
    }

    /// Waits until connections can be read. So many are then listed as ready.
    fn wait(&mut self) -> Result<usize, String> {
        let most = self.ready.len() as i32;
        let count = loop {
            // SAFETY: the buffer has room for as many events as are asked for.
            let count = unsafe {
                libc::epoll_wait(self.epoll.as_raw_fd(), self.ready.as_mut_ptr(), most, -1)
            };
            if count >= 0 {
                break count;
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(format!("waiting for answers: {error}"));
            }
        };
        Ok(count as usize)
    }
}

impl<C: NonBlockingConnection> ClientDriver<C> for Epoll {
    fn new(clients: &mut [Client<C>]) -> std::io::Result<Self> {
        // SAFETY: makes a new descriptor and touches no memory.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else has it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        for (number, client) in (0..).zip(clients.iter_mut()) {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
            let connection = client.connection().as_fd().as_raw_fd();
            // SAFETY: both descriptors are open; the event is copied.
            let added = unsafe {
                let operation = libc::EPOLL_CTL_ADD;
                libc::epoll_ctl(epoll.as_raw_fd(), operation, connection, &raw mut event)
            };
            if added != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        let room = libc::epoll_event { events: 0, u64: 0 };
        let ready = vec![room; clients.len().max(1)];
        Ok(Self { epoll, ready, histogram: TickHistogram::new() })
    }

    fn lead_in<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        order: SliceRequest,
    ) -> Result<(), String> {
        if let [client] = clients {
            return client.lead_in::<T>(order);
        }
        for client in &mut *clients {
            client.begin_slice(order)?;
        }
        let (Some(lead_in), Some(first)) = (order.lead_in, clients.first()) else { return Ok(()) };
        let deadline = Deadline::of::<T>(lead_in, first.calibration());
        self.run::<C, T>(clients, deadline, |_| ())
    }

    fn timed<T: TickSource>(
        &mut self,
        clients: &mut [Client<C>],
        order: SliceRequest,
        meter: &Meter,
    ) -> Result<SliceMeasured, String> {
        if let [client] = clients {
            return client.timed::<T>(order, meter);
        }
        clients.iter_mut().for_each(Client::start_counting);
        self.histogram.clear();
        let Some(first) = clients.first() else { return Ok(SliceMeasured::default()) };
        let calibration = first.calibration();
        let readings = Readings::now(meter);
        let deadline = Deadline::of::<T>(order.quota, calibration);
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
