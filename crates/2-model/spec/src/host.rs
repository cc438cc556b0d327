//! `[host.NAME]`: other machines that servers run on.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dbdyno_document::{Problem, Spanned, Table, did_you_mean};
use dbdyno_types::server::{Address, Target};

use crate::experiment::Host;
use crate::{cpus, names};

/// Reads all hosts. One with problems is returned as well, so that candidates can name it.
pub fn read_all(root: &mut Table<'_>) -> Vec<Host> {
    let Some(mut section) = root.table("host") else { return Vec::new() };
    let tables = section.named_tables();
    tables.into_iter().filter_map(|(name, table)| read(name, table)).collect()
}

fn read(name: Spanned<&str>, mut table: Table<'_>) -> Option<Host> {
    let name = names::of_host(&table, name)?;
    let ssh = table.string("ssh");
    let address = table.string("address");
    let destination = ssh.and_then(|ssh| read_destination(&table, ssh));
    let address = address.and_then(|address| read_address(&table, address));
    let directory = read_directory(&mut table);
    let cpus = cpus::list(&mut table, "cpus");
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
        let problem = Problem::new(ssh.span, format!("invalid destination `{}`", ssh.value));
        let help = "write it as for ssh(1), such as \"bench@db1\"; options belong in ~/.ssh/config";
        table.report(problem.help(help));
        return None;
    }
    Some(ssh.value.to_owned())
}

fn read_address(table: &Table<'_>, address: Spanned<&str>) -> Option<String> {
    let refuse = |message: String, help: &str| {
        table.report(Problem::new(address.span, message).help(help));
        None
    };
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

fn read_directory(table: &mut Table<'_>) -> Option<PathBuf> {
    let directory = table.string("directory")?;
    if !Path::new(directory.value).is_absolute() || directory.value.contains(char::is_control) {
        let problem = Problem::new(directory.span, "the path of `directory` must be absolute");
        table.report(problem.help("write the full path on the host, such as \"/mnt/nvme\""));
        return None;
    }
    Some(PathBuf::from(directory.value))
}

/// Reads the `host` of an existing server with this `url`, and reports an address of this machine.
pub fn of_existing(
    table: &mut Table<'_>,
    url: Option<(Spanned<&str>, &Target)>,
    hosts: &[Host],
) -> Option<String> {
    let host = read_name(table, hosts)?;
    let is_here = url.filter(|(_, target)| match &target.address {
        Address::Socket(_) => true,
        Address::Tcp { host, .. } => {
            let address = host.parse::<IpAddr>();
            host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.is_loopback())
        }
    });
    if let Some((url, _)) = is_here {
        let message = "`url` is an address of this machine, and the server is on another host";
        let help = "write the address at which the host is reached, or remove `host`";
        table.report(Problem::new(url.span, message).help(help));
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
        table.report(Problem::new(host.span, format!("unknown host `{}`", host.value)).help(help));
        return None;
    }
    Some(host)
}

/// Reads a private server's `host` and `tls`.
pub fn of_server(table: &mut Table<'_>, hosts: &[Host]) -> (Option<String>, bool) {
    if !table.has("host") {
        let help = "remove it: nothing leaves this machine; a server with `url` has `tls` there";
        table.refuse("tls", "is for servers on a host", help);
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
    table.report(Problem::new(tls.span, format!("unknown `tls` `{}`", tls.value)).help(help));
    false
}
