//! Sentences shared by the terminal report and the HTML page, and what a candidate is, in words.

use dbdyno_results::{DataSize, setting};
use dbdyno_types::server::SettingDefaults;
use dbdyno_units::{grouped, shell_quoted};

use crate::figures::percent;
use crate::metric::{client_bound_rows, clients, servers_had_idle_time};
use crate::model::{
    BuildRecord, CandidateRecord, InsertReport, Lost, NoiseFloor, OriginRecord, Report, Role,
    RunStatus, by_key, distinct,
};

/// `2026-03-01T09:30:00Z` as `2026-03-01 09:30 UTC`; anything else as it is.
pub(crate) fn readable_time(started: &str) -> String {
    match (started.split_once('T'), started.strip_suffix('Z')) {
        (Some((date, time)), Some(_)) if time.len() >= 5 && time.is_char_boundary(5) => {
            format!("{date} {} UTC", &time[..5])
        }
        _ => started.to_owned(),
    }
}

/// A title with a capital letter; a name that starts like `iTLB` stays.
pub(crate) fn capitalized(title: &str) -> String {
    let mut letters = title.chars();
    let Some(first) = letters.next() else { return String::new() };
    if letters.clone().next().is_some_and(char::is_uppercase) {
        return title.to_owned();
    }
    first.to_uppercase().chain(letters).collect()
}

/// A report without any rows.
pub(crate) const NOTHING_MEASURED: &str = "Nothing has been measured yet.";

/// Why CPU per query leads in some key results.
pub(crate) const CPU_FIRST: &str = "CPU per query comes first where throughput includes waiting that \
     is not the candidate's work: for storage (writes), for wake-ups (one client of a server), for the \
     load generator (client-bound).";

/// Tables, rows, clients and microbenchmarks: `1 table × 100,000 rows, 16 clients`; of imported results the clients
/// only; `None` if the run does not record its data.
pub(crate) fn workload(report: &Report) -> Option<String> {
    let Some(DataSize { tables, rows }) = DataSize::of(&report.settings) else {
        let mut all = report.settings.iter();
        let (_, clients) = all.find(|(label, _)| label == setting::IMPORTED_CLIENTS)?;
        return Some(format!("clients: {clients}"));
    };
    let tables = match tables {
        0 => return None,
        1 => "1 table".to_owned(),
        tables => format!("{tables} tables"),
    };
    let steps: Vec<String> = report.clients().iter().map(u32::to_string).collect();
    let clients = match &report.clients()[..] {
        [] => String::new(),
        [one] => format!(", {}", clients(*one)),
        [..] => format!(", {} clients", steps.join(", ")),
    };
    Some(format!("{tables} × {} rows{clients}", grouped(rows)))
}

/// Why the noise floor of throughput is unknown.
pub(crate) fn unknown_noise(report: &Report) -> &'static str {
    match report.has_control() {
        _ if report.candidates.is_empty() => "nothing was measured",
        false => "without a control, differences cannot be told from noise",
        true => "the control has no usable interval of throughput",
    }
}

/// What follows a typical distance of the control from 1 that is small only by chance.
pub(crate) fn imprecise(noise: &NoiseFloor) -> String {
    noise.imprecise().map_or_else(String::new, |reach| {
        let reach = percent(reach);
        format!(", but its own intervals reach ±{reach}: smaller differences may be noise")
    })
}

/// The noise floor: `the control differs from 1 by 0.8% typically ...`.
pub(crate) fn noise_floor(report: &Report) -> String {
    let mut text = match &report.noise {
        Some(noise) => format!(
            "the control differs from 1 by {} typically and {} at most ({}){}; its interval contains 1 \
             in {} of {} microbenchmarks.",
            noise.typical,
            noise.greatest,
            noise.greatest_at,
            imprecise(noise),
            noise.contains_one,
            noise.count
        ),
        None => format!("unknown: {}", unknown_noise(report)),
    };
    if let Some(cpu) = &report.cpu_noise {
        let stop = if text.ends_with('.') { "" } else { "." };
        text.push_str(&format!("{stop} CPU per query: {} typical{}.", cpu.typical, imprecise(cpu)));
    }
    text
}

/// Which rows are client-bound, with an explanation; `None` if none is.
pub(crate) fn client_bound(report: &Report) -> Option<String> {
    let (bound, rows) = client_bound_rows(report);
    let server = match servers_had_idle_time(report) {
        true => ", while the server still had idle CPU time",
        false => "; whether the server still had idle CPU time is not known everywhere",
    };
    (bound > 0).then(|| {
        format!(
            "{bound} of {rows} rows: the load generator used at least 90% of its CPUs{server}. These rows have no throughput verdict and are excluded from \
             the throughput summaries; CPU per query is still valid. Give the load generator more \
             CPUs to measure them."
        )
    })
}

