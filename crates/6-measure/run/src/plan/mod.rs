//! The plan of a run: what is measured, in which order, for how long, and on how much data.

pub(crate) mod cases;
pub(crate) mod disk_space;
pub(crate) mod elapsed;
pub(crate) mod inserts;
pub(crate) mod script_data;
pub(crate) mod stopping_rule;

use dbdyno_spec::experiment::{Candidate, Experiment};
use dbdyno_units::Bytes;

use crate::plan::cases::{
    block_range, cases, has_passes, instance_count, interleaved_sets, keeps_copy, of_instances,
    restarts_of_segment, segments, slice_length, start_range,
};
use crate::plan::disk_space::DiskSpace;
use crate::plan::elapsed::{TimeEstimate, TimeRange, of_run};
use crate::plan::inserts::InsertTimes;
use crate::record::settings;

/// The work of a run and its estimated time.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// Number of instances that are measured, the control included.
    pub instances: usize,
    /// Minimum and maximum number of counted slices.
    pub slices: (u64, u64),
    /// The passes over microbenchmarks; `None` if there are none.
    pub passes: Option<PassPlan>,
    /// Measuring time, with warm-up and lead-in, if no event is longer than a slice; none for the insert benchmark.
    pub measuring: TimeRange,
    /// Estimated time in all, without builds; `None` for the insert benchmark.
    pub time: Option<TimeEstimate>,
    /// That of the insert benchmark.
    pub inserts: Option<InsertTimes>,
    /// Estimated disk space for data on this machine, with copies and the logs of private servers.
    pub data_size: Bytes,
    /// Estimated size of tables and indexes on existing servers.
    pub data_on_existing_servers: Bytes,
    /// Estimated size of tables and indexes on this machine; caches should hold this amount.
    pub tables_size: Bytes,
    /// The experiment's settings: label and value.
    pub settings: Vec<(String, String)>,
}

/// The passes of a run with private servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassPlan {
    /// Number of segments: microbenchmarks that passes are over, reads or writes that follow each other.
    pub segments: usize,
    /// Minimum and maximum number of passes over a segment.
    pub passes: (u32, u32),
    /// Minimum and maximum number of times that every instance is started and reads its tables.
    pub starts: (u32, u32),
}

impl PassPlan {
    fn of(experiment: &Experiment) -> Option<Self> {
        if !has_passes(experiment) {
            return None;
        }
        let all = cases(experiment);
        let sets = interleaved_sets(experiment, &all);
        let segments = segments(experiment, &all, &sets);
        let instances = instance_count(experiment) as u64;
        // Of all segments together; the first pass of a segment uses the last start of the one before.
        let (mut fewest, mut most) = (1, 1);
        let mut passes = (0, 0);
        for segment in segments.clone() {
            let shared = segment.len() > 1;
            let (mut of_segment, mut copied) = (0, 0);
            for case in segment.flat_map(|set| &all[sets[set].clone()]) {
                let slice = slice_length(&experiment.schedule, &case.microbenchmark);
                of_segment = of_segment.max(start_range(&experiment.schedule, slice).1);
                copied += u32::from(keeps_copy(experiment, &case.microbenchmark));
            }
            let range = of_instances((experiment.schedule.restarts, of_segment), instances);
            passes = (range.0.max(passes.0), range.1.max(passes.1));
            fewest += restarts_of_segment(range.0, copied, shared);
            most += restarts_of_segment(range.1, copied, shared);
        }
        Some(Self { segments: segments.len(), passes, starts: (fewest, most) })
    }
}

impl RunPlan {
    pub fn of(experiment: &Experiment) -> Self {
        let has_inserts = experiment.insert_benchmark.is_some();
        let time = (!has_inserts).then(|| of_run(experiment));
        let space = DiskSpace::of(experiment);
        Self {
            instances: instance_count(experiment),
            slices: counted_slices(experiment),
            passes: PassPlan::of(experiment).filter(|_| !has_inserts),
            measuring: time.unwrap_or_default().measuring,
            time,
            inserts: InsertTimes::left(experiment, &[]),
            data_size: space.embedded + space.servers,
            data_on_existing_servers: space.existing,
            tables_size: space.tables,
            settings: settings::of_experiment(experiment),
        }
    }

    /// The configuration of a candidate as given in the experiment: label and value.
    pub fn configuration(candidate: &Candidate) -> Vec<(String, String)> {
        settings::of_candidate(candidate)
    }
}

/// Minimum and maximum number of counted slices of all cases.
fn counted_slices(experiment: &Experiment) -> (u64, u64) {
    let schedule = &experiment.schedule;
    let instances = instance_count(experiment) as u64;
    let mut slices = (0, 0);
    for case in cases(experiment) {
        let slice = slice_length(schedule, &case.microbenchmark);
        let (fewest, most) = of_instances(block_range(schedule, slice), instances);
        slices.0 += u64::from(fewest) * instances;
        slices.1 += u64::from(most) * instances;
    }
    slices
}
