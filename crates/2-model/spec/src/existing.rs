//! Existing servers: a `[[candidate]]` with a `url` for the address, the user, and encryption.

use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use dbdyno_document::{Document, Span, Spanned, Table, did_you_mean, nearest};
use dbdyno_types::server::{Address, Protocol, ServerSystem, Target, Tls};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::candidate::CandidateSection;
use crate::experiment::{ExistingServer, Host, System};
use crate::machines;
use crate::server::{self, Defaults};

/// The keys that only such a candidate has.
pub const KEYS: [&str; 3] = ["url", "schema", "pid"];

/// The maximum process ID on Linux.
const GREATEST_PID: u32 = 1 << 22;

/// Reads the keys; `None` after a problem.
pub fn read(
    table: &mut Table<'_>,
    name: Option<&str>,
    system: ServerSystem,
    defaults: &Defaults,
    hosts: &[Host],
) -> Option<ExistingServer> {
    let url = table.string("url");
    let target = url.and_then(|url| parse_url(url, system, table.document()));
    let engine = server::read_engine(table, system);
    let mut statements = defaults.statements;
    server::read_statements(table, &mut statements);
    let schema = read_schema(table, name);
    let pid = table.number("pid", 1..=GREATEST_PID);
    let host = machines::of_existing(table, url.zip(target.as_ref()), hosts);
    server::refuse_keys_of_starting(table);
    Some(ExistingServer { system, engine, target: target?, schema: schema?, statements, pid, host })
}

