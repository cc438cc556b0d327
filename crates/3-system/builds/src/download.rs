//! Downloads with curl: archives with a known checksum, which are kept, and short answers.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use dbdyno_units::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};
use sha2::Digest;

use crate::error::io_error;
use crate::fetching::{Fetching, Tool};
use crate::store::remove;
use crate::trusted_tree::open_folder;
use crate::{BuildError, Cache, Sha256};

pub(crate) const CURL: Tool = Tool { program: "curl", package: "curl" };

/// What all downloads have in common: an error for any answer but the file, and an end if nothing comes or too much
/// does.
const ALWAYS: [&str; 15] = [
    "--fail",
    "--location",
    "--proto-redir",
    "=http,https",
    // `[1-9]` is part of an address, not a list of them.
    "--globoff",
    "--silent",
    "--show-error",
    "--retry",
    "2",
    "--connect-timeout",
    "60",
    // Bytes per second, for so many seconds.
    "--speed-limit",
    "1000",
    "--speed-time",
    "120",
];

/// The most that an archive may have.
const MOST_OF_ARCHIVE: Bytes = Bytes::from_mib(8 << 10);

/// How often the size of what was downloaded is told.
const BETWEEN_REPORTS: Duration = Duration::from_secs(10);

/// How long a short answer may take, in seconds.
const TIME_OF_ANSWER: &str = "300";

/// The checksum that a file must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    of: Algorithm,
    /// Lowercase hexadecimal digits.
    hex: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha256,
    Sha512,
    Sha1,
}

impl Algorithm {
    /// The best ones first.
    pub(crate) const ALL: [Self; 3] = [Self::Sha256, Self::Sha512, Self::Sha1];

    /// The name, with which files of checksums end.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
            Self::Sha1 => "sha1",
        }
    }

    const fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
            Self::Sha1 => 40,
        }
    }
}

impl Checksum {
    /// The checksum with these digits at the start of a text, which may continue with the name of the file.
    pub(crate) fn from_text(of: Algorithm, text: &str) -> Option<Self> {
        let hex = text.split_whitespace().next()?.to_ascii_lowercase();
        let is_valid = hex.len() == of.digits() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_valid.then_some(Self { of, hex })
    }

    /// The best checksum of an integrity as browsers and npm write it: `sha512-BASE64 sha1-BASE64`.
    pub(crate) fn from_integrity(text: &str) -> Option<Self> {
        Algorithm::ALL.into_iter().find_map(|of| {
            let mut words = text.split_whitespace();
            let coded = words.find_map(|word| word.strip_prefix(of.name())?.strip_prefix('-'))?;
            // Options may follow.
            let coded = coded.split('?').next()?;
            Self::from_text(of, &hex(&BASE64_STANDARD.decode(coded).ok()?))
        })
    }

    /// Reads a file; its SHA-256 is known already.
    fn of_file(of: Algorithm, file: &Path, sha256: &Sha256) -> io::Result<Self> {
        let hex = match of {
            Algorithm::Sha256 => sha256.to_string(),
            Algorithm::Sha512 => {
                let mut hasher = sha2::Sha512::new();
                each_part(file, |part| hasher.update(part))?;
                hex(&hasher.finalize())
            }
            Algorithm::Sha1 => {
                let mut hasher = <sha1::Sha1 as sha1::Digest>::new();
                each_part(file, |part| sha1::Digest::update(&mut hasher, part))?;
                hex(&sha1::Digest::finalize(hasher))
            }
        };
        Ok(Self { of, hex })
    }

    /// The name of the file in the cache.
    fn file_name(&self) -> String {
        match self.of {
            Algorithm::Sha256 => self.hex.clone(),
            of => format!("{}-{}", of.name(), self.hex),
        }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex)
    }
}

impl From<Sha256> for Checksum {
    fn from(sha256: Sha256) -> Self {
        Self { of: Algorithm::Sha256, hex: sha256.to_string() }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn each_part(file: &Path, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut file, mut buffer) = (File::open(file)?, vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => each(&buffer[..count]),
        }
    }
}

/// A password or token for a server. curl inherits it in memory, because all users can see the arguments of commands.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Access(Option<String>);

/// Without the password.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Access(…)" } else { "Access" })
    }
}

impl Access {
    pub(crate) fn of_user(user: &str, password: &str) -> Self {
        Self(Some(setting("user", &format!("{user}:{password}"))))
    }

    /// With the value of the header `Authorization`.
    pub(crate) fn authorization(value: &str) -> Self {
        Self(Some(setting("header", &format!("Authorization: {value}"))))
    }

