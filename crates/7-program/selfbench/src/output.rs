//! What a benchmark prints and writes: progress, tables, figures as CSV, and its exit code.

use std::cell::Cell;
use std::fs;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use dbdyno_run::RunEvent;
use dbdyno_text::{Block, Cell as TableCell, Column, Kind, NoChart, Paint, Row, write_blocks};
use dbdyno_units::Nanos;
use serde::Serialize;

/// Whether a benchmark met its goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Met,
    Missed(String),
}

impl Outcome {
    /// [`Outcome::Met`] if `met`, else [`Outcome::Missed`] with the reason from `why`.
    pub fn of(met: bool, why: impl FnOnce() -> String) -> Self {
        if met { Self::Met } else { Self::Missed(why()) }
    }
}

/// Exit code if the benchmark could not be run.
const NOT_MEASURED: u8 = 2;

/// The exit code of a benchmark: 0 if its goal is met, 1 if it is missed, 2 if it could not be run.
/// Prints a message for the last two.
pub fn exit_code(result: anyhow::Result<Outcome>) -> ExitCode {
    let (message, code) = match result {
        Ok(Outcome::Met) => return ExitCode::SUCCESS,
        Ok(Outcome::Missed(why)) => (format!("goal missed: {why}"), ExitCode::FAILURE),
        Err(error) => (format!("not measured: {error:#}"), ExitCode::from(NOT_MEASURED)),
    };
    let _ = writeln!(stderr(), "{message}");
    code
}

/// One row of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub case: String,
    pub unit: &'static str,
    pub ours: f64,
    /// The figure it is compared with.
    pub peer: f64,
    /// `ours` divided by `peer`. If both were measured in pairs, the median of the pairs' ratios,
    /// which is free of the machine's drift and may differ slightly from the ratio of the medians.
    pub ratio: f64,
}

impl Case {
    /// A case whose ratio is that of its two figures.
    pub fn new(case: impl Into<String>, unit: &'static str, ours: f64, peer: f64) -> Self {
        Self { case: case.into(), unit, ours, peer, ratio: ours / peer }
    }
}

/// The workspace directory, which contains `experiments` and `target`.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap_or(Path::new(".")).to_owned()
}

/// Writes `target/bench/NAME.csv` in the workspace and returns its path.
pub fn write_csv(name: &str, cases: &[Case]) -> anyhow::Result<PathBuf> {
    write(name, &to_csv(cases)?)
}

/// Writes rows of any type to such a file.
pub fn write_rows(name: &str, rows: &[impl Serialize]) -> anyhow::Result<PathBuf> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for row in rows {
        csv.serialize(row)?;
    }
    write(name, &csv.into_inner()?)
}

fn write(name: &str, text: &[u8]) -> anyhow::Result<PathBuf> {
    let directory = workspace().join("target/bench");
    let path = directory.join(format!("{name}.csv"));
    let write = || -> anyhow::Result<()> {
        fs::create_dir_all(&directory)?;
        // By rename: the file may be read while a benchmark ends.
        let part = directory.join(format!(".{name}.csv.{}", std::process::id()));
        fs::write(&part, text)?;
        Ok(fs::rename(&part, &path)?)
    };
    write().with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn to_csv(cases: &[Case]) -> anyhow::Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(["case", "unit", "ours", "peer", "ratio"])?;
    for Case { case, unit, ours, peer, ratio } in cases {
        let [ours, peer, ratio] = [ours, peer, ratio].map(|figure| format!("{figure:.5}"));
        csv.write_record([case.as_str(), *unit, &ours, &peer, &ratio])?;
    }
    Ok(csv.into_inner()?)
}

/// Shows the current step and the estimated time left.
///
/// On a terminal one line is updated; elsewhere a line is printed every ten seconds.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    last: Cell<Option<Instant>>,
    terminal: bool,
}

impl Progress {
    pub fn start() -> Self {
        Self { started: Instant::now(), last: Cell::new(None), terminal: stderr().is_terminal() }
    }

    /// Shows the step `what`, with `share` (0 to 1) of all work done.
    pub fn show(&self, share: f64, what: &str) {
        let between =
            if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(10) };
        if self.last.get().is_some_and(|last| last.elapsed() < between) {
            return;
        }
        self.last.set(Some(Instant::now()));
        let left = time_left(Nanos::from(self.started.elapsed()), share)
            .map_or_else(String::new, |left| format!(", {left} left"));
        let (start, end) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(stderr(), "{start}{:3.0}%{left}: {what}{end}", share * 100.0);
    }

    /// Shows the progress of the benchmark's only run.
    pub fn follow(&self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Stage(what) => self.show(0.0, what),
            RunEvent::Microbenchmark { number, of, name, passes: (pass, passes) } => {
                let done = (number - 1) as f64 / *of as f64;
                self.show((f64::from(pass - 1) + done) / f64::from(*passes.max(pass)), name);
            }
            _ => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// In whole seconds; `None` while too little is done for an estimate.
fn time_left(elapsed: Nanos, share: f64) -> Option<Nanos> {
    const ENOUGH: f64 = 0.005;
    let seconds = elapsed.as_secs_f64() * (1.0 - share) / share;
    (share >= ENOUGH).then(|| Nanos::from_secs_f64(seconds.ceil()))
}

/// A table; the first column is left-aligned, all others right-aligned.
#[derive(Clone, Debug)]
pub struct Table(dbdyno_text::Table);

impl Table {
    pub fn new(headings: &[&str]) -> Self {
        let kinds = std::iter::once(Kind::Text).chain(std::iter::repeat(Kind::Number));
        let columns = kinds.zip(headings).map(|(kind, heading)| Column::new(kind, *heading));
        Self(dbdyno_text::Table::new(columns))
    }

    /// Appends a row; it has a cell for each heading.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(Row::new(cells.map(TableCell::text)));
    }

    pub fn print(self) {
        let mut text = String::new();
        write_blocks(&mut text, &[Block::<NoChart>::Table(self.0)], usize::MAX, Paint::new(false));
        print(&text);
    }
}

/// Prints text. A closed pipe, as with `head`, is not an error.
pub fn print(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_the_documented_columns() {
        let cases = [Case::new("a, b", "ns/query", 210.0, 200.0)];
        assert_eq!(
            String::from_utf8(to_csv(&cases).unwrap()).unwrap(),
            "case,unit,ours,peer,ratio\n\"a, b\",ns/query,210.00000,200.00000,1.05000\n"
        );
    }

    #[test]
    fn workspace_contains_lock_file_and_crates() {
        assert!(workspace().join("Cargo.lock").is_file() && workspace().join("crates").is_dir());
    }

    #[test]
    fn time_left_is_extrapolated_from_the_share_done() {
        assert_eq!(time_left(Nanos::from_secs(30), 0.25), Some(Nanos::from_secs(90)));
        assert_eq!(time_left(Nanos::from_secs(30), 1.0), Some(Nanos::ZERO));
        assert_eq!(time_left(Nanos::from_secs(30), 0.0), None);
    }
}
