//! The texts of the live optimizer, each from the value that is printed as JSON.

use std::time::Duration;

use dbdyno_live::{
    Activation, CheckResult, DryRun, Event, GenerationState, GenerationStatus, Member,
    MemberOutcome, Outcome, Probe, ProcessStatus, Switch, SwitchReport, WatchReport,
};
use dbdyno_machine::OwnUsage;
use dbdyno_relayout::{SampleRequirement, Statistics, TooFewSamples};
use dbdyno_units::{Bytes, Nanos};

use crate::output;

/// A row of the report on an optimization.
fn row(label: &str, value: &str) -> String {
    let mut text = String::new();
    output::wrapped(&mut text, &format!("  {label:<12} "), value);
    text
}

/// The report on an optimization.
pub(super) fn optimized(outcome: &Outcome) -> String {
    let done = &outcome.optimized;
    let mut text = format!("Process {}: optimization {}\n", outcome.pid, done.generation);
    let statistics = &done.statistics;
    text.push_str(&of_layout(&done.modules, &done.left_alone, statistics, done.added, "moved"));
    if SampleRequirement::default().check(&statistics.precision).is_err() {
        let warning = "too few samples: it may be slower than the original code; measure it with \
                       --work-command";
        text.push_str(&row("warning", warning));
    }
    text.push_str(&row("switched", &done.switched.to_string()));
    text.push_str(&of_virtual_tables(done.virtual_slots));
    text.push_str(&of_page_boundaries(done.on_two_pages));
    let steps: Vec<String> =
        done.steps.iter().map(|(step, time)| format!("{step} {time}")).collect();
    text.push_str(&row("time", &steps.join(", ")));
    if let Some(counting) = &outcome.counting {
        text.push_str(&row("counts", &counting.to_string()));
    }
    if let Some(script) = &outcome.gdb {
        text.push_str(&row("gdb", &format!("source {}", script.display())));
    }
    let effect = outcome.effect.as_ref().map(|effect| effect.text.as_str());
    text.push_str(&row("effect", effect.unwrap_or("not measured (no --work-command)")));
    text.push_str(&row("own cost", &own_cost(outcome.own_cost)));
    text.extend(outcome.members.iter().map(member));
    text
}

/// Resource usage of dbdyno itself, including sampling and A/B test.
fn own_cost(own: OwnUsage) -> String {
    let memory = own.most_memory.map(|memory| format!(", {memory} of memory at most"));
    format!("{} of CPU time{}", own.cpu, memory.unwrap_or_default())
}

/// The outcome for a descendant.
fn member(member: &Member) -> String {
    let outcome = match &member.outcome {
        MemberOutcome::Inherited => "inherited from its parent".to_owned(),
        MemberOutcome::Switched(switched) => format!("optimized as its parent; {switched}"),
        MemberOutcome::Error(error) => format!("not optimized: {error}"),
    };
    format!("Process {}: {outcome}\n", member.pid)
}

/// The report on what an optimization would do.
pub(super) fn planned(dry_run: &DryRun, max_pause: Duration) -> String {
    let plan = &dry_run.planned;
    let mut text = format!("Process {}: dry run; it was not changed\n", dry_run.pid);
    let statistics = &plan.statistics;
    text.push_str(&of_layout(&plan.modules, &plan.left_alone, statistics, plan.added, "to move"));
    text.push_str(&row("entries", &format!("{} to redirect", functions(plan.entries as u64))));
    text.push_str(&of_virtual_tables(plan.virtual_slots));
    text.push_str(&of_page_boundaries(plan.on_two_pages));
    let threads = if plan.threads == 1 { "1 thread" } else { &format!("{} threads", plan.threads) };
    text.push_str(&row(
        "stop",
        &format!(
            "{threads}, normally once for a few milliseconds, at most {} at a time (--max-pause)",
            Nanos::from(max_pause)
        ),
    ));
    if let Some(reason) = &dry_run.refused {
        text.push_str(&row("refused", &format!("{reason}; {}", advice(reason))));
    }
    text
}