/// Reports a schema shared by two candidates, or by a candidate and the control.
pub fn check_schemas(
    root: &Table<'_>,
    candidates: &[CandidateSection<'_>],
    control_of: Option<&str>,
) {
    let mut taken: Vec<(ExistingServer, String)> = Vec::new();
    for candidate in candidates {
        let (Some(url), Some(complete)) = (candidate.url, &candidate.complete) else { continue };
        let System::Existing(server) = &complete.system else { continue };
        let mut servers = vec![(server.clone(), format!("`{}`", complete.name))];
        if control_of == Some(complete.name.as_str()) {
            servers.push((server.for_control(), "the control".to_owned()));
        }
        for (server, whose) in servers {
            if let Some((_, first)) = taken.iter().find(|(other, _)| share(other, &server)) {
                let message = format!("{first} and {whose} would share `{}`", server.schema);
                let help = "set a different `schema` for one of them";
                root.problem(url, message, help);
            }
            taken.push((server, whose));
        }
    }
}

/// Whether two candidates would use the same schema. In PostgreSQL each database has its own
/// schemas; in MySQL, schemas are databases.
fn share(one: &ExistingServer, other: &ExistingServer) -> bool {
    let (first, second) = (&one.schema, &other.schema);
    one.target.address == other.target.address
        && (first == second || is_of_data(first, second) || is_of_data(second, first))
        && (one.system.facts().protocol != Protocol::PostgreSql
            || one.target.database == other.target.database)
}

/// Reports existing servers if the schedule requires restarts: dbdyno cannot restart them.
pub fn check_restarts(
    root: &Table<'_>,
    candidates: &[CandidateSection<'_>],
    restarts: Option<Span>,
) {
    if let Some(span) = restarts
        && candidates.iter().any(|candidate| candidate.url.is_some())
    {
        let message = "an existing server cannot be restarted";
        let help = "remove `restarts`, or the candidates with a `url`";
        root.problem(span, message, help);
    }
}

/// PostgreSQL's limit; MySQL allows one more.
const LONGEST_OF_SERVERS: usize = 63;

/// Schema names reserved by servers.
const RESERVED: [&str; 5] = ["information_schema", "mysql", "performance_schema", "public", "sys"];

/// The control's schema on a server where the baseline uses `schema`.
pub fn schema_of_control(schema: &str) -> String {
    format!("{schema}_control")
}

/// The schema of data with this number, where the first is in `schema`.
pub fn schema_of_data(schema: &str, number: u32) -> String {
    if number == 0 { schema.to_owned() } else { format!("{schema}_data{}", number + 1) }
}

/// Whether a schema could be that of further data beside another one.
fn is_of_data(schema: &str, first: &str) -> bool {
    let number = schema.strip_prefix(first).and_then(|rest| rest.strip_prefix("_data"));
    number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Characters after the longest name of a schema: those of the control's, and of further data.
const LONGEST_SUFFIX: usize = "_control_data999".len();

/// The candidate's `schema`; by default derived from the candidate's name.
pub fn read_schema(table: &mut Table<'_>, candidate: Option<&str>) -> Option<String> {
    let Some(schema) = table.string("schema") else {
        if table.has("schema") {
            return None;
        }
        let schema = default_for(candidate?);
        let span = table.span();
        return check_length(table, Spanned { value: &schema, span }).then_some(schema);
    };
    let starts_well = schema.value.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let (message, help) = if !starts_well || !schema.value.chars().all(valid) {
        let message = format!("`{}` cannot be the name of a schema", schema.value);
        (message, "names consist of lowercase letters, digits and _, and do not start with a digit")
    } else if RESERVED.contains(&schema.value) || schema.value.starts_with("pg_") {
        let message = format!("the schema `{}` is the server's own", schema.value);
        (message, "dbdyno creates its own schema: choose an unused name")
    } else {
        return check_length(table, schema).then(|| schema.value.to_owned());
    };
    table.reject(schema.span, message, help)
}

/// The candidate's name, converted to an identifier that needs no quotes on any server.
fn default_for(candidate: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let candidate: String = candidate.chars().map(safe).collect();
    format!("dbdyno_{candidate}")
}

fn check_length(table: &Table<'_>, schema: Spanned<&str>) -> bool {
    let longest = LONGEST_OF_SERVERS - LONGEST_SUFFIX;
    let fits = schema.value.len() <= longest;
    if !fits {
        let message = format!("schema name `{}` is too long", schema.value);
        let help = format!("set `schema` to one of at most {longest} characters");
        table.problem(schema.span, message, help);
    }
    fits
}

const TLS: &str = "tls";
const AUTHORITIES: &str = "tls_authorities";
const FINGERPRINT: &str = "tls_fingerprint";
/// The name of the option in MySQL's clients.
const PUBLIC_KEY: &str = "server_public_key_path";

/// Parses a URL; `None` after a problem. No problem shows a password: messages never quote the URL,
/// and anything that may be a password is masked in the line shown.
fn parse_url(text: Spanned<&str>, system: ServerSystem, document: &Document) -> Option<Target> {
    let reader = Reader { text, system, document };
    let target = reader.read();
    if target.is_none() {
        reader.conceal_what_may_be_a_password();
    }
    target
}

#[derive(Clone, Copy)]
struct Reader<'t> {
    text: Spanned<&'t str>,
    system: ServerSystem,
    document: &'t Document,
}

/// The parts of the URL's text; the library does not report their positions.
struct Parts<'t> {
    user: &'t str,
    /// The range of host and port.
    host: Range<usize>,
    /// Whether there is a host: any text between the slashes or the `@`, and the port.
    has_host: bool,
    database: Range<usize>,
    /// The pairs `key=value`.
    query: Vec<Pair<'t>>,
}

struct Pair<'t> {
    key: &'t str,
    value: String,
    place: Range<usize>,
}

impl<'t> Reader<'t> {
    fn read(self) -> Option<Target> {
        let authority_start = self.scheme()?;
        self.refuse_password(authority_start)?;
        self.check_characters(authority_start)?;
        let parts = self.split(authority_start)?;
        let url = self.library_url(&parts)?;
        self.check_keys(&parts.query)?;

        let user = self.decode(parts.user, parts.host.clone())?;
        if user.is_empty() {
            let help = format!("add one before the host, such as \"{}\"", self.example());
            return self.report(parts.host, "`url` has no user", help);
        }
        let database = self.database(&url, parts.database.clone())?;
        let address = self.address(&url, &parts)?;
        let tls = self.tls(&address, &parts.query)?;
        let server_public_key = self.server_public_key(&address, &tls, &parts.query)?;
        Some(Target { address, user, database, tls, server_public_key, password: true })
    }

