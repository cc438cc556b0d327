//! The start of a session: facts about the machine, and warnings.

use std::path::Path;
use std::time::Duration;

use dbdyno_engines::server::release_in_directory;
use dbdyno_machine::facts::DiskFacts;
use dbdyno_machine::{HostFacts, Needs, Severity, check, check_disk, clock};
use dbdyno_results::{MicrobenchmarkRecord, NewRun, RunWriter, SessionRecord, Warning};
use dbdyno_spec::experiment::{Candidate, ExistingServer, Experiment, System};
use dbdyno_types::PublishedRelease;
use dbdyno_units::Bytes;
use dbdyno_workloads::definition::{Microbenchmark, Throughput};

use crate::error::RunError;
use crate::instance::cpus::{WaitChoice, divide_cpus, idle_prevention_cpus};
use crate::instance::data::planned_space;
use crate::measure::profile::warning_of_permission;
use crate::plan::RunPlan;
use crate::plan::cases::{MicrobenchmarkCase, cases};
use crate::record::{Recorder, settings};
use crate::session::insert_benchmark::plan_record;
use crate::session::progress::RunEvent;
use crate::session::resume::RunState;
use crate::session::stored_run::StoredData;
use crate::session::{Options, Session, Starts};

/// How long the load of the machine is observed before a run.
const LOAD_OBSERVATION: Duration = Duration::from_millis(500);

impl<'a> Session<'a> {
    /// Starts a session of a run.
    pub(super) fn start(
        experiment: &'a Experiment,
        options: &'a Options<'a>,
        results: RunWriter,
    ) -> Result<Self, RunError> {
        let started = clock::monotonic();
        let mut recorder = Recorder::new(
            results,
            options.progress,
            &options.worker.cancel,
            experiment.candidates.len() - 1,
        );
        recorder.stage("checking the machine");
        let cpus = divide_cpus(experiment)?;
        let facts = HostFacts::gather_over(recorder.results.directory().path(), LOAD_OBSERVATION);
        let wait = WaitChoice::of(experiment, &cpus)?;
        let client_wait = wait.as_ref().map(|choice| choice.wait);
        let idle_prevention = idle_prevention_cpus(experiment, &cpus, client_wait);
        let warnings = warnings(experiment, &facts, recorder.results.directory().path());
        recorder.report(RunEvent::Warnings(&warnings));
        // If others use all CPUs, the kernel gives them about half of the time.
        let busy = facts.activity.map(|activity| activity.busy_by_others.as_fraction());
        let contention = 1.0 + busy.unwrap_or_default();
        let mut host = facts.rows();
        if !idle_prevention.is_empty() {
            let how = format!("CPUs {idle_prevention}, by threads of the lowest priority");
            host.push(("kept from idling".to_owned(), how));
        }
        if let Some(choice) = &wait {
            host.push(("client wait".to_owned(), choice.description()));
        }
        let mut systems = experiment.candidates.iter().map(|candidate| &candidate.system);
        let all_private = systems
            .all(|system| matches!(system, System::Private(server) if server.host.is_none()));
        let before = recorder.results.reader()?.sessions()?;
        let record = SessionRecord {
            started: options.now.clone(),
            version: options.version.clone(),
            host,
            facts: serde_json::to_value(&facts).unwrap_or_default(),
            warnings,
            client_cpus: has_servers(experiment).then(|| cpus.dbdyno.len() as u32),
            client_wait,
            system_cpus: all_private.then(|| cpus.system.len() as u32),
            // Until the candidates are known, as before.
            loses_data: before.last().is_some_and(|last| last.loses_data),
            ..SessionRecord::default()
        };
        recorder.results.start_session(&record)?;
        let state = RunState::read(&recorder.results.reader()?, experiment)?;
        Ok(Self {
            experiment,
            options,
            recorder,
            record,
            state,
            extension: None,
            needs_new_data: false,
            started,
            planned: None,
            contention,
            loading_began: started,
            starts: Starts::default(),
            cpus,
            idle_prevention,
        })
    }
}

fn has_servers(experiment: &Experiment) -> bool {
    experiment.candidates.iter().any(|candidate| !candidate.system.is_embedded())
}

/// Conditions on this machine that may distort the results of the run in this directory, or end it.
fn warnings(experiment: &Experiment, facts: &HostFacts, run: &Path) -> Vec<Warning> {
    let plan = RunPlan::of(experiment);
    let clients = experiment.workload.most_clients();
    let has_servers = has_servers(experiment);
    // The kernel caches the files; in addition, a server caches its data once, an embedded engine
    // once per client. The insert benchmark's data may be larger than memory.
    let caches = match (&experiment.insert_benchmark, has_servers) {
        (Some(_), _) => 0,
        (None, true) => 1,
        (None, false) => clients,
    };
    let needs = Needs {
        memory: Some(Bytes::from_bytes(plan.tables_size.as_bytes() * u64::from(caches + 1))),
        // Data may be on another disk than the run directory.
        disk: None,
        // Clients of a server share the CPUs of dbdyno.
        cpus: Some(if has_servers { 2 } else { clients as usize + 1 }),
    };
    let mut findings = check(facts, &needs);
    if StoredData::of(run).places.is_empty() {
        let spaces = planned_space(experiment, run).into_iter();
        findings.extend(
            spaces.map(|(path, needed)| check_disk(DiskFacts::of(&path).as_ref(), Some(needed))),
        );
    }
    findings
        .into_iter()
        .filter(|finding| finding.severity == Severity::Warning)
        .map(|finding| Warning { what: finding.what, advice: finding.advice.unwrap_or_default() })
        .chain(same_servers(experiment))
        .chain(unused_releases(experiment))
        .chain(warning_of_permission(experiment))
        .collect()
}

