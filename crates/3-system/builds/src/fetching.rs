//! Execution of the tools that fetch sources and releases.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::BuildError;
use crate::child::{Running, wait};
use crate::command::network_command;
use crate::failure::last_lines;
use crate::lock::Lock;
use crate::shell::quote_command;

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
    /// Receives progress messages.
    pub(crate) report: &'a (dyn Fn(String) + Sync),
}

/// A required program, and the Debian package that contains it.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

impl Fetching<'_> {
    /// Runs a tool in a directory and returns its output.
    pub(crate) fn run(
        &self,
        tool: Tool,
        doing: &str,
        dir: &Path,
        args: &[&str],
    ) -> Result<String, BuildError> {
        let output = self.part.join("output.txt");
        let log = File::create(&output).map_err(|e| BuildError::io("writing", &output, e))?;
        let start = || -> io::Result<_> {
            let mut command = network_command(tool.program);
            // git fails instead of asking for a password.
            command.args(args).current_dir(dir).env("GIT_TERMINAL_PROMPT", "0");
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command.stdin(self.lock.as_stdin()?).stdout(log.try_clone()?).stderr(log.try_clone()?);
            Ok(Running::new(command.process_group(0).spawn()?))
        };
        let running = start().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BuildError::MissingTool {
                tool: tool.program.to_owned(),
                purpose: doing.to_owned(),
                package: tool.package.to_owned(),
            },
            _ => BuildError::io("starting", Path::new(tool.program), error),
        })?;
        let status = wait(running, self.cancel, || {})
            .map_err(|error| BuildError::io("waiting for", Path::new(tool.program), error))?;
        let text = fs::read(&output).map_err(|e| BuildError::io("reading", &output, e))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let Some(status) = status else {
            return Err(BuildError::Cancelled { what: self.what.to_owned() });
        };
        if status.success() {
            return Ok(text);
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
        BuildError::Fetching {
            what: self.what.to_owned(),
            doing: doing.to_owned(),
            reason: reason.into(),
            advice: advice.into(),
        }
    }

    pub(crate) fn io(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
        let (doing, path): (String, PathBuf) = (doing.to_owned(), path.to_owned());
        move |error| BuildError::io(doing, &path, error)
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
        let lock = Lock::wait(&dir.path().join("lock")).unwrap();
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
            "program dbdyno-no-such-tool not found, required for unpacking it: apt-get \
             install some-package"
        );
    }
}
