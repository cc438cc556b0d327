//! The agent: dbdyno on the host of servers, started by dbdyno on another machine.

mod live;
mod programs;
mod readings;
mod serving;
mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use crate::agent_dir::AgentDir;
use crate::protocol::{Failed, Request, Response};

use readings::Readings;
use serving::Servers;
use watch::{Answers, Watch};

/// Serves requests from standard input until it ends or nothing is heard for a while. Then ends all
/// servers and removes their data. `program` is this program.
///
/// Call it on the main thread: servers end with the thread that started them.
///
/// # Errors
/// Standard input or output cannot be used.
pub fn serve(program: PathBuf) -> io::Result<()> {
    let (sender, requests) = channel();
    let (answers, readings) = (Answers::default(), Readings::default());
    let watch = Watch::start(sender, answers.clone(), readings.clone())?;
    let Ok(Request::Open(base)) = requests.recv() else { return Ok(()) };
    let opened = AgentDir::create(base, &program);
    let directory = match opened {
        Ok(directory) => directory,
        Err(error) => return answers.send(&Response::Failed(Failed::because(error))),
    };
    watch.guard(directory.guard());
    let mut servers = match Servers::open(&directory, readings) {
        Ok(servers) => servers,
        Err(error) => return answers.send(&Response::Failed(error.into())),
    };
    let opened = answers.send(&Response::Opened(directory.path().to_owned()));
    let answered = opened.and_then(|()| answer_all(&requests, &mut servers, &answers, &watch));
    // Also if nobody reads the answers any more: data may be outside of the directory.
    servers.remove();
    drop(directory);
    answered
}

/// Answers requests until the end.
fn answer_all(
    requests: &Receiver<Request>,
    servers: &mut Servers,
    answers: &Answers,
    watch: &Watch,
) -> io::Result<()> {
    while let Ok(request) = requests.recv() {
        if matches!(request, Request::End) {
            watch.end();
            break;
        }
        answers.send(&servers.answer(request).unwrap_or_else(Response::Failed))?;
    }
    Ok(())
}
