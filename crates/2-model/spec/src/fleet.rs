//! `[fleet]`: the machines that `dbdyno fleet` runs the experiment on.

use dbdyno_document::{Problem, Table};
use dbdyno_units::Nanos;

use crate::experiment::Fleet;

/// More than any cluster has.
const MOST_NODES: i64 = 100_000;

/// A job must have time to start servers and to measure something.
const TIMES: std::ops::RangeInclusive<Nanos> =
    Nanos::from_secs(60)..=Nanos::from_secs(365 * 24 * 3600);

/// Reads the section, if there is one.
pub fn read(table: Option<Table<'_>>) -> Option<Fleet> {
    let mut table = table?;
    let mut fleet = Fleet {
        partition: name(&mut table, "partition"),
        nodes: table.integer("nodes", 1..=MOST_NODES).map(|nodes| nodes.value as u32),
        nodelist: name(&mut table, "nodelist"),
        constraint: name(&mut table, "constraint"),
        account: name(&mut table, "account"),
        time: table.duration("time", TIMES).map(|time| time.value),
        shard: table.bool("shard").is_some_and(|shard| shard.value),
        scratch: None,
    };
    if let Some(scratch) = table.string("scratch") {
        if scratch.value.starts_with('/') {
            fleet.scratch = Some(scratch.value.to_owned());
        } else {
            let message = format!("`{}` is not an absolute path", scratch.value);
            let help = "name a directory on a local disk of each node, such as \"/scratch\"";
            table.report(Problem::new(scratch.span, message).help(help));
        }
    }
    if fleet.nodes.is_some() && fleet.nodelist.is_some() {
        let span = table.key_span("nodes").unwrap_or_default();
        let message = "`nodes` and `nodelist` are both set";
        let help = "`nodes` lets dbdyno choose; `nodelist` names them";
        table.report(Problem::new(span, message).help(help));
    }
    table.finish();
    Some(fleet)
}

/// A name or an expression that is passed to Slurm as one argument.
fn name(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let text = table.string(key)?;
    if text.value.is_empty() || text.value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        let message = format!("invalid {key} `{}`", text.value.escape_debug());
        table.report(Problem::new(text.span, message).help("use Slurm's name, without spaces"));
        return None;
    }
    Some(text.value.to_owned())
}
