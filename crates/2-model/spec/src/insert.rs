//! `[insert_benchmark]`: load in steps, then run queries during inserts at a fixed rate.

use dbdyno_document::{Problem, Spanned, Table};
use dbdyno_units::{Nanos, Share};
use dbdyno_workloads::insert::{Inserts, LEAST_DATA, MOST_DATA, Mix, Plan, QueryKind, Step, Task};

use crate::experiment::{InsertBenchmark, Workload};

/// Each client has up to two connections, and servers limit their number.
const MOST_CLIENTS: i64 = 1024;

/// More rows than fit on any disk.
const MOST_ROWS: i64 = 1_000_000_000_000;

/// Larger commits would measure bulk loading, not commits.
const MOST_ROWS_PER_COMMIT: i64 = 100_000;

/// More than any system achieves from one client.
const MOST_RATE: i64 = 100_000_000;

/// A step of one second has one point in its chart; one of a week would be an endurance test.
const TIMES: std::ops::RangeInclusive<Nanos> =
    Nanos::from_secs(1)..=Nanos::from_secs(7 * 24 * 3600);

/// Sections for microbenchmarks, which an insert benchmark does not use.
const OTHERS: [&str; 3] = ["workload", "microbenchmark", "schedule"];

/// Reads the section, if present; sections for microbenchmarks are then rejected.
pub fn read(root: &mut Table<'_>) -> Option<InsertBenchmark> {
    let mut table = root.table("insert_benchmark")?;
    for section in OTHERS {
        root.refuse(
            section,
            "cannot be combined with [insert_benchmark]",
            "move it to a separate experiment",
        );
    }
    let benchmark = read_section(&mut table);
    table.finish();
    Some(benchmark)
}

fn read_section(table: &mut Table<'_>) -> InsertBenchmark {
    let clients = integer(table, "clients", 1..=MOST_CLIENTS, 1);
    let tables = table.integer("tables", 1..=MOST_CLIENTS);
    if let Some(tables) = tables.filter(|tables| tables.value > clients) {
        let message = format!("{} tables are more than the {clients} clients", tables.value);
        let help = "each client inserts into one table: use at least as many clients as tables";
        table.report(Problem::new(tables.span, message).help(help));
    }
    let tables = tables.map_or(1, |tables| tables.value);
    let rows = read_rows(table.table("rows"));
    let commits = read_rows_per_commit(table.table("rows_per_commit"));
    let mut steps = loads(&rows, &commits);
    steps.extend(mixes(table, commits.q));
    let delete_per_insert = table.bool("delete_per_insert").is_some_and(|deletes| deletes.value);
    let data = integer(table, "data_length", LEAST_DATA.into()..=MOST_DATA.into(), 10);
    let repeats = integer(table, "repeats", 1..=100, 1);
    let copies = table.bool("copies").is_none_or(|copies| copies.value);
    let shares = Share::from_percent(1.0)..=Share::from_percent(100.0);
    let stall = table.share("stall", shares).map(|stall| stall.value);
    InsertBenchmark {
        plan: Plan {
            clients: clients as u32,
            tables: tables as u32,
            data_length: data as u32,
            delete_per_insert,
            steps,
        },
        repeats: repeats as u32,
        copies,
        stall: stall.unwrap_or(Share::from_percent(50.0)),
    }
}

fn integer(
    table: &mut Table<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<i64>,
    default: i64,
) -> i64 {
    table.integer(key, range).map_or(default, |value| value.value)
}

/// Rows per client of each load step.
struct Rows {
    i0: i64,
    i1: i64,
    i2: i64,
}

fn read_rows(table: Option<Table<'_>>) -> Rows {
    let mut rows = Rows { i0: 1_000_000, i1: 1_000_000, i2: 0 };
    if let Some(mut table) = table {
        // Range queries need rows to find.
        rows.i0 = integer(&mut table, "i0", 1_000..=MOST_ROWS, rows.i0);
        rows.i1 = integer(&mut table, "i1", 0..=MOST_ROWS, rows.i1);
        rows.i2 = integer(&mut table, "i2", 0..=MOST_ROWS, rows.i2);
        table.finish();
    }
    rows
}

/// Rows per commit of each step that inserts.
struct Commits {
    i0: u32,
    i1: u32,
    i2: u32,
    q: u32,
}

