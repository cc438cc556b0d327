//! One client and its hot loop.

use dbdyno_drivers::{Connection, Error, Params, StatementId};
use dbdyno_machine::ThreadUsage;
use dbdyno_machine::clock;
use dbdyno_machine::tsc::{Calibration, TickSource};
use dbdyno_record::SliceMeasured;
use dbdyno_units::{Qps, Share};
use dbdyno_workloads::definition::{Counted, Microbenchmark};
use dbdyno_workloads::events::{Events, ParameterSink};
use dbdyno_workloads::program::{Program, ProgramError, Tables};
use dbdyno_workloads::schema::table_name;

use super::delay::Delay;
use crate::latency::TickHistogram;
use crate::slice::{Quota, SliceOrder};

/// What a client is made with.
#[derive(Clone, Copy, Debug)]
pub struct ClientSetup {
    /// The client's number, from 0.
    pub number: u32,
    /// The tables.
    pub tables: Tables,
    /// Where all random draws start from.
    pub seed: u64,
    /// The length of a tick.
    pub calibration: Calibration,
    /// Time added to every event, as a share of it.
    pub injected_delay: Option<Share>,
}

/// One client: a connection, its prepared microbenchmark, and what it measures with.
pub struct Client<C> {
    connection: C,
    setup: ClientSetup,
    prepared: Option<Prepared>,
    histogram: TickHistogram,
    params: ConnectionParams,
}

/// A microbenchmark, prepared on one connection.
struct Prepared {
    events: Events,
    position: u32,
    begin: StatementId,
    commit: StatementId,
    rollback: StatementId,
    /// Per statement of the program, per table.
    statements: Vec<Vec<StatementId>>,
    steps: Vec<Step>,
    transaction: bool,
}

/// One statement of the event, as the hot loop wants to see it.
#[derive(Clone, Copy, Debug)]
struct Step {
    repeat: u32,
    counted: Counted,
}

/// Counts of one slice.
#[derive(Default)]
struct Tally {
    events: u64,
    statements: u64,
    rows: u64,
    affected: u64,
    digest: u64,
    errors: u64,
    wrong: u64,
    first_complaint: Option<String>,
}

/// A microbenchmark could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The definition does not fit together.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The database refused a statement.
    #[error(transparent)]
    Database(#[from] Error),
}

/// The driver's parameters as a sink of the workload's draws.
#[derive(Default)]
struct ConnectionParams(Params);

impl ParameterSink for ConnectionParams {
    #[inline(always)]
    fn int(&mut self, value: i64) {
        self.0.push_int(value);
    }

    #[inline(always)]
    fn text(&mut self, text: &[u8]) {
        self.0.push_text(text);
    }
}

impl<C: Connection> Client<C> {
    /// A client on this connection.
    #[must_use]
    pub fn new(connection: C, setup: ClientSetup) -> Self {
        Self {
            connection,
            setup,
            prepared: None,
            histogram: TickHistogram::new(),
            params: ConnectionParams::default(),
        }
    }

    /// The connection, for work between slices.
    pub fn connection(&mut self) -> &mut C {
        &mut self.connection
    }

    /// Prepares every statement of `microbenchmark` for every table.
    ///
    /// # Errors
    /// The definition does not fit together, or the database refuses a statement.
    pub fn prepare(
        &mut self,
        microbenchmark: &Microbenchmark,
        position: u32,
    ) -> Result<(), PrepareError> {
        self.forget();
        let program = Program::new(microbenchmark, self.setup.tables)?;
        let connection = &mut self.connection;
        let mut statements = Vec::new();
        for statement in &program.statements {
            let of_tables = (0..self.setup.tables.count)
                .map(|table| connection.prepare(&statement.sql(table, C::placeholder)))
                .collect::<Result<Vec<_>, _>>()?;
            statements.push(of_tables);
        }
        self.prepared = Some(Prepared {
            begin: connection.prepare(C::begin_sql(program.writes))?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            statements,
            steps: program
                .statements
                .iter()
                .map(|statement| Step { repeat: statement.repeat, counted: statement.counted })
                .collect(),
            transaction: program.transaction,
            events: Events::new(program, self.setup.number),
            position,
        });
        Ok(())
    }

    /// Frees the prepared statements.
    pub fn forget(&mut self) {
        self.prepared = None;
        self.connection.forget_statements();
    }

