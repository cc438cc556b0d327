//! Readings of servers' usage. They are taken on the thread that reads requests: waking another one can take
//! longer than a reading.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dbdyno_bench::protocol::{Reading, TimedUsage};
use dbdyno_bench::worker::{ServerMonitor, TimedPart};
use dbdyno_units::Nanos;

/// The monitors of all servers, by the agent's number.
#[derive(Clone, Default)]
pub(super) struct Readings(Arc<Mutex<BTreeMap<u32, Monitored>>>);

struct Monitored {
    monitor: ServerMonitor,
    background: Option<Nanos>,
    timed_part: Option<TimedPart>,
}

impl Readings {
    pub fn add(&self, server: u32, monitor: ServerMonitor) {
        let monitored = Monitored { monitor, background: None, timed_part: None };
        self.lock().insert(server, monitored);
    }

    pub fn remove(&self, server: u32) {
        self.lock().remove(&server);
    }

    /// Takes a reading; `None` if the usage is unknown, and for readings that do not end a timed part.
    pub fn take(&self, server: u32, reading: Reading) -> Option<TimedUsage> {
        self.lock().get_mut(&server)?.take(reading)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Monitored>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Monitored {
    fn take(&mut self, reading: Reading) -> Option<TimedUsage> {
        match reading {
            Reading::LeadIn { interrupted } => {
                if interrupted {
                    self.monitor.interrupt();
                    self.background = None;
                }
                self.background = self.monitor.background();
                None
            }
            Reading::Start => {
                self.timed_part = Some(self.monitor.start(self.background.take()));
                None
            }
            Reading::End => self.timed_part.take().map(|started| self.monitor.end(started)),
        }
    }
}
