//! Functions of a script that are called once, outside of clients.

use crate::client::{Client, Progress};
use crate::error::ScriptError;
use crate::host::Host;
use crate::random::Seed;
use crate::source::Source;
use crate::state::{Setup, State};

/// Runs `prepare`, for each client if the script allows to run it in parallel, one after another. If one sleeps,
/// the next ones run: scripts wait in this way for what other clients do. The host must not wait.
///
/// # Errors
/// The script fails, or has no `prepare`.
pub fn prepare(source: &Source, setup: &Setup, host: &mut dyn Host) -> Result<(), ScriptError> {
    const COMMAND: &str = "prepare";
    let state = State::new(source, setup, COMMAND, true, host)?;
    if !state.has(COMMAND)? {
        return Err(ScriptError::new(format!("{} has no function prepare()", source.name)));
    }
    let others = if state.is_parallel(COMMAND)? { 1..setup.clients } else { 1..1 };
    let mut clients = vec![Client::of_command(state, COMMAND)?];
    for client in others {
        let [first, second] = setup.seed.0;
        let seed = Seed::of(&[first, second, client.into()]);
        let setup = Setup { client, seed, ..setup.clone() };
        let state = State::new(source, &setup, COMMAND, true, host)?;
        clients.push(Client::of_command(state, COMMAND)?);
    }
    while !clients.is_empty() {
        let mut asleep = Vec::new();
        for mut client in clients {
            if client.proceed(host)? == Progress::Sleeping {
                asleep.push(client);
            }
        }
        clients = asleep;
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
