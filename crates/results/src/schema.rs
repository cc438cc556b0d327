//! The tables of `run.sqlite`. Times are nanoseconds, sizes bytes.

use rusqlite::Connection;

/// The format that this version writes and reads.
///
/// Format 1 knew neither numbers of clients nor what a server spends. It was never part of a
/// release: nothing reads it any more. Format 2 did not know the insert benchmark, and is read as
/// a run without one. Format 3 did not know the live optimizer, and format 4 neither counters nor
/// energy.
pub(crate) const FORMAT: i64 = 5;

/// The oldest format that this version reads.
pub(crate) const OLDEST: i64 = 2;

/// Marks a SQLite file as ours (`PRAGMA application_id`): "dydb" in ASCII.
pub(crate) const APPLICATION_ID: i64 = 0x6479_6462;

/// A column of `slice` that runs of format 2 from before the first release may lack: there nobody
/// looked at what it holds.
pub(crate) const BACKGROUND: &str = "server_background_ns";

/// A column of `slice` that runs of formats before 5 lack.
pub(crate) const ENERGY: &str = "energy_uj";

/// Whether the slices have this column.
pub(crate) fn has_column(database: &Connection, column: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT COUNT(*) FROM pragma_table_info('slice') WHERE name = ?1";
    database.query_row(sql, [column], |row| row.get(0))
}

/// Whether there is a table of counters: runs of formats before 5 have none until they are
/// continued.
pub(crate) fn has_counters(database: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = 'counter'";
    database.query_row(sql, [], |row| row.get(0))
}

/// Adds to a run of an older format what slices of today need.
pub(crate) fn complete(database: &Connection) -> rusqlite::Result<()> {
    for column in [BACKGROUND, ENERGY] {
        if !has_column(database, column)? {
            database.execute_batch(&format!("ALTER TABLE slice ADD COLUMN {column} INTEGER"))?;
        }
    }
    if !has_counters(database)? {
        database.execute_batch(COUNTERS)?;
    }
    Ok(())
}

pub(crate) const COUNTERS: &str = "
CREATE TABLE counter (
    slice INTEGER NOT NULL REFERENCES slice,
    counter TEXT NOT NULL,           -- such as instructions; without a row it is unknown
    count INTEGER NOT NULL,          -- of all threads of the system under test, as it was seen
    enabled_ns INTEGER NOT NULL,     -- CPU time of these threads
    running_ns INTEGER NOT NULL,     -- of it, how long the counter was at work: where that is
                                     -- less, count * enabled_ns / running_ns is the estimate
    PRIMARY KEY (slice, counter)
) WITHOUT ROWID;
";

pub(crate) const TABLES: &str = "
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE microbenchmark (
    id INTEGER PRIMARY KEY,          -- position in the running order
    name TEXT NOT NULL,
    clients INTEGER NOT NULL,        -- at work at once; a sweep has several per name
    \"group\" TEXT NOT NULL,
    json TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0, -- 1 when its schedule was fulfilled
    UNIQUE (name, clients)
);

CREATE TABLE candidate (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    json TEXT NOT NULL
);

CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    json TEXT NOT NULL,
    elapsed_ns INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE slice (
    id INTEGER PRIMARY KEY,          -- order of execution
    session INTEGER NOT NULL REFERENCES session,
    microbenchmark INTEGER NOT NULL REFERENCES microbenchmark,
    restart INTEGER NOT NULL,
    block INTEGER NOT NULL,
    place INTEGER NOT NULL,          -- within the block
    candidate INTEGER NOT NULL REFERENCES candidate,
    warmup INTEGER NOT NULL,         -- 1: never counts
    started_ns INTEGER NOT NULL,     -- CLOCK_MONOTONIC, when the lead-in was over
    wall_ns INTEGER NOT NULL,
    cpu_ns INTEGER NOT NULL,         -- of the clients; an embedded engine is inside them
    qps REAL,                        -- sum over clients of statements / own time
    events INTEGER NOT NULL,
    statements INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    affected INTEGER NOT NULL,
    digest INTEGER NOT NULL,         -- of all answers, as a signed number
    errors INTEGER NOT NULL,
    wrong INTEGER NOT NULL,
    complaint TEXT,                  -- the first error or wrong count
    busy_retries INTEGER NOT NULL,
    context_switches INTEGER NOT NULL,
    page_faults INTEGER NOT NULL,
    server_cpu_ns INTEGER,           -- of all processes of the server; NULL when unknown,
    server_user_ns INTEGER,          -- as for an embedded engine, and so are all of these
    server_system_ns INTEGER,
    server_context_switches INTEGER,
    server_page_faults INTEGER,
    server_read_bytes INTEGER,       -- from and to storage
    server_written_bytes INTEGER,
    server_background_ns INTEGER,    -- CPU time since the candidate's slice before
    energy_uj INTEGER,               -- microjoules of all CPU packages; NULL when unknown
    latencies BLOB NOT NULL,         -- response times of events, see Latencies::to_bytes
    UNIQUE (microbenchmark, block, candidate)
);

