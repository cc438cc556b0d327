//! What was compiled: what compilers recorded, and how command lines differ.

use dbdyno_results::{CommandLineDifference, CommandLinesRecord};
use dbdyno_units::Bytes;

use super::escape::{breakable, esc};
use super::marks;
use crate::builds::{
    Audited, Property, Value, audited, counted, files, relative, signed, unmatched,
};
use crate::metric::compared;
use crate::model::{Report, Role};

pub(super) fn render(report: &Report) -> String {
    let builds = audited(report);
    if builds.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<section aria-labelledby=\"h-builds\" id=\"builds\">\n<h2 id=\"h-builds\">Builds</h2>\n\
         <p class=\"muted\">What compilers recorded in the objects of each build. Below a value \
         stands what holds for some objects only. Sizes are relative to the baseline’s.</p>\n",
    );
    out.push_str(&table(report, &builds));
    let differing: Vec<String> =
        builds.iter().filter_map(|build| difference(report, build)).collect();
    if !differing.is_empty() {
        out.push_str(&format!(
            "<h3>Command lines against {}</h3>\n<div class=\"lines\">{}</div>\n",
            esc(&report.baseline),
            differing.concat()
        ));
    }
    out.push_str("</section>\n");
    out
}

fn mark(report: &Report, build: &Audited<'_>) -> String {
    let others = compared(report);
    let place = others.iter().position(|other| other.name == build.candidate.name);
    match build.candidate.role {
        Role::Baseline => marks::inline(0, Role::Baseline),
        role => place.map_or_else(String::new, |place| marks::inline(place, role)),
    }
}

fn table(report: &Report, builds: &[Audited<'_>]) -> String {
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Builds\">\
         <table class=\"builds\"><thead><tr><th scope=\"col\">Candidate</th>",
    );
    for property in Property::ALL {
        let class = if property == Property::Objects { " class=\"num\"" } else { "" };
        out.push_str(&format!("<th scope=\"col\"{class}>{}</th>", property.title()));
    }
    for title in ["text", "stripped"] {
        out.push_str(&format!("<th scope=\"col\" class=\"num\">{title}</th>"));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (number, build) in builds.iter().enumerate() {
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}{}{}</th>",
            mark(report, build),
            breakable(&build.candidate.name),
            remarks(build)
        ));
        for property in Property::ALL {
            let Value { most, rest } = property.of(build.audit);
            let class = if property == Property::Objects { " class=\"num\"" } else { "" };
            let rest: String =
                rest.iter().map(|text| format!("<small>{}</small>", esc(text))).collect();
            out.push_str(&format!("<td{class}>{}{rest}</td>", esc(&most)));
        }
        let other = builds.first().filter(|_| number > 0).map(|baseline| baseline.build);
        let (text, stripped) = (Some(build.build.text_size), build.build.stripped_size);
        out.push_str(&size(text, other.map(|other| other.text_size)));
        out.push_str(&size(stripped, other.and_then(|other| other.stripped_size)));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

fn size(own: Option<Bytes>, baseline: Option<Bytes>) -> String {
    let absolute = own.map_or_else(|| "–".to_owned(), |own| own.to_string());
    match relative(own, baseline) {
        Some(relative) => format!("<td class=\"num\">{relative}<small>{absolute}</small></td>"),
        None => format!("<td class=\"num\">{absolute}</td>"),
    }
}

/// What was allowed, and what is suspicious.
fn remarks(build: &Audited<'_>) -> String {
    let audit = build.audit;
    let mut remarks = Vec::new();
    if !audit.allowed.is_empty() {
        remarks.push(format!("allowed by name: {}", counted(&audit.allowed)));
    }
    if !audit.warnings.is_empty() {
        remarks.push(format!("warnings: {}", counted(&audit.warnings)));
    }
    remarks.extend(build.remark_on_sizes().map(str::to_owned));
    if !audit.from_objects {
        remarks.push("read from the linked file alone: its objects are gone".to_owned());
    }
    remarks.iter().map(|text| format!("<small>{}</small>", esc(text))).collect()
}

/// How one build's command lines differ.
fn difference(report: &Report, build: &Audited<'_>) -> Option<String> {
    let lines = build.audit.against_baseline.as_ref()?;
    let mut out = format!(
        "<h4>{}{}</h4>\n<table class=\"kinds\"><tbody>\n",
        mark(report, build),
        esc(&build.candidate.name)
    );
    let mut row = |count: &str, what: &str| {
        out.push_str(&format!("<tr><th scope=\"row\">{count}</th><td>{what}</td></tr>\n"));
    };
    let CommandLinesRecord { compared, same, only_here, only_in_baseline, kinds } = lines;
    if *compared == 0 {
        row("–", "no file has a recorded command line in both");
    }
    if *same > 0 {
        row(&files(*same), "the same flags");
    }
    for kind in kinds {
        row(&files(kind.files), &flags(kind, *compared));
    }
    if let Some(text) = unmatched(*only_here, *only_in_baseline) {
        row("–", &text);
    }
    out.push_str("</tbody></table>\n");
    Some(out)
}

/// The flags that differ, and the files by name where it is not most of them.
fn flags(kind: &CommandLineDifference, compared: u64) -> String {
    let code = |(sign, flag): (char, &str)| format!("<code>{sign} {}</code> ", esc(flag));
    let mut text: String = signed(kind).into_iter().map(code).collect();
    if kind.files * 2 <= compared {
        let examples: Vec<String> = kind.examples.iter().map(|file| breakable(file)).collect();
        let more = if (examples.len() as u64) < kind.files { ", …" } else { "" };
        text.push_str(&format!("<small>{}{more}</small>", examples.join(", ")));
    }
    text
}