    /// A configuration for curl, in memory: a file would stay after a kill. `None` without access.
    fn config(&self) -> Result<Option<File>, BuildError> {
        let Some(setting) = &self.0 else { return Ok(None) };
        let write = || -> io::Result<File> {
            let mut memory = File::from(memfd_create("curl", MemfdFlags::CLOEXEC)?);
            memory.write_all(setting.as_bytes())?;
            Ok(memory)
        };
        write()
            .map(Some)
            .map_err(io_error("writing", Path::new("a configuration for curl in memory")))
    }
}

/// Runs curl, which writes to `file`, with this access. It is ended if the file has more than `most`: curl itself does not
/// know how long an answer in parts will be. `each` gets the size again and again.
fn run_curl(
    fetching: &Fetching<'_>,
    doing: &str,
    (access, args): (&Access, &[&str]),
    (file, most): (&Path, Bytes),
    mut each: impl FnMut(Bytes),
) -> Result<(), BuildError> {
    let config = access.config()?;
    let path = config.as_ref().map(|config| format!("/proc/self/fd/{}", config.as_raw_fd()));
    let of_access: Vec<&str> = path.iter().flat_map(|path| ["--config", path.as_str()]).collect();
    let (name, limit) = (file.to_string_lossy(), most.as_bytes().to_string());
    let always = ["--max-filesize", &limit, "--output", &name];
    let args = [&ALWAYS[..], &always, &of_access, args].concat();
    let size = || Bytes::from_bytes(fs::metadata(file).map_or(0, |meta| meta.len()));
    let watch = || {
        let now = size();
        each(now);
        if now > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let inherited = config.as_ref().map(File::as_fd);
    let result = fetching.run_watched(CURL, doing, (fetching.part, inherited), &args, watch);
    if size() > most {
        remove(file).map_err(io_error("removing", file))?;
        return Err(fetching.failed(
            doing,
            format!("it has more than {most}"),
            "check the address",
        ));
    }
    result.map(drop)
}

/// A line of a configuration of curl.
fn setting(name: &str, value: &str) -> String {
    let value: String = value.chars().filter(|c| !c.is_control()).collect();
    format!("{name} = \"{}\"\n", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// An archive to download.
pub(crate) struct Download<'a> {
    pub(crate) url: &'a str,
    pub(crate) checksum: &'a Checksum,
    pub(crate) access: &'a Access,
}

impl Download<'_> {
    /// Downloads it unless the cache has it. Returns the file, which has the checksum, and its SHA-256.
    pub(crate) fn obtain(
        &self,
        fetching: &Fetching<'_>,
        cache: &Cache,
    ) -> Result<(PathBuf, Sha256), BuildError> {
        let file = self.file(fetching, cache)?;
        let verified = verified(fetching, &file, Some(self.checksum));
        if verified.is_err() {
            // A file with the wrong checksum must not be reused.
            let _ = fs::remove_file(&file);
        }
        Ok((file, verified?))
    }

    fn file(&self, fetching: &Fetching<'_>, cache: &Cache) -> Result<PathBuf, BuildError> {
        let downloads = cache.root().join("downloads");
        open_folder(&downloads).map_err(io_error("creating", &downloads))?;
        // Sources and releases from several origins may have the same archive.
        let (url, name) = (self.url, self.checksum.file_name());
        let path = cache.download_lock(&name);
        let lock = fetching.lock_shared(&path, &format!("download {url}"))?;
        let file = downloads.join(&name);
        if file.is_file() {
            return Ok(file);
        }
        (fetching.report)(format!("downloading {url}"));
        let part = downloads.join(format!("{name}.part"));
        let size = || fs::metadata(&part).map(|meta| meta.len()).ok();
        // curl also holds the lock, in case dbdyno is killed.
        let fetching = Fetching { lock: &lock, ..*fetching };
        let run = |how: &[&str]| {
            let args = [how, &["--url", url]].concat();
            let mut told = Instant::now();
            let tell = |bytes| {
                if told.elapsed() >= BETWEEN_REPORTS {
                    told = Instant::now();
                    (fetching.report)(format!("{bytes} downloaded"));
                }
            };
            let into = (part.as_path(), MOST_OF_ARCHIVE);
            run_curl(&fetching, "downloading it", (self.access, &args), into, tell)
        };
        // Continues an interrupted download.
        let before = size();
        match run(&["--continue-at", "-"]) {
            Err(error) if error.is_fetching("") && before.is_some() && size() == before => {
                // The server does not send parts of files. curl replaces the file when the first data
                // arrives, so it is kept if there is no connection.
                run(&[])?
            }
            other => other?,
        };
        fs::rename(&part, &file).map_err(io_error("renaming", &part))?;
        Ok(file)
    }
}

/// The SHA-256 of an archive, which must have this checksum.
pub(crate) fn verified(
    fetching: &Fetching<'_>,
    file: &Path,
    expected: Option<&Checksum>,
) -> Result<Sha256, BuildError> {
    let sha256 = Sha256::of_file(file).map_err(io_error("reading the archive", file))?;
    let Some(expected) = expected else { return Ok(sha256) };
    let found = Checksum::of_file(expected.of, file, &sha256);
    let found = found.map_err(io_error("reading the archive", file))?;
    if found == *expected {
        return Ok(sha256);
    }
    Err(fetching.failed(
        "checking it",
        format!("its checksum is {found}, and {expected} was expected"),
        "the archive is another one than you thought, or damaged: compare with what its makers \
         publish",
    ))
}

/// A short answer of a server.
pub(crate) struct Question<'a> {
    pub(crate) url: &'a str,
    pub(crate) access: &'a Access,
    /// The value of the header `Accept`.
    pub(crate) accept: &'a str,
    /// The most that the answer may have.
    pub(crate) most: Bytes,
}

