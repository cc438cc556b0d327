//! The experiment's settings as rows for reports and for `dbdyno check`, and those in which a candidate differs.

use dbdyno_engines::server::{PROPERTIES, Property};
use dbdyno_results::{DataSize, setting};
use dbdyno_scripts::{OptionValue, Options, Source};
use dbdyno_spec::OptionFile;
use dbdyno_spec::experiment::{
    Candidate, ExistingServer, Experiment, InsertBenchmark, Pace, PrivateServer, Profiling,
    SqliteConfig, System,
};
use dbdyno_types::Sha256;
use dbdyno_types::server::{Address, SettingDefaults, Tls};
use dbdyno_units::Nanos;
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::{Microbenchmark, Script};
use serde::Serialize;

use crate::candidates::{Deployment, ResolvedCandidate};
use crate::plan::cases;

/// The settings of the whole run: label and value.
pub(crate) fn of_experiment(experiment: &Experiment) -> Vec<(String, String)> {
    if let Some(benchmark) = &experiment.insert_benchmark {
        return of_insert_benchmark(experiment, benchmark);
    }
    let Experiment { workload, schedule, checks, .. } = experiment;
    let pace = match schedule.pace {
        Pace::Events => ("events", "all candidates run the same events in a block"),
        Pace::Time => ("time", "all candidates run for the same time in a block"),
    };
    let restarts = match schedule.restarts {
        1 => "none: the instances are started once".to_owned(),
        restarts => format!("the instances are started {restarts} times, more within the budget"),
    };
    let warmup = match (schedule.warmup_blocks, schedule.warmup_time) {
        (blocks, Nanos::ZERO) => format!("the first {blocks} blocks after each start"),
        (blocks, time) => format!(
            "the first blocks after each start, at least {blocks} and {time} of the baseline's slices"
        ),
    };
    let data = DataSize { tables: workload.loaded_tables(), rows: workload.rows };
    let mut rows = vec![
        (setting::BASELINE, experiment.baseline.clone()),
        ("control", if experiment.control { "on" } else { "off" }.to_owned()),
        (DataSize::LABEL, data.to_string()),
        ("clients", list(&workload.clients)),
        (setting::MICROBENCHMARKS, workload.microbenchmarks.len().to_string()),
        ("slice", format!("{}, for writes {}", schedule.slice, schedule.write_slice)),
        (setting::PACE, setting::explained(pace.0, pace.1)),
        ("warm-up", warmup),
        ("blocks", format!("at least {}", schedule.min_blocks)),
        ("target", format!("±{} half-width of the 95% interval", schedule.target)),
        ("budget", format!("{} per candidate and microbenchmark", schedule.budget)),
        ("restarts", restarts),
        ("errors allowed", checks.max_error_share.to_string()),
        ("seed", experiment.seed.to_string()),
    ];
    if let Some(Profiling { time, frequency, microbenchmarks, layers, .. }) = &experiment.profile {
        let of = match microbenchmarks {
            None => "each microbenchmark".to_owned(),
            Some(names) => names.join(", "),
        };
        let layers = layers.as_ref().map(|own| format!("; layers of {}", own.file));
        let layers = layers.unwrap_or_default();
        let value = format!("{time} of each candidate, {frequency} per second, of {of}{layers}");
        rows.push(("stacks sampled", value));
    }
    if !workload.setup.is_empty() {
        let origins: Vec<&str> = workload.setup.iter().map(|one| one.origin.as_str()).collect();
        let texts: Vec<&str> = workload.setup.iter().map(|one| one.text.as_str()).collect();
        let value = format!("created by {}, {}", origins.join(", "), checksum(&texts));
        rows.insert(3, (setting::OWN_TABLES, value));
    }
    let mut rows: Vec<(String, String)> =
        rows.into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
    let builtin = Catalog::builtin();
    let own = |one: &&Microbenchmark| builtin.get(&one.name) != Some(one);
    rows.extend(workload.microbenchmarks.iter().filter(own).map(|one| match &one.script {
        Some(script) => {
            let Source { text, modules, version, .. } = &script.source;
            let of_text = checksum(&(text, modules, version));
            (setting::script_of(&one.name), format!("{}, {of_text}", describe_script(script)))
        }
        None => {
            let of_text = checksum(&(&one.statements, one.transaction, &one.throughput));
            (setting::statements_of(&one.name), of_text)
        }
    }));
    rows
}

/// The checksum of what runs of other settings may have under the same name.
fn checksum(of: &impl Serialize) -> String {
    let sha256 = Sha256::of(&serde_json::to_vec(of).unwrap_or_default()).to_string();
    format!("SHA-256 {}…", &sha256[..12])
}

