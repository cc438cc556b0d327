//! `dbdyno compare`, and `dbdyno run --script`.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use dbdyno_engines::server::installed_releases;
use dbdyno_run::{Options, RunPlan, start_run};
use dbdyno_scripts::replaced_on_command_line;
use dbdyno_spec::compare::{ScriptWords, SqlWords, Words, experiment};
use dbdyno_spec::experiment::Experiment;
use dbdyno_types::server::ServerSystem;
use dbdyno_units::{Nanos, counted};

use crate::args::{Compare, ComparisonOptions, SessionOptions};
use crate::commands::each_option::each_option;
use crate::commands::session::{
    Execution, Extent, ScriptLimit, directory_or, note_left_out, read_file,
};
use crate::commands::{export_file, gate};
use crate::error::CliError;
use crate::output::{self, Display};

pub struct Comparison<'a> {
    pub command: &'a str,
    pub candidates: &'a [String],
    /// Names, groups and patterns; none with a script.
    pub microbenchmarks: &'a [String],
    pub sql: Option<SqlWords<'a>>,
    pub options: &'a ComparisonOptions,
    pub session: &'a SessionOptions,
    pub out: Option<&'a Path>,
}

pub fn compare(args: &Compare) -> Result<ExitCode, CliError> {
    export_file::check_all(&args.session.exports())?;
    let comparison = Comparison {
        command: "compare",
        candidates: &args.candidates,
        microbenchmarks: &args.microbenchmarks,
        sql: args.sql.as_deref().map(|file| SqlWords { file, setup: args.setup.as_deref() }),
        options: &args.comparison,
        session: &args.session,
        out: args.out.as_deref(),
    };
    if args.each_option {
        return each_option(&comparison);
    }
    comparison.run()
}

impl Comparison<'_> {
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let ComparisonOptions { time, save: file, .. } = self.options;
        let described = self.describe(self.candidates, time.as_deref(), false)?;
        let (experiment, text) = (&described.experiment, &described.text);
        note_left_out(experiment);
        gate::check(&self.session.gate.rules, experiment)?;
        if let Some(file) = file {
            save(file, text)?;
        }
        if let Some((asked, word)) = described.asked.zip(time.as_deref())
            && let Some(text) = longer(asked, word, experiment)
        {
            output::note(&text);
        }
        let directory = directory_or(self.out, &experiment.name);
        let execution = Execution {
            directory: &directory,
            options: self.session,
            trust: false,
            extent: Extent::Answer,
            display: Display::with_first_ratio(),
            more: None,
        };
        let start = |options: &Options<'_>| start_run(experiment, text, &directory, options);
        execution.execute(&start)
    }

    /// The experiment with these candidates.
    pub fn describe(
        &self,
        candidates: &[String],
        time: Option<&str>,
        is_screening: bool,
    ) -> Result<dbdyno_spec::compare::Comparison, CliError> {
        let _limit = ScriptLimit::start();
        let read = |path: &str| read_file(Path::new(path));
        let directory = std::env::current_dir().unwrap_or_default();
        let ComparisonOptions { script, options, sysbench, clients, rows, target, .. } =
            self.options;
        check_options(self.options)?;
        let path = script.as_deref().map(path_of_script);
        let script = script.as_deref().zip(path.as_deref());
        let words = Words {
            command: self.command,
            directory: &directory.to_string_lossy(),
            candidates,
            microbenchmarks: self.microbenchmarks,
            script: script.map(|(file, path)| ScriptWords {
                file,
                path,
                options,
                version: sysbench.unwrap_or_default(),
            }),
            sql: self.sql,
            clients,
            time,
            rows: rows.as_deref(),
            target: target.as_deref(),
            is_screening,
            profile: self.options.profile && !is_screening,
            instructions: self.options.instructions && !is_screening,
            waits: self.options.waits && !is_screening,
        };
        let measuring = |experiment: &Experiment| RunPlan::of(experiment).measuring.most;
        experiment(&words, &installed, &read, &measuring)
            .map_err(|problems| CliError::Experiment(problems.to_string()))
    }
}

/// The names of a system's releases on this machine.
pub fn installed(system: ServerSystem) -> Vec<String> {
    installed_releases(system).into_iter().map(|release| release.name).collect()
}

/// Refuses options of a script without one, and those of sysbench that dbdyno replaces.
fn check_options(options: &ComparisonOptions) -> Result<(), CliError> {
    if let Some(option) = options.of_script().filter(|_| options.script.is_none()) {
        return Err(CliError::Usage(format!("{option} needs --script")));
    }
    for option in &options.options {
        let name = option.split('=').next().unwrap_or_default();
        if let Some(instead) = replaced_on_command_line(name) {
            let message = format!("option {name} of sysbench has no effect here: {instead}");
            return Err(CliError::Usage(message));
        }
    }
    Ok(())
}

