//! A real Slurm with three nodes on this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use dbdyno_fuzz::skip;

use crate::outside::free_port;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fleet/slurm.sh");

/// A running Slurm. Ended on drop.
pub struct Slurm {
    dir: TempDir,
}

impl Slurm {
    /// Starts it. Prints the reason and returns `None` if that is not possible here.
    pub fn start() -> Option<Self> {
        for program in ["slurmctld", "slurmd", "munged", "unshare", "nsenter", "pgrep"] {
            let found =
                ["/usr/sbin", "/usr/bin"].iter().any(|d| Path::new(d).join(program).exists());
            if !found {
                skip(&format!("no {program} here: install slurm-wlm, munge and procps"));
                return None;
            }
        }
        let mut may = Command::new("unshare");
        may.args(["--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "true"]);
        if !may.output().is_ok_and(|output| output.status.success()) {
            skip("namespaces are not permitted here");
            return None;
        }
        let slurm = Self { dir: tempfile::tempdir().unwrap() };
        let ports: [String; 4] = std::array::from_fn(|_| free_port().to_string());
        let ports = ports.each_ref().map(String::as_str);
        slurm.script("up", &ports);
        Some(slurm)
    }

    /// A command that is a client of it.
    pub fn client(&self, mut command: Command) -> Command {
        command.env("SLURM_CONF", self.path().join("slurm.conf"));
        command
    }

    /// What a program of Slurm prints.
    #[track_caller]
    pub fn call(&self, program: &str, args: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(args);
        let output = self.client(command).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The power of a node fails.
    pub fn kill(&self, node: &str) {
        self.script("kill", &[node]);
    }

    /// A node starts again.
    pub fn restart(&self, node: &str) {
        self.script("start", &[node]);
    }

    /// Slurm cannot reach a node any more; its jobs go on.
    pub fn cut(&self, node: &str) {
        self.script("cut", &[node]);
    }

    /// Slurm can reach the node again.
    pub fn mend(&self, node: &str) {
        self.script("mend", &[node]);
    }

    /// Gives a node a share of one CPU. Prints a note and returns false if that is not permitted here.
    pub fn limit(&self, node: &str, percent: u32) -> bool {
        match self.try_script("limit", &[node, &percent.to_string()]) {
            Some(0) => true,
            Some(3) => {
                skip("control groups of the CPU are not permitted here");
                false
            }
            other => panic!("limit: {other:?}"),
        }
    }

    /// A directory that is another one on each node.
    pub fn local(&self) -> PathBuf {
        self.path().join("local")
    }

    fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    #[track_caller]
    fn script(&self, action: &str, args: &[&str]) {
        assert_eq!(self.try_script(action, args), Some(0), "{action}");
    }

    /// The exit code; what it prints is shown if it fails.
    fn try_script(&self, action: &str, args: &[&str]) -> Option<i32> {
        // What it starts keeps its output open.
        let log = self.path().join(format!("{action}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let mut command = Command::new("bash");
        command.arg(SCRIPT).arg(action).arg(self.path()).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let Output { status, .. } = command.output().unwrap();
        if !status.success() {
            println!("{action}: {}", std::fs::read_to_string(log).unwrap());
        }
        status.code()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let mut command = Command::new("bash");
        command.arg(SCRIPT).arg("down").arg(self.path());
        let _ = command.stdin(Stdio::null()).output();
    }
}
