//! dbdyno's side of a connection to an agent.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io, thread};

use dbdyno_drivers::verifier;
use dbdyno_engines::server::Network;
use dbdyno_machine::Signal;
use dbdyno_types::server::ServerSystem;
use dbdyno_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::protocol::{
    Answer, AnyRequest, HEARTBEAT, LONGEST_ANSWER, LOST_AFTER, Request, line_of,
};
use crate::ssh::{LibcVersion, MOST_PRINTED, Program};
use crate::{HostError, protocol, ssh};

const PASSWORD_BYTES: usize = 24;

/// How many requests and connections are timed.
const TIMED: u32 = 15;

/// Bytes that are read of what ssh and the agent printed.
const PRINTED_SHOWN: u64 = 8 << 10;

/// How long the last output of ssh is waited for.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an agent may take to remove everything at the end.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// How a host is reached.
#[derive(Clone, Copy, Debug)]
pub struct HostOptions<'a> {
    pub name: &'a str,
    /// The destination for ssh.
    pub ssh: &'a str,
    /// IP address or name that the load generator connects to.
    pub address: &'a str,
    /// CPUs for its servers; `None` for all.
    pub cpus: Option<&'a str>,
    /// Directory for data there; `None` for `/var/tmp`.
    pub directory: Option<&'a Path>,
    /// This program, which is copied to the host and runs there with the argument `agent`.
    pub program: &'a Path,
    /// A file for what ssh and the agent print; `None` for one without a name.
    pub log: Option<&'a Path>,
}

/// A connection to the agent on a host. When the last clone is dropped, the agent ends all servers there
/// and removes their data.
///
/// The kernel ends ssh when the thread that connected ends: connect on dbdyno's main thread.
#[derive(Clone, Debug)]
pub struct HostConnection(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    cpus: Option<String>,
    path: NetworkPath,
    password: Password,
    /// The version of its GNU C library.
    libc: LibcVersion,
    /// What ssh and the agent print.
    printed: File,
    timing: Timing,
    /// Held during a request; the answers come in the order of the requests.
    answers: Mutex<Receiver<Vec<u8>>>,
    link: Arc<Link>,
}

/// What the threads of a connection share.
#[derive(Debug)]
struct Link {
    child: Mutex<Child>,
    /// `None` after the end.
    requests: Mutex<Option<ChildStdin>>,
    heard: Mutex<Instant>,
    owed: Mutex<Owed>,
    /// Why the connection was lost, or was ended.
    lost: Mutex<Option<String>>,
    /// Processes that wait for servers on the host, killed when the connection is lost.
    dependents: Mutex<Vec<OwnedFd>>,
}

