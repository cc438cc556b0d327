//! The cases of an experiment in running order, the times of their slices and blocks, and which of them train the live
//! optimizer.

use std::ops::Range;

use dbdyno_spec::experiment::{Counts, Experiment, Live, Profiling, Schedule, System, Train};
use dbdyno_units::Nanos;
use dbdyno_worker::protocol::lead_in_time;
use dbdyno_worker::schedule::BlockPlan;
use dbdyno_workloads::definition::{Microbenchmark, Stage};

use crate::plan::elapsed::TimeRange;

/// A microbenchmark with a number of clients: what is measured at a time.
#[derive(Clone, Debug)]
pub(crate) struct MicrobenchmarkCase {
    pub microbenchmark: Microbenchmark,
    pub clients: u32,
}

impl MicrobenchmarkCase {
    /// The name to show: with the number of clients in a sweep.
    pub fn title(&self, experiment: &Experiment) -> String {
        let name = &self.microbenchmark.name;
        match (experiment.workload.clients.len(), self.clients) {
            (1, _) => name.clone(),
            (_, 1) => format!("{name}, 1 client"),
            (_, clients) => format!("{name}, {clients} clients"),
        }
    }
}

/// All cases, in running order.
pub(crate) fn cases(experiment: &Experiment) -> Vec<MicrobenchmarkCase> {
    let mut cases = Vec::new();
    for microbenchmark in &experiment.workload.microbenchmarks {
        cases.extend(experiment.workload.clients.iter().map(|&clients| MicrobenchmarkCase {
            microbenchmark: microbenchmark.clone().for_clients(clients),
            clients,
        }));
    }
    cases
}

/// The ranges of cases that are measured together, in running order: all numbers of clients of a
/// microbenchmark that only reads, as drift of the machine then affects all of them.
///
/// Writes are measured with one number of clients after the other. A server writes back, purges and
/// compacts after a slice, in the slices of others, and so the work of many clients would slow down
/// the slices of one. A microbenchmark that the live optimizer trains for each number of clients is
/// not interleaved either.
pub(crate) fn interleaved_sets(
    experiment: &Experiment,
    cases: &[MicrobenchmarkCase],
) -> Vec<Range<usize>> {
    let is_together = |a: usize, b: usize| {
        let (one, other) = (&cases[a].microbenchmark, &cases[b].microbenchmark);
        one.name == other.name
            && !one.writes()
            && training_case(experiment, a) == training_case(experiment, b)
    };
    let mut sets: Vec<Range<usize>> = Vec::new();
    for index in 0..cases.len() {
        match sets.last_mut() {
            Some(set) if is_together(set.start, index) => set.end = index + 1,
            _ => sets.push(index..index + 1),
        }
    }
    sets
}

/// The sets that are measured in passes with each other, as ranges of `sets`, in running order: a pass
/// visits each set once, with instances that were started for it.
///
/// Servers take seconds to start, so passes are over all sets that follow each other and only read, or
/// that follow each other and write: reads before writes must not see what is written in an earlier pass.
/// Embedded instances start in milliseconds, and each set has passes of its own.
pub(crate) fn segments(
    experiment: &Experiment,
    cases: &[MicrobenchmarkCase],
    sets: &[Range<usize>],
) -> Vec<Range<usize>> {
    let passes = has_passes(experiment);
    let writes = |set: usize| cases[sets[set].start].microbenchmark.writes();
    let mut segments: Vec<Range<usize>> = Vec::new();
    for set in 0..sets.len() {
        match segments.last_mut() {
            Some(segment) if passes && writes(segment.start) == writes(set) => {
                segment.end = set + 1;
            }
            _ => segments.push(set..set + 1),
        }
    }
    segments
}

/// Whether microbenchmarks are measured in passes: with private servers that are restarted.
pub(crate) fn has_passes(experiment: &Experiment) -> bool {
    experiment.schedule.restarts > 1
        && experiment.candidates.iter().any(|one| matches!(one.system, System::Private(_)))
}

