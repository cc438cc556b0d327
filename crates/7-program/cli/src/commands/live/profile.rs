//! Profiles of a process: sampled, or read from files.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dbdyno_live::{
    Attachment, Sampled, SamplingOptions, SamplingPlan, SamplingRequest, hot_modules,
    map_to_original, sample,
};
use dbdyno_relayout::{BoltProfile, Profile, Samples};
use dbdyno_spec::experiment::Counts;
use serde_json::{Value, json};

use crate::args::Optimize;
use crate::commands::export_file;
use crate::error::CliError;
use crate::output::{self, StepProgress};

/// Samples in original code, and where they are from.
pub(super) struct ProfiledProcess {
    pub(super) samples: Samples,
    source: ProfileSource,
}

enum ProfileSource {
    /// A file, described as JSON.
    File(Value),
    /// The process, sampled once or more.
    Process { plan: SamplingPlan, taken: Vec<(Duration, Sampled)> },
}

/// Samples a process, or reads its profile from a file.
pub(super) fn profile(
    attachment: &Attachment,
    args: &Optimize,
) -> Result<ProfiledProcess, CliError> {
    if let Some(path) = &args.profile_in {
        return read_profile(attachment, path);
    }
    // Before the sampling, which takes long.
    let files = [&args.profile_out, &args.bolt_out];
    for file in files.into_iter().flatten() {
        export_file::check(file)?;
    }
    let is_exported = files.into_iter().any(Option::is_some);
    let request = SamplingRequest {
        time: args.seconds.map(|value| super::seconds(value, "--seconds")).transpose()?,
        frequency: args.frequency,
        max_overhead: args.max_overhead,
        // Other users of the profile have the samples only.
        counted: args.counts == Counts::Exact
            && !args.dry_run
            && !args.target.family
            && !is_exported,
    };
    let pid = args.target.pid;
    let plan = SamplingPlan::new(pid, &request)?;
    output::note(&announced(pid, &plan));
    let progress = StepProgress::start("sampling");
    let sampled = sample(pid, args.target.family, &plan.options, |_| {
        progress.time_passes(plan.options.time);
        false
    })?;
    drop(progress);
    output::note(&taken(&plan, &sampled));
    let samples = map_to_original(attachment, &sampled.samples);
    if is_exported {
        write_profiles(attachment, &samples, args)?;
    }
    let source = ProfileSource::Process { plan, taken: vec![(plan.options.time, sampled)] };
    Ok(ProfiledProcess { samples, source })
}

