//! Import of published results into a run directory, so that the same reports can be made of them.
//! Supported are published tables, and the output of sysbench and pgbench.
//!
//! Each value becomes a slice, repeated values become blocks. What a file does not contain stays
//! unknown: a table has no CPU time, and one value has no interval.

mod parse;
mod pgbench;
mod table;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use dbdyno_results::{
    CandidateRecord, MicrobenchmarkRecord, NewRun, OriginRecord, ResultsError, Role, RunDirectory,
    RunWriter, SessionRecord, SliceRecord, Warning, setting,
};
use dbdyno_types::SliceMeasured;
use dbdyno_units::Qps;
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::{Group, Throughput};
use serde_json::json;

use parse::{FORMATS, Value, check_same_tests, number_blocks, parse};

/// Files could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// What is wrong with the files or the request, and what to try.
    #[error("{0}")]
    Input(String),
    /// The run directory could not be written.
    #[error(transparent)]
    Results(ResultsError),
}

impl From<ResultsError> for ImportError {
    fn from(error: ResultsError) -> Self {
        match error {
            ResultsError::Exists(path) => Self::Input(format!(
                "{path} holds a run already, and an import makes a new one; choose another directory \
                 with --out, and lay the two side by side with `dbdyno report {path} DIR`"
            )),
            other => Self::Results(other),
        }
    }
}

fn too_much(what: &str) -> ImportError {
    ImportError::Input(format!("{what}: more than dbdyno imports; split the files"))
}

/// The number of clients of tables if none is given.
const CLIENTS: u32 = 1;

/// What to import, and the destination.
#[derive(Clone, Debug)]
pub struct Request {
    /// The files, in the order in which repeated values are numbered.
    pub files: Vec<PathBuf>,
    pub out: PathBuf,
    /// The run's name; default: the name of the first file, and the number of the others.
    pub name: Option<String>,
    /// The name of the baseline; default: the first candidate found.
    pub baseline: Option<String>,
    /// The number of clients for values from tables, which do not contain it; default: 1.
    pub clients: Option<u32>,
    /// The time of the import, RFC 3339.
    pub now: String,
    pub version: String,
}

/// Summary of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The candidates, baseline first.
    pub candidates: Vec<String>,
    /// Number of microbenchmarks, counted once per number of clients.
    pub microbenchmarks: usize,
    pub values: usize,
    /// Microbenchmarks without a published group, which are in the group `other`.
    pub ungrouped: Vec<String>,
    /// Microbenchmarks without a value of the baseline, which reports leave out.
    pub without_baseline: Vec<String>,
}

/// Maximum number of values.
const MAX_VALUES: usize = 100_000;

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 64 << 20;

/// The text of a regular file; a pipe or a device could have no end.
fn read(path: &Path) -> io::Result<String> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    if !fs::metadata(path)?.is_file() {
        return Err(invalid("not a regular file"));
    }
    let mut text = String::new();
    let size = File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if size as u64 > MAX_FILE { Err(invalid("larger than 64 MiB")) } else { Ok(text) }
}

/// Read the files and create a run directory. Nothing is written before all files have been parsed.
pub fn import(request: &Request) -> Result<Imported, ImportError> {
    let mut values: Vec<Value> = Vec::new();
    let mut text = String::new();
    let directories = directories(&request.files)?;
    let of_tables = request.clients.unwrap_or(CLIENTS);
    for path in &request.files {
        let content = read(path)
            .map_err(|error| ImportError::Input(format!("{}: {error}", path.display())))?;
        let directory = directories.get(path).map(String::as_str);
        // Editors write a mark of UTF-8 at the beginning of a file.
        let content = content.strip_prefix('\u{feff}').unwrap_or(&content);
        let (found, kept) = parse(path, content, of_tables, directory)?;
        let space = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{space}{}:\n{kept}", path.display()));
        values.extend(found);
    }
    if values.len() > MAX_VALUES {
        return Err(too_much(&format!("{} values", values.len())));
    }
    check_pairs(&values)?;
    let of_tables = |value: &&mut Value| value.summary.is_none();
    let mut columns: Vec<String> =
        values.iter_mut().filter(of_tables).map(|value| value.candidate.clone()).collect();
    columns.sort();
    columns.dedup();
    let short = shorten(&columns);
    for value in values.iter_mut().filter(of_tables) {
        if let Ok(at) = columns.binary_search(&value.candidate) {
            value.candidate.clone_from(&short[at]);
        }
    }
    check_same_tests(&values)?;
    let words = words(&values);
    let named = candidate_names(&values);
    number_blocks(&mut values);
    if values.is_empty() {
        return Err(ImportError::Input(format!("nothing to import; {FORMATS}")));
    }
    let candidates = with_values(request, named, &values)?;
    store(request, &values, &candidates, words, text)
}

