use std::process::ExitCode;

use dbdyno_builds::{Source, Variant, installed_compilers};
use dbdyno_workloads::catalog::{Catalog, Origin};
use dbdyno_workloads::definition::Microbenchmark;

use crate::args::{List, Listed};
use crate::error::CliError;
use crate::output;

/// Lists what an experiment can name.
pub fn list(args: &List) -> Result<ExitCode, CliError> {
    let wants = |what| args.what.is_none_or(|wanted| wanted == what);
    let mut sections = Vec::new();
    if wants(Listed::Microbenchmarks) {
        sections.push(microbenchmarks(&args.words)?);
    }
    if wants(Listed::Variants) {
        sections.push(variants());
    }
    if wants(Listed::Systems) {
        sections.push(systems());
    }
    output::print(&sections.join("\n"));
    Ok(ExitCode::SUCCESS)
}

fn microbenchmarks(words: &[String]) -> Result<String, CliError> {
    let catalog = Catalog::builtin();
    let chosen: Vec<Microbenchmark> = if words.is_empty() {
        catalog.entries().iter().map(|entry| entry.microbenchmark.clone()).collect()
    } else {
        catalog.select(words.iter().map(String::as_str)).map_err(|unmatched| {
            let problems: Vec<String> =
                unmatched.iter().map(|u| format!("{u}: {}", u.help())).collect();
            CliError::Usage(problems.join("\n"))
        })?
    };
    let mut text = "Microbenchmarks, in running order\n".to_owned();
    for microbenchmark in chosen {
        let extra = catalog
            .entries()
            .iter()
            .find(|entry| entry.microbenchmark.name == microbenchmark.name)
            .is_some_and(|entry| matches!(entry.origin, Origin::Extra));
        text.push_str(&format!(
            "  {:<36} {:<8} {}\n",
            microbenchmark.name,
            microbenchmark.group.name(),
            match (microbenchmark.transaction, extra) {
                (true, true) => "transaction, not in `all`",
                (true, false) => "transaction",
                (false, true) => "not in `all`",
                (false, false) => "",
            }
        ));
    }
    Ok(without_trailing_blanks(&text))
}

fn variants() -> String {
    let mut text = "Variants\n".to_owned();
    for variant in Variant::all() {
        let flags = variant.flags().join(" ");
        text.push_str(&format!("  {:<16} {flags}\n", variant.name));
    }
    let compilers = installed_compilers();
    let compilers =
        if compilers.is_empty() { "none found".to_owned() } else { compilers.join(", ") };
    text.push_str(&format!("  Compilers on this machine: {compilers}\n"));
    text
}

fn systems() -> String {
    let sqlite = Source::bundled_sqlite();
    format!("Systems\n  {:<16} {}, bundled, runs inside the worker\n", "sqlite", sqlite.version())
}

fn without_trailing_blanks(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
