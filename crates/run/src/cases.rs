//! The cases of a run, in running order.

use dbdyno_spec::experiment::Experiment;
use dbdyno_workloads::definition::Microbenchmark;

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

/// The number of instances that are measured, the control included.
pub(crate) fn instance_count(experiment: &Experiment) -> usize {
    experiment.candidates.len() + usize::from(experiment.control)
}

/// Whether each case runs more than once on the same data: instances then keep a copy of their
/// data while tables shrink.
pub(crate) const fn shrinks_repeatedly(experiment: &Experiment) -> bool {
    experiment.schedule.restarts > 1 || experiment.workload.clients.len() > 1
}
