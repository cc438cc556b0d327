//! Fetching of sources and releases with tools.

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::io::{FdFlags, fcntl_setfd};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::archive::{self, TAR};
use crate::command::{Running, network_command, quote_command, wait};
use crate::compiler::is_installed;
use crate::download::{Access, CURL, Checksum, Download, verified};
use crate::error::{io_error, last_lines};
use crate::store::{Check, Entry, Held, Lock, Lookup, Query, Sharing, listed};
use crate::{BuildError, Cache, ProblemKind, Sha256, trusted_tree};

/// The context of fetching one source or release.
pub(crate) struct Fetching<'a> {
    /// What is fetched: `the source of PostgreSQL, ORIGIN`.
    pub(crate) what: &'a str,
    /// Where it is from, for progress messages.
    pub(crate) origin: &'a str,
    /// The working directory, for exclusive use.
    pub(crate) part: &'a Path,
    /// The lock of the source or release, held while fetching.
    pub(crate) lock: &'a Lock,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) report: &'a (dyn Fn(String) + Sync),
}

/// A required program, and the Debian package that contains it.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

impl Tool {
    pub(crate) fn missing(&self, purpose: impl Display) -> BuildError {
        BuildError::missing_tool(self.program, purpose, self.package)
    }

    pub(crate) fn is_installed(&self) -> bool {
        is_installed(self.program)
    }

    /// The error of starting it for a purpose.
    pub(crate) fn cannot_start(&self, purpose: &str, error: &io::Error) -> BuildError {
        match error.kind() {
            io::ErrorKind::NotFound => self.missing(purpose),
            _ => BuildError::io("starting", Path::new(self.program), error),
        }
    }
}

/// The directory of the files in an entry of the cache that was fetched.
pub(crate) const TREE: &str = "tree";

/// A source or a release that is fetched once and then used from the cache without a network.
pub(crate) struct Fetched<'a> {
    pub(crate) entry: Entry,
    /// What is fetched: `the source of PostgreSQL, ORIGIN`.
    pub(crate) what: String,
    pub(crate) origin: String,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) report: &'a (dyn Fn(String) + Sync),
}

impl Fetched<'_> {
    /// Returns it; fetches it if there is none in the cache that passes `check`. `unpack` returns
    /// its directory; `describe` gets the directory without permissions and the removed files.
    pub(crate) fn obtain<D: Serialize + DeserializeOwned, T>(
        self,
        check: Check<'_, D>,
        unpack: impl FnOnce(&Fetching<'_>) -> Result<(PathBuf, T), BuildError>,
        describe: impl FnOnce(T, &Path, &[PathBuf]) -> Result<D, BuildError>,
    ) -> Result<Held<D>, BuildError> {
        let Self { entry, what, origin, cancel, report } = self;
        let query = Query {
            check,
            cancel,
            on_wait: &|| {
                report(format!("waiting for another dbdyno process that fetches or uses {origin}"));
            },
            on_invalid: &|reason| report(format!("preparing {origin} again, because {reason}")),
        };
        let making = match entry.lookup(&query)? {
            Lookup::Found(held) => return Ok(held),
            Lookup::Cancelled => return Err(BuildError::Cancelled { what }),
            Lookup::Missing(making) => making,
        };
        let (part, lock) = (making.begin()?, making.lock());
        let (what, origin) = (what.as_str(), origin.as_str());
        let fetching = Fetching { what, origin, part: &part, lock, cancel, report };
        let (inside, unpacked) = unpack(&fetching)?;
        let left_out = trusted_tree::discard_permissions(&inside)
            .map_err(io_error("setting permissions in", &inside))?;
        let about = describe(unpacked, &inside, &left_out)?;
        let entry = part.join("entry");
        fs::create_dir(&entry)
            .and_then(|()| fs::rename(&inside, entry.join(TREE)))
            .map_err(io_error("finishing", &entry))?;
        making.publish(&entry, about)
    }
}