/// Which sets of a segment the first pass of a session visits, by their numbers of complete starts:
/// those that an interrupted pass did not reach, or all.
pub(crate) fn first_pass(starts: &[u32]) -> Vec<bool> {
    let most = starts.iter().copied().max().unwrap_or_default();
    let is_even = starts.iter().all(|one| *one == most);
    starts.iter().map(|one| is_even || *one < most).collect()
}

/// The number of instances that are measured, the control included.
pub(crate) fn instance_count(experiment: &Experiment) -> usize {
    experiment.candidates.len() + usize::from(experiment.control)
}

/// Whether a case reads data that earlier cases have written to.
pub(crate) fn is_read_after_writes(cases: &[MicrobenchmarkCase], case: usize) -> bool {
    let microbenchmark = &cases[case].microbenchmark;
    microbenchmark.stage >= Stage::Post
        && !microbenchmark.writes()
        && cases[..case].iter().any(|case| case.microbenchmark.writes())
}

/// Whether instances keep a copy of their data before a case, to restore it for each restart and each
/// number of clients.
pub(crate) fn keeps_copy(experiment: &Experiment, microbenchmark: &Microbenchmark) -> bool {
    let is_repeated = experiment.schedule.restarts > 1 || experiment.workload.clients.len() > 1;
    microbenchmark.uses_up_data() && is_repeated
}

/// The number of restarts of all instances in this number of passes over a segment, where `copied` cases keep a copy of
/// their data. The first pass uses instances that are running. Copying and restoring each take a restart: in every pass if
/// other sets share the segment, otherwise before the first pass and after the last.
pub(crate) fn restarts_of_segment(passes: u32, copied: u32, is_shared: bool) -> u32 {
    let copies = if is_shared { passes } else { passes.min(1) };
    (passes + 2 * copied * copies).saturating_sub(1)
}

pub(crate) fn slice_length(schedule: &Schedule, microbenchmark: &Microbenchmark) -> Nanos {
    if microbenchmark.writes() { schedule.write_slice } else { schedule.slice }
}

/// Blocks of a microbenchmark with slices of this length, of which the first is warm-up: with one client, and without the
/// engine's own counters.
pub(crate) const fn plain_blocks(
    experiment: &Experiment,
    microbenchmark: u32,
    first_block: u32,
    slice: Nanos,
) -> BlockPlan {
    BlockPlan {
        seed: experiment.seed,
        microbenchmark,
        first_block,
        warmup_blocks: 1,
        warmup_time: Nanos::ZERO,
        counted_blocks: 0,
        clients: 1,
        slice,
        pace: experiment.schedule.pace,
    }
}

/// Minimum and maximum number of counted blocks. The maximum is what fits in the budget; with
/// restarts, at least half of the budget is used.
pub(crate) fn block_range(schedule: &Schedule, slice: Nanos) -> (u32, u32) {
    if schedule.restarts == 1 {
        let most = slices_in(schedule.budget.as_nanos(), slice).max(schedule.min_blocks);
        return (schedule.min_blocks, most);
    }
    let (fewest, most) = start_range(schedule, slice);
    let blocks = blocks_of_start(schedule, slice);
    (fewest.saturating_mul(blocks), most.saturating_mul(blocks))
}

/// A range of blocks or starts of this number of instances: the interval of a ratio can end a microbenchmark early, and one
/// instance has none.
pub(crate) const fn of_instances((fewest, most): (u32, u32), instances: u64) -> (u32, u32) {
    if instances == 1 { (most, most) } else { (fewest, most) }
}

/// Minimum and maximum number of starts of the instances for a microbenchmark. The maximum is reached
/// if no interval becomes narrow.
pub(crate) fn start_range(schedule: &Schedule, slice: Nanos) -> (u32, u32) {
    let restarts = schedule.restarts;
    if restarts == 1 {
        return (1, 1);
    }
    let time = slice.times(u64::from(blocks_of_start(schedule, slice)));
    (restarts, slices_in(schedule.budget.as_nanos(), time).max(restarts))
}

