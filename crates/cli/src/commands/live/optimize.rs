//! `dbdyno live optimize`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dbdyno_live::{
    AbTestOutcome, AbTestVerdict, AttachedGroup, Attachment, LiveError, MemberOutcome,
    OptimizeError, Optimized, PreparedPatch, SamplingOptions, WorkCounter, descendants,
    hot_modules, map_to_original, optimize_descendants, sample, symbols,
};
use dbdyno_machine::OwnUsage;
use dbdyno_relayout::{BoltProfile, Options, Profile, Samples};
use serde_json::{Value, json};

use super::{Session, text};
use crate::args::Optimize;
use crate::commands::stop_on_signals;
use crate::error::CliError;
use crate::output;

pub(super) fn optimize(session: &Session, args: &Optimize) -> Result<ExitCode, CliError> {
    args.warn_about_former_names();
    let (pid, options) = (args.target.pid, &args.target.options);
    let mut attachment = session.attach(pid, options)?;
    let work = args.work_command.as_deref().map(|command| WorkCounter::new(pid, command));
    let test_time = seconds(args.ab_test_seconds(), "--ab-test")?;
    // Fail on a wrong command before anything is changed.
    work.as_ref().map(WorkCounter::count).transpose()?;
    let (samples, profile) = profile(&attachment, args)?;
    let layout = Options {
        reorder_blocks: !args.keep_order,
        reorder_functions: !args.keep_order,
        ..Options::default()
    };
    if args.target.family {
        attachment.share_with(descendants(pid));
    }
    let (done, prepared) = run(&mut attachment, &samples, &layout)?;
    let gdb = symbols::gdb_script(&session.state, attachment.process().identity());
    let mut text = text::optimized(pid, &done);
    let mut value = json!({ "pid": pid, "profile": profile, "optimized": done, "gdb": gdb });
    if let Some(script) = gdb {
        text.push_str(&text::row("gdb", &format!("source {}", script.display())));
    }
    drop(attachment);
    let mut lines = String::new();
    let mut values = Vec::new();
    let mut members = Vec::new();
    let (probe, max_pause) = (options.probe(), options.max_pause());
    if args.target.family {
        optimize_descendants(
            pid,
            &prepared,
            &session.state,
            probe,
            max_pause,
            |member, outcome| {
                let (line, value) = member_outcome(&outcome);
                lines.push_str(&format!("Process {member}: {line}\n"));
                values.push(json!({ "pid": member, "outcome": value }));
                members.extend(outcome.is_ok().then_some(member));
            },
        );
    }
    let effect = match work {
        None => Effect::not_requested(),
        Some(work) => {
            let cancel = stop_on_signals("stopping the A/B test")?;
            output::note(&format!("A/B test of optimized and original code for {test_time:?}"));
            let group = AttachedGroup::open(pid, &members, &session.state, probe, max_pause);
            Effect::tested(group, |group| {
                work.ab_test(group, test_time, || cancel.load(Ordering::Relaxed))
            })
        }
    };
    text.push_str(&text::row("effect", &effect.text));
    let own = OwnUsage::now();
    text.push_str(&text::row("own cost", &text::own_cost(own)));
    text.push_str(&lines);
    value["effect"] = effect.json;
    value["own_cost"] = json!(own);
    values.insert(0, value);
    session.print(&json!(values), &text);
    Ok(if effect.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The measured effect of an optimization.
struct Effect {
    text: String,
    json: Value,
    /// Whether a requested A/B test failed.
    has_failed: bool,
}

impl Effect {
    fn not_requested() -> Self {
        let text = "not measured (no --work-command)".to_owned();
        Self { text, json: Value::Null, has_failed: false }
    }

    /// If the A/B test fails, the optimization stays active.
    fn tested(
        group: Result<AttachedGroup, LiveError>,
        ab_test: impl FnOnce(&mut AttachedGroup) -> Result<AbTestOutcome, LiveError>,
    ) -> Self {
        let mut group = match group {
            Ok(group) => group,
            Err(error) => {
                return Self::failed(&format!("active, but the A/B test failed: {error}"));
            }
        };
        match ab_test(&mut group) {
            Ok(outcome) => Self::applied(&outcome),
            Err(error) => match group.switch(Attachment::redo) {
                Ok(_) => Self::failed(&format!("active, but the A/B test failed: {error}")),
                Err(again) => Self::failed(&format!(
                    "the A/B test failed: {error}; activating it again failed: {again}"
                )),
            },
        }
    }

    fn applied(AbTestOutcome { result, applied }: &AbTestOutcome) -> Self {
        let is_worse = result.verdict == AbTestVerdict::Worse;
        let [done, not_done] =
            if is_worse { ["undone", "not undone"] } else { ["active", "not active again"] };
        let mut json = serde_json::to_value(result).unwrap_or_default();
        let mut text = format!("{result}; ");
        let errors: Vec<String> = match applied {
            Ok(all) => {
                text.push_str(done);
                all.failed.iter().map(|(pid, error)| format!("process {pid}: {error}")).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        for error in &errors {
            text.push_str(&format!("; {not_done}: {error}"));
        }
        if !errors.is_empty() {
            json["error"] = json!(errors);
        }
        Self { text, json, has_failed: !errors.is_empty() }
    }

    fn failed(text: &str) -> Self {
        Self { text: text.to_owned(), json: json!({ "error": text }), has_failed: true }
    }
}

/// The outcome for a descendant, as text and as JSON.
fn member_outcome(outcome: &Result<MemberOutcome, LiveError>) -> (String, Value) {
    match outcome {
        Ok(MemberOutcome::Inherited) => {
            ("inherited from its parent".to_owned(), json!("inherited"))
        }
        Ok(MemberOutcome::Switched(switched)) => (
            format!("optimized as its parent; {}", text::switched(switched)),
            json!({ "switched": switched }),
        ),
        Err(error) => (format!("not optimized: {error}"), json!({ "error": error.to_string() })),
    }
}

pub(super) fn run(
    attachment: &mut Attachment,
    samples: &Samples,
    options: &Options,
) -> Result<(Optimized, PreparedPatch), CliError> {
    let step = |step: &str| output::note(step);
    let done = dbdyno_live::optimize(attachment, samples, options, step);
    let (done, prepared) = done.map_err(|error| match error {
        OptimizeError::Live(error) => CliError::Live(error),
        other => CliError::Other(other.to_string()),
    })?;
    prepared.write_symbols(attachment);
    Ok((done, prepared))
}

/// Samples in original code, and a description of their source.
fn profile(attachment: &Attachment, args: &Optimize) -> Result<(Samples, Value), CliError> {
    if let Some(path) = &args.profile_in {
        return read_profile(attachment, path);
    }
    let time = seconds(args.seconds, "--seconds")?;
    let sampling = SamplingOptions { time, frequency: args.frequency };
    let pid = args.target.pid;
    output::note(&format!("sampling process {pid} for {time:?}"));
    let sampled = sample(pid, args.target.family, &sampling, |_| false)?;
    let total = sampled.samples.total();
    output::note(&format!("{total} samples of {}", source(&sampled)));
    let samples = map_to_original(attachment, &sampled.samples);
    if args.profile_out.is_some() || args.bolt_out.is_some() {
        write_profiles(attachment, &samples, args)?;
    }
    let value = json!({
        "source": sampled.source, "samples": total, "lost": sampled.lost, "seconds": args.seconds,
    });
    Ok((samples, value))
}

fn write_profiles(
    attachment: &Attachment,
    samples: &Samples,
    args: &Optimize,
) -> Result<(), CliError> {
    let found = hot_modules(attachment.process(), attachment, samples)?.found;
    let write = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|source| CliError::Write { path: path.to_owned(), source })
    };
    if let Some(path) = &args.profile_out {
        let images: Vec<_> = found.iter().map(|hot_module| &hot_module.image).collect();
        let text = serde_json::to_string(&samples.to_profile(&images))
            .map_err(|error| CliError::Other(error.to_string()))?;
        write(path, &text)?;
    }
    if let Some(path) = &args.bolt_out {
        let program = found.iter().find(|it| it.module.path() == attachment.process().program());
        let program = program.ok_or_else(|| {
            let program = attachment.process().program().display();
            CliError::Other(format!("there are no samples in {program} for BOLT"))
        })?;
        let profile = BoltProfile::new(&program.image, samples);
        write(path, &profile.text)?;
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

fn source(sampled: &dbdyno_live::Sampled) -> &'static str {
    match sampled.source {
        dbdyno_live::SampleSource::Branches => "cycles with branch records",
        dbdyno_live::SampleSource::Cycles => "cycles",
        dbdyno_live::SampleSource::Clock => "the CPU clock",
    }
}

fn read_profile(attachment: &Attachment, path: &Path) -> Result<(Samples, Value), CliError> {
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
    let value = json!({ "file": path, "samples": samples.total(), "unused": unused });
    Ok((samples, value))
}

fn seconds(value: f64, option: &str) -> Result<Duration, CliError> {
    match Duration::try_from_secs_f64(value) {
        Ok(time) if (0.1..=3600.0).contains(&value) => Ok(time),
        _ => Err(CliError::Usage(format!("{option} {value}: must be 0.1 to 3600 seconds"))),
    }
}
