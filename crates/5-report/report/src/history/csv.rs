use super::{FigureHistory, History};
use crate::export::{ExportError, table};
use dbdyno_text::decimals;

/// The columns of the exported table.
pub const HISTORY_HEADER: [&str; 24] = [
    "candidate",
    "baseline",
    "group",
    "microbenchmark",
    "clients",
    "metric",
    "directory",
    "started",
    "version",
    "ratio",
    "ci_low",
    "ci_high",
    "outlier",
    "level",
    "level_low",
    "level_high",
    "change",
    "change_low",
    "change_high",
    "verdict",
    "p_value",
    "changed_after",
    "earliest",
    "latest",
];

/// One line per figure and run with a value. The columns of a change are only filled in the line of the
/// first run after it.
///
/// # Errors
/// The table cannot be encoded.
pub fn csv(history: &History) -> Result<String, ExportError> {
    let written = table(&HISTORY_HEADER, |writer| {
        for figure in history.figures.iter().filter(|figure| figure.is_tested()) {
            for run in 0..history.runs.len() {
                if let Some(line) = line(history, figure, run) {
                    writer.write_record(line)?;
                }
            }
        }
        Ok(())
    });
    written.map_err(|source| ExportError::Encode { file: "the CSV", source: source.into() })
}

fn line(history: &History, of: &FigureHistory, run: usize) -> Option<Vec<String>> {
    let value = of.values[run]?;
    let ratio = |ratio: Option<dbdyno_units::Ratio>| decimals(ratio.map(|ratio| ratio.get()), 6);
    let at = &history.runs[run];
    let figure = &of.figure;
    let level = of.levels.iter().find(|level| (level.first..=level.last).contains(&run));
    let level = level.map(|level| level.ratio);
    let point = of.points.iter().find(|point| point.after == run);
    let directory = |index: Option<usize>| {
        index.map_or_else(String::new, |index| history.runs[index].directory.clone())
    };
    Some(vec![
        figure.candidate.clone(),
        history.baseline.clone(),
        figure.group.clone(),
        figure.microbenchmark.clone().unwrap_or_default(),
        figure.clients.to_string(),
        figure.metric.name().to_owned(),
        at.directory.clone(),
        at.started.clone(),
        at.version_of(&figure.candidate).unwrap_or_default().to_owned(),
        ratio(Some(value.ratio)),
        ratio(value.interval.map(|(low, _)| low)),
        ratio(value.interval.map(|(_, high)| high)),
        if of.outliers.contains(&run) { "yes" } else { "no" }.to_owned(),
        ratio(level.map(|level| level.ratio)),
        ratio(level.map(|level| level.low)),
        ratio(level.map(|level| level.high)),
        ratio(point.map(|point| point.ratio.ratio)),
        ratio(point.map(|point| point.ratio.low)),
        ratio(point.map(|point| point.ratio.high)),
        point.map_or_else(String::new, |point| figure.metric.word(of.verdict(point)).to_owned()),
        point.map_or_else(String::new, |point| format!("{:.2e}", point.p_value)),
        directory(point.map(|point| point.before)),
        directory(point.map(|point| point.earliest)),
        directory(point.map(|point| point.latest)),
    ])
}
