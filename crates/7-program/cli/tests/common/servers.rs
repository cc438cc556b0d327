//! Experiments with real servers, and checks for leftovers.

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_builds::Release;
use dbdyno_types::server::ServerSystem;

use super::{Background, Finished, TestDir, finish};
use crate::server_release;

/// An experiment with servers of a few seconds. The first candidate is the baseline.
pub struct Servers<'a> {
    pub clients: &'a str,
    /// The list in the file, without brackets.
    pub microbenchmarks: &'a str,
    pub rows: u32,
    pub control: bool,
    pub budget: &'a str,
    pub restarts: u32,
    /// How clients wait. They sleep by default, and CPUs may be idle: polling and keeping CPUs busy would
    /// slow down other tests. Tests that poll also keep them busy.
    pub wait: &'a str,
    /// Additional sections.
    pub sections: &'a str,
    /// Names and additional lines.
    pub candidates: &'a [(&'a str, &'a str)],
}

pub const INNODB: (&str, &str) = ("innodb", "system = \"mariadb\"\nengine = \"innodb\"");
pub const MYROCKS: (&str, &str) = ("myrocks", "system = \"mariadb\"\nengine = \"myrocks\"");
pub const POSTGRES: (&str, &str) = ("postgres", "system = \"postgresql\"");
/// MySQL's own program: see `server_release`.
pub const MYSQL: &str = "system = \"mysql\"\nrelease = { debian = \"sid\" }";

/// Releases that come from a registry, by name.
const OLDER: [(ServerSystem, (&str, &str)); 3] = [
    (ServerSystem::MySql, ("mysql-8.0.33", "system = \"mysql\"\nrelease = \"mysql-8.0.33\"")),
    (ServerSystem::MySql, ("mysql-5.6.14", "system = \"mysql\"\nrelease = \"mysql-5.6.14\"")),
    (
        ServerSystem::MariaDb,
        ("mariadb-10.2.11", "system = \"mariadb\"\nrelease = \"mariadb-10.2.11\""),
    ),
];

/// The candidates and older releases that can be fetched, which are kept as long as the second value.
pub fn with_older_releases<'a>(
    candidates: &[(&'a str, &'a str)],
) -> (Vec<(&'a str, &'a str)>, Vec<Release>) {
    let fetched = OLDER
        .into_iter()
        .filter_map(|(system, one)| Some((one, server_release::older(system, one.0)?)));
    let (older, releases): (Vec<_>, Vec<_>) = fetched.unzip();
    ([candidates, &older].concat(), releases)
}

pub const SLEEP: &str = "sleep";

/// Polling, if this machine has a CPU for it.
pub fn poll() -> &'static str {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    if cpus > 1 { "poll" } else { SLEEP }
}

impl Default for Servers<'_> {
    fn default() -> Self {
        Self {
            clients: "1",
            microbenchmarks: "\"point-query.pre_range=100\"",
            rows: 2_000,
            control: false,
            budget: "300ms",
            restarts: 1,
            wait: SLEEP,
            sections: "",
            candidates: &[INNODB],
        }
    }
}

impl Servers<'_> {
    fn text(&self) -> String {
        let Self { clients, microbenchmarks, rows, control, budget, restarts, wait, .. } = self;
        let Self { sections, candidates, .. } = self;
        let baseline = candidates[0].0;
        let mut text = format!(
            "name = \"servers\"\nbaseline = \"{baseline}\"\ncontrol = {control}\n\n\
             [workload]\nrows = {rows}\nclients = {clients}\n\
             microbenchmarks = [{microbenchmarks}]\n\n\
             [schedule]\nslice = \"20ms\"\nwrite_slice = \"20ms\"\nmin_blocks = 6\n\
             target = \"0.01%\"\nbudget = \"{budget}\"\nrestarts = {restarts}\n\n\
             [cpus]\nwait = \"{wait}\"\nprevent_idle = {}\n\n{sections}\n",
            *wait != SLEEP
        );
        for (name, lines) in *candidates {
            text.push_str(&format!("[[candidate]]\nname = \"{name}\"\n{lines}\n\n"));
        }
        text
    }

    /// Runs it to completion.
    pub fn run(&self, test: &TestDir, more: &[&str]) -> Finished {
        finish(self.command(test, more))
    }

    /// Starts it in the background.
    pub fn start(&self, test: &TestDir, more: &[&str]) -> Background {
        Background::start(self.command(test, more), test.path())
    }

    /// The command that runs it.
    pub fn command(&self, test: &TestDir, more: &[&str]) -> std::process::Command {
        test.text_command(&self.text(), &test.out(), more)
    }
}

/// The canonical path of the servers' data of a run; `None` if it does not exist.
pub fn home_of_servers(run: &Path) -> Option<PathBuf> {
    run.join("data/servers").canonicalize().ok()
}

/// The server of a candidate: the process whose working directory is its data directory.
pub fn server_of(run: &Path, candidate: &str) -> Option<u32> {
    let data = home_of_servers(run)?.join(candidate).join("data");
    processes().into_iter().find(|pid| {
        let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
        cwd.is_ok_and(|cwd| cwd == data) && parent_is_not_a_server(*pid, &data)
    })
}

/// Every process whose working directory is below `home`.
pub fn processes_in(home: &Path) -> Vec<u32> {
    let mut found = processes();
    found.retain(|pid| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(home))
    });
    found
}

/// The parent of the others, for servers with many processes.
fn parent_is_not_a_server(pid: u32, data: &Path) -> bool {
    let parent = fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|stat| {
        let rest = &stat[stat.rfind(')')? + 1..];
        rest.split_whitespace().nth(1)?.parse::<u32>().ok()
    });
    parent.is_none_or(|parent| {
        fs::read_link(format!("/proc/{parent}/cwd")).map_or(true, |cwd| cwd != data)
    })
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
