//! `dbdyno run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dbdyno_engines::server::Installation;
use dbdyno_results::RunReader;
use dbdyno_run::{Options, continue_run, extend_run, start_run};
use dbdyno_spec::compare::is_of_command_line;
use dbdyno_types::server::ServerSystem;

use crate::args::Run;
use crate::commands::compare::Comparison;
use crate::commands::session::{Execution, Extent, Work, directory_or, read_experiment};
use crate::commands::{export_file, gate};
use crate::error::CliError;
use crate::output::Display;

pub fn run(args: &Run) -> Result<ExitCode, CliError> {
    refuse_without_effect(args)?;
    export_file::check_all(&args.session.exports())?;
    if args.comparison.script.is_some() {
        return run_script(args);
    }
    let rules = &args.session.gate.rules;
    let execute = |directory: &Path, extent: Extent, work: &Work<'_>| {
        let execution = Execution {
            directory,
            options: &args.session,
            trust: args.trust,
            extent,
            display: Display::with_first_ratio(),
            more: args.more,
        };
        execution.execute(work)
    };
    if let Some(directory) = &args.resume {
        if !rules.is_empty() {
            gate::check(rules, &RunReader::open(directory)?.experiment()?)?;
        }
        // A directory without a run is reported when it is resumed.
        let text = RunReader::open(directory).and_then(|run| run.experiment_text());
        let extent = extent_of(&text.unwrap_or_default());
        return execute(directory, extent, &|options| match args.more {
            Some(more) => extend_run(directory, more, options),
            None => continue_run(directory, options),
        });
    }
    let [file] = &args.words[..] else {
        return Err(CliError::usage("name one experiment file"));
    };
    let (mut experiment, text) = read_experiment(file)?;
    if args.comparison.of_profile().is_some() {
        if experiment.insert_benchmark.is_some() {
            return Err(CliError::usage("an insert benchmark has no profile: remove --profile"));
        }
        let profiling = experiment.profile.get_or_insert_default();
        profiling.instructions |= args.comparison.instructions;
        profiling.waits |= args.comparison.waits;
    }
    gate::check(rules, &experiment)?;
    let directory = directory_or(args.out.as_deref(), &experiment.name);
    let start = |options: &Options<'_>| start_run(&experiment, &text, &directory, options);
    execute(&directory, extent_of(&text), &start)
}

/// What is printed of a run with this experiment: of one for a command line the answer, as by that command.
fn extent_of(text: &str) -> Extent {
    if is_of_command_line(text) { Extent::Answer } else { Extent::Report }
}

/// Refuses what would be ignored. clap's `requires` has no effect on options that are given together with what
/// conflicts with the required one.
fn refuse_without_effect(args: &Run) -> Result<(), CliError> {
    let of_script = args.comparison.of_script().or_else(|| args.comparison.given());
    let message = if args.resume.is_none() && args.more.is_some() {
        "--more extends a complete run: dbdyno run --resume DIR --more TIME".to_owned()
    } else if args.resume.is_none() && args.trust {
        "--trust is for runs that are resumed: dbdyno run --resume DIR --trust".to_owned()
    } else if let (Some(_), Some(option)) = (&args.resume, args.comparison.of_profile()) {
        format!("{option} is for a new run: this one measures what its experiment says")
    } else if let Some(option) = of_script.filter(|_| args.comparison.script.is_none()) {
        format!("{option} needs --script; an experiment file has keys for it")
    } else {
        return Ok(());
    };
    Err(CliError::Usage(message))
}

fn run_script(args: &Run) -> Result<ExitCode, CliError> {
    let word = |path: &PathBuf| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            CliError::Usage(format!("{} is not a candidate: it is not UTF-8", path.display()))
        })
    };
    let mut candidates = args.words.iter().map(word).collect::<Result<Vec<_>, _>>()?;
    if candidates.is_empty() {
        candidates = installed_servers()?;
    }
    let comparison = Comparison {
        command: "run",
        candidates: &candidates,
        microbenchmarks: &[],
        sql: None,
        options: &args.comparison,
        session: &args.session,
        out: args.out.as_deref(),
    };
    comparison.run()
}

/// The systems with a program on this machine.
fn installed_servers() -> Result<Vec<String>, CliError> {
    let is_installed = |system: &ServerSystem| Installation::find(*system, None, None).is_ok();
    let installed = ServerSystem::ALL.into_iter().filter(is_installed);
    let names: Vec<String> = installed.map(|system| system.name().to_owned()).collect();
    if names.is_empty() {
        let message = "no server is installed: install mariadb-server or postgresql, or name candidates, such as \
                       mariadb@trixie";
        return Err(CliError::usage(message));
    }
    Ok(names)
}
