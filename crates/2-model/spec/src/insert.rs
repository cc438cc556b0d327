//! `[insert_benchmark]`: load in steps, then run queries during inserts at a fixed rate.

use dbdyno_document::Table;
use dbdyno_units::{Nanos, Share};
use dbdyno_workloads::insert::{Inserts, LEAST_DATA, MOST_DATA, Mix, Plan, QueryKind, Step, Task};

use crate::experiment::{InsertBenchmark, Workload};
use crate::workload::check_duplicates;

/// Each client has up to two connections, and servers limit their number.
const MOST_CLIENTS: u32 = 1024;

/// More rows than fit on any disk.
const MOST_ROWS: i64 = 1_000_000_000_000;

/// Larger commits would measure bulk loading, not commits.
const MOST_ROWS_PER_COMMIT: u32 = 100_000;

/// More than any system achieves from one client.
const MOST_RATE: u32 = 100_000_000;

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
    let mut plan = Plan {
        clients: 1,
        tables: 1,
        data_length: 10,
        delete_per_insert: false,
        steps: Vec::new(),
    };
    table.set("clients", 1..=MOST_CLIENTS, &mut plan.clients);
    if let Some(tables) = table.number_at("tables", 1..=MOST_CLIENTS) {
        plan.tables = tables.value;
        if plan.tables > plan.clients {
            let message =
                format!("{} tables are more than the {} clients", plan.tables, plan.clients);
            let help = "each client inserts into one table: use at least as many clients as tables";
            table.problem(tables.span, message, help);
        }
    }
    // Rows per client of each load step.
    let [mut i0, mut i1, mut i2] = [1_000_000, 1_000_000, 0];
    if let Some(mut rows) = table.table("rows") {
        // Range queries need rows to find.
        rows.set("i0", 1_000..=MOST_ROWS, &mut i0);
        rows.set("i1", 0..=MOST_ROWS, &mut i1);
        rows.set("i2", 0..=MOST_ROWS, &mut i2);
        rows.finish();
    }
    // Rows per commit of each step that inserts: the values of the published benchmark.
    let mut commits = [("i0", 100), ("i1", 50), ("i2", 5), ("q", 50)];
    if let Some(mut table) = table.table("rows_per_commit") {
        for (step, rows) in &mut commits {
            table.set(step, 1..=MOST_ROWS_PER_COMMIT, rows);
        }
        table.finish();
    }
    let commits = commits.map(|(_, rows)| rows);
    plan.steps = loads([i0, i1, i2], commits);
    plan.steps.extend(mixes(table, commits[3]));
    table.set_bool("delete_per_insert", &mut plan.delete_per_insert);
    table.set("data_length", LEAST_DATA..=MOST_DATA, &mut plan.data_length);
    let mut benchmark =
        InsertBenchmark { plan, repeats: 1, copies: true, stall: Share::from_percent(50.0) };
    table.set("repeats", 1..=100, &mut benchmark.repeats);
    table.set_bool("copies", &mut benchmark.copies);
    let shares = Share::from_percent(1.0)..=Share::from_percent(100.0);
    table.set("stall", shares, &mut benchmark.stall);
    benchmark
}

fn loads([i0, i1, i2]: [i64; 3], commits: [u32; 4]) -> Vec<Step> {
    let insert = |name: &str, rows: i64, rows_per_commit, indexed| Step {
        name: name.to_owned(),
        task: Task::Insert(Inserts { rows_per_client: rows as u64, rows_per_commit, indexed }),
    };
    let plain = |name: &str, task| Step { name: name.to_owned(), task };
    let mut steps = vec![insert("l.i0", i0, commits[0], false), plain("l.x", Task::Index)];
    if i1 > 0 {
        steps.push(insert("l.i1", i1, commits[1], true));
    }
    if i2 > 0 {
        steps.push(insert("l.i2", i2, commits[2], true));
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
    let rates = table.one_or_more("rates", 1..=MOST_RATE);
    if rates.as_ref().is_some_and(|rates| rates.value.is_empty()) {
        for key in ["seconds", "queries"] {
            table.refuse(key, "has no effect, as no step has queries", "remove it, or set `rates`");
        }
        return Vec::new();
    }
    let times = table.one_or_more("seconds", TIMES);
    let kinds = table.choice("queries", &QUERIES).map_or(QUERIES[0].1, |kinds| kinds.value);
    let are_known = rates.is_some() || !table.has("rates");
    let rates = rates.map_or(vec![100, 500, 1000], |rates| {
        let help = "each rate is one step; use `repeats` to measure everything again";
        check_duplicates(table, &rates.value, "rate", help);
        rates.value.iter().map(|rate| rate.value).collect()
    });
    if let Some(times) = &times
        && are_known
        && ![1, rates.len()].contains(&times.value.len())
    {
        let message = format!("{} times for {} rates", times.value.len(), rates.len());
        table.problem(times.span, message, "set one time for all rates, or one for each");
    }
    let times: Vec<Nanos> =
        times.iter().flat_map(|times| &times.value).map(|time| time.value).collect();
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

impl InsertBenchmark {
    /// The final number of rows and the number of connections, from which sizes of caches and
    /// limits follow. Of long rows, as many as microbenchmarks have in their space, where they take 250 bytes.
    pub(crate) fn workload(&self) -> Workload {
        let Plan { clients, tables, data_length, .. } = self.plan;
        let (rows, longer) = (self.plan.rows(), u64::from(data_length.saturating_sub(10)));
        let rows = rows.saturating_add(rows.saturating_mul(longer) / 250);
        Workload {
            tables,
            rows: rows / u64::from(tables.max(1)),
            // Per client, one connection for inserts and one for queries.
            clients: vec![2 * clients],
            microbenchmarks: Vec::new(),
            setup: Vec::new(),
        }
    }
}
