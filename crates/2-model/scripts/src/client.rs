//! Lua states that run a script: a client with events, on a stack of its own, and single commands.

use std::mem::{ManuallyDrop, forget};
use std::sync::Arc;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use mlua::{Function, LightUserData, Lua, LuaOptions, StdLib, Table};

use crate::calls::{Calls, Context, Input, Progress};
use crate::error::ScriptError;
use crate::host::{Driver, Host, Outcome, Sent, SqlError, SqlErrorKind, Value};
use crate::options::{Access, General, Options, general_options, take_random};
use crate::random::{Random, Seed, UniquePosition};
use crate::source::{Source, Version};
use crate::text::bytes_of;

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
    /// Whether it runs `thread_done`.
    ends: bool,
    /// Whether it runs a command instead of events.
    is_command: bool,
}

// SAFETY: the state, its context and the stack are used by this client only; what they refer to by thread
// (LuaJIT's and mlua's state has none, a suspended stack has no references to thread-local data) does not
// change when a client that is not running is moved.
unsafe impl Send for Client {}

impl Client {
    /// Loads the script and runs `thread_init`, until the first event. The host must not wait.
    pub fn start(source: &Source, setup: &Setup, host: &mut dyn Host) -> Result<Self, ScriptError> {
        let mut client = Self::load(source, setup, host)?;
        while let Some(time) = client.proceed(host)? {
            host.sleep(time);
        }
        Ok(client)
    }

    /// Loads the script; [`Self::proceed`] runs `thread_init`.
    pub fn load(source: &Source, setup: &Setup, host: &mut dyn Host) -> Result<Self, ScriptError> {
        let state = State::new(source, setup, "run", Use::Events, host)?;
        Self::new(state, "thread", None)
    }

    /// A client that will call a function of the prelude. With an argument, it runs a command of the script instead
    /// of events.
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
        Ok(Self {
            fiber: Some(fiber),
            state: ManuallyDrop::new(state),
            waits: false,
            ends: false,
            is_command: argument.is_some(),
        })
    }

    /// Runs `thread_init` or a command until it sleeps or waits for an answer: how long others run until it is
    /// continued, or `None` at the end.
    pub fn proceed(&mut self, host: &mut dyn Host) -> Result<Option<Duration>, ScriptError> {
        self.turn(host, Input::Continue)
    }

    /// Runs what is no event, as [`Self::proceed`].
    fn turn(&mut self, host: &mut dyn Host, input: Input) -> Result<Option<Duration>, ScriptError> {
        // Most answers come soon: clients then run one after another, in the same order for all candidates.
        let mut may_wait = !self.waits;
        let mut progress = if self.waits { Progress::Waiting } else { self.run(host, input)? };
        loop {
            progress = match progress {
                Progress::Waiting => match host.answer(may_wait) {
                    Some(answer) => self.run(host, Input::Answer(answer))?,
                    None => return Ok(Some(ANSWER_INTERVAL)),
                },
                Progress::Sleeping => return Ok(Some(self.sleep_time())),
                Progress::Ended if !self.is_command && !self.ends => {
                    return Err(ScriptError::new("thread_run() ended without an event"));
                }
                Progress::Event | Progress::Ended => return Ok(None),
            };
            may_wait = true;
        }
    }

    /// How long a client whose progress is [`Progress::Sleeping`] sleeps.
    pub fn sleep_time(&self) -> Duration {
        // SAFETY: as in `start_block`.
        unsafe { (*self.state.context()).sleep }
    }

    /// Starts a block: the next event begins with these random numbers, at this position in the unique sequence
    /// unless it is passed, and at this time, in seconds since 1970.
    pub fn start_block(&mut self, seed: Seed, first_unique: u32, time: f64) {
        // SAFETY: the state does not run, so that nothing else uses the context.
        let context = unsafe { &mut *self.state.context() };
        context.next_block = Some((seed, first_unique));
        (context.time, context.slept) = (time, Duration::ZERO);
    }

    pub fn unique_position(&self) -> UniquePosition {
        // SAFETY: as in `start_block`.
        unsafe { (*self.state.context()).random.unique_position() }
    }

    /// Starts an event, and runs it until it waits or is complete.
    #[inline]
    pub fn event(&mut self, host: &mut dyn Host) -> Result<Progress, ScriptError> {
        self.run(host, Input::Continue)
    }

    /// Continues an event that waits with the answer.
    #[inline]
    pub fn resume(
        &mut self,
        host: &mut dyn Host,
        answer: Result<Outcome, SqlError>,
    ) -> Result<Progress, ScriptError> {
        self.run(host, Input::Answer(answer))
    }

    /// Runs `thread_done`, as [`Self::proceed`]; not if the client has ended, or waits in an event.
    pub fn finish(&mut self, host: &mut dyn Host) -> Result<Option<Duration>, ScriptError> {
        if self.fiber.is_none() || (self.waits && !self.ends) {
            return Ok(None);
        }
        self.ends = true;
        self.turn(host, Input::Stop)
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
    SqlError::new("the client has ended", SqlErrorKind::Lost)
}

