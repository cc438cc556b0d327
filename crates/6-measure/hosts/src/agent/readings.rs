//! Readings of servers' usage. They are taken on the thread that reads requests: waking another one can take
//! longer than a reading.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dbdyno_units::Nanos;
use dbdyno_worker::protocol::{Reading, StepReading, StepUsages, TimedUsage};
use dbdyno_worker::{ServerMonitor, StepMeter, TimedPart};

/// The monitors of all servers, by the agent's number.
#[derive(Clone, Default)]
pub(super) struct Readings(Arc<Mutex<BTreeMap<u32, Monitored>>>);

struct Monitored {
    monitor: ServerMonitor,
    background: Option<Nanos>,
    timed_part: Option<TimedPart>,
    /// The directory with the server's files, if it is known.
    data: Option<PathBuf>,
    step: Option<StepMeter>,
}

impl Readings {
    /// `data` is the directory with the server's files, if it is known.
    pub fn add(&self, server: u32, monitor: ServerMonitor, data: Option<PathBuf>) {
        let monitored = Monitored { monitor, background: None, timed_part: None, data, step: None };
        self.lock().insert(server, monitored);
    }

    pub fn remove(&self, server: u32) {
        self.lock().remove(&server);
    }

    /// Takes a reading; `None` if the usage is unknown, and for readings that do not end a timed part.
    pub fn take(&self, server: u32, reading: Reading) -> Option<TimedUsage> {
        self.lock().get_mut(&server)?.take(reading)
    }

    /// Takes a reading in a step of the insert benchmark; all unknown for its start.
    pub fn take_in_step(&self, server: u32, reading: StepReading) -> StepUsages {
        let mut all = self.lock();
        all.get_mut(&server).map_or_else(StepUsages::default, |one| one.take_in_step(reading))
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

    fn take_in_step(&mut self, reading: StepReading) -> StepUsages {
        let family = Some(self.monitor.family());
        match (reading, &mut self.step) {
            (StepReading::Second, Some(step)) => step.second(family),
            (StepReading::Start | StepReading::Second, step) => {
                *step = Some(StepMeter::start(family, self.data.as_deref()));
                StepUsages::default()
            }
        }
    }
}
