//! Option files of servers, read as the server reads them: `my.cnf` of MariaDB and MySQL, and
//! `postgresql.conf`. What a private server must not have in common with the server that the file was
//! written for is left out.

mod my_cnf;
mod postgresql_conf;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use dbdyno_document::Table;
use dbdyno_types::Sha256;
use dbdyno_types::server::{Protocol, ServerSystem};
use dbdyno_types::settings::of_version;
use serde::{Deserialize, Serialize};

use crate::server::{canonical, is_setting_name, set};
use crate::workload::ReadFile;

/// What is known of an option file whose settings a candidate has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionFile {
    /// The files that were read: the named one, then those that it includes, with their SHA-256.
    pub files: Vec<(String, Sha256)>,
    /// The settings that the candidate has from it, and where: a file and a line.
    pub settings: Vec<(String, String)>,
    pub left_out: Vec<LeftOut>,
}

/// A setting of an option file that the candidate does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub setting: String,
    pub file: String,
    pub line: usize,
    pub reason: String,
}

impl OptionFile {
    /// The named file.
    pub fn name(&self) -> &str {
        self.files.first().map_or("", |(name, _)| name)
    }

    /// Where the settings are that a message names, such as a server's: `sort_buffer_size (my.cnf:7)`.
    pub fn places_in(&self, message: &str) -> Vec<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = |name: &str| {
            message.match_indices(name).any(|(at, _)| {
                let after = &message[at + name.len()..];
                !message[..at].ends_with(is_part) && !after.starts_with(is_part)
            })
        };
        let settings = self.settings.iter().map(|(name, place)| (of_version(name).1, place));
        let named = settings.filter(|(name, _)| name.contains('_') && names(name));
        named.map(|(name, place)| format!("{name} ({place})")).collect()
    }

    /// What was left out, with the lines of the file; the reasons once.
    pub fn left_out_text(&self) -> Option<String> {
        let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
        for LeftOut { setting, file, line, reason } in &self.left_out {
            let file = if file == self.name() { "line ".to_owned() } else { format!("{file}:") };
            let place = format!("{setting} ({file}{line})");
            match by_reason.iter_mut().find(|(known, _)| known == reason) {
                Some((_, places)) => places.push(place),
                None => by_reason.push((reason, vec![place])),
            }
        }
        let texts = by_reason.iter().map(|(why, places)| format!("{}: {why}", places.join(", ")));
        let text = texts.collect::<Vec<_>>().join("; ");
        (!text.is_empty()).then_some(text)
    }
}

/// Maximum number of files, of nested files, and of bytes. Published ones have a few kilobytes.
const MOST_FILES: usize = 100;
const MOST_DEPTH: usize = 10;
const MOST_BYTES: usize = 1 << 20;

/// Why a file cannot be read, and what to do.
#[derive(Debug)]
struct Fault(String, &'static str);

/// Reads the file that `options` names into settings of a candidate, over those that it has.
pub fn read(
    table: &mut Table<'_>,
    system: ServerSystem,
    files: ReadFile<'_>,
    settings: &mut Vec<(String, String)>,
) -> Option<OptionFile> {
    let file = table.string("options")?;
    let mut reader = Reader::new(system, files);
    if let Err(Fault(what, help)) = reader.file(file.value, None).and_then(|()| reader.check()) {
        return table.reject(file.span, format!("`options`: {what}"), help);
    }
    let Reader { found, read, left_out, .. } = reader;
    let mut places: Vec<(String, String)> = Vec::new();
    for Found { name, value, place } in found {
        set(&mut places, name.clone(), place);
        set(settings, name, value);
    }
    Some(OptionFile { files: read, settings: places, left_out })
}

/// A line of a file.
#[derive(Clone, Copy)]
struct Place<'p> {
    file: &'p str,
    line: usize,
}

