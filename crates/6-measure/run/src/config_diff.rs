//! Settings that differ in effect between a candidate and the baseline: they may explain a
//! difference in speed.

use dbdyno_engines::server::ServerPlan;
use dbdyno_spec::experiment::System;
use dbdyno_types::server::{Address, ServerSystem, StorageEngine};

use crate::resolved_candidate::{Deployment, ResolvedCandidate};
use crate::settings;

/// A property of a configuration and its value.
struct Property {
    name: &'static str,
    value: String,
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
            let other = of_baseline.iter().find(|other| other.name == own.name)?;
            let Property { name, value } = own;
            (value != other.value)
                .then(|| format!("{name}: {value}; the baseline: {}", other.value))
        })
        .collect()
}

fn properties(candidate: &ResolvedCandidate) -> Vec<Property> {
    let mut properties = Vec::new();
    let mut add = |name, value: &str| properties.push(Property { name, value: value.to_owned() });
    match (&candidate.spec.system, &candidate.deployment) {
        (System::Private(server), Deployment::Private(plan)) => {
            add("durability of a commit", server.durability.name());
            add("statements", server.statements.name());
            match &server.host {
                None => add("connection", "Unix socket"),
                Some(host) => add("connection", &format!("TCP to host {host}")),
            }
            let verified = "TLS, the server's certificate pinned";
            add("encryption", if server.tls { verified } else { "none" });
            for (name, value) in of_plan(plan) {
                add(name, &value);
            }
        }
        (_, Deployment::Existing(server)) => {
            add("durability of a commit", "as configured on the server");
            add("statements", server.statements.name());
            match (&server.target.address, &server.host) {
                (Address::Socket(_), _) => add("connection", "Unix socket"),
                (Address::Tcp { .. }, None) => add("connection", "TCP"),
                (Address::Tcp { .. }, Some(host)) => {
                    add("connection", &format!("TCP to host {host}"));
                }
            }
            add("encryption", settings::encryption(&server.target.tls));
            for name in [CHARACTERS, CHECKSUMS, TORN_PAGES, ISOLATION] {
                add(name, "as configured on the server");
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
    properties
}

const CHARACTERS: &str = "character set";
const CHECKSUMS: &str = "checksums of pages";
const TORN_PAGES: &str = "protection against torn pages";
const ISOLATION: &str = "isolation";

/// The properties of a private server. A setting without a value has the server's default.
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
