//! The figures of a benchmark as a CSV file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

/// One row of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What was measured.
    pub case: String,
    /// The unit of both figures.
    pub unit: &'static str,
    /// dbdyno's figure.
    pub ours: f64,
    /// The figure it is compared with.
    pub peer: f64,
    /// `ours` divided by `peer`. If both were measured in pairs, the median of the pairs' ratios,
    /// which is free of the machine's drift and may differ slightly from the ratio of the medians.
    pub ratio: f64,
}

impl Case {
    /// A case whose ratio is that of its two figures.
    #[must_use]
    pub fn new(case: impl Into<String>, unit: &'static str, ours: f64, peer: f64) -> Self {
        Self { case: case.into(), unit, ours, peer, ratio: ours / peer }
    }
}

/// The workspace directory, which contains `experiments` and `target`.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap_or(Path::new(".")).to_owned()
}

/// Writes `target/bench/NAME.csv` in the workspace and returns its path.
///
/// # Errors
/// The file cannot be written.
pub fn write_csv(name: &str, cases: &[Case]) -> anyhow::Result<PathBuf> {
    write(name, &to_csv(cases)?)
}

/// Writes rows of any type to such a file.
///
/// # Errors
/// As [`write_csv`].
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
}
