//! CPU cost and throughput of the load generator, compared with sysbench on the same server.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use dbdyno_engines::server::DataShape;
use dbdyno_machine::{CpuAssignment, CpuMask, CpuSet, Signal, die_with_parent};
use dbdyno_scripts::{OptionValue, Options, Source};
use dbdyno_selfbench::harness::{Harness, client_wait, duration};
use dbdyno_selfbench::meter::{CpuCost, Meter};
use dbdyno_selfbench::output::{Case, Outcome, Progress, Table, print, workspace, write_csv};
use dbdyno_selfbench::private_server::{Observer, PrivateServer, SCHEMA, run_slice};
use dbdyno_types::server::{Address, ServerSystem, StorageEngine, Target};
use dbdyno_types::{ClientWait, SliceMeasured};
use dbdyno_units::Nanos;
use dbdyno_worker::WorkerHandle;
use dbdyno_worker::protocol::{Prepare, Quota, SliceRequest};
use dbdyno_workloads::catalog::Catalog;
use dbdyno_workloads::definition::{Group, Microbenchmark, Script, Stage, Throughput};

const ROWS: u64 = 100_000;

/// A microbenchmark, the sysbench script that corresponds to it, and its goal.
struct Matched {
    microbenchmark: &'static str,
    /// The script: a bundled one of sysbench, or one in `lua`.
    script: &'static str,
    options: &'static [&'static str],
    /// The maximum user CPU time, as a fraction of sysbench's.
    user_goal: f64,
    /// Multiple of the chosen time: long events need a longer measurement.
    time_factor: u32,
}

impl Matched {
    const fn new(
        microbenchmark: &'static str,
        script: &'static str,
        options: &'static [&'static str],
        user_goal: f64,
    ) -> Self {
        Self { microbenchmark, script, options, user_goal, time_factor: 1 }
    }
}

/// dbdyno's microbenchmarks and the sysbench scripts with the same statements, and scripts that dbdyno runs too.
const MATCHED: [Matched; 7] = [
    Matched::new("point-query_range=100", "oltp_point_select", &[], 0.25),
    Matched::new("random-points_range=100", "statements", &["--work=points", "--count=100"], 0.25),
    Matched::new("read-only_range=100", "oltp_read_only", &["--range-size=100"], 0.25),
    Matched {
        time_factor: 2,
        ..Matched::new("read-only_range=10000", "oltp_read_only", &["--range-size=10000"], 0.3)
    },
    Matched::new("update-nonindex_range=100", "oltp_update_non_index", &[], 0.25),
    Matched::new("oltp_point_select.lua", "oltp_point_select", &[], 0.6),
    Matched::new("oltp_read_only.lua", "oltp_read_only", &[], 0.6),
];

/// The maximum user and system CPU time, as a fraction of sysbench's.
const fn cpu_goal(connections: u32) -> f64 {
    if connections == 1 { 0.9 } else { 0.7 }
}

/// The minimum throughput, as a fraction of sysbench's: 1, less the difference between equals.
const QPS_GOAL: f64 = 0.99;

/// Compares CPU cost and throughput of dbdyno's load generator with sysbench.
#[derive(clap::Args)]
pub struct Args {
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    connections: Vec<u32>,
    /// Rounds; both are measured once per round, in alternating order
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measuring time per round; doubled for range=10000
    #[arg(long, default_value = "2s", value_parser = duration)]
    time: Nanos,
    /// Warm-up before each measurement
    #[arg(long, default_value = "500ms", value_parser = duration)]
    warmup: Nanos,
    /// Only microbenchmarks and scripts with WORD in their name
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
    /// How dbdyno's clients wait for answers, poll or sleep [default: poll, on CPUs of their own]
    #[arg(long, value_parser = client_wait)]
    wait: Option<ClientWait>,
}

pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let sysbench = Sysbench::find()?;
    let harness = Harness::new()?;
    let most = args.connections.iter().copied().max().unwrap_or(1);
    let cpus = harness.pin(most)?;
    let _idle_preventer = harness.prevent_idle(&cpus)?;
    let shape = DataShape { tables: 1, rows: ROWS, clients: most };
    let engine = Some(StorageEngine::InnoDb);
    let server = PrivateServer::start(ServerSystem::MariaDb, engine, None, shape, &cpus.system)?;
    let wait = args.wait.unwrap_or_else(|| Harness::default_wait(&cpus));
    let worker = server.load(&harness, &cpus, wait)?;
    let target = server.target()?;
    print(&format!(
        "dbdyno (wait = {}) and {} on CPUs {}, MariaDB on CPUs {}; {}\n",
        wait.name(),
        sysbench.version,
        cpus.dbdyno,
        cpus.system,
        Meter::method(&cpus.dbdyno)
    ));
    let observer = server.observe()?;
    let mut comparison = Comparison { args, sysbench, worker, observer, target, cpus, block: 0 };
    let cases: Vec<(&Matched, u32)> = MATCHED
        .iter()
        .filter(|matched| matched.microbenchmark.contains(&args.only))
        .flat_map(|matched| args.connections.iter().map(move |connections| (matched, *connections)))
        .collect();
    ensure!(!cases.is_empty(), "no microbenchmark name contains `{}`", args.only);
    let progress = Progress::start();
    let mut compared = Vec::new();
    for (number, (matched, connections)) in cases.iter().enumerate() {
        let what = format!("{}, {connections} connections", matched.microbenchmark);
        progress.show(number as f64 / cases.len() as f64, &what);
        let (ours, peer) = comparison.run(&harness, matched, *connections).context(what)?;
        compared.push(Compared { matched, connections: *connections, ours, peer });
    }
    drop(progress);
    report(&compared, wait)
}

/// A built-in microbenchmark, or a script of sysbench with the options that sysbench gets.
fn microbenchmark(name: &str) -> anyhow::Result<Microbenchmark> {
    if !name.ends_with(".lua") {
        let found = Catalog::builtin().get(name).cloned();
        return found.with_context(|| format!("{name} does not exist"));
    }
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let source = Source::find(name, read).map_err(|error| anyhow!("reading {name}: {error}"))?;
    let text = |value: &str| OptionValue::Text(value.to_owned());
    let options = Options::from([
        ("rand_type".to_owned(), text("uniform")),
        ("tables".to_owned(), text("1")),
        ("table_size".to_owned(), text(&ROWS.to_string())),
    ]);
    Ok(Microbenchmark {
        name: name.to_owned(),
        group: Group::Point1,
        stage: Stage::Post,
        transaction: false,
        throughput: Throughput::default(),
        statements: Vec::new(),
        script: Some(Script::new(source, options)),
        answers: None,
    })
}

/// Both load generators and the server.
struct Comparison<'a> {
    args: &'a Args,
    sysbench: Sysbench,
    worker: WorkerHandle,
    observer: Observer,
    target: Target,
    cpus: CpuAssignment,
    /// The block number, which seeds the keys of a slice.
    block: u32,
}

