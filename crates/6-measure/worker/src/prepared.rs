//! The statements of a microbenchmark, prepared on one connection: the inner part of the hot loop.

use dbdyno_drivers::{
    Answer, Connection, Error, ErrorKind, NonBlockingConnection, Param, Params, StatementId,
};
use dbdyno_engines::Engine;
use dbdyno_types::StatementPlan;
use dbdyno_workloads::definition::{Counted, Microbenchmark};
use dbdyno_workloads::events::{DrawnStatement, Events};
use dbdyno_workloads::program::{Program, Tables};

use crate::client_context::{ClientContext, ConnectionParams};
use crate::error::RequestError;
use crate::protocol::RefusedStatement;
use crate::waiting::{EventStep, Waiting};

/// A microbenchmark prepared on one connection.
pub(crate) struct Prepared {
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
    /// Whether there are no other clients.
    is_alone: bool,
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
    /// Prepares every statement of `microbenchmark` for every table, for client number `client` of so many.
    pub fn new<C: Connection>(
        connection: &mut C,
        microbenchmark: &Microbenchmark,
        tables: Tables,
        (client, clients): (u32, u32),
        position: u32,
    ) -> Result<Self, RequestError> {
        let program = Program::new(microbenchmark, tables)?;
        let mut statements = Vec::new();
        for statement in &program.statements {
            let prepared_tables = if statement.names_table() { tables.count } else { 1 };
            let mut of_tables = (0..prepared_tables)
                .map(|table| connection.prepare(statement.sql(table, C::placeholder)))
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
            is_alone: clients == 1,
            events: Events::new(program, client),
            position,
            cursor: Cursor::Start,
        })
    }

    /// Runs one event. A statement that fails ends the event and is counted.
    #[inline]
    pub fn event<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
        waiting: &mut impl Waiting<C>,
    ) -> Result<(), RequestError> {
        match self.try_event(context, waiting) {
            Ok(()) => Ok(()),
            Err(error) => self.failed(context, error),
        }
    }

    #[inline]
    fn try_event<C: Connection>(
        &mut self,
        context: &mut ClientContext<C>,
        waiting: &mut impl Waiting<C>,
    ) -> Result<(), Error> {
        if self.transaction {
            context.params.0.clear();
            waiting.execute(&mut context.connection, self.begin, &context.params.0)?;
            context.counts.statements += 1;
        }
        for (index, step) in self.steps.iter().enumerate() {
            for _ in 0..step.repeat {
                context.params.0.clear();
                let drawn = self.events.draw(index, &mut context.params);
                let statement = self.statements[index][drawn.table as usize];
                let answer =
                    waiting.execute(&mut context.connection, statement, &context.params.0)?;
                context.counts.add(answer, index, step.counted, drawn);
            }
        }
        if self.transaction {
            context.params.0.clear();
            waiting.execute(&mut context.connection, self.commit, &context.params.0)?;
            context.counts.statements += 1;
        }
        Ok(())
    }

    /// Sends the event's first statement. No statement may be in progress. The event is complete already if it
    /// failed.
    #[inline]
    pub fn begin_event<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
    ) -> Result<EventStep, RequestError> {
        self.cursor = Cursor::Start;
        self.send_next(context)
    }

    /// Continues an event after an answer: sends its next statement.
    #[inline]
    pub fn received<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
        answer: Result<Answer, Error>,
    ) -> Result<EventStep, RequestError> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.failed(context, error).map(|()| EventStep::Complete),
        };
        match self.cursor {
            Cursor::Step { index, drawn, .. } => {
                context.counts.add(answer, index, self.steps[index].counted, drawn);
            }
            Cursor::Start | Cursor::Begin | Cursor::Commit => context.counts.statements += 1,
        }
        self.send_next(context)
    }

    /// Sends the next statement, if the event has more.
    #[inline]
    fn send_next<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
    ) -> Result<EventStep, RequestError> {
        let (index, repeat) = match self.cursor {
            Cursor::Start if self.transaction => {
                self.cursor = Cursor::Begin;
                return self.send(context, self.begin);
            }
            Cursor::Start | Cursor::Begin => (0, 0),
            Cursor::Step { index, repeat, .. } if repeat + 1 < self.steps[index].repeat => {
                (index, repeat + 1)
            }
            Cursor::Step { index, .. } if index + 1 < self.steps.len() => (index + 1, 0),
            Cursor::Step { .. } if self.transaction => {
                self.cursor = Cursor::Commit;
                return self.send(context, self.commit);
            }
            Cursor::Step { .. } | Cursor::Commit => return Ok(EventStep::Complete),
        };
        context.params.0.clear();
        let drawn = self.events.draw(index, &mut context.params);
        self.cursor = Cursor::Step { index, repeat, drawn };
        let statement = self.statements[index][drawn.table as usize];
        self.send_with_params(context, statement)
    }

    fn send<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
        statement: StatementId,
    ) -> Result<EventStep, RequestError> {
        context.params.0.clear();
        self.send_with_params(context, statement)
    }

    #[inline]
    fn send_with_params<C: NonBlockingConnection>(
        &mut self,
        context: &mut ClientContext<C>,
        statement: StatementId,
    ) -> Result<EventStep, RequestError> {
        match context.connection.send(statement, &context.params.0) {
            Ok(()) => Ok(EventStep::Waiting),
            Err(error) => self.failed(context, error).map(|()| EventStep::Complete),
        }
    }

    #[cold]
    fn failed<C: Connection>(
        &self,
        context: &mut ClientContext<C>,
        error: Error,
    ) -> Result<(), RequestError> {
        if error.kind.is_fatal() {
            context.counts.errors += 1;
            return Err(error.into());
        }
        if self.transaction {
            context.params.0.clear();
            // Fails if the database has rolled back already.
            let _ = context.connection.execute(self.rollback, &context.params.0);
        }
        let is_of_statement = || error.has_number(1062) || error.has_sqlstate("23505");
        if error.kind == ErrorKind::Conflict && !(self.is_alone && is_of_statement()) {
            // Conflicts between clients are part of the work. With one, nobody else inserted a key that exists.
            context.counts.conflicts += 1;
        } else {
            context.counts.errors += 1;
            context.counts.first_complaint.get_or_insert_with(|| error.to_string());
        }
        Ok(())
    }
}