impl Question<'_> {
    /// The answer; `None` if the server does not have it.
    pub(crate) fn ask(
        &self,
        fetching: &Fetching<'_>,
        doing: &str,
    ) -> Result<Option<Vec<u8>>, BuildError> {
        let file = fetching.part.join("answer");
        remove(&file).map_err(io_error("removing", &file))?;
        let accept = format!("Accept: {}", self.accept);
        let args = ["--max-time", TIME_OF_ANSWER, "--header", &accept, "--url", self.url];
        match run_curl(fetching, doing, (self.access, &args), (&file, self.most), |_| {}) {
            // The first is said of a server, the second of a directory.
            Err(error)
                if ["error: 404", "curl: (37)"].iter().any(|sign| error.is_fetching(sign)) =>
            {
                return Ok(None);
            }
            answered => answered?,
        };
        let answer = fs::read(&file).map_err(io_error("reading", &file))?;
        Ok(Some(answer))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::store::Lock;

    #[test]
    fn checksums_are_read_as_registries_publish_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "abc").unwrap();
        let sha256 = Sha256::of(b"abc");
        let sha1 = Checksum::from_text(
            Algorithm::Sha1,
            "A9993E364706816ABA3E25717850C26C9CD0D89D  a.jar\n",
        );
        let of = |of| Checksum::of_file(of, file.path(), &sha256).unwrap();
        assert_eq!(sha1.unwrap(), of(Algorithm::Sha1));
        let integrity = "sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0= sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkp\
                         kqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==";
        let sha512 = of(Algorithm::Sha512);
        assert!(sha512.to_string().starts_with("ddaf35a1") && sha512.to_string().len() == 128);
        assert_eq!(Checksum::from_integrity(integrity), Some(sha512));
        for wrong in ["", "<html>", "abcd", "a9993e364706816aba3e25717850c26c9cd0d89g"] {
            assert_eq!(Checksum::from_text(Algorithm::Sha1, wrong), None, "{wrong}");
        }
        assert_eq!(Checksum::from_integrity("md5-AAAA sha512-AAAA"), None);
    }

    #[test]
    fn passwords_cannot_be_settings_of_curl() {
        let config = Access::of_user("me", "a\"b\\\nurl = x").config().unwrap().unwrap();
        let text = fs::read_to_string(format!("/proc/self/fd/{}", config.as_raw_fd())).unwrap();
        assert_eq!(text, "user = \"me:a\\\"b\\\\url = x\"\n");
        assert!(Access::default().config().unwrap().is_none());
    }

    #[test]
    fn password_reaches_the_server_and_no_file() {
        let (dir, listener) =
            (tempfile::tempdir().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let url = format!("http://{}/name", listener.local_addr().unwrap());
        let (part, is_cancelled) = (dir.path().to_owned(), AtomicBool::new(false));
        let server = thread::spawn(move || {
            let mut connection = listener.accept().unwrap().0;
            let lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let request: Vec<String> =
                lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            // While it waits for the answer.
            let files = fs::read_dir(&part).unwrap().map(|file| fs::read(file.unwrap().path()));
            let files = files.map(Result::unwrap).collect::<Vec<_>>().concat();
            connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            (request, String::from_utf8_lossy(&files).into_owned())
        });
        let lock = Lock::try_now(&dir.path().join("lock")).unwrap().unwrap();
        let fetching = Fetching {
            what: "a release",
            origin: "",
            part: dir.path(),
            lock: &lock,
            cancel: &is_cancelled,
            report: &|_| {},
        };
        let access = Access::of_user("me", "pw");
        let question =
            Question { url: &url, access: &access, accept: "*/*", most: Bytes::from_bytes(9) };
        assert_eq!(question.ask(&fetching, "asking").unwrap(), Some(b"ok".to_vec()));
        let (request, files) = server.join().unwrap();
        assert!(request.contains(&"Authorization: Basic bWU6cHc=".to_owned()), "{request:?}");
        assert!(!files.contains("pw"), "{files}");
    }
}
