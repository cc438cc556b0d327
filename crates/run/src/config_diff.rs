//! Settings that differ in effect between a candidate and the baseline: what must be known before
//! a difference in speed is put down to the programs.

use dbdyno_engines::server::ServerPlan;
use dbdyno_record::server::{Address, ServerSystem, StorageEngine};
use dbdyno_spec::experiment::System;

use crate::candidates::{Deployment, ResolvedCandidate};
use crate::settings;

/// One thing that a setting decides, and how a candidate has it.
struct Aspect {
    what: &'static str,
    has: String,
}

/// In which aspects a candidate differs from the baseline, one per line.
pub(crate) fn differences(
    candidate: &ResolvedCandidate,
    baseline: &ResolvedCandidate,
) -> Vec<String> {
    let of_baseline = aspects(baseline);
    aspects(candidate)
        .into_iter()
        .filter_map(|own| {
            let other = of_baseline.iter().find(|other| other.what == own.what)?;
            let Aspect { what, has } = own;
            (has != other.has).then(|| format!("{what}: {has}; the baseline: {}", other.has))
        })
        .collect()
}

fn aspects(candidate: &ResolvedCandidate) -> Vec<Aspect> {
    let mut aspects = Vec::new();
    let mut add = |what, has: &str| aspects.push(Aspect { what, has: has.to_owned() });
    match (&candidate.spec.system, &candidate.deployment) {
        (System::Private(server), Deployment::Private(plan)) => {
            add("durability of a commit", server.durability.name());
            add("statements", server.statements.name());
            add("connection", "Unix socket");
            add("encryption", "none");
            for (what, has) in of_plan(plan) {
                add(what, &has);
            }
        }
        (_, Deployment::Existing(server)) => {
            add("durability of a commit", "as the server is set up");
            add("statements", server.statements.name());
            add(
                "connection",
                match server.target.address {
                    Address::Socket(_) => "Unix socket",
                    Address::Tcp { .. } => "TCP",
                },
            );
            add("encryption", settings::encryption(&server.target.tls));
            for what in [CHARACTERS, CHECKSUMS, TORN_PAGES, ISOLATION] {
                add(what, "as the server is set up");
            }
        }
        (System::Sqlite { config, .. }, _) => {
            add(
                "durability of a commit",
                &format!("synchronous = {}", settings::synchronous(config)),
            );
            add("connection", "none: inside the process");
        }
        _ => {}
    }
    aspects
}

const CHARACTERS: &str = "character set";
const CHECKSUMS: &str = "checksums of pages";
const TORN_PAGES: &str = "protection against torn pages";
const ISOLATION: &str = "isolation";

/// What the settings of a private server come to. A setting that is not written has the server's
/// default, which the tables here know.
fn of_plan(plan: &ServerPlan) -> Vec<(&'static str, String)> {
    let setting = |name: &str, default: &str| {
        let settings = plan.settings().iter();
        settings
            .rev()
            .find(|(known, _)| known == name)
            .map_or_else(|| default.to_owned(), |(_, value)| value.clone())
    };
    match (plan.installation().system, plan.engine()) {
        (ServerSystem::PostgreSql, _) => vec![
            (CHARACTERS, "UTF8, compared byte by byte".to_owned()),
            (CHECKSUMS, setting("data_checksums", "off")),
            (TORN_PAGES, format!("full_page_writes = {}", setting("full_page_writes", "on"))),
            (ISOLATION, setting("default_transaction_isolation", "read committed")),
        ],
        (_, engine) => {
            let (checksums, torn_pages) = match engine {
                Some(StorageEngine::MyRocks) => (
                    "CRC-32C of blocks".to_owned(),
                    "none needed: files are never rewritten".to_owned(),
                ),
                _ => (
                    setting("innodb_checksum_algorithm", "full_crc32"),
                    format!("innodb_doublewrite = {}", setting("innodb_doublewrite", "ON")),
                ),
            };
            vec![
                (CHARACTERS, setting("character_set_server", "the server's default")),
                (CHECKSUMS, checksums),
                (TORN_PAGES, torn_pages),
                (ISOLATION, setting("transaction_isolation", "REPEATABLE-READ")),
            ]
        }
    }
}