impl Fetching<'_> {
    pub(crate) fn run(
        &self,
        tool: Tool,
        doing: &str,
        dir: &Path,
        args: &[&str],
    ) -> Result<String, BuildError> {
        self.run_watched(tool, doing, (dir, None), args, || ControlFlow::Continue(()))
    }

    /// Calls `watch` again and again meanwhile, which may end it: that is reported as cancelled. The tool inherits a file,
    /// under the same number.
    pub(crate) fn run_watched(
        &self,
        tool: Tool,
        doing: &str,
        (dir, inherited): (&Path, Option<BorrowedFd<'_>>),
        args: &[&str],
        watch: impl FnMut() -> ControlFlow<()>,
    ) -> Result<String, BuildError> {
        let output = self.part.join("output.txt");
        let log = File::create(&output).map_err(io_error("writing", &output))?;
        let start = || -> io::Result<_> {
            let mut command = network_command(tool.program);
            // git fails instead of asking for a password.
            command.args(args).current_dir(dir).env("GIT_TERMINAL_PROMPT", "0");
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command.stdin(self.lock.as_stdin()?).stdout(log.try_clone()?).stderr(log.try_clone()?);
            if let Some(file) = inherited.map(|file| file.as_raw_fd()) {
                // SAFETY: fcntl is async-signal-safe, and the file stays open until the tool has been started.
                unsafe {
                    command.pre_exec(move || {
                        Ok(fcntl_setfd(BorrowedFd::borrow_raw(file), FdFlags::empty())?)
                    });
                }
            }
            Running::start(command)
        };
        let running = start().map_err(|error| tool.cannot_start(doing, &error))?;
        let status = wait(running, self.cancel, watch)
            .map_err(io_error("waiting for", Path::new(tool.program)))?;
        let text = fs::read(&output).map_err(io_error("reading", &output))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let Some(status) = status else {
            return Err(BuildError::cancelled(self.what));
        };
        if status.success() {
            return Ok(text);
        }
        if ["No space left on device", "Disk quota exceeded", "curl: (23)"]
            .iter()
            .any(|sign| text.contains(sign))
        {
            let full = io::ErrorKind::StorageFull.into();
            return Err(BuildError::io(format!("{doing} for {} in", self.what), self.part, &full));
        }
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Err(self.failed(
            doing,
            format!(
                "{status}\ncommand: {}\nmessage:\n{}",
                shortened(quote_command(Path::new(tool.program), &args)),
                last_lines(&text)
            ),
            advice(&text),
        ))
    }

    /// An error about what is fetched, with advice.
    pub(crate) fn failed(
        &self,
        doing: &str,
        reason: impl Into<String>,
        advice: impl Into<String>,
    ) -> BuildError {
        let what = format!("{doing} failed for {}: {}", self.what, reason.into());
        BuildError::new(ProblemKind::Fetching, what, advice)
    }

    /// Waits for a lock that several sources or releases share.
    pub(crate) fn lock_shared(&self, path: &Path, purpose: &str) -> Result<Lock, BuildError> {
        let waiting = || (self.report)(format!("waiting for another dbdyno process to {purpose}"));
        Lock::wait_unless(path, Sharing::Exclusive, self.cancel, waiting)?
            .ok_or_else(|| BuildError::cancelled(self.what))
    }

    /// Locks the package lists `name` of a Debian release.
    pub(crate) fn lock_lists(
        &self,
        cache: &Cache,
        name: &str,
        what: &str,
    ) -> Result<Lock, BuildError> {
        self.lock_shared(&cache.lists_lock(name), &format!("list {what}"))
    }
}

/// A command that fits into a few lines: one that names a hundred packages does not.
fn shortened(command: String) -> String {
    const MOST: usize = 500;
    match command.char_indices().nth(MOST) {
        None => command,
        Some((end, _)) => format!("{} …", &command[..end]),
    }
}

/// Advice for the user, from a tool's output.
fn advice(text: &str) -> &'static str {
    let no_network = [
        "Could not resolve",
        "Couldn't connect",
        "Failed to connect",
        "Temporary failure",
        "Network is unreachable",
        "Connection refused",
        "No route to host",
        "timed out",
        "Could not connect",
        "Unable to connect",
    ];
    if no_network.iter().any(|sign| text.contains(sign)) {
        return "no network connection? If you need a proxy, set http_proxy and https_proxy. What \
                is in the cache does not require a network";
    }
    let untrusted = ["SSL certificate problem", "ertificate verification failed"];
    if untrusted.iter().any(|sign| text.contains(sign)) {
        return "the server's certificate is not trusted: is the package ca-certificates installed, and \
                the clock right?";
    }
    if text.contains("error: 403") || text.contains("403  Forbidden") {
        return "the server refuses access: check the address, and whether it needs a password";
    }
    if text.contains("404") {
        return "the server does not have it: check the name and the version";
    }
    "run the command manually"
}

