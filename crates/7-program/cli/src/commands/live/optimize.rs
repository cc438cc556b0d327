//! `dbdyno live optimize` and `watch`: the arguments as a job, and its progress.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;
use std::time::Duration;

use dbdyno_live::{
    AbTest, Attachment, Event, KeepRule, OptimizeError, OptimizeJob, ProbeOptions, ProcessProfile,
    SamplingRequest, Supervision, Target, WatchRules, WorkCounter, hot_modules,
};
use dbdyno_machine::safe_files::SafeDir;
use dbdyno_relayout::{BoltProfile, LayoutError, Options, Profile, SampleRequirement, Samples};
use dbdyno_spec::experiment::Counts;
use dbdyno_units::Bytes;
use serde_json::json;

use super::{Session, text};
use crate::args::{Optimize, Watch};
use crate::commands::{export_file, own_program, stop_on_signals};
use crate::error::CliError;
use crate::output::{self, StepProgress};

pub(super) fn optimize(session: &Session, args: &Optimize) -> Result<ExitCode, CliError> {
    super::refuse_several(args.target.pid, &args.target.more.pids)?;
    let job = job(session, args)?;
    let mut progress = Progress::default();
    let mut events = |event: Event<'_>| progress.show(&event);
    if args.dry_run {
        let attachment = job.attach_unchanged()?;
        let mut profile = profile(&attachment, args, &mut events)?;
        let plan = job.plan(attachment, &mut profile, &mut events);
        let plan = plan.map_err(|error| session.failed(args, error))?;
        let refused = plan.refused.is_some();
        session.print(&json!([plan]), &text::planned(&plan, job.target.max_pause));
        return Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let attachment = job.attach(&mut events)?;
    let profile = profile(&attachment, args, &mut events)?;
    // Until then, signals end dbdyno.
    let cancel = match job.count || job.ab_test.is_some() {
        true => Some(stop_on_signals("stopping")?),
        false => None,
    };
    let is_cancelled = || cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed));
    let supervision = Supervision { is_cancelled: &is_cancelled, guard: Some(&guard) };
    let outcome = job.run(attachment, profile, supervision, &mut events);
    let outcome = outcome.map_err(|error| session.failed(args, error))?;
    let mut values = vec![json!(outcome)];
    values.extend(outcome.members.iter().map(|member| json!(member)));
    session.print(&json!(values), &text::optimized(&outcome));
    Ok(if outcome.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

pub(super) fn watch(session: &Session, args: &Watch) -> Result<ExitCode, CliError> {
    let rules = fs::read_to_string(&args.file).map_err(CliError::read(&args.file))?;
    let rules = WatchRules::parse(&args.file.display().to_string(), &rules)
        .map_err(|problems| CliError::Experiment(problems.to_string()))?;
    let mut progress = Progress::default();
    let supervision = Supervision { guard: Some(&guard), ..Supervision::NONE };
    dbdyno_live::watch(
        &rules,
        &session.state,
        args.seconds.map(Duration::from_secs),
        supervision,
        &mut |report| match session.json {
            true => output::print_json(&format!("{}\n", json!(report))),
            false => output::print(&text::watched(report)),
        },
        &mut |event| progress.show(&event),
    );
    Ok(ExitCode::SUCCESS)
}

fn job(session: &Session, args: &Optimize) -> Result<OptimizeJob, CliError> {
    let pid = args.target.pid;
    let required = (!args.force).then(SampleRequirement::default);
    let layout = Options { required, ..Options::default() };
    let time = seconds(args.ab_test, "--ab-test")?;
    let keep = if args.keep { KeepRule::Always } else { KeepRule::IfBetter };
    let ab_test = |command: &String| AbTest { work: WorkCounter::new(pid, command), time, keep };
    Ok(OptimizeJob {
        target: Target {
            family: args.target.family,
            probe: ProbeOptions { allow_seccomp: args.allow_seccomp, unmap: args.unmap },
            ..session.target(pid, &args.target.options)
        },
        count: args.counts == Counts::Exact,
        layout: if args.keep_order { layout.in_original_order() } else { layout },
        symbols: true,
        ab_test: args.work_command.as_ref().map(ab_test),
    })
}

/// Samples a process, or reads its profile from a file.
fn profile(
    attachment: &Attachment,
    args: &Optimize,
    events: dbdyno_live::Events<'_>,
) -> Result<ProcessProfile, CliError> {
    if let Some(path) = &args.profile_in {
        let text = read_profile(path).map_err(CliError::read(path))?;
        let profile: Profile = serde_json::from_slice(&text)
            .map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
        return Ok(ProcessProfile::of_file(attachment, &profile, path, events)?);
    }
    // Before the sampling, which takes long.
    let files = [&args.profile_out, &args.bolt_out];
    export_file::check_all(&files)?;
    let is_exported = files.into_iter().any(Option::is_some);
    let family = args.target.family;
    let request = SamplingRequest {
        time: args.seconds.map(|value| seconds(value, "--seconds")).transpose()?,
        frequency: args.frequency,
        max_overhead: args.max_overhead,
        // Other users of the profile have the samples only.
        counted: args.counts == Counts::Exact && !family && !is_exported,
    };
    let profile = ProcessProfile::sample(attachment, family, &request, events)?;
    if is_exported {
        write_profiles(attachment, &profile.samples, args)?;
    }
    Ok(profile)
}

/// As of profiles from hosts.
const LARGEST_PROFILE: Bytes = Bytes::from_mib(64);

fn read_profile(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.canonicalize()?;
    let directory = SafeDir::open(path.parent().unwrap_or(&path))?;
    directory.read(Path::new(path.file_name().unwrap_or_default()), LARGEST_PROFILE)
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
        note_samples_without_symbol(path, &profile);
    }
    Ok(())
}

