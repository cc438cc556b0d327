//! What the live optimizer did, each from the value that is printed as JSON.

use std::time::Duration;

use dbdyno_live::{
    Activation, CheckResult, DryRun, Event, GenerationState, GenerationStatus, Member,
    MemberOutcome, NewCode, Outcome, PlannedCounting, Probe, ProcessStatus, Switch, SwitchReport,
    Switched, WatchReport,
};
use dbdyno_relayout::{SampleRequirement, TooFewSamples};
use dbdyno_text::{Block, Fact, Facts, Text};
use dbdyno_units::{Bytes, Nanos, counted};

/// A title, and below it labels of at least `least` columns with their texts.
fn titled(title: String, least: usize, rows: Vec<Fact>) -> Vec<Block> {
    let facts = Facts { indent: 2, gap: 1, least, repeats: true, ..Facts::new(rows) };
    vec![Text::new(title).into(), facts.into()]
}

/// Least width of the labels of reports on optimizations.
const LABEL: usize = 12;

/// The report on an optimization.
pub(super) fn optimized(outcome: &Outcome) -> Vec<Block> {
    let done = &outcome.optimized;
    let mut rows = of_code(&done.code, "moved");
    if SampleRequirement::default().check(&done.code.statistics.precision).is_err() {
        let warning = "too few samples: it may be slower than the original code; measure it with \
                       --work-command";
        rows.push(Fact::new("warning", warning));
    }
    rows.push(Fact::new("switched", done.switched.to_string()));
    rows.extend(skipped(&done.switched).map(|warning| Fact::new("warning", warning)));
    rows.extend(of_slots_and_entries(&done.code));
    let steps = done.steps.iter().map(|(step, time)| format!("{step} {time}"));
    rows.push(Fact::new("time", steps.collect::<Vec<_>>().join(", ")));
    rows.extend(outcome.counting.iter().map(|it| Fact::new("counts", it.to_string())));
    let gdb = outcome.gdb.iter().map(|it| Fact::new("gdb", format!("source {}", it.display())));
    rows.extend(gdb);
    let effect = outcome.effect.as_ref().map(|effect| effect.text.as_str());
    rows.push(Fact::new("effect", effect.unwrap_or("not measured (no --work-command)")));
    // Of dbdyno itself, including sampling and A/B test.
    let own = &outcome.own_cost;
    let memory = own.most_memory.map(|memory| format!(", {memory} of memory at most"));
    let cost = format!("{} of CPU time{}", own.cpu, memory.unwrap_or_default());
    rows.push(Fact::new("own cost", cost));
    let is_undone = outcome.effect.as_ref().and_then(|effect| effect.active) == Some(false);
    let optimized = match (is_undone, done.switched.is_ineffective()) {
        (true, _) => "optimized, measured, and undone",
        (false, true) => "practically not optimized",
        (false, false) => "optimized",
    };
    let title = format!("Process {}: {optimized}", outcome.pid);
    let mut blocks = titled(title, LABEL, rows);
    blocks.extend(outcome.members.iter().map(member));
    blocks
}

/// A warning if most addresses were not changed.
fn skipped(switched: &Switched) -> Option<String> {
    let applied = switched.applied();
    (applied.as_fraction() < 0.5).then(|| {
        format!(
            "only {applied} of the functions were redirected; optimize again under less load, or allow a longer \
             pause with --max-pause"
        )
    })
}

fn member(member: &Member) -> Block {
    let outcome = match &member.outcome {
        MemberOutcome::Inherited => "inherited from its parent".to_owned(),
        MemberOutcome::Switched(switched) => format!("optimized as its parent; {switched}"),
        MemberOutcome::Error(error) => format!("not optimized: {error}"),
    };
    Text::new(format!("Process {}: {outcome}", member.pid)).into()
}

