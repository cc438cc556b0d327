//! Machines: others (`[host.NAME]`), the CPUs of this one (`[cpus]`), and `[fleet]`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use dbdyno_document::{Spanned, Table, did_you_mean};
use dbdyno_types::ClientWait;
use dbdyno_types::server::Target;
use dbdyno_units::Nanos;

use crate::experiment::{Cpus, Fleet, Host};
use crate::{existing, names, server};

/// Reads all hosts. One with problems is returned as well, so that candidates can name it.
pub fn read_hosts(root: &mut Table<'_>) -> Vec<Host> {
    let Some(mut section) = root.table("host") else { return Vec::new() };
    let tables = section.named_tables();
    tables.into_iter().filter_map(|(name, table)| read_host(name, table)).collect()
}

fn read_host(name: Spanned<&str>, mut table: Table<'_>) -> Option<Host> {
    let name = names::check(&table, name, names::OF_EXPERIMENT)?.value;
    let ssh = table.string("ssh");
    let address = table.string("address");
    let destination = ssh.and_then(|ssh| read_destination(&table, ssh));
    let address = address.and_then(|address| read_address(&table, address));
    let example = "write the full path on the host, such as \"/mnt/nvme\"";
    let directory = server::read_path(&mut table, "directory", example);
    let cpus = read_cpu_list(&mut table, "cpus");
    table.finish();
    Some(Host {
        name: name.to_owned(),
        ssh: destination.unwrap_or_else(|| name.to_owned()),
        address: address.unwrap_or_else(|| name.to_owned()),
        cpus,
        directory,
    })
}

/// A destination of ssh: a host, an alias in its configuration, or either with a user.
fn read_destination(table: &Table<'_>, ssh: Spanned<&str>) -> Option<String> {
    let valid = |c: char| c.is_ascii_graphic() && !"'\"\\`$;&|<>()".contains(c);
    if ssh.value.is_empty() || ssh.value.starts_with('-') || !ssh.value.chars().all(valid) {
        let help = "write it as for ssh(1), such as \"bench@db1\"; options belong in ~/.ssh/config";
        return table.reject(ssh.span, format!("invalid destination `{}`", ssh.value), help);
    }
    Some(ssh.value.to_owned())
}

fn read_address(table: &Table<'_>, address: Spanned<&str>) -> Option<String> {
    let refuse = |message: String, help: &str| table.reject(address.span, message, help);
    if let Ok(address) = address.value.parse::<IpAddr>() {
        if address.is_loopback() || address.is_unspecified() {
            let help = "use the address at which the load generator reaches the host";
            return refuse(format!("`{address}` is not an address of another machine"), help);
        }
        return Some(address.to_string());
    }
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let starts_well = address.value.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !starts_well || !address.value.chars().all(valid) {
        let help = "use an IP address or a host name, without a port";
        return refuse(format!("invalid address `{}`", address.value), help);
    }
    Some(address.value.to_owned())
}

/// Reads the `host` of an existing server with this `url`, and reports an address of this machine.
pub fn of_existing(
    table: &mut Table<'_>,
    url: Option<(Spanned<&str>, &Target)>,
    hosts: &[Host],
) -> Option<String> {
    let host = read_name(table, hosts)?;
    if let Some((url, target)) = url
        && existing::is_of_this_machine(&target.address)
    {
        let message = "`url` is an address of this machine, and the server is on another host";
        let help = "write the address at which the host is reached, or remove `host`";
        table.problem(url.span, message, help);
    }
    Some(host.value.to_owned())
}

/// The `host` of a candidate, if it is defined.
fn read_name<'d>(table: &mut Table<'d>, hosts: &[Host]) -> Option<Spanned<&'d str>> {
    let host = table.string("host")?;
    if !hosts.iter().any(|known| known.name == host.value) {
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        let help = match names.is_empty() {
            true => format!("add [host.{}]", host.value),
            false => did_you_mean(host.value, &names),
        };
        return table.reject(host.span, format!("unknown host `{}`", host.value), help);
    }
    Some(host)
}

/// Reads a private server's `host` and `tls`.
pub fn of_server(table: &mut Table<'_>, hosts: &[Host]) -> (Option<String>, bool) {
    if !table.has("host") {
        let help = "remove it: nothing leaves this machine; a server with `url` has `tls` there";
        table.refuse("tls", "applies to servers on a host only", help);
        return (None, false);
    }
    let host = read_name(table, hosts);
    (host.map(|host| host.value.to_owned()), read_tls(table))
}

