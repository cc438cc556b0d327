//! `dbdyno compare --each-option`: which of the settings matter in which a candidate differs from the baseline.
//!
//! The candidate with all settings is measured beside candidates without one of them. A screening in one start finds
//! those that may count; of many settings, it leaves out groups, and divides the groups that differ. What it finds is
//! then measured as long as any comparison.

use std::fmt::Write as _;
use std::iter::repeat_n;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_report::model::Report;
use dbdyno_report::{OptionEffect, option_effects};
use dbdyno_results::RunReader;
use dbdyno_run::{
    Options, Outcome, RunError, RunEvent, RunPlan, TimeRange, continue_run, start_run,
};
use dbdyno_spec::compare::{Difference, OptionWords, option_words};
use dbdyno_spec::experiment::Experiment;
use dbdyno_units::counted;

use crate::commands::compare::{Comparison, installed};
use crate::commands::report::assembled;
use crate::commands::session::{
    directory_or, note_if_resumed, note_left_out, options, stop_run_on_signals, stopped_in,
};
use crate::error::CliError;
use crate::output::{self, Display};

/// Most candidates of a run that leave something out: each is a server with a copy of the data, beside that with all
/// settings, its control, and the baseline.
const MOST: usize = 6;

/// Most settings: more would take more screenings than anybody waits for.
const MOST_SETTINGS: usize = 60;

/// The name of the candidate with all settings.
const ALL: &str = "all-settings";

/// Numbers of settings that are left out together.
type Group = Vec<usize>;

