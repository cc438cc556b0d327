//! The log on standard error: `-v` and `DBDYNO_LOG`.

use std::io::{self, Write};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::error::CliError;

/// The environment variable with a filter in the syntax of `tracing_subscriber::filter::Targets`.
const FILTER: &str = "DBDYNO_LOG";

/// Starts the log: at the level that `verbose` asks for, unless `DBDYNO_LOG` sets a filter.
///
/// # Errors
/// `DBDYNO_LOG` is not a valid filter.
pub fn start_log(verbose: u8) -> Result<(), CliError> {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let set = std::env::var(FILTER).ok().filter(|filter| !filter.is_empty());
    let filter: Targets = set
        .as_deref()
        .unwrap_or(level)
        .parse()
        .map_err(|error| CliError::Usage(format!("{FILTER}: {error}")))?;
    let lines = tracing_subscriber::fmt::layer().with_timer(uptime()).with_writer(|| LogLine);
    tracing_subscriber::registry().with(lines).with(filter).init();
    Ok(())
}

/// Prints each write, which is a whole line, without breaking the progress line.
struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        super::write_error(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
