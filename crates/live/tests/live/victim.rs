//! Programs that are compiled, started, changed while they run, and that check themselves.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program compiled for one test.
pub struct Program {
    pub path: PathBuf,
    state: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Program {
    /// Compiles `tests/victims/NAME`.
    pub fn compile(name: &str, compiler: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("victim");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims").join(name);
        let status = Command::new(compiler)
            .args(flags)
            .args(["-pthread", "-o"])
            .arg(&path)
            .arg(&source)
            .status()
            .unwrap_or_else(|error| {
                panic!("{compiler}: {error}; install the Debian packages gcc, g++ and clang")
            });
        assert!(status.success(), "{compiler} {flags:?} {name}");
        let state = directory.path().join("state");
        Self { path, state, _directory: Some(directory) }
    }

    /// One that another test has compiled.
    pub fn at(path: PathBuf, state: PathBuf) -> Self {
        Self { path, state, _directory: None }
    }

    /// A directory for journals.
    pub fn state(&self) -> PathBuf {
        self.state.clone()
    }

    /// Address in the file and size of each function with such a name.
    pub fn functions(&self, start: &str) -> Vec<(u64, u64)> {
        let output = Command::new("nm").arg("-S").arg(&self.path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut found: Vec<(u64, u64)> = text
            .lines()
            .filter_map(|line| {
                let fields: Vec<&str> = line.split(' ').collect();
                let [address, size, "t" | "T", name] = fields[..] else { return None };
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                name.starts_with(start).then(|| (number(address), number(size)))
            })
            .collect();
        found.sort_unstable();
        found
    }

    pub fn start(&self) -> Victim {
        let mut child =
            Command::new(&self.path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut victim = Victim { child, input, output };
        assert_eq!(victim.line(), "ready");
        victim
    }
}

/// A running program. Ends when dropped.
pub struct Victim {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Victim {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes numbers; the child is ours and has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid().cast_signed(), signal) }, 0);
    }

    /// Stops it, and waits until all its threads stand: a signal only asks for that.
    pub fn stand_still(&self) {
        self.signal(libc::SIGSTOP);
        let stands = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        let tasks = || fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().flatten();
        let start = Instant::now();
        while !tasks().all(stands) {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks it for a sign of life.
    pub fn is_well(&mut self) {
        let answer = self.ask(b'?');
        assert!(answer.starts_with("alive"), "{answer:?}");
    }

    /// Has it split off a process that goes on by itself; returns that one's number.
    pub fn split_off(&mut self) -> u32 {
        let answer = self.ask(b'f');
        let number = answer.strip_prefix("child ").and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{answer:?}"))
    }

    /// From now on a wait may end with EINTR.
    pub fn may_be_disturbed(&mut self) {
        self.ask(b'd');
    }

    /// Has it do something; returns its answer.
    pub fn ask(&mut self, what: u8) -> String {
        self.input.as_mut().unwrap().write_all(&[what]).unwrap();
        self.line()
    }

    /// Has the thread go on that hangs.
    pub fn goes_on(&mut self) {
        self.input.as_mut().unwrap().write_all(b"g").unwrap();
        self.line();
    }

    /// Has it check everything once more and end.
    pub fn end(mut self) {
        self.is_well();
        self.input = None;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status, ExitStatus::default(), "{status}");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
