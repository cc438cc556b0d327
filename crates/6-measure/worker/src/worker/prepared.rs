//! A microbenchmark prepared on one connection: the inner part of the hot loop.

use dbdyno_drivers::{
    Answer, Connection, Error, ErrorKind, NonBlockingConnection, Params, StatementId,
};
use dbdyno_workloads::definition::{Counted, Microbenchmark};
use dbdyno_workloads::events::{DrawnStatement, Events, ParameterSink};
use dbdyno_workloads::program::{Program, ProgramError, Tables};

use super::error::RequestError;
use super::tally::Tally;
use super::waiting::Waiting;

/// An error in preparing a microbenchmark.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The definition is inconsistent.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The database refused a statement.
    #[error(transparent)]
    Database(#[from] Error),
}

/// A driver's parameters, filled by the workload's random draws.
#[derive(Default)]
pub(super) struct ConnectionParams(pub Params);

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

/// A microbenchmark prepared on one connection.
pub(super) struct Prepared {
    pub events: Events,
    /// Position in the running order: selects the stream of events.
    pub position: u32,
    begin: StatementId,
    commit: StatementId,
    rollback: StatementId,
    /// By statement of the program, then by table.
    statements: Vec<Vec<StatementId>>,
    steps: Vec<Step>,
    transaction: bool,
    cursor: Cursor,
}

/// One statement of the event.
#[derive(Clone, Copy, Debug)]
struct Step {
    repeat: u32,
    counted: Counted,
}

/// The last statement sent of the current event; used if one thread drives several clients.
#[derive(Clone, Copy, Debug)]
enum Cursor {
    /// The event has not begun.
    Start,
    Begin,
    Step {
        index: usize,
        repeat: u32,
        drawn: DrawnStatement,
    },
    Commit,
}

impl Prepared {
    /// Prepares every statement of `microbenchmark` for every table, for client number `client`.
    pub fn new<C: Connection>(
        connection: &mut C,
        microbenchmark: &Microbenchmark,
        tables: Tables,
        client: u32,
        position: u32,
    ) -> Result<Self, PrepareError> {
        let program = Program::new(microbenchmark, tables)?;
        let mut statements = Vec::new();
        for statement in &program.statements {
            let prepared_tables = if statement.names_table() { tables.count } else { 1 };
            let mut of_tables = (0..prepared_tables)
                .map(|table| connection.prepare(&statement.sql(table, C::placeholder)))
                .collect::<Result<Vec<_>, _>>()?;
            of_tables.resize(tables.count as usize, of_tables[0]);
            statements.push(of_tables);
        }
        Ok(Self {
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
            events: Events::new(program, client),
            position,
            cursor: Cursor::Start,
        })
    }

    /// Runs one event. A statement that fails ends the event and is counted.
    #[inline]
    pub fn event<C: Connection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
        waiting: &mut impl Waiting<C>,
    ) -> Result<(), RequestError> {
        match self.try_event(connection, params, tally, waiting) {
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
        waiting: &mut impl Waiting<C>,
    ) -> Result<(), Error> {
        if self.transaction {
            params.0.clear();
            waiting.execute(connection, self.begin, &params.0)?;
            tally.statements += 1;
        }
        for (index, step) in self.steps.iter().enumerate() {
            for _ in 0..step.repeat {
                params.0.clear();
                let drawn = self.events.draw(index, params);
                let statement = self.statements[index][drawn.table as usize];
                let answer = waiting.execute(connection, statement, &params.0)?;
                tally.add(answer, index, step.counted, drawn);
            }
        }
        if self.transaction {
            params.0.clear();
            waiting.execute(connection, self.commit, &params.0)?;
            tally.statements += 1;
        }
        Ok(())
    }

    /// Sends the event's first statement. No statement may be in progress. Returns whether the event is
    /// complete already, because it failed.
    #[inline]
    pub fn begin_event<C: NonBlockingConnection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
    ) -> Result<bool, RequestError> {
        self.cursor = Cursor::Start;
        self.send_next(connection, params, tally)
    }

    /// Continues an event after an answer: sends its next statement. Returns whether the event is complete.
    #[inline]
    pub fn received<C: NonBlockingConnection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
        answer: Result<Answer, Error>,
    ) -> Result<bool, RequestError> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.failed(connection, params, tally, error).map(|()| true),
        };
        match self.cursor {
            Cursor::Step { index, drawn, .. } => {
                tally.add(answer, index, self.steps[index].counted, drawn);
            }
            Cursor::Start | Cursor::Begin | Cursor::Commit => tally.statements += 1,
        }
        self.send_next(connection, params, tally)
    }

    /// Sends the next statement. Returns true if the event has no more.
    #[inline]
    fn send_next<C: NonBlockingConnection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
    ) -> Result<bool, RequestError> {
        let (index, repeat) = match self.cursor {
            Cursor::Start if self.transaction => {
                self.cursor = Cursor::Begin;
                return self.send(connection, params, tally, self.begin);
            }
            Cursor::Start | Cursor::Begin => (0, 0),
            Cursor::Step { index, repeat, .. } if repeat + 1 < self.steps[index].repeat => {
                (index, repeat + 1)
            }
            Cursor::Step { index, .. } if index + 1 < self.steps.len() => (index + 1, 0),
            Cursor::Step { .. } if self.transaction => {
                self.cursor = Cursor::Commit;
                return self.send(connection, params, tally, self.commit);
            }
            Cursor::Step { .. } | Cursor::Commit => return Ok(true),
        };
        params.0.clear();
        let drawn = self.events.draw(index, params);
        self.cursor = Cursor::Step { index, repeat, drawn };
        let statement = self.statements[index][drawn.table as usize];
        self.send_with_params(connection, params, tally, statement)
    }

    fn send<C: NonBlockingConnection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
        statement: StatementId,
    ) -> Result<bool, RequestError> {
        params.0.clear();
        self.send_with_params(connection, params, tally, statement)
    }

    #[inline]
    fn send_with_params<C: NonBlockingConnection>(
        &mut self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
        statement: StatementId,
    ) -> Result<bool, RequestError> {
        match connection.send(statement, &params.0) {
            Ok(()) => Ok(false),
            Err(error) => self.failed(connection, params, tally, error).map(|()| true),
        }
    }

    #[cold]
    fn failed<C: Connection>(
        &self,
        connection: &mut C,
        params: &mut ConnectionParams,
        tally: &mut Tally,
        error: Error,
    ) -> Result<(), RequestError> {
        if error.kind.is_fatal() {
            tally.errors += 1;
            return Err(error.into());
        }
        if self.transaction {
            params.0.clear();
            // Fails if the database has rolled back already.
            let _ = connection.execute(self.rollback, &params.0);
        }
        if error.kind == ErrorKind::Conflict {
            // Conflicts between clients are part of the work.
            tally.conflicts += 1;
        } else {
            tally.errors += 1;
            tally.first_complaint.get_or_insert_with(|| error.to_string());
        }
        Ok(())
    }
}
