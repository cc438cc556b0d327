//! Text output of the live optimizer.

use dbdyno_live::{Optimized, Switched};
use dbdyno_machine::OwnUsage;
use dbdyno_units::Bytes;

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
    if switched.moved > 0 {
        text.push_str(&format!("; {} threads moved", switched.moved));
    }
    if !switched.busy.is_empty() {
        text.push_str(&format!("; {} skipped because in use", switched.busy.len()));
    }
    text
}

/// With fewer samples per function, layouts have made servers slower.
const MIN_SAMPLES_PER_FUNCTION: u64 = 50;

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
    let statistics = &done.statistics;
    let share = |part: u64, all: u64| match all {
        0 => "-".to_owned(),
        _ => format!("{:.1}%", part as f64 * 100.0 / all as f64),
    };
    let mut text = format!("Process {pid}: optimization {}\n", done.generation);
    let mut row = |label: &str, value: String| text.push_str(&row(label, &value));
    for (module, samples) in &done.modules {
        row("samples", format!("{} in {module}", share(*samples, statistics.samples)));
    }
    row(
        "functions",
        format!(
            "{} sampled, {} hot, {} moved with {} of the samples",
            statistics.functions_sampled,
            statistics.functions_seen,
            statistics.functions_moved,
            share(statistics.samples_moved, statistics.samples),
        ),
    );
    if statistics.samples < MIN_SAMPLES_PER_FUNCTION * statistics.functions_moved {
        let advice = "too few samples per function: executed blocks without a sample are treated as \
                      cold, which may make the program slower; increase --seconds or --frequency";
        row("warning", advice.to_owned());
    }
    for (reason, count) in &statistics.rejected {
        let samples = statistics.rejected_samples.get(reason).copied().unwrap_or(0);
        let share = share(samples, statistics.samples);
        let reason = reason.name().replace('_', " ");
        row("not moved", format!("{count} functions, {share} of the samples: {reason}"));
    }
    for (file, reason) in &done.left_alone {
        row("not moved", format!("{file}: {reason}"));
    }
    row(
        "code",
        format!(
            "{} hot, {} cold, {} of tables; {} of address space added",
            Bytes::from_bytes(statistics.hot_bytes),
            Bytes::from_bytes(statistics.cold_bytes),
            Bytes::from_bytes(statistics.data_bytes),
            Bytes::from_bytes(done.added),
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
    row("switched", switched(&done.switched));
    if done.on_two_pages > 0 {
        row("not moved", format!("{} functions: entry crosses a page boundary", done.on_two_pages));
    }
    let steps: Vec<String> =
        done.steps.iter().map(|(step, time)| format!("{step} {time}")).collect();
    row("time", steps.join(", "));
    text
}
