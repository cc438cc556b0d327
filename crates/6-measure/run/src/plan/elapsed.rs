//! How long a run takes, by what the time is spent on.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use dbdyno_spec::experiment::{Candidate, Experiment, Schedule, System};
use dbdyno_types::ReleaseOrigin;
use dbdyno_types::server::TypicalTimes;
use dbdyno_units::{Bytes, Nanos};
use dbdyno_worker::protocol::lead_in_time;

use crate::plan::cases::{
    MicrobenchmarkCase, STARTS_WITH_INSTRUCTIONS, block_range, blocks_of_start, cases,
    instance_count, interleaved_sets, keeps_copy, of_instances, profile_times, restarts_of_segment,
    segments, slice_length, start_range, training, with_warmup,
};
use crate::plan::disk_space::{DiskSpace, is_same_kind};
use crate::plan::stopping_rule::StoppingRule;

/// The time if all intervals become narrow as early as possible, and if none does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    pub least: Nanos,
    pub most: Nanos,
}

impl TimeRange {
    pub const fn exactly(time: Nanos) -> Self {
        Self { least: time, most: time }
    }

    /// The range if the work takes up to `contention` times as long, because of what others run.
    pub(crate) fn under_load(self, contention: f64) -> Self {
        Self { most: times(self, contention).most, ..self }
    }
}

/// Whether a time is longer than another one by more than rounding hides.
fn is_much_longer(time: Nanos, other: Nanos) -> bool {
    time.as_secs_f64() > 1.0 + 1.25 * other.as_secs_f64()
}

/// Whether the upper end of an announced time is far off by what is known `now`: after the first restart in either direction,
/// later only if the run certainly takes longer.
pub(crate) fn is_off(announced: Nanos, now: TimeRange, is_first_restart: bool) -> bool {
    match is_first_restart {
        true => is_much_longer(now.most, announced) || is_much_longer(announced, now.most),
        false => is_much_longer(now.least, announced),
    }
}

impl Add for TimeRange {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { least: self.least + other.least, most: self.most + other.most }
    }
}

impl Sum for TimeRange {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Rounded, as it is an estimate: `50 s`, `2 to 4 min`, `40 s to 3 min`.
impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((least, unit_of_least), (most, unit)) = (rounded(self.least), rounded(self.most));
        // Seconds are rounded to less than minutes are: 97 to 104 s would be 95 s to 1.5 min.
        let is_one = if unit_of_least == unit { least == most } else { least >= 60.0 * most };
        if is_one {
            write!(f, "{most} {unit}")
        } else if unit_of_least == unit {
            write!(f, "{least} to {most} {unit}")
        } else {
            write!(f, "{least} {unit_of_least} to {most} {unit}")
        }
    }
}

/// A time with about as many digits as an estimate has, and its unit.
fn rounded(time: Nanos) -> (f64, &'static str) {
    let seconds = time.as_secs_f64();
    match seconds {
        ..10.0 => (seconds.ceil().max(1.0), "s"),
        10.0..100.0 => ((seconds / 5.0).round() * 5.0, "s"),
        100.0..300.0 => ((seconds / 30.0).round() / 2.0, "min"),
        300.0..5700.0 => ((seconds / 60.0).round(), "min"),
        _ => ((seconds / 360.0).round() / 10.0, "h"),
    }
}

/// An estimate of the time of a run, or of what is left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeEstimate {
    /// Blocks, with warm-up and lead-in.
    pub measuring: TimeRange,
    /// Blocks in which stacks are sampled.
    pub profiling: TimeRange,
    /// Starting all instances, which then read their tables, and stopping them.
    pub starts: TimeRange,
    pub loading: TimeRange,
    /// What takes time besides if it is not cached; may be empty.
    pub uncached: &'static str,
}

impl TimeEstimate {
    /// The estimate if starts and loading take up to `contention` times as long, because of what others run. Slices do
    /// not: they have as many events as fit in their time.
    pub(crate) fn under_load(self, contention: f64) -> Self {
        let [starts, loading] = [self.starts, self.loading].map(|time| time.under_load(contention));
        Self { starts, loading, ..self }
    }