/// The number of counted blocks of a start, if there are several starts: it has its share of the
/// minimum number of blocks, and of half of the budget.
pub(crate) fn blocks_of_start(schedule: &Schedule, slice: Nanos) -> u32 {
    let share = schedule.budget.as_nanos() / u64::from(2 * schedule.restarts);
    slices_in(share, slice).max(schedule.min_blocks.div_ceil(schedule.restarts))
}

/// The number of slices that take this time.
fn slices_in(time: u64, slice: Nanos) -> u32 {
    u32::try_from(time.div_ceil(slice.as_nanos().max(1))).unwrap_or(u32::MAX)
}

/// This number of blocks with slices of this length, with the warm-up after each start.
pub(crate) fn with_warmup(schedule: &Schedule, slice: Nanos, blocks: u32) -> u64 {
    let starts = match schedule.restarts {
        1 => blocks.min(1),
        _ => blocks.div_ceil(blocks_of_start(schedule, slice)),
    };
    let warmup = slices_in(schedule.warmup_time.as_nanos(), slice + lead_in_time(slice));
    let warmup = warmup.max(schedule.warmup_blocks);
    u64::from(blocks) + u64::from(warmup) * u64::from(starts)
}

/// Blocks of a start in which stacks are sampled, at most.
const MOST_PROFILED: u32 = 4_000;

/// How many times as many blocks as planned are sampled at most, because a server that often waits uses little CPU time
/// in a slice.
const MOST_EXTENDED: u32 = 3;

/// Samples that a slice in which stacks are sampled has at most: the buffer of a CPU, which is read after it, has room
/// for 290.
const MOST_SAMPLES: u64 = 200;

/// The length of a slice in which stacks are sampled or waits recorded. Lead-ins would take half of the time of slices of
/// 5 ms, and take at most a fifth of these, which are still of the order of those that are measured. Slices of writes can
/// be shorter than measured ones.
pub(crate) fn profiled_slice(experiment: &Experiment, microbenchmark: &Microbenchmark) -> Nanos {
    let frequency = experiment.profile.as_ref().map_or(1, |profiling| profiling.frequency.max(1));
    let longest = Nanos::from_secs(MOST_SAMPLES).as_nanos() / u64::from(frequency);
    let longest = Nanos::from_nanos(longest).min(Nanos::from_millis(200));
    slice_length(&experiment.schedule, microbenchmark).min(longest).max(Nanos::from_millis(20))
}

/// Of so many planned blocks of a start stacks are sampled or waits recorded in all but one. What that costs is told from
/// slices at the same time.
const PROFILED_OF: u32 = 8;

/// The blocks of a start in which the stacks of a microbenchmark are sampled, after one of warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfiledBlocks {
    /// Enough for the CPU time of a system that never waits; 0 if the microbenchmark is not sampled.
    pub planned: u32,
    /// With those that are added for systems that wait.
    pub most: u32,
    /// CPU time of each system that is to be sampled.
    pub cpu: Nanos,
}

impl ProfiledBlocks {
    pub fn of(experiment: &Experiment, microbenchmark: &Microbenchmark) -> Self {
        let profile = experiment.profile.as_ref();
        let Some(profiling) = profile.filter(|one| one.includes(&microbenchmark.name)) else {
            return Self::default();
        };
        let schedule = &experiment.schedule;
        let time = profiling.time.as_nanos() / u64::from(schedule.restarts.max(1));
        let slices = slices_in(time, profiled_slice(experiment, microbenchmark));
        let unsampled = slices.div_ceil(PROFILED_OF - 1);
        let planned = slices.saturating_add(unsampled).clamp(2, MOST_PROFILED);
        let more = slices.saturating_mul(MOST_EXTENDED - 1);
        let most = planned.saturating_add(more).min(MOST_PROFILED);
        Self { planned, most, cpu: Nanos::from_nanos(time) }
    }

