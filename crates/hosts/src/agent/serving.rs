//! The answers to requests: what `engines` does for servers on this machine.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::thread;
use std::time::Instant;

use dbdyno_bench::protocol::{Reading, TimedUsage};
use dbdyno_bench::worker::{ServerMonitor, TimedPart};
use dbdyno_engines::server::{
    Installation, Network, Server, ServerDir, ServerDirs, ServerError, ServerPlan, initialise,
};
use dbdyno_machine::ProcessTree;
use dbdyno_record::Counting;
use dbdyno_units::Nanos;

use crate::agent_dir::AgentDir;
use crate::connection::now;
use crate::protocol::{Failed, PlanRequest, Request, Response, StartRequest, Started};

/// How often a start is tried, if another program took the port meanwhile.
const PORT_ATTEMPTS: u32 = 3;

/// All servers of an agent.
pub(super) struct Servers {
    directories: ServerDirs,
    running: BTreeMap<u32, Running>,
    next: u32,
}

/// A running server and the readings of its usage.
struct Running {
    server: Server,
    /// `None` if its usage cannot be read.
    monitor: Option<ServerMonitor>,
    background: Option<Nanos>,
    timed_part: Option<TimedPart>,
}

impl Servers {
    pub fn open(directory: &AgentDir) -> Result<Self, ServerError> {
        let directories = ServerDirs::open(&directory.data())?;
        // Only now: the servers that work in them have been ended.
        directory.remove_abandoned();
        Ok(Self { directories, running: BTreeMap::new(), next: 0 })
    }

    /// Kills all servers and removes their data. What remains after an error is the guard's.
    pub fn remove(self) {
        let Self { directories, running, .. } = self;
        drop(running);
        let _ = directories.remove();
    }

    pub fn answer(&mut self, request: Request) -> Result<Response, Failed> {
        match request {
            Request::Open(_) | Request::Heartbeat | Request::End => {
                return Err(Failed::because("not a request for an open agent"));
            }
            Request::Time => return Ok(Response::Time(now())),
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
            Request::Ended(number) => {
                let ended = match self.running.get_mut(&number) {
                    Some(running) => running.server.ended().map(Failed::from),
                    None => Some(Failed::because("the server was stopped")),
                };
                return Ok(Response::Ended(ended));
            }
            Request::Read(number, reading) => {
                let running = self.running.get_mut(&number);
                return Ok(Response::Read(running.and_then(|one| one.read(reading))));
            }
            Request::Stop(number) => {
                if let Some(running) = self.running.remove(&number) {
                    running.server.stop()?;
                }
            }
            Request::Kill(number) => drop(self.running.remove(&number)),
        }
        Ok(Response::Done)
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
        let number = self.next;
        self.next += 1;
        let running = Running { server, monitor, background: None, timed_part: None };
        self.running.insert(number, running);
        Ok(Started { server: number, port, counting, time: started.elapsed().into() })
    }
}

fn plan(request: PlanRequest) -> Result<ServerPlan, ServerError> {
    let PlanRequest { system, engine, program, durability, configuration, shape } = request;
    let installation = Installation::find(system, engine, program.as_deref())?;
    ServerPlan::new(installation, engine, durability, configuration, shape)
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

impl Running {
    fn read(&mut self, reading: Reading) -> Option<TimedUsage> {
        let monitor = self.monitor.as_mut()?;
        match reading {
            Reading::LeadIn { interrupted } => {
                if interrupted {
                    monitor.interrupt();
                }
                self.background = monitor.background();
                None
            }
            Reading::Start => {
                self.timed_part = Some(monitor.start(self.background.take()));
                None
            }
            Reading::End => self.timed_part.take().map(|started| monitor.end(started)),
        }
    }
}