/// The report on what an optimization would do.
pub(super) fn planned(dry_run: &DryRun, max_pause: Duration) -> Vec<Block> {
    let plan = &dry_run.planned;
    let is_explained =
        !plan.code.left_alone.is_empty() || !plan.code.statistics.rejected.is_empty();
    // The reason for a refusal comes first, as that of a real optimization.
    let refused = dry_run.refused.iter();
    let refused =
        refused.map(|it| Fact::new("refused", with_advice(it, it.to_string(), is_explained)));
    let mut rows: Vec<Fact> = refused.collect();
    rows.extend(of_code(&plan.code, "to move"));
    let entries = format!("{} to redirect", counted(plan.entries as u64, "function"));
    rows.push(Fact::new("entries", entries));
    rows.extend(of_slots_and_entries(&plan.code));
    let threads = counted(plan.threads as u64, "thread");
    let stop = format!("{threads}, at most {} at a time (--max-pause)", Nanos::from(max_pause));
    rows.push(Fact::new("stop", stop));
    rows.extend(
        dry_run.counting.iter().map(|counting| Fact::new("counts", planned_counts(counting))),
    );
    let decision = decision(dry_run.refused.as_ref(), dry_run.counting.as_ref());
    let title = format!("Process {}: dry run; it was not changed, and {decision}", dry_run.pid);
    titled(title, LABEL, rows)
}

/// What would happen to a process.
fn decision(refused: Option<&TooFewSamples>, counting: Option<&PlannedCounting>) -> &'static str {
    match (refused, counting.and_then(|counting| counting.refused_without.as_ref())) {
        (Some(_), _) => "would not be optimized",
        (None, Some(_)) => "would be optimized only if its executions can be counted",
        (None, None) => "would be optimized",
    }
}

fn planned_counts(counting: &PlannedCounting) -> String {
    let PlannedCounting { fallback, refused_without, prolonged_without } = counting;
    let longer = (!prolonged_without.is_zero()).then(|| Nanos::from(*prolonged_without));
    let exact = "to be exact; if counting turns out to be impossible or too expensive";
    match (fallback, refused_without, longer) {
        (Some(reason), ..) => format!("to be estimated from samples: {reason}"),
        (None, None, None) => format!("{exact}, they are estimated from the samples"),
        (None, None, Some(longer)) => {
            format!("{exact}, they are estimated after sampling for another {longer}")
        }
        (None, Some(refusal), None) => format!("{exact}, the optimization is refused: {refusal}"),
        (None, Some(refusal), Some(longer)) => format!(
            "{exact}, and sampling for another {longer} does not help, the optimization is refused: \
             {refusal}"
        ),
    }
}

/// The progress of a job.
pub(super) fn event(event: &Event<'_>) -> String {
    match event {
        Event::CountingEnded { pid } => counting_ended(*pid),
        Event::Sampling { pid, plan } => plan.announcement(*pid),
        Event::SamplingLonger { pid, time, reason } => format!(
            "executions were not counted ({reason}), so process {pid} is sampled for another {}",
            Nanos::from(*time)
        ),
        Event::Sampled { plan, sampled } => plan.result(sampled),
        Event::Unmatched { module } => format!("no file in the process matches {module}"),
        Event::Counting => "counting executions".to_owned(),
        Event::Step(step) => (*step).to_owned(),
        Event::AbTest(time) => {
            format!("A/B test of optimized and original code for {}", Nanos::from(*time))
        }
        Event::TimePasses(_) => String::new(),
    }
}

/// That code that counts was deactivated.
pub(super) fn counting_ended(pid: u32) -> String {
    format!(
        "an interrupted dbdyno counted executions in process {pid}: the original code is active now"
    )
}

/// What `watch` did with a process, in one line as in a log.
pub(super) fn watched(report: &WatchReport) -> String {
    let WatchReport { pid, state, what } = report;
    let rest = if what.is_empty() { String::new() } else { format!(": {what}") };
    format!("Process {pid}: {}{rest}\n", state.name())
}