/// Lost connections of one candidate, without the candidate's name.
pub(crate) fn lost_connections(lost: &Lost) -> String {
    let times = if lost.count == 1 { "once" } else { &format!("{} times", lost.count) };
    let differs = lost.data_differs_from.as_ref().map_or_else(String::new, |from| {
        format!(
            "A slice of writes was lost at {from}: from there on its data differed from that of the \
             others, and their answers were not compared. "
        )
    });
    let Lost { at, reason, .. } = lost;
    format!("lost its connections {times} and continued. {differs}Last at {at}: {reason}")
}

/// Parameters of the insert benchmark.
pub(crate) fn insert_benchmark(report: &InsertReport) -> String {
    let InsertReport { tables, repeats, .. } = report;
    let repeats = match repeats {
        1 => "once, so the spread is unknown".to_owned(),
        n => format!("{n} times; values are medians"),
    };
    let tables = if *tables == 1 { "1 table".to_owned() } else { format!("{tables} tables") };
    format!(
        "{} on {tables}. Candidates ran one after another, each alone through all steps, \
         {repeats}.",
        clients(report.clients)
    )
}

/// Definitions that are not obvious from the names of the insert benchmark's metrics.
pub(crate) fn insert_definitions(report: &InsertReport) -> String {
    format!(
        "Reads and writes are totals of the device, from all processes, so they have no verdict. Response times of inserts \
         are measured from the scheduled time, service times from the time of sending. A \
         stall of inserts or queries is a second with less than {} of their median throughput in the \
         step. Colours mark differences that the repeats show with certainty (95%), not in steps \
         under 10 s. A rate is sustained if at least {} of it was reached. A candidate waited while it did \
         not use the CPUs that its clients could keep busy: for storage, locks or clients.",
        report.stall, report.sustained
    )
}

/// The state of a run, in words.
pub(crate) fn status(report: &Report) -> String {
    match (report.status, report.running_pid) {
        (_, Some(pid)) => format!("running (pid {pid})"),
        (RunStatus::Complete, None) => "complete".to_owned(),
        (RunStatus::Incomplete, None) if report.unmeasured.is_empty() => {
            "incomplete: can be resumed".to_owned()
        }
        (RunStatus::Incomplete, None) => {
            let left = report.unmeasured.len();
            let all = report.microbenchmarks.len() + left;
            format!("incomplete: {left} of {all} not started; can be resumed")
        }
    }
}

/// Labels of a configuration that differ between candidates without a meaning: each candidate of an
/// existing server has its own schema, processes have numbers, the address is named first, and the settings of an
/// option file by themselves.
const WITHOUT_MEANING: [&str; 5] =
    ["schema", "process", "address", "option file", "left out of it"];

/// What distinguishes a candidate from the baseline, the most important first: system, program,
/// variant, settings. Empty for an equal one.
pub(crate) fn differences(candidate: &CandidateRecord, baseline: &CandidateRecord) -> Vec<String> {
    let delay = |of: &CandidateRecord| of.injected_delay.map(|delay| format!("delayed by {delay}"));
    let [own, other] =
        [candidate, baseline].map(|one| program(one).into_iter().chain([delay(one)]));
    let differing = own.zip(other).filter(|(own, other)| own != other);
    let mut differences: Vec<String> = differing.filter_map(|(own, _)| own).collect();
    if let (Some(own), Some(other)) = (&candidate.build, &baseline.build)
        && own.variant == other.variant
    {
        differences.extend(in_commands(own, other));
    }
    differences.extend(settings(candidate, baseline));
    differences
}

/// The flags of all commands, each once, without paths, which are those of the machine and of the build.
pub(crate) fn flags(build: &BuildRecord) -> Vec<&str> {
    let words = build.commands.iter().flat_map(|command| command.split_whitespace());
    let words = words.map(|word| word.trim_matches(['\'', '"']));
    distinct(words.filter(|word| word.starts_with('-') && !word.contains('/')))
}

/// The digits of a fingerprint or checksum that are shown.
pub(crate) fn first_digits(text: &str) -> String {
    text.chars().take(12).collect()
}

