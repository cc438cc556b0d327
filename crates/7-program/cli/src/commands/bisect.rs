//! `dbdyno bisect`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dbdyno_report::export;
use dbdyno_report::model::{ProfileDifference, Role};
use dbdyno_run::{
    BisectEnd, BisectRecord, BisectRequest, BisectResult, CommitRecord, FigureRecord, FoundRecord,
    Options, RatioRecord,
};
use dbdyno_types::Metric;
use dbdyno_units::{Share, counted};
use serde::Serialize;

use crate::args::Bisect;
use crate::commands::export_file;
use crate::commands::report::assembled;
use crate::commands::session::{
    directory_or, options, read_experiment, stop_run_on_signals, stopped_in,
};
use crate::error::CliError;
use crate::output::{self, Display};

pub fn bisect(args: &Bisect) -> Result<ExitCode, CliError> {
    let (mut experiment, text) = read_experiment(&args.file)?;
    if args.profile {
        experiment.profile.get_or_insert_default();
    }
    export_file::check_all(&[&args.export_json])?;
    let directory = directory_or(args.out.as_deref(), &format!("{}-bisect", experiment.name));
    let cancel = stop_run_on_signals()?;
    let display = Display::new();
    let progress = |event: dbdyno_run::RunEvent<'_>| display.show(&event);
    let options = Options { cache: args.cache.clone(), ..options(cancel, &progress)? };
    let request = BisectRequest {
        experiment: &experiment,
        text: &text,
        candidate: args.candidate.as_deref(),
        microbenchmark: args.microbenchmark.as_deref(),
        good: &args.good,
        bad: &args.bad,
        first_parent: args.first_parent,
        directory: &directory,
    };
    let end = dbdyno_run::bisect(&request, &options);
    display.finish();
    match end? {
        BisectEnd::Complete(record, result) => {
            let profiled = Profiled::of(&directory, &result);
            if let Some(file) = &args.export_json {
                export_file::write(file, &json(&record, profiled.as_ref())?)?;
            }
            conclude(&record, &result, profiled.as_ref())
        }
        BisectEnd::Interrupted => Ok(stopped_in(&directory)),
    }
}

/// The commit that was found compared with its reference by samples of their stacks.
struct Profiled {
    run: PathBuf,
    /// Or why it is unknown.
    profile: Result<ProfileDifference, String>,
}

impl Profiled {
    /// `None` if no stacks were sampled.
    fn of(directory: &Path, result: &BisectResult) -> Option<Self> {
        let BisectResult::Found(found) = result else { return None };
        let run = directory.join(found.profiled_in.as_ref()?);
        let assembled = assembled(&run).map_err(|error| CliError::from(error).to_string());
        let profile = assembled.and_then(|report| {
            let mut rows = report.microbenchmarks.into_iter().flat_map(|one| one.rows);
            let row = rows.find(|row| row.role == Role::Candidate);
            row.and_then(|row| row.profile).ok_or_else(|| "no stacks were sampled".to_owned())
        });
        Some(Self { run, profile: profile.map_err(|reason| format!("unknown: {reason}")) })
    }

    fn lines(&self) -> String {
        match &self.profile {
            Ok(profile) => {
                let facts = profile.facts();
                let facts = facts.iter().map(|(what, text)| format!("  {what:<12} {text}\n"));
                let run = self.run.display();
                format!(
                    "{}  profile      changes of CPU time per query; all of them: dbdyno why {run}\n",
                    facts.collect::<String>()
                )
            }
            Err(reason) => format!("  functions    {reason}\n"),
        }
    }
}