/// The group of unpublished microbenchmarks.
const OTHER: &str = "other";

/// Limit of candidates × microbenchmarks, as of any run; published tables have up to a thousand.
const MAX_PAIRS: usize = 100_000;

/// Refuses more candidates × microbenchmarks before anything is stored.
fn check_pairs(values: &[Value]) -> Result<(), ImportError> {
    let candidates: HashSet<&str> = values.iter().map(|value| value.candidate.as_str()).collect();
    let microbenchmarks: HashSet<(&str, u32)> =
        values.iter().map(|value| (value.microbenchmark.as_str(), value.clients)).collect();
    let (candidates, microbenchmarks) = (candidates.len(), microbenchmarks.len());
    if candidates * microbenchmarks <= MAX_PAIRS {
        return Ok(());
    }
    Err(too_much(&format!("{candidates} candidates × {microbenchmarks} microbenchmarks")))
}

/// The warning that some values are words.
fn words(values: &[Value]) -> Option<Warning> {
    let mut found = values.iter().filter_map(|value| Some((value, value.word.as_ref()?)));
    let (first, word) = found.next()?;
    let (count, place) = (1 + found.count(), format!("{}:{}", first.file.display(), first.line));
    Some(Warning {
        what: format!("{count} of the values are words, first `{word}` at {place}"),
        advice: "They are left out; the candidates may have failed there.".to_owned(),
    })
}

/// For files with the same name, and the other files beside them, what distinguishes their directories.
fn directories(files: &[PathBuf]) -> Result<HashMap<PathBuf, String>, ImportError> {
    let mut found = HashMap::new();
    let mut names = HashMap::new();
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    for path in files {
        let same = files.iter().filter(|other| other.file_name() == path.file_name());
        let all: Vec<PathBuf> = same.map(real).collect();
        let own = real(path);
        if all.iter().filter(|other| **other == own).count() > 1 {
            return Err(ImportError::Input(format!("{} is named twice", path.display())));
        }
        let directory = own.parent().map(Path::to_owned);
        let parts = |path: &Path| -> Vec<String> {
            let parts = path.parent().into_iter().flat_map(Path::components);
            parts.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
        };
        let own = parts(&own);
        let others: Vec<Vec<String>> = all.iter().map(|path| parts(path)).collect();
        let is_common = |part: &dyn Fn(&[String]) -> Option<String>| {
            others.iter().all(|other| part(other) == part(&own))
        };
        let start = (0..own.len()).take_while(|at| is_common(&|of| of.get(*at).cloned())).count();
        let end = (0..own.len() - start)
            .take_while(|at| is_common(&|of| of.iter().rev().nth(*at).cloned()))
            .count();
        if others.len() > 1 {
            // A directory inside the other one, or around it, differs by nothing else than its name.
            let name = match &own[start..own.len() - end] {
                [] => own.last().cloned().unwrap_or_default(),
                parts => parts.join("-"),
            };
            names.insert(directory, name.clone());
            found.insert(path.clone(), name);
        }
    }
    for path in files {
        if let Some(name) = names.get(&real(path).parent().map(Path::to_owned)) {
            found.entry(path.clone()).or_insert_with(|| name.clone());
        }
    }
    Ok(found)
}

