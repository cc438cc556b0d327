//! A word for a candidate: `SYSTEM[@RELEASE][:VARIANT][:KEY=VALUE]…[{SETTING=VALUE,…}]`, or a URL.

use std::ops::Range;

use dbdyno_document::{Problem, did_you_mean, nearest};
use dbdyno_types::build::{Pgo, Variant};
use dbdyno_types::server::{Protocol, ServerSystem};
use dbdyno_types::{PublishedRelease, SUITES, suites};

use crate::build::{help_of_unknown, near_unknown};
use crate::candidate::{Program, part, short};
use crate::compare::InstalledReleases;
use crate::compare::text::Word;
use crate::names::{CONTROL, LONGEST};
use crate::server;

/// A candidate as written. Ranges are parts of its word.
#[derive(Debug)]
pub struct Candidate<'w> {
    pub word: Word<'w>,
    pub system: Program,
    /// The parts of the word; `None` for the URL of an existing server.
    pub own: Option<Own>,
}

/// A system that dbdyno starts or compiles.
#[derive(Debug, Default)]
pub struct Own {
    pub system: Range<usize>,
    pub release: Option<Range<usize>>,
    pub from: ReleaseFrom,
    pub variant: Option<Range<usize>>,
    /// Keys of `[[candidate]]` and their values.
    pub keys: Vec<(Key, Range<usize>, Range<usize>)>,
    /// Settings of the database and their values.
    pub settings: Vec<(Range<usize>, Range<usize>)>,
}

/// Where a release is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReleaseFrom {
    /// A directory with its name, or that of its series.
    #[default]
    Installed,
    /// This suite of Debian.
    Suite(&'static str),
    /// A registry that has this version.
    Published(&'static str),
}

/// A key of `[[candidate]]` that a word can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: &'static str,
    pub form: Form,
}

/// How the value of a key is written in an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    String,
    /// A number, `true` or `false`.
    Plain,
    /// A file, from the current directory.
    File,
    /// A list of strings, separated by spaces in the word.
    List,
    /// The directory of a source.
    Source,
}

/// The keys, except those that a word expresses in another way, and tables.
const KEYS: [Key; 31] = [
    key("name", Form::String),
    key("engine", Form::String),
    key("program", Form::String),
    key("defaults", Form::String),
    key("options", Form::File),
    key("durability", Form::String),
    key("statements", Form::String),
    key("restarts_after_death", Form::Plain),
    key("live", Form::Plain),
    key("series", Form::String),
    key("source", Form::Source),
    key("compiler", Form::String),
    key("flags", Form::List),
    key("configure", Form::List),
    key("configure_with", Form::String),
    key("audit_ignore", Form::List),
    key("training", Form::List),
    key("training_time", Form::String),
    key("bolt_profile", Form::String),
    key("bolt", Form::Plain),
    key("pgo", Form::String),
    key("optimization", Form::String),
    key("debug", Form::Plain),
    key("native", Form::Plain),
    key("march", Form::String),
    key("mtune", Form::String),
    key("lto", Form::String),
    key("frame_pointers", Form::Plain),
    key("assertions", Form::Plain),
    key("hardening", Form::String),
    key("linker", Form::String),
];

/// Keys of `[[candidate]]` that a word cannot set.
const KEYS_OF_FILES: [&str; 8] =
    ["host", "tls", "matrix", "packaging", "build_type", "injected_delay", "schema", "pid"];

const fn key(name: &'static str, form: Form) -> Key {
    Key { name, form }
}

impl<'w> Candidate<'w> {
    /// Reads a word. Parts with problems are left out; `None` if its system is unknown.
    pub fn read(
        word: Word<'w>,
        installed: InstalledReleases<'_>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let reader = Reader { word, problems };
        // Values of settings may contain `://` too.
        let head = word.text.split('{').next().unwrap_or_default();
        if head.contains("://") { reader.url() } else { reader.own(installed) }
    }

