//! `dbdyno check`.

use std::process::ExitCode;

use dbdyno_run::{PassPlan, Readiness, RunPlan};
use dbdyno_scripts::{Driver, inspect};
use dbdyno_spec::experiment::{Build, Candidate, Experiment, System};
use dbdyno_types::build::SourceOrigin;
use dbdyno_units::Bytes;

use crate::args::Check;
use crate::commands::session::{ScriptLimit, directory_or, read_experiment, worker_program};
use crate::error::CliError;
use crate::output;

/// Validates an experiment, prints its plan, and checks that this machine is ready for it.
pub fn check(args: &Check) -> Result<ExitCode, CliError> {
    let (experiment, _) = read_experiment(&args.file)?;
    let limit = ScriptLimit::start();
    for script in experiment.workload.scripts() {
        for options in [&script.options, &script.options_of_events()] {
            inspect(&script.source, Driver::MySql, options).map_err(CliError::usage)?;
        }
    }
    output::print(&plan(&experiment));
    if args.file_only {
        return Ok(ExitCode::SUCCESS);
    }
    drop(limit);
    let run = directory_or(args.out.as_deref(), &experiment.name);
    let readiness = Readiness::of(&experiment, &run, &worker_program()?);
    output::print(&this_machine(&readiness));
    Ok(ExitCode::from(u8::from(!readiness.problems.is_empty())))
}

/// What was found on this machine, and what is missing.
fn this_machine(readiness: &Readiness) -> String {
    let Readiness { found, problems } = readiness;
    let mut text = "\nThis machine\n".to_owned();
    for (label, value) in found {
        labelled(&mut text, label, value);
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
        labelled(&mut text, label, value);
    }
    text.push_str("\nCandidates\n");
    let matrix = |one: &Candidate| one.matrix.as_ref().map(|cell| cell.matrix.clone());
    for of_matrix in
        experiment.candidates.chunk_by(|a, b| matrix(a).is_some() && matrix(a) == matrix(b))
    {
        candidates(&mut text, of_matrix);
    }
    if experiment.control {
        labelled(&mut text, "control", &format!("a second instance of {}", experiment.baseline));
    }
    if experiment.insert_benchmark.is_some() {
        text.push_str(&inserts(&plan));
        return text;
    }
    text.push_str("\nMicrobenchmarks, in running order\n");
    let microbenchmarks = &experiment.workload.microbenchmarks;
    let longest = microbenchmarks.iter().map(|one| one.name.len()).max().unwrap_or(0).max(19);
    for microbenchmark in microbenchmarks {
        let (name, group) = (&microbenchmark.name, microbenchmark.group.name());
        text.push_str(&format!("  {name:<longest$}  {group}\n"));
    }
    let (fewest, most) = plan.slices;
    let (shortest, longest) = (plan.measuring.least, plan.measuring.most);
    let measuring = format!(
        "{} instances, {fewest} to {most} slices after warm-up, {shortest} to {longest} of \
         measuring (more if an event is longer than a slice).",
        plan.instances,
    );
    text.push('\n');
    output::wrapped(&mut text, "Plan: ", &measuring);
    if let Some(time) = &plan.time {
        output::wrapped(&mut text, "Time: ", &format!("{time}."));
    }
    output::wrapped(&mut text, "Data: ", &format!("{}.", data(&plan)));
    if let Some(passes) = &plan.passes {
        output::wrapped(&mut text, "Passes: ", &pass_plan(passes, &plan));
    }
    if !experiment.workload.setup.is_empty() {
        text.push_str("The tables that `setup` creates need more: their size is not known.\n");
    }
    if experiment.workload.scripts().next().is_some() {
        text.push_str("The tables that scripts create need more: their size is not known.\n");
    }
    text
}

/// The passes over microbenchmarks, and what their starts cost.
fn pass_plan(PassPlan { segments, passes, starts }: &PassPlan, plan: &RunPlan) -> String {
    let range = |(fewest, most): (u32, u32)| match fewest == most {
        true => fewest.to_string(),
        false => format!("{fewest} to {most}"),
    };
    let over = match segments {
        1 => "all microbenchmarks".to_owned(),
        segments => format!("each of {segments} segments, reads or writes that follow each other"),
    };
    let mut text = format!(
        "{} over {over}. Every instance is started {} times",
        range(*passes),
        range(*starts)
    );
    // The size of the user's own tables is unknown.
    if plan.tables_size > Bytes::default() {
        text.push_str(&format!(
            ", which takes longer than measuring if tables are large: all instances together read \
             about {} at each start",
            plan.tables_size
        ));
    }
    text.push('.');
    text
}

