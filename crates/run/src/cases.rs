//! The cases of a run, in running order.

use std::ops::Range;

use dbdyno_spec::experiment::Experiment;
use dbdyno_workloads::definition::Microbenchmark;

use crate::live_plan::training_case;

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

/// The number of instances that are measured, the control included.
pub(crate) fn instance_count(experiment: &Experiment) -> usize {
    experiment.candidates.len() + usize::from(experiment.control)
}

/// Whether each case runs more than once on the same data: instances then keep a copy of their
/// data while tables shrink.
pub(crate) const fn shrinks_repeatedly(experiment: &Experiment) -> bool {
    experiment.schedule.restarts > 1 || experiment.workload.clients.len() > 1
}

#[cfg(test)]
mod tests {
    use dbdyno_spec::parse;

    use super::*;

    fn sets(more: &str) -> Vec<Range<usize>> {
        let text = format!(
            "name = \"test\"\nbaseline = \"a\"\n[workload]\nclients = [1, 4, 16]\n\
             microbenchmarks = [\"point-query_range=100\", \"update-index_range=100\", \
             \"scan_range=100\"]\n\
             [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
             [[candidate]]\nname = \"b\"\nsystem = \"mariadb\"\n{more}"
        );
        let experiment = parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
        interleaved_sets(&experiment, &cases(&experiment))
    }

    #[test]
    fn numbers_of_clients_are_interleaved_for_reads_only() {
        // The update, then scan and point query.
        assert_eq!(sets("engine = \"myrocks\"\n"), [0..1, 1..2, 2..3, 3..6, 6..9]);
    }
}
