//! Text output of the live optimizer.

use std::time::Duration;

use dbdyno_live::{Optimized, PlannedOptimization, Switched};
use dbdyno_machine::OwnUsage;
use dbdyno_relayout::{SampleRequirement, Statistics, TooFewSamples};
use dbdyno_units::{Bytes, Nanos};

/// A switch, as a part of a sentence.
pub(super) fn switched(switched: &Switched) -> String {
    if switched.stops == 0 {
        return "nothing to change".to_owned();
    }
    let mut text = format!(
        "{} addresses changed while {} threads were stopped for {}",
        switched.replaced, switched.threads, switched.longest_stop
    );
    if switched.stops > 1 {
        text.push_str(&format!(" at most, {} times", switched.stops));
    }
    if switched.blocked > 0 {
        let threads = if switched.blocked == 1 {
            "1 thread"
        } else {
            &format!("{} threads", switched.blocked)
        };
        text.push_str(&format!("; {threads} left in uninterruptible sleep"));
    }
    if switched.moved > 0 {
        text.push_str(&format!("; {} threads moved", switched.moved));
    }
    if !switched.busy.is_empty() {
        text.push_str(&format!("; {} skipped: in use, or no time left", switched.busy.len()));
    }
    text
}

/// A line of the report on an optimization.
pub(super) fn row(label: &str, value: &str) -> String {
    format!("  {label:<12} {value}\n")
}

/// Resource usage of dbdyno itself, including sampling and A/B test.
pub(super) fn own_cost(own: OwnUsage) -> String {
    let memory = own.most_memory.map(|memory| format!(", {memory} of memory at most"));
    format!("{} of CPU time{}", own.cpu, memory.unwrap_or_default())
}

/// The report on an optimization.
pub(super) fn optimized(pid: u32, done: &Optimized) -> String {
    let mut text = format!("Process {pid}: optimization {}\n", done.generation);
    let statistics = &done.statistics;
    text.push_str(&of_layout(&done.modules, &done.left_alone, statistics, done.added, "moved"));
    if SampleRequirement::default().check(&statistics.precision).is_err() {
        let warning = "too few samples: it may be slower than the original code; measure it with \
                       --work-command";
        text.push_str(&row("warning", warning));
    }
    text.push_str(&row("switched", &switched(&done.switched)));
    text.push_str(&of_virtual_tables(done.virtual_slots));
    text.push_str(&of_page_boundaries(done.on_two_pages));
    let steps: Vec<String> =
        done.steps.iter().map(|(step, time)| format!("{step} {time}")).collect();
    text.push_str(&row("time", &steps.join(", ")));
    text
}

/// The report on what an optimization would do.
pub(super) fn planned(pid: u32, plan: &PlannedOptimization, max_pause: Duration) -> String {
    let mut text = format!("Process {pid}: dry run; it was not changed\n");
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
