//! `[schedule]`: how long, and in what slices.

use dbdyno_document::{Problem, Span, Table};
use dbdyno_units::{Nanos, Share};

use crate::experiment::{Pace, Schedule};

/// Shorter slices would measure the clock, longer ones would make interleaving pointless.
const SLICES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(1)..=Nanos::from_secs(3600);

/// A week of measuring one microbenchmark.
const LONGEST_BUDGET: Nanos = Nanos::from_secs(7 * 24 * 3600);

/// As many blocks as anybody has patience for.
const MOST_BLOCKS: i64 = 1_000_000;

/// What holds without the section when all systems are embedded.
fn embedded() -> Schedule {
    // Measured on a noisy virtual machine: with the same time per candidate, slices of 5 ms put
    // the ratio of equals within a fifth of the spread that slices of 50 ms leave.
    let slice = Nanos::from_millis(5);
    Schedule {
        slice,
        // An embedded engine does nothing in the background: what a write costs shows at once.
        write_slice: slice,
        pace: Pace::Events,
        warmup_blocks: 2,
        min_blocks: 20,
        target: Share::from_percent(0.5),
        budget: Nanos::from_secs(2),
        // Enough for an interval over starts; starting an embedded engine takes milliseconds.
        restarts: 6,
        counters: true,
    }
}

/// What holds without the section when there is a server among the candidates.
fn with_servers(one_client: bool) -> Schedule {
    // Measured with three equal servers and one client, as above: with 5 s for each, slices of
    // 50, 10 and 5 ms put the ratio of equals within some 3, 1.5 and 0.5%. With many clients a
    // slice has to outlast the waking of all their threads, and reading the clocks of all.
    let slice = Nanos::from_millis(if one_client { 5 } else { 50 });
    Schedule {
        slice,
        // Servers flush, purge and compact while a slice runs, and need longer ones to show it.
        write_slice: SHORTEST_WRITE_SLICE_OF_SERVERS,
        target: Share::from_percent(1.0),
        budget: Nanos::from_secs(5),
        // Starting a server and filling its caches takes seconds to minutes.
        restarts: 1,
        ..embedded()
    }
}

/// A write slice of servers when only `slice` was chosen and is shorter.
const SHORTEST_WRITE_SLICE_OF_SERVERS: Nanos = Nanos::from_secs(1);

/// The schedule as it was read.
pub struct Read {
    /// All of it.
    pub schedule: Schedule,
    /// Where the file asks for instances that are started anew, if it does.
    pub restarts_anew: Option<Span>,
}

/// Reads the section; what holds without it depends on how many clients there are, and on whether
/// there are servers among the candidates.
pub fn read(table: Option<Table<'_>>, clients: &[u32], servers: bool) -> Read {
    let one_client = clients == [1];
    let mut schedule = if servers { with_servers(one_client) } else { embedded() };
    if !one_client {
        schedule.pace = Pace::Time;
    }
    let mut restarts_anew = None;
    let Some(mut table) = table else { return Read { schedule, restarts_anew } };

    if let Some(slice) = table.duration("slice", SLICES) {
        schedule.slice = slice.value;
        let shortest = if servers { SHORTEST_WRITE_SLICE_OF_SERVERS } else { Nanos::ZERO };
        schedule.write_slice = slice.value.max(shortest);
    }
    if let Some(slice) = table.duration("write_slice", SLICES) {
        schedule.write_slice = slice.value;
    }
    let pace = table.choice("pace", &[("events", Pace::Events), ("time", Pace::Time)]);
    if let Some(pace) = pace {
        schedule.pace = pace.value;
        if pace.value == Pace::Events && !one_client {
            let message = "`pace = \"events\"` needs one client";
            let help = "several clients finish at different times; use \"time\"";
            table.report(Problem::new(pace.span, message).help(help));
        }
    }
    if let Some(counters) = table.bool("counters") {
        schedule.counters = counters.value;
    }
    if let Some(blocks) = table.integer("warmup_blocks", 1..=MOST_BLOCKS) {
        schedule.warmup_blocks = blocks.value as u32;
    }
    // Six is the fewest for which a 95% interval of the median exists.
    if let Some(blocks) = table.integer("min_blocks", 6..=MOST_BLOCKS) {
        schedule.min_blocks = blocks.value as u32;
    }
    let targets = Share::from_percent(0.01)..=Share::from_percent(50.0);
    if let Some(target) = table.share("target", targets) {
        schedule.target = target.value;
    }
    if let Some(budget) = table.duration("budget", Nanos::from_millis(1)..=LONGEST_BUDGET) {
        schedule.budget = budget.value;
    }
    if let Some(restarts) = table.integer("restarts", 1..=100) {
        schedule.restarts = restarts.value as u32;
        restarts_anew = (restarts.value > 1).then_some(restarts.span);
    }
    table.finish();
    Read { schedule, restarts_anew }
}
