//! The engine of a server: what MySQL, MariaDB and PostgreSQL have in common.

use std::marker::PhantomData;

use dbdyno_drivers::{Connection, Error, NonBlockingConnection};
use dbdyno_types::server::{ServerSystem, StatementMode};
use dbdyno_types::{RunIdentity, StateSnapshot};

use crate::in_force::ReportedSetting;
use crate::marker::{SchemaOwner, not_own, why_not_own};
use crate::mysql::MySql;
use crate::postgres::Postgres;
use crate::server::ServerAccess;
use crate::{Engine, InsertEngine, NextRow, SchemaRemoval, Table, TableCreation};

/// A server and the schema with dbdyno's tables.
///
/// Global settings are changed on a private server only. On an existing server the schema has a marker, and settling
/// does not change settings.
#[derive(Clone, Debug)]
pub struct ServerEngine<D> {
    pub(crate) settings: ServerAccess,
    dialect: PhantomData<D>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading the server's settings, which are not changed.
    Inspect,
    /// Clients that are measured, with the server's settings, except those that would make statements fail or wait.
    Measure,
    /// The user's setup scripts: without the server's time limits.
    SetUp,
    /// dbdyno's own statements: no setting of the server affects them.
    Administer,
}

/// What differs between servers in connecting and loading.
pub trait Dialect: Clone + Send + 'static {
    type Connection: NonBlockingConnection + Send;

    fn server_version(connection: &Self::Connection) -> &str;

    /// A connection to administer, with which a schema can be created.
    fn connect_to_server(settings: &ServerAccess) -> Result<Self::Connection, Error>;

    /// A connection whose current schema is dbdyno's.
    fn connect(settings: &ServerAccess, purpose: Purpose) -> Result<Self::Connection, Error>;

    /// Checks that a pooler in front of an existing server gives so many connections a session each.
    fn check_pooler(_: &ServerAccess, _connections: u32) -> Result<(), Error> {
        Ok(())
    }

    /// See [`Engine::options`].
    fn options(settings: &ServerAccess) -> Result<Vec<(String, String)>, Error>;

    /// See [`Engine::settings_in_force`].
    fn settings_in_force(
        settings: &ServerAccess,
        names: &[String],
    ) -> Result<Vec<ReportedSetting>, Error>;

    /// See [`Engine::load_table`].
    fn load_table(
        engine: &ServerEngine<Self>,
        connection: &mut Self::Connection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error>;
}

/// What differs between servers in creating and dropping schemas. Those on existing servers have a marker.
pub trait Schemas: Dialect {
    /// Creates the schema on a private server, unless it exists.
    fn create_private(connection: &mut Self::Connection, schema: &str) -> Result<(), Error>;

    /// Drops the schema from a private server, if it exists.
    fn drop_private(connection: &mut Self::Connection, schema: &str) -> Result<(), Error>;

    fn owner(
        connection: &mut Self::Connection,
        schema: &str,
        run: &RunIdentity,
    ) -> Result<SchemaOwner, Error>;

    /// Creates the schema, which does not exist, with its marker.
    fn create_marked(
        connection: &mut Self::Connection,
        schema: &str,
        run: &RunIdentity,
    ) -> Result<(), Error>;

    /// Checks the privilege to create the schema. Changes nothing.
    fn check_privilege(
        connection: &mut Self::Connection,
        schema: &str,
        owner: &SchemaOwner,
    ) -> Result<(), Error>;

    /// Ends the statements that other connections execute in the schema as this user, if it may.
    fn end_statements(connection: &mut Self::Connection, schema: &str) -> Result<(), Error>;

    /// Drops these tables of the run, and removes them from the marker.
    fn drop_tables(
        connection: &mut Self::Connection,
        schema: &str,
        tables: &[String],
    ) -> Result<(), Error>;

    /// Drops the schema and its marker if nothing else is in it.
    fn drop_if_empty(connection: &mut Self::Connection, schema: &str) -> Result<(), Error>;

    /// Creates a table of the run with the statement `sql`, and lists it in the marker.
    fn create_table(
        connection: &mut Self::Connection,
        schema: &str,
        table: &str,
        sql: &str,
    ) -> Result<(), Error>;

    /// Executes a statement of a setup script that may create tables, and lists these in the marker.
    fn run_setup(
        connection: &mut Self::Connection,
        schema: &str,
        sql: &str,
        creates: TableCreation<'_>,
    ) -> Result<(), Error>;

    /// The existing tables that the marker lists, sorted.
    fn listed_tables(connection: &mut Self::Connection, schema: &str)
    -> Result<Vec<String>, Error>;
}