    /// Checks the scheme; returns the offset of the text after it.
    fn scheme(self) -> Option<usize> {
        let all = 0..self.text.value.len();
        let schemes = self.system.facts().schemes;
        let Some((scheme, _)) = self.text.value.split_once("://") else {
            let help = format!("write it as \"{}\"", self.example());
            return self.report(all, "`url` is not a server URL", help);
        };
        if schemes.contains(&scheme) {
            return Some(scheme.len() + "://".len());
        }
        let place = 0..scheme.len();
        let [first, second] = schemes;
        let message = format!("`url` is not for {}", self.system.title());
        let help = format!("its URLs start with {first}:// or {second}://");
        self.report(place, message, help)
    }

    /// Rejects passwords: the text of the experiment is stored with every run.
    fn refuse_password(self, authority_start: usize) -> Option<()> {
        let rest = &self.text.value[authority_start..];
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        // Unescaped characters in a password can end the authority early; the `@` then comes later.
        let user_end = authority
            .rfind('@')
            .or_else(|| if authority.contains(':') { rest.rfind('@') } else { None });
        let in_user = user_end.and_then(|end| Some(rest[..end].find(':')? + 1..end));
        let in_query = || {
            let pairs = self.pairs(authority_start);
            let password = pairs.into_iter().find(|(key, _)| *key == "password");
            password.map(|(key, place)| {
                let value = (place.start + key.len() + 1).min(place.end);
                value - authority_start..place.end - authority_start
            })
        };
        let Some(secret) = in_user.or_else(in_query) else { return Some(()) };
        let place = authority_start + secret.start..authority_start + secret.end;
        self.conceal(place.clone());
        let (variable, file) = self.system.facts().password_in;
        let help = format!(
            "the experiment is stored with each run: use the environment variable DBDYNO_PASSWORD or {variable}, or {file}"
        );
        self.report(place, "`url` contains a password", help)
    }

    /// Masks text that may be a password. In an invalid URL the end of a password is unknown.
    fn conceal_what_may_be_a_password(self) {
        let start = self.text.value.find("://").map_or(0, |at| at + "://".len());
        let rest = &self.text.value[start..];
        if let Some(at) = rest.rfind('@')
            && let Some(colon) = rest[..at].find(':')
        {
            self.conceal(start + colon + 1..start + at);
        }
    }

    fn conceal(self, place: Range<usize>) {
        self.document.conceal(self.document.within(self.text.span, self.text.value, place));
    }

    /// Rejects characters that the library would drop or misinterpret. An `@` in a database's name
    /// is more likely the end of a password that contains a `/`.
    fn check_characters(self, authority_start: usize) -> Option<()> {
        let text = self.text.value;
        let query = text.find('?').unwrap_or(text.len());
        let database = text[authority_start..query].find('/').map(|at| authority_start + at);
        let is_wrong = |(at, c): &(usize, char)| {
            let in_database = database.is_some_and(|start| (start..query).contains(at));
            c.is_control() || c.is_whitespace() || *c == '#' || (*c == '@' && in_database)
        };
        let Some((at, c)) = text.char_indices().find(is_wrong) else { return Some(()) };
        let mut utf8 = [0; 4];
        let code: String =
            c.encode_utf8(&mut utf8).bytes().map(|byte| format!("%{byte:02X}")).collect();
        let place = at..at + c.len_utf8();
        self.report(place, format!("`url` contains {c:?}"), format!("write it as {code}"))
    }