/// The host of a client that is dropped.
struct NoHost;

impl Host for NoHost {
    fn prepare(&mut self, _: &[u8]) -> Result<u32, SqlError> {
        Err(ended())
    }

    fn execute(&mut self, _: u32, _: &[Value<'_>]) -> Sent {
        Sent::Done(Err(ended()))
    }

    fn query(&mut self, _: &[u8]) -> Sent {
        Sent::Done(Err(ended()))
    }
}

/// Bytes of a Lua state.
const MOST_MEMORY: usize = 1 << 30;

const PRELUDE: &str = include_str!("prelude.lua");

/// How a script is run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub driver: Driver,
    /// The storage engine of tables in MySQL's words, if the candidate has one.
    pub storage_engine: Option<String>,
    pub access: Arc<Access>,
    pub options: Options,
    pub client: u32,
    pub clients: u32,
    /// The state of the random numbers.
    pub seed: Seed,
    /// Where the client's part of the unique sequence begins.
    pub unique: UniquePosition,
    /// How long a new script may run without a statement.
    pub time_limit: Duration,
    /// Whether it can neither execute nor change anything outside of its state. Only a run executes what a script
    /// contains.
    pub restricted: bool,
}

impl Setup {
    /// The default of [`Self::time_limit`].
    pub const TIME_LIMIT: Duration = Duration::from_secs(10);

    /// The first client of one, restricted.
    pub fn restricted(driver: Driver, options: &Options) -> Self {
        Self {
            driver,
            storage_engine: None,
            access: Arc::default(),
            options: options.clone(),
            client: 0,
            clients: 1,
            seed: Seed::of(&[]),
            unique: UniquePosition::default(),
            time_limit: Self::TIME_LIMIT,
            restricted: true,
        }
    }
}

/// What a state is loaded for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// To find what it declares, without a connection.
    Inspection,
    Events,
    /// `prepare` or `init`, which may connect several times.
    Command,
}

/// A Lua state with a loaded script, and what its calls work on.
pub(crate) struct State {
    // Finalizers of the script may call: the state is closed first.
    main: Table,
    pub lua: Lua,
    _calls: Box<Calls>,
    context: OwnedContext,
}

/// The context, which the calls reach too while the state runs.
struct OwnedContext(*mut Context);