    pub fn text(&self, part: &Range<usize>) -> &'w str {
        &self.word.text[part.clone()]
    }

    pub fn value(&self, name: &str) -> Option<&'w str> {
        Some(self.text(self.place_of(name)?))
    }

    /// Where the value of a key is.
    pub fn place_of(&self, name: &str) -> Option<&Range<usize>> {
        let (.., value) = self.own.as_ref()?.keys.iter().find(|(key, ..)| key.name == name)?;
        Some(value)
    }

    /// The version of its release; of a suite of Debian that has no fixed one, as written.
    fn release(&self) -> Option<&'w str> {
        let own = self.own.as_ref()?;
        let named = self.text(own.release.as_ref()?);
        match (own.from, self.system) {
            (ReleaseFrom::Suite(suite), Program::Server(system)) => {
                Some(system.series_in(suite).unwrap_or(named))
            }
            (ReleaseFrom::Published(version), _) => Some(version),
            _ => Some(named),
        }
    }

    pub fn variant(&self) -> Option<&'w str> {
        self.own.as_ref()?.variant.as_ref().map(|variant| self.text(variant))
    }

    /// Whether it is compiled with a profile.
    pub fn needs_training(&self) -> bool {
        let variant = self.variant().and_then(|name| Variant::by_name(name).ok());
        let pgo = match self.value("pgo") {
            Some(pgo) => pgo != "off",
            None => variant.as_ref().is_some_and(|variant| variant.pgo != Pgo::Off),
        };
        let bolt = match self.value("bolt") {
            Some(bolt) => bolt == "true",
            None => variant.is_some_and(|variant| variant.bolt),
        };
        pgo || bolt
    }
}

struct Reader<'w, 'p> {
    word: Word<'w>,
    problems: &'p mut Vec<Problem>,
}