/// What distinguishes two builds of one variant.
fn in_commands(own: &BuildRecord, other: &BuildRecord) -> Vec<String> {
    let missing = |in_one: &[&str], in_other: &[&str]| {
        let missing = in_one.iter().filter(|flag| !in_other.contains(flag));
        missing.copied().collect::<Vec<_>>().join(" ")
    };
    let (own_flags, other_flags) = (flags(own), flags(other));
    let is_same_source = own.source_sha256 == other.source_sha256;
    let named = [
        ("with", missing(&own_flags, &other_flags)),
        ("without", missing(&other_flags, &own_flags)),
        ("of", if is_same_source { "" } else { "another source" }.to_owned()),
    ];
    let named = named.into_iter().filter(|(_, what)| !what.is_empty());
    named.map(|(word, what)| format!("{word} {what}")).collect()
}

/// Characters of a difference in a summary: some settings are lists of settings.
const LONGEST: usize = 60;

/// The differences as one text of at most `most` of them.
pub(crate) fn summary(
    candidate: &CandidateRecord,
    baseline: &CandidateRecord,
    most: usize,
) -> String {
    if candidate.role == Role::Control {
        return format!("a second instance of {}", baseline.name);
    }
    if let Some(OriginRecord::Imported { file }) = &candidate.origin {
        return format!("imported from {file}");
    }
    let all = differences(candidate, baseline);
    let rest = all.len().saturating_sub(most);
    let shorten = |text: &String| match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.clone(),
    };
    let shown: Vec<String> = all.iter().take(most).map(shorten).collect();
    match (shown.is_empty(), rest) {
        (true, _) => "no difference in its configuration".to_owned(),
        (false, 0) => shown.join(", "),
        (false, 1) => format!("{}, and 1 more difference", shown.join(", ")),
        (false, rest) => format!("{}, and {rest} more differences", shown.join(", ")),
    }
}

/// The summary of a candidate with this name; `None` if there is none, or for the baseline.
pub(crate) fn summary_of(report: &Report, name: &str, most: usize) -> Option<String> {
    let baseline = report.candidates.iter().find(|one| one.role == Role::Baseline)?;
    let candidate = report.candidates.iter().find(|one| one.name == name)?;
    (candidate.role != Role::Baseline).then(|| summary(candidate, baseline, most))
}

/// Differences in effect shown per candidate beside the answer.
const SHOWN_IN_EFFECT: usize = 3;

/// The settings that differ in effect from the baseline's without being asked for: they may explain the
/// result. At most three, then the number of others; and those that are set beside dbdyno's own values.
pub(crate) fn differs_in_effect(report: &Report, candidate: &CandidateRecord) -> Vec<String> {
    let all = &candidate.config_diff;
    let mut shown: Vec<String> = all.iter().take(SHOWN_IN_EFFECT).cloned().collect();
    match all.len().saturating_sub(shown.len()) {
        0 => {}
        1 => shown.push("and 1 more setting".to_owned()),
        rest => shown.push(format!("and {rest} more settings")),
    }
    shown.extend(beside_defaults(report, candidate));
    shown
}

/// Settings that only this candidate or only the baseline sets, where the other one has dbdyno's own values: a reader
/// may take those for the server's.
pub(crate) fn beside_defaults(report: &Report, candidate: &CandidateRecord) -> Vec<String> {
    let baseline = report.candidates.iter().find(|one| one.role == Role::Baseline);
    let Some(baseline) = baseline.filter(|_| candidate.role == Role::Candidate) else {
        return Vec::new();
    };
    let pairs = [(candidate, baseline), (baseline, candidate)];
    let is_set = |setter: &CandidateRecord, name: &String| {
        // A candidate lacks those that it sets itself.
        setter.in_force.notable_defaults.iter().all(|(known, _)| known != name)
            && !candidate.in_force.without_effect.contains(name)
    };
    let text = |(setter, other): (&CandidateRecord, &CandidateRecord)| {
        let (mut own, mut settings, mut defaults) = (Vec::new(), Vec::new(), Vec::new());
        for (name, default) in &other.in_force.notable_defaults {
            let mut values = setter.configuration.iter().filter(|(label, _)| label == name);
            if let Some((_, value)) = values.next().filter(|(_, value)| value != default)
                && is_set(setter, name)
            {
                let is_default = setter.in_force.set_to_default.contains(name);
                let whose = if is_default { " (the server's own default)" } else { "" };
                own.push(format!("{name} = {value}{whose}"));
                settings.push(format!("{name}={value}"));
                defaults.push(default.as_str());
            }
        }
        let is_found = other.system == setter.system && !own.is_empty();
        let (own, defaults) = (own.join(", "), defaults.join(", "));
        let role = if other.role == Role::Baseline { "the baseline " } else { "" };
        let (setter, name, system) = (&setter.name, &other.name, &other.system);
        let plain = format!("{system}:defaults=server");
        let with_settings = shell_quoted(&format!("{plain}{{{}}}", settings.join(",")));
        is_found.then(|| {
            format!(
                "{setter} sets {own}; {role}{name} has {defaults} by dbdyno's defaults for benchmarks; to measure \
                 against the server's own: `defaults = \"server\"` of both (compare: `{plain} \
                 {with_settings}`)"
            )
        })
    };
    pairs.into_iter().filter_map(text).collect()
}

