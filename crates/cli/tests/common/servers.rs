//! Experiments with real servers, and what they must not leave behind.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Background, Lab, Said, dbdyno, said};

/// An experiment with servers, over in seconds. The first candidate is the baseline.
pub struct Servers<'a> {
    pub clients: &'a str,
    /// As in the file, without the brackets.
    pub microbenchmarks: &'a str,
    pub rows: u32,
    pub control: bool,
    pub budget: &'a str,
    /// Names, and lines of their own.
    pub candidates: &'a [(&'a str, &'a str)],
}

pub const INNODB: (&str, &str) = ("innodb", "system = \"mariadb\"\nengine = \"innodb\"");
pub const MYROCKS: (&str, &str) = ("myrocks", "system = \"mariadb\"\nengine = \"myrocks\"");
pub const POSTGRES: (&str, &str) = ("postgres", "system = \"postgresql\"");

impl Default for Servers<'_> {
    fn default() -> Self {
        Self {
            clients: "1",
            microbenchmarks: "\"point-query.pre_range=100\"",
            rows: 2_000,
            control: false,
            budget: "300ms",
            candidates: &[INNODB],
        }
    }
}

impl Servers<'_> {
    fn text(&self) -> String {
        let Self { clients, microbenchmarks, rows, control, budget, candidates } = self;
        let baseline = candidates[0].0;
        let mut text = format!(
            "name = \"servers\"\nbaseline = \"{baseline}\"\ncontrol = {control}\n\n\
             [workload]\nrows = {rows}\nclients = {clients}\n\
             microbenchmarks = [{microbenchmarks}]\n\n\
             [schedule]\nslice = \"20ms\"\nwrite_slice = \"20ms\"\nmin_blocks = 6\n\
             target = \"0.01%\"\nbudget = \"{budget}\"\n\n"
        );
        for (name, lines) in *candidates {
            text.push_str(&format!("[[candidate]]\nname = \"{name}\"\n{lines}\n\n"));
        }
        text
    }

    /// Runs it to its end.
    pub fn run(&self, lab: &Lab, more: &[&str]) -> Said {
        said(self.command(lab, more))
    }

    /// Starts it in the background.
    pub fn start(&self, lab: &Lab, more: &[&str]) -> Background {
        Background::start(self.command(lab, more), lab.path())
    }

    fn command(&self, lab: &Lab, more: &[&str]) -> std::process::Command {
        let mut command = dbdyno();
        command.arg("run").arg(lab.file(&self.text())).arg("--out").arg(lab.out()).args(more);
        command
    }
}

/// Where the servers' data of a run lies, links followed; `None` when it is gone.
pub fn home_of_servers(run: &Path) -> Option<PathBuf> {
    run.join("data/servers").canonicalize().ok()
}

/// The server of a candidate: the process that has its data directory as its own.
pub fn server_of(run: &Path, candidate: &str) -> Option<u32> {
    let data = home_of_servers(run)?.join(candidate).join("data");
    processes().into_iter().find(|pid| {
        let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
        cwd.is_ok_and(|cwd| cwd == data) && parent_is_not_a_server(*pid, &data)
    })
}

/// Every process that works in a directory below `home`.
pub fn processes_in(home: &Path) -> Vec<u32> {
    let mut found = processes();
    found.retain(|pid| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(home))
    });
    found
}

/// A server of many processes has one that the others come from.
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
