//! Test programs that check themselves while they are changed.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A compiled test program.
pub struct Program {
    pub path: PathBuf,
    state: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Program {
    /// A copy of `tests/victims/NAME`, compiled: the kernel knows probes by the file.
    pub fn compile(name: &str, compiler: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("victim");
        // By another process: one that a test starts meanwhile would inherit the open file, and a
        // program that somebody may write to cannot be executed.
        let copied = Command::new("cp").arg(compiled(name, compiler, flags)).arg(&path).status();
        assert!(copied.unwrap().success());
        let state = directory.path().join("state");
        Self { path, state, _directory: Some(directory) }
    }

    /// A program compiled by another test process.
    pub fn at(path: PathBuf, state: PathBuf) -> Self {
        Self { path, state, _directory: None }
    }

    pub fn state(&self) -> PathBuf {
        self.state.clone()
    }

    /// Address in the file and size of each function whose name has this prefix.
    pub fn functions(&self, prefix: &str) -> Vec<(u64, u64)> {
        let output = Command::new("nm").arg("-S").arg(&self.path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut found: Vec<(u64, u64)> = text
            .lines()
            .filter_map(|line| {
                let fields: Vec<&str> = line.split(' ').collect();
                let [address, size, "t" | "T", name] = fields[..] else { return None };
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                name.starts_with(prefix).then(|| (number(address), number(size)))
            })
            .collect();
        found.sort_unstable();
        found
    }

    pub fn start(&self) -> Victim {
        self.start_if_supported().expect("the program supports this machine")
    }

    /// `None` if the program needs what this machine does not have.
    pub fn start_if_supported(&self) -> Option<Victim> {
        let mut child =
            Command::new(&self.path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut victim = Victim { child, input, output };
        match &*victim.line() {
            "ready" => Some(victim),
            "unsupported" => None,
            other => panic!("{other:?}"),
        }
    }
}

/// The compiled program, which is kept for later tests.
fn compiled(name: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims");
    let mut files: Vec<PathBuf> =
        fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    let mut key = DefaultHasher::new();
    (name, compiler, flags).hash(&mut key);
    files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut key));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("victims");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{:016x}", key.finish()));
    if path.exists() {
        return path;
    }
    // Another test may compile it at the same time.
    let part = tempfile::tempdir_in(&directory).unwrap();
    let output = part.path().join("victim");
    let status = Command::new(compiler)
        .args(flags)
        .args(["-pthread", "-o"])
        .arg(&output)
        .arg(sources.join(name))
        .status()
        .unwrap_or_else(|error| {
            panic!("{compiler}: {error}; install the Debian packages gcc, g++ and clang")
        });
    assert!(status.success(), "{compiler} {flags:?} {name}");
    fs::rename(&output, &path).unwrap();
    path
}

/// A running test program, killed on drop.
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

    /// Stops it and waits until all threads are stopped.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        let tasks = || fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().flatten();
        let start = Instant::now();
        while !tasks().all(is_stopped) {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks that it responds.
    pub fn assert_alive(&mut self) {
        self.tell(b'?');
        self.expect_alive();
    }

    /// Makes it fork a process. Returns the process ID.
    pub fn fork(&mut self) -> u32 {
        let answer = self.ask(b'f');
        let number = answer.strip_prefix("child ").and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{answer:?}"))
    }

    /// Makes it accept that a wait fails with EINTR.
    pub fn accept_eintr(&mut self) {
        self.ask(b'd');
    }

    /// Sends a command and returns the response.
    pub fn ask(&mut self, what: u8) -> String {
        self.tell(what);
        self.line()
    }

    /// Sends a command without waiting for the response.
    pub fn tell(&mut self, what: u8) {
        self.input.as_mut().unwrap().write_all(&[what]).unwrap();
    }

    /// Waits for a response, which must be that all is well.
    pub fn expect_alive(&mut self) {
        let answer = self.line();
        assert!(answer.starts_with("alive"), "{answer:?}");
    }

    /// Makes the hanging thread continue.
    pub fn end_hang(&mut self) {
        self.input.as_mut().unwrap().write_all(b"g").unwrap();
        self.line();
    }

    /// Makes it check everything again and exit.
    pub fn end(mut self) {
        self.assert_alive();
        self.input = None;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < Duration::from_secs(120), "it does not exit");
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
