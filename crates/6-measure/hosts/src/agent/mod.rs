//! The agent: dbdyno on the host of servers, started by dbdyno on another machine.

mod directory;
mod programs;
mod readings;
mod watch;

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use std::{fs, io, thread};

use dbdyno_engines::server::{Installation, Network, Server, ServerDirs, ServerError, ServerPlan};
use dbdyno_machine::ProcessTree;
use dbdyno_machine::facts::DiskFacts;
use dbdyno_types::Counting;
use dbdyno_units::Bytes;
use dbdyno_worker::ServerMonitor;

use crate::connection::now;
use crate::protocol::{
    self as p, Answer, AnyRequest, Failed, PlanRequest, StartRequest, Started, line_of,
};
use crate::{HostError, LocalHost, LocalServer, RunningServer, ServerHost};

use directory::{AgentDir, is_of_agent};
use programs::Programs;
use readings::Readings;
use watch::{Answers, Watch, answer};

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

/// Answers requests until the end.
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

/// All servers of an agent.
struct Servers {
    machine: LocalHost,
    /// The servers that this agent started.
    running: BTreeMap<u32, LocalServer>,
    /// Those of all servers, also of those that somebody else started.
    readings: Readings,
    /// The copies of servers' programs.
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
        use AnyRequest as Any;
        match request {
            Any::Open(_)
            | Any::Heartbeat(_)
            | Any::Read(_)
            | Any::ReadStep(_)
            | Any::LeadIn(_)
            | Any::End(_) => {
                let failed = Failed::because("not a request for an open agent");
                line_of(&Answer::<()>::Failed(failed))
            }
            Any::Time(_) => answer::<p::Time>(Ok(now())),
            Any::Machine(_) => {
                let cpus = fs::read_to_string("/proc/cpuinfo");
                answer::<p::Machine>(cpus.map_err(Failed::because))
            }
            Any::FreeSpace(_) => answer::<p::FreeSpace>(Ok(self.free_space())),
            Any::OpenTree(p::OpenTree(name)) => {
                answer::<p::OpenTree>(self.programs.open(&name).map_err(Failed::because))
            }
            Any::FillTree(p::FillTree(entries)) => {
                answer::<p::FillTree>(self.programs.fill(entries).map_err(Failed::because))
            }
            Any::Put(p::Put(part)) => {
                answer::<p::Put>(self.programs.put(&part).map_err(Failed::because))
            }
            Any::FinishTree(_) => {
                answer::<p::FinishTree>(self.programs.finish().map_err(Failed::because))
            }
            Any::Plan(p::Plan(request)) => {
                answer::<p::Plan>(plan(*request).map(Box::new).map_err(Failed::from))
            }
            Any::Listen(p::Listen(address, count)) => answer::<p::Listen>(listen(address, count)),
            Any::Exists(p::Exists(name)) => answer::<p::Exists>(Ok(self.machine.exists(&name))),
            Any::Initialise(p::Initialise(plan, name)) => {
                answer::<p::Initialise>(self.machine.initialise(&plan, &name).map_err(Failed::from))
            }
            Any::Remove(p::Remove(name)) => {
                answer::<p::Remove>(self.machine.remove(&name).map_err(Failed::from))
            }
            Any::Copy(p::Copy(from, to)) => {
                answer::<p::Copy>(self.machine.copy(&from, &to).map_err(Failed::from))
            }
            Any::Rename(p::Rename(from, to)) => {
                answer::<p::Rename>(self.machine.rename(&from, &to).map_err(Failed::from))
            }
            Any::Start(p::Start(request)) => answer::<p::Start>(self.start(*request)),
            Any::Find(p::Find(search)) => answer::<p::Find>(search.run().map_err(Failed::because)),
            Any::Watch(p::Watch(pid, count)) => answer::<p::Watch>(self.watch(pid, count)),
            Any::StartSampling(p::StartSampling(number, options)) => {
                answer::<p::StartSampling>(self.with(number, |one| one.start_sampling(options)))
            }
            Any::EndSampling(p::EndSampling(number)) => {
                answer::<p::EndSampling>(self.with(number, LocalServer::end_sampling))
            }
            Any::StartCounting(p::StartCounting(number)) => {
                answer::<p::StartCounting>(self.with(number, LocalServer::start_counting))
            }
            Any::EndCounting(p::EndCounting(number)) => {
                answer::<p::EndCounting>(self.with(number, LocalServer::end_counting))
            }
            Any::Optimize(p::Optimize(number)) => {
                answer::<p::Optimize>(self.with(number, LocalServer::optimize).map(Box::new))
            }
            Any::OptimizeBy(p::OptimizeBy(number, options, profile, source)) => {
                let by = |one: &mut LocalServer| one.optimize_by(options, &profile, source);
                answer::<p::OptimizeBy>(self.with(number, by).map(Box::new))
            }
            Any::Ended(p::Ended(number)) => answer::<p::Ended>(Ok(self.ended(number))),
            Any::Stop(p::Stop(number)) => {
                self.readings.remove(number);
                let server = self.running.remove(&number).map(Box::new);
                let stopped = server.map_or(Ok(()), |server| server.stop());
                answer::<p::Stop>(stopped.map_err(Failed::from))
            }
            Any::Kill(p::Kill(number)) => {
                self.readings.remove(number);
                drop(self.running.remove(&number));
                answer::<p::Kill>(Ok(()))
            }
        }
    }

    /// Does something with a server that this agent started.
    fn with<T>(
        &mut self,
        number: u32,
        work: impl FnOnce(&mut LocalServer) -> Result<T, HostError>,
    ) -> Result<T, Failed> {
        let server = self.running.get_mut(&number);
        let server = server.ok_or_else(|| Failed::because("there is no such server"))?;
        Ok(work(server)?)
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

    /// A new number.
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
            let port = free_port(address)?;
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
        let public_key = if certificate.is_none() { server.public_key()? } else { None };
        let number = self.number();
        self.running.insert(number, self.machine.adopt(server));
        if let Some(monitor) = monitor {
            self.readings.add(number, monitor, Some(directory.data()));
        }
        let time = started.elapsed().into();
        Ok(Started { server: number, port, certificate, public_key, counting, time })
    }
}

