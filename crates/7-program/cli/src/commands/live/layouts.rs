//! `dbdyno live optimize --layouts N`: the best of several layouts.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use dbdyno_live::{
    AbTestOutcome, AttachedGroup, KeepRule, LayoutCandidate, LayoutRace, LiveError,
    MIN_CONFIRM_TIME, MadeLayouts, RacedLayout, WorkCounter, descendants, optimize_layouts,
    race_slices, symbols,
};
use dbdyno_machine::OwnUsage;
use dbdyno_relayout::Options;
use serde_json::{Value, json};

use super::counting::add_counts;
use super::effect::Effect;
use super::optimize::failed;
use super::profile::profile;
use super::{Session, counting, text};
use crate::args::Optimize;
use crate::commands::stop_on_signals;
use crate::error::CliError;
use crate::output::{self, StepProgress};

pub(super) fn optimize(
    session: &Session,
    args: &Optimize,
    layout: &Options,
) -> Result<ExitCode, CliError> {
    let (pid, options) = (args.target.pid, &args.target.options);
    let Some(command) = &args.work_command else {
        return Err(CliError::Usage("--layouts needs --work-command, to compare them".to_owned()));
    };
    let test_time = super::seconds(args.ab_test_seconds(), "--ab-test")?;
    if test_time < MIN_CONFIRM_TIME {
        let least = format!("--ab-test: at least {MIN_CONFIRM_TIME:?} with --layouts");
        return Err(CliError::Usage(least));
    }
    let mut attachment = session.attach_to_optimize(pid, args.probe(), options.max_pause())?;
    // Before the sampling, which takes long.
    attachment.check_filters()?;
    let work = WorkCounter::new(pid, command);
    // Fail on a wrong command before anything is changed.
    work.count()?;
    let mut profiled = profile(&attachment, args)?;
    let cancel = stop_on_signals("stopping")?;
    let stop = || cancel.load(Ordering::Relaxed);
    let counting = add_counts(session, &mut attachment, &mut profiled, layout, args, stop)?;
    let candidates = LayoutCandidate::first(args.layouts(), layout);
    let earlier = descendants(pid);
    let made = optimize_layouts(&mut attachment, &profiled.samples, &candidates, output::note)
        .map_err(|error| failed(error, text::advice))?;
    for layout in made.all() {
        layout.prepared.write_symbols(&attachment);
    }
    let gdb = symbols::gdb_script(&session.state, attachment.process().identity());
    drop(attachment);

    let generations: Vec<u32> = made.all().map(|layout| layout.done.generation).collect();
    let slices = race_slices(generations.len());
    output::note(&format!(
        "comparing {} layouts in {slices} slices, then the best one with the original code for \
         {test_time:?}",
        generations.len()
    ));
    let keep = if args.keep { KeepRule::Always } else { KeepRule::IfBetter };
    let mut raced = None;
    let open = || {
        AttachedGroup::open(pid, &[], &session.state, args.probe(), options.max_pause())
            .map(|group| group.excluding(&earlier))
    };
    let effect = Effect::tested(open, keep, |group| -> Result<AbTestOutcome, LiveError> {
        let race = StepProgress::start("race of layouts");
        raced = Some(work.race(group, &generations, || {
            race.part_starts(slices);
            stop()
        })?);
        drop(race);
        let test = StepProgress::start("A/B test");
        work.confirm(group, test_time, keep, || {
            test.time_passes(test_time);
            stop()
        })
    });
    let winner = raced.as_ref().and_then(|race| race.result.winner);
    let best = made.all().nth(winner.unwrap_or(0)).unwrap_or(&made.first);
    let own = OwnUsage::now();
    let mut text = text::optimized(pid, &best.done);
    if let Some(counting) = &counting {
        text.push_str(&text::row("counts", &counting::text(counting)));
    }
    if let Some(script) = &gdb {
        text.push_str(&text::row("gdb", &format!("source {}", script.display())));
    }
    text.push_str(&race_text(&made, raced.as_ref()));
    text.push_str(&text::row("effect", &effect.text));
    text.push_str(&text::row("own cost", &text::own_cost(own)));
    let value = json!({
        "pid": pid,
        "profile": profiled.json(),
        "counting": counting,
        "optimized": best.done,
        "gdb": gdb,
        "race": race_json(&made, raced.as_ref()),
        "effect": effect.json,
        "own_cost": own,
    });
    session.print(&json!([value]), &text);
    Ok(if effect.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn race_json(made: &MadeLayouts, race: Option<&LayoutRace>) -> Value {
    let layouts = made.all().enumerate().map(|(index, layout)| {
        let statistics = &layout.done.statistics;
        json!({
            "name": layout.name,
            "generation": layout.done.generation,
            "functions_moved": statistics.functions_moved,
            "hot_bytes": statistics.hot_bytes,
            "measured": race.map(|race| &race.result.layouts[index]),
        })
    });
    let skipped =
        made.skipped.iter().map(|(name, reason)| json!({ "name": name, "reason": reason }));
    json!({
        "layouts": layouts.collect::<Vec<Value>>(),
        "skipped": skipped.collect::<Vec<Value>>(),
        "winner": race.and_then(|race| race.result.winner),
        "took": race.map(|race| race.took),
        "longest_stop": race.map(|race| race.longest_stop),
        "stopped": race.map(|race| race.stopped),
    })
}

fn race_text(made: &MadeLayouts, race: Option<&LayoutRace>) -> String {
    let mut text = String::new();
    for (index, layout) in made.all().enumerate() {
        let measured = race.and_then(|race| race.result.layouts.get(index));
        let is_best = race.is_some_and(|race| race.result.winner == Some(index));
        let best = if is_best { "; the best" } else { "" };
        let measured = measured.map_or_else(|| "not measured".to_owned(), of_layout);
        text.push_str(&text::row("layout", &format!("{}: {measured}{best}", layout.name)));
    }
    for (name, reason) in &made.skipped {
        text.push_str(&text::row("layout", &format!("{name}: not made: {reason}")));
    }
    if let Some(race) = race {
        let stopped = format!(
            "{}; threads were stopped for {} in all, {} at most",
            race.took, race.stopped, race.longest_stop
        );
        text.push_str(&text::row("race", &stopped));
    }
    text
}

fn of_layout(measured: &RacedLayout) -> String {
    let Some(ratio) = measured.ratio else { return "not measured".to_owned() };
    let interval = measured.interval.map(|(low, high)| format!(" ({low:.3} to {high:.3})"));
    format!(
        "CPU time per work × {ratio:.3}{}, {} blocks in {} {}",
        interval.unwrap_or_default(),
        measured.blocks,
        measured.rounds,
        if measured.rounds == 1 { "round" } else { "rounds" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_shown_with_their_interval_if_there_is_one() {
        let mut measured =
            RacedLayout { rounds: 2, blocks: 10, ratio: Some(0.98), interval: Some((0.97, 0.99)) };
        let text = of_layout(&measured);
        assert_eq!(text, "CPU time per work × 0.980 (0.970 to 0.990), 10 blocks in 2 rounds");
        measured.interval = None;
        assert!(of_layout(&measured).contains("× 0.980, 10 blocks"));
        assert_eq!(of_layout(&RacedLayout::default()), "not measured");
    }
}