/// What an agent is still expected to send. It cannot fill the memory with anything else.
#[derive(Debug, Default)]
struct Owed {
    /// Requests without an answer.
    answers: u64,
    heartbeats: u64,
    /// Bytes of answers that nobody has read.
    unread: u64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostConnection {
    /// Copies dbdyno to the host, if it is not there, starts the agent, and measures how long answers
    /// take. The agent first ends what killed agents of this user left there.
    pub fn connect(options: &HostOptions<'_>) -> Result<Self, HostError> {
        let HostOptions { name, ssh: destination, address, .. } = *options;
        let address_error =
            |reason: String| HostError::on(name, format!("address {address}: {reason}"));
        let failed = |doing: &'static str| {
            move |error: io::Error| HostError::on(name, format!("{doing}: {error}"))
        };
        let password = Password::draw().map_err(failed("drawing a password"))?;
        let mut program = Program::open(options.program).map_err(failed("reading this program"))?;
        let libc = program.copy_to(name, destination)?;
        let path = NetworkPath::find(address).map_err(address_error)?;
        let starting = failed("starting the agent");
        let printed = open_log(options.log).map_err(starting)?;
        let script = program.start_script("agent");
        let (link, answers) = Link::start(destination, &script, &printed).map_err(starting)?;
        let mut shared = Shared {
            name: name.to_owned(),
            cpus: options.cpus.map(str::to_owned),
            path,
            password,
            libc,
            printed,
            timing: Timing { agent: Nanos::ZERO, network: Nanos::ZERO, clock_offset: 0 },
            answers: Mutex::new(answers),
            link,
        };
        let directory = shared.call(protocol::Open(options.directory.map(Path::to_owned)))?;
        tracing::info!(host = name, directory = %directory.display(), "started an agent");
        (shared.timing.agent, shared.timing.clock_offset) = shared.time_agent()?;
        let port = shared.call(protocol::Listen(path.host, TIMED))?;
        shared.timing.network = path.round_trip(port, TIMED).map_err(address_error)?;
        Ok(Self(Arc::new(shared)))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How long answers took when the connection was opened.
    pub fn timing(&self) -> Timing {
        self.0.timing
    }

    /// The password of the servers' accounts, for the environment of workers only.
    pub fn password(&self) -> &str {
        &self.0.password.0
    }

    /// Kills this child of dbdyno when the connection is lost: it would wait for a server that is gone. Its descriptor
    /// remains valid when it executes its program.
    pub fn kill_on_loss(&self, child: u32) {
        let child = Pid::from_raw(child.cast_signed());
        if let Some(Ok(process)) = child.map(|child| pidfd_open(child, PidfdFlags::empty())) {
            let mut dependents = lock(&self.0.link.dependents);
            dependents.retain(is_running);
            dependents.push(process);
        }
        if lock(&self.0.link.lost).is_some() {
            self.0.link.kill_dependents();
        }
    }

    /// The error if the connection is lost.
    pub fn lost(&self) -> Option<HostError> {
        let lost = lock(&self.0.link.lost).is_some();
        lost.then(|| self.0.lost())
    }

    pub(crate) fn cpus(&self) -> Option<String> {
        self.0.cpus.clone()
    }

    /// Where a server of this system listens, at a port that the agent chooses.
    pub(crate) fn network(&self, system: ServerSystem, tls: bool) -> Network {
        let NetworkPath { host, client } = self.0.path;
        let verifier = verifier(system, self.password());
        Network { address: host, port: 0, client, verifier, tls }
    }

    /// Checks that a program of this machine finds a C library there that is not too old.
    pub fn check_libc(&self, program: &Path) -> Result<(), HostError> {
        let needs = LibcVersion::needed_by(program)
            .map_err(|error| self.failed(format!("reading {} here: {error}", program.display())))?;
        if needs <= self.0.libc {
            return Ok(());
        }
        let (program, libc) = (program.display(), self.0.libc);
        Err(self.failed(format!(
            "its GNU C library is version {libc}, and {program} was compiled here for {needs}: compile \
             it on the older system, or install a program there"
        )))
    }

    /// An error about something on this host.
    pub fn failed(&self, reason: impl Display) -> HostError {
        HostError::on(self.name(), reason)
    }

    /// Sends a request, and waits for its reply.
    pub fn call<R: Request>(&self, request: R) -> Result<R::Reply, HostError> {
        self.0.call(request)
    }

    /// Sends requests without waiting for the replies in between. Returns the first error.
    pub(crate) fn call_all<R: Request<Reply = ()>>(
        &self,
        requests: Vec<R>,
    ) -> Result<(), HostError> {
        let answers = lock(&self.0.answers);
        let limits: Result<Vec<Duration>, _> =
            requests.into_iter().map(|request| self.0.send(request)).collect();
        let mut outcome = Ok(());
        for limit in limits? {
            match self.0.receive::<R>(&answers, limit) {
                Err(error) if error.is_lost() => return Err(error),
                received => outcome = outcome.and(received),
            }
        }
        outcome
    }

    /// Sends a request that has no answer.
    pub(crate) fn send(&self, request: impl Request) -> Result<(), HostError> {
        self.0.send(request).map(drop)
    }
}

impl Shared {
    fn call<R: Request>(&self, request: R) -> Result<R::Reply, HostError> {
        let answers = lock(&self.answers);
        let limit = self.send(request)?;
        self.receive::<R>(&answers, limit)
    }

    /// Sends a request, and returns how long its answer may take.
    fn send(&self, request: impl Request) -> Result<Duration, HostError> {
        let request = request.into();
        self.link.send(&request).map_err(|_| self.lost())?;
        Ok(request.time_limit().unwrap_or_default())
    }

