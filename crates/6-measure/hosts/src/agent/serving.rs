//! The answers to requests: what `engines` does for servers on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use dbdyno_engines::server::{
    Installation, Network, Server, ServerDir, ServerDirs, ServerError, ServerPlan, initialise,
};
use dbdyno_machine::ProcessTree;
use dbdyno_machine::facts::DiskFacts;
use dbdyno_types::Counting;
use dbdyno_units::Bytes;
use dbdyno_worker::ServerMonitor;

use super::live::Optimizers;
use super::programs::Programs;
use super::readings::Readings;
use crate::agent_dir::{AgentDir, is_of_agent};
use crate::connection::now;
use crate::protocol::{Failed, PlanRequest, Request, Response, StartRequest, Started};

/// How often a start is tried, if another program took the port meanwhile.
const PORT_ATTEMPTS: u32 = 3;

/// All servers of an agent.
pub(super) struct Servers {
    directories: ServerDirs,
    /// The servers that this agent started.
    running: BTreeMap<u32, Server>,
    /// Those of all servers, also of those that somebody else started.
    readings: Readings,
    optimizers: Optimizers,
    /// The copies of servers' programs.
    programs: Programs,
    next: u32,
}

impl Servers {
    pub fn open(directory: &AgentDir, readings: Readings) -> Result<Self, ServerError> {
        let directories = ServerDirs::open(&directory.data())?;
        // Only now: the servers that work in them have been ended.
        directory.remove_abandoned();
        Ok(Self {
            directories,
            running: BTreeMap::new(),
            readings,
            optimizers: Optimizers::new(directory.journals()),
            programs: Programs::default(),
            next: 0,
        })
    }

    /// Kills all servers and removes their data. What remains after an error is the guard's.
    pub fn remove(self) {
        let Self { directories, running, optimizers, .. } = self;
        drop(optimizers);
        drop(running);
        let _ = directories.remove();
    }

    pub fn answer(&mut self, request: Request) -> Result<Response, Failed> {
        match request {
            Request::Open(_)
            | Request::Heartbeat
            | Request::Read(..)
            | Request::ReadStep(..)
            | Request::LeadIn(_)
            | Request::End => {
                return Err(Failed::because("not a request for an open agent"));
            }
            Request::Time => return Ok(Response::Time(now())),
            Request::Machine => {
                let cpus = fs::read_to_string("/proc/cpuinfo");
                return cpus.map(Response::Machine).map_err(Failed::because);
            }
            Request::FreeSpace => return Ok(Response::FreeSpace(self.free_space())),
            Request::OpenTree(name) => {
                return self.programs.open(&name).map(Response::Tree).map_err(Failed::because);
            }
            Request::FillTree(entries) => {
                let missing = self.programs.fill(entries);
                return missing.map(Response::Missing).map_err(Failed::because);
            }
            Request::Put(part) => self.programs.put(&part).map_err(Failed::because)?,
            Request::FinishTree => self.programs.finish().map_err(Failed::because)?,
            Request::Plan(request) => return Ok(Response::Plan(Box::new(plan(*request)?))),
            Request::Listen(address, count) => return listen(address, count),
            Request::Exists(name) => return Ok(Response::Exists(self.dir(&name).exists())),
            Request::Initialise(plan, name) => initialise(&plan, &self.dir(&name))?,
            Request::Remove(name) => self.dir(&name).remove()?,
            Request::Clone(from, to) => self.dir(&from).clone_to(&self.dir(&to))?,
            Request::Rename(from, to) => self.dir(&from).rename_to(&self.dir(&to))?,
            Request::Start(request) => {
                return self.start(*request).map(|started| Response::Started(Box::new(started)));
            }
            Request::Find(search) => {
                return search.run().map(Response::Found).map_err(Failed::because);
            }
            Request::Watch(pid, count) => return self.watch(pid, count),
            Request::Live(number, request) => {
                return self.optimizers.answer(number, self.running.get(&number), request);
            }
            Request::Ended(number) => {
                let ended = match self.running.get_mut(&number) {
                    Some(server) => server.ended().map(Failed::from),
                    None => Some(Failed::because("the server was stopped")),
                };
                return Ok(Response::Ended(ended));
            }
            Request::Stop(number) => {
                self.forget(number);
                if let Some(server) = self.running.remove(&number) {
                    server.stop()?;
                }
            }
            Request::Kill(number) => {
                self.forget(number);
                drop(self.running.remove(&number));
            }
        }
        Ok(Response::Done)
    }

    /// Reads the usage of a process that somebody else started and others may use.
    fn watch(&mut self, pid: u32, count: bool) -> Result<Response, Failed> {
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
        Ok(Response::Watching(number, counting))
    }

    /// The directory that was chosen for data, and the free space there.
    fn free_space(&self) -> Option<(PathBuf, Bytes)> {
        let root = self.directories.root();
        let chosen = root.ancestors().find(|path| is_of_agent(path)).and_then(Path::parent)?;
        Some((chosen.to_owned(), DiskFacts::of(root)?.free))
    }

    /// Ends what uses a server's process.
    fn forget(&mut self, number: u32) {
        self.optimizers.remove(number);
        self.readings.remove(number);
    }

    /// A new number.
    fn number(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn dir(&self, name: &str) -> ServerDir {
        self.directories.server_dir(name)
    }

    fn start(&mut self, request: StartRequest) -> Result<Started, Failed> {
        let StartRequest { plan, directory, cpus, network, count } = request;
        let (directory, started) = (self.dir(&directory), Instant::now());
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
        self.running.insert(number, server);
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
fn listen(address: IpAddr, count: u32) -> Result<Response, Failed> {
    let listener = bind(address, 0)?;
    let port = listener.local_addr().map_err(Failed::because)?.port();
    let accept = move || {
        for _ in 0..count {
            // A failed connection is noticed by the other side.
            drop(listener.accept());
        }
    };
    thread::Builder::new().spawn(accept).map_err(Failed::because)?;
    Ok(Response::Listening(port))
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
