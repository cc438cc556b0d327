//! What each candidate is: build, compile command, sizes, configuration.

use super::escape::{breakable, esc};
use super::marks;
use crate::model::{CandidateSummary, Report, Role};

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
    pair("Variant", candidate.variant.clone());
    pair("Compiler", candidate.compiler.clone());
    pair("Build", candidate.fingerprint.clone());
    let other = baseline.filter(|_| candidate.role == Role::Candidate);
    let against = |own: u64, of: fn(&CandidateSummary) -> u64| {
        let base = other.map(of).filter(|base| *base > 0);
        base.map_or_else(String::new, |base| {
            format!(" ({:+.1}%)", 100.0 * (own as f64 / base as f64 - 1.0))
        })
    };
    let text = against(candidate.text_size.as_bytes(), |c| c.text_size.as_bytes());
    pair("Machine code", format!("{}{text}", candidate.text_size));
    let file = against(candidate.file_size.as_bytes(), |c| c.file_size.as_bytes());
    pair("File", format!("{}{file}", candidate.file_size));
    if let Some(delay) = candidate.injected_delay {
        pair("Injected delay", delay.to_string());
    }
    out.push_str("</dl>\n");
    if let Some(baseline) = other {
        out.push_str(&flags(candidate, baseline));
    }
    out.push_str(&format!(
        "<h4>Compile command</h4>\n<pre tabindex=\"0\">{}</pre>\n",
        words(&candidate.command)
    ));
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
fn flags(candidate: &CandidateSummary, baseline: &CandidateSummary) -> String {
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
