//! sysbench, the load generator that dbdyno is compared with.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use dbdyno_machine::{CpuMask, CpuSet, Signal, die_with_parent};
use dbdyno_types::server::{Address, Target};
use dbdyno_units::{Nanos, Qps};

use crate::figures::workspace;
use crate::private_server::SCHEMA;

const PROGRAM: &str = "sysbench";

/// Printed when all threads have connected, prepared their statements and started.
const STARTED: &str = "Threads started!";

/// The start of the report line with the throughput.
const THROUGHPUT: &str = "queries:";

/// An installed sysbench.
#[derive(Clone, Debug)]
pub struct Sysbench {
    program: PathBuf,
    /// Such as `sysbench 1.0.20`.
    pub version: String,
}

/// The sysbench script that corresponds to a microbenchmark.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The microbenchmark's name.
    pub microbenchmark: &'static str,
    /// The script: a bundled one of sysbench, or one in `lua`.
    pub script: &'static str,
    /// Options of the script.
    pub options: &'static [&'static str],
}

/// Parameters of a sysbench run.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The script.
    pub work: Work,
    /// Rows of its table `sbtest1`.
    pub rows: u64,
    /// Connections, each with a thread.
    pub connections: u32,
    /// CPUs that it may use.
    pub cpus: &'a CpuSet,
    /// The duration, rounded up to whole seconds; the run may be killed earlier.
    pub time: Nanos,
}

impl Sysbench {
    /// Finds it in `PATH`.
    ///
    /// # Errors
    /// It is not installed.
    pub fn find() -> anyhow::Result<Self> {
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

    /// Starts a run and returns when all its threads have started.
    ///
    /// # Errors
    /// It cannot be started, or it failed.
    pub fn start(&self, target: &Target, job: &Job<'_>) -> anyhow::Result<RunningSysbench> {
        let Address::Socket(socket) = &target.address else {
            bail!("sysbench needs a Unix socket, not {}", target.address);
        };
        let script = match job.work.script {
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
            .arg(format!("--table-size={}", job.rows))
            .arg(format!("--threads={}", job.connections))
            .arg(format!("--time={}", job.time.as_secs_f64().ceil()))
            .args(["--events=0", "--report-interval=0"])
            .args(job.work.options)
            .arg("run")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let (mask, parent) = (job.cpus.mask(), std::process::id());
        // SAFETY: the closure makes system calls only, and allocates nothing.
        unsafe { command.pre_exec(move || prepare_child(&mask, parent)) };
        let mut child =
            command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        let output = child.stdout.take().context("sysbench has no output")?;
        let mut running = RunningSysbench { child, output: BufReader::new(output) };
        running.wait_until_started(job)?;
        Ok(running)
    }
}

fn prepare_child(mask: &CpuMask, parent: u32) -> std::io::Result<()> {
    die_with_parent(Signal::KILL, parent)?;
    mask.pin_current_thread()
}

/// A running sysbench. Dropping it kills it.
#[derive(Debug)]
pub struct RunningSysbench {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl RunningSysbench {
    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end and returns the reported throughput.
    ///
    /// # Errors
    /// It failed, or its report has an unknown format.
    pub fn report(mut self) -> anyhow::Result<Qps> {
        let mut report = String::new();
        self.output.read_to_string(&mut report)?;
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "sysbench failed with {status}: {}{}",
            report,
            self.error_output()
        );
        let qps = queries_per_second(&report);
        let qps = qps.with_context(|| {
            format!("the sysbench report has no line `{THROUGHPUT}`:\n{report}")
        })?;
        Ok(Qps::from_per_second(qps))
    }

    fn wait_until_started(&mut self, job: &Job<'_>) -> anyhow::Result<()> {
        let mut output = String::new();
        loop {
            let start = output.len();
            if self.output.read_line(&mut output)? == 0 {
                let errors = self.error_output();
                bail!("sysbench cannot run {}: {output}{errors}", job.work.microbenchmark);
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

/// The figure in brackets in `queries:   684    (679.56 per sec.)`.
fn queries_per_second(report: &str) -> Option<f64> {
    let line = report.lines().map(str::trim).find_map(|line| line.strip_prefix(THROUGHPUT))?;
    line.split_once('(')?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_parsed_from_the_report() {
        let report = "SQL statistics:\n    queries performed:\n        read:   684\n    \
                      transactions:   684    (1.00 per sec.)\n    \
                      queries:                             684    (679.56 per sec.)\n";
        assert_eq!(queries_per_second(report), Some(679.56));
        assert_eq!(queries_per_second("FATAL: no"), None);
    }
}