/// What differs between servers in settling, reading and counting; see [`Engine`].
pub trait State: Dialect {
    /// The figures of state snapshots that are of the tables, and not of the whole server.
    const FIGURES_OF_TABLES: &[&str] = &[];

    /// Whether the size in state snapshots is that of the whole server.
    fn has_size_of_server(_: &ServerAccess) -> bool {
        false
    }

    /// All tables in the schema except the marker, sorted.
    fn tables(connection: &mut Self::Connection) -> Result<Vec<String>, Error>;

    /// See [`Engine::count_work`].
    fn count_work(_: &mut Self::Connection) -> Result<(), Error> {
        Ok(())
    }

    /// See [`Engine::counters`].
    fn counters(connection: &mut Self::Connection) -> Result<Vec<(String, u64)>, Error>;

    /// See [`Engine::plan`].
    fn plan(connection: &mut Self::Connection, sql: &str) -> Result<Vec<String>, Error>;

    fn settle(connection: &mut Self::Connection, settings: &ServerAccess) -> Result<(), Error>;

    fn warm(connection: &mut Self::Connection, tables: &[Table]) -> Result<(), Error>;

    fn warm_own(connection: &mut Self::Connection, tables: &[String]) -> Result<(), Error>;

    fn state_snapshot(
        connection: &mut Self::Connection,
        settings: &ServerAccess,
        tables: &[String],
    ) -> Result<StateSnapshot, Error>;
}

impl<D: Dialect> ServerEngine<D> {
    /// Does not connect yet.
    pub const fn new(settings: ServerAccess) -> Self {
        Self { settings, dialect: PhantomData }
    }

    fn connect_to_server(&self) -> Result<D::Connection, Error> {
        D::connect_to_server(&self.settings)
    }

    /// The same with statements that are prepared at the server, which then checks them and privileges.
    fn preparing(&self) -> Self {
        let statements = StatementMode::Prepared;
        Self::new(ServerAccess { statements, ..self.settings.clone() })
    }
}

impl<D: Schemas + State> Engine for ServerEngine<D> {
    type Connection = D::Connection;

    const SHARES_CACHE: bool = true;

    fn version(&self) -> Result<String, Error> {
        Ok(D::server_version(&self.connect_to_server()?).to_owned())
    }

    fn options(&self) -> Vec<(String, String)> {
        // Informational only: other connections report the same error.
        D::options(&self.settings).unwrap_or_default()
    }

    fn settings_in_force(&self, names: &[String]) -> Result<Vec<ReportedSetting>, Error> {
        if names.is_empty() { Ok(Vec::new()) } else { D::settings_in_force(&self.settings, names) }
    }

    fn in_schema(&self, schema: &str) -> Self {
        Self::new(ServerAccess { schema: schema.to_owned(), ..self.settings.clone() })
    }

    fn create_schema(&self) -> Result<(), Error> {
        let ServerAccess { schema, owner, .. } = &self.settings;
        let connection = &mut self.connect_to_server()?;
        let Some(run) = owner else { return D::create_private(connection, schema) };
        let owner = D::owner(connection, schema, run)?;
        if let Some(reason) = why_not_own(&owner, schema) {
            return Err(not_own("creating", schema, reason));
        }
        match owner {
            SchemaOwner::ThisRun(tables) => drop_tables::<D>(connection, schema, &tables),
            _ => D::create_marked(connection, schema, run),
        }
    }

    fn check_access(&self, connections: u32) -> Result<(), Error> {
        let ServerAccess { schema, owner, .. } = &self.settings;
        let Some(run) = owner else { return Ok(()) };
        D::check_pooler(&self.settings, connections)?;
        let connection = &mut self.preparing().connect_to_server()?;
        let owner = D::owner(connection, schema, run)?;
        match why_not_own(&owner, schema) {
            Some(reason) => Err(not_own("creating", schema, reason)),
            None => D::check_privilege(connection, schema, &owner),
        }
    }

    fn connect_to_check(&self) -> Result<Self::Connection, Error> {
        self.preparing().connect()
    }

    fn drop_schema(&self) -> Result<SchemaRemoval, Error> {
        let ServerAccess { schema, owner, .. } = &self.settings;
        let connection = &mut self.connect_to_server()?;
        let Some(run) = owner else {
            return D::drop_private(connection, schema).map(|()| SchemaRemoval::Dropped);
        };
        let owner = D::owner(connection, schema, run)?;
        if let Some(reason) = why_not_own(&owner, schema) {
            return Ok(SchemaRemoval::LeftAlone(format!("the schema {schema}: {reason}")));
        }
        let SchemaOwner::ThisRun(tables) = owner else { return Ok(SchemaRemoval::Absent) };
        drop_tables::<D>(connection, schema, &tables)?;
        D::drop_if_empty(connection, schema)?;
        Ok(SchemaRemoval::Dropped)
    }