/// A warning for each candidate that is the baseline's existing server, used in the same way.
pub(super) fn same_servers(experiment: &Experiment) -> Vec<Warning> {
    let server_of = |candidate: &Candidate| match &candidate.system {
        System::Existing(server) => {
            let server = ExistingServer { schema: String::new(), pid: None, ..server.clone() };
            Some((server, candidate.live.clone(), candidate.injected_delay))
        }
        _ => None,
    };
    let baseline = experiment.baseline_candidate();
    let Some(of_baseline) = server_of(baseline) else { return Vec::new() };
    let is_same = |one: &&Candidate| {
        one.name != baseline.name && server_of(one).as_ref() == Some(&of_baseline)
    };
    let warning = |one: &Candidate| {
        Warning {
        what: format!(
            "{} and the baseline {} are one server, {}: this compares it with itself",
            one.name, baseline.name, of_baseline.0.target.address
        ),
        advice: "name another server, or save the experiment (`compare … --save FILE`) and set a difference such as \
                 `statements` for one of them"
            .to_owned(),
    }
    };
    experiment.candidates.iter().filter(is_same).map(warning).collect()
}

/// A warning for each release that is fetched by its name, although one is installed in a directory with this name.
pub(super) fn unused_releases(experiment: &Experiment) -> Vec<Warning> {
    let warning = |one: &Candidate| {
        let System::Private(server) = &one.system else { return None };
        let origin = server.release.as_ref().filter(|_| server.host.is_none())?;
        let name = PublishedRelease::all(server.system).find(|it| it.origin == *origin)?.name();
        let unused = release_in_directory(server.system, &name)?;
        let program = unused.program.display();
        let what = format!("{}: release `{name}` is {origin}; {program} is not used", one.name);
        let advice = "to use the installed one, replace `release` by `program`".to_owned();
        Some(Warning { what, advice })
    };
    experiment.candidates.iter().filter_map(warning).collect()
}

/// The initial content of a run directory.
pub(super) fn new_run(experiment: &Experiment, text: &str) -> NewRun {
    let rows = experiment.workload.rows;
    let record = |MicrobenchmarkCase { microbenchmark, clients }| MicrobenchmarkRecord {
        script: microbenchmark.script.as_ref().map(settings::describe_script),
        answers: describe_answers(&microbenchmark),
        writes: microbenchmark.writes(),
        name: microbenchmark.name,
        clients,
        group: microbenchmark.group.name().to_owned(),
        three_group: microbenchmark.group.coarse_name().to_owned(),
        rows_read_per_statement: match microbenchmark.throughput {
            Throughput::Statements => None,
            Throughput::MillionRowsRead => Some(rows),
        },
    };
    NewRun {
        name: experiment.name.clone(),
        baseline: experiment.baseline.clone(),
        experiment_text: text.to_owned(),
        experiment: serde_json::to_value(experiment).expect("an experiment is plain data"),
        settings: settings::of_experiment(experiment),
        microbenchmarks: cases(experiment).into_iter().map(record).collect(),
        insert: plan_record(experiment),
    }
}

/// What is compared between the answers of candidates, and why not everything; `None` for everything.
fn describe_answers(microbenchmark: &Microbenchmark) -> Option<String> {
    let (answers, reason) = microbenchmark.compared_answers();
    Some(format!("{}: {}", answers.limit()?, reason.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use dbdyno_results::{StoredExperiment, StoredLayers, StoredProfiling, StoredSchedule};
    use dbdyno_units::Nanos;

    use super::*;

    #[test]
    fn candidate_on_the_server_of_the_baseline_is_compared_with_itself() {
        let warnings = |second: &str| -> Vec<String> {
            let text = format!(
                "name = \"test\"\nbaseline = \"a\"\n\
                 [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\nurl = \"mysql://u@db1/\"\n\
                 [[candidate]]\nname = \"b\"\nsystem = \"mariadb\"\n{second}\n"
            );
            let experiment =
                dbdyno_spec::parse("test.toml", &text).unwrap_or_else(|p| panic!("{p}"));
            same_servers(&experiment).into_iter().map(|one| one.what).collect()
        };
        let same = "url = \"mysql://u@db1:3306/\"";
        let what = "b and the baseline a are one server, db1:3306: this compares it with itself";
        assert_eq!(warnings(same), [what]);
        assert!(warnings("url = \"mysql://u@db2/\"").is_empty(), "another server");
        assert!(warnings(&format!("{same}\nstatements = \"text\"")).is_empty(), "another use");
        assert!(warnings("").is_empty(), "a private server");
    }

    #[test]
    fn stored_experiment_has_what_reports_read() {
        let text = "name = \"test\"\nbaseline = \"a\"\n[schedule]\nrestarts = 7\n\
                    [profile]\ntime = \"3s\"\nlayers = \"own.tsv\"\n\
                    [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
                    [[candidate]]\nname = \"b\"\nsystem = \"mariadb\"\n";
        let files = |_: &str| Ok("rules".to_owned());
        let experiment = dbdyno_spec::parse_with_files("test.toml", text, &files)
            .unwrap_or_else(|p| panic!("{p}"));
        let stored = new_run(&experiment, text).experiment;
        let schedule = StoredSchedule { restarts: experiment.schedule.restarts };
        let layers = Some(StoredLayers { rules: "rules".to_owned() });
        let profile = Some(StoredProfiling { time: Some(Nanos::from_secs(3)), layers });
        let read: StoredExperiment = serde_json::from_value(stored).unwrap();
        assert_eq!(read, StoredExperiment { schedule, profile });
    }
}