impl Comparison<'_> {
    /// Measures both in alternating order; returns dbdyno's and sysbench's usage.
    fn run(
        &mut self,
        harness: &Harness,
        matched: &Matched,
        connections: u32,
    ) -> anyhow::Result<(CpuCost, CpuCost)> {
        let name = matched.microbenchmark;
        let microbenchmark = microbenchmark(name)?;
        self.worker.prepare(Prepare { microbenchmark, position: 0, clients: connections })?;
        let time = self.args.time.times(u64::from(matched.time_factor));
        let (mut ours, mut peer) = (CpuCost::default(), CpuCost::default());
        for round in 0..self.args.rounds {
            harness.check_cancelled()?;
            // The second one runs on the state that the first one leaves.
            if round % 2 == 0 {
                ours.add(&self.ours(time)?);
                peer.add(&self.peer(matched, connections, time)?);
            } else {
                peer.add(&self.peer(matched, connections, time)?);
                ours.add(&self.ours(time)?);
            }
        }
        Ok((ours, peer))
    }

    fn ours(&mut self, time: Nanos) -> anyhow::Result<CpuCost> {
        self.slice(self.args.warmup)?;
        let meter = Meter::start(self.worker.pid(), &self.cpus.dbdyno)?;
        let measured = self.slice(time)?;
        let polling = measured.polling.unwrap_or_default();
        Ok(CpuCost { polling, ..meter.finish(measured.statements)? })
    }

    fn slice(&mut self, time: Nanos) -> anyhow::Result<SliceMeasured> {
        self.block += 1;
        let request = SliceRequest { block: self.block, ..SliceRequest::of(Quota::Time(time)) };
        run_slice(&mut self.worker, request)
    }

    fn peer(
        &mut self,
        matched: &Matched,
        connections: u32,
        time: Nanos,
    ) -> anyhow::Result<CpuCost> {
        let before = self.observer.connections()?;
        let cpus = &self.cpus.dbdyno;
        // An upper limit: it is killed earlier.
        let most = self.args.warmup + time.times(2) + Nanos::from_secs(10);
        let running = self.sysbench.start(&self.target, matched, connections, cpus, most)?;
        std::thread::sleep(Duration::from_nanos(self.args.warmup.as_nanos()));
        let meter = Meter::start(running.pid(), cpus)?;
        let statements = self.observer.statements()?;
        std::thread::sleep(Duration::from_nanos(time.as_nanos()));
        let statements = self.observer.statements()? - statements;
        let cost = meter.finish(statements)?;
        drop(running);
        self.observer.wait_for_connections(before)?;
        Ok(cost)
    }
}

/// The usage of both in one case.
struct Compared<'a> {
    matched: &'a Matched,
    connections: u32,
    ours: CpuCost,
    peer: CpuCost,
}

/// One figure of a case, with its goal.
struct Figure {
    what: &'static str,
    unit: &'static str,
    ours: f64,
    peer: f64,
    met: bool,
    goal: String,
}

impl Compared<'_> {
    /// The figures; a timer cannot tell the user CPU time of polling from that of work.
    fn figures(&self, wait: ClientWait) -> Vec<Figure> {
        let Self { matched, connections, ours, peer } = self;
        let at_most = |what, ours: f64, peer: f64, goal: f64| Figure {
            what,
            unit: "µs/query",
            ours,
            peer,
            met: ours / peer <= goal,
            goal: format!("≤ {goal}"),
        };
        let (qps, peer_qps) = (ours.qps(), peer.qps());
        let mut figures = Vec::new();
        if wait == ClientWait::Sleep {
            figures.push(at_most("user CPU", ours.user_us(), peer.user_us(), matched.user_goal));
        }
        figures.extend([
            at_most(
                "user + system CPU, without polling",
                ours.work_us(),
                peer.work_us(),
                cpu_goal(*connections),
            ),
            Figure {
                what: "throughput",
                unit: "QPS",
                ours: qps,
                peer: peer_qps,
                met: qps / peer_qps >= QPS_GOAL,
                goal: "≥ 1".to_owned(),
            },
        ]);
        figures
    }
}

