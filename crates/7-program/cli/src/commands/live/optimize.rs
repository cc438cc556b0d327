//! `dbdyno live optimize`.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use dbdyno_live::{
    AttachedGroup, Attachment, KeepRule, LiveError, MemberOutcome, OptimizeError, Optimized,
    PreparedPatch, Process, WorkCounter, descendants, optimize_descendants, plan, symbols,
};
use dbdyno_machine::OwnUsage;
use dbdyno_relayout::{LayoutError, Options, SampleRequirement, Samples, TooFewSamples};
use dbdyno_spec::experiment::Counts;
use serde_json::{Value, json};

use super::counting::add_counts;
use super::effect::Effect;
use super::profile::profile;
use super::{Session, counting, text};
use crate::args::Optimize;
use crate::commands::stop_on_signals;
use crate::error::CliError;
use crate::output::{self, StepProgress};

pub(super) fn optimize(session: &Session, args: &Optimize) -> Result<ExitCode, CliError> {
    let (pid, options) = (args.target.pid, &args.target.options);
    super::several::refuse(pid, &args.target.more.pids)?;
    let required = (!args.force).then(SampleRequirement::default);
    let layout = Options { required, ..Options::default() };
    let layout = if args.keep_order { layout.in_original_order() } else { layout };
    if args.dry_run {
        return dry_run(session, args, layout);
    }
    let mut attachment = session.attach_to_optimize(pid, args.probe(), options.max_pause())?;
    // Before the sampling, which takes long.
    attachment.check_filters()?;
    let work = args.work_command.as_deref().map(|command| WorkCounter::new(pid, command));
    let test_time = super::seconds(args.ab_test, "--ab-test")?;
    // Fail on a wrong command before anything is changed.
    work.as_ref().map(WorkCounter::count).transpose()?;
    let mut profiled = profile(&attachment, args)?;
    if args.target.family {
        attachment.share_with(descendants(pid));
    }
    let cancel = match work.is_some() || args.counts == Counts::Exact {
        true => Some(stop_on_signals("stopping")?),
        false => None,
    };
    let is_cancelled = || cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed));
    let counting =
        add_counts(session, &mut attachment, &mut profiled, &layout, args, is_cancelled)?;
    let earlier = descendants(pid);
    let replaced = attachment.active_number();
    let (done, prepared) = run(&mut attachment, &profiled.samples, &layout)
        .map_err(|error| failed(error, text::advice))?;
    if work.is_none() && is_cancelled() {
        attachment.restore(replaced)?;
        return Err(CliError::Other(counting::CANCELLED.to_owned()));
    }
    let gdb = symbols::gdb_script(&session.state, attachment.process().identity());
    let mut text = text::optimized(pid, &done);
    let mut value = json!({
        "pid": pid, "profile": profiled.json(), "counting": counting, "optimized": done, "gdb": gdb,
    });
    if let Some(counting) = &counting {
        text.push_str(&text::row("counts", &counting::text(counting)));
    }
    if let Some(script) = gdb {
        text.push_str(&text::row("gdb", &format!("source {}", script.display())));
    }
    drop(attachment);
    let mut lines = String::new();
    let mut values = Vec::new();
    let mut members = Vec::new();
    let (probe, max_pause) = (args.probe(), options.max_pause());
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
            output::note(&format!("A/B test of optimized and original code for {test_time:?}"));
            let open = || {
                AttachedGroup::open(pid, &members, &session.state, probe, max_pause)
                    .map(|group| group.excluding(&earlier))
            };
            let keep = if args.keep { KeepRule::Always } else { KeepRule::IfBetter };
            Effect::tested(open, keep, |group| {
                let test = StepProgress::start("A/B test");
                work.ab_test(group, test_time, keep, || {
                    test.time_passes(test_time);
                    is_cancelled()
                })
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

/// Samples the process and shows what would be done. Exits with 1 if it would be refused.
fn dry_run(session: &Session, args: &Optimize, layout: Options) -> Result<ExitCode, CliError> {
    let (pid, options) = (args.target.pid, &args.target.options);
    let process = Process::open(pid, options.probe())?;
    let mut attachment = Attachment::open_unchanged(process, &session.state, options.max_pause())?;
    let profiled = profile(&attachment, args)?;
    if args.target.family {
        attachment.share_with(descendants(pid));
    }
    let required = layout.required;
    // To show the plan even if it would be refused.
    let layout = Options { required: None, ..layout };
    let planned = plan(&attachment, &profiled.samples, &layout)
        .map_err(|error| failed(error, text::advice))?;
    let refused = required.and_then(|it| it.check(&planned.statistics.precision).err());
    let mut text = text::planned(pid, &planned, options.max_pause());
    if let Some(reason) = refused {
        text.push_str(&text::row("refused", &format!("{reason}; {}", text::advice(&reason))));
    }
    let refused = refused.map(|reason| reason.to_string());
    let value = json!({
        "pid": pid, "dry_run": true, "profile": profiled.json(), "planned": planned, "refused": refused,
    });
    session.print(&json!([value]), &text);
    Ok(if refused.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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

/// Optimizes a process and writes symbols of the new code.
pub(super) fn run(
    attachment: &mut Attachment,
    samples: &Samples,
    options: &Options,
) -> Result<(Optimized, PreparedPatch), OptimizeError> {
    let step = |step: &str| output::note(step);
    let (done, prepared) = dbdyno_live::optimize(attachment, samples, options, step)?;
    prepared.write_symbols(attachment);
    Ok((done, prepared))
}

/// The error, with advice about too few samples.
pub(super) fn failed(error: OptimizeError, advice: impl Fn(&TooFewSamples) -> String) -> CliError {
    match error {
        OptimizeError::Live(error) => CliError::Live(error),
        OptimizeError::Layout { source: LayoutError::TooFewSamples(reason), .. } => {
            let text = error.to_string();
            CliError::Other(format!("{text}; {}", advice(&reason)))
        }
        other => CliError::Other(other.to_string()),
    }
}
