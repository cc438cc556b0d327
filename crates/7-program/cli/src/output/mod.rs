//! The only module that prints. Everything passes through a function that makes it safe for a terminal, because
//! it may quote files, servers and processes of others.

mod progress;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};

use dbdyno_text::{COLOR_CODES, wrap};
use dbdyno_units::{visible, visible_char};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
pub use progress::{Display, FleetDisplay, StepProgress};
use serde::Serialize;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::When;
use crate::error::CliError;

/// Columns of a terminal of unknown width.
const DEFAULT_WIDTH: usize = 80;

/// The progress line, while there is one: it is erased while anything else is printed.
static PROGRESS_LINE: Mutex<Option<ProgressBar>> = Mutex::new(None);

pub fn print(text: &str) {
    write_out(&without_commands(&visible(text)));
}

/// Prints commands for GitHub Actions, whose values are escaped.
pub fn print_commands(commands: &str) {
    write_out(&visible(commands));
}

/// Does the same on standard error.
pub fn write_commands(commands: &str) {
    write_err(&visible(commands));
}

/// The text without commands for GitHub Actions, which reads them from all that a job prints: a line that begins
/// with `::`, and `##[` anywhere. A break of a long line can make the former.
fn without_commands(text: &str) -> Cow<'_, str> {
    if !text.contains("::") && !text.contains("##[") {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| match line.trim_start().strip_prefix("::") {
        Some(rest) => format!("{}: :{rest}", &line[..line.len() - line.trim_start().len()]),
        None => line.to_owned(),
    };
    let lines: String = text.split_inclusive('\n').map(line).collect();
    Cow::Owned(lines.replace("##[", "# #["))
}

/// Prints a report, in colour if `color`.
pub fn print_report(text: &str, color: bool) {
    if color {
        write_out(&without_commands(&visible_with_colors(text)));
    } else {
        print(text);
    }
}

pub fn print_json(json: &str) {
    write_out(&visible_json(json));
}

pub fn print_pretty(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(CliError::other)?;
    print_json(&format!("{text}\n"));
    Ok(())
}

/// Why something was not printed.
static NOT_PRINTED: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output. [`end`] reports an error.
fn write_out(text: &str) {
    let mut out = stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        let _ = NOT_PRINTED.set(error);
    }
}

/// The exit code of the program, or failure if what it printed was not written, for example on a full disk. A
/// closed pipe, as after `head`, is not an error.
pub fn end(code: ExitCode) -> ExitCode {
    match NOT_PRINTED.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            plain_line(&format!("error: writing to standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => code,
    }
}

/// Prints a message about the results on standard error.
pub fn note(text: &str) {
    plain_line(&format!("dbdyno: {text}"));
}

fn plain_line(text: &str) {
    write_error(&format!("{text}\n"));
}

/// Writes to standard error, above the progress line.
pub fn write_error(text: &str) {
    write_err(&without_commands(&visible(text)));
}

fn write_err(text: &str) {
    let write = || {
        let _ = stderr().write_all(text.as_bytes());
    };
    let line = PROGRESS_LINE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match line {
        Some(line) => line.suspend(write),
        None => write(),
    }
}

/// A status line of this form if standard error is a terminal; hidden otherwise.
fn status_line(template: &str) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(None, target).with_style(style);
    set_progress_line(Some(bar.clone()));
    bar
}

fn set_progress_line(line: Option<ProgressBar>) {
    *PROGRESS_LINE.lock().unwrap_or_else(PoisonError::into_inner) = line;
}

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
        if let Err(error) = message.print().and_then(|()| stdout().flush()) {
            let _ = NOT_PRINTED.set(error);
        }
    }
    ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(2))
}

/// Exits from the thread of the signal handler while the main thread may be in a slice.
/// The kernel ends workers with the process. A compiler ends by itself; until then it holds the lock of its build.
#[expect(clippy::exit, reason = "the user asked twice, and the main thread cannot be reached")]
pub fn exit_immediately(code: u8) -> ! {
    std::process::exit(i32::from(code))
}

pub fn width() -> usize {
    terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(columns, _)| usize::from(columns.0))
}

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
    let room = DEFAULT_WIDTH.saturating_sub(indent.len()).max(20);
    let mut lines = wrap(words, room).into_iter();
    text.push_str(&format!("{prefix}{}\n", lines.next().unwrap_or_default()));
    text.extend(lines.map(|line| format!("{indent}{line}\n")));
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

/// The text as [`visible`], except for the colours of reports.
fn visible_with_colors(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut out = visible(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let code = COLOR_CODES.into_iter().find_map(|code| {
            let rest = part.strip_prefix('[')?.strip_prefix(code)?.strip_prefix('m')?;
            Some((code, rest))
        });
        match code {
            Some((code, rest)) => out.push_str(&format!("\x1b[{code}m{}", visible(rest))),
            None => {
                out.push(visible_char('\x1b'));
                out.push_str(&visible(part));
            }
        }
    }
    out
}

/// JSON with the same meaning in which characters that control a terminal are escaped, and `#`, which can begin a
/// command for GitHub Actions.
fn visible_json(json: &str) -> Cow<'_, str> {
    // JSON has none of these characters outside of strings, and none below U+0020 inside.
    let has_commands = json.contains("##[");
    let is_safe = |c: char| c == '\n' || visible_char(c) == c && !(has_commands && c == '#');
    if json.chars().all(is_safe) {
        return Cow::Borrowed(json);
    }
    let escape = |c: char| match is_safe(c) {
        true => c.to_string(),
        false => format!("\\u{:04x}", u32::from(c)),
    };
    Cow::Owned(json.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colors_of_reports_are_kept() {
        let painted = "\x1b[1;31mFAILED\x1b[0m \x1b[2J\x1b[35m\x1b]0;title\x07\x1b[1";
        assert_eq!(visible_with_colors(painted), "\x1b[1;31mFAILED\x1b[0m ␛[2J␛[35m␛]0;title␇␛[1");
    }

    #[test]
    fn lines_that_breaks_make_are_no_commands() {
        let mut text = String::new();
        wrapped(&mut text, "  ", &format!("{} ::error title=x::y", "long ".repeat(15)));
        let text = without_commands(&text);
        assert!(text.ends_with("\n  : :error title=x::y\n"), "{text}");
        let text = without_commands("::a\n b::c ##[error]\n\u{a0}::d");
        assert_eq!(text, ": :a\n b::c # #[error]\n\u{a0}: :d");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "name": "a\x1b\u{9b}31m\u{202e}\x7f\n##[error]" });
        let text = format!("{value:#}\n");
        let safe = visible_json(&text);
        assert!(safe.chars().all(|c| c == '\n' || visible_char(c) == c), "{safe}");
        assert!(!safe.contains("##["), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
