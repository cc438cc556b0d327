//! The only module that prints.

mod progress;
mod safe;

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
pub use progress::{Display, FleetDisplay, StepProgress};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::When;
use crate::error::CliError;
use safe::{visible, visible_json, visible_with_colors};

/// Columns of a terminal of unknown width.
const DEFAULT_WIDTH: usize = 80;

/// The progress line, while there is one: it is erased while anything else is printed.
static PROGRESS_LINE: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Prints a result without colours.
pub fn print(text: &str) {
    write_out(&visible(text));
}

/// Prints a report, in colour if `color`.
pub fn print_report(text: &str, color: bool) {
    if color {
        write_out(&visible_with_colors(text));
    } else {
        print(text);
    }
}

/// Prints JSON.
pub fn print_json(json: &str) {
    write_out(&visible_json(json));
}

/// Writes to standard output. A closed pipe, as after `head`, is not an error.
fn write_out(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a message about the results on standard error.
pub fn note(text: &str) {
    plain_line(&format!("dbdyno: {text}"));
}

/// Prints a line of progress.
fn plain_line(text: &str) {
    write_error(&format!("{text}\n"));
}

/// Writes to standard error, above the progress line.
pub fn write_error(text: &str) {
    let text = visible(text);
    let write = || {
        let _ = stderr().write_all(text.as_bytes());
    };
    let line = PROGRESS_LINE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match line {
        Some(line) => line.suspend(write),
        None => write(),
    }
}

/// A status line if standard error is a terminal; hidden otherwise.
fn status_line() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {wide_msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(None, target).with_style(style);
    set_progress_line(Some(bar.clone()));
    bar
}

/// Sets or removes the progress line.
fn set_progress_line(line: Option<ProgressBar>) {
    *PROGRESS_LINE.lock().unwrap_or_else(PoisonError::into_inner) = line;
}

/// Prints why a command failed.
pub fn failure(error: &CliError) -> ExitCode {
    plain_line(error.to_string().trim_end());
    error.exit_code()
}

/// Prints help, the version, or an error in the command line.
pub fn usage(message: &clap::Error) -> ExitCode {
    if message.use_stderr() {
        // It quotes arguments, which may be names of files.
        write_error(&message.render().to_string());
    } else {
        // The exit code is the same when printing fails.
        let _ = message.print();
    }
    ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(2))
}

/// Exits from the thread of the signal handler while the main thread may be in a slice.
/// The kernel ends workers and compilers with the process.
#[expect(clippy::exit, reason = "the user asked twice, and the main thread cannot be reached")]
pub fn exit_immediately(code: u8) -> ! {
    std::process::exit(i32::from(code))
}

/// Columns of the terminal.
pub fn width() -> usize {
    terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(columns, _)| usize::from(columns.0))
}

/// Whether to print in colour.
pub fn color(when: When) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

/// Appends `words` after `prefix`, in lines of at most 80 columns with a hanging indent.
pub fn wrapped(text: &mut String, prefix: &str, words: &str) {
    let indent = " ".repeat(prefix.chars().count());
    let space = DEFAULT_WIDTH.saturating_sub(indent.len()).max(20);
    let mut line = String::new();
    let mut start = prefix;
    for word in words.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > space {
            text.push_str(&format!("{start}{line}\n"));
            start = &indent;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&format!("{start}{line}\n"));
}

/// The environment variable with a filter in the syntax of `tracing_subscriber::filter::Targets`.
const LOG_FILTER: &str = "DBDYNO_LOG";

/// Starts the log: at the level that `verbose` asks for, unless `DBDYNO_LOG` sets a filter.
pub fn start_log(verbose: u8) -> Result<(), CliError> {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let set = std::env::var(LOG_FILTER).ok().filter(|filter| !filter.is_empty());
    let filter: Targets = set
        .as_deref()
        .unwrap_or(level)
        .parse()
        .map_err(|error| CliError::Usage(format!("{LOG_FILTER}: {error}")))?;
    let lines = tracing_subscriber::fmt::layer().with_timer(uptime()).with_writer(|| LogLine);
    tracing_subscriber::registry().with(lines).with(filter).init();
    Ok(())
}

/// Prints each write, which is a whole line, without breaking the progress line.
struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_error(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
