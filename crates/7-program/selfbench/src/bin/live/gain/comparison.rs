//! The figures of the comparisons, as tables and files.

use anyhow::Context;
use dbdyno_selfbench::output::{Case, Outcome, Table, print, write_csv};
use dbdyno_stats::{Estimate, Point, median, median_with_interval, paired_ratios};
use dbdyno_types::SliceMeasured;
use dbdyno_units::Nanos;
use dbdyno_workloads::definition::Microbenchmark;
use serde::Serialize;

use super::{CONTROL, LIVE, STOCK};

/// A loss of throughput that is not reported.
const TOLERATED_LOSS: f64 = 0.01;

/// One microbenchmark at one number of clients.
pub(super) struct Compared {
    pub name: String,
    pub clients: u32,
    /// Throughput and server CPU time per query of the optimized code and of the control, relative to
    /// the original code.
    pub qps: [Estimate; 2],
    pub cpu: [Estimate; 2],
    /// The same while the server is sampled.
    pub sampled: Option<[Estimate; 2]>,
    pub samples: u64,
    pub functions: u64,
    pub hot: u64,
    pub stop: Nanos,
    /// User CPU time per query of the optimized code, relative to the original code.
    pub user: f64,
}

/// A slice.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub microbenchmark: String,
    pub clients: u32,
    pub block: u32,
    pub place: u32,
    pub arm: &'static str,
    pub statements: u64,
    pub wall_ns: u64,
    pub qps: f64,
    pub server_cpu_ns: u64,
    pub server_user_ns: u64,
}

pub(super) fn row(
    what: &Microbenchmark,
    clients: u32,
    (block, place): (u32, u32),
    arm: &'static str,
    measured: &SliceMeasured,
) -> anyhow::Result<Row> {
    let server = measured.server.as_ref().context("the server's CPU time is unknown")?;
    Ok(Row {
        microbenchmark: what.name.clone(),
        clients,
        block,
        place,
        arm,
        statements: measured.statements,
        wall_ns: measured.wall.as_nanos(),
        qps: measured.throughput.context("a slice has no statements")?.per_second(),
        server_cpu_ns: server.cpu.as_nanos(),
        server_user_ns: server.user.as_nanos(),
    })
}

pub(super) struct Points {
    pub qps: Vec<Point>,
    pub cpu: Vec<Point>,
    /// User CPU time and number of queries of each arm: the kernel's ticks are too long for a slice.
    user: Vec<(u64, u64)>,
}

impl Points {
    pub fn new(arms: usize) -> Self {
        Self { qps: Vec::new(), cpu: Vec::new(), user: vec![(0, 0); arms] }
    }

    pub fn add(&mut self, row: &Row, arm: usize) {
        let point = |value| Point { restart: 0, block: row.block, candidate: arm as u32, value };
        self.qps.push(point(row.qps));
        self.cpu.push(point(row.server_cpu_ns as f64 / row.statements as f64));
        let (user, queries) = &mut self.user[arm];
        *user += row.server_user_ns;
        *queries += row.statements;
    }

    /// Estimates of the optimized code and of the control.
    pub fn of(&self, points: &[Point]) -> Option<[Estimate; 2]> {
        Some([estimate(points, LIVE)?, estimate(points, CONTROL)?])
    }

    /// Throughput and CPU time per query of an arm.
    pub fn both(&self, arm: u32) -> Option<[Estimate; 2]> {
        Some([estimate(&self.qps, arm)?, estimate(&self.cpu, arm)?])
    }

    /// User CPU time per query of an arm, relative to both arms with the original code.
    pub fn user(&self, arm: usize) -> f64 {
        let per_query = |(user, queries): (u64, u64)| user as f64 / queries as f64;
        let [stock, control] = [STOCK, CONTROL].map(|arm| self.user[arm as usize]);
        per_query(self.user[arm]) / per_query((stock.0 + control.0, stock.1 + control.1))
    }
}

fn estimate(points: &[Point], arm: u32) -> Option<Estimate> {
    median_with_interval(paired_ratios(points, arm, STOCK).first()?)
}

fn text(estimate: &Estimate) -> String {
    let [median, low, high] = [estimate.median, estimate.low, estimate.high].map(|it| it.get());
    format!("{median:.3} ({low:.3} to {high:.3})")
}

