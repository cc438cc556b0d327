//! Insert benchmarks of a few seconds, and their stored steps.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::{Background, Finished, TestDir, finish};

/// The first candidate is the baseline.
pub struct Inserts<'a> {
    /// The lines of `[insert_benchmark]`.
    pub section: &'a str,
    /// Names and additional lines.
    pub candidates: &'a [(&'a str, &'a str)],
}

impl Inserts<'_> {
    fn text(&self) -> String {
        let Self { section, candidates } = self;
        let baseline = candidates[0].0;
        let mut text = format!(
            "name = \"inserts\"\nbaseline = \"{baseline}\"\n\n[insert_benchmark]\n{section}\n\n"
        );
        for (name, lines) in *candidates {
            text.push_str(&format!("[[candidate]]\nname = \"{name}\"\n{lines}\n\n"));
        }
        text
    }

    /// The command that runs it, with additional sections.
    pub fn command(&self, test: &TestDir, out: &Path, sections: &str) -> std::process::Command {
        test.text_command(&format!("{}{sections}", self.text()), out, &[])
    }

    /// Runs it to completion with `out` as the run directory.
    pub fn run(&self, test: &TestDir, out: &Path, more: &[&str]) -> Finished {
        finish(test.text_command(&self.text(), out, more))
    }

    /// Starts it in the background.
    pub fn start(&self, test: &TestDir, out: &Path, more: &[&str]) -> Background {
        Background::start(test.text_command(&self.text(), out, more), test.path())
    }
}

/// A stored step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub id: i64,
    pub repeat: i64,
    pub place: i64,
    pub candidate: i64,
    pub name: String,
    pub from: String,
    /// Its measurements, if it is complete.
    pub json: Option<Value>,
    pub seconds: i64,
}

impl Step {
    pub fn is_done(&self) -> bool {
        self.json.is_some()
    }

    /// The number at a JSON pointer of the measurements.
    pub fn number(&self, path: &str) -> f64 {
        let json = self.json.as_ref().unwrap();
        json.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {json}"))
    }

    /// Pairs of nanoseconds and counts.
    pub fn times(&self, path: &str) -> Vec<(u64, u64)> {
        let json = self.json.as_ref().unwrap();
        serde_json::from_value(json.pointer(path).unwrap().clone()).unwrap()
    }
}

/// All steps stored so far; empty if there is no run yet.
pub fn stored_steps(out: &Path) -> Vec<Step> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Ok(database) = Connection::open_with_flags(out.join("run.sqlite"), flags) else {
        return Vec::new();
    };
    database.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    let sql = "SELECT id, repeat, position, candidate, name, started_from, json, \
               (SELECT COUNT(*) FROM insert_second WHERE step = id) FROM insert_step ORDER BY id";
    let Ok(mut query) = database.prepare(sql) else { return Vec::new() };
    let rows = query.query_map([], |row| {
        let json: Option<String> = row.get(6)?;
        Ok(Step {
            id: row.get(0)?,
            repeat: row.get(1)?,
            place: row.get(2)?,
            candidate: row.get(3)?,
            name: row.get(4)?,
            from: row.get(5)?,
            json: json.map(|json| serde_json::from_str(&json).unwrap()),
            seconds: row.get(7)?,
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}