pub fn each_option(comparison: &Comparison<'_>) -> Result<ExitCode, CliError> {
    let asked = comparison.options.time.as_deref();
    let described = comparison.describe(comparison.candidates, asked, false)?;
    note_left_out(&described.experiment);
    let words = option_words(comparison.candidates, &described.experiment, &installed)
        .map_err(|problems| CliError::Experiment(problems.to_string()))?;
    let settings = &words.differences;
    if settings.len() > MOST_SETTINGS {
        return Err(CliError::Usage(format!(
            "the candidates differ in {} settings, and --each-option takes at most {MOST_SETTINGS}: move some of them \
             to both candidates",
            settings.len()
        )));
    }
    let baseline = described.experiment.baseline.clone();
    let name = format!("{}-each-option", described.experiment.name);
    // A third of the time is for the first screening.
    let part = |thirds: u64| {
        described.asked.map(|time| format!("{}ms", (time.as_nanos() * thirds / 3_000_000).max(1)))
    };
    let search = Search {
        comparison,
        words: &words,
        baseline: &baseline,
        directory: &directory_or(comparison.out, &name),
        cancel: stop_run_on_signals()?,
        screening: part(1),
        measuring: part(2),
    };
    match search.run()? {
        Some(found) => {
            output::print(&found.text(settings, &baseline, search.directory));
            let has_failures = found.has_failures || !found.failed.is_empty();
            Ok(if has_failures { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        None => Ok(stopped_in(search.directory)),
    }
}

struct Search<'a> {
    comparison: &'a Comparison<'a>,
    words: &'a OptionWords,
    baseline: &'a str,
    directory: &'a Path,
    cancel: Arc<AtomicBool>,
    /// Measuring time of a screening, and of the last run.
    screening: Option<String>,
    measuring: Option<String>,
}

/// What was found about settings, by their numbers.
#[derive(Debug, Default)]
struct Found {
    counting: Vec<(Group, OptionEffect)>,
    /// Without a difference, or with one that may be hidden by noise.
    others: Vec<(Group, OptionEffect)>,
    /// Without which nothing could be judged, and why.
    failed: Vec<(Group, String)>,
    /// Whether a candidate failed, in a part of what was measured at least.
    has_failures: bool,
    /// That the baseline has in force anyway.
    same: Group,
    /// Without any of them.
    none: Option<OptionEffect>,
    /// Settings of which the baseline has dbdyno's own values.
    beside_defaults: Vec<String>,
}

impl Search<'_> {
    /// `None` if the user stopped it.
    fn run(&self) -> Result<Option<Found>, CliError> {
        let mut found = Found::default();
        let every: Group = (0..self.words.differences.len()).collect();
        if !self.directory.join("screening-1").exists() {
            self.announce(&every)?;
        }
        let mut pending = divide(&every);
        let mut candidates: Vec<Group> = Vec::new();
        for number in 1.. {
            if pending.is_empty() {
                break;
            }
            let groups: Vec<Group> = pending.drain(..pending.len().min(MOST)).collect();
            let name = format!("screening-{number}");
            let Some(report) = self.measure(&name, &groups, true)? else { return Ok(None) };
            let effects = option_effects(&report);
            found.has_failures |= !report.failures.is_empty();
            found.none = found.none.or_else(|| effect_of(&effects, self.baseline).ok());
            if number == 1 {
                found.same = self.without_effect(&name)?;
                let none = effects.iter().filter(|one| one.candidate == self.baseline);
                let texts = none.flat_map(|one| &one.beside_defaults);
                let words = self.words_of(&[]);
                found.beside_defaults = texts.map(|text| in_words(text, &words)).collect();
            }
            for (mut group, effect) in self.with_effects(groups, &effects) {
                group.retain(|setting| !found.same.contains(setting));
                match effect {
                    _ if group.is_empty() => {}
                    Err(why) => found.failed.push((group, why)),
                    Ok(one) if !one.found.is_empty() && group.len() > 1 => {
                        pending.extend(divide(&group));
                    }
                    Ok(one)
                        if !one.found.is_empty() || (one.is_too_noisy() && group.len() == 1) =>
                    {
                        candidates.push(group);
                    }
                    Ok(one) => found.others.push((group, one)),
                }
            }
        }
        for (number, groups) in (1..).zip(candidates.chunks(MOST)) {
            let name = format!("measured-{number}");
            let Some(report) = self.measure(&name, groups, false)? else { return Ok(None) };
            let effects = option_effects(&report);
            found.has_failures |= !report.failures.is_empty();
            if number == 1 {
                found.none = effect_of(&effects, self.baseline).ok().or(found.none);
            }
            for (group, effect) in self.with_effects(groups.to_vec(), &effects) {
                match effect {
                    Err(why) => found.failed.push((group, why)),
                    Ok(effect) if effect.found.is_empty() => found.others.push((group, effect)),
                    Ok(effect) => found.counting.push((group, effect)),
                }
            }
        }
        Ok(Some(found))
    }

    /// Prints how long everything takes: if no setting counts, and if each does.
    fn announce(&self, every: &[usize]) -> Result<(), CliError> {
        let time = |groups: &[Group], is_screening| -> Result<TimeRange, CliError> {
            let plan = RunPlan::of(&self.describe(groups, is_screening)?.experiment);
            Ok(plan.time.map(|time| time.total()).unwrap_or_default())
        };
        let alone: Vec<Group> = every.iter().take(MOST).map(|setting| vec![*setting]).collect();
        let (screening, run) = (time(&divide(every), true)?, time(&alone, false)?);
        output::note(&announcement(every.len(), screening, run));
        Ok(())
    }

    /// The experiment with all settings, none of them, and all without each group.
    fn describe(
        &self,
        groups: &[Group],
        is_screening: bool,
    ) -> Result<dbdyno_spec::compare::Comparison, CliError> {
        let every: Group = (0..self.words.differences.len()).collect();
        let mut candidates =
            vec![self.words.word(ALL, &[]), self.words.word(self.baseline, &every)];
        candidates.extend(groups.iter().map(|group| self.words.word(&self.name_of(group), group)));
        let time = if is_screening { &self.screening } else { &self.measuring };
        self.comparison.describe(&candidates, time.as_deref(), is_screening)
    }

    /// Measures all settings, none of them, and all without each group. `None` if the user stopped it.
    fn measure(
        &self,
        name: &str,
        groups: &[Group],
        is_screening: bool,
    ) -> Result<Option<Report>, CliError> {
        let described = self.describe(groups, is_screening)?;
        let settings: usize = groups.iter().map(Vec::len).sum();
        let what = match (is_screening, settings == groups.len()) {
            (true, true) => {
                format!("screening: {}, each left out once", counted(settings as u64, "setting"))
            }
            (true, false) => format!(
                "screening: {settings} settings in {}, each left out once",
                counted(groups.len() as u64, "group")
            ),
            (false, _) => format!("measuring settings that may count: {settings}"),
        };
        output::note(&what);
        let directory = self.directory.join(name);
        let display = Display::with_plan();
        let words = self.words_of(groups);
        let progress = |event: RunEvent<'_>| match event {
            RunEvent::Warnings(all) => {
                let mut all = all.to_vec();
                all.iter_mut().for_each(|one| one.what = in_words(&one.what, &words));
                display.show(&RunEvent::Warnings(&all));
            }
            event => display.show(&event),
        };
        let run_options = Options {
            cache: self.comparison.session.cache.clone(),
            keep_data: self.comparison.session.keep_data,
            ..options(Arc::clone(&self.cancel), &progress)?
        };
        let outcome = start_or_continue(&directory, &described, &run_options);
        display.finish();
        match outcome? {
            Outcome::Complete { .. } => Ok(Some(assembled(&directory)?)),
            Outcome::Interrupted { if_resumed } => {
                note_if_resumed(if_resumed.as_ref());
                Ok(None)
            }
        }
    }

    /// The settings that a run found to have the same value in force in the baseline.
    fn without_effect(&self, name: &str) -> Result<Group, CliError> {
        let candidates = RunReader::open(&self.directory.join(name))?.candidates()?;
        let baseline = candidates.into_iter().find(|one| one.name == self.baseline);
        let names = baseline.map(|one| one.in_force.without_effect).unwrap_or_default();
        let all = (0..).zip(&self.words.differences);
        let same = all.filter(|(_, one)| names.iter().any(|name| name == one.setting_name()));
        Ok(same.map(|(number, _)| number).collect())
    }

    /// The name of the candidate without a group.
    fn name_of(&self, group: &Group) -> String {
        let all = &self.words.differences;
        let name = all[group[0]].name();
        let is_unique = all.iter().filter(|one| one.name() == name).count() == 1;
        match (&group[..], is_unique && name.len() < 80) {
            ([_], true) => format!("without-{name}"),
            ([number], false) => format!("without-setting-{}", number + 1),
            _ => format!("without-{}-to-{}", group[0] + 1, group[group.len() - 1] + 1),
        }
    }

    /// What the candidates of a run are, by their names; a name that begins another is after it.
    fn words_of(&self, groups: &[Group]) -> Vec<(String, String)> {
        let all = "the candidate with all settings".to_owned();
        let mut words = vec![(format!("the baseline {ALL}"), all.clone()), (ALL.to_owned(), all)];
        words.extend(groups.iter().map(|group| {
            let settings = texts(&self.words.differences, group);
            (self.name_of(group), format!("the candidate without {settings}"))
        }));
        words.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        words
    }

    /// The effect of leaving out each group, or why it is not known.
    fn with_effects(
        &self,
        groups: Vec<Group>,
        effects: &[OptionEffect],
    ) -> Vec<(Group, Result<OptionEffect, String>)> {
        let effect = |group: &Group| effect_of(effects, &self.name_of(group));
        groups.into_iter().map(|group| (group.clone(), effect(&group))).collect()
    }
}

