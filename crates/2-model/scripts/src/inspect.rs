//! What a script declares, found by loading it.

use std::sync::Arc;

use mlua::Table;

use crate::calls::Progress;
use crate::client::{Client, Setup, State, Use};
use crate::error::ScriptError;
use crate::host::{Driver, Recorder};
use crate::options::{Declared, OptionKind, Options};
use crate::random::{Seed, UniquePosition};
use crate::source::{Source, Version};

/// Loads a script without a database, with these options.
pub fn inspect(
    source: &Source,
    driver: Driver,
    options: &Options,
) -> Result<Declared, ScriptError> {
    let setup = setup(driver, options);
    let state = State::new(source, &setup, "run", Use::Inspection, &mut Recorder::default())?;
    let cmdline: Table = state.lua.globals().get::<Table>("sysbench")?.get("cmdline")?;
    let declares = !cmdline.get::<mlua::Value>("options")?.is_nil();
    let declared: Table = state.function("declared")?.call(())?;
    let mut names = Vec::new();
    for pair in declared.pairs::<String, Table>() {
        let (name, option) = pair?;
        let kind = match option.get::<u32>("kind")? {
            1 => OptionKind::Bool,
            2..=4 => OptionKind::Number,
            _ => OptionKind::Text,
        };
        names.push((name, kind));
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Declared {
        options: (declares || source.version == Version::V1_1).then_some(names),
        has_event: state.has("event")?,
        has_prepare: state.has("prepare")?,
        version: source.version,
    })
}

/// The first client of one.
pub(crate) fn setup(driver: Driver, options: &Options) -> Setup {
    Setup {
        driver,
        storage_engine: None,
        access: Arc::default(),
        options: options.clone(),
        client: 0,
        clients: 1,
        seed: Seed::of(&[]),
        unique: UniquePosition::default(),
        time_limit: Setup::TIME_LIMIT,
    }
}

/// Events that [`only_reads`] runs.
const EVENTS: u32 = 500;

/// Whether the first events of a script send only queries without locks and statements of transactions. Nothing
/// is executed: false for a script that needs answers.
pub fn only_reads(source: &Source, options: &Options) -> bool {
    let mut recorder = Recorder::default();
    let setup = setup(Driver::MySql, options);
    let Ok(mut client) = Client::start(source, &setup, &mut recorder) else { return false };
    recorder.statements.clear();
    (0..EVENTS).all(|_| {
        matches!(client.event(&mut recorder), Ok(Progress::Event | Progress::Sleeping))
            && recorder.statements.drain(..).all(|sql| reads(&sql))
    })
}

/// Whether a statement changes and locks nothing.
fn reads(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    let mut words = sql.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    match words.next() {
        Some("select") => !words.any(|word| matches!(word, "into" | "update" | "share" | "lock")),
        Some("begin" | "start" | "commit" | "rollback" | "set" | "show") => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_write_or_need_answers_do_not_only_read() {
        let only_reads_event = |event: &str| {
            let text = format!(
                "function thread_init() con = sysbench.sql.driver():connect() end
                 function event() {event} end"
            );
            only_reads(&Source::new("a.lua", text, |_| None).unwrap(), &Options::new())
        };
        assert!(only_reads_event("con:query('BEGIN') con:query('SELECT 1') con:query('COMMIT')"));
        for event in [
            "con:query('SELECT a FROM t FOR UPDATE')",
            "con:query('INSERT INTO t VALUES (1)')",
            "i = (i or 0) + 1 if i % 100 == 0 then con:query('UPDATE t SET a = 1') end",
            "assert(con:query_row('SELECT 1'))",
            "return true",
        ] {
            assert!(!only_reads_event(event), "{event}");
        }
    }
}