/// How the experiment names a script, wherever its file is: one that does not exist here may be sysbench's.
fn path_of_script(file: &str) -> String {
    let absolute = fs::canonicalize(file).ok();
    let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
    absolute.unwrap_or_else(|| file.to_owned())
}

/// Why measuring takes longer than `--for`, and what helps; `None` if it does not.
fn longer(asked: Nanos, word: &str, experiment: &Experiment) -> Option<String> {
    let plan = RunPlan::of(experiment);
    let least = plan.measuring.least;
    if least.as_secs_f64() <= 1.1 * asked.as_secs_f64() {
        return None;
    }
    let schedule = &experiment.schedule;
    let starts = match schedule.restarts {
        1 => String::new(),
        restarts => format!(" in {restarts} starts"),
    };
    let (workload, candidates) = (&experiment.workload, experiment.candidates.len());
    let (microbenchmarks, clients) = (workload.microbenchmarks.len(), workload.clients.len());
    let cases = counted(microbenchmarks as u64, "microbenchmark");
    let cases = match clients {
        1 => cases,
        several => format!("{cases} with {several} numbers of clients"),
    };
    // Only what there is more than one of can be fewer.
    let fewer = [
        (clients > 1, "fewer numbers of --clients"),
        (microbenchmarks > 1, "fewer microbenchmarks"),
        (candidates > 2, "fewer candidates"),
    ];
    let fewer = fewer.into_iter().filter_map(|(is_possible, what)| is_possible.then_some(what));
    let remedies: Vec<String> = std::iter::once(format!("--for {}", at_least(least)))
        .chain(fewer.map(str::to_owned))
        .collect();
    Some(format!(
        "--for {word} is too short: intervals need {} blocks{starts}, and with warm-up, {cases} \
         and {} instances, one of them the control, they take {least}. Use {}",
        schedule.min_blocks,
        plan.instances,
        remedies.join(" or "),
    ))
}

/// A time for `--for` that is not less.
fn at_least(time: Nanos) -> String {
    match time.as_secs_f64().ceil() as u64 {
        seconds @ 0..=20 => format!("{}s", seconds.max(1)),
        seconds @ 21..=120 => format!("{}s", seconds.next_multiple_of(5)),
        seconds => format!("{}min", seconds.div_ceil(60)),
    }
}

/// Writes the experiment to a new file. An existing one may have been edited: it is only accepted if it
/// has the same text.
fn save(file: &Path, text: &str) -> Result<(), CliError> {
    export_file::check(file)?;
    let write = CliError::write(file);
    match OpenOptions::new().write(true).create_new(true).open(file) {
        Ok(mut new) => new.write_all(text.as_bytes()).map_err(write),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if fs::read_to_string(file).is_ok_and(|old| old == text) {
                return Ok(());
            }
            let message =
                format!("{} exists and is another experiment: choose another name", file.display());
            Err(CliError::Usage(message))
        }
        Err(error) => Err(write(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_named_for_a_sweep_is_enough() {
        let told = |clients: &[&str], time: &str| {
            let candidates = ["mariadb", "mariadb{innodb_io_capacity=100}"].map(str::to_owned);
            let clients: Vec<String> = clients.iter().map(|&number| number.to_owned()).collect();
            let words = Words {
                command: "compare",
                candidates: &candidates,
                clients: &clients,
                time: Some(time),
                ..Words::default()
            };
            let measuring = |experiment: &Experiment| RunPlan::of(experiment).measuring.most;
            let no_file = |_: &str| -> Result<String, String> { Err("not a file".to_owned()) };
            let comparison = experiment(&words, &|_| Vec::new(), &no_file, &measuring);
            let comparison = comparison.unwrap_or_else(|problems| panic!("{problems}"));
            longer(comparison.asked.unwrap(), time, &comparison.experiment)
        };
        let text = told(&["1", "4", "16"], "2s").unwrap();
        assert!(text.contains("2 microbenchmarks with 3 numbers of clients"), "{text}");
        assert!(
            text.ends_with(" or fewer numbers of --clients or fewer microbenchmarks"),
            "{text}"
        );
        let named = text.rsplit_once("Use --for ").unwrap().1.split(' ').next().unwrap();
        assert_eq!(told(&["1", "4", "16"], named), None, "{text}");
        let one = told(&[], "2s").unwrap();
        assert!(!one.contains("--clients") && !one.contains("fewer candidates"), "{one}");
    }
}
