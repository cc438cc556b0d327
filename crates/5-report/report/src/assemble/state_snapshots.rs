//! State snapshots of the instances, grouped by time.

use std::collections::BTreeMap;

use dbdyno_results::{CandidateRecord, StateSnapshotRecord};

use crate::model::StateSnapshots;

/// One table per time, in order. If a name occurs again, in another session or after other writes,
/// it gets a number and a separate table.
pub(super) fn by_time(
    state_snapshots: &[StateSnapshotRecord],
    candidates: &[CandidateRecord],
) -> Vec<StateSnapshots> {
    let mut points: Vec<Vec<&StateSnapshotRecord>> = Vec::new();
    for one in state_snapshots {
        match points.last_mut() {
            Some(point)
                if point[0].at == one.at
                    && point.iter().all(|other| other.candidate != one.candidate) =>
            {
                point.push(one);
            }
            _ => points.push(vec![one]),
        }
    }
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    points
        .into_iter()
        .map(|point| {
            let at = &point[0].at;
            let time = times.entry(at).or_default();
            *time += 1;
            StateSnapshots {
                at: if *time == 1 { at.clone() } else { format!("{at} ({time})") },
                ..table(&point, candidates)
            }
        })
        .collect()
}

fn table(point: &[&StateSnapshotRecord], candidates: &[CandidateRecord]) -> StateSnapshots {
    let figures: Vec<Vec<(&str, u64)>> = point
        .iter()
        .map(|one| {
            let state_snapshot = &one.state_snapshot;
            let common =
                [("rows", state_snapshot.rows), ("data_size", state_snapshot.data_size.as_bytes())];
            let own = state_snapshot.state.iter().map(|(name, value)| (name.as_str(), *value));
            common.into_iter().chain(own).collect()
        })
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in figures.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let value = |figures: &Vec<(&str, u64)>, wanted: &str| {
        figures.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
    };
    StateSnapshots {
        at: String::new(),
        candidates: point
            .iter()
            .map(|one| {
                let candidate = candidates.get(one.candidate as usize);
                candidate.map_or_else(|| one.candidate.to_string(), |c| c.name.clone())
            })
            .collect(),
        state: names
            .into_iter()
            .map(|name| (name.to_owned(), figures.iter().map(|f| value(f, name)).collect()))
            .collect(),
    }
}
