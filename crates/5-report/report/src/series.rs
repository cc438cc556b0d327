//! Series of candidates: what the terminal report and the HTML page share.

use crate::figures::{percent_change, ratio};
use crate::model::{Report, Series, SeriesChange, SeriesRow, Verdict};

/// What the section shows.
pub(crate) const KEY: &str = "Throughput relative to the first candidate of the series, in percent: +10 is 10% more. A group is \
     the geometric mean of its microbenchmarks.";

/// Changes that are listed.
pub(crate) const LISTED: usize = 10;

/// Candidates of which tables with a column for each are readable.
const MOST_COLUMNS: usize = 8;

/// Whether the results are shown by series first, because there are too many candidates for tables
/// with a column for each.
pub(crate) fn comes_first(report: &Report) -> bool {
    !report.series.is_empty() && report.candidates.len() > MOST_COLUMNS
}

/// The groups in the order of the other tables; their microbenchmarks in running order.
pub(crate) fn sort_by_group(rows: &mut [SeriesRow]) {
    rows.sort_by(|a, b| a.group.cmp(&b.group));
}

impl Series {
    /// The candidates' names without what all of them have in common.
    pub(crate) fn short_names(&self) -> Vec<String> {
        short_names(&self.candidates)
    }

    /// The changes that are more than noise, or have no interval; the largest first.
    pub(crate) fn listed(&self) -> Vec<&SeriesChange> {
        self.changes.iter().filter(|change| change.is_listed()).collect()
    }

    /// What the list of changes contains, and what chance explains.
    pub(crate) fn about_changes(&self, report: &Report) -> String {
        let count = |is: &dyn Fn(&SeriesChange) -> bool| {
            self.changes.iter().filter(|change| is(change)).count()
        };
        let certain = count(&|change| change.is_certain());
        let tested = count(&|change| change.is_tested());
        let single = count(&|change| change.verdict == Verdict::NoInterval);
        match (tested, single) {
            (0, 0) => return "No difference between neighbours has a verdict.".to_owned(),
            (0, _) => {
                return format!(
                    "Differences between neighbours, the largest of {single}. Single values have no \
                     interval: noise is among them."
                );
            }
            _ => {}
        }
        let by_chance = (tested as f64 * 0.05).round();
        let floor = match report.noise {
            Some(_) => ", and some of these are also outside the noise floor",
            None if report.has_control() => "; the noise floor is unknown",
            None => "; there is no control that would show the noise",
        };
        let mut text = format!(
            "{certain} of {tested} differences between neighbours are more than noise. Of so \
             many, about {by_chance} are outside their 95% interval by chance{floor}."
        );
        if single > 0 {
            text.push_str(&format!(
                " {single} more are of single values, without an interval: noise is among them."
            ));
        }
        text
    }
}

/// A difference as text: `+12.3%`.
pub(crate) fn difference(of: &SeriesChange) -> String {
    percent_change(of.ratio)
}

/// The interval of a difference: `+11.0% to +13.1%`; a word if there is none.
pub(crate) fn interval(of: &SeriesChange) -> String {
    of.relative_qps.map_or_else(
        || "no interval".to_owned(),
        |estimate| format!("{} to {}", percent_change(estimate.low), percent_change(estimate.high)),
    )
}

/// A change in words, for tooltips.
pub(crate) fn in_words(of: &SeriesChange) -> String {
    format!("{}: {} times {}", of.to, ratio(of.ratio), of.from)
}

/// The names without the words that all start or end with. Words end at `_`, `-`, `.`, a space and
/// similar characters; a name keeps at least one word.
pub(crate) fn short_names(names: &[String]) -> Vec<String> {
    let words: Vec<Vec<&str>> = names.iter().map(|name| words_of(name)).collect();
    let fewest = words.iter().map(Vec::len).min().unwrap_or(0);
    let Some(first) = words.first().filter(|_| names.len() > 1 && fewest > 1) else {
        return names.to_vec();
    };
    let same = |at: &dyn Fn(&[&str]) -> usize| {
        let word = first[at(first)];
        words.iter().all(|one| one[at(one)] == word)
    };
    let start = (0..fewest - 1).take_while(|&n| same(&|_| n)).count();
    let end = (1..fewest - start).take_while(|&n| same(&|words| words.len() - n)).count();
    let short = words.iter().map(|words| words[start..words.len() - end].concat());
    let separators = |c: char| is_separator(c);
    short.map(|name| name.trim_matches(separators).to_owned()).collect()
}

/// Words with the separator after each. A digit after a digit and a point is of the same word, so that
/// versions stay whole.
fn words_of(name: &str) -> Vec<&str> {
    let bytes = name.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut words = Vec::new();
    let mut start = 0;
    for (at, c) in name.char_indices() {
        let in_version = c == '.' && at > 0 && is_digit(at - 1) && is_digit(at + 1);
        if is_separator(c) && !in_version {
            words.push(&name[start..at + c.len_utf8()]);
            start = at + c.len_utf8();
        }
    }
    if start < name.len() {
        words.push(&name[start..]);
    }
    words
}

const fn is_separator(c: char) -> bool {
    matches!(c, '_' | '-' | '.' | ' ' | '/' | '+' | ',')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn short(names: &[&str]) -> Vec<String> {
        short_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn only_changes_with_an_interval_are_counted_as_more_than_noise() {
        let mut report = sample::series(6);
        let mut series = report.series.remove(0);
        let all = series.changes.len();
        assert!(series.about_changes(&report).contains(&format!(" of {all} differences")));
        let verdicts = [Verdict::Failed, Verdict::ClientBound, Verdict::Unknown];
        for (change, verdict) in series.changes.iter_mut().zip(verdicts) {
            change.verdict = verdict;
        }
        let tested = format!(" of {} differences", all - 3);
        assert!(series.about_changes(&report).contains(&tested), "{tested}");
        series.changes[0].verdict = Verdict::Better;
        for change in &mut series.changes[1..] {
            (change.relative_qps, change.verdict) = (None, Verdict::NoInterval);
        }
        let mixed = series.about_changes(&report);
        assert!(mixed.starts_with("1 of 1 differences between neighbours are more"), "{mixed}");
        assert!(mixed.contains(&format!(" {} more are of single values", all - 1)), "{mixed}");
        (series.changes[0].relative_qps, series.changes[0].verdict) = (None, Verdict::NoInterval);
        let single = series.about_changes(&report);
        assert!(single.contains(&format!("the largest of {all}. Single")), "{single}");
        for change in &mut series.changes {
            change.verdict = Verdict::Unknown;
        }
        let unknown = series.about_changes(&report);
        assert_eq!(unknown, "No difference between neighbours has a verdict.");
    }

    #[test]
    fn names_lose_what_they_share() {
        let names = ["ma100244_rel_withdbg.z12a_c32r128", "ma100339_rel_withdbg.z12a_c32r128"];
        assert_eq!(short(&names), ["ma100244", "ma100339"]);
        assert_eq!(short(&["mariadb-10.5", "mariadb-10.11"]), ["10.5", "10.11"]);
        assert_eq!(short(&["mariadb-10.11.1", "mariadb-10.11.2"]), ["10.11.1", "10.11.2"]);
        assert_eq!(short(&["a_x", "a_x"]), ["x", "x"]);
        assert_eq!(short(&["a", "b"]), ["a", "b"]);
        assert_eq!(short(&["only_one"]), ["only_one"]);
        assert_eq!(short(&["a-1", "a-1-b"]), ["1", "1-b"]);
    }
}
