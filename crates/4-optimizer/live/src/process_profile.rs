//! The samples of a process that an optimization is based on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dbdyno_relayout::{Profile, Samples};
use serde::Serialize;

use crate::LiveError;
use crate::attachment::Attachment;
use crate::hot_modules::{all_images, map_to_original};
use crate::job::{Event, Events};
use crate::sample::{
    SampleSource, Sampled, SamplingOptions, SamplingPlan, SamplingRequest, sample,
};

/// Samples in original code, and where they are from.
#[derive(Clone, Debug)]
pub struct ProcessProfile {
    pub samples: Samples,
    source: ProfileSource,
}

#[derive(Clone, Debug)]
enum ProfileSource {
    /// The caller.
    Given,
    File {
        file: PathBuf,
        unused: Vec<String>,
    },
    /// The process, sampled once or more.
    Process {
        plan: SamplingPlan,
        taken: Vec<(Duration, Sampled)>,
    },
}

/// The description of a profile.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ProfileReport {
    Given {
        samples: u64,
    },
    File {
        file: PathBuf,
        samples: u64,
        /// Files of the profile that the process has not loaded.
        unused: Vec<String>,
    },
    Process {
        source: SampleSource,
        samples: u64,
        lost: u64,
        seconds: f64,
        /// Samples per second and CPU.
        frequency: u32,
        final_frequency: u32,
        per_sample_ns: u64,
        /// Share of a busy CPU's time, 0 to 1.
        expected_overhead: f64,
        overhead: Option<f64>,
    },
}

impl ProcessProfile {
    /// These samples, which are in original code.
    #[must_use]
    pub const fn given(samples: Samples) -> Self {
        Self { samples, source: ProfileSource::Given }
    }

    /// The samples of another process with the same files. `file` is where they were stored.
    ///
    /// # Errors
    /// The process exited.
    pub fn of_file(
        attachment: &Attachment,
        profile: &Profile,
        file: &Path,
        events: Events<'_>,
    ) -> Result<Self, LiveError> {
        let all = all_images(attachment.process())?;
        let (samples, unused) = profile.to_samples(&all.iter().collect::<Vec<_>>());
        for module in &unused {
            events(Event::Unmatched { module });
        }
        let file = file.to_owned();
        Ok(Self { samples, source: ProfileSource::File { file, unused } })
    }

    /// Samples the process; with `family`, also its descendants.
    ///
    /// # Errors
    /// The process exited, or the kernel does not permit sampling.
    pub fn sample(
        attachment: &Attachment,
        family: bool,
        request: &SamplingRequest,
        events: Events<'_>,
    ) -> Result<Self, LiveError> {
        let pid = attachment.process().pid();
        let plan = SamplingPlan::new(pid, request)?;
        events(Event::Sampling { pid, plan: &plan });
        let time = plan.options.time;
        let sampled = sample(pid, family, &plan.options, |_| {
            events(Event::TimePasses(time));
            false
        })?;
        events(Event::Sampled { plan: &plan, sampled: &sampled });
        let samples = map_to_original(attachment, &sampled.samples);
        let source = ProfileSource::Process { plan, taken: vec![(time, sampled)] };
        Ok(Self { samples, source })
    }

    /// Samples the process longer, because its executions could not be counted, until `is_cancelled`. Does nothing
    /// with samples that are not from the process, or if the user chose the duration.
    pub(crate) fn prolong(
        &mut self,
        attachment: &Attachment,
        is_cancelled: impl Fn() -> bool,
        events: Events<'_>,
    ) -> Result<(), LiveError> {
        let ProfileSource::Process { plan, taken } = &mut self.source else { return Ok(()) };
        let time = plan.prolonged_without_counts;
        if time.is_zero() {
            return Ok(());
        }
        let pid = attachment.process().pid();
        events(Event::SamplingLonger { pid, time });
        let frequency = taken.last().map_or(plan.options.frequency, |(_, last)| last.frequency);
        let options = SamplingOptions { time, frequency, ..plan.options };
        let sampled = sample(pid, false, &options, |_| {
            events(Event::TimePasses(time));
            is_cancelled()
        })?;
        events(Event::Sampled { plan, sampled: &sampled });
        self.samples.add_all(&map_to_original(attachment, &sampled.samples));
        taken.push((time, sampled));
        Ok(())
    }

    /// Describes it.
    #[must_use]
    pub fn report(&self) -> ProfileReport {
        let samples = self.samples.total();
        let (plan, taken) = match &self.source {
            ProfileSource::Given => return ProfileReport::Given { samples },
            ProfileSource::File { file, unused } => {
                let (file, unused) = (file.clone(), unused.clone());
                return ProfileReport::File { file, samples, unused };
            }
            ProfileSource::Process { plan, taken } => (plan, taken),
        };
        let last = taken.last().map(|(_, sampled)| sampled);
        let sum = |of: fn(&Sampled) -> u64| taken.iter().map(|(_, it)| of(it)).sum::<u64>();
        ProfileReport::Process {
            source: last.map_or(plan.source, |it| it.source),
            samples: sum(|it| it.samples.total()),
            lost: sum(|it| it.lost),
            seconds: taken.iter().map(|(time, _)| time.as_secs_f64()).sum(),
            frequency: plan.options.frequency,
            final_frequency: last.map_or(plan.options.frequency, |it| it.frequency),
            per_sample_ns: plan.cost.per_sample.as_nanos(),
            expected_overhead: plan.overhead().as_fraction(),
            overhead: last.and_then(|it| it.overhead).map(|share| share.as_fraction()),
        }
    }
}