fn plan(request: PlanRequest) -> Result<ServerPlan, ServerError> {
    let PlanRequest { system, engine, program, release, durability, configuration, shape } =
        request;
    let installation = match (&program, release) {
        (None, Some(name)) => Installation::of_release(system, engine, &name)?,
        (program, _) => Installation::find(system, engine, program.as_deref())?,
    };
    let plan = ServerPlan::new(installation, engine, durability, configuration, shape)?;
    Server::check_network(&plan)?;
    Ok(plan)
}

/// Accepts this number of connections, in the background.
fn listen(address: IpAddr, count: u32) -> Result<u16, Failed> {
    let listener = bind(address, 0)?;
    let port = listener.local_addr().map_err(Failed::because)?.port();
    let accept = move || {
        for _ in 0..count {
            // A failed connection is noticed by the other side.
            drop(listener.accept());
        }
    };
    thread::Builder::new().spawn(accept).map_err(Failed::because)?;
    Ok(port)
}

fn free_port(address: IpAddr) -> Result<u16, Failed> {
    let listener = bind(address, 0)?;
    Ok(listener.local_addr().map_err(Failed::because)?.port())
}

fn is_taken(address: IpAddr, port: u16) -> bool {
    TcpListener::bind((address, port)).is_err()
}

fn bind(address: IpAddr, port: u16) -> Result<TcpListener, Failed> {
    TcpListener::bind((address, port)).map_err(|error| {
        let advice = "set `address` to an address of the host itself";
        Failed::because(format!("listening at {address}: {error}; {advice}"))
    })
}
