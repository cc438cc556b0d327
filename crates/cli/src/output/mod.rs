//! The only place that prints.

mod display;

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

pub use display::Display;

use crate::args::When;
use crate::error::CliError;

/// Columns of a terminal that does not tell.
const DEFAULT_WIDTH: usize = 80;

/// Prints a result. A reader that went away, as `head` does, is no error.
pub fn print(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a note beside the results.
pub fn note(text: &str) {
    let _ = writeln!(stderr(), "dbdyno: {text}");
}

/// Prints a line of progress.
fn plain_line(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// Prints why a command failed.
pub fn failure(error: &CliError) -> ExitCode {
    let text = error.to_string();
    let _ = writeln!(stderr(), "{}", text.trim_end());
    error.exit_code()
}

/// Prints help, the version, or what is wrong with the command line.
pub fn usage(message: &clap::Error) -> ExitCode {
    // Nowhere to print to is no reason for another exit code.
    let _ = message.print();
    ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(2))
}

/// Ends the program from a signal handler's thread, while the main thread may be in a slice.
/// Workers and compilers die with it.
#[expect(clippy::exit, reason = "the user asked twice, and the main thread cannot be reached")]
pub fn end_at_once(code: u8) -> ! {
    std::process::exit(i32::from(code))
}

/// The columns of the terminal.
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

/// Appends `words` after `prefix`, in lines of at most 80 columns that are indented alike.
pub fn wrapped(text: &mut String, prefix: &str, words: &str) {
    let indent = " ".repeat(prefix.chars().count());
    let room = DEFAULT_WIDTH.saturating_sub(indent.len()).max(20);
    let mut line = String::new();
    let mut start = prefix;
    for word in words.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
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