/// The plan of an insert benchmark. Its steps are listed in the settings.
fn inserts(plan: &RunPlan) -> String {
    let mut text = format!("\nPlan: {} candidates, one after another.\n", plan.instances);
    if let Some(times) = &plan.inserts {
        output::wrapped(&mut text, "Time: ", &format!("{times}."));
    }
    text.push_str(&format!("Data: {}.\n", data(plan)));
    text
}

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

fn system(candidate: &Candidate) -> String {
    let name = candidate.system.name();
    let on_host =
        |host: Option<&str>| host.map_or_else(String::new, |host| format!(" on host {host}"));
    match &candidate.system {
        System::Sqlite { build, .. } => format!("{name}, {}", compiled(build)),
        System::Private(server) => {
            let engine =
                server.engine.map_or_else(String::new, |engine| format!(", {}", engine.name()));
            let program = match (&server.build, &server.release, &server.program) {
                (Some(build), ..) => compiled(build),
                (None, Some(release), _) => format!("release {release}"),
                (None, None, Some(program)) => program.display().to_string(),
                (None, None, None) => "installed program".to_owned(),
            };
            let host = on_host(server.host.as_deref());
            format!("{name}{engine}: {program}{host}, started for the run")
        }
        System::Existing(server) => {
            let host = on_host(server.host.as_deref());
            format!("{name} at {}{host}", server.target.address)
        }
    }
}

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

/// A candidate, or all candidates of a matrix: what these have in common is shown once.
fn candidates(text: &mut String, of: &[Candidate]) {
    let configurations: Vec<Vec<String>> = of
        .iter()
        .map(|candidate| {
            let configuration = RunPlan::configuration(candidate);
            configuration.iter().map(|(label, value)| format!("{label} {value}")).collect()
        })
        .collect();
    let is_common = |one: &&String| configurations.iter().all(|all| all.contains(one));
    let mut title = of[0].name.clone();
    if let (Some(cell), [_, _, ..]) = (&of[0].matrix, of) {
        title = format!("matrix {}", cell.matrix);
    }
    let mut what = system(&of[0]);
    if let Some(delay) = of[0].injected_delay {
        what.push_str(&format!(", delayed by {delay}"));
    }
    let common: Vec<&str> =
        configurations[0].iter().filter(is_common).map(String::as_str).collect();
    labelled(text, &title, &what);
    if !common.is_empty() {
        labelled(text, "", &common.join(", "));
    }
    for (candidate, configuration) in of.iter().zip(&configurations).filter(|_| of.len() > 1) {
        let own: Vec<&str> =
            configuration.iter().filter(|one| !is_common(one)).map(String::as_str).collect();
        labelled(text, &candidate.name, &own.join(", "));
    }
}

/// Width of labels. A longer one has a line of its own.
const LABEL: usize = 20;

/// A labelled value in lines of at most 80 columns.
fn labelled(text: &mut String, label: &str, value: &str) {
    let mut label = label;
    if label.chars().count() > LABEL {
        text.push_str(&format!("  {label}\n"));
        label = "";
    }
    output::wrapped(text, &format!("  {label:<LABEL$} "), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_names_what_its_candidates_have_in_common_once_in_80_columns() {
        let text = r#"
            name = "two-settings"
            baseline = "maria"
            [[candidate]]
            name = "maria"
            system = "mariadb"
            matrix = { innodb_doublewrite = ["ON", "OFF"], innodb_flush_neighbors = [0, 1] }
        "#;
        let experiment = dbdyno_spec::parse("test.toml", text).unwrap();
        let text = plan(&experiment);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let count = |words: &str| text.matches(words).count();
        assert_eq!(count("installed program"), 1, "{text}");
        assert_eq!(count("durability"), 1, "{text}");
        for words in [
            "  matrix maria         mariadb, innodb: installed program",
            "  maria.doublewrite-OFF.flush_neighbors-1\n                       \
             innodb_doublewrite OFF, innodb_flush_neighbors 1\n",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }
}
