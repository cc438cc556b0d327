//! When the live optimizer is trained, and for how long.

use dbdyno_spec::experiment::{Counts, Experiment, Live, Train};
use dbdyno_units::Nanos;

use crate::plan::cases::cases;

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

/// The number of trainings in a run without restarts.
pub(crate) fn training_count(experiment: &Experiment) -> u64 {
    let mut all: Vec<u32> = (0..cases(experiment).len())
        .filter_map(|measured| training_case(experiment, measured))
        .collect();
    all.dedup();
    all.len() as u64
}

/// A candidate's live optimizer settings, for reports.
pub(crate) fn describe(live: &Live) -> String {
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
