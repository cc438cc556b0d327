//! Another host on this machine: network, processes and directories of its own, and an sshd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{TestDir, find_first_in, send, wait_until};
use dbdyno_fuzz::skip;

/// A host with an sshd, reached through a virtual cable. Dropping it is a power failure.
pub struct Host {
    directory: PathBuf,
    namespace: String,
    /// Our end of the cable.
    cable: String,
    address: String,
    process: Child,
}

/// The number of the next host of this test program.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Host {
    /// A new host, with its files in the directory of the test; `None`, with a note, where that is not
    /// permitted.
    pub fn start(test: &TestDir) -> Option<Self> {
        if let Some(missing) = missing() {
            skip(&missing);
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}x{number}", std::process::id());
        let (namespace, cable) = (format!("dbdyno{id}"), format!("d{id}"));
        // 1,024 networks of four addresses each.
        let network = (std::process::id() * 4 + number) % 1_024 * 4;
        let ip =
            |last: u32| format!("10.213.{}.{}", (network + last) / 256, (network + last) % 256);
        let (here, address) = (ip(1), ip(2));
        let directory = test.path().join(format!("host-{number}"));
        let process = script()
            .arg("run")
            .arg(&directory)
            .args([&namespace, &cable, &here, &address])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let host = Self { directory, namespace, cable, address, process };
        wait_until("sshd starts", || {
            let tried = host.ssh().arg("true").stderr(Stdio::null()).status();
            tried.is_ok_and(|status| status.success())
        });
        Some(host)
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// The sections of an experiment for this host.
    pub fn section(&self) -> String {
        format!("[host.db1]\nssh = \"db1\"\naddress = \"{}\"\n", self.address)
    }

    /// The directory in which a program `ssh` knows this host.
    pub fn bin(&self) -> PathBuf {
        self.directory.join("bin")
    }

    /// A command with this host known to its ssh.
    pub fn known_to(&self, command: &mut Command) {
        find_first_in(command, &self.bin());
    }

    /// `ssh` to this host; the command is to be added.
    pub fn ssh(&self) -> Command {
        let mut command = Command::new(self.bin().join("ssh"));
        command.arg("db1");
        command
    }

    /// The processes on the host, with their command lines, except sshd's.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let others = ["sshd", "unshare", "ip netns", "/usr/sbin/sshd"];
        let mut all = self.all_processes();
        all.retain(|(_, line)| !others.iter().any(|one| line.starts_with(one)));
        all
    }

    fn all_processes(&self) -> Vec<(u32, String)> {
        let output = Command::new("ip").args(["netns", "pids", &self.namespace]).output().unwrap();
        let pids = String::from_utf8(output.stdout).unwrap();
        let command = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()))
        };
        let all = pids.lines().filter_map(|pid| command(pid.parse().ok()?));
        all.filter(|(_, line)| !line.is_empty()).collect()
    }

    /// The files that agents and servers have left on the host; the copied program stays.
    pub fn files(&self) -> Vec<PathBuf> {
        let inside = |name: &str| {
            let entries = fs::read_dir(self.directory.join(name)).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        [inside("tmp"), inside("var-tmp")].concat()
    }

    /// The copies of dbdyno on the host.
    pub fn programs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory.join("root/.cache/dbdyno/bin"));
        entries.map_or(Vec::new(), |entries| entries.map(|one| one.unwrap().path()).collect())
    }

    /// The copies of servers' programs on the host.
    pub fn copied_programs(&self) -> PathBuf {
        self.directory.join("var-cache/dbdyno/programs")
    }

    /// Gives the host another CPU, as far as programs can read.
    pub fn set_cpuinfo(&self, text: &str) {
        fs::write(self.directory.join("cpuinfo"), text).unwrap();
        let mount = "mount --bind /mnt/cpuinfo /proc/cpuinfo";
        assert!(self.ssh().arg(mount).status().unwrap().success());
    }

    /// Waits until no process and no file is left on the host.
    #[track_caller]
    pub fn wait_until_clean(&self) {
        wait_until("nothing is left on the host", || {
            self.processes().is_empty() && self.files().is_empty()
        });
    }

    /// The addresses with ports that something on the host listens at.
    pub fn listening_addresses(&self) -> Vec<String> {
        let output = Command::new("ip")
            .args(["netns", "exec", &self.namespace, "ss", "-Hltn"])
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let address = |line: &str| Some(line.split_whitespace().nth(3)?.to_owned());
        output.lines().filter_map(address).collect()
    }

    /// Kills the processes of sshd that have logins.
    pub fn end_sessions(&self) {
        for (pid, line) in self.all_processes() {
            if line.starts_with("sshd: ") && !line.contains("[listener]") {
                send(pid, libc::SIGKILL);
            }
        }
    }

    /// Accepts no key any more.
    pub fn forbid_logins(&self) {
        fs::write(self.directory.join("authorized_keys"), "").unwrap();
    }

    /// Pulls or plugs the cable.
    pub fn set_cable(&self, up: bool) {
        ip_command(&format!("link set {} {}", self.cable, if up { "up" } else { "down" }));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Also ends the host's first process, and with it all others.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = script().args(["remove", &self.namespace, &self.cable]).status();
    }
}

/// The script that is a host.
fn script() -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/host.sh");
    let mut command = Command::new("sh");
    command.arg(path);
    command
}

/// Why there can be no host here; `None` if there can.
fn missing() -> Option<String> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    MISSING.get_or_init(find_missing).clone()
}

fn find_missing() -> Option<String> {
    let programs = ["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen"];
    if let Some(program) = programs.iter().find(|program| !Path::new(program).exists()) {
        return Some(format!("no {program} here (Debian: openssh-server, openssh-client)"));
    }
    let name = format!("dbdynotry{}", std::process::id());
    let tried = Command::new("ip").args(["netns", "add", &name]).stderr(Stdio::null()).status();
    match tried {
        Ok(status) if status.success() => ip_command(&format!("netns del {name}")),
        Ok(_) => return Some("network namespaces are not permitted here".to_owned()),
        Err(_) => return Some("no program ip here (Debian: iproute2)".to_owned()),
    }
    None
}

#[track_caller]
fn ip_command(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}
