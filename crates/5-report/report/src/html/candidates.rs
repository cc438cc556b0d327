//! What was measured, and where: build, compile command, sizes and configuration of each candidate,
//! then host, settings and the experiment file.

use dbdyno_units::Bytes;
use maud::{Markup, html};

use super::document::{label, pairs, with_heading};
use crate::model::{BuildRecord, CandidateRecord, OriginRecord, Report, Role};
use crate::sections::builds::relative;
use crate::sections::mark;

pub(super) fn render(report: &Report) -> Markup {
    let baseline = report.candidates.iter().find(|candidate| candidate.role == Role::Baseline);
    let content = html! {
        div.grid {
            @for candidate in &report.candidates { (card(report, candidate, baseline)) }
        }
    };
    with_heading("candidates", "Candidates", content)
}

fn card(
    report: &Report,
    candidate: &CandidateRecord,
    baseline: Option<&CandidateRecord>,
) -> Markup {
    let role = match candidate.role {
        Role::Baseline => "baseline",
        Role::Candidate => "candidate",
        Role::Control => "control: a second, independent instance of the baseline",
    };
    let other = baseline.filter(|_| candidate.role == Role::Candidate);
    let other = other.and_then(|baseline| baseline.build.as_ref());
    html! {
        article.card {
            h3 {
                (label(mark(report, &candidate.name, candidate.role), &candidate.name))
                " " small { (role) }
            }
            dl.pairs { (pairs(&facts(candidate, other))) }
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
fn facts(candidate: &CandidateRecord, other: Option<&BuildRecord>) -> Vec<(String, String)> {
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
