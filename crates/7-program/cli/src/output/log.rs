//! The log on standard error: `-v` and `DBDYNO_LOG`.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::uptime;

use crate::error::CliError;

/// The environment variable with a filter in the syntax of `tracing_subscriber::EnvFilter`.
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
    let filter = EnvFilter::try_new(set.as_deref().unwrap_or(level))
        .map_err(|error| CliError::Usage(format!("{FILTER}: {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(uptime())
        .with_writer(|| LogLine)
        .init();
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
