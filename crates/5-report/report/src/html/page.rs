//! The frame of the page: security policy, header, notes and footer.
//!
//! A page runs one script and has one style sheet, both ours and identified by their hashes. If text
//! of a run ever got into the markup unescaped, browsers would neither run nor apply it.

use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine};
use dbdyno_text::Mark;
use dbdyno_types::server::SettingDefaults;
use dbdyno_units::Bytes;
use maud::{Markup, html};
use sha2::{Digest, Sha256};

use super::document::{inline, label, pairs, with_heading};
use crate::metric::{client_bound_rows, clients, compared};
use crate::model::{
    BuildRecord, CandidateRecord, Metric, NoiseFloor, OriginRecord, Report, Role, RunStatus,
    distinct,
};
use crate::sections::builds::relative;
use crate::sections::{mark, overview};
use crate::words::{self, readable_time};

pub(super) const SCRIPT: &str = concat!("\n", include_str!("script.js"));

pub(super) const STYLE: &str = concat!("\n", include_str!("style.css"));

pub(super) static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; \
         form-action 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

pub(super) fn header(report: &Report) -> Markup {
    let class = match report.status {
        RunStatus::Complete => "complete",
        RunStatus::Incomplete => "incomplete",
    };
    html! {
        header {
            p.brand { "dbdyno " (report.version) }
            h1 { (report.name) }
            p.status.(class) { (words::status(report)) }
            dl.strip { (pairs(&facts(report))) }
        }
    }
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let baseline = report.candidates.iter().find(|candidate| candidate.role == Role::Baseline);
    let count = compared(report).iter().filter(|one| one.role == Role::Candidate).count();
    let candidates = match count {
        1 => "1 candidate".to_owned(),
        count => format!("{count} candidates"),
    };
    let (work, spread) = match &report.insert {
        Some(insert) => {
            let spread = match insert.repeats {
                1 => "unknown: one repeat".to_owned(),
                repeats => format!("over {repeats} repeats, in every table"),
            };
            ("insert benchmark".to_owned(), ("Spread", spread))
        }
        None => {
            let noise = match &report.noise {
                Some(noise) => {
                    let imprecise = words::imprecise(noise);
                    format!("{} typical, {} at most{imprecise}", noise.typical, noise.greatest)
                }
                None if report.has_control() => "unknown: no interval of the control".to_owned(),
                None => "unknown: no control".to_owned(),
            };
            (microbenchmarks(report), ("Noise floor", noise))
        }
    };
    let times = overview::times(report, " of ").unwrap_or_else(|| "unknown".to_owned());
    let mut facts = vec![("Started", readable_time(&report.started)), ("Time measured", times)];
    // Six facts fill the strip at every width.
    let system = baseline.map_or_else(String::new, |baseline| baseline.system_title());
    let compared = ("Compared", format!("{candidates}, {work}"));
    match words::workload(report) {
        Some(workload) => {
            let baseline = ("Baseline", format!("{}, {system}", report.baseline));
            facts.extend([baseline, compared, ("Workload", workload)]);
        }
        None => {
            let baseline = ("Baseline", report.baseline.clone());
            facts.extend([baseline, ("System", system), compared]);
        }
    }
    facts.push(spread);
    facts
}

/// The number of microbenchmarks, with the numbers of clients in a sweep.
fn microbenchmarks(report: &Report) -> String {
    let count = match distinct(report.microbenchmarks.iter().map(|one| &one.name)).len() {
        1 => "1 microbenchmark".to_owned(),
        count => format!("{count} microbenchmarks"),
    };
    let steps = report.clients();
    match &steps[..] {
        [first, .., last] => format!("{count}, {first} to {}", clients(*last)),
        _ => count,
    }
}

/// The toggles and the legend, which stay in view.
pub(super) fn toolbar(report: &Report) -> Markup {
    html! {
        div.toolbar {
            @if report.has(Metric::Cpu) {
                @let leading = usize::from(report.leading_metric() == Metric::Cpu);
                @let metrics = [("t-qps", "QPS"), ("t-cpu", "CPU per query")];
                (toggle("Metric", "metric", metrics, leading))
            }
            (toggle("Groups", "groups", [("t-five", "five"), ("t-three", "three")], 0))
            (legend(report))
        }
    }
}

/// A choice of two, with the one at `set`.
fn toggle(label: &str, name: &str, choices: [(&str, &str); 2], set: usize) -> Markup {
    html! {
        fieldset {
            legend { (label) }
            @for (index, (id, text)) in choices.into_iter().enumerate() {
                input type="radio" name=(name) id=(id) checked[index == set];
                label for=(id) { (text) }
            }
        }
    }
}

/// The candidates' markers; in an insert benchmark the baseline has its own lines, too.
pub(super) fn legend(report: &Report) -> Markup {
    html! {
        ul.legend aria-label="Markers of the candidates" {
            @if report.insert.is_some() {
                li { (inline(Mark::Baseline)) (report.baseline) " (baseline)" }
            }
            @for one in compared(report) {
                li { (inline(mark(report, &one.name, one.role))) (one.name) }
            }
        }
    }
}

