//! `[schedule]`: the duration of the measurement and its slices.

use dbdyno_document::{Span, Table};
use dbdyno_units::{Nanos, Share};

use crate::experiment::{Pace, Schedule};

/// Shorter slices would measure the clock; longer ones would make interleaving ineffective.
const SLICES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(1)..=Nanos::from_secs(3600);

/// One week per microbenchmark.
const LONGEST_BUDGET: Nanos = Nanos::from_secs(7 * 24 * 3600);

/// A practical upper limit.
const MOST_BLOCKS: u32 = 1_000_000;

/// Defaults if all systems are embedded.
fn embedded() -> Schedule {
    // Measured on a noisy virtual machine with equal time per candidate: slices of 5 ms reduce the
    // spread of the ratio of equal candidates to a fifth of the spread with 50 ms.
    let slice = Nanos::from_millis(5);
    Schedule {
        slice,
        // An embedded engine does no work in the background: the cost of a write is visible
        // immediately.
        write_slice: slice,
        pace: Pace::Events,
        warmup_blocks: 2,
        warmup_time: Nanos::ZERO,
        min_blocks: 20,
        target: Share::from_percent(0.5),
        budget: Nanos::from_secs(2),
        // Enough for an interval over starts; starting an embedded engine takes milliseconds.
        restarts: 6,
        counters: true,
    }
}

/// The systems of an experiment, on which the defaults depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Systems {
    /// No servers.
    Embedded,
    /// Servers that can be restarted, which takes seconds each.
    PrivateServers,
    /// Servers that are not restarted without need: existing servers cannot be, and the live optimizer
    /// trains a server anew after each start.
    LastingServers,
}

/// Defaults if any candidate is a server.
fn with_servers(one_client: bool, restarts: u32) -> Schedule {
    // Measured with three equal servers and one client, as above: with 5 s per server, slices of
    // 50, 10 and 5 ms put the ratio of equal servers within about 3, 1.5 and 0.5%. With many
    // clients, a slice must be longer than it takes to wake all their threads and to read all their
    // clocks.
    let slice = Nanos::from_millis(if one_client { 5 } else { 50 });
    Schedule {
        slice,
        // Servers flush, purge and compact in the background; shorter slices would miss that.
        write_slice: SHORTEST_WRITE_SLICE_OF_SERVERS,
        target: Share::from_percent(1.0),
        budget: Nanos::from_secs(5),
        restarts,
        ..embedded()
    }
}

/// What a server builds up while it executes its first queries after a start, such as MariaDB's adaptive hash index,
/// changed the ratio of two servers for 12 blocks with slices of 5 ms.
const WARMUP_OF_STARTED_SERVERS: Nanos = Nanos::from_millis(100);

/// Minimum write slice of servers if only `slice` is set and is shorter.
const SHORTEST_WRITE_SLICE_OF_SERVERS: Nanos = Nanos::from_secs(1);

pub struct ScheduleSection {
    pub schedule: Schedule,
    /// The position of the key that requires restarts of instances, if set.
    pub restarts_anew: Option<Span>,
}

/// Reads the section. Defaults depend on the number of clients and on the systems.
pub fn read(table: Option<Table<'_>>, clients: &[u32], systems: Systems) -> ScheduleSection {
    let one_client = clients == [1];
    let servers = systems != Systems::Embedded;
    let mut schedule = match systems {
        Systems::Embedded => embedded(),
        // In passes over many microbenchmarks, so that starts are few.
        Systems::PrivateServers => {
            let warmup_time = WARMUP_OF_STARTED_SERVERS;
            Schedule { warmup_time, ..with_servers(one_client, embedded().restarts) }
        }
        Systems::LastingServers => with_servers(one_client, 1),
    };
    if !one_client {
        schedule.pace = Pace::Time;
    }
    let Some(mut table) = table else { return ScheduleSection { schedule, restarts_anew: None } };
    if let Some(slice) = table.number("slice", SLICES) {
        schedule.slice = slice;
        let shortest = if servers { SHORTEST_WRITE_SLICE_OF_SERVERS } else { Nanos::ZERO };
        schedule.write_slice = slice.max(shortest);
    }
    table.set("write_slice", SLICES, &mut schedule.write_slice);
    if let Some(pace) = table.choice("pace", Pace::WORDS) {
        schedule.pace = pace.value;
        if pace.value == Pace::Events && !one_client {
            let help = "several clients finish at different times; use \"time\"";
            table.problem(pace.span, "`pace = \"events\"` needs one client", help);
        }
    }
    table.set_bool("counters", &mut schedule.counters);
    if let Some(blocks) = table.number("warmup_blocks", 1..=MOST_BLOCKS) {
        (schedule.warmup_blocks, schedule.warmup_time) = (blocks, Nanos::ZERO);
    }
    // A 95% interval of the median needs at least six values.
    table.set("min_blocks", 6..=MOST_BLOCKS, &mut schedule.min_blocks);
    let targets = Share::from_percent(0.01)..=Share::from_percent(50.0);
    table.set("target", targets, &mut schedule.target);
    table.set("budget", Nanos::from_millis(1)..=LONGEST_BUDGET, &mut schedule.budget);
    let restarts = table.number_at("restarts", 1..=100_u32);
    schedule.restarts = restarts.map_or(schedule.restarts, |restarts| restarts.value);
    let restarts_anew = restarts.filter(|restarts| restarts.value > 1).map(|it| it.span);
    table.finish();
    ScheduleSection { schedule, restarts_anew }
}
