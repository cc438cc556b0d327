//! Settings in which candidates differ from the baseline unintentionally.

use super::paint::{Paint, left, plain, width, wrap};
use crate::model::Report;

/// Settings shown per candidate: servers of two versions have dozens of different defaults.
const SHOWN: usize = 12;

/// Render a list per candidate; nothing if no setting differs.
pub(super) fn render(out: &mut String, report: &Report, room: usize, paint: Paint) {
    let differing =
        || report.candidates.iter().filter(|candidate| !candidate.config_diff.is_empty());
    let Some(names) = differing().map(|candidate| width(&candidate.name)).max() else { return };
    let names = names.min(20);
    out.push_str(&format!(
        "\n{}\n",
        paint.bold("settings that differ in effect from the baseline")
    ));
    for candidate in differing() {
        let mut label = left(&plain(&candidate.name), names);
        let rest = candidate.config_diff.len().saturating_sub(SHOWN);
        let rest = (rest > 0).then(|| format!("and {rest} more, listed in report.html"));
        for difference in candidate.config_diff.iter().take(SHOWN).chain(&rest) {
            for line in wrap(&plain(difference), room.saturating_sub(names + 2).max(20)) {
                out.push_str(&format!("{label}  {line}\n"));
                label = " ".repeat(width(&label));
            }
        }
    }
}
