//! What the experiment says, as rows for reports and for `dbdyno check`.

use dbdyno_spec::experiment::{Candidate, Experiment, Pace, SqliteConfig, System};

/// The settings that hold for the whole run: label and value.
pub(crate) fn of_experiment(experiment: &Experiment) -> Vec<(String, String)> {
    let Experiment { workload, schedule, checks, .. } = experiment;
    let pace = match schedule.pace {
        Pace::Events => "events: all candidates do the same events in a block",
        Pace::Time => "time: all candidates work for the same time in a block",
    };
    let restarts = match schedule.restarts {
        1 => "none: the instances are started once".to_owned(),
        restarts => format!("the instances are started {restarts} times, more within the budget"),
    };
    let rows = [
        ("baseline", experiment.baseline.clone()),
        ("control", if experiment.control { "on" } else { "off" }.to_owned()),
        ("tables × rows", format!("{} × {}", workload.tables, workload.rows)),
        ("clients", workload.clients.to_string()),
        ("microbenchmarks", workload.microbenchmarks.len().to_string()),
        ("slice", format!("{}, for writes {}", schedule.slice, schedule.write_slice)),
        ("pace", pace.to_owned()),
        ("warm-up", format!("the first {} blocks after each start", schedule.warmup_blocks)),
        ("blocks", format!("at least {}", schedule.min_blocks)),
        ("target", format!("±{} half-width of the 95% interval", schedule.target)),
        ("budget", format!("{} per candidate and microbenchmark", schedule.budget)),
        ("restarts", restarts),
        ("errors allowed", checks.max_error_share.to_string()),
        ("seed", experiment.seed.to_string()),
    ];
    rows.map(|(label, value)| (label.to_owned(), value)).into()
}

/// How a candidate is set up: label and value.
pub(crate) fn of_candidate(candidate: &Candidate) -> Vec<(String, String)> {
    let System::Sqlite(config) = &candidate.system;
    let SqliteConfig { page_size, cache_size, .. } = config;
    let rows = [
        ("page_size", page_size.to_string()),
        ("cache_size", format!("{cache_size} per connection")),
        ("journal_mode", journal_mode(config)),
        ("synchronous", synchronous(config)),
    ];
    rows.map(|(label, value)| (label.to_owned(), value)).into()
}

/// SQLite's word for the journal mode.
pub(crate) fn journal_mode(config: &SqliteConfig) -> String {
    word(&config.journal_mode)
}

/// SQLite's word for the synchronous level.
pub(crate) fn synchronous(config: &SqliteConfig) -> String {
    word(&config.synchronous)
}

/// The experiment file's words for these settings are SQLite's own.
fn word(setting: &impl serde::Serialize) -> String {
    match serde_json::to_value(setting) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("a setting is one word, not {other:?}"),
    }
}