fn store(
    request: &Request,
    values: &[Value],
    columns: &[String],
    words: Option<Warning>,
    text: String,
) -> Result<Imported, ImportError> {
    let index = index(values);
    let candidates = baseline_first(request, columns)?;
    let catalog = Catalog::builtin();
    let (microbenchmarks, ungrouped) = microbenchmarks(&catalog, values)?;
    let name = request.name.clone().unwrap_or_else(|| title(&request.files));
    let files: Vec<String> = request.files.iter().map(|path| path.display().to_string()).collect();
    let settings = vec![
        ("Imported from".to_owned(), files.join(", ")),
        (setting::IMPORTED_CLIENTS.to_owned(), clients(request, values)),
    ];
    let mut writer = RunWriter::create(
        &request.out,
        &NewRun {
            name,
            baseline: candidates[0].clone(),
            experiment_text: text,
            // The order of a series.
            experiment: json!({
                "imported": files,
                "candidates": columns.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
            }),
            settings,
            microbenchmarks: microbenchmarks.clone(),
            insert: None,
        },
    )?;
    writer.start_session(&session(request, values, words))?;
    let records: Vec<CandidateRecord> = candidates
        .iter()
        .zip(files_of(&candidates, values))
        .map(|(name, files)| candidate(name, &candidates[0], &files))
        .collect();
    writer.add_candidates(&records)?;
    for (microbenchmark, record) in (0..).zip(&microbenchmarks) {
        for (number, name) in (0..).zip(&candidates) {
            for value in index.get(&key(name, record)).into_iter().flatten() {
                writer.add_slice(&SliceRecord {
                    microbenchmark,
                    restart: 0,
                    block: value.block,
                    position: number,
                    candidate: number,
                    warmup: false,
                    measured: measured(value),
                })?;
            }
        }
        writer.set_done(microbenchmark)?;
    }
    // Nothing was started that has data or logs.
    let directory = RunDirectory::at(&request.out);
    let _ = fs::remove_dir(directory.data()).and_then(|()| fs::remove_dir(directory.logs()));
    let without =
        microbenchmarks.iter().filter(|record| !index.contains_key(&key(&candidates[0], record)));
    let mut without_baseline: Vec<String> = without.map(|record| record.name.clone()).collect();
    without_baseline.dedup();
    Ok(Imported {
        without_baseline,
        candidates,
        microbenchmarks: microbenchmarks.len(),
        values: values.len(),
        ungrouped,
    })
}

/// Candidate, microbenchmark and number of clients of a value.
type Key<'v> = (&'v str, &'v str, u32);

fn key<'v>(candidate: &'v str, record: &'v MicrobenchmarkRecord) -> Key<'v> {
    (candidate, record.name.as_str(), record.clients)
}

/// The values of each candidate and microbenchmark, in their order. To search all of them for each would take minutes.
fn index(values: &[Value]) -> HashMap<Key<'_>, Vec<&Value>> {
    let mut index: HashMap<Key<'_>, Vec<&Value>> = HashMap::new();
    for value in values {
        let key = (&*value.candidate, &*value.microbenchmark, value.clients);
        index.entry(key).or_default().push(value);
    }
    index
}

/// The first file's name without its suffix, and the number of the others.
fn title(files: &[PathBuf]) -> String {
    let stem = files.first().and_then(|file| file.file_stem());
    let first =
        stem.map_or_else(|| "imported".to_owned(), |stem| stem.to_string_lossy().into_owned());
    match files.len().saturating_sub(1) {
        0 => first,
        1 => format!("{first} and 1 more file"),
        more => format!("{first} and {more} more files"),
    }
}

/// The numbers of clients of all values: of sysbench and of pgbench as their output says.
fn clients(request: &Request, values: &[Value]) -> String {
    let of_outputs = values.iter().filter(|value| value.summary.is_some());
    let of_outputs: BTreeSet<u32> = of_outputs.map(|value| value.clients).collect();
    let mut all: Vec<String> = of_outputs.iter().map(u32::to_string).collect();
    if values.iter().any(|value| value.summary.is_none()) {
        all.push(match request.clients {
            Some(given) => format!("{given} (tables do not say; as given)"),
            None => format!("{CLIENTS} (assumed, as tables do not say; --clients N changes it)"),
        });
    }
    all.join(", ")
}

/// The candidates in the order of the values.
fn candidate_names(values: &[Value]) -> Vec<String> {
    let mut known = HashSet::new();
    let names = values.iter().map(|value| &value.candidate);
    names.filter(|name| known.insert(*name)).cloned().collect()
}

/// Those of these candidates that have values. The first one is the baseline, unless another one is given.
fn with_values(
    request: &Request,
    mut names: Vec<String>,
    values: &[Value],
) -> Result<Vec<String>, ImportError> {
    let found: HashSet<&str> = values.iter().map(|value| value.candidate.as_str()).collect();
    // An empty column may have no name.
    if let Some(first) = names.iter().find(|name| !name.is_empty())
        && request.baseline.is_none()
        && !found.contains(first.as_str())
    {
        return Err(ImportError::Input(format!(
            "`{first}`, the first candidate and thus the baseline, has no value; name another one \
             with --baseline"
        )));
    }
    names.retain(|name| found.contains(name.as_str()));
    Ok(names)
}

