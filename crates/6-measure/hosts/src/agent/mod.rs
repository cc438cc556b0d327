//! The agent: dbdyno on the host of servers, started by dbdyno on another machine.

mod directory;
mod programs;
mod stacks;
mod watch;

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use std::{fs, io, thread};

use dbdyno_engines::server::{Network, Server, ServerDirs, ServerError, ServerPlan};
use dbdyno_machine::ProcessTree;
use dbdyno_machine::facts::DiskFacts;
use dbdyno_types::Counting;
use dbdyno_units::Bytes;
use dbdyno_worker::ServerMonitor;

use crate::connection::now;
use crate::protocol::{
    self as p, Answer, AnyRequest, Failed, PlanRequest, Request, StartRequest, Started, line_of,
};
use crate::{LocalHost, LocalServer, RunningServer, ServerHost};

use directory::{AgentDir, is_of_agent};
use programs::Programs;
use watch::{Answers, Readings, Watch, answer};

pub use directory::guard;

/// How often a start is tried, if another program took the port meanwhile.
const PORT_ATTEMPTS: u32 = 3;

/// Serves requests from standard input until it ends or nothing is heard for a while. Then ends all
/// servers and removes their data. `program` is this program. Fails if standard input or output cannot be used.
///
/// Call it on the main thread: servers end with the thread that started them.
pub fn serve(program: PathBuf) -> io::Result<()> {
    let (sender, requests) = channel();
    let (answers, readings) = (Answers::default(), Readings::default());
    let watch = Watch::start(sender, answers.clone(), readings.clone())?;
    let Ok(AnyRequest::Open(p::Open(base))) = requests.recv() else { return Ok(()) };
    let directory = match AgentDir::create(base, &program) {
        Ok(directory) => directory,
        Err(error) => return answers.send(answer::<p::Open>(Err(Failed::because(error)))),
    };
    watch.guard(directory.guard());
    let mut servers = match Servers::open(&directory, readings) {
        Ok(servers) => servers,
        Err(error) => return answers.send(answer::<p::Open>(Err(error.into()))),
    };
    let opened = answers.send(answer::<p::Open>(Ok(directory.path().to_owned())));
    let answered = opened.and_then(|()| answer_all(&requests, &mut servers, &answers, &watch));
    // Also if nobody reads the answers any more: data may be outside of the directory.
    servers.remove();
    drop(directory);
    answered
}

fn answer_all(
    requests: &Receiver<AnyRequest>,
    servers: &mut Servers,
    answers: &Answers,
    watch: &Watch,
) -> io::Result<()> {
    while let Ok(request) = requests.recv() {
        if matches!(request, AnyRequest::End(_)) {
            watch.end();
            break;
        }
        answers.send(servers.answer(request))?;
    }
    Ok(())
}

/// Answers one of these requests; others are not for an open agent.
macro_rules! answer_each {
    ($request:ident { $($name:ident($($field:ident),*) => $reply:expr,)* }) => {
        match $request {
            $(AnyRequest::$name(p::$name($($field),*)) => {
                reply_to::<p::$name>(|| Ok($reply))
            })*
            _ => {
                let failed = Failed::because("not a request for an open agent");
                line_of(&Answer::<()>::Failed(failed))
            }
        }
    };
}

fn reply_to<R: Request>(reply: impl FnOnce() -> Result<R::Reply, Failed>) -> io::Result<Vec<u8>> {
    answer::<R>(reply())
}

struct Servers {
    machine: LocalHost,
    /// The servers that this agent started.
    running: BTreeMap<u32, LocalServer>,
    /// Those of all servers, also of those that somebody else started.
    readings: Readings,
    programs: Programs,
    next: u32,
}

impl Servers {
    fn open(directory: &AgentDir, readings: Readings) -> Result<Self, ServerError> {
        let directories = ServerDirs::open(&directory.data())?;
        // Only now: the servers that work in them have been ended.
        directory.remove_abandoned();
        let machine = LocalHost::new(directories, None, directory.journals());
        let (running, programs) = (BTreeMap::new(), Programs::default());
        Ok(Self { machine, running, readings, programs, next: 0 })
    }

    /// Kills all servers and removes their data. What remains after an error is the guard's.
    fn remove(self) {
        let Self { machine, running, .. } = self;
        drop(running);
        let _ = machine.remove_all();
    }

