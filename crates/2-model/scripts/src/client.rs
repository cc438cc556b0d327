//! A client that runs a script's events, on a stack of its own.

use std::mem::{ManuallyDrop, forget};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::error::ScriptError;
use crate::host::{Host, Outcome, Rows, Sent, SqlError, SqlErrorKind, Value};
use crate::random::{Seed, UniquePosition};
use crate::source::Source;
use crate::state::{Setup, State};

/// What a suspended client continues with.
pub(crate) enum Input {
    Continue,
    Answer(Result<Outcome, SqlError>),
    Stop,
}

/// Why a client has suspended itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is between two events.
    Event,
    /// It waits for the answer to a statement that was sent.
    Waiting,
    /// It sleeps in `prepare`, so that other clients can do what it waits for.
    Sleeping,
    /// Its `event` returned a value, which ends it.
    Ended,
}

/// The time that scripts see before their first block, in seconds since 1970: the start of 2025.
pub const START_TIME: f64 = 1_735_689_600.0;

type Fiber = Coroutine<Input, Progress, Result<(), ScriptError>, DefaultStack>;

/// Bytes of a client's stack; memory is used as it is needed.
const STACK: usize = 1 << 20;

/// A client that runs a script's events: a Lua state with `thread_init` done.
///
/// It can be between two events or wait for an answer. Other clients of the same thread run meanwhile.
pub struct Client {
    // Dropped before the state that it runs.
    fiber: Option<Fiber>,
    state: ManuallyDrop<State>,
    waits: bool,
}

// SAFETY: the state, its context and the stack are used by this client only; what they refer to by thread
// (LuaJIT's and mlua's state has none, a suspended stack has no references to thread-local data) does not
// change when a client that is not running is moved.
unsafe impl Send for Client {}

impl Client {
    /// Loads the script and runs `thread_init`, until the first event. The host must not wait.
    ///
    /// # Errors
    /// The script failed.
    pub fn start(source: &Source, setup: &Setup, host: &mut dyn Host) -> Result<Self, ScriptError> {
        let state = State::new(source, setup, "run", true, host)?;
        let mut client = Self::new(state, "thread", None)?;
        match client.run(host, Input::Continue)? {
            Progress::Event => Ok(client),
            Progress::Waiting | Progress::Sleeping => {
                Err(ScriptError::new("a statement of thread_init() has no answer"))
            }
            Progress::Ended => Err(ScriptError::new("thread_run() ended without an event")),
        }
    }

    /// A client that will run a command of the script instead of events.
    pub(crate) fn of_command(state: State, command: &'static str) -> Result<Self, ScriptError> {
        Self::new(state, "call", Some(command))
    }

    /// A client that will call a function of the prelude.
    fn new(
        state: State,
        function: &str,
        argument: Option<&'static str>,
    ) -> Result<Self, ScriptError> {
        let function = state.function(function)?;
        let context = state.context();
        let stack = DefaultStack::new(STACK)
            .map_err(|error| ScriptError::new(format!("creating a stack: {error}")))?;
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<Input, Progress>, _| {
            // SAFETY: the context lives as long as the state, which the client drops after this fiber.
            unsafe { (*context).set_yielder(yielder) };
            function.call::<mlua::Value>(argument)?;
            Ok(())
        });
        Ok(Self { fiber: Some(fiber), state: ManuallyDrop::new(state), waits: false })
    }

    /// Runs a command until it sleeps or has ended.
    pub(crate) fn proceed(&mut self, host: &mut dyn Host) -> Result<Progress, ScriptError> {
        self.run(host, Input::Continue)
    }

    /// Starts a block: the next event begins with these random numbers, at this position in the unique sequence
    /// unless it is passed, and at this time, in seconds since 1970.
    pub fn start_block(&mut self, seed: Seed, first_unique: u32, time: f64) {
        // SAFETY: the state does not run, so that nothing else uses the context.
        let context = unsafe { &mut *self.state.context() };
        context.next_block = Some((seed, first_unique));
        context.time = time;
    }

    /// The position in the unique sequence.
    #[must_use]
    pub fn unique_position(&self) -> UniquePosition {
        // SAFETY: as in `start_block`.
        unsafe { (*self.state.context()).random.unique_position() }
    }

    /// Starts an event, and runs it until it waits or is complete.
    ///
    /// # Errors
    /// The script failed, and cannot continue.
    #[inline]
    pub fn event(&mut self, host: &mut dyn Host) -> Result<Progress, ScriptError> {
        self.run(host, Input::Continue)
    }

    /// Continues an event that waits with the answer.
    ///
    /// # Errors
    /// As [`Self::event`].
    #[inline]
    pub fn resume(
        &mut self,
        host: &mut dyn Host,
        answer: Result<Outcome, SqlError>,
    ) -> Result<Progress, ScriptError> {
        self.run(host, Input::Answer(answer))
    }

    /// Runs `thread_done`, unless the client waits or has ended. The host must not wait.
    ///
    /// # Errors
    /// The script failed.
    pub fn finish(&mut self, host: &mut dyn Host) -> Result<(), ScriptError> {
        if self.fiber.is_some() && !self.waits {
            self.run(host, Input::Stop)?;
        }
        Ok(())
    }

    #[inline]
    fn run(&mut self, host: &mut dyn Host, input: Input) -> Result<Progress, ScriptError> {
        let Some(fiber) = &mut self.fiber else {
            return Err(ScriptError::new("the script has ended"));
        };
        self.state.enter(host);
        let result = fiber.resume(input);
        self.state.leave();
        match result {
            CoroutineResult::Yield(progress) => {
                self.waits = progress == Progress::Waiting;
                Ok(progress)
            }
            CoroutineResult::Return(done) => {
                self.fiber = None;
                match done {
                    Ok(()) => Ok(Progress::Ended),
                    Err(error) => {
                        // SAFETY: as in `start_block`.
                        let lost_connection = unsafe { (*self.state.context()).lost_connection() };
                        Err(ScriptError { lost_connection, ..error })
                    }
                }
            }
        }
    }
}

/// How often an ended client that continues to send statements is told so.
const LAST_ANSWERS: u32 = 1000;

impl Drop for Client {
    /// Lets the script end: its stack cannot be unwound, and its state cannot be closed while it runs.
    fn drop(&mut self) {
        for _ in 0..LAST_ANSWERS {
            if self.fiber.is_none() {
                // SAFETY: not used after this.
                return unsafe { ManuallyDrop::drop(&mut self.state) };
            }
            let input = if self.waits { Input::Answer(Err(ended())) } else { Input::Stop };
            // The error of an ended script tells nothing new.
            let _ = self.run(&mut NoHost, input);
        }
        // The script catches all errors: state and stack are leaked.
        forget(self.fiber.take());
    }
}

fn ended() -> SqlError {
    SqlError {
        number: 0,
        state: String::new(),
        message: "the client has ended".to_owned(),
        kind: SqlErrorKind::Lost,
    }
}

/// The host of a client that is dropped.
struct NoHost;

impl Host for NoHost {
    fn prepare(&mut self, _: &str) -> Result<u32, SqlError> {
        Err(ended())
    }

    fn execute(&mut self, _: u32, _: &[Value<'_>]) -> Sent {
        Sent::Done(Err(ended()))
    }

    fn query(&mut self, _: &str) -> Sent {
        Sent::Done(Err(ended()))
    }

    fn take_rows(&mut self) -> Rows {
        Rows::new()
    }

    fn close(&mut self, _: u32) {}

    fn print(&mut self, _: &str) {}

    fn restarted(&mut self) {}
}