/// The baseline in full: system, program or variant, compiler.
pub(crate) fn identity(candidate: &CandidateRecord) -> String {
    joined(program(candidate).into_iter().flatten(), ", ").unwrap_or_default()
}

/// System, program or address, variant, compiler.
fn program(candidate: &CandidateRecord) -> [Option<String>; 4] {
    let origin = match &candidate.origin {
        Some(OriginRecord::Program { path, .. }) => Some(path.clone()),
        Some(OriginRecord::Server { address }) => Some(format!("at {address}")),
        Some(OriginRecord::Imported { .. }) | None => None,
    };
    let build = candidate.build.as_ref();
    let variant = build.map(|build| {
        let bolt = match build.bolted {
            true => ", with BOLT",
            false if build.variant.ends_with("_bolt") => ", linked for BOLT only",
            false => "",
        };
        let training = trained(candidate).map(|on| format!(", trained on {on}"));
        format!("variant {}{bolt}{}", build.variant, training.unwrap_or_default())
    });
    [Some(candidate.system_title()), origin, variant, build.map(|build| build.compiler.clone())]
}

/// What its profile was collected from, without the workload in parentheses, which all candidates share.
pub(crate) fn trained(candidate: &CandidateRecord) -> Option<&str> {
    candidate.build.as_ref()?.trained_on.as_ref()?.split(" (").next()
}

/// Settings with another value than the baseline's, then those that only the baseline has, then what
/// servers reported. Of candidates of different kinds, only settings that both have are compared.
fn settings(candidate: &CandidateRecord, baseline: &CandidateRecord) -> Vec<String> {
    let value = |of: &CandidateRecord, label: &str| {
        let mut rows = of.configuration.iter();
        rows.find(|(other, _)| other == label).map(|(_, value)| value.clone())
    };
    let same_kind = candidate.system == baseline.system
        && is_existing_server(candidate) == is_existing_server(baseline);
    let compared = |label: &str, by: &CandidateRecord| {
        !WITHOUT_MEANING.contains(&label) && (same_kind || value(by, label).is_some())
    };
    // Then most of them differ.
    let other_defaults = candidate.in_force.defaults != baseline.in_force.defaults;
    let own = candidate.configuration.iter().filter(|(label, own)| {
        compared(label, baseline) && value(baseline, label).as_ref() != Some(own)
    });
    let only_baseline = baseline.configuration.iter().filter(|(label, _)| {
        !other_defaults && compared(label, candidate) && value(candidate, label).is_none()
    });
    let reported = reported([candidate, baseline]).into_iter().filter(|_| !other_defaults);
    own.map(|(label, value)| format!("{label} = {value}"))
        .chain(only_baseline.map(|(label, _)| format!("{label} not set")))
        .chain(reported.map(|(name, value, _)| format!("{name} = {value}")))
        .collect()
}

/// dbdyno's own values that are named per system.
const MOST_DEFAULTS: usize = 5;

/// Whose values the settings of private servers have that no candidate sets; `None` if that is not known.
pub(crate) fn defaults(report: &Report) -> Option<String> {
    let all = report.candidates.iter().filter(|one| one.role != Role::Control);
    let of = |defaults| all.clone().filter(move |one| one.in_force.defaults == Some(defaults));
    let servers: Vec<&str> = of(SettingDefaults::Server).map(|one| one.name.as_str()).collect();
    let dbdynos = by_key(of(SettingDefaults::Dbdyno).map(|one| (&one.system, one)));
    let alone = dbdynos.len() == 1;
    let listed = |(system, candidates): &(&String, Vec<&CandidateRecord>)| {
        // A candidate lacks those that it sets itself.
        let all = candidates.iter().flat_map(|one| &one.in_force.notable_defaults);
        let all = by_key(all.map(|setting| (&setting.0, &setting.1)));
        let first = all.iter().take(MOST_DEFAULTS);
        let values: Vec<String> =
            first.map(|(name, values)| format!("{name} = {}", values[0])).collect();
        let values = values.join(", ");
        if alone { values } else { format!("{system}: {values}") }
    };
    let lists = joined(dbdynos.iter().map(listed), "; ");
    let dbdynos = lists.map(|lists| format!("dbdyno's for benchmarks ({lists}, …)"));
    let of = if dbdynos.is_some() { format!(" of {}", servers.join(", ")) } else { String::new() };
    let servers = (!servers.is_empty()).then(|| format!("the server's own{of}"));
    joined([dbdynos, servers].into_iter().flatten(), "; ")
}

