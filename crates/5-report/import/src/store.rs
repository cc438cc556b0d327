//! Store values as a run directory.

use dbdyno_results::{
    CandidateRecord, MicrobenchmarkRecord, NewRun, OriginRecord, Role, RunWriter, SessionRecord,
    SliceRecord, Warning,
};
use dbdyno_types::SliceMeasured;
use dbdyno_units::{Nanos, Qps};
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::Group;
use serde_json::json;

use crate::error::ImportError;
use crate::names::{CatalogMatch, look_up};
use crate::value::{Measure, Value};
use crate::{Imported, Request};

/// The group of unpublished microbenchmarks.
const OTHER: &str = "other";

/// Limit of candidates × microbenchmarks; published tables have up to a thousand.
const MAX_PAIRS: usize = 10_000;

pub(crate) fn store(
    request: &Request,
    values: &[Value],
    text: String,
) -> Result<Imported, ImportError> {
    let columns = columns(values);
    let candidates = baseline_first(request, &columns)?;
    let catalog = Catalog::builtin();
    let (microbenchmarks, ungrouped) = microbenchmarks(&catalog, values)?;
    if candidates.len() * microbenchmarks.len() > MAX_PAIRS {
        return Err(ImportError::TooMuch {
            what: format!(
                "{} candidates × {} microbenchmarks",
                candidates.len(),
                microbenchmarks.len()
            ),
        });
    }
    let name = request.name.clone().unwrap_or_else(|| {
        let stem = values[0].file.file_stem();
        stem.map_or_else(|| "imported".to_owned(), |stem| stem.to_string_lossy().into_owned())
    });
    let files: Vec<String> = request.files.iter().map(|path| path.display().to_string()).collect();
    let mut settings = vec![("Imported from".to_owned(), files.join(", "))];
    if values.iter().any(|value| matches!(value.measure, Measure::Table)) {
        let clients = format!("{} (tables do not say; as given)", request.clients);
        settings.push(("Clients".to_owned(), clients));
    }
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
    writer.start_session(&session(request, values))?;
    let records: Vec<CandidateRecord> =
        candidates.iter().map(|name| candidate(name, &candidates[0], values)).collect();
    writer.add_candidates(&records)?;
    for (microbenchmark, record) in (0..).zip(&microbenchmarks) {
        for (number, name) in (0..).zip(&candidates) {
            let of_both = |value: &&Value| {
                value.candidate == *name
                    && value.microbenchmark == record.name
                    && value.clients == record.clients
            };
            for value in values.iter().filter(of_both) {
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
    let is_of_baseline = |record: &&MicrobenchmarkRecord| {
        values.iter().any(|value| {
            value.candidate == candidates[0]
                && (&value.microbenchmark, value.clients) == (&record.name, record.clients)
        })
    };
    let without = microbenchmarks.iter().filter(|record| !is_of_baseline(record));
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

/// The candidates in the order of the values.
fn columns(values: &[Value]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in values {
        if !found.contains(&value.candidate) {
            found.push(value.candidate.clone());
        }
    }
    found
}

/// The candidates with the baseline before the others.
fn baseline_first(request: &Request, columns: &[String]) -> Result<Vec<String>, ImportError> {
    let mut found = columns.to_vec();
    if let Some(name) = &request.baseline {
        let Some(at) = found.iter().position(|candidate| candidate == name) else {
            return Err(ImportError::Baseline { name: name.clone(), known: found });
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
    let mut found: Vec<(&str, CatalogMatch)> = Vec::new();
    let mut records: Vec<(usize, MicrobenchmarkRecord)> = Vec::new();
    let mut ungrouped = Vec::new();
    for value in values {
        let name = value.microbenchmark.as_str();
        let at = found.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            found.push((name, look_up(catalog, name)));
            found.len() - 1
        });
        let standing = &found[at].1;
        let rows = matches!(value.measure, Measure::Table) && standing.counts_rows;
        // Values of such tables are in millions of rows: store them as if each statement read one
        // million.
        let rows = rows.then_some(1_000_000);
        let same = |(_, record): &&(usize, MicrobenchmarkRecord)| {
            record.name == name && record.clients == value.clients
        };
        match records.iter().find(same) {
            Some((_, record)) if record.rows_read_per_statement != rows => {
                return Err(ImportError::Units(name.to_owned()));
            }
            Some(_) => {}
            None => {
                if standing.group.is_none() && !ungrouped.contains(&value.microbenchmark) {
                    ungrouped.push(value.microbenchmark.clone());
                }
                let record = MicrobenchmarkRecord {
                    name: name.to_owned(),
                    clients: value.clients,
                    group: standing.group.as_ref().map_or(OTHER, Group::name).to_owned(),
                    three_group: standing
                        .group
                        .as_ref()
                        .map_or(OTHER, Group::coarse_name)
                        .to_owned(),
                    rows_read_per_statement: rows,
                    writes: None,
                };
                records.push((at, record));
            }
        }
    }
    records.sort_by_key(|(at, record)| (found[*at].1.index, *at, record.clients));
    Ok((records.into_iter().map(|(_, record)| record).collect(), ungrouped))
}

fn candidate(name: &str, baseline: &str, values: &[Value]) -> CandidateRecord {
    let mut files: Vec<String> = values
        .iter()
        .filter(|value| value.candidate == name)
        .map(|value| value.file.display().to_string())
        .collect();
    files.dedup();
    let more = files.len() - 1;
    let file = match more {
        0 => files.swap_remove(0),
        _ => format!("{} and {more} more", files[0]),
    };
    CandidateRecord {
        name: name.to_owned(),
        role: if name == baseline { Role::Baseline } else { Role::Candidate },
        system: "imported".to_owned(),
        version: String::new(),
        engine: None,
        build: None,
        origin: Some(OriginRecord::Imported { file }),
        configuration: Vec::new(),
        server_settings: Vec::new(),
        config_diff: Vec::new(),
        injected_delay: None,
    }
}

fn session(request: &Request, values: &[Value]) -> SessionRecord {
    let mut warnings = vec![Warning {
        what: "These results were measured by others".to_owned(),
        advice: "Candidates that were measured one after the other differ by the machine's drift, \
                 too; values without repeats do not show by how much."
            .to_owned(),
    }];
    let reconnects: u64 = values
        .iter()
        .map(|value| match &value.measure {
            Measure::Table => 0,
            Measure::Sysbench(found) => found.reconnects,
        })
        .fold(0, u64::saturating_add);
    if reconnects > 0 {
        warnings.push(Warning {
            what: format!("sysbench counted {reconnects} reconnects"),
            advice: "Look for servers that were restarted meanwhile.".to_owned(),
        });
    }
    SessionRecord {
        started: request.now.clone(),
        version: request.version.clone(),
        host: Vec::new(),
        facts: json!({}),
        warnings,
        client_cpus: None,
        system_cpus: None,
        client_wait: None,
        counting: Vec::new(),
        elapsed: Nanos::ZERO,
    }
}

fn measured(value: &Value) -> SliceMeasured {
    let throughput = value.throughput.map(Qps::from_per_second);
    match &value.measure {
        Measure::Table => SliceMeasured { throughput, ..SliceMeasured::default() },
        Measure::Sysbench(found) => SliceMeasured {
            throughput,
            wall: found.time,
            events: found.events,
            statements: found.queries,
            busy_retries: found.ignored_errors,
            latencies: found.latencies.clone(),
            ..SliceMeasured::default()
        },
    }
}