CREATE TABLE failure (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session,
    candidate INTEGER NOT NULL REFERENCES candidate,
    microbenchmark INTEGER REFERENCES microbenchmark,
    kind TEXT NOT NULL,              -- wrong: answers; ended: the worker or the database;
                                     -- lost: a connection or server, and it went on;
                                     -- differs: that left it with other data than the others
    at TEXT NOT NULL,
    reason TEXT NOT NULL
);

CREATE TABLE certificate (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session,
    candidate INTEGER NOT NULL REFERENCES candidate,
    at TEXT NOT NULL,
    json TEXT NOT NULL
);

CREATE TABLE optimization (
    id INTEGER PRIMARY KEY,          -- order of execution
    session INTEGER NOT NULL REFERENCES session,
    candidate INTEGER NOT NULL REFERENCES candidate,
    trained_with INTEGER NOT NULL REFERENCES microbenchmark,
    before INTEGER NOT NULL REFERENCES microbenchmark, -- what was measured next
    json TEXT NOT NULL
);

CREATE TABLE insert_step (
    id INTEGER PRIMARY KEY,          -- order of execution
    session INTEGER NOT NULL REFERENCES session,
    repeat INTEGER NOT NULL,
    place INTEGER NOT NULL,          -- of the candidate within the repeat
    candidate INTEGER NOT NULL REFERENCES candidate,
    step INTEGER NOT NULL,           -- position in the plan
    name TEXT NOT NULL,
    started_from TEXT NOT NULL,      -- step: the one before; copy: of the data, caches empty
    done INTEGER NOT NULL DEFAULT 0, -- 0 while it runs, and for ever where it was broken off
    wall_ns INTEGER,                 -- NULL until it is done, and so are all of these
    inserts INTEGER,                 -- rows
    queries INTEGER,
    deletes INTEGER,                 -- rows
    json TEXT,                       -- all of it, response times included
    UNIQUE (repeat, candidate, step)
);

CREATE TABLE insert_second (
    step INTEGER NOT NULL REFERENCES insert_step ON DELETE CASCADE,
    second INTEGER NOT NULL,
    elapsed_ns INTEGER NOT NULL,     -- its true length
    inserts INTEGER NOT NULL,        -- rows
    queries INTEGER NOT NULL,
    deletes INTEGER NOT NULL,        -- rows
    insert_worst_ns INTEGER,         -- response times that ended in it; NULL where none did
    query_worst_ns INTEGER,
    delete_worst_ns INTEGER,
    cpu_ns INTEGER,                  -- of the system under test; NULL when unknown, as all below
    user_ns INTEGER,
    system_ns INTEGER,
    context_switches INTEGER,
    page_faults INTEGER,
    read_bytes INTEGER,              -- by its processes
    written_bytes INTEGER,
    client_cpu_ns INTEGER,           -- of the load generator
    device_reads INTEGER,            -- by anybody
    device_read_bytes INTEGER,
    device_writes INTEGER,
    device_written_bytes INTEGER,
    database_bytes INTEGER,
    resident_bytes INTEGER,
    PRIMARY KEY (step, second)
) WITHOUT ROWID;
";