/// A text that says what candidates are instead of their names.
fn in_words(text: &str, words: &[(String, String)]) -> String {
    words.iter().fold(text.to_owned(), |text, (name, words)| text.replace(name, words))
}

fn texts(settings: &[Difference], group: &Group) -> String {
    group.iter().map(|number| settings[*number].text()).collect::<Vec<_>>().join(", ")
}

/// The effect of a candidate, or why nothing of it could be judged.
fn effect_of(effects: &[OptionEffect], candidate: &str) -> Result<OptionEffect, String> {
    let effect = effects.iter().find(|one| one.candidate == candidate).ok_or("it failed")?;
    let is_judged = !effect.found.is_empty() || effect.within.is_some();
    if is_judged { Ok(effect.clone()) } else { Err(effect.unknown.join("; ")) }
}

/// ` (not judged: scan: QPS: client-bound)`
fn not_judged(effect: &OptionEffect) -> String {
    let unknown = effect.unknown.join("; ");
    if unknown.is_empty() { unknown } else { format!(" (not judged: {unknown})") }
}

/// At most [`MOST`] parts of about the same size.
fn divide(group: &[usize]) -> Vec<Group> {
    group.chunks(group.len().div_ceil(MOST).max(1)).map(<[usize]>::to_vec).collect()
}

/// How long everything takes: if no setting counts, which a screening finds, and if each does.
fn announcement(settings: usize, screening: TimeRange, run: TimeRange) -> String {
    let (screenings, runs) = (most_screenings(settings), settings.div_ceil(MOST));
    let all: TimeRange = repeat_n(screening, screenings).chain(repeat_n(run, runs)).sum();
    let screenings = match screenings {
        1 => "a screening".to_owned(),
        most => format!("{most} screenings"),
    };
    let runs = match runs {
        1 => "a longer run".to_owned(),
        most => format!("{most} longer runs"),
    };
    format!(
        "about {screening} for a screening if no setting counts; about {all} for {screenings} and {runs} if all do"
    )
}

/// The number of screenings if each setting makes a difference.
fn most_screenings(settings: usize) -> usize {
    let every: Group = (0..settings).collect();
    let (mut pending, mut count) = (divide(&every), 0);
    while !pending.is_empty() {
        let groups: Vec<Group> = pending.drain(..pending.len().min(MOST)).collect();
        pending.extend(groups.iter().filter(|group| group.len() > 1).flat_map(|one| divide(one)));
        count += 1;
    }
    count
}

