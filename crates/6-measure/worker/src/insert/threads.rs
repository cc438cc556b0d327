//! The threads of a client: one inserts, and deletes old rows; the others query.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use dbdyno_drivers::{Connection, Error, ErrorKind, StatementId};
use dbdyno_machine::clock;
use dbdyno_types::ClientWait;
use dbdyno_types::insert::StepMeasured;
use dbdyno_units::Nanos;
use dbdyno_workloads::insert::{COLUMNS, Query, QueryKind, RowStream};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::sampler::{ClientProgress, Stop, Times};
use crate::client_context::ConnectionParams;
use crate::error::RequestError;

/// Maximum sleep of a client that waits for its next commit, before it checks whether to stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

/// How long before a commit is due a client that polls wakes up: longer than a virtual machine takes to
/// wake an idle CPU.
const POLLED: Nanos = Nanos::from_micros(200);

/// The pace of a client's commits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// This number of rows, as fast as possible.
    Rows(u64),
    /// At a fixed rate until this time, with this way to wait for the time at which a commit is due.
    Rate { due: CommitTimes, end: Nanos, wait: ClientWait },
}

/// The oldest row of a table, shared by all clients that delete from it.
pub(super) type Oldest = Arc<AtomicI64>;

/// Maximum size of a delete, as a multiple of the rows of a commit, however many were missed.
const MAX_CATCH_UP: i64 = 10;

/// A client's inserts, prepared on its connection.
pub(super) struct Writer<'a, C> {
    connection: &'a mut C,
    params: ConnectionParams,
    rows: RowStream,
    rows_per_commit: u32,
    table: String,
    /// Prepared inserts with their number of rows.
    inserts: Vec<(u32, StatementId)>,
    most_rows: u32,
    transaction: Option<Transaction>,
    delete: Option<Delete>,
    retries: u64,
    wrong: u64,
    complaint: Option<String>,
}

struct Transaction {
    begin: StatementId,
    commit: StatementId,
    rollback: StatementId,
}

struct Delete {
    statement: StatementId,
    oldest: Oldest,
    /// Rows not deleted because they did not exist: databases leave gaps between keys.
    missed: i64,
}

impl<'a, C: Connection> Writer<'a, C> {
    pub fn new(
        connection: &'a mut C,
        table: String,
        rows: RowStream,
        rows_per_commit: u32,
        most_rows: usize,
        oldest: Option<Oldest>,
    ) -> Result<Self, Error> {
        let most_rows = u32::try_from(most_rows).unwrap_or(u32::MAX).min(rows_per_commit);
        let transaction = if rows_per_commit > most_rows {
            Some(Transaction {
                begin: connection.prepare(C::begin_sql(true))?,
                commit: connection.prepare("COMMIT")?,
                rollback: connection.prepare("ROLLBACK")?,
            })
        } else {
            None
        };
        let delete = match oldest {
            None => None,
            Some(oldest) => {
                let (from, to) = (C::placeholder(1), C::placeholder(2));
                let sql = format!(
                    "DELETE FROM {table} WHERE transactionid >= {from} AND transactionid < {to}"
                );
                Some(Delete { statement: connection.prepare(&sql)?, oldest, missed: 0 })
            }
        };
        let mut writer = Self {
            connection,
            params: ConnectionParams::default(),
            rows,
            rows_per_commit,
            table,
            inserts: Vec::new(),
            most_rows,
            transaction,
            delete,
            retries: 0,
            wrong: 0,
            complaint: None,
        };
        writer.insert_of(most_rows)?;
        writer.insert_of(rows_per_commit % most_rows)?;
        Ok(writer)
    }

    /// The statement that inserts `rows` rows, prepared on first use.
    fn insert_of(&mut self, rows: u32) -> Result<Option<StatementId>, Error> {
        if rows == 0 {
            return Ok(None);
        }
        if let Some((_, statement)) = self.inserts.iter().find(|(count, _)| *count == rows) {
            return Ok(Some(*statement));
        }
        let columns = COLUMNS.join(", ");
        let values: Vec<String> = (0..rows as usize)
            .map(|row| {
                let first = row * COLUMNS.len() + 1;
                let places: Vec<String> =
                    (first..first + COLUMNS.len()).map(C::placeholder).collect();
                format!("({})", places.join(", "))
            })
            .collect();
        let sql = format!("INSERT INTO {} ({columns}) VALUES {}", self.table, values.join(", "));
        let statement = self.connection.prepare(&sql)?;
        self.inserts.push((rows, statement));
        Ok(Some(statement))
    }