/// Failures first, then limits, then warnings; nothing if there are none.
pub(super) fn failures_and_warnings(report: &Report) -> Markup {
    let failures = html! {
        @for failure in &report.failures {
            li { strong { (failure.candidate) } " at " (failure.at) ": " (failure.reason) }
        }
    };
    let limits = html! {
        @if let Some(text) = words::client_bound(report) {
            li { strong { "Client-bound:" } " " (text) }
        }
        @for lost in &report.lost {
            li { strong { (lost.candidate) } " " (words::lost_connections(lost)) }
        }
        @for (candidate, text) in overview::refused(report) {
            li { strong { (candidate) } " " (text) }
        }
    };
    let warnings = html! {
        @for warning in &report.warnings {
            li { strong { (warning.what_with_stop()) } " " (warning.advice) }
        }
    };
    html! {
        (note("failure", "failures", "Failed", failures))
        (note("warning", "limits", "Limits and lost connections", limits))
        (note("warning", "warnings", "Warnings", warnings))
    }
}

/// A box with a list; nothing for an empty list.
pub(super) fn note(class: &str, id: &str, title: &str, items: Markup) -> Markup {
    html! {
        @if !items.0.is_empty() {
            section.note.(class) aria-labelledby={ "h-" (id) } {
                h2 id={ "h-" (id) } { (title) }
                ul { (items) }
            }
        }
    }
}

pub(super) fn how_to_read(report: &Report) -> Markup {
    html! {
        p.muted {
            b.better { "+" } " better than the baseline, " b.worse { "−" } " worse, "
            b { "~" } " within noise (hollow marker), " b { "?" } " too noisy to tell"
            @if client_bound_rows(report).0 > 0 {
                ", " b { "c" } " client-bound: limited by the load generator"
            }
            @if report.is_imported() { ", " b { "·" } " too few values for an interval" }
            ". Whiskers and the numbers below a ratio are its 95% confidence interval. "
            (noise_band(report))
            span.js {
                " Select a name to see its distribution and response times; ↑ ↓ move between names."
            }
        }
    }
}

fn noise_band(report: &Report) -> String {
    let typical =
        |noise: &NoiseFloor, of: &str| format!("±{}{of}{}", noise.typical, words::imprecise(noise));
    let floor = match (&report.noise, &report.cpu_noise) {
        (Some(noise), Some(cpu)) => {
            format!("{}; {}", typical(noise, " of QPS"), typical(cpu, " of CPU per query"))
        }
        (Some(noise), None) => typical(noise, ""),
        (None, Some(cpu)) => format!("{}; unknown of QPS", typical(cpu, " of CPU per query")),
        (None, None) => {
            return format!("The noise floor is unknown: {}.", words::unknown_noise(report));
        }
    };
    format!("The band around 1 is the noise floor measured with the control: {floor}.")
}

pub(super) fn footer(report: &Report) -> Markup {
    html! {
        footer {
            p {
                @if report.insert.is_none() { (report.interval_method) }
                @if report.noise.is_some() || report.cpu_noise.is_some() {
                    " Noise floor: " (words::noise_floor(report))
                }
            }
            p { "Created by dbdyno " (report.version) " from a run started at " (report.started) "." }
        }
    }
}

pub(super) fn candidates(report: &Report) -> Markup {
    let content = html! {
        div.grid { @for candidate in &report.candidates { (card(report, candidate)) } }
    };
    with_heading("candidates", "Candidates", content)
}

fn card(report: &Report, candidate: &CandidateRecord) -> Markup {
    let role = match candidate.role {
        Role::Baseline => "baseline",
        Role::Candidate => "candidate",
        Role::Control => "control: a second, independent instance of the baseline",
    };
    let baseline = report.candidates.iter().find(|one| one.role == Role::Baseline);
    let other = baseline.filter(|_| candidate.role == Role::Candidate);
    let other = other.and_then(|baseline| baseline.build.as_ref());
    html! {
        article.card {
            h3 {
                (label(mark(report, &candidate.name, candidate.role), &candidate.name))
                " " small { (role) }
            }
            dl.pairs { (pairs(&facts_of(candidate, other))) }
            @if let Some(build) = &candidate.build {
                @if let Some(other) = other { (flags(build, other)) }
                (compile_command(&build.command()))
            }
            @if !candidate.config_diff.is_empty() {
                h4 { "Effective settings that differ from the baseline’s" }
                ul.differences { @for difference in &candidate.config_diff { li { (difference) } } }
            }
            h4 { "Configuration" }
            @if candidate.configuration.is_empty() {
                p.muted { "Nothing set." }
            } @else {
                dl.pairs.mono { (pairs(&candidate.configuration)) }
            }
            @if !candidate.in_force.adjusted.is_empty() {
                h4 { "Settings that the server changed: asked → in force" }
                ul.differences {
                    @for one in &candidate.in_force.adjusted {
                        li { (one.name) ": " (one.asked) " → " (one.in_force) }
                    }
                }
            }
            @if !candidate.in_force.server_log.is_empty() {
                details {
                    summary { "Warnings in the server’s log" }
                    ul.differences { @for line in &candidate.in_force.server_log { li { (line) } } }
                }
            }
            @if !candidate.server_settings.is_empty() {
                details {
                    summary {
                        "All " (candidate.server_settings.len()) " settings that the server reported"
                    }
                    dl.pairs.mono { (pairs(&candidate.server_settings)) }
                }
            }
        }
    }
}

