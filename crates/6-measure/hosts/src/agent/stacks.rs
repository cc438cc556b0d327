//! Sampling of a server's stacks on its host.

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use dbdyno_types::ServerUsage;
use dbdyno_worker::Profiler;

use crate::protocol::LONGEST_PROFILE;

/// What the thread does next.
enum Task {
    Begin,
    End,
    Collect(HashSet<u32>, Option<ServerUsage>),
    Take,
}

/// A thread that samples one server: what it has collected cannot be sent to other threads. It ends when this is
/// dropped.
pub(super) struct StackSampler {
    tasks: Sender<Task>,
    /// An answer to each task: the text of the profile if it was taken, or why it failed.
    done: Receiver<Result<Option<String>, String>>,
    /// The first failure since the last profile.
    failed: Option<String>,
}

impl StackSampler {
    /// Prepares to sample the server with these processes.
    pub fn start(pids: Vec<u32>, frequency: u32) -> Result<Self, String> {
        let ((tasks, received), (answers, done)) = (channel(), channel());
        let work = move || {
            let mut profiler = match Profiler::open(&pids, frequency) {
                Ok(profiler) => profiler,
                Err(error) => {
                    let _ = answers.send(Err(error.to_string()));
                    return;
                }
            };
            let mut is_needed = answers.send(Ok(None)).is_ok();
            while is_needed {
                let Ok(task) = received.recv() else { break };
                is_needed = answers.send(perform(task, &mut profiler)).is_ok();
            }
        };
        thread::Builder::new().spawn(work).map_err(|error: io::Error| error.to_string())?;
        let sampler = Self { tasks, done, failed: None };
        sampler.answer().map(|_| sampler)
    }

    pub fn begin(&mut self) {
        self.perform(Task::Begin);
    }

    pub fn end(&mut self) {
        self.perform(Task::End);
    }

    /// Collects what was sampled of these processes, which used this meanwhile.
    pub fn collect(&mut self, pids: HashSet<u32>, used: Option<ServerUsage>) {
        self.perform(Task::Collect(pids, used));
    }

    /// The text of the profile of all that was collected since the last call.
    pub fn take(&mut self) -> Result<String, String> {
        let taken = self.perform(Task::Take).unwrap_or_default();
        match self.failed.take() {
            Some(why) => Err(why),
            None if taken.len() > LONGEST_PROFILE => Err("its profile is too long".to_owned()),
            None => Ok(taken),
        }
    }

    fn perform(&mut self, task: Task) -> Option<String> {
        let sent = self.tasks.send(task).map_err(|_| ENDED.to_owned());
        match sent.and_then(|()| self.answer()) {
            Ok(text) => text,
            Err(why) => {
                self.failed.get_or_insert(why);
                None
            }
        }
    }

    fn answer(&self) -> Result<Option<String>, String> {
        self.done.recv().unwrap_or_else(|_| Err(ENDED.to_owned()))
    }
}

const ENDED: &str = "the thread that samples stacks has ended";

fn perform(task: Task, profiler: &mut Profiler) -> Result<Option<String>, String> {
    match task {
        Task::Begin => profiler.begin().map_err(|error| error.to_string())?,
        Task::End => profiler.end().map_err(|error| error.to_string())?,
        Task::Collect(pids, used) => profiler.collect(&pids, used.as_ref()),
        Task::Take => {
            let text = serde_json::to_string(&profiler.take());
            return text.map(Some).map_err(|error| error.to_string());
        }
    }
    Ok(None)
}
