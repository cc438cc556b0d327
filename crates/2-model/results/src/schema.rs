//! The tables of `run.sqlite`, and writing and reading of their rows. Times are nanoseconds, sizes bytes.

use dbdyno_types::Latencies;
use dbdyno_units::{Bytes, Energy, Nanos, Qps};
use rusqlite::types::{Type, Value, ValueRef};
use rusqlite::{Connection, Error, Result, Row, ToSql, params_from_iter};

use crate::checksum::{Layout, of_value};

/// The format that this version reads and writes.
pub(crate) const FORMAT: i64 = 8;

/// Marks a SQLite file as ours (`PRAGMA application_id`): "dydb" in ASCII.
pub(crate) const APPLICATION_ID: i64 = 0x6479_6462;

/// The key in `meta` for whether the run may have schemas on existing servers.
pub(crate) const MAY_HAVE_SCHEMAS: &str = "may_have_schemas";

/// The key in `meta` of the last extension.
pub(crate) const EXTENSION: &str = "extension";

pub(crate) const TABLES: &str = "
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    checksum INTEGER                 -- of the row; NULL in runs of earlier versions
) WITHOUT ROWID;

CREATE TABLE microbenchmark (
    id INTEGER PRIMARY KEY,          -- position in the running order
    name TEXT NOT NULL,
    clients INTEGER NOT NULL,        -- concurrent; a sweep has several rows per name
    \"group\" TEXT NOT NULL,
    json TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0, -- 1 when its schedule is complete
    checksum INTEGER,                -- of json; NULL in runs of earlier versions
    UNIQUE (name, clients)
);

CREATE TABLE candidate (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    json TEXT NOT NULL,
    checksum INTEGER                 -- of json; NULL in runs of earlier versions
);

CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    json TEXT NOT NULL,
    elapsed_ns INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER                 -- of the row; NULL in runs of earlier versions
);

CREATE TABLE slice (
    id INTEGER PRIMARY KEY,          -- order of execution
    session INTEGER NOT NULL REFERENCES session,
    microbenchmark INTEGER NOT NULL REFERENCES microbenchmark,
    restart INTEGER NOT NULL,
    block INTEGER NOT NULL,
    position INTEGER NOT NULL,       -- within the block
    candidate INTEGER NOT NULL REFERENCES candidate,
    warmup INTEGER NOT NULL,         -- 1: not used in any figure
    started_ns INTEGER NOT NULL,     -- CLOCK_MONOTONIC, after the lead-in
    wall_ns INTEGER NOT NULL,
    cpu_ns INTEGER NOT NULL,         -- of the clients, which include an embedded engine
    polling_ns INTEGER,              -- part of cpu_ns, without work; NULL if the clients slept
    qps REAL,                        -- sum over clients of statements / own time
    events INTEGER NOT NULL,
    statements INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    changed_rows INTEGER NOT NULL,
    digest INTEGER NOT NULL,         -- of all results, as a signed number
    errors INTEGER NOT NULL,
    wrong_results INTEGER NOT NULL,  -- statements with an unexpected number of rows
    first_error TEXT,                -- the first error or wrong result
    busy_retries INTEGER NOT NULL,
    context_switches INTEGER NOT NULL,
    page_faults INTEGER NOT NULL,
    server_cpu_ns INTEGER,           -- of all server processes; this and the following
    server_user_ns INTEGER,          -- columns are NULL for an embedded engine or if unknown
    server_system_ns INTEGER,
    server_context_switches INTEGER,
    server_page_faults INTEGER,
    server_read_bytes INTEGER,       -- storage I/O
    server_written_bytes INTEGER,
    server_background_ns INTEGER,    -- CPU time since the candidate's previous slice
    energy_uj INTEGER,               -- microjoules of all CPU packages; NULL if unknown
    latencies BLOB NOT NULL,         -- response times of events, see Latencies::to_bytes
    checksum INTEGER,                -- of the row and its counters; NULL in runs of earlier versions
    UNIQUE (microbenchmark, block, candidate)
);

CREATE TABLE counter (
    slice INTEGER NOT NULL REFERENCES slice,
    counter TEXT NOT NULL,           -- such as instructions; no row: unknown
    count INTEGER NOT NULL,          -- of all threads of the system under test
    enabled_ns INTEGER NOT NULL,     -- CPU time of these threads
    running_ns INTEGER NOT NULL,     -- how long of it the counter was active; if less, the
                                     -- estimate is count * enabled_ns / running_ns
    PRIMARY KEY (slice, counter)
) WITHOUT ROWID;