impl Drop for OwnedContext {
    fn drop(&mut self) {
        // SAFETY: from a box in `State::new`, and the state is closed.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl State {
    /// Loads a script for a command: runs its top level and reads its options. Statements of the top level go to
    /// `host`.
    pub fn new(
        source: &Source,
        setup: &Setup,
        command: &str,
        used: Use,
        host: &mut dyn Host,
    ) -> Result<Self, ScriptError> {
        let mut options = setup.options.clone();
        let random = take_random(&mut options, source.version)
            .and_then(|random| Ok((general_options(setup, &random, source.version)?, random)))
            .map_err(|(name, problem)| ScriptError::new(format!("option {name}: {problem}")));
        let (general, random) = random?;
        let random = Random::new(random, setup.seed, setup.client, setup.unique);
        let context = Context::new(random, setup.time_limit, used == Use::Events);
        let context = OwnedContext(Box::into_raw(Box::new(context)));
        let calls = Box::new(Calls::on(context.0));
        // SAFETY: scripts may use FFI, as in sysbench; the user has chosen to run them. A restricted one has no FFI.
        let lua = unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::default()) };
        // Only LuaJIT with pointers of 32 bits has none.
        let _ = lua.set_memory_limit(MOST_MEMORY);
        let used = (command, used, host.files().is_some());
        let main = Self::prelude(&lua, &calls, source, setup, (&options, general), used)?;
        let state = Self { main, lua, _calls: calls, context };
        state.enter(host);
        let loaded = state.load(source);
        state.leave();
        loaded?;
        Ok(state)
    }

    fn prelude(
        lua: &Lua,
        calls: &Calls,
        source: &Source,
        setup: &Setup,
        (options, general): (&Options, Vec<(&'static str, General)>),
        (command, used, recorded): (&str, Use, bool),
    ) -> mlua::Result<Table> {
        let settings = lua.create_table()?;
        settings.set("client", setup.client)?;
        settings.set("driver", setup.driver.name())?;
        settings.set("version", source.version.release())?;
        settings.set("is_1_1", source.version == Version::V1_1)?;
        settings.set("storage_engine", setup.storage_engine.as_deref())?;
        settings.set("command", command)?;
        settings.set("restricted", setup.restricted)?;
        settings.set("recorded", recorded)?;
        settings.set("path", source.path.as_ref().unwrap_or(&source.name).as_str())?;
        settings.set("connects", used != Use::Inspection)?;
        settings.set("is_command", used == Use::Command)?;
        let given = lua.create_table()?;
        for (name, value) in options {
            given.set(name.as_str(), value.to_text())?;
        }
        settings.set("options", given)?;
        let all = lua.create_table()?;
        for (name, value) in general {
            match value {
                General::Bool(value) => all.set(name, value)?,
                General::Number(value) => all.set(name, value)?,
                General::Text(value) => all.set(name, value)?,
                General::List(values) => all.set(name, values)?,
            }
        }
        settings.set("general", all)?;

        let package: Table = lua.globals().get("package")?;
        package.set(
            "path",
            "./?.lua;./?/init.lua;/usr/local/share/sysbench/?.lua;/usr/share/sysbench/?.lua",
        )?;
        let preload: Table = package.get("preload")?;
        let files = lua.create_table()?;
        for module in &source.modules {
            files.set(module.file.as_str(), lua.create_string(without_shebang(&module.text))?)?;
            let chunk =
                lua.load(without_shebang(&module.text)).set_name(format!("@{}", module.file));
            // A syntax error is reported where the module is required.
            match chunk.into_function() {
                Ok(function) => preload.set(module.name.as_str(), function)?,
                Err(error) => {
                    let message = ScriptError::from(error).message;
                    let fail = lua.create_function(move |_, ()| -> mlua::Result<()> {
                        Err(mlua::Error::RuntimeError(message.clone()))
                    })?;
                    preload.set(module.name.as_str(), fail)?;
                }
            }
        }
        settings.set("files", files)?;
        let pointer = LightUserData(std::ptr::from_ref(calls).cast_mut().cast());
        lua.load(PRELUDE).set_name("=dbdyno").call((pointer, settings))
    }

    fn load(&self, source: &Source) -> Result<(), ScriptError> {
        let chunk = self
            .lua
            .load(without_shebang(&source.text))
            .set_name(format!("@{}", source.name))
            .into_function()?;
        self.function("load")?.call::<()>(chunk)?;
        Ok(self.function("options")?.call::<()>(())?)
    }

    pub fn function(&self, name: &str) -> Result<Function, ScriptError> {
        Ok(self.main.get(name)?)
    }

    /// What the calls work on.
    pub fn context(&self) -> *mut Context {
        self.context.0
    }

    /// Whether this command of the script runs in each client.
    pub fn is_parallel(&self, name: &str) -> Result<bool, ScriptError> {
        Ok(self.function("is_parallel")?.call(name)?)
    }

    pub fn has(&self, name: &str) -> Result<bool, ScriptError> {
        Ok(self.function("has")?.call(name)?)
    }

    /// Calls a command or function of the script; false if there is none.
    pub fn call(&self, name: &str, host: &mut dyn Host) -> Result<bool, ScriptError> {
        self.enter(host);
        let called = self.function("call").and_then(|call| Ok(call.call::<bool>(name)?));
        self.leave();
        called
    }

    pub fn enter(&self, host: &mut dyn Host) {
        // SAFETY: the state does not run, so that nothing else uses the context.
        unsafe { (*self.context.0).enter(host) }
    }

    pub fn leave(&self) {
        // SAFETY: as in `enter`.
        unsafe { (*self.context.0).leave() }
    }
}

/// The text with an empty first line in place of `#!/usr/bin/sysbench`.
fn without_shebang(text: &str) -> Vec<u8> {
    let bytes = bytes_of(text);
    match bytes.strip_prefix(b"#") {
        Some(rest) => [b"--", rest].concat(),
        None => bytes.into_owned(),
    }
}

/// Runs `prepare`, for each client if the script allows to run it in parallel, one after another. While one sleeps,
/// others run: scripts wait in this way for what other clients do. The host must not wait.
pub fn prepare(source: &Source, setup: &Setup, host: &mut dyn Host) -> Result<(), ScriptError> {
    const COMMAND: &str = "prepare";
    let state = State::new(source, setup, COMMAND, Use::Command, host)?;
    if !state.has(COMMAND)? {
        // It needs no data, or that of others.
        return Ok(());
    }
    let others = if state.is_parallel(COMMAND)? { 1..setup.clients } else { 1..1 };
    let mut clients = vec![Client::new(state, "call", Some(COMMAND))?];
    for client in others {
        let [first, second] = setup.seed.0;
        let seed = Seed::of(&[first, second, client.into()]);
        let setup = Setup { client, seed, ..setup.clone() };
        let state = State::new(source, &setup, COMMAND, Use::Command, host)?;
        clients.push(Client::new(state, "call", Some(COMMAND))?);
    }
    let mut host = host;
    let step = |host: &mut &mut dyn Host, client: &mut Client| client.proceed(&mut **host);
    take_turns(&mut host, &mut clients, step, |host, time| host.sleep(time))
}

/// How long a client waits before it asks again for an answer that did not come soon: many clients that ask more often
/// would take CPU time from the server.
const ANSWER_INTERVAL: Duration = Duration::from_millis(1);

/// How long a client sleeps at least that lets others run: those may only continue after a sleep.
const SHORTEST_SLEEP: Duration = Duration::from_micros(100);

/// Lets each client do a step until all are done: `step` returns how long the client sleeps, or `None` at its end.
/// While all sleep, `sleep` is called.
pub fn take_turns<W, C, E>(
    world: &mut W,
    clients: &mut [C],
    mut step: impl FnMut(&mut W, &mut C) -> Result<Option<Duration>, E>,
    mut sleep: impl FnMut(&mut W, Duration),
) -> Result<(), E> {
    // Only sleeps count as time.
    let mut now = Duration::ZERO;
    let mut wakes = vec![Some(now); clients.len()];
    while let Some(next) = wakes.iter().flatten().min().copied() {
        if next > now {
            sleep(world, next - now);
            now = next;
        }
        for (client, wakes) in clients.iter_mut().zip(&mut wakes) {
            if wakes.is_some_and(|at| at <= now) {
                let time = step(world, client)?;
                *wakes = time.map(|time| now.saturating_add(time.max(SHORTEST_SLEEP)));
            }
        }
    }
    Ok(())
}

/// Runs `init` if the script has it. The host must not wait.
pub fn init(source: &Source, setup: &Setup, host: &mut dyn Host) -> Result<(), ScriptError> {
    let state = State::new(source, setup, "run", Use::Command, host)?;
    state.call("init", host).map(drop)
}