/// The outcome of undoing or redoing an optimization.
pub(super) fn switched(report: &SwitchReport, switch: Switch) -> Block {
    let (done, nothing) = match switch {
        Switch::Undo => ("undone", "nothing to undo: it is not optimized"),
        Switch::Redo => ("redone", "nothing to redo: it is optimized"),
    };
    Text::new(match report {
        // Nothing differed, so it was not stopped.
        SwitchReport::Done { pid, switched, .. } if switched.stops == 0 => {
            format!("Process {pid}: {nothing}.")
        }
        SwitchReport::Done { pid, switched, .. } if report.has_failed(switch) => {
            format!("Process {pid}: practically not {done}; {switched}.")
        }
        SwitchReport::Done { pid, switched, .. } => format!("Process {pid}: {done}; {switched}."),
        SwitchReport::Failed { pid, error } => format!("Process {pid}: not {done}: {error}"),
    })
    .into()
}

/// The optimizations of a process.
pub(super) fn status(status: &ProcessStatus) -> Vec<Block> {
    let known = match status {
        ProcessStatus::Known(known) => known,
        ProcessStatus::Unknown { pid, program, error } => {
            let rows = vec![Fact::new("unknown:", error)];
            return titled(format!("Process {pid}: {}", program.display()), 0, rows);
        }
    };
    // Code that only counts is not an optimization.
    let mut number = 0;
    let generation = |it: &GenerationStatus| {
        let text = format!(
            "{} of {} functions redirected, {} of code; {}",
            it.redirected,
            it.entries,
            it.bytes,
            state(it),
        );
        if it.counts {
            return Fact::new("counting:", text);
        }
        number += 1;
        Fact::new(format!("optimization {number}:"), text)
    };
    let mut rows: Vec<Fact> = known.generations.iter().map(generation).collect();
    if known.kept.as_bytes() > 0 {
        let text = format!(
            "{} of at most {}, {} of it replaced code that is kept; `dbdyno live optimize --unmap` \
             frees what no thread uses",
            known.code, known.max_code, known.kept
        );
        rows.push(Fact::new("memory:", text));
    }
    if known.exceptions_take_lock {
        let text = "with libgcc 12 or older each C++ exception takes a lock that all threads share";
        rows.push(Fact::new("warning:", text));
    }
    rows.extend(known.gdb.iter().map(|it| Fact::new("gdb:", format!("source {}", it.display()))));
    titled(format!("Process {}: {}", known.pid, known.program.display()), 0, rows)
}

fn state(generation: &GenerationStatus) -> &'static str {
    match (generation.state, generation.activation) {
        (_, Activation::Full | Activation::Partial) if generation.counts => {
            "counts executions, which is slow; interrupted; `dbdyno live undo` ends it"
        }
        (GenerationState::Active | GenerationState::Switching, Activation::Inactive) => {
            "interrupted; inactive"
        }
        (GenerationState::Active, _) => "active",
        (GenerationState::Inactive, _) => "inactive; `dbdyno live redo` activates it",
        (GenerationState::Retired, _) if generation.counts => {
            "counted executions; its code is kept"
        }
        (GenerationState::Retired, _) => "replaced; its code is kept",
        (GenerationState::Freeing, _) => "replaced; being freed",
        (GenerationState::Preparing, _) => "interrupted; the next optimization removes it",
        (GenerationState::Switching, _) => "interrupted; `dbdyno live undo` or `redo` finishes it",
    }
}

/// Whether a process can be optimized.
pub(super) fn probe(probe: &Probe) -> Vec<Block> {
    let program = probe.program.as_ref().map(|path| format!(" {}", path.display()));
    let can = if probe.optimizable { "can" } else { "cannot" };
    let title = format!("Process {}:{} {can} be optimized", probe.pid, program.unwrap_or_default());
    let rows = probe.checks.iter().map(|check| {
        let mark = match check.result {
            CheckResult::Ok => "ok",
            CheckResult::Note => "note",
            CheckResult::Forbidden => "FORBIDDEN",
        };
        Fact::new(mark, format!("{}: {}", check.id.replace('-', " "), check.what))
    });
    titled(title, "FORBIDDEN".len(), rows.collect())
}

/// The text of a refusal, with what to do about it. If other reasons explain that there are no samples, sampling longer
/// would not help.
pub(super) fn with_advice(reason: &TooFewSamples, text: String, is_explained: bool) -> String {
    match reason {
        TooFewSamples::Few { found: 0, .. } if is_explained => text,
        _ => format!("{text}; {}", advice(reason)),
    }
}