    fn split(self, authority_start: usize) -> Option<Parts<'t>> {
        let text = self.text.value;
        let rest = &text[authority_start..];
        let authority_end = authority_start + rest.find(['/', '?']).unwrap_or(rest.len());
        let authority = &text[authority_start..authority_end];
        let (user, host_start) = match authority.rfind('@') {
            Some(at) => (&authority[..at], authority_start + at + 1),
            None => ("", authority_start),
        };
        let host = host_start..authority_end;
        let has_host = !text[host.clone()].is_empty() && !text[host.clone()].starts_with(':');
        let database_end = text.find('?').unwrap_or(text.len());
        let mut query: Vec<Pair<'t>> = Vec::new();
        for (key, place) in self.pairs(authority_start) {
            let value = text[place.clone()][key.len()..].trim_start_matches('=');
            let value = self.decode(value, place.clone())?;
            if query.iter().any(|pair| pair.key == key) {
                let help = "remove one of them";
                return self.report(place, "duplicate key in `url`", help);
            }
            query.push(Pair { key, value, place });
        }
        let database = authority_end..database_end;
        Some(Parts { user, host, has_host, database, query })
    }

    /// The keys of the query, each with the range of its `key=value`.
    fn pairs(self, authority_start: usize) -> Vec<(&'t str, Range<usize>)> {
        let text = self.text.value;
        let Some(mark) = text[authority_start..].find('?') else { return Vec::new() };
        let mut at = authority_start + mark + 1;
        let mut pairs = Vec::new();
        for pair in text[at..].split('&') {
            if !pair.is_empty() {
                let key = pair.split_once('=').map_or(pair, |(key, _)| key);
                pairs.push((key, at..at + pair.len()));
            }
            at += pair.len() + 1;
        }
        pairs
    }

    /// The URL, parsed by the library, which decodes hosts, ports and escapes.
    fn library_url(self, parts: &Parts<'_>) -> Option<Url> {
        let mut text = self.text.value.to_owned();
        if !parts.has_host {
            // As the standard requires, the library expects a host after a user.
            text.insert_str(parts.host.start, "localhost");
        }
        match Url::parse(&text) {
            Ok(url) => Some(url),
            Err(error) => {
                let help = format!("write it as \"{}\"", self.example());
                self.report(parts.host.clone(), format!("`url` cannot be read: {error}"), help)
            }
        }
    }

    fn check_keys(self, query: &[Pair<'_>]) -> Option<()> {
        let valid: &[&str] = match self.system.facts().protocol {
            Protocol::MySql => &["socket", TLS, AUTHORITIES, FINGERPRINT, PUBLIC_KEY],
            Protocol::PostgreSql => &["host", "port", TLS, AUTHORITIES, FINGERPRINT],
        };
        let Some(unknown) = query.iter().find(|pair| !valid.contains(&pair.key)) else {
            return Some(());
        };
        let key = unknown.key;
        let help = match nearest(key, valid.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if key.starts_with("ssl") => help_for_client_option(key),
            None => did_you_mean(key, valid),
        };
        let place = unknown.place.start..unknown.place.start + key.len();
        self.report(place, "unknown key in `url`", help)
    }

    fn database(self, url: &Url, place: Range<usize>) -> Option<Option<String>> {
        let path = url.path();
        let name = path.strip_prefix('/').unwrap_or(path);
        if name.contains('/') {
            let help = "only one name is allowed between the host and the `?`";
            return self.report(place, "`url` has more than one database name", help);
        }
        let name = self.decode(name, place)?;
        Some((!name.is_empty()).then_some(name))
    }

    fn address(self, url: &Url, parts: &Parts<'_>) -> Option<Address> {
        match self.system.facts().protocol {
            Protocol::MySql => self.mysql_address(url, parts),
            Protocol::PostgreSql => self.postgres_address(url, parts),
        }
    }

    fn mysql_address(self, url: &Url, parts: &Parts<'_>) -> Option<Address> {
        let Some(socket) = find(&parts.query, "socket") else {
            return self.tcp(url, parts, url.port().unwrap_or(3306));
        };
        if url.host_str() != Some("localhost") || url.port().is_some() {
            let help = "a socket is a local file: remove host and port";
            return self.report(parts.host.clone(), "`url` has a host and a socket", help);
        }
        self.absolute(socket, "socket").map(Address::Socket)
    }

    /// The address of a PostgreSQL server. As in libpq, a host that starts with `/` is the
    /// directory of a socket, and the socket's file is named after the port.
    fn postgres_address(self, url: &Url, parts: &Parts<'_>) -> Option<Address> {
        let port = match find(&parts.query, "port") {
            None => url.port().unwrap_or(5432),
            Some(pair) => match pair.value.parse() {
                Ok(port) if url.port().is_none() => port,
                Ok(_) => {
                    let help = "remove one of them";
                    return self.report(pair.place.clone(), "`url` has two ports", help);
                }
                Err(_) => {
                    let help = "it must be from 1 to 65535";
                    return self.report(pair.place.clone(), "`port` is not a port", help);
                }
            },
        };
        let socket =
            |directory: &Path| Some(Address::Socket(directory.join(format!(".s.PGSQL.{port}"))));
        if let Some(host) = find(&parts.query, "host") {
            if parts.has_host {
                let help = "remove one of them";
                return self.report(host.place.clone(), "`url` has two hosts", help);
            }
            if !host.value.starts_with('/') {
                let help = "write a host before the database; this is for a socket's directory";
                let message = "`host` is not an absolute path";
                return self.report(host.place.clone(), message, help);
            }
            return socket(Path::new(&host.value));
        }
        let host = self.decode(url.host_str().unwrap_or_default(), parts.host.clone())?;
        if host.starts_with('/') { socket(Path::new(&host)) } else { self.tcp(url, parts, port) }
    }

    fn tcp(self, url: &Url, parts: &Parts<'_>, port: u16) -> Option<Address> {
        let place = parts.host.clone();
        if !parts.has_host {
            let help = format!("write it as \"{}\", or name a socket", self.example());
            return self.report(place, "`url` has no host", help);
        }
        if port == 0 {
            let help = "it must be from 1 to 65535";
            return self.report(place, "`url` has the port 0", help);
        }
        let host = match url.host() {
            Some(url::Host::Ipv4(address)) => address.to_string(),
            Some(url::Host::Ipv6(address)) => address.to_string(),
            Some(url::Host::Domain(name)) => self.decode(name, place)?,
            None => String::new(),
        };
        Some(Address::Tcp { host, port })
    }

    fn absolute(self, pair: &Pair<'_>, what: &str) -> Option<PathBuf> {
        let path = Path::new(&pair.value);
        if path.is_absolute() {
            return Some(path.to_owned());
        }
        let message = format!("`{what}` must be an absolute path");
        self.report(pair.place.clone(), message, "start it with /")
    }

    /// The text with its escapes decoded.
    fn decode(self, text: &str, place: Range<usize>) -> Option<String> {
        match percent_decode_str(text).decode_utf8() {
            Ok(decoded) if !decoded.contains(char::is_control) => Some(decoded.into_owned()),
            _ => {
                let help = "characters escaped with % must be UTF-8";
                self.report(place, "`url` cannot be read", help)
            }
        }
    }

    fn example(self) -> &'static str {
        self.system.facts().example_url
    }

    /// Reports a problem with a part of the URL; returns `None` for convenience.
    fn report<T>(
        self,
        place: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<T> {
        let span = self.document.within(self.text.span, self.text.value, place);
        self.document.problem(span, message, help);
        None
    }
}