    /// Inserts at this pace, and deletes if configured.
    pub fn work(
        &mut self,
        pace: Pace,
        start: Nanos,
        progress: &ClientProgress,
        stop: &Stop,
    ) -> Result<StepMeasured, RequestError> {
        let waits_before = self.connection.busy_retries();
        let (mut response, mut service) = (Times::new(), Times::new());
        let mut deletes = Times::new();
        let mut commits = 0_u64;
        let mut left = match pace {
            Pace::Rows(rows) => rows,
            Pace::Rate { .. } => u64::MAX,
        };
        let mut now = clock::monotonic();
        while left > 0 && !stop.is_set() {
            let due = match pace {
                Pace::Rows(_) => now,
                Pace::Rate { due, end, wait } => {
                    let at = due.at(commits);
                    if at >= end || now >= end {
                        break;
                    }
                    if now < at {
                        now = wait_until(at, wait, stop);
                    }
                    at
                }
            };
            let rows = self.rows_per_commit.min(u32::try_from(left).unwrap_or(u32::MAX));
            let sent = now;
            self.insert(rows, stop)?;
            now = clock::monotonic();
            if stop.is_set() {
                break;
            }
            commits += 1;
            left -= u64::from(rows);
            let took = now.saturating_sub(due);
            response.record(rows.into(), took);
            if matches!(pace, Pace::Rate { .. }) {
                service.record(rows.into(), now - sent);
            }
            progress.inserts.note(rows.into(), took);
            if self.delete.is_some() {
                let sent = now;
                let deleted = self.delete(rows, stop)?;
                now = clock::monotonic();
                deletes.record(deleted, now - sent);
                progress.deletes.note(deleted, now - sent);
            }
        }
        let (inserts, overdue) = match pace {
            Pace::Rows(_) => (response.finish(), 0),
            Pace::Rate { due, end, .. } => (
                response.finish_with(service),
                due.before(end).saturating_sub(commits) * u64::from(self.rows_per_commit),
            ),
        };
        Ok(StepMeasured {
            wall: now.saturating_sub(start),
            inserts,
            deletes: deletes.finish(),
            overdue,
            retries: self.retries,
            lock_waits: self.connection.busy_retries() - waits_before,
            wrong: self.wrong,
            first_complaint: self.complaint.take(),
            ..StepMeasured::default()
        })
    }

    /// Runs one commit, with retries until it succeeds.
    #[inline]
    fn insert(&mut self, rows: u32, stop: &Stop) -> Result<(), RequestError> {
        self.rows.begin_commit();
        if self.transaction.is_none() {
            let statement = self.insert_of(rows).map_err(described)?.ok_or("a commit has rows")?;
            self.draw(rows);
            loop {
                match self.connection.execute(statement, &self.params.0) {
                    Ok(answer) => {
                        self.check(answer.affected, rows);
                        return Ok(());
                    }
                    Err(error) => self.may_retry(error)?,
                }
                if stop.is_set() {
                    return Ok(());
                }
            }
        }
        let start = self.rows.position();
        while let Err(error) = self.insert_in_transaction(rows) {
            self.may_retry(error)?;
            if stop.is_set() {
                return Ok(());
            }
            self.rows.restore(start.clone());
        }
        Ok(())
    }

    fn insert_in_transaction(&mut self, rows: u32) -> Result<(), Error> {
        let Some(Transaction { begin, commit, rollback }) = &self.transaction else {
            return Ok(());
        };
        let (begin, commit, rollback) = (*begin, *commit, *rollback);
        self.params.0.clear();
        self.connection.execute(begin, &self.params.0)?;
        let inserted = self.insert_statements(rows).and_then(|()| {
            self.params.0.clear();
            self.connection.execute(commit, &self.params.0)
        });
        if let Err(error) = inserted {
            self.params.0.clear();
            // Fails if the database has rolled back already.
            let _ = self.connection.execute(rollback, &self.params.0);
            return Err(error);
        }
        Ok(())
    }

    #[inline]
    fn insert_statements(&mut self, rows: u32) -> Result<(), Error> {
        let mut left = rows;
        while left > 0 {
            let count = self.most_rows.min(left);
            let Some(statement) = self.insert_of(count)? else { break };
            self.draw(count);
            let answer = self.connection.execute(statement, &self.params.0)?;
            self.check(answer.affected, count);
            left -= count;
        }
        Ok(())
    }

    #[inline]
    fn draw(&mut self, rows: u32) {
        self.params.0.clear();
        for _ in 0..rows {
            self.rows.draw(&mut self.params);
        }
    }

    #[inline]
    fn check(&mut self, affected: u64, rows: u32) {
        if affected != u64::from(rows) {
            self.complain(affected, rows);
        }
    }

    #[cold]
    fn complain(&mut self, affected: u64, rows: u32) {
        self.wrong += 1;
        let complaint = || format!("an insert of {rows} rows inserted {affected}");
        self.complaint.get_or_insert_with(complaint);
    }

    /// Deletes as many of the oldest rows as were inserted. Returns the number of deleted rows.
    fn delete(&mut self, rows: u32, stop: &Stop) -> Result<u64, RequestError> {
        let Some(delete) = &mut self.delete else { return Ok(0) };
        let rows = i64::from(rows);
        let count = (rows + delete.missed).min(MAX_CATCH_UP * rows);
        let first = delete.oldest.fetch_add(count, Ordering::Relaxed);
        self.params.0.clear();
        self.params.0.push_int(first);
        self.params.0.push_int(first + count);
        loop {
            match self.connection.execute(delete.statement, &self.params.0) {
                Ok(answer) => {
                    delete.missed = (count - answer.affected as i64).max(0);
                    return Ok(answer.affected);
                }
                Err(error) if is_temporary(&error) && !stop.is_set() => self.retries += 1,
                Err(error) => return Err(described(error)),
            }
        }
    }