    fn answer(&mut self, request: AnyRequest) -> io::Result<Vec<u8>> {
        answer_each!(request {
            Time() => now(),
            Machine() => fs::read_to_string("/proc/cpuinfo")?,
            FreeSpace() => self.free_space(),
            OpenTree(name) => self.programs.open(&name)?,
            FillTree(entries) => self.programs.fill(entries)?,
            Put(part) => self.programs.put(&part)?,
            FinishTree() => self.programs.finish()?,
            Plan(request) => Box::new(plan(*request)?),
            Listen(address, count) => listen(address, count)?,
            Exists(name) => self.machine.exists(&name),
            Initialise(plan, name) => self.machine.initialise(&plan, &name)?,
            Remove(name) => self.machine.remove(&name)?,
            Copy(from, to) => self.machine.copy(&from, &to)?,
            Rename(from, to) => self.machine.rename(&from, &to)?,
            Start(request) => self.start(*request)?,
            Find(search) => search.run().map_err(Failed::because)?,
            Watch(pid, count) => self.watch(pid, count)?,
            StartSampling(number, options) => self.server(number)?.start_sampling(options)?,
            EndSampling(number) => self.server(number)?.end_sampling()?,
            StartCounting(number) => self.server(number)?.start_counting()?,
            EndCounting(number) => self.server(number)?.end_counting()?,
            Optimize(number) => Box::new(self.server(number)?.optimize()?),
            OptimizeBy(number, options, profile, source) =>
                Box::new(self.server(number)?.optimize_by(options, &profile, source)?),
            Ended(number) => self.ended(number),
            StartStacks(number, frequency) => self.readings.start_stacks(number, frequency)?,
            Stacks(number) => self.readings.stacks(number)?,
            Stop(number) => self.remove_server(number).map_or(Ok(()), |server| server.stop())?,
            Kill(number) => drop(self.remove_server(number)),
        })
    }

    /// A server that this agent started.
    fn server(&mut self, number: u32) -> Result<&mut LocalServer, Failed> {
        let server = self.running.get_mut(&number);
        server.ok_or_else(|| Failed::because("there is no such server"))
    }

    fn remove_server(&mut self, number: u32) -> Option<Box<LocalServer>> {
        self.readings.remove(number);
        self.running.remove(&number).map(Box::new)
    }

    fn ended(&mut self, number: u32) -> Option<Failed> {
        match self.running.get_mut(&number) {
            Some(server) => server.ended().map(Failed::from),
            None => Some(Failed::because("the server was stopped")),
        }
    }

    /// Reads the usage of a process that somebody else started and others may use.
    fn watch(&mut self, pid: u32, count: bool) -> Result<(u32, Option<Counting>), Failed> {
        let tree = ProcessTree::of(pid).map_err(|error| {
            Failed::because(format!("the usage of process {pid} cannot be read: {error}"))
        })?;
        let mut monitor = ServerMonitor::new(tree, false);
        let counting = count.then(|| {
            monitor.count();
            monitor.counting()
        });
        let number = self.number();
        self.readings.add(number, monitor, None);
        Ok((number, counting))
    }

    /// The directory that was chosen for data, and the free space there.
    fn free_space(&self) -> Option<(PathBuf, Bytes)> {
        let root = self.machine.root();
        let chosen = root.ancestors().find(|path| is_of_agent(path)).and_then(Path::parent)?;
        Some((chosen.to_owned(), DiskFacts::of(root)?.free))
    }

    fn number(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn start(&mut self, request: StartRequest) -> Result<Started, Failed> {
        let StartRequest { plan, directory, cpus, network, count } = request;
        let (directory, started) = (self.machine.dir(&directory), Instant::now());
        let address = network.address;
        let mut attempt = 1;
        let (server, port) = loop {
            let port = bind(address)?.1;
            let network = Network { port, ..network.clone() };
            match Server::start_on_network(&plan, &directory, cpus.as_deref(), network) {
                Ok(server) => break (server, port),
                Err(_) if attempt < PORT_ATTEMPTS && is_taken(address, port) => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        };
        let mut monitor =
            ProcessTree::of(server.pid()).ok().map(|tree| ServerMonitor::new(tree, true));
        let counting = monitor.as_mut().filter(|_| count).map(|monitor| -> Counting {
            monitor.count();
            monitor.counting()
        });
        let certificate = server.certificate();
        let warnings = server.warnings();
        let public_key = if certificate.is_none() { server.public_key()? } else { None };
        let number = self.number();
        self.running.insert(number, self.machine.adopt(server));
        if let Some(monitor) = monitor {
            self.readings.add(number, monitor, Some(directory.data()));
        }
        let time = started.elapsed().into();
        Ok(Started { server: number, port, certificate, public_key, counting, warnings, time })
    }
}

fn plan(request: PlanRequest) -> Result<ServerPlan, ServerError> {
    let plan = request.plan()?;
    Server::check_network(&plan)?;
    Ok(plan)
}

/// Accepts this number of connections, in the background.
fn listen(address: IpAddr, count: u32) -> Result<u16, Failed> {
    let (listener, port) = bind(address)?;
    let accept = move || {
        for _ in 0..count {
            // A failed connection is noticed by the other side.
            drop(listener.accept());
        }
    };
    thread::Builder::new().spawn(accept).map_err(Failed::because)?;
    Ok(port)
}

fn is_taken(address: IpAddr, port: u16) -> bool {
    TcpListener::bind((address, port)).is_err()
}

/// Listens at a free port.
fn bind(address: IpAddr) -> Result<(TcpListener, u16), Failed> {
    let listener = TcpListener::bind((address, 0)).map_err(|error| {
        let advice = "set `address` to an address of the host itself";
        Failed::because(format!("listening at {address}: {error}; {advice}"))
    })?;
    let port = listener.local_addr().map_err(Failed::because)?.port();
    Ok((listener, port))
}