fn find<'p, 't>(query: &'p [Pair<'t>], key: &str) -> Option<&'p Pair<'t>> {
    query.iter().find(|pair| pair.key == key)
}

/// What to use instead of an option of the systems' own clients, such as `sslmode` or `ssl-ca`.
fn help_for_client_option(key: &str) -> String {
    let instead = match key {
        "sslrootcert" | "ssl-ca" | "ssl_ca" | "ssl-capath" | "ssl_capath" => AUTHORITIES,
        "ssl-fp" | "ssl_fp" => FINGERPRINT,
        _ => TLS,
    };
    format!("use `{instead}` for encryption")
}

impl Reader<'_> {
    fn tls(self, address: &Address, query: &[Pair<'_>]) -> Option<Tls> {
        let tls = find(query, TLS);
        let chosen = match tls.map(|pair| pair.value.as_str()) {
            None if is_of_this_machine(address) => Tls::Off,
            None | Some("required") => Tls::Required,
            Some("off") => Tls::Off,
            Some("verified") => self.verified(query)?,
            Some(other) => {
                let place = tls.map_or(0..0, |pair| pair.place.clone());
                return self.report(place, "unknown `tls` in `url`", help_for_value(other));
            }
        };
        let unverified = matches!(chosen, Tls::Off | Tls::Required);
        if let Some(pair) = find(query, AUTHORITIES).or_else(|| find(query, FINGERPRINT))
            && unverified
        {
            let message = format!("`{}` verifies nothing here", pair.key);
            return self.report(pair.place.clone(), message, "add `tls=verified`");
        }
        if let (Address::Socket(_), Protocol::PostgreSql, Some(pair)) =
            (address, self.system.facts().protocol, tls)
            && chosen != Tls::Off
        {
            let help = "leave `tls` out: nothing leaves this machine";
            let message = "PostgreSQL does not encrypt connections through a socket";
            return self.report(pair.place.clone(), message, help);
        }
        Some(chosen)
    }

    /// `tls=verified`, with what the server's certificate is compared to.
    fn verified(self, query: &[Pair<'_>]) -> Option<Tls> {
        let authorities = find(query, AUTHORITIES);
        let Some(pair) = find(query, FINGERPRINT) else {
            let authorities = match authorities {
                Some(pair) => Some(self.absolute(pair, AUTHORITIES)?),
                None => None,
            };
            return Some(Tls::Verified { authorities });
        };
        if authorities.is_some() {
            let help = format!("remove one: with `{FINGERPRINT}` only that certificate is valid");
            let message = "`url` has authorities and a fingerprint";
            return self.report(pair.place.clone(), message, help);
        }
        match pair.value.parse() {
            Ok(fingerprint) => Some(Tls::Pinned { fingerprint }),
            Err(error) => {
                let help = format!(
                    "{error}; print it on the server with `openssl x509 -noout -fingerprint \
                     -sha256 -in FILE`"
                );
                let message = format!("`{FINGERPRINT}` is not a fingerprint");
                self.report(pair.place.clone(), message, help)
            }
        }
    }

    /// The file with the server's public key.
    fn server_public_key(
        self,
        address: &Address,
        tls: &Tls,
        query: &[Pair<'_>],
    ) -> Option<Option<PathBuf>> {
        let Some(pair) = find(query, PUBLIC_KEY) else { return Some(None) };
        let help = match (address, tls) {
            (Address::Tcp { .. }, Tls::Off) => return self.absolute(pair, PUBLIC_KEY).map(Some),
            (Address::Socket(_), _) => "remove it: passwords are safe on a socket",
            (Address::Tcp { .. }, Tls::Required) => "add `tls=off`, or verify with `tls=verified`",
            (Address::Tcp { .. }, Tls::Verified { .. } | Tls::Pinned { .. }) => {
                "remove it: passwords are safe with `tls=verified`"
            }
        };
        let message = format!("`{PUBLIC_KEY}` applies to TCP without TLS only");
        self.report(pair.place.clone(), message, help)
    }
}

/// Help for an unknown value of `tls`. The systems' own clients have these names for verification.
fn help_for_value(value: &str) -> String {
    let name = value.to_ascii_lowercase().replace('_', "-");
    match name.as_str() {
        "verify-ca" | "verify-full" | "verify-identity" => "write `tls=verified`".to_owned(),
        _ => did_you_mean(value, &["off", "required", "verified"]),
    }
}

/// Whether traffic to this address stays on this machine.
pub fn is_of_this_machine(address: &Address) -> bool {
    match address {
        Address::Socket(_) => true,
        Address::Tcp { host, .. } => {
            host.eq_ignore_ascii_case("localhost")
                || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidate_name_is_converted_to_an_identifier() {
        assert_eq!(default_for("production"), "dbdyno_production");
        assert_eq!(default_for("8.0-Prod+x"), "dbdyno_8_0_prod_x");
    }
}
