//! `dbdyno check`.

use std::process::ExitCode;

use dbdyno_record::build::SourceOrigin;
use dbdyno_run::{Readiness, RunPlan};
use dbdyno_spec::experiment::{Build, Candidate, Experiment, System};
use dbdyno_units::Bytes;

use crate::args::Check;
use crate::commands::{directory_for, read_experiment, worker_program};
use crate::error::CliError;
use crate::output;

/// Validates an experiment, prints its plan, and checks that this machine is ready for it.
pub fn check(args: &Check) -> Result<ExitCode, CliError> {
    let (experiment, _) = read_experiment(&args.file)?;
    output::print(&plan(&experiment));
    if args.file_only {
        return Ok(ExitCode::SUCCESS);
    }
    let run = args.out.clone().unwrap_or_else(|| directory_for(&experiment.name));
    let readiness = Readiness::of(&experiment, &run, &worker_program()?);
    output::print(&this_machine(&readiness));
    Ok(ExitCode::from(u8::from(!readiness.problems.is_empty())))
}

/// What was found on this machine, and what is missing.
fn this_machine(readiness: &Readiness) -> String {
    let Readiness { found, problems } = readiness;
    let mut text = "\nThis machine\n".to_owned();
    for (label, value) in found {
        output::wrapped(&mut text, &format!("  {label:<20} "), value);
    }
    if problems.is_empty() {
        text.push_str("It is ready for this experiment.\n");
        return text;
    }
    for problem in problems {
        output::wrapped(&mut text, "  NOT READY ", problem);
    }
    text.push_str(
        "The file is valid, but a run would fail on this machine. For a run on another\n",
    );
    text.push_str("machine, use --file-only.\n");
    text
}

fn plan(experiment: &Experiment) -> String {
    let plan = RunPlan::of(experiment);
    let mut text = format!("{} is valid.\n\nSettings\n", experiment.name);
    for (label, value) in &plan.settings {
        text.push_str(&row(label, value));
    }
    text.push_str("\nCandidates\n");
    for candidate in &experiment.candidates {
        let mut what = system(candidate);
        if let Some(delay) = candidate.injected_delay {
            what.push_str(&format!(", every event delayed by {delay}"));
        }
        let configuration: Vec<String> = RunPlan::configuration(candidate)
            .iter()
            .map(|(label, value)| format!("{label} {value}"))
            .collect();
        text.push_str(&row(&candidate.name, &what));
        text.push_str(&row("", &configuration.join(", ")));
    }
    if experiment.control {
        text.push_str(&row("control", &format!("a second instance of {}", experiment.baseline)));
    }
    if experiment.insert_benchmark.is_some() {
        text.push_str(&inserts(&plan));
        return text;
    }
    text.push_str("\nMicrobenchmarks, in running order\n");
    let microbenchmarks = &experiment.workload.microbenchmarks;
    let longest = microbenchmarks.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for microbenchmark in microbenchmarks {
        let name = format!("{:<longest$}", microbenchmark.name);
        text.push_str(&row(&name, microbenchmark.group.name()));
    }
    let (fewest, most) = plan.slices;
    let (shortest, longest) = plan.measuring;
    text.push_str(&format!(
        "\nPlan: {} instances, {fewest} to {most} slices after warm-up, {shortest} to {longest} of \
         measuring\n(more if an event is longer than a slice), plus loading and any builds that \
         are not cached.\nData: {}.\n",
        plan.instances,
        data(&plan)
    ));
    if !experiment.workload.setup.is_empty() {
        text.push_str("The tables that `setup` creates need more: their size is not known.\n");
    }
    text
}

/// The plan of an insert benchmark. Its steps are listed in the settings.
fn inserts(plan: &RunPlan) -> String {
    format!(
        "\nPlan: {} candidates, one after another; {} of queries over all repeats, plus loading.\n\
         Data: {}.\n",
        plan.instances,
        plan.measuring.1,
        data(plan)
    )
}

/// Size and location of the data.
fn data(plan: &RunPlan) -> String {
    let RunPlan { data_size: local, data_on_existing_servers: remote, .. } = *plan;
    let none = Bytes::default();
    let on_servers = format!("about {remote} on existing servers");
    match (local > none, remote > none) {
        (false, true) => on_servers,
        (true, true) => format!("about {local} with copies and logs, and {on_servers}"),
        (_, false) => format!("about {local} with copies and logs"),
    }
}

/// One line about what a candidate runs.
fn system(candidate: &Candidate) -> String {
    let name = candidate.system.name();
    match &candidate.system {
        System::Sqlite { build, .. } => format!("{name}, {}", compiled(build)),
        System::Private(server) => {
            let engine =
                server.engine.map_or_else(String::new, |engine| format!(", {}", engine.name()));
            let program = match (&server.build, &server.program) {
                (Some(build), _) => compiled(build),
                (None, Some(program)) => program.display().to_string(),
                (None, None) => "the installed program".to_owned(),
            };
            format!("{name}{engine}: {program}, started for the run")
        }
        System::Existing(server) => format!("{name} at {}", server.target.address),
    }
}

/// One line about how a candidate is compiled.
fn compiled(build: &Build) -> String {
    let Build { variant, compiler, flags, .. } = build;
    let flags = if flags.is_empty() { String::new() } else { format!(" and {}", flags.join(" ")) };
    let source = match &build.source {
        SourceOrigin::Bundled => String::new(),
        origin => format!(" from {origin}"),
    };
    let before = if build.bolt { "" } else { " before BOLT" };
    format!("{variant}{before} with {compiler}{flags}{source}")
}

/// A labelled line.
fn row(label: &str, value: &str) -> String {
    let label_width = label.chars().count().max(20);
    format!("  {label:<label_width$} {value}\n")
}
