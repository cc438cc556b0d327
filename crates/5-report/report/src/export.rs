//! Exports of the report: HTML page, Markdown, CSV tables, JSON.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dbdyno_machine::safe_files::{SafeDir, Untrusted};
use dbdyno_results::{NotOwn, ResultsError, RunDirectory};
use serde::Serialize;

pub use crate::sections::operations::relative_csv;

use crate::key_results::{self, KeyResult};
use crate::metric::Grouping;
use crate::model::{Estimate, MicrobenchmarkRows, ProfileDifference, Report, Verdict};
use crate::sections::engine_counters::engine_counters_csv;
use crate::sections::inserts::{series_csv, steps_csv};
use crate::sections::key_results::summary_csv;
use crate::sections::operations::{counters_csv, latency_csv};
use crate::sections::profile::{explained, functions_csv};
use crate::sections::series::{changes_csv, effects_csv};
use crate::sections::statements::statements_csv;
use crate::sections::sweep::scaling_csv;
use crate::sections::waits::waits_csv;
use crate::stacks::{folded_files, speedscope};
use crate::{html, markdown};

/// The version of the JSON structure of a report; it changes when a field is renamed, removed or changes its meaning.
pub const RUN_JSON_FORMAT: u32 = 3;

/// Likewise of `dbdyno why`.
pub const WHY_JSON_FORMAT: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(
        "cannot write {}: {source}; check that the directory exists, that you may write to it and \
         that the disk is not full",
        path.display()
    )]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot make {file} from the report: {source}; please report this as a bug of dbdyno")]
    Encode { file: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

/// A directory for files, held open: whoever can change its path meanwhile cannot lead them elsewhere.
#[derive(Debug)]
pub struct OutputDir {
    path: PathBuf,
    held: OwnedFd,
}

impl OutputDir {
    /// A directory that the user named for files; it is created if missing. Links of another user are not followed.
    pub fn create(path: &Path) -> Result<Self, ExportError> {
        let held = SafeDir::create_for_output(path).map_err(|error| {
            let source =
                io::Error::other(format!("{} {}", error.component.display(), error.reason));
            ExportError::Write { path: path.to_owned(), source }
        })?;
        Ok(Self { path: path.to_owned(), held: held.into() })
    }

    /// The directory of a run.
    ///
    /// # Errors
    /// [`ResultsError::NotOwn`] if the run is not this user's, or is behind a link of another user: it is only read.
    pub fn of_run(path: &Path) -> Result<Self, ResultsError> {
        let held = SafeDir::open_for_output(path).map_err(|error| match error.reason {
            Untrusted::Link { uid: owner }
            | Untrusted::Owner { uid: owner, .. }
            | Untrusted::Writable { uid: owner, .. } => {
                ResultsError::NotOwn { path: error.component, why: NotOwn::Owner { owner } }
            }
            Untrusted::Io(source) => ResultsError::Io { path: error.path, source },
        })?;
        RunDirectory::at(path).check_held(held.as_fd())?;
        Ok(Self { path: path.to_owned(), held: held.into() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory inside, created if missing; links are not followed.
    fn inside(&self, name: &str) -> Result<Self, ExportError> {
        let open = || {
            let held = self.held_path().join(name);
            fs::create_dir_all(&held)?;
            if fs::symlink_metadata(&held)?.is_symlink() {
                return Err(io::Error::other("it is a symbolic link"));
            }
            File::open(held)
        };
        let path = self.path.join(name);
        match open() {
            Ok(held) => Ok(Self { path, held: held.into() }),
            Err(source) => Err(ExportError::Write { path, source }),
        }
    }

    /// A path to the directory that nobody can lead elsewhere.
    fn held_path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.held.as_raw_fd().to_string())
    }

    /// Writes a file under a temporary name and renames it, so that a reader sees the complete old or new file.
    pub fn replace(&self, name: &str, text: &str) -> Result<PathBuf, ExportError> {
        let path = self.path.join(name);
        match self.write(name, text) {
            Ok(()) => Ok(path),
            Err(source) => Err(ExportError::Write { path, source }),
        }
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let held = self.held_path();
        // The temporary file is removed if anything fails before it is renamed.
        let mut builder = tempfile::Builder::new();
        let prefix = format!(".{name}.");
        builder.prefix(&prefix);
        // Temporary files are private by default; a report should be readable for others, as far as the
        // user's umask permits.
        builder.permissions(Permissions::from_mode(0o666));
        let mut file = builder.tempfile_in(&held)?;
        file.write_all(text.as_bytes())?;
        // Otherwise the new name could refer to an empty file after a system crash.
        file.as_file().sync_all()?;
        file.persist(held.join(name)).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Writes the page, the Markdown text, the tables, `run.json`, and sampled stacks. Returns the paths, of folded stacks
/// that of their directory. Files that were written before an error remain.
pub fn write_all(report: &Report, dir: &OutputDir) -> Result<Vec<PathBuf>, ExportError> {
    let mut contents =
        vec![("report.html", html::render(report)), ("report.md", markdown::render(report))];
    let mut tables = tables(report);
    let rest = tables.split_off(2);
    contents.extend(tables);
    contents.push(("run.json", run_json(report)?));
    contents.extend(rest);
    contents.extend(speedscope(report)?.map(|text| ("profile.speedscope.json", text)));
    let written = contents.into_iter().map(|(name, text)| dir.replace(name, &text));
    let mut paths: Vec<PathBuf> = written.collect::<Result<_, _>>()?;
    let folded = folded_files(report);
    if !folded.is_empty() {
        let inner = dir.inside("stacks")?;
        for (name, text) in folded {
            inner.replace(&name, &text)?;
        }
        paths.push(inner.path);
    }
    Ok(paths)
}

/// The CSV tables with their file names. Two are always made; the others only if there is something to
/// say.
pub fn tables(report: &Report) -> Vec<(&'static str, String)> {
    let mut tables = match &report.insert {
        None => vec![("relative.csv", relative_csv(report)), ("summary.csv", summary_csv(report))],
        Some(insert) => {
            vec![("insert_steps.csv", steps_csv(insert)), ("insert_series.csv", series_csv(insert))]
        }
    };
    let mut add = |is_known: bool, name: &'static str, make: fn(&Report) -> String| {
        if is_known {
            tables.push((name, make(report)));
        }
    };
    let all = &report.microbenchmarks;
    let mut absolutes = all.iter().flat_map(MicrobenchmarkRows::absolutes);
    add(!report.scaling.is_empty(), "scaling.csv", scaling_csv);
    add(all.iter().any(|one| one.baseline.latency.is_some()), "latency.csv", latency_csv);
    add(absolutes.any(|own| !own.counters.is_empty()), "counters.csv", counters_csv);
    add(!report.effects.is_empty(), "effects.csv", effects_csv);
    add(!report.series.is_empty(), "changes.csv", changes_csv);
    let mut rows = all.iter().flat_map(|one| &one.rows);
    add(rows.clone().any(|row| row.profile.is_some()), "functions.csv", functions_csv);
    add(rows.clone().any(|row| row.waits.is_some()), "waits.csv", waits_csv);
    add(
        rows.clone().any(|row| !row.engine_counters.is_empty()),
        "engine_counters.csv",
        engine_counters_csv,
    );
    add(rows.any(|row| !row.statements.is_empty()), "statements.csv", statements_csv);
    tables
}

/// The whole report with all numbers, except single blocks, as JSON.
pub fn run_json(report: &Report) -> Result<String, ExportError> {
    #[derive(Serialize)]
    struct Exported<'a> {
        #[serde(flatten)]
        report: &'a Report,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        key_results: Vec<KeyResult<'a>>,
    }
    let mut report = report.clone();
    for microbenchmark in &mut report.microbenchmarks {
        for row in &mut microbenchmark.rows {
            row.ratios.clear();
        }
    }
    let key_results = key_results::of(&report, Grouping::Five);
    versioned_json("run.json", RUN_JSON_FORMAT, &Exported { report: &report, key_results })
}

/// Where candidates, or one of them, need another CPU time than the baseline, as JSON.
pub fn why_json(
    report: &Report,
    candidate: Option<&str>,
    microbenchmark: Option<&str>,
) -> Result<String, ExportError> {
    #[derive(Serialize)]
    struct Exported<'a> {
        baseline: &'a str,
        differences: Vec<Difference<'a>>,
    }
    #[derive(Serialize)]
    struct Difference<'a> {
        microbenchmark: &'a str,
        clients: u32,
        candidate: &'a str,
        relative_cpu: Option<Estimate>,
        cpu_verdict: Verdict,
        #[serde(flatten)]
        profile: &'a ProfileDifference,
    }
    let all = explained(report, candidate, microbenchmark).into_iter();
    let differences = all.map(|one| Difference {
        microbenchmark: &one.member.name,
        clients: one.member.clients,
        candidate: &one.row.candidate,
        relative_cpu: one.row.relative_cpu,
        cpu_verdict: one.row.cpu_verdict,
        profile: one.profile,
    });
    let exported = Exported { baseline: &report.baseline, differences: differences.collect() };
    versioned_json("why.json", WHY_JSON_FORMAT, &exported)
}

