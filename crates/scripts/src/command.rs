//! Functions of a script that are called once, outside of clients.

use crate::error::ScriptError;
use crate::host::Host;
use crate::random::Seed;
use crate::source::Source;
use crate::state::{Setup, State};

/// Runs `prepare`, for each client if the script allows to run it in parallel, one after another. The host
/// must not wait.
///
/// # Errors
/// The script fails, or has no `prepare`.
pub fn prepare(source: &Source, setup: &Setup, host: &mut dyn Host) -> Result<(), ScriptError> {
    let state = State::new(source, setup, "prepare", true, host)?;
    if !state.call("prepare", host)? {
        return Err(ScriptError::new(format!("{} has no function prepare()", source.name)));
    }
    if state.is_parallel("prepare")? {
        for client in 1..setup.clients {
            let [first, second] = setup.seed.0;
            let seed = Seed::of(&[first, second, client.into()]);
            let setup = Setup { client, seed, ..setup.clone() };
            State::new(source, &setup, "prepare", true, host)?.call("prepare", host)?;
        }
    }
    Ok(())
}

/// Runs `init` if the script has it. The host must not wait.
///
/// # Errors
/// The script fails.
pub fn init(source: &Source, setup: &Setup, host: &mut dyn Host) -> Result<(), ScriptError> {
    let state = State::new(source, setup, "run", true, host)?;
    state.call("init", host).map(drop)
}