/// What to do about too few samples.
fn advice(reason: &TooFewSamples) -> String {
    let longer = match reason {
        TooFewSamples::Few { found: 0, .. } => String::new(),
        TooFewSamples::Few { found, required } => times(*required as f64 / *found as f64),
        TooFewSamples::Sparse { unsampled, accepted, .. } => times(unsampled / accepted),
    };
    format!(
        "sample{longer} longer (--seconds) while the process is busy, or accept a possible slowdown \
         with --force"
    )
}

/// How many times as long.
fn times(factor: f64) -> String {
    format!(" at least {:.0} times", factor.ceil().max(2.0))
}

fn share(part: u64, all: u64) -> String {
    match all {
        0 => "-".to_owned(),
        _ => format!("{:.1}%", part as f64 * 100.0 / all as f64),
    }
}

/// The rows about new code. `moved` is what is done with functions.
fn of_code(code: &NewCode, moved: &str) -> Vec<Fact> {
    let NewCode { modules, left_alone, statistics, added, .. } = code;
    let all = statistics.samples;
    let of_module = |(module, samples): &(String, u64)| {
        Fact::new("samples", format!("{} in {module}", share(*samples, all)))
    };
    let mut rows: Vec<Fact> = modules.iter().map(of_module).collect();
    let mut row = |label: &str, text: String| rows.push(Fact::new(label, text));
    row(
        "functions",
        format!(
            "{} sampled, {} hot, {} {moved} with {} of the samples",
            statistics.functions_sampled,
            statistics.functions_seen,
            statistics.functions_moved,
            share(statistics.samples_moved, all),
        ),
    );
    if let Some(unsampled) = statistics.precision.unsampled() {
        let unsampled = unsampled * 100.0;
        let text =
            format!("about {unsampled:.1}% of the execution is in blocks of code without a sample");
        row("precision", text);
    }
    for (reason, count) in &statistics.rejected {
        let samples = statistics.rejected_samples.get(reason).copied().unwrap_or(0);
        let (count, share) = (counted(*count, "function"), share(samples, all));
        let reason = reason.name().replace('_', " ");
        row("not moved", format!("{count}, {share} of the samples: {reason}"));
    }
    for difference in &statistics.unproven {
        row("not moved", difference.clone());
    }
    for (file, reason) in left_alone {
        row("not moved", format!("{file}: {reason}"));
    }
    row(
        "code",
        format!(
            "{} hot, {} cold, {} of tables; {} of address space added",
            Bytes::from_bytes(statistics.hot_bytes),
            Bytes::from_bytes(statistics.cold_bytes),
            Bytes::from_bytes(statistics.data_bytes),
            Bytes::from_bytes(*added),
        ),
    );
    let effect = &statistics.effect;
    if let (Some(before), Some(after)) = (effect.fall_through_before, effect.fall_through_after) {
        row(
            "predicted",
            format!(
                "{:.0}% → {:.0}% of transfers fall through; cache lines {} → {}; pages {} → {}",
                before * 100.0,
                after * 100.0,
                effect.lines_before,
                effect.lines_after,
                effect.pages_before,
                effect.pages_after
            ),
        );
    }
    rows
}

/// The rows about slots of virtual tables, and about entries that cross a page boundary.
fn of_slots_and_entries(code: &NewCode) -> impl Iterator<Item = Fact> {
    let NewCode { virtual_slots, on_two_pages, .. } = *code;
    let slots = match virtual_slots {
        0 => None,
        1 => Some("1 slot of the virtual tables refers to new code".to_owned()),
        _ => Some(format!("{virtual_slots} slots of the virtual tables refer to new code")),
    };
    let entries = (on_two_pages > 0).then(|| {
        format!("{}: entry crosses a page boundary", counted(on_two_pages as u64, "function"))
    });
    let slots = slots.map(|text| Fact::new("virtual", text));
    slots.into_iter().chain(entries.map(|text| Fact::new("not moved", text)))
}

#[cfg(test)]
mod tests {
    use dbdyno_text::{Paint, write_blocks};