    fn receive<R: Request>(
        &self,
        answers: &Receiver<Vec<u8>>,
        limit: Duration,
    ) -> Result<R::Reply, HostError> {
        let answer = answers.recv_timeout(limit).map_err(|error| {
            if error == RecvTimeoutError::Timeout {
                let seconds = limit.as_secs();
                self.link.lose(format!("the agent is alive, but has not answered for {seconds} s"));
            }
            self.lost()
        })?;
        lock(&self.link.owed).unread -= answer.len() as u64;
        match serde_json::from_slice(&answer) {
            Ok(Answer::Done(reply)) => Ok(reply),
            Ok(Answer::Failed(failed)) => Err(HostError::failed_on(&self.name, failed)),
            Ok(Answer::Alive) => unreachable!("it is not passed on"),
            Err(error) => {
                self.link.lose(format!("invalid answer: {error}"));
                Err(self.lost())
            }
        }
    }

    /// The error after a loss, with what ssh printed.
    fn lost(&self) -> HostError {
        let reason = lock(&self.link.lost).clone();
        let reason = reason.unwrap_or_else(|| "the agent does not read requests".to_owned());
        let printed = ssh::last_lines(&end_of(&self.printed));
        let reason = match printed.is_empty() {
            true => reason,
            false => format!("{reason} ({printed})"),
        };
        HostError::lost(&self.name, reason)
    }