CREATE TABLE latency_bucket (
    microbenchmark INTEGER NOT NULL REFERENCES microbenchmark,
    candidate INTEGER NOT NULL REFERENCES candidate,
    response_ns INTEGER NOT NULL,    -- of an event, accurate to 1%
    events INTEGER NOT NULL,         -- with this response time, in all counted slices
    share REAL NOT NULL,             -- of all events, with this response time or a shorter one
    PRIMARY KEY (microbenchmark, candidate, response_ns)
) WITHOUT ROWID;                     -- only of microbenchmarks that are done

CREATE TABLE failure (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session,
    candidate INTEGER NOT NULL REFERENCES candidate,
    microbenchmark INTEGER REFERENCES microbenchmark,
    kind TEXT NOT NULL,              -- wrong: wrong results; ended: the worker or database
                                     -- terminated; lost: a connection or server was lost and
                                     -- replaced; differs: its data differs since a loss;
                                     -- undetermined: equal instances gave other values
    at TEXT NOT NULL,
    reason TEXT NOT NULL
);

CREATE TABLE state_snapshot (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session,
    candidate INTEGER NOT NULL REFERENCES candidate,
    at TEXT NOT NULL,
    json TEXT NOT NULL,
    checksum INTEGER                 -- of the row; NULL in runs of earlier versions
);

CREATE TABLE optimization (
    id INTEGER PRIMARY KEY,          -- order of execution
    session INTEGER NOT NULL REFERENCES session,
    candidate INTEGER NOT NULL REFERENCES candidate,
    trained_with INTEGER NOT NULL REFERENCES microbenchmark,
    measured_next INTEGER NOT NULL REFERENCES microbenchmark,
    json TEXT NOT NULL
);

CREATE TABLE insert_step (
    id INTEGER PRIMARY KEY,          -- order of execution
    session INTEGER NOT NULL REFERENCES session,
    repeat INTEGER NOT NULL,
    position INTEGER NOT NULL,       -- of the candidate within the repeat
    candidate INTEGER NOT NULL REFERENCES candidate,
    step INTEGER NOT NULL,           -- position in the plan
    name TEXT NOT NULL,
    started_from TEXT NOT NULL,      -- step: the previous step; copy: a copy of the data, with
                                     -- empty caches
    done INTEGER NOT NULL DEFAULT 0, -- 0 while it runs and if it was interrupted
    wall_ns INTEGER,                 -- this and the following columns are NULL until done
    inserts INTEGER,                 -- rows
    queries INTEGER,
    deletes INTEGER,                 -- rows
    json TEXT,                       -- all figures, with response times
    checksum INTEGER,                -- of the row; NULL in runs of earlier versions
    UNIQUE (repeat, candidate, step)
);

CREATE TABLE insert_second (
    step INTEGER NOT NULL REFERENCES insert_step ON DELETE CASCADE,
    second INTEGER NOT NULL,
    elapsed_ns INTEGER NOT NULL,     -- its actual length
    inserts INTEGER NOT NULL,        -- rows
    queries INTEGER NOT NULL,
    deletes INTEGER NOT NULL,        -- rows
    insert_max_ns INTEGER,           -- response times that ended in it; NULL if none
    query_max_ns INTEGER,
    delete_max_ns INTEGER,
    cpu_ns INTEGER,                  -- of the system under test; NULL if unknown, as all below
    user_ns INTEGER,
    system_ns INTEGER,
    context_switches INTEGER,
    page_faults INTEGER,
    read_bytes INTEGER,              -- by its processes
    written_bytes INTEGER,
    client_cpu_ns INTEGER,           -- of the load generator
    device_reads INTEGER,            -- by all processes
    device_read_bytes INTEGER,
    device_writes INTEGER,
    device_written_bytes INTEGER,
    database_bytes INTEGER,
    resident_bytes INTEGER,
    checksum INTEGER,                -- of the row; NULL in runs of earlier versions
    PRIMARY KEY (step, second)
) WITHOUT ROWID;
";

/// The tables of a script's statements, of plans, of profiles, of waits, of the engines' own counters and of executed
/// instructions. Runs of earlier versions have them once they are resumed.
pub(crate) const ADDED_TABLES: &str = "
CREATE TABLE IF NOT EXISTS statement (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE        -- normalized
);