/// The name of a script and its options: `tpcc.lua, scale = 2`.
pub(crate) fn describe_script(script: &Script) -> String {
    let texts = |options: &Options, before: &str| {
        let text = |(name, value): (&String, &OptionValue)| {
            format!("{before}{name} = {}", value.to_text())
        };
        options.iter().map(text).collect::<String>()
    };
    let (options, of_events) = (texts(&script.options, ", "), texts(&script.run_options, ", run "));
    format!("{}{options}{of_events}", script.source.name)
}

fn of_insert_benchmark(
    experiment: &Experiment,
    benchmark: &InsertBenchmark,
) -> Vec<(String, String)> {
    let InsertBenchmark { plan, repeats, copies, stall } = benchmark;
    let copies = match copies {
        true => "after each step, while the server is paused: to resume from after an interruption",
        false => "none: an interrupted candidate restarts from its first step",
    };
    let order = "one candidate after another, each alone through all steps; random, and rotated from \
                 repeat to repeat";
    let mut rows = vec![
        (setting::BASELINE, experiment.baseline.clone()),
        ("control", if experiment.control { "on" } else { "off" }.to_owned()),
        ("clients × tables", format!("{} × {}", plan.clients, plan.tables)),
        ("data", format!("{} characters, half of them random", plan.data_length)),
        ("old rows", if plan.delete_per_insert { "deleted one by one" } else { "kept" }.to_owned()),
        ("repeats", repeats.to_string()),
        ("order", order.to_owned()),
        ("copies", copies.to_owned()),
        ("write stall", format!("a second below {stall} of its step's median throughput")),
        ("errors allowed", experiment.checks.max_error_share.to_string()),
        ("seed", experiment.seed.to_string()),
    ];
    for step in &plan.steps {
        rows.push((&step.name, step.task.describe(false)));
    }
    rows.into_iter().map(|(label, value)| (label.to_owned(), value)).collect()
}

/// A candidate's configuration, with dbdyno's defaults: label and value.
pub(crate) fn of_resolved(candidate: &ResolvedCandidate) -> Vec<(String, String)> {
    let mut rows = match (&candidate.deployment, &candidate.spec.system) {
        // The plan's settings include those of the experiment.
        (Deployment::Private(plan), System::Private(server)) => of_private(server, plan.settings()),
        // The control has another schema than in the experiment.
        (Deployment::Existing(server), _) => of_existing(server),
        (_, system) => of_system(system),
    };
    rows.extend(of_live(&candidate.spec));
    if let Deployment::Existing(server) = &candidate.deployment {
        // The one that the experiment names, or that was found.
        rows.extend(server.pid.map(|pid| ("process".to_owned(), pid.to_string())));
        rows.extend(server.host.clone().map(|host| ("host".to_owned(), host)));
    }
    rows
}

/// A candidate's configuration as given in the experiment: label and value.
pub(crate) fn of_candidate(candidate: &Candidate) -> Vec<(String, String)> {
    of_system(&candidate.system).into_iter().chain(of_live(candidate)).collect()
}

fn of_system(system: &System) -> Vec<(String, String)> {
    match system {
        System::Sqlite { config, .. } => of_sqlite(config),
        System::Private(server) => of_private(server, &server.configuration),
        System::Existing(server) => of_existing(server),
    }
}

fn of_live(candidate: &Candidate) -> Option<(String, String)> {
    let live = candidate.live.as_ref()?;
    Some(("live optimizer".to_owned(), cases::describe_live(live)))
}

fn of_sqlite(config: &SqliteConfig) -> Vec<(String, String)> {
    let SqliteConfig { page_size, cache_size, .. } = config;
    let rows = [
        ("page_size", page_size.to_string()),
        ("cache_size", format!("{cache_size} per connection")),
        ("journal_mode", config.journal_mode.name().to_owned()),
        ("synchronous", config.synchronous.name().to_owned()),
    ];
    rows.map(|(label, value)| (label.to_owned(), value)).into()
}

fn of_private(server: &PrivateServer, settings: &[(String, String)]) -> Vec<(String, String)> {
    let first = match server.defaults {
        SettingDefaults::Dbdyno => ("durability", server.durability.name().to_owned()),
        SettingDefaults::Server => ("defaults", "the server's own".to_owned()),
    };
    let rows = [first, ("statements", server.statements.name().to_owned())];
    let rows = rows.map(|(label, value)| (label.to_owned(), value));
    let host = server.host.clone().map(|host| ("host".to_owned(), host));
    let options = server.options.iter().flat_map(of_option_file);
    rows.into_iter().chain(settings.iter().cloned()).chain(host).chain(options).collect()
}

/// What a candidate has from an option file, and what it does not have.
fn of_option_file(options: &OptionFile) -> Vec<(String, String)> {
    let files: Vec<String> =
        options.files.iter().map(|(file, sha256)| format!("{file} (SHA-256 {sha256})")).collect();
    let text = format!("{} settings of {}", options.settings.len(), files.join(", "));
    let left_out = options.left_out_text().map(|text| ("left out of it".to_owned(), text));
    [("option file".to_owned(), text)].into_iter().chain(left_out).collect()
}