    /// Whether stacks are sampled or waits recorded in the block after so many complete ones.
    pub const fn is_profiled(&self, complete: u32) -> bool {
        complete >= self.planned || complete % PROFILED_OF != 1
    }

    /// Whether so many complete blocks are enough, in which the systems used this CPU time.
    pub fn are_enough(&self, complete: u32, cpu: impl IntoIterator<Item = Nanos>) -> bool {
        let has_share = |used: Nanos| used >= self.cpu;
        complete >= self.most || complete >= self.planned && cpu.into_iter().all(has_share)
    }
}

/// The block of a start in which executed instructions are counted, and one before it that tells how many events take as
/// long as a slice.
pub(crate) const INSTRUCTION_BLOCKS: u32 = 2;

/// The length of a slice in which executed instructions are counted. With the same events the counts hardly depend on
/// it, but rare paths are executed in it.
pub(crate) fn instruction_slice(schedule: &Schedule, microbenchmark: &Microbenchmark) -> Nanos {
    slice_length(schedule, microbenchmark).max(Nanos::from_millis(500))
}

/// The first starts, in which executed instructions are counted: with the same statements they hardly differ between
/// starts.
pub(crate) const STARTS_WITH_INSTRUCTIONS: u32 = 2;

/// The time in which stacks are sampled and waits are recorded in a start, and that in which instructions are counted in
/// one, on all instances.
pub(crate) fn profile_times(
    experiment: &Experiment,
    microbenchmark: &Microbenchmark,
) -> [TimeRange; 2] {
    let blocks = ProfiledBlocks::of(experiment, microbenchmark);
    if blocks.planned == 0 {
        return [TimeRange::default(); 2];
    }
    let schedule = &experiment.schedule;
    let time = |slice: Nanos, blocks: u32| {
        let of_instance = (slice + lead_in_time(slice)).times(u64::from(blocks));
        of_instance.times(instance_count(experiment) as u64)
    };
    let wanted = |of: fn(&Profiling) -> bool| experiment.profile.as_ref().is_some_and(of);
    let of_waits = if wanted(|profiling| profiling.waits) { blocks.planned + 1 } else { 0 };
    let slice = profiled_slice(experiment, microbenchmark);
    let sampling = |blocks: u32| time(slice, blocks + 1 + of_waits);
    let counting = match wanted(|profiling| profiling.instructions) {
        true => time(instruction_slice(schedule, microbenchmark), INSTRUCTION_BLOCKS),
        false => Nanos::ZERO,
    };
    let sampling = TimeRange { least: sampling(blocks.planned), most: sampling(blocks.most) };
    [sampling, TimeRange::exactly(counting)]
}

/// The position of the case that servers are trained with before case number `measured`; `None`
/// if no candidate uses the live optimizer.
pub(crate) fn training_case(experiment: &Experiment, measured: usize) -> Option<u32> {
    // One warm-up trains all candidates: that of the first candidate that uses the optimizer.
    let live = experiment.candidates.iter().find_map(|candidate| candidate.live.as_ref())?;
    let cases = cases(experiment);
    let of = match live.train {
        Train::Each => cases.get(measured)?,
        Train::Once => cases.first()?,
    };
    let clients = live.clients.unwrap_or(of.clients);
    let name = &of.microbenchmark.name;
    let found = cases
        .iter()
        .position(|case| case.clients == clients && case.microbenchmark.name == *name)?;
    u32::try_from(found).ok()
}

/// The warm-up time of each candidate per training.
pub(crate) fn warmup_time(experiment: &Experiment) -> Nanos {
    let live = experiment.candidates.iter().filter_map(|candidate| candidate.live.as_ref());
    live.map(|live| live.profile).max().unwrap_or_default()
}

/// Length of a slice in which executions are counted: the bursts of the optimizer, with the original code between
/// them, and the switches, each of which stops all threads and searches their stacks.
pub(crate) fn counting_slice(experiment: &Experiment) -> Nanos {
    let connections = experiment.workload.clients.iter().max().map_or(1, |number| *number);
    Nanos::from_millis(1_500 + 30 * u64::from(connections))
}