CREATE TABLE IF NOT EXISTS statement_time (
    slice INTEGER NOT NULL REFERENCES slice,
    statement INTEGER NOT NULL REFERENCES statement,
    executions INTEGER NOT NULL,     -- those that were timed: in the lead-in
    response_ns INTEGER NOT NULL,    -- the sum of their response times
    PRIMARY KEY (slice, statement)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS plan (
    microbenchmark INTEGER NOT NULL REFERENCES microbenchmark,
    candidate INTEGER NOT NULL REFERENCES candidate,
    restart INTEGER NOT NULL,
    statement INTEGER NOT NULL,      -- its number in the microbenchmark, from 1
    sql TEXT NOT NULL,
    lines TEXT NOT NULL,             -- of the plan, without estimates
    checksum INTEGER,                -- of the row; NULL in runs of earlier versions
    PRIMARY KEY (microbenchmark, candidate, restart, statement)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS profile (
    microbenchmark INTEGER NOT NULL REFERENCES microbenchmark,
    candidate INTEGER NOT NULL REFERENCES candidate,
    restart INTEGER NOT NULL,
    statements INTEGER NOT NULL,     -- in the timed parts that were sampled
    cpu_ns INTEGER NOT NULL,         -- of the system under test meanwhile
    json TEXT NOT NULL,              -- functions and stacks
    checksum INTEGER,                -- of the row; NULL in runs of earlier versions
    PRIMARY KEY (microbenchmark, candidate, restart)
);

CREATE TABLE IF NOT EXISTS waits (
    microbenchmark INTEGER NOT NULL REFERENCES microbenchmark,
    candidate INTEGER NOT NULL REFERENCES candidate,
    restart INTEGER NOT NULL,
    json TEXT NOT NULL,              -- times by slice and kind, stacks
    checksum INTEGER,                -- of the row; NULL in runs of earlier versions
    PRIMARY KEY (microbenchmark, candidate, restart)
);

CREATE TABLE IF NOT EXISTS engine_counter (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE        -- the engine's own
);

CREATE TABLE IF NOT EXISTS engine_reading (
    slice INTEGER PRIMARY KEY REFERENCES slice,
    statements INTEGER NOT NULL      -- in the lead-in and the timed part
);

CREATE TABLE IF NOT EXISTS engine_count (
    slice INTEGER NOT NULL REFERENCES engine_reading,
    counter INTEGER NOT NULL REFERENCES engine_counter,
    growth INTEGER NOT NULL,         -- during these statements; no row: none
    PRIMARY KEY (slice, counter)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS executed (
    microbenchmark INTEGER NOT NULL REFERENCES microbenchmark,
    candidate INTEGER NOT NULL REFERENCES candidate,
    restart INTEGER NOT NULL,
    json TEXT NOT NULL,              -- instructions by function, or why they were not counted
    checksum INTEGER,                -- of the row; NULL in runs of earlier versions
    PRIMARY KEY (microbenchmark, candidate, restart)
) WITHOUT ROWID;
";

/// The view with the figures of `relative.csv`, without intervals, by microbenchmark and candidate.
/// `dbdyno-report` calculates the same, and weights the starts of interrupted runs.
///
/// A run with any other view is refused as untrusted: another text needs another [`FORMAT`].
pub const FIGURES_VIEW: &str = "\
CREATE VIEW figures AS
WITH background AS (                 -- CPU time between slices, distributed over a start's statements
    SELECT microbenchmark, candidate, restart,
           sum(server_background_ns) * 1.0 / sum(statements) AS ns
    FROM slice
    WHERE warmup = 0 AND server_background_ns IS NOT NULL AND statements > 0
    GROUP BY microbenchmark, candidate, restart
), counted AS (
    SELECT s.microbenchmark, s.candidate, s.restart, s.block, s.qps, s.statements,
           s.errors + s.wrong_results AS errors, b.ns AS background,
           CASE WHEN s.server_cpu_ns IS NOT NULL THEN s.server_cpu_ns
                WHEN json_extract(c.json, '$.system') = 'sqlite' THEN nullif(s.cpu_ns, 0)
           END AS cpu_ns
    FROM slice s
    JOIN candidate c ON c.id = s.candidate
    LEFT JOIN background b USING (microbenchmark, candidate, restart)
    WHERE s.warmup = 0
), known AS (                        -- whether background CPU is known, or there is none
    SELECT microbenchmark, candidate, max(background IS NOT NULL) AS is_known
    FROM counted GROUP BY microbenchmark, candidate
), pair AS (                         -- the ratios of a block
    SELECT s.microbenchmark, s.candidate, s.qps / nullif(b.qps, 0) AS qps,
           (s.cpu_ns * 1.0 / s.statements + whole * coalesce(s.background, 0))
               / (b.cpu_ns * 1.0 / b.statements + whole * coalesce(b.background, 0)) AS cpu
    FROM (SELECT o.*, p.is_known * q.is_known AS whole FROM counted o
          JOIN known p USING (microbenchmark, candidate)
          JOIN known q ON q.microbenchmark = o.microbenchmark AND q.candidate = 0) s
    JOIN counted b USING (microbenchmark, restart, block)
    WHERE b.candidate = 0 AND s.candidate <> 0
), value AS (
    SELECT microbenchmark, candidate, 'qps' AS figure, qps AS value FROM counted
    UNION ALL SELECT microbenchmark, candidate, 'relative_qps', qps FROM pair WHERE qps > 0
    UNION ALL SELECT microbenchmark, candidate, 'relative_cpu', cpu FROM pair WHERE cpu > 0
), ranked AS (
    SELECT *, row_number() OVER (part ORDER BY value) AS rank, count(*) OVER part AS n
    FROM value WHERE value IS NOT NULL
    WINDOW part AS (PARTITION BY microbenchmark, candidate, figure)
), median AS (
    SELECT microbenchmark, candidate, figure, avg(value) AS value, n
    FROM ranked WHERE rank IN ((n + 1) / 2, (n + 2) / 2)
    GROUP BY microbenchmark, candidate, figure
), total AS (
    SELECT microbenchmark, candidate, sum(errors) AS errors,
           sum(cpu_ns) / 1e3 / nullif(sum(CASE WHEN cpu_ns IS NOT NULL THEN statements END), 0)
           + coalesce((SELECT sum(server_background_ns) / 1e3 / nullif(sum(statements), 0)
                       FROM slice s WHERE s.microbenchmark = counted.microbenchmark
                       AND s.candidate = counted.candidate AND s.warmup = 0
                       AND server_background_ns IS NOT NULL), 0) AS cpu_us_per_query
    FROM counted GROUP BY microbenchmark, candidate
)
SELECT m.name AS microbenchmark, m.clients, m.\"group\", c.name AS candidate,
       max(CASE figure WHEN 'qps' THEN value END)
           * coalesce(json_extract(m.json, '$.rows_read_per_statement') / 1e6, 1) AS qps,
       max(CASE figure WHEN 'relative_qps' THEN value END) AS relative_qps,
       t.cpu_us_per_query,
       max(CASE figure WHEN 'relative_cpu' THEN value END) AS relative_cpu,
       max(CASE figure WHEN 'relative_qps' THEN n END) AS blocks, t.errors
FROM median
JOIN total t USING (microbenchmark, candidate)
JOIN microbenchmark m ON m.id = median.microbenchmark
JOIN candidate c ON c.id = median.candidate
GROUP BY m.id, c.id
ORDER BY m.id, c.id";

/// Insert a row: `insert!(database, "table" { "column": value, … })`.
macro_rules! insert {
    ($database:expr, $table:literal { $($column:literal: $value:expr,)* }) => {
        crate::schema::insert_row(
            $database,
            ("INSERT", $table),
            &[$(($column, &$value as &dyn rusqlite::ToSql)),*],
        )
    };
}
pub(crate) use insert;

/// Insert a row with these names and values of columns.
pub(crate) fn insert_row(
    database: &Connection,
    (verb, table): (&str, &str),
    row: &[(&str, &dyn ToSql)],
) -> Result<()> {
    let columns: Vec<&str> = row.iter().map(|(column, _)| *column).collect();
    let (columns, values) = (columns.join(", "), vec!["?"; row.len()].join(", "));
    let sql = format!("{verb} INTO {table} ({columns}) VALUES ({values})");
    let mut insert = database.prepare_cached(&sql)?;
    insert.execute(params_from_iter(row.iter().map(|(_, value)| value))).map(drop)
}

/// A record that is stored as a row. Its columns are listed once, for writing and for reading.
pub(crate) trait Record: Clone + Default {
    fn list(&mut self, columns: &mut Columns<'_>) -> Result<()>;

    fn from_row(row: &Row<'_>, layout: &Layout) -> Result<Self> {
        let mut record = Self::default();
        record.list(&mut Columns::Read(row, layout, 0))?;
        Ok(record)
    }

    /// The sum of the checksums of its rows in other tables.
    fn checksum_of_parts(&self) -> u32 {
        0
    }

    /// Insert it with the ID of what it belongs to, and its checksum.
    fn insert(&self, database: &Connection, table: &str, owner: (&'static str, i64)) -> Result<()> {
        let mut columns = Columns::Write(vec![(owner.0, owner.1.into())]);
        self.clone().list(&mut columns)?;
        let Columns::Write(values) = columns else { unreachable!("columns are written") };
        insert_with_checksum(database, ("INSERT", table), values, self.checksum_of_parts())
    }
}

/// Insert a row, or replace that with its key, with its checksum.
pub(crate) fn replace(
    database: &Connection,
    table: &str,
    values: Vec<(&'static str, Value)>,
) -> Result<()> {
    insert_with_checksum(database, ("INSERT OR REPLACE", table), values, 0)
}

fn insert_with_checksum(
    database: &Connection,
    (verb, table): (&str, &str),
    mut values: Vec<(&'static str, Value)>,
    of_parts: u32,
) -> Result<()> {
    let checksums = values.iter().map(|(column, value)| of_value(column, value.into()));
    let checksum = checksums.fold(of_parts, u32::wrapping_add);
    values.push(("checksum", checksum.into()));
    let row: Vec<(&str, &dyn ToSql)> =
        values.iter().map(|(column, value)| (*column, value as &dyn ToSql)).collect();
    insert_row(database, (verb, table), &row)
}

/// The columns of a row.
pub(crate) enum Columns<'r> {
    Write(Vec<(&'static str, Value)>),
    /// With the position after that of the column before.
    Read(&'r Row<'r>, &'r Layout, usize),
}

impl Columns<'_> {
    /// Write the value, or replace it by what is stored.
    pub fn add<T: Stored>(&mut self, column: &'static str, value: &mut T) -> Result<()> {
        match self {
            Self::Write(values) => values.push((column, value.to_value())),
            Self::Read(row, layout, next) => {
                *value = T::from_column(row, layout.position(next, column)?)?;
            }
        }
        Ok(())
    }

    /// Several columns that are NULL if the value is `None`; the first one only then.
    pub fn add_group<T: Default>(
        &mut self,
        first: &'static str,
        value: &mut Option<T>,
        list: impl FnOnce(&mut Self, &mut T) -> Result<()>,
    ) -> Result<()> {
        let present = match self {
            Self::Write(_) => value.is_some(),
            Self::Read(row, layout, next) => {
                let mut next = *next;
                row.get_ref(layout.position(&mut next, first)?)? != ValueRef::Null
            }
        };
        match self {
            Self::Read(..) if !present => *value = None,
            Self::Read(..) => list(self, value.insert(T::default()))?,
            Self::Write(values) => {
                let start = values.len();
                list(self, value.get_or_insert_default())?;
                if let (Self::Write(values), false) = (self, present) {
                    values[start..].iter_mut().for_each(|(_, value)| *value = Value::Null);
                }
            }
        }
        Ok(())
    }
}

/// A value of a column.
pub(crate) trait Stored: Sized {
    fn to_value(&self) -> Value;
    fn from_column(row: &Row<'_>, column: usize) -> Result<Self>;
}

impl<T: Stored> Stored for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }

    fn from_column(row: &Row<'_>, column: usize) -> Result<Self> {
        match row.get_ref(column)? {
            ValueRef::Null => Ok(None),
            _ => T::from_column(row, column).map(Some),
        }
    }
}

macro_rules! stored {
    ($($type:ty as $column:ty: $to:expr, $from:expr;)*) => {
        $(impl Stored for $type {
            fn to_value(&self) -> Value {
                let to: fn(&Self) -> $column = $to;
                to(self).into()
            }

            fn from_column(row: &Row<'_>, column: usize) -> Result<Self> {
                let from: fn($column) -> Self = $from;
                row.get(column).map(from)
            }
        })*
    };
}

stored! {
    bool as bool: |value| *value, |value| value;
    u32 as u32: |value| *value, |value| value;
    String as String: Self::clone, |text| text;
    u64 as i64: |value| value.cast_signed(), i64::cast_unsigned;
    Nanos as i64: |time| time.as_nanos().cast_signed(), |time| Self::from_nanos(time.cast_unsigned());
    Bytes as i64: |size| size.as_bytes().cast_signed(), |size| Self::from_bytes(size.cast_unsigned());
    Energy as i64:
        |energy| energy.as_microjoules().cast_signed(),
        |energy| Self::from_microjoules(energy.cast_unsigned());
    Qps as f64: |qps| qps.per_second(), Self::from_per_second;
}

impl Stored for Latencies {
    fn to_value(&self) -> Value {
        self.to_bytes().into()
    }

    fn from_column(row: &Row<'_>, column: usize) -> Result<Self> {
        Self::from_bytes(&row.get::<_, Vec<u8>>(column)?)
            .map_err(|error| Error::FromSqlConversionFailure(0, Type::Blob, error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_changes_with_the_format_only() {
        let fnv1a = FIGURES_VIEW.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!(
            (FORMAT, fnv1a),
            (8, 0xf832_6e40_c33b_c814),
            "runs with the former view would be refused"
        );
    }
}
