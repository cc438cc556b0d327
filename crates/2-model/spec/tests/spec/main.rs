//! Tests of experiment files: valid settings, and problems in invalid ones.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

use dbdyno_spec::experiment::Experiment;
use dbdyno_spec::parse;

/// A valid experiment.
fn parsed(text: &str) -> Experiment {
    parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The problems of a text as they are displayed.
fn shown(text: &str) -> String {
    parse("test.toml", text).map_or_else(|problems| problems.to_string(), |_| "none".into())
}

/// Problems as they are displayed, each in three lines: position and message; the line; the part of it
/// and the help.
fn brief(shown: &str) -> String {
    let problem = |shown: &str| {
        let lines: Vec<&str> = shown.lines().collect();
        let [message, place, _, line, help] = lines[..] else { return shown.to_owned() };
        let margin = line.find('|').unwrap() + 2;
        let after_margin = |line: &str| line.get(margin..).unwrap_or_default().to_owned();
        let place = place.split_once(':').map_or("", |(_, place)| place);
        let message = message.trim_start_matches("error: ");
        format!("{place} {message}\n{}\n{}", after_margin(line), after_margin(help))
    };
    shown.split("\n\n").map(problem).collect::<Vec<_>>().join("\n")
}

/// Compares problems with a snapshot, in the form of [`brief`].
macro_rules! assert_problems {
    ($shown:expr, @$expected:literal $(,)?) => {
        insta::assert_snapshot!(crate::brief(&$shown), @$expected)
    };
}

mod arbitrary;
mod builds;
mod candidates;
mod compare;
mod experiments;
mod hosts;
mod inserts;
mod microbenchmark_problems;
mod option_files;
mod problems;
mod profiles;
mod reference;
mod scripts;
mod server_problems;
mod servers;
mod valid;