/// The time of a training on all instances, and whether each case has its own in each start; `None` if no candidate uses
/// the live optimizer.
pub(crate) fn training(experiment: &Experiment) -> Option<(Nanos, bool)> {
    let all = || experiment.candidates.iter().filter_map(|candidate| candidate.live.as_ref());
    let of_each = all().next()?.train == Train::Each;
    let is_counted = all().any(|live| live.counts == Counts::Exact);
    let counting = if is_counted { counting_slice(experiment) } else { Nanos::ZERO };
    let time = warmup_time(experiment) + counting;
    Some((time.times(instance_count(experiment) as u64), of_each))
}

/// A candidate's live optimizer settings, for reports.
pub(crate) fn describe_live(live: &Live) -> String {
    let Live {
        profile,
        frequency,
        samples_of,
        train,
        counts,
        clients,
        max_pause,
        keep_order,
        force,
    } = live;
    let order = if *keep_order { "; original code order" } else { "" };
    if let Some(name) = samples_of {
        return format!("uses the samples of {name}; maximum pause {max_pause}{order}");
    }
    let with = match train {
        Train::Each => "each microbenchmark",
        Train::Once => "the first microbenchmark, once",
    };
    let clients = clients.map_or_else(String::new, |clients| format!(" at {clients} clients"));
    let counts = match counts {
        Counts::Exact => ", then executions are counted",
        Counts::Sampled => "",
    };
    let force = if *force { "; even with too few samples" } else { "" };
    format!(
        "trained with {with}{clients}: {profile} under load, {frequency} samples per second{counts}; \
         maximum pause {max_pause}{order}{force}"
    )
}

#[cfg(test)]
mod tests {
    use dbdyno_spec::parse;

    use super::*;
    use crate::plan::stopping_rule::tests::SCHEDULE;