/// The tools that are needed.
pub(crate) const ARCHIVE_TOOLS: [Tool; 2] = [CURL, TAR];

/// Downloads the archive if necessary, verifies its checksum and unpacks it. Returns the directory
/// with the content and the checksum.
pub(crate) fn unpack_archive(
    fetching: &Fetching<'_>,
    location: &str,
    expected: Option<Sha256>,
    cache: &Cache,
) -> Result<(PathBuf, Sha256), BuildError> {
    let expected = expected.map(Checksum::from);
    let inside = fetching.part.join("inside");
    let sha256 = if is_url(location) {
        let Some(checksum) = &expected else {
            return Err(fetching.failed(
                "downloading it",
                "no checksum is named for it",
                "add its `sha256`: what is downloaded and executed must be known",
            ));
        };
        let download = Download { url: location, checksum, access: &Access::default() };
        let (file, sha256) = download.obtain(fetching, cache)?;
        archive::unpack(fetching, &file, &inside)?;
        sha256
    } else {
        let file = copy_archive(Path::new(location), fetching.part)?;
        let sha256 = verified(fetching, &file, expected.as_ref())?;
        archive::unpack(fetching, &file, &inside)?;
        fs::remove_file(&file).map_err(io_error("removing", &file))?;
        sha256
    };
    Ok((only_folder(&inside), sha256))
}

/// Copies a local archive to `part`: whoever can change it could do so between its check and its use.
fn copy_archive(location: &Path, part: &Path) -> Result<PathBuf, BuildError> {
    let copy = part.join("archive");
    let copied = File::open(location)
        .and_then(|mut archive| io::copy(&mut archive, &mut File::create_new(&copy)?));
    copied.map_err(io_error("reading the archive", location))?;
    Ok(copy)
}

/// Checks that the archive that was unpacked is still the one at its location. A local file without
/// an expected checksum may have been replaced; one that does not exist any more has not.
pub(crate) fn check_archive(
    location: &str,
    expected: Option<Sha256>,
    unpacked: &str,
) -> Result<(), String> {
    if is_url(location) || expected.is_some() {
        return Ok(());
    }
    match Sha256::of_file(Path::new(location)) {
        Ok(sha256) if sha256.to_string() != unpacked => Err("the archive has changed".to_owned()),
        _ => Ok(()),
    }
}

fn is_url(location: &str) -> bool {
    location.contains("://")
}

/// The only directory at the top level of an archive; if there is not exactly one, the archive
/// itself.
fn only_folder(inside: &Path) -> PathBuf {
    let paths: Vec<PathBuf> = listed(inside).collect();
    match &paths[..] {
        [only] if only.is_dir() && !only.is_symlink() => only.clone(),
        _ => inside.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_depends_on_what_the_server_answered() {
        let git = |reason: &str| advice(&format!("fatal: unable to access 'https://x/': {reason}"));
        assert!(git("Could not resolve host: x").contains("no network connection?"));
        assert!(git("The requested URL returned error: 403").contains("refuses access"));
        assert!(git("server certificate verification failed.").contains("ca-certificates"));
        assert!(git("The requested URL returned error: 404").contains("does not have it"));
    }

    #[test]
    fn missing_tool_error_names_package() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::try_now(&dir.path().join("lock")).unwrap().unwrap();
        let fetching = Fetching {
            what: "the source of PostgreSQL",
            origin: "",
            part: dir.path(),
            lock: &lock,
            cancel: &AtomicBool::new(false),
            report: &|_| {},
        };
        let tool = Tool { program: "dbdyno-no-such-tool", package: "some-package" };
        let error = fetching.run(tool, "unpacking it", dir.path(), &[]).unwrap_err().to_string();
        assert_eq!(
            error,
            "program dbdyno-no-such-tool not found, required for unpacking it; apt-get \
             install some-package"
        );
    }
}
