//! Where a step of the insert benchmark gets readings from, and reports its seconds to.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use dbdyno_machine::ProcessTree;
use dbdyno_types::insert::Second;

use super::error::{RequestError, ServeError};
use super::insert::StepLink;
use super::serve::{receive, send};
use super::step_meter::StepMeter;
use crate::protocol::{Request, Response, StepReading, StepUsages};

/// A system under test on this machine.
pub(super) struct Here<'a, W> {
    /// Its processes, if they are known.
    family: Option<&'a mut ProcessTree>,
    data: Option<PathBuf>,
    meter: Option<StepMeter>,
    responses: &'a mut W,
}

impl<'a, W: Write> Here<'a, W> {
    /// `data` is the directory of its files, if it is known.
    pub fn new(
        family: Option<&'a mut ProcessTree>,
        data: Option<PathBuf>,
        responses: &'a mut W,
    ) -> Self {
        Self { family, data, meter: None, responses }
    }
}

impl<W: Write> StepLink for Here<'_, W> {
    fn read(&mut self, reading: StepReading) -> Result<StepUsages, RequestError> {
        let Self { family, data, meter, .. } = self;
        Ok(match (reading, meter) {
            (StepReading::Second, Some(meter)) => meter.second(family.as_deref_mut()),
            (StepReading::Start | StepReading::Second, meter) => {
                *meter = Some(StepMeter::start(family.as_deref_mut(), data.as_deref()));
                StepUsages::default()
            }
        })
    }

    fn report(&mut self, second: Second) -> Result<(), RequestError> {
        report(self.responses, second)
    }
}

/// A server on another host, whose usage dbdyno reads there.
pub(super) struct OnHost<'a, R, W> {
    pub requests: &'a mut R,
    pub responses: &'a mut W,
}

impl<R: BufRead, W: Write> StepLink for OnHost<'_, R, W> {
    fn read(&mut self, reading: StepReading) -> Result<StepUsages, RequestError> {
        send(self.responses, &Response::ReadStep(reading)).map_err(broken)?;
        match receive(self.requests).map_err(broken)? {
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