impl<'w> Reader<'w, '_> {
    fn report(&mut self, part: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem::new(self.word.span(part), message).help(help));
    }

    fn url(mut self) -> Option<Candidate<'w>> {
        let end = self.word.text.find("://")?;
        let scheme = &self.word.text[..end];
        let system = match scheme {
            "postgres" => Some(ServerSystem::PostgreSql),
            _ => ServerSystem::ALL.into_iter().find(|system| system.name() == scheme),
        };
        let Some(system) = system else {
            let valid = ["mysql", "mariadb", "postgres", "postgresql"];
            let message = format!("unknown scheme `{scheme}` of a URL");
            self.report(0..end, message, did_you_mean(scheme, &valid));
            return None;
        };
        let text = self.word.text;
        let path = text[..text.find('{').unwrap_or(text.len())].rfind('@').unwrap_or(end);
        let key = KEYS.iter().filter_map(|key| text[path..].find(&format!(":{}=", key.name))).min();
        if let Some(at) = key.into_iter().chain(text[path..].find('{')).min() {
            let message = "a server with a URL has no keys and settings here";
            let help = "compare servers, or the queries of `--sql`; for another `statements`, save the experiment \
                        (`--save FILE`) and add a candidate with the same `url`";
            self.report(path + at..text.len(), message, help);
            return None;
        }
        Some(Candidate { word: self.word, system: Program::Server(system), own: None })
    }

    fn own(mut self, installed: InstalledReleases<'_>) -> Option<Candidate<'w>> {
        let text = self.word.text;
        let head_end = text.find('{').unwrap_or(text.len());
        let mut parts = split(text, 0..head_end, ':').into_iter();
        let first = parts.next().unwrap_or_default();
        let at = text[first.clone()].find('@').map(|at| first.start + at);
        let name = first.start..at.unwrap_or(first.end);
        let system = self.system(name.clone())?;
        let mut own = Own { system: name, ..Own::default() };
        if let Some(at) = at {
            let release = at + 1..first.end;
            if let Some(from) = self.release(release.clone(), system, installed) {
                (own.release, own.from) = (Some(release), from);
            }
        }
        for part in parts {
            self.part(part, system, &mut own);
        }
        self.settings(head_end, system, &mut own);
        // Servers are compiled from a source that somebody must name.
        let has_source = own.keys.iter().any(|(key, ..)| key.name == "source");
        if let (Program::Server(system), Some(variant), false) = (system, &own.variant, has_source)
        {
            let message = format!("{} has no source to compile", system.title());
            let help = "add `:source=/its/source`, or write an experiment file with `source`";
            self.report(variant.clone(), message, help);
        }
        Some(Candidate { word: self.word, system, own: Some(own) })
    }

    fn system(&mut self, part: Range<usize>) -> Option<Program> {
        let name = &self.word.text[part.clone()];
        let found = Program::all().find(|system| system.name() == name);
        if found.is_none() {
            let names: Vec<&str> = Program::all().map(Program::name).collect();
            let engines = ServerSystem::MariaDb.storage_engines().iter();
            let help = match nearest(name, engines.map(|engine| engine.name())) {
                Some(engine) => format!("did you mean `mariadb:engine={engine}`?"),
                None => did_you_mean(name, &names),
            };
            self.report(part, format!("unknown system `{name}`"), help);
        }
        found
    }

    /// Where a release is from: a suite of Debian; one of a registry, by its name in experiments; one that is
    /// installed, or of its series, such as `8.0`; a version that a registry has; the suite with this version, such as
    /// `10.5`; or the newest of a series that a registry has.
    fn release(
        &mut self,
        part: Range<usize>,
        system: Program,
        installed: InstalledReleases<'_>,
    ) -> Option<ReleaseFrom> {
        let name = &self.word.text[part.clone()];
        let Program::Server(system) = system else {
            self.report(part, "SQLite has no releases", "remove it, or set `:source=/its/source`");
            return None;
        };
        let suites = suites(system);
        if let Some(suite) = suites.iter().find(|suite| **suite == name) {
            return Some(ReleaseFrom::Suite(suite));
        }
        // Also if a directory has this name: the text of the experiment means the published one.
        if let Some(published) = PublishedRelease::by_name(system, name) {
            return Some(ReleaseFrom::Published(published.version));
        }
        let found = installed(system);
        let is_named = |one: &String| {
            let rest = one.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
        };
        if found.iter().any(is_named) {
            return Some(ReleaseFrom::Installed);
        }
        // As in experiments, the name of one may have the system's: `mysql-8.0.33`.
        let version = name.strip_prefix(system.name()).and_then(|rest| rest.strip_prefix('-'));
        let wanted = version.unwrap_or(name);
        let published = PublishedRelease::of_series(system, wanted).map(|release| release.version);
        match (published, system.suite_with(name)) {
            (Some(version), suite) if version == wanted || suite.is_none() => {
                return Some(ReleaseFrom::Published(version));
            }
            (_, Some(suite)) => return Some(ReleaseFrom::Suite(suite)),
            (..) => {}
        }
        let published: Vec<&str> = PublishedRelease::all(system).map(|one| one.version).collect();
        let of_debian = suites.iter().flat_map(|suite| [Some(*suite), system.series_in(suite)]);
        let found_here = found.iter().map(String::as_str);
        let valid: Vec<&str> =
            found_here.chain(of_debian.flatten()).chain(published.iter().copied()).collect();
        let message = match SUITES.contains(&name) {
            true => format!("Debian's {name} has no packages of {}", system.title()),
            false => format!("no release `{name}` of {} is installed or known", system.title()),
        };
        let near = nearest(name, valid.iter().copied());
        let help = match near {
            Some(near) => format!("did you mean `{near}`? `dbdyno list releases` shows all"),
            None => {
                let here = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
                let suites: Vec<String> = suites
                    .iter()
                    .map(|suite| match system.describe_series_in(suite) {
                        Some(series) => format!("{series} ({suite})"),
                        None => (*suite).to_owned(),
                    })
                    .collect();
                format!(
                    "installed: {here}; of Debian: {}; of registries: {}",
                    suites.join(", "),
                    published.join(", ")
                )
            }
        };
        self.report(part, message, help);
        None
    }

    /// `KEY=VALUE` or a variant.
    fn part(&mut self, part: Range<usize>, system: Program, own: &mut Own) {
        let text = &self.word.text[part.clone()];
        let Some(equals) = text.find('=') else {
            return self.variant(part, system, own);
        };
        let name = part.start..part.start + equals;
        let value = name.end + 1..part.end;
        let key = &text[..equals];
        let Some(key) = KEYS.into_iter().find(|one| one.name == key) else {
            let help = help_of_unknown_key(key, &self.word.text[value], system);
            let message = format!("unknown key `{key}` of a candidate");
            return self.report(name, message, help);
        };
        if own.keys.iter().any(|(other, ..)| other.name == key.name) {
            let message = format!("`{}` is set twice", key.name);
            return self.report(name, message, "remove one of them");
        }
        own.keys.push((key, name, value));
    }

    fn variant(&mut self, part: Range<usize>, system: Program, own: &mut Own) {
        let name = &self.word.text[part.clone()];
        let report = |this: &mut Self, help: String| {
            this.report(part.clone(), format!("unknown variant `{name}`"), help);
        };
        if let Program::Server(server) = system {
            let engines = server.storage_engines().iter().map(|engine| engine.name());
            if let Some(engine) = nearest(name, engines) {
                return report(self, format!("did you mean `engine={engine}`?"));
            }
        }
        if name.starts_with('/') {
            return report(self, "write a URL as `mysql://…` or `postgresql://…`".to_owned());
        }
        let variants = Variant::names();
        if !variants.iter().any(|variant| variant == name) {
            let valid = variants.iter().map(String::as_str);
            let help = match nearest(name, KEYS.map(|key| key.name)) {
                Some(key) if near_unknown(name, valid.clone()).is_none() => {
                    format!("did you mean the key `{key}`? Write `:{key}=VALUE`")
                }
                _ => help_of_unknown(name, valid),
            };
            return report(self, help);
        }
        if own.variant.is_some() {
            let message = format!("second variant `{name}`");
            return self.report(part, message, "a candidate has one variant: write two candidates");
        }
        own.variant = Some(part);
    }

    /// `{SETTING=VALUE,…}` at the end.
    fn settings(&mut self, start: usize, system: Program, own: &mut Own) {
        let text = self.word.text;
        if start == text.len() {
            return;
        }
        let Some(end) = text.strip_suffix('}').map(str::len) else {
            let help = "end the word with the settings: 'mariadb{innodb_doublewrite=OFF}'";
            return self.report(start..text.len(), "missing `}` after settings", help);
        };
        for part in split(text, start + 1..end, ',') {
            let setting = &text[part.clone()];
            let Some(equals) = setting.find('=') else {
                let message = format!("setting `{setting}` has no value");
                let help = match own.settings.last() {
                    Some((last, _)) => format!(
                        "write `SETTING=VALUE`, and a value with commas in quotes: `{}='A,B'`",
                        &text[last.clone()]
                    ),
                    None => "write `SETTING=VALUE`".to_owned(),
                };
                self.report(part, message, help);
                continue;
            };
            let name = part.start..part.start + equals;
            self.check_duplicate(name.clone(), system, own);
            if let Some(value) = self.unquoted(part.start + equals + 1..part.end) {
                own.settings.push((name, value));
            }
        }
    }

    /// A value without the quotes around it.
    fn unquoted(&mut self, value: Range<usize>) -> Option<Range<usize>> {
        let text = &self.word.text[value.clone()];
        let Some(quote) = text.chars().next().filter(|c| QUOTES.contains(c)) else {
            return Some(value);
        };
        match text[1..].find(quote) {
            Some(end) if end + 2 == text.len() => return Some(value.start + 1..value.end - 1),
            Some(end) => {
                let rest = value.start + end + 2..value.end;
                let help = "a value is quoted as a whole; to contain one kind of quotes, use the other around it";
                self.report(rest, "text after the closing quote of a value", help);
            }
            None => {
                let message = format!("missing `{quote}` at the end of the value");
                self.report(value, message, "a value in quotes may contain commas: `{name='a,b'}`");
            }
        }
        None
    }

    /// Reports a setting that is set before, perhaps in another spelling.
    fn check_duplicate(&mut self, part: Range<usize>, system: Program, own: &Own) {
        let text = self.word.text;
        let canonical = |name: &str| match system {
            Program::Server(system) => server::canonical(name, system),
            Program::Sqlite => name.to_owned(),
        };
        let name = &text[part.clone()];
        let mut others = own.settings.iter().map(|(other, _)| &text[other.clone()]);
        if let Some(other) = others.find(|other| canonical(other) == canonical(name)) {
            let help = match other == name {
                true => "remove one of them".to_owned(),
                false => format!("`{other}` is the same setting: remove one of them"),
            };
            self.report(part, format!("`{name}` is set twice"), help);
        }
    }
}