    use super::*;

    #[test]
    fn switch_without_a_change_is_not_reported_as_done() {
        let text = |stops, activation, switch| {
            let switched = Switched { stops, ..Switched::default() };
            let report = SwitchReport::Done { pid: 7, switched, activation };
            let mut text = String::new();
            write_blocks(&mut text, &[super::switched(&report, switch)], 80, Paint::new(false));
            text
        };
        let undone = text(1, Activation::Inactive, Switch::Undo);
        assert!(undone.contains("Process 7: undone; "), "{undone}");
        let nothing = text(0, Activation::Inactive, Switch::Undo);
        assert!(nothing.contains("Process 7: nothing to undo: it is not optimized."), "{nothing}");
        let nothing = text(0, Activation::Full, Switch::Redo);
        assert!(nothing.contains("Process 7: nothing to redo: it is optimized."), "{nothing}");
    }

    #[test]
    fn warning_names_the_share_if_most_addresses_were_skipped() {
        let switched = |entries_done| Switched {
            entries: entries_done + 60,
            entries_done,
            ..Switched::default()
        };
        let warning = skipped(&switched(20)).unwrap();
        assert!(warning.starts_with("only 25% of the functions were redirected"), "{warning}");
        assert_eq!(skipped(&switched(60)), None);
    }

    #[test]
    fn advice_names_how_much_longer_to_sample() {
        let sparse = TooFewSamples::Sparse { found: 5_000, unsampled: 0.14, accepted: 0.05 };
        assert!(advice(&sparse).starts_with("sample at least 3 times longer (--seconds)"));
        let few = TooFewSamples::Few { found: 40, required: 1_000 };
        assert!(advice(&few).starts_with("sample at least 25 times longer"));
        let none = TooFewSamples::Few { found: 0, required: 1_000 };
        assert_eq!(with_advice(&none, "refused".to_owned(), true), "refused");
        assert!(with_advice(&none, "refused".to_owned(), false).starts_with("refused; sample"));
        assert!(advice(&none).starts_with("sample longer (--seconds) while the process is busy"));
    }

    #[test]
    fn dry_run_decides_before_it_explains() {
        let few = TooFewSamples::Few { found: 40, required: 1_000 };
        let counting = |refused_without| PlannedCounting {
            fallback: None,
            refused_without,
            prolonged_without: Duration::ZERO,
        };
        assert_eq!(decision(None, None), "would be optimized");
        assert_eq!(decision(None, Some(&counting(None))), "would be optimized");
        let only_if = decision(None, Some(&counting(Some(few))));
        assert_eq!(only_if, "would be optimized only if its executions can be counted");
        assert_eq!(decision(Some(&few), Some(&counting(Some(few)))), "would not be optimized");
    }

    #[test]
    fn sampling_without_counts_is_announced_and_explained() {
        let prolonged_without = Duration::from_millis(19_200);
        let few = TooFewSamples::Few { found: 40, required: 1_000 };
        let planned = |refused_without, prolonged_without| {
            planned_counts(&PlannedCounting { fallback: None, refused_without, prolonged_without })
        };
        let exact = "to be exact; if counting turns out to be impossible or too expensive, ";
        assert_eq!(
            planned(None, prolonged_without),
            format!("{exact}they are estimated after sampling for another 19.2 s")
        );
        let own = planned(None, Duration::ZERO);
        assert_eq!(own, format!("{exact}they are estimated from the samples"));
        let refused = planned(Some(few), prolonged_without);
        let start =
            format!("{exact}and sampling for another 19.2 s does not help, the optimization");
        assert!(refused.starts_with(&start), "{refused}");
        let refused = planned(Some(few), Duration::ZERO);
        assert!(refused.starts_with(&format!("{exact}the optimization is refused: ")), "{refused}");
        let reason = "counting takes 5.5 times the CPU time, more than 4";
        assert_eq!(
            event(&Event::SamplingLonger { pid: 7, time: prolonged_without, reason }),
            "executions were not counted (counting takes 5.5 times the CPU time, more than 4), so process \
             7 is sampled for another 19.2 s"
        );
    }
}