/// A figure over all comparisons: name, value, and number of decimals.
type Figure = (&'static str, fn(&Compared) -> f64, usize);

pub(super) fn conclude(done: &[Compared]) -> anyhow::Result<Outcome> {
    let headings = [
        "microbenchmark",
        "clients",
        "QPS",
        "CPU per query",
        "user CPU",
        "control QPS",
        "control CPU",
    ];
    let mut table = Table::new(&headings);
    let mut sampled = Table::new(&["while sampled", "clients", "QPS", "CPU per query"]);
    let mut cases = Vec::new();
    let mut slower = Vec::new();
    for one in done {
        let [qps, control] = &one.qps;
        let [cpu, control_cpu] = &one.cpu;
        let short = |estimate: &Estimate| format!("{:.3}", estimate.median.get());
        table.row([
            one.name.clone(),
            one.clients.to_string(),
            text(qps),
            text(cpu),
            format!("{:.3}", one.user),
            short(control),
            short(control_cpu),
        ]);
        let case = |what: &str, estimate: &Estimate| {
            let name = format!("{} at {}: {what}", one.name, one.clients);
            Case::new(name, "relative", estimate.median.get(), 1.0)
        };
        cases.extend([case("QPS", qps), case("CPU per query", cpu)]);
        let count = |what: &str, count: u64| {
            let name = format!("{} at {}: {what}", one.name, one.clients);
            Case::new(name, "count", count as f64, one.samples as f64)
        };
        cases.extend([count("samples", one.samples), count("functions", one.functions)]);
        cases.push(count("bytes of hot code", one.hot));
        let user = format!("{} at {}: user CPU per query", one.name, one.clients);
        cases.push(Case::new(user, "relative", one.user, 1.0));
        if let Some([qps, cpu]) = &one.sampled {
            sampled.row([one.name.clone(), one.clients.to_string(), text(qps), text(cpu)]);
            cases.extend([case("QPS, sampled", qps), case("CPU per query, sampled", cpu)]);
        }
        cases.extend([case("QPS, control", control), case("CPU per query, control", control_cpu)]);
        if qps.high.get() < 1.0 - TOLERATED_LOSS {
            slower.push(format!("{} at {} clients: {}", one.name, one.clients, text(qps)));
        }
    }
    table.print();
    if done.iter().any(|one| one.sampled.is_some()) {
        sampled.print();
    }
    let of_all = |figure: fn(&Compared) -> f64| {
        let mut values: Vec<f64> = done.iter().map(figure).collect();
        values.sort_unstable_by(f64::total_cmp);
        let middle = median(&values).unwrap_or(f64::NAN);
        let least = values.first().copied().unwrap_or(f64::NAN);
        (least, middle, values.last().copied().unwrap_or(f64::NAN))
    };
    let mut summary = Table::new(&["", "least", "median", "most"]);
    let figures: [Figure; 8] = [
        ("relative QPS", |one| one.qps[0].median.get(), 3),
        ("relative CPU per query", |one| one.cpu[0].median.get(), 3),
        ("relative user CPU per query", |one| one.user, 3),
        ("the control's relative QPS", |one| one.qps[1].median.get(), 3),
        ("half-width of the QPS interval, %", |one| one.qps[0].half_width().as_percent(), 2),
        ("samples", |one| one.samples as f64, 0),
        ("functions moved", |one| one.functions as f64, 0),
        ("hot code, KiB", |one| (one.hot >> 10) as f64, 0),
    ];
    for (name, figure, digits) in figures {
        let (least, middle, most) = of_all(figure);
        let cells = [least, middle, most].map(|value| format!("{value:.digits$}"));
        let [least, middle, most] = cells;
        summary.row([name.to_owned(), least, middle, most]);
    }
    summary.print();
    let stop = done.iter().map(|one| one.stop).max().unwrap_or_default();
    print(&format!(
        "{} comparisons; threads were stopped for {stop} at most\nwritten to {}\n",
        done.len(),
        write_csv("live-gain", &cases)?.display()
    ));
    Ok(Outcome::of(slower.is_empty(), || {
        format!("slower by more than 1%, outside the interval: {}", slower.join("; "))
    }))
}
