//! The order of a bisect: good and bad, then midpoints, at last the commit that was found and its
//! parent. What is stored is not repeated.

use std::collections::BTreeMap;

use dbdyno_builds::{Commit, CommitRange, Fingerprint};
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::{Experiment, Profiling};
use dbdyno_stats::Side;
use dbdyno_types::Metric;

use super::BisectError;
use super::judgement::{BAD, FROM_MIDDLE, MIDPOINT, StepRatios, largest_difference};
use super::measuring::StepRun;
use super::record::{
    BisectDirectory, BisectRecord, BisectResult, CommitRecord, FigureRecord, FoundRecord,
    RatioRecord, StepRecord, StepVerdict,
};
use super::search::{Next, Position, Search};
use super::subject::Subject;
use crate::instance::data;
use crate::options::Options;
use crate::plan::cases::is_read_after_writes;
use crate::plan::stopping_rule::Figures;
use crate::session::progress::RunEvent;

/// The names of the candidates in the run of a step; a midpoint's is its commit.
const NAMES: [&str; 2] = ["good", "bad"];

/// The run directory of good and bad.
const ENDS: &str = "00-good-bad";

/// Exists while a step is built.
const SCRATCH: &str = "building";

pub(super) struct Bisect<'a> {
    pub subject: Subject<'a>,
    pub text: &'a str,
    pub options: &'a Options<'a>,
    pub directory: BisectDirectory,
    pub record: BisectRecord,
    pub range: CommitRange,
}

/// Why the search does not go on.
enum Halt {
    Result(BisectResult),
    Error(BisectError),
}

impl From<BisectError> for Halt {
    fn from(error: BisectError) -> Self {
        Self::Error(error)
    }
}

struct Judged {
    microbenchmark: String,
    metric: Metric,
    /// The side of good that bad is on.
    bad: Side,
}

impl Judged {
    fn of(figure: &FigureRecord) -> Self {
        let bad = Side::of(figure.difference.ratio);
        Self { microbenchmark: figure.microbenchmark.clone(), metric: figure.metric, bad }
    }
}