/// Whether dbdyno did not start its server.
pub(crate) const fn is_existing_server(candidate: &CandidateRecord) -> bool {
    matches!(candidate.origin, Some(OriginRecord::Server { .. }))
}

/// What the servers of both reported differently: name, value and the baseline's value. Empty for two
/// private servers with the same defaults, whose settings are in their configuration, and for different
/// systems.
fn reported([candidate, baseline]: [&CandidateRecord; 2]) -> Vec<(&str, &str, &str)> {
    let comparable = candidate.system == baseline.system
        && (is_existing_server(candidate)
            || is_existing_server(baseline)
            || candidate.in_force.defaults != baseline.in_force.defaults);
    if comparable { reported_differently([candidate, baseline]) } else { Vec::new() }
}

fn reported_differently([candidate, baseline]: [&CandidateRecord; 2]) -> Vec<(&str, &str, &str)> {
    let of_baseline = |name: &str| {
        let mut all = baseline.server_settings.iter();
        all.find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    };
    let differing = candidate.server_settings.iter().filter_map(|(name, value)| {
        let values = [value.as_str(), of_baseline(name)?];
        let [own, other] = values.map(|value| if value.is_empty() { "''" } else { value });
        (!are_equal(values)).then_some((name.as_str(), own, other))
    });
    differing.collect()
}

/// Whether two values are the same. Releases write numbers differently, such as `0` and `0.000000`.
fn are_equal([one, other]: [&str; 2]) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    let is_fraction = one.contains('.') || other.contains('.');
    one == other || is_fraction && number(one).is_some() && number(one) == number(other)
}

/// What a release reports of itself and not of its settings.
const OF_RELEASE: [&str; 9] = [
    "CC",
    "CFLAGS",
    "CONFIGURE",
    "LDFLAGS",
    "build",
    "have_ssl",
    "innodb_version",
    "rocksdb_git_hash",
    "server_version_num",
];

/// Settings of private servers of two releases that neither candidate sets, and whose defaults differ: name, value and
/// the baseline's value.
fn defaults_of_releases(both: [&CandidateRecord; 2]) -> Vec<(&str, &str, &str)> {
    let [candidate, baseline] = both;
    let are_releases = candidate.system == baseline.system
        && candidate.version != baseline.version
        && candidate.in_force.defaults == baseline.in_force.defaults
        && !both.into_iter().any(is_existing_server);
    if !are_releases {
        return Vec::new();
    }
    let is_set = |name: &str| {
        both.iter().any(|one| one.configuration.iter().any(|(label, _)| label == name))
    };
    let mut all = reported_differently(both);
    all.retain(|(name, ..)| {
        !is_set(name) && !name.starts_with("version") && !OF_RELEASE.contains(name)
    });
    all
}

/// Settings that affect speed most often, those with the largest effects first. Others follow in their order.
const RELEVANT: [&str; 38] = [
    "character set",
    "character_set_server",
    "durability of a commit",
    "statements",
    "connection",
    "encryption",
    "protection against torn pages",
    "isolation",
    "innodb_flush_log_at_trx_commit",
    "fsync",
    "synchronous_commit",
    "innodb_doublewrite",
    "full_page_writes",
    "innodb_buffer_pool_size",
    "shared_buffers",
    "rocksdb_block_cache_size",
    "innodb_flush_method",
    "checksums of pages",
    "log_bin",
    "sync_binlog",
    "innodb_change_buffering",
    "innodb_adaptive_hash_index",
    "innodb_redo_log_capacity",
    "innodb_log_file_size",
    "max_wal_size",
    "innodb_io_capacity",
    "innodb_use_native_aio",
    "innodb_linux_aio",
    "io_method",
    "innodb_purge_threads",
    "query_cache_type",
    "performance_schema",
    "jit",
    "thread_handling",
    "wal_compression",
    "huge_pages",
    "collation_server",
    "optimizer_switch",
];

/// The settings whose effective values differ from the baseline's, the most relevant first: those that are known from the
/// experiment, and those that servers reported.
pub(crate) fn in_effect(candidate: &CandidateRecord, baseline: &CandidateRecord) -> Vec<String> {
    let rank = |name: &str| {
        RELEVANT.iter().position(|relevant| *relevant == name).unwrap_or(RELEVANT.len())
    };
    // Those of the configuration are stored as texts.
    let stored = candidate.config_diff.iter().map(|difference| {
        (rank(difference.split(':').next().unwrap_or_default()), difference.clone())
    });
    let both = [candidate, baseline];
    let reported = reported(both).into_iter().chain(defaults_of_releases(both));
    let reported = reported.map(|(name, value, other)| {
        (
            rank(name),
            difference_of_lists(name, value, other)
                .unwrap_or_else(|| difference(name, value, other)),
        )
    });
    let mut all: Vec<(usize, String)> = stored.chain(reported).collect();
    all.sort_by_key(|(rank, _)| *rank);
    all.into_iter().map(|(_, difference)| difference).collect()
}