/// The candidates with the baseline before the others.
fn baseline_first(request: &Request, columns: &[String]) -> Result<Vec<String>, ImportError> {
    let mut found = columns.to_vec();
    if let Some(name) = &request.baseline {
        let Some(at) = found.iter().position(|candidate| candidate == name) else {
            let known = found.join(", ");
            let what = format!("no candidate is called `{name}`; there are {known}");
            return Err(ImportError::Input(what));
        };
        found[..=at].rotate_right(1);
    }
    Ok(found)
}

/// The microbenchmarks in running order, and those without a group.
fn microbenchmarks(
    catalog: &Catalog,
    values: &[Value],
) -> Result<(Vec<MicrobenchmarkRecord>, Vec<String>), ImportError> {
    // With its number in the order of first values.
    let mut found: HashMap<&str, (usize, CatalogMatch)> = HashMap::new();
    let mut records: Vec<((usize, usize), MicrobenchmarkRecord)> = Vec::new();
    // The rows of a statement of each record.
    let mut known: HashMap<(&str, u32), Option<u64>> = HashMap::new();
    let mut ungrouped = Vec::new();
    for value in values {
        let name = value.microbenchmark.as_str();
        let next = found.len();
        let (at, standing) = found.entry(name).or_insert_with(|| {
            let standing = look_up(catalog, name);
            if standing.group.is_none() {
                ungrouped.push(name.to_owned());
            }
            (next, standing)
        });
        let rows = value.summary.is_none() && standing.counts_rows;
        // Values of such tables are in millions of rows: store them as if each statement read one
        // million.
        let rows = rows.then_some(1_000_000);
        match known.insert((name, value.clients), rows) {
            Some(before) if before != rows => {
                return Err(ImportError::Input(format!(
                    "{name} is given in million rows/s by a table and in statements/s by sysbench; \
                     import the two into runs of their own"
                )));
            }
            Some(_) => {}
            None => {
                let group = standing.group.as_ref();
                let record = MicrobenchmarkRecord {
                    name: name.to_owned(),
                    clients: value.clients,
                    group: group.map_or(OTHER, Group::name).to_owned(),
                    three_group: group.map_or(OTHER, Group::coarse_name).to_owned(),
                    rows_read_per_statement: rows,
                    writes: group == Some(&Group::Writes),
                    ..MicrobenchmarkRecord::default()
                };
                records.push(((standing.index, *at), record));
            }
        }
    }
    records.sort_by_key(|(at, record)| (*at, record.clients));
    Ok((records.into_iter().map(|(_, record)| record).collect(), ungrouped))
}

/// The files with values of each candidate, in their order.
fn files_of<'v>(candidates: &[String], values: &'v [Value]) -> Vec<Vec<&'v Path>> {
    let mut files: HashMap<&str, Vec<&Path>> = HashMap::new();
    for value in values {
        let of_candidate = files.entry(&value.candidate).or_default();
        if of_candidate.last() != Some(&&*value.file) {
            of_candidate.push(&value.file);
        }
    }
    candidates.iter().map(|name| files.remove(&**name).unwrap_or_default()).collect()
}

fn candidate(name: &str, baseline: &str, files: &[&Path]) -> CandidateRecord {
    let file = match files {
        [] => String::new(),
        [file] => file.display().to_string(),
        [first, more @ ..] => format!("{} and {} more", first.display(), more.len()),
    };
    CandidateRecord {
        name: name.to_owned(),
        role: if name == baseline { Role::Baseline } else { Role::Candidate },
        system: "imported".to_owned(),
        origin: Some(OriginRecord::Imported { file }),
        ..CandidateRecord::default()
    }
}

fn session(request: &Request, values: &[Value], words: Option<Warning>) -> SessionRecord {
    let mut warnings = vec![Warning {
        what: "These results were measured by others".to_owned(),
        advice: "Candidates that were measured one after the other differ by the machine's drift, \
                 too; values without repeats do not show by how much."
            .to_owned(),
    }];
    warnings.extend(words);
    let summaries = values.iter().filter_map(|value| value.summary.as_ref());
    let reconnects = summaries.map(|found| found.reconnects).fold(0, u64::saturating_add);
    if reconnects > 0 {
        warnings.push(Warning {
            what: format!("sysbench counted {reconnects} reconnects"),
            advice: "Look for servers that were restarted during the runs.".to_owned(),
        });
    }
    SessionRecord {
        started: request.now.clone(),
        version: request.version.clone(),
        facts: json!({}),
        warnings,
        ..SessionRecord::default()
    }
}