    fn end_statements(&self) -> Result<(), Error> {
        let ServerAccess { schema, owner: Some(run), .. } = &self.settings else { return Ok(()) };
        let connection = &mut self.connect_to_server()?;
        match D::owner(connection, schema, run)? {
            SchemaOwner::ThisRun(_) => D::end_statements(connection, schema),
            _ => Ok(()),
        }
    }

    fn create_table(
        &self,
        connection: &mut Self::Connection,
        table: &str,
        sql: &str,
    ) -> Result<(), Error> {
        match self.settings.is_private() {
            true => connection.run(sql),
            false => D::create_table(connection, &self.settings.schema, table, sql),
        }
    }

    fn schema_of_others(&self) -> Option<&str> {
        (!self.settings.is_private()).then_some(&self.settings.schema)
    }

    fn connect_to_administer(&self) -> Result<Self::Connection, Error> {
        D::connect(&self.settings, Purpose::Administer)
    }

    fn connect_for_setup(&self) -> Result<Self::Connection, Error> {
        D::connect(&self.settings, Purpose::SetUp)
    }

    fn run_setup(
        &self,
        connection: &mut Self::Connection,
        sql: &str,
        creates: TableCreation<'_>,
    ) -> Result<(), Error> {
        match self.settings.is_private() || creates == TableCreation::None {
            true => connection.run(sql),
            false => D::run_setup(connection, &self.settings.schema, sql, creates),
        }
    }

    fn table_names(&self, connection: &mut Self::Connection) -> Result<Vec<String>, Error> {
        match self.settings.is_private() {
            true => D::tables(connection),
            false => D::listed_tables(connection, &self.settings.schema),
        }
    }

    fn connect(&self) -> Result<Self::Connection, Error> {
        D::connect(&self.settings, Purpose::Measure)
    }

    fn load_table(
        &self,
        connection: &mut Self::Connection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error> {
        D::load_table(self, connection, table, next)
    }

    fn count_work(&self, connection: &mut Self::Connection) -> Result<(), Error> {
        D::count_work(connection)
    }

    fn counters(&self, connection: &mut Self::Connection) -> Result<Vec<(String, u64)>, Error> {
        D::counters(connection)
    }

    fn plan(&self, connection: &mut Self::Connection, sql: &str) -> Result<Vec<String>, Error> {
        D::plan(connection, sql)
    }

    fn settle(&self, connection: &mut Self::Connection) -> Result<(), Error> {
        D::settle(connection, &self.settings)
    }

    fn warm(&self, connection: &mut Self::Connection, tables: &[Table]) -> Result<(), Error> {
        D::warm(connection, tables)
    }

    fn warm_own(&self, connection: &mut Self::Connection, tables: &[String]) -> Result<(), Error> {
        D::warm_own(connection, tables)
    }

    fn state_snapshot(
        &self,
        connection: &mut Self::Connection,
        tables: &[String],
    ) -> Result<StateSnapshot, Error> {
        D::state_snapshot(connection, &self.settings, tables)
    }

    fn add_to_snapshot(&self, sum: &mut StateSnapshot, other: StateSnapshot) {
        sum.rows += other.rows;
        if !D::has_size_of_server(&self.settings) {
            sum.data_size = sum.data_size + other.data_size;
        }
        for (name, value) in other.state {
            let of_tables = D::FIGURES_OF_TABLES.contains(&name.as_str());
            if let Some((_, sum)) =
                sum.state.iter_mut().find(|(known, _)| of_tables && *known == name)
            {
                *sum += value;
            }
        }
    }
}

/// Work with the engine of a server, whatever its system is.
pub trait WithServerEngine {
    type Output;

    fn run<E: InsertEngine>(self, engine: E) -> Self::Output
    where
        E::Connection: NonBlockingConnection;
}

/// Works with the engine of a server's system.
pub fn with_server_engine<W: WithServerEngine>(settings: ServerAccess, work: W) -> W::Output {
    match settings.system {
        ServerSystem::MariaDb | ServerSystem::MySql => work.run(MySql::new(settings)),
        ServerSystem::PostgreSql => work.run(Postgres::new(settings)),
    }
}

/// Drops the tables of this run. A statement that cannot be ended is waited for.
fn drop_tables<D: Schemas>(
    connection: &mut D::Connection,
    schema: &str,
    tables: &[String],
) -> Result<(), Error> {
    let _ = D::end_statements(connection, schema);
    D::drop_tables(connection, schema, tables)
}
