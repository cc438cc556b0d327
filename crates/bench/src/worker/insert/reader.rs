//! The thread of a client that asks queries.

use std::sync::atomic::Ordering;

use dbdyno_drivers::{Connection, Error, StatementId};
use dbdyno_machine::clock;
use dbdyno_record::insert::StepMeasured;
use dbdyno_units::Nanos;
use dbdyno_workloads::insert::{Query, QueryKind};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Stop;
use super::live::LiveClient;
use super::tally::Times;
use super::writer::{Oldest, is_temporary, words};
use crate::worker::prepared::ConnectionParams;

/// A client's queries, prepared on its connection.
pub(super) struct Reader<'a, C> {
    connection: &'a mut C,
    params: ConnectionParams,
    queries: Vec<(Query, StatementId)>,
    rng: Xoshiro256PlusPlus,
    /// The oldest row that is there, and the newest one at the start of the step.
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
        let queries = kind
            .queries()
            .iter()
            .map(|query| {
                let statement = connection.prepare(&query.sql(table, &C::placeholder(1)))?;
                Ok((*query, statement))
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self { connection, params: ConnectionParams::default(), queries, rng, keys })
    }

    /// Asks one query after the other until `end`.
    pub fn work(
        &mut self,
        end: Nanos,
        start: Nanos,
        live: &LiveClient,
        stop: &Stop,
    ) -> Result<StepMeasured, String> {
        let waits_before = self.connection.busy_retries();
        let mut times = Times::new();
        let mut measured = StepMeasured::default();
        let mut now = clock::monotonic();
        while now < end && !stop.is_set() {
            for (query, statement) in &self.queries {
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
                        Err(error) => return Err(words(error)),
                    }
                };
                now = clock::monotonic();
                if rows > query.most_rows() || (rows == 0 && *query != Query::ByKey) {
                    complain(&mut measured, *query, rows);
                }
                times.record(rows, now - sent);
                live.queries.note(1, now - sent);
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
fn complain(measured: &mut StepMeasured, query: Query, rows: u64) {
    measured.wrong += 1;
    if measured.first_complaint.is_none() {
        let most = query.most_rows();
        measured.first_complaint =
            Some(format!("a query returned {rows} rows, where 1 to {most} must be there"));
    }
}
