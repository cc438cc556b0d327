//! Poolers in front of an existing server, such as PgBouncer.

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Error, ErrorKind};

/// How often two connections are compared: other clients of the pooler can make one comparison fail to see it.
const ROUNDS: usize = 5;

/// Checks that a pooler, if there is one, gives each connection a session of its own, and so many at the same time.
pub(super) fn check(
    connections: u32,
    log_in: impl Fn() -> Result<PostgresConnection, Error>,
) -> Result<(), Error> {
    let mut one = log_in()?;
    let own = one.backend()?;
    if one.backend_at_login() == Some(own) {
        return Ok(());
    }
    let mut other = log_in().map_err(|error| too_few(2, connections.max(2), error))?;
    let others = other.backend()?;
    for _ in 0..ROUNDS {
        // Two requests in succession, because a pooler may use its sessions in turn.
        let found = [one.backend()?, one.backend()?, other.backend()?];
        if own == others || found != [own, own, others] {
            return Err(shared());
        }
    }
    let mut open = vec![one, other];
    for number in 3..=connections {
        open.push(log_in().map_err(|error| too_few(number, connections, error))?);
    }
    Ok(())
}

fn too_few(number: u32, connections: u32, error: Error) -> Error {
    let doing = format!(
        "opening {connections} connections through a pooler, as many as this run can need at the \
         same time: number {number}: {}",
        error.doing
    );
    Error { doing, ..error }
}

/// The search path would be that of another candidate: all would be measured with the tables of one.
fn shared() -> Error {
    Error::new(
        ErrorKind::Refused,
        "checking the sessions of the server",
        "a pooler, such as PgBouncer, listens there and pools by transaction or statement: \
         connections lose their search path and prepared statements. Connect to PostgreSQL itself, \
         or set `pool_mode = session`",
    )
}
