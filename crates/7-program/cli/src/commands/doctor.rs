//! `dbdyno doctor`.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use dbdyno_machine::{Finding, HostFacts, Needs, Severity, check};

use crate::args::Doctor;
use crate::error::CliError;
use crate::output;

const WATCH: Duration = Duration::from_secs(1);

pub fn doctor(args: &Doctor) -> Result<ExitCode, CliError> {
    // Of a missing directory, the disk of the next one above it would be checked.
    fs::metadata(&args.disk).map_err(CliError::read(&args.disk))?;
    let facts = HostFacts::gather_over(&args.disk, WATCH);
    let findings = check(&facts, &Needs::default());
    let warnings = findings.iter().filter(|f| f.severity == Severity::Warning).count();
    if args.json {
        output::print_pretty(&serde_json::json!({ "facts": facts, "findings": findings }))?;
    } else {
        output::print(&text(&facts, &findings, warnings));
    }
    Ok(ExitCode::from(u8::from(warnings > 0)))
}

fn text(facts: &HostFacts, findings: &[Finding], warnings: usize) -> String {
    let mut text = "This machine\n".to_owned();
    for (label, value) in facts.rows() {
        text.push_str(&format!("  {label:<22} {value}\n"));
    }
    text.push_str("\nChecks\n");
    for finding in findings {
        let mark = match finding.severity {
            Severity::Ok => "ok     ",
            Severity::Note => "note   ",
            Severity::Warning => "WARNING",
        };
        output::wrapped(&mut text, &format!("  {mark} "), &finding.what);
        if let Some(advice) = &finding.advice {
            output::wrapped(&mut text, "          → ", advice);
        }
    }
    text.push_str(&match warnings {
        0 => "\nNo problems found.\n".to_owned(),
        1 => "\n1 warning: fix it before trusting small differences.\n".to_owned(),
        _ => format!("\n{warnings} warnings: fix them before trusting small differences.\n"),
    });
    text
}
