//! `dbdyno list script`: the statements of a sysbench script.

use std::process::ExitCode;

use dbdyno_document::did_you_mean;
use dbdyno_scripts::{
    Client, Driver, OptionProblem, OptionValue, Options, Progress, Recorder, Seed, Setup, Source,
    UniquePosition, check_option, inspect,
};

use crate::args::List;
use crate::error::CliError;
use crate::output;

/// The default of `--seed`.
const SEED: u32 = 42;

/// Prints the statements of the first events of a script, which are not executed.
pub fn list_script(args: &List) -> Result<ExitCode, CliError> {
    let [file] = &args.words[..] else {
        let message = "name one script: dbdyno list script oltp_read_only.lua --events 2";
        return Err(CliError::Usage(message.to_owned()));
    };
    let read = |path: &str| {
        std::fs::read_to_string(path).map_err(|error| format!("reading {path}: {error}"))
    };
    let source = Source::find(file, read).map_err(|error| CliError::Usage(error.to_string()))?;
    let source = Source { version: args.sysbench.unwrap_or_default(), ..source };
    let options = options(&args.options)?;
    let invalid = |error: dbdyno_scripts::ScriptError| CliError::Usage(error.to_string());
    let declared = inspect(&source, Driver::MySql, &Options::new()).map_err(invalid)?;
    for name in options.keys() {
        let problem = match check_option(name, &declared) {
            Ok(()) => continue,
            Err(OptionProblem::Replaced(in_file)) => {
                let instead = match name.as_str() {
                    "events" | "max_requests" => "use `--events`",
                    "rand_seed" => "use `--seed`",
                    _ => in_file,
                };
                format!("option {name} of sysbench has no effect here: {instead}")
            }
            Err(OptionProblem::Unknown(known)) => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                format!("{file} has no option `{name}`: {}", did_you_mean(name, &known))
            }
        };
        return Err(CliError::Usage(problem));
    }
    let setup = Setup {
        driver: Driver::MySql,
        storage_engine: None,
        options,
        client: 0,
        clients: 1,
        seed: Seed::of_sysbench(args.seed.unwrap_or(SEED)),
        unique: UniquePosition::default(),
        time_limit: Setup::TIME_LIMIT,
    };
    let mut recorder = Recorder::default();
    let mut client = Client::start(&source, &setup, &mut recorder).map_err(invalid)?;
    for _ in 0..args.events.unwrap_or(1) {
        let progress = client.event(&mut recorder).map_err(invalid)?;
        for statement in recorder.statements.drain(..) {
            output::print(&format!("{}\n", statement.trim_end()));
        }
        if progress != Progress::Event {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The options in `NAME=VALUE`.
fn options(words: &[String]) -> Result<Options, CliError> {
    let mut options = Options::new();
    for word in words {
        let invalid = |what: &str| CliError::Usage(format!("--option {word}: {what}"));
        let (name, value) =
            word.split_once('=').ok_or_else(|| invalid("write NAME=VALUE, such as tables=4"))?;
        let value = OptionValue::Text(value.to_owned());
        if options.insert(name.replace('-', "_"), value).is_some() {
            return Err(invalid("this option is set twice"));
        }
    }
    Ok(options)
}