    fn experiment(workload: &str, schedule: &str, candidate: &str) -> Experiment {
        let text = format!(
            "name = \"test\"\nbaseline = \"a\"\n[workload]\n{workload}\n[schedule]\n{schedule}\n\
             [[candidate]]\nname = \"a\"\n{candidate}\n[[candidate]]\nname = \"b\"\n{candidate}\n"
        );
        parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn sets(more: &str) -> Vec<Range<usize>> {
        let workload = "clients = [1, 4, 16]\nmicrobenchmarks = [\"point-query_range=100\", \
                        \"update-index_range=100\", \"scan_range=100\"]";
        let experiment = experiment(workload, "", &format!("system = \"mariadb\"\n{more}"));
        interleaved_sets(&experiment, &cases(&experiment))
    }

    /// The names of the microbenchmarks of each segment.
    fn segments_of(schedule: &str, candidate: &str) -> Vec<Vec<String>> {
        let workload = "microbenchmarks = [\"point-query*\", \"scan*\", \"update-index*\", \
                        \"insert*\", \"delete*\"]";
        let experiment = experiment(workload, schedule, candidate);
        let all = cases(&experiment);
        let sets = interleaved_sets(&experiment, &all);
        let name = |set: usize| {
            let name = &all[sets[set].start].microbenchmark.name;
            name.split("_range").next().unwrap().to_owned()
        };
        let names = |segment: Range<usize>| segment.map(name).collect();
        segments(&experiment, &all, &sets).into_iter().map(names).collect()
    }

    #[test]
    fn more_blocks_are_sampled_until_each_system_has_its_share_of_cpu_time() {
        let schedule = "slice = \"40ms\"\nrestarts = 2\n[profile]\ntime = \"800ms\"";
        let workload = "microbenchmarks = [\"hot-points*\"]";
        let experiment = experiment(workload, schedule, "system = \"mariadb\"\n");
        let blocks = ProfiledBlocks::of(&experiment, &cases(&experiment)[0].microbenchmark);
        let cpu = Nanos::from_millis(400);
        assert_eq!(blocks, ProfiledBlocks { planned: 12, most: 32, cpu });
        assert_eq!((0..32).filter(|block| blocks.is_profiled(*block)).count(), 30);
        let enough = |complete, millis: [u64; 2]| {
            blocks.are_enough(complete, millis.map(Nanos::from_millis))
        };
        assert!(!enough(11, [900, 900]) && enough(12, [900, 400]));
        assert!(!enough(12, [900, 399]) && !enough(31, [900, 399]) && enough(32, [900, 399]));
    }

    #[test]
    fn numbers_of_clients_are_interleaved_for_reads_only() {
        // The update, then scan and point query.
        assert_eq!(sets("engine = \"myrocks\"\n"), [0..1, 1..2, 2..3, 3..6, 6..9]);
    }

    #[test]
    fn passes_are_over_consecutive_reads_and_over_consecutive_writes() {
        let segments = segments_of("", "system = \"mariadb\"");
        let expected: [&[&str]; 4] = [
            &["point-query.pre"],
            &["update-index"],
            &["scan", "point-query"],
            &["delete", "insert"],
        ];
        assert_eq!(segments, expected);
    }

    #[test]
    fn without_restarts_or_servers_each_set_has_passes_of_its_own() {
        for (schedule, candidate) in [
            ("restarts = 1", "system = \"mariadb\""),
            ("restarts = 4", "system = \"sqlite\"\nvariant = \"rel\""),
        ] {
            let segments = segments_of(schedule, candidate);
            assert!(segments.iter().all(|segment| segment.len() == 1), "{segments:?}");
            assert_eq!(segments.len(), 6);
        }
    }

    #[test]
    fn copies_take_restarts_in_each_pass_or_before_and_after_all() {
        assert_eq!(restarts_of_segment(6, 0, true), 5);
        // A copy and a restore in each pass.
        assert_eq!(restarts_of_segment(6, 1, true), 17);
        // A copy before the first pass, and a restore after the last; each restart between them restores it, too.
        assert_eq!([1, 6].map(|passes| restarts_of_segment(passes, 1, false)), [2, 7]);
        assert_eq!(restarts_of_segment(0, 1, false), 0);
    }

    #[test]
    fn interrupted_pass_is_completed_first() {
        assert_eq!(first_pass(&[0, 0, 0]), [true, true, true]);
        assert_eq!(first_pass(&[3, 2, 2]), [false, true, true]);
        assert_eq!(first_pass(&[6, 12, 8]), [true, false, true]);
        assert!(first_pass(&[]).is_empty());
    }

    #[test]
    fn starts_share_half_the_budget_and_the_minimum_number_of_blocks() {
        let schedule = Schedule { restarts: 4, ..SCHEDULE };
        // 2 s / (2 × 4) = 250 ms: five slices.
        let slice = Nanos::from_millis(50);
        assert_eq!(start_range(&schedule, slice), (4, 8));
        assert_eq!(block_range(&schedule, slice), (20, 40));
        // At least 20 / 4 = 5 blocks of a start, which take 1 s: four starts exceed the budget.
        let slice = Nanos::from_millis(200);
        assert_eq!(start_range(&schedule, slice), (4, 4));
        assert_eq!(block_range(&schedule, slice), (20, 20));
        // 20 blocks and 4 × 2 of warm-up.
        assert_eq!(with_warmup(&schedule, slice, 20), 28);
        assert_eq!(with_warmup(&schedule, slice, 0), 0);
        assert_eq!(with_warmup(&SCHEDULE, slice, 20), 22);
        assert_eq!(start_range(&SCHEDULE, slice), (1, 1));
        assert_eq!(block_range(&SCHEDULE, slice), (20, 20));
    }

    #[test]
    fn warm_up_has_at_least_its_blocks_and_its_time() {
        let schedule = Schedule { warmup_time: Nanos::from_millis(100), ..SCHEDULE };
        let warmup = |millis| with_warmup(&schedule, Nanos::from_millis(millis), 1) - 1;
        assert_eq!([5, 20, 30, 50, 1000].map(warmup), [10, 4, 3, 2, 2]);
    }
}