/// Labels and values; sizes are compared with the build `other`.
fn facts_of(candidate: &CandidateRecord, other: Option<&BuildRecord>) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut add = |label: &str, value: String| facts.push((label.to_owned(), value));
    add("System", candidate.system_title());
    match &candidate.origin {
        None => {}
        Some(OriginRecord::Program { path, sha256, file_size, release }) => {
            if let Some(release) = release {
                add("Release", release.origin.clone());
                if let Some(file) = release.files.first() {
                    add("Package", format!("{file}, SHA-256 {}", file.sha256));
                }
                if let rest @ 1.. = release.files.len().saturating_sub(1) {
                    add("Other packages", format!("{rest}, listed in run.json"));
                }
            }
            add("Program", path.clone());
            add("File size", file_size.to_string());
            add("SHA-256", sha256.clone());
        }
        Some(OriginRecord::Server { address }) => add("Server", address.clone()),
        Some(OriginRecord::Imported { file }) => add("Imported from", file.clone()),
    }
    if let Some(defaults) = candidate.in_force.defaults {
        let whose = match defaults {
            SettingDefaults::Dbdyno => "dbdyno’s for benchmarks",
            SettingDefaults::Server => "the server’s own",
        };
        add("Defaults", whose.to_owned());
    }
    if let Some(build) = &candidate.build {
        add("Variant", build.variant.clone());
        if let Some(trained_on) = &build.trained_on {
            add("Profile from", trained_on.clone());
        }
        add("Compiler", build.compiler.clone());
        add("Build", build.fingerprint.clone());
        let size = |own: Bytes, other: Option<Bytes>| match relative(Some(own), other) {
            Some(difference) => format!("{own} ({difference})"),
            None => own.to_string(),
        };
        add("Machine code", size(build.text_size, other.map(|build| build.text_size)));
        add("File size", size(build.file_size, other.map(|build| build.file_size)));
    }
    if let Some(delay) = candidate.injected_delay {
        add("Injected delay", delay.to_string());
    }
    facts
}

/// Longer compile commands are collapsed: those of servers fill a page.
const SHOWN_COMMAND: usize = 500;

/// A compile command whose arguments break only where they are longer than a line.
fn compile_command(command: &str) -> Markup {
    let arguments = html! {
        pre tabindex="0" {
            @for (index, argument) in command.split(' ').enumerate() {
                @if index > 0 { " " }
                span { (argument) }
            }
        }
    };
    html! {
        @if command.len() <= SHOWN_COMMAND {
            h4 { "Compile command" }
            (arguments)
        } @else {
            details.command { summary { "Compile command" } (arguments) }
        }
    }
}

/// The flags that only one of the two builds has, which explain a difference in speed.
fn flags(candidate: &BuildRecord, baseline: &BuildRecord) -> Markup {
    fn only<'a>(own: &'a str, other: &str) -> Vec<&'a str> {
        let other: Vec<&str> = other.split_whitespace().collect();
        let flags = own.split_whitespace().filter(|flag| flag.starts_with('-'));
        flags.filter(|flag| !other.contains(flag)).collect()
    }
    let (candidate, baseline) = (candidate.command(), baseline.command());
    let added = only(&candidate, &baseline);
    let removed = only(&baseline, &candidate);
    html! {
        p.flags {
            @if added.is_empty() && removed.is_empty() { "The same flags as the baseline." }
            @for (label, flags) in [("Only here:", added), ("Only in the baseline:", removed)] {
                @if !flags.is_empty() {
                    span { (label) @for flag in flags { " " code { (flag) } } } " "
                }
            }
        }
    }
}

pub(super) fn environment(report: &Report) -> Markup {
    let title = if report.is_imported() { "Imported files" } else { "Experiment file" };
    html! {
        div.grid.two {
            (facts_about("host", "Host", &report.host))
            (facts_about("settings", "Settings", &report.settings))
        }
        (with_heading("experiment", title, html! { pre tabindex="0" { (report.experiment_text) } }))
    }
}

fn facts_about(id: &str, title: &str, facts: &[(String, String)]) -> Markup {
    let content = html! {
        @if facts.is_empty() {
            p.muted { "Nothing recorded." }
        } @else {
            dl.pairs.card { (pairs(facts)) }
        }
    };
    with_heading(id, title, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_has_the_form_of_the_standard() {
        // From the example in Content Security Policy Level 3, section 8.2.
        let hash = hash("doSomething();");
        assert_eq!(hash, "sha256-RFWPLDbv2BY+rCkDzsE+0fr8ylGr2R2faWMhq4lfEQc=");
    }
}