/// Continues the run with this experiment if it is in the directory, else starts it.
fn start_or_continue(
    directory: &Path,
    described: &dbdyno_spec::compare::Comparison,
    options: &Options<'_>,
) -> Result<Outcome, RunError> {
    let stored = RunReader::open(directory)
        .and_then(|run| Ok((run.experiment_text()?, run.experiment::<Experiment>()?)));
    // The text only names the files of `--script` and `--setup`.
    let is_stored = |(text, experiment): (String, Experiment)| {
        text == described.text && experiment == described.experiment
    };
    match stored.is_ok_and(is_stored) {
        true => continue_run(directory, options),
        false => start_run(&described.experiment, &described.text, directory, options),
    }
}

impl Found {
    fn text(&self, settings: &[Difference], baseline: &str, directory: &Path) -> String {
        let names = |group: &Group| texts(settings, group);
        let count = |groups: &mut dyn Iterator<Item = &Group>| groups.map(Vec::len).sum::<usize>();
        let noisy = self.others.iter().filter(|(_, effect)| effect.is_too_noisy());
        let unknown = count(&mut noisy.map(|(group, _)| group))
            + count(&mut self.failed.iter().map(|(group, _)| group));
        let mut rest = String::new();
        let all = settings.len();
        let counting = self.counting.iter().filter(|(_, effect)| effect.counts).count();
        if self.counting.len() > counting {
            let doubtful = self.counting.len() - counting;
            let _ = write!(rest, "; of {doubtful} the difference may be noise");
        }
        if unknown > 0 {
            let _ = write!(rest, "; of {unknown} this is not known");
        }
        let mut text = format!("\n{counting} of {all} settings count{rest}\n");
        for (group, effect) in &self.counting {
            let _ = writeln!(text, "  {}", names(group));
            for (microbenchmark, words) in &effect.found {
                let line = format!("without it {words} on {microbenchmark}");
                output::wrapped(&mut text, "    ", &line);
            }
        }
        for is_noisy in [false, true] {
            let is_of_kind = |effect: &OptionEffect| effect.is_too_noisy() == is_noisy;
            let of_kind = || self.others.iter().filter(|(_, effect)| is_of_kind(effect));
            let hidden = OptionEffect::hidden(of_kind().map(|(_, effect)| effect));
            let Some(hidden) = hidden else { continue };
            let listed = of_kind().map(|(group, effect)| match group.len() {
                1 => names(group) + &not_judged(effect),
                _ => format!(
                    "[{}] (only left out together: opposite effects would cancel){}",
                    names(group),
                    not_judged(effect)
                ),
            });
            let listed: Vec<String> = listed.collect();
            let _ = match is_noisy {
                false => writeln!(text, "  no difference above {hidden} was found without one of"),
                true => writeln!(text, "  too noisy to tell, up to {hidden}, without one of"),
            };
            output::wrapped(&mut text, "    ", &listed.join(", "));
        }
        if !self.same.is_empty() {
            let head = format!("  the same in {baseline} anyway: ");
            output::wrapped(&mut text, &head, &names(&self.same));
        }
        for (group, why) in &self.failed {
            let line = format!("{} ({why})", names(group));
            output::wrapped(&mut text, "  not judged without ", &line);
        }
        if let Some(none) = &self.none {
            let differences: Vec<String> =
                none.found.iter().map(|(on, words)| format!("{words} on {on}")).collect();
            let words = match (differences.is_empty(), none.is_too_noisy()) {
                (true, true) => format!("too noisy to tell, up to {}", none.within_words()),
                (true, false) => format!("no difference found (within {})", none.within_words()),
                (false, _) => differences.join("; "),
            };
            let _ = writeln!(text, "  without all of them, as {baseline}");
            output::wrapped(&mut text, "    ", &(words + &not_judged(none)));
            let are_alone = self.others.iter().all(|(group, _)| group.len() == 1);
            let is_known = unknown == 0 && are_alone && !self.has_failures;
            if self.counting.is_empty() && is_known && !none.found.is_empty() {
                text.push_str(
                    "Together they count and none of them alone: one may do what another does, too.\n",
                );
            }
        }
        for line in &self.beside_defaults {
            output::wrapped(&mut text, "  default  ", line);
        }
        let _ = writeln!(
            text,
            "Differences are relative to all settings. The runs are the directories in {0}: `dbdyno report {0}/NAME` \
             shows one.",
            directory.display()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_units::{Nanos, Share};

    use super::*;

    #[test]
    fn many_settings_are_divided_into_few_groups() {
        let numbers = |count: usize| (0..count).collect::<Group>();
        assert_eq!(divide(&numbers(3)), [[0], [1], [2]]);
        assert_eq!(divide(&numbers(8)), [[0, 1], [2, 3], [4, 5], [6, 7]]);
        for count in 1..=MOST_SETTINGS {
            let groups = divide(&numbers(count));
            assert!(groups.len() <= MOST, "{count}");
            assert_eq!(groups.concat(), numbers(count));
        }
        // 4 groups, then 8 settings; 6 groups, 30, then 60 settings.
        assert_eq!([1, 6, 8, 60].map(most_screenings), [1, 1, 3, 16]);
    }

    #[test]
    fn announced_time_says_what_it_depends_on() {
        let range = |least, most| {
            let [least, most] = [least, most].map(Nanos::from_secs);
            TimeRange { least, most }
        };
        let announced = |settings| announcement(settings, range(20, 20), range(50, 90));
        assert_eq!(
            announced(2),
            "about 20 s for a screening if no setting counts; about 70 s to 2 min for a screening \
             and a longer run if all do"
        );
        assert_eq!(
            announced(8),
            "about 20 s for a screening if no setting counts; about 2.5 to 4 min for 3 screenings \
             and 2 longer runs if all do"
        );
    }

    #[test]
    fn warnings_say_what_candidates_are() {
        let words = [
            ("the baseline all-settings", "the candidate with all settings"),
            ("without-sync_binlog", "the candidate without sync_binlog=1"),
            ("without-sync", "the candidate without sync=2"),
        ];
        let words = words.map(|(name, words)| (name.to_owned(), words.to_owned()));
        let what = "no difference in sync_binlog: it is 1 in without-sync_binlog already, and the \
                    baseline all-settings sets 1";
        assert_eq!(
            in_words(what, &words),
            "no difference in sync_binlog: it is 1 in the candidate without sync_binlog=1 already, \
             and the candidate with all settings sets 1"
        );
    }

    #[test]
    fn answer_names_what_counts_and_what_is_not_known() {
        let setting = |name: &str| Difference {
            setting: name.to_owned(),
            own: Some("1".to_owned()),
            baseline: None,
        };
        let settings = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(setting);
        let effect = |found: &[(&str, &str)], within: Option<f64>| OptionEffect {
            candidate: "any".to_owned(),
            found: found
                .iter()
                .map(|(on, words)| ((*on).to_owned(), (*words).to_owned()))
                .collect(),
            counts: found.iter().any(|(_, words)| !words.contains("noise")),
            within: within.map(Share::from_percent),
            metrics: ["QPS"].into(),
            unknown: Vec::new(),
            beside_defaults: Vec::new(),
        };
        let bound = OptionEffect {
            unknown: vec!["scan: QPS: client-bound".to_owned()],
            ..effect(&[], Some(2.0))
        };
        let found = Found {
            counting: vec![
                (vec![0], effect(&[("point", "45% less QPS (43% to 47%)")], None)),
                (vec![8], effect(&[("point", "3% less QPS; may be noise")], None)),
            ],
            others: vec![
                (vec![1], effect(&[], Some(2.1))),
                (vec![6, 7], effect(&[], Some(1.5))),
                (vec![2], bound),
                (vec![3], effect(&[], Some(95.0))),
            ],
            failed: vec![(vec![4], "point: QPS: failed".to_owned())],
            has_failures: false,
            same: vec![5],
            none: Some(effect(&[], Some(3.0))),
            beside_defaults: vec!["all sets a = 1; mariadb has 2".to_owned()],
        };
        assert_eq!(
            found.text(&settings, "mariadb", Path::new("/results/x")),
            "
1 of 9 settings count; of 1 the difference may be noise; of 2 this is not known
  a=1
    without it 45% less QPS (43% to 47%) on point
  i=1
    without it 3% less QPS; may be noise on point
  no difference above 2.1% in QPS was found without one of
    b=1, [g=1, h=1] (only left out together: opposite effects would cancel), c=1
    (not judged: scan: QPS: client-bound)
  too noisy to tell, up to 95% in QPS, without one of
    d=1
  the same in mariadb anyway: f=1
  not judged without e=1 (point: QPS: failed)
  without all of them, as mariadb
    no difference found (within 3% in QPS)
  default  all sets a = 1; mariadb has 2
Differences are relative to all settings. The runs are the directories in /results/x: `dbdyno report /results/x/NAME` shows one.
"
        );
    }
}