fn read_rows_per_commit(table: Option<Table<'_>>) -> Commits {
    // The values of the published benchmark.
    let mut commits = Commits { i0: 100, i1: 50, i2: 5, q: 50 };
    if let Some(mut table) = table {
        let mut read = |key, default: u32| {
            integer(&mut table, key, 1..=MOST_ROWS_PER_COMMIT, default.into()) as u32
        };
        commits = Commits {
            i0: read("i0", commits.i0),
            i1: read("i1", commits.i1),
            i2: read("i2", commits.i2),
            q: read("q", commits.q),
        };
        table.finish();
    }
    commits
}

/// The steps before the queries.
fn loads(rows: &Rows, commits: &Commits) -> Vec<Step> {
    let insert = |name: &str, rows: i64, rows_per_commit, indexed| Step {
        name: name.to_owned(),
        task: Task::Insert(Inserts { rows_per_client: rows as u64, rows_per_commit, indexed }),
    };
    let plain = |name: &str, task| Step { name: name.to_owned(), task };
    let mut steps = vec![insert("l.i0", rows.i0, commits.i0, false), plain("l.x", Task::Index)];
    if rows.i1 > 0 {
        steps.push(insert("l.i1", rows.i1, commits.i1, true));
    }
    if rows.i2 > 0 {
        steps.push(insert("l.i2", rows.i2, commits.i2, true));
    }
    steps.push(plain("settle", Task::Settle));
    steps
}

/// The values of `queries`, and the prefixes of their steps' names.
const QUERIES: [(&str, &[(&str, QueryKind)]); 3] = [
    ("range", &[("q", QueryKind::Range)]),
    ("primary-key", &[("qp", QueryKind::PrimaryKey)]),
    ("both", &[("qr", QueryKind::Range), ("qp", QueryKind::PrimaryKey)]),
];

/// The steps with queries: one per rate and kind of query.
fn mixes(table: &mut Table<'_>, rows_per_commit: u32) -> Vec<Step> {
    let rates = table.one_or_more_integers("rates", 1..=MOST_RATE);
    let times = table.one_or_more_durations("seconds", TIMES);
    let kinds = table.choice("queries", &QUERIES).map_or(QUERIES[0].1, |kinds| kinds.value);
    let are_known = rates.is_some() || !table.has("rates");
    let rates = match rates {
        Some(rates) => {
            check_twice(table, &rates.value);
            rates.value.iter().map(|rate| rate.value as u32).collect()
        }
        None => vec![100, 500, 1000],
    };
    let times = match times {
        None => vec![Nanos::from_secs(60)],
        Some(times) => {
            let count = times.value.len();
            if are_known && count != 1 && count != rates.len() {
                let message = format!("{count} times for {} rates", rates.len());
                let help = "set one time for all rates, or one for each";
                table.report(Problem::new(times.span, message).help(help));
            }
            times.value.iter().map(|time| time.value).collect()
        }
    };
    let mut steps = Vec::new();
    for (place, rate) in rates.into_iter().enumerate() {
        let time = times.get(place).or(times.first()).copied().unwrap_or(Nanos::from_secs(60));
        for (prefix, queries) in kinds {
            let mix = Mix { rate, rows_per_commit, time, queries: *queries };
            steps.push(Step { name: format!("{prefix}{rate}"), task: Task::Mix(mix) });
        }
    }
    steps
}

fn check_twice(table: &Table<'_>, rates: &[Spanned<i64>]) {
    for (i, rate) in rates.iter().enumerate() {
        if rates[..i].iter().any(|earlier| earlier.value == rate.value) {
            let message = format!("duplicate rate {}", rate.value);
            let help = "each rate is one step; use `repeats` to measure everything again";
            table.report(Problem::new(rate.span, message).help(help));
        }
    }
}

impl InsertBenchmark {
    /// The final number of rows and the number of connections, from which sizes of caches and
    /// limits follow.
    pub(crate) fn workload(&self) -> Workload {
        let Plan { clients, tables, .. } = self.plan;
        Workload {
            tables,
            rows: self.plan.rows() / u64::from(tables.max(1)),
            // Per client, one connection for inserts and one for queries.
            clients: vec![2 * clients],
            microbenchmarks: Vec::new(),
            setup: Vec::new(),
        }
    }
}
