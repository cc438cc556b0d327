//! Where the time per query goes: CPU time and waits of the threads that execute statements.
//!
//! Shares of parts come from slices in which switches were recorded, and the time per query, clients × wall time /
//! statements, from measured slices of the same start: recording costs time, and not the same of each candidate. All parts
//! are from the same slices, so they add up to what was measured. Of the threads of the background only what is work is
//! shown. They wait for work in locks as well, which tells nothing.

use std::collections::{BTreeMap, HashMap};
use std::slice;

use dbdyno_profile::Titles;
use dbdyno_results::WaitsRecord;
use dbdyno_stats::mean_with_half_width;
use dbdyno_types::profile::{Function, SliceWaits, WaitKind, WaitStack, Waits};
use dbdyno_units::Nanos;

use super::Measured;
use super::profile::is_in_kernel;
use crate::model::{WaitRow, WaitsDifference};

/// With so many starts, intervals are those over starts.
const ENOUGH_STARTS: usize = 3;

/// Functions of a program in the name of a stack.
const DEPTH: usize = 4;

/// The beginnings of the modules of the kernel, the C library and its loader.
const NOT_OF_PROGRAM: [&str; 5] = ["[k]", "libc.", "libc-", "libpthread", "ld-"];

/// The parts of the time per query, their sum, and parts of the time of other threads.
const ROWS: usize = PARTS + 1 + IN_BACKGROUND.len();

/// CPU, each kind of wait, and what is missing.
const PARTS: usize = WaitKind::ALL.len() + 2;

const IN_BACKGROUND: [WaitKind; 2] = [WaitKind::Cpu, WaitKind::Storage];

/// In µs per query.
type Values = [f64; ROWS];

/// What was recorded of a candidate and the baseline in a start.
struct Start<'a> {
    records: [&'a WaitsRecord; 2],
    /// In each block that both have, scaled.
    blocks: Vec<[Values; 2]>,
    /// The time per query as recorded, in µs.
    recorded: [f64; 2],
    /// The time per query in measured slices relative to `recorded`.
    scale: [f64; 2],
}

impl Measured {
    /// `None` without waits of both in a common block. The control is the noise floor of the others.
    pub(super) fn waits_difference(
        &self,
        candidate: usize,
        control: Option<&WaitsDifference>,
    ) -> Option<WaitsDifference> {
        let of =
            |number: usize| self.waits.iter().filter(move |one| one.candidate as usize == number);
        let starts = of(candidate).filter_map(|own| {
            let base = of(0).find(|base| base.restart == own.restart)?;
            let measured = |number| self.time_of_start(number, own.restart);
            Start::of([own, base], [measured(candidate)?, measured(0)?])
        });
        let starts: Vec<Start<'_>> = starts.collect();
        if starts.is_empty() {
            return None;
        }
        let mut parts: Vec<WaitRow> =
            names().enumerate().map(|(at, name)| row(name, &starts, at)).collect();
        let mut background = parts.split_off(PARTS + 1);
        let total = parts.pop()?;
        for rows in [&mut parts, &mut background] {
            rows.retain(|row| row.us != 0.0 || row.baseline_us != 0.0);
        }
        let waits = || starts.iter().flat_map(|start| start.records).map(|record| &record.waits);
        let recorded = |side: usize| starts.iter().map(|start| start.recorded[side]).sum::<f64>();
        let mut found = WaitsDifference {
            in_intervals: waits().find_map(|waits| waits.in_intervals.clone()),
            lost: waits().map(|waits| waits.lost).fold(0, u64::saturating_add),
            records: waits()
                .map(|waits| waits.records)
                .try_fold(0, |sum: u64, one| Some(sum.saturating_add(one?))),
            cost: [candidate, 0].map(|number| self.cost_of_waits(number)),
            recorded_us: [0, 1].map(|side| recorded(side) / starts.len() as f64),
            parts,
            total,
            background,
            stacks: stacks(&starts),
        };
        if let Some(control) = control {
            set_floors(&mut found.parts, &control.parts);
            set_floors(slice::from_mut(&mut found.total), slice::from_ref(&control.total));
            set_floors(&mut found.background, &control.background);
            set_floors(&mut found.stacks, &control.stacks);
        }
        Some(found)
    }