/// A result with the format version.
pub(crate) fn versioned_json<T: Serialize>(
    file: &'static str,
    format: u32,
    content: &T,
) -> Result<String, ExportError> {
    #[derive(Serialize)]
    struct Exported<'a, T> {
        format: u32,
        #[serde(flatten)]
        content: &'a T,
    }
    let mut text = serde_json::to_string_pretty(&Exported { format, content })
        .map_err(|source| ExportError::Encode { file, source: source.into() })?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::process::geteuid;

    use super::*;
    use crate::model::Row;
    use crate::sample;

    fn rows(text: &str) -> Vec<csv::StringRecord> {
        csv::Reader::from_reader(text.as_bytes()).records().map(Result::unwrap).collect()
    }

    #[test]
    fn relative_csv_has_the_published_columns() {
        let text = relative_csv(&sample::report_of(&[]));
        assert_eq!(
            text,
            "microbenchmark,group,candidate,baseline,relative_qps,ci_low,ci_high,verdict,blocks,qps,\
         baseline_qps,relative_cpu,cpu_us_per_query,errors,clients,relative_cs,\
         client_cpu_us_per_query,cs_per_query,user_us_per_query,system_us_per_query,\
         relative_cpu_ci_low,relative_cpu_ci_high,cpu_verdict,trusted_metric,tps,baseline_tps,script\n"
        );
    }

    #[test]
    fn relative_csv_has_a_line_per_row_including_the_control() {
        let text = relative_csv(&sample::report_of(&["scan_range=100"]));
        insta::assert_snapshot!(text, @"
    microbenchmark,group,candidate,baseline,relative_qps,ci_low,ci_high,verdict,blocks,qps,baseline_qps,relative_cpu,cpu_us_per_query,errors,clients,relative_cs,client_cpu_us_per_query,cs_per_query,user_us_per_query,system_us_per_query,relative_cpu_ci_low,relative_cpu_ci_high,cpu_verdict,trusted_metric,tps,baseline_tps,script
    scan_range=100,range-1,rel,rel_withdbg,1.007702,1.006329,1.009593,faster,93,5.875,5.830,0.991945,170118.582,0,1,,,0.000400,,,0.989780,0.994019,less CPU,qps,,,
    scan_range=100,range-1,rel_native,rel_withdbg,1.016263,1.013757,1.018665,faster,80,5.925,5.830,0.984467,168836.066,0,1,,,0.000400,,,0.982324,0.986683,less CPU,qps,,,
    scan_range=100,range-1,rel_native_lto,rel_withdbg,1.034523,1.031424,1.036772,faster,94,6.031,5.830,0.966879,165819.679,0,1,,,0.000400,,,0.963821,0.968973,less CPU,qps,,,
    scan_range=100,range-1,control,rel_withdbg,1.000827,0.998172,1.003232,within noise,90,5.835,5.830,0.998754,171286.348,0,1,,,0.000400,,,0.995658,1.000947,within noise,qps,,,
    ");
        assert_eq!(rows(&relative_csv(&sample::report())).len(), 42 * 4);
    }

    #[test]
    fn unknown_value_is_an_empty_field() {
        let mut report = sample::incomplete(&["insert_range=100"]);
        report.microbenchmarks[0].baseline.qps = None;
        let first = rows(&relative_csv(&report)).swap_remove(0);
        assert_eq!((&first[4], &first[5], &first[6], &first[7]), ("", "", "", "unknown"));
        assert_eq!((&first[10], &first[11]), ("", ""));
    }

    #[test]
    fn names_with_commas_and_quotes_are_quoted() {
        let mut report = sample::report_of(&["scan_range=100"]);
        let odd = "a,\"b\"\nc";
        report.microbenchmarks[0].rows[0].candidate = odd.to_owned();
        assert_eq!(&rows(&relative_csv(&report))[0][2], odd);
    }

    #[test]
    fn summary_csv_has_five_groups_and_no_deviation_of_one_value() {
        let text = summary_csv(&sample::report());
        assert!(
            text.starts_with(
                "group,candidate,count,min,max,avg,median,stddev,worst,best,clients\n"
            )
        );
        assert_eq!(rows(&text).len(), 5 * 4);
        let one = summary_csv(&sample::report_of(&["scan_range=100"]));
        assert_eq!(&rows(&one)[0][7], "");
    }

    #[test]
    fn run_json_parses_back_without_blocks() {
        let report = sample::report();
        let text = run_json(&report).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["format"], RUN_JSON_FORMAT);
        assert_eq!(value["microbenchmarks"].as_array().unwrap().len(), 42);
        let row = &value["microbenchmarks"][0]["rows"][0];
        let Row { relative_qps, blocks, .. } = &report.microbenchmarks[0].rows[0];
        assert_eq!(row["relative_qps"]["median"], relative_qps.unwrap().median.get());
        assert_eq!(row["blocks"], *blocks);
        assert!(row.get("ratios").is_none());
        assert!(text.starts_with("{\n  \"format\": 3,\n  \"name\""));
        let results = value["key_results"].as_array().unwrap();
        assert_eq!(results.len(), 3 * 5);
        let writes = &results[4];
        assert_eq!((&writes["group"], &writes["metric"]), (&"writes".into(), &"cpu".into()));
        assert_eq!(writes["throughput"]["metric"], "qps");
        assert_eq!(row["trusted_metric"], "qps");
    }

    #[test]
    fn files_are_replaced_and_no_temporary_files_remain() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("new");
        let report = sample::report_of(&["scan_range=100"]);
        write_all(&report, &OutputDir::create(&target).unwrap()).unwrap();
        fs::write(target.join("run.json"), "old").unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "of somebody else").unwrap();
        fs::remove_file(target.join("summary.csv")).unwrap();
        std::os::unix::fs::symlink(&other, target.join("summary.csv")).unwrap();
        let paths = write_all(&report, &OutputDir::create(&target).unwrap()).unwrap();
        assert_eq!(paths.len(), 6);
        let mut names: Vec<_> =
            fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let expected =
            ["latency.csv", "relative.csv", "report.html", "report.md", "run.json", "summary.csv"];
        assert_eq!(names, expected);
        assert!(fs::read_to_string(target.join("run.json")).unwrap().contains("\"format\""));
        assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
    }

    #[test]
    fn directory_behind_a_link_of_another_user_is_not_written_to() {
        if !geteuid().is_root() {
            return dbdyno_fuzz::skip("only root can give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let ways = ["", "/", "/.", "/inside", "/inside/deeper"];
        let named = |way: &str| PathBuf::from(format!("{}{way}", link.display()));
        for way in ways {
            OutputDir::create(&named(way)).unwrap();
        }
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        for way in ways {
            let error = OutputDir::create(&named(way)).unwrap_err().to_string();
            assert!(error.contains("a symbolic link of another user"), "{way}: {error}");
        }
    }

    #[test]
    fn run_behind_a_link_of_another_user_is_only_read() {
        if !geteuid().is_root() {
            return dbdyno_fuzz::skip("only root can give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::create_dir_all(real.join("run")).unwrap();
        fs::write(real.join("run/run.sqlite"), "").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        OutputDir::of_run(&link.join("run")).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        let error = OutputDir::of_run(&link.join("run")).unwrap_err();
        assert!(matches!(error, ResultsError::NotOwn { .. }), "{error}");
    }

    #[test]
    fn latency_csv_has_a_line_per_candidate_and_percentile() {
        let text = latency_csv(&sample::servers_of(&["insert_range=100"]));
        insta::assert_snapshot!(text, @"
    microbenchmark,group,clients,candidate,baseline,percentile,response_time_us,relative,ci_low,ci_high,verdict
    insert_range=100,writes,1,innodb,innodb,p50,7.905,,,,
    insert_range=100,writes,1,innodb,innodb,p95,11.017,,,,
    insert_range=100,writes,1,innodb,innodb,p99,15.727,,,,
    insert_range=100,writes,1,myrocks,innodb,p50,7.881,0.990534,0.982534,0.998534,faster
    insert_range=100,writes,1,myrocks,innodb,p95,10.983,0.995267,0.979267,1.011267,within noise
    insert_range=100,writes,1,myrocks,innodb,p99,15.679,0.996845,0.964845,1.028845,within noise
    insert_range=100,writes,1,control,innodb,p50,7.957,0.999420,0.991420,1.007420,within noise
    insert_range=100,writes,1,control,innodb,p95,11.089,0.999710,0.983710,1.015710,within noise
    insert_range=100,writes,1,control,innodb,p99,15.829,0.999807,0.967807,1.031807,within noise
    ");
        assert_eq!(rows(&latency_csv(&sample::imported())).len(), 0, "none is known");
    }

    #[test]
    fn scaling_csv_compares_with_the_next_smaller_and_the_smallest_number() {
        let report = sample::sweep_of(&[1, 4, 16]);
        let text = scaling_csv(&report);
        let all = rows(&text);
        assert_eq!(all.len(), 2 * 3 * 3, "two microbenchmarks, three candidates, three pairs");
        let pairs: Vec<(&str, &str)> = all[..3].iter().map(|row| (&row[3], &row[4])).collect();
        assert_eq!(pairs, [("4", "1"), ("16", "4"), ("16", "1")]);
        let ratio = |row: usize| all[row][6].parse::<f64>().unwrap();
        assert!((ratio(0) * ratio(1) - ratio(2)).abs() < 1e-5);
        assert_eq!((&all[0][9], &all[0][14], &all[0][15]), ("faster", "slower", "yes"));
        let dir = tempfile::tempdir().unwrap();
        let paths = write_all(&report, &OutputDir::create(dir.path()).unwrap()).unwrap();
        assert!(paths.iter().any(|path| path.ends_with("scaling.csv")));
    }

    #[test]
    fn error_names_the_file_and_what_to_try() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = OutputDir::create(&file).unwrap_err().to_string();
        assert!(error.contains("file: ") && error.contains("check that"), "{error}");
    }

    #[test]
    fn profiles_are_exported_as_table_stacks_and_json() {
        let report = sample::profiled(&["scan_range=100"]);
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let paths = write_all(&report, &OutputDir::create(dir.path()).unwrap()).unwrap();
            assert_eq!(paths.last(), Some(&dir.path().join("stacks")));
            assert!(paths.contains(&dir.path().join("profile.speedscope.json")));
        }
        let mut files: Vec<_> = fs::read_dir(dir.path().join("stacks"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        files.sort();
        assert_eq!(files, ["scan_range=100.innodb.folded", "scan_range=100.myrocks.folded"]);
        let Row { profile, candidate, .. } = &report.microbenchmarks[0].rows[0];
        let profile = profile.as_ref().unwrap();
        let text = functions_csv(&report);
        let all = rows(&text);
        let sum = |kind: &str| -> f64 {
            let of_kind = all.iter().filter(|row| &row[2] == candidate && &row[4] == kind);
            of_kind.map(|row| row[8].parse::<f64>().unwrap()).sum()
        };
        let difference = profile.total_us[0] - profile.total_us[1];
        for kind in ["layer", "function"] {
            assert!((sum(kind) / difference - 1.0).abs() < 1e-3, "{kind}: {}", sum(kind));
        }
        assert!(all.iter().any(|row| &row[4] == "function with callees"));
        let calls = all.iter().filter(|row| &row[2] == candidate && &row[4] == "system call");
        let mut calls: Vec<&str> = calls.map(|row| &row[5]).collect();
        calls.sort_unstable();
        assert_eq!(calls, ["kernel: recvfrom", "kernel: sendto"]);
        let json = why_json(&report, Some(candidate), None).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["format"], WHY_JSON_FORMAT);
        assert_eq!(json["differences"].as_array().unwrap().len(), 1);
        let first = &json["differences"][0];
        assert_eq!(
            (&first["candidate"], &first["cpu_verdict"]),
            (&"myrocks".into(), &"slower".into())
        );
        assert_eq!(first["functions"][0]["name"], profile.functions[0].name);
    }

    #[test]
    fn counters_csv_has_a_line_per_known_figure() {
        let report = sample::only_kernel_counters(&["scan_range=100"]);
        let text = counters_csv(&report);
        assert_eq!(rows(&text).len(), 5 * 3, "the baseline, three candidates and the control");
        let text = counters_csv(&sample::counted(&["scan_range=100"]));
        let all = rows(&text);
        assert_eq!(all.len(), 5 * 12);
        let of = |candidate: &str, figure: &str| {
            let mut all = all.iter().filter(|row| &row[3] == candidate && &row[5] == figure);
            all.next().unwrap().clone()
        };
        let ipc = of("rel", "instructions_per_cycle");
        let (own, base): (f64, f64) = (
            ipc[6].parse().unwrap(),
            of("rel_withdbg", "instructions_per_cycle")[6].parse().unwrap(),
        );
        let relative: f64 = ipc[7].parse().unwrap();
        assert!((own / base - relative).abs() < 1e-5, "{ipc:?}");
        assert_eq!(&ipc[10], "0.6250");
        let faults = of("rel", "minor_faults_per_query");
        assert_eq!((&faults[6], &faults[7], &faults[10]), ("0.000410", "", ""));
    }

    #[test]
    fn counters_csv_is_only_written_if_there_are_counters() {
        let dir = tempfile::tempdir().unwrap();
        let names = |report: &Report| -> Vec<String> {
            let paths = write_all(report, &OutputDir::create(dir.path()).unwrap()).unwrap();
            paths
                .iter()
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect()
        };
        assert!(
            !names(&sample::report_of(&["scan_range=100"])).contains(&"counters.csv".to_owned())
        );
        let mut counted = sample::counted(&["scan_range=100"]);
        assert_eq!(names(&counted).last().unwrap(), "counters.csv");
        // An existing server may be the baseline, whose counters cannot be read.
        counted.microbenchmarks[0].baseline.counters.clear();
        assert_eq!(names(&counted).last().unwrap(), "counters.csv");
    }

    #[test]
    fn effects_are_exported_with_a_matrix_only() {
        let report = sample::matrix(&["insert_range=100"], false);
        let table = effects_csv(&report);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 1 + 3, "{table}");
        let main = "maria,insert_range=100,writes,1,innodb_doublewrite,OFF,ON,,,,1.124";
        assert!(lines[1].starts_with(main), "{table}");
        let interaction = ",innodb_doublewrite,OFF,ON,innodb_flush_neighbors,1,0,1.057";
        assert!(lines[3].contains(interaction), "{table}");
        let json: serde_json::Value = serde_json::from_str(&run_json(&report).unwrap()).unwrap();
        assert_eq!(json["effects"][2]["with"]["value"], "1");
        let files = |report: &Report| {
            let directory = tempfile::tempdir().unwrap();
            write_all(report, &OutputDir::create(directory.path()).unwrap()).unwrap();
            directory.path().join("effects.csv").exists()
        };
        assert!(files(&report) && !files(&sample::report_of(&["insert_range=100"])));
    }

    #[test]
    fn changes_of_a_series_have_a_table() {
        let report = sample::series(12);
        let text = changes_csv(&report);
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("series,microbenchmark,group,"));
        assert_eq!(lines.clone().count(), 2 * report.microbenchmarks.len());
        let first: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(first[0], "mariadb");
        assert!(["faster", "slower"].contains(&first[9]), "{first:?}");
        let dir = tempfile::tempdir().unwrap();
        let written = write_all(&report, &OutputDir::create(dir.path()).unwrap()).unwrap();
        assert!(written.iter().any(|path| path.ends_with("changes.csv")));
    }
}