fn difference(name: &str, value: &str, other: &str) -> String {
    format!("{name}: {value}; the baseline: {other}")
}

/// What differs between two lists with common entries, such as `optimizer_switch`; `None` if these are not lists.
fn difference_of_lists(name: &str, value: &str, other: &str) -> Option<String> {
    let [own, others] = [value, other].map(|list| list.split(',').collect::<Vec<_>>());
    let only = |these: &[&str], those: &[&str]| {
        let rest: Vec<&str> = these.iter().filter(|one| !those.contains(one)).copied().collect();
        (rest.len() < these.len())
            .then(|| if rest.is_empty() { "nothing else".to_owned() } else { rest.join(",") })
    };
    let name = format!("{name}, where it differs");
    Some(difference(&name, &only(&own, &others)?, &only(&others, &own)?))
}

/// Texts in one, with `between` between them; `None` without any.
pub(crate) fn joined(texts: impl IntoIterator<Item = String>, between: &str) -> Option<String> {
    texts.into_iter().reduce(|all, one| all + between + &one)
}

#[cfg(test)]
mod tests {
    use dbdyno_units::Share;

    use super::*;
    use crate::sample;

    fn with(configuration: &[(&str, &str)]) -> CandidateRecord {
        let mut candidate = sample::servers_of(&[]).candidates[1].clone();
        candidate.engine = Some("innodb".to_owned());
        let pairs = configuration.iter();
        candidate.configuration =
            pairs.map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        candidate
    }

    #[test]
    fn noise_floor_says_if_the_control_is_imprecise() {
        let mut report = sample::report_of(&["scan_range=100"]);
        assert!(!noise_floor(&report).contains("reach"));
        let cpu = report.cpu_noise.as_mut().unwrap();
        cpu.typical = Share::from_percent(0.38);
        cpu.reach = Share::from_percent(15.0);
        let words = noise_floor(&report);
        let doubt = "but its own intervals reach ±15%: smaller differences may be noise";
        assert!(words.ends_with(&format!(" CPU per query: 0.38% typical, {doubt}.")), "{words}");
        report.noise.as_mut().unwrap().reach = Share::from_percent(30.0);
        let words = noise_floor(&report);
        let doubt = doubt.replace("15", "30");
        assert!(words.contains(&format!(" at most (scan_range=100), {doubt}; ")), "{words}");
    }

    #[test]
    fn candidate_is_described_by_its_settings() {
        let baseline = with(&[("schema", "a"), ("innodb_flush_neighbors", "1"), ("x", "1")]);
        let own = with(&[("schema", "b"), ("innodb_flush_neighbors", "0"), ("y", "2")]);
        let differences = differences(&own, &baseline);
        assert_eq!(differences, ["innodb_flush_neighbors = 0", "y = 2", "x not set"]);
        assert_eq!(
            summary(&own, &baseline, 1),
            "innodb_flush_neighbors = 0, and 2 more differences"
        );
        assert_eq!(summary(&own, &own, 3), "no difference in its configuration");
    }

    #[test]
    fn builds_of_one_variant_are_described_by_their_flags() {
        let baseline = sample::report_of(&[]).candidates[0].clone();
        let mut own = baseline.clone();
        own.role = Role::Candidate;
        let build = own.build.as_mut().unwrap();
        build.commands = vec![format!("{} -fno-plt -I/usr/include", build.commands[0])];
        assert_eq!(summary(&own, &baseline, 3), "with -fno-plt");
        own.build.as_mut().unwrap().source_sha256 = "0".repeat(64);
        assert_eq!(summary(&own, &baseline, 3), "with -fno-plt, of another source");
    }