impl Place<'_> {
    fn fault(self, what: impl fmt::Display, help: &'static str) -> Fault {
        Fault(format!("{}:{}: {what}", self.file, self.line), help)
    }

    /// The path of a file that the file at this place names.
    fn resolve(self, path: &str) -> String {
        let directory = Path::new(self.file).parent().unwrap_or(Path::new(""));
        directory.join(path).to_string_lossy().into_owned()
    }
}

struct Found {
    /// The canonical name. One of a group for one version, such as `[mariadb-10.11]`, begins with the version and a
    /// slash.
    name: String,
    value: String,
    place: String,
}

struct Reader<'f> {
    system: ServerSystem,
    files: ReadFile<'f>,
    depth: usize,
    bytes: usize,
    found: Vec<Found>,
    read: Vec<(String, Sha256)>,
    left_out: Vec<LeftOut>,
    /// Groups of other programs.
    other_groups: BTreeSet<String>,
}

impl<'f> Reader<'f> {
    fn new(system: ServerSystem, files: ReadFile<'f>) -> Self {
        let (found, read, left_out) = (Vec::new(), Vec::new(), Vec::new());
        let other_groups = BTreeSet::new();
        Self { system, files, depth: 0, bytes: 0, found, read, left_out, other_groups }
    }

    /// Reads a file; `from` is where another one includes it.
    fn file(&mut self, path: &str, from: Option<Place<'_>>) -> Result<(), Fault> {
        let fault = |what: &str, help| match from {
            Some(place) => place.fault(what, help),
            None => Fault(what.to_owned(), help),
        };
        let help = "name a file, from the directory of the experiment";
        let text = (self.files)(path).map_err(|reason| fault(&reason, help))?;
        self.bytes += text.len();
        if self.read.len() >= MOST_FILES || self.depth >= MOST_DEPTH || self.bytes > MOST_BYTES {
            let help =
                "at most 100 files, 10 of them nested, and 1 MiB in all; does one include itself?";
            return Err(fault(&format!("{path} is too much to read"), help));
        }
        self.read.push((path.to_owned(), Sha256::of(text.as_bytes())));
        self.depth += 1;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        match self.system.facts().protocol {
            Protocol::MySql => self.my_cnf(path, text)?,
            Protocol::PostgreSql => self.postgresql_conf(path, text)?,
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads the files of a directory whose names have this end, by name.
    fn directory(&mut self, path: &str, end: &str, from: Place<'_>) -> Result<(), Fault> {
        let path = format!("{}/", path.trim_end_matches('/'));
        let help = "remove the line, or name an existing directory";
        let names = (self.files)(&path).map_err(|reason| from.fault(reason, help))?;
        let mut names: Vec<&str> =
            names.lines().filter(|name| name.ends_with(end) && !name.starts_with('.')).collect();
        names.sort_unstable();
        names.into_iter().try_for_each(|name| self.file(&format!("{path}{name}"), Some(from)))
    }

    /// Adds a setting, or leaves it out. `version`: the only one that it is for.
    fn add(
        &mut self,
        place: Place<'_>,
        (name, mut value): (&str, String),
        version: Option<&str>,
    ) -> Result<(), Fault> {
        if !is_setting_name(name) {
            let help = "a setting is NAME = VALUE; names consist of letters, digits and _ - .";
            return Err(place.fault(format!("`{name}` cannot be the name of a setting"), help));
        }
        if value.contains(char::is_control) {
            let help = "a setting is one line of plain text";
            return Err(place.fault(format!("the value of `{name}` has control characters"), help));
        }
        let mut name = canonical(name, self.system);
        // dbdyno loads plugins of its own with `plugin_load`.
        if name == PLUGINS[0] {
            PLUGINS[1].clone_into(&mut name);
        }
        let file_name = value.rsplit_once('/').map(|(_, name)| name.to_owned());
        if let Some(reason) = why_left_out(self.system, &name, &value) {
            self.leave_out(place, name, reason);
            return Ok(());
        } else if let Some(file_name) = file_name.filter(|_| name == BINARY_LOG) {
            self.leave_out(place, format!("the directory of {name}"), SETS);
            value = file_name;
        }
        let name = version.map_or(name.clone(), |version| format!("{version}/{name}"));
        let before = self.found.iter_mut().find(|known| known.name == name);
        match before.filter(|_| REPEATED.iter().any(|one| name.ends_with(one))) {
            Some(before) if name.ends_with(PLUGINS[1]) => {
                before.value = format!("{};{value}", before.value);
            }
            Some(before) if before.value != value => {
                let help = "dbdyno passes one value of it: remove the others";
                return Err(place.fault(format!("`{name}` has several values"), help));
            }
            _ => {
                let place = format!("{}:{}", place.file, place.line);
                self.found.push(Found { name, value, place });
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, place: Place<'_>, setting: String, reason: &str) {
        let (file, reason) = (place.file.to_owned(), reason.to_owned());
        self.left_out.push(LeftOut { setting, file, line: place.line, reason });
    }

    /// Checks that the file is one of this system.
    fn check(&self) -> Result<(), Fault> {
        if !self.found.is_empty() || !self.left_out.is_empty() || self.other_groups.is_empty() {
            return Ok(());
        }
        let file = self.read.first().map_or("", |(name, _)| name);
        let groups: Vec<&str> = self.other_groups.iter().map(String::as_str).collect();
        let what = format!(
            "{file} has no setting of {}: its groups are [{}]",
            self.system.title(),
            groups.join("], [")
        );
        Err(Fault(what, "servers read [mysqld] and [server], and MariaDB [mariadb] as well"))
    }
}

/// `plugin_load`, and the setting that adds to it.
const PLUGINS: [&str; 2] = ["plugin_load", "plugin_load_add"];

/// The name of its files; its directory may be another server's.
const BINARY_LOG: &str = "log_bin";

/// Settings of MariaDB and MySQL whose values add up.
const REPEATED: [&str; 4] =
    [PLUGINS[1], "binlog_do_db", "binlog_ignore_db", "performance_schema_instrument"];

const SETS: &str = "dbdyno sets it";
const ALONE: &str = "a private server is alone: it has no cluster, replica or archive";
const CERTIFICATES: &str = "dbdyno makes the certificates that it needs";

/// Beginnings of the names of settings that are left out.
const MYSQL_LEFT_OUT: [(&str, &str); 8] = [
    ("wsrep_", ALONE),
    ("group_replication_", ALONE),
    ("replicate_", ALONE),
    ("ssl", CERTIFICATES),
    ("admin_ssl", CERTIFICATES),
    ("storage_engine", "the candidate's `engine` sets it"),
    ("lc_messages_dir", SETS),
    ("character_sets_dir", SETS),
];
const POSTGRESQL_LEFT_OUT: [(&str, &str); 9] = [
    ("archive_", ALONE),
    ("restore_command", ALONE),
    ("recovery_", ALONE),
    ("primary_", ALONE),
    ("promote_trigger_file", ALONE),
    ("synchronous_standby_names", ALONE),
    ("ssl", CERTIFICATES),
    ("restart_after_crash", "a crash must be noticed"),
    ("lc_", "dbdyno's data has the locale C"),
];

/// Why a private server does not have a setting.
fn why_left_out(system: ServerSystem, name: &str, value: &str) -> Option<&'static str> {
    let (prefixes, reserved) = match system.facts().protocol {
        Protocol::MySql => (&MYSQL_LEFT_OUT[..], system.reserved_setting(name)),
        Protocol::PostgreSql => (&POSTGRESQL_LEFT_OUT[..], system.reserved_setting(name)),
    };
    let name = ["loose_", "skip_", "default_"]
        .iter()
        .fold(name, |name, start| name.strip_prefix(start).unwrap_or(name));
    let is_path = value.starts_with('/') && !value.starts_with("/*") || value.contains("../");
    if let Some((_, reason)) = prefixes.iter().find(|(start, _)| name.starts_with(start)) {
        Some(reason)
    } else if reserved.is_some() {
        Some(SETS)
    } else if is_path && name != BINARY_LOG {
        Some("its path may be another server's")
    } else {
        None
    }
}