    /// Clients × wall time / statements in µs of a candidate in the measured slices of a start; `None` without any.
    fn time_of_start(&self, candidate: usize, restart: u32) -> Option<f64> {
        let (mut statements, mut wall) = (0.0, 0.0);
        for slice in self.slices_of_start(candidate, restart) {
            statements += slice.statements as f64;
            wall += slice.wall.as_micros_f64();
        }
        (statements > 0.0).then(|| f64::from(self.record.clients) * wall / statements)
    }
}

/// Sets the control's differences of the same rows.
fn set_floors(rows: &mut [WaitRow], control: &[WaitRow]) {
    let floors: HashMap<&str, f64> =
        control.iter().map(|row| (row.name.as_str(), row.difference())).collect();
    rows.iter_mut().for_each(|row| row.control_us = floors.get(row.name.as_str()).copied());
}

/// The names of all rows, in the order of [`Values`].
fn names() -> impl Iterator<Item = &'static str> {
    let parts = WaitKind::ALL.into_iter().map(WaitKind::name);
    let background = IN_BACKGROUND.into_iter().map(WaitKind::name);
    ["CPU"].into_iter().chain(parts).chain(["not recorded", "time per query"]).chain(background)
}

impl<'a> Start<'a> {
    /// With the time per query of both in measured slices, in µs; `None` without a common block.
    fn of(records: [&'a WaitsRecord; 2], measured: [f64; 2]) -> Option<Self> {
        let mut blocks = blocks(records);
        if blocks.is_empty() {
            return None;
        }
        let recorded = [0, 1].map(|side| {
            blocks.iter().map(|both| both[side][PARTS]).sum::<f64>() / blocks.len() as f64
        });
        let scale = [0, 1].map(|side| measured[side] / recorded[side]);
        for both in &mut blocks {
            for (values, scale) in both.iter_mut().zip(scale) {
                values.iter_mut().for_each(|value| *value *= scale);
            }
        }
        Some(Self { records, blocks, recorded, scale })
    }
}

/// The values of both in the blocks that both have.
fn blocks([own, base]: [&WaitsRecord; 2]) -> Vec<[Values; 2]> {
    let of = |record: &WaitsRecord| -> BTreeMap<u32, Values> {
        let slices = record.waits.slices.iter();
        slices.filter_map(|slice| Some((slice.block, values(slice)?))).collect()
    };
    let base = of(base);
    let own = of(own).into_iter();
    own.filter_map(|(block, own)| Some([own, *base.get(&block)?])).collect()
}

/// `None` without statements or time.
fn values(slice: &SliceWaits) -> Option<Values> {
    let statements = slice.statements as f64;
    let per_query = |time: f64| time / statements;
    let kind = |waits: &BTreeMap<WaitKind, Nanos>, kind| {
        waits.get(&kind).copied().unwrap_or_default().as_micros_f64()
    };
    let (sessions, background) = (&slice.sessions, &slice.background);
    let mut values = vec![sessions.cpu.as_micros_f64()];
    values.extend(WaitKind::ALL.map(|one| kind(&sessions.waits, one)));
    let total = slice.wall.as_micros_f64() * f64::from(slice.clients);
    values.push(total - values.iter().sum::<f64>());
    values.push(total);
    values.extend(IN_BACKGROUND.map(|one| kind(&background.waits, one)));
    let values: Values = values.try_into().ok()?;
    (statements > 0.0 && total > 0.0).then(|| values.map(per_query))
}

/// The means over starts of one of the values.
fn row(name: &str, starts: &[Start<'_>], at: usize) -> WaitRow {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let over = |of: &dyn Fn(&[Values; 2]) -> f64| -> Vec<f64> {
        let of_start = |start: &Start<'_>| mean(&start.blocks.iter().map(of).collect::<Vec<f64>>());
        starts.iter().map(of_start).collect()
    };
    let difference = |[own, base]: &[Values; 2]| own[at] - base[at];
    let differences = match starts.len() {
        ENOUGH_STARTS.. => over(&difference),
        _ => starts.iter().flat_map(|start| &start.blocks).map(difference).collect(),
    };
    WaitRow {
        name: name.to_owned(),
        us: mean(&over(&|[own, _]| own[at])),
        baseline_us: mean(&over(&|[_, base]| base[at])),
        half_width_us: mean_with_half_width(&differences).map(|(_, half)| half),
        control_us: None,
    }
}

/// The stacks in which threads wait that execute statements, except for the client or a CPU, the longest waits first.
fn stacks(starts: &[Start<'_>]) -> Vec<WaitRow> {
    // By stack and start, of both.
    let mut times: BTreeMap<String, Vec<[f64; 2]>> = BTreeMap::new();
    for (number, Start { records, scale, .. }) in starts.iter().enumerate() {
        for (side, WaitsRecord { waits, .. }) in records.iter().enumerate() {
            let statements: f64 = waits.slices.iter().map(|slice| slice.statements as f64).sum();
            for stack in &waits.stacks {
                if statements > 0.0 && !matches!(stack.kind, WaitKind::Client | WaitKind::Cpu) {
                    let of_starts = times.entry(stack_name(waits, stack));
                    let of_starts = of_starts.or_insert_with(|| vec![[0.0; 2]; starts.len()]);
                    of_starts[number][side] +=
                        scale[side] * stack.time.as_micros_f64() / statements;
                }
            }
        }
    }
    let row = |(name, of_starts): (String, Vec<[f64; 2]>)| {
        let differences: Vec<f64> = of_starts.iter().map(|[own, base]| own - base).collect();
        let mean = |side: usize| {
            of_starts.iter().map(|both| both[side]).sum::<f64>() / of_starts.len() as f64
        };
        let interval = mean_with_half_width(&differences);
        let interval = interval.filter(|_| differences.len() >= ENOUGH_STARTS);
        WaitRow {
            name,
            us: mean(0),
            baseline_us: mean(1),
            half_width_us: interval.map(|(_, half)| half),
            control_us: None,
        }
    };
    let mut rows: Vec<WaitRow> = times.into_iter().map(row).collect();
    let longest = |row: &WaitRow| row.us.max(row.baseline_us);
    rows.sort_by(|a, b| longest(b).total_cmp(&longest(a)));
    rows
}

/// The kind and the innermost functions of a stack: of the program without its C library, or else of the kernel without
/// its scheduler.
fn stack_name(waits: &Waits, stack: &WaitStack) -> String {
    let functions = || stack.frames.iter().filter_map(|at| waits.functions.get(*at as usize));
    let is_other = |module: &str| NOT_OF_PROGRAM.iter().any(|of| module.starts_with(of));
    let titles = Titles::of([]);
    let name_of = |one: &Function| titles.title(one);
    let of_program = functions().filter(|one| !is_other(&one.module));
    let mut names: Vec<String> = of_program.map(name_of).collect();
    if names.is_empty() {
        let of_kernel = functions().filter(|one| is_in_kernel(one)).map(name_of);
        let is_scheduler = |name: &String| ["sched", "perf_"].iter().any(|of| name.contains(of));
        names = of_kernel.filter(|name| !is_scheduler(name)).collect();
    }
    names.dedup();
    names.truncate(DEPTH);
    format!("{}: {}", stack.kind.name(), names.join(" < "))
}

#[cfg(test)]
mod tests {
    use dbdyno_types::profile::ThreadTimes;

    use super::*;

    fn slice(block: u32, lock: u64) -> SliceWaits {
        let micros = Nanos::from_micros;
        let waits = [(WaitKind::Lock, micros(lock)), (WaitKind::Client, micros(500))];
        SliceWaits {
            block,
            clients: 2,
            statements: 10,
            wall: micros(1_000),
            cpu: micros(400),
            sessions: ThreadTimes { cpu: micros(300), waits: waits.into_iter().collect() },
            background: ThreadTimes::default(),
        }
    }

    fn record(candidate: u32, slices: Vec<SliceWaits>) -> WaitsRecord {
        WaitsRecord { candidate, restart: 0, waits: Waits { slices, ..Waits::default() } }
    }

    #[test]
    fn parts_add_up_to_the_time_per_query() {
        let own = record(1, vec![slice(1, 900), slice(2, 910), slice(3, 905)]);
        let base = record(0, vec![slice(3, 100), slice(2, 110), slice(7, 0)]);
        let start = Start::of([&own, &base], [200.0; 2]).unwrap();
        assert_eq!(start.blocks.len(), 2, "only common blocks");
        let starts = [start];
        let rows: Vec<WaitRow> =
            names().enumerate().map(|(at, name)| row(name, &starts, at)).collect();
        assert_eq!(rows.len(), ROWS);
        let sum: f64 = rows[..PARTS].iter().map(|row| row.us).sum();
        let total = &rows[PARTS];
        assert_eq!((total.name.as_str(), total.us), ("time per query", 200.0));
        assert!((sum - 200.0).abs() < 1e-9, "{rows:?}");
        let lock = rows.iter().find(|row| row.name == "lock").unwrap();
        assert!((lock.us - 90.75).abs() < 1e-9 && (lock.baseline_us - 10.5).abs() < 1e-9);
        assert!(lock.half_width_us.is_some_and(|half| half < lock.difference()), "{lock:?}");
    }

    #[test]
    fn times_are_those_of_measured_slices_and_shares_those_of_recorded_ones() {
        let stack = |time| WaitStack {
            kind: WaitKind::Lock,
            frames: Vec::new(),
            waits: 1,
            time: Nanos::from_micros(time),
        };
        let mut own = record(1, vec![slice(1, 900), slice(2, 900)]);
        let mut base = record(0, vec![slice(1, 100), slice(2, 100)]);
        own.waits.stacks.push(stack(1_800));
        base.waits.stacks.push(stack(200));
        // A query took 200 µs while it was recorded.
        let starts = [Start::of([&own, &base], [50.0, 100.0]).unwrap()];
        assert_eq!((starts[0].recorded, starts[0].scale), ([200.0; 2], [0.25, 0.5]));
        let of = |at: usize| {
            let row = row("", &starts, at);
            (row.us, row.baseline_us)
        };
        assert_eq!(of(PARTS), (50.0, 100.0));
        let lock = 1 + WaitKind::ALL.iter().position(|kind| *kind == WaitKind::Lock).unwrap();
        assert_eq!(of(lock), (22.5, 5.0));
        let of_stacks = stacks(&starts);
        assert_eq!(of_stacks.len(), 1, "{of_stacks:?}");
        assert_eq!((of_stacks[0].us, of_stacks[0].baseline_us), (22.5, 5.0));
        let other = record(0, vec![slice(7, 0)]);
        assert!(Start::of([&own, &other], [1.0; 2]).is_none());
    }

    #[test]
    fn certain_difference_is_larger_than_the_controls() {
        let row = |name: &str, us| WaitRow {
            name: name.to_owned(),
            us,
            baseline_us: 10.0,
            half_width_us: Some(1.0),
            control_us: None,
        };
        let is_certain = |of_control: f64| {
            let mut rows = [row("lock", 15.0), row("sleep", 15.0)];
            set_floors(&mut rows, &[row("lock", of_control), row("storage", 90.0)]);
            rows.map(|row| row.is_certain())
        };
        assert_eq!(is_certain(14.0), [true, true]);
        assert_eq!(is_certain(6.0), [true, true]);
        assert_eq!(is_certain(4.0), [false, true]);
        assert_eq!(is_certain(16.0), [false, true]);
    }

    #[test]
    fn stacks_are_named_by_functions_of_the_program() {
        let function = |module: &str, name: &str| Function {
            module: module.to_owned(),
            name: Some(name.to_owned()),
            source: None,
            start: 0,
        };
        let functions = vec![
            function("[k]", "__schedule"),
            function("[k]", "futex_wait"),
            function("libc.so.6", "pthread_cond_wait"),
            function("mariadbd", "lock_wait"),
            function("mariadbd", "row_search_mvcc"),
        ];
        let waits = Waits { functions, ..Waits::default() };
        let stack = |frames| {
            let stack = WaitStack { kind: WaitKind::Lock, frames, waits: 1, time: Nanos::ZERO };
            stack_name(&waits, &stack)
        };
        assert_eq!(stack(vec![0, 1, 2, 3, 3, 4]), "lock: lock_wait < row_search_mvcc");
        assert_eq!(stack(vec![0, 1, 2, 77]), "lock: futex_wait [kernel]");
    }
}