/// What to write instead of `key=value`, whose key no word has.
fn help_of_unknown_key(key: &str, value: &str, system: Program) -> String {
    let system = system.name();
    match key {
        "variant" => format!("write `{system}:{value}`"),
        "release" => format!("write `{system}@{value}`"),
        _ if KEYS_OF_FILES.contains(&key) => {
            format!("`{key}` needs an experiment file: write one with `--save` and add it there")
        }
        _ => match nearest(key, KEYS.map(|one| one.name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("for a setting of the database write `{{{key}={value}}}` at the end"),
        },
    }
}

/// Around values of settings that contain commas.
const QUOTES: [char; 2] = ['\'', '"'];

/// The parts of a range of the text between separators. Those in braces do not separate; nor do commas in a value in
/// quotes.
fn split(text: &str, range: Range<usize>, separator: char) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut depth, mut quote) = (range.start, 0_usize, None);
    for (at, c) in text[range.clone()].char_indices() {
        let at = range.start + at;
        let begins_value = || text[start..at].find('=') == Some((at - start).wrapping_sub(1));
        match c {
            _ if quote.is_some() => quote = quote.filter(|open| *open != c),
            _ if separator == ','
                && QUOTES.contains(&c)
                && begins_value()
                && text[at + 1..range.end].contains(c) =>
            {
                quote = Some(c);
            }
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ if c == separator && depth == 0 => {
                parts.push(start..at);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(start..range.end);
    parts
}

/// Keys that a name mentions by their value only: their values are unambiguous.
const KEYS_WITH_PLAIN_VALUES: [&str; 6] =
    ["options", "durability", "statements", "compiler", "optimization", "march"];

/// Keys that do not appear in names: of the name itself, and of what it begins with.
const KEYS_WITHOUT_PART: [&str; 4] = ["name", "engine", "series", "training"];

/// A unique name for each candidate: short if no other has the same, such as `myrocks`, else with the
/// system, such as `mysql-myrocks`, else with a number.
pub fn names_of(candidates: &[Candidate<'_>]) -> Vec<String> {
    let own = |candidate: &Candidate<'_>| candidate.value("name").map(str::to_owned);
    let short: Vec<String> = candidates
        .iter()
        .map(|one| own(one).unwrap_or_else(|| name(one, short_base(one))))
        .collect();
    let mut names: Vec<String> = Vec::with_capacity(candidates.len());
    for (candidate, short_name) in candidates.iter().zip(&short) {
        let is_unique = short.iter().filter(|other| *other == short_name).count() == 1;
        if own(candidate).is_some() || (is_unique && short_name != CONTROL) {
            names.push(short_name.clone());
            continue;
        }
        let full = name(candidate, full_base(candidate));
        let is_taken = |name: &String| names.contains(name) || name == CONTROL;
        let numbered = (2..).map(|number| format!("{full}-{number}"));
        names.extend([full.clone()].into_iter().chain(numbered).find(|name| {
            !is_taken(name) && !short.iter().any(|other| other == name && other != short_name)
        }));
    }
    names
}

/// The base and what else distinguishes the candidate.
fn name(candidate: &Candidate<'_>, base: String) -> String {
    let mut name = base;
    if let Some(own) = &candidate.own {
        for (key, _, value) in &own.keys {
            let text = candidate.text(value);
            let text = if key.form == Form::File { file_name(text) } else { text };
            let value = part(text.trim_start_matches('/'));
            if KEYS_WITH_PLAIN_VALUES.contains(&key.name) {
                name.push_str(&format!(".{value}"));
            } else if !KEYS_WITHOUT_PART.contains(&key.name) {
                name.push_str(&format!(".{}-{value}", key.name));
            }
        }
        for (setting, value) in &own.settings {
            let (setting, value) = (candidate.text(setting), candidate.text(value));
            name.push_str(&format!(".{}-{}", part(short(setting)), part(value)));
        }
    }
    // Room for a number.
    name.truncate(LONGEST - 4);
    name
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The system as a part of a name. Whether MariaDB or MySQL answers at a URL is not known yet.
fn label(candidate: &Candidate<'_>) -> &'static str {
    let protocol = match candidate.system {
        Program::Server(system) => Some(system.facts().protocol),
        Program::Sqlite => None,
    };
    let is_open = candidate.own.is_none() && protocol == Some(Protocol::MySql);
    if is_open { "server" } else { candidate.system.name() }
}

/// The system or what stands for it: a storage engine, a variant, the host of a URL.
fn short_base(candidate: &Candidate<'_>) -> String {
    let system = label(candidate);
    let base = match &candidate.own {
        None => host(candidate.word.text).unwrap_or(system).to_owned(),
        Some(_) => {
            let base = candidate.value("engine").unwrap_or(system);
            match (candidate.release(), candidate.variant()) {
                (Some(release), _) => format!("{base}-{release}"),
                (None, Some(variant)) if base == system => variant.to_owned(),
                (None, Some(variant)) => format!("{base}-{variant}"),
                (None, None) => base.to_owned(),
            }
        }
    };
    valid(&base, system)
}

/// The same with the system.
fn full_base(candidate: &Candidate<'_>) -> String {
    let system = label(candidate);
    let parts = match &candidate.own {
        None => {
            let url = candidate.word.text;
            let of_url = [host(url), port(url), database(url)];
            of_url.map(|part| part.map(str::to_owned))
        }
        Some(own) => {
            let release = candidate.release().map(str::to_owned);
            let release = match own.from {
                ReleaseFrom::Suite(suite) => release.map(|version| format!("{version}-{suite}")),
                ReleaseFrom::Installed | ReleaseFrom::Published(_) => release,
            };
            let [engine, variant] = [candidate.value("engine"), candidate.variant()];
            [release, engine.map(str::to_owned), variant.map(str::to_owned)]
        }
    };
    let base = parts.iter().flatten().fold(system.to_owned(), |base, one| format!("{base}-{one}"));
    valid(&base, system)
}

/// The text as a name, which starts with a letter or a digit.
fn valid(text: &str, system: &str) -> String {
    let name = part(text);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well { name } else { format!("{system}{name}") }
}

/// Host and port of a URL.
fn authority(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
}

fn host(url: &str) -> Option<&str> {
    let authority = authority(url)?;
    let end = match authority.starts_with('[') {
        true => authority.find(']')? + 1,
        false => authority.find(':').unwrap_or(authority.len()),
    };
    Some(authority[..end].trim_matches(['[', ']'])).filter(|host| !host.is_empty())
}

fn port(url: &str) -> Option<&str> {
    let authority = authority(url)?;
    let (_, port) = authority.rsplit_once(':')?;
    (!port.is_empty() && !port.contains(']')).then_some(port)
}

fn database(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let path = rest.split_once('/')?.1;
    path.split('?').next().filter(|database| !database.is_empty())
}

/// The name of an experiment: that of the baseline and of the first other candidate.
pub fn name_of_experiment(candidates: &[String]) -> String {
    // Names of candidates may have a `+`, and one that the user chose may be invalid.
    let words: String = match candidates {
        [] => "compare".to_owned(),
        [only] => format!("compare-{only}"),
        [baseline, other] => format!("{baseline}-vs-{other}"),
        [baseline, others @ ..] => format!("{baseline}-vs-{}-others", others.len()),
    };
    let mut name = part(&words).replace('+', "_");
    name.truncate(LONGEST);
    valid(&name, "compare")
}

#[cfg(test)]
mod tests {
    use crate::compare::text::CommandLine;

    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        let mut line = CommandLine::new("compare");
        let mut problems = Vec::new();
        let installed = |_| vec!["15".to_owned(), "8.0.37".to_owned()];
        let candidates: Vec<_> = words
            .iter()
            .filter_map(|word| Candidate::read(line.push(word), &installed, &mut problems))
            .collect();
        assert_eq!(problems, []);
        names_of(&candidates)
    }

    #[test]
    fn names_are_short_where_they_are_unique() {
        for (words, expected) in [
            (&["mariadb", "mariadb:engine=myrocks"][..], &["mariadb", "myrocks"][..]),
            (&["mariadb:engine=innodb", "mysql"], &["innodb", "mysql"]),
            (
                &["mariadb:engine=myrocks", "mysql:engine=myrocks"],
                &["mariadb-myrocks", "mysql-myrocks"],
            ),
            (&["postgresql@15", "postgresql@sid"], &["postgresql-15", "postgresql-sid"]),
            (&["mysql@8.0", "mysql@8.0.37"], &["mysql-8.0", "mysql-8.0.37"]),
            (&["mysql@9.7", "mysql@sid"], &["mysql-9.7", "mysql-sid"]),
            // Debian's suites are called by the version that they have.
            (&["mariadb@bullseye", "mariadb@10.11"], &["mariadb-10.5", "mariadb-10.11"]),
            (
                &["postgresql@15", "postgresql@bookworm"],
                &["postgresql-15", "postgresql-15-bookworm"],
            ),
            (&["sqlite:rel_o2", "sqlite:rel_lto_pgo"], &["rel_o2", "rel_lto_pgo"]),
            (
                &["mariadb", "mariadb{innodb_doublewrite=OFF}", "mariadb:durability=strict"],
                &["mariadb", "mariadb.doublewrite-OFF", "mariadb.strict"],
            ),
            (&["mysql://bench@db1/", "mysql://bench@db2:3307/?tls=off"], &["db1", "db2"]),
            (&["mysql://a@h:1/", "mysql://a@h:2/"], &["server-h-1", "server-h-2"]),
            (&["mariadb://a@h:1/", "postgres://a@h:2/"], &["server-h-1", "postgresql-h-2"]),
            (
                &["postgres://a@[::1]/", "postgres://a@/?host=/run"],
                &["postgresql__1", "postgresql"],
            ),
            (&["mysql://a@control/"], &["server-control"]),
            (&["mariadb", "mariadb", "mariadb"], &["mariadb", "mariadb-2", "mariadb-3"]),
            (
                &["mariadb", "mariadb:name=mariadb-2", "mariadb"],
                &["mariadb", "mariadb-2", "mariadb-3"],
            ),
        ] {
            assert_eq!(names(words), expected, "{words:?}");
        }
    }
}
