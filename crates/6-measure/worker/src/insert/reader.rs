//! The querying thread of a client.

use std::sync::atomic::Ordering;

use dbdyno_drivers::{Connection, Error, StatementId};
use dbdyno_machine::clock;
use dbdyno_types::insert::StepMeasured;
use dbdyno_units::Nanos;
use dbdyno_workloads::insert::{Query, QueryKind};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::progress::{ClientProgress, Stop, Times};
use super::writer::{Oldest, described, is_temporary};
use crate::client_context::ConnectionParams;
use crate::error::RequestError;

/// A client's queries, prepared on its connection.
pub(super) struct Reader<'a, C> {
    connection: &'a mut C,
    params: ConnectionParams,
    /// Queries with their minimum number of rows.
    queries: Vec<(Query, StatementId, u64)>,
    rng: Xoshiro256PlusPlus,
    keys: Keys,
}

/// The range of a table's primary keys. As many new rows are inserted as old ones are deleted, so that both ends
/// move by the same number of rows.
struct Keys {
    oldest: Oldest,
    /// The keys of the oldest and of the newest row at the start of the step.
    at_start: (i64, i64),
}

impl Keys {
    fn new((oldest, newest): (Oldest, i64)) -> Self {
        Self { at_start: (oldest.load(Ordering::Relaxed), newest), oldest }
    }

    /// Number of rows at the start of the step, if there are no gaps.
    fn rows(&self) -> u64 {
        let (oldest, newest) = self.at_start;
        (newest - oldest + 1).max(0) as u64
    }

    /// The keys of the oldest and of the newest row now.
    #[inline]
    fn now(&self) -> (i64, i64) {
        let (oldest, (oldest_at_start, newest)) =
            (self.oldest.load(Ordering::Relaxed), self.at_start);
        (oldest, newest + (oldest - oldest_at_start))
    }
}

impl<'a, C: Connection> Reader<'a, C> {
    pub fn new(
        connection: &'a mut C,
        table: &str,
        kind: QueryKind,
        rng: Xoshiro256PlusPlus,
        keys: (Oldest, i64),
    ) -> Result<Self, Error> {
        let keys = Keys::new(keys);
        let rows = keys.rows();
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
                let sent = now;
                self.params.0.clear();
                query.draw(&mut self.rng, self.keys.now(), &mut self.params);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;

    #[test]
    fn both_ends_of_the_keys_move_with_the_oldest_row() {
        let oldest = Oldest::new(AtomicI64::new(1));
        let keys = Keys::new((oldest.clone(), 100));
        assert_eq!((keys.rows(), keys.now()), (100, (1, 100)));
        oldest.store(1_100, Ordering::Relaxed);
        assert_eq!((keys.rows(), keys.now()), (100, (1_100, 1_199)));
    }
}