/// Whether a server's connections are encrypted. dbdyno knows the certificate of its own server, so it is
/// always verified.
fn read_tls(table: &mut Table<'_>) -> bool {
    let Some(tls) = table.string("tls") else { return false };
    let help = match tls.value {
        "off" => return false,
        "verified" => return true,
        "required" => {
            "write \"verified\": dbdyno knows the certificate of its own server".to_owned()
        }
        other => did_you_mean(other, &["off", "verified"]),
    };
    table.problem(tls.span, format!("unknown `tls` `{}`", tls.value), help);
    false
}

/// More than Linux supports on any machine.
const CPU_LIMIT: u32 = 8192;

/// Reads the section; without it, the CPUs are chosen by the machine's layout.
pub fn read_cpus(table: Option<Table<'_>>) -> Cpus {
    let mut cpus = Cpus::default();
    if let Some(mut table) = table {
        cpus.system = read_cpu_list(&mut table, "system");
        cpus.dbdyno = read_cpu_list(&mut table, "dbdyno");
        cpus.prevent_idle = table.bool("prevent_idle").map(|prevent_idle| prevent_idle.value);
        cpus.wait = table.choice("wait", ClientWait::WORDS).map(|wait| wait.value);
        table.finish();
    }
    cpus
}

/// A list of CPUs in the format of Linux: `0-3,6`. Whether they exist is not checked here.
fn read_cpu_list(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let list = table.string(key)?;
    if list.value.split(',').all(is_range) {
        return Some(list.value.to_owned());
    }
    let message = format!("invalid CPU list `{}`", list.value);
    let help = "use numbers and ascending ranges, such as \"0-3,6\"";
    table.reject(list.span, message, help)
}

fn is_range(text: &str) -> bool {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    matches!((cpu(first), cpu(last)), (Some(first), Some(last)) if first <= last)
}

fn cpu(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|cpu| *cpu < CPU_LIMIT)
}

/// More than any cluster has.
const MOST_NODES: u32 = 100_000;

/// A job must have time to start servers and to measure something.
const TIMES: RangeInclusive<Nanos> = Nanos::from_secs(60)..=Nanos::from_secs(365 * 24 * 3600);

pub fn read_fleet(table: Option<Table<'_>>) -> Option<Fleet> {
    let mut table = table?;
    let mut fleet = Fleet {
        partition: slurm_name(&mut table, "partition"),
        nodes: table.number("nodes", 1..=MOST_NODES),
        nodelist: slurm_name(&mut table, "nodelist"),
        constraint: slurm_name(&mut table, "constraint"),
        account: slurm_name(&mut table, "account"),
        time: table.number("time", TIMES),
        shard: false,
        scratch: table.string("scratch").and_then(|scratch| read_scratch(&table, scratch)),
    };
    table.set_bool("shard", &mut fleet.shard);
    if fleet.nodes.is_some() && fleet.nodelist.is_some() {
        let span = table.key_span("nodes").unwrap_or_default();
        let message = "`nodes` and `nodelist` are both set";
        let help = "`nodes` lets dbdyno choose; `nodelist` names them";
        table.problem(span, message, help);
    }
    table.finish();
    Some(fleet)
}

fn read_scratch(table: &Table<'_>, scratch: Spanned<&str>) -> Option<String> {
    if !scratch.value.starts_with('/') {
        let message = format!("`{}` is not an absolute path", scratch.value);
        let help = "name a directory on a local disk of each node, such as \"/scratch\"";
        return table.reject(scratch.span, message, help);
    }
    Some(scratch.value.to_owned())
}

/// A name or an expression that is passed to Slurm as one argument.
fn slurm_name(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let text = table.string(key)?;
    if text.value.is_empty() || text.value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        let message = format!("invalid {key} `{}`", text.value.escape_debug());
        return table.reject(text.span, message, "use Slurm's name, without spaces");
    }
    Some(text.value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_ranges() {
        for (text, right) in [
            ("0", true),
            ("0-3,6", true),
            ("7-7", true),
            ("", false),
            ("0,", false),
            ("3-0", false),
            ("-1", false),
            ("+1", false),
            ("1-2-3", false),
            ("all", false),
            ("0, 1", false),
            ("99999999999", false),
        ] {
            assert_eq!(text.split(',').all(is_range), right, "{text}");
        }
    }
}
