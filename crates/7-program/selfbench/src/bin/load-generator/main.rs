//! The cost of the load generator, and of readings on another host.

mod client;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use dbdyno_engines::server::DataShape;
use dbdyno_hosts::protocol::{Plan, PlanRequest};
use dbdyno_hosts::{HostConnection, HostMonitor, HostOptions, ServerHost as _, ServerStart};
use dbdyno_selfbench::harness::main as harness_main;
use dbdyno_selfbench::nearest_rank;
use dbdyno_selfbench::output::{Outcome, Table, print};
use dbdyno_types::server::{Durability, ServerSystem, SettingDefaults};
use dbdyno_units::Nanos;
use dbdyno_worker::protocol::Reading;

/// Compares the load generator with sysbench, and measures readings on another host.
#[derive(Parser)]
#[command(name = "load-generator")]
enum Subcommand {
    Agent(AgentArgs),
    Client(client::Args),
}

fn main() -> ExitCode {
    harness_main(|| match Subcommand::parse() {
        Subcommand::Agent(args) => agent(&args),
        Subcommand::Client(args) => client::run(&args),
    })
}

/// The time per slice that readings should not exceed.
const GOAL: Nanos = Nanos::from_micros(50);

/// A line as long as a request with its answer.
const LINE: &[u8] = b"{\"read\":[0,\"start\"]}\n";

/// The time in which a run stores a slice.
const STORING: Duration = Duration::from_millis(1);

/// Measures how long the readings of a server's usage on another host take, and a bare echo by ssh.
#[derive(clap::Args)]
struct AgentArgs {
    /// Destination for ssh
    ssh: String,
    /// Address of the host for the load generator
    #[arg(long)]
    address: String,
    /// Slices to measure
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    slices: u32,
    /// The program to run there; by default the dbdyno beside this program
    #[arg(long)]
    program: Option<PathBuf>,
    /// Read only CPU time, without counters
    #[arg(long)]
    no_counters: bool,
}

fn agent(args: &AgentArgs) -> anyhow::Result<Outcome> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("dbdyno"),
    };
    let echo = echo(&args.ssh, args.slices).context("ssh DESTINATION cat")?;
    let connection = HostConnection::connect(&HostOptions {
        name: "host",
        ssh: &args.ssh,
        address: &args.address,
        cpus: None,
        directory: None,
        program: &program,
        log: None,
    })?;
    let system = ServerSystem::MariaDb;
    let plan = connection.call(Plan(Box::new(PlanRequest {
        system,
        engine: system.storage_engines().first().copied(),
        program: None,
        release: None,
        durability: Durability::Relaxed,
        configuration: Vec::new(),
        defaults: SettingDefaults::Dbdyno,
        shape: DataShape { tables: 1, rows: 1_000, clients: 1 },
    })))?;
    connection.initialise(&plan, "measured")?;
    let start = ServerStart { tls: false, count: !args.no_counters };
    let server = connection.start(&plan, "measured", start)?;
    let monitor = server.monitor().context("a server on a host has a monitor")?;
    let mut start = Vec::new();
    let mut end = Vec::new();
    let mut requested = Vec::new();
    let mut announced = Vec::new();
    for _ in 0..args.slices {
        let lead_in = time(monitor, Reading::LeadIn { interrupted: false })?;
        let (started, ended) = (time(monitor, Reading::Start)?, time(monitor, Reading::End)?);
        requested.push(lead_in + started + ended);
        monitor.announce();
        std::thread::sleep(STORING);
        let lead_in = time(monitor, Reading::LeadIn { interrupted: false })?;
        let (started, ended) = (time(monitor, Reading::Start)?, time(monitor, Reading::End)?);
        announced.push(lead_in + started + ended);
        start.push(started);
        end.push(ended);
    }
    server.stop()?;
    announced.sort_unstable();
    let announced_median = nearest_rank(&announced, 0.5).context("no slices")?;
    let mut table = Table::new(&["", "median", "90%"]);
    for (title, mut times) in [
        ("echo by ssh (cat)", echo),
        ("reading before the timed part", start),
        ("reading after the timed part", end),
        ("per slice, three answers", requested),
        ("per slice, two answers", announced),
    ] {
        times.sort_unstable();
        let [median, ninety] = [0.5, 0.9].map(|share| {
            nearest_rank(&times, share).map_or_else(String::new, |time| time.to_string())
        });
        table.row([title.to_owned(), median, ninety]);
    }
    table.print();
    print(&format!("{}\n", connection.timing().describe()));
    Ok(Outcome::of(announced_median <= GOAL, || {
        format!("readings take {announced_median} per slice, more than {GOAL}")
    }))
}

/// How long a reading takes.
fn time(monitor: &HostMonitor, reading: Reading) -> anyhow::Result<Nanos> {
    let started = Instant::now();
    let usage = monitor.read(reading);
    let time = Nanos::from(started.elapsed());
    anyhow::ensure!(reading != Reading::End || usage.is_some(), "the server's usage is unknown");
    Ok(time)
}

/// The times of a line to `cat` on the host and back.
fn echo(destination: &str, count: u32) -> anyhow::Result<Vec<Nanos>> {
    let mut child = Command::new("ssh")
        .args(["-T", "-o", "BatchMode=yes", "--", destination, "exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut to = child.stdin.take().context("no pipe")?;
    let mut from = BufReader::new(child.stdout.take().context("no pipe")?);
    let mut times = Vec::new();
    let mut line = Vec::new();
    // The first one waits for the login.
    for _ in 0..=count {
        let started = Instant::now();
        to.write_all(LINE)?;
        line.clear();
        from.read_until(b'\n', &mut line)?;
        times.push(Nanos::from(started.elapsed()));
    }
    drop(to);
    child.wait()?;
    Ok(times.split_off(1))
}
