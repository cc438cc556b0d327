//! `dbdyno live optimize`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use dbdyno_live::{
    Judgement, Keeper, Optimized, OptimizingError, Sampling, Verdict, Work, led_back, sample,
    subjects,
};
use dbdyno_relayout::{Options, Profile, Samples};
use serde_json::{Value, json};

use super::{Session, members, text};
use crate::args::Optimize;
use crate::error::CliError;
use crate::output;

pub(super) fn optimize(session: &Session, args: &Optimize) -> Result<ExitCode, CliError> {
    let pid = args.chosen.pid;
    let mut keeper = session.keeper(pid, &args.chosen.care)?;
    let work = args.work_command.as_deref().map(|command| Work::new(pid, command));
    let judging = seconds(args.judge, "--judge")?;
    let before = match &work {
        Some(work) => {
            output::note(&format!("measuring CPU time per work for {judging:?}"));
            Some(work.measure(judging)?)
        }
        None => None,
    };
    let (samples, profile) = profile(&keeper, args)?;
    let options = Options {
        reorder_blocks: !args.keep_order,
        reorder_functions: !args.keep_order,
        ..Options::default()
    };
    let done = run(&mut keeper, &samples, &options)?;
    let mut text = text::optimized(pid, &done);
    let mut value = json!({ "pid": pid, "profile": profile, "optimized": done });
    let (judgement, words) = match (work, before) {
        (Some(work), Some(before)) => {
            output::note(&format!("measuring CPU time per work for {judging:?}"));
            let judgement = Judgement::of(before, work.measure(judging)?);
            if judgement.verdict == Verdict::Worse {
                keeper.undo()?;
            }
            (serde_json::to_value(&judgement).unwrap_or_default(), judgement.to_string())
        }
        _ => (Value::Null, "not measured: no --work-command says how much work is done".to_owned()),
    };
    text.push_str(&format!("  {:<12} {words}\n", "effect"));
    value["effect"] = judgement;
    drop(keeper);
    let mut values = vec![value];
    for member in members(&args.chosen).into_iter().skip(1) {
        let outcome = session
            .keeper(member, &args.chosen.care)
            .and_then(|mut keeper| run(&mut keeper, &samples, &options));
        match outcome {
            Ok(done) => {
                let what = text::switched(&done.switched);
                text.push_str(&format!("Process {member}: the same; {what}\n"));
                values.push(json!({ "pid": member, "optimized": done }));
            }
            // A session may end at any time, and others go on without.
            Err(error) => {
                let reason = error.to_string();
                text.push_str(&format!("Process {member}: not optimized: {reason}\n"));
                values.push(json!({ "pid": member, "error": reason }));
            }
        }
    }
    session.print(&json!(values), &text);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run(
    keeper: &mut Keeper,
    samples: &Samples,
    options: &Options,
) -> Result<Optimized, CliError> {
    let step = |step: &str| output::note(step);
    dbdyno_live::optimize(keeper, samples, options, step).map_err(|error| match error {
        OptimizingError::Live(error) => CliError::Live(error),
        other => CliError::Other(other.to_string()),
    })
}

/// Samples of the program's own code, and where they are from.
fn profile(keeper: &Keeper, args: &Optimize) -> Result<(Samples, Value), CliError> {
    if let Some(path) = &args.profile_in {
        return read_profile(keeper, path);
    }
    let time = seconds(args.seconds, "--seconds")?;
    let sampling = Sampling { time, frequency: args.frequency };
    let pid = args.chosen.pid;
    output::note(&format!("sampling process {pid} for {time:?}"));
    let sampled = sample(pid, args.chosen.family, &sampling, |_| false)?;
    let total = sampled.samples.total();
    output::note(&format!("{total} samples, by {}", source(&sampled)));
    let samples = led_back(keeper, &sampled.samples);
    if let Some(path) = &args.profile_out {
        let found = subjects(keeper.process(), keeper, &samples)?.found;
        let images: Vec<_> = found.iter().map(|subject| &subject.image).collect();
        let text = serde_json::to_string(&samples.to_profile(&images))
            .map_err(|error| CliError::Other(error.to_string()))?;
        fs::write(path, text).map_err(|source| CliError::Write { path: path.clone(), source })?;
    }
    let value = json!({
        "source": sampled.source, "samples": total, "lost": sampled.lost, "seconds": args.seconds,
    });
    Ok((samples, value))
}

fn source(sampled: &dbdyno_live::Sampled) -> &'static str {
    match sampled.source {
        dbdyno_live::Source::Branches => "cycles with branch records",
        dbdyno_live::Source::Cycles => "cycles",
        dbdyno_live::Source::Clock => "the CPU's clock",
    }
}

fn read_profile(keeper: &Keeper, path: &Path) -> Result<(Samples, Value), CliError> {
    let unread = |source| CliError::Read { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(unread)?;
    let profile: Profile = serde_json::from_str(&text)
        .map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
    let all = dbdyno_live::all_images(keeper.process())?;
    let images: Vec<_> = all.iter().collect();
    let (samples, unused) = profile.to_samples(&images);
    for module in &unused {
        output::note(&format!("{}: no file of the process is its {module}", path.display()));
    }
    let value = json!({ "file": path, "samples": samples.total(), "unused": unused });
    Ok((samples, value))
}

fn seconds(value: f64, option: &str) -> Result<Duration, CliError> {
    match Duration::try_from_secs_f64(value) {
        Ok(time) if (0.1..=3600.0).contains(&value) => Ok(time),
        _ => Err(CliError::Usage(format!("{option} {value}: give 0.1 to 3600 seconds"))),
    }
}
