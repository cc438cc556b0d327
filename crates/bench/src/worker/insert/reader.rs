//! The querying thread of a client.

use std::sync::atomic::Ordering;

use dbdyno_drivers::{Connection, Error, StatementId};
use dbdyno_machine::clock;
use dbdyno_record::insert::StepMeasured;
use dbdyno_units::Nanos;
use dbdyno_workloads::insert::{Query, QueryKind};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Stop;
use super::progress::ClientProgress;
use super::tally::Times;
use super::writer::{Oldest, described, is_temporary};
use crate::worker::error::RequestError;
use crate::worker::prepared::ConnectionParams;

/// A client's queries, prepared on its connection.
pub(super) struct Reader<'a, C> {
    connection: &'a mut C,
    params: ConnectionParams,
    /// Queries with their minimum number of rows.
    queries: Vec<(Query, StatementId, u64)>,
    rng: Xoshiro256PlusPlus,
    /// Keys of the oldest row, and of the newest one at the start of the step.
    keys: (Oldest, i64),
}

impl<'a, C: Connection> Reader<'a, C> {
    /// Prepares the queries.
    pub fn new(
        connection: &'a mut C,
        table: &str,
        kind: QueryKind,
        rng: Xoshiro256PlusPlus,
        keys: (Oldest, i64),
    ) -> Result<Self, Error> {
        let rows = (keys.1 - keys.0.load(Ordering::Relaxed) + 1).max(0) as u64;
        let queries = kind
            .queries()
            .iter()
            .map(|query| {
                let statement = connection.prepare(&query.sql(table, &C::placeholder(1)))?;
                Ok((*query, statement, query.fewest_rows(rows)))
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self { connection, params: ConnectionParams::default(), queries, rng, keys })
    }

    /// Runs one query after another until `end`.
    pub fn work(
        &mut self,
        end: Nanos,
        start: Nanos,
        progress: &ClientProgress,
        stop: &Stop,
    ) -> Result<StepMeasured, RequestError> {
        let waits_before = self.connection.busy_retries();
        let mut times = Times::new();
        let mut measured = StepMeasured::default();
        let mut now = clock::monotonic();
        while now < end && !stop.is_set() {
            for (query, statement, fewest) in &self.queries {
                let keys = (self.keys.0.load(Ordering::Relaxed), self.keys.1);
                let sent = now;
                self.params.0.clear();
                query.draw(&mut self.rng, keys, &mut self.params);
                let rows = loop {
                    match self.connection.execute(*statement, &self.params.0) {
                        Ok(answer) => break answer.rows,
                        Err(error) if is_temporary(&error) && !stop.is_set() => {
                            measured.retries += 1;
                        }
                        Err(error) => return Err(described(error)),
                    }
                };
                now = clock::monotonic();
                if rows > query.most_rows() || rows < *fewest {
                    complain(&mut measured, (*fewest, query.most_rows()), rows);
                }
                times.record(rows, now - sent);
                progress.queries.note(1, now - sent);
                if now >= end {
                    break;
                }
            }
        }
        Ok(StepMeasured {
            wall: now.saturating_sub(start),
            queries: times.finish(),
            lock_waits: self.connection.busy_retries() - waits_before,
            ..measured
        })
    }
}

#[cold]
fn complain(measured: &mut StepMeasured, (fewest, most): (u64, u64), rows: u64) {
    measured.wrong += 1;
    if measured.first_complaint.is_none() {
        measured.first_complaint =
            Some(format!("a query returned {rows} rows instead of {fewest} to {most}"));
    }
}