    /// Runs one slice of the prepared microbenchmark, with response times in ticks of `T`.
    ///
    /// # Errors
    /// The database cannot go on at all; an ordinary failure of a statement is counted instead.
    /// Also when nothing is prepared.
    pub fn slice<T: TickSource>(&mut self, order: SliceOrder) -> Result<SliceMeasured, String> {
        let Self { connection, setup, prepared, histogram, params } = self;
        let prepared = prepared.as_mut().ok_or("no microbenchmark is prepared")?;
        prepared.events.start_block(setup.seed, prepared.position, order.block);
        let mut tally = Tally::default();
        if let Some(lead_in) = order.lead_in {
            let deadline = deadline::<T>(lead_in, setup.calibration);
            while !deadline.is_over(&tally, T::now()) {
                prepared.event(connection, params, &mut tally)?;
                tally.events += 1;
            }
            tally.start_counting();
        }
        let mut delay = setup.injected_delay.map(|share| Delay::new(share, setup.calibration));
        let busy_before = connection.busy_retries();
        let usage_before = ThreadUsage::now();
        let cpu_before = clock::thread_cpu();
        let started = clock::monotonic();
        let mut last = T::now();
        let deadline = deadline::<T>(order.quota, setup.calibration);
        loop {
            prepared.event(connection, params, &mut tally)?;
            let mut now = T::now();
            if let Some(delay) = &mut delay {
                now = delay.spend::<T>(last, now);
            }
            histogram.record(now.saturating_sub(last));
            last = now;
            tally.events += 1;
            if deadline.is_over(&tally, now) {
                break;
            }
        }
        if let Some(delay) = &mut delay {
            delay.settle::<T>(last);
        }
        let wall = clock::monotonic() - started;
        let cpu = clock::thread_cpu().saturating_sub(cpu_before);
        let usage = ThreadUsage::now().since(&usage_before);
        Ok(SliceMeasured {
            started,
            wall,
            cpu,
            throughput: Qps::over(tally.statements, wall).filter(|_| tally.statements > 0),
            events: tally.events,
            statements: tally.statements,
            rows: tally.rows,
            affected: tally.affected,
            digest: tally.digest,
            errors: tally.errors,
            wrong: tally.wrong,
            first_complaint: tally.first_complaint,
            busy_retries: connection.busy_retries() - busy_before,
            context_switches: usage.context_switches,
            page_faults: usage.page_faults,
            latencies: histogram.drain(|ticks| setup.calibration.to_nanos(ticks)),
        })
    }
}

/// When a slice, or its lead-in, is over.
#[derive(Clone, Copy)]
struct Deadline {
    events: u64,
    ticks: u64,
}

fn deadline<T: TickSource>(quota: Quota, calibration: Calibration) -> Deadline {
    match quota {
        Quota::Events(events) => Deadline { events, ticks: u64::MAX },
        Quota::Time(time) => {
            let ticks = T::now().saturating_add(calibration.to_ticks(time));
            Deadline { events: u64::MAX, ticks }
        }
    }
}

impl Deadline {
    #[inline(always)]
    const fn is_over(self, tally: &Tally, now: u64) -> bool {
        tally.events >= self.events || now >= self.ticks
    }
}

impl Prepared {
    /// Runs one event. A statement that fails ends the event and is counted.
    #[inline]
    fn event<C: Connection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
    ) -> Result<(), String> {
        match self.try_event(connection, params, tally) {
            Ok(()) => Ok(()),
            Err(error) => self.failed(connection, params, tally, error),
        }
    }

    #[inline]
    fn try_event<C: Connection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
    ) -> Result<(), Error> {
        if self.transaction {
            params.0.clear();
            connection.execute(self.begin, &params.0)?;
            tally.statements += 1;
        }
        for (index, step) in self.steps.iter().enumerate() {
            for _ in 0..step.repeat {
                params.0.clear();
                let drawn = self.events.draw(index, params);
                let statement = self.statements[index][drawn.table as usize];
                let answer = connection.execute(statement, &params.0)?;
                tally.statements += 1;
                tally.rows += answer.rows;
                tally.digest = tally.digest.wrapping_add(answer.digest);
                let count = match step.counted {
                    Counted::Rows => answer.rows,
                    Counted::Affected => {
                        tally.affected += answer.affected;
                        answer.affected
                    }
                };
                if !drawn.allows(count) {
                    let expected = (drawn.at_least, drawn.at_most);
                    tally.complain(index, drawn.table, step.counted, count, expected);
                }
            }
        }
        if self.transaction {
            params.0.clear();
            connection.execute(self.commit, &params.0)?;
            tally.statements += 1;
        }
        Ok(())
    }

    #[cold]
    fn failed<C: Connection>(
        &self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
        error: Error,
    ) -> Result<(), String> {
        tally.errors += 1;
        if self.transaction {
            params.0.clear();
            // Where the database has already rolled back, this fails, and rightly so.
            let _ = connection.execute(self.rollback, &params.0);
        }
        if error.kind.is_fatal() {
            return Err(error.to_string());
        }
        tally.first_complaint.get_or_insert_with(|| error.to_string());
        Ok(())
    }
}

impl Tally {
    /// Forgets the lead-in, all but its answers' digest.
    fn start_counting(&mut self) {
        *self = Self { digest: self.digest, ..Self::default() };
    }

    #[cold]
    fn complain(
        &mut self,
        index: usize,
        table: u32,
        counted: Counted,
        count: u64,
        (at_least, at_most): (u64, u64),
    ) {
        self.wrong += 1;
        self.first_complaint.get_or_insert_with(|| {
            let what = match counted {
                Counted::Rows => "returned",
                Counted::Affected => "changed",
            };
            let expected = if at_least == at_most {
                at_most.to_string()
            } else {
                format!("{at_least} to {at_most}")
            };
            let table = table_name(table);
            let number = index + 1;
            format!("statement {number} on {table} {what} {count} rows instead of {expected}")
        });
    }
}
