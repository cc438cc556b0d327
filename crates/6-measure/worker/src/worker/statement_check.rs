//! Preparing all statements of a run once, before anything is measured.

use dbdyno_drivers::Connection;
use dbdyno_engines::Engine;
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::program::{Program, Tables};

use super::error::RequestError;
use crate::protocol::RefusedStatement;

/// The statements that the system refuses to prepare. They are prepared for the first table, on a
/// connection of their own: those that are measured are not affected.
pub(super) fn refused_statements<E: Engine>(
    engine: &E,
    microbenchmarks: &[Microbenchmark],
    tables: Tables,
) -> Result<Vec<RefusedStatement>, RequestError> {
    let mut connection = engine.connect_to_check()?;
    let mut refused = Vec::new();
    for microbenchmark in microbenchmarks {
        let program = Program::new(microbenchmark, tables).map_err(|error| error.to_string())?;
        for (number, statement) in (1..).zip(&program.statements) {
            let prepared = connection.prepare(&statement.sql(0, E::Connection::placeholder));
            match prepared {
                Err(error) if error.kind.is_fatal() => return Err(error.into()),
                Err(error) => refused.push(RefusedStatement {
                    microbenchmark: microbenchmark.name.clone(),
                    number,
                    error: error.to_string(),
                }),
                Ok(_) => {}
            }
            connection.close_statements();
        }
    }
    Ok(refused)
}