impl ProfiledProcess {
    /// Samples the process longer, because its executions could not be counted, until `is_cancelled`.
    pub(super) fn prolong(
        &mut self,
        attachment: &Attachment,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<(), CliError> {
        let ProfileSource::Process { plan, taken: all } = &mut self.source else { return Ok(()) };
        let time = plan.prolonged_without_counts;
        if time.is_zero() {
            return Ok(());
        }
        let pid = attachment.process().pid();
        output::note(&format!(
            "executions were not counted, so process {pid} is sampled for another {}",
            seconds_text(time)
        ));
        let frequency = all.last().map_or(plan.options.frequency, |(_, last)| last.frequency);
        let options = SamplingOptions { time, frequency, ..plan.options };
        let progress = StepProgress::start("sampling");
        let sampled = sample(pid, false, &options, |_| {
            progress.time_passes(time);
            is_cancelled()
        })?;
        drop(progress);
        output::note(&taken(plan, &sampled));
        self.samples.add_all(&map_to_original(attachment, &sampled.samples));
        all.push((time, sampled));
        Ok(())
    }

    /// Where the samples are from, as JSON.
    pub(super) fn json(&self) -> Value {
        let (plan, taken) = match &self.source {
            ProfileSource::File(file) => return file.clone(),
            ProfileSource::Process { plan, taken } => (plan, taken),
        };
        let last = taken.last().map(|(_, sampled)| sampled);
        let sum = |of: fn(&Sampled) -> u64| taken.iter().map(|(_, it)| of(it)).sum::<u64>();
        let seconds: f64 = taken.iter().map(|(time, _)| time.as_secs_f64()).sum();
        let fraction = |share: dbdyno_units::Share| share.as_fraction();
        json!({
            "source": last.map(|it| it.source),
            "samples": sum(|it| it.samples.total()),
            "lost": sum(|it| it.lost),
            "seconds": seconds,
            "frequency": plan.options.frequency,
            "final_frequency": last.map(|it| it.frequency),
            "per_sample_ns": plan.cost.per_sample.as_nanos(),
            "expected_overhead": fraction(plan.overhead()),
            "overhead": last.and_then(|it| it.overhead).map(fraction),
        })
    }
}

/// What sampling will cost, before it starts.
pub(super) fn announced(pid: u32, plan: &SamplingPlan) -> String {
    let (options, cost) = (&plan.options, &plan.cost);
    let mut text = format!(
        "sampling process {pid} for {}, {} times per second and CPU; this takes about {} of the CPU \
         time that it uses ({} per sample, as measured on this machine)",
        seconds_text(options.time),
        options.frequency,
        percent(plan.overhead()),
        cost.per_sample,
    );
    if let Some(most) = options.max_overhead {
        text.push_str(&format!("; the limit is {most} (--max-overhead)"));
    }
    text
}

/// What was sampled, and what it cost.
fn taken(plan: &SamplingPlan, sampled: &Sampled) -> String {
    let total = sampled.samples.total();
    let mut text = format!("{total} samples of {}", sampled.source);
    if let Some(overhead) = sampled.overhead {
        text.push_str(&format!("; sampling took {} of a busy CPU's time", percent(overhead)));
    }
    if sampled.frequency < plan.options.frequency {
        text.push_str(&format!(
            "; the rate was lowered to {} per second to stay within the limit",
            sampled.frequency
        ));
    }
    text
}

fn percent(share: dbdyno_units::Share) -> String {
    format!("{:.1}%", share.as_percent())
}

fn seconds_text(time: Duration) -> String {
    let text = format!("{:.1}", time.as_secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

fn write_profiles(
    attachment: &Attachment,
    samples: &Samples,
    args: &Optimize,
) -> Result<(), CliError> {
    let found = hot_modules(attachment, samples)?.found;
    if let Some(path) = &args.profile_out {
        let images: Vec<_> = found.iter().map(|hot_module| &hot_module.image).collect();
        let text = serde_json::to_string(&samples.to_profile(&images))
            .map_err(|error| CliError::Other(error.to_string()))?;
        export_file::write(path, &text)?;
    }
    if let Some(path) = &args.bolt_out {
        let program = found.iter().find(|it| it.module.path() == attachment.process().program());
        let program = program.ok_or_else(|| {
            let program = attachment.process().program().display();
            CliError::Other(format!("there are no samples in {program} for BOLT"))
        })?;
        let profile = BoltProfile::new(&program.image, samples);
        export_file::write(path, &profile.text)?;
        if profile.without_symbol > 0 {
            output::note(&format!(
                "{}: {} samples written, {} without a symbol omitted: BOLT identifies functions by \
                 symbols, which a stripped program does not have",
                path.display(),
                profile.written,
                profile.without_symbol
            ));
        }
    }
    Ok(())
}

fn read_profile(attachment: &Attachment, path: &Path) -> Result<ProfiledProcess, CliError> {
    let unread = |source| CliError::Read { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(unread)?;
    let profile: Profile = serde_json::from_str(&text)
        .map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
    let all = dbdyno_live::all_images(attachment.process())?;
    let images: Vec<_> = all.iter().collect();
    let (samples, unused) = profile.to_samples(&images);
    for module in &unused {
        output::note(&format!("{}: no file in the process matches {module}", path.display()));
    }
    let file = json!({ "file": path, "samples": samples.total(), "unused": unused });
    Ok(ProfiledProcess { samples, source: ProfileSource::File(file) })
}

#[cfg(test)]
mod tests {
    use dbdyno_live::SamplingCost;
    use dbdyno_units::{Nanos, Share};

    use dbdyno_live::SampleSource;

    use super::*;

    #[test]
    fn cost_of_sampling_is_announced_and_reported() {
        let cost =
            SamplingCost { per_sample: Nanos::from_micros(20), other: Share::from_percent(1.0) };
        let options = SamplingOptions {
            time: Duration::from_secs(47),
            frequency: 2_500,
            cost: Some(cost),
            max_overhead: Some(Share::from_percent(5.0)),
        };
        let prolonged_without_counts = Duration::ZERO;
        let plan =
            SamplingPlan { source: SampleSource::Clock, options, cost, prolonged_without_counts };
        assert_eq!(
            announced(12, &plan),
            "sampling process 12 for 47 s, 2500 times per second and CPU; this takes about 5.0% of \
             the CPU time that it uses (20 µs per sample, as measured on this machine); the limit \
             is 5% (--max-overhead)"
        );
        let sampled = Sampled {
            source: SampleSource::Clock,
            samples: Samples::default(),
            lost: 0,
            events: 1,
            frequency: 1_000,
            overhead: Some(Share::from_percent(4.0)),
        };
        assert_eq!(
            taken(&plan, &sampled),
            "0 samples of the CPU clock; sampling took 4.0% of a busy CPU's time; the rate was \
             lowered to 1000 per second to stay within the limit"
        );
    }
}