    #[cold]
    fn may_retry(&mut self, error: Error) -> Result<(), RequestError> {
        if !is_temporary(&error) {
            return Err(described(error));
        }
        self.retries += 1;
        Ok(())
    }
}

/// Waits until a time or until `stop` is set; returns the time. A client that polls reads the clock
/// for the last [`POLLED`] of it.
fn wait_until(at: Nanos, wait: ClientWait, stop: &Stop) -> Nanos {
    let polled = match wait {
        ClientWait::Poll => POLLED,
        ClientWait::Sleep => Nanos::ZERO,
    };
    loop {
        let now = clock::monotonic();
        if now >= at || stop.is_set() {
            return now;
        }
        let asleep = (at - now).saturating_sub(polled);
        if asleep > Nanos::ZERO {
            std::thread::sleep(Duration::from(asleep).min(LONGEST_SLEEP));
        }
    }
}

/// The times at which a client's commits are due.
///
/// There is no queue: a late client continues with the next due commit as fast as it can, and the
/// delay is part of that commit's response time.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitTimes {
    start: Nanos,
    rows_per_commit: u32,
    rate: u32,
    offset: Nanos,
}

impl CommitTimes {
    /// Commits of `rows_per_commit` rows, `rate` rows per second. The clients' commits are spread
    /// evenly over the interval between two commits.
    pub fn new(start: Nanos, rows_per_commit: u32, rate: u32, client: (u32, u32)) -> Self {
        let (client, clients) = client;
        let mut due = Self { start, rows_per_commit, rate, offset: Nanos::ZERO };
        let interval = due.after_start(1).as_nanos();
        due.offset = Nanos::from_nanos(interval / u64::from(clients.max(1)) * u64::from(client));
        due
    }

    /// The due time of commit number `commit`.
    #[inline]
    pub fn at(&self, commit: u64) -> Nanos {
        self.start + self.after_start(commit)
    }

    /// The number of commits that are due before `end`.
    pub fn before(&self, end: Nanos) -> u64 {
        let length =
            u128::from(end.saturating_sub(self.start).saturating_sub(self.offset).as_nanos());
        let in_one = u128::from(self.rows_per_commit) * 1_000_000_000;
        (length * u128::from(self.rate)).div_ceil(in_one) as u64
    }

    /// The due time relative to `start`. Rounding errors do not accumulate.
    #[inline]
    fn after_start(&self, commit: u64) -> Nanos {
        let rows = u128::from(commit) * u128::from(self.rows_per_commit);
        self.offset + Nanos::from_nanos((rows * 1_000_000_000 / u128::from(self.rate)) as u64)
    }
}

/// Whether a retry can succeed.
pub(super) const fn is_temporary(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Busy | ErrorKind::Conflict)
}

/// Converts an error and adds advice.
pub(super) fn described(error: Error) -> RequestError {
    match error.kind {
        ErrorKind::StorageFull => {
            format!("{error}: the disk is full; free disk space or lower the number of rows").into()
        }
        _ => error.into(),
    }
}

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
                let statement = connection.prepare(query.sql(table, &C::placeholder(1)))?;
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
    let complaint = || format!("a query returned {rows} rows instead of {fewest} to {most}");
    measured.first_complaint.get_or_insert_with(complaint);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use super::*;

    #[test]
    fn rate_is_exact_over_any_time() {
        let start = Nanos::from_secs(7);
        let due = CommitTimes::new(start, 50, 300, (0, 1));
        assert_eq!(due.at(0), start);
        assert_eq!(due.at(6), start + Nanos::from_secs(1));
        assert_eq!(due.at(6 * 3600), start + Nanos::from_secs(3600));
        assert_eq!(due.before(start + Nanos::from_secs(10)), 60);
        assert_eq!(due.before(start), 0);
        assert_eq!(due.before(start + Nanos::from_nanos(1)), 1);
    }

    #[test]
    fn commits_of_clients_are_spread_evenly() {
        let start = Nanos::ZERO;
        let at: Vec<Nanos> =
            (0..4).map(|n| CommitTimes::new(start, 50, 100, (n, 4)).at(0)).collect();
        assert_eq!(at, [0, 125, 250, 375].map(Nanos::from_millis));
        let due = CommitTimes::new(start, 50, 100, (3, 4));
        let end = Nanos::from_secs(1);
        let count = due.before(end);
        assert_eq!(count, 2);
        assert!(due.at(count - 1) < end && due.at(count) >= end);
    }

    #[test]
    fn both_ends_of_the_keys_move_with_the_oldest_row() {
        let oldest = Oldest::new(AtomicI64::new(1));
        let keys = Keys::new((oldest.clone(), 100));
        assert_eq!((keys.rows(), keys.now()), (100, (1, 100)));
        oldest.store(1_100, Ordering::Relaxed);
        assert_eq!((keys.rows(), keys.now()), (100, (1_100, 1_199)));
    }
}
