//! `[schedule]`: how long, and in what slices.

use dbdyno_document::{Problem, Table};
use dbdyno_units::{Nanos, Share};

use crate::experiment::{Pace, Schedule};

/// Shorter slices would measure the clock, longer ones would make interleaving pointless.
const SLICES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(1)..=Nanos::from_secs(3600);

/// A week of measuring one microbenchmark.
const LONGEST_BUDGET: Nanos = Nanos::from_secs(7 * 24 * 3600);

/// As many blocks as anybody has patience for.
const MOST_BLOCKS: i64 = 1_000_000;

/// Reads the section; what suits the pace depends on how many clients there are.
pub fn read(table: Option<Table<'_>>, clients: u32) -> Schedule {
    let many_clients = clients > 1;
    // Measured on a noisy virtual machine: with the same time per candidate, slices of 5 ms put
    // the ratio of equals within a fifth of the spread that slices of 50 ms leave.
    let slice = Nanos::from_millis(5);
    let mut schedule = Schedule {
        slice,
        write_slice: slice,
        pace: if many_clients { Pace::Time } else { Pace::Events },
        warmup_blocks: 2,
        min_blocks: 20,
        target: Share::from_percent(0.5),
        budget: Nanos::from_secs(2),
        // Enough for an interval over starts; starting an embedded engine takes milliseconds.
        restarts: 6,
    };
    let Some(mut table) = table else { return schedule };

    if let Some(slice) = table.duration("slice", SLICES) {
        schedule.slice = slice.value;
    }
    // Servers flush and compact while a write slice runs and need longer ones to show it; an
    // embedded engine does nothing in the background.
    let write_slice = table.duration("write_slice", SLICES);
    schedule.write_slice = write_slice.map_or(schedule.slice, |slice| slice.value);
    let pace = table.choice("pace", &[("events", Pace::Events), ("time", Pace::Time)]);
    if let Some(pace) = pace {
        schedule.pace = pace.value;
        if pace.value == Pace::Events && many_clients {
            let message = "`pace = \"events\"` needs one client";
            let help = "with more, they finish at different times; use \"time\"";
            table.report(Problem::new(pace.span, message).help(help));
        }
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
    }
    table.finish();
    schedule
}