fn measured(value: &Value) -> SliceMeasured {
    let throughput = value.throughput.map(Qps::from_per_second);
    let found = value.summary.as_deref().cloned().unwrap_or_default();
    SliceMeasured {
        throughput,
        wall: found.time,
        events: found.events,
        statements: found.queries,
        busy_retries: found.ignored_errors,
        latencies: found.latencies,
        ..SliceMeasured::default()
    }
}

/// The tests that are part of sysbench, and the published groups they correspond to.
pub(crate) const SYSBENCH: [(&str, Group); 11] = [
    ("oltp_point_select", Group::Point1),
    ("select_random_points", Group::Point2),
    ("select_random_ranges", Group::Range1),
    ("oltp_read_only", Group::Range2),
    ("oltp_read_write", Group::Writes),
    ("oltp_write_only", Group::Writes),
    ("oltp_update_index", Group::Writes),
    ("oltp_update_non_index", Group::Writes),
    ("oltp_delete", Group::Writes),
    ("oltp_insert", Group::Writes),
    ("bulk_insert", Group::Writes),
];

/// A microbenchmark's relation to the published ones.
struct CatalogMatch {
    /// Its index in the running order; unpublished ones come last.
    index: usize,
    group: Option<Group>,
    /// Whether published tables count its throughput in millions of rows.
    counts_rows: bool,
}

/// Look a microbenchmark up by its name, then by its name without the range.
fn look_up(catalog: &Catalog, name: &str) -> CatalogMatch {
    let entries = catalog.entries();
    let base = |name: &str| name.split("_range=").next().unwrap_or_default().to_owned();
    let exact = entries.iter().position(|entry| entry.microbenchmark.name == name);
    let index = exact
        .or_else(|| entries.iter().position(|one| base(&one.microbenchmark.name) == base(name)));
    let found = index.map(|index| &entries[index].microbenchmark);
    let own = || SYSBENCH.iter().find(|(test, _)| *test == name).map(|(_, group)| group.clone());
    CatalogMatch {
        index: index.unwrap_or(entries.len()),
        group: found.map(|found| found.group.clone()).or_else(own),
        counts_rows: found.is_some_and(|found| found.throughput == Throughput::MillionRowsRead),
    }
}

/// Remove the dot-separated parts that all names start or end with:
/// `x.my8013.z10a.pk1` and `x.my8014.z10a.pk1` become `my8013` and `my8014`.
fn shorten(names: &[String]) -> Vec<String> {
    let parts: Vec<Vec<&str>> = names.iter().map(|name| name.split('.').collect()).collect();
    let Some((first, rest)) = parts.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return names.to_vec();
    };
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(0);
    let same_at = |at: &dyn Fn(&Vec<&str>) -> usize| {
        rest.iter().all(|other| other[at(other)] == first[at(first)])
    };
    let start = (0..shortest).take_while(|at| same_at(&|_| *at)).count();
    let end = (0..shortest - start.min(shortest))
        .take_while(|at| same_at(&|parts| parts.len() - 1 - at))
        .count();
    let short: Vec<String> =
        parts.iter().map(|parts| parts[start..parts.len() - end].join(".")).collect();
    // Keep the full names if one would become empty.
    if short.iter().any(String::is_empty) { names.to_vec() } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(names: &[&str]) -> Vec<String> {
        shorten(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn common_parts_of_names_are_removed() {
        assert_eq!(short(&["x.my8013.z10a.pk1", "x.my8014.z10a.pk1"]), ["my8013", "my8014"]);
        assert_eq!(short(&["a.b", "a.b.c"]), ["a.b", "a.b.c"]);
        assert_eq!(short(&["8.0.13", "8.0.36"]), ["13", "36"]);
        assert_eq!(short(&["only.one"]), ["only.one"]);
        assert_eq!(short(&["innodb", "myrocks"]), ["innodb", "myrocks"]);
        assert!(short(&[]).is_empty());
    }

    #[test]
    fn groups_match_the_published_ones() {
        let catalog = Catalog::builtin();
        let group = |name: &str| look_up(&catalog, name).group;
        assert_eq!(group("random-points.pre_range=1000"), Some(Group::Point2));
        assert_eq!(group("random-points_range=7"), Some(Group::Point2));
        assert_eq!(group("point-query"), Some(Group::Point1));
        assert_eq!(group("oltp_read_only"), Some(Group::Range2));
        assert_eq!(group("something"), None);
        assert!(look_up(&catalog, "scan_range=100").counts_rows);
        assert!(!look_up(&catalog, "insert_range=100").counts_rows);
    }
}
