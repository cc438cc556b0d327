use std::process::ExitCode;

use dbdyno_run::Plan;
use dbdyno_spec::experiment::Experiment;

use crate::args::Check;
use crate::commands::read_experiment;
use crate::error::CliError;
use crate::output;

/// Validates an experiment and prints its plan.
pub fn check(args: &Check) -> Result<ExitCode, CliError> {
    let (experiment, _) = read_experiment(&args.file)?;
    output::print(&plan(&experiment));
    Ok(ExitCode::SUCCESS)
}

fn plan(experiment: &Experiment) -> String {
    let plan = Plan::of(experiment);
    let mut text = format!("{} is valid.\n\nSettings\n", experiment.name);
    for (label, value) in &plan.settings {
        text.push_str(&row(label, value));
    }
    text.push_str("\nCandidates\n");
    for candidate in &experiment.candidates {
        let mut what = format!(
            "{}, {} with {}",
            candidate.system.name(),
            candidate.variant,
            candidate.compiler
        );
        if !candidate.flags.is_empty() {
            what.push_str(&format!(" and {}", candidate.flags.join(" ")));
        }
        if let Some(delay) = candidate.injected_delay {
            what.push_str(&format!(", every event delayed by {delay}"));
        }
        let configuration: Vec<String> = Plan::configuration(candidate)
            .iter()
            .map(|(label, value)| format!("{label} {value}"))
            .collect();
        text.push_str(&row(&candidate.name, &what));
        text.push_str(&row("", &configuration.join(", ")));
    }
    if experiment.control {
        text.push_str(&row("control", &format!("a second {}", experiment.baseline)));
    }
    text.push_str("\nMicrobenchmarks, in running order\n");
    for microbenchmark in &experiment.workload.microbenchmarks {
        text.push_str(&row(&microbenchmark.name, microbenchmark.group.name()));
    }
    let (fewest, most) = plan.slices;
    let (shortest, longest) = plan.measuring;
    text.push_str(&format!(
        "\nPlan: {} instances; {fewest} to {most} slices that count; {shortest} to {longest} of \
         measuring,\nmore where an event is longer than a slice; then loading, and compiling what \
         is not cached.\nData: about {}.\n",
        plan.instances, plan.data_size
    ));
    text
}

/// A line of at most 80 columns where the value lets it be.
fn row(label: &str, value: &str) -> String {
    let label_width = label.chars().count().max(20);
    format!("  {label:<label_width$} {value}\n")
}