/// Prints the result. Returns success if the commit was found.
fn conclude(
    record: &BisectRecord,
    result: &BisectResult,
    profiled: Option<&Profiled>,
) -> Result<ExitCode, CliError> {
    match result {
        BisectResult::Found(found) => {
            output::print(&text_of_found(record, found, profiled));
            Ok(if found.differs { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        BisectResult::Range { commits, undecided } => {
            output::print(&range(record, commits));
            Err(CliError::Other(why_range(record, undecided.as_ref())))
        }
        BisectResult::SameBuild { build } => {
            Err(CliError::Other(same_build(record, &build.short())))
        }
        BisectResult::NoDifference { figures } => {
            Err(CliError::Other(no_difference(record, figures)))
        }
    }
}

/// The content of `bisect.json`, with the profile.
fn json(record: &BisectRecord, profiled: Option<&Profiled>) -> Result<String, CliError> {
    #[derive(Serialize)]
    struct Exported<'a> {
        #[serde(flatten)]
        record: &'a BisectRecord,
        #[serde(skip_serializing_if = "Option::is_none")]
        profile: Option<&'a ProfileDifference>,
    }
    let profile = profiled.and_then(|profiled| profiled.profile.as_ref().ok());
    let text = serde_json::to_string_pretty(&Exported { record, profile });
    text.map(|text| text + "\n").map_err(|error| {
        export::ExportError::Encode { file: "bisect.json", source: error.into() }.into()
    })
}

fn text_of_found(
    record: &BisectRecord,
    found: &FoundRecord,
    profiled: Option<&Profiled>,
) -> String {
    let FoundRecord { commit, reference, relative, differs, .. } = found;
    let mut text = format!(
        "\n{} is the first commit with the figure of bad\n  author date  {}\n  subject      {}\n",
        commit.commit, commit.author_date, commit.subject
    );
    if let Some(figure) = &record.figure {
        let FigureRecord { microbenchmark, metric, difference } = figure;
        let than = if record.good == *reference { "good" } else { "its parent" };
        let effect = match differs {
            true => effect(*metric, relative),
            false => "no difference beyond the noise".to_owned(),
        };
        let title = metric.title();
        let _ = writeln!(
            text,
            "  effect       {effect}: {title} {relative} on {microbenchmark}, relative to {than}, {}",
            reference.short()
        );
        let _ = writeln!(text, "  good to bad  {title} {difference}");
        if !differs {
            text.push_str(
                "The figure changed by several commits: this is where it passed the middle \
                 between good and bad.\n",
            );
        }
    }
    text.extend(profiled.map(Profiled::lines));
    let _ = writeln!(text, "{}", effort(record));
    text
}

fn range(record: &BisectRecord, commits: &[CommitRecord]) -> String {
    let mut text = format!("\nOne of these {} commits changed the figure:\n", commits.len());
    for commit in commits {
        let _ = writeln!(text, "  {}  {}  {}", commit.short(), commit.author_date, commit.subject);
    }
    let _ = writeln!(text, "{}", effort(record));
    text
}

fn why_range(record: &BisectRecord, undecided: Option<&CommitRecord>) -> String {
    match undecided {
        Some(commit) => format!(
            "{} could not be decided: its figure is in the middle between good and bad, or the noise \
             is too large. Several commits may have changed it: try {} as --good or as --bad, a \
             larger `budget` under [schedule], or another microbenchmark",
            commit.short(),
            commit.short()
        ),
        None => format!(
            "the other commits that remain cannot be built or measured ({} skipped)",
            record.skipped()
        ),
    }
}

fn same_build(record: &BisectRecord, build: &str) -> String {
    format!(
        "good {} and bad {} are the same build, {build}: their sources do not differ. Choose other \
         revisions",
        record.good.short(),
        record.bad.short()
    )
}

/// That good and bad do not differ, with what was measured.
fn no_difference(record: &BisectRecord, figures: &[FigureRecord]) -> String {
    let mut text = format!(
        "no difference between good {} and bad {}",
        record.good.short(),
        record.bad.short()
    );
    for FigureRecord { microbenchmark, metric, difference } in figures {
        let _ = write!(
            text,
            "\n  {microbenchmark}: {} {}",
            metric.title(),
            difference.with_noise_floor()
        );
    }
    text.push_str(
        "\nChoose revisions or a microbenchmark that differ, or a larger `budget` under [schedule]",
    );
    text
}

/// A ratio in words: `3.1% slower`.
fn effect(metric: Metric, relative: &RatioRecord) -> String {
    let change = Share::from_percent((relative.ratio.distance() * 1000.0).round() / 10.0);
    let is_more = relative.ratio.get() > 1.0;
    let word = match (metric, is_more) {
        (Metric::Qps, true) => "faster",
        (Metric::Qps, false) => "slower",
        (Metric::Cpu, true) => "more CPU per query",
        (Metric::Cpu, false) => "less CPU per query",
    };
    format!("{change} {word}")
}

fn effort(record: &BisectRecord) -> String {
    let midpoints = counted(record.measured() as u64, "midpoint");
    let mut text = format!("{midpoints} of {} commits measured", record.commits);
    if record.same_builds() > 0 {
        let _ = write!(text, ", {} with the build of another commit", record.same_builds());
    }
    if record.skipped() > 0 {
        let _ = write!(text, ", {} skipped", record.skipped());
    }
    text
}

#[cfg(test)]
mod tests {
    use dbdyno_report::model::ProfileRow;
    use dbdyno_run::{RequestRecord, StepRecord, StepVerdict};
    use dbdyno_units::Ratio;

    use super::*;

    fn commit(digit: &str) -> CommitRecord {
        CommitRecord {
            commit: digit.repeat(40),
            author_date: "2024-01-02T03:04:05Z".to_owned(),
            subject: format!("Change {digit}"),
        }
    }

    fn ratio(low: f64, ratio: f64, high: f64) -> RatioRecord {
        RatioRecord {
            ratio: Ratio::new(ratio),
            low: Ratio::new(low),
            high: Ratio::new(high),
            noise_floor: Some(Share::from_percent(0.2)),
        }
    }

    fn record() -> BisectRecord {
        let step = |verdict, directory: Option<&str>| StepRecord {
            commit: commit("3"),
            verdict,
            build: None,
            relative: None,
            from_middle: None,
            directory: directory.map(str::to_owned),
            reason: None,
        };
        BisectRecord {
            format: 1,
            version: "1.2.3".to_owned(),
            started: "2024-01-02T03:04:05Z".to_owned(),
            request: RequestRecord {
                name: "name".to_owned(),
                experiment_text: String::new(),
                candidate: "sqlite".to_owned(),
                microbenchmark: None,
                good: "v1".to_owned(),
                bad: "v2".to_owned(),
                first_parent: false,
            },
            repository: "/srv/sqlite".to_owned(),
            good: commit("1"),
            bad: commit("2"),
            commits: 64,
            figure: Some(FigureRecord {
                microbenchmark: "scan".to_owned(),
                metric: Metric::Qps,
                difference: ratio(0.96, 0.968, 0.975),
            }),
            steps: vec![
                step(StepVerdict::LikeGood, Some("01-3333333333")),
                step(StepVerdict::LikeGood, None),
                step(StepVerdict::Skipped, None),
            ],
            result: None,
        }
    }

    #[test]
    fn found_commit_has_its_effect_with_an_interval() {
        let result = FoundRecord {
            commit: commit("5"),
            reference: commit("4"),
            relative: ratio(0.964, 0.969, 0.974),
            differs: true,
            profiled_in: None,
        };
        let text = text_of_found(&record(), &result, None);
        assert_eq!(
            text,
            "\n5555555555555555555555555555555555555555 is the first commit with the figure of bad\n  \
             author date  2024-01-02T03:04:05Z\n  \
             subject      Change 5\n  \
             effect       3.1% slower: relative QPS 0.969 (95%: 0.964 to 0.974) on scan, relative \
             to its parent, 4444444444\n  \
             good to bad  relative QPS 0.968 (95%: 0.960 to 0.975)\n\
             1 midpoint of 64 commits measured, 1 with the build of another commit, 1 skipped\n"
        );
        let gradual = FoundRecord { differs: false, ..result };
        let text = text_of_found(&record(), &gradual, None);
        assert!(text.contains("several commits") && !text.contains("slower"), "{text}");
    }

    #[test]
    fn functions_of_the_found_commit_are_named_and_exported() {
        let row = |name: &str, us: f64, certain| ProfileRow {
            name: name.to_owned(),
            us,
            baseline_us: 1.0,
            half_width_us: 0.05,
            certain,
            moved: false,
        };
        let profile = ProfileDifference {
            samples: [400, 400],
            layers: vec![row("executor", 1.03, false)],
            functions: vec![row("memcmp", 1.42, true), row("step", 0.99, false)],
            ..ProfileDifference::default()
        };
        let run = PathBuf::from("results/profile-5555555555");
        let profiled = Profiled { run: run.clone(), profile: Ok(profile) };
        assert_eq!(
            profiled.lines(),
            "  functions    memcmp +0.42 µs ±0.05\n  layers       no certain change\n  \
             profile      changes of CPU time per query; all of them: dbdyno why \
             results/profile-5555555555\n"
        );
        let text = json(&record(), Some(&profiled)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["profile"]["functions"][0]["name"], "memcmp");
        assert_eq!(json["commits"], 64);
        let lost = Profiled { run, profile: Err("it is not a run".to_owned()) };
        assert_eq!(lost.lines(), "  functions    it is not a run\n");
    }

    #[test]
    fn missing_difference_has_figures_and_noise_floor() {
        let record = record();
        let figures: Vec<FigureRecord> = record.figure.clone().into_iter().collect();
        let text = no_difference(&record, &figures);
        assert!(text.starts_with("no difference between good 1111111111 and bad 2222222222\n"));
        assert!(text.contains("scan: relative QPS 0.968 (95%: 0.960 to 0.975), noise floor 0.2%"));
        assert!(why_range(&record, None).contains("1 skipped"));
        assert!(range(&record, &[commit("3")]).contains("3333333333  2024-01-02T03:04:05Z"));
    }
}
