//! The tables of `run.sqlite`. Times are nanoseconds, sizes bytes.

/// The format that this version writes; it reads this one and all before it.
pub(crate) const FORMAT: i64 = 1;

/// Marks a SQLite file as ours (`PRAGMA application_id`): "dydb" in ASCII.
pub(crate) const APPLICATION_ID: i64 = 0x6479_6462;

pub(crate) const TABLES: &str = "
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE microbenchmark (
    id INTEGER PRIMARY KEY,          -- position in the running order
    name TEXT NOT NULL UNIQUE,
    \"group\" TEXT NOT NULL,
    json TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0  -- 1 when its schedule was fulfilled
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
    cpu_ns INTEGER NOT NULL,
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
    latencies BLOB NOT NULL,         -- response times of events, see Latencies::to_bytes
    UNIQUE (microbenchmark, block, candidate)
);

CREATE TABLE failure (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session,
    candidate INTEGER NOT NULL REFERENCES candidate,
    microbenchmark INTEGER REFERENCES microbenchmark,
    kind TEXT NOT NULL,              -- wrong: answers; ended: the worker or the database
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
";