    #[test]
    fn defaults_are_named_per_system_and_those_of_servers_per_candidate() {
        let of = |name: &str, system: &str, defaults, notable: &[(&str, &str)]| {
            let mut one = with(&[]);
            (one.name, one.system, one.role) =
                (name.to_owned(), system.to_owned(), Role::Candidate);
            one.in_force.defaults = defaults;
            one.in_force.notable_defaults = sample::pairs(notable);
            one
        };
        let (dbdyno, server) = (Some(SettingDefaults::Dbdyno), Some(SettingDefaults::Server));
        let mut report = sample::servers_of(&[]);
        report.candidates = vec![of("a", "mariadb", None, &[])];
        assert_eq!(defaults(&report), None, "an older run");
        let jit = of("b", "postgresql", dbdyno, &[("fsync", "off")]);
        let plain = of("a", "postgresql", dbdyno, &[("jit", "off"), ("fsync", "off")]);
        report.candidates = vec![plain.clone(), jit];
        let expected = "dbdyno's for benchmarks (jit = off, fsync = off, …)";
        assert_eq!(defaults(&report).as_deref(), Some(expected));
        report.candidates = vec![plain, of("s", "postgresql", server, &[])];
        let expected = "dbdyno's for benchmarks (jit = off, fsync = off, …); the server's own of s";
        assert_eq!(defaults(&report).as_deref(), Some(expected));
        report.candidates = vec![of("s", "postgresql", server, &[])];
        assert_eq!(defaults(&report).as_deref(), Some("the server's own"));
    }

    #[test]
    fn setting_beside_a_default_of_dbdyno_is_named_with_the_other_value() {
        const FLUSH: &str = "innodb_flush_log_at_trx_commit";
        let of = |name: &str, role: Role, flush: &str, is_own: bool| {
            let mut one = with(&[(FLUSH, flush), ("max_connections", "151")]);
            (one.name, one.role) = (name.to_owned(), role);
            one.in_force.defaults = Some(SettingDefaults::Dbdyno);
            if !is_own {
                one.in_force.notable_defaults = sample::pairs(&[(FLUSH, flush)]);
            }
            one
        };
        let mut report = sample::servers_of(&[]);
        let mut texts = |baseline: CandidateRecord, candidate: CandidateRecord| {
            report.candidates = vec![baseline, candidate.clone()];
            assert!(beside_defaults(&report, &report.candidates[0]).is_empty());
            let texts = beside_defaults(&report, &candidate);
            assert!(differs_in_effect(&report, &candidate).ends_with(&texts));
            texts
        };
        let default = |value: &str| of("a", Role::Baseline, value, false);
        let own = of("b", Role::Candidate, "1", true);
        let text = "b sets innodb_flush_log_at_trx_commit = 1; the baseline a has 2 by dbdyno's defaults for \
                    benchmarks; to measure against the server's own: `defaults = \"server\"` of both \
                    (compare: `mariadb:defaults=server \
                    'mariadb:defaults=server{innodb_flush_log_at_trx_commit=1}'`)";
        assert_eq!(texts(default("2"), own.clone()), [text]);
        let mut known = own.clone();
        known.in_force.set_to_default = vec![FLUSH.to_owned()];
        let start = "b sets innodb_flush_log_at_trx_commit = 1 (the server's own default); the";
        assert!(texts(default("2"), known)[0].starts_with(start));
        let turned =
            texts(of("a", Role::Baseline, "1", true), of("b", Role::Candidate, "2", false));
        let start = "a sets innodb_flush_log_at_trx_commit = 1; b has 2 by dbdyno's";
        assert!(turned[0].starts_with(start), "{turned:?}");
        assert!(texts(of("a", Role::Baseline, "2", true), own.clone()).is_empty(), "both set it");
        assert!(texts(default("1"), own.clone()).is_empty(), "equal values");
        let mut same = own.clone();
        same.in_force.without_effect = vec![FLUSH.to_owned()];
        assert!(texts(default("on"), same).is_empty(), "equal in force");
        let other = CandidateRecord { system: "mysql".to_owned(), ..own };
        assert!(texts(default("2"), other).is_empty(), "another system");
    }

    #[test]
    fn candidate_is_described_by_its_program_and_version() {
        let baseline = with(&[]);
        let mut own = with(&[]);
        own.version = "11.4.5-MariaDB".to_owned();
        own.origin = Some(OriginRecord::Server { address: "db2:3306".to_owned() });
        assert_eq!(differences(&own, &baseline), ["MariaDB 11.4.5 (innodb)", "at db2:3306"]);
        assert_eq!(identity(&baseline), "MariaDB 10.11.14 (innodb), /usr/sbin/mariadbd");
    }

    fn server(address: &str, settings: &[(&str, &str)]) -> CandidateRecord {
        let mut candidate =
            with(&[("schema", address), ("process", address), ("statements", "text")]);
        candidate.origin = Some(OriginRecord::Server { address: address.to_owned() });
        candidate.server_settings = sample::pairs(settings);
        candidate
    }