    /// With what comes before everything else: loading and the first start.
    pub(crate) fn after(self, costs: Costs) -> Self {
        let [start, loading] = [costs.start.after_reads, costs.loading].map(TimeRange::exactly);
        Self { starts: self.starts + start, loading: self.loading + loading, ..self }
    }

    pub fn total(&self) -> TimeRange {
        self.measuring + self.profiling + self.starts + self.loading
    }
}

/// `about 3 to 5 min: 2 to 3 min measuring, 60 s to 2 min starts, 15 s loading`.
impl fmt::Display for TimeEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "about {}: {} measuring", self.total(), self.measuring)?;
        let others = [
            (self.profiling, "sampling stacks"),
            (self.starts, "starts"),
            (self.loading, "loading"),
        ];
        for (time, what) in others {
            if time.most >= Nanos::from_secs(1) {
                write!(f, ", {time} {what}")?;
            }
        }
        match self.uncached {
            "" => Ok(()),
            uncached => write!(f, ", plus {uncached} that are not cached"),
        }
    }
}

/// Starting all instances once, by what they did before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartCosts {
    pub after_reads: Nanos,
    pub after_writes: Nanos,
}

/// What the plan of a run cannot know. The typical values are of an idle machine with an SSD; a session replaces them
/// by what it has measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub start: StartCosts,
    pub loading: Nanos,
}

/// Opening a library, or connecting to a server.
pub(super) const OPENING: Nanos = Nanos::from_millis(50);

/// Bytes per second of tables that are loaded, and that are read after a start or copied.
const LOADED: f64 = 30e6;
pub(super) const READ: f64 = 500e6;

fn at_rate(size: Bytes, per_second: f64) -> Nanos {
    Nanos::from_secs_f64(size.as_bytes() as f64 / per_second)
}

impl Costs {
    /// If an earlier session has loaded the data, it is only copied.
    pub fn typical(experiment: &Experiment, is_loaded: bool) -> Self {
        let space = DiskSpace::of(experiment);
        let tables = space.tables + space.existing;
        let candidates = &experiment.candidates;
        let baseline = candidates.iter().find(|one| one.name == experiment.baseline);
        let control = baseline.filter(|_| experiment.control);
        let read = at_rate(tables, READ);
        let starts = |of: fn(&TypicalTimes) -> Nanos| {
            let start = |one: &Candidate| match &one.system {
                System::Private(server) => of(&server.system.facts().typical_times),
                System::Sqlite { .. } | System::Existing(_) => OPENING,
            };
            candidates.iter().chain(control).map(start).sum::<Nanos>() + read
        };
        // Data of one kind is loaded once, and copied.
        let mut kinds: Vec<&System> = Vec::new();
        let mut create = Nanos::ZERO;
        for one in candidates.iter().chain(control) {
            if kinds.iter().any(|other| is_same_kind(other, &one.system)) {
                continue;
            }
            kinds.push(&one.system);
            if let System::Private(server) = &one.system {
                create += server.system.facts().typical_times.create;
            }
        }
        let part = kinds.len() as f64 / instance_count(experiment) as f64;
        let loaded = Bytes::from_bytes((tables.as_bytes() as f64 * part) as u64);
        let load = if is_loaded { Nanos::ZERO } else { create + at_rate(loaded, LOADED) };
        let start = StartCosts {
            after_reads: starts(|typical| typical.restart),
            after_writes: starts(|typical| typical.restart_after_writes),
        };
        Self { start, loading: load + read }
    }
}

/// What is left of a case that is not done: least and most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaseLeft {
    /// With warm-up.
    pub blocks: (u64, u64),
    /// With the one in which it is measured now.
    pub starts: (u32, u32),
    pub complete_starts: u32,
}

