//! What a task does, for people.

use dbdyno_text::plain;

use crate::files::{AttemptFiles, TaskEnd};
use crate::record::{AttemptRecord, EndKind, FleetRecord, Outcome, TaskRecord};

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TaskStatus {
    pub name: String,
    pub node: String,
    /// Whether it compiles what the others measure.
    pub builds: bool,
    /// The state, in a word.
    pub state: String,
    /// The number of its last attempt; `None` before the first.
    pub attempt: Option<u32>,
    /// The job of that attempt, if it is known.
    pub job: Option<u64>,
    /// What it does, or why it ended.
    pub detail: String,
}

impl TaskStatus {
    /// The status of a task; `files` are those of its last attempt.
    pub fn of(task: &TaskRecord, files: &AttemptFiles) -> Self {
        let last = task.attempts.last();
        let (state, detail) = match (&task.outcome, last) {
            (Some(Outcome::Complete { attempt, failures }), _) => {
                let attempts = match attempt {
                    1 => String::new(),
                    attempt => format!("in attempt {attempt}"),
                };
                let failures = match failures {
                    0 => String::new(),
                    1 => "1 failure, see its report".to_owned(),
                    failures => format!("{failures} failures, see its report"),
                };
                let words = [attempts, failures];
                let words: Vec<String> = words.into_iter().filter(|one| !one.is_empty()).collect();
                ("complete", words.join(", "))
            }
            (Some(Outcome::Skipped { reason }), _) => ("skipped", reason.clone()),
            (Some(Outcome::Failed { reason }), _) => ("failed", reason.clone()),
            (Some(Outcome::Lost { reason }), _) => ("lost", reason.clone()),
            (Some(Outcome::Cancelled { reason }), _) => ("cancelled", reason.clone()),
            (None, None) => ("waiting", String::new()),
            (None, Some(attempt)) => match &attempt.end {
                Some(end) if end.kind == EndKind::NodeDown => ("no node", end.reason.clone()),
                Some(end) => ("retrying", end.reason.clone()),
                None => current(attempt, files),
            },
        };
        Self {
            name: task.name.clone(),
            node: task.node.clone(),
            builds: task.builds,
            // Slurm's word, or what a file of another user says.
            state: plain(state),
            attempt: last.map(|attempt| attempt.number),
            job: last.and_then(|attempt| attempt.job),
            detail: plain(&detail),
        }
    }
}

/// State and detail of an attempt that has not ended in the record. Its files may say more than the
/// record, which nobody updates while no controller runs.
fn current<'a>(attempt: &'a AttemptRecord, files: &AttemptFiles) -> (&'a str, String) {
    if let Some(result) = &files.result {
        return match &result.end {
            TaskEnd::Complete { .. } => ("measured", String::new()),
            TaskEnd::Skipped { reason } => ("skipped", reason.clone()),
            TaskEnd::Interrupted => ("interrupted", String::new()),
            TaskEnd::Failed { reason, .. } => ("failing", reason.clone()),
        };
    }
    let (state, detail) = match attempt.state.split_once(" (") {
        Some((state, detail)) => (state, detail.trim_end_matches(')')),
        None => (&*attempt.state, ""),
    };
    let state = match (state, &files.claim) {
        ("submitting" | "submitted" | "pending" | "waiting for builds", Some(_)) => "running",
        (state, _) => state,
    };
    let doing = files.progress.as_ref().map(|progress| progress.doing.clone());
    (state, doing.unwrap_or_else(|| detail.to_owned()))
}

/// How many tasks that measure are in which state: `3 complete, 1 running`.
pub fn totals(all: &[TaskStatus]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for status in all.iter().filter(|status| !status.builds) {
        match counts.iter_mut().find(|(state, _)| *state == status.state) {
            Some((_, count)) => *count += 1,
            None => counts.push((&status.state, 1)),
        }
    }
    let counts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    counts.join(", ")
}