fn report(compared: &[Compared<'_>], wait: ClientWait) -> anyhow::Result<Outcome> {
    let headings =
        ["microbenchmark", "connections", "", "dbdyno", "sysbench", "unit", "ratio", "goal", "met"];
    let mut table = Table::new(&headings);
    let mut cases = Vec::new();
    let mut missed = Vec::new();
    for one in compared {
        let name = one.matched.microbenchmark;
        for Figure { what, unit, ours, peer, met, goal } in one.figures(wait) {
            let decimals = if unit == "QPS" { 0 } else { 2 };
            table.row([
                name.to_owned(),
                one.connections.to_string(),
                what.to_owned(),
                format!("{ours:.decimals$}"),
                format!("{peer:.decimals$}"),
                unit.to_owned(),
                format!("{:.3}", ours / peer),
                goal.clone(),
                if met { "yes" } else { "no" }.to_owned(),
            ]);
            let case = format!("{name}, {} connections, {what}", one.connections);
            if !met {
                missed.push(format!("{case}: {:.3} (goal {goal})", ours / peer));
            }
            cases.push(Case::new(case, unit, ours, peer));
        }
    }
    table.print();
    print(&format!("written to {}\n", write_csv("client", &cases)?.display()));
    Ok(Outcome::of(missed.is_empty(), || missed.join("; ")))
}

const PROGRAM: &str = "sysbench";

/// Printed when all threads have connected, prepared their statements and started.
const STARTED: &str = "Threads started!";

#[derive(Clone, Debug)]
struct Sysbench {
    program: PathBuf,
    /// Such as `sysbench 1.0.20`.
    version: String,
}

impl Sysbench {
    /// Finds it in `PATH`.
    fn find() -> anyhow::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path)
            .map(|directory| directory.join(PROGRAM))
            .find(|file| file.is_file())
            .context("sysbench is not in PATH; on Debian: apt-get install sysbench")?;
        let output = Command::new(&program)
            .arg("--version")
            .output()
            .with_context(|| format!("starting {}", program.display()))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Self { program, version })
    }

    /// Starts a run with a thread per connection, of `time` rounded up to whole seconds, and returns when all
    /// threads have started.
    fn start(
        &self,
        target: &Target,
        matched: &Matched,
        connections: u32,
        cpus: &CpuSet,
        time: Nanos,
    ) -> anyhow::Result<RunningSysbench> {
        let Address::Socket(socket) = &target.address else {
            bail!("sysbench needs a Unix socket, not {}", target.address);
        };
        let script = match matched.script {
            own if own.starts_with("oltp_") => PathBuf::from(own),
            own => {
                workspace().join("crates/7-program/selfbench/lua").join(own).with_extension("lua")
            }
        };
        let mut command = Command::new(&self.program);
        command
            .arg(script)
            .args(["--db-driver=mysql", "--db-ps-mode=auto", "--rand-type=uniform", "--tables=1"])
            .arg(format!("--mysql-socket={}", socket.display()))
            .arg(format!("--mysql-user={}", target.user))
            .arg(format!("--mysql-db={SCHEMA}"))
            .arg(format!("--table-size={ROWS}"))
            .arg(format!("--threads={connections}"))
            .arg(format!("--time={}", time.as_secs_f64().ceil()))
            .args(["--events=0", "--report-interval=0"])
            .args(matched.options)
            .arg("run")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let (mask, parent) = (cpus.mask(), std::process::id());
        // SAFETY: the closure makes system calls only, and allocates nothing.
        unsafe { command.pre_exec(move || prepare_child(&mask, parent)) };
        let mut child =
            command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        let output = child.stdout.take().context("sysbench has no output")?;
        let mut running = RunningSysbench { child, output: BufReader::new(output) };
        running.wait_until_started(matched.microbenchmark)?;
        Ok(running)
    }
}

fn prepare_child(mask: &CpuMask, parent: u32) -> std::io::Result<()> {
    die_with_parent(Signal::KILL, parent)?;
    mask.pin_current_thread()
}

/// A running sysbench. Dropping it kills it.
#[derive(Debug)]
struct RunningSysbench {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl RunningSysbench {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_started(&mut self, what: &str) -> anyhow::Result<()> {
        let mut output = String::new();
        loop {
            let start = output.len();
            if self.output.read_line(&mut output)? == 0 {
                let errors = self.error_output();
                bail!("sysbench cannot run {what}: {output}{errors}");
            }
            if output[start..].trim() == STARTED {
                return Ok(());
            }
        }
    }

    fn error_output(&mut self) -> String {
        let mut text = String::new();
        if let Some(errors) = &mut self.child.stderr {
            let _ = errors.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for RunningSysbench {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