fn of_existing(server: &ExistingServer) -> Vec<(String, String)> {
    let rows = [
        ("address", server.target.address.to_string()),
        ("encryption", encryption(&server.target.tls).to_owned()),
        ("schema", server.schema.clone()),
        ("statements", server.statements.name().to_owned()),
    ];
    rows.map(|(label, value)| (label.to_owned(), value)).into()
}

pub(crate) const fn encryption(tls: &Tls) -> &'static str {
    match tls {
        Tls::Off => "none",
        Tls::Required => "TLS, the server's certificate unchecked",
        Tls::Verified { .. } => "TLS",
        Tls::Pinned { .. } => "TLS, the server's certificate pinned",
    }
}

fn list(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    numbers.join(", ")
}

/// The properties in which a candidate differs from the baseline, one per line.
pub(crate) fn differences(
    candidate: &ResolvedCandidate,
    baseline: &ResolvedCandidate,
) -> Vec<String> {
    let of_baseline = properties(baseline);
    properties(candidate)
        .into_iter()
        .filter_map(|own| {
            let (name, value) = own;
            let (_, other) = of_baseline.iter().find(|(other, _)| *other == name)?;
            (value != *other).then(|| format!("{name}: {value}; the baseline: {other}"))
        })
        .collect()
}

fn properties(candidate: &ResolvedCandidate) -> Vec<Property> {
    let mut properties = Vec::new();
    let mut add = |name, value: &str| properties.push((name, value.to_owned()));
    match (&candidate.spec.system, &candidate.deployment) {
        (System::Private(server), Deployment::Private(plan)) => {
            for (name, value) in plan.properties() {
                add(name, &value);
            }
            add("statements", server.statements.name());
            match &server.host {
                None => add("connection", "Unix socket"),
                Some(host) => add("connection", &format!("TCP to host {host}")),
            }
            let verified = "TLS, the server's certificate pinned";
            add("encryption", if server.tls { verified } else { "none" });
        }
        (_, Deployment::Existing(server)) => {
            add("statements", server.statements.name());
            match (&server.target.address, &server.host) {
                (Address::Socket(_), _) => add("connection", "Unix socket"),
                (Address::Tcp { .. }, None) => add("connection", "TCP"),
                (Address::Tcp { .. }, Some(host)) => {
                    add("connection", &format!("TCP to host {host}"));
                }
            }
            add("encryption", encryption(&server.target.tls));
            for name in PROPERTIES {
                add(name, "as configured on the server");
            }
        }
        (System::Sqlite { config, .. }, _) => {
            add("durability of a commit", &format!("synchronous = {}", config.synchronous));
            add("connection", "none: inside the process");
        }
        _ => {}
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_is_described_by_time_unless_its_blocks_are_given() {
        let warmup = |schedule: &str| {
            let text = format!(
                "name = \"test\"\nbaseline = \"a\"\n{schedule}\n\
                 [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n"
            );
            let experiment = dbdyno_spec::parse("test.toml", &text);
            let rows = of_experiment(&experiment.unwrap_or_else(|problems| panic!("{problems}")));
            rows.into_iter().find(|(label, _)| label == "warm-up").unwrap().1
        };
        assert_eq!(
            warmup(""),
            "the first blocks after each start, at least 2 and 100 ms of the baseline's slices"
        );
        assert_eq!(warmup("schedule.warmup_blocks = 3"), "the first 3 blocks after each start");
    }

    #[test]
    fn own_statements_and_tables_are_told_apart_by_their_text() {
        let rows = |setup: &str, sql: &str| {
            let text = format!(
                "name = \"test\"\nbaseline = \"a\"\n\
                 [workload]\nsetup = \"{setup}\"\nmicrobenchmarks = [\"mine\", \"scan_range=100\"]\n\
                 [[microbenchmark]]\nname = \"mine\"\n\
                 [[microbenchmark.statements]]\nsql = \"{sql}\"\nrows = 1\n\
                 [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n"
            );
            let experiment = dbdyno_spec::parse("test.toml", &text);
            let rows = of_experiment(&experiment.unwrap_or_else(|problems| panic!("{problems}")));
            let of_work = [setting::OWN_TABLES.to_owned(), setting::statements_of("mine")];
            rows.into_iter().filter(|(label, _)| of_work.contains(label)).collect::<Vec<_>>()
        };
        let (create, select) = ("CREATE TABLE t (id int)", "SELECT id FROM t");
        let first = rows(create, select);
        assert_eq!(first.len(), 2, "{first:?}");
        let other = rows(create, "SELECT 1 FROM t");
        assert!(other[0] == first[0] && other[1] != first[1], "{first:?} {other:?}");
        let other = rows("CREATE TABLE t (id bigint)", select);
        assert!(other[0] != first[0] && other[1] == first[1], "{first:?} {other:?}");
    }
}
