//! What each candidate is: build, compile command, sizes, configuration.

use super::escape::{breakable, esc};
use super::marks;
use crate::model::{BuildSummary, CandidateSummary, Origin, Report, Role};
use dbdyno_units::Bytes;

pub(super) fn render(report: &Report) -> String {
    let mut out = String::from(
        "<section aria-labelledby=\"h-candidates\" id=\"candidates\">\n\
         <h2 id=\"h-candidates\">Candidates</h2>\n<div class=\"grid\">\n",
    );
    let baseline = report.candidates.iter().find(|candidate| candidate.role == Role::Baseline);
    let mut place = 0;
    for candidate in &report.candidates {
        out.push_str(&card(candidate, baseline, place));
        if candidate.role != Role::Baseline {
            place += 1;
        }
    }
    out.push_str("</div>\n</section>\n");
    out
}

fn card(candidate: &CandidateSummary, baseline: Option<&CandidateSummary>, place: usize) -> String {
    let role = match candidate.role {
        Role::Baseline => "baseline",
        Role::Candidate => "candidate",
        Role::Control => "control: the baseline again, as an instance of its own",
    };
    let mut out = format!(
        "<article class=\"card\">\n<h3>{}{} <small>{role}</small></h3>\n<dl class=\"pairs\">\n",
        marks::inline(place, candidate.role),
        breakable(&candidate.name)
    );
    let mut pair = |label: &str, value: String| {
        out.push_str(&format!("<div><dt>{label}</dt><dd>{}</dd></div>\n", esc(&value)));
    };
    pair("System", candidate.system.clone());
    match &candidate.origin {
        None => {}
        Some(Origin::Program { path, sha256, file_size }) => {
            pair("Program", path.clone());
            pair("File", file_size.to_string());
            pair("SHA-256", sha256.clone());
        }
        Some(Origin::Server { address }) => pair("Server", address.clone()),
        Some(Origin::Imported { file }) => pair("Imported from", file.clone()),
    }
    let other = baseline.filter(|_| candidate.role == Role::Candidate);
    let builds = candidate
        .build
        .as_ref()
        .map(|build| (build, other.and_then(|baseline| baseline.build.as_ref())));
    if let Some((build, other)) = builds {
        pair("Variant", build.variant.clone());
        if let Some(trained_on) = &build.trained_on {
            pair("Profile of", trained_on.clone());
        }
        pair("Compiler", build.compiler.clone());
        pair("Build", build.fingerprint.clone());
        let against = |own: Bytes, base: Option<Bytes>| {
            let base = base.map(Bytes::as_bytes).filter(|base| *base > 0);
            base.map_or_else(String::new, |base| {
                format!(" ({:+.1}%)", 100.0 * (own.as_bytes() as f64 / base as f64 - 1.0))
            })
        };
        let text = against(build.text_size, other.map(|build| build.text_size));
        pair("Machine code", format!("{}{text}", build.text_size));
        let file = against(build.file_size, other.map(|build| build.file_size));
        pair("File", format!("{}{file}", build.file_size));
    }
    if let Some(delay) = candidate.injected_delay {
        pair("Injected delay", delay.to_string());
    }
    out.push_str("</dl>\n");
    if let Some((build, other)) = builds {
        if let Some(other) = other {
            out.push_str(&flags(build, other));
        }
        out.push_str(&format!(
            "<h4>Compile command</h4>\n<pre tabindex=\"0\">{}</pre>\n",
            words(&build.command)
        ));
    }
    if !candidate.parity.is_empty() {
        out.push_str(
            "<h4>Settings that differ in effect from the baseline</h4>\n<ul class=\"parity\">\n",
        );
        for difference in &candidate.parity {
            out.push_str(&format!("<li>{}</li>\n", esc(difference)));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("<h4>Configuration</h4>\n");
    if candidate.configuration.is_empty() {
        out.push_str("<p class=\"muted\">Nothing set.</p>\n");
    } else {
        out.push_str("<dl class=\"pairs mono\">\n");
        for (key, value) in &candidate.configuration {
            let (key, value) = (esc(key), esc(value));
            out.push_str(&format!("<div><dt>{key}</dt><dd>{value}</dd></div>\n"));
        }
        out.push_str("</dl>\n");
    }
    out.push_str("</article>\n");
    out
}

/// A command line whose arguments stay whole where they fit on a line.
fn words(command: &str) -> String {
    let words: Vec<String> =
        command.split(' ').map(|word| format!("<span>{}</span>", esc(word))).collect();
    words.join(" ")
}

/// The flags that only one of the two builds has: what the difference in speed comes from.
fn flags(candidate: &BuildSummary, baseline: &BuildSummary) -> String {
    let only = |own: &str, other: &str| {
        let other: Vec<&str> = other.split_whitespace().collect();
        let flags = own.split_whitespace().filter(|flag| flag.starts_with('-'));
        let only = flags.filter(|flag| !other.contains(flag));
        only.map(|flag| format!("<code>{}</code>", esc(flag))).collect::<Vec<_>>().join(" ")
    };
    let added = only(&candidate.command, &baseline.command);
    let removed = only(&baseline.command, &candidate.command);
    if added.is_empty() && removed.is_empty() {
        return "<p class=\"flags\">The same flags as the baseline.</p>\n".to_owned();
    }
    let mut out = String::from("<p class=\"flags\">");
    for (label, flags) in [("Only here:", added), ("Only in the baseline:", removed)] {
        if !flags.is_empty() {
            out.push_str(&format!("<span>{label} {flags}</span> "));
        }
    }
    out.push_str("</p>\n");
    out
}