/// How the system executes the statements of a microbenchmark with the values of its first event, on a connection as
/// those of clients. What it cannot explain has no lines.
pub(crate) fn plans<E: Engine>(
    engine: &E,
    microbenchmark: &Microbenchmark,
    tables: Tables,
    seed: u64,
) -> Result<Vec<StatementPlan>, RequestError> {
    let program = Program::new(microbenchmark, tables)?;
    let statements = program.statements.clone();
    let mut events = Events::new(program, 0);
    events.start_block(seed, 0, 0);
    let mut connection = engine.connect()?;
    let mut params = ConnectionParams::default();
    let mut plans = Vec::new();
    for (index, (number, statement)) in (1..).zip(&statements).enumerate() {
        params.0.clear();
        let drawn = events.draw(index, &mut params);
        let sql = statement.sql(drawn.table, |number| literal(&params.0, number));
        let lines = match engine.plan(&mut connection, &sql) {
            Err(error) if error.kind.is_fatal() => return Err(error.into()),
            lines => lines.unwrap_or_default(),
        };
        plans.push(StatementPlan { number, sql: statement.sql(0, |_| "?".to_owned()), lines });
    }
    Ok(plans)
}

/// The n-th parameter (from 1) as a literal.
fn literal(params: &Params, number: usize) -> String {
    match params.values().get(number - 1) {
        Some(Param::Int(value)) => value.to_string(),
        Some(Param::Text { start, len }) => {
            let text = String::from_utf8_lossy(params.text(*start, *len));
            format!("'{}'", text.replace('\'', "''"))
        }
        Some(Param::Null) | None => "NULL".to_owned(),
    }
}

/// The statements that the system refuses to prepare. They are prepared for the first table, on a
/// connection of their own: those that are measured are not affected.
pub(crate) fn refused_statements<E: Engine>(
    engine: &E,
    microbenchmarks: &[Microbenchmark],
    tables: Tables,
) -> Result<Vec<RefusedStatement>, RequestError> {
    let mut connection = engine.connect_to_check()?;
    let mut refused = Vec::new();
    for microbenchmark in microbenchmarks {
        let program = Program::new(microbenchmark, tables)?;
        for (number, statement) in (1..).zip(&program.statements) {
            let prepared = connection.prepare(statement.sql(0, E::Connection::placeholder));
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