impl CaseLeft {
    /// A case ends by the time of its slices, which are longer than `slice` if events are long, and shorter if events were
    /// counted while others used the CPU.
    pub fn of(schedule: &Schedule, slice: Nanos, rule: &StoppingRule, instances: u64) -> Self {
        let slice = rule.mean_slice().unwrap_or(slice);
        let complete_starts = rule.complete_starts();
        let with_warmup = |blocks| with_warmup(schedule, slice, blocks);
        if let Some(left) = rule.time_left_of_extension() {
            let blocks = left.as_nanos().div_ceil((slice.as_nanos() * instances).max(1));
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            let starts = match schedule.restarts {
                1 => 1,
                _ => blocks.div_ceil(blocks_of_start(schedule, slice)),
            };
            let blocks = with_warmup(blocks);
            return Self { blocks: (blocks, blocks), starts: (starts, starts), complete_starts };
        }
        let left = |range: (u32, u32), done: u32| {
            let (least, most) = of_instances(range, instances);
            (least.saturating_sub(done), most.saturating_sub(done))
        };
        let (least, most) = left(block_range(schedule, slice), rule.blocks());
        Self {
            blocks: (with_warmup(least), with_warmup(most)),
            starts: left(start_range(schedule, slice), complete_starts),
            complete_starts,
        }
    }

    /// The time of the blocks on all instances, with the lead-in of each slice, without the time to start the instances.
    pub fn time(&self, slice: Nanos, instances: u64) -> TimeRange {
        let time = |blocks: u64| (slice + lead_in_time(slice)).times(blocks).times(instances);
        TimeRange { least: time(self.blocks.0), most: time(self.blocks.1) }
    }
}

/// The time that cases need, which are done if `left` is `None`, without the start of instances that are running or
/// start anyway. `relative` is the time of the blocks of a case, relative to
/// the plan.
pub(crate) fn time_left(
    experiment: &Experiment,
    all: &[MicrobenchmarkCase],
    start: StartCosts,
    left: impl Fn(usize) -> Option<CaseLeft>,
    relative: impl Fn(usize) -> f64,
) -> TimeEstimate {
    let schedule = &experiment.schedule;
    let instances = instance_count(experiment) as u64;
    let sets = interleaved_sets(experiment, all);
    let training = training(experiment);
    let mut estimate = TimeEstimate::default();
    for segment in segments(experiment, all, &sets) {
        let is_shared = segment.len() > 1;
        let writes = all[sets[segment.start].start].microbenchmark.writes();
        let start = if writes { start.after_writes } else { start.after_reads };
        let (mut passes, mut visits, mut copied) = ([0, 0], [0, 0], 0);
        for (position, index) in segment.flat_map(|set| sets[set].clone().enumerate()) {
            let Some(left) = left(index) else { continue };
            let microbenchmark = &all[index].microbenchmark;
            let time = left.time(slice_length(schedule, microbenchmark), instances);
            estimate.measuring = estimate.measuring + times(time, relative(index));
            let [sampling, counting] = profile_times(experiment, microbenchmark);
            let profiling = |starts: u32, of: fn(TimeRange) -> Nanos| {
                let counted = STARTS_WITH_INSTRUCTIONS.saturating_sub(left.complete_starts);
                let counted = counted.min(starts);
                of(sampling).times(u64::from(starts)) + of(counting).times(u64::from(counted))
            };
            let least = profiling(left.starts.0, |time| time.least);
            let most = profiling(left.starts.1, |time| time.most);
            estimate.profiling =
                estimate.profiling + times(TimeRange { least, most }, relative(index));
            let starts = [left.starts.0, left.starts.1];
            for end in 0..2 {
                passes[end] = passes[end].max(starts[end]);
                visits[end] += if position == 0 { starts[end] } else { 0 };
            }
            copied += u32::from(keeps_copy(experiment, microbenchmark));
        }
        if let Some((time, of_each)) = training {
            // In each start; numbers of clients that are measured in turns share it.
            let count = if of_each { visits } else { passes };
            let [least, most] = count.map(|count| time.times(u64::from(count)));
            estimate.measuring = estimate.measuring + TimeRange { least, most };
        }
        let [least, most] = [0, 1].map(|end| {
            // Before each set that writes, data is settled, which takes about as long as a restart.
            let settled = if writes { visits[end].saturating_sub(passes[end]) } else { 0 };
            let restarts = restarts_of_segment(passes[end], copied, is_shared);
            start.times(u64::from(restarts + settled))
        });
        estimate.starts = estimate.starts + TimeRange { least, most };
    }
    estimate
}