    #[test]
    fn existing_server_is_described_by_the_settings_that_it_reported() {
        let baseline = server("db1", &[("innodb_doublewrite", "ON"), ("long_query_time", "10")]);
        let own = server("db2", &[("innodb_doublewrite", "OFF"), ("only_here", "1")]);
        assert_eq!(differences(&own, &baseline), ["at db2", "innodb_doublewrite = OFF"]);
        assert_eq!(reported([&own, &baseline]), [("innodb_doublewrite", "OFF", "ON")]);
        let unknown = server("db2", &[]);
        assert_eq!(differences(&unknown, &baseline), ["at db2"]);
    }

    #[test]
    fn private_and_existing_server_are_compared_by_what_both_report() {
        let mut private = with(&[("durability", "relaxed"), ("statements", "prepared")]);
        private.server_settings = sample::pairs(&[("innodb_doublewrite", "OFF")]);
        let existing = server("db1", &[("innodb_doublewrite", "ON")]);
        assert_eq!(
            differences(&existing, &private),
            ["at db1", "statements = text", "innodb_doublewrite = ON"]
        );
        let mut other = private.clone();
        other.server_settings = sample::pairs(&[("innodb_doublewrite", "ON")]);
        assert_eq!(reported([&other, &private]), [], "two private servers");
    }

    #[test]
    fn defaults_of_releases_differ_in_effect_the_most_relevant_first() {
        let release = |version: &str, settings: &[(&str, &str)]| {
            let mut one = with(&[("innodb_buffer_pool_size", "1G")]);
            one.version = version.to_owned();
            one.server_settings = sample::pairs(settings);
            one
        };
        let old = [
            ("sort_buffer_size", "1"),
            ("innodb_buffer_pool_size", "1073741824"),
            ("innodb_change_buffering", "all"),
            ("innodb_version", "10"),
            ("expire_logs_days", "0"),
            ("only_there", "1"),
            ("optimizer_switch", "mrr=off,hash_join=off"),
        ];
        let new = [
            ("sort_buffer_size", "2"),
            ("innodb_buffer_pool_size", "1G"),
            ("innodb_change_buffering", "none"),
            ("innodb_version", "11"),
            ("expire_logs_days", "0.000000"),
            ("optimizer_switch", "mrr=off,hash_join=on,rowid_filter=on"),
        ];
        let baseline = release("10.11", &old);
        let mut own = release("11.8", &new);
        own.config_diff = vec!["character set: utf8mb4; the baseline: latin1".to_owned()];
        assert_eq!(
            in_effect(&own, &baseline),
            [
                "character set: utf8mb4; the baseline: latin1",
                "innodb_change_buffering: none; the baseline: all",
                "optimizer_switch, where it differs: hash_join=on,rowid_filter=on; the baseline: hash_join=off",
                "sort_buffer_size: 2; the baseline: 1",
            ]
        );
        own.version.clone_from(&baseline.version);
        assert_eq!(in_effect(&own, &baseline), own.config_diff, "one release");
    }

    #[test]
    fn settings_of_another_system_are_not_listed() {
        let baseline = with(&[("durability", "relaxed"), ("shared_buffers", "1GB")]);
        let mut own = with(&[("durability", "strict"), ("max_connections", "151")]);
        own.system = "postgresql".to_owned();
        let differences = differences(&own, &baseline);
        assert_eq!(differences[1..], ["durability = strict"], "{differences:?}");
    }

    #[test]
    fn candidate_is_described_by_its_variant() {
        let report = sample::report_of(&[]);
        let of = |name| summary_of(&report, name, 3).unwrap();
        assert_eq!(of("rel_native"), "variant rel_native");
        assert_eq!(of("control"), "a second instance of rel_withdbg");
        assert_eq!(summary_of(&report, "rel_withdbg", 3), None);
        let mut with_profile = report.candidates[1].clone();
        let build = with_profile.build.as_mut().unwrap();
        build.variant = "rel_o2_pgo_bolt".to_owned();
        build.trained_on = Some("all !writes (1 × 1000 rows, 500 ms of each, seed 1)".to_owned());
        let words = |one: &CandidateRecord| program(one)[2].clone().unwrap();
        let variant = "variant rel_o2_pgo_bolt, linked for BOLT only, trained on all !writes";
        assert_eq!(words(&with_profile), variant);
        with_profile.build.as_mut().unwrap().bolted = true;
        let variant = "variant rel_o2_pgo_bolt, with BOLT, trained on all !writes";
        assert_eq!(words(&with_profile), variant);
        let imported = summary_of(&sample::imported(), "myrocks", 3);
        assert_eq!(imported.as_deref(), Some("imported from published-qps.tsv"));
        assert_eq!(
            identity(&report.candidates[0]),
            "SQLite 3.50.0, variant rel_withdbg, gcc 12.2.0"
        );
    }
}