/// A table of the tasks, one per line, in lines of at most `width` characters.
pub fn lines(record: &FleetRecord, all: &[TaskStatus], width: usize) -> Vec<String> {
    let longest = |of: fn(&TaskStatus) -> &str| {
        all.iter().map(|status| of(status).chars().count()).max().unwrap_or(0)
    };
    let (names, nodes) = (longest(|one| &one.name), longest(|one| &one.node));
    // The attempt belongs to the state, so that details stay below each other.
    let state_of = |status: &TaskStatus| match status.attempt {
        None | Some(1) => status.state.clone(),
        Some(attempt) => format!("{}, attempt {attempt}", status.state),
    };
    let states = all.iter().map(|one| state_of(one).chars().count()).max().unwrap_or(0);
    let line = |status: &TaskStatus| {
        let TaskStatus { name, node, detail, .. } = status;
        let node = match record.request.shard {
            true => format!("  {node:<nodes$}"),
            // The name of the task is that of its first node, or ends with it.
            false if name == node || status.builds && name.ends_with(node.as_str()) => {
                String::new()
            }
            false => format!(" on {node}"),
        };
        let state = state_of(status);
        let text = format!("{name:<names$}{node}  {state:<states$}  {detail}");
        shortened(text.trim_end(), width)
    };
    all.iter().map(line).collect()
}

/// A line of at most `width` characters. What a run says about the time left, at its end, is kept.
fn shortened(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let end = line.rsplit_once(", ").map_or("", |(_, end)| end);
    let end = if [" left", " left in all"].iter().any(|one| end.ends_with(one)) {
        format!(" {end}")
    } else {
        String::new()
    };
    // At least half of the line is for the rest.
    let end = if end.chars().count() > width / 2 { "" } else { &end };
    let room = width.saturating_sub(end.chars().count() + 1);
    let start: String = line.chars().take(room).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Claim, TaskProgress};
    use crate::record::sample::fleet;
    use crate::record::{AttemptEnd, UnixTime};

    #[test]
    fn time_left_is_kept_in_a_short_line() {
        let line = "node1  running  [7/42] range-notcovered-si: other 1.021 ±0.4%, block 12, about \
                    41 min left in all";
        assert_eq!(
            shortened(line, 80),
            "node1  running  [7/42] range-notcovered-si: other 1.02… about 41 min left in all"
        );
        assert_eq!(shortened(line, 20), "node1  running  [7/…");
        assert_eq!(shortened("short, 1 s left", 80), "short, 1 s left");
    }

    #[test]
    fn each_task_has_one_line_that_fits() {
        let mut record = fleet(3);
        let attempt = AttemptRecord {
            number: 2,
            node: "n001".to_owned(),
            submitted: UnixTime(0),
            job: Some(7),
            state: "pending (Resources)".to_owned(),
            ..AttemptRecord::default()
        };
        record.tasks[0].attempts = vec![attempt.clone()];
        record.tasks[1].outcome = Some(Outcome::Complete { attempt: 1, failures: 2 });
        let reason = "no space\nleft".to_owned();
        let end = AttemptEnd { seen: UnixTime(0), reason, measured: 0, kind: EndKind::Failed };
        record.tasks[2].attempts = vec![AttemptRecord { end: Some(end), ..attempt }];
        let none = AttemptFiles::default();
        let of = |files: &AttemptFiles| -> Vec<TaskStatus> {
            record.tasks.iter().map(|task| TaskStatus::of(task, files)).collect()
        };
        assert_eq!(
            lines(&record, &of(&none), 80),
            [
                "n001  pending, attempt 2   Resources",
                "n002  complete             2 failures, see its report",
                "n003  retrying, attempt 2  no space left"
            ]
        );
        assert_eq!(lines(&record, &of(&none), 20)[0], "n001  pending, atte…");
        assert_eq!(totals(&of(&none)), "1 pending, 1 complete, 1 retrying");
        let progress = Some(TaskProgress { doing: "[1/2] x".to_owned(), measured: 0 });
        let files = AttemptFiles { progress, ..none };
        assert_eq!(of(&files)[0].detail, "[1/2] x");
        record.tasks[0].attempts[0].state = "RUNNING\x1b]0;X\x07\nFAKE".to_owned();
        let hostile = TaskStatus::of(&record.tasks[0], &AttemptFiles::default());
        assert_eq!(hostile.state, "RUNNING␛]0;X␇ FAKE");
        record.tasks[0].attempts[0].state = "pending".to_owned();
        let of = |files: &AttemptFiles| -> Vec<TaskStatus> {
            record.tasks.iter().map(|task| TaskStatus::of(task, files)).collect()
        };
        let claim = Some(Claim { job: Some(7), node: "n001".to_owned() });
        let files = AttemptFiles { claim, ..files };
        assert_eq!(of(&files)[0].state, "running", "whatever the record says");
    }
}
