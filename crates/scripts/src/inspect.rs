//! What a script declares, found by loading it.

use mlua::Table;

use crate::error::ScriptError;
use crate::options::Options;
use crate::random::{Seed, UniquePosition};
use crate::recorder::Recorder;
use crate::source::Source;
use crate::state::{Driver, Setup, State};

/// What a script declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its options by name, in alphabetical order; `None` for a script that declares none and accepts all.
    pub options: Option<Vec<(String, OptionKind)>>,
    /// Whether it has the function `event`.
    pub has_event: bool,
    /// Whether it has `prepare`.
    pub has_prepare: bool,
}

/// The type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// true or false.
    Bool,
    /// A number.
    Number,
    /// A text or a list.
    Text,
}

/// Loads a script without a database, with these options.
///
/// # Errors
/// Its top level fails, or it does not accept the options.
pub fn inspect(
    source: &Source,
    driver: Driver,
    options: &Options,
) -> Result<Declared, ScriptError> {
    let setup = Setup {
        driver,
        storage_engine: None,
        options: options.clone(),
        client: 0,
        clients: 1,
        seed: Seed::of(&[]),
        unique: UniquePosition::default(),
        time_limit: Setup::TIME_LIMIT,
    };
    let state = State::new(source, &setup, "run", false, &mut Recorder::default())?;
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
        options: declares.then_some(names),
        has_event: state.has("event")?,
        has_prepare: state.has("prepare")?,
    })
}