pub(crate) fn times(time: TimeRange, factor: f64) -> TimeRange {
    let scaled = |time: Nanos| Nanos::from_secs_f64(time.as_secs_f64() * factor);
    TimeRange { least: scaled(time.least), most: scaled(time.most) }
}

/// The time of a whole run, without builds.
pub(crate) fn of_run(experiment: &Experiment) -> TimeEstimate {
    let (schedule, all) = (&experiment.schedule, cases(experiment));
    let instances = instance_count(experiment) as u64;
    let costs = Costs::typical(experiment, false);
    let rule = StoppingRule::default();
    let left = |index: usize| {
        let slice = slice_length(schedule, &all[index].microbenchmark);
        Some(CaseLeft::of(schedule, slice, &rule, instances))
    };
    let mut estimate = time_left(experiment, &all, costs.start, left, |_| 1.0);
    estimate.uncached = uncached(experiment);
    estimate.after(costs)
}

/// What a run compiles or downloads unless the cache has it.
fn uncached(experiment: &Experiment) -> &'static str {
    let has = |what: fn(&System) -> bool| experiment.candidates.iter().any(|one| what(&one.system));
    let is_fetched = |system: &System| {
        let release = system.release();
        release.is_some_and(|release| !matches!(release, ReleaseOrigin::Installed { .. }))
    };
    match (has(|system| system.build().is_some()), has(is_fetched)) {
        (false, false) => "",
        (true, false) => "builds",
        (false, true) => "downloads",
        (true, true) => "builds and downloads",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_rounded() {
        let shown = |least: u64, most: u64| {
            let [least, most] = [least, most].map(Nanos::from_millis);
            TimeRange { least, most }.to_string()
        };
        assert_eq!(shown(0, 300), "1 s");
        assert_eq!(shown(47_700, 52_000), "50 s");
        assert_eq!(shown(12_000, 48_000), "10 to 50 s");
        assert_eq!(shown(62_000, 131_000), "60 s to 2 min");
        assert_eq!(shown(97_000, 104_000), "1.5 min");
        assert_eq!(shown(149_000, 610_000), "2.5 to 10 min");
        assert_eq!(shown(5_700_000, 9_000_000), "1.6 to 2.5 h");
    }

    fn experiment(more: &str, candidates: &str) -> Experiment {
        let text = format!("name = \"test\"\nbaseline = \"a\"\n{more}\n{candidates}");
        dbdyno_spec::parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn announced_time_is_corrected_after_the_first_restart_and_else_only_if_the_run_is_longer() {
        let is_off = |announced, [least, most]: [u64; 2], is_first_restart| {
            let [announced, least, most] = [announced, least, most].map(Nanos::from_secs);
            is_off(announced, TimeRange { least, most }, is_first_restart)
        };
        assert!(is_off(120, [20, 40], true) && is_off(9, [20, 40], true));
        assert!(!is_off(60, [35, 50], true));
        assert!(is_off(60, [90, 95], false));
        assert!(!is_off(60, [60, 300], false) && !is_off(60, [10, 20], false));
        // Also if the announced time was rounded up.
        for millis in (0..400).map(|exponent| 1.05_f64.powi(exponent) as u64) {
            let most = Nanos::from_millis(millis);
            let (shown, unit) = rounded(most);
            let seconds = match unit {
                "s" => 1.0,
                "min" => 60.0,
                _ => 3600.0,
            };
            let announced = Nanos::from_secs_f64(shown * seconds);
            assert!(!is_much_longer(announced, most), "{most}: {shown} {unit}");
        }
    }

    #[test]
    fn estimate_grows_with_the_budget_and_load_raises_only_its_upper_end() {
        for candidate in ["system = \"mariadb\"", "system = \"sqlite\"\nvariant = \"rel\""] {
            let of_budget = |seconds: u32| {
                let lines = format!(
                    "[schedule]\nbudget = \"{seconds}s\"\nrestarts = 6\n[workload]\n\
                     microbenchmarks = [\"point-query.pre*\", \"update-index*\", \"delete*\"]"
                );
                let one = |name: &str| format!("[[candidate]]\nname = \"{name}\"\n{candidate}\n");
                of_run(&experiment(&lines, &(one("a") + &one("b"))))
            };
            let mut before = TimeRange::default();
            for budget in (0..10).map(|exponent| 1_u32 << exponent) {
                let estimate = of_budget(budget);
                let total = estimate.total();
                assert!(before.least <= total.least && before.most <= total.most, "{estimate}");
                assert!(total.least <= total.most, "{estimate}");
                let loaded = estimate.under_load(1.9);
                assert_eq!(loaded.measuring, estimate.measuring);
                assert_eq!(loaded.total().least, total.least);
                assert!(total.most < loaded.total().most, "{loaded}");
                before = total;
            }
        }
    }

    #[test]
    fn plan_says_what_the_time_is_spent_on() {
        let servers = "[[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
                       [[candidate]]\nname = \"b\"\nsystem = \"postgresql\"\n";
        let schedule = "[schedule]\nbudget = \"12s\"\nslice = \"5ms\"\nrestarts = 6\n\
                        [workload]\nrows = 20_000\n\
                        microbenchmarks = [\"point-query.pre_range=100\"]\n";
        let estimate = of_run(&experiment(schedule, servers));
        // 200 blocks of 10 ms in each of 6 to 12 starts, with 10 of warm-up, on three instances.
        let measured = |starts: u64| Nanos::from_millis(210 * 10 * 3 * starts);
        assert_eq!(estimate.measuring, TimeRange { least: measured(6), most: measured(12) });
        let TimeRange { least, most } = estimate.starts;
        assert_eq!(least.times(2), most);
        assert!(least > Nanos::from_secs(6 / 2) && estimate.loading.least > Nanos::from_secs(5));
        let text = estimate.to_string();
        assert!(text.starts_with("about ") && text.contains(" starts, "), "{text}");
        assert_eq!(estimate.uncached, "");

        let sqlite = "[[candidate]]\nname = \"a\"\nsystem = \"sqlite\"\nvariant = \"rel\"\n\
                      [[candidate]]\nname = \"b\"\nsystem = \"sqlite\"\nvariant = \"rel\"\n";
        let estimate = of_run(&experiment(schedule, sqlite));
        assert!(estimate.starts.most < Nanos::from_secs(3), "{estimate}");
        let both = "[[candidate]]\nname = \"a\"\nsystem = \"sqlite\"\nvariant = \"rel\"\n\
                    [[candidate]]\nname = \"b\"\nsystem = \"mysql\"\nrelease = { debian = \"sid\" }\n";
        let text = of_run(&experiment(schedule, both)).to_string();
        assert!(text.ends_with(", plus builds and downloads that are not cached"), "{text}");
    }

    #[test]
    fn live_optimizer_is_trained_in_each_start() {
        let measuring = |live: &str| {
            let server =
                |name: &str| format!("[[candidate]]\nname = \"{name}\"\nsystem = \"mariadb\"\n");
            let lines = "[schedule]\nslice = \"40ms\"\nrestarts = 4\nbudget = \"800ms\"\n\
                         [workload]\nmicrobenchmarks = [\"point-query.pre*\", \"hot-points*\"]\n";
            let candidates = format!("{}{live}{}", server("a"), server("b"));
            of_run(&experiment(lines, &candidates)).measuring.least
        };
        let training = |live: &str| measuring(&format!("live = {{ profile = \"2s\"{live} }}\n"));
        // 2 s of samples, and 1.53 s in which executions are counted, on three instances.
        let (each, once) = (training(""), training(", train = \"once\""));
        assert_eq!(each - once, Nanos::from_millis(3 * 3_530).times(4));
        let sampled = training(", counts = \"sampled\"");
        assert_eq!(each - sampled, Nanos::from_millis(3 * 1_530).times(4 * 2));
        assert!(once > measuring("") + Nanos::from_secs(3 * 3 * 4));
    }

    #[test]
    fn sampled_blocks_of_each_start_take_time() {
        let servers = "[[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n";
        let lines = "[schedule]\nslice = \"40ms\"\nrestarts = 4\nbudget = \"800ms\"\n\
                     [workload]\nmicrobenchmarks = [\"point-query.pre*\", \"hot-points*\"]\n\
                     [profile]\ntime = \"1600ms\"\nmicrobenchmarks = [\"hot-points*\"]\n";
        let estimate = of_run(&experiment(lines, servers));
        // 10 blocks of 45 ms in each of 4 starts, with two that are not sampled and one of warm-up, on two instances.
        assert_eq!(estimate.profiling.least, Nanos::from_millis(45 * 13 * 4 * 2));
        // Three times as many for a server that waits.
        assert_eq!(estimate.profiling.most, Nanos::from_millis(45 * 33 * 4 * 2));
        assert!(estimate.to_string().contains(" s sampling stacks, "), "{estimate}");
        assert!(estimate.total().least > estimate.measuring.least + estimate.profiling.least);
        // Instructions are counted in the first two starts: two blocks of 500 ms on two instances.
        let counted = |complete_starts| {
            let left = CaseLeft { blocks: (0, 0), starts: (1, 1), complete_starts };
            let left_of = |lines: &str| {
                let experiment = experiment(lines, servers);
                let all = cases(&experiment);
                let start = Costs::typical(&experiment, true).start;
                time_left(&experiment, &all, start, |_| Some(left), |_| 1.0).profiling.least
            };
            left_of(&lines.replace("[profile]", "[profile]\ninstructions = true")) - left_of(lines)
        };
        assert!(counted(1) > Nanos::from_secs(2));
        assert_eq!(counted(2), Nanos::ZERO);
    }

    #[test]
    fn settling_before_each_further_microbenchmark_that_writes_takes_time() {
        let [after_reads, after_writes] = [1, 10].map(Nanos::from_secs);
        let starts_of = |names: &str| {
            let lines = format!("[workload]\nmicrobenchmarks = [{names}]\n");
            let experiment =
                experiment(&lines, "[[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n");
            let all = cases(&experiment);
            let left = CaseLeft { blocks: (0, 0), starts: (3, 3), complete_starts: 0 };
            let start = StartCosts { after_reads, after_writes };
            time_left(&experiment, &all, start, |_| Some(left), |_| 1.0).starts.least
        };
        // The first of three passes uses running instances.
        assert_eq!(starts_of("\"point-query.pre*\", \"scan*\""), after_reads.times(2));
        assert_eq!(starts_of("\"update-index*\""), after_writes.times(2));
        assert_eq!(starts_of("\"update-index*\", \"update-nonindex*\""), after_writes.times(5));
    }

    #[test]
    fn what_is_done_is_not_left() {
        let servers = "[[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
                       [[candidate]]\nname = \"b\"\nsystem = \"mariadb\"\n";
        let workload = "[workload]\nmicrobenchmarks = [\"point-query.pre*\", \"update-index*\"]\n";
        let experiment = experiment(workload, servers);
        let all = cases(&experiment);
        let [after_reads, after_writes] = [5, 10].map(Nanos::from_secs);
        let start = StartCosts { after_reads, after_writes };
        let left_of = |reads: Option<CaseLeft>, writes: Option<CaseLeft>| {
            time_left(&experiment, &all, start, |index| [reads, writes][index], |_| 2.0)
        };
        assert_eq!(left_of(None, None), TimeEstimate::default());
        let last = CaseLeft { blocks: (0, 0), starts: (1, 1), complete_starts: 5 };
        assert_eq!(left_of(Some(last), None), TimeEstimate::default());
        let writes = CaseLeft { blocks: (3, 4), starts: (3, 5), complete_starts: 3 };
        let left = left_of(Some(last), Some(writes));
        let [two, four] = [2, 4].map(|starts| after_writes.times(starts));
        assert_eq!(left.starts, TimeRange { least: two, most: four });
        // A block of writes and two of warm-up, with lead-in, at half the speed.
        let least = Nanos::from_millis(1125 * 3 * 3 * 2);
        assert_eq!(left.measuring.least, least);
        // A resumed run starts its instances first, on data that earlier sessions loaded.
        let [loaded, new] = [true, false].map(|loaded| Costs::typical(&experiment, loaded));
        assert!(loaded.loading < new.loading);
        let resumed = left.after(loaded);
        assert_eq!(resumed.starts.least, two + loaded.start.after_reads);
        assert_eq!(resumed.loading, TimeRange::exactly(loaded.loading));
    }
}