/// The progress of a job.
pub(super) fn event(event: &Event<'_>) -> String {
    match event {
        Event::CountingEnded { pid } => counting_ended(*pid),
        Event::Sampling { pid, plan } => plan.announcement(*pid),
        Event::SamplingLonger { pid, time } => format!(
            "executions were not counted, so process {pid} is sampled for another {}",
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

/// What `watch` did with a process.
pub(super) fn watched(report: &WatchReport) -> String {
    let WatchReport { pid, state, what } = report;
    let rest = if what.is_empty() { String::new() } else { format!(": {what}") };
    format!("Process {pid}: {}{rest}\n", state.name())
}

/// The outcome of undoing or redoing an optimization.
pub(super) fn switched(report: &SwitchReport, switch: Switch) -> String {
    let done = match switch {
        Switch::Undo => "undone",
        Switch::Redo => "redone",
    };
    match report {
        SwitchReport::Done { pid, switched, .. } => format!("Process {pid}: {done}; {switched}.\n"),
        SwitchReport::Failed { pid, error } => format!("Process {pid}: not {done}: {error}\n"),
    }
}

/// The optimizations of a process.
pub(super) fn status(status: &ProcessStatus) -> String {
    let known = match status {
        ProcessStatus::Known(known) => known,
        ProcessStatus::Unknown { pid, program, error } => {
            return format!("Process {pid}: {}\n  unknown: {error}\n", program.display());
        }
    };
    let mut text = format!("Process {}: {}\n", known.pid, known.program.display());
    for generation in &known.generations {
        let line = format!(
            "{} of {} functions redirected, {} of code; {}",
            generation.redirected,
            generation.entries,
            generation.bytes,
            state(generation),
        );
        output::wrapped(&mut text, &format!("  optimization {}: ", generation.number), &line);
    }
    if known.kept.as_bytes() > 0 {
        let line = format!(
            "{} of at most {}, {} of it replaced code that is kept; `dbdyno live optimize --unmap` \
             frees what no thread uses",
            known.code, known.max_code, known.kept
        );
        output::wrapped(&mut text, "  memory: ", &line);
    }
    if known.exceptions_take_lock {
        let line = "with libgcc 12 or older each C++ exception takes a lock that all threads share";
        output::wrapped(&mut text, "  warning: ", line);
    }
    if let Some(script) = &known.gdb {
        text.push_str(&format!("  gdb: source {}\n", script.display()));
    }
    text
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
        (GenerationState::Retired, _) if generation.counts => "counted executions; its code is kept",
        (GenerationState::Retired, _) => "replaced; its code is kept",
        (GenerationState::Freeing, _) => "replaced; being freed",
        (GenerationState::Preparing, _) => "interrupted; the next optimization removes it",
        (GenerationState::Switching, _) => "interrupted; `dbdyno live undo` or `redo` finishes it",
    }
}

/// Whether a process can be optimized.
pub(super) fn probe(probe: &Probe) -> String {
    let program = probe.program.as_ref().map(|path| format!(" {}", path.display()));
    let can = if probe.optimizable { "can" } else { "cannot" };
    let mut text =
        format!("Process {}:{} {can} be optimized\n", probe.pid, program.unwrap_or_default());
    for check in &probe.checks {
        let mark = match check.result {
            CheckResult::Ok => "ok       ",
            CheckResult::Note => "note     ",
            CheckResult::Forbidden => "FORBIDDEN",
        };
        let line = format!("{}: {}", check.id.replace('-', " "), check.what);
        output::wrapped(&mut text, &format!("  {mark} "), &line);
    }
    text
}

/// What to do about too few samples.
pub(super) fn advice(reason: &TooFewSamples) -> String {
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

/// The rows about a layout. `moved` is what is done with functions.
fn of_layout(
    modules: &[(String, u64)],
    left_alone: &[(String, String)],
    statistics: &Statistics,
    added: u64,
    moved: &str,
) -> String {
    let mut text = String::new();
    let mut row = |label: &str, value: String| text.push_str(&row(label, &value));
    for (module, samples) in modules {
        row("samples", format!("{} in {module}", share(*samples, statistics.samples)));
    }
    row(
        "functions",
        format!(
            "{} sampled, {} hot, {} {moved} with {} of the samples",
            statistics.functions_sampled,
            statistics.functions_seen,
            statistics.functions_moved,
            share(statistics.samples_moved, statistics.samples),
        ),
    );
    if let Some(unsampled) = statistics.precision.unsampled() {
        row(
            "precision",
            format!(
                "about {:.1}% of the execution is in blocks of code without a sample",
                unsampled * 100.0
            ),
        );
    }
    for (reason, count) in &statistics.rejected {
        let samples = statistics.rejected_samples.get(reason).copied().unwrap_or(0);
        let share = share(samples, statistics.samples);
        let reason = reason.name().replace('_', " ");
        row("not moved", format!("{}, {share} of the samples: {reason}", functions(*count)));
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
            Bytes::from_bytes(added),
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
    text
}

fn functions(count: u64) -> String {
    format!("{count} {}", if count == 1 { "function" } else { "functions" })
}

fn of_virtual_tables(slots: usize) -> String {
    match slots {
        0 => String::new(),
        1 => row("virtual", "1 slot of the virtual tables refers to new code"),
        _ => row("virtual", &format!("{slots} slots of the virtual tables refer to new code")),
    }
}

fn of_page_boundaries(count: usize) -> String {
    match count {
        0 => String::new(),
        _ => {
            row("not moved", &format!("{}: entry crosses a page boundary", functions(count as u64)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_how_much_longer_to_sample() {
        let sparse = TooFewSamples::Sparse { found: 5_000, unsampled: 0.14, accepted: 0.05 };
        assert!(advice(&sparse).starts_with("sample at least 3 times longer (--seconds)"));
        let few = TooFewSamples::Few { found: 40, required: 1_000 };
        assert!(advice(&few).starts_with("sample at least 25 times longer"));
        let none = TooFewSamples::Few { found: 0, required: 1_000 };
        assert!(advice(&none).starts_with("sample longer (--seconds) while the process is busy"));
    }
}