fn note_samples_without_symbol(path: &Path, profile: &BoltProfile) {
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

impl Session {
    /// The error, with advice about too few samples. With --json, its reasons are printed, too.
    fn failed(&self, args: &Optimize, error: OptimizeError) -> CliError {
        let text = error.to_string();
        match error {
            OptimizeError::Live(error) => error.into(),
            OptimizeError::Layout { source, left_alone, .. } => {
                let rejected = match &source {
                    LayoutError::NothingHot { rejected, .. } => &rejected.0[..],
                    LayoutError::TooFewSamples(_, rejected) => &rejected.0[..],
                    _ => &[],
                };
                if self.json {
                    let rejected: BTreeMap<_, _> =
                        rejected.iter().map(|(reason, _, samples)| (reason, samples)).collect();
                    let (pid, left) = (args.target.pid, &left_alone);
                    let value = json!({ "pid": pid, "error": text, "left_alone": left,
                        "rejected_samples": rejected });
                    self.print(&json!([value]), &[]);
                }
                let is_explained = !left_alone.is_empty() || !rejected.is_empty();
                CliError::Other(match source {
                    LayoutError::TooFewSamples(reason, _) => {
                        text::with_advice(&reason, text, is_explained)
                    }
                    _ => text,
                })
            }
            _ => CliError::Other(text),
        }
    }
}

/// The command of the guard of counting, which runs `live guard-counting`.
fn guard(target: &Target) -> io::Result<Command> {
    let mut command = Command::new(own_program().map_err(io::Error::other)?);
    command.args(["live", "guard-counting", "--pid", &target.pid.to_string()]);
    command.args(["--max-pause", &target.max_pause.as_millis().to_string(), "--state"]);
    command.arg(&target.state);
    Ok(command)
}

/// The progress of a job.
#[derive(Default)]
struct Progress(Option<StepProgress>);

impl Progress {
    fn show(&mut self, event: &Event<'_>) {
        if let Event::TimePasses(total) = event {
            self.0.iter().for_each(|progress| progress.time_passes(*total));
            return;
        }
        self.0 = None;
        output::note(&text::event(event));
        self.0 = match event {
            Event::Sampling { .. } | Event::SamplingLonger { .. } => {
                Some(StepProgress::start("sampling"))
            }
            Event::AbTest(_) => Some(StepProgress::start("A/B test")),
            _ => None,
        };
    }
}

/// A number of seconds given as an option.
fn seconds(value: f64, option: &str) -> Result<Duration, CliError> {
    match Duration::try_from_secs_f64(value) {
        Ok(time) if (0.1..=3600.0).contains(&value) => Ok(time),
        _ => Err(CliError::Usage(format!("{option} {value}: must be 0.1 to 3600 seconds"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_regular_files_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let (sparse, pipe) = (directory.path().join("sparse"), directory.path().join("pipe"));
        fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let refusal = |path: &Path| read_profile(path).unwrap_err().to_string();
        assert!(refusal(&sparse).contains("larger than"), "{}", refusal(&sparse));
        assert!(refusal(&pipe).contains("not a regular file"), "{}", refusal(&pipe));
    }
}