    /// The median time of a request, and the difference of the clocks.
    fn time_agent(&self) -> Result<(Nanos, i64), HostError> {
        let mut timed = Vec::new();
        for _ in 0..TIMED {
            let (before, started) = (now(), Instant::now());
            let there = self.call(protocol::Time())?;
            let time = Nanos::from(started.elapsed());
            let here = before + time.as_nanos() / 2;
            timed.push((time, there.cast_signed().wrapping_sub(here.cast_signed())));
        }
        timed.sort_unstable();
        let first = timed.first().copied().unwrap_or_default();
        // The fastest answer tells most about the clock.
        Ok((timed.get(timed.len() / 2).copied().unwrap_or_default().0, first.1))
    }
}

/// The password of the servers' accounts for one connection to a host. It is drawn at random, never
/// stored, and passed only to the workers that log in.
struct Password(String);

impl Password {
    fn draw() -> io::Result<Self> {
        let mut bytes = [0; PASSWORD_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

impl Link {
    /// Starts ssh with an agent, and the threads that read its answers and send heartbeats.
    fn start(
        destination: &str,
        script: &str,
        printed: &File,
    ) -> io::Result<(Arc<Self>, Receiver<Vec<u8>>)> {
        let mut command = ssh::command(destination, script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let log = printed.try_clone()?;
        let mut child = command.spawn()?;
        let (requests, output) = (child.stdin.take(), child.stdout.take());
        let no_pipes = || io::Error::other("ssh has no pipes");
        let output = output.ok_or_else(no_pipes)?;
        let errors = child.stderr.take().ok_or_else(no_pipes)?;
        let link = Arc::new(Self {
            child: Mutex::new(child),
            requests: Mutex::new(requests),
            heard: Mutex::new(Instant::now()),
            owed: Mutex::default(),
            lost: Mutex::default(),
            dependents: Mutex::default(),
        });
        let (sender, receiver) = channel();
        let (reading, beating) = (Arc::clone(&link), Arc::downgrade(&link));
        let (logging, (is_logged, logged)) = (Arc::clone(&link), channel::<()>());
        thread::Builder::new().spawn(move || {
            logging.log(errors, log);
            drop(is_logged);
        })?;
        thread::Builder::new().spawn(move || {
            let reason = reading.read(BufReader::new(output), &sender);
            // With the last that ssh prints, unless something else keeps its output open.
            let _ = logged.recv_timeout(LOG_TIMEOUT);
            reading.lose(reason);
        })?;
        thread::Builder::new().spawn(move || beat(&beating))?;
        Ok((link, receiver))
    }

    /// Logs what ssh and the agent print, up to a limit.
    fn log(&self, errors: impl Read, mut log: File) {
        let mut errors = errors.take(MOST_PRINTED.as_bytes());
        if io::copy(&mut errors, &mut log).is_err() {
            // What cannot be logged is only missing in messages.
            let _ = io::copy(&mut errors, &mut io::sink());
        }
        if errors.limit() == 0 {
            self.lose(format!("ssh printed more than {MOST_PRINTED}"));
        }
    }

    /// Passes on answers until the end of the output. Returns why it ended.
    fn read(&self, mut output: impl BufRead, answers: &Sender<Vec<u8>>) -> String {
        // A login shell may print something before the first answer.
        let mut greeting = Some(MOST_PRINTED.as_bytes());
        let alive = line_of(&Answer::<()>::Alive).unwrap_or_default();
        loop {
            let mut line = Vec::new();
            match output.by_ref().take(LONGEST_ANSWER).read_until(b'\n', &mut line) {
                Ok(0) => break "ssh ended".to_owned(),
                Ok(_) if line.len() as u64 == LONGEST_ANSWER => {
                    break "an answer is too long".to_owned();
                }
                Ok(_) => {}
                Err(error) => break format!("reading from ssh: {error}"),
            }
            *lock(&self.heard) = Instant::now();
            let mut owed = lock(&self.owed);
            // Answers are read where they are waited for: a profile has megabytes.
            if Answer::starts(&line) && owed.answers > 0 {
                greeting = None;
                owed.answers -= 1;
                owed.unread += line.len() as u64;
                if owed.unread > LONGEST_ANSWER {
                    break "its answers are too long".to_owned();
                }
                if answers.send(line).is_err() {
                    break "it was ended".to_owned();
                }
            } else if line == alive && owed.heartbeats > 0 {
                owed.heartbeats -= 1;
            } else if let Some(left) = greeting {
                greeting = left.checked_sub(line.len() as u64);
            } else {
                break "invalid answer".to_owned();
            }
        }
    }

    fn lose(&self, reason: String) {
        lock(&self.lost).get_or_insert(reason);
        // An error means that ssh has already exited.
        let _ = lock(&self.child).kill();
        self.kill_dependents();
    }

    fn kill_dependents(&self) {
        for process in lock(&self.dependents).drain(..) {
            // One that cannot be signalled has ended.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }

    fn send(&self, request: &AnyRequest) -> io::Result<()> {
        let line = line_of(request)?;
        lock(&self.owed).answers += u64::from(request.time_limit().is_some());
        write_line(lock(&self.requests), &line)
    }

    /// Sends a heartbeat, unless a request is being sent, which may block until the connection is lost.
    fn beat(&self) -> io::Result<()> {
        let line = line_of(&AnyRequest::from(protocol::Heartbeat()))?;
        let requests = match self.requests.try_lock() {
            Ok(requests) => requests,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        lock(&self.owed).heartbeats += 1;
        write_line(requests, &line)
    }

    fn wait(&self, timeout: Duration) {
        let started = Instant::now();
        while matches!(lock(&self.child).try_wait(), Ok(None)) && started.elapsed() < timeout {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn write_line(mut requests: MutexGuard<'_, Option<ChildStdin>>, line: &[u8]) -> io::Result<()> {
    match &mut *requests {
        Some(requests) => requests.write_all(line),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Sends heartbeats while the connection is in use, and ends ssh if they are not answered.
fn beat(link: &Weak<Link>) {
    loop {
        thread::sleep(HEARTBEAT);
        let Some(link) = link.upgrade() else { return };
        if lock(&link.lost).is_some() || link.beat().is_err() {
            return;
        }
        if lock(&link.heard).elapsed() > LOST_AFTER {
            return link.lose(format!("no answer for {} s", LOST_AFTER.as_secs()));
        }
    }
}

/// The end of a log; empty if it cannot be read.
fn end_of(log: &File) -> String {
    let start = log.metadata().map_or(0, |data| data.len()).saturating_sub(PRINTED_SHOWN);
    let mut printed = vec![0; PRINTED_SHOWN as usize];
    let length = log.read_at(&mut printed, start).unwrap_or_default();
    String::from_utf8_lossy(&printed[..length]).into_owned()
}

/// A new log, or a file without a name. A symbolic link of this name is not followed.
fn open_log(log: Option<&Path>) -> io::Result<File> {
    let Some(log) = log else { return tempfile::tempfile() };
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true).custom_flags(nofollow).open(log)
}

impl Drop for Shared {
    fn drop(&mut self) {
        if lock(&self.link.lost).is_none() && self.link.send(&protocol::End().into()).is_ok() {
            *lock(&self.link.requests) = None;
            self.link.wait(END_TIMEOUT);
        }
        *lock(&self.link.requests) = None;
        let mut child = lock(&self.link.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);

/// A round trip from which on the network takes most of the time of a short query.
const DOMINATES: Nanos = Nanos::from_micros(200);

/// The addresses of the load generator and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    pub host: IpAddr,
    /// This machine's, as the host sees it.
    pub client: IpAddr,
}

impl NetworkPath {
    /// Resolves an address, and finds the local address that reaches it.
    pub(crate) fn find(address: &str) -> Result<Self, String> {
        let mut resolved = (address, 0).to_socket_addrs().map_err(|error| {
            format!("{error}; set `address` to the address that the load generator can reach")
        })?;
        let host = resolved.next().ok_or("it has no IP address")?.ip();
        if host.is_loopback() || host.is_unspecified() {
            return Err(
                "it is an address of this machine; set `address` to that of the host".into()
            );
        }
        let any: IpAddr = if host.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        // Sends nothing, but the kernel chooses the route.
        let client = UdpSocket::bind((any, 0))
            .and_then(|socket| socket.connect((host, 9)).and_then(|()| socket.local_addr()));
        let client = client.map_err(|error| format!("there is no route to it: {error}"))?.ip();
        Ok(Self { host, client })
    }

    /// The median time of `count` connections to this port.
    pub(crate) fn round_trip(self, port: u16, count: u32) -> Result<Nanos, String> {
        let mut times = Vec::new();
        for _ in 0..count {
            let started = Instant::now();
            TcpStream::connect_timeout(&SocketAddr::from((self.host, port)), TIMEOUT).map_err(
                |error| format!("port {port}: {error}; a firewall must let all ports through"),
            )?;
            times.push(Nanos::from(started.elapsed()));
        }
        times.sort();
        Ok(times[times.len() / 2])
    }
}

/// How long answers take from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Median time of a request to the agent, over ssh.
    pub agent: Nanos,
    /// Median round trip of the network: the time of a TCP connection.
    pub network: Nanos,
    /// The host's clock minus this machine's, in nanoseconds.
    pub clock_offset: i64,
}

impl Timing {
    /// The figures in words.
    pub fn describe(&self) -> String {
        let (offset, sign) = (self.clock_offset.unsigned_abs(), self.clock_offset >= 0);
        let sign = if sign { "ahead" } else { "behind" };
        format!(
            "network round trip {}, agent answers in {}, clock {} {sign}",
            self.network,
            self.agent,
            Nanos::from_nanos(offset)
        )
    }

    /// Whether the network takes most of the time of a short query.
    pub fn network_dominates(&self) -> bool {
        self.network >= DOMINATES
    }
}

/// Whether a process runs. The descriptor of one that has ended is readable.
fn is_running(process: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&Timespec::default())) == Ok(0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A link to an agent that reads nothing, and was last heard long ago.
    fn silent_link() -> Arc<Link> {
        let mut silent = Command::new("sleep").arg("60").stdin(Stdio::piped()).spawn().unwrap();
        Arc::new(Link {
            requests: Mutex::new(silent.stdin.take()),
            child: Mutex::new(silent),
            heard: Mutex::new(Instant::now().checked_sub(LOST_AFTER).unwrap()),
            owed: Mutex::default(),
            lost: Mutex::default(),
            dependents: Mutex::default(),
        })
    }

    /// Why a connection is lost whose agent prints this text again and again, after so many requests.
    fn lost_by(text: &str, requests: u64, heartbeats: u64) -> String {
        let link = silent_link();
        *lock(&link.owed) = Owed { answers: requests, heartbeats, unread: 0 };
        let (sender, _receiver) = channel();
        let reason = link.read(Repeated(text.as_bytes(), 0), &sender);
        link.lose(String::new());
        lock(&link.child).wait().unwrap();
        reason
    }

    /// A text without an end.
    struct Repeated<'a>(&'a [u8], usize);

    impl Read for Repeated<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.fill_buf()?.read(into)?;
            self.consume(count);
            Ok(count)
        }
    }

    impl BufRead for Repeated<'_> {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            Ok(&self.0[self.1..])
        }

        fn consume(&mut self, count: usize) {
            self.1 = (self.1 + count) % self.0.len();
        }
    }

    #[test]
    fn agent_that_sends_without_end_is_lost() {
        let many = "x".repeat(1 << 20);
        let (long, welcome) = (format!("{{\"done\":\"{many}\"}}\n"), format!("{many}\n"));
        for (text, requests, heartbeats, reason) in [
            (welcome.as_str(), 1, 1, "invalid answer"),
            ("{\"done\":null}\n", 3, 3, "invalid answer"),
            ("{\"done\":null}\n\"alive\"\n", 1, 3, "invalid answer"),
            (long.as_str(), 1_000, 0, "its answers are too long"),
            (many.as_str(), 1, 1, "an answer is too long"),
        ] {
            assert_eq!(lost_by(text, requests, heartbeats), reason);
        }
    }

    #[test]
    fn connection_is_lost_also_while_a_request_cannot_be_sent() {
        let link = silent_link();
        let beating = Arc::downgrade(&link);
        thread::spawn(move || beat(&beating));
        // More than a pipe holds.
        assert!(link.send(&protocol::OpenTree("x".repeat(1 << 20)).into()).is_err());
        assert!(lock(&link.lost).as_ref().unwrap().contains("no answer"));
        lock(&link.child).wait().unwrap();
    }

    #[test]
    fn agent_that_only_lives_is_lost() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let (_sender, answers) = channel();
        let shared = Shared {
            name: "db1".to_owned(),
            cpus: None,
            path: NetworkPath { host: address, client: address },
            password: Password(String::new()),
            libc: LibcVersion::default(),
            printed: tempfile::tempfile().unwrap(),
            timing: Timing { agent: Nanos::ZERO, network: Nanos::ZERO, clock_offset: 0 },
            answers: Mutex::new(answers),
            link: silent_link(),
        };
        shared.send(protocol::Time()).unwrap();
        let answer =
            shared.receive::<protocol::Time>(&lock(&shared.answers), Duration::from_millis(1));
        let error = answer.unwrap_err();
        assert!(error.is_lost() && error.to_string().contains("has not answered"), "{error}");
    }

    #[test]
    fn log_of_a_connection_is_limited() {
        let (link, log) = (silent_link(), tempfile::tempfile().unwrap());
        let many = vec![b'x'; 1 << 16];
        link.log(Repeated(&many, 0), log.try_clone().unwrap());
        assert_eq!(lock(&link.lost).take().unwrap(), "ssh printed more than 16 MiB");
        assert_eq!(log.metadata().unwrap().len(), MOST_PRINTED.as_bytes());
        lock(&link.child).wait().unwrap();
    }

    #[test]
    fn end_of_a_long_log_is_shown() {
        let mut log = tempfile::tempfile().unwrap();
        log.write_all("first\n".repeat(10_000).as_bytes()).unwrap();
        log.write_all(b"the reason\n").unwrap();
        assert!(end_of(&log).ends_with("first\nthe reason\n"));
    }

    #[test]
    fn passwords_differ_and_are_not_printed() {
        let (one, other) = (Password::draw().unwrap(), Password::draw().unwrap());
        assert_eq!(one.0.len(), 2 * PASSWORD_BYTES);
        assert_ne!(one.0, other.0);
        assert!(!format!("{one:?}").contains(&one.0));
    }

    #[test]
    fn addresses_of_this_machine_only_are_refused() {
        for address in ["127.0.0.1", "::1", "0.0.0.0", "localhost"] {
            assert!(NetworkPath::find(address).is_err(), "{address}");
        }
        let unknown = NetworkPath::find("no-such-host.invalid").unwrap_err();
        assert!(unknown.contains("set `address`"), "{unknown}");
    }

    #[test]
    fn timing_is_described() {
        let timing = Timing {
            agent: Nanos::from_micros(210),
            network: Nanos::from_micros(48),
            clock_offset: -1_500_000,
        };
        let expected = "network round trip 48 µs, agent answers in 210 µs, clock 1.5 ms behind";
        assert_eq!(timing.describe(), expected);
        assert!(!timing.network_dominates());
        assert!(Timing { network: Nanos::from_micros(250), ..timing }.network_dominates());
    }
}