impl Bisect<'_> {
    pub fn run(mut self) -> Result<(BisectRecord, BisectResult), BisectError> {
        let ended = match self.record.result.take() {
            Some(result) => self.with_profile(result),
            None => self.search(),
        };
        let result = match ended {
            Ok(result) | Err(Halt::Result(result)) => result,
            Err(Halt::Error(error)) => return Err(error),
        };
        self.record.result = Some(result.clone());
        self.directory.write(&self.record)?;
        Ok((self.record, result))
    }

    /// A stored result, with a profile if one is wanted that it does not have.
    fn with_profile(&self, mut result: BisectResult) -> Result<BisectResult, Halt> {
        if let BisectResult::Found(found) = &mut result
            && found.profiled_in.is_none()
            && let Some(figure) = &self.record.figure
        {
            let profiled = self.profiled([&found.reference, &found.commit], &Judged::of(figure))?;
            found.profiled_in = profiled.map(|(.., directory)| directory);
        }
        Ok(result)
    }

    fn search(&mut self) -> Result<BisectResult, Halt> {
        let judged = Judged::of(&self.figure()?);
        let mut search = Search::new(self.parents());
        for step in &self.record.steps {
            self.add(&mut search, step)?;
        }
        loop {
            match search.next() {
                Next::Found(commit) => {
                    return Ok(BisectResult::Found(Box::new(self.found(commit, &judged)?)));
                }
                Next::OnlySkipped => return Ok(self.remaining(&search, None)),
                Next::Measure(commit) => {
                    let step = self.step(&search, commit, &judged)?;
                    self.record.steps.push(step.clone());
                    self.directory.write(&self.record)?;
                    self.add(&mut search, &step)?;
                }
            }
        }
    }

    /// The parents of each commit that are in the range, by position.
    fn parents(&self) -> Vec<Vec<Position>> {
        let commits = &self.range.commits;
        let positions: BTreeMap<&str, Position> =
            commits.iter().enumerate().map(|(at, commit)| (commit.id.as_str(), at)).collect();
        let of = |commit: &Commit| {
            commit.parents.iter().filter_map(|one| positions.get(one.as_str()).copied()).collect()
        };
        commits.iter().map(of).collect()
    }

    /// Adds the verdict of a step, which ends the search if there is none.
    fn add(&self, search: &mut Search, step: &StepRecord) -> Result<(), Halt> {
        if step.verdict == StepVerdict::Undecided {
            let undecided = Some(step.commit.clone());
            return Err(Halt::Result(self.remaining(search, undecided)));
        }
        let of_step = |commit: &Commit| commit.id == step.commit.commit;
        if let Some(commit) = self.range.commits.iter().position(of_step) {
            search.add(commit, step.verdict);
        }
        Ok(())
    }

    fn remaining(&self, search: &Search, undecided: Option<CommitRecord>) -> BisectResult {
        let remaining = search.remaining();
        let commits = remaining.iter().map(|commit| (&self.range.commits[*commit]).into());
        BisectResult::Range { commits: commits.collect(), undecided }
    }

    /// What is judged; measures good and bad unless that is known.
    fn figure(&mut self) -> Result<FigureRecord, Halt> {
        if let Some(figure) = &self.record.figure {
            return Ok(figure.clone());
        }
        let BisectRecord { good, bad, commits, request, .. } = &self.record;
        self.report(format!(
            "measuring good {} and bad {}, {commits} commits later",
            named(good),
            named(bad)
        ));
        let commits = [(NAMES[0], good.commit.as_str()), (NAMES[1], bad.commit.as_str())];
        let experiment = self.subject.at(&commits, request.microbenchmark.as_deref());
        let run = self.run_of(ENDS, &experiment, None);
        let builds = run.build()?.map_err(|reason| failed(NAMES[1], &reason))?;
        if let [good, bad, ..] = builds[..]
            && good == bad
        {
            return Err(Halt::Result(BisectResult::SameBuild { build: good }));
        }
        let measured = run.measure(|figures| {
            let rows: Vec<_> = (0..figures.cases.len())
                .map(|case| {
                    // A step measures it alone, on new data.
                    if is_read_after_writes(&figures.cases, case) {
                        return None;
                    }
                    let metric = figures.trusted_metric(case, BAD);
                    let estimate = figures.estimate(case, metric, BAD)?;
                    Some((estimate, figures.noise_floor(case, metric)))
                })
                .collect();
            largest_difference(&rows)
        })?;
        let (case, figures) = measured.map_err(|reason| failed(NAMES[1], &reason))?;
        let Some(case) = case else {
            let all = (0..figures.cases.len()).filter_map(|case| figure_of(&figures, case));
            return Err(Halt::Result(BisectResult::NoDifference { figures: all.collect() }));
        };
        let figure = figure_of(&figures, case);
        let figure = figure.ok_or_else(|| failed(NAMES[1], TOO_FEW_BLOCKS))?;
        self.report(format!(
            "  {} of bad, by {}: {}",
            figure.microbenchmark,
            figure.metric.title(),
            figure.difference.with_noise_floor()
        ));
        self.record.figure = Some(figure.clone());
        self.directory.write(&self.record)?;
        Ok(figure)
    }

    /// Builds and measures a midpoint.
    fn step(&self, search: &Search, commit: Position, judged: &Judged) -> Result<StepRecord, Halt> {
        let BisectRecord { good, bad, steps, .. } = &self.record;
        let commit = &self.range.commits[commit];
        let record = CommitRecord::from(commit);
        let measured = self.record.measured();
        self.report(format!(
            "step {} of about {}: measuring {}",
            measured + 1,
            measured + search.steps_left() as usize,
            named(&record)
        ));
        let commits = [
            (NAMES[0], good.commit.as_str()),
            (NAMES[1], bad.commit.as_str()),
            (commit.short(), commit.id.as_str()),
        ];
        let experiment = self.subject.at(&commits, Some(&judged.microbenchmark));
        let directory = format!("{:02}-{}", steps.len() + 1, commit.short());
        let Judged { metric, bad, .. } = *judged;
        let run = self.run_of(&directory, &experiment, Some(MIDPOINT));
        let not_measured = |verdict: StepVerdict, build, reason: String| {
            self.report(format!("  {}: {reason}", verdict.title()));
            StepRecord {
                commit: record.clone(),
                verdict,
                build,
                relative: None,
                from_middle: None,
                directory: None,
                reason: Some(reason),
            }
        };
        let build = match run.build()? {
            Ok(builds) => {
                if let Some((build, verdict, other)) = self.same_build(&builds) {
                    return Ok(not_measured(
                        verdict,
                        Some(build),
                        format!("same build as {other}"),
                    ));
                }
                builds.get(MIDPOINT as usize).copied()
            }
            Err(reason) => return Ok(not_measured(StepVerdict::Skipped, None, reason)),
        };
        let measured = run.measure(|figures| {
            let ratios = StepRatios {
                bad: figures.estimate(0, metric, BAD),
                from_middle: figures.contrast(0, metric, &FROM_MIDDLE),
                noise_floor: figures.noise_floor(0, metric),
            };
            ratios.verdict(bad)
        })?;
        let (verdict, figures) = match measured {
            Ok((verdict, figures)) => (verdict.unwrap_or(StepVerdict::Undecided), figures),
            Err(reason) => return Ok(not_measured(StepVerdict::Skipped, build, reason)),
        };
        let noise_floor = figures.noise_floor(0, metric);
        let ratio = |estimate| RatioRecord::new(&estimate, noise_floor);
        let step = StepRecord {
            commit: record.clone(),
            verdict,
            build,
            relative: figures.estimate(0, metric, MIDPOINT).map(ratio),
            from_middle: figures.contrast(0, metric, &FROM_MIDDLE).map(ratio),
            directory: Some(directory),
            reason: None,
        };
        if let (Some(relative), Some(from_middle)) = (step.relative, step.from_middle) {
            self.report(format!(
                "  {}: {} {relative}; relative to the middle between good and bad {from_middle}",
                verdict.title(),
                metric.title()
            ));
        }
        Ok(step)
    }

    /// Measures the commit that was found and its parent, which are built already.
    fn found(&self, commit: Position, judged: &Judged) -> Result<FoundRecord, Halt> {
        let BisectRecord { good, bad, figure, steps, .. } = &self.record;
        let commit = &self.range.commits[commit];
        let is_like_good = |step: &&StepRecord| {
            step.verdict == StepVerdict::LikeGood
                && commit.parents.first() == Some(&step.commit.commit)
        };
        let parent = steps.iter().find(is_like_good).map(|step| &step.commit);
        let reference = parent.unwrap_or(good).clone();
        let record = CommitRecord::from(commit);
        let pair = [&reference, &record];
        let with = |(relative, differs), profiled_in| FoundRecord {
            commit: record.clone(),
            reference: reference.clone(),
            relative,
            differs,
            profiled_in,
        };
        if let Some((relative, differs, directory)) = self.profiled(pair, judged)? {
            return Ok(with((relative, differs), Some(directory)));
        }
        if let Some(figure) = figure.as_ref().filter(|_| reference == *good && record == *bad) {
            return Ok(with((figure.difference, true), None));
        }
        self.report(format!("last step: measuring {} and {}", named(&record), named(&reference)));
        let directory = format!("found-{}", record.short());
        Ok(with(self.pair(pair, judged, &directory, None)?, None))
    }

    /// Measures a commit and its reference and samples their stacks, if that is wanted: the result of [`Self::pair`],
    /// and the run directory. If it fails, as where sampling is not permitted, the bisect ends without a profile.
    fn profiled(
        &self,
        pair: [&CommitRecord; 2],
        judged: &Judged,
    ) -> Result<Option<(RatioRecord, bool, String)>, Halt> {
        let Some(profiling) = self.subject.experiment.profile.clone() else { return Ok(None) };
        let [reference, commit] = pair.map(named);
        self.report(format!("last step: measuring {commit} and {reference}, with a profile"));
        let directory = format!("profile-{}", pair[1].short());
        match self.pair(pair, judged, &directory, Some(profiling)) {
            Ok((relative, differs)) => Ok(Some((relative, differs, directory))),
            Err(Halt::Error(error)) if !matches!(error, BisectError::Interrupted) => {
                self.report(format!("  no profile: {error}"));
                data::remove(&RunDirectory::at(&self.directory.path().join(directory)))
                    .map_err(BisectError::from)?;
                Ok(None)
            }
            Err(halt) => Err(halt),
        }
    }

    /// Measures a commit and its reference, which are built already: its figure relative to that, and whether it
    /// differs as bad does.
    fn pair(
        &self,
        [reference, commit]: [&CommitRecord; 2],
        judged: &Judged,
        directory: &str,
        profile: Option<Profiling>,
    ) -> Result<(RatioRecord, bool), Halt> {
        let name = if *reference == self.record.good { NAMES[0] } else { "parent" };
        let commits = [(name, reference.commit.as_str()), (commit.short(), commit.commit.as_str())];
        let experiment =
            Experiment { profile, ..self.subject.at(&commits, Some(&judged.microbenchmark)) };
        let metric = judged.metric;
        let run = self.run_of(directory, &experiment, None);
        run.build()?.map_err(|reason| failed(commit.short(), &reason))?;
        let measured = run.measure(|figures| {
            let estimate = figures.estimate(0, metric, BAD)?;
            let side = estimate.difference(figures.noise_floor(0, metric))?;
            Some(side == judged.bad)
        })?;
        let (differs, figures) = measured.map_err(|reason| failed(commit.short(), &reason))?;
        let estimate = figures.estimate(0, metric, BAD);
        let estimate = estimate.ok_or_else(|| failed(commit.short(), TOO_FEW_BLOCKS))?;
        let relative = RatioRecord::new(&estimate, figures.noise_floor(0, metric));
        Ok((relative, differs.unwrap_or(false)))
    }

    /// The verdict on a midpoint that is the same build as good, as bad, or as a commit that was measured, and
    /// the name of that; `builds` are those of good, bad and the midpoint. A build that is measured again could
    /// get another verdict by chance.
    fn same_build(&self, builds: &[Fingerprint]) -> Option<(Fingerprint, StepVerdict, String)> {
        let &[good, bad, midpoint, ..] = builds else { return None };
        let ends = [(good, StepVerdict::LikeGood), (bad, StepVerdict::LikeBad)];
        let named_ends = ends.into_iter().zip(NAMES.map(str::to_owned));
        let steps =
            self.record.steps.iter().filter_map(|step| {
                Some(((step.build?, step.verdict), step.commit.short().to_owned()))
            });
        let is_judged = |verdict| matches!(verdict, StepVerdict::LikeGood | StepVerdict::LikeBad);
        named_ends
            .chain(steps)
            .find(|((build, verdict), _)| *build == midpoint && is_judged(*verdict))
            .map(|((build, verdict), name)| (build, verdict, name))
    }

    fn run_of<'a>(
        &'a self,
        directory: &str,
        experiment: &'a Experiment,
        in_question: Option<u32>,
    ) -> StepRun<'a> {
        StepRun {
            directory: self.directory.path().join(directory),
            scratch: self.directory.path().join(SCRATCH),
            experiment,
            text: self.text,
            in_question,
            options: self.options,
        }
    }

    fn report(&self, line: String) {
        (self.options.progress)(RunEvent::Line(line));
    }
}

const TOO_FEW_BLOCKS: &str = "there are too few blocks for an interval";

fn failed(candidate: &str, reason: &str) -> Halt {
    Halt::Error(BisectError::of_candidate(candidate, "its measurement", reason))
}

/// The figure of bad in a microbenchmark; `None` with too few blocks.
fn figure_of(figures: &Figures, case: usize) -> Option<FigureRecord> {
    let metric = figures.trusted_metric(case, BAD);
    let estimate = figures.estimate(case, metric, BAD)?;
    Some(FigureRecord {
        microbenchmark: figures.cases[case].microbenchmark.name.clone(),
        metric,
        difference: RatioRecord::new(&estimate, figures.noise_floor(case, metric)),
    })
}

/// A commit for people: its first digits and its subject.
fn named(commit: &CommitRecord) -> String {
    format!("{} '{}'", commit.short(), commit.subject)
}
